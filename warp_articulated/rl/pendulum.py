"""A chain of links swings up to its highest point: the task the paper uses to demonstrate policy enhancement."""

from __future__ import annotations

import numpy as np
import torch

from ..device import checks
from ..importers.loading import load
from ..model import Model
from .env import Env
from .state import State

LINK = 0.5  # m
FRAME = 1.0 / 60.0  # s per control
PAPER_TORQUE = 10.0  # N m


class PendulumReach(Env):
    """n links of 0.5 m in a plane, initially horizontal; the tip should reach the highest point within 100 frames.

    Observation (3 n + 1): joint rates, y and z of the end of every link, frame / 100. Action (n): joint torques.
    Reward: decrease of the squared distance to the goal, so a return is at most n^2 / 2. The time limit is part of the
    task: an episode ends as terminated, not truncated.

    Args:
        n: number of links, 1 to 7.
        num_envs: number of environments.
        torque: "reachable": 1.5 times the torque that holds the horizontal chain, per joint. "paper": 10 N m for every
            joint, which is less than that for all but the outermost joints, so the chain has to swing.
        dt: time step of the simulation, s. Default: 1/60 s divided by substeps.
        substeps: simulation steps per frame. Default: as many as the chain needs.
        options: see `Env`.
    """

    episode_length = 100

    def __init__(
        self,
        n: int,
        num_envs: int = 1,
        *,
        torque: str = "reachable",
        dt: float | None = None,
        substeps: int | None = None,
        **options,
    ):
        if checks.whole("n", n, 1) > 7:
            raise ValueError(f"n is {n}; it must be a whole number of links from 1 to 7.")
        if torque not in ("reachable", "paper"):
            raise ValueError(f"torque is {torque!r}; it must be 'reachable' or 'paper'.")
        # The outer links of long chains whip around under full torques, faster the longer the chain. With these steps,
        # actions that switch between -1 and 1 at random for a whole episode do not diverge.
        if substeps is None:
            substeps = max(4, 2 ** (int(n) - 2)) if torque == "reachable" else 4
        dt = FRAME / checks.whole("substeps", substeps, 1) if dt is None else dt
        super().__init__(load(f"pendulum{n}"), num_envs, dt=dt, substeps=substeps, **options)
        scale = 1.5 * holding_torques(self.model) if torque == "reachable" else np.full(n, PAPER_TORQUE)
        self.torque = self._like.new_tensor(scale)
        """Torques (n,) for an action of 1, N m."""
        self.goal = self._like.new_tensor([0.0, LINK * n])
        """y and z of the highest point (2,), m."""

    def ends(self, q: torch.Tensor) -> torch.Tensor:
        """y and z of the ends of the links (batch, n, 2), m."""
        angle = q.cumsum(1)
        return LINK * torch.stack([angle.cos(), angle.sin()], 2).cumsum(1)

    def observe(self, state: State) -> torch.Tensor:
        time = state.frame[:, None].to(self.dtype) / self.episode_length
        return torch.cat([state.qd, self.ends(state.q).flatten(1), time], 1)

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        return self.torque * action

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        return self._distance2(before) - self._distance2(after)

    def lost(self, before: State) -> torch.Tensor:
        """Takes back all previous rewards: the return is the same as for not moving."""
        return self._distance2(before).detach() - 2.0 * (self.goal**2).sum()

    def terminated(self, state: State) -> torch.Tensor:
        return state.frame >= self.episode_length

    def _distance2(self, state: State) -> torch.Tensor:
        return ((self.ends(state.q)[:, -1] - self.goal) ** 2).sum(1)


def holding_torques(model: Model) -> np.ndarray:
    """Torques (n,) that hold a horizontal chain against gravity, N m, with the masses at the ends of the links."""
    n = model.num_links
    arms = LINK * np.clip(np.arange(n)[None] - np.arange(n)[:, None] + 1, 0, None)  # of mass k about joint i
    return -model.gravity[2] * arms @ model.mass
