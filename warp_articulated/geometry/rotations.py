"""Rotations as numpy arrays: quaternions (xyzw), matrices, roll-pitch-yaw."""

from __future__ import annotations

import numpy as np


def quat_to_matrix(q: np.ndarray) -> np.ndarray:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4), which need not be normalised."""
    q = np.asarray(q, float)
    x, y, z, w = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


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


def quat_multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Product a b (..., 4): first rotate by b, then by a."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    av, aw, bv, bw = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    vector = aw * bv + bw * av + np.cross(av, bv)
    return np.concatenate([vector, aw * bw - np.sum(av * bv, -1, keepdims=True)], -1)


def rpy_to_matrix(rpy: np.ndarray) -> np.ndarray:
    """URDF's roll, pitch, yaw (rad): turns about the fixed x, y and z axes, in that order."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    return np.array([
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ])  # fmt: skip
