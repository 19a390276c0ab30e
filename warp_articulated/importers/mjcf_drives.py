"""Drives from the actuators of a compiled MJCF file: on hinge and slide joints, or at sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..geometry.rotations import quat_to_matrix
from ..model import WORLD, Body, Coupling, Drive, DriveType, Thrust
from .mjcf import HINGE, SLIDE, Source, unique, xyzw

DYN_NONE, GAIN_FIXED, BIAS_NONE, BIAS_AFFINE = 0, 0, 0, 1  # mujoco.mjtDyn, mjtGain, mjtBias
TRN_JOINT, TRN_JOINT_IN_PARENT, TRN_TENDON, TRN_SITE, TRN_BODY = 0, 1, 3, 4, 5  # mujoco.mjtTrn


def read_drives(source: Source, tendons: Mapping[int, Coupling]) -> tuple[list[Drive], list[int]]:
    """One drive per actuator on a hinge or slide joint, on a fixed tendon or at a site, in the file's order.

    Others become notes.

    tendons: those of the model, by their number in the file. Also returns where the control of each drive is in
    MuJoCo's ctrl.
    """
    m = source.m
    if source.disabled("ACTUATION"):
        return [], []
    drives, controls = [], []
    for a in range(getattr(m, "nactuator", m.nu)):
        reason = _unsupported(source, a, tendons)
        if reason:
            source.differences.append(
                f"Actuator {actuator_name(source, a)!r} is left out, because {reason}; accepted are motor, position, "
                "velocity and general actuators (fixed gain, affine bias, no activation) on a hinge or slide joint "
                "or a fixed tendon, and motors at a site: the simulation will differ."
            )
            continue
        drives.append(_site_drive(source, a) if _at_site(source, a) else _drive(source, a, tendons))
        controls.append(_control(source, a))
    # two actuators without a name on one joint would both have the joint's
    names = unique([drive.name for drive in drives])
    return [replace(drive, name=name) for drive, name in zip(drives, names, strict=True)], controls


def actuator_name(source: Source, a: int) -> str:
    """The actuator's name, or its joint's if it has none."""
    name = source.m.actuator(a).name
    if name or not _on_joint(source, a):
        return name or f"actuator{a}"
    return source.joint_names[source.m.actuator_trnid[a, 0]]


def _control(source: Source, a: int) -> int:
    """Where the control of actuator a is; newer versions of MuJoCo have actuators with several."""
    return int(source.m.actuator_ctrladr[a]) if hasattr(source.m, "actuator_ctrladr") else a


def _on_joint(source: Source, a: int) -> bool:
    return int(source.m.actuator_trntype[a]) in (TRN_JOINT, TRN_JOINT_IN_PARENT)


def _at_site(source: Source, a: int) -> bool:
    return int(source.m.actuator_trntype[a]) == TRN_SITE


def _unsupported(source: Source, a: int, tendons: Mapping[int, Coupling]) -> str:
    """Why actuator a has no counterpart here; empty if it has one."""
    m = source.m
    gain, (constant, stiffness, damping) = m.actuator_gainprm[a, 0], m.actuator_biasprm[a, :3]
    group = int(m.actuator_group[a])
    on_tendon = int(m.actuator_trntype[a]) == TRN_TENDON
    if on_tendon and int(m.actuator_trnid[a, 0]) not in tendons:
        return "its tendon is left out"
    if int(m.actuator_trntype[a]) == TRN_BODY:
        return "it is an adhesion actuator, which acts on contacts"
    if not on_tendon and not _on_joint(source, a) and not _at_site(source, a):
        return "it does not act on a joint, on a fixed tendon or at a site"
    if _at_site(source, a) and m.actuator_trnid[a, 1] >= 0:
        return "it acts between two sites (refsite)"
    if _at_site(source, a) and source.placements[m.site_bodyid[m.actuator_trnid[a, 0]]].link == WORLD:
        return "its site is fixed to the world"
    if _on_joint(source, a) and m.jnt_type[m.actuator_trnid[a, 0]] not in (HINGE, SLIDE):
        return f"joint {source.joint_names[m.actuator_trnid[a, 0]]!r} is a ball or free joint"
    if 0 <= group < 31 and m.opt.disableactuator & (1 << group):
        return f"the file disables its group {group}"
    if m.actuator_dyntype[a] != DYN_NONE:
        return "it has activation dynamics"
    if m.actuator_gaintype[a] != GAIN_FIXED or m.actuator_biastype[a] not in (BIAS_NONE, BIAS_AFFINE):
        return "its force is not a fixed gain with an affine bias"
    if hasattr(m, "actuator_delay") and m.actuator_delay[a]:
        return "its control is delayed"
    gear = m.actuator_gear[a] if _at_site(source, a) else m.actuator_gear[a, :1]
    if gain == 0.0 or not gear.any():
        return "its gain or its gear is zero"
    if m.actuator_biastype[a] == BIAS_AFFINE and (constant or stiffness > 0.0 or damping > 0.0):
        return "its bias has a constant part, or pushes away from the target"
    if m.actuator_biastype[a] == BIAS_AFFINE and damping and _at_site(source, a):
        return "its bias depends on the velocity of a site"  # a site has no length, so stiffness does nothing
    return ""


def _site_drive(source: Source, a: int) -> Drive:
    """Force and torque of the actuator's gear, in the axes of its site."""
    m = source.m
    site = int(m.actuator_trnid[a, 0])
    place = source.placements[m.site_bodyid[site]]
    turn = place.rotation @ quat_to_matrix(xyzw(m.site_quat[site]))
    force, torque = m.actuator_gear[a, :3], m.actuator_gear[a, 3:]
    thrust = Thrust(
        place.link, place.origin + place.rotation @ m.site_pos[site], np.concatenate([turn @ force, turn @ torque])
    )
    effort, center = _efforts(source, a, 1.0)
    return Drive(
        joint="",
        gear=float(m.actuator_gainprm[a, 0]),
        name=actuator_name(source, a),
        control_range=_control_range(source, a),
        thrust=thrust,
        effort=effort,
        effort_center=center,
    )


