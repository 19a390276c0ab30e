"""A Panda arm throws a ball to a point in the air: optimises its torques with exact gradients, compared with CMA-ES.

    python examples/throw.py            # about a minute; curves, film and USD stage in out/throw
    python examples/throw.py --quick    # a few seconds

The 450 unknowns are the arm's seven torques and the fingers' two forces in each of the 50 controls of 10 ms. All start
at zero, so initially the arm falls. After 0.3 s the fingers open. The miss is the distance between ball and target at
the end, half a second after the start.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from toolbox import contest, options, write_motion, write_summary

import warp_articulated as wa

DT, SUBSTEPS = 1e-3, 10  # s per step, steps per control
STEPS, RELEASE = 50, 30  # controls
TARGET = torch.tensor([0.2679, 0.2135, 0.6616], dtype=torch.float64)
OPEN = 70.0  # N on each finger, its maximum: against its spring, away from the ball
GOAL = 0.02  # m
VIEW = wa.Camera(eye=(1.9, 1.5, 1.2), target=(0.1, 0.1, 0.55), fov=35.0)


@cache
def simulator(num_envs: int) -> wa.Simulator:
    return wa.Simulator(
        wa.load("panda_throw"), num_envs=num_envs, dt=DT, substeps=SUBSTEPS, dtype="float64", device="cpu"
    )


def motion(x: torch.Tensor) -> torch.Tensor:
    """Positions (STEPS + 1, n, nq) under the torques x (n, STEPS * nu)."""
    sim = simulator(len(x))
    u = x.reshape(len(x), STEPS, sim.model.nu).transpose(0, 1).clone()
    fingers = [sim.model.drive_names.index(name) for name in ("left_finger", "right_finger")]
    u[RELEASE:, :, fingers] = u[RELEASE:, :, fingers] + OPEN
    qs, _ = sim.rollout(*sim.initial_state(), u)
    return qs


def misses(x: torch.Tensor) -> torch.Tensor:
    """Vectors (n, 3) from the target to the final position of the ball, m."""
    return motion(x)[-1, :, simulator(len(x)).model.joint_q("root")][:, :3] - TARGET


def main(arguments: list[str] | None = None) -> dict:
    chosen = options(__doc__, iterations=20, more=25).parse_args(arguments)
    folder = chosen.out or Path("out/throw")
    folder.mkdir(parents=True, exist_ok=True)
    start = torch.zeros(STEPS * simulator(1).model.nu, dtype=torch.float64)
    found, summary = contest(misses, start, chosen, folder, goal=GOAL, sigma=2.0)
    write_motion(folder, simulator(1).model, motion(found.best[None])[:, 0].detach(), DT * SUBSTEPS, camera=VIEW)
    return write_summary(folder, summary)


if __name__ == "__main__":
    main()
