"""Positions and their tangent space: q after a small motion, and the motion between two q.

`Simulator.jacobians` measures positions in these nv coordinates: a quaternion has four numbers, but a rotation only
three degrees of freedom.
"""

from __future__ import annotations

import numpy as np
import torch

from ..model import JointType, Model
from .rotations import conjugate, quat_multiply, unit_quat


def retract(model: Model, q: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """q (..., nq) moved by d (..., nv), in the order of qd; differentiable.

    A quaternion e becomes exp(phi) e, with phi in world axes for a free joint and in the axes of the joint's frame on
    the parent for a ball joint. `retract(model, q, qd * dt)` is the position after dt at constant velocities.
    """
    (scalar_q, scalar_v), quaternions = _layout(model)
    moved = q.new_empty(*torch.broadcast_shapes(q.shape[:-1], d.shape[:-1]), model.nq)
    moved[..., scalar_q] = q[..., scalar_q] + d[..., scalar_v]
    for k, j in quaternions:
        half = 0.5 * d[..., j : j + 3]
        square = (half * half).sum(-1, keepdim=True)
        # not torch.norm, whose derivative at zero is not a number
        angle = torch.sqrt(square.clamp_min(torch.finfo(q.dtype).tiny))
        turn = torch.cat([half * torch.sinc(angle / torch.pi), torch.cos(angle)], -1)
        moved[..., k : k + 4] = quat_multiply(turn, unit_quat(q[..., k : k + 4]))
    return moved


def difference(model: Model, start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """The shortest d (..., nv) with end = retract(model, start, d); differentiable except at turns by pi."""
    (scalar_q, scalar_v), quaternions = _layout(model)
    d = end.new_empty(*torch.broadcast_shapes(start.shape[:-1], end.shape[:-1]), model.nv)
    d[..., scalar_v] = end[..., scalar_q] - start[..., scalar_q]
    for k, j in quaternions:
        a, b = unit_quat(start[..., k : k + 4]), unit_quat(end[..., k : k + 4])
        turn = quat_multiply(b, conjugate(a))
        turn = torch.where(turn[..., 3:] < 0, -turn, turn)  # both are the same rotation: the shorter way
        sine = torch.sqrt((turn[..., :3] ** 2).sum(-1, keepdim=True).clamp_min(torch.finfo(end.dtype).tiny))
        # angle / sin(angle / 2); for small angles 2, which the quotient would lose to rounding
        ratio = torch.where(sine < 1e-8, 2.0 * torch.ones_like(sine), 2.0 * torch.atan2(sine, turn[..., 3:]) / sine)
        d[..., j : j + 3] = turn[..., :3] * ratio
    return d


def _layout(model: Model) -> tuple[tuple[np.ndarray, np.ndarray], list[tuple[int, int]]]:
    """Where q and qd hold plain numbers, and where quaternions and angular velocities begin in them."""
    scalars, quaternions = [], []
    for kind, k, j in zip(model.joint_type, model.q_start.tolist(), model.v_start.tolist()):
        if kind == JointType.FREE:
            scalars += [(k + i, j + i) for i in range(3)]
            k, j = k + 3, j + 3
        if kind in (JointType.FREE, JointType.SPHERICAL):
            quaternions.append((k, j))
        else:
            scalars.append((k, j))
    q_index, v_index = np.array(scalars, int).reshape(-1, 2).T
    return (q_index, v_index), quaternions
