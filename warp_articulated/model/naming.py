"""Names and units of the entries of q, qd and u, for files and tables."""

from __future__ import annotations

import numpy as np

from .description import DriveType, JointType, Model

_Q = {
    JointType.FREE: [(c, "m") for c in "xyz"] + [(f"q{c}", "1") for c in "xyzw"],
    JointType.REVOLUTE: [("", "rad")],
    JointType.PRISMATIC: [("", "m")],
    JointType.SPHERICAL: [(f"q{c}", "1") for c in "xyzw"],
}
_QD = {
    JointType.FREE: [(f"v{c}", "m/s") for c in "xyz"] + [(f"w{c}", "rad/s") for c in "xyz"],
    JointType.REVOLUTE: [("", "rad/s")],
    JointType.PRISMATIC: [("", "m/s")],
    JointType.SPHERICAL: [(f"w{c}", "rad/s") for c in "xyz"],
}
_U = {
    DriveType.TORQUE: ("N m", "N"),
    DriveType.POSITION: ("rad", "m"),
    DriveType.VELOCITY: ("rad/s", "m/s"),
}


def q_entries(model: Model) -> list[tuple[str, str]]:
    """(name, unit) of each entry of q: the joint's name, followed by ".x" to ".qw" if it has several."""
    return _joint_entries(model, _Q)


def qd_entries(model: Model) -> list[tuple[str, str]]:
    """(name, unit) of each entry of qd."""
    return _joint_entries(model, _QD)


def u_entries(model: Model) -> list[tuple[str, str]]:
    """(name, unit) of each entry of u; with a gear it is the unit of gear times u."""
    kinds = {int(v): JointType(model.joint_type[i]) for i, v in enumerate(model.v_start)}
    entries = []
    for k, name in enumerate(model.drive_names):
        kind = kinds.get(int(model.drive_dof[k]))  # none: it acts on a tendon or pushes a link
        unit = _U[DriveType(model.drive_type[k])][kind == JointType.PRISMATIC] if kind is not None else "1"
        entries.append((name, unit if model.gear[k] == 1.0 else f"{unit} / gear"))
    return entries


def _joint_entries(model: Model, parts: dict) -> list[tuple[str, str]]:
    entries = []
    kinds = model.joint_type[np.argsort(model.joint_of_link)]
    for name, kind in zip(model.joint_names, kinds, strict=True):
        entries += [(f"{name}.{part}" if part else name, unit) for part, unit in parts[JointType(kind)]]
    return entries
