"""Which joints have a slider in the panel, and between which values it moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...model import DriveType, JointType, Model

# where a model sets no limit: half a turn, a metre; speeds in rad/s and m/s; forces in N m and N
FREE_RANGE = {JointType.REVOLUTE: np.pi, JointType.PRISMATIC: 1.0}
SPEED_RANGE = {JointType.REVOLUTE: 2.0 * np.pi, JointType.PRISMATIC: 1.0}
FORCE_RANGE = 10.0


@dataclass(frozen=True)
class JointControl:
    """A revolute or prismatic joint. Ranges are (lowest, highest) in units of the joint, not of u."""

    name: str
    q_index: int
    drive: int | None  # the first drive on it, index into u; None: nothing drives it
    gear: float  # of that drive: joint units = gear u
    pose_range: tuple[float, float]
    drive_range: tuple[float, float]
    unit: str  # of poses
    drive_unit: str  # of the drive's target


def joint_controls(model: Model) -> list[JointControl]:
    """All joints that one number poses, in the order of q."""
    links = sorted(range(model.num_links), key=lambda i: int(model.q_start[i]))
    return [_control(model, i) for i in links if JointType(model.joint_type[i]) in FREE_RANGE]


def _control(model: Model, link: int) -> JointControl:
    kind, at, dof = JointType(model.joint_type[link]), int(model.q_start[link]), int(model.v_start[link])
    lower, upper = float(model.lower[dof]), float(model.upper[dof])
    reach = FREE_RANGE[kind]
    poses = _around(
        float(model.q0[at]),
        lower if np.isfinite(lower) else min(-reach, upper - 2 * reach),
        upper if np.isfinite(upper) else max(reach, lower + 2 * reach),
    )
    unit = "rad" if kind == JointType.REVOLUTE else "m"
    drives = [int(k) for k in np.flatnonzero(model.drive_dof == dof) if model.gear[k] != 0.0]
    name = model.joint_names[model.joint_of_link[link]]
    if not drives:
        return JointControl(name, at, None, 1.0, poses, poses, unit, unit)
    k = drives[0]
    taken, drive_unit = _drive_range(model, k, kind, poses, unit)
    held = float(model.gear[k] * model.u0[k])
    return JointControl(name, at, k, float(model.gear[k]), poses, _around(held, *taken), unit, drive_unit)


def _drive_range(
    model: Model, k: int, kind: JointType, poses: tuple[float, float], unit: str
) -> tuple[tuple[float, float], str]:
    match DriveType(model.drive_type[k]):
        case DriveType.POSITION:
            return poses, unit
        case DriveType.VELOCITY:
            return (-SPEED_RANGE[kind], SPEED_RANGE[kind]), f"{unit}/s"
        case _:
            limit = float(model.effort[k])
            limit = limit if np.isfinite(limit) and limit > 0.0 else FORCE_RANGE
            return (-limit, limit), "N m" if kind == JointType.REVOLUTE else "N"


def _around(value: float, lower: float, upper: float) -> tuple[float, float]:
    """The range, widened so that it holds the value and is not empty."""
    lower, upper = min(lower, value), max(upper, value)
    return (lower, upper) if upper > lower else (lower - 1e-3, upper + 1e-3)
