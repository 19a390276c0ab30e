"""Figure 3 of the paper, ten robots, and beyond: memory and time of a gradient through 10, 100 and 1000 robots at once.

    python benchmarks/autodiff/crowd.py              1000, 2000 and 5000 steps, about 12 minutes
    python benchmarks/autodiff/crowd.py --quick      200 steps of 10 and 100 robots

The problem of autodiff.py for many Laikagos, which do not touch each other: every robot has its own controls, the
loss is the sum over the robots. Automatic differentiation has them all on one tape. A run of it is not started if a
smaller one shows that it would take too long or too much memory. Every row is checked as in autodiff.py: states to 1e-6
and gradients to 1e-4 of ours in double precision (single: 1e-3, and 1e-2 of the norm of all).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

from autodiff.autodiff import compare, digits, forecast, prepare, run, times, whole
from autodiff.methods import DT, ITERATIONS, SCENE, Problem
from lib import machine, reporting

ROBOTS, QUICK_ROBOTS = (10, 100, 1000), (10, 100)
STEPS, QUICK_STEPS = (1000, 2000, 5000), (200,)
PROBE = 100  # steps of one robot, from which the first forecast is made
TAPES = ("Warp tape", "Ceres jets", "CppAD", "ADOL-C")  # the fastest of autodiff.py
OURS_SECONDS = 900.0


def own_methods(robots: int, steps: int, horizons: list[int]) -> list[str]:
    """All cores, both precisions; one thread, as the tapes have, where these run; checkpoints where states are many."""
    methods = ["ours", "ours float32"]
    if robots <= 100 and steps == horizons[0]:
        methods.append("ours one thread")
    if steps == horizons[-1] and steps >= 1000:
        methods.append("ours sqrt")
    return methods


def cell(
    methods: list[str], robots: int, steps: int, folder: Path, rows: list[dict], missing: dict, limit: float
) -> None:
    """Rows of one number of robots and steps, added to `rows`, from which forecasts are made."""
    problem = Problem(robots)
    problem.write(folder / "model")
    states = robots * len(problem.state)
    own, ours = run("ours", steps, folder, OURS_SECONDS, robots)
    if ours is None or not np.isfinite(ours).all():
        raise SystemExit(f"our own simulator did not run: {own.get('refused', 'its states are not finite')}.")
    for method in methods:
        machine.progress(f"{method}, {robots} robots, {steps} steps")
        row = {"method": method, "robots": robots, "steps": steps}
        is_ours = method.startswith("ours")
        why = missing.get(method) or ("" if is_ours else forecast(method, robots * steps, rows, limit))
        figures, found = ({"refused": why}, None) if why else (own, ours)
        if not why and method != "ours":
            seconds = OURS_SECONDS if is_ours else 2 * limit  # a forecast may be slightly off
            figures, found = run(method, steps, folder, seconds, robots)
        row |= figures
        rows.append(row if found is None else compare(row, found, ours, states))


def measure(robots: list[int], horizons: list[int], tapes: list[str], limit: float) -> list[dict]:
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine.progress("compiling kernels and C++ programs")
        missing = prepare({"ours", "ours float32", *tapes}, folder)
        cell(list(tapes), 1, PROBE, folder, rows, missing, limit)
        for count in robots:
            for steps in horizons:
                cell([*own_methods(count, steps, horizons), *tapes], count, steps, folder, rows, missing, limit)
    return [r for r in rows if r["robots"] > 1]


# -- reporting


def cost(row: dict) -> str:
    """Microseconds per robot and step, forward + backward."""
    if "refused" in row:
        return "-"
    return " + ".join(digits(1e3 * row[key] / row["robots"]) for key in ("forward_ms", "backward_ms"))


def table(rows: list[dict]) -> str:
    horizons = sorted({r["steps"] for r in rows})
    lines = []
    for robots, method in dict.fromkeys((r["robots"], r["method"]) for r in rows):
        line = {r["steps"]: r for r in rows if (r["robots"], r["method"]) == (robots, method)}
        if all("refused" in r for r in line.values()):
            continue  # its reason is below the table
        memory = [line[n].get("memory_mb", "-") if n in line else "" for n in horizons]
        lines.append([robots, method, *memory, *(cost(line[n]) if n in line else "" for n in horizons)])
    header = ["robots", "method", *(f"MB, {n:,} steps" for n in horizons)]
    header += [f"us, {n:,} steps" for n in horizons]
    title = "Memory, and microseconds per robot and step (forward + backward)."
    return f"{title}\n\n{machine.table(header, lines)}\n\n{reasons(rows)}".rstrip()


def reasons(rows: list[dict]) -> str:
    """Why cells are empty: for each method the smallest case that was not run; larger ones take more."""
    lines = []
    for method in dict.fromkeys(r["method"] for r in rows):
        refused = [r for r in rows if r["method"] == method and "refused" in r]
        if refused:
            least = min(refused, key=lambda r: r["robots"] * r["steps"])
            more = f"; nor were {len(refused) - 1} larger cases" if len(refused) > 1 else ""
            lines.append(f"- {method}. {least['robots']:,} robots, {least['steps']:,} steps: {least['refused']}{more}.")
    return "\n".join(lines)


def fastest(rows: list[dict]) -> dict | None:
    """The row of the fastest autodiff with the most steps times robots, of equal ones the fastest."""
    tapes = [r for r in rows if not r["method"].startswith("ours") and "refused" not in r]
    return min(tapes, key=lambda r: (-r["steps"] * r["robots"], whole(r)), default=None)


def pick(rows: list[dict], method: str, robots: int, steps: int) -> dict | None:
    found = [r for r in rows if (r["method"], r["robots"], r["steps"]) == (method, robots, steps)]
    return found[0] if found and "refused" not in found[0] else None


def summary(rows: list[dict]) -> str:
    lines = []
    for robots in sorted({r["robots"] for r in rows}):
        lines += against(rows, robots)
    own = [r for r in rows if r["method"] == "ours" and "refused" not in r]
    last = max(own, key=lambda r: r["robots"] * r["steps"])
    robots, steps = last["robots"], last["steps"]
    seconds = 1e-3 * whole(last) * steps
    lines.append(f"A gradient through {robots:,} robots and {steps:,} steps takes ours {last['memory_mb']:,.0f} MB and "
                 f"{seconds:.3g} s, {cost(last)} us per robot and step (forward + backward).")  # fmt: skip
    for method, words in (("ours float32", "In single precision"), ("ours sqrt", "With checkpoints (sqrt)")):
        other = pick(rows, method, robots, steps)
        if other:
            lines.append(f"{words}: {other['memory_mb']:,.0f} MB and {1e-3 * whole(other) * steps:.3g} s.")
    return "\n".join(f"- {line}" for line in lines)


def against(rows: list[dict], robots: int) -> list[str]:
    """Ours and the fastest autodiff with this many robots."""
    here = [r for r in rows if r["robots"] == robots]
    peer = fastest(here)
    if peer is None:
        return [f"No automatic differentiation could be run with {robots:,} robots (see the table)."]
    steps, ours = peer["steps"], pick(here, "ours", robots, peer["steps"])
    if ours is None:
        return []
    single = pick(here, "ours one thread", robots, steps)
    text = (
        f"{robots:,} robots, {steps:,} steps: the fastest automatic differentiation that could be run, "
        f"{peer['method']}, takes {times(whole(peer), whole(ours))} as long as ours"
    )
    if single:
        text += f" ({times(whole(peer), whole(single))} as long as ours on one thread)"
    return [
        f"{text}, backward alone {times(peer['backward_ms'], ours['backward_ms'])}, "
        f"and {times(peer['memory_mb'], ours['memory_mb'])} the memory ({digits(peer['memory_mb'])} and "
        f"{digits(ours['memory_mb'])} MB)."
    ]


def report(results: dict) -> dict[str, str]:
    return {"table": table(results["rows"]), "summary": summary(results["rows"])}


def plot(results: dict, figure) -> None:
    """Memory and time of the whole gradient against robots times steps: all that differs between the cells."""
    rows = [r for r in results["rows"] if "refused" not in r]
    memory, duration = figure.subplots(1, 2)
    for k, method in enumerate(dict.fromkeys(r["method"] for r in rows)):
        line = sorted((r["robots"] * r["steps"], r["memory_mb"], whole(r) * r["steps"] / 1e3)
                      for r in rows if r["method"] == method)  # fmt: skip
        work, mb, seconds = zip(*line)
        style = "o-" if method.startswith("ours") else "s--"
        memory.plot(work, mb, style, color=f"C{k}", markersize=4, label=method)
        duration.plot(work, seconds, style, color=f"C{k}", markersize=4, label=method)
    memory.set(xscale="log", yscale="log", xlabel="robots x steps", ylabel="MB", title="memory")
    duration.set(xscale="log", yscale="log", xlabel="robots x steps", ylabel="seconds", title="whole gradient")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--robots", nargs="+", type=int)
    parser.add_argument("--steps", nargs="+", type=int)
    parser.add_argument("--tapes", nargs="*", choices=TAPES, default=list(TAPES), help="automatic differentiation")
    parser.add_argument("--seconds", type=float, help="of automatic differentiation; longer runs are not started")
    options = parser.parse_args(arguments)
    robots = sorted(options.robots or (QUICK_ROBOTS if options.quick else ROBOTS))
    horizons = sorted(options.steps or (QUICK_STEPS if options.quick else STEPS))
    limit = options.seconds or (10.0 if options.quick else 100.0)
    with reporting.quiet():
        results = reporting.begin(options) | {"scene": SCENE, "dt": DT, "iterations": ITERATIONS}
        results["rows"] = measure(robots, horizons, options.tapes, limit)
    return reporting.finish("crowd", options, results, report, plot)


if __name__ == "__main__":
    main()
