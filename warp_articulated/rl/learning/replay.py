"""`Replay`: the transitions that an off-policy algorithm learns from, with the states that they began in.

A state is kept whole, so that `env.transition` can simulate the same step again with another action.
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
    """A batch of n steps, each from a state of its own."""

    state: State  # before the action
    observation: torch.Tensor  # (n, observation_size) of the state
    action: torch.Tensor  # (n, action_size)
    reward: torch.Tensor  # (n,)
    next_observation: torch.Tensor  # (n, observation_size) where the step led, before the episode began anew
    terminated: torch.Tensor  # (n,) bool
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)  # whatever an algorithm adds, (n, ...) each

    def __len__(self) -> int:
        return len(self.reward)

    def tensors(self) -> dict[str, torch.Tensor]:
        """All of them by name, from which `of` makes the same transitions."""
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
        """Some of them: indices, a mask or a slice."""
        return Transitions.of({name: x[rows] for name, x in self.tensors().items()})


STATE = ("q", "qd", "frame", "key")
STEP = ("observation", "action", "reward", "next_observation", "terminated")


class Replay:
    """The last `capacity` transitions; new ones take the place of the oldest.

    The first ones that are added decide the shapes, and the memory for all is taken then.
    """

    def __init__(self, capacity: int):
        self.capacity = checks.whole("capacity", capacity, 1)
        self.added = 0
        """Transitions so far, of which the last `capacity` are still here."""
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
                f"transitions has {', '.join(new)}; it must have what the first ones had: {', '.join(self._tensors)}."
            )
        number = len(transitions)
        if number > self.capacity:
            raise ValueError(f"transitions are {number}; a replay of capacity {self.capacity} cannot hold them.")
        rows = torch.arange(self.added, self.added + number, device=transitions.reward.device) % self.capacity
        for name, x in new.items():
            self._tensors[name].index_copy_(0, rows, x.detach())
        self.added += number

    def sample(self, number: int, generator: torch.Generator | None = None) -> Transitions:
        """`number` transitions, each as likely as any other; one may come twice."""
        if len(self) == 0:
            raise RuntimeError("The replay is empty; add transitions before sampling any.")
        device = self._tensors["reward"].device
        rows = torch.randint(len(self), (number,), generator=generator, device=device)
        return Transitions.of({name: x.index_select(0, rows) for name, x in self._tensors.items()})

    def all(self) -> Transitions:
        """Every transition that is here, in the order of the memory, not of the time."""
        if len(self) == 0:
            raise RuntimeError("The replay is empty; it has no transitions yet.")
        return Transitions.of({name: x[: len(self)] for name, x in self._tensors.items()})

    def state_dict(self) -> dict[str, Any]:
        # clones: a slice would be saved with the whole memory that it belongs to
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
