"""Steps per second of a standing Laikago, ours and MuJoCo C's in the same run; start-up.

    python benchmarks/speed/throughput.py            # minutes; writes benchmarks/results/throughput.json and .png
    python benchmarks/speed/throughput.py --quick    # a minute; small batches, to out/bench

What is timed: the scene laikago_feet (13 links, 18 dofs, PD drives, friction 1) at rest on four feet, dt 1e-3, at most
50 solver iterations, all states kept. Environments differ in their drives' targets by up to 0.02 rad, so that they do
not all take the same branches. Cases take turns and each keeps its fastest repetition. A case whose states are not
finite, whose robots fell or do not touch the ground with four feet ends the run without figures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch

import warp_articulated as wa
from lib import machine, mujoco_twin, reporting
from lib.machine import progress, table
from speed import startup
from warp_articulated.model import Model

DT, ITERATIONS, TOLERANCE = 1e-3, 50, 1e-5
FORCED = -1.0  # tolerance 0 still stops at the bitwise fixed point; no change is below -1, so all sweeps are made
JITTER = 0.02  # rad
MUJOCO_BATCH = 1024  # MuJoCo's threads take one environment after the other: its cost does not depend on the batch


@dataclass
class Plan:
    """How much to run."""

    batches: tuple[int, ...] = (1, 64, 1024, 4096, 32768)
    float64_batch: int = 4096
    work: int = 2**17  # steps times environments of one repetition: bounds memory and time per case
    mujoco_work: int = 2**15
    repetitions: int = 5
    variants: int = 64  # environments that differ; larger batches repeat them
    settle: int = 3000  # steps


QUICK = Plan(
    batches=(1, 64), float64_batch=64, work=2**11, mujoco_work=2**11, repetitions=1, variants=4, settle=2000
)  # fmt: skip


@dataclass
class Case:
    """One row of the first table."""

    engine: str
    solver: str  # ours: "early exit" or "forced"; MuJoCo's: its solver
    dtype: str
    batch: int
    threads: int
    steps: int
    run: Callable[[], object]  # does all steps; returns what `check` wants
    check: Callable[[object], dict]  # contacts, penetration, iterations; ends the program if a state is not valid
    seconds: list[float] = field(default_factory=list)

    @property
    def microseconds(self) -> float:
        """Per environment step and core."""
        return 1e6 * min(self.seconds) * min(self.threads, self.batch) / (self.batch * self.steps)

    @property
    def rate(self) -> float:
        """Environment steps per second, of all threads together."""
        return self.batch * self.steps / min(self.seconds)

    def refuse(self, why: str) -> None:
        raise SystemExit(f"No figures: {self.engine} {self.solver}, {self.dtype}, batch {self.batch}: {why}.")


def scene() -> Model:
    """The profiling robot on a floor of friction 1: at the scene's 0.2 the feet would creep while it settles."""
    model = wa.load("laikago_feet")
    return replace(model, pair_friction=np.ones(len(model.pairs)))


def targets(model: Model, variants: int) -> np.ndarray:
    """(variants, nu) drive targets; the first are the scene's own."""
    jitter = np.random.default_rng(0).uniform(-JITTER, JITTER, (variants, model.nu))
    jitter[0] = 0.0
    return model.u0 + jitter


def stands(model: Model, q: np.ndarray) -> str:
    """Empty, or what is wrong with the poses (n, nq), quaternion xyzw."""
    if not np.isfinite(q).all():
        return "a state is not finite"
    tilt = 1 - 2 * (q[:, 3] ** 2 + q[:, 4] ** 2)  # z of the chassis' z axis
    if (np.abs(q[:, 2] - model.q0[2]) > 0.05).any() or (tilt < 0.98).any():
        return f"a robot fell: heights from {q[:, 2].min():.3f} to {q[:, 2].max():.3f} m"
    return ""


# -- ours


def simulator(
    model: Model, num_envs: int, *, dtype: str = "float32", iterations: int = ITERATIONS, tolerance: float = TOLERANCE,
    **options,
) -> wa.Simulator:  # fmt: skip
    """On the CPU; the tolerance may be FORCED."""
    options |= {"device": "cpu", "dtype": dtype, "dt": DT, "iterations": iterations}
    sim = wa.Simulator(model, num_envs, tolerance=max(tolerance, 0.0), **options)
    sim._engine.device_model.tolerance = tolerance
    if tolerance < 0.0:
        sim._engine.device_model.rounding = tolerance  # no exit at rounding either
    return sim


