"""`Replay`: the transitions that an off-policy algorithm learns from, with their initial states.

The complete state is stored, so that `env.transition` can simulate the same step again with another action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...device import checks
from ..state import State


@dataclass(frozen=True)
class Transitions:
    """A batch of n steps, each with its own initial state."""

    state: State  # before the action
    observation: torch.Tensor  # (n, observation_size) of the state
    action: torch.Tensor  # (n, action_size)
    reward: torch.Tensor  # (n,)
    next_observation: torch.Tensor  # (n, observation_size) after the step, before any reset
    terminated: torch.Tensor  # (n,) bool
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)  # added by an algorithm, (n, ...) each

    def __len__(self) -> int:
        return len(self.reward)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors by name; `of` is the inverse."""
        state = self.state
        return {
            **{name: getattr(state, name) for name in STATE},
            **{name: getattr(self, name) for name in STEP},
            **{f"memory {name}": x for name, x in state.memory.items()},
            **{f"params {name}": x for name, x in state.params.items()},
            **{f"extra {name}": x for name, x in self.extra.items()},
        }

    @staticmethod
    def of(tensors: Mapping[str, torch.Tensor]) -> Transitions:
        groups: dict[str, dict[str, torch.Tensor]] = {"memory": {}, "params": {}, "extra": {}}
        for name, x in tensors.items():
            group, _, inner = name.partition(" ")
            if inner:
                groups[group][inner] = x
        single = {name: tensors[name] for name in STATE}
        state = State(**single, memory=groups["memory"], params=groups["params"])
        return Transitions(state, **{name: tensors[name] for name in STEP}, extra=groups["extra"])

    def __getitem__(self, rows) -> Transitions:
        """Select transitions by indices, a mask or a slice."""
        return Transitions.of({name: x[rows] for name, x in self.tensors().items()})


STATE = ("q", "qd", "frame", "key")
STEP = ("observation", "action", "reward", "next_observation", "terminated")


class Replay:
    """The last `capacity` transitions; new ones replace the oldest.

    The first call of `add` fixes the shapes and allocates the memory for all transitions.
    """

    def __init__(self, capacity: int):
        self.capacity = checks.whole("capacity", capacity, 1)
        self.added = 0
        """Number of transitions added so far; the last `capacity` are stored."""
        self._tensors: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    @torch.no_grad()
    def add(self, transitions: Transitions) -> None:
        new = transitions.tensors()
        if not self._tensors:
            self._tensors = {name: self._room(x) for name, x in new.items()}
        if new.keys() != self._tensors.keys():
            raise ValueError(
                f"transitions has {', '.join(new)}; it must have the same as the first: {', '.join(self._tensors)}."
            )
        number = len(transitions)
        if number > self.capacity:
            raise ValueError(f"transitions has {number} steps; it must have at most the capacity, {self.capacity}.")
        rows = torch.arange(self.added, self.added + number, device=transitions.reward.device) % self.capacity
        for name, x in new.items():
            self._tensors[name].index_copy_(0, rows, x.detach())
        self.added += number

    def sample(self, number: int, generator: torch.Generator | None = None) -> Transitions:
        """Sample `number` transitions uniformly, with replacement."""
        if len(self) == 0:
            raise RuntimeError("The replay is empty; add transitions before sampling.")
        device = self._tensors["reward"].device
        rows = torch.randint(len(self), (number,), generator=generator, device=device)
        return Transitions.of({name: x.index_select(0, rows) for name, x in self._tensors.items()})

    def all(self) -> Transitions:
        """All stored transitions, in memory order, not in time order."""
        if len(self) == 0:
            raise RuntimeError("The replay is empty; add transitions first.")
        return Transitions.of({name: x[: len(self)] for name, x in self._tensors.items()})

    def state_dict(self) -> dict[str, Any]:
        # cloned, because saving a slice would save the whole underlying memory
        return {
            "added": self.added,
            "capacity": self.capacity,
            "tensors": {name: x[: len(self)].clone() for name, x in self._tensors.items()},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if saved["capacity"] != self.capacity:
            raise ValueError(f"the saved replay has capacity {saved['capacity']}; this one has {self.capacity}.")
        self.added = saved["added"]
        self._tensors = {name: self._room(x) for name, x in saved["tensors"].items()}
        for name, x in saved["tensors"].items():
            self._tensors[name][: len(x)] = x

    def _room(self, like: torch.Tensor) -> torch.Tensor:
        return torch.zeros(self.capacity, *like.shape[1:], dtype=like.dtype, device=like.device)
