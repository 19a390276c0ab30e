"""`warp-articulated simulate`: runs a batch and writes films, pictures and data."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .console import (
    DIVERGED,
    OK,
    Console,
    add_command,
    add_model,
    add_simulator,
    add_start,
    check_outputs,
    count,
    free_memory,
    id_list,
    load_model,
    make_simulator,
    picture_size,
    positive,
    refuse,
    synchronize,
)
from .control import Control, initial_state, make_control

if TYPE_CHECKING:
    import torch

    from ..model import Model
    from ..simulator import Simulator

CHUNK = 50  # steps per rollout: large enough to be fast, small enough to show progress
STEPS = 1000
USD_FPS, GIF_FPS, MIN_GIF_FPS, MAX_GIF_FPS = 60.0, 25.0, 0.01, 50.0
CHUNK_BYTES = 2**29  # limit on the states of a chunk

EXAMPLES = """
warp-articulated simulate laikago --envs 1024 --steps 500 --perturb 0.05 --png robots.png
warp-articulated simulate ant --envs 16 --control random --steps 2000 --gif ant.gif
warp-articulated simulate robot.urdf --floating --drive position --kp 100 --kd 2 --usd run.usdc
warp-articulated simulate laikago --npz run.npz --env-ids 0-15
warp-articulated simulate laikago --control run.npz --envs 16
"""


def add(commands) -> None:
    command = add_command(
        commands, "simulate", "simulate many copies of a model, and write films, pictures and data", EXAMPLES, run
    )
    add_model(command)
    command.add_argument("--envs", type=count, default=1, help="number of copies (%(default)s)")
    command.add_argument("--steps", type=count, help=f"number of time steps ({STEPS}, or those of --control FILE.npz)")
    add_start(command)
    add_simulator(command)
    group = command.add_argument_group("output")
    option = group.add_argument
    option("--usd", type=Path, help="write a film (.usd, .usda, .usdc)")
    option("--gif", type=Path, help="write a small film for a web page")
    option("--png", type=Path, help="write a picture of the final state")
    option("--npz", type=Path, help="write the states and controls of every step, with names and units")
    option("--fps", type=positive, help=f"frames per second of films ({USD_FPS:g}; GIF {GIF_FPS:g})")
    option("--env-ids", type=id_list, help="environments to write, such as 0,5,8-11; default: all")
    option("--size", type=picture_size, help="picture size, such as 960x540 (PNG 960x540, GIF 480x270)")


def run(options: argparse.Namespace) -> int:
    console = Console(options)
    _check_paths(options)
    model = load_model(options)
    console.say(f"loaded {model!r}")
    needed, memory = 4 * _state_bytes(model, options), free_memory()
    if memory is not None and needed > memory:
        raise ValueError(
            f"--envs {options.envs} needs about {needed / 1e9:,.0f} GB, but only {memory / 1e9:,.0f} GB are free."
        )
    sim = make_simulator(options, model)
    control, steps = make_control(sim, options, options.steps)
    run = _Run(sim, control, steps or STEPS, options, console)
    seconds = run.simulate()

    run.write_pictures()
    robots, env_steps = options.envs, options.envs * run.steps
    print(
        f"{env_steps:,} environment steps in {seconds:.2f} s: {env_steps / seconds:,.0f} steps/s, "
        f"{env_steps * options.dt / seconds:,.1f} times real time",
        flush=True,
    )
    if run.diverged:
        ids = sorted(run.diverged)
        shown = ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")
        print(f"warning: {len(ids)} of {robots} environments diverged and were stopped: {shown}", file=sys.stderr)
    return DIVERGED if run.diverged else OK


def _state_bytes(model: Model, options: argparse.Namespace) -> int:
    """Size of one state and one control of all environments."""
    return options.envs * (model.nq + model.nv + model.nu) * np.dtype(options.dtype).itemsize


def _check_paths(options: argparse.Namespace) -> None:
    """Check options and output paths before the work starts."""
    from ..files import USD_SUFFIXES

    suffixes = {"usd": USD_SUFFIXES, "gif": (".gif",), "png": (".png",), "npz": (".npz",)}
    check_outputs(options, suffixes)
    if options.gif is not None and options.fps and not MIN_GIF_FPS <= options.fps <= MAX_GIF_FPS:
        raise ValueError(
            f"--fps is {options.fps:g}, but a GIF supports {MIN_GIF_FPS:g} to {MAX_GIF_FPS:g} frames per second; omit "
            "--fps, or write the other files in a separate run."
        )
    if not any(getattr(options, name) for name in suffixes):
        refuse(options, "no file is written", "env_ids")
    if not (options.usd or options.gif):
        refuse(options, "no film is written", "fps")
    if not (options.png or options.gif):
        refuse(options, "no picture is drawn", "size")
    outside = [e for e in options.env_ids or () if e >= options.envs]
    if outside:
        raise ValueError(f"--env-ids names environment {outside[0]}, but --envs is {options.envs}.")


class _Run:
    """One simulation, run in chunks; USD films and .npz data are written to disk as it runs."""

    def __init__(self, sim: Simulator, control: Control, steps: int, options: argparse.Namespace, console: Console):
        self.sim, self.control, self.steps, self.options, self.console = sim, control, steps, options, console
        self.model: Model = sim.model
        self.envs = options.env_ids or list(range(sim.num_envs))
        self.shown = slice(None) if options.env_ids is None else options.env_ids
        self.usd_fps = options.fps or USD_FPS
        self.gif_fps = options.fps or GIF_FPS
        self.diverged: set[int] = set()
        self.gif_frames: list[np.ndarray] = []
        self.frame_rows: dict[float, np.ndarray] = {}  # by frames per second
        self.last = np.zeros(0)

    def simulate(self) -> float:
        """Run all steps; returns the seconds they took, without writing files."""
        import torch

        seconds = 0.0
        with torch.no_grad(), ExitStack() as stack:
            q, qd = initial_state(self.sim, self.options)
            self._compile(q, qd)
            writers = self._writers(stack)
            bar = stack.enter_context(self.console.bar("simulating"))
            chunk = max(1, min(CHUNK, CHUNK_BYTES // _state_bytes(self.model, self.options)))
            for done in range(0, self.steps, chunk):
                u = self.control(done, min(chunk, self.steps - done))
                began = time.perf_counter()
                qs, qds = self._rollout(q, qd, u)
                seconds += time.perf_counter() - began
                q, qd = qs[-1], qds[-1]
                ended = done + len(u) == self.steps
                self._take(writers, done, ended, qs[:, self.shown], qds[:, self.shown], u[:, self.shown])
                bar(done + len(u), self.steps, f"{(done + len(u)) * self.sim.num_envs / seconds:,.0f} steps/s")
            self.last = q[self.shown].cpu().numpy()
        for path in (self.options.usd, self.options.npz):
            if path is not None:
                self.console.say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
        return seconds

    def _compile(self, q: torch.Tensor, qd: torch.Tensor) -> None:
        began = time.perf_counter()
        with self.console.busy("compiling kernels (cached for the next time)"):
            self.sim.rollout(q, qd, self.sim.initial_control()[None])
        self.console.say(f"kernels for {self.sim.device} ready after {time.perf_counter() - began:.1f} s")

    def _rollout(self, q: torch.Tensor, qd: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # reported once, at the end
            qs, qds = self.sim.rollout(q, qd, u)
        synchronize(qs)
        self.diverged.update(self.sim.diverged.tolist())  # reads all at once, not one by one
        return qs, qds

    def _writers(self, stack: ExitStack) -> dict:
        """Open output files by format; closed and moved into place when the simulation succeeds."""
        writers: dict = {}
        if self.options.usd is not None:
            from ..show.usd import UsdWriter

            writer = UsdWriter(self.options.usd, self.model, len(self.envs), fps=self.usd_fps, env_ids=self.envs)
            writers["usd"] = stack.enter_context(writer)
        if self.options.npz is not None:
            from ..trajectory import TrajectoryWriter

            args = {"dt": self.options.dt, "dtype": self.options.dtype, "env_ids": self.envs}
            writers["npz"] = stack.enter_context(TrajectoryWriter(self.options.npz, self.model, len(self.envs), **args))
        return writers

    def _take(self, writers: dict, done: int, ended: bool, qs, qds, u) -> None:
        """Pass a chunk to the writers. Its last row is the first row of the next chunk, so it is left to that one."""
        rows = len(u) + ended
        if "npz" in writers:
            writers["npz"].write(q=qs[:rows], qd=qds[:rows], u=u)
        if "usd" in writers:
            frames = self._frames(self.usd_fps, done, rows)
            if len(frames):
                writers["usd"].write(qs[frames].cpu().numpy())
        if self.options.gif is not None:
            self.gif_frames.append(qs[self._frames(self.gif_fps, done, rows)].cpu().numpy())

    def _frames(self, fps: float, done: int, rows: int) -> list[int]:
        """The rows of a chunk that a film of this rate shows."""
        from ..show.film import frame_rows

        if fps not in self.frame_rows:
            self.frame_rows[fps] = frame_rows(self.steps + 1, self.options.dt, fps)
        wanted = self.frame_rows[fps]
        first, last = np.searchsorted(wanted, (done, done + rows))
        return (wanted[first:last] - done).tolist()

    def write_pictures(self) -> None:
        drawn: dict = {"device": self.sim.device.alias} | ({"size": self.options.size} if self.options.size else {})
        if self.options.gif is not None:
            from ..show.pictures.gif import render_gif

            with self.console.bar(f"drawing {self.options.gif}") as bar:
                frames = np.concatenate(self.gif_frames)
                render_gif(self.options.gif, self.model, frames, fps=self.gif_fps, progress=bar, **drawn)
            self.console.say(f"wrote {self.options.gif} ({len(frames)} frames)")
        if self.options.png is not None:
            from ..show.pictures.render import render_png

            with self.console.busy(f"drawing {self.options.png}"):
                render_png(self.options.png, self.model, self.last, **drawn)
            self.console.say(f"wrote {self.options.png}")
