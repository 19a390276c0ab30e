"""Which rows and environments of a trajectory a film shows. For USD, GIF and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..geometry.kinematics import as_array, check_finite
from ..model import Model


def frame_rows(num_rows: int, dt: float, fps: float) -> np.ndarray:
    """Rows of a trajectory with time step dt (s) that are nearest to the frames of a film, (frames,) int."""
    if not dt > 0.0 or not np.isfinite(dt):
        raise ValueError(f"dt is {dt}; it must be a positive number of seconds.")
    if not fps > 0.0 or not np.isfinite(fps):
        raise ValueError(f"fps is {fps}; it must be a positive number of frames per second.")
    frames = int(np.floor((num_rows - 1) * dt * fps + 1e-9)) + 1
    rows = np.floor(np.arange(frames) / (fps * dt) + 0.5).astype(int)
    return np.minimum(rows, num_rows - 1)


def select(
    model: Model, qs: Any, *, fps: float, dt: float | None, env_ids: Sequence[int] | None
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """The trajectory as (T, num_envs, nq), the rows (frames,) that are shown, and the environments.

    Environments that are left out may have diverged; in the others every entry must be finite.

    Args:
        qs: joint positions, (T, nq) or (T, num_envs, nq), numpy, torch or Warp.
        dt: s between rows; None: every row is a frame.
    """
    qs = as_array(model, qs, "qs", (1, 2))
    qs = qs[:, None] if qs.ndim == 2 else qs
    count = qs.shape[1]
    envs = list(range(count)) if env_ids is None else [int(e) for e in env_ids]
    if not envs or len(set(envs)) != len(envs) or not all(0 <= e < count for e in envs):
        raise ValueError(f"env_ids is {envs}; it must name different environments between 0 and {count - 1}.")
    rows = np.arange(len(qs)) if dt is None else frame_rows(len(qs), dt, fps)
    for env in envs:
        check_finite(qs[:, env], f"qs of environment {env}, ")
    return qs, rows, envs
