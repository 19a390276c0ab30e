"""Which friction stops a sliding car at x = 0.8 m? One parameter, by Gauss-Newton and by gradient-free methods.

    python examples/racecar_friction.py           # about half a minute; curves, landscape, film in out/racecar_friction
    python examples/racecar_friction.py --quick   # a few seconds

The car starts at 1 m/s with braked wheels and a friction of 0.002. The loss is its distance from x = 0.8 m after two
seconds: it needs 1.6 s to stop there. The paper uses one second, but a car that starts at 1 m/s and brakes evenly is
still moving when it passes x = 0.8 m then; `--seconds 1` runs that.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from toolbox import OURS, Curve, as_dict, cma_es, draw_curves, gauss_newton, options, write_motion, write_summary

import warp_articulated as wa

DT, SPEED, TARGET, FIRST = 1e-3, 1.0, 0.8, 0.002
GOAL = 1e-3  # m
VIEW = wa.Camera(eye=(0.6, -2.6, 0.9), target=(0.6, 0.0, 0.0), fov=35.0)


@cache
def simulator(num_envs: int) -> wa.Simulator:
    return wa.Simulator(wa.load("racecar"), num_envs=num_envs, dt=DT, dtype="float64", device="cpu")


class Braking:
    """The task, with episodes of the given length."""

    def __init__(self, seconds: float):
        self.steps = round(seconds / DT)

    def motion(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions and velocities of all steps for the frictions x (n, 1)."""
        sim = simulator(len(x))
        q, qd = sim.initial_state()
        qd[:, 0] = SPEED
        pairs = len(sim.model.pairs)
        u = q.new_zeros(self.steps, len(x), sim.model.nu)
        return sim.rollout(q, qd, u, params={"friction": x.clamp_min(0.0).expand(-1, pairs)})

    def misses(self, x: torch.Tensor) -> torch.Tensor:
        """Distance (n, 1) from x = 0.8 m to the car's final position, m."""
        qs, _ = self.motion(x)
        return qs[-1, :, :1] - TARGET


def nelder_mead(misses, x: torch.Tensor, evaluations: int) -> Curve:
    """scipy's simplex search, one candidate at a time."""
    from scipy.optimize import minimize

    curve = Curve()

    def loss(values: np.ndarray) -> float:
        candidate = torch.tensor(values, dtype=x.dtype)
        with torch.no_grad():
            value = float(misses(candidate[None]).abs())
        curve.add(value, candidate)
        return value

    minimize(loss, x.numpy(), method="Nelder-Mead", options={"maxfev": evaluations, "xatol": 1e-9, "fatol": 1e-9})
    return curve


def draw_landscape(path: Path, task: Braking, found: Curve) -> None:
    """Plot the loss over friction, all values simulated in one batch, and the iterates."""
    from matplotlib.figure import Figure

    frictions = torch.linspace(0.0, 2.5 * float(found.best), 200, dtype=torch.float64)[:, None]
    visited = torch.stack(found.visited)
    with torch.no_grad():
        values, path_values = task.misses(frictions).abs(), task.misses(visited).abs()
    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(frictions[:, 0], values, color="grey")
    axes.plot(visited[:, 0], path_values, "o-", markersize=4, label="iterates")
    axes.set(xlabel="friction", ylabel="distance from x = 0.8 m, m")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> dict:
    parser = options(__doc__, iterations=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of an episode (%(default)s)")
    chosen = parser.parse_args(arguments)
    folder = chosen.out or Path("out/racecar_friction")
    folder.mkdir(parents=True, exist_ok=True)
    task = Braking(chosen.seconds)
    start = torch.tensor([FIRST], dtype=torch.float64)
    gauss_newton(task.misses, start, 1)  # compiles kernels before the timing

    ours = gauss_newton(task.misses, start, chosen.iterations)
    # cma needs at least two parameters; the second one has no effect
    padded = torch.tensor([FIRST, 0.0], dtype=torch.float64)
    evolved = [
        cma_es(lambda x: task.misses(x[:, :1]), padded, 10 if chosen.quick else 50, sigma=0.02, seed=seed)
        for seed in range(chosen.seeds)
    ]
    simplex = nelder_mead(task.misses, start, 10 if chosen.quick else 200)
    curves = {OURS: [ours], "CMA-ES": evolved, "Nelder-Mead": [simplex]}
    draw_curves(folder / "curves.png", curves, "distance, m", GOAL)
    draw_landscape(folder / "landscape.png", task, ours)
    with torch.no_grad():
        qs, qds = task.motion(ours.best[None])
    write_motion(folder, simulator(1).model, qs[:, 0], DT, camera=VIEW)

    print(f"friction {float(ours.best):.5f}: at x = {float(qs[-1, 0, 0]):.5f} m, with {float(qds[-1, 0, 0]):.1g} m/s")
    for name, runs in curves.items():
        for run in runs:
            reached = run.reached(GOAL)
            when = "never" if reached is None else f"after {reached} iterations, {run.seconds[reached]:.2f} s"
            print(f"{name}: below {1e3 * GOAL:g} mm {when}; {1e3 * run.losses[-1]:.2g} mm after {len(run.losses) - 1}")
    return write_summary(folder, {
        "friction": float(ours.best), "x": float(qs[-1, 0, 0]), "speed": float(qds[-1, 0, 0]), "goal": GOAL,
        "runs": {name: [as_dict(run, GOAL) for run in runs] for name, runs in curves.items()},
    })  # fmt: skip


if __name__ == "__main__":
    main()
