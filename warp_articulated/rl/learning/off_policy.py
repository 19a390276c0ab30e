"""`OffPolicy`: base class of algorithms that learn from a replay: collecting, warm-up, twin critics, target critics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..env import Env
from .learner import Learner
from .networks import Normaliser, act_like, follow, frozen, mlp, set_rate
from .replay import Replay, Transitions
from .review import Review

USUAL_BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class OffPolicySettings:
    """Settings of all algorithms that learn from a replay."""

    num_envs: int = 16
    collect: int = 1
    """Control steps of all environments per call of `advance`."""
    updates: int = 4
    """Updates of the networks per call of `advance`."""
    warm_up: int = 500
    """Control steps of single environments with random actions before the first update."""
    capacity: int = 1_000_000
    batch: int = 256
    gamma: float = 0.99
    reward_scale: float = 1.0
    """Factor by which rewards are multiplied for learning."""
    rate: float = 3e-4
    """Initial learning rate of Adam, for all networks."""
    iterations: int | None = None
    """Calls of `advance` after which the learning rate has fallen to `last_rate`; None: constant."""
    last_rate: float = 0.1
    """Final learning rate as a share of `rate`, if `iterations` is given."""
    actor_betas: tuple[float, float] = USUAL_BETAS
    """Betas of the actor's Adam. Simulated gradients, as in policy enhancement, vary in size by orders of magnitude:
    a shorter memory of their size, such as (0.7, 0.95), suits them better."""
    average_rate: float = 1.0
    """Rate at which the evaluated and saved policy follows the actor in every call of `advance`; larger in the first
    calls, so that it is their mean."""
    review_every: int | None = None
    """Calls of `advance` between reviews of this policy; the best reviewed policy is then evaluated and saved instead.
    None: no reviews."""
    review_episodes: int = 16
    """Episodes per review. They count as steps, also for train's `steps`."""
    patience: int = 25
    """Reviews without a better policy after which the actor is reset to the best one."""
    target_rate: float = 5e-3
    """Rate at which the target critics follow the critics in every update."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layer widths of the actor and of each critic."""
    norm: bool = False
    """Whether these networks have layer norms."""
    normalise: bool = True
    """Whether the networks see normalised observations."""


class TwinCritic(nn.Module):
    """Two estimates of the value of an action; the lower one is the conservative estimate."""

    def __init__(self, normaliser: nn.Module, sizes: list[int], norm: bool):
        super().__init__()
        self.normaliser = normaliser
        # measured on one core: one batched product is not faster than two separate ones
        self.nets = nn.ModuleList([mlp(sizes, norm=norm), mlp(sizes, norm=norm)])

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(2, n) for observations (n, ...) and actions (n, action_size)."""
        x = torch.cat([self.normaliser(observation), action], -1)
        return torch.stack([net(x)[..., 0] for net in self.nets])

    def lower(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(n,) the lower value of the two."""
        return self(observation, action).amin(0)


