"""Which shapes of a model may touch: the static list of collision pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .description import WORLD, Body, Shape, ShapeType

# Largest number of contact points of a pair of shape types; the lower type is first, PLANE is the highest.
# kernels/collision/pairs.py has the geometry of SLOTS without CONVEX, kernels/collision/convex.py that of CONVEX.
SPHERE, CAPSULE, BOX = ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX
CYLINDER, MESH, PLANE = ShapeType.CYLINDER, ShapeType.MESH, ShapeType.PLANE
CONVEX = {
    (SPHERE, CYLINDER): 1, (SPHERE, MESH): 1, (CAPSULE, CYLINDER): 2, (CAPSULE, MESH): 2,
    (BOX, CYLINDER): 4, (BOX, MESH): 4, (CYLINDER, CYLINDER): 4, (CYLINDER, MESH): 4, (MESH, MESH): 4,
}  # fmt: skip
SLOTS = {
    (SPHERE, PLANE): 1, (CAPSULE, PLANE): 2, (BOX, PLANE): 8, (CYLINDER, PLANE): 5, (MESH, PLANE): 8,
    (SPHERE, SPHERE): 1, (SPHERE, CAPSULE): 1, (SPHERE, BOX): 1,
    (CAPSULE, CAPSULE): 2, (CAPSULE, BOX): 2,
    (BOX, BOX): 8,
    **CONVEX,
}  # fmt: skip


@dataclass(frozen=True)
class PairTable:
    """Collision pairs in columns: there can be millions, too many for a tuple each."""

    shapes: np.ndarray  # (n, 2) int
    friction: np.ndarray  # (n,)
    restitution: np.ndarray  # (n,)

    @staticmethod
    def of(pairs: Iterable[tuple[int, int, float, float]]) -> PairTable:
        """The table of (shape, shape, friction, restitution) tuples."""
        rows = list(pairs)
        return PairTable(
            np.array([row[:2] for row in rows], int).reshape(-1, 2),
            np.array([row[2] for row in rows], float),
            np.array([row[3] for row in rows], float),
        )

    @staticmethod
    def joined(tables: Sequence[PairTable]) -> PairTable:
        """All rows of the tables, one after the other."""
        return PairTable(
            np.concatenate([t.shapes for t in tables]),
            np.concatenate([t.friction for t in tables]),
            np.concatenate([t.restitution for t in tables]),
        )

    def take(self, rows: np.ndarray) -> PairTable:
        """Some rows, by index or mask."""
        return PairTable(self.shapes[rows], self.friction[rows], self.restitution[rows])


def shape_pairs(bodies: Sequence[Body], shapes: Sequence[Shape], exclude: Iterable[Collection[str]]) -> PairTable:
    """All pairs of colliding shapes on different links that are not parent and child.

    exclude: groups of body names, of two names or more, in which no body collides with another one.
    """
    numbers: dict[str, int] = {}
    body = np.array([numbers.setdefault(s.body, len(numbers)) for s in shapes], int)
    partners: dict[int, list[int]] = {}  # excluded with this body
    groups = []
    for names in map(set, exclude):
        members = [numbers[name] for name in names if name in numbers]
        if len(names) > 2:
            groups.append(np.isin(body, members))
        elif members and len(members) == len(names):
            partners.setdefault(members[0], []).append(members[-1])
            partners.setdefault(members[-1], []).append(members[0])
    link = np.array([s.link for s in shapes], int)
    # the parent of a shape's link; -2, which is no link, where that is the world: it touches what hangs on it
    above = np.array([bodies[i].parent if i != WORLD else WORLD for i in link], int)
    above[above == WORLD] = -2

    def allowed(b: int) -> np.ndarray:
        keep = (link[:b] != link[b]) & (above[:b] != link[b]) & (link[:b] != above[b])
        if body[b] in partners:
            keep &= ~np.isin(body[:b], partners[body[b]])
        for group in groups:
            if group[b]:
                keep &= ~group[:b]
        return keep

    return order_pairs(shapes, mixed_pairs(shapes, allowed))


def mixed_pairs(shapes: Sequence[Shape], allowed: Callable[[int], np.ndarray]) -> PairTable:
    """Pairs of colliding shapes, with the geometric mean of their frictions and the larger restitution.

    allowed: for the index b of a shape, a mask (b,) of the shapes before it that it may touch.
    """
    collide = np.array([s.collide for s in shapes], bool)
    seconds = np.flatnonzero(collide)
    firsts = [np.flatnonzero(collide[:b] & allowed(int(b))) for b in seconds]
    a = np.concatenate(firsts) if firsts else np.zeros(0, int)
    b = np.repeat(seconds, [len(found) for found in firsts])
    friction = np.array([s.friction for s in shapes], float)
    restitution = np.array([s.restitution for s in shapes], float)
    mixed = np.sqrt(friction[a] * friction[b])
    return PairTable(np.stack([a, b], -1), mixed, np.maximum(restitution[a], restitution[b]))


def order_pairs(shapes: Sequence[Shape], pairs: PairTable) -> PairTable:
    """Put the lower shape type first and leave out pairs of planes."""
    types = np.array([int(s.type) for s in shapes], int)
    one, two = pairs.shapes.T
    swap = types[one] > types[two]
    one, two = np.where(swap, two, one), np.where(swap, one, two)
    return replace(pairs, shapes=np.stack([one, two], -1)).take(types[one] != PLANE)
