"""`warp-articulated export`: writes a model or a trajectory in another format, chosen by the file name suffix."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import OK, Console, add_command, add_model, refuse
from .source import add_choice, read

if TYPE_CHECKING:
    from ..progress import Progress
    from ..trajectory import Trajectory

CHUNK = 50  # frames per write: large enough to be fast, small enough to show progress
EXAMPLES = """
warp-articulated export run.npz run.usdc
warp-articulated export run.npz run.html --env-ids 0-15
warp-articulated export robot.urdf robot.usda --floating
warp-articulated export robot.urdf robot.npz
"""


def add(commands) -> None:
    does = "write a model or a trajectory as USD, HTML page or .npz"
    command = add_command(commands, "export", does, EXAMPLES, run)
    add_model(command, what="; an .npz file may hold a trajectory")
    command.add_argument(
        "output", type=Path, help="output file: .usd, .usda or .usdc for USD; .html for a browser; .npz"
    )
    command.add_argument(
        "--layout", choices=("auto", "hierarchy", "instancer"), default="auto", help="USD: stage layout"
    )
    command.add_argument("--no-physics", action="store_true", help="USD: omit the UsdPhysics schemas")
    command.add_argument("--spacing", type=float, help="m between environments; default: as close as they fit")
    add_choice(command)


def run(options: argparse.Namespace) -> int:
    from ..files import USD_SUFFIXES, check_output_path
    from ..trajectory import is_trajectory

    console = Console(options)
    path = check_output_path(options.output, (*USD_SUFFIXES, ".html", ".npz"))
    suffix = path.suffix.lower()
    if suffix not in USD_SUFFIXES:
        refuse(options, "it applies to USD stages only", "layout", "no_physics")
    if suffix == ".npz":
        refuse(options, "an .npz file stores every row and has no grid", "fps", "spacing")
    film = read(options, path)
    with console.bar(f"writing {path}") as bar:
        if suffix in USD_SUFFIXES:
            _export_usd(path, film, options, bar)
        elif suffix == ".html":
            from ..show.viewer import record_html

            fps = options.fps or 30.0
            record_html(path, film.model, film.q, dt=film.dt, fps=fps, spacing=options.spacing, progress=bar)
        elif is_trajectory(options.model):
            film.save(path)
        else:
            film.model.save(path)
    console.say(f"wrote {path} ({path.stat().st_size / 1e6:.2f} MB)")
    return OK


def _export_usd(path: Path, film: Trajectory, options: argparse.Namespace, progress: Progress) -> None:
    """Write USD with the environments' numbers in the batch, which export_usd does not support."""
    from ..show.film import frame_rows
    from ..show.usd import UsdWriter

    fps = options.fps or 60.0
    rows = frame_rows(len(film.q), film.dt, fps)
    with UsdWriter(
        path, film.model, film.num_envs, fps=fps, env_ids=[int(e) for e in film.env_ids], spacing=options.spacing,
        layout=options.layout, physics=not options.no_physics, progress=progress,
    ) as writer:  # fmt: skip
        for first in range(0, len(rows), CHUNK):
            writer.write(film.q[rows[first : first + CHUNK]])
            progress(min(first + CHUNK, len(rows)), len(rows))
