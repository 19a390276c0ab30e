"""From true colours to the 256 of a GIF: a palette for a whole film, and a dither that keeps unmoved pixels the same.

Error diffusion would spread every motion over the rest of the picture, so that every frame would have to be complete.
An ordered dither depends on a pixel alone.
"""

from __future__ import annotations

import numpy as np
import warp as wp
from PIL import Image

from . import raycast
from .rayscene import RayScene

TRANSPARENT = int(raycast.TRANSPARENT)
DITHER = 3.0  # levels of 255, peak to peak: about the distance of neighbours in a palette of one scene


def film_palette(frames: list[np.ndarray]) -> np.ndarray:
    """(256, 3) uint8 colours for frames (height, width, 3) uint8; the last one, TRANSPARENT, is not a colour.

    Rare colours count more than their area: a red ball in a grey world should stay red.
    """
    pixels = np.concatenate([f.reshape(-1, 3) for f in frames])
    # cells of 4 levels, each weighted by the square root of its number of pixels
    cell = (pixels >> 2).astype(np.int64) @ np.array([4096, 64, 1])
    order = np.argsort(cell, kind="stable")
    _, start, count = np.unique(cell[order], return_index=True, return_counts=True)
    rank = np.arange(len(cell)) - np.repeat(start, count)
    stride = np.maximum(np.sqrt(np.repeat(count, count)), 1.0).astype(np.int64)
    chosen = pixels[order[rank % stride == 0]]
    strip = Image.fromarray(chosen[None])
    few = strip.quantize(TRANSPARENT, method=Image.Quantize.MEDIANCUT, kmeans=2)
    palette = np.zeros((256, 3), np.uint8)
    colors = np.array(few.getpalette(), np.uint8).reshape(-1, 3)[:TRANSPARENT]
    palette[: len(colors)] = colors
    palette[len(colors) :] = colors[-1]
    return palette


def dither_pattern() -> np.ndarray:
    """(8, 8) float32 Bayer matrix, centred, in levels of 255."""
    matrix = np.zeros((1, 1))
    for _ in range(3):
        matrix = np.block([[4 * matrix, 4 * matrix + 2], [4 * matrix + 3, 4 * matrix + 1]])
    return ((matrix + 0.5) / 64 - 0.5).astype(np.float32) * np.float32(DITHER)


class FrameCoder:
    """Turns the pictures of a scene into palette entries, of which each frame names only those that changed.

    Args:
        palette: (256, 3) uint8, as film_palette makes it.
        size: width and height in pixels.
    """

    def __init__(self, scene: RayScene, palette: np.ndarray, size: tuple[int, int]):
        width, height = size
        self._scene, self._dim = scene, (height, width)
        colors = palette[:TRANSPARENT].astype(np.float32)
        self._palette: wp.array = wp.array(colors, dtype=wp.vec3, device=scene.device)
        self._pattern: wp.array = wp.array(dither_pattern(), dtype=wp.float32, device=scene.device)
        self._shown = wp.zeros((height, width, 3), dtype=wp.uint8, device=scene.device)
        self._index = wp.full((height, width), TRANSPARENT, dtype=wp.uint8, device=scene.device)
        self._change = wp.empty((height, width), dtype=wp.uint8, device=scene.device)

    def changes(self) -> tuple[int, int, np.ndarray]:
        """Left and top of the part of the scene's last picture that changed, and its palette entries (h, w) uint8."""
        self._scene.run(
            raycast.choose_colors,
            self._dim,
            [self._scene.image, self._palette, self._pattern],
            [self._shown, self._index, self._change],
        )
        change = self._change.numpy()
        rows, columns = (np.flatnonzero((change != TRANSPARENT).any(axis=axis)) for axis in (1, 0))
        if len(rows) == 0:  # a frame cannot be empty: one unchanged pixel
            return 0, 0, change[:1, :1]
        top, left = int(rows[0]), int(columns[0])
        return left, top, change[top : rows[-1] + 1, left : columns[-1] + 1]
