"""Make docs/images/laikago.gif, the film in the README: 16 Laikago robots are dropped askew and land on their feet.

python docs/make_gif.py [output.gif]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import warp_articulated as wa
from warp_articulated.progress import Bar
from warp_articulated.show.pictures.gif import render_gif

DT, SECONDS, ROBOTS = 1e-3, 2.0, 16


def dropped(sim: wa.Simulator) -> tuple[torch.Tensor, torch.Tensor]:
    """States at rest in the air, each at another height, tilt and pose."""
    random = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> torch.Tensor:  # between -1 and 1
        return 2.0 * torch.rand(*shape, generator=random, dtype=sim.dtype) - 1.0

    q, qd = sim.initial_state()
    q[:, 2] += 0.35 + 0.1 * uniform(ROBOTS)
    q[:, 3:6] = 0.09 * uniform(ROBOTS, 3)  # half the tilt in rad
    q[:, 3:7] /= q[:, 3:7].norm(dim=1, keepdim=True)
    q[:, 7:] += 0.15 * uniform(ROBOTS, q.shape[1] - 7)
    return q, qd


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "images" / "laikago.gif"
    model = wa.load("laikago")
    sim = wa.Simulator(model, ROBOTS, device="cpu", dt=DT)
    with torch.no_grad():
        u = sim.initial_control().repeat(round(SECONDS / DT), 1, 1)
        qs, _ = sim.rollout(*dropped(sim), u)
    with Bar("rendering") as bar:
        render_gif(path, model, qs, dt=DT, size=(640, 360), progress=bar)


if __name__ == "__main__":
    main()
