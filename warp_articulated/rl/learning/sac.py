"""Soft actor-critic (Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018), or policy enhancement.

The forms differ only in the gradient of the expected return with respect to the action: that of the critic alone, or
that of a simulated step followed by the critic (see `enhancement`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..env import Env
from .enhancement import FORMS, closeness, exact_slope, jacobians, stored_slope
from .networks import log_squash, mlp
from .off_policy import OffPolicy, OffPolicySettings, descend
from .replay import Transitions
from .sample_enhancement import SAMPLES, more_samples

LOG_STD = (-5.0, 2.0)  # range of the network's log standard deviation


@dataclass(frozen=True)
class Settings(OffPolicySettings):
    """Settings of `Sac`."""

    temperature: float = 0.1
    """Initial weight of the entropy; it is learned."""
    target_entropy: float | None = None
    """Target for learning the temperature; None: minus the action size."""
    actor_every: int = 1
    """Updates of the critics per update of the actor and the temperature."""
    enhancement: str = "none"
    """Form of policy enhancement: "none", "exact" or "paper"."""
    enhanced_batch: int = 256
    """Number of transitions of an update that "exact" simulates again."""
    samples: str = "none"
    """Form of sample enhancement: "none", "first-order", "one-row" or "true"."""
    samples_around: int = 9
    """Number of samples around every true step."""
    samples_reach: float = 0.01
    """Largest difference between a sample's action and the true action, per entry."""


class Actor(nn.Module):
    """A tanh-squashed Gaussian whose mean and standard deviation depend on the observation."""

    squash = "tanh"

    def __init__(self, normaliser: nn.Module, observed: int, hidden: tuple[int, ...], acted: int, norm: bool):
        super().__init__()
        self.normaliser = normaliser
        self.net = mlp([observed, *hidden, 2 * acted], norm=norm)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The action for zero noise."""
        return torch.tanh(self.net(self.normaliser(observation)).chunk(2, -1)[0])

    def sample(self, observation: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions (n, action_size) for noise with mean 0 and variance 1, and their log densities (n,)."""
        mean, log_std = self.net(self.normaliser(observation)).chunk(2, -1)
        low, high = LOG_STD
        log_std = low + 0.5 * (high - low) * (torch.tanh(log_std) + 1.0)
        raw = mean + log_std.exp() * noise
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi) - log_squash(raw)
        return torch.tanh(raw), density.sum(-1)


class Temperature(nn.Module):
    """The weight of the entropy."""

    def __init__(self, value: float):
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(value)))

    def forward(self) -> torch.Tensor:
        return self.log.detach().exp()


class Sac(OffPolicy):
    """See the module docstring and `Settings`."""

    Settings: ClassVar[type] = Settings
    actor: Actor

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        if settings.enhancement not in FORMS:
            raise ValueError(f"enhancement is {settings.enhancement!r}; it must be one of {', '.join(FORMS)}.")
        if settings.samples not in SAMPLES:
            raise ValueError(f"samples is {settings.samples!r}; it must be one of {', '.join(SAMPLES)}.")
        if settings.samples != "none" and settings.enhancement == "paper":
            raise ValueError("enhancement is 'paper'; with samples, which have no Jacobians, it must be another.")
        if settings.temperature <= 0.0:
            raise ValueError(f"temperature is {settings.temperature}; it must be positive: its logarithm is learned.")
        super().__init__(env, settings, seed)
        entropy = settings.target_entropy
        self.target_entropy = -float(env.action_size) if entropy is None else entropy
        self.temperature = Temperature(settings.temperature).to(env._like)
        self.temperature_optimiser = self.adam(self.temperature)
        self.updates = 0
        """Calls of `update` so far."""

    def make_actor(self) -> Actor:
        env, settings = self.env, self.settings
        actor = Actor(self.seen, env.observation_size, settings.hidden, env.action_size, settings.norm)
        return actor.to(env._like)

    def parts(self) -> dict[str, Any]:
        own = ("temperature", "temperature_optimiser")
        return {**super().parts(), **{name: getattr(self, name) for name in own}}

    def optimisers(self) -> list[torch.optim.Optimizer]:
        return [*super().optimisers(), self.temperature_optimiser]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "updates": self.updates}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.updates = saved["updates"]

    def act(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return self.actor.sample(observation, noise)[0]

    def enrich(self, transitions: Transitions) -> Transitions:
        settings = self.settings
        if settings.samples != "none":
            return more_samples(
                self.env, transitions, settings.samples, settings.samples_around, settings.samples_reach, self.generator
            )
        if settings.enhancement != "paper":
            return transitions
        return replace(transitions, extra=jacobians(self.env, transitions.state, transitions.action))

    def update(self, batch: Transitions) -> dict[str, torch.Tensor]:
        loss = self.learn_values(batch, self._following(batch.next_observation))
        notes = {"critic loss": loss, "temperature": self.temperature()}
        if self.updates % self.settings.actor_every == 0:
            notes["entropy"] = self._learn_actions(batch)
        self.updates += 1
        return notes

    @torch.no_grad()
    def _following(self, observation: torch.Tensor) -> torch.Tensor:
        """Soft value (n,) of the target critics."""
        action, density = self.actor.sample(observation, self.noise(len(observation), self.env.action_size))
        return self.target_values(observation, action).amin(0) - self.temperature() * density

    def _learn_actions(self, batch: Transitions) -> torch.Tensor:
        """One update of the actor and the temperature; returns the actions' entropy."""
        if self.settings.enhancement == "exact":
            batch = batch[: self.settings.enhanced_batch]
        action, density = self.actor.sample(batch.observation, self.noise(len(batch), self.env.action_size))
        # the gradient by the action is a constant here (Eq. 14): the critics' parameters get no gradient
        gain = (self.slope(batch, action.detach()) * action).sum(1)
        descend(self.actor_optimiser, (self.temperature() * density - gain).mean())
        entropy = -density.detach().mean()
        descend(self.temperature_optimiser, self.temperature.log * (entropy - self.target_entropy))
        return entropy

    def slope(self, batch: Transitions, action: torch.Tensor) -> torch.Tensor:
        """Gradient (n, action_size) of the expected return with respect to the action, in the batch's states."""
        settings = self.settings
        if settings.enhancement == "exact":
            return exact_slope(self.env, batch.state, action, self.value, settings.gamma, settings.reward_scale)
        if settings.enhancement == "paper":
            slope = stored_slope(batch, self.value, settings.gamma, settings.reward_scale)
            return closeness(action, batch.action) * slope
        action = action.detach().requires_grad_()
        return torch.autograd.grad(self.critic.lower(batch.observation, action).sum(), action)[0]

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """(n,) Q(s, mu(s)), with mu the policy without noise.

        The mean of both critics: enhancement differentiates it by the state, and the minimum has a kink.
        """
        return self.critic(observation, self.actor(observation)).mean(0)
