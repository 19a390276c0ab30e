"""Steps per second of a standing Laikago, ours and MuJoCo C's in the same run; scaling; start-up.

    python benchmarks/throughput.py            # minutes; writes benchmarks/results/throughput.json and .png
    python benchmarks/throughput.py --quick    # seconds; whether it works, not how fast it is

What is timed: the scene laikago_feet (13 links, 18 dofs, PD drives, friction 1) at rest on four feet, dt 1e-3, at most
50 solver iterations, all states kept. Environments differ in their drives' targets by up to 0.02 rad, so that they do
not all take the same branches. Cases take turns and each keeps its fastest repetition. A case whose states are not
finite, whose robots fell or do not touch the ground with four feet ends the run without figures.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import machine
import mujoco_twin
import numpy as np
import scaling
import startup
import torch
from machine import progress, table

import warp_articulated as wa
from warp_articulated.model import Model

DT, ITERATIONS, TOLERANCE = 1e-3, 50, 1e-5
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
    chains: tuple[int, ...] = scaling.LENGTHS


QUICK = Plan(
    batches=(1, 64), float64_batch=64, work=2**11, mujoco_work=2**11, repetitions=1, variants=4, settle=2000,
    chains=scaling.LENGTHS[:2],
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


def _simulator(model: Model, num_envs: int, dtype: str, tolerance: float, threads: int | None) -> wa.Simulator:
    options = {"device": "cpu", "dtype": dtype, "dt": DT, "iterations": ITERATIONS}
    return wa.Simulator(model, num_envs, tolerance=tolerance, threads=threads, **options)


class Ours:
    """Settled states of all variants, and cases that start from them."""

    def __init__(self, model: Model, plan: Plan):
        self.model, self.plan = model, plan
        self.targets = torch.from_numpy(targets(model, plan.variants))
        self.controls: dict = {}  # large, so cases share them
        self.settled = {dtype: self._settle(dtype) for dtype in ("float32", "float64")}

    def _settle(self, dtype: str):
        progress(f"settling {self.plan.variants} robots in {dtype}")
        sim = _simulator(self.model, self.plan.variants, dtype, TOLERANCE, None)
        u = self.targets.to(sim.dtype).expand(self.plan.settle, -1, -1)
        qs, qds = sim.rollout(*sim.initial_state(), u, checkpoint_every=self.plan.settle)
        return qs[-1], qds[-1]

    def case(self, dtype: str, batch: int, threads: int, forced: bool) -> Case:
        steps = max(self.plan.work // batch, 1)
        sim = _simulator(self.model, batch, dtype, 0.0 if forced else TOLERANCE, threads)
        if forced:
            # tolerance 0 still stops at the bitwise fixed point; no change is below -1, so no sweep is left out
            sim._model.tolerance = -1.0
        pick = torch.arange(batch) % self.plan.variants
        q, qd = (x[pick] for x in self.settled[dtype])
        u = self.targets.to(sim.dtype)[pick]
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
    """What is written about a case, if its robots still stand on four feet."""
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


def ratios(rows: list[dict], plan: Plan) -> dict:
    """Speed-up from the second core, and a batch of one against the largest that is common."""

    def rate(batch, threads):
        found = [r for r in rows if r["engine"] != "MuJoCo" and r["dtype"] == "float32" and r["solver"] == "early exit"]
        return next((r["rate"] for r in found if (r["batch"], r["threads"]) == (batch, threads)), None)

    large = 4096 if 4096 in plan.batches else plan.batches[-1]
    two = rate(large, 2)
    return {
        f"second core, batch {large}": two / rate(large, 1) if two else None,
        f"batch {large} against batch 1, one thread": rate(large, 1) / rate(1, 1),
    }


def plot(results: dict, path: Path) -> None:
    """Throughput against the batch, and cost against the number of links."""
    try:
        import matplotlib
    except ImportError:
        progress("matplotlib is not installed: no picture is drawn.")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
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
    chains = results["chains"]["rows"]
    links = np.array([r["links"] for r in chains])
    cost = np.array([r["microseconds"] for r in chains])
    right.plot(links, cost, "o-", label=f"ours, exponent {results['chains']['exponent']:.2f}")
    right.plot(links, cost[0] * links / links[0], ":", color="0.4", label="linear")
    right.set(xscale="log", yscale="log", xlabel="links", ylabel="us per step", title="Pendulum chains, one thread")
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.2)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description="Throughput, scaling and start-up on this machine's CPU.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it works, not how fast it is")
    parser.add_argument(
        "--out", type=Path, default=machine.RESULTS / "throughput.json", help="raw results; .png beside it"
    )
    parser.add_argument("--no-startup", action="store_true", help="leave out the start-up times, which compile kernels")
    options = parser.parse_args(arguments)
    plan = QUICK if options.quick else Plan()
    with contextlib.redirect_stdout(sys.stderr):  # Warp tells of its kernels on stdout
        results: dict = {"machine": machine.describe(), "quick": options.quick, "load": machine.load()}
        results["laikago"] = laikago(plan)
        results["ratios"] = ratios(results["laikago"], plan)
        results["chains"] = scaling.chains(plan.chains, work=plan.work // 4, repetitions=plan.repetitions)
        results["startup"] = None if options.no_startup else startup.measure()
    if options.quick:
        print("Quick run: these figures say nothing about speed.\n")
    if results["load"] > 0.5:
        print(f"Other programs were running (load {results['load']:.1f} at the start): these figures are noisy.\n")
    print(f"{results['machine']}\n")
    print("## Laikago on four feet, dt 1e-3, at most 50 iterations\n")
    print(laikago_table(results["laikago"]) + "\n")
    print("## Scaling\n")
    print(table(["speed-up", "factor"], [[k, v] for k, v in results["ratios"].items()]) + "\n")
    print(scaling.chains_table(results["chains"]))
    if results["startup"]:
        print("\n## Start-up\n")
        print(startup.startup_table(results["startup"]))
    machine.write_json(options.out, results)
    plot(results, options.out.with_suffix(".png"))
    return results


if __name__ == "__main__":
    main()
