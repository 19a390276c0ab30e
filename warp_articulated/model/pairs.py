"""Which shapes of a model may touch: the static list of collision pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .description import Body, Shape, ShapeType

# Largest number of contact points of a pair of shape types; kernels/collision/pairs.py has their geometry. Pairs that
# are not listed are not supported. The lower type is first; PLANE is the highest.
SPHERE, CAPSULE, BOX = ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX
CYLINDER, MESH, PLANE = ShapeType.CYLINDER, ShapeType.MESH, ShapeType.PLANE
SLOTS = {
    (SPHERE, PLANE): 1, (CAPSULE, PLANE): 2, (BOX, PLANE): 8, (CYLINDER, PLANE): 5, (MESH, PLANE): 8,
    (SPHERE, SPHERE): 1, (SPHERE, CAPSULE): 1, (SPHERE, BOX): 1,
    (CAPSULE, CAPSULE): 2, (CAPSULE, BOX): 2,
    (BOX, BOX): 8,
}  # fmt: skip


def shape_pairs(
    bodies: Sequence[Body], shapes: Sequence[Shape], exclude: Iterable[tuple[str, str]], notes: list[str]
) -> list[tuple[int, int, float, float]]:
    """All supported pairs of colliding shapes on different links that are not parent and child."""
    excluded = {frozenset(pair) for pair in exclude}
    found = []
    for b in range(len(shapes)):
        for a in range(b):
            one, two = shapes[a], shapes[b]
            if not (one.collide and two.collide) or one.link == two.link:
                continue
            if frozenset((one.body, two.body)) in excluded:
                continue
            low, high = sorted((one.link, two.link))
            if low >= 0 and bodies[high].parent == low:
                continue
            friction = float(np.sqrt(one.friction * two.friction))
            found.append((a, b, friction, max(one.restitution, two.restitution)))
    return order_pairs(shapes, found, notes)


def order_pairs(
    shapes: Sequence[Shape], pairs: Iterable[tuple[int, int, float, float]], notes: list[str]
) -> list[tuple[int, int, float, float]]:
    """Put the lower shape type first and leave out (with a note) pairs that the collision stage does not support."""
    kept: list[tuple[int, int, float, float]] = []
    dropped: dict[str, int] = {}
    for a, b, friction, restitution in pairs:
        if shapes[a].type > shapes[b].type:
            a, b = b, a
        kinds = (int(shapes[a].type), int(shapes[b].type))
        if kinds in SLOTS:
            kept.append((a, b, friction, restitution))
        elif kinds != (PLANE, PLANE):
            key = f"{shapes[a].type.name.lower()} with {shapes[b].type.name.lower()}"
            dropped[key] = dropped.get(key, 0) + 1
    for key, count in dropped.items():
        notes.append(f"{count} pair(s) of {key} never collide: this kind of pair is not supported.")
    return kept
