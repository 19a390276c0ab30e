"""Short-horizon actor-critic (Xu et al., "Accelerated Policy Learning with Parallel Differentiable Simulation", 2022).

The policy follows the exact gradient of a few simulated steps, with a critic's value at the end. The critic keeps the
horizon short: it smooths the return beyond it, where gradients through many contacts are not informative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..env import Env
from .distributed import average_gradients, sum_over_processes, world_size
from .learner import Learner
from .networks import Normaliser, bound_gradients, follow, frozen, mlp, set_rate

MOST_LOG_STD = 1.0


@dataclass(frozen=True)
class Settings:
    """Settings of `Shac`. `iterations` covers the whole run: the learning rates fall linearly to a tenth over it."""

    num_envs: int = 128
    horizon: int = 16
    """Control steps through which gradients are propagated."""
    gamma: float = 0.99
    trace: float = 0.95
    """Lambda of the critic's TD(lambda) targets."""
    actor_rate: float = 2e-3
    critic_rate: float = 1e-3
    iterations: int = 1000
    """Iterations after which the learning rates have fallen to a tenth."""
    critic_epochs: int = 8
    minibatches: int = 4
    """Minibatches per epoch; at most `horizon`."""
    target_rate: float = 0.2
    """Rate at which the target critic follows the critic in every iteration."""
    average_rate: float = 0.03
    """Rate at which the evaluated and saved policy follows the actor in every iteration; larger in the first
    iterations, so that it is their mean."""
    clip: float = 1.0
    """Largest norm of the gradient of the weights."""
    env_clip: float = 10.0
    """Largest norm of the gradient of one environment's return by its action or its state, at any step."""
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    critic_hidden: tuple[int, ...] = (64, 64)
    log_std: float = -1.0
    """Initial log standard deviation of the noise before tanh; it is learned."""
    entropy: float = 0.0
    """Weight of the entropy of this noise, in rewards per step; without it the noise vanishes where actions cost."""


class Actor(nn.Module):
    """Tanh-squashed mean of the actions; `sample` adds learned noise."""

    squash = "tanh"

    def __init__(self, normaliser: Normaliser, sizes: list[int], log_std: float):
        super().__init__()
        self.normaliser = normaliser
        self.net = mlp(sizes, norm=True)
        self.log_std = nn.Parameter(torch.full((sizes[-1],), log_std))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.net(self.normaliser(observation)))

    def sample(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.net(self.normaliser(observation)) + self.log_std.exp() * noise)


