"""`Review`: the best policy so far, judged by whole episodes, and a way back to it.

A critic's slope is good near what was tried lately and may lead anywhere else: an actor that follows it finds a good
policy, leaves it, and may never come back. A learner with reviews plays its policy now and then, hands out the best one
that it has seen, and, if it finds nothing better for a while, goes on from there. Critics and replay stay as they are:
every return finds critics that know more of what lies around the best policy.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ..env import Env
from .evaluation import Evaluation, evaluate
from .networks import frozen

REVIEW_SEED = 2_000_003  # of episodes that neither a learner begins with nor an evaluation plays


class Review:
    """Plays policies without noise, the same episodes each time, and remembers the best one.

    Args:
        env: whose episodes; its own state does not move.
        policy: what policies are like.
        episodes: of a review.
        patience: reviews without a better policy after which `overdue` is true.
    """

    def __init__(self, env: Env, policy: nn.Module, episodes: int, patience: int):
        self.env, self.episodes, self.patience = env, episodes, patience
        self.best = frozen(policy)
        """The best policy that was reviewed, with the normaliser that it had then."""
        self.best_return = -math.inf
        """Mean return of the best policy."""
        self.waited = 0
        """Reviews since the best one, or since `wait_again`."""

    def look(self, policy: nn.Module) -> Evaluation:
        """Play a policy, and remember it if none was better."""
        found = evaluate(self.env, policy, REVIEW_SEED, episodes=self.episodes)
        value = float(found.returns.mean())
        self.waited += 1
        if math.isfinite(value) and value > self.best_return:
            self.best.load_state_dict(policy.state_dict())
            self.best_return, self.waited = value, 0
        return found

    @property
    def found(self) -> bool:
        """Whether any policy was reviewed."""
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
