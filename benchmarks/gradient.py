"""Cost of gradients of a standing Laikago: backward pass, dense Jacobians, memory, start-up; beside the forward step.

    python benchmarks/gradient.py            # minutes; writes benchmarks/results/gradient.json
    python benchmarks/gradient.py --quick    # seconds; whether it works, not how fast it is

What is timed: the robots of throughput.py, at rest on four feet, 10 and 50 forced solver iterations and early exit.
`backward` is the whole backward pass of a rollout, recomputation of the forward step included, in microseconds per
environment step and core; figures of one line are taken in turns, and each is the fastest of its repetitions. A case
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

import machine
import torch
from machine import progress, table
from throughput import DT, scene, stands, targets

import warp_articulated as wa

SOLVERS = {"10 forced": (10, -1.0), "50 forced": (50, -1.0), "early exit 1e-5": (50, 1e-5)}
PARAMETERS = ("mass", "com", "inertia", "friction", "kp", "joint_pos")


@dataclass
class Plan:
    batch: int = 1024
    steps: int = 64
    repetitions: int = 7
    settle: int = 3000
    variants: int = 64
    memory: tuple[int, int] = (1000, 1000)  # environments, steps


QUICK = Plan(batch=8, steps=4, repetitions=1, settle=2000, variants=4, memory=(8, 50))


class Robots:
    """A batch of standing robots, and the four things that are timed."""

    def __init__(self, plan: Plan, dtype: str, solver: str, threads: int):
        iterations, tolerance = SOLVERS[solver]
        options = {"device": "cpu", "dtype": dtype, "dt": DT, "iterations": iterations, "threads": threads}
        self.model = scene()
        self.sim = wa.Simulator(self.model, plan.batch, tolerance=max(tolerance, 0.0), **options)
        self.sim._model.tolerance = tolerance  # below zero: not even the bitwise fixed point ends the sweeps early
        u = torch.from_numpy(targets(self.model, plan.variants)).to(self.sim.dtype)
        u = u[torch.arange(plan.batch) % plan.variants]
        q, qd = self.sim.initial_state()
        qs, qds = self.sim.rollout(q, qd, u.expand(plan.settle, -1, -1), checkpoint_every=plan.settle)
        self.q, self.qd, self.u = qs[-1], qds[-1], u
        self.controls = u.expand(plan.steps, -1, -1).clone()
        if bad := stands(self.model, self.q.double().numpy()):
            raise SystemExit(f"No figures: {dtype}, {solver}: {bad}.")

    def forward(self) -> None:
        self.sim.rollout(self.q, self.qd, self.controls)

    def graph(self, names: tuple[str, ...] = ()) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """A loss and what to differentiate it for."""
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


# -- memory and start-up, each in a process of its own


def peak_bytes() -> int:
    """Largest resident memory of this process so far. Not ru_maxrss: that begins with the size of the parent."""
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def rollout_memory(envs: int, steps: int, every: str) -> dict:
    """Peak memory that a rollout and its backward pass add to a process that has already compiled and run."""
    sim = wa.Simulator(scene(), envs, device="cpu", dt=DT)
    q, qd = sim.initial_state()
    interval = every if every == "sqrt" else int(every)

    def run(steps: int):
        u = sim.initial_control().expand(steps, -1, -1).clone().requires_grad_()
        start = q.clone().requires_grad_()
        qs, _ = sim.rollout(start, qd, u, checkpoint_every=interval)
        qs[-1, :, 2].sum().backward()
        return bool(u.grad.isfinite().all()) and bool(start.grad.isfinite().all())

    run(2)
    before = peak_bytes()
    if not run(steps):
        raise SystemExit("No figures: a gradient is not finite.")
    model = sim.model
    return {
        "environments": envs, "steps": steps, "checkpoint_every": every, "extra_bytes": peak_bytes() - before,
        "state_bytes": 4 * envs * steps * (model.nq + model.nv), "control_bytes": 4 * envs * steps * model.nu,
    }  # fmt: skip


def first_gradient() -> dict:
    """Seconds from a ready simulator to the first gradient."""
    sim = wa.Simulator(scene(), 1, device="cpu", dt=DT)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: checks that the benchmark works")
    parser.add_argument("--out", default=str(machine.RESULTS / "gradient.json"), help="where the raw results go")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)  # one measurement, in a process of its own
    options = parser.parse_args()
    if options.only:
        name, *rest = options.only
        result = rollout_memory(int(rest[0]), int(rest[1]), rest[2]) if name == "memory" else first_gradient()
        print(json.dumps(result))
        return
    plan = QUICK if options.quick else Plan()
    results = run(plan)
    print(report(results))
    if not options.quick or options.out != str(machine.RESULTS / "gradient.json"):
        machine.write_json(options.out, results)


def run(plan: Plan) -> dict:
    lines = [measure(plan, "float32", solver) for solver in SOLVERS]
    lines.append(measure(plan, "float64", "early exit 1e-5"))
    if machine.cores() > 1:
        lines.append(measure(plan, "float32", "early exit 1e-5", machine.cores()))
    memory = []
    for every in ("1", "sqrt"):
        progress(f"memory of {plan.memory[0]} environments x {plan.memory[1]} steps, checkpoint_every={every}")
        memory.append(in_process("memory", *plan.memory, every))
    with tempfile.TemporaryDirectory() as cache:
        progress("first gradient with an empty kernel cache, then with a warm one")
        start = {state: in_process("first", cache=cache)["seconds"] for state in ("cold", "warm")}
    return {"machine": machine.describe(), "cost": lines, "memory": memory, "first_gradient_seconds": start}


def report(results: dict) -> str:
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
    start = results["first_gradient_seconds"]
    return (
        f"Microseconds per environment step and core, and ratios to the forward step:\n\n{cost}\n\n{memory}\n\n"
        f"First gradient: {start['cold']:.1f} s with an empty kernel cache, {start['warm']:.2f} s with a warm one."
    )


if __name__ == "__main__":
    main()
