"""Tables 1 to 3 of the paper: time and memory of a gradient through one robot, ours against automatic differentiation.

    python benchmarks/autodiff/autodiff.py                 all methods and horizons, about 25 minutes
    python benchmarks/autodiff/autodiff.py --quick         short horizons, without the slowest methods
    python benchmarks/autodiff/autodiff.py --methods ours ADOL-C --steps 100 1000

One Laikago on four feet (laikago_feet), dt 1 ms, 50 sweeps of projected Gauss-Seidel, double precision, random
controls about its rest. The loss is a weighted sum of the last state; it is differentiated by the first state and by
the control of every step. Every method runs in its own process. It is timed only if its last state agrees with ours to
1e-6 and its gradient to 1e-4 (single precision: 1e-3 and 1e-2).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

from autodiff import cpp_drivers, methods
from autodiff.methods import DT, ITERATIONS, SCENE, Problem
from lib import machine, reporting

STEPS, QUICK_STEPS = (50, 100, 500, 1000, 5000), (50, 500)
CPP = ("C++ doubles", "CppAD", "ADOL-C", "Ceres jets")
METHODS = ("ours", "ours sqrt", "ours float32", "Warp tape", *CPP, "jax", "jax checkpoint", "torch")
COMPILED = {"ours", "ours float32", "Warp tape"}  # whose kernels Warp compiles; "ours sqrt" has those of "ours"
NOT_QUICK = {"jax checkpoint", "torch"}
ONCE_IF_QUICK = "jax"  # compiles for a minute at every horizon
FASTER, SMALLER = 10, 100  # the goals
MEMORY_GB, START_GB = 16, 12  # what a run may take, and the forecast above which it is not started
KINDS = {
    "memory": ("memory_mb", "Memory beyond the process, MB (ADOL-C: with the files that its tape goes to)"),
    "forward": ("forward_ms", "Forward, ms per step"),
    "backward": ("backward_ms", "Backward, ms per step"),
}
ADF = "ADF (autodiff), which the paper also lists, is in no registry that we can install from."


# -- running


def prepare(methods: Iterable[str], folder: Path) -> dict[str, str]:
    """Compile kernels and C++ programs; for those that are not available, the reason.

    A process that has compiled holds free memory, which would hide what it allocates later.
    """

    def one(method: str) -> str:
        if method not in CPP:
            return run(method, 1, folder, 900, name=f"{method}.bin")[0].get("refused", "")
        try:
            cpp_drivers.program(method)
        except cpp_drivers.Missing as error:
            return str(error)
        return ""

    wanted = sorted((COMPILED | set(CPP)).intersection(methods))
    with ThreadPoolExecutor(machine.cores()) as pool:
        return {method: why for method, why in zip(wanted, pool.map(one, wanted)) if why}


def run(
    method: str, steps: int, folder: Path, seconds: float, robots: int = 1, name: str = "gradient.bin"
) -> tuple[dict, np.ndarray | None]:
    """Figures of one method, and its last states and gradient; or the reason why there are none."""
    output = folder / name
    for old in [output, *folder.glob("ADOLC-*")]:
        old.unlink(missing_ok=True)
    if method in CPP:
        command = [cpp_drivers.program(method), folder / "model", steps, output, robots]
    else:
        command = [sys.executable, methods.__file__, method, steps, output, robots]
    pipe = subprocess.PIPE
    # a shell sets the limit before the program starts, which may allocate all of its memory at once
    limited = ["sh", "-c", f'ulimit -v {MEMORY_GB * 2**20} && exec "$@"', "sh", *map(str, command)]
    with subprocess.Popen(limited, stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"refused": f"takes more than {seconds:.0f} s"}, None
    if process.returncode != 0 or not out.strip():
        return {"refused": failure(errors)}, None
    return json.loads(out.strip().splitlines()[-1]), np.fromfile(output)


def failure(errors: str) -> str:
    """The reason, from what a program wrote to stderr."""
    if any(word in errors for word in ("bad_alloc", "MemoryError", "Out of memory", "allocate memory")):
        return f"takes more than {MEMORY_GB} GB"
    return (errors.strip().splitlines() or ["it was killed, as when memory ends"])[-1].strip().rstrip(".")


def forecast(method: str, work: int, rows: list[dict], seconds: float) -> str:
    """Why `work` steps times robots are not to be started, seen from the same method's longest run; or empty."""
    known = [r for r in rows if r["method"] == method]
    late = [r["refused"] for r in known if "more than" in r.get("refused", "")]
    if late:
        return late[-1]
    known = [r for r in known if "refused" not in r]
    if not known:
        return ""
    last = max(known, key=lambda r: r["steps"] * r["robots"])
    gb = 1e-3 * last["memory_mb"] * work / (last["steps"] * last["robots"])
    wait = 1e-3 * (last["forward_ms"] + last["backward_ms"]) * work / last["robots"]
    if gb > START_GB:
        return f"would take about {gb:.0f} GB; not started beyond {START_GB} GB"
    if wait > seconds:
        return f"would take about {wait:.0f} s; not started beyond {seconds:.0f} s"
    return ""


