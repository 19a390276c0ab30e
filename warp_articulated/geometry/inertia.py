"""Masses, centres of mass and inertias as numbers that may take any value: for optimisers and estimators.

A step of an optimiser on a mass or an inertia matrix can lead to values that no body has: negative masses, moments that
break the triangle inequality. In log-Cholesky coordinates any ten numbers are a valid body (Rucker and Wensing, "Smooth
parameterization of rigid-body inertia", 2022): the upper Cholesky factor of the 4x4 pseudo-inertia, whose last column
is the centre of mass, and whose other columns are the factor of the second moments of mass about it.
"""

from __future__ import annotations

import torch


def log_cholesky(mass: torch.Tensor, com: torch.Tensor, inertia: torch.Tensor) -> torch.Tensor:
    """Coordinates (..., 10) of bodies, the inverse of `from_log_cholesky`.

    Args:
        mass: (...) kg, positive.
        com: (..., 3) m, centre of mass.
        inertia: (..., 3, 3) kg m^2 about the centre of mass, of a body that has some extent in every direction.
    """
    trace = inertia.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    moments = (0.5 * trace * _eye(inertia) - inertia) / mass[..., None, None]  # second ones of mass, per mass
    lower, failed = torch.linalg.cholesky_ex(moments.flip(-2, -1))
    failed = (failed != 0) | ~(mass > 0)
    if failed.any():
        raise ValueError(
            f"body {failed.flatten().nonzero()[0].item()} has no log-Cholesky coordinates: its mass must be positive, "
            "and the largest of its moments of inertia less than the sum of the two others."
        )
    U = lower.flip(-2, -1)  # an upper triangle in place of a lower one
    shears = torch.stack([U[..., 0, 1], U[..., 1, 2], U[..., 0, 2]], -1)
    return torch.cat([0.5 * mass.log()[..., None], U.diagonal(dim1=-2, dim2=-1).log(), shears, com], -1)


def from_log_cholesky(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mass (...) kg, centre of mass (..., 3) m and inertia about it (..., 3, 3) kg m^2; differentiable.

    Args:
        x: (..., 10) any numbers: half the logarithm of the mass, three logarithms of extents in m, three shears in m,
            and the centre of mass in m.
    """
    mass = torch.exp(2.0 * x[..., 0])
    zero = torch.zeros_like(mass)
    a, b, c = x[..., 1:4].exp().unbind(-1)
    rows = [[a, x[..., 4], x[..., 6]], [zero, b, x[..., 5]], [zero, zero, c]]
    U = torch.stack([torch.stack(row, -1) for row in rows], -2)
    moments = mass[..., None, None] * (U @ U.mT)
    trace = moments.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    return mass, x[..., 7:10], trace * _eye(x) - moments


def _eye(like: torch.Tensor) -> torch.Tensor:
    return torch.eye(3, dtype=like.dtype, device=like.device)
