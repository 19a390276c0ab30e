"""Figure 8 of the paper: what storing only every k-th state costs in time and saves in memory.

    python benchmarks/autodiff/checkpoints.py              5000 steps of 1 and of 100 robots
    python benchmarks/autodiff/checkpoints.py --quick      500 steps, fewer intervals

The paper simulates again from the checkpoint for every step of a segment, (k + 1) / 2 forward steps per step. Ours
replays a segment once, so the time must not grow with k.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import warp_articulated as wa
from autodiff.methods import measured
from lib import machine, reporting

SCENE, SQRT = "laikago_feet", "sqrt"
INTERVALS: tuple[int | str, ...] = (1, 2, 3, 4, 5, 10, 70, SQRT)
QUICK_INTERVALS: tuple[int | str, ...] = (1, 5, 70, SQRT)


def child(robots: int, steps: int, every: str) -> dict:
    """Forward and backward passes; the first counts for memory, the fastest for time."""
    import torch

    interval = every if every == SQRT else int(every)
    sim = wa.Simulator(wa.load(SCENE), robots, dt=1e-3, device="cpu")
    q, qd = sim.initial_state()
    weight = torch.linspace(0.5, 1.5, sim.model.nq)

    def gradient(watch: machine.Watch, steps: int = steps) -> tuple:
        u = sim.initial_control().repeat(steps, 1, 1).requires_grad_()
        watch.lap()
        qs, _ = sim.rollout(q, qd, u, checkpoint_every=interval)
        forward = watch.lap()
        (qs[-1] @ weight).sum().backward()
        backward = watch.lap()
        if not bool(u.grad.isfinite().all() and qs[-1].isfinite().all()):
            raise SystemExit("No figures: a state or a gradient is not finite.")
        return qs[-1].detach(), [u.grad], forward, backward

    gradient(machine.Watch(), 2)  # compiles
    return measured(gradient)[0]


def run(robots: int, steps: int, every: int | str) -> dict:
    command = [sys.executable, __file__, "--child", str(robots), str(steps), str(every)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(robots: list[int], steps: int, intervals: tuple[int | str, ...]) -> list[dict]:
    rows = []
    machine.progress("compiling")
    run(1, 2, 1)  # a process that has compiled holds free memory, which hides what it allocates later
    for count in robots:
        for every in intervals:
            machine.progress(f"{count} robots, a state every {every} steps")
            figures = run(count, steps, every)
            work = 1e-6 * count * steps
            rows.append({
                "robots": count, "steps": steps, "every": every,
                "interval": math.ceil(math.sqrt(steps)) if every == SQRT else every,
                "forward_us": figures["forward_s"] / work, "backward_us": figures["backward_s"] / work,
                "memory_mb": figures["peak_mb"] - figures["before_mb"],
            })  # fmt: skip
    return rows


def report(results: dict) -> dict[str, str]:
    rows = results["rows"]
    keys = ("robots", "every", "forward_us", "backward_us", "memory_mb")
    header = ["robots", "a state every", "forward, us", "backward, us", "MB"]
    title = f"{rows[0]['steps']:,} steps; microseconds are per robot and step."
    return {
        "table": f"{title}\n\n" + machine.table(header, [[r[k] for k in keys] for r in rows]),
        "summary": "\n".join(f"- {summary(rows, n)}" for n in dict.fromkeys(r["robots"] for r in rows)),
    }


def summary(rows: list[dict], robots: int) -> str:
    """The longest interval against all states kept."""
    mine = [r for r in rows if r["robots"] == robots and r["every"] != SQRT]
    every, sparse = min(mine, key=lambda r: r["interval"]), max(mine, key=lambda r: r["interval"])
    slow = max(mine, key=lambda r: r["backward_us"])
    again = (sparse["interval"] + 1) / 2
    naive = every["backward_us"] + again * every["forward_us"]

    def ratio(backward_us: float) -> str:
        return f"{backward_us / every['backward_us']:.3g} times"

    return (
        f"{robots:,} {'robots' if robots > 1 else 'robot'}: with a state every {sparse['interval']} steps, the "
        f"backward pass takes {ratio(sparse['backward_us'])} as long as with every state kept, and the gradient "
        f"{sparse['memory_mb']:.3g} MB instead of {every['memory_mb']:.3g} MB. To simulate from the checkpoint again "
        f"for every step, {again:.3g} forward steps for each, would take {ratio(naive)} as long. Ours is slowest with "
        f"a state every {slow['interval']} steps: {ratio(slow['backward_us'])}."
    )


def plot(results: dict, figure) -> None:
    rows = sorted(results["rows"], key=lambda r: r["interval"])
    duration, memory = figure.subplots(1, 2)
    for k, robots in enumerate(sorted({r["robots"] for r in rows})):
        mine = [r for r in rows if r["robots"] == robots]
        x = [r["interval"] for r in mine]
        label = f"{robots:,} {'robots' if robots > 1 else 'robot'}"
        duration.plot(x, [r["backward_us"] for r in mine], "o-", color=f"C{k}", label=f"backward, {label}")
        duration.plot(x, [r["forward_us"] for r in mine], "s--", color=f"C{k}", label=f"forward, {label}")
        memory.plot(x, [r["memory_mb"] for r in mine], "o-", color=f"C{k}", label=label)
    duration.set(
        xscale="log", yscale="log", xlabel="a state every k steps", ylabel="us per robot and step", title="time"
    )
    memory.set(xscale="log", yscale="log", xlabel="a state every k steps", ylabel="MB", title="memory")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--robots", nargs="+", type=int, default=[1, 100])
    parser.add_argument("--steps", type=int)
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(child(int(options.child[0]), int(options.child[1]), options.child[2])))
        return {}
    with reporting.quiet():
        results = reporting.begin(options) | {"scene": SCENE}
        steps = options.steps or (500 if options.quick else 5000)
        results["rows"] = measure(options.robots, steps, QUICK_INTERVALS if options.quick else INTERVALS)
    return reporting.finish("checkpoints", options, results, report, plot)


if __name__ == "__main__":
    main()
