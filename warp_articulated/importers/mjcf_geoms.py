"""Shapes and collision pairs from the geoms of a compiled MJCF file, by MuJoCo's collision rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..geometry.rotations import matrix_to_quat, quat_to_matrix
from ..model import WORLD, ModelError, Shape, ShapeType
from ..model.pairs import PairTable
from ..model.validate import name_pairs
from .meshes import convex_hull, hull_deviation, simplified
from .mjcf import Source, xyzw

if TYPE_CHECKING:
    from mujoco import MjModel

PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH, SDF = range(9)  # mujoco.mjtGeom
# shape type, and how many of MuJoCo's three sizes it uses
PRIMITIVES = {
    PLANE: (ShapeType.PLANE, 0),
    SPHERE: (ShapeType.SPHERE, 1),
    CAPSULE: (ShapeType.CAPSULE, 2),
    CYLINDER: (ShapeType.CYLINDER, 2),
    BOX: (ShapeType.BOX, 3),
}
DEFAULT_COLOR = (0.5, 0.5, 0.5, 1.0)  # of a geom without rgba: the material's colour is used
GROUND_FRICTION = 1.0


def read_shapes(source: Source, *, meshes: bool) -> tuple[list[Shape], dict[int, int]]:
    """A shape for each geom, on the link of its body, and the index of each geom's shape in the list."""
    m = source.m
    shapes: list[Shape] = []
    index: dict[int, int] = {}
    hulls: dict[int, tuple[np.ndarray, np.ndarray] | None] = {}
    deviations: dict[str, float] = {}
    colliding = _colliding(source)
    for g in range(m.ngeom):
        kind, mesh = int(m.geom_type[g]), int(m.geom_dataid[g])
        size, vertices, faces = np.zeros(3), None, None
        heights, spacing = None, None
        if kind in PRIMITIVES:
            shape_type, used = PRIMITIVES[kind]
            size[:used] = m.geom_size[g, :used]
        elif kind == ELLIPSOID:
            shape_type, (vertices, faces) = ShapeType.MESH, _ellipsoid(m.geom_size[g])
        elif kind == MESH and mesh >= 0:
            if mesh not in hulls:
                hulls[mesh] = _mesh_hull(source, mesh) if meshes else None
            hull = hulls[mesh]
            if hull is None:
                continue
            shape_type, (vertices, faces) = ShapeType.MESH, hull
            if g in colliding:
                deviations[m.mesh(mesh).name] = hull_deviation(_mesh_points(source, mesh), vertices)
        elif kind == HFIELD and _is_terrain(source, g):
            shape_type, (heights, spacing) = ShapeType.HEIGHTFIELD, _heights(source, mesh)
        else:
            source.differences.append(
                f"Geom {source.geom_names[g]!r} is a signed distance field, or a height field that moves or is not the "
                "first one, which is not supported and left out: the simulation will differ."
            )
            continue
        index[g] = len(shapes)
        body = int(m.geom_bodyid[g])
        place = source.placements[body]
        shapes.append(
            Shape(
                type=shape_type,
                link=place.link,
                size=size,
                pos=place.origin + place.rotation @ m.geom_pos[g],
                quat=matrix_to_quat(place.rotation @ quat_to_matrix(xyzw(m.geom_quat[g]))),
                name=source.geom_names[g],
                body=source.body_names[body],
                friction=float(m.geom_friction[g, 0]),
                color=_color(source, g),
                collide=g in colliding,
                vertices=vertices,
                faces=faces,
                heights=heights,
                spacing=spacing,
            )
        )
    if not meshes and np.any(m.geom_type == MESH):
        source.notes.append(f"{np.sum(m.geom_type == MESH)} mesh geom(s) were left out, as meshes=False asks.")
    source.notes += simplified(deviations)
    if np.any(m.geom_type == ELLIPSOID):
        source.notes.append(
            "Ellipsoids are replaced by convex meshes of 42 corners on their surface; the faces are up to 7 % of the "
            "radius inside."
        )
    return shapes, index


def _is_terrain(source: Source, geom: int) -> bool:
    """A model can have one field, fixed to the world."""
    m = source.m
    fields = [g for g in np.flatnonzero(m.geom_type == HFIELD) if source.placements[m.geom_bodyid[g]].link == WORLD]
    return geom == min(fields, default=-1)


