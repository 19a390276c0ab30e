"""How a batch is shown: places of environments, colours of links, and the camera.

Shared by the USD export and the ray caster, so that both show the same scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..geometry.kinematics import batch_link_poses, shape_poses
from ..geometry.rotations import quat_to_matrix
from ..importers.meshes import convex_hull
from ..model import FIELDS, WORLD, Model, Shape, ShapeType

# One colour per depth in the tree, sRGB: a robot's left and right, front and back legs look alike.
PALETTE = (
    (0.93, 0.55, 0.20),
    (0.24, 0.29, 0.36),
    (0.85, 0.87, 0.90),
    (0.16, 0.47, 0.66),
    (0.30, 0.62, 0.52),
    (0.82, 0.36, 0.30),
    (0.55, 0.45, 0.65),
)
GROUND_COLOR = (0.62, 0.66, 0.70)
WORLD_COLOR = (0.55, 0.57, 0.60)


@dataclass(frozen=True)
class Camera:
    """A pinhole camera, upright. eye and target: (3,) m; fov: vertical field of view in degrees."""

    eye: Sequence[float]
    target: Sequence[float]
    fov: float = 30.0

    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unit vectors to the right, up and forward."""
        return _view_axes(np.subtract(self.target, self.eye))


def shape_color(model: Model, shape: Shape) -> tuple[float, float, float]:
    """The shape's colour; if it has none, one that shows its link's depth in the tree. sRGB, 0 to 1."""
    if shape.color is not None:
        r, g, b = (min(max(float(c), 0.0), 1.0) for c in shape.color[:3])
        return r, g, b
    if shape.link == WORLD:
        return GROUND_COLOR if is_wide(shape) else WORLD_COLOR
    depth, link = 0, int(model.parent[shape.link])
    while link != WORLD:
        depth, link = depth + 1, int(model.parent[link])
    return PALETTE[depth % len(PALETTE)]


def srgb_to_linear(color: Sequence[float]) -> np.ndarray:
    """Linear light (..., 3), with which renderers compute, from sRGB colours, 0 to 1."""
    srgb = np.asarray(color, float)
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def is_visible(shape: Shape) -> bool:
    return shape.color is None or len(shape.color) < 4 or shape.color[3] > 0.0


def is_wide(shape: Shape) -> bool:
    """True for planes and fields: views are not framed by them."""
    return shape.type == ShapeType.PLANE or shape.type in FIELDS


def is_ground(shape: Shape) -> bool:
    """True for a horizontal plane on the world: all environments of a picture share it."""
    if shape.type != ShapeType.PLANE or shape.link != WORLD:
        return False
    return bool(quat_to_matrix(shape.quat)[2, 2] > 1.0 - 1e-6)


