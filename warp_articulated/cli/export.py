"""`warp-articulated export`: writes models and trajectories in the format of the file name, policies as programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import OK, Console, add_command, add_model, check_outputs, given_options, refuse
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
warp-articulated export runs/Ant-shac-0 --torchscript ant.pt --onnx ant.onnx
"""


def add(commands) -> None:
    does = "write a model or a trajectory as USD, HTML page or .npz, or a policy as TorchScript or ONNX"
    command = add_command(commands, "export", does, EXAMPLES, run)
    add_model(command, what="; an .npz file may hold a trajectory; with --torchscript or --onnx a policy, as for play")
    command.add_argument(
        "output", type=Path, nargs="?", help="output file: .usd, .usda or .usdc for USD; .html for a browser; .npz"
    )
    group = command.add_argument_group("policies")
    group.add_argument("--torchscript", type=Path, help="write a policy as TorchScript (.pt), for torch and C++")
    group.add_argument("--onnx", type=Path, help="write a policy as ONNX (.onnx)")
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
    if options.torchscript or options.onnx:
        return _export_policy(options, console)
    if options.output is None:
        raise ValueError("the output is missing; give a file, or --torchscript or --onnx for a policy.")
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


def _export_policy(options: argparse.Namespace, console: Console) -> int:
    from ..rl.learning.policies import policy_path
    from ..rl.learning.policy_export import export_onnx, export_torchscript
    from ..rl.learning.policy_file import load_policy

    if options.output is not None:
        raise ValueError(f"{options.output} would not be written: a policy goes to --torchscript and --onnx.")
    refuse(options, "a policy is exported", "layout", "no_physics", "spacing", "env_ids", "start", "end", "fps")
    check_outputs(options, {"torchscript": (".pt",), "onnx": (".onnx",)})
    if given_options(options):
        raise ValueError(f"{given_options(options)[0]} would have no effect: a policy is exported.")
    source = policy_path(options.model)
    for path in filter(None, (options.torchscript, options.onnx)):
        if path.exists() and path.samefile(source):
            raise ValueError(f"the output {path} is also the input; choose another name.")
    found = load_policy(source)
    for path, write in ((options.torchscript, export_torchscript), (options.onnx, export_onnx)):
        if path is not None:
            write(path, found)
            console.say(f"wrote {path}")
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
