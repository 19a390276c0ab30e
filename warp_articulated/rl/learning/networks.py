"""Networks and helpers shared by all algorithms."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import nn

from .distributed import sum_over_processes

Network = TypeVar("Network", bound=nn.Module)

LEAST_VARIANCE = 1e-4  # lower bound, so that a nearly constant number is not amplified into noise
MOST = 10.0  # standard deviations to which inputs are clipped


def mlp(sizes: Sequence[int], activation: type[nn.Module] = nn.ELU, norm: bool = False) -> nn.Sequential:
    """Linear layers of these sizes with activations in between; with `norm`, layer norms before the activations."""
    layers: list[nn.Module] = []
    for width, following in pairwise(sizes[:-1]):
        layers += [nn.Linear(width, following), *([nn.LayerNorm(following)] if norm else []), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Normaliser(nn.Module):
    """Normalises observations by the mean and variance of all observations seen; identity before the first `see`."""

    count: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((x - self.mean) / self.scale()).clamp(-MOST, MOST)

    def scale(self) -> torch.Tensor:
        """(size,) the difference in observations that corresponds to 1 after normalisation."""
        return torch.sqrt(self.variance + LEAST_VARIANCE)

    @torch.no_grad()
    def see(self, x: torch.Tensor) -> None:
        """Update the statistics with observations (..., size) of all processes."""
        x = x.detach().reshape(-1, x.shape[-1])
        count = self.count.new_tensor(float(len(x)))
        count, total = sum_over_processes(count, x.sum(0))
        mean = total / count
        (square,) = sum_over_processes(((x - mean) ** 2).sum(0))
        # merge two sets of numbers: Chan, Golub and LeVeque's update of a variance
        everything = self.count + count
        shift = mean - self.mean
        square = square + self.variance * self.count + shift**2 * self.count * count / everything
        self.mean += shift * (count / everything)
        self.variance.copy_(square / everything)
        self.count.copy_(everything)


def log_squash(raw: torch.Tensor) -> torch.Tensor:
    """log(1 - tanh(raw)^2), the log derivative of tanh, in a form that does not overflow."""
    return 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))


def frozen(network: Network) -> Network:
    """A copy without gradients, for targets and averages."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, network: nn.Module, rate: float) -> None:
    """Move the target's weights towards the network's by `rate` of their difference."""
    for old, new in zip(target.parameters(), network.parameters()):
        old.lerp_(new, rate)


@torch.no_grad()
def act_like(network: nn.Module, source: nn.Module) -> None:
    """Make a network compute the same function as another one, although each has its own normaliser.

    Both have `normaliser` and `net`; the first inputs of `net` are the normalised observations. The first layer is
    adjusted for the difference of the normalisers: in a chaotic task, plainly copied weights would be a different
    policy. The functions differ only where a normaliser clips.
    """
    for mine, theirs in zip(network.parameters(), source.parameters()):
        mine.copy_(theirs)
    new, old = network.normaliser, source.normaliser
    if not (isinstance(new, Normaliser) and isinstance(old, Normaliser)):
        return
    first: nn.Linear = network.net[0]  # type: ignore[index, assignment]
    seen = first.weight[:, : len(new.mean)]
    first.bias.add_(seen @ ((new.mean - old.mean) / old.scale()))
    seen.mul_(new.scale() / old.scale())


def set_rate(optimiser: torch.optim.Optimizer, rate: float, done: int, iterations: int, last: float = 0.1) -> None:
    """Set the learning rate after `done` of `iterations`: it falls linearly from `rate` to `last` * `rate`."""
    optimiser.param_groups[0]["lr"] = rate * max(last, 1.0 - (1.0 - last) * done / iterations)


def bound_gradients(most: float, *tensors: torch.Tensor) -> None:
    """Clip the gradients that reach these tensors (n, ...) to norm `most`, per row.

    The gradient through a chain of impacts can be thousands of times larger than others: exact, but valid only for an
    infinitesimal step. Without clipping, one such environment would dominate the update of all weights.
    """

    def shrink(gradient: torch.Tensor) -> torch.Tensor:
        gradient = torch.nan_to_num(gradient, 0.0, 0.0, 0.0)
        return gradient * (most / (gradient.norm(dim=1, keepdim=True) + 1e-30)).clamp(max=1.0)

    for tensor in tensors:
        if tensor.requires_grad:
            tensor.register_hook(shrink)
