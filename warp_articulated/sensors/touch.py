"""Contact sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..simulator import Simulator


class Touch:
    """Contact forces on some bodies, such as the feet of a robot.

    Args:
        sim: the simulator whose states are read.
        bodies: names of links, or of bodies that fixed joints merged into links.
    """

    def __init__(self, sim: Simulator, bodies: str | Sequence[str]):
        self.sim, self.bodies = sim, (bodies,) if isinstance(bodies, str) else tuple(bodies)
        if not self.bodies:
            raise ValueError("bodies is empty; it must name at least one body.")
        for body in self.bodies:
            sim.model.shapes_of(body)  # a wrong name is an error here, not at the first reading

    def __call__(self, q, qd, u=None, *, wrench=None, params: Mapping | None = None) -> torch.Tensor:
        """(num_envs, bodies, 3) N, world axes: forces in a step of dt from this state; arguments as for `sim.step`."""
        found = self.sim.contacts(q, qd, u, wrench=wrench, params=params)
        return torch.stack([found.force_on(body) for body in self.bodies], 1)
