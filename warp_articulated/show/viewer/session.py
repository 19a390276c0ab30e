"""The simulation behind the viewer: the state of a batch, its controller, and the actions of a user.

Knows nothing of browsers; viewer.py calls it from one loop and from the panel's callbacks, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ...model import JointType
from ...simulator import Simulator
from .joints import JointControl
from .stage import Forces

Controller = Callable[[float, torch.Tensor, torch.Tensor], torch.Tensor]
"""control(time_s, q, qd) -> u of shape (num_envs, nu), called before every control step."""

GOLDEN_ANGLE = 2.399963


class Session:
    """A batch that is stepped, posed and pushed.

    Args:
        state: (q, qd) to start from and to return to; None: the default pose at rest.
    """

    def __init__(
        self, sim: Simulator, control: Controller | None, state: tuple[torch.Tensor, torch.Tensor] | None = None
    ):
        self.sim, self.control = sim, control
        self._start = sim.initial_state() if state is None else (state[0].detach(), state[1].detach())
        self._nan = torch.full_like(sim.initial_control(), torch.nan)
        self.step_time = sim.dt * sim.substeps
        self.pushes = 0
        self.reset()

    def reset(self) -> None:
        """Return to the first state; sliders no longer hold any drive."""
        self.q, self.qd = (x.clone() for x in self._start)
        self.time = 0.0
        self.held = self._nan.clone()  # (num_envs, nu): controls that a slider holds, NaN: none

    def current_control(self) -> torch.Tensor:
        """(num_envs, nu): the controller's, or the default pose's, except where a slider holds a drive."""
        u = self.sim.initial_control() if self.control is None else self.control(self.time, self.q, self.qd)
        return torch.where(torch.isnan(self.held), u, self.held)

    @torch.no_grad()
    def simulate(self, steps: int) -> None:
        """Advance by that many control steps."""
        if self.control is None:
            u = self.current_control().expand(steps, -1, -1)
            qs, qds = self.sim.rollout(self.q, self.qd, u, checkpoint_every=steps)
            self.q, self.qd = qs[-1].clone(), qds[-1].clone()
            self.time += steps * self.step_time
        else:
            for _ in range(steps):
                self.q, self.qd = self.sim.step(self.q, self.qd, self.current_control())
                self.time += self.step_time

    @torch.no_grad()
    def warm_up(self) -> None:
        """Compile the kernels of a step, without stepping."""
        self.sim.step(self.q, self.qd, self.current_control())

    @torch.no_grad()
    def forces(self, shown: int) -> Forces:
        """Contact forces on the first `shown` environments, at this state."""
        found = self.sim.contacts(self.q, self.qd, self.current_control())
        active = found.active[:shown].cpu().numpy()
        env, _ = np.nonzero(active)
        points = found.points[:shown].cpu().numpy()[active]
        impulses = found.impulses[:shown].cpu().numpy()[active]
        return Forces(env, points.astype(float), impulses.astype(float) / self.sim.dt)

    def positions(self, shown: int) -> np.ndarray:
        """(shown, nq) in numpy, a copy."""
        return self.q[:shown].detach().cpu().numpy().copy()

    # -- actions of the panel

    def pose(self, env: int, joint: JointControl, value: float) -> None:
        """Set a joint's position (rad or m) and stop its environment's motion."""
        self.q[env, joint.q_index] = value
        self.qd[env] = 0.0

    def drive(self, env: int, joint: JointControl, value: float) -> None:
        """Hold a joint's drive at a target: a position (rad or m), a speed or a force, depending on the drive."""
        if joint.drive is not None:
            self.held[env, joint.drive] = value / joint.gear

    def release(self, env: int) -> None:
        """Give all drives of an environment back to the controller or the default pose."""
        self.held[env] = torch.nan

    @property
    def free_base(self) -> int | None:
        """Index in qd of the first free joint; None if the robot has a fixed base."""
        free = np.flatnonzero(self.sim.model.joint_type == JointType.FREE)
        return int(self.sim.model.v_start[free[0]]) if len(free) else None

    def push(self, env: int, speed: float) -> None:
        """Kick the base of an environment horizontally by `speed` m/s, each time from another side."""
        start = self.free_base
        if start is None:
            return
        angle = GOLDEN_ANGLE * self.pushes
        self.pushes += 1
        self.qd[env, start] += speed * np.cos(angle)
        self.qd[env, start + 1] += speed * np.sin(angle)
