"""How cost grows with environments, links, contacts, iterations and steps: log-log fits, forward and backward.

    python benchmarks/speed/growth.py            # ten minutes; writes benchmarks/results/growth.json and .png
    python benchmarks/speed/growth.py --quick    # two minutes; few sizes, to out/bench

Laikagos that stand on four feet, hanging chains, and bodies that rest on k spheres (scaling.py). The solver makes all
of its sweeps (50, unless they are what grows), so that only the size determines the cost. `backward` is the whole
backward pass of a rollout, recomputation included. Cases of one kind take turns, and each keeps its fastest repetition;
all kernels are compiled before. A case whose states or gradients are not finite, whose robots fell, or which does not
touch the floor with exactly the contacts that it should, ends the run without figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch

from lib import machine, reporting
from lib.machine import progress
from speed import gradient, scaling, throughput
from speed.growth_report import plot, report
from warp_articulated.device.topology import SWEEP_STEPS, round_up, sizes_of
from warp_articulated.model import JointType, Model

MAX_CONTACTS = 64
BATCH, SMALL_BATCH = 64, 16  # environments of cases in which something else grows; of large models and long rollouts
MEMORY_STEPS = 64  # of the gradients whose memory is measured while environments grow
VARIANTS, SETTLE = 16, 2000


@dataclass(frozen=True)
class Plan:
    """Which sizes to run."""

    environments: tuple[int, ...] = (1, 4, 16, 64, 256, 1024, 4096, 16384)
    links: tuple[int, ...] = (10, 20, 40, 80, 160, 320)
    contacts: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "feet": (1, 2, 4, 8, 16, 32, 64),
            "balls": (4, 8, 16, 32, 64),
            "snake": (4, 8, 16, 32, 64),
        }
    )
    iterations: tuple[int, ...] = (3, 6, 12, 25, 50, 100, 200)  # with fewer not all of the feet stay on the floor
    steps: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10000)
    memory_from: tuple[int, int] = (256, 300)  # environments, steps: smaller ones are lost in the noise of a process
    work: int = 2**13  # environment steps of a repetition, for one link, contact or robot
    repetitions: int = 5


QUICK = Plan(
    environments=(1, 32, 1024), links=(10, 40, 160), contacts={"feet": (4, 16, 64)}, iterations=(12, 24, 48),
    steps=(10, 100, 1000), memory_from=(1024, 1000), work=2**11, repetitions=2,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One point of a curve."""

    family: str  # what grows
    series: str  # the curve
    size: int
    scene: str  # "laikago", or a function of scaling.py, which is called with the size
    batch: int
    steps: int
    threads: int = 1
    iterations: int = throughput.ITERATIONS

    def model(self) -> Model:
        return throughput.scene() if self.scene == "laikago" else getattr(scaling, self.scene)(self.size)

    @property
    def contacts(self) -> int:
        """How many it must have with the floor."""
        return {"laikago": 4, "chain": 0}.get(self.scene, self.size)

    def refuse(self, why: str) -> None:
        raise SystemExit(f"No figures: {self.family}, {self.series}, {self.size}: {why}.")


