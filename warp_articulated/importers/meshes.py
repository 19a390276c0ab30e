"""Mesh files as convex hulls: corners from STL (binary and text), OBJ and simple Collada files, then the hull.

Only positions are read: collision takes the hull of all of them, so triangles, normals and materials do not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..geometry.rotations import quat_about, quat_to_matrix
from ..model import ModelError
from .xmlfile import Element, parse_xml

MAX_HULL_VERTICES = 64
READABLE = ".stl, .obj and .dae"


def load_hull(path: Path, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Convex hull of a mesh file, scaled: vertices (n <= 64, 3) in m, faces (m, 3) counter-clockwise from outside.

    The last value is how far corners that were left out are outside of it, in m.
    """
    points = load_points(path) * np.asarray(scale, float)
    vertices, faces = convex_hull(points, str(path))
    return vertices, faces, hull_deviation(points, vertices)


def hull_deviation(points: np.ndarray, vertices: np.ndarray) -> float:
    """How far points (n, 3) are outside of the hull of vertices; 0 if that is rounding."""
    from scipy.spatial import ConvexHull

    planes = ConvexHull(vertices).equations
    most = max(float((points @ plane[:3] + plane[3]).max()) for plane in planes)
    return most if most > 1e-9 * float(np.abs(points).max()) else 0.0


def simplified(deviations: Mapping[str, float]) -> list[str]:
    """The note about meshes whose hulls have too many corners: by how much their corners are outside, in m."""
    found = {name: deviation for name, deviation in deviations.items() if deviation > 0}
    if not found:
        return []
    worst = max(found, key=lambda name: found[name])
    return [
        f"The hulls of {len(found)} mesh(es) are simplified to {MAX_HULL_VERTICES} corners; "
        f"the largest deviation is {found[worst] * 1e3:.2g} mm ({worst})."
    ]


def load_points(path: Path) -> np.ndarray:
    """All corners (n, 3) of a mesh file, in the file's frame (for Collada: in metres, with its node transforms)."""
    readers = {".stl": _read_stl, ".obj": _read_obj, ".dae": _read_dae}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ModelError(f"{path}: meshes of kind {path.suffix or 'without a suffix'} are not read; {READABLE} are.")
    try:
        points = reader(path)
    except OSError as error:
        raise ModelError(f"{path}: the mesh file cannot be read ({error.strerror}).") from None
    if len(points) == 0 or not np.isfinite(points).all():
        raise ModelError(f"{path}: the mesh has no corners, or corners that are not finite numbers.")
    return points


