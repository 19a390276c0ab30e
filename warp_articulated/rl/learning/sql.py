"""Soft Q-learning (Haarnoja et al., "Reinforcement Learning with Deep Energy-Based Policies", 2017).

The optimal policy has a density proportional to exp(Q / temperature). A network learns to draw such actions from noise:
its samples move like particles under Stein's variational gradient, uphill, but away from each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from ..env import Env
from .networks import log_squash, mlp
from .off_policy import OffPolicy, OffPolicySettings, descend
from .replay import Transitions


@dataclass(frozen=True)
class SqlSettings(OffPolicySettings):
    """Settings of `Sql`."""

    temperature: float = 0.1
    """Weight of the entropy; constant."""
    particles: int = 16
    """Actions per state from which Stein's gradient is computed, and the same number that it moves."""
    particle_batch: int = 64
    """Number of transitions of an update in whose states particles move."""
    value_particles: int = 16
    """Uniform random actions in [-1, 1] that estimate the value of a state; in high dimensions few of them are good."""


class Sampler(nn.Module):
    """Maps noise of the size of an action to actions."""

    squash = "tanh"

    def __init__(self, normaliser: nn.Module, observed: int, hidden: tuple[int, ...], acted: int, norm: bool):
        super().__init__()
        self.normaliser, self.acted = normaliser, acted
        self.net = mlp([observed + acted, *hidden, acted], norm=norm)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """The action for zero noise."""
        return torch.tanh(self.raw(observation, _none(observation, self.acted)))

    def raw(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Actions (..., action_size) before the tanh, for noise with mean 0 and variance 1."""
        return self.net(torch.cat([self.normaliser(observation), noise], -1))


def _none(observation: torch.Tensor, acted: int) -> torch.Tensor:
    """Zeros (..., acted), in a form that works for any number of dimensions after tracing."""
    return nn.functional.pad(torch.zeros_like(observation.narrow(-1, 0, 0)), (0, acted))


class Sql(OffPolicy):
    """See the module docstring and `SqlSettings`."""

    Settings = SqlSettings
    actor: Sampler

    def __init__(self, env: Env, settings: SqlSettings, seed: int = 0):
        if settings.temperature <= 0.0:
            raise ValueError(f"temperature is {settings.temperature}; it must be positive: values are divided by it.")
        if settings.particles < 2:
            raise ValueError(
                f"particles is {settings.particles}; it must be at least 2, because particles repel each other."
            )
        super().__init__(env, settings, seed)

    def make_actor(self) -> Sampler:
        env, settings = self.env, self.settings
        sampler = Sampler(self.seen, env.observation_size, settings.hidden, env.action_size, settings.norm)
        return sampler.to(env._like)

    def act(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.actor.raw(observation, noise))

    def update(self, batch: Transitions) -> dict[str, torch.Tensor]:
        loss = self.learn_values(batch, self._following(batch.next_observation))
        spread = self._learn_actions(batch.observation[: self.settings.particle_batch])
        return {"critic loss": loss, "spread": spread}

    @torch.no_grad()
    def _following(self, observation: torch.Tensor) -> torch.Tensor:
        """Soft value (n,): temperature * log of the integral of exp(Q / temperature) over actions, by Monte Carlo."""
        settings, size = self.settings, self.env.action_size
        repeated = observation[:, None].expand(-1, settings.value_particles, -1)
        shape = (*repeated.shape[:-1], size)
        draw = torch.rand(shape, generator=self.generator, dtype=observation.dtype, device=observation.device)
        action, volume = 2.0 * draw - 1.0, size * math.log(2.0)
        scores = self.target_values(repeated, action).amin(0) / settings.temperature
        mean = torch.logsumexp(scores, 1) - math.log(settings.value_particles)
        return settings.temperature * (mean + volume)

    def _learn_actions(self, observation: torch.Tensor) -> torch.Tensor:
        """Move the sampler's actions along Stein's gradient; returns their spread."""
        number, size = self.settings.particles, self.env.action_size
        repeated = observation[:, None].expand(-1, 2 * number, -1)
        raw = self.actor.raw(repeated, self.noise(len(observation), 2 * number, size))
        still, moving = raw.split(number, 1)
        still = still.detach()
        slope = self._log_density_slope(repeated[:, :number], still)
        direction = stein_direction(moving.detach(), still, slope)
        descend(self.actor_optimiser, -(direction * moving).sum(-1).mean())
        return torch.tanh(still).std(1).mean()

    def _log_density_slope(self, observation: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Gradient of the log density with respect to actions before the tanh, including the tanh's derivative."""
        raw = raw.detach().requires_grad_()
        values = self.critic.lower(observation, torch.tanh(raw)) / self.settings.temperature
        return torch.autograd.grad((values + log_squash(raw).sum(-1)).sum(), raw)[0]


def stein_direction(moving: torch.Tensor, still: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Direction (n, m, size) that moves `moving` towards the density whose log has gradient `slope` at `still`.

    Liu and Wang's Stein variational gradient, with a Gaussian kernel whose width is set by the particles' distances.
    """
    apart = still.detach()[:, :, None] - moving[:, None]  # (n, still, moving, size)
    square = (apart**2).sum(-1)
    width = square.flatten(1).median(1).values / math.log(still.shape[1] + 1.0) + 1e-6
    kernel = torch.exp(-square / width[:, None, None])
    uphill = torch.einsum("nij,nis->njs", kernel, slope)
    away = -2.0 / width[:, None, None] * torch.einsum("nij,nijs->njs", kernel, apart)
    return (uphill + away) / still.shape[1]
