"""Shared by several examples: Gauss-Newton, gradient descent, CMA-ES on a batch, loss curves, and output files.

A task is a function `misses(x)`: x is (n, size), one candidate per row; the result (n, m) has the deviations of m
quantities from their targets. The loss is the norm of a row. All searches evaluate many candidates as a batch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import warp_articulated as wa
from warp_articulated.progress import Bar

Misses = Callable[[torch.Tensor], torch.Tensor]
OURS = "Gauss-Newton"
DESCENT = "gradient descent"
SEARCHES = {"gauss-newton": OURS, "descent": DESCENT}  # names on the command line and in results


@dataclass
class Curve:
    """The best loss so far and the elapsed seconds, after every iteration."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: torch.Tensor | None = None  # (size,) where the best loss was found
    visited: list[torch.Tensor] = field(default_factory=list)  # (size,) each

    def __post_init__(self):
        self._start = time.perf_counter()

    def add(self, loss: float, x: torch.Tensor) -> None:
        if not self.losses or loss < self.losses[-1]:
            self.best = x.detach().clone()
        self.visited.append(x.detach())
        self.losses.append(min([loss, *self.losses[-1:]]))
        self.seconds.append(time.perf_counter() - self._start)

    def reached(self, loss: float) -> int | None:
        """The first iteration with at most this loss."""
        return next((i for i, value in enumerate(self.losses) if value <= loss), None)


# Step lengths tried by Gauss-Newton
LENGTHS = (1.5, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.01)
GUESSES = 64  # additional candidates if no length helps


def gauss_newton(misses: Misses, x: torch.Tensor, iterations: int, *, seed: int = 0, damping: float = 1e-3) -> Curve:
    """Gauss-Newton from x (size,), with the exact gradients of all m misses.

    The m gradients come from one backward pass over m copies. The step is the shortest that would bring every miss to
    zero if the misses were linear; several step lengths are tried as a batch. With impacts the loss is a sawtooth: an
    impact one time step later changes the result by a little, which no gradient shows. If no length reduces the loss by
    a tenth, random combinations of the m gradients are tried, the only directions that change the misses at all.
    """
    curve, chance = Curve(), torch.Generator().manual_seed(seed)
    m = misses(x[None]).shape[1]
    lengths = torch.tensor(LENGTHS, dtype=x.dtype)[:, None].expand(-1, m)
    with Bar("gradients") as bar:
        for iteration in range(iterations + 1):
            copies = x.repeat(m, 1).requires_grad_()
            r = misses(copies)
            curve.add(float(r[0].detach().norm()), x)
            if iteration == iterations:
                break
            (J,) = torch.autograd.grad(r.diagonal().sum(), copies)  # (m, size)
            JJ, r = J @ J.T, r[0].detach()
            inverse = torch.linalg.inv(JJ + (damping * JJ.trace() / m + 1e-30) * torch.eye(m, dtype=x.dtype))
            for steps in (lengths * r, r.norm() * _guesses(m, chance, x.dtype)):
                candidates = x - steps @ inverse @ J
                with torch.no_grad():
                    found = torch.nan_to_num(misses(candidates).norm(dim=1), nan=torch.inf)
                if found.min() < curve.losses[-1]:
                    x = candidates[found.argmin()]
                if found.min() < 0.9 * curve.losses[-1]:
                    break
            bar(iteration + 1, iterations, f"loss {curve.losses[-1]:.2g}")
    return curve


def gradient_descent(
    misses: Misses, starts: torch.Tensor, iterations: int, *, step: float | torch.Tensor | None = None
) -> list[Curve]:
    """Plain gradient descent on half the squared loss, from each of the starts (n, size) by itself.

    step: factor of the gradient, one or (n, 1). By default Polyak's, loss / |gradient|^2, for a loss whose lowest value
    is known to be zero: there is nothing to tune.
    """
    x, curves = starts, [Curve() for _ in starts]
    with Bar("descent") as bar:
        for iteration in range(iterations + 1):
            x = x.detach().requires_grad_()
            distances = misses(x).norm(dim=1)
            loss = 0.5 * distances**2
            for curve, distance, row in zip(curves, distances.tolist(), x):
                curve.add(distance, row)
            if iteration == iterations:
                break
            (g,) = torch.autograd.grad(loss.sum(), x)
            g = torch.nan_to_num(g, 0.0, 0.0, 0.0)  # the torques are useless if the simulation diverged
            polyak = loss.detach()[:, None] / ((g * g).sum(dim=1, keepdim=True) + 1e-30)
            x = x - (polyak if step is None else step) * g
            bar(iteration + 1, iterations, f"loss {min(curve.losses[-1] for curve in curves):.2g}")
    return curves


