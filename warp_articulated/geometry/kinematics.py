"""Poses of links and shapes in numpy, for whole batches or one q: for pictures, exports, importers and tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.description import WORLD, JointType, Model, Shape, ShapeType
from .rotations import IDENTITY, quat_multiply, quat_to_matrix, rotate, unit_quat

BLOCK = 8192  # poses computed at a time: their numbers fit into a processor's cache


def as_numpy(value: Any) -> np.ndarray:
    """A numpy, torch or Warp array on any device, or numbers, as a numpy array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def as_positions(model: Model, q: Any, name: str, leading: tuple[int, ...]) -> np.ndarray:
    """q as a float64 array after checking its shape; arguments: see as_array."""
    return np.asarray(as_array(model, q, name, leading), float)


def as_array(model: Model, q: Any, name: str, leading: tuple[int, ...]) -> np.ndarray:
    """q as a numpy array of the same dtype after checking its shape; q may be numpy, torch or Warp, on any device.

    Args:
        name: the caller's name of this argument, for the error message.
        leading: accepted numbers of dimensions before the last one, which must be nq.
    """
    array = as_numpy(q)
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
    flat = q.reshape(-1, model.nq)
    origins = np.empty((len(flat), model.num_links, 3))
    quats = np.empty((len(flat), model.num_links, 4))
    for start in range(0, len(flat), BLOCK):
        block = slice(start, start + BLOCK)
        for i, (origin, quat) in enumerate(_block_poses(model, np.ascontiguousarray(flat[block].T))):
            origins[block, i], quats[block, i] = origin.T, quat.T
    return origins.reshape(*q.shape[:-1], -1, 3), quats.reshape(*q.shape[:-1], -1, 4)


def batch_body_poses(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As batch_link_poses, but of the frames that the robot's file gave its bodies, as Simulator.link_poses does."""
    origins, quats = batch_link_poses(model, q)
    moved = np.flatnonzero(model.frame_pos.any(-1))
    if len(moved):
        origins[..., moved, :] += rotate(quats[..., moved, :], model.frame_pos[moved])
    return origins, quats


def link_transforms(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As batch_link_poses, but rotation matrices (..., nl, 3, 3) first, then origins (..., nl, 3)."""
    origins, quats = batch_link_poses(model, q)
    return quat_to_matrix(quats), origins


def _block_poses(model: Model, q: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Origin (3, n) and quaternion (4, n) of every link at q (nq, n): components first, so that numpy runs along n."""
    n = q.shape[1]
    poses: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(model.num_links):
        at, parent, kind = int(model.q_start[i]), int(model.parent[i]), model.joint_type[i]
        if kind == JointType.FREE:
            poses.append((q[at : at + 3], unit_quat(q[at + 3 : at + 7], axis=0)))
            continue
        origin, above = (np.zeros((3, 1)), IDENTITY[:, None]) if parent == WORLD else poses[parent]
        axis, still = model.axis[i][:, None], model.joint_quat[i][:, None]
        origin = origin + rotate(above, model.joint_pos[i][:, None], axis=0)
        if kind == JointType.REVOLUTE:
            # joint_quat times (axis sin, cos), with the product of the two constants taken out
            half = q[at] / 2
            quarter = quat_multiply(model.joint_quat[i], np.append(model.axis[i], 0.0))
            still = still * np.cos(half) + quarter[:, None] * np.sin(half)
        quat = quat_multiply(above, still, axis=0)
        if kind == JointType.SPHERICAL:
            quat = quat_multiply(quat, unit_quat(q[at : at + 4], axis=0), axis=0)
        elif kind == JointType.PRISMATIC:
            origin = origin + rotate(quat, axis, axis=0) * q[at]
        poses.append((np.broadcast_to(origin, (3, n)), np.broadcast_to(unit_quat(quat, axis=0), (4, n))))
    return poses


def shape_poses(shape: Shape, origins: np.ndarray, quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World position (..., 3) and quaternion (..., 4) of a shape, from the poses of all links (..., nl, 3 or 4)."""
    local = unit_quat(shape.quat)
    if shape.link == WORLD:
        batch = origins.shape[:-2]
        return np.broadcast_to(shape.pos, (*batch, 3)), np.broadcast_to(local, (*batch, 4))
    link = quats[..., shape.link, :]
    return origins[..., shape.link, :] + rotate(link, shape.pos), quat_multiply(link, local)


def lowest_point(model: Model, q: np.ndarray) -> float:
    """Height of the lowest point of all colliding shapes on links at one q; inf if there are none."""
    rotation, origin = link_transforms(model, q)
    lowest = np.inf
    for shape in model.shapes:
        if shape.link == WORLD or not shape.collide or shape.type == ShapeType.PLANE:
            continue
        R = rotation[shape.link] @ quat_to_matrix(shape.quat)
        up = R[2]  # the world's z axis, seen from the shape
        size = np.append(shape.size, np.zeros(3))
        if shape.type == ShapeType.MESH:
            reach = -np.min(np.asarray(shape.vertices) @ up)
        elif shape.type == ShapeType.BOX:
            reach = np.abs(up) @ size[:3]
        elif shape.type == ShapeType.CYLINDER:
            reach = np.hypot(up[0], up[1]) * size[0] + abs(up[2]) * size[1]
        elif shape.type in (ShapeType.SPHERE, ShapeType.CAPSULE):
            reach = size[0] + abs(up[2]) * size[1]
        else:
            raise ValueError(f"shape {shape.name!r} has type {shape.type!r}, whose lowest point is unknown.")
        lowest = min(lowest, float(origin[shape.link][2] + rotation[shape.link][2] @ shape.pos - reach))
    return lowest
