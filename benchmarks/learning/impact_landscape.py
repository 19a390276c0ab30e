"""Throw and golf by plain gradient descent, with contacts that begin with a step and with steps that impacts interrupt.

    python benchmarks/learning/impact_landscape.py          # some minutes; writes results/impact_landscape.json
    python benchmarks/learning/impact_landscape.py --quick  # fewer starts and points

Two things are measured with both values of Simulator(contact_time=...): in how many iterations the descent reaches the
goal of the examples, and the loss along the line from zero torques through a solution.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch

from lib import machine, reporting
from lib.machine import progress, table

PICTURE = machine.ROOT / "docs" / "images" / "impact_landscape.png"
MODES = {"step": "C1", "impact": "C0"}
SCENES = {"throw": "panda_throw", "golf": "golf"}
ITERATIONS = {"throw": 20, "golf": 50}  # of the paper
STARTS = 17  # the first without noise
FIXED = (500.0, 1000.0, 2000.0, 3000.0, 3500.0, 4000.0, 5000.0, 6000.0, 8000.0, 10000.0)  # step sizes
LINE = (-0.2, 1.5)  # 0: zero torques, 1: the solution
CLOSE = (0.95, 1.05)  # the same near the solution
WINDOW = 0.03  # of the line, over which its slope is measured by a difference
STARTING = {"throw": ("zero torques", "wrist left limp", "wrist carried"), "golf": ("zero torques",)}
WRIST = "joint6"  # falls into its limit if nothing carries it


def begin_at(name: str, start: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Torques (size,) that a descent starts from, and 1 for those that it may change, 0 for the others."""
    import warp_articulated as wa

    model, task = wa.load(SCENES[name]), importlib.import_module(name)
    u = torch.zeros(task.STEPS, model.nu, dtype=torch.float64)
    free = torch.ones_like(u)
    if start == "wrist carried":
        wrist = model.drive_names.index(WRIST)
        u[:, wrist] = float(model.u0[wrist])
    elif start == "wrist left limp":
        free[:, model.drive_names.index(WRIST)] = 0.0
    return u.flatten(), free.flatten()


def descents(name: str, quick: bool) -> tuple[list[dict], torch.Tensor]:
    """Rows of the table, and the solution found from zero torques with "impact"."""
    toolbox, task = (importlib.import_module(module) for module in ("toolbox", name))
    iterations, rows = ITERATIONS[name], []
    solution = torch.zeros(0)
    for start in STARTING[name]:
        first, free = begin_at(name, start)
        for mode in MODES:
            misses = partial(_held, partial(task.misses, contact_time=mode), free)
            progress(f"{name} from {start}, {mode}")
            polyak = toolbox.gradient_descent(misses, toolbox.perturbed(first, 2 if quick else STARTS), iterations)
            sizes = FIXED[3:5] if quick else FIXED
            step = torch.tensor(sizes, dtype=torch.float64)[:, None]
            fixed = toolbox.gradient_descent(misses, first.repeat(len(sizes), 1), iterations, step=step)
            rows.append({"start": start, "mode": mode, "polyak": _curves(polyak), "fixed": _curves(fixed)})
            rows[-1]["sizes"] = sizes
            if mode == "impact" and start == "zero torques":
                solution = polyak[0].best
    return rows, solution


