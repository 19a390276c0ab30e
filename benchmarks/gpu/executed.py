"""What a step of laikago_feet executes on a GPU, counted: instructions, bytes, and how far a warp's threads part.

    python benchmarks/gpu/executed.py            some minutes, most of them for compiling
    python benchmarks/gpu/executed.py --quick    forward only

No GPU is needed: tests/helpers/ptx_host.py runs the PTX of the CUDA kernels and counts. Each count is the difference
between launches of 8 and of 4 steps, so that what a launch does once is not in it. Divergence is modelled: the threads
of a warp that are at the earliest basic block go on together, and the warp issues an instruction once for all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

import numpy as np
import torch
from ptx_device import Device, emulated
from ptx_host import ACCESSES, Binary

from gpu import roofline
from lib import machine, reporting
from speed import throughput

WARP = 32  # environments
STEPS = (4, 8)
SETTLE = 3000
# changes of joint angles (rad) and of velocities, standard deviation, some steps before the count
CASES = {"standing": (0.0, 0.0), "pushed": (0.01, 0.1), "thrown": (0.1, 1.0)}
AFTER = 20  # steps
TRACE = 2**25  # basic blocks


def state(case: str):
    """Simulator, q, qd and u of one warp."""
    q, qd, u = throughput.settled(WARP, SETTLE, "float32")
    sim = throughput.simulator(throughput.scene(), WARP, threads=1)
    angles, speeds = CASES[case]
    rng = torch.Generator().manual_seed(0)
    q, qd = q.clone(), qd + speeds * torch.randn(qd.shape, generator=rng)
    q[:, 7:] += angles * torch.randn(q[:, 7:].shape, generator=rng)
    qs, qds = sim.rollout(q, qd, u.expand(AFTER, -1, -1), checkpoint_every=AFTER)
    return sim, qs[-1], qds[-1], u


def launch(device: Device, sim, q, qd, u, steps: int, adjoint: bool) -> Binary:
    """Runs steps, or their adjoint, on the device; the forward pass of an adjoint is the CPU's."""
    controls = u.expand(steps, -1, -1).clone()
    name = "rollout_adjoint" if adjoint else "rollout"
    for binary in device.binaries.values():
        binary.reset()
    if adjoint:
        q, controls = q.clone().requires_grad_(), controls.requires_grad_()
        qs, qds = sim.rollout(q, qd, controls)
        with emulated(device):
            (qs[-1].sum() + qds[-1].sum()).backward()
    else:
        with emulated(device):
            sim.rollout(q, qd, controls)
    return device.binaries[name]


def totals(binary: Binary) -> dict[str, float]:
    """Of one launch, per environment."""
    instructions = binary.instructions()
    float32 = sum(n for category, n in instructions.items() if category.endswith(".f32"))
    issued, mean = divergence(binary)
    found = {"instructions": sum(instructions.values()), "float32": float32}
    found |= {f"{name}, bytes": int(size) for name, size in zip(ACCESSES, binary.accesses[:, 1])}
    return {name: value / WARP for name, value in found.items()} | {"issued": issued, "mean": mean}


def divergence(binary: Binary) -> tuple[float, float]:
    """Instructions that the warp issues, and that a thread runs on average."""
    sizes = [sum(block.values()) for block in binary.program.translation.blocks]
    starts = np.flatnonzero(binary.trace == binary.trace[0])  # a thread's first block is run once
    threads = [part.tolist() for part in np.split(binary.trace, starts[1:])][:WARP]  # the others have no environment
    at, issued = [0] * WARP, 0
    while running := [k for k in range(WARP) if at[k] < len(threads[k])]:
        first = min(threads[k][at[k]] for k in running)
        issued += sizes[first]
        for k in running:
            at[k] += threads[k][at[k]] == first
    return issued, sum(sizes[block] for thread in threads for block in thread) / WARP


def count(case: str, adjoint: bool, device: Device) -> dict:
    sim, q, qd, u = state(case)
    found, touched = [], []
    for steps in STEPS:
        binary = launch(device, sim, q, qd, u, steps, adjoint)
        found.append(totals(binary))
        touched.append(binary.touched.copy())
    few, many = found
    row = {name: (many[name] - few[name]) / (STEPS[1] - STEPS[0]) for name in few}
    divergent = row.pop("issued") / row.pop("mean")
    once = few["instructions"] - STEPS[0] * row["instructions"]
    machine.progress(f"{case}, {'adjoint' if adjoint else 'forward'}: {row['instructions']:.0f} instructions per step")
    return {
        "case": case, "direction": "adjoint" if adjoint else "forward", **row, "divergence": divergent,
        "touched bytes": int((touched[1] > touched[0]).sum()), "instructions once per launch": once,
    }  # fmt: skip


def report(results: dict) -> dict[str, str]:
    lines = [
        [
            row["case"], row["direction"], row["instructions"], row["float32"],
            *(f"{row[f'{name}, bytes'] / 1000:.1f}" for name in ACCESSES[:4]),
            f"{row['touched bytes'] / 1000:.1f}", f"{row['divergence']:.2f}",
        ]
        for row in results["rows"]
    ]  # fmt: skip
    header = ["robots", "", "instructions", "of them FP32", *(f"{name}, KB" for name in ACCESSES[:4])]
    return {
        "executed": machine.table([*header, "touched, KB", "warp issues / thread runs"], lines),
        "roofline": roofline.report(results["rows"]),
    }


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    results = reporting.begin(options)
    with reporting.quiet():
        device = Device(count=True, trace=TRACE)
        directions = (False,) if options.quick else (False, True)
        results["rows"] = [count(case, adjoint, device) for adjoint in directions for case in CASES]
    return reporting.finish("executed", options, results, report)


if __name__ == "__main__":
    main()
