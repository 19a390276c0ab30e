"""Poses of links and shapes for whole batches of joint positions, in numpy: for pictures, exports and tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from .model import WORLD, JointType, Model, Shape
from .rotations import quat_multiply

IDENTITY = np.array([0.0, 0.0, 0.0, 1.0])


def rotate(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors (..., 3) turned by unit quaternions (..., 4); the leading shapes broadcast."""
    axis, w = quat[..., :3], quat[..., 3:]
    twice = 2.0 * np.cross(axis, vector)
    return vector + w * twice + np.cross(axis, twice)


def as_positions(model: Model, q: Any, name: str, leading: tuple[int, ...]) -> np.ndarray:
    """q as a float64 array after checking its shape; q may be numpy, torch or Warp, on any device.

    Args:
        name: what the caller calls this argument, for the error.
        leading: how many dimensions may stand before the last one, which must be nq.
    """
    if hasattr(q, "detach"):
        q = q.detach().cpu()
    array = np.asarray(q.numpy() if hasattr(q, "numpy") else q, float)
    if array.ndim - 1 not in leading or array.shape[-1] != model.nq or array.size == 0:
        accepted = {0: "(nq,)", 1: "(n, nq)", 2: "(T, num_envs, nq)"}
        raise ValueError(
            f"{name} has shape {array.shape}; for {model.name!r} with nq = {model.nq} "
            f"it must be {' or '.join(accepted[k] for k in leading)}."
        )
    return array


def check_finite(array: np.ndarray, name: str) -> None:
    """Raise an error that names the first entry that is NaN or infinite."""
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(where)} is {array[where]}; every entry must be finite.")


def batch_link_poses(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World origins (..., nl, 3) in m and unit quaternions (..., nl, 4) of all links at positions q (..., nq)."""
    q = np.asarray(q, float)
    origins = np.empty((*q.shape[:-1], model.num_links, 3))
    quats = np.empty((*q.shape[:-1], model.num_links, 4))
    for i in range(model.num_links):
        at, parent, kind = int(model.q_start[i]), int(model.parent[i]), model.joint_type[i]
        if kind == JointType.FREE:
            origins[..., i, :] = q[..., at : at + 3]
            quats[..., i, :] = _unit(q[..., at + 3 : at + 7])
            continue
        above = IDENTITY if parent == WORLD else quats[..., parent, :]
        origin = rotate(above, model.joint_pos[i])
        if parent != WORLD:
            origin = origin + origins[..., parent, :]
        quat = quat_multiply(above, model.joint_quat[i])
        if kind == JointType.SPHERICAL:
            quat = quat_multiply(quat, _unit(q[..., at : at + 4]))
        elif kind == JointType.REVOLUTE:
            half = q[..., at : at + 1] / 2
            quat = quat_multiply(quat, np.concatenate([np.sin(half) * model.axis[i], np.cos(half)], -1))
        else:
            origin = origin + rotate(quat, model.axis[i]) * q[..., at : at + 1]
        origins[..., i, :], quats[..., i, :] = origin, _unit(quat)
    return origins, quats


def shape_poses(shape: Shape, origins: np.ndarray, quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World position (..., 3) and quaternion (..., 4) of a shape, from the poses of all links (..., nl, 3 or 4)."""
    local = _unit(np.asarray(shape.quat, float))
    if shape.link == WORLD:
        batch = origins.shape[:-2]
        return np.broadcast_to(shape.pos, (*batch, 3)), np.broadcast_to(local, (*batch, 4))
    link = quats[..., shape.link, :]
    return origins[..., shape.link, :] + rotate(link, shape.pos), quat_multiply(link, local)


def _unit(quat: np.ndarray) -> np.ndarray:
    return quat / np.linalg.norm(quat, axis=-1, keepdims=True)
