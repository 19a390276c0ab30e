"""The command line: `warp-articulated simulate` runs a batch and shows it, `warp-articulated info` prints a model.

Exit codes: 0 done; 1 a wrong file, option value or output path, told in one sentence; 2 wrong usage;
3 simulated, but some environments diverged.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from ..model import Model
    from ..simulator import Simulator

# torch, Warp and USD are imported where they are used: `--help` and usage errors should not wait for them.

CHUNK = 50  # steps per rollout: long enough to be fast, short enough to see progress
FPS = 60.0
MAX_USD_ENVS = 16
MAX_PICTURE_ENVS = 1024
OK, FAILED, DIVERGED = 0, 1, 3


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        text = str(error) or type(error).__name__
        # our own errors are sentences; anything else also needs its type to make sense
        name = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
        print(f"warp-articulated: {name}{text}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="warp-articulated", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="command")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("model", help="a scene's name, or a path to a .urdf or .xml file")
    common.add_argument("--floating", action="store_true", help="URDF: put the root on a free joint above a ground")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    info = commands.add_parser("info", parents=[common], help="print the links, joints, shapes and drives of a model")
    info.set_defaults(run=_info)

    simulate = commands.add_parser(
        "simulate",
        parents=[common],
        help="simulate many copies of a model and write a film or a picture",
    )
    add = simulate.add_argument
    add("--envs", type=_count, default=1, help="number of copies (%(default)s)")
    add("--steps", type=_count, default=1000, help="number of time steps (%(default)s)")
    add("--dt", type=_positive, default=1e-3, help="time step in s (%(default)s)")
    add("--device", default=None, help="cpu or cuda:0; by default CUDA if there is any")
    add("--dtype", choices=("float32", "float64"), default="float32", help="precision (%(default)s)")
    add("--iterations", type=_count, default=50, help="sweeps of the contact solver (%(default)s)")
    add(
        "--tolerance",
        type=_number,
        default=0.0,
        help="change of impulse below which the contact solver stops (%(default)s)",
    )
    add("--threads", type=_count, default=None, help="CPU threads; by default all cores")
    add("--seed", type=_seed, default=0, help="of the random joint offsets (%(default)s)")
    add(
        "--perturb",
        type=_number,
        default=0.0,
        help="random offset of joints at the start, up to so many rad or m (%(default)s)",
    )
    add("--usd", type=Path, default=None, help=f"write a film of up to {MAX_USD_ENVS} copies (.usd, .usda, .usdc)")
    add("--png", type=Path, default=None, help=f"write a picture of the end, of up to {MAX_PICTURE_ENVS} copies")
    simulate.set_defaults(run=_simulate)
    return parser


def _whole(text: str, least: int) -> int:
    if not re.fullmatch(r"-?\d+", text.strip()) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _count(text: str) -> int:
    return _whole(text, 1)


def _seed(text: str) -> int:
    return _whole(text, 0)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of zero or more")
    return value


def _positive(text: str) -> float:
    if not _number(text) > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return float(text)


def _load(options: argparse.Namespace) -> Model:
    import warp_articulated as wa

    return wa.load(options.model, floating=True) if options.floating else wa.load(options.model)


def _info(options: argparse.Namespace) -> int:
    print(_load(options))
    return OK


def _simulate(options: argparse.Namespace) -> int:
    import torch
    import warp as wp

    import warp_articulated as wa

    from ..files import check_output_path

    wp.config.log_level = wp.LOG_WARNING  # our own progress lines say what is going on
    # find out before the work, not after it, that the result could not be kept
    if options.usd is not None:
        check_output_path(options.usd, (".usd", ".usda", ".usdc"))
    if options.png is not None:
        check_output_path(options.png, (".png",))

    model = _load(options)
    print(f"loaded {model!r}", flush=True)
    sim = wa.Simulator(
        model,
        num_envs=options.envs,
        device=options.device,
        dtype=options.dtype,
        dt=options.dt,
        iterations=options.iterations,
        tolerance=options.tolerance,
        threads=options.threads,
    )
    with torch.no_grad():
        q, qd = sim.initial_state()
        q = q + torch.as_tensor(joint_offsets(model, options.envs, options.perturb, options.seed)).to(q)
        q, film, seconds = _run(sim, model, q, qd, options)

    env_steps = options.envs * options.steps
    print(
        f"{env_steps:,} environment steps in {seconds:.2f} s: {env_steps / seconds:,.0f} steps/s, "
        f"{env_steps * options.dt / seconds:,.1f} times real time"
    )
    diverged = [int(e) for e in sim.diverged]
    if diverged:
        shown = ", ".join(map(str, diverged[:10])) + (", ..." if len(diverged) > 10 else "")
        print(f"warning: {len(diverged)} of {options.envs} environments diverged: {shown}", file=sys.stderr)
    _write(options, model, q.cpu().numpy(), film)
    return DIVERGED if diverged else OK


def joint_offsets(model: Model, num_envs: int, size: float, seed: int) -> np.ndarray:
    """Random offsets (num_envs, nq) of joints with one degree of freedom, so that q0 plus them keeps their limits."""
    from ..model import JointType

    links = np.flatnonzero(np.isin(model.joint_type, (JointType.REVOLUTE, JointType.PRISMATIC)))
    at, dof = model.q_start[links], model.v_start[links]
    start = model.q0[at]
    wished = start + np.random.default_rng(seed).uniform(-size, size, (num_envs, len(links)))
    # a pose that already is outside its limits stays where it is
    lower, upper = np.minimum(model.lower[dof], start), np.maximum(model.upper[dof], start)
    offsets = np.zeros((num_envs, model.nq))
    offsets[:, at] = np.clip(wished, lower, upper) - start
    return offsets


def _run(
    sim: Simulator, model: Model, q: torch.Tensor, qd: torch.Tensor, options: argparse.Namespace
) -> tuple[torch.Tensor, np.ndarray, float]:
    """The last q, the frames (frames, envs, nq) of the film, and the seconds that the steps took."""
    import torch

    from ..usd import frame_rows

    u = torch.as_tensor(np.array(model.u0)).to(q).expand(min(CHUNK, options.steps), options.envs, model.nu).contiguous()
    print(f"compiling kernels for {sim.device} ... (cached for the next time)", flush=True)
    began = time.perf_counter()
    sim.rollout(q, qd, u[:1])
    print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)

    rows = frame_rows(options.steps + 1, options.dt, FPS) if options.usd is not None else np.zeros(0, int)
    frames, done, seconds, told = [], 0, 0.0, time.perf_counter()
    while done < options.steps:
        steps = min(CHUNK, options.steps - done)
        began = time.perf_counter()
        qs, qds = sim.rollout(q, qd, u[:steps])
        _synchronize(q)
        seconds += time.perf_counter() - began
        # row 0 of a chunk is the last one of the chunk before
        wanted = rows[(rows >= done) & (rows < done + steps + (done + steps == options.steps))] - done
        frames.append(qs[wanted.tolist(), :MAX_USD_ENVS].cpu().numpy())
        q, qd, done = qs[-1], qds[-1], done + steps
        if time.perf_counter() - told > 1.0 or done == options.steps:
            told = time.perf_counter()
            print(f"simulated {done} of {options.steps} steps of {options.envs} environments", flush=True)
    return q, np.concatenate(frames), seconds


def _synchronize(tensor: torch.Tensor) -> None:
    import torch

    if tensor.is_cuda:  # a launch returns before it is done
        torch.cuda.synchronize(tensor.device)


def _write(options: argparse.Namespace, model: Model, q: np.ndarray, film: np.ndarray) -> None:
    from ..layout import automatic_spacing
    from ..render import render_png
    from ..usd import export_usd

    if options.usd is not None:
        whole = [e for e in range(film.shape[1]) if np.isfinite(film[:, e]).all()]
        if not whole:
            raise ValueError(f"cannot write {options.usd}: every environment that it would show diverged.")
        print(f"writing {options.usd} ({len(film)} frames of {len(whole)} environments)", flush=True)
        # no dt: frame_rows already picked one row per frame
        export_usd(options.usd, model, film, fps=FPS, env_ids=whole, spacing=automatic_spacing(model, film[0, whole]))
    if options.png is not None:
        shown = q[np.isfinite(q).all(axis=-1)][:MAX_PICTURE_ENVS]
        if len(shown) == 0:
            raise ValueError(f"cannot write {options.png}: every environment diverged.")
        print(f"writing {options.png} ({len(shown)} environments)", flush=True)
        render_png(options.png, model, shown)
