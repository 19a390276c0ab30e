"""Fields from a few numbers. All return a `Field` around the origin; those with chance in them take a seed."""

from __future__ import annotations

import numpy as np

from ..model import ModelError
from .field import Field


def _axes(size: tuple[float, float], spacing: float, *, nodes: bool) -> tuple[np.ndarray, np.ndarray]:
    """x (rows, 1) and y (1, columns) of nodes, or of the middles of columns, that fill an area."""
    if not spacing > 0.0 or not min(size) > 0.0:
        raise ModelError(f"terrain: size {size} and spacing {spacing} must be positive.")
    rows, columns = (max(round(length / spacing) + nodes, 2) for length in size)
    x, y = ((np.arange(n) - (n - 1) / 2) * spacing for n in (rows, columns))
    return x[:, None], y[None]


def rough(
    size: tuple[float, float] = (10.0, 10.0), *, spacing: float = 0.1, amplitude: float = 0.03, grain: float = 0.2,
    seed: int = 0,
) -> Field:  # fmt: skip
    """Random heights between plus and minus `amplitude` m, drawn every `grain` m and linear in between."""
    x, y = _axes(size, spacing, nodes=True)
    rng = np.random.default_rng(seed)
    u, v = (x[:, 0] - x[0, 0]) / grain, (y[0] - y[0, 0]) / grain
    coarse = rng.uniform(-amplitude, amplitude, (int(u[-1]) + 2, int(v[-1]) + 2))
    i, j = u.astype(int), v.astype(int)
    u, v = (u - i)[:, None], (v - j)[None]
    low, high = coarse[i][:, j], coarse[i][:, j + 1]
    low, high = low + (coarse[i + 1][:, j] - low) * u, high + (coarse[i + 1][:, j + 1] - high) * u
    return Field(low + (high - low) * v, (spacing, spacing))


def slope(angle: float, size: tuple[float, float] = (10.0, 10.0), *, spacing: float = 0.5) -> Field:
    """A plane that rises along x by `angle` degrees."""
    x, y = _axes(size, spacing, nodes=True)
    return Field(np.tan(np.radians(angle)) * x + 0.0 * y, (spacing, spacing))


def pyramids(
    size: tuple[float, float] = (10.0, 10.0), *, spacing: float = 0.1, angle: float = 12.0, width: float = 4.0
) -> Field:
    """Slopes of `angle` degrees up and down: a pyramid with a flat top in every square of `width` m."""
    x, y = _axes(size, spacing, nodes=True)
    far = np.maximum(*(abs((c + width / 2) % width - width / 2) for c in (x, y)))  # from the nearest middle
    return Field(np.tan(np.radians(angle)) * -np.clip(far, width / 8, 3 * width / 8), (spacing, spacing))


def waves(
    size: tuple[float, float] = (10.0, 10.0), *, spacing: float = 0.1, amplitude: float = 0.1, length: float = 2.0
) -> Field:
    """amplitude sin(2 pi x / length) cos(2 pi y / length)."""
    x, y = _axes(size, spacing, nodes=True)
    k = 2.0 * np.pi / length
    return Field(amplitude * np.sin(k * x) * np.cos(k * y), (spacing, spacing))


def stairs(
    size: tuple[float, float] = (10.0, 10.0), *, rise: float = 0.08, run: float = 0.3, width: float = 4.8
) -> Field:
    """Blocks: square stairs up to a landing in every square of `width` m; steps are `rise` m high and `run` m deep."""
    x, y = _axes(size, run, nodes=False)
    count = max(round(width / run), 2)  # columns along a square
    i, j = (np.round((c - c.min()) / run).astype(int) % count for c in (x, y))
    rings = np.minimum(np.minimum(i, count - 1 - i), np.minimum(j, count - 1 - j))
    return Field(rise * np.minimum(rings, count // 4 + 1).astype(float), (run, run), blocks=True)


def stepping_stones(
    size: tuple[float, float] = (10.0, 10.0), *, stone: int = 5, gap: float = 0.06, uneven: float = 0.03,
    depth: float = 0.3, seed: int = 0,
) -> Field:  # fmt: skip
    """Blocks: square stones of `stone` gaps' width, `gap` m apart, at heights of up to `uneven` m above and below 0.

    depth: m, of the ground between them.
    """
    x, y = _axes(size, gap, nodes=False)
    if stone < 1:
        raise ModelError(f"terrain: stone is {stone}; it must be a whole number of gaps, at least 1.")
    rows, columns = x.size, y.size
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    pitch = stone + 1
    tops = np.random.default_rng(seed).uniform(-uneven, uneven, (rows // pitch + 1, columns // pitch + 1))
    between = (i % pitch == stone) | (j % pitch == stone)
    return Field(np.where(between, -depth, tops[i // pitch, j // pitch]), (gap, gap), blocks=True)
