"""`Field`: heights with a spacing, and what can be done with them before and beside a simulation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..geometry.rotations import IDENTITY
from ..model import FIELDS, WORLD, Model, ModelError, Shape, ShapeType
from ..model.consistency import check_model
from ..model.pairs import FIELD_SLOTS
from ..model.validate import check_shapes
from .lookup import height_at


@dataclass(frozen=True, eq=False)
class Field:
    """Ground with heights.

    heights[i, j] is at x = (i - (rows - 1) / 2) spacing[0], y = (j - (columns - 1) / 2) spacing[1] from `pos`: a node
    between triangles or, of blocks, a column with a flat top.
    """

    heights: np.ndarray  # (rows, columns) m
    spacing: tuple[float, float]  # m, between rows and between columns
    blocks: bool = False
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, of the middle of the field

    def __post_init__(self):
        check_shapes("Field", [self.shape()], 0)

    @staticmethod
    def of(model: Model) -> Field:
        """The field of a model; ModelError if it has none, or a tilted or turned one."""
        shape = model.field
        if shape is None:
            raise ModelError(f"{model.name}: the model has no height field or block field.")
        if abs(np.asarray(shape.quat)[:3]).max() > 1e-9:
            raise ModelError(f"{model.name}: field {shape.name!r} is turned, so heights at a place are not defined.")
        x, y, z = (float(c) for c in shape.pos)
        assert shape.heights is not None and shape.spacing is not None  # checked when the model was made
        return Field(shape.heights, shape.spacing, shape.type == ShapeType.BLOCKFIELD, (x, y, z))

    @staticmethod
    def from_png(
        path: str | os.PathLike, *, size: tuple[float, float], height: float, blocks: bool = False
    ) -> Field:  # fmt: skip
        """The field of a greyscale picture: x to the right, y up; black is 0, white is `height` m.

        size: m, between the first and the last pixel along x and y.
        """
        from PIL import Image

        try:
            with Image.open(path) as picture:
                deep = picture.mode.startswith("I")
                pixels = np.asarray(picture.convert("I" if deep else "L"), float)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: the picture cannot be read ({error}).") from None
        heights = pixels[::-1].T * (height / (65535.0 if deep else 255.0))
        rows, columns = heights.shape
        if min(rows, columns) < 2:
            raise ModelError(f"{path}: the picture has {rows} x {columns} pixels; a field needs 2 along each axis.")
        return Field(heights, (size[0] / (rows - 1), size[1] / (columns - 1)), blocks)

    def shape(self, *, name: str = "terrain", friction: float = 1.0, restitution: float = 0.0) -> Shape:
        """The field as a shape of a model, fixed to the world."""
        heights = np.array(self.heights, float)
        heights.setflags(write=False)
        kind = ShapeType.BLOCKFIELD if self.blocks else ShapeType.HEIGHTFIELD
        spacing = self.spacing
        return Shape(
            kind, WORLD, np.zeros(3), np.array(self.pos, float), IDENTITY, name=name, body=name, friction=friction,
            restitution=restitution, heights=heights, spacing=spacing,
        )  # fmt: skip

    def under(self, model: Model) -> Model:
        """The model with this field in place of the planes and fields that are fixed to the world.

        Everything that could touch one of these can touch the field, with the same friction and restitution.
        """
        old = [k for k, s in enumerate(model.shapes) if s.link == WORLD and s.type in (ShapeType.PLANE, *FIELDS)]
        if not old:
            raise ModelError(f"{model.name}: there is no ground that a field could replace; load it with ground=True.")
        kept = [k for k in range(len(model.shapes)) if k not in old[1:]]
        first = model.shapes[old[0]]
        field = self.shape(name=first.name, friction=first.friction, restitution=first.restitution)
        field = replace(field, body=first.body, color=first.color, collide=first.collide)
        shapes = tuple(field if k == old[0] else model.shapes[k] for k in kept)
        place = np.zeros(len(model.shapes), int)
        place[kept] = np.arange(len(kept))
        place[old] = place[old[0]]
        _, rows = np.unique(place[model.pairs], axis=0, return_index=True)  # one pair for several old ones
        rows = np.sort(rows)
        pairs = place[model.pairs[rows]]
        for a, b in pairs[pairs[:, 1] == place[old[0]]]:
            if (shapes[a].type, shapes[b].type) not in FIELD_SLOTS:
                raise ModelError(f"{model.name}: a {shapes[a].type.name.lower()} cannot touch a field.")
        chosen = {"pairs": pairs} | {key: getattr(model, key)[rows] for key in ("pair_friction", "pair_restitution")}
        for values in chosen.values():
            values.setflags(write=False)
        check_shapes(model.name, shapes, model.num_links)
        changed = replace(model, shapes=shapes, **chosen)
        check_model(changed)
        return changed

    def tensor(self, like: torch.Tensor) -> torch.Tensor:
        """The heights with the dtype and on the device of a tensor, for `height` and `params["heights"]`."""
        return like.new_tensor(np.array(self.heights, float))

    def height(self, x: torch.Tensor, y: torch.Tensor, heights: torch.Tensor | None = None) -> torch.Tensor:
        """Heights (...) in the world at x, y (...), m; differentiable by all arguments. See `height_at`.

        heights: (rows, columns) in place of the field's own. On a GPU, make them once by `tensor`.
        """
        heights = self.tensor(x) if heights is None else heights
        return height_at(heights, self.spacing, x - self.pos[0], y - self.pos[1], blocks=self.blocks) + self.pos[2]

    def scan(
        self, position: torch.Tensor, heading: torch.Tensor, points: torch.Tensor, heights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Heights (n, k) at k points around n places: a robot's map of the ground.

        Args:
            position: (n, 2) or (n, 3), m; the third number is ignored.
            heading: (n, 2), the direction of the robot's x axis seen from above; its length does not matter.
            points: (k, 2) m, forward and to the left; see `scan_points`.
            heights: see `height`.
        """
        c, s = (heading / heading.norm(dim=-1, keepdim=True).clamp(min=1e-6)).unbind(-1)
        ahead, left = points.unbind(-1)
        x = position[:, :1] + c[:, None] * ahead - s[:, None] * left
        y = position[:, 1:2] + s[:, None] * ahead + c[:, None] * left
        return self.height(x, y, heights)


def scan_points(ahead: Sequence[float], left: Sequence[float]) -> np.ndarray:
    """(k, 2) m: all combinations of places ahead and to the left."""
    return np.stack(np.meshgrid(ahead, left, indexing="ij"), -1).reshape(-1, 2)
