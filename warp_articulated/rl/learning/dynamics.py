"""An ensemble of networks that learns the dynamics: the model of model-based policy optimisation.

Every member predicts the change of the observation and the reward, as mean and variance of each number, and the
probability that the step ends the episode. The members' weights are stacked, so each layer is one batched product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, silu, softplus

LEAST_SPREAD = 1e-4  # lower bound, so that a nearly constant number is not amplified into noise
MOST = 10.0  # standard deviations to which inputs and predictions are clipped


@dataclass(frozen=True)
class ModelSettings:
    """Settings of `Ensemble` and `fit`. The defaults are small; the paper's ant uses 7 members, 5 elites, 4 x 200."""

    members: int = 5
    elites: int = 3
    """Members used for prediction: those with the smallest error on held-out transitions."""
    model_hidden: tuple[int, ...] = (128, 128)
    model_rate: float = 1e-3
    model_decay: float = 1e-4
    """Weight decay."""
    model_batch: int = 256
    """Batch size of each member; members draw different transitions."""
    model_batches: int = 400
    """Maximum number of batches per training, independent of the amount of data."""
    model_check: int = 50
    """Batches between two evaluations of the held-out error."""
    model_patience: int = 3
    """Training stops after this many evaluations in which no member improved by 1 %."""
    model_holdout: float = 0.1
    """Share of the transitions that is held out, at most 2000."""


