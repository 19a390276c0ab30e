"""Pairs of a URDF's shapes that overlap in the default pose.

A link's hull is larger than the link: it closes the gaps that neighbours reach into. URDFs do not say which pairs are
meant to touch, so those that overlap from the start are left out; they would push each other away.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..geometry.kinematics import link_transforms
from ..geometry.rotations import quat_to_matrix
from ..model import WORLD, Model, Shape, ShapeType
from ..model.description import frozen
from ..model.pairs import CONVEX
from ..model.polytopes import Polytope, polytope_of

DEEP = 0.01  # of the radius of the smaller shape


def without_overlaps(model: Model) -> Model:
    """The model without the general pairs of shapes that overlap by more than 1 % of their size at q0, with a note."""
    rotation, origin = link_transforms(model, model.q0)
    placed: dict[int, tuple[Polytope, float]] = {}

    def place(k: int) -> tuple[Polytope, float]:
        if k not in placed:
            shape = model.shapes[k]
            hull = polytope_of(shape)
            R, p = (np.eye(3), np.zeros(3)) if shape.link == WORLD else (rotation[shape.link], origin[shape.link])
            turn = R @ quat_to_matrix(np.asarray(shape.quat))
            vertices = p + R @ shape.pos + (hull.vertices * _scale(shape)) @ turn.T
            placed[k] = Polytope(vertices, hull.faces), _radius(shape)
        return placed[k]

    keep = np.ones(len(model.pairs), bool)
    for row, (a, b) in enumerate(model.pairs):
        if (model.shapes[a].type, model.shapes[b].type) in CONVEX:
            one, radius = place(int(a))
            two, _ = place(int(b))
            keep[row] = not _deep(one, two, radius)
    if keep.all():
        return model
    names = sorted({" and ".join((model.shapes[a].body, model.shapes[b].body)) for a, b in model.pairs[~keep]})
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    note = f"{np.sum(~keep)} pair(s) of shapes overlap in the default pose and never collide: {shown}."
    return replace(
        model, pairs=frozen(model.pairs[keep], int), pair_friction=frozen(model.pair_friction[keep]),
        pair_restitution=frozen(model.pair_restitution[keep]), notes=(*model.notes, note),
    )  # fmt: skip


def _scale(shape: Shape) -> np.ndarray:
    """Of the polytope, along the shape's axes."""
    size = np.append(np.asarray(shape.size, float), np.zeros(3))
    return {
        ShapeType.SPHERE: np.zeros(3),
        ShapeType.CAPSULE: np.array([0.0, 0.0, size[1]]),
        ShapeType.BOX: size[:3],
        ShapeType.CYLINDER: size[[0, 0, 1]],
    }.get(shape.type, np.ones(3))


def _radius(shape: Shape) -> float:
    return float(shape.size[0]) if shape.type in (ShapeType.SPHERE, ShapeType.CAPSULE) else 0.0


def _deep(one: Polytope, two: Polytope, radius: float) -> bool:
    """True if the polytopes, the first one with a radius, overlap by more than DEEP of the smaller one."""
    from scipy.spatial import ConvexHull

    sizes = [one.bound + radius, two.bound]
    if np.linalg.norm(one.centre - two.centre) > sum(sizes):
        return False
    slack = DEEP * min(sizes)
    depth = np.inf
    for hull, other in ((one, two), (two, one)):
        heights = (hull.normals * hull.middles).sum(1) - (other.vertices @ hull.normals.T).min(0)
        depth = min(depth, float(heights.min(initial=np.inf)))
    if depth + radius <= slack:
        return False
    # the faces do not separate them; perhaps two edges do
    difference = (one.vertices[:, None] - two.vertices).reshape(-1, 3)
    outside = float(ConvexHull(difference).equations[:, 3].max())  # distance of the origin, if it is inside
    return radius - outside > slack