def compare(figures: dict, found: np.ndarray, ours: np.ndarray, states: int) -> dict:
    """The row of a table; `states`: how many numbers of `found` and `ours` are last states, the rest is gradient."""
    row = dict(figures)
    single = "float32" in row["method"]
    error = float(np.abs(found[:states] - ours[:states]).max())
    row["state_error"] = error
    if not np.isfinite(found).all():
        return row | {"refused": "a state or a gradient is not finite"}
    if error > (1e-3 if single else 1e-6):
        return row | {"refused": f"its last state differs from ours by {error:.1e}"}
    if len(found) > states:
        # single precision: of all robots together, since one whose foot lifts a step earlier has another gradient
        size = np.linalg.norm if single else (lambda x: np.abs(x).max())
        row["gradient_error"] = float(size(found[states:] - ours[states:]) / size(ours[states:]))
        if row["gradient_error"] > (1e-2 if single else 1e-4):
            return row | {"refused": f"its gradient differs from ours by {row['gradient_error']:.1e}"}
    row["forward_ms"], row["backward_ms"] = (1e3 * row.pop(k) / row["steps"] for k in ("forward_s", "backward_s"))
    row["memory_mb"] = row["peak_mb"] - row["before_mb"] + row.get("disk_mb", 0.0)
    return row


def measure(methods: list[str], horizons: list[int], seconds: float, quick: bool = False) -> list[dict]:
    problem = Problem()
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem.write(folder / "model")
        machine.progress("compiling kernels and C++ programs")
        missing = prepare({"ours", *methods}, folder)
        for steps in horizons:
            own, ours = run("ours", steps, folder, 600)
            if ours is None or not np.isfinite(ours).all():
                raise SystemExit(f"our own simulator did not run: {own.get('refused', 'its states are not finite')}.")
            for method in methods:
                machine.progress(f"{method}, {steps} steps")
                row = {"method": method, "steps": steps, "robots": 1}
                why = missing.get(method) or forecast(method, steps, rows, seconds)
                if quick and method == ONCE_IF_QUICK and steps > horizons[0]:
                    why = "left out of quick runs"
                figures, found = ({"refused": why}, None) if why else (own, ours)
                if not why and method != "ours":
                    figures, found = run(method, steps, folder, seconds)
                row |= figures
                rows.append(row if found is None else compare(row, found, ours, len(problem.state)))
    return rows


# -- reporting


def goals(rows: list[dict]) -> dict:
    """Ours and the best autodiffs at the longest horizon: by whole gradient, by backward pass, by memory."""
    steps = max(r["steps"] for r in rows)
    here = {r["method"]: r for r in rows if r["steps"] == steps and "refused" not in r}
    others = [r for m, r in here.items() if not m.startswith("ours") and m != "C++ doubles"]
    if "ours" not in here or not others:
        return {}
    reverse = [r for r in others if r["method"] != "Ceres jets"]  # which do their work forward
    return {
        "steps": steps,
        "ours": here["ours"],
        "sqrt": here.get("ours sqrt"),
        "fastest": min(others, key=whole),
        "fastest_backward": min(reverse, key=lambda r: r["backward_ms"], default=None),
        "others": others,
    }


def whole(row: dict) -> float:
    """Milliseconds of a step's gradient."""
    return row["forward_ms"] + row["backward_ms"]


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def times(a: float, b: float) -> str:
    return f"{digits(a / max(b, 1e-9))} times"


def verdict(ratio: float, goal: float) -> str:
    return f"goal {goal}: {'met' if ratio >= goal else 'not met'}"


def summary(rows: list[dict]) -> str:
    best = goals(rows)
    if not best:
        return "Ours and an automatic differentiation were not both measured at the longest horizon."
    ours, fast, back, steps = best["ours"], best["fastest"], best["fastest_backward"], best["steps"]
    name = fast["method"]
    lines = [
        f"The fastest automatic differentiation of {steps:,} steps, forward and backward together, is {name}: "
        f"{whole(fast):.3g} ms per step; ours takes {whole(ours):.3g} ms, one in "
        f"{digits(whole(fast) / whole(ours))}."
    ]
    ratio = fast["backward_ms"] / ours["backward_ms"]
    lines.append(
        f"Backward alone, {name} takes {fast['backward_ms']:.3g} ms per step and ours {ours['backward_ms']:.3g} ms: "
        f"{times(fast['backward_ms'], ours['backward_ms'])} as much ({verdict(ratio, FASTER)})."
        + (" Jets do their work forward and keep a Jacobian of every step, which the backward pass only multiplies."
           if name == "Ceres jets" else "")
    )  # fmt: skip
    if back and back is not fast:
        ratio = back["backward_ms"] / ours["backward_ms"]
        lines.append(
            f"Of those that differentiate backward, {back['method']} has the fastest backward pass, "
            f"{back['backward_ms']:.3g} ms: {times(back['backward_ms'], ours['backward_ms'])} as much as ours "
            f"({verdict(ratio, FASTER)})."
        )
    lines.append(memory_summary(best))
    return "\n".join(f"- {line}" for line in lines)


