"""What several examples share: gradient descent, CMA-ES on a batch, the loss curves, and the files of a result.

A task is a function `losses(x)`: x is (n, size), one candidate per row, the result (n,) with zero as its best value.
Both searches call it, CMA-ES with its whole population at once.
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

Losses = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class Curve:
    """The best loss so far after every iteration, and the seconds that had passed."""

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
        """The first iteration after which the loss was at most this."""
        return next((i for i, value in enumerate(self.losses) if value <= loss), None)


# How far a descent looks along the gradient, in units of Polyak's step
STEPS = (2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01)


def descend(
    losses: Losses, x: torch.Tensor, iterations: int, *, steps: Sequence[float] = STEPS, enough: float = 0.0
) -> Curve:
    """Gradient descent from x (size,), with steps that need no tuning.

    Polyak's step goes as far as the loss, were it linear, would need to fall to zero. Contacts make it anything but
    linear, so several lengths of it are tried, all at once as a batch, and the best is taken.
    """
    curve, lengths = Curve(), torch.tensor(steps, dtype=x.dtype)[:, None]
    with Bar("gradient descent") as bar:
        for iteration in range(iterations + 1):
            x = x.detach().requires_grad_()
            (loss,) = losses(x[None])
            curve.add(float(loss), x)
            if iteration == iterations or curve.losses[-1] <= enough:
                break
            (slope,) = torch.autograd.grad(loss, x)
            step = slope * (loss / (slope @ slope).clamp_min(1e-30)).detach()
            candidates = x.detach() - lengths * step
            with torch.no_grad():
                x = candidates[torch.nan_to_num(losses(candidates), nan=torch.inf).argmin()]
            bar(iteration + 1, iterations, f"loss {curve.losses[-1]:.2g}")
    return curve


def cma_es(
    losses: Losses,
    x: torch.Tensor,
    iterations: int,
    *,
    sigma: float,
    seed: int,
    population: int | None = None,
    seconds: float = float("inf"),
) -> Curve:
    """CMA-ES from x (size,), with a diagonal covariance where a full one would cost more than the simulation."""
    import cma

    options = {"seed": seed + 1, "verbose": -9, "tolfun": 0.0, "tolx": 0.0, "CMA_diagonal": x.numel() > 100}
    if population:
        options["popsize"] = population
    search = cma.CMAEvolutionStrategy(x.tolist(), sigma, options)
    curve = Curve()
    with Bar("CMA-ES") as bar, torch.no_grad():
        curve.add(float(losses(x[None])), x)
        for iteration in range(iterations):
            candidates = torch.tensor(np.array(search.ask()), dtype=x.dtype)
            values = torch.nan_to_num(losses(candidates), nan=1e6)
            search.tell(list(candidates.double().numpy()), values.tolist())
            best = values.argmin()
            curve.add(float(values[best]), candidates[best])
            bar(iteration + 1, iterations, f"loss {curve.losses[-1]:.2g}")
            if curve.seconds[-1] > seconds:
                break
    return curve


def contest(
    losses: Losses,
    start: torch.Tensor,
    chosen: argparse.Namespace,
    folder: Path,
    *,
    goal: float,
    sigma: float,
    more: int,
) -> tuple[Curve, dict]:
    """Gradient descent beside CMA-ES, which gets `more` times the iterations; prints and draws both.

    Returns:
        the descent, and what is worth keeping of both; losses are distances in m.
    """
    descend(losses, start, 1)  # compiles: the clock begins afterwards
    ours = descend(losses, start, chosen.iterations)
    theirs = []
    for seed in range(chosen.seeds):
        theirs.append(cma_es(losses, start, more * chosen.iterations, sigma=sigma, seed=seed))
    draw_curves(folder / "curves.png", {"gradient descent": [ours], "CMA-ES": theirs}, "distance, m", goal)
    same_time = [at_time(run, ours.seconds[-1]) for run in theirs]
    last = [run.losses[-1] for run in theirs]
    reached = ours.reached(goal)
    print(
        f"gradient descent: {1e3 * ours.losses[0]:.0f} mm from the target at first, {1e3 * ours.losses[-1]:.2g} mm "
        f"after {chosen.iterations} iterations and {ours.seconds[-1]:.2f} s; "
        + (f"below {1e3 * goal:g} mm after {reached}." if reached is not None else f"never below {1e3 * goal:g} mm.")
    )
    print(
        f"CMA-ES, {chosen.seeds} seeds: {_range(same_time)} mm in the same time, {_range(last)} mm after "
        f"{more * chosen.iterations} iterations and {theirs[0].seconds[-1]:.1f} s."
    )
    return ours, {
        "goal": goal,
        "runs": {"gradient descent": [as_dict(ours, goal)], "CMA-ES": [as_dict(run, goal) for run in theirs]},
        "cma_same_time": same_time,
    }


def _range(values: Sequence[float]) -> str:
    """In mm."""
    return f"{1e3 * min(values):.3g} to {1e3 * max(values):.3g}"


def as_dict(curve: Curve, goal: float) -> dict:
    """For the summary."""
    reached = curve.reached(goal)
    return {
        "losses": curve.losses,
        "seconds": curve.seconds,
        "reached": reached,
        "reached_seconds": None if reached is None else curve.seconds[reached],
    }


def at_time(curve: Curve, seconds: float) -> float:
    """The best loss that the curve had found by then."""
    return min((loss for loss, when in zip(curve.losses, curve.seconds) if when <= seconds), default=curve.losses[0])


def options(doc: str | None, iterations: int) -> argparse.ArgumentParser:
    """The command line of an example."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--iterations", type=int, default=iterations, help="of the gradient descent (%(default)s)")
    made.add_argument("--seeds", type=int, default=3, help="runs of whatever is random (%(default)s)")
    made.add_argument("--out", type=Path, help="folder for pictures, films and figures; default: out/<example>")
    made.add_argument("--quick", action="store_true", help="a small version that takes seconds; it shows less")
    return made


def draw_curves(path: Path, curves: dict[str, list[Curve]], what: str, goal: float | None = None) -> None:
    """Loss against iterations and against seconds: the median of the seeds, and their range as a band."""
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
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def write_motion(folder: Path, model: wa.Model, qs: torch.Tensor, dt: float, **view) -> None:
    """motion.usdc, motion.gif and motion.png, the last frame, of joint positions (T, nq) or (T, num_envs, nq)."""
    with Bar("USD") as bar:
        wa.export_usd(folder / "motion.usdc", model, qs, dt=dt, progress=bar)
    with Bar("film") as bar:
        wa.render_gif(folder / "motion.gif", model, qs, dt=dt, progress=bar, **view)
    wa.render_png(folder / "motion.png", model, qs[-1], camera=view.get("camera"))


def write_summary(folder: Path, summary: dict) -> dict:
    """summary.json"""
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    return summary