def perturbed(start: torch.Tensor, count: int, sigma: float = 0.1) -> torch.Tensor:
    """Starts (count, size) of descents: the first is `start`, the others have noise of N m or N added."""
    chance = torch.Generator().manual_seed(0)
    noise = sigma * torch.randn(count, start.numel(), generator=chance, dtype=start.dtype)
    noise[0] = 0.0
    return start + noise


def _guesses(m: int, chance: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Random factors (GUESSES, m) of either sign, with sizes from 0.01 to 30."""
    sizes, signs = torch.rand(2, GUESSES, m, generator=chance, dtype=dtype)
    return 10.0 ** (3.5 * sizes - 2.0) * torch.sign(signs - 0.5)


def cma_es(
    misses: Misses,
    x: torch.Tensor,
    iterations: int,
    *,
    sigma: float,
    seed: int,
    population: int | None = None,
    seconds: float = float("inf"),
) -> Curve:
    """CMA-ES from x (size,); with a diagonal covariance where a full one would cost more than the simulation."""
    import cma

    options = {"seed": seed + 1, "verbose": -9, "tolfun": 0.0, "tolx": 0.0, "CMA_diagonal": x.numel() > 100}
    if population:
        options["popsize"] = population
    search = cma.CMAEvolutionStrategy(x.tolist(), sigma, options)
    curve = Curve()
    with Bar("CMA-ES") as bar, torch.no_grad():
        curve.add(float(misses(x[None]).norm()), x)
        for iteration in range(iterations):
            candidates = torch.tensor(np.array(search.ask()), dtype=x.dtype)
            values = torch.nan_to_num(misses(candidates).norm(dim=1), nan=1e6)
            search.tell(list(candidates.double().numpy()), values.tolist())
            best = values.argmin()
            curve.add(float(values[best]), candidates[best])
            bar(iteration + 1, iterations, f"loss {curve.losses[-1]:.2g}")
            if curve.seconds[-1] > seconds:
                break
    return curve


def contest(
    misses: Misses, start: torch.Tensor, chosen: argparse.Namespace, folder: Path, *, goal: float, sigma: float
) -> tuple[Curve, dict]:
    """Compare `chosen.search` with CMA-ES, which gets `chosen.more` times the iterations; prints and plots both.

    Seeds of Gauss-Newton are for its random combinations, those of gradient descent for its starts after the first.

    Returns:
        the first curve with gradients, and a summary of all curves; losses are distances in m.
    """
    gauss_newton(misses, start, 1)  # compiles kernels before the timing
    more, mine = 2 if chosen.quick else chosen.more, SEARCHES[chosen.search]
    if mine == DESCENT:
        ours = gradient_descent(misses, perturbed(start, chosen.seeds), chosen.iterations)
    else:
        ours = [gauss_newton(misses, start, chosen.iterations, seed=seed) for seed in range(chosen.seeds)]
    theirs = [cma_es(misses, start, more * chosen.iterations, sigma=sigma, seed=seed) for seed in range(chosen.seeds)]
    draw_curves(folder / "curves.png", {mine: ours, "CMA-ES": theirs}, "distance, m", goal)
    same_time = [at_time(b, a.seconds[-1]) for a, b in zip(ours, theirs)]
    print(f"{1e3 * ours[0].losses[0]:.0f} mm from the target initially; {chosen.seeds} seeds:")
    for name, runs in ((mine, ours), ("CMA-ES", theirs)):
        reached = [run.reached(goal) for run in runs]
        when = ", ".join("never" if k is None else str(k) for k in reached)
        print(
            f"{name}: below {1e3 * goal:g} mm after {when} iterations; {_range([run.losses[-1] for run in runs])} mm "
            f"after {len(runs[0].losses) - 1} iterations and {_mean([run.seconds[-1] for run in runs]):.1f} s."
        )
    print(f"CMA-ES in the time of {mine}: {_range(same_time)} mm.")
    return ours[0], {
        "goal": goal,
        "runs": {mine: [as_dict(run, goal) for run in ours], "CMA-ES": [as_dict(run, goal) for run in theirs]},
        "cma_same_time": same_time,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _range(values: Sequence[float]) -> str:
    """Smallest and largest value, in mm."""
    return f"{1e3 * min(values):.3g} to {1e3 * max(values):.3g}"


def as_dict(curve: Curve, goal: float) -> dict:
    """A curve as an entry of the summary."""
    reached = curve.reached(goal)
    return {
        "losses": curve.losses,
        "seconds": curve.seconds,
        "reached": reached,
        "reached_seconds": None if reached is None else curve.seconds[reached],
    }


def at_time(curve: Curve, seconds: float) -> float:
    """The best loss of a curve up to a time."""
    return min((loss for loss, when in zip(curve.losses, curve.seconds) if when <= seconds), default=curve.losses[0])


def options(doc: str | None, iterations: int, *, seeds: int = 3, more: int | None = None) -> argparse.ArgumentParser:
    """Command-line parser of an example; more: factor on the iterations for CMA-ES."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--iterations", type=int, default=iterations, help="iterations with gradients (%(default)s)")
    made.add_argument("--seeds", type=int, default=seeds, help="number of runs with different seeds (%(default)s)")
    if more:
        made.add_argument("--more", type=int, default=more, help="factor on the iterations for CMA-ES (%(default)s)")
    made.add_argument("--out", type=Path, help="folder for pictures, films and results; default: out/<example>")
    made.add_argument("--quick", action="store_true", help="a small version with fixed sizes that takes seconds")
    return made