def memory_summary(best: dict) -> str:
    ours, fast, kept = best["ours"], best["fastest"], best["sqrt"]
    text = (
        f"Memory of {best['steps']:,} steps: ours {ours['memory_mb']:.3g} MB, {fast['method']} "
        f"{digits(fast['memory_mb'])} MB, {times(fast['memory_mb'], ours['memory_mb'])} as much "
        f"({verdict(fast['memory_mb'] / max(ours['memory_mb'], 1e-9), SMALLER)})"
    )
    if kept:
        text += (
            f'; with checkpoint_every="sqrt", ours takes {kept["memory_mb"]:.3g} MB and {whole(kept):.3g} ms per step, '
            f"and {fast['method']} {times(fast['memory_mb'], kept['memory_mb'])} as much memory "
            f"({verdict(fast['memory_mb'] / max(kept['memory_mb'], 1e-9), SMALLER)})"
        )
    rest = [r for r in best["others"] if r is not fast]
    parts = [f"{r['method']} {times(r['memory_mb'], ours['memory_mb'])}" for r in rest]
    return text + (f". As much as ours without checkpoints: {', '.join(parts)}." if parts else ".")


def reasons(rows: list[dict]) -> str:
    """Why cells are empty, a line for every method and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "refused" in row:
            found.setdefault((row["method"], row["refused"]), []).append(f"{row['steps']:,}")
    lines = [f"{method}, {', '.join(steps)} steps: {why}." for (method, why), steps in found.items()]
    return "\n".join(f"- {line}" for line in [*lines, ADF])


def short_table(rows: list[dict]) -> str:
    """The longest horizon that a method was measured at, in one line."""
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows):
        done = [r for r in rows if r["method"] == method and "refused" not in r]
        if done and method != "C++ doubles":
            row = max(done, key=lambda r: r["steps"])
            lines.append([method, row["steps"], *(row[key] for key in ("memory_mb", "forward_ms", "backward_ms"))])
    return machine.table(["method", "steps", "memory MB", "forward ms per step", "backward ms per step"], lines)


def report(results: dict) -> dict[str, str]:
    rows = results["rows"]
    horizons = sorted({r["steps"] for r in rows})
    parts = {}
    for name, (key, title) in KINDS.items():
        lines = []
        for method in dict.fromkeys(r["method"] for r in rows):
            if method == "C++ doubles" and name == "backward":
                continue
            cells = {r["steps"]: r.get(key, "-") for r in rows if r["method"] == method}
            lines.append([method, *(cells.get(n, "-") for n in horizons)])
        parts[name] = f"{title}\n\n" + machine.table(["method", *(f"{n:,} steps" for n in horizons)], lines)
    return parts | {"reasons": reasons(rows), "short": short_table(rows), "summary": summary(rows)}


def plot(results: dict, figure) -> None:
    rows = [r for r in results["rows"] if "refused" not in r]
    for axes, (name, (key, title)) in zip(figure.subplots(1, 3), KINDS.items()):
        for k, method in enumerate(dict.fromkeys(r["method"] for r in rows)):
            least = 4e-3 if name == "memory" else 0.0  # MB, one page: the resolution of the measurement
            line = [(r["steps"], max(r[key], least)) for r in rows if r["method"] == method]
            if any(y > 0 for _, y in line):
                style = "o-" if method.startswith("ours") else "s--"
                axes.plot(*zip(*line), style, color=f"C{k}" if k < 10 else "black", markersize=4, label=method)
        axes.set(xscale="log", yscale="log", xlabel="steps", ylabel=title.split(" (")[0], title=name)


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", nargs="+", type=int)
    parser.add_argument("--seconds", type=float, default=420.0, help="for each run (%(default)s)")
    options = parser.parse_args(arguments)
    methods = [m for m in options.methods if not (options.quick and m in NOT_QUICK)]
    horizons = sorted(options.steps or (QUICK_STEPS if options.quick else STEPS))
    with reporting.quiet():
        results = reporting.begin(options) | {"scene": SCENE, "dt": DT, "iterations": ITERATIONS}
        results["rows"] = measure(methods, horizons, options.seconds, options.quick)
    return reporting.finish("autodiff", options, results, report, plot)


if __name__ == "__main__":
    main()
