"""A two-link arm hits a golf ball to a target on the ground three metres away, by optimising its torques.

    python examples/golf.py             # about a minute; curves, film and USD stage in out/golf
    python examples/golf.py --more 30   # 1500 iterations of CMA-ES, as in the paper: a few minutes
    python examples/golf.py --contact-time impact --search descent   # plain gradient descent
    python examples/golf.py --quick     # a few seconds

The unknowns are the two torques in each of the 1000 steps. All start at zero, so initially the arm just falls. The miss
is the distance between ball and target after one second.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import torch
from toolbox import contest, motion_options, write_motion, write_summary

import warp_articulated as wa

DT, STEPS = 1e-3, 1000
TARGET = torch.tensor([0.0, -3.0, -1.0], dtype=torch.float64)
GOAL = 0.02  # m
VIEW = wa.Camera(eye=(6.0, -1.3, 0.6), target=(0.0, -1.3, -0.5), fov=35.0)


@cache
def simulator(num_envs: int, contact_time: str = "step") -> wa.Simulator:
    return wa.Simulator(
        wa.load("golf"), num_envs=num_envs, dt=DT, dtype="float64", device="cpu", contact_time=contact_time
    )


def motion(x: torch.Tensor, contact_time: str = "step") -> torch.Tensor:
    """Positions (STEPS + 1, n, nq) under the torques x (n, STEPS * nu)."""
    sim = simulator(len(x), contact_time)
    qs, _ = sim.rollout(*sim.initial_state(), x.reshape(len(x), STEPS, sim.model.nu).transpose(0, 1))
    return qs


def misses(x: torch.Tensor, contact_time: str = "step") -> torch.Tensor:
    """Vectors (n, 3) from the target to the final position of the ball, m."""
    return motion(x, contact_time)[-1, :, simulator(len(x), contact_time).model.joint_q("ball")][:, :3] - TARGET


def main(arguments: list[str] | None = None) -> dict:
    chosen = motion_options(__doc__, iterations=50, more=5).parse_args(arguments)
    folder = chosen.out or Path("out/golf")
    folder.mkdir(parents=True, exist_ok=True)
    model, task = wa.load("golf"), partial(misses, contact_time=chosen.contact_time)
    start = torch.zeros(STEPS * model.nu, dtype=torch.float64)
    found, summary = contest(task, start, chosen, folder, goal=GOAL, sigma=2.0)
    qs = motion(found.best[None], chosen.contact_time)
    write_motion(folder, model, qs[:, 0].detach(), DT, camera=VIEW)
    return write_summary(folder, summary)


if __name__ == "__main__":
    main()