def _drive(source: Source, a: int, tendons: Mapping[int, Coupling]) -> Drive:
    """MuJoCo's force is g (gain u + b1 g q + b2 g qd), with g the gear, g q the actuator's length and q the joint's
    position or the tendon's length.
    """
    m = source.m
    at, on_joint = int(m.actuator_trnid[a, 0]), _on_joint(source, a)
    g, gain = float(m.actuator_gear[a, 0]), float(m.actuator_gainprm[a, 0])
    kp = kd = 0.0
    if m.actuator_biastype[a] == BIAS_AFFINE:
        kp, kd = -float(m.actuator_biasprm[a, 1]) * g * g, -float(m.actuator_biasprm[a, 2]) * g * g
    # the factor of u must equal g gain; it is gear, kp gear or kd gear, depending on the type of the drive
    if kp:
        kind, gear = DriveType.POSITION, g * gain / kp
    elif kd:
        kind, gear = DriveType.VELOCITY, g * gain / kd
    else:
        kind, gear = DriveType.TORQUE, g * gain
    effort, center = _efforts(source, a, g)
    return Drive(
        joint=source.joint_names[at] if on_joint else "",
        tendon="" if on_joint else tendons[at].name,
        type=kind,
        gear=gear,
        kp=kp,
        kd=kd,
        name=actuator_name(source, a),
        control_range=_control_range(source, a),
        effort=effort,
        effort_center=center,
    )


def _control_range(source: Source, a: int) -> tuple[float, float]:
    """u is MuJoCo's ctrl, so its range is ctrlrange."""
    k = _control(source, a)
    if not source.m.actuator_ctrllimited[k] or source.disabled("CLAMPCTRL"):
        return -np.inf, np.inf
    low, high = source.m.actuator_ctrlrange[k]
    return float(low), float(high)


def _efforts(source: Source, a: int, gear: float) -> tuple[float, float]:
    """Half the width of the range of a drive's force, and its middle.

    actuatorfrcrange bounds the sum of a joint's actuators; here it bounds each of them.
    """
    m = source.m
    low, high = -np.inf, np.inf
    if m.actuator_forcelimited[a]:
        low, high = sorted(gear * m.actuator_forcerange[a])
    j = int(m.actuator_trnid[a, 0])
    if _on_joint(source, a) and m.jnt_actfrclimited[j]:
        low, high = np.clip([low, high], *m.jnt_actfrcrange[j])
        on_joint = np.isin(m.actuator_trntype, (TRN_JOINT, TRN_JOINT_IN_PARENT)) & (m.actuator_trnid[:, 0] == j)
        if on_joint.sum() > 1:
            _once(
                source.notes,
                f"actuatorfrcrange of joint {source.joint_names[j]!r} bounds each of its actuators separately.",
            )
    if low == -high:
        return float(high), 0.0
    return float(high - low) / 2, float(low + high) / 2


def _once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)


def add_motor_inertia(source: Source, links: list[Body]) -> None:
    """Add rotor inertia and damping of actuators (newer versions of MuJoCo), times gear squared, to their joints."""
    m = source.m
    if not hasattr(m, "actuator_armature"):
        return
    link = {body.joint_name: body for body in links}
    damped = not source.disabled("DAMPER")
    for a in np.flatnonzero((m.actuator_armature != 0) | (m.actuator_damping != 0)).tolist():
        if not _on_joint(source, a) or m.jnt_type[m.actuator_trnid[a, 0]] not in (HINGE, SLIDE):
            name = actuator_name(source, a)
            source.differences.append(f"The armature of actuator {name!r} is ignored: the simulation will differ.")
            continue
        body = link[source.joint_names[m.actuator_trnid[a, 0]]]
        squared = float(m.actuator_gear[a, 0]) ** 2
        body.armature += squared * float(m.actuator_armature[a])
        body.damping += squared * float(m.actuator_damping[a]) * damped
