"""`PolicyNetwork`: the one network that a policy file can describe; every learner's policy can be copied into it.

A file has its `Architecture` and its weights, never code. Networks are built on torch's meta device, without memory and
without random numbers, and then get their weights.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .networks import MOST, Normaliser, mlp

MOST_LAYERS, MOST_WEIGHTS = 64, 1 << 26  # bounds of what is built from a file
SQUASHES = ("tanh", "clip")
META = torch.device("meta")


@dataclass(frozen=True)
class Architecture:
    """Linear layers with activations in between, all that is needed to build a `PolicyNetwork`."""

    observation_size: int
    action_size: int
    sizes: tuple[int, ...]
    """Widths from the input to the output. The input may be wider than an observation: the rest is zero. The output
    may be wider than an action: only its first part acts."""
    activation: str = "elu"
    layer_norm: bool = False
    """Whether there are layer norms before the activations."""
    normalise: bool = True
    """Whether observations are normalised: (x - mean) / scale."""
    clip: float | None = None
    """Bound of normalised observations."""
    squash: str = "tanh"
    """How actions are brought into [-1, 1]: "tanh" or "clip"."""

    def __post_init__(self) -> None:
        whole = (self.observation_size, self.action_size, *self.sizes)
        if any(type(x) is not int or not 1 <= x <= MOST_WEIGHTS for x in whole):
            raise ValueError(f"sizes must be whole numbers from 1 to {MOST_WEIGHTS}")
        if not 2 <= len(self.sizes) <= MOST_LAYERS:
            raise ValueError(f"there must be 2 to {MOST_LAYERS} sizes")
        if self.sizes[0] < self.observation_size or self.sizes[-1] < self.action_size:
            raise ValueError("sizes must begin with at least observation_size and end with at least action_size")
        if sum(before * after for before, after in pairwise(self.sizes)) > MOST_WEIGHTS:
            raise ValueError(f"the network has more than {MOST_WEIGHTS} weights")
        if any(type(x) is not bool for x in (self.layer_norm, self.normalise)):
            raise ValueError("layer_norm and normalise must be true or false")
        if self.clip is not None and not (type(self.clip) in (int, float) and 0 < self.clip < math.inf):
            raise ValueError("clip must be a positive number or null")
        if self.activation != "elu" or self.squash not in SQUASHES:
            raise ValueError("the activation must be elu, and squash one of " + ", ".join(SQUASHES))

    def describe(self) -> dict[str, Any]:
        """As JSON values."""
        return {"kind": "mlp", **asdict(self)}

    @classmethod
    def of(cls, described: Any) -> Architecture:
        """From the JSON values of `describe`."""
        if not isinstance(described, dict) or described.get("kind") != "mlp":
            raise ValueError("the architecture must be of the kind mlp")
        given = {name: value for name, value in described.items() if name != "kind"}
        missing = {field.name for field in fields(cls)} ^ given.keys()
        if missing:
            raise ValueError(f"the architecture lacks, or should not have, {', '.join(sorted(missing))}")
        if not isinstance(given["sizes"], list):
            raise ValueError("sizes must be a list")
        return cls(**{**given, "sizes": tuple(given["sizes"])})


class PolicyNetwork(nn.Module):
    """Maps observations (..., observation_size) to actions (..., action_size) in [-1, 1].

    Args:
        architecture: what to build.
        weights: tensors with the names and shapes of `PolicyNetwork.shapes(architecture)`.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, architecture: Architecture, weights: dict[str, torch.Tensor]):
        super().__init__()
        self._build(architecture)
        self.load_state_dict(weights, assign=True)

    @classmethod
    def shapes(cls, architecture: Architecture) -> dict[str, torch.Size]:
        """Shapes of all weights by name; no memory is allocated for them."""
        empty = cls.__new__(cls)
        nn.Module.__init__(empty)
        empty._build(architecture)
        return {name: tensor.shape for name, tensor in empty.state_dict().items()}

    def _build(self, architecture: Architecture) -> None:
        self.architecture = architecture
        with META:
            self.net = mlp(architecture.sizes, norm=architecture.layer_norm)
            if architecture.normalise:
                self.register_buffer("mean", torch.empty(architecture.observation_size))
                self.register_buffer("scale", torch.empty(architecture.observation_size))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        described = self.architecture
        x = observation
        if described.normalise:
            x = (x - self.mean) / self.scale
        if described.clip is not None:
            x = x.clamp(-described.clip, described.clip)
        more = described.sizes[0] - described.observation_size
        if more:
            x = nn.functional.pad(x, (0, more))
        x = self.net(x)[..., : described.action_size]
        return torch.tanh(x) if described.squash == "tanh" else x.clamp(-1.0, 1.0)


def plain(policy: nn.Module, observation_size: int, action_size: int) -> PolicyNetwork:
    """A copy of a learner's policy, which has `normaliser`, `net` and `squash`, as a PolicyNetwork."""
    if isinstance(policy, PolicyNetwork):
        return policy
    net = getattr(policy, "net", None)
    if not isinstance(net, nn.Sequential) or getattr(policy, "squash", None) not in SQUASHES:
        raise ValueError(
            f"a {type(policy).__name__} cannot be stored as a policy: it must be the policy of a learner in "
            "wa.rl.learning, or a PolicyNetwork; a file has an architecture and weights, no code."
        )
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    affine = _affine(policy.normaliser)  # type: ignore[arg-type]
    architecture = Architecture(
        observation_size,
        action_size,
        (linear[0].in_features, *(layer.out_features for layer in linear)),
        layer_norm=any(isinstance(layer, nn.LayerNorm) for layer in net),
        normalise=affine is not None,
        clip=MOST if isinstance(policy.normaliser, Normaliser) else None,
        squash=policy.squash,  # type: ignore[arg-type]
    )
    weights = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    if affine is not None:
        weights |= {"mean": affine[0], "scale": affine[1]}
    copied = PolicyNetwork(architecture, {name: tensor.detach().clone() for name, tensor in weights.items()})
    if [type(layer) for layer in copied.net] != [type(layer) for layer in net]:
        raise ValueError(f"a {type(policy).__name__} has layers that a policy file cannot describe.")
    return copied


def _affine(layer: nn.Module) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Mean and scale of a layer that normalises; None if it does nothing."""
    if isinstance(layer, nn.Identity):
        return None
    if isinstance(layer, Normaliser):
        return layer.mean, layer.scale()
    return layer.mean, layer.std + layer.eps  # type: ignore[return-value, operator]  # rsl_rl's, an optional package