def cases(plan: Plan) -> list[Case]:
    made = []
    for threads in (1, 2) if machine.cores() > 1 else (1,):
        series = f"{threads} thread{'s' * (threads > 1)}"
        for n in plan.environments:
            if n >= threads:
                made.append(Case("environments", series, n, "laikago", n, max(plan.work // n, 8), threads))
    for n in plan.links:
        made.append(Case("links", "chain", n, "chain", SMALL_BATCH, max(plan.work // (SMALL_BATCH * n), 4)))
    for scene, sizes in plan.contacts.items():
        for n in sizes:
            made.append(Case("contacts", scene, n, scene, SMALL_BATCH, max(plan.work // (SMALL_BATCH * n), 4)))
    for n in plan.iterations:
        made.append(Case("iterations", "laikago", n, "laikago", BATCH, plan.work // BATCH, iterations=n))
    for n in plan.steps:
        made.append(Case("steps", "laikago", n, "laikago", SMALL_BATCH, n))
    return made


class Run:
    """A case, ready to be timed."""

    def __init__(self, case: Case):
        self.case, self.model = case, case.model()
        options = {"threads": case.threads, "max_contacts": MAX_CONTACTS, "tolerance": throughput.FORCED}
        self.sim = throughput.simulator(self.model, case.batch, iterations=case.iterations, **options)
        self.q, self.qd, self.u = self._start()
        self.controls = self.u.expand(case.steps, -1, -1).clone()
        self.forward_s: list[float] = []
        self.backward_s: list[float] = []

    def _start(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States that differ between environments, so that they do not all take the same branches."""
        if self.case.scene == "laikago":
            states = throughput.settled(VARIANTS, SETTLE, "float32")
            q, qd, u = (x[torch.arange(self.case.batch) % VARIANTS] for x in states)
            return q, qd, u
        q, qd = self.sim.initial_state()
        noise = torch.Generator().manual_seed(0)
        if self.case.scene == "chain":
            q = q + 0.05 * torch.randn(q.shape, generator=noise)
        for link in np.flatnonzero(self.model.joint_type == JointType.FREE):  # turned about the vertical
            half = np.pi * torch.rand(len(q), generator=noise)
            at = int(self.model.q_start[link]) + 3
            q[:, at + 2], q[:, at + 3] = torch.sin(half), torch.cos(half)
        return q, qd, self.sim.initial_control()

    def time(self) -> None:
        """One forward and one backward pass."""
        start = time.perf_counter()
        qs, qds = self.sim.rollout(self.q, self.qd, self.controls)
        self.forward_s.append(time.perf_counter() - start)
        if len(self.sim.diverged) or not bool(qs.isfinite().all() and qds.isfinite().all()):
            self.case.refuse("a state is not finite")
        self.last = qs[-1], qds[-1]
        inputs = [x.clone().requires_grad_() for x in (self.q, self.qd, self.controls)]
        qs, qds = self.sim.rollout(*inputs)
        loss = (qs[-1] @ torch.linspace(0.5, 1.5, self.model.nq)).sum() + qds[-1].sum()
        start = time.perf_counter()
        found = torch.autograd.grad(loss, inputs)
        self.backward_s.append(time.perf_counter() - start)
        if not all(bool(x.isfinite().all()) for x in found) or not bool(found[0].abs().max() > 0):
            self.case.refuse("a gradient is zero or not finite")

    def check(self) -> dict:
        """Facts about the end of the rollout; refuses the case if it is not what was to be timed."""
        q = self.last[0].double().numpy()
        if self.case.scene == "laikago" and (bad := throughput.stands(self.model, q)):
            self.case.refuse(bad)
        if self.case.scene == "chain":
            swing = float(np.abs(q).max())
            return {"swing": swing} if swing < 1.0 else self.case.refuse(f"the chain swings by {swing:.1f} rad") or {}
        found = self.sim.contacts(*self.last, self.u)
        counts = sorted(set(found.active.sum(1).tolist()))
        if counts != [self.case.contacts]:
            self.case.refuse(f"it touches the floor with {counts} contacts, not {self.case.contacts}")
        sweeps = sorted(set(found.sweeps.tolist()))
        if sweeps != [self.case.iterations]:
            self.case.refuse(f"the solver made {sweeps} sweeps, not {self.case.iterations}")
        carried = found.impulses[..., 2].sum(1).double() / (9.81 * throughput.DT * float(self.model.mass.sum()))
        if self.case.scene != "laikago" and not bool(((carried - 1).abs() < 0.02).all()):
            self.case.refuse(f"its contacts carry {float(carried.min()):.3f} of its weight")
        return {"contacts": counts[0], "carried": float(carried.mean())}

    def row(self) -> dict:
        work = 1e-6 * self.case.batch * self.case.steps
        names = ("family", "series", "size", "batch", "steps", "threads", "iterations")
        facts = {name: getattr(self.case, name) for name in names}
        times = {"forward_us": min(self.forward_s) / work, "backward_us": min(self.backward_s) / work}
        return facts | times | self.check() | {"forward_s": self.forward_s, "backward_s": self.backward_s}


# -- running


def compile_kernels(wanted: Iterable[Case]) -> None:
    """All kernels of the cases, each once, on all cores: by far the longest part if the cache is empty."""
    kernels = {(sizes_of(c.model(), MAX_CONTACTS), round_up(c.iterations, SWEEP_STEPS)): c for c in wanted}
    progress(f"compiling {len(kernels)} sizes of kernels")
    small = [replace(case, batch=1, steps=2, threads=1) for case in kernels.values()]
    with ProcessPoolExecutor(machine.cores(), mp_context=get_context("spawn")) as pool:
        for _ in pool.map(prepare, small):
            pass


def prepare(case: Case) -> None:
    with reporting.quiet():
        run = Run(case)
        run.time()
        if case.contacts:
            run.sim.contacts(*run.last, run.u)


def measure(wanted: list[Case], repetitions: int) -> list[dict]:
    """Rows of one kind of cases."""
    runs = [Run(case) for case in wanted]
    for run in runs:
        run.time()  # loads kernels, warms caches
        run.forward_s.clear(), run.backward_s.clear()
    for _ in range(repetitions):
        for run in runs:
            run.time()
    return [run.row() for run in runs]


def memory(plan: Plan) -> list[dict]:
    """Peak memory of gradients, each in its own process."""
    sizes = [("environments", n, n, MEMORY_STEPS) for n in plan.environments if n >= plan.memory_from[0]]
    sizes += [("steps", n, SMALL_BATCH, n) for n in plan.steps if n >= plan.memory_from[1]]

    def one(size: tuple[str, int, int, int]) -> dict:
        family, n, batch, steps = size
        progress(f"memory of {batch} environments x {steps} steps")
        found = gradient.in_process("memory", batch, steps, 1)
        found = {"memory_mb": found["extra_bytes"] / 1e6, "states_mb": found["state_bytes"] / 1e6}
        return {"family": family, "series": "memory", "size": n, "batch": batch, "steps": steps} | found

    with ThreadPoolExecutor(machine.cores()) as pool:  # nothing is timed here
        return list(pool.map(one, sizes))


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    results = reporting.begin(options)
    wanted = cases(plan)
    with reporting.quiet():
        compile_kernels(wanted)
        results["rows"] = []
        for family in dict.fromkeys(case.family for case in wanted):
            progress(f"timing {family}")
            results["rows"] += measure([case for case in wanted if case.family == family], plan.repetitions)
        results["memory"] = memory(plan)
    return reporting.finish("growth", options, results, report, plot)


if __name__ == "__main__":
    main()
