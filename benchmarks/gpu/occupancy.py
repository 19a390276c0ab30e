"""How many threads of a kernel a GPU can hold at once, from the published limits of its architecture; not measured.

Limits: CUDA programming guide, technical specifications per compute capability, and the occupancy calculator of CUDA's
toolkit (register allocation). GPUs: NVIDIA's published specifications.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lib import machine
from warp_articulated.device.launch import BLOCK_DIM

WARP = 32  # threads
REGISTERS = 65536  # per SM, on all four architectures
PARTITIONS = 4  # of an SM; each has a quarter of the registers, and a warp lives in one
GRANULARITY = 256  # registers that are allocated at once to a warp
LAUNCHED = BLOCK_DIM  # threads per block
BLOCKS = (32, 64, 128, 256)
SHOWN = ("rollout", "rollout_adjoint")


@dataclass(frozen=True)
class Limits:
    """Of one SM."""

    warps: int
    blocks: int


@dataclass(frozen=True)
class Gpu:
    """Published figures of one product."""

    name: str
    sms: int
    cores: int  # float32 units per SM
    double_cores: int  # float64 units per SM
    clock: float  # GHz, boost
    bandwidth: float  # GB/s
    l2: float  # MB
    memory: int  # GB

    def peak(self, dtype: str) -> float:
        """Operations per second, a fused multiply-add counted as two."""
        return 2e9 * self.clock * self.sms * (self.cores if dtype == "float32" else self.double_cores)


LIMITS = {80: Limits(64, 32), 86: Limits(48, 16), 90: Limits(64, 32), 120: Limits(48, 24)}
GPUS = {
    80: Gpu("A100 SXM 80 GB", 108, 64, 32, 1.41, 2039, 40, 80),
    86: Gpu("RTX 3090", 82, 128, 2, 1.695, 936, 6, 24),
    90: Gpu("H100 SXM", 132, 128, 64, 1.98, 3352, 50, 80),
    120: Gpu("RTX 5090", 170, 128, 2, 2.407, 1792, 96, 32),
}


def resident_warps(arch: int, registers: int, block: int) -> int:
    """Warps of a kernel that one SM holds at once; 0 if not even one block fits. Shared memory does not
    count: our kernels do not use it."""
    limits, warps = LIMITS[arch], -(-block // WARP)
    taken = -(-registers * WARP // GRANULARITY) * GRANULARITY
    fitting = PARTITIONS * (REGISTERS // PARTITIONS // taken)
    return warps * min(fitting // warps, limits.warps // warps, limits.blocks)


def occupancy(arch: int, registers: int, block: int) -> float:
    return resident_warps(arch, registers, block) / LIMITS[arch].warps


def resident_threads(arch: int, registers: int, block: int = LAUNCHED) -> int:
    """Environments that run at once on the GPU that represents the architecture."""
    return GPUS[arch].sms * WARP * resident_warps(arch, registers, block)


def best_block(arch: int, registers: int) -> int:
    """The smallest of the blocks that give the highest occupancy."""
    return max(BLOCKS, key=lambda block: (resident_warps(arch, registers, block), -block))


def reserved_gb(arch: int, stack: int) -> float:
    """Local memory that the driver sets aside: for as many threads as the SMs could hold, however few do run."""
    return GPUS[arch].sms * LIMITS[arch].warps * WARP * stack / 1e9


def table(rows: Iterable[dict]) -> str:
    lines = []
    for r in rows:
        if r["kernel"] not in SHOWN:
            continue
        arch, registers, gpu = r["arch"], r["registers"], GPUS[r["arch"]]
        threads = resident_threads(arch, registers)
        shares = [f"{100 * occupancy(arch, registers, block):.3g} %" for block in BLOCKS]
        taken = threads * r["stack"] / 1e9
        lines.append([
            r["kernel"], r["name"], r["dtype"], f"sm_{arch}", *shares, best_block(arch, registers), gpu.name, threads,
            f"{taken:.2f}", f"{reserved_gb(arch, r['stack']):.1f} of {gpu.memory}", f"{1000 * taken / gpu.l2:.0f}",
        ])  # fmt: skip
    header = [
        "kernel",
        "model",
        "precision",
        "arch",
        *(f"blocks of {block}" for block in BLOCKS),
        "smallest best block",
        "GPU",
    ]
    header += ["environments at once", "their stacks, GB", "reserved, GB", "stacks / L2 cache"]
    return machine.table(header, lines)


def summary(rows: Iterable[dict]) -> str:
    shown = [r for r in rows if r["kernel"] in SHOWN]
    less = [r for r in shown if _warps(r, LAUNCHED) < _warps(r, best_block(r["arch"], r["registers"]))]
    full = [r for r in shown if reserved_gb(r["arch"], r["stack"]) > GPUS[r["arch"]].memory]
    text = (
        f"Computed, not measured, from registers and published limits. Kernels are launched in blocks of {LAUNCHED}: "
    )
    if less:
        names = ", ".join(f"{_name(r)}: {best_block(r['arch'], r['registers'])}" for r in less)
        text += f"another block would hold more threads in {len(less)} of {len(shown)} cases ({names}). "
    else:
        text += f"no other block size holds more threads in any of the {len(shown)} cases. "
    text += (
        "At once run the environments whose registers fit; a larger batch runs in waves. CUDA reserves a stack for "
        "every thread that an SM could hold, not only for those whose registers fit: "
    )
    if full:
        text += f"more than the GPU has for {', '.join(map(_name, full))}, which we do not expect to launch there."
    else:
        text += "that fits into the memory of each of these GPUs."
    return text


def _warps(r: dict, block: int) -> int:
    return resident_warps(r["arch"], r["registers"], block)


def _name(r: dict) -> str:
    return f"{r['kernel']} of {r['name']} in {r['dtype']} on sm_{r['arch']}"


def plot(results: dict, figure) -> None:
    """Occupancy against the block, and the stacks."""
    left, right = figure.subplots(1, 2)
    styles = {80: "o-", 86: "s-", 90: "x--", 120: "+--"}  # some coincide
    for r in results["rows"]:
        if (r["kernel"], r["name"], r["dtype"]) == ("rollout", "laikago_feet", "float32"):
            shares = [100 * occupancy(r["arch"], r["registers"], b) for b in BLOCKS]
            label = f"sm_{r['arch']}, {r['registers']} registers"
            left.plot(BLOCKS, shares, styles[r["arch"]], markersize=9, label=label)
    left.set(xlabel="threads per block", ylabel="occupancy, % (computed)", title="rollout, laikago_feet, float32")
    left.set_xscale("log", base=2)
    left.set_ylim(0, None)
    rows = [r for r in results["rows"] if r["arch"] == 90]
    right.barh([f"{r['kernel']}, {r['name']}, {r['dtype']}" for r in rows], [r["stack"] / 1024 for r in rows])
    right.set(xlabel="stack per thread, KB", title="sm_90")
    right.tick_params(axis="y", labelsize=7)
    right.invert_yaxis()