def motion_options(doc: str | None, iterations: int, more: int) -> argparse.ArgumentParser:
    """Parser of an example that `contest` solves."""
    made = options(doc, iterations, more=more)
    made.add_argument("--contact-time", choices=("step", "impact"), default="step", help="of Simulator (%(default)s)")
    made.add_argument("--search", choices=SEARCHES, default="gauss-newton", help="search with gradients (%(default)s)")
    return made


def draw_curves(path: Path, curves: dict[str, list[Curve]], what: str, goal: float | None = None) -> None:
    """Plot the loss over iterations and over seconds: median of the seeds, and their range as a band."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, runs in curves.items():
        length = min(len(run.losses) for run in runs)
        values = np.array([run.losses[:length] for run in runs])
        seconds = np.mean([run.seconds[:length] for run in runs], axis=0)
        for axes, x in ((left, np.arange(length)), (right, seconds)):
            axes.plot(x, np.median(values, axis=0), label=name)
            axes.fill_between(x, values.min(axis=0), values.max(axis=0), alpha=0.2)
    for axes, label in ((left, "iterations"), (right, "seconds")):
        axes.set(xscale="symlog" if axes is left else "log", yscale="log", xlabel=label)
        axes.grid(True, alpha=0.3)
        if goal:
            axes.axhline(goal, color="grey", linestyle="--", linewidth=1, label="goal")
    left.set_ylabel(what)
    left.set_xlim(left=0)
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def write_motion(folder: Path, model: wa.Model, qs: torch.Tensor, dt: float, **view) -> None:
    """Write motion.usdc, motion.gif and motion.png (the last frame); qs: positions (T, nq) or (T, num_envs, nq)."""
    with Bar("USD") as bar:
        wa.export_usd(folder / "motion.usdc", model, qs, dt=dt, progress=bar)
    with Bar("film") as bar:
        wa.render_gif(folder / "motion.gif", model, qs, dt=dt, progress=bar, **view)
    wa.render_png(folder / "motion.png", model, qs[-1], camera=view.get("camera"))


def write_summary(folder: Path, summary: dict) -> dict:
    """Write summary.json; returns the summary."""
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    return summary
