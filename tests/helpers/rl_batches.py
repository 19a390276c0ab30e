"""Environments for the rl tests; all share two compiled kernels, one per precision."""

from functools import cache

import torch
from gradient_zoo import one_kernel

import warp_articulated as wa
from warp_articulated import rl

ROOMY = ("ant", "hopper", "laikago_feet")  # float32: large enough for every task
FEET = ("laikago_feet",)  # float64: other tests compile these kernels and adjoints anyway


def make(task: str, num_envs: int = 1, **options) -> rl.Env:
    """rl.make with the shared kernels, for any batch size."""
    env = rl.make(task, num_envs, device="cpu", **options)
    return share(env)


def share(env: rl.Env) -> rl.Env:
    """Make an environment create its simulators with the shared kernels, for any batch size."""
    scenes = FEET if "float64" in str(env.dtype) else ROOMY
    plain = env.simulator

    @cache
    def simulator(num: int) -> wa.Simulator:
        with one_kernel(*map(wa.load, scenes)):
            return plain(num)

    env._sims.clear()
    env.simulator = simulator
    env.sim = simulator(env.num_envs)
    return env


def actions(env, steps, seed=0, size=1.0):
    """Random actions (steps, num_envs, action_size) in [-size, size]."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(steps, env.num_envs, env.action_size, generator=generator, dtype=torch.float64)
    return (size * (2 * draw - 1)).to(env.dtype)
