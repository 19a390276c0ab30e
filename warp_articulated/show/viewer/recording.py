"""Trajectories as one HTML file that plays in any browser, without a server and without a network.

The player is viser's own page, which holds its program in itself; the scene and its motion are put into it.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import rich
import viser

from ...device import checks
from ...files import check_output_path, replace_when_done
from ...model import Model
from ...progress import Progress
from ..film import select
from .stage import Forces, Stage

ROUNDING = 5e-4  # of the distance between robots: less than a pixel


@dataclass(frozen=True)
class Frame:
    """One picture of a recording. q: (n, nq); duration: s; forces: None if none are shown."""

    q: np.ndarray
    duration: float
    forces: Forces | None = None
    metres_per_newton: float = 0.0


def record_html(
    path: str | os.PathLike,
    model: Model,
    qs: Any,
    *,
    dt: float,
    fps: float = 30.0,
    env_ids: Sequence[int] | None = None,
    spacing: float | None = None,
    shadows: bool = True,
    progress: Progress | None = None,
) -> None:
    """Write a trajectory as an HTML file that plays it, in a loop, wherever it is opened.

    Args:
        qs: joint positions, (T, nq) or (T, num_envs, nq), numpy or torch.
        dt: s between rows of qs.
        fps: pictures per second; each takes the nearest row.
        env_ids: which environments to show; None: all.
        spacing: distance in m between neighbouring environments; None: as close as they fit.
        shadows: with shadows and reflections; plain light is drawn five times as fast where there is no GPU, but is
            set again, with a short pause, each time the film starts.
        progress: called as progress(done, total) frames.

    The file appears under its name only when it is complete. It has 0.8 MB plus up to 20 bytes per shape and frame.
    """
    path = check_output_path(path, (".html", ".htm"))
    checks.positive("fps", fps)
    if spacing is not None:
        checks.positive("spacing", spacing)
    qs, rows, envs = select(model, qs, fps=fps, dt=dt, env_ids=env_ids)
    frames = [Frame(q, 1.0 / fps) for q in qs[rows][:, envs].astype(float)]
    write_page(path, page_of(model, frames, spacing=spacing, shadows=shadows, progress=progress))


def write_page(path: Path, page: str) -> None:
    with replace_when_done(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def page_of(
    model: Model,
    frames: Sequence[Frame],
    *,
    spacing: float | None = None,
    shadows: bool = True,
    progress: Progress | None = None,
) -> str:
    """The HTML page that plays the frames."""
    with temporary_server() as server:
        stage = Stage(server, model, frames[0].q, spacing=spacing, shadows=shadows)
        stage.rounding = ROUNDING * stage.spacing
        recorder = server.get_scene_serializer()
        for k, frame in enumerate(frames):
            if k:
                stage.show(frame.q)
            stage.show_forces(frame.forces, frame.metres_per_newton)
            recorder.insert_sleep(frame.duration)
            if progress is not None:
                progress(k + 1, len(frames))
        page = recorder.as_html()
    return page.replace("<title>Viser</title>", f"<title>{html.escape(model.name)}</title>", 1)


@contextmanager
def temporary_server() -> Iterator[viser.ViserServer]:
    """A viser server without clients: a scene can only be recorded while its server runs."""
    with quiet():
        server = viser.ViserServer("127.0.0.1", 0, verbose=False)
    try:
        yield server
    finally:
        with quiet():
            server.stop()


@contextmanager
def quiet() -> Iterator[None]:
    """viser prints its address on the terminal, with rich; a library should not."""
    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before
