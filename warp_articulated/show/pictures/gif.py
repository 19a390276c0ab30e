"""Trajectories as animated GIFs, without a display: frames from the ray caster, one camera and palette for the film."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from ...files import check_output_path, replace_when_done
from ...geometry.kinematics import batch_link_poses
from ...geometry.rotations import rotate
from ...model import Model
from ...progress import Progress
from ..film import select
from ..layout import Camera, automatic_spacing
from .palette import TRANSPARENT, FrameCoder, film_palette
from .rayscene import Quality, RayScene
from .render import automatic_camera, bulk_of, check_size, check_spacing, front_corners, set_surroundings

QUALITY = Quality(samples=2, shadow_rays=2, sky_rays=1)  # a palette hides the grain that this leaves
MIN_FPS, MAX_FPS = 0.01, 50.0
FRAMED = 24  # frames from which the camera is placed
PALETTE_FRAMES = 6
CALM = 0.25  # s, width of the filter that keeps a following camera from shaking


def render_gif(
    path: str | os.PathLike,
    model: Model,
    qs: Any,
    *,
    fps: float = 25.0,
    dt: float | None = None,
    env_ids: Sequence[int] | None = None,
    size: tuple[int, int] = (480, 270),
    camera: Camera | None = None,
    spacing: float | None = None,
    follow: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a film of a trajectory as an animated GIF that repeats forever.

    The file appears under its name only when it is complete. The same input gives the same bytes.

    Args:
        qs: joint positions, (T, nq) or (T, num_envs, nq), numpy, torch or Warp.
        fps: frames per second, up to 50: viewers slow down faster films. Frames last whole hundredths of a second;
            at rates that do not divide 100 some last one longer, so that the film keeps real time.
        dt: time between rows of qs in s; frames then take the nearest rows. None: every row is a frame.
        env_ids: which environments to show; None: all.
        size: width and height in pixels.
        camera: where to look from; None: a view that holds the whole motion, as `render` chooses it for one picture.
        spacing: distance in m between neighbouring environments; None: as close as they fit in the first frame.
        follow: move the camera with the median robot's centre of mass in x and y, smoothly.
        device: Warp device that casts the rays; None: Warp's current device.
        progress: called as progress(done, total) after every frame.
    """
    path = check_output_path(path, (".gif",))
    size = check_size(size)
    if not MIN_FPS <= fps <= MAX_FPS:
        raise ValueError(
            f"fps is {fps}; a GIF's frames per second must be between {MIN_FPS:g} and {MAX_FPS:g}, because viewers "
            "slow down faster ones. With dt given, rows are left out to keep real time."
        )
    qs, rows, envs = select(model, qs, fps=fps, dt=dt, env_ids=env_ids)
    frames = qs[rows][:, envs].astype(float)
    scene = RayScene(model, frames.shape[1], check_spacing(spacing) or automatic_spacing(model, frames[0]), device)
    shifts = _motion(model, frames, fps) if follow else np.zeros((len(frames), 3))
    cameras = _cameras(scene, frames, shifts, size, camera)
    palette = _palette(scene, frames, cameras, size)
    coder = FrameCoder(scene, palette, size)
    delays = frame_delays(len(frames), fps)
    with replace_when_done(path) as temporary, open(temporary, "wb") as file:
        _write_header(file, size, palette)
        for k, q in enumerate(frames):
            scene.pose(q)
            scene.picture(cameras[k], size, QUALITY)
            _write_frame(file, delays[k], *coder.changes())
            if progress is not None:
                progress(k + 1, len(frames))
        file.write(b";")


def frame_delays(count: int, fps: float) -> list[int]:
    """How long each frame is shown, in 1/100 s: whole numbers whose sums stay within 0.5 of real time."""
    ends = np.floor(100.0 * np.arange(count + 1) / fps + 0.5).astype(int)
    return np.diff(ends).tolist()


