"""Whole trajectories as USD stages, on top of UsdWriter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...model import Model
from ...progress import Progress
from ..film import select
from .writer import UsdWriter

ROWS_BYTES = 64 * 2**20  # of joint positions that are converted at a time


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
        spacing: distance in m between neighbouring environments on a grid; None: as close as they fit.
        layout: "hierarchy" (one Xform per link, with physics), "instancer" (one PointInstancer, for thousands), or
            "auto": a hierarchy for up to 64 environments.
        physics: write UsdPhysics schemas, so that other tools can simulate the file; an instancer never has them.
        progress: called as progress(done, total).
    """
    qs, rows, envs = select(model, qs, fps=fps, dt=dt, env_ids=env_ids)
    report = progress or (lambda done, total: None)
    total = 2 * len(rows)  # the writer reports the second half, when it completes the file

    def completing(done: int, of: int) -> None:
        report(len(rows) + len(rows) * done // of, total)

    with UsdWriter(
        path, model, len(envs), fps=fps, env_ids=envs, spacing=spacing, layout=layout, physics=physics,
        progress=completing,
    ) as writer:  # fmt: skip
        step = max(1, ROWS_BYTES // (len(envs) * model.nq * 8))
        for start in range(0, len(rows), step):
            writer.write(qs[rows[start : start + step]][:, envs])
            report(min(start + step, len(rows)), total)
