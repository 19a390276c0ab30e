"""The input of `render` and `export`: a model at its default pose, or a trajectory file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import id_list, load_model, number, positive, refuse

if TYPE_CHECKING:
    from ..trajectory import Trajectory


def add_choice(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("trajectory selection")
    group.add_argument("--env-ids", type=id_list, help="environments, such as 0,5,8-11; default: all")
    group.add_argument("--start", type=number, default=0.0, help="start time in s (%(default)s)")
    group.add_argument("--end", type=number, help="end time in s; default: the last row")
    group.add_argument("--fps", type=positive, help="frames per second of a film (60; GIF 25)")


def read(options: argparse.Namespace, output: Path) -> Trajectory:
    """The part of a trajectory file selected by the options; a model gives one row at its default pose."""
    from ..trajectory import Trajectory, is_trajectory

    if output.exists() and Path(options.model).exists() and output.samefile(options.model):
        raise ValueError(f"the output {output} is also the input; choose another name.")
    if not is_trajectory(options.model):
        refuse(options, f"{options.model} is a model at rest, not a trajectory", "env_ids", "start", "end", "fps")
        model = load_model(options)
        return Trajectory(model, model.q0[None], 1.0)
    film = Trajectory.load(options.model)
    envs = list(range(film.num_envs))
    if options.env_ids is not None:
        known = {int(e): k for k, e in enumerate(film.env_ids)}
        missing = [e for e in options.env_ids if e not in known]
        if missing:
            raise ValueError(f"{options.model} has no environment {missing[0]}; it has {_ranges(sorted(known))}.")
        envs = [known[e] for e in options.env_ids]
    length = film.time[-1]
    end = length if options.end is None else options.end
    if not options.start <= end or options.start > length * (1 + 1e-9):
        raise ValueError(
            f"--start {options.start:g} to --end {end:g} is not within {options.model}, which has 0 to {length:g} s."
        )
    first, last = (min(round(t / film.dt), len(film.q) - 1) for t in (options.start, end))
    rows = slice(first, last + 1)
    qd = None if film.qd is None else film.qd[rows][:, envs]
    u = None if film.u is None else film.u[first:last][:, envs]
    return Trajectory(film.model, film.q[rows][:, envs], film.dt, qd, u, film.env_ids[envs])


def _ranges(ids: list[int]) -> str:
    """Format [0, 1, 2, 3, 7] as "0-3, 7"."""
    parts: list[list[int]] = []
    for e in ids:
        if parts and parts[-1][1] == e - 1:
            parts[-1][1] = e
        else:
            parts.append([e, e])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in parts)
