"""Orientations of a robot's body, for observations and rewards."""

from __future__ import annotations

import torch


def uprightness(quat: torch.Tensor) -> torch.Tensor:
    """(n,) cosine of the angle between the body's z axis and the vertical."""
    return 1.0 - 2.0 * (quat[:, :2] ** 2).sum(1)


def leaning(tilt: torch.Tensor, heading: torch.Tensor) -> torch.Tensor:
    """Quaternions (n, 4), xyzw, of bodies tilted by tilt (n, 2) about x and y, with heading (n,), all in rad."""
    sine, cosine = torch.sin(0.5 * heading), torch.cos(0.5 * heading)
    x, y = (0.5 * tilt).unbind(1)
    quat = torch.stack([cosine * x - sine * y, cosine * y + sine * x, sine, cosine], 1)
    return quat / quat.norm(dim=1, keepdim=True)
