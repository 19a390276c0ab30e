"""Cart-pole, the smallest task."""

from __future__ import annotations

import torch

from ..device import checks
from ..importers.loading import load
from .env import Env
from .random import Random
from .state import State

FORCE = 10.0  # N
FALLEN = 0.5  # rad


class Cartpole(Env):
    """Balance a pole on a cart, or swing it up; the rail extends 2.4 m to either side.

    Observation (5): position and velocity of the cart, sine and cosine of the pole's angle from the vertical, its rate.
    Action (1): force, +-10 N. Reward: the cosine, minus small costs of position, velocities and force. Balancing
    terminates when the pole leans by more than 0.5 rad; swinging up never terminates.

    Args:
        num_envs: number of environments.
        swing_up: start with the pole hanging down.
        options: see `Env`.
    """

    dt, substeps, episode_length = 5e-3, 4, 300

    def __init__(self, num_envs: int = 1, *, swing_up: bool = False, **options):
        self.swing_up = checks.flag("swing_up", swing_up)
        super().__init__(load("cartpole"), num_envs, **options)

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        q, qd = super().begin(random)
        if self.swing_up:
            q[:, 1] = torch.pi
        return q + random.uniform(-0.1, 0.1, 2), qd + random.uniform(-0.1, 0.1, 2)

    def observe(self, state: State) -> torch.Tensor:
        (x, angle), (speed, rate) = state.q.unbind(1), state.qd.unbind(1)
        return torch.stack([x, speed, angle.sin(), angle.cos(), rate], 1)

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        return FORCE * action

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        (x, angle), (speed, rate) = after.q.unbind(1), after.qd.unbind(1)
        return angle.cos() - 0.05 * x**2 - 0.01 * speed**2 - 0.005 * rate**2 - 0.01 * action[:, 0] ** 2

    def terminated(self, state: State) -> torch.Tensor:
        return super().terminated(state) if self.swing_up else state.q[:, 1].abs() > FALLEN