def grid_offsets(count: int, spacing: float) -> np.ndarray:
    """Places of `count` environments, (count, 3) m: rows of a square grid around the origin, `spacing` apart."""
    columns = int(np.ceil(np.sqrt(count)))
    rows = int(np.ceil(count / columns))
    index = np.arange(count)
    place = np.stack([index % columns - (columns - 1) / 2, index // columns - (rows - 1) / 2, np.zeros(count)], -1)
    return place * spacing


def environment_offsets(model: Model, count: int, spacing: float) -> np.ndarray:
    """Places of environments, (count, 3) m: on a grid; all in one place if they share a height field or block field."""
    return grid_offsets(count, 0.0 if model.field is not None else spacing)


def automatic_spacing(model: Model, q: np.ndarray) -> float:
    """Distance in m between robots at q (n, nq): the median robot's width and a small gap."""
    origins, quats = batch_link_poses(model, q)
    low = np.full((len(q), 2), np.inf)
    high = -low
    for shape in (s for s in model.shapes if not is_wide(s) and is_visible(s)):
        pos, _ = shape_poses(shape, origins, quats)
        radius = bounding_radius(shape)
        low, high = np.minimum(low, pos[:, :2] - radius), np.maximum(high, pos[:, :2] + radius)
    return float(1.2 * np.median((high - low).max(axis=-1))) if np.isfinite(low).all() else 1.0


def bounding_radius(shape: Shape) -> float:
    """Radius in m of a sphere around the shape's origin that holds it; 0 for a plane."""
    size = np.asarray(shape.size, float)
    match shape.type:
        case ShapeType.SPHERE:
            return float(size[0])
        case ShapeType.CAPSULE:
            return float(size[0] + size[1])
        case ShapeType.BOX:
            return float(np.linalg.norm(size[:3]))
        case ShapeType.CYLINDER:
            return float(np.hypot(size[0], size[1]))
        case ShapeType.MESH:
            return float(np.linalg.norm(hull_of(shape)[0], axis=-1).max())
        case ShapeType.PLANE:
            return 0.0
        case ShapeType.HEIGHTFIELD | ShapeType.BLOCKFIELD:
            return float(np.linalg.norm(field_mesh(shape)[0], axis=-1).max())
    raise ValueError(f"shape {shape.name!r} has type {shape.type!r}, whose size in pictures is unknown.")


def hull_of(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Corners (n, 3) in m and triangles (m, 3), counter-clockwise seen from outside, of a mesh shape."""
    if shape.vertices is None or len(shape.vertices) == 0:
        raise ValueError(f"mesh shape {shape.name!r} has no vertices, so it cannot be shown.")
    if shape.faces is None or len(shape.faces) == 0:
        return convex_hull(np.asarray(shape.vertices, float), f"shape {shape.name!r}")
    return np.asarray(shape.vertices, float), np.asarray(shape.faces, int)


def field_mesh(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Corners (n, 3) in m and triangles (m, 3), counter-clockwise seen from above, of a height field or block field.

    A block field has four corners for each top, and walls where neighbours differ.
    """
    if shape.heights is None or shape.spacing is None:
        raise ValueError(f"field {shape.name!r} has no heights, so it cannot be shown.")
    heights, blocks = np.asarray(shape.heights, float), shape.type == ShapeType.BLOCKFIELD
    axes = [(np.arange(n) - (n - 1) / 2) * d for n, d in zip(heights.shape, shape.spacing)]
    if blocks:
        heights = heights.repeat(2, 0).repeat(2, 1)
        axes = [(c[:, None] + d / 2 * np.array([-1.0, 1.0])).ravel() for c, d in zip(axes, shape.spacing)]
    corners = np.stack([*np.meshgrid(*axes, indexing="ij"), heights], -1).reshape(-1, 3)
    number = np.arange(heights.size).reshape(heights.shape)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    faces = np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)], -2).reshape(-1, 3)
    if blocks:
        p, q, r = (corners[faces[:, k]] for k in range(3))
        faces = faces[np.linalg.norm(np.cross(q - p, r - p), axis=-1) > 1e-12]
    return corners, faces


def lowest_height(field: Shape) -> float:
    """z in m of the lowest node or column of a field that is not tilted."""
    return float(field.pos[2]) + float(np.min(np.asarray(field.heights, float)))


def frame_camera(
    points: np.ndarray,
    aspect: float,
    *,
    fov: float = 30.0,
    direction: Sequence[float] = (-0.62, 0.70, -0.34),
    margin: float = 1.1,
    height: float = 0.5,
) -> Camera:
    """The nearest camera looking along `direction` that sees all points (n, 3) m, with a small margin around them.

    height: share of the free vertical space that is left above the points.
    """
    right, up, forward = _view_axes(np.asarray(direction, float))
    tan_v = np.tan(np.radians(fov) / 2) / margin
    tan_h = tan_v * aspect
    x, y, z = points @ right, points @ up, points @ forward

    # The eye (ex, ey, ez) sees a point if |x - ex| <= (z - ez) tan: two bounds per axis, which meet farthest forward.
    left, right_side = (x - z * tan_h).max(), (x + z * tan_h).min()
    bottom, top = (y - z * tan_v).max(), (y + z * tan_v).min()
    depth = min((right_side - left) / (2 * tan_h), (top - bottom) / (2 * tan_v))
    lowest, highest = bottom + depth * tan_v, top - depth * tan_v
    eye = (left + right_side) / 2 * right + (lowest + height * (highest - lowest)) * up + depth * forward
    target = eye + max(float(z.mean() - depth), 1e-3) * forward
    return Camera(tuple(map(float, eye)), tuple(map(float, target)), fov)


def _view_axes(forward: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    length = np.linalg.norm(forward)
    if not length > 0.0:
        raise ValueError("the camera's eye and target are the same point; they must differ.")
    forward = forward / length
    side = np.cross(forward, [0.0, 0.0, 1.0])
    if np.linalg.norm(side) < 1e-6:  # straight up or down: any heading is as good
        side = np.array([1.0, 0.0, 0.0])
    right = side / np.linalg.norm(side)
    return right, np.cross(right, forward), forward
