"""Pictures of robots without a display, and the camera of pictures and films.

The robots on the device are in rayscene.py, the rays in raycast.py and rayshapes.py, the grid of environments in
layout.py.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from PIL import Image

from ...files import check_output_path, replace_when_done
from ...geometry.kinematics import as_positions, check_finite
from ...model import Model
from ..layout import Camera, automatic_spacing, frame_camera, is_ground, is_visible, lowest_height
from .rayscene import Quality, RayScene

CROWD = 36  # beyond this many robots a picture of all of them shows only dots
CROWD_DIRECTION = (-0.62, 0.70, -0.22)


def render_png(
    path: str | os.PathLike,
    model: Model,
    q: Any,
    *,
    size: tuple[int, int] = (960, 540),
    camera: Camera | None = None,
    spacing: float | None = None,
    device: str | None = None,
) -> None:
    """Write a picture of robots at joint positions q as a PNG; arguments: see `render`.

    The file appears under its name only when it is complete.
    """
    path = check_output_path(path, (".png",))
    picture = Image.fromarray(render(model, q, size=size, camera=camera, spacing=spacing, device=device))
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
        q: joint positions, (nq,) or (num_envs, nq), numpy, torch or Warp; environments are laid out on a grid.
        size: width and height in pixels.
        camera: where to look from; None: a view from the front and above that shows every robot, of more than 36 the
            front rows with the others behind them, but does not zoom out for a few that are far away.
        spacing: distance in m between neighbouring environments; None: as close as they fit.
        device: Warp device that casts the rays; None: Warp's current device.
    """
    width, height = check_size(size)
    q = as_positions(model, q, "q", (0, 1))
    check_finite(q, "q")
    q = np.atleast_2d(q)
    scene = RayScene(model, len(q), check_spacing(spacing) or automatic_spacing(model, q), device)
    scene.pose(q)
    points = bulk_of(scene, front_corners(scene))
    camera = camera or automatic_camera(scene, points, width / height)
    set_surroundings(scene, points, camera)
    return scene.picture(camera, (width, height), Quality()).copy()


def check_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height in pixels, or an error that says which sizes are accepted."""
    width, height = (int(n) for n in size)
    if not (0 < width <= 16384 and 0 < height <= 16384):
        raise ValueError(f"size is {tuple(size)}; width and height must be between 1 and 16384 pixels.")
    return width, height


def check_spacing(spacing: float | None) -> float | None:
    if spacing is not None and not (np.isfinite(spacing) and spacing > 0.0):
        raise ValueError(f"spacing is {spacing}; it must be a positive number of metres, or None.")
    return spacing


def front_rows(scene: RayScene) -> np.ndarray:
    """The environments that the camera frames: all, or of a crowd the ones in front."""
    if scene.count <= CROWD:
        return np.arange(scene.count)
    return np.argsort(scene.offsets @ np.array(CROWD_DIRECTION), kind="stable")[:CROWD]


def front_corners(scene: RayScene) -> np.ndarray:
    """Corners (front environments, n, 3) m of the boxes around the shapes, in the frame of their environment."""
    front = front_rows(scene)
    lower, upper = (corner[front] for corner in scene.boxes())
    pick = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], bool)
    corners = np.where(pick, upper[..., None, :], lower[..., None, :])
    return corners.reshape(len(front), -1, 3) - scene.offsets[front, None]


def bulk_of(scene: RayScene, corners: np.ndarray) -> np.ndarray:
    """Corners in the world, (m, 3) m, without those of robots far away: they would make the others tiny."""
    low, high = np.quantile(corners.reshape(-1, 3), (0.1, 0.9), axis=0)
    air = 2.0 * (float((high - low).max()) + scene.spacing)
    near = ((corners >= low - air) & (corners <= high + air)).all(axis=-1)
    return (corners + scene.offsets[front_rows(scene), None])[near]


def automatic_camera(scene: RayScene, points: np.ndarray, aspect: float) -> Camera:
    """All points in view; of a crowd the front rows, with the others behind them up to the horizon."""
    if scene.count > CROWD:
        return frame_camera(points, aspect, direction=CROWD_DIRECTION, margin=1.0, height=0.85)
    return frame_camera(points, aspect, margin=1.25 if scene.count == 1 else 1.1)


def set_surroundings(scene: RayScene, points: np.ndarray, camera: Camera) -> None:
    """Ground and haze for a scene whose shapes reach as far as the points (n, 3) m."""
    planes = [float(s.pos[2]) for s in scene.model.shapes if is_ground(s)]
    field = scene.model.field
    if field is not None and is_visible(field):
        planes.append(lowest_height(field) - 0.01)  # the endless ground is under all of it
    ground = max(planes) if planes else float(min(points[:, 2].min(), 0.0))
    reach = max(float(np.linalg.norm(p - camera.eye, axis=-1).max()) for p in (points, scene.offsets))
    scene.surround(ground, haze=2.0 * reach + 10.0 * scene.spacing)
