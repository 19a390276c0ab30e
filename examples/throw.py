"""A Panda arm throws a ball to a point in the air: optimises its torques with exact gradients, compared with CMA-ES.

    python examples/throw.py            # about a minute; curves, film and USD stage in out/throw
    python examples/throw.py --contact-time impact --search descent   # plain gradient descent
    python examples/throw.py --quick    # a few seconds

The 450 unknowns are the arm's seven torques and the fingers' two forces in each of the 50 controls of 10 ms. All start
at zero, so initially the arm falls. After 0.3 s the fingers open. The miss is the distance between ball and target at
the end, half a second after the start.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import torch
from toolbox import contest, motion_options, write_motion, write_summary

import warp_articulated as wa

DT, SUBSTEPS = 1e-3, 10  # s per step, steps per control
STEPS, RELEASE = 50, 30  # controls
TARGET = torch.tensor([0.2679, 0.2135, 0.6616], dtype=torch.float64)
OPEN = 70.0  # N on each finger, its maximum: against its spring, away from the ball
GOAL = 0.02  # m
VIEW = wa.Camera(eye=(1.9, 1.5, 1.2), target=(0.1, 0.1, 0.55), fov=35.0)


@cache
def simulator(num_envs: int, contact_time: str = "step") -> wa.Simulator:
    return wa.Simulator(
        wa.load("panda_throw"), num_envs=num_envs, dt=DT, substeps=SUBSTEPS, dtype="float64", device="cpu",
        contact_time=contact_time,
    )  # fmt: skip


def motion(x: torch.Tensor, contact_time: str = "step") -> torch.Tensor:
    """Positions (STEPS + 1, n, nq) under the torques x (n, STEPS * nu)."""
    sim = simulator(len(x), contact_time)
    u = x.reshape(len(x), STEPS, sim.model.nu).transpose(0, 1).clone()
    fingers = [sim.model.drive(name) for name in ("left_finger", "right_finger")]
    u[RELEASE:, :, fingers] = u[RELEASE:, :, fingers] + OPEN
    qs, _ = sim.rollout(*sim.initial_state(), u)
    return qs


def misses(x: torch.Tensor, contact_time: str = "step") -> torch.Tensor:
    """Vectors (n, 3) from the target to the final position of the ball, m."""
    return motion(x, contact_time)[-1, :, simulator(len(x), contact_time).model.joint_q("root")][:, :3] - TARGET


def main(arguments: list[str] | None = None) -> dict:
    chosen = motion_options(__doc__, iterations=20, more=25).parse_args(arguments)
    folder = chosen.out or Path("out/throw")
    folder.mkdir(parents=True, exist_ok=True)
    model, task = wa.load("panda_throw"), partial(misses, contact_time=chosen.contact_time)
    start = torch.zeros(STEPS * model.nu, dtype=torch.float64)
    found, summary = contest(task, start, chosen, folder, goal=GOAL, sigma=2.0)
    qs = motion(found.best[None], chosen.contact_time)
    write_motion(folder, model, qs[:, 0].detach(), DT * SUBSTEPS, camera=VIEW)
    return write_summary(folder, summary)


if __name__ == "__main__":
    main()
