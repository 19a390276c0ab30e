"""Ant and Hopper: forward running, with the observations and actions of the Gymnasium tasks of the same names."""

from __future__ import annotations

import torch

from ..device import checks
from ..geometry.rotations import rotate_back
from ..importers.loading import load
from .axes import uprightness
from .env import Env
from .random import Random
from .state import State

# Order of the actuators in Gymnasium's file; our order is that of the joints
ANT_ACTIONS = ("hip_4", "ankle_4", "hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3")
HIGH = 0.7  # m, height above which `care` penalises jumping
KICK_EVERY = 1.0  # s, on average


class Runner(Env):
    """Base class of tasks that run along x."""

    def speed(self, before: State, after: State) -> torch.Tensor:
        """Mean velocity along x (n,), m/s."""
        return (after.q[:, 0] - before.q[:, 0]) / self.control_dt

    def measures(self, before: State, after: State) -> dict[str, torch.Tensor]:
        return {"speed": self.speed(before, after)}


class Ant(Runner):
    """A four-legged ant runs along x.

    Observation (27), the first 27 numbers of Gymnasium's Ant-v5: height, quaternion wxyz, 8 joint angles, velocity of
    the torso in world axes and its angular velocity in body axes, 8 joint rates. Action (8), in the order of Ant-v5:
    joint torques, +-150 N m. Reward: dx/dt - 0.5 |a|^2 + 1. Terminates when the torso's height leaves [0.2, 1] m.

    Args:
        num_envs: number of environments.
        care: weight of a smooth cost of leaning, hopping and height, which Gymnasium's reward does not have. It is
            needed because termination has no gradient, and a policy that barely stays low enough here may jump too
            high in another simulator. With care > 0 an episode also terminates when the ant tips over.
        randomise: vary friction, restitution and softness of the ground between episodes, start higher and faster, and
            kick the torso every second on average. Such policies are more likely to transfer to other simulators.
        options: see `Env`.
    """

    dt, substeps, episode_length = 5e-3, 10, 1000
    FRICTION, BOUNCE, RIGHTING, SOFTNESS = (0.6, 1.4), (0.0, 0.4), (0.02, 0.3), (0.0, 0.5)
    """Ranges from which `randomise` draws friction, restitution, erp and cfm."""
    KICK = (1.0, 1.0, 0.5, 2.0, 2.0, 1.0)
    """Largest change of the torso's velocities in a kick, m/s and rad/s."""

    def __init__(self, num_envs: int = 1, *, care: float = 0.0, randomise: bool = False, **options):
        checks.positive("care", care, zero=True)
        self.care, self.randomise = care, checks.flag("randomise", randomise)
        super().__init__(load("ant"), num_envs, **options)
        self._kick = self._like.new_tensor(self.KICK)
        order = [ANT_ACTIONS.index(name) for name in self.model.drive_names]
        self._order = torch.tensor(order, device=self.device)

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        q, qd = super().begin(random)
        q[:, 2:] += random.uniform(-0.1, 0.1, 13)
        q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
        qd = qd + 0.1 * random.normal(14)
        if self.randomise:
            q[:, 2:3] += random.uniform(0.0, 0.2, 1)
            qd = qd + 0.5 * random.normal(14)
        return q, qd

    def vary(self, random: Random) -> dict[str, torch.Tensor]:
        if not self.randomise:
            return {}
        pairs = len(self.model.pairs)
        return {
            "friction": random.uniform(*self.FRICTION, 1).expand(-1, pairs),
            "restitution": random.uniform(*self.BOUNCE, 1).expand(-1, pairs),
            "erp": random.uniform(*self.RIGHTING, 1),
            "cfm": random.uniform(*self.SOFTNESS, 1),
        }

    def disturb(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.randomise:
            return state.q, state.qd
        draw = self.random(state).uniform(-1.0, 1.0, 7)
        kick = torch.where(draw[:, 6:].abs() < self.control_dt / KICK_EVERY, self._kick * draw[:, :6], 0.0)
        return state.q, state.qd + torch.nn.functional.pad(kick, (0, 8))

    def observe(self, state: State) -> torch.Tensor:
        q, qd = state.q, state.qd
        spin = rotate_back(q[:, 3:7], qd[:, 3:6])
        return torch.cat([q[:, 2:3], q[:, 6:7], q[:, 3:6], q[:, 7:], qd[:, :3], spin, qd[:, 6:]], 1)

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        return action[:, self._order]  # the model's gear converts it to torques

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        reward = self.speed(before, after) - 0.5 * (action**2).sum(1) + 1.0
        if self.care == 0.0:
            return reward
        lean = 1.0 - uprightness(after.q[:, 3:7])
        jump = torch.relu(after.q[:, 2] - HIGH)
        hop = after.qd[:, 2] ** 2
        return reward - self.care * (2.0 * lean + 20.0 * jump**2 + hop)

    def terminated(self, state: State) -> torch.Tensor:
        height = state.q[:, 2]
        ended = (height < 0.2) | (height > 1.0)
        return ended | (uprightness(state.q[:, 3:7]) < 0.0) if self.care else ended


class Hopper(Runner):
    """A one-legged hopper in a plane hops along x.

    Observation (11), as in Gymnasium's Hopper-v5: height, pitch, 3 joint angles, and the rates of x and of these,
    clipped to +-10. Action (3): joint torques, +-200 N m. Reward: dx/dt + 1 - 0.001 |a|^2. Terminates when the torso is
    below 0.7 m or leans by more than 0.2 rad.

    Args:
        num_envs: number of environments.
        options: see `Env`.
    """

    dt, substeps, episode_length = 2e-3, 4, 1000

    def __init__(self, num_envs: int = 1, **options):
        super().__init__(load("hopper"), num_envs, **options)

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        q, qd = super().begin(random)
        return q + random.uniform(-5e-3, 5e-3, 6), qd + random.uniform(-5e-3, 5e-3, 6)

    def observe(self, state: State) -> torch.Tensor:
        return torch.cat([state.q[:, 1:], state.qd.clamp(-10.0, 10.0)], 1)

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        return self.speed(before, after) + 1.0 - 1e-3 * (action**2).sum(1)

    def terminated(self, state: State) -> torch.Tensor:
        return (state.q[:, 1] < 0.7) | (state.q[:, 2].abs() > 0.2)
