"""Drives the viewer with a policy. The viewer knows positions, velocities and time, but no tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..rl.env import Env
    from ..rl.state import State


class PolicyControl:
    """control(time, q, qd): the policy's control for this state; keeps the task's memory between calls.

    Episodes never end: a fallen robot stays down until the viewer is reset. The task's random pushes and varied
    parameters are not applied; the user pushes, and parameters are the model's.
    """

    def __init__(self, env: Env, policy: Callable[[torch.Tensor], torch.Tensor], start: State):
        self.env, self.policy, self.start = env, policy, start
        self._before: tuple[State, torch.Tensor] | None = None

    def __call__(self, seconds: float, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        frame = round(seconds / self.env.control_dt)
        if frame == 0:
            self._before = None
        state = replace(self.start, q=q, qd=qd, frame=self.start.frame + frame)
        if self._before is not None:
            before, action = self._before
            if frame == int(before.frame[0]):  # called again, for contact forces
                return self.env.control(before, action)
            state = replace(state, memory=before.memory)
            state = replace(state, memory=self.env.remember(before, action, state))
        action = self.policy(self.env.observe(state)).clamp(-1.0, 1.0)
        self._before = state, action
        return self.env.control(state, action)