class OffPolicy(Learner):
    """A subclass overrides `make_actor`, `act` and `update`."""

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        super().__init__(env, settings, seed)
        sizes = [env.observation_size + env.action_size, *settings.hidden, 1]
        self.seen = Normaliser(env.observation_size).to(env._like) if settings.normalise else nn.Identity()
        """First layer of all networks: normalises observations, or does nothing."""
        self.critic = TwinCritic(self.seen, sizes, settings.norm).to(env._like)
        self.target = frozen(self.critic.nets)
        self.actor = self.make_actor()
        self.average = frozen(self.actor)
        self.average.normaliser = self.seen
        self.review: Review | None = None
        if settings.review_every is not None:
            self.review = Review(env, self.average, settings.review_episodes, settings.patience)
        self.reviewed = 0
        """Steps of reviews so far; included in `steps`."""
        self.learned = 0
        """Calls of `advance` so far that updated the networks."""
        self.replay = Replay(settings.capacity)
        self.critic_optimiser = self.adam(self.critic)
        self.actor_optimiser = self.adam(self.actor, settings.actor_betas)

    # -- defined by an algorithm

    def make_actor(self) -> nn.Module:
        """Create the actor, which maps observations to actions without noise."""
        raise NotImplementedError

    def act(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Exploratory actions (n, action_size), for noise (n, action_size) with mean 0 and variance 1."""
        raise NotImplementedError

    def update(self, batch: Transitions) -> dict[str, torch.Tensor]:
        """Update the networks with a batch; returns what to log."""
        raise NotImplementedError

    def enrich(self, transitions: Transitions) -> Transitions:
        """The transitions to store in the replay for the steps just taken. Default: unchanged."""
        return transitions

    def batch(self) -> Transitions:
        """The transitions of one update."""
        return self.replay.sample(self.settings.batch, self.generator)

    # -- common to all algorithms

    @property
    def policy(self) -> nn.Module:
        return self.review.best if self.review and self.review.found else self.average

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """All optimisers with a decaying learning rate."""
        return [self.actor_optimiser, self.critic_optimiser]

    def parts(self) -> dict[str, Any]:
        # the normaliser is part of the actors and the critic
        names = ("actor", "average", "critic", "target", "replay", "actor_optimiser", "critic_optimiser")
        own = {"review": self.review} if self.review else {}
        return {**{name: getattr(self, name) for name in names}, **own}

    def begin_with(self, saved: dict[str, Any]) -> None:
        super().begin_with(saved)
        review = saved.get("part review")
        if review and math.isfinite(review["best return"]):  # otherwise there is no best policy yet
            best = frozen(self.actor)
            best.load_state_dict(review["best"])
            self._go_on_from(best)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "learned": self.learned, "reviewed": self.reviewed}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.learned = saved["learned"]
        self.reviewed = saved.get("reviewed", 0)  # missing in runs older than reviews

    def advance(self) -> dict[str, float]:
        settings = self.settings
        if settings.iterations is not None:
            for optimiser in self.optimisers():
                set_rate(optimiser, settings.rate, self.iterations, settings.iterations, settings.last_rate)
        for _ in range(settings.collect):
            self.take_step()
        notes: dict[str, torch.Tensor] = {}
        if self.steps >= settings.warm_up:
            for _ in range(settings.updates):
                notes |= self.update(self.batch())
            self.learned += 1
            follow(self.average, self.actor, max(settings.average_rate, 1.0 / self.learned))
        self.iterations += 1
        row = {**self.episodes.collect(), **{name: float(x) for name, x in notes.items()}}
        if self.review and self.learned and self.iterations % settings.review_every == 0:
            row |= self._review(self.review)
        return row

    def _review(self, review: Review) -> dict[str, float]:
        """Review the policy, and reset it to the best one if there was no improvement for long; returns what to log."""
        found = review.look(self.average)
        played = int(found.lengths.sum())
        self.steps += played
        self.reviewed += played
        if review.overdue:
            self._go_on_from(review.best)
            review.wait_again()
        return {"review": float(found.returns.mean()), "best review": review.best_return}

    def _go_on_from(self, policy: nn.Module) -> None:
        """Set the actor to this policy, and clear the state of its optimiser."""
        for network in (self.actor, self.average):
            act_like(network, policy)
        self.actor_optimiser.state.clear()

    @torch.no_grad()
    def take_step(self) -> Transitions:
        """Take one step in all environments and add it to the replay."""
        state, observation = self.env.state, self.observation
        action = self.random_action() if self.steps < self.settings.warm_up else self.explore(observation)
        step = self.env.step(action)
        self.count(step)
        if isinstance(self.seen, Normaliser):
            self.seen.see(observation)
        transitions = self.enrich(
            Transitions(state, observation, action, step.reward, step.final_observation, step.terminated)
        )
        self.replay.add(transitions)
        return transitions

    def explore(self, observation: torch.Tensor) -> torch.Tensor:
        return self.act(observation, self.action_noise())

    def random_action(self) -> torch.Tensor:
        """Uniform random actions (num_envs, action_size) in [-1, 1], from each environment's key."""
        return self.action_draws().uniform(-1.0, 1.0, self.env.action_size)

    def scaled(self, reward: torch.Tensor) -> torch.Tensor:
        return self.settings.reward_scale * reward

    def target_values(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Values (2, n) of the target critics."""
        x = torch.cat([self.seen(observation), action], -1)
        return torch.stack([net(x)[..., 0] for net in self.target.children()])

    def learn_values(self, batch: Transitions, following: torch.Tensor) -> torch.Tensor:
        """Fit both critics to the reward plus the discounted value (n,) of the next state; returns the loss."""
        going_on = torch.where(batch.terminated, 0.0, self.settings.gamma * following)
        goal = (self.scaled(batch.reward) + going_on).detach()
        loss = ((self.critic(batch.observation, batch.action) - goal) ** 2).sum(0).mean()
        descend(self.critic_optimiser, loss)
        follow(self.target, self.critic.nets, self.settings.target_rate)
        return loss.detach()

    def adam(self, module: nn.Module, betas: tuple[float, float] = USUAL_BETAS) -> torch.optim.Adam:
        return torch.optim.Adam(module.parameters(), self.settings.rate, betas=betas, fused=True)

    def noise(self, *shape: int) -> torch.Tensor:
        """Noise with mean 0 and variance 1 that does not belong to an environment."""
        return torch.randn(shape, generator=self.generator, dtype=self.env.dtype, device=self.env.device)


def descend(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward(inputs=optimiser.param_groups[0]["params"])  # no gradients for other parameters
    optimiser.step()
