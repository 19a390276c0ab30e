"""Shapes as the general collision pairs see them: a convex polytope, scaled by the shape's size, plus a radius.

A sphere is a point and a capsule a segment, both with a radius; a box is a cube; a cylinder is a prism of 24 sides
inside of it; a mesh is its hull. device/structs.py makes the kernels' tables of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .description import Shape, ShapeType

PRISM_SIDES = 24  # of a cylinder: its flat sides are up to 0.86 % of the radius inside the round one
FLAT = 1e-5  # of the size: triangles whose corners are this close to a plane are one face


@dataclass(frozen=True)
class Polytope:
    """Vertices (n, 3) and faces as tuples of vertices, counter-clockwise seen from outside."""

    vertices: np.ndarray
    faces: tuple[tuple[int, ...], ...] = ()
    scaled: bool = False  # by the shape's size
    triangles: np.ndarray | None = None  # (k, 3) of a hull, before those in a plane became one face

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """The vertices that share an edge with each vertex."""
        faces = self.faces if self.triangles is None else self.triangles.tolist()
        found: list[set[int]] = [set() for _ in self.vertices]
        for face in faces:
            for one, two in zip(face, [*face[1:], face[0]]):
                found[one].add(two)
                found[two].add(one)
        if not faces and len(found) == 2:
            found = [{1}, {0}]
        return [sorted(others) for others in found]

    @cached_property
    def bound(self) -> float:
        """Radius of a sphere around the centre that holds it; 0 if that depends on the size."""
        if self.scaled or len(self.vertices) == 0:
            return 0.0
        return float(np.linalg.norm(self.vertices - self.centre, axis=1).max())

    @cached_property
    def centre(self) -> np.ndarray:
        """(3,) a point inside."""
        return self.vertices.mean(0) if len(self.vertices) else np.zeros(3)

    @cached_property
    def normals(self) -> np.ndarray:
        """(m, 3) outward unit normals of the faces."""
        areas = self.areas
        return areas / np.linalg.norm(areas, axis=1, keepdims=True)

    @cached_property
    def areas(self) -> np.ndarray:
        """(m, 3) the normals times the areas of the faces."""
        return np.array([_area(self.vertices[list(face)]) for face in self.faces]).reshape(-1, 3)

    @cached_property
    def middles(self) -> np.ndarray:
        """(m, 3) a point inside each face."""
        return np.array([self.vertices[list(face)].mean(0) for face in self.faces]).reshape(-1, 3)

    @cached_property
    def sides(self) -> np.ndarray:
        """(corners, 3) of all faces: unit normal, in the face's plane and out of the face, of the edge to the next."""
        sides = [np.zeros((0, 3))]
        for face, normal in zip(self.faces, self.normals):
            corners = self.vertices[list(face)]
            side = np.cross(np.roll(corners, -1, 0) - corners, normal)
            sides.append(side / np.linalg.norm(side, axis=1, keepdims=True))
        return np.concatenate(sides)

    @cached_property
    def rooms(self) -> np.ndarray:
        """(corners,) of all faces: distance of that edge from the middle of the face."""
        rooms = [np.zeros(0)]
        starts = np.cumsum([0, *(len(face) for face in self.faces)])
        for face, middle, start in zip(self.faces, self.middles, starts):
            arms = self.vertices[list(face)] - middle
            rooms.append((arms * self.sides[start : start + len(face)]).sum(1))
        return np.concatenate(rooms)

    @cached_property
    def thickness(self) -> float:
        """Distance from the centre to the nearest face; 0 without faces."""
        heights = ((self.middles - self.centre) * self.normals).sum(1)
        return float(heights.min()) if len(heights) else 0.0


def _area(corners: np.ndarray) -> np.ndarray:
    arms = corners - corners[0]
    return 0.5 * np.cross(arms[1:-1], arms[2:]).sum(0)


def merged_faces(vertices: np.ndarray, triangles: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The faces of a convex hull from its triangles: those that lie in a plane become one polygon."""
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=1)
    slack = FLAT * np.linalg.norm(vertices - vertices.mean(0), axis=1).max()
    left = np.ones(len(triangles), bool)
    faces = []
    for k in np.argsort(-area, kind="stable"):
        if not left[k]:
            continue
        normal = normals[k] / area[k]
        inside = left & (abs((vertices[triangles] - a[k]) @ normal) <= slack).all(1) & (normals @ normal > 0)
        inside[k] = True
        left &= ~inside
        faces.append(_around(vertices, np.unique(triangles[inside]), normal))
    return tuple(faces)


def _around(vertices: np.ndarray, corners: np.ndarray, normal: np.ndarray) -> tuple[int, ...]:
    """Corners of a convex polygon in the order of their angles about the normal."""
    arms = vertices[corners] - vertices[corners].mean(0)
    x = arms[0] / np.linalg.norm(arms[0])
    angles = np.arctan2(arms @ np.cross(normal, x), arms @ x)
    return tuple(int(k) for k in corners[np.argsort(angles)])


def polytope_of(shape: Shape) -> Polytope:
    """The polytope of a shape, before its size scales it; a ModelError for a mesh that is flat."""
    if shape.type == ShapeType.MESH:
        assert shape.vertices is not None  # validate.py has checked it
        from ..importers.meshes import convex_hull

        vertices, triangles = convex_hull(np.asarray(shape.vertices, float), f"shape {shape.name!r}")
        return Polytope(vertices, merged_faces(vertices, triangles), triangles=triangles)
    return _unit(shape.type)


@lru_cache
def _unit(kind: ShapeType) -> Polytope:
    z = np.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]])
    if kind == ShapeType.SPHERE:
        return Polytope(np.zeros((1, 3)), scaled=True)
    if kind == ShapeType.CAPSULE:
        return Polytope(z, scaled=True)
    count = 4 if kind == ShapeType.BOX else PRISM_SIDES
    angles = 2 * np.pi * (np.arange(count) + (0.5 if count == 4 else 0.0)) / count
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    if kind == ShapeType.BOX:
        ring = np.sign(ring)
    vertices = np.concatenate([np.c_[ring, np.full(count, -1.0)], np.c_[ring, np.full(count, 1.0)]])
    walls = [(k, (k + 1) % count, count + (k + 1) % count, count + k) for k in range(count)]
    caps = [tuple(range(count - 1, -1, -1)), tuple(range(count, 2 * count))]
    return Polytope(vertices, (*walls, *caps), scaled=True)
