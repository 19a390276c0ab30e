"""Modelled, not measured: bounds of steps per second on GPUs, from what a step executes (executed.py).

Upper: an SM issues one instruction for each of its 128 lanes and clock, and memory costs nothing. Lower: every load and
store of the PTX, local and global, goes to the GPU's main memory. Neither knows the latency that few resident warps
cannot hide, so a GPU could stay below the lower one.
"""

from __future__ import annotations

from gpu.occupancy import GPUS
from lib import machine

MARK = "**Modelled, not measured.**"
ACCESSES = ("local loads", "local stores", "global loads", "global stores")
HEADER = ["GPU", "robots", "", "instructions of a warp", "KB of accesses", "steps/s, modelled, not measured"]


def issued(row: dict) -> float:
    """Instructions that a warp issues per step: those of a mean thread, and what divergence adds."""
    return row["instructions"] * row["divergence"]


def moved(row: dict) -> float:
    """Bytes that a step loads and stores."""
    return sum(row[f"{name}, bytes"] for name in ACCESSES)


def bounds(arch: int, row: dict) -> tuple[float, float]:
    """Lower and upper bound of float32 steps per second."""
    gpu = GPUS[arch]
    issue = gpu.peak("float32") / 2 / issued(row)  # the published peak counts a fused multiply-add as two
    return min(issue, 1e9 * gpu.bandwidth / moved(row)), issue


def report(rows: list[dict]) -> str:
    lines = []
    for arch, gpu in GPUS.items():
        for row in rows:
            low, high = bounds(arch, row)
            lines.append(
                [gpu.name, row["case"], row["direction"], f"{issued(row):,.0f}", f"{moved(row) / 1000:.0f}",
                 f"{low:.2g} to {high:.2g}"]
            )  # fmt: skip
    return f"{MARK}\n\n{machine.table(HEADER, lines)}"
