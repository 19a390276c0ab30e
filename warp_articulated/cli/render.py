"""`warp-articulated render`: draws a model as PNG, or a trajectory as PNG or GIF."""

from __future__ import annotations

import argparse
from pathlib import Path

from .console import OK, Console, add_command, add_model, picture_size, refuse
from .source import add_choice, read

EXAMPLES = """
warp-articulated render laikago laikago.png
warp-articulated render robot.urdf robot.png --size 1920x1080
warp-articulated render run.npz end.png
warp-articulated render run.npz film.gif --env-ids 0-3 --start 0.5
"""


def add(commands) -> None:
    command = add_command(
        commands, "render", "draw a model or a trajectory as PNG or GIF, without a display", EXAMPLES, run
    )
    add_model(command, what="; an .npz file may hold a trajectory")
    command.add_argument("output", type=Path, help="a .png file (last frame of a trajectory) or a .gif file")
    command.add_argument("--size", type=picture_size, help="size in pixels (PNG 960x540, GIF 480x270)")
    command.add_argument("--follow", action="store_true", help="GIF: the camera follows the robots")
    add_choice(command)


def run(options: argparse.Namespace) -> int:
    from ..files import check_output_path

    console = Console(options)
    path = check_output_path(options.output, (".png", ".gif"))
    if path.suffix.lower() == ".png":
        refuse(options, "a PNG shows the last frame only", "fps", "follow", "start")
    film = read(options, path)
    sizes = {} if options.size is None else {"size": options.size}
    if path.suffix.lower() == ".gif":
        from ..show.pictures.gif import render_gif

        with console.bar(f"drawing {path}") as bar:
            fps = options.fps or 25.0
            render_gif(path, film.model, film.q, dt=film.dt, fps=fps, follow=options.follow, progress=bar, **sizes)
    else:
        from ..show.pictures.render import render_png

        with console.busy(f"drawing {path}"):
            render_png(path, film.model, film.q[-1], **sizes)
    console.say(f"wrote {path} ({path.stat().st_size / 1e6:.2f} MB)")
    return OK