def _motion(model: Model, frames: np.ndarray, fps: float) -> np.ndarray:
    """How far the median robot's centre of mass is from where it began, (frames, 3) m with z = 0, smoothed.

    The centre of mass, because a planar robot's root is a chain of joints of which none moves like the robot.
    """
    centres = np.stack([_centres_of_mass(model, q) for q in frames])
    way = np.median(centres - centres[0], axis=1)
    way[:, 2] = 0.0
    reach = min(int(np.ceil(3 * CALM * fps)), len(way) - 1)
    if reach < 1:
        return way
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / (CALM * fps)) ** 2)
    # continue the motion beyond both ends by its mirror image through the end point: a steady run stays steady
    before, after = 2 * way[0] - way[reach:0:-1], 2 * way[-1] - way[-2 : -reach - 2 : -1]
    long = np.concatenate([before, way, after])
    return np.stack([np.convolve(x, kernel / kernel.sum(), mode="valid") for x in long.T], -1)


def _centres_of_mass(model: Model, q: np.ndarray) -> np.ndarray:
    origins, quats = batch_link_poses(model, q)
    share = model.mass / model.mass.sum() if model.mass.sum() > 0.0 else np.full(model.num_links, 1 / model.num_links)
    return np.einsum("l,elx->ex", share, origins + rotate(quats, model.com))


def _cameras(
    scene: RayScene, frames: np.ndarray, shifts: np.ndarray, size: tuple[int, int], camera: Camera | None
) -> list[Camera]:
    """One camera for every frame, equal except for the shifts (frames, 3) m; also sets ground and haze."""
    corners = []
    for k in _spread(len(frames), FRAMED):
        scene.pose(frames[k])
        corners.append(front_corners(scene) - shifts[k])
    points = bulk_of(scene, np.concatenate(corners, axis=1))
    first = camera or automatic_camera(scene, points, size[0] / size[1])
    set_surroundings(scene, points, first)
    return [
        replace(first, eye=tuple(np.add(first.eye, shift)), target=tuple(np.add(first.target, shift)))
        for shift in shifts
    ]


def _palette(scene: RayScene, frames: np.ndarray, cameras: list[Camera], size: tuple[int, int]) -> np.ndarray:
    small = (max(size[0] // 2, 1), max(size[1] // 2, 1))
    samples = []
    for k in _spread(len(frames), PALETTE_FRAMES):
        scene.pose(frames[k])
        samples.append(scene.picture(cameras[k], small, QUALITY).copy())
    return film_palette(samples)


def _spread(count: int, wish: int) -> list[int]:
    """Up to `wish` different numbers below count, evenly spread, the first and the last among them."""
    return sorted({round(x) for x in np.linspace(0, count - 1, min(count, wish))})


def _write_header(file: BinaryIO, size: tuple[int, int], palette: np.ndarray) -> None:
    """GIF89a: the screen, a palette of 256 for all frames, and the flag that the film repeats forever."""
    file.write(b"GIF89a" + struct.pack("<HHBBB", *size, 0xF7, 0, 0) + palette.tobytes())
    file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")


def _write_frame(file: BinaryIO, delay: int, left: int, top: int, entries: np.ndarray) -> None:
    """One frame that is drawn over those before it; entries (h, w) uint8 index the palette."""
    keep_and_transparent = 0x05
    file.write(struct.pack("<BBBBHBB", 0x21, 0xF9, 4, keep_and_transparent, delay, TRANSPARENT, 0))
    file.write(struct.pack("<BHHHHB", 0x2C, left, top, entries.shape[1], entries.shape[0], 0))
    file.write(_compressed(entries))


def _compressed(entries: np.ndarray) -> bytes:
    """LZW data of an image, extracted from the GIF that Pillow writes of it as a grey picture with the same entries."""
    memory = BytesIO()
    Image.fromarray(np.ascontiguousarray(entries)).save(memory, format="GIF", optimize=False, interlace=0)
    data = memory.getvalue()
    at = 13 + 3 * 2 ** ((data[10] & 7) + 1)  # after the header and its palette
    while data[at] == 0x21:  # extensions: a label and blocks, each preceded by its length
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    descriptor = data[at : at + 10]
    local = 3 * 2 ** ((descriptor[9] & 7) + 1) if descriptor[9] & 0x80 else 0
    return data[at + 10 + local : -1]  # without the trailer
