"""Cost of gradients of a standing Laikago, compared with the forward step: backward pass, Jacobians, memory, start-up.

    python benchmarks/speed/gradient.py            # minutes; writes benchmarks/results/gradient.json
    python benchmarks/speed/gradient.py --quick    # a minute; one solver and precision, to out/bench

What is timed: the robots of throughput.py, at rest on four feet, 10 and 50 forced solver iterations and early exit.
`backward` is the whole backward pass of a rollout, recomputation of the forward step included, in microseconds per
environment step and core. The measurements of a line alternate, and each is the fastest of its repetitions. A case
whose gradient is not finite, or whose robots do not stand, ends the run without figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import torch

from lib import machine, reporting
from lib.machine import progress, table
from speed.throughput import FORCED, TOLERANCE, scene, settled, simulator, stands

SOLVERS = {"10 forced": (10, FORCED), "50 forced": (50, FORCED), "early exit 1e-5": (50, TOLERANCE)}
PARAMETERS = ("mass", "com", "inertia", "friction", "kp", "joint_pos")


@dataclass
class Plan:
    cases: tuple[tuple[str, str], ...] = (  # precision, solver
        ("float32", "10 forced"), ("float32", "50 forced"), ("float32", "early exit 1e-5"),
        ("float64", "early exit 1e-5"),
    )  # fmt: skip
    batch: int = 1024
    steps: int = 64
    repetitions: int = 7
    settle: int = 3000
    variants: int = 64
    memory: tuple[int, int] = (1000, 1000)  # environments, steps


QUICK = Plan(
    cases=(("float32", "50 forced"), ("float32", "early exit 1e-5")), batch=64, steps=16, repetitions=2, settle=2000,
    variants=4, memory=(64, 500),
)  # fmt: skip


class Robots:
    """A batch of standing robots, and the four operations that are timed."""

    def __init__(self, plan: Plan, dtype: str, solver: str, threads: int):
        iterations, tolerance = SOLVERS[solver]
        self.model = scene()
        options = {"dtype": dtype, "iterations": iterations, "tolerance": tolerance}
        self.sim = simulator(self.model, plan.batch, threads=threads, **options)
        pick = torch.arange(plan.batch) % plan.variants
        self.q, self.qd, self.u = (x[pick] for x in settled(plan.variants, plan.settle, **options))
        self.controls = self.u.expand(plan.steps, -1, -1).clone()
        if bad := stands(self.model, self.q.double().numpy()):
            raise SystemExit(f"No figures: {dtype}, {solver}: {bad}.")

    def forward(self) -> None:
        self.sim.rollout(self.q, self.qd, self.controls)

    def graph(self, names: tuple[str, ...] = ()) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """A loss and what to differentiate it by."""
        inputs = [x.clone().requires_grad_() for x in (self.q, self.qd, self.controls)]
        params = {name: self.sim.params[name].clone().requires_grad_() for name in names}
        qs, qds = self.sim.rollout(*inputs, params=params)
        return (qs[-1, :, 2] + qds[-1, :, 0]).sum(), [*inputs, *params.values()]

    def jacobians(self) -> None:
        A, B = self.sim.jacobians(self.q, self.qd, self.u)
        if not (A.isfinite().all() and B.isfinite().all()):
            raise SystemExit("No figures: a Jacobian is not finite.")


def timed(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(plan: Plan, dtype: str, solver: str, threads: int = 1) -> dict:
    """Microseconds per environment step and core."""
    progress(f"{dtype}, {solver}, {threads} thread(s)")
    robots = Robots(plan, dtype, solver, threads)
    best: dict[str, float] = {}

    def note(name: str, seconds: float, steps: int) -> None:
        value = 1e6 * seconds * min(threads, plan.batch) / (plan.batch * steps)
        best[name] = min(best.get(name, float("inf")), value)

    for _ in range(plan.repetitions):
        note("forward", timed(robots.forward), plan.steps)
        for name, names in (("backward", ()), ("backward, parameters", PARAMETERS)):
            loss, inputs = robots.graph(names)
            gradients: list[torch.Tensor] = []
            seconds = timed(
                lambda loss=loss, inputs=inputs, out=gradients: out.extend(torch.autograd.grad(loss, inputs))
            )
            if not all(bool(g.isfinite().all()) for g in gradients):
                raise SystemExit(f"No figures: {dtype}, {solver}: a gradient is not finite.")
            note(name, seconds, plan.steps)
        note("jacobians", timed(robots.jacobians), 1)
    ratios = {f"{name} / forward": best[name] / best["forward"] for name in best if name != "forward"}
    return {"dtype": dtype, "solver": solver, "threads": threads, **best, **ratios}


# -- memory and start-up, each in its own process


def rollout_memory(envs: int, steps: int, every: str) -> dict:
    """Peak memory that a rollout and its backward pass add to a process that has already compiled and run."""
    sim = simulator(scene(), envs, tolerance=0.0)
    q, qd = sim.initial_state()
    interval = every if every == "sqrt" else int(every)

    def run(steps: int):
        u = sim.initial_control().expand(steps, -1, -1).clone().requires_grad_()
        start = q.clone().requires_grad_()
        qs, _ = sim.rollout(start, qd, u, checkpoint_every=interval)
        qs[-1, :, 2].sum().backward()
        return bool(u.grad.isfinite().all()) and bool(start.grad.isfinite().all())

    run(2)
    watch = machine.Watch()
    if not run(steps):
        raise SystemExit("No figures: a gradient is not finite.")
    model, extra = sim.model, int(2**20 * (machine.peak_mb() - watch.before))
    return {
        "environments": envs, "steps": steps, "checkpoint_every": every, "extra_bytes": extra,
        "state_bytes": 4 * envs * steps * (model.nq + model.nv), "control_bytes": 4 * envs * steps * model.nu,
    }  # fmt: skip


def first_gradient() -> dict:
    """Seconds from a ready simulator to the first gradient."""
    sim = simulator(scene(), 1)
    q, qd = sim.initial_state()
    u = sim.initial_control().requires_grad_()
    start = time.perf_counter()
    sim.step(q, qd, u)[0].sum().backward()
    return {"seconds": time.perf_counter() - start}


def in_process(name: str, *arguments, cache: str | None = None) -> dict:
    environment = dict(os.environ)
    if cache is not None:
        environment["WARP_CACHE_PATH"] = cache
    command = [sys.executable, __file__, "--only", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"No figures: {name} ended with\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def run(plan: Plan) -> dict:
    lines = [measure(plan, *case) for case in plan.cases]
    if machine.cores() > 1:
        lines.append(measure(plan, "float32", "early exit 1e-5", machine.cores()))
    memory = []
    for every in ("1", "sqrt"):
        progress(f"memory of {plan.memory[0]} environments x {plan.memory[1]} steps, checkpoint_every={every}")
        memory.append(in_process("memory", *plan.memory, every))
    with tempfile.TemporaryDirectory() as cache:
        progress("first gradient with an empty kernel cache, then with a warm one")
        start = {state: in_process("first", cache=cache)["seconds"] for state in ("cold", "warm")}
    return {"cost": lines, "memory": memory, "first_gradient_seconds": start}


def report(results: dict) -> dict[str, str]:
    lines = results["cost"]
    keys = [key for key in lines[0] if "forward" in key or key in ("backward", "backward, parameters", "jacobians")]
    cost = table(
        ["precision", "solver", "threads", *keys],
        [[x["dtype"], x["solver"], x["threads"], *(x[key] for key in keys)] for x in lines],
    )
    memory = table(
        ["environments", "steps", "checkpoint_every", "peak extra MB", "states MB", "controls MB"],
        [
            [x["environments"], x["steps"], x["checkpoint_every"]]
            + [x[key] / 1e6 for key in ("extra_bytes", "state_bytes", "control_bytes")]
            for x in results["memory"]
        ],
    )
    cold, warm = (results["first_gradient_seconds"][state] for state in ("cold", "warm"))
    return {
        "cost": f"Microseconds per environment step and core, and ratios to the forward step:\n\n{cost}",
        "memory": memory,
        "first": f"First gradient: {cold:.1f} s with an empty kernel cache, {warm:.2f} s with a warm one.",
        "headline": headline(results),
    }


def headline(results: dict) -> str:
    """In single precision, with early exit, on one thread."""
    line = next(
        x for x in results["cost"] if (x["dtype"], x["solver"], x["threads"]) == ("float32", "early exit 1e-5", 1)
    )
    full, sparse = ({x["checkpoint_every"]: x for x in results["memory"]}[every] for every in ("1", "sqrt"))
    return (
        f"The backward pass takes {line['backward']:.1f} us per environment step and core, recomputation included, "
        f"{line['backward / forward']:.1f} times the forward step's {line['forward']:.1f} us; with gradients of six "
        f"kinds of parameters {line['backward, parameters']:.1f} us; all dense Jacobians of a step "
        f"{line['jacobians']:.0f} us. A gradient through {full['environments']} robots x {full['steps']} steps takes "
        f"{full['extra_bytes'] / 1e6:.0f} MB, {sparse['extra_bytes'] / 1e6:.0f} MB with checkpoints."
    )


def figures(results: dict) -> dict[str, str]:
    """Single figures for the text of the docs."""
    every, root = (f"{row['extra_bytes'] / 1e6:.0f} MB" for row in results["memory"])
    start = results["first_gradient_seconds"]
    return {
        "memory_every": every,
        "memory_sqrt": root,
        "first_cold": f"{start['cold']:.0f} s",
        "first_warm": f"{start['warm']:.1f} s",
    }


def plot(results: dict, figure) -> None:
    """Costs of every line, side by side."""
    axes = figure.subplots()
    keys = ("forward", "backward", "backward, parameters", "jacobians")
    lines = results["cost"]
    for k, key in enumerate(keys):
        places = [i + 0.2 * (k - 1.5) for i in range(len(lines))]
        axes.plot(places, [x[key] for x in lines], "o", label=key)
    names = [f"{x['dtype']}, {x['solver']},\n{x['threads']} thread{'s' * (x['threads'] > 1)}" for x in lines]
    axes.set_xticks(range(len(lines)), names, fontsize=8)
    axes.set(yscale="log", ylabel="us per environment step and core")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)  # one measurement, in its own process
    options = parser.parse_args(arguments)
    if options.only:
        name, *rest = options.only
        result = rollout_memory(int(rest[0]), int(rest[1]), rest[2]) if name == "memory" else first_gradient()
        print(json.dumps(result))
        return result
    results = reporting.begin(options)
    with reporting.quiet():
        results |= run(QUICK if options.quick else Plan())
    return reporting.finish("gradient", options, results, report, plot)


if __name__ == "__main__":
    main()
