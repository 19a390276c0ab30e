"""An estimate, not a measurement, of steps per second on GPUs: work of a step against what the hardware can do at most.

Operations and memory accesses are counted in the C++ step of autodiff/cpp (same mathematics as the kernels), which runs
with a number type that counts. The estimate is an interval: working memory costs nothing, or every access to it goes to
the GPU's main memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from autodiff import cpp_drivers
from autodiff.methods import SCENE, Problem
from gpu import occupancy
from gpu.occupancy import GPUS
from lib import machine

SWEEPS = (7, 50)  # of the contact solver: what a standing Laikago takes in throughput.py, and the most it may take
SETTLE = 200  # steps
FEET = 4
BYTES = {"float32": 4, "float64": 8}
# Instructions per operation; CUDA's routines without fast math take about as many.
WEIGHTS = {"adds": 1, "multiplies": 1, "divisions": 8, "roots": 8, "sines": 16}
MARK = "**Estimate, not measured.**"
ESTIMATE = "estimated steps/s (not measured)"


def count_work() -> dict:
    """Operations and accesses per step of laikago_feet, by sweeps; or {"refused": why}."""
    if shutil.which("g++") is None:
        return {"refused": "The work of a step was not counted: there is no g++; apt-get install g++."}
    problem = Problem()
    problem.control = problem.model.u0[None]  # stands still
    model = problem.model
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem.write(folder / "model")
        source = cpp_drivers.SOURCES / "count.cpp"
        command = ["g++", "-O1", "-std=c++17", str(source), "-o", str(folder / "count")]
        built = subprocess.run(command, capture_output=True, text=True)
        if built.returncode != 0:
            return {"refused": "The work of a step was not counted: cpp/count.cpp does not compile here."}
        rows = []
        for sweeps in SWEEPS:
            command = [str(folder / "count"), str(folder / "model"), str(sweeps), str(SETTLE)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append({"sweeps": sweeps, **json.loads(done.stdout)})
    feet = touching(rows)
    if feet != FEET or abs(rows[-1]["height"] - model.q0[2]) > 0.05:
        return {"refused": f"The work of a step was not counted: the robot stands on {feet} feet, not on {FEET}."}
    # what a rollout moves per step: state and control in, state out
    return {"scene": SCENE, "rows": rows, "state_numbers": 2 * (model.nq + model.nv) + model.nu}


def touching(rows: list[dict]) -> int | None:
    """Contacts, from the multiplications of one sweep: 9 n^2 for the rows, and 6 (sticks) to 8 (slides) per contact."""
    low, high = rows[0], rows[-1]
    sweep = (high["multiplies"] - low["multiplies"]) / (high["sweeps"] - low["sweeps"])
    return next((n for n in range(9) if 9 * n * n + 6 * n <= sweep <= 9 * n * n + 8 * n), None)


def operations(row: dict) -> float:
    return sum(weight * row[key] for key, weight in WEIGHTS.items())


def bounds(arch: int, dtype: str, row: dict, state_numbers: int) -> tuple[float, float]:
    """Lower and upper estimate of steps per second."""
    gpu, size = GPUS[arch], BYTES[dtype]
    compute = gpu.peak(dtype) / operations(row)
    state, working = state_numbers * size, (row["reads"] + row["writes"]) * size
    bandwidth = 1e9 * gpu.bandwidth
    return min(compute, bandwidth / (state + working)), min(compute, bandwidth / state)


def table(work: dict) -> str:
    lines = []
    for arch, gpu in GPUS.items():
        for dtype, size in BYTES.items():
            for row in work["rows"]:
                low, high = bounds(arch, dtype, row, work["state_numbers"])
                moved = size * (row["reads"] + row["writes"]) / 1000
                lines.append([
                    gpu.name, dtype, row["sweeps"], operations(row), f"{moved:.0f}",
                    f"{gpu.peak(dtype) / 1e12:.3g}", f"{gpu.bandwidth:,.0f}", f"{low:.2g} to {high:.2g}",
                ])  # fmt: skip
    header = ["GPU", "precision", "sweeps", "operations", "KB of accesses", "peak Top/s", "GB/s", ESTIMATE]
    return machine.table(header, lines)


def assumptions(rows: list[dict], work: dict) -> str:
    feet = [r for r in rows if r["kernel"] == "rollout" and r["name"] == work["scene"]]
    times = [_stacks_over_cache(r) for r in feet]
    text = (
        f"{MARK} One {work['scene']} on {FEET} feet; forward only, and a batch that fills the GPU. Operations and "
        "accesses per step are counted in benchmarks/autodiff/cpp/step.hpp, which has the kernels' mathematics but not "
        f"their padding. A division or root counts as {WEIGHTS['divisions']} operations, a sine as {WEIGHTS['sines']}; "
        "peaks are the published ones, of fused multiply-adds at boost clock. Upper: the arithmetic runs at that peak "
        f"and working memory costs nothing; only {work['state_numbers']} numbers of state and control per step come "
        "from main memory. Lower: every use of a named number reads main memory, every assignment writes it, at "
        "published bandwidth. Not in it: the latency that few resident warps cannot hide, warps whose environments "
        "need different numbers of sweeps, launches, anything outside the kernel. A GPU could stay below the lower "
        "estimate."
    )
    if times:
        text += (
            f" The stacks of the environments that run at once are {min(times):.0f} to {max(times):.0f} times the L2 "
            "cache, so we expect it nearer to the lower one."
        )
    return text


def _stacks_over_cache(r: dict) -> float:
    return occupancy.resident_threads(r["arch"], r["registers"]) * r["stack"] / (1e6 * GPUS[r["arch"]].l2)


def report(rows: list[dict], work: dict) -> dict[str, str]:
    """The fragments "roofline" and, for the notes, its assumptions."""
    if "refused" in work:
        return {"roofline": work["refused"], "assumptions": work["refused"]}
    return {"roofline": f"{MARK}\n\n{table(work)}", "assumptions": assumptions(rows, work)}


def plot(results: dict, figure) -> None:
    """Occupancy against the block, and the estimates' intervals."""
    left, right = figure.subplots(1, 2)
    styles = {80: "o-", 86: "s-", 90: "x--", 120: "+--"}  # some coincide
    for r in results["rows"]:
        if (r["kernel"], r["name"], r["dtype"]) == ("rollout", "laikago_feet", "float32"):
            shares = [100 * occupancy.occupancy(r["arch"], r["registers"], b) for b in occupancy.BLOCKS]
            style, label = styles[r["arch"]], f"sm_{r['arch']}, {r['registers']} registers"
            left.plot(occupancy.BLOCKS, shares, style, markersize=9, label=label)
    left.set(xlabel="threads per block", ylabel="occupancy, % (computed)", title="rollout, laikago_feet, float32")
    left.set_xscale("log", base=2)
    left.set_ylim(0, None)
    work = results["work"]
    right.set(xlabel=ESTIMATE, title="Estimate, not measured")
    if "refused" in work:
        return
    labels: list[str] = []
    for arch, gpu in GPUS.items():
        for dtype, color in (("float32", "C0"), ("float64", "C1")):
            for row, width in zip(work["rows"], (6, 2)):
                label = f"{dtype}, {row['sweeps']} sweeps" if not labels or arch == next(iter(GPUS)) else None
                ends = bounds(arch, dtype, row, work["state_numbers"])
                right.plot(ends, [len(labels)] * 2, color=color, linewidth=width, label=label)
                labels.append(gpu.name if dtype == "float32" and width == 6 else "")
    right.set_yticks(range(len(labels)), labels)
    right.invert_yaxis()
    right.set_xscale("log")