def _heights(source: Source, field: int) -> tuple[np.ndarray, tuple[float, float]]:
    """Heights with x along the rows, and their spacing. MuJoCo's rows run along y."""
    m = source.m
    rows, columns, start = int(m.hfield_nrow[field]), int(m.hfield_ncol[field]), int(m.hfield_adr[field])
    half_x, half_y, top, _ = m.hfield_size[field].tolist()
    data = np.asarray(m.hfield_data[start : start + rows * columns], float).reshape(rows, columns)
    return top * data.T, (2.0 * half_x / (columns - 1), 2.0 * half_y / (rows - 1))


def _colliding(source: Source) -> set[int]:
    m = source.m
    masked = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    return {int(g) for g in (*masked, *m.pair_geom1, *m.pair_geom2)}


def _color(source: Source, geom: int) -> tuple[float, float, float, float]:
    m = source.m
    rgba = m.geom_rgba[geom]
    if m.geom_matid[geom] >= 0 and np.allclose(rgba, DEFAULT_COLOR):
        rgba = m.mat_rgba[m.geom_matid[geom]]
    r, g, b, a = (round(float(c), 6) for c in rgba)  # float32 in MuJoCo
    return r, g, b, a


def read_pairs(
    source: Source,
    shapes: list[Shape],
    index: dict[int, int],
    *,
    ground: bool,
    self_collision: bool,
    exclude: Iterable[tuple[str, str]],
) -> PairTable:
    """All pairs of shapes that MuJoCo would test; appends the ground to `shapes`."""
    m = source.m
    excluded = _excluded(source, exclude)
    geoms, dims, friction = geom_pairs(source)
    shape_of = np.full(m.ngeom, -1)
    shape_of[list(index)] = list(index.values())
    body = m.geom_bodyid[geoms]
    link = np.array([place.link for place in source.placements])[body]
    root = m.body_rootid[body]
    keep = (shape_of[geoms] >= 0).all(1) & (link[:, 0] != link[:, 1])
    if not self_collision:
        keep &= (link == WORLD).any(1) | (root[:, 0] != root[:, 1])
    for pair in excluded:
        if pair <= set(source.body_names):
            keep &= ~np.isin(body, [source.body_names.index(name) for name in pair]).all(1)
    if np.any(dims > 3):
        source.notes.append("Torsional and rolling friction (condim 4 and 6) are not supported: contacts only slide.")
    found = PairTable(shape_of[geoms], np.where(dims == 1, 0.0, friction), np.zeros(len(geoms))).take(keep)
    return PairTable.joined([found, _ground_pairs(source, shapes, index, excluded)]) if ground else found


def _ground_pairs(
    source: Source, shapes: list[Shape], index: dict[int, int], excluded: set[frozenset[str]]
) -> PairTable:
    """Append the ground to `shapes`; its pairs with every colliding shape on a link."""
    plane = len(shapes)
    shapes.append(Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="ground", body="ground", friction=GROUND_FRICTION))
    found = []
    for g, k in index.items():
        if shapes[k].collide and shapes[k].link != WORLD and frozenset((shapes[k].body, "ground")) not in excluded:
            own = shapes[k].friction
            mixed = max(own, GROUND_FRICTION)
            if source.m.geom_priority[g] > 0:
                mixed = own if source.m.geom_condim[g] > 1 else 0.0
            found.append((k, plane, mixed, 0.0))
    return PairTable.of(found)


def _excluded(source: Source, exclude: Iterable[tuple[str, str]]) -> set[frozenset[str]]:
    known = {*source.body_names, "ground"}
    pairs = name_pairs(source.path, "exclude", exclude, "body")
    for name in (name for pair in pairs for name in pair):
        if name not in known:
            raise ModelError(f"{source.path}: exclude names {name!r}, which is not a body; {sorted(known)} are.")
    return {frozenset(pair) for pair in pairs}