def convex_hull(points: np.ndarray, what: str = "mesh") -> tuple[np.ndarray, np.ndarray]:
    """Hull of points (n, 3): at most 64 vertices, and triangles that are counter-clockwise seen from outside.

    A larger hull is reduced greedily: it starts with the extreme corners along the axes and diagonals; then the corner
    farthest outside of the hull so far is added, until there are 64. So the reduced hull lies inside the true one and
    touches it at every kept corner.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        corners = points[ConvexHull(points).vertices]
        hull = ConvexHull(_reduce(corners))
    except (QhullError, ValueError):
        raise ModelError(
            f"{what}: the mesh has no volume (its corners lie in a plane, on a line or in a point), so it has no "
            "convex hull; use a box, a plane or another primitive shape instead."
        ) from None
    vertices = hull.points[hull.vertices]
    place = {old: new for new, old in enumerate(hull.vertices)}
    faces = np.array([[place[k] for k in simplex] for simplex in hull.simplices])
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    faces[inward] = faces[inward][:, ::-1]
    return vertices, faces


def _reduce(corners: np.ndarray) -> np.ndarray:
    from scipy.spatial import ConvexHull

    if len(corners) <= MAX_HULL_VERTICES:
        return corners
    signs = np.array([[x, y, z] for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if (x, y, z) != (0, 0, 0)])
    kept = list(dict.fromkeys(int(k) for k in np.argmax(corners @ signs.T, axis=0)))
    while len(kept) < MAX_HULL_VERTICES:
        planes = ConvexHull(corners[kept]).equations
        outside = (corners @ planes[:, :3].T + planes[:, 3]).max(axis=1)
        best = int(np.argmax(outside))
        if best in kept:
            break
        kept.append(best)
    return corners[kept]


def _read_stl(path: Path) -> np.ndarray:
    data = path.read_bytes()
    # a binary file may start with "solid" too, so the length is checked
    count = struct.unpack_from("<I", data, 80)[0] if len(data) >= 84 else -1
    if count >= 0 and len(data) >= 84 + 50 * count and not (data[:5] == b"solid" and b"facet" in data[:400]):
        record = np.dtype([("numbers", "<f4", (4, 3)), ("attribute", "<u2")])
        triangles = np.frombuffer(data, record, count, 84)["numbers"][:, 1:]
        return np.unique(triangles.reshape(-1, 3), axis=0).astype(float)
    lines = data.decode("utf-8", "replace").splitlines()
    return _numbers(path, lines, "vertex")


def _read_obj(path: Path) -> np.ndarray:
    return _numbers(path, path.read_text("utf-8", "replace").splitlines(), "v")


def _numbers(path: Path, lines: list[str], key: str) -> np.ndarray:
    points = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and words[0] == key:
            try:
                x, y, z = map(float, words[1:4])
            except ValueError:
                raise ModelError(f"{path}:{number}: {line.strip()!r} is not {key!r} and three numbers.") from None
            points.append((x, y, z))
    return np.array(points, float).reshape(-1, 3)


def _read_dae(path: Path) -> np.ndarray:
    """Corners of every geometry of the visual scene; the unit is applied, the up axis is ignored as in ROS."""
    root = parse_xml(path)
    geometries = {
        g.attributes.get("id", ""): _dae_positions(g) for lib in root.all("library_geometries") for g in lib.children
    }
    nodes = {
        n.attributes["id"]: n for lib in root.all("library_nodes") for n in lib.all("node") if "id" in n.attributes
    }
    found: list[np.ndarray] = []

    def visit(node: Element, transform: np.ndarray, depth: int) -> None:
        if depth > 100:
            raise node.error("nodes refer to each other in a circle.")
        for child in node.children:
            if child.tag in ("matrix", "translate", "rotate", "scale"):
                transform = transform @ _dae_transform(child)
            elif child.tag == "node":
                visit(child, transform, depth + 1)
            elif child.tag == "instance_node":
                target = nodes.get(child.attributes.get("url", "")[1:])
                if target is not None:
                    visit(target, transform, depth + 1)
            elif child.tag == "instance_geometry":
                points = geometries.get(child.attributes.get("url", "")[1:])
                if points is not None and len(points):
                    found.append(points @ transform[:3, :3].T + transform[:3, 3])

    for library in root.all("library_visual_scenes"):
        for scene in library.children:
            visit(scene, np.eye(4), 0)
    if not found:
        found = [p for p in geometries.values() if len(p)]
    if not found:
        return np.zeros((0, 3))
    asset = root.child("asset")
    unit = asset.child("unit") if asset else None
    return np.concatenate(found) * (unit.number("meter", 1.0, above=0.0) if unit else 1.0)


def _dae_positions(geometry: Element) -> np.ndarray:
    mesh = geometry.child("mesh")
    vertices = mesh.child("vertices") if mesh else None
    inputs = vertices.all("input") if vertices else []
    wanted = [i.attributes.get("source", "")[1:] for i in inputs if i.attributes.get("semantic") == "POSITION"]
    points = [np.zeros((0, 3))]
    for source in mesh.all("source") if mesh else []:
        array = source.child("float_array")
        if source.attributes.get("id") in wanted and array is not None:
            points.append(_floats(array, None).reshape(-1, 3))
    return np.concatenate(points)


def _dae_transform(element: Element) -> np.ndarray:
    T = np.eye(4)
    if element.tag == "matrix":
        return _floats(element, 16).reshape(4, 4)
    if element.tag == "translate":
        T[:3, 3] = _floats(element, 3)
    elif element.tag == "scale":
        T[:3, :3] = np.diag(_floats(element, 3))
    else:
        *axis, degrees = _floats(element, 4)
        T[:3, :3] = quat_to_matrix(quat_about(np.array(axis) / np.linalg.norm(axis), np.deg2rad(degrees)))
    return T


def _floats(element: Element, count: int | None) -> np.ndarray:
    try:
        numbers = np.array(element.body.split(), float)
    except ValueError:
        numbers = np.zeros(0)
    if (count is not None and len(numbers) != count) or (count is None and len(numbers) % 3):
        raise element.error(f"its text must be {count or 'a multiple of three'} numbers.")
    return numbers
