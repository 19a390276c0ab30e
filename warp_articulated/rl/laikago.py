"""Laikago tasks: standing under pushes, and walking at a commanded velocity on varying and uneven ground."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from ..device import checks
from ..geometry.rotations import rotate_back
from ..importers.loading import load
from ..model import Model
from ..terrain import Field
from .axes import leaning, uprightness
from .env import Env
from .random import Random
from .state import State
from .terrains import Ground, named_field

STROKE = 0.5  # rad, change of a drive's target for an action of 1
PERIOD = 0.5  # s, gait period
BEND = 0.5  # rad, knee bend in mid-swing
TROT = (0.0, 1.0, 1.0, 0.0)  # phase delay of FR, FL, RR, RL in half-periods
FRICTION = 0.8
PUSH_EVERY = 4.0  # s, on average


class LaikagoStand(Env):
    """Recover from a disturbed pose, and keep standing while being pushed.

    Observation (45): velocity and angular velocity of the trunk and the vertical, in body axes, 12 joint angles
    relative to the standing pose, 12 joint rates, the last action. Action (12): targets of the position drives,
    +-0.5 rad around the standing pose. Reward: 1, minus costs of height error, tilt, velocities and actions.
    Terminates when the trunk is below 0.2 m or tilted by more than 60 degrees. Only toes collide with the ground:
    episodes end before other parts would touch it.

    Args:
        num_envs: number of environments.
        push: largest jump of the trunk's horizontal velocity, m/s, at random times, every 4 s on average.
        options: see `Env`.
    """

    dt, substeps, episode_length = 5e-3, 4, 500

    def __init__(self, num_envs: int = 1, *, push: float = 0.5, **options):
        checks.positive("push", push, zero=True)
        model = self.robot()
        super().__init__(replace(model, pair_friction=np.full(len(model.pairs), FRICTION)), num_envs, **options)
        self.push = push
        self._rest = self._like.new_tensor(self.model.q0[7:].copy())
        self._hold = self._like.new_tensor(self.model.u0.copy())
        self._up = self._like.new_tensor([0.0, 0.0, 1.0])
        self._height = float(self.model.q0[2])

    def robot(self) -> Model:
        """The model, with its ground."""
        return load("laikago_feet")

    def clearance(self, state: State) -> torch.Tensor:
        """Height of the trunk above the ground (n,), m."""
        return state.q[:, 2]

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Random heading, tilt and joint angles, high enough for the toes to be above the ground."""
        q, qd = super().begin(random)
        q[:, 2] += random.uniform(0.03, 0.07)
        q[:, 3:7] = leaning(random.uniform(-0.1, 0.1, 2), random.uniform(-torch.pi, torch.pi))
        q[:, 7:] += random.uniform(-0.1, 0.1, 12)
        return q, qd + random.uniform(-0.3, 0.3, 18)

    def memory(self, random: Random) -> dict[str, torch.Tensor]:
        return {"action": self._like.new_zeros(len(random), 12)}

    def remember(self, before: State, action: torch.Tensor, after: State) -> Mapping[str, torch.Tensor]:
        return {**after.memory, "action": action}

    def disturb(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        if self.push == 0.0:
            return state.q, state.qd
        draw = self.random(state).uniform(-1.0, 1.0, 3)
        now = draw[:, 2:].abs() < self.control_dt / PUSH_EVERY
        kick = torch.where(now, self.push * draw[:, :2], 0.0)
        return state.q, state.qd + torch.nn.functional.pad(kick, (0, 16))

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        return self._hold + STROKE * action

    def observe(self, state: State) -> torch.Tensor:
        velocity, spin, up = self.trunk(state)
        joints = state.q[:, 7:] - self._rest
        return torch.cat([velocity, spin, up, joints, state.qd[:, 6:], state.memory["action"]], 1)

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        sag = self.clearance(after) - self._height
        motion = 0.1 * (after.qd[:, :6] ** 2).sum(1) + 1e-3 * (after.qd[:, 6:] ** 2).sum(1)
        tilt = 1.0 - uprightness(after.q[:, 3:7])
        return 1.0 - 20.0 * sag**2 - tilt - motion - 0.01 * (action**2).sum(1)

    def terminated(self, state: State) -> torch.Tensor:
        return (self.clearance(state) < 0.2) | (uprightness(state.q[:, 3:7]) < 0.5)

    def trunk(self, state: State) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """In body axes, (n, 3) each: velocity, m/s, angular velocity, rad/s, and the vertical."""
        world = torch.cat([state.qd[:, :6], self._up.expand(len(state), 3)], 1).view(-1, 3, 3)
        velocity, spin, up = rotate_back(state.q[:, None, 3:7], world).unbind(1)
        return velocity, spin, up


class LaikagoWalk(LaikagoStand):
    """Trot at a commanded velocity, with robot and ground parameters that vary between episodes.

    Observation (50): that of LaikagoStand, the command (forward and sideways velocity, m/s, and turning rate, rad/s)
    and a 2 Hz clock, as cosine and sine. Action and termination as in LaikagoStand. Reward: tracking of the command,
    minus costs of hopping, tilting, jerky actions, and of knees that do not bend with the clock, two legs at a time.

    On a terrain all environments share one field of 32 m. Every episode starts at a random place near its middle, and
    heights are relative to the ground there. The observation (95) also has a height scan: how far the ground is below
    the trunk, less than standing, at 45 points around the robot, which turn with it. Rewards and termination
    take the trunk's height above the ground.

    Args:
        num_envs: number of environments.
        terrain: "rough", "slopes", "stairs" or "stepping_stones", or a `terrain.Field` of your own; None: flat ground.
        randomise: draw the trunk mass, the drive gains, and the friction and softness of the ground for every episode.
            Joint limits become as soft as the ground.
        push: see LaikagoStand.
        options: see `Env`.
    """

    COMMANDS = ((-0.5, 1.0), (-0.3, 0.3), (-0.6, 0.6))  # range of each
    MASS, GAINS, GROUND = (0.8, 1.3), (0.85, 1.15), (0.4, 1.2)  # factor, factor, coefficient of friction
    # log10(cfm), and erp. A policy trained only on hard ground fell with cfm = 2 and erp = 0.7 as often as on MuJoCo's
    # default ground, and drifted as much.
    SOFTNESS, RIGHTING = (-2.0, 0.5), (0.2, 0.8)

    def __init__(
        self, num_envs: int = 1, *, terrain: str | Field | None = None, randomise: bool = True, push: float = 0.5,
        **options,
    ):  # fmt: skip
        self.randomise = checks.flag("randomise", randomise)
        self.field = None if terrain is None else named_field(terrain)
        super().__init__(num_envs, push=push, **options)
        self._slowest, self._fastest = self._like.new_tensor(self.COMMANDS).unbind(1)
        self._offsets = torch.pi * self._like.new_tensor(TROT)
        self.ground = None if self.field is None else Ground(self.field, self._like)

    def robot(self) -> Model:
        return super().robot() if self.field is None else self.field.under(super().robot())

    def clearance(self, state: State) -> torch.Tensor:
        if self.ground is None:
            return super().clearance(state)
        return state.q[:, 2] - self.ground.level(state.q, state.params["terrain_origin"])

    def memory(self, random: Random) -> dict[str, torch.Tensor]:
        return {**super().memory(random), "command": random.uniform(self._slowest, self._fastest, 3)}

    def vary(self, random: Random) -> dict[str, torch.Tensor]:
        place = {} if self.ground is None else {"terrain_origin": self.ground.origins(random)}
        if not self.randomise:
            return place
        usual = {name: value[:1] for name, value in self.sim.params.items()}  # one row: all rows are equal
        load = torch.ones(len(random), self.model.num_links, dtype=self.dtype, device=self.device)
        load[:, 0] = random.uniform(*self.MASS)
        stiff, damped = random.uniform(*self.GAINS, 2, 1).unbind(1)
        return {
            "mass": load * usual["mass"],
            "inertia": load[:, :, None, None] * usual["inertia"],
            "kp": stiff * usual["kp"],
            "kd": damped * usual["kd"],
            "friction": random.uniform(*self.GROUND, 1).expand(-1, len(self.model.pairs)),
            "cfm": 10.0 ** random.uniform(*self.SOFTNESS, 1),
            "erp": random.uniform(*self.RIGHTING, 1),
            **place,
        }

    def observe(self, state: State) -> torch.Tensor:
        phase = self.phase(state)
        seen = [super().observe(state), state.memory["command"], phase.cos(), phase.sin()]
        if self.ground is not None:
            seen.append(self.ground.scan(state.q, state.params["terrain_origin"]) - self._height)
        return torch.cat(seen, 1)

    def phase(self, state: State) -> torch.Tensor:
        """Phase of the gait clock (n, 1), rad."""
        return (2.0 * torch.pi / PERIOD * self.control_dt) * state.frame[:, None].to(self.dtype)

    def measures(self, before: State, after: State) -> dict[str, torch.Tensor]:
        velocity, spin, _ = self.trunk(after)
        command = after.memory["command"]
        astray = (velocity[:, :2] - command[:, :2]).norm(dim=1)
        return {"velocity error": astray, "turning error": (spin[:, 2] - command[:, 2]).abs()}

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        velocity, spin, up = self.trunk(after)
        command = after.memory["command"]
        astray = ((velocity[:, :2] - command[:, :2]) ** 2).sum(1)
        turned = (spin[:, 2] - command[:, 2]) ** 2
        follow = 1.0 / (1.0 + 4.0 * astray) + 0.5 / (1.0 + 4.0 * turned)
        sway = velocity[:, 2] ** 2 + 0.05 * (spin[:, :2] ** 2).sum(1) + 3.0 * (up[:, :2] ** 2).sum(1)
        sag = 20.0 * (self.clearance(after) - self._height) ** 2
        # without this cost a policy learns to lean and shuffle: nothing else rewards lifting a foot
        swing = torch.relu(torch.sin(self.phase(after) + self._offsets))
        step = ((after.q[:, 9::3] - (self._rest[2::3] - BEND * swing)) ** 2).sum(1)
        jerk = ((action - before.memory["action"]) ** 2).sum(1)
        return follow - sway - sag - step - 0.01 * jerk - 2e-4 * (after.qd[:, 6:] ** 2).sum(1)
