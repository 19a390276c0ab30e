"""`State`: all that the next step of a batch of environments depends on, and `Step`, what a step returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class State:
    """A batch of n environments at one moment. `env.transition` depends on nothing else."""

    q: torch.Tensor  # (n, nq) positions
    qd: torch.Tensor  # (n, nv) velocities
    frame: torch.Tensor  # (n,) int, control steps since the episode began
    key: torch.Tensor  # (n,) int, from which all random numbers of the episode come
    memory: Mapping[str, torch.Tensor] = field(default_factory=dict)  # what the task remembers, (n, ...) each
    params: Mapping[str, torch.Tensor] = field(default_factory=dict)  # of the simulator, (n, ...) each

    def __len__(self) -> int:
        return len(self.q)

    def map(self, function: Callable[..., torch.Tensor], *others: State) -> State:
        """The state of function(tensor, same tensor of the others) for each of the tensors.

        `a.map(lambda *x: torch.cat(x), b, c)` is three batches in one.
        """
        states = (self, *others)
        single = {name: function(*(getattr(s, name) for s in states)) for name in ("q", "qd", "frame", "key")}
        memory = {name: function(*(s.memory[name] for s in states)) for name in self.memory}
        params = {name: function(*(s.params[name] for s in states)) for name in self.params}
        return State(**single, memory=memory, params=params)

    def detach(self) -> State:
        """The same state, from which no gradient goes back."""
        return self.map(torch.Tensor.detach)

    def __getitem__(self, rows) -> State:
        """Some of the environments: indices, a mask or a slice."""
        return self.map(lambda x: x[rows])


class Step(NamedTuple):
    """What a control step returns. Where an episode ended, `observation` is the first one of the next episode."""

    observation: torch.Tensor  # (n, observation_size) to act on next
    reward: torch.Tensor  # (n,)
    terminated: torch.Tensor  # (n,) bool, ended by the task: nothing comes after it
    truncated: torch.Tensor  # (n,) bool, ended by the time alone: its value goes on
    final_observation: torch.Tensor  # (n, observation_size) where the step led, before episodes began anew
