"""`gpu.py --scenes humanoid.xml g1.xml`: MJCF files on flat ground, beside the rates that mujoco_warp publishes.

The two programs do not compute the same: solver, integrator, contacts and step differ, so dt, contacts, sweeps,
compile time and memory stand beside every rate. Published figures are of their program on their GPU; ours are only what
this run measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import warp as wp

import warp_articulated as wa
from lib import machine
from warp_articulated.device.launch import LOADING

# steps/s of mujoco_warp's nightly benchmarks, 8,192 worlds on flat ground
PUBLISHED = {"humanoid": 5.67e6, "g1": 2.52e6}
PUBLISHED_ON = "RTX 6000 Ada"
AMPLITUDE = 0.1  # of the random controls


@dataclass(frozen=True)
class Plan:
    envs: int = 8192
    steps: int = 200
    repetitions: int = 3
    dt: float = 5e-3
    iterations: int = 50


QUICK = Plan(envs=8, steps=4, repetitions=1)


def published(name: str) -> float | None:
    """Their rate of the scene that a file of this name seems to hold."""
    return next((rate for key, rate in PUBLISHED.items() if key in name.lower()), None)


def wait(device: wp.Device) -> None:
    if device.is_cuda:  # a launch returns before it is done
        torch.cuda.synchronize(device.ordinal)


def measure(path: Path, plan: Plan, device: str, in_use) -> dict:
    """A row; in_use: a function of the device with its memory in use, MB, or None."""
    row = {"scene": path.stem, "published": published(path.stem), **vars(plan)}
    try:
        model = wa.load(path)
        before, loading = in_use(wp.get_device(device)), LOADING.wall
        sim = wa.Simulator(model, plan.envs, device=device, dt=plan.dt, iterations=plan.iterations)
        chance = torch.Generator().manual_seed(0)
        noise = AMPLITUDE * (2.0 * torch.rand(plan.steps, plan.envs, model.nu, generator=chance) - 1.0)
        u = sim.initial_control() + noise.to(sim.initial_control())

        def run() -> tuple[float, torch.Tensor, torch.Tensor]:
            wait(sim.device)
            began = time.perf_counter()
            with torch.no_grad():  # only the last state is kept
                qs, qds = sim.rollout(*sim.initial_state(), u, checkpoint_every=plan.steps)
            wait(sim.device)
            return time.perf_counter() - began, qs[-1], qds[-1]

        run()  # compiles
        compiled = LOADING.wall - loading
        runs = [run() for _ in range(plan.repetitions)]
        after = in_use(sim.device)
        _, q, qd = runs[-1]
        diverged = len(sim.diverged)
        dropped = int(sim.dropped_contacts.sum())
        if diverged or not bool(q.isfinite().all()):
            return row | {"refused": f"{diverged} environments diverged"}
        found = sim.contacts(q, qd, u[-1])
    except (RuntimeError, MemoryError, ValueError, OSError) as error:  # no memory, or a file that cannot be read
        return row | {"refused": str(error).strip().splitlines()[0]}
    seconds = min(seconds for seconds, *_ in runs)
    return row | {
        "rate": plan.envs * plan.steps / seconds,
        "contacts": float(found.active.sum(1).double().mean()),
        "sweeps": float(found.sweeps.double().mean()),
        "dropped": dropped,
        "compile_s": compiled,
        "memory_mb": after - before if after is not None and before is not None else None,
    }


def rows(paths: list[Path], plan: Plan, device: str, in_use) -> Iterator[dict]:
    for path in paths:
        machine.progress(f"{plan.envs} of {path.stem} on {device}")
        yield measure(path, plan, device, in_use)


def report(results: dict) -> dict[str, str]:
    lines = []
    for r in results["rows"]:
        theirs = "-" if r["published"] is None else f"{r['published'] / 1e6:.2f} million"
        what = [r["scene"], r["envs"], f"{1e3 * r['dt']:g} ms"]
        if "refused" in r:
            lines.append([*what, f"refused: {r['refused']}", "", "", "", "", theirs])
            continue
        memory = "-" if r["memory_mb"] is None else f"{r['memory_mb']:,.0f}"
        rest = [f"{r['contacts']:.1f}", f"{r['sweeps']:.0f} of {r['iterations']}", f"{r['compile_s']:.0f}", memory]
        lines.append([*what, f"{r['rate']:,.0f}", *rest, theirs])
    header = ["scene", "environments", "dt", "steps/s", "contacts at the end", "sweeps", "compile s", "GPU memory, MB"]
    notes = (
        f"Measured on {results['device']['name']}; the last column is what mujoco_warp publishes for its own scene of "
        f"that name, 8,192 worlds on an {PUBLISHED_ON}: another solver, other contacts and another step."
    )
    return {"scenes": machine.table([*header, "mujoco_warp, published"], lines), "notes": notes}
