"""Whole trajectories as USD stages, on top of UsdWriter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model import Model
from ..poses import as_array, check_finite
from ..progress import Progress
from .writer import UsdWriter

ROWS_BYTES = 64 * 2**20  # of joint positions that are picked and converted at a time


def export_usd(
    path: str | os.PathLike,
    model: Model,
    qs: Any,
    *,
    fps: float = 60.0,
    dt: float | None = None,
    env_ids: Sequence[int] | None = None,
    spacing: float | None = None,
    layout: str = "auto",
    physics: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write a trajectory as an animated USD stage (.usd, .usda or .usdc).

    The file appears under its name only when it is complete.

    Args:
        qs: joint positions, (T, nq) or (T, num_envs, nq), numpy, torch or Warp.
        fps: frames per second of the stage.
        dt: time between rows of qs in s; frames then take the nearest rows. None: every row is a frame.
        env_ids: which environments to write; None: all.
        spacing: distance in m between neighbouring environments, which stand on a grid; None: as near as they fit.
        layout: "hierarchy" (one Xform per link, with physics), "instancer" (one PointInstancer, for thousands), or
            "auto": a hierarchy for up to 64 environments.
        physics: write UsdPhysics schemas, so that other tools can simulate the file; an instancer never has them.
        progress: called as progress(done, total).
    """
    qs = as_array(model, qs, "qs", (1, 2))
    qs = qs[:, None] if qs.ndim == 2 else qs
    envs = _chosen_environments(env_ids, qs.shape[1])
    rows = np.arange(len(qs)) if dt is None else frame_rows(len(qs), dt, fps)
    tell = progress or (lambda done, total: None)
    total = 2 * len(rows)  # the second half is told by the writer, which completes the file

    def completing(done: int, of: int) -> None:
        tell(len(rows) + len(rows) * done // of, total)

    with UsdWriter(
        path, model, len(envs), fps=fps, env_ids=envs, spacing=spacing, layout=layout, physics=physics,
        progress=completing,
    ) as writer:  # fmt: skip
        for env in envs:  # those that are left out may have diverged
            check_finite(qs[:, env], f"qs of environment {env}, ")
        step = max(1, ROWS_BYTES // (len(envs) * model.nq * 8))
        for start in range(0, len(rows), step):
            writer.write(qs[rows[start : start + step]][:, envs])
            tell(min(start + step, len(rows)), total)


def frame_rows(num_rows: int, dt: float, fps: float) -> np.ndarray:
    """Which rows of a trajectory with time step dt (s) are nearest to the frames of a film, (frames,) int."""
    if not dt > 0.0 or not np.isfinite(dt):
        raise ValueError(f"dt is {dt}; it must be a positive number of seconds.")
    if not fps > 0.0 or not np.isfinite(fps):
        raise ValueError(f"fps is {fps}; it must be a positive number of frames per second.")
    frames = int(np.floor((num_rows - 1) * dt * fps + 1e-9)) + 1
    rows = np.floor(np.arange(frames) / (fps * dt) + 0.5).astype(int)
    return np.minimum(rows, num_rows - 1)


def _chosen_environments(env_ids: Sequence[int] | None, count: int) -> list[int]:
    envs = list(range(count)) if env_ids is None else [int(e) for e in env_ids]
    wrong = [e for e in envs if not 0 <= e < count]
    if wrong or not envs or len(set(envs)) != len(envs):
        raise ValueError(f"env_ids is {envs}; it must name different environments between 0 and {count - 1}.")
    return envs
