"""`warp-articulated bench`: measures the simulation speed on this machine, forward and backward."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .console import (
    FAILED,
    OK,
    Console,
    add_command,
    add_model,
    add_simulator,
    count,
    load_model,
    make_simulator,
    synchronize,
)

if TYPE_CHECKING:
    from ..model import Model

EXAMPLES = """
warp-articulated bench
warp-articulated bench ant --envs 256 1024 --gradient
warp-articulated bench robot.urdf --floating --dtype float64 --json result.json
"""


def add(commands) -> None:
    does = "measure how fast this machine simulates a model"
    command = add_command(commands, "bench", does, EXAMPLES, run)
    add_model(command, default="laikago_feet")
    command.add_argument("--envs", type=count, nargs="+", default=[1, 64, 1024], help="batch sizes (1 64 1024)")
    command.add_argument("--steps", type=count, default=200, help="time steps per measurement (%(default)s)")
    command.add_argument("--repeat", type=count, default=3, help="measurements; the fastest is used (%(default)s)")
    command.add_argument("--gradient", action="store_true", help="measure the backward pass too")
    command.add_argument("--json", type=Path, help="write the results to this file")
    add_simulator(command)


def run(options: argparse.Namespace) -> int:
    from ..files import check_output_path, replace_when_done

    console = Console(options)
    if options.json is not None:
        check_output_path(options.json, (".json",))
    model = load_model(options)
    console.say(f"loaded {model!r}")
    rows = []
    heads = ["environments", "steps/s", "us per step", "times real time"]
    print("  ".join(f"{head:>16}" for head in heads + (["us backward"] if options.gradient else [])), flush=True)
    for envs in options.envs:
        with console.busy(f"compiling and measuring {envs} environments"):
            row = measure(model, argparse.Namespace(**{**vars(options), "envs": envs}))
        rows.append(row)
        cells = [f"{envs:,}", f"{row['steps_per_s']:,.0f}", f"{row['us_per_step']:.2f}", f"{row['real_time']:,.1f}"]
        if options.gradient:
            cells.append(f"{row['us_backward']:.2f}")
        print("  ".join(f"{cell:>16}" for cell in cells), flush=True)
    if options.json is not None:
        with replace_when_done(options.json) as temporary:
            temporary.write_text(json.dumps({"model": model.name, "dt": options.dt, "rows": rows}, indent=1) + "\n")
        console.say(f"wrote {options.json}")
    bad = [row["environments"] for row in rows if row["diverged"]]
    if bad:
        print(f"the results are invalid: with {bad[0]} environments, some diverged; try a smaller --dt.")
    return FAILED if bad else OK


def measure(model: Model, options: argparse.Namespace) -> dict:
    """Times a rollout from the default pose and its backward pass; the fastest of several runs is used."""
    import torch

    sim = make_simulator(options, model)
    q, qd = sim.initial_state()
    u = sim.initial_control().repeat(options.steps, 1, 1)
    forward, backward, diverged = [], [], False
    for attempt in range(options.repeat + 1):
        controls = u.clone().requires_grad_(options.gradient)
        began = time.perf_counter()
        qs, _ = sim.rollout(q, qd, controls)
        synchronize(qs)
        forward.append(time.perf_counter() - began)
        diverged = diverged or len(sim.diverged) > 0
        if options.gradient:
            began = time.perf_counter()
            torch.autograd.backward(qs, torch.ones_like(qs))
            synchronize(qs)
            backward.append(time.perf_counter() - began)
        if attempt == 0:  # includes compiling
            forward, backward = [], []
    work = options.envs * options.steps
    seconds = min(forward)
    return {
        "environments": options.envs,
        "dtype": options.dtype,
        "device": str(sim.device),
        "steps_per_s": work / seconds,
        "us_per_step": 1e6 * seconds / work,
        "real_time": work * options.dt / seconds,
        "us_backward": 1e6 * min(backward) / work if backward else None,
        "diverged": diverged,
    }
