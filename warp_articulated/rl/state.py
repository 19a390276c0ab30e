"""`State`: everything the next step of a batch of environments depends on. `Step`: the result of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class State:
    """State of a batch of n environments. `env.transition` depends only on this and the action."""

    q: torch.Tensor  # (n, nq) positions
    qd: torch.Tensor  # (n, nv) velocities
    frame: torch.Tensor  # (n,) int, control steps since the start of the episode
    key: torch.Tensor  # (n,) int, key of all random numbers of the episode
    memory: Mapping[str, torch.Tensor] = field(default_factory=dict)  # the task's memory, (n, ...) each
    params: Mapping[str, torch.Tensor] = field(default_factory=dict)  # simulator parameters, (n, ...) each

    def __len__(self) -> int:
        return len(self.q)

    def map(self, function: Callable[..., torch.Tensor], *others: State) -> State:
        """Apply a function to every tensor of this state and the same tensor of the others; returns the new state.

        `a.map(lambda *x: torch.cat(x), b, c)` concatenates three batches.
        """
        states = (self, *others)
        single = {name: function(*(getattr(s, name) for s in states)) for name in ("q", "qd", "frame", "key")}
        memory = {name: function(*(s.memory[name] for s in states)) for name in self.memory}
        params = {name: function(*(s.params[name] for s in states)) for name in self.params}
        return State(**single, memory=memory, params=params)

    def detach(self) -> State:
        """The same state without gradients."""
        return self.map(torch.Tensor.detach)

    def __getitem__(self, rows) -> State:
        """Select environments by indices, a mask or a slice."""
        return self.map(lambda x: x[rows])


class Step(NamedTuple):
    """Result of a control step. Where an episode ended, `observation` is the first one of the next episode."""

    observation: torch.Tensor  # (n, observation_size) to act on next
    reward: torch.Tensor  # (n,)
    terminated: torch.Tensor  # (n,) bool, ended by the task: the value of the final state is zero
    truncated: torch.Tensor  # (n,) bool, ended by the time limit only: the final state still has a value
    final_observation: torch.Tensor  # (n, observation_size) after the step, before any reset
