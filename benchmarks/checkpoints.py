"""Figure 8 of the paper: what keeping every k-th state only costs in time and saves in memory.

    python benchmarks/checkpoints.py              5000 steps of 1 and of 100 robots
    python benchmarks/checkpoints.py --quick      500 steps

The paper simulates from the checkpoint anew for every step of a segment, (k + 1) / 2 forward steps per step. Ours
replays a segment once, so the time must not grow with k.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import machine

import warp_articulated as wa

SCENE = "laikago_feet"
INTERVALS = (1, 2, 3, 4, 5, 10, 70, "sqrt")


def child(robots: int, steps: int, every: str) -> dict:
    """One forward and backward pass; the first of two counts for memory, the faster for time."""
    import torch

    interval = every if every == "sqrt" else int(every)
    sim = wa.Simulator(wa.load(SCENE), robots, dt=1e-3, device="cpu")
    q, qd = sim.initial_state()
    weight = torch.linspace(0.5, 1.5, sim.model.nq)

    def gradient(steps: int, watch: machine.Watch) -> tuple[float, float]:
        u = sim.initial_control().repeat(steps, 1, 1).requires_grad_()
        watch.lap()
        qs, _ = sim.rollout(q, qd, u, checkpoint_every=interval)
        forward = watch.lap()
        (qs[-1] @ weight).sum().backward()
        if not bool(u.grad.isfinite().all()):
            raise SystemExit("a gradient is not finite.")
        return forward, watch.lap()

    gradient(2, machine.Watch())  # compiles
    watch = machine.Watch()
    times = [gradient(steps, watch)]
    figures = watch.figures(*times[0])
    times += [gradient(steps, machine.Watch()) for _ in range(2)]
    figures["forward_s"], figures["backward_s"] = (min(column) for column in zip(*times))
    return figures


def measure(robots: list[int], steps: int) -> list[dict]:
    rows = []
    for count in robots:
        for every in INTERVALS:
            machine.progress(f"{count} robots, a state every {every} steps")
            command = [sys.executable, __file__, "--child", str(count), str(steps), str(every)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            figures = json.loads(done.stdout.strip().splitlines()[-1])
            work = 1e-6 * count * steps
            rows.append(
                {
                    "robots": count,
                    "steps": steps,
                    "every": every,
                    "forward_us": figures["forward_s"] / work,
                    "backward_us": figures["backward_s"] / work,
                    "memory_mb": figures["peak_mb"] - figures["before_mb"],
                }
            )
    return rows


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--robots", nargs="+", type=int, default=[1, 100])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=machine.RESULTS / "checkpoints.json")
    options = parser.parse_args(arguments)
    if options.child:
        print(json.dumps(child(int(options.child[0]), int(options.child[1]), options.child[2])))
        return {}
    rows = measure(options.robots, 500 if options.quick else options.steps)
    results = {"machine": machine.describe(), "scene": SCENE, "rows": rows}
    machine.write_json(options.output, results)
    keys = ("robots", "every", "forward_us", "backward_us", "memory_mb")
    print(
        machine.table(
            ["robots", "state every", "forward us", "backward us", "MB"], [[r[k] for k in keys] for r in rows]
        )
    )
    return results


if __name__ == "__main__":
    main()