class Shac(Learner):
    """See the module docstring and `Settings`."""

    Settings: ClassVar[type] = Settings
    parallel = True

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        super().__init__(env, settings, seed)
        observed, acted = env.observation_size, env.action_size
        self.normaliser = Normaliser(observed).to(env._like)
        self.actor = Actor(self.normaliser, [observed, *settings.actor_hidden, acted], settings.log_std).to(env._like)
        self.critic = mlp([observed, *settings.critic_hidden, 1], norm=True).to(env._like)
        self.target = frozen(self.critic)
        # The actor changes between gaits from iteration to iteration; the average is better than most of them.
        self.average = frozen(self.actor)
        self.average.normaliser = self.normaliser
        # betas as in the paper: a gradient with little noise needs little smoothing
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), settings.actor_rate, betas=(0.7, 0.95))
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), settings.critic_rate, betas=(0.7, 0.95))

    @property
    def policy(self) -> Actor:
        return self.average

    def parts(self):
        # the normaliser is part of both actors
        names = ("actor", "average", "critic", "target", "actor_optimiser", "critic_optimiser")
        return {name: getattr(self, name) for name in names}

    def advance(self) -> dict[str, float]:
        settings = self.settings
        set_rate(self.actor_optimiser, settings.actor_rate, self.iterations, settings.iterations)
        set_rate(self.critic_optimiser, settings.critic_rate, self.iterations, settings.iterations)
        seen, rewards, ended, bootstraps, loss = self._rollout()
        self.actor_optimiser.zero_grad()
        loss.backward()
        average_gradients(list(self.actor.parameters()))
        norm = nn.utils.clip_grad_norm_(self.actor.parameters(), settings.clip)
        learned = bool(torch.isfinite(norm))
        if learned:
            self.actor_optimiser.step()
            with torch.no_grad():  # otherwise it could grow without limit: actions are -1 or 1 anyway
                self.actor.log_std.clamp_(max=MOST_LOG_STD)
            follow(self.average, self.actor, max(settings.average_rate, 1.0 / (self.iterations + 1)))
        critic_loss = self._learn_values(seen, self._targets(rewards, ended, bootstraps))
        follow(self.target, self.critic, settings.target_rate)
        self.normaliser.see(seen)
        self.iterations += 1
        return {
            **self.episodes.collect(),
            "gradient norm": float(norm),
            "critic loss": critic_loss,
            "noise": float(self.actor.log_std.detach().exp().mean()),
        }

    def _value(self, observation: torch.Tensor) -> torch.Tensor:
        """Value (n,) of the target critic."""
        return self.target(self.normaliser(observation))[:, 0]

    def _rollout(self):
        """Observations, rewards, ends and next values, (horizon, num_envs, ...) each, and the actor's loss."""
        env, settings = self.env, self.settings
        env.detach()
        observation = env.observe(env.state)
        discount = torch.ones_like(env.state.q[:, 0])
        gain = torch.zeros_like(discount)
        seen, rewards, ends, following = [], [], [], []
        most = settings.env_clip / (env.num_envs * settings.horizon)  # the loss is a mean over both
        for k in range(settings.horizon):
            seen.append(observation.detach())
            action = self.actor.sample(observation, self.action_noise())
            # Aliases: whether the state's tensors are also used by the previous reward depends on whether any
            # environment was just reset, and the bound of an environment must not depend on the others.
            q, qd = (x.view_as(x) for x in (env.state.q, env.state.qd))
            bound_gradients(most, action, q, qd)
            env.state = replace(env.state, q=q, qd=qd)
            step = env.step(action)
            self.count(step)
            value = torch.where(step.terminated, 0.0, self._value(step.final_observation))
            over = step.terminated | step.truncated
            gain = gain + discount * step.reward
            cut = torch.ones_like(over) if k == settings.horizon - 1 else over
            gain = gain + torch.where(cut, settings.gamma * discount * value, 0.0)
            discount = torch.where(over, 1.0, settings.gamma * discount)
            rewards.append(step.reward.detach())
            ends.append(over)
            following.append(value.detach())
            observation = step.observation
        # entropy of a Gaussian, up to a constant
        loss = -gain.mean() / settings.horizon - settings.entropy * self.actor.log_std.sum()
        return torch.stack(seen), torch.stack(rewards), torch.stack(ends), torch.stack(following), loss

    @torch.no_grad()
    def _targets(self, rewards: torch.Tensor, ended: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """TD(lambda) values (horizon, num_envs), computed backwards."""
        gamma, trace = self.settings.gamma, self.settings.trace
        later = following[-1]
        targets = torch.empty_like(rewards)
        for k in reversed(range(len(rewards))):
            mixed = torch.where(ended[k], following[k], (1.0 - trace) * following[k] + trace * later)
            later = targets[k] = rewards[k] + gamma * mixed
        return targets

    def _learn_values(self, seen: torch.Tensor, targets: torch.Tensor) -> float:
        """Train the critic; returns the mean loss of the last epoch.

        A minibatch consists of some time steps of all environments, so that several processes, each with a share of
        the environments, choose the same steps.
        """
        settings = self.settings
        x = self.normaliser(seen)
        for _ in range(settings.critic_epochs):
            order = torch.randperm(len(seen), generator=self.generator, device=x.device)
            total = x.new_zeros(())
            minibatches = order.chunk(settings.minibatches)
            for moments in minibatches:
                loss = ((self.critic(x[moments])[..., 0] - targets[moments]) ** 2).mean()
                self.critic_optimiser.zero_grad()
                loss.backward()
                average_gradients(list(self.critic.parameters()))
                nn.utils.clip_grad_norm_(self.critic.parameters(), settings.clip)
                self.critic_optimiser.step()
                total += loss.detach()
        (total,) = sum_over_processes(total)
        return float(total) / len(minibatches) / world_size()
