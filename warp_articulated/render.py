"""Pictures of robots without a display: collects the shapes of all environments and casts rays at them with Warp.

The rays are in raycast.py; where environments and the camera stand is in layout.py.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import warp as wp
from PIL import Image

from . import raycast
from .files import check_output_path, replace_when_done
from .layout import (
    Camera,
    automatic_spacing,
    frame_camera,
    grid_offsets,
    hull_of,
    is_ground,
    is_visible,
    shape_color,
)
from .model import Model, Shape, ShapeType
from .poses import as_positions, batch_link_poses, check_finite, rotate, shape_poses

SUN = np.array([-0.35, -0.55, 0.95])
CROWD = 36  # beyond this many robots a picture of all of them shows only dots
CROWD_DIRECTION = (-0.62, 0.70, -0.22)


def render_png(
    path: str | os.PathLike,
    model: Model,
    q: Any,
    *,
    size: tuple[int, int] = (960, 540),
    camera: Camera | None = None,
) -> None:
    """Write a picture of robots at joint positions q as a PNG; arguments as of `render`.

    The file appears under its name only when it is complete.
    """
    path = check_output_path(path, (".png",))
    picture = Image.fromarray(render(model, q, size=size, camera=camera))
    with replace_when_done(path) as temporary:
        picture.save(temporary, format="PNG")


def render(
    model: Model,
    q: Any,
    *,
    size: tuple[int, int] = (960, 540),
    camera: Camera | None = None,
    spacing: float | None = None,
    device: str | None = None,
) -> np.ndarray:
    """A picture (height, width, 3) uint8 of one or many robots.

    Args:
        q: joint positions, (nq,) or (num_envs, nq), numpy or torch; environments are laid out on a grid.
        size: width and height in pixels.
        camera: where to look from; None: a view from the front and above that shows everything.
        spacing: distance in m between neighbouring environments; None: as near as they fit.
        device: Warp device that casts the rays; None: Warp's current device.
    """
    width, height = (int(n) for n in size)
    if not (0 < width <= 16384 and 0 < height <= 16384):
        raise ValueError(f"size is {tuple(size)}; width and height must be between 1 and 16384 pixels.")
    q = as_positions(model, q, "q", (0, 1))
    check_finite(q, "q")
    q = np.atleast_2d(q)
    origins, quats = batch_link_poses(model, q)
    shapes = [s for s in model.shapes if is_visible(s) and not is_ground(s)]
    if not shapes:  # nothing to see: show at least where the links are
        shapes = [Shape(ShapeType.SPHERE, i, np.array([0.02])) for i in range(model.num_links)]
    if spacing is None:
        spacing = automatic_spacing(model, q)
    offsets = grid_offsets(len(q), spacing)

    placed = [_place(model, s, origins, quats, offsets, spacing) for s in shapes]
    lowers, uppers = (np.concatenate([p[side] for p in placed]) for side in ("lower", "upper"))
    points = _corners(lowers, uppers)
    camera = camera or _automatic_camera(points, offsets, width / height)
    on = wp.get_device(device)
    scene = _upload(placed, on)
    # the tree must outlive the rays: the scene knows only its number
    bvh = wp.Bvh(_vectors(lowers, wp.vec3, on), _vectors(uppers, wp.vec3, on))
    scene.bvh = bvh.id
    reach = float(np.linalg.norm(points - camera.eye, axis=-1).max())
    scene.ground = _ground_height(model, points)
    scene.cell = _grid_cell(spacing)
    scene.sky_reach = 0.6 * spacing
    scene.haze = 2.0 * reach + 10.0 * spacing
    scene.sun = wp.vec3(*(SUN / np.linalg.norm(SUN)).tolist())
    scene.sun_radius = 0.05
    return _to_srgb(_cast(scene, _view(camera, width, height), on))


def _place(
    model: Model, shape: Shape, origins: np.ndarray, quats: np.ndarray, offsets: np.ndarray, spacing: float
) -> dict[str, Any]:
    """One shape in all environments: poses, local size, hull planes, and bounding boxes in the world."""
    pos, quat = shape_poses(shape, origins, quats)
    pos = pos + offsets
    size = np.zeros(3)
    size[: min(len(np.atleast_1d(shape.size)), 3)] = np.atleast_1d(shape.size)[:3]
    kind, planes = shape.type, np.zeros((0, 4))
    if kind == ShapeType.PLANE:  # a slope: shown as a thin slab that does not cut through the neighbours
        kind, size = ShapeType.BOX, np.array([spacing / 2, spacing / 2, 0.005])
        pos = pos - 0.005 * rotate(quat, np.array([0.0, 0.0, 1.0]))
    if kind == ShapeType.MESH:
        vertices, faces = hull_of(shape)
        planes = _hull_planes(vertices, faces)
        centre, half = (vertices.max(0) + vertices.min(0)) / 2, (vertices.max(0) - vertices.min(0)) / 2
    else:
        centre = np.zeros(3)
        half = {
            ShapeType.SPHERE: np.full(3, size[0]),
            ShapeType.CAPSULE: np.array([size[0], size[0], size[0] + size[1]]),
            ShapeType.CYLINDER: np.array([size[0], size[0], size[1]]),
        }.get(kind, size)
    # |R| half bounds the turned box
    axes = np.stack([rotate(quat, axis) for axis in np.eye(3)], -1)
    extent = np.abs(axes) @ half + 1e-5
    middle = pos + rotate(quat, centre)
    return {
        "kind": int(kind),
        "pos": pos,
        "quat": np.broadcast_to(quat, (len(pos), 4)),
        "size": size,
        "color": _to_linear(np.array(shape_color(model, shape))),
        "planes": planes,
        "lower": middle - extent,
        "upper": middle + extent,
    }


def _hull_planes(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Outward unit normals and offsets (n, 4) of a hull's faces, coplanar triangles merged."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=-1, keepdims=True)
    solid = area[:, 0] > 1e-9 * area.max()  # a sliver's normal is noise
    normals = normals[solid] / area[solid]
    offsets = -np.sum(normals * a[solid], -1, keepdims=True)
    return np.unique(np.concatenate([normals, offsets], -1).round(6), axis=0)


def _upload(placed: list[dict[str, Any]], device) -> raycast.Scene:
    scene = raycast.Scene()
    count = [len(p["pos"]) for p in placed]
    starts = np.cumsum([0] + [len(p["planes"]) for p in placed])

    def spread(values: list, dtype):  # one value per shape, repeated for its environments
        return wp.array(np.repeat(np.array(values), count, axis=0), dtype=dtype, device=device)

    def joined(key: str, dtype):
        return _vectors(np.concatenate([p[key] for p in placed]), dtype, device)

    scene.kind = spread([p["kind"] for p in placed], wp.int32)
    scene.size = spread([p["size"] for p in placed], wp.vec3)
    scene.color = spread([p["color"] for p in placed], wp.vec3)
    scene.hull = spread([(starts[k], len(p["planes"])) for k, p in enumerate(placed)], wp.vec2i)
    scene.pos, scene.rot = joined("pos", wp.vec3), joined("quat", wp.quat)
    scene.planes = joined("planes", wp.vec4)
    return scene


def _vectors(rows: np.ndarray, dtype: Any, device: Any) -> wp.array:
    return wp.array(rows.astype(np.float32), dtype=dtype, device=device)


def _corners(lowers: np.ndarray, uppers: np.ndarray) -> np.ndarray:
    pick = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], bool)
    return np.where(pick, uppers[:, None], lowers[:, None]).reshape(-1, 3)


def _automatic_camera(points: np.ndarray, offsets: np.ndarray, aspect: float) -> Camera:
    """Everything in view; of a crowd the front rows, with the others behind them up to the horizon."""
    count = len(offsets)
    if count > CROWD:
        front = np.argsort(offsets @ np.array(CROWD_DIRECTION), kind="stable")[:CROWD]
        by_env = points.reshape(-1, count, 8, 3)  # shape, environment, corner
        return frame_camera(by_env[:, front].reshape(-1, 3), aspect, direction=CROWD_DIRECTION, margin=1.0, height=0.85)
    return frame_camera(points, aspect, margin=1.25 if count == 1 else 1.1)


def _ground_height(model: Model, points: np.ndarray) -> float:
    planes = [float(s.pos[2]) for s in model.shapes if is_ground(s)]
    return max(planes) if planes else float(min(points[:, 2].min(), 0.0))


def _grid_cell(spacing: float) -> float:
    """A round number of metres, some squares per robot."""
    wish = spacing / 3
    power = 10.0 ** np.floor(np.log10(max(wish, 1e-6)))
    return float(power * max(m for m in (1.0, 2.0, 5.0) if m * power <= wish * (1 + 1e-9)))


def _view(camera: Camera, width: int, height: int) -> raycast.View:
    right, up, forward = camera.axes()
    tan = float(np.tan(np.radians(camera.fov) / 2))
    view = raycast.View()
    view.eye = wp.vec3(*camera.eye)
    view.right = wp.vec3(*(right * tan * width / height).tolist())
    view.up = wp.vec3(*(up * tan).tolist())
    view.forward = wp.vec3(*forward.tolist())
    view.width, view.height = width, height
    view.pixel = 2.0 * tan / height
    return view


def _cast(scene: raycast.Scene, view: raycast.View, device) -> np.ndarray:
    """Linear colours (height, width, 3). On the CPU bands of rows go to all cores: a launch uses one only."""
    image = wp.empty((view.height, view.width), dtype=wp.vec3, device=device)
    wp.load_module(raycast, device=device)
    band = 16 if device.is_cpu else view.height
    launches = [
        wp.launch(
            raycast.render_pixels,
            dim=(min(band, view.height - row), view.width),
            inputs=[scene, view, row],
            outputs=[image],
            device=device,
            record_cmd=True,
        )
        for row in range(0, view.height, band)
    ]
    if device.is_cpu:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda launch: launch.launch(), launches))
    else:
        for launch in launches:
            launch.launch()
    return image.numpy()


def _to_linear(srgb: np.ndarray) -> np.ndarray:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _to_srgb(linear: np.ndarray) -> np.ndarray:
    linear = np.clip(linear, 0.0, 1.0)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (255.0 * srgb + 0.5).astype(np.uint8)
