"""Evaluates a policy: whole episodes without noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..env import Env


@dataclass(frozen=True)
class Evaluation:
    """Results per episode, (episodes,) each."""

    returns: torch.Tensor
    lengths: torch.Tensor
    measures: dict[str, torch.Tensor]
    """Means over the episode of the task's `measures`."""

    def summary(self) -> dict[str, float]:
        """Means over the episodes, and the standard deviation of the returns."""
        spread = float(self.returns.std(correction=0))
        means = {"return": self.returns, "length": self.lengths.to(self.returns), **self.measures}
        return {**{name: float(value.mean()) for name, value in means.items()}, "return sd": spread}


@torch.no_grad()
def evaluate(
    env: Env,
    policy: Callable[[torch.Tensor], torch.Tensor],
    seed: int = 0,
    watch: Callable[[torch.Tensor], None] | None = None,
    episodes: int | None = None,
) -> Evaluation:
    """Play episodes in parallel; the state of env does not change.

    watch: called with the positions (episodes, nq) before every step and after the last one.
    episodes: number of episodes. Default: the number of environments.
    """
    number = env.num_envs if episodes is None else episodes
    state = env.fresh(number, seed)
    running = torch.ones(number, dtype=torch.bool, device=env.device)
    returns = torch.zeros(number, dtype=env.dtype, device=env.device)
    lengths = torch.zeros(number, dtype=torch.int64, device=env.device)
    sums: dict[str, torch.Tensor] = {}
    for _ in range(env.episode_length):
        if watch:
            watch(state.q)
        after, reward, terminated = env.transition(state, policy(env.observe(state)))
        returns += torch.where(running, reward, 0.0)
        lengths += running
        for name, value in env.measures(state, after).items():
            sums[name] = sums.get(name, torch.zeros_like(returns)) + torch.where(running, value, 0.0)
        # an ended episode keeps its final state
        state = after.map(lambda new, old, on=running: torch.where(on.view(-1, *[1] * (new.ndim - 1)), new, old), state)
        running = running & ~terminated
        if not running.any():
            break
    if watch:
        watch(state.q)
    return Evaluation(returns, lengths, {name: total / lengths for name, total in sums.items()})
