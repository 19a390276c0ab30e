"""Ground of tasks on uneven terrain: fields by name, places to start from, and what a robot sees of the heights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import terrain
from ..terrain import Field
from .random import Random

SIZE = (32.0, 32.0)  # m
START = 0.25  # share of the field's half width, around its middle, in which episodes start
FOOTPRINT = (-0.4, -0.2, 0.0, 0.2, 0.4)  # m; episodes start above the highest point of this square
AHEAD = tuple(-0.4 + 0.15 * k for k in range(9))  # m, points of the height scan
LEFT = tuple(-0.3 + 0.15 * k for k in range(5))
AROUND = (-0.1, 0.0, 0.1)  # m; the trunk's height counts from the highest of these points below it
LIMIT = 1.0  # m, of the numbers of the height scan: a chasm is not observed deeper

FIELDS: dict[str, Callable[[], Field]] = {
    "rough": lambda: terrain.rough(SIZE, amplitude=0.03),
    "slopes": lambda: terrain.pyramids(SIZE),
    "stairs": lambda: terrain.stairs(SIZE, rise=0.06),
    "stepping_stones": lambda: terrain.stepping_stones(SIZE, uneven=0.02),
}


def named_field(name: str | Field) -> Field:
    """One of FIELDS, or the field itself."""
    if isinstance(name, Field):
        return name
    if not isinstance(name, str) or name not in FIELDS:
        raise ValueError(f"terrain is {name!r}; it must be a Field, None, or one of {', '.join(FIELDS)}.")
    return FIELDS[name]()


class Ground:
    """A field under robots whose first joint is free, each seen from its own origin on the field.

    Args:
        field: the terrain.
        like: a tensor with the dtype and device of the states.
    """

    def __init__(self, field: Field, like: torch.Tensor):
        self.field = field
        self._heights = field.tensor(like)
        rows, columns = field.heights.shape
        half = [0.5 * n * d for n, d in zip((rows, columns), field.spacing)]
        self._middle = like.new_tensor(field.pos[:2])
        self._reach = START * like.new_tensor(half)
        grids = ((FOOTPRINT, FOOTPRINT), (AHEAD, LEFT), (AROUND, AROUND))
        self._footprint, self._scan, self._around = (like.new_tensor(terrain.scan_points(*grid)) for grid in grids)
        self._north = like.new_tensor([1.0, 0.0])

    def origins(self, random: Random) -> torch.Tensor:
        """Random places (n, 3) on the field, at the height of the highest point of a standing robot's surroundings."""
        place = self._middle + self._reach * random.uniform(-1.0, 1.0, 2)
        top = self._around_place(place, self._footprint).amax(1, keepdim=True)
        return torch.cat([place, top], 1)

    def level(self, q: torch.Tensor, origin: torch.Tensor) -> torch.Tensor:
        """Height (n,) of the ground below the first link, in the frame of its environment."""
        return self._around_place(q[:, :2] + origin[:, :2], self._around).amax(1) - origin[:, 2]

    def scan(self, q: torch.Tensor, origin: torch.Tensor) -> torch.Tensor:
        """How far the ground is below the first link, (n, 45) m, at points ahead of, beside and behind it."""
        x, y, z, w = q[:, 3:7].unbind(1)
        length = (q[:, 3:7] ** 2).sum(1)
        heading = torch.stack([1.0 - 2.0 * (y * y + z * z) / length, 2.0 * (x * y + z * w) / length], 1)
        heights = self.field.scan(q[:, :2] + origin[:, :2], heading, self._scan, self._heights)
        return (q[:, 2:3] + origin[:, 2:3] - heights).clamp(-LIMIT, LIMIT)

    def _around_place(self, place: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return self.field.scan(place, self._north.expand_as(place), points, self._heights)
