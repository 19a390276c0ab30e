"""Shapes and collision pairs from the geoms of a compiled MJCF file, by MuJoCo's collision rules."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..geometry.rotations import matrix_to_quat, quat_to_matrix
from ..model import WORLD, ModelError, Shape, ShapeType
from ..model.validate import name_pairs
from .meshes import convex_hull
from .mjcf import Source, xyzw

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
    colliding = _colliding(source)
    for g in range(m.ngeom):
        kind, mesh = int(m.geom_type[g]), int(m.geom_dataid[g])
        size, vertices, faces = np.zeros(3), None, None
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
        else:
            source.differences.append(
                f"Geom {source.geom_names[g]!r} is a height field or signed distance field, which is not supported "
                "and left out: the simulation will differ."
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
            )
        )
    if not meshes and np.any(m.geom_type == MESH):
        source.notes.append(f"{np.sum(m.geom_type == MESH)} mesh geom(s) were left out, as meshes=False asks.")
    if np.any(m.geom_type == ELLIPSOID):
        source.notes.append("Ellipsoids are replaced by convex meshes of 42 corners on their surface.")
    return shapes, index


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
) -> list[tuple[int, int, float, float]]:
    """(shape, shape, friction, restitution) of all pairs that MuJoCo would test; appends the ground to `shapes`."""
    m = source.m
    excluded = _excluded(source, exclude)
    contacts = geom_pairs(source)
    found = []
    for (a, b), (dim, friction) in contacts.items():
        if a not in index or b not in index:
            continue
        one, two = shapes[index[a]], shapes[index[b]]
        root = m.body_rootid[m.geom_bodyid[[a, b]]]
        if one.link == two.link or frozenset((one.body, two.body)) in excluded:
            continue
        if not self_collision and WORLD not in (one.link, two.link) and root[0] == root[1]:
            continue
        found.append((index[a], index[b], 0.0 if dim == 1 else friction, 0.0))
    if any(dim > 3 for dim, _ in contacts.values()):
        source.notes.append("Torsional and rolling friction (condim 4 and 6) are not supported: contacts only slide.")
    if ground:
        plane = len(shapes)
        shapes.append(
            Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="ground", body="ground", friction=GROUND_FRICTION)
        )
        for g, k in index.items():
            if frozenset((shapes[k].body, "ground")) in excluded:
                continue
            if shapes[k].collide and shapes[k].link != WORLD:
                own = shapes[k].friction
                found.append((k, plane, own if m.geom_priority[g] > 0 else max(own, GROUND_FRICTION), 0.0))
    return found


def _excluded(source: Source, exclude: Iterable[tuple[str, str]]) -> set[frozenset[str]]:
    known = {*source.body_names, "ground"}
    pairs = name_pairs(source.path, "exclude", exclude, "body")
    for name in (name for pair in pairs for name in pair):
        if name not in known:
            raise ModelError(f"{source.path}: exclude names {name!r}, which is not a body; {sorted(known)} are.")
    return {frozenset(pair) for pair in pairs}


def geom_pairs(source: Source) -> dict[tuple[int, int], tuple[int, float]]:
    """{(geom, geom): (condim, sliding friction)} of all pairs that pass MuJoCo's filters, the lower geom first.

    https://mujoco.readthedocs.io/en/stable/computation/index.html#selection
    """
    m = source.m
    if source.disabled("CONTACT"):
        return {}
    found: dict[tuple[int, int], tuple[int, float]] = {}
    geoms = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0)).tolist()
    never = {tuple(sorted((int(s) >> 16, int(s) & 0xFFFF))) for s in m.exclude_signature}
    weld = m.body_weldid  # the body of the same rigid piece that has the joint; 0: rigid with the world
    weld_parent = weld[m.body_parentid[weld]]
    filter_parent = not source.disabled("FILTERPARENT")
    for place, a in enumerate(geoms):
        for b in geoms[place + 1 :]:
            if not (m.geom_contype[a] & m.geom_conaffinity[b] or m.geom_contype[b] & m.geom_conaffinity[a]):
                continue
            one, two = sorted((int(m.geom_bodyid[a]), int(m.geom_bodyid[b])))
            if weld[one] == weld[two] or (one, two) in never:
                continue
            adjacent = weld[one] == weld_parent[two] or weld[two] == weld_parent[one]
            # children of the world still collide with it, or nothing would stop at the floor
            if filter_parent and adjacent and weld[one] != 0 and weld[two] != 0:
                continue
            found[a, b] = _mixed_contact(source, a, b)
    for p in range(m.npair):  # listed in <contact><pair>: no filter applies, and their values take precedence
        a, b = sorted((int(m.pair_geom1[p]), int(m.pair_geom2[p])))
        friction = m.pair_friction[p]
        found[a, b] = int(m.pair_dim[p]), float(friction[0])
        if m.pair_dim[p] > 1 and friction[0] != friction[1]:
            source.notes.append(
                f"The friction of pair {source.geom_names[a]!r}, {source.geom_names[b]!r} depends on the direction; "
                f"here its first value, {friction[0]:g}, applies to all."
            )
    return found


def _mixed_contact(source: Source, a: int, b: int) -> tuple[int, float]:
    """condim and sliding friction of two geoms: the larger ones, or those of the geom with the higher priority."""
    m = source.m
    if m.geom_priority[a] != m.geom_priority[b]:
        winner = a if m.geom_priority[a] > m.geom_priority[b] else b
        return int(m.geom_condim[winner]), float(m.geom_friction[winner, 0])
    return int(max(m.geom_condim[a], m.geom_condim[b])), float(max(m.geom_friction[a, 0], m.geom_friction[b, 0]))


def _mesh_hull(source: Source, mesh: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Hull of a mesh, in the frame that MuJoCo's geom_pos and geom_quat place; None, with a note, if it is flat."""
    m = source.m
    start, count = m.mesh_vertadr[mesh], m.mesh_vertnum[mesh]
    try:
        return convex_hull(np.asarray(m.mesh_vert[start : start + count], float))
    except ModelError:  # MuJoCo refuses flat meshes that collide, so this one is only visible
        source.notes.append(f"Mesh {m.mesh(mesh).name!r} is flat, so it has no convex hull; it is left out.")
        return None


def _ellipsoid(radii: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hull of 42 points on an ellipsoid: the corners and edge middles of an icosahedron, pushed out to its surface."""
    golden = (1 + np.sqrt(5)) / 2
    corners = [np.roll([0.0, s, t * golden], k) for k in range(3) for s in (-1, 1) for t in (-1, 1)]
    middles = [
        (p + q) / 2 for i, p in enumerate(corners) for q in corners[:i] if np.isclose(np.linalg.norm(p - q), 2.0)
    ]
    points = np.array(corners + middles)
    return convex_hull(points / np.linalg.norm(points, axis=1, keepdims=True) * radii)
