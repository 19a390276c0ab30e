"""Drives of a URDF's joints from the loader's options: URDF files do not say how a joint is driven."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Real
from pathlib import Path

from ..model import Drive, DriveType, JointType, ModelError
from ..model.validate import names_in
from .urdf_tree import JointElement

PerJoint = float | Mapping[str, float] | None
KINDS = {"torque": DriveType.TORQUE, "position": DriveType.POSITION, "velocity": DriveType.VELOCITY}


def make_drives(
    path: Path,
    joints: list[JointElement],
    drive: str | Mapping[str, str],
    kp: PerJoint,
    kd: PerJoint,
    effort: PerJoint,
    passive: Iterable[str],
    followers: Collection[str] = (),
) -> list[Drive]:
    """One drive per revolute or prismatic joint that is not passive and follows no other. Arguments as in load_urdf."""
    kinds = (JointType.REVOLUTE, JointType.PRISMATIC)
    driven = {j.name: j for j in joints if j.type in kinds and j.name not in followers}
    numbers: dict[str, PerJoint] = {"kp": kp, "kd": kd, "effort": effort}
    options: dict[str, str | Mapping[str, str] | PerJoint] = {"drive": drive, **numbers}
    passive = {passive} if isinstance(passive, str) else set(names_in(path, "passive", passive))
    named = [(key, name) for key, value in options.items() if isinstance(value, Mapping) for name in value]
    for key, name in named + [("passive", name) for name in sorted(passive)]:
        if name not in driven:
            raise ModelError(
                f"{path}: {key} names joint {name!r}, which is not a driven joint; {', '.join(driven)} are."
            )

    drives = []
    for name, joint in driven.items():
        if name in passive:
            continue
        word = _of(drive, name, "torque")
        if not isinstance(word, str) or word not in KINDS:
            raise ModelError(f"{path}: drive={word!r} is not known; {', '.join(map(repr, KINDS))} are.")
        gains = {key: _number(path, key, value, name) for key, value in numbers.items()}
        needed = {"torque": (), "position": ("kp",), "velocity": ("kd",)}[word]
        for key in needed:
            if gains[key] is None:
                raise ModelError(f"{path}: a {word} drive needs {key}, and joint {name!r} has none; give {key}=...")
        limit = joint.effort if gains["effort"] is None else gains["effort"]
        drives.append(Drive(name, KINDS[word], kp=gains["kp"] or 0.0, kd=gains["kd"] or 0.0, effort=limit, name=name))
    if drives and all(d.type == DriveType.TORQUE for d in drives) and not (kp is None and kd is None):
        raise ModelError(f"{path}: kp and kd have no meaning for torque drives; load with drive='position' as well.")
    return drives


def _of(value, name: str, default):
    return value.get(name, default) if isinstance(value, Mapping) else value


def _number(path: Path, key: str, value: PerJoint, name: str) -> float | None:
    value = _of(value, name, None)
    if value is None:
        return None
    infinite = key == "effort" and value == math.inf
    if not isinstance(value, Real) or not (infinite or math.isfinite(value)) or float(value) < 0:
        raise ModelError(f"{path}: {key}={value!r} for joint {name!r} must be a number that is not negative.")
    return float(value)
