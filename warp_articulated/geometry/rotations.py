"""Rotations: quaternions (xyzw), matrices, roll-pitch-yaw. Quaternion algebra works on numpy arrays and torch tensors.

torch is not imported here: reading a file should not wait for it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

IDENTITY = np.array([0.0, 0.0, 0.0, 1.0])

Array = Any  # numpy.ndarray or torch.Tensor; the result is of the same kind


# Components lie along `axis`, the last one by default. With the first one numpy runs along a batch without gaps, which
# is twice as fast.


def unit_quat(q: Array, axis: int = -1) -> Array:
    """Quaternions (..., 4) scaled to length 1."""
    xp, (q,) = _arrays(q)
    return q / xp.linalg.norm(q, axis=axis, keepdims=True)


def conjugate(q: Array) -> Array:
    """The inverse rotations of unit quaternions (..., 4)."""
    xp, (q,) = _arrays(q)
    return xp.concatenate([-q[..., :3], q[..., 3:]], -1)


def quat_multiply(a: Array, b: Array, axis: int = -1) -> Array:
    """Product a b (..., 4): first rotate by b, then by a. The other axes broadcast."""
    xp, (a, b) = _arrays(a, b)
    (av, aw), (bv, bw) = _parts(a, axis), _parts(b, axis)
    vector = aw * bv + bw * av + _cross(xp, av, bv, axis)
    return xp.concatenate([vector, aw * bw - (av * bv).sum(axis, keepdims=True)], axis)


def rotate(q: Array, vector: Array, axis: int = -1) -> Array:
    """Vectors (..., 3) turned by unit quaternions (..., 4). The other axes broadcast."""
    xp, (q, vector) = _arrays(q, vector)
    qv, qw = _parts(q, axis)
    twice = 2.0 * _cross(xp, qv, vector, axis)
    return vector + qw * twice + _cross(xp, qv, twice, axis)


def rotate_back(q: Array, vector: Array) -> Array:
    """The inverse of `rotate`: world vectors in the axes of bodies with orientations q."""
    xp, (q, vector) = _arrays(q, vector)
    qv, qw = _parts(q, -1)
    twice = 2.0 * _cross(xp, vector, qv, -1)
    return vector + qw * twice + _cross(xp, twice, qv, -1)


def quat_to_matrix(q: Array) -> Array:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4), which need not be normalised."""
    xp, (q,) = _arrays(q)
    x, y, z, w = xp.moveaxis(unit_quat(q), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return xp.stack([xp.stack(row, -1) for row in rows], -2)


def _arrays(*values) -> tuple[Any, tuple[Any, ...]]:
    """The library of the values, and the values as its arrays."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values[0], torch.Tensor):
        return torch, values
    return np, tuple(np.asarray(value, float) for value in values)


def _parts(q, axis: int):
    """Vector and scalar part."""
    return (q[:3], q[3:]) if axis == 0 else (q[..., :3], q[..., 3:])


def _cross(xp, a, b, axis: int):
    if xp is not np:
        return xp.linalg.cross(*xp.broadcast_tensors(a, b), dim=axis)
    (ax, ay, az), (bx, by, bz) = (a, b) if axis == 0 else (np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0))
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis)


# -- numpy only


def quat_about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Quaternion (4,) of a turn about a unit axis (3,) by an angle in rad."""
    return np.append(axis * np.sin(angle / 2), np.cos(angle / 2))


def matrix_to_quat(R: np.ndarray) -> np.ndarray:
    """Quaternion (4,) of one rotation matrix, with w >= 0 where w is not zero."""
    R = np.asarray(R, float)
    # the largest of the four squares keeps the division well conditioned
    squares = np.array([1 + R[0, 0] - R[1, 1] - R[2, 2], 1 - R[0, 0] + R[1, 1] - R[2, 2],
                        1 - R[0, 0] - R[1, 1] + R[2, 2], 1 + R[0, 0] + R[1, 1] + R[2, 2]])  # fmt: skip
    k = int(np.argmax(squares))
    table = np.array([
        [squares[0], R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[2, 1] - R[1, 2]],
        [R[0, 1] + R[1, 0], squares[1], R[1, 2] + R[2, 1], R[0, 2] - R[2, 0]],
        [R[0, 2] + R[2, 0], R[1, 2] + R[2, 1], squares[2], R[1, 0] - R[0, 1]],
        [R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], squares[3]],
    ])  # fmt: skip
    q = table[k] / np.linalg.norm(table[k])
    return -q if q[3] < 0 else q


def rpy_to_matrix(rpy: np.ndarray) -> np.ndarray:
    """URDF's roll, pitch, yaw (rad): turns about the fixed x, y and z axes, in that order."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    return np.array([
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ])  # fmt: skip