class Ensemble(nn.Module):
    """Maps observations and actions to observation changes, rewards and episode ends."""

    input_mean: torch.Tensor
    input_spread: torch.Tensor
    target_mean: torch.Tensor
    target_spread: torch.Tensor
    elites: torch.Tensor

    def __init__(self, observed: int, acted: int, settings: ModelSettings):
        super().__init__()
        if not 1 <= settings.elites <= settings.members:
            raise ValueError(f"elites is {settings.elites}; it must be from 1 to the {settings.members} members.")
        self.targets = observed + 1  # changes, reward
        sizes = [observed + acted, *settings.model_hidden, 2 * self.targets + 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for width, following in pairwise(sizes):
            bound = 1.0 / math.sqrt(width)  # initialised like torch.nn.Linear
            self.weights.append(torch.empty(settings.members, width, following).uniform_(-bound, bound))
            self.biases.append(torch.empty(settings.members, 1, following).uniform_(-bound, bound))
        # bounds of the log variances: without them, the log variance of a number that is predicted exactly would go to
        # minus infinity; they are learned, and a small loss pulls them together
        self.least = nn.Parameter(torch.full((self.targets,), -10.0))
        self.most = nn.Parameter(torch.full((self.targets,), 0.5))
        for name, size in (("input", sizes[0]), ("target", self.targets)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_spread", torch.ones(size))
        self.register_buffer("elites", torch.arange(settings.elites))

    def forward(self, x: torch.Tensor, members: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """Mean and log variance of the scaled targets (m, n, targets), and the logit of an episode end (m, n).

        x: scaled inputs of each member (m, n, observed + acted). members: indices of the members; None: all.
        """
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            if members is not None:
                weight, bias = weight[members], bias[members]
            x = torch.baddbmm(bias, silu(x) if k else x, weight)
        mean, spread, end = x.split([self.targets, self.targets, 1], 2)
        spread = self.most - softplus(self.most - spread)
        return mean, self.least + softplus(spread - self.least), end[..., 0]

    def scaled(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Scaled and clipped inputs of the networks."""
        x = torch.cat([observation, action], 1)
        return ((x - self.input_mean) / self.input_spread).clamp(-MOST, MOST)

    @torch.no_grad()
    def scale(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Set the scaling so that these have mean 0 and variance 1."""
        for name, x in (("input", inputs), ("target", targets)):
            getattr(self, f"{name}_mean").copy_(x.mean(0))
            getattr(self, f"{name}_spread").copy_(x.std(0).clamp_min(LEAST_SPREAD))

    @torch.no_grad()
    def predict(
        self, observation: torch.Tensor, action: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample the next observation (n, observed), reward (n,) and whether the episode ends (n,).

        Every row is sampled from one elite. The rows are shuffled and split among the elites.
        """
        n, elites, device = len(observation), len(self.elites), observation.device
        each = -(-n // elites)
        order = torch.randperm(n, generator=generator, device=device)
        dealt = order[torch.arange(each * elites, device=device) % n]  # some twice, if n is no multiple of elites
        mean, log_variance, end = self(self.scaled(observation, action)[dealt].view(elites, each, -1), self.elites)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=device)
        drawn = (mean + (0.5 * log_variance).exp() * noise).flatten(0, 1)[:n] * self.target_spread + self.target_mean
        ends = torch.rand(end.shape, generator=generator, dtype=end.dtype, device=device) < end.sigmoid()
        back = torch.argsort(order)
        change, reward = drawn[back].split([self.targets - 1, 1], 1)
        # predictions far from all data are not reliable
        seen = observation.shape[1]
        middle, reach = self.input_mean[:seen], MOST * self.input_spread[:seen]
        following = torch.minimum(torch.maximum(observation + change, middle - reach), middle + reach)
        return following, reward[:, 0], ends.flatten()[:n][back]


def fit(
    ensemble: Ensemble,
    optimiser: torch.optim.Optimizer,
    transitions: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    settings: ModelSettings,
    generator: torch.Generator,
    steps: torch.Tensor | None = None,
) -> dict[str, float]:
    """Train all members until the held-out error stops improving, and choose the elites.

    transitions: observations, actions, rewards, next observations and ends, (n, ...) each.
    steps: (n,) int, equal for transitions that are samples around the same step. These are held out together;
        otherwise near-copies of held-out transitions would be in the training data. None: all are independent.
    """
    observation, action, reward, following, ended = transitions
    targets = torch.cat([following - observation, reward[:, None]], 1)
    ensemble.scale(torch.cat([observation, action], 1), targets)
    inputs = ensemble.scaled(observation, action)
    targets = (targets - ensemble.target_mean) / ensemble.target_spread
    ended = ended.to(targets.dtype)
    members, device = settings.members, inputs.device
    held, kept = _split(len(inputs) if steps is None else steps, settings.model_holdout, generator, device)
    # bootstrap: every member has its own sample of the data, drawn with replacement, so agreement is meaningful
    own = kept[torch.randint(len(kept), (members, len(kept)), generator=generator, device=device)]
    best = _errors(ensemble, inputs[held], targets[held], ended[held])
    kept_weights = [p.detach().clone() for p in (*ensemble.weights, *ensemble.biases)]
    stale = batches = 0
    while batches < settings.model_batches and stale < settings.model_patience:
        for _ in range(min(settings.model_check, settings.model_batches - batches)):
            rows = torch.randint(own.shape[1], (members, settings.model_batch), generator=generator, device=device)
            rows = own.gather(1, rows)
            loss = _loss(ensemble, inputs[rows], targets[rows], ended[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            batches += 1
        errors = _errors(ensemble, inputs[held], targets[held], ended[held])
        better = errors < 0.99 * best
        stale = 0 if bool(better.any()) else stale + 1
        best = torch.where(better, errors, best)
        with torch.no_grad():
            for old, new in zip(kept_weights, (*ensemble.weights, *ensemble.biases)):
                old[better] = new[better]
    with torch.no_grad():
        for old, new in zip(kept_weights, (*ensemble.weights, *ensemble.biases)):
            new.copy_(old)
    ensemble.elites.copy_(best.argsort()[: settings.elites])
    return {"model error": float(best[ensemble.elites].mean()), "model steps": float(batches)}


def _split(
    steps: torch.Tensor | int, share: float, generator: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of held-out transitions, about 2000 at most, and rows to learn from; steps are not split.

    steps: see `fit`, or the number of transitions if all are independent.
    """
    if isinstance(steps, int):
        steps = torch.arange(steps, device=device)
    values, step = steps.unique(return_inverse=True)
    if len(values) < 2:
        raise ValueError(f"transitions have {len(values)} step; there must be at least 2.")
    rows = min(2000, int(share * len(step)))
    number = min(max(1, round(rows * len(values) / len(step))), len(values) - 1)
    held = (torch.randperm(len(values), generator=generator, device=device) < number)[step]
    return held.nonzero().flatten(), (~held).nonzero().flatten()


def _loss(ensemble: Ensemble, x: torch.Tensor, targets: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood, summed over members; they are trained independently."""
    mean, log_variance, end = ensemble(x)
    unlikely = (targets - mean) ** 2 * (-log_variance).exp() + log_variance
    # without the weight, a number that is predicted almost exactly, such as the time, would outweigh all others by the
    # inverse of its variance (Seitzer et al., "On the Pitfalls of Heteroscedastic Uncertainty Estimation", 2022)
    numbers = ((0.5 * log_variance.detach()).exp() * unlikely).mean((1, 2)).sum()
    ends = binary_cross_entropy_with_logits(end, ended, reduction="none").mean(1).sum()
    return numbers + ends + 0.01 * (ensemble.most - ensemble.least).sum()


@torch.no_grad()
def _errors(ensemble: Ensemble, x: torch.Tensor, targets: torch.Tensor, ended: torch.Tensor) -> torch.Tensor:
    """(members,) squared error of the means plus the cross-entropy of ends.

    Not the likelihood: one overconfident prediction would outweigh all others.
    """
    members = len(ensemble.weights[0])
    mean, _, end = ensemble(x.expand(members, -1, -1))
    ends = binary_cross_entropy_with_logits(end, ended.expand(members, -1), reduction="none")
    return ((mean - targets) ** 2).mean((1, 2)) + ends.mean(1)
