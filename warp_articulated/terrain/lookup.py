"""Height of a field at a place, as the kernels see its surface, in torch: differentiable by place and heights."""

from __future__ import annotations

import torch


def height_at(
    heights: torch.Tensor, spacing: tuple[float, float], x: torch.Tensor, y: torch.Tensor, *, blocks: bool = False
) -> torch.Tensor:
    """Heights (...) in m at places x, y (...) in the field's frame; beside the field, of the nearest place on it.

    On an edge between two triangles the gradient by x and y is that of one of them; on blocks it is zero.

    Args:
        heights: (rows, columns), of nodes or of columns.
        spacing: m, between rows (along x) and between columns (along y).
        blocks: whether the heights are those of columns with flat tops.
    """
    rows, columns = heights.shape
    u, v = x / spacing[0] + 0.5 * (rows - 1), y / spacing[1] + 0.5 * (columns - 1)
    if blocks:
        i = (u.detach() + 0.5).floor().long().clamp(0, rows - 1)
        j = (v.detach() + 0.5).floor().long().clamp(0, columns - 1)
        return heights[i, j] + 0.0 * (u + v)
    u, v = u.clamp(0, rows - 1), v.clamp(0, columns - 1)
    i = u.detach().floor().long().clamp(0, rows - 2)
    j = v.detach().floor().long().clamp(0, columns - 2)
    u, v = u - i, v - j
    low, high = heights[i, j], heights[i + 1, j + 1]
    right, left = heights[i + 1, j], heights[i, j + 1]
    first = low + (right - low) * u + (high - right) * v
    second = low + (high - left) * u + (left - low) * v
    return torch.where(u >= v, first, second)
