"""Cost of a step against the number of links: hanging pendulum chains, no contacts. Part of throughput.py."""

from __future__ import annotations

import time

import numpy as np
import torch
from machine import progress, table

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Model, assemble

LENGTHS = (10, 20, 40, 80, 160, 320)
LENGTH, MASS = 0.1, 0.2  # m, kg of one link
BATCH = 64


def chain(links: int) -> Model:
    """Rods on hinges about x and y in turn, hanging down, a little damped."""
    rod = MASS * LENGTH**2 / 12
    bodies = [
        Body(
            name=f"link{i}", parent=i - 1 if i else WORLD, joint_name=f"joint{i}", joint_type=JointType.REVOLUTE,
            pos=np.array([0.0, 0.0, -LENGTH if i else 0.0]), axis=np.eye(3)[i % 2], mass=MASS,
            com=np.array([0.0, 0.0, -LENGTH / 2]), inertia=np.diag([rod, rod, rod / 10]), damping=0.01,
        )
        for i in range(links)
    ]  # fmt: skip
    return assemble(f"chain{links}", bodies)


def chains(lengths: tuple[int, ...], work: int, repetitions: int) -> dict:
    """Microseconds per step of every length, one thread, and the exponent of cost ~ links^exponent."""
    runs = {}
    for links in lengths:
        progress(f"chain of {links} links")
        # as much work for every length
        runs[links] = _Run(links, steps=max(work * lengths[0] // (links * BATCH), 4))
    seconds: dict[int, list[float]] = {links: [] for links in lengths}
    for _ in range(repetitions):
        for links, run in runs.items():
            start = time.perf_counter()
            run.run()
            seconds[links].append(time.perf_counter() - start)
    rows = []
    for links, run in runs.items():
        cost = 1e6 * min(seconds[links]) / (run.steps * BATCH)
        rows.append(
            {"links": links, "batch": BATCH, "steps": run.steps, "microseconds": cost, "seconds": seconds[links]}
        )
    exponent = np.polyfit(np.log([r["links"] for r in rows]), np.log([r["microseconds"] for r in rows]), 1)[0]
    return {"rows": rows, "exponent": float(exponent)}


class _Run:
    def __init__(self, links: int, steps: int):
        self.links, self.steps = links, steps
        self.sim = wa.Simulator(chain(links), BATCH, device="cpu", dt=1e-3, threads=1)
        q, qd = self.sim.initial_state()
        self.start = q + 0.05 * torch.randn(q.shape, generator=torch.Generator().manual_seed(0)), qd
        self.u = q.new_zeros(steps, BATCH, 0)
        self.run()

    def run(self) -> None:
        qs, qds = self.sim.rollout(*self.start, self.u)
        if len(self.sim.diverged) or not bool(torch.isfinite(qs).all() and torch.isfinite(qds).all()):
            raise SystemExit(f"No figures: a chain of {self.links} links did not stay finite.")


def chains_table(results: dict) -> str:
    lines = [[r["links"], r["microseconds"], r["microseconds"] / r["links"]] for r in results["rows"]]
    fit = f"\n\nCost ~ links^{results['exponent']:.2f} (least squares, log-log; batch {BATCH}, one thread)."
    return table(["links of a pendulum chain", "us per step", "us per step and link"], lines) + fit
