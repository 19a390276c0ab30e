"""What the queries of a Simulator return."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..model import Model


@dataclass(frozen=True)
class Contacts:
    """Contacts that one step resolves. Slots that are not `active` hold zeros."""

    points: torch.Tensor  # (num_envs, slots, 3) m, world
    normals: torch.Tensor  # (num_envs, slots, 3) unit, on the pair's first shape
    depths: torch.Tensor  # (num_envs, slots) m, penetration
    impulses: torch.Tensor  # (num_envs, slots, 3) N s, on the pair's first shape, world axes
    active: torch.Tensor  # (num_envs, slots) bool
    pairs: torch.Tensor  # (num_envs, slots) int, row of model.pairs
    sweeps: torch.Tensor  # (num_envs,) int, solver iterations made
    residual: torch.Tensor  # (num_envs,) N s, largest change of an impulse in the last sweep
    dropped: torch.Tensor  # (num_envs,) int, contacts that had no room
    dt: float  # s, length of the step
    model: Model

    def force_on(self, body: str) -> torch.Tensor:
        """(num_envs, 3) N, world axes: mean force of all contacts on a body over the step.

        body: a link, with all that is fixed to it, or a body that a fixed joint merged into a link, alone.
        """
        own = self.model.shapes_of(body)
        signs = [(int(a) in own) - (int(b) in own) for a, b in self.model.pairs]
        if not signs:
            return torch.zeros_like(self.impulses[:, 0])
        share = self.impulses.new_tensor(signs)[self.pairs.long()] / self.dt
        return (torch.where(self.active, share, 0.0)[..., None] * self.impulses).sum(1)


@dataclass(frozen=True)
class Diagnostics:
    """Gradient reliability indicators; all (T, num_envs)."""

    contacts: torch.Tensor  # int, contacts that the step resolved
    joint_rows: torch.Tensor  # int, limits, saturated drives and dry friction among the solver's rows
    sweeps: torch.Tensor  # int, solver iterations made
    impacts: torch.Tensor  # int, impacts that interrupted the step; 0 with contact_time="step"
    residual: torch.Tensor  # N s, largest change of an impulse in the last sweep
    margin: torch.Tensor  # smallest relative distance of an impulse, a drive or an impact from where its law switches
    gap: torch.Tensor  # m or rad, smallest distance of a pair from touching or parting, or of a joint from a limit
    impact_time: torch.Tensor  # when the first impact happened, over dt; negative: before the step; inf: no impact
    impact_speed: torch.Tensor  # of the slowest impact, over restitution_threshold; gradients grow as it falls; or inf
    fall: float  # m, |gravity| dt^2: distance covered in one step at the speed gained in one step of free fall

    def near_switch(self, margin: float = 1e-3, gap: float | None = None) -> torch.Tensor:
        """(T, num_envs) bool: steps so close to a switch that their gradient may hold on one side only.

        gap: m or rad; by default a hundredth of `fall`, to which the depth of resting contacts is proportional.
        """
        return (self.margin < margin) | (self.gap < (0.01 * self.fall if gap is None else gap))
