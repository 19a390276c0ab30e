"""Steps in the tangent space of a model's positions, and differences of positions in it."""

import torch

from warp_articulated.model import JointType


def multiply(a, b):
    """Quaternions (..., 4) xyzw."""
    (av, aw), (bv, bw) = ((x[..., :3], x[..., 3:]) for x in (a, b))
    return torch.cat([aw * bv + bw * av + torch.linalg.cross(av, bv), aw * bw - (av * bv).sum(-1, keepdim=True)], -1)


def retract(model, q, d):
    """q moved by d (num_envs, nv): rotations exp(phi) from the left."""
    q = q.clone()
    for i, kind in enumerate(model.joint_type):
        k, j = int(model.q_start[i]), int(model.v_start[i])
        if kind == JointType.FREE:
            q[:, k : k + 3] += d[:, j : j + 3]
            k, j = k + 3, j + 3
        if kind in (JointType.FREE, JointType.SPHERICAL):
            half = 0.5 * d[:, j : j + 3]
            angle = half.norm(dim=1, keepdim=True)
            turn = torch.cat([half * torch.sinc(angle / torch.pi), torch.cos(angle)], 1)
            q[:, k : k + 4] = multiply(turn, q[:, k : k + 4] / q[:, k : k + 4].norm(dim=1, keepdim=True))
        else:
            q[:, k] += d[:, j]
    return q


def difference(model, a, b):
    """d (num_envs, nv) with a = retract(b, d), for positions close to each other."""
    d = a.new_zeros(len(a), model.nv)
    for i, kind in enumerate(model.joint_type):
        k, j = int(model.q_start[i]), int(model.v_start[i])
        if kind == JointType.FREE:
            d[:, j : j + 3] = a[:, k : k + 3] - b[:, k : k + 3]
            k, j = k + 3, j + 3
        if kind in (JointType.FREE, JointType.SPHERICAL):
            turn = multiply(a[:, k : k + 4], b[:, k : k + 4] * b.new_tensor([-1, -1, -1, 1]))
            d[:, j : j + 3] = 2 * turn[:, :3] * torch.sign(turn[:, 3:])
        else:
            d[:, j] = a[:, k] - b[:, k]
    return d