def geom_pairs(source: Source) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of geoms (n, 2) that pass MuJoCo's filters, the lower one first, their condim and sliding friction.

    https://mujoco.readthedocs.io/en/stable/computation/index.html#selection
    """
    m = source.m
    if source.disabled("CONTACT"):
        return np.zeros((0, 2), int), np.zeros(0, int), np.zeros(0)
    geoms = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    rows = [_touchable(source, int(a), geoms[k + 1 :]) for k, a in enumerate(geoms)]
    first = np.repeat(geoms, [len(row) for row in rows])
    pairs = np.stack([first, np.concatenate([np.zeros(0, int), *rows])], -1)
    dims, friction = _mixed_contacts(m, pairs)
    if not m.npair:
        return pairs, dims, friction
    # listed in <contact><pair>: no filter applies, and their values take precedence
    found = {(a, b): (dim, mu) for (a, b), dim, mu in zip(pairs.tolist(), dims.tolist(), friction.tolist())}
    for p in range(m.npair):
        a, b = sorted((int(m.pair_geom1[p]), int(m.pair_geom2[p])))
        mu = m.pair_friction[p]
        found[a, b] = int(m.pair_dim[p]), float(mu[0])
        if m.pair_dim[p] > 1 and mu[0] != mu[1]:
            source.notes.append(
                f"The friction of pair {source.geom_names[a]!r}, {source.geom_names[b]!r} depends on the direction; "
                f"here its first value, {mu[0]:g}, applies to all."
            )
    dims, friction = (np.array(column) for column in zip(*found.values()))
    return np.array(list(found)), dims, friction


def _touchable(source: Source, a: int, others: np.ndarray) -> np.ndarray:
    """Those of the geoms `others` that geom a can touch."""
    m = source.m
    masks = (m.geom_contype[a] & m.geom_conaffinity[others]) | (m.geom_contype[others] & m.geom_conaffinity[a])
    one, two = m.geom_bodyid[a], m.geom_bodyid[others]
    weld = m.body_weldid  # the body of the same rigid piece that has the joint; 0: rigid with the world
    weld_parent = weld[m.body_parentid[weld]]
    keep = (masks != 0) & (weld[one] != weld[two])
    # children of the world still collide with it, or nothing would stop at the floor
    if weld[one] != 0 and not source.disabled("FILTERPARENT"):
        adjacent = (weld[one] == weld_parent[two]) | (weld[two] == weld_parent[one])
        keep &= ~(adjacent & (weld[two] != 0))
    low, high = m.exclude_signature >> 16, m.exclude_signature & 0xFFFF
    return others[keep & ~np.isin(two, [*high[low == one], *low[high == one]])]


def _mixed_contacts(m: MjModel, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """condim and sliding friction of pairs of geoms: the larger ones, or those of the geom with the higher priority."""
    priority, dims, friction = m.geom_priority[pairs], m.geom_condim[pairs], m.geom_friction[:, 0][pairs]
    # the one with the lower priority does not count
    ignored = priority < priority.max(1, keepdims=True)
    return np.where(ignored, -1, dims).max(1), np.where(ignored, -np.inf, friction).max(1)


def _mesh_hull(source: Source, mesh: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Hull of a mesh, in the frame that MuJoCo's geom_pos and geom_quat place; None, with a note, if it is flat."""
    m = source.m
    points = _mesh_points(source, mesh)
    try:
        return convex_hull(points)
    except ModelError:  # MuJoCo refuses flat meshes that collide, so this one is only visible
        source.notes.append(f"Mesh {m.mesh(mesh).name!r} is flat, so it has no convex hull; it is left out.")
        return None


def _mesh_points(source: Source, mesh: int) -> np.ndarray:
    start, count = source.m.mesh_vertadr[mesh], source.m.mesh_vertnum[mesh]
    return np.asarray(source.m.mesh_vert[start : start + count], float)


def _ellipsoid(radii: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hull of 42 points on an ellipsoid: the corners and edge middles of an icosahedron, pushed out to its surface.

    Its faces are up to 7 % of the radius inside.
    """
    golden = (1 + np.sqrt(5)) / 2
    corners = [np.roll([0.0, s, t * golden], k) for k in range(3) for s in (-1, 1) for t in (-1, 1)]
    middles = [
        (p + q) / 2 for i, p in enumerate(corners) for q in corners[:i] if np.isclose(np.linalg.norm(p - q), 2.0)
    ]
    points = np.array(corners + middles)
    return convex_hull(points / np.linalg.norm(points, axis=1, keepdims=True) * radii)
