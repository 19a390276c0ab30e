"""Triangle meshes of collision shapes, and which shapes can be drawn as copies of one mesh.

A browser draws a thousand copies of a mesh as fast as one, so shapes that differ only in place, size and colour share
one: all spheres do, all boxes, all cylinders, capsules of the same proportions, and meshes with the same corners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...geometry.rotations import quat_to_matrix
from ...model import FIELDS, Model, Shape, ShapeType
from ..layout import field_mesh, hull_of, is_visible, shape_color

SEGMENTS = 20  # around a circle
SLAB = 0.005  # m, half thickness of a slope


@dataclass(frozen=True)
class Mesh:
    """vertices: (n, 3) m; faces: (m, 3) int, counter-clockwise seen from outside.

    Corners on sharp edges are listed once per side: browsers smooth the normals of shared corners.
    """

    vertices: np.ndarray
    faces: np.ndarray


@dataclass(frozen=True)
class Group:
    """Shapes that are copies of one mesh: scales (n, 3) times its vertices; colors (n, 3) sRGB, 0 to 1."""

    mesh: Mesh
    shapes: tuple[Shape, ...]
    scales: np.ndarray
    colors: np.ndarray
    opacity: float
    faceted: bool


def group_shapes(model: Model, shapes: Iterable[Shape]) -> list[Group]:
    """The visible shapes, none of them a plane, grouped by the mesh that they are copies of."""
    found: dict[tuple, list[Shape]] = {}
    for shape in shapes:
        if is_visible(shape):
            found.setdefault((_opacity(shape), *_prototype(shape)), []).append(shape)
    return [_group(model, tuple(members)) for members in found.values()]


def slab(shape: Shape, half: float) -> Shape:
    """A slope as a thin box of 2 half x 2 half m: an endless plane would cut through the neighbours."""
    normal = quat_to_matrix(shape.quat)[:, 2]
    size = np.array([half, half, SLAB])
    return replace(shape, type=ShapeType.BOX, size=size, pos=np.asarray(shape.pos, float) - SLAB * normal)


def _opacity(shape: Shape) -> float:
    return float(shape.color[3]) if shape.color is not None and len(shape.color) > 3 else 1.0


def _prototype(shape: Shape) -> tuple:
    """What shapes must have in common to be scaled copies of one mesh."""
    match shape.type:
        case ShapeType.CAPSULE:  # its ends stay round only if it is scaled in all directions alike
            return shape.type, round(float(shape.size[1] / shape.size[0]), 6)
        case ShapeType.MESH:
            vertices, faces = hull_of(shape)
            return shape.type, vertices.tobytes(), faces.tobytes()
        case _:
            return (shape.type,)


def _group(model: Model, shapes: tuple[Shape, ...]) -> Group:
    first = shapes[0]
    colors = np.array([shape_color(model, shape) for shape in shapes])
    scales = np.array([_scale(shape) for shape in shapes])
    return Group(_mesh(first), shapes, scales, colors, _opacity(first), faceted=first.type in (ShapeType.MESH, *FIELDS))


def _scale(shape: Shape) -> np.ndarray:
    size = np.asarray(shape.size, float)
    match shape.type:
        case ShapeType.SPHERE | ShapeType.CAPSULE:
            return np.full(3, size[0])
        case ShapeType.BOX:
            return size[:3]
        case ShapeType.CYLINDER:
            return size[[0, 0, 1]]
        case _:
            return np.ones(3)


def _mesh(shape: Shape) -> Mesh:
    match shape.type:
        case ShapeType.SPHERE:
            return round_mesh(0.0)
        case ShapeType.CAPSULE:
            return round_mesh(float(shape.size[1] / shape.size[0]))
        case ShapeType.BOX:
            return box_mesh()
        case ShapeType.CYLINDER:
            return cylinder_mesh()
        case ShapeType.MESH:
            return Mesh(*hull_of(shape))
        case kind if kind in FIELDS:
            return Mesh(*field_mesh(shape))
        case _:
            raise ValueError(f"shape {shape.name!r} is a {shape.type.name.lower()}, which has no mesh.")


def round_mesh(half_length: float) -> Mesh:
    """A capsule of radius 1 along z with a cylindrical part of 2 half_length, or a sphere if that is 0."""
    rings = SEGMENTS // 2
    angles = np.linspace(0.0, np.pi, rings + 1)
    if half_length > 0.0:  # the equator twice: above and below the cylindrical part
        angles = np.insert(angles, rings // 2, np.pi / 2)
    shift = np.where(np.arange(len(angles)) < len(angles) / 2, half_length, -half_length)
    return _revolve(np.sin(angles), np.cos(angles) + shift)


def cylinder_mesh() -> Mesh:
    """A cylinder of radius 1 and half length 1 along z."""
    top, side, bottom = (_revolve(np.array(r), np.array(z)) for r, z in (
        ([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [1.0, -1.0]), ([1.0, 0.0], [-1.0, -1.0])
    ))  # fmt: skip
    return _joined([top, side, bottom])


def box_mesh() -> Mesh:
    """A cube of half extents 1."""
    sides = []
    square = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    for axis in range(3):
        for sign in (-1.0, 1.0):
            corners = np.zeros((4, 3))
            corners[:, axis] = sign
            corners[:, (axis + 1) % 3], corners[:, (axis + 2) % 3] = square.T
            faces = np.array([[0, 1, 2], [0, 2, 3]])
            sides.append(Mesh(corners, faces if sign > 0 else faces[:, ::-1]))
    return _joined(sides)


def _joined(parts: list[Mesh]) -> Mesh:
    starts = np.cumsum([0] + [len(p.vertices) for p in parts[:-1]])
    faces = np.concatenate([p.faces + start for p, start in zip(parts, starts)])
    return Mesh(np.concatenate([p.vertices for p in parts]), faces)


def _revolve(radii: np.ndarray, heights: np.ndarray) -> Mesh:
    """The surface that a line of points (radius, height), from top to bottom, sweeps around the z axis."""
    angle = np.linspace(0.0, 2.0 * np.pi, SEGMENTS, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    rings = [np.column_stack([r * circle, np.full(SEGMENTS, z)]) for r, z in zip(radii, heights)]
    here = np.arange(SEGMENTS)
    following = (here + 1) % SEGMENTS
    faces = []
    for k in range(len(rings) - 1):
        above, below = k * SEGMENTS, (k + 1) * SEGMENTS
        if radii[k] > 1e-9:  # at a pole that triangle has no area
            faces.append(np.stack([above + here, below + following, above + following], -1))
        if radii[k + 1] > 1e-9:
            faces.append(np.stack([above + here, below + here, below + following], -1))
    return Mesh(np.concatenate(rings), np.concatenate(faces))
