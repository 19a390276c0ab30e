"""`Review`: keeps the best policy so far, judged by whole episodes, so that training can return to it.

A critic's gradient is good only near recently tried actions. An actor that follows it may find a good policy, leave it,
and never come back. A learner with reviews plays its policy from time to time and outputs the best one. If there is no
better policy for a while, it continues from the best one. Critics and replay are kept, so after every return the
critics know more about the neighbourhood of the best policy.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ..env import Env
from .evaluation import Evaluation, evaluate
from .networks import frozen

REVIEW_SEED = 2_000_003  # differs from the seeds of training and evaluation


class Review:
    """Plays policies without noise, the same episodes each time, and keeps the best one.

    Args:
        env: the environments; their state does not change.
        policy: a policy of the same architecture.
        episodes: episodes per review.
        patience: reviews without a better policy after which `overdue` is true.
    """

    def __init__(self, env: Env, policy: nn.Module, episodes: int, patience: int):
        self.env, self.episodes, self.patience = env, episodes, patience
        self.best = frozen(policy)
        """The best reviewed policy, with its normaliser at that time."""
        self.best_return = -math.inf
        """Mean return of the best policy."""
        self.waited = 0
        """Reviews since the best policy, or since `wait_again`."""

    def look(self, policy: nn.Module) -> Evaluation:
        """Play a policy, and keep it if it is the best so far."""
        found = evaluate(self.env, policy, REVIEW_SEED, episodes=self.episodes)
        value = float(found.returns.mean())
        self.waited += 1
        if math.isfinite(value) and value > self.best_return:
            self.best.load_state_dict(policy.state_dict())
            self.best_return, self.waited = value, 0
        return found

    @property
    def found(self) -> bool:
        """Whether there is a best policy."""
        return math.isfinite(self.best_return)

    @property
    def overdue(self) -> bool:
        """Whether it is time to go back to the best policy."""
        return self.found and self.waited >= self.patience

    def wait_again(self) -> None:
        self.waited = 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best.state_dict(), "best return": self.best_return, "waited": self.waited}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.best.load_state_dict(saved["best"])
        self.best_return, self.waited = saved["best return"], saved["waited"]