def _held(misses: Callable, free: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Misses with only the free torques; the others are zero."""
    return misses(x * free)


def _curves(curves: list) -> list[list[float]]:
    """Best distances so far, m, after each iteration."""
    return [_rounded(curve.losses) for curve in curves]


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def landscape(name: str, solution: torch.Tensor, ends: tuple[float, float], points: int) -> dict:
    """Loss, m, and its slope by the gradient, on the line from zero torques through the solution."""
    task = importlib.import_module(name)
    line = torch.linspace(*ends, points, dtype=torch.float64)
    found: dict = {"line": _rounded(line.tolist())}
    for mode in MODES:
        x = (line[:, None] * solution).requires_grad_()
        loss = task.misses(x, contact_time=mode).norm(dim=1)
        (g,) = torch.autograd.grad(loss.sum(), x)
        found[mode] = {"loss": _rounded(loss.tolist()), "slope": _rounded((g @ solution).tolist())}
    return found


def wrong_way(it: dict, mode: str) -> float:
    """Share of the line where the gradient points uphill, by differences over WINDOW on either side."""
    line, loss, slope = (np.array(values) for values in (it["line"], it[mode]["loss"], it[mode]["slope"]))
    inside = (line > line[0] + WINDOW) & (line < line[-1] - WINDOW)
    rise = np.interp(line + WINDOW, line, loss) - np.interp(line - WINDOW, line, loss)
    return float(np.mean((rise * slope)[inside] < 0))


def tooth(it: dict, mode: str) -> float:
    """Largest jump of the loss between neighbouring points of the line, m, without what the slope explains."""
    line, loss, slope = (np.array(values) for values in (it["line"], it[mode]["loss"], it[mode]["slope"]))
    jump = np.abs(np.diff(loss) - 0.5 * (slope[1:] + slope[:-1]) * np.diff(line))
    lowest = int(np.argmin(loss))  # a kink, not a jump
    return float(np.max(np.delete(jump, [max(lowest - 1, 0), min(lowest, len(jump) - 1)])))


def reached(curve: list[float], goal: float) -> int | None:
    return next((i for i, distance in enumerate(curve) if distance <= goal), None)


def _of_starts(curves: list[list[float]], goal: float) -> str:
    found = [k for curve in curves if (k := reached(curve, goal)) is not None]
    when = f", after {min(found)}" + f" to {max(found)}" * (min(found) < max(found)) if found else ""
    return f"{len(found)} of {len(curves)}{when}"


def _of_sizes(sizes: list[float], curves: list[list[float]], goal: float) -> str:
    found = [(k, size) for size, curve in zip(sizes, curves) if (k := reached(curve, goal)) is not None]
    best = f"; first {min(found)[1]:g}, after {min(found)[0]}" if found else ""
    return f"{len(found)} of {len(curves)}{best}"


def report(results: dict) -> dict[str, str]:
    rows, line = [], []
    for name in SCENES:
        it = results[name]
        goal = it["goal"]
        for row in it["descents"]:
            when = reached(row["polyak"][0], goal)
            rows.append([
                f"{name}, {row['start']}", it["iterations"], f'"{row["mode"]}"',
                "not reached" if when is None else when, f"{1e3 * row['polyak'][0][-1]:.1f}",
                _of_starts(row["polyak"][1:], goal), _of_sizes(row["sizes"], row["fixed"], goal),
            ])  # fmt: skip
        for mode in MODES:
            uphill, jump = wrong_way(it["line"], mode), tooth(it["close"], mode)
            line.append([name, f'"{mode}"', f"{100 * uphill:.0f} %", f"{1e3 * jump:.2g}"])
    heads = ["task and start", "iterations allowed", "contact time", "iterations to 20 mm", "closest, mm",
             "starts with noise that reach it", "fixed step sizes that reach it"]  # fmt: skip
    return {
        "table": table(heads, rows),
        "line": table(
            ["task", "contact time", "gradient points uphill on", "largest jump near the solution, mm"], line
        ),
    }


def plot(results: dict, figure) -> None:
    axes = figure.subplots(1, 3)
    for axis, (name, part) in zip(axes, (("throw", "line"), ("golf", "line"), ("golf", "close"))):
        it = results[name][part]
        for mode, colour in MODES.items():
            axis.plot(it["line"], it[mode]["loss"], colour, label=f'"{mode}"', linewidth=1)
        axis.set(title=name if part == "line" else f"{name}, near the solution", xlabel="torques / solution")
    axes[0].set_ylabel("distance from the target, m")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    options = parser.parse_args(arguments)
    results = reporting.begin(options)
    sys.path.insert(0, str(machine.ROOT / "examples"))
    points = 41 if options.quick else 401
    warnings.filterwarnings("ignore", message=".*diverged")  # steps that are too long end there
    with reporting.quiet():
        for name in SCENES:
            rows, solution = descents(name, options.quick)
            results[name] = {
                "goal": importlib.import_module(name).GOAL,
                "iterations": ITERATIONS[name],
                "descents": rows,
                "line": landscape(name, solution, LINE, points),
                "close": landscape(name, solution, CLOSE, points),
            }
    reporting.finish("impact_landscape", options, results, report)
    file = reporting.path("impact_landscape", options)
    reporting.draw(results, plot, file.with_suffix(".png") if options.quick or options.out else PICTURE)
    return results


if __name__ == "__main__":
    main()