@cache
def settled(
    variants: int, steps: int, dtype: str, iterations: int = ITERATIONS, tolerance: float = TOLERANCE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, qd and u of standing robots, which have come to rest in so many steps."""
    progress(f"settling {variants} robots in {dtype}")
    model = scene()
    sim = simulator(model, variants, dtype=dtype, iterations=iterations, tolerance=tolerance)
    u = torch.from_numpy(targets(model, variants)).to(sim.dtype)
    qs, qds = sim.rollout(*sim.initial_state(), u.expand(steps, -1, -1), checkpoint_every=steps)
    return qs[-1], qds[-1], u


class Ours:
    """Cases that start from settled states."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.controls: dict = {}  # large, so cases share them

    def case(self, dtype: str, batch: int, threads: int, forced: bool) -> Case:
        steps = max(self.plan.work // batch, 1)
        tolerance = FORCED if forced else TOLERANCE
        sim = simulator(self.model, batch, dtype=dtype, tolerance=tolerance, threads=threads)
        pick = torch.arange(batch) % self.plan.variants
        q, qd, u = (x[pick] for x in settled(self.plan.variants, self.plan.settle, dtype))
        if (dtype, batch) not in self.controls:
            self.controls[dtype, batch] = u.expand(steps, -1, -1).contiguous()
        controls = self.controls[dtype, batch]

        def run():
            qs, qds = sim.rollout(q, qd, controls)
            return qs[-1], qds[-1]

        def check(last) -> dict:
            bad = stands(self.model, last[0].numpy().astype(float))
            if bad:
                case.refuse(bad)
            contacts = sim.contacts(*last, u)
            counts = sorted(set(contacts.active.sum(1).tolist()))
            depth, sweeps = contacts.depths[contacts.active].double().mean(), contacts.sweeps.double().mean()
            return {"contacts": counts, "penetration": float(depth), "iterations": float(sweeps)}

        solver = "forced" if forced else "early exit"
        case = Case("warp_articulated", solver, dtype, batch, threads, steps, run, check)
        return case


# -- MuJoCo's


class Theirs:
    """The same robot, settled in MuJoCo with each solver."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan, self.targets = model, plan, targets(model, plan.variants)
        self.settled: dict = {}

    def _settle(self, solver: str, forced: bool):
        """MuJoCo's model and the settled states of all variants."""
        if (solver, forced) not in self.settled:
            progress(f"settling {self.plan.variants} robots in MuJoCo with {solver}{', forced' * forced}")
            tolerance = 0.0 if forced else None
            m = mujoco_twin.twin(self.model, solver=solver, dt=DT, iterations=ITERATIONS, tolerance=tolerance)
            start = mujoco_twin.to_mujoco(self.model, self.model.q0[None], np.zeros((1, m.nv)))
            start = np.repeat(start, self.plan.variants, axis=0)
            states = mujoco_twin.Batch(m, start, self.targets, self.plan.settle, machine.cores()).run()
            states[:, 0] = 0.0
            self.settled[solver, forced] = m, states
        return self.settled[solver, forced]

    def case(self, solver: str, batch: int, threads: int, forced: bool) -> Case:
        m, settled = self._settle(solver, forced)
        steps = max(self.plan.mujoco_work // batch, 1)
        pick = np.arange(batch) % self.plan.variants
        rollout = mujoco_twin.Batch(m, settled[pick], self.targets[pick], steps, threads)

        def check(last) -> dict:
            q = last[:, 1 : 1 + m.nq].copy()
            q[:, 3:7] = np.roll(q[:, 3:7], -1, axis=1)
            bad = stands(self.model, q)
            if bad:
                case.refuse(bad)
            return mujoco_twin.rest(m, last[: self.plan.variants], self.targets[pick][: self.plan.variants])

        name = f"{solver}, forced" if forced else solver
        case = Case("MuJoCo", name, "float64", batch, threads, steps, rollout.run, check)
        return case


# -- running and reporting


def measure(cases: list[Case], repetitions: int) -> list[dict]:
    """Time all cases in turns, and check the states that they end in."""
    progress(f"warming up {len(cases)} cases")
    for case in cases:
        case.run()
    rows = []
    for repetition in range(repetitions):
        for case in cases:
            start = time.perf_counter()
            last = case.run()
            case.seconds.append(time.perf_counter() - start)
            if repetition == repetitions - 1:
                rows.append(row(case, case.check(last)))
        progress(f"repetition {repetition + 1} of {repetitions} done")
    return rows


def row(case: Case, facts: dict) -> dict:
    """The results of a case, if its robots still stand on four feet."""
    if facts["contacts"] != [4]:
        case.refuse(f"robots touch the ground with {facts['contacts']} contacts, not 4")
    names = ("engine", "solver", "dtype", "batch", "threads", "steps", "microseconds", "rate", "seconds")
    return {name: getattr(case, name) for name in names} | facts


def interleaved(ours: list[Case], theirs: list[Case]) -> list[Case]:
    """Ours, MuJoCo, ours, ...: a busy machine then slows both alike."""
    mixed, gap = [], max(len(ours) // max(len(theirs), 1), 1)
    for k, case in enumerate(ours):
        mixed.append(case)
        if k % gap == gap - 1 and theirs:
            mixed.append(theirs.pop(0))
    return mixed + theirs


def laikago(plan: Plan) -> list[dict]:
    model = scene()
    mine, peer = Ours(model, plan), Theirs(model, plan)
    threads = [1, 2] if machine.cores() > 1 else [1]
    ours = [
        mine.case(dtype, batch, n, forced)
        for dtype, batches in (("float32", plan.batches), ("float64", (plan.float64_batch,)))
        for batch in batches
        for n in threads[: min(batch, 2)]
        for forced in (False, True)
    ]
    batch = min(MUJOCO_BATCH, plan.mujoco_work // 16)
    kinds = [("Newton", False), ("CG", False), ("PGS", False), ("PGS", True)]
    theirs = [peer.case(solver, batch, n, forced) for solver, forced in kinds for n in threads]
    return measure(interleaved(ours, theirs), plan.repetitions)


def fastest_mujoco(rows: list[dict], threads: int, forced: bool) -> dict:
    found = [r for r in rows if r["engine"] == "MuJoCo" and r["threads"] == threads]
    return min((r for r in found if ("forced" in r["solver"]) == forced), key=lambda r: r["microseconds"])


def laikago_table(rows: list[dict]) -> str:
    """Ratios are of time per step with as many threads: above 1, MuJoCo takes longer.

    The first is to MuJoCo's fastest solver, which stops early and starts warm; the second, for forced iterations, to
    its PGS made to do as many.
    """
    order = sorted(rows, key=lambda r: (r["engine"] == "MuJoCo", r["dtype"], r["solver"], r["batch"], r["threads"]))
    lines = []
    for r in order:
        fastest, forced = (fastest_mujoco(rows, r["threads"], forced)["microseconds"] for forced in (False, True))
        cost = r["microseconds"]
        lines.append([
            r["engine"], r["solver"], r["dtype"], r["batch"], r["threads"], cost, 1e6 / cost, r["rate"],
            r["iterations"], 1e3 * r["penetration"], f"{fastest / cost:.2f}",
            f"{forced / cost:.2f}" if "forced" in r["solver"] else "",
        ])  # fmt: skip
    header = ["engine", "solver", "precision", "batch", "threads", "us per step and core", "steps/s per core"]
    header += ["steps/s", "iterations", "penetration mm", "fastest MuJoCo / this", "MuJoCo PGS forced / this"]
    return table(header, lines)


def ratios(rows: list[dict]) -> dict:
    """Speed-up from the second core, and a batch of one against the largest that is common."""
    large = common_batch(rows)
    two = our_row(rows, large, 2)
    return {
        f"second core, batch {large}": two["rate"] / our_row(rows, large)["rate"] if two else None,
        f"batch {large} against batch 1, one thread": our_row(rows, large)["rate"] / our_row(rows, 1)["rate"],
    }


def common_batch(rows: list[dict]) -> int:
    """The batch of the quoted figures: 4096, or the largest of a quick run."""
    batches = {r["batch"] for r in rows if r["engine"] != "MuJoCo"}
    return 4096 if 4096 in batches else max(batches)


def our_row(rows: list[dict], batch: int, threads: int = 1, solver: str = "early exit") -> dict | None:
    """In single precision, if it was measured."""
    key = ("warp_articulated", solver, "float32", batch, threads)
    names = ("engine", "solver", "dtype", "batch", "threads")
    return next((r for r in rows if tuple(r[name] for name in names) == key), None)


def headline(rows: list[dict]) -> str:
    batch = common_batch(rows)
    early, forced = (our_row(rows, batch, solver=solver) for solver in ("early exit", "forced"))
    peers = [r for r in rows if r["engine"] == "MuJoCo" and r["threads"] == 1 and "forced" not in r["solver"]]
    best, *others = sorted(peers, key=lambda r: r["microseconds"])
    times = [f"{r['microseconds'] / early['microseconds']:.1f} times its {r['solver']}" for r in others]
    equal = fastest_mujoco(rows, 1, True)
    mine, theirs, swept, peer_swept = (r["microseconds"] for r in (early, best, forced, equal))
    return (
        f"A step takes {mine:.1f} us (batch {batch}, one thread, float32), and {theirs:.1f} us with {best['solver']}, "
        f"MuJoCo C's fastest solver on the same robot: ours is {theirs / mine:.1f} times as fast; {', '.join(times)}. "
        f"At equal iterations, {forced['iterations']:.0f} sweeps of PGS, it is {peer_swept / swept:.1f} times as fast: "
        f"{swept:.1f} against {peer_swept:.1f} us."
    )


def report(results: dict) -> dict[str, str]:
    rows = results["laikago"]
    fragments = {
        "laikago": laikago_table(rows),
        "ratios": table(["speed-up", "factor"], [[k, v] for k, v in results["ratios"].items() if v is not None]),
        "headline": headline(rows),
    }
    return fragments | ({"startup": startup.startup_table(results["startup"])} if results["startup"] else {})


def figures(results: dict) -> dict[str, str]:
    """Single figures for the text of the docs."""
    rows = results["laikago"]
    early, forced = (our_row(rows, 4096, solver=solver)["microseconds"] for solver in ("early exit", "forced"))
    double = next(r["microseconds"] for r in rows if r["dtype"] == "float64" and r["solver"] == "early exit")
    return {
        "precisions_us": f"{early:.1f} and {double:.1f} us",
        "sweeps": f"{our_row(rows, 4096)['iterations']:.0f}",
        "early_and_forced_us": f"{early:.1f} instead of {forced:.1f} us",
        "first_step_cold": f"{results['startup']['cold']['first_step']:.1f} s",
        "first_step_warm": f"{results['startup']['warm']['first_step']:.1f} s",
    }


def plot(results: dict, figure) -> None:
    """Throughput against the batch, and the cost of a step next to MuJoCo's solvers."""
    left, right = figure.subplots(1, 2)
    rows = results["laikago"]
    for solver, color in (("early exit", "C0"), ("forced", "C1")):
        for threads, style in ((1, "o-"), (2, "s--")):
            found = [r for r in rows if r["dtype"] == "float32" and (r["solver"], r["threads"]) == (solver, threads)]
            label = f"ours, {solver}, {threads} {'threads' if threads > 1 else 'thread'}"
            left.plot([r["batch"] for r in found], [r["rate"] for r in found], style, color=color, label=label)
    for threads, style in ((1, "-"), (2, "--")):
        if any(r["engine"] == "MuJoCo" and r["threads"] == threads for r in rows):
            peer = fastest_mujoco(rows, threads, False)
            label = f"MuJoCo C, {peer['solver']}, {threads} {'threads' if threads > 1 else 'thread'}"
            left.axhline(peer["rate"], color="0.4", linestyle=style, label=label)
    left.set(xscale="log", yscale="log", xlabel="environments", ylabel="steps per second", title="Laikago on four feet")
    mine = [our_row(rows, common_batch(rows), solver=solver) for solver in ("early exit", "forced")]
    bars = [(f"ours, {r['solver']}", r["microseconds"], "C0") for r in mine if r]
    peers = [r for r in rows if r["engine"] == "MuJoCo" and r["threads"] == 1]
    bars += [(f"MuJoCo, {r['solver']}", r["microseconds"], "0.6") for r in peers]
    names, costs, colors = zip(*bars)
    right.barh(names, costs, color=colors)
    right.invert_yaxis()
    right.set(xlabel="us per step", title="One thread")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--no-startup", action="store_true", help="leave out the start-up times, which compile kernels")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    results = reporting.begin(options)
    with reporting.quiet():
        results["laikago"] = laikago(plan)
        results["ratios"] = ratios(results["laikago"])
        results["startup"] = None if options.no_startup else startup.measure()
    return reporting.finish("throughput", options, results, report, plot)


if __name__ == "__main__":
    main()
