"""Environments for the rl tests, and actions for them."""

import torch

from warp_articulated import rl


def make(task: str, num_envs: int = 1, **options) -> rl.Env:
    return rl.make(task, num_envs, device="cpu", **options)


def actions(env, steps, seed=0, size=1.0):
    """Random actions (steps, num_envs, action_size) in [-size, size]."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(steps, env.num_envs, env.action_size, generator=generator, dtype=torch.float64)
    return (size * (2 * draw - 1)).to(env.dtype)
