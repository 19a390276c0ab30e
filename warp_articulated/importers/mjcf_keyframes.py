"""Keyframes of a compiled MJCF file, in our conventions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..geometry.rotations import rotate
from ..model import Keyframe, Model
from .mjcf import BALL, FREE, Source, unique, xyzw


def read_keyframes(source: Source, controls: list[int]) -> dict[str, Keyframe]:
    """Every <key> by its name, or "key" and its number; u has the entries `controls` of ctrl."""
    m = source.m
    names = unique([m.key(k).name or f"key{k}" for k in range(m.nkey)])
    found = {}
    for k, name in enumerate(names):
        key = Keyframe(*_state(source, m.key_qpos[k], m.key_qvel[k]), m.key_ctrl[k][controls])
        if all(np.isfinite(part).all() for part in (key.q, key.qd, key.u)):
            found[name] = key
        else:
            source.notes.append(f"Keyframe {name!r} is left out, because some of its numbers are not finite.")
    return found


def posed_by_key(model: Model, name: str) -> Model:
    """The model with a keyframe's pose and control as q0 and u0. A model has no default velocity."""
    key = model.keyframes[name]
    pose = {joint: key.q[model.joint_q(joint)].tolist() for joint in model.joint_names}
    model = model.with_pose(pose, np.clip(key.u, *model.control_range.T))
    if key.qd.any():
        note = f"Keyframe {name!r} moves; a model starts at rest, and model.keyframes[{name!r}].qd has the velocities."
        model = replace(model, notes=(*model.notes, note))
    return model


def _state(source: Source, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Our q and qd. MuJoCo's angular velocities of free and ball joints are in the axes of the moving body."""
    m = source.m
    q, qd = qpos.copy(), qvel.copy()
    for j in np.flatnonzero((m.jnt_type == FREE) | (m.jnt_type == BALL)):
        first = 3 * (m.jnt_type[j] == FREE)  # after the position or linear velocity of a free joint
        turn, spin = m.jnt_qposadr[j] + first, m.jnt_dofadr[j] + first
        q[turn : turn + 4] = xyzw(qpos[turn : turn + 4])
        qd[spin : spin + 3] = rotate(q[turn : turn + 4], qvel[spin : spin + 3])
    return q, qd
