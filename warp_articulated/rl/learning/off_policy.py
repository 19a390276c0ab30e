"""`OffPolicy`: what algorithms that learn from a replay share: collecting, warming up, twin critics, their targets."""

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
    """Of all algorithms that learn from a replay."""

    num_envs: int = 16
    collect: int = 1
    """Control steps of all environments in one call of `advance`."""
    updates: int = 4
    """Of the networks in one call of `advance`."""
    warm_up: int = 500
    """Control steps of single environments with random actions, before the first update."""
    capacity: int = 1_000_000
    batch: int = 256
    gamma: float = 0.99
    reward_scale: float = 1.0
    """By which rewards are multiplied before anything is learned from them."""
    rate: float = 3e-4
    """Of Adam, for all networks, at first."""
    iterations: int | None = None
    """Calls of `advance` after which the rate has fallen to `last_rate`; None: it stays."""
    last_rate: float = 0.1
    """As a share of the first one; if `iterations` are given."""
    actor_betas: tuple[float, float] = USUAL_BETAS
    """Of the actor's Adam. Slopes that were simulated, as those of policy enhancement, differ in size by orders of
    magnitude: a shorter memory of how large they were, such as (0.7, 0.95), suits them better."""
    average_rate: float = 1.0
    """How far the policy that is evaluated and saved follows the actor in every call of `advance`; farther in the first
    ones, so that it is their mean."""
    review_every: int | None = None
    """Calls of `advance` after which this policy is played; the best one is then what is evaluated and saved instead.
    None: it never is."""
    review_episodes: int = 16
    """Of a review. They count as steps, also for train's `steps`."""
    patience: int = 25
    """Reviews without a better policy after which the actor goes back to the best one."""
    target_rate: float = 5e-3
    """How far the target critics follow the critics in every update."""
    hidden: tuple[int, ...] = (256, 256)
    """Of the actor and of each critic."""
    norm: bool = False
    """Whether these have layer norms."""
    normalise: bool = True
    """Whether the networks see observations of mean 0 and variance 1."""


class TwinCritic(nn.Module):
    """Two values of an action in a state; whoever wants to be careful takes the lower one."""

    def __init__(self, normaliser: nn.Module, sizes: list[int], norm: bool):
        super().__init__()
        self.normaliser = normaliser
        # measured on one core: both as one batched product are not faster than one after the other
        self.nets = nn.ModuleList([mlp(sizes, norm=norm), mlp(sizes, norm=norm)])

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(2, n) for observations (n, ...) and actions (n, action_size)."""
        x = torch.cat([self.normaliser(observation), action], -1)
        return torch.stack([net(x)[..., 0] for net in self.nets])

    def lower(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(n,) the lower value of the two."""
        return self(observation, action).amin(0)


class OffPolicy(Learner):
    """A subclass makes `self.actor` with `make_actor`, and overrides `act` and `update`."""

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        super().__init__(env, settings, seed)
        sizes = [env.observation_size + env.action_size, *settings.hidden, 1]
        self.seen = Normaliser(env.observation_size).to(env._like) if settings.normalise else nn.Identity()
        """What the networks do with observations first."""
        self.critic = TwinCritic(self.seen, sizes, settings.norm).to(env._like)
        self.target = frozen(self.critic.nets)
        self.actor = self.make_actor()
        self.average = frozen(self.actor)
        self.average.normaliser = self.seen
        self.review: Review | None = None
        if settings.review_every is not None:
            self.review = Review(env, self.average, settings.review_episodes, settings.patience)
        self.reviewed = 0
        """Steps of reviews so far; `steps` has them, too."""
        self.learned = 0
        """Calls of `advance` that learned something."""
        self.replay = Replay(settings.capacity)
        self.critic_optimiser = self.adam(self.critic)
        self.actor_optimiser = self.adam(self.actor, settings.actor_betas)

    # -- what an algorithm says

    def make_actor(self) -> nn.Module:
        """From observations to actions without noise."""
        raise NotImplementedError

    def act(self, observation: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """(n, action_size) to try out, for noise (n, action_size) of mean 0 and variance 1."""
        raise NotImplementedError

    def update(self, batch: Transitions) -> dict[str, torch.Tensor]:
        """Learn from some transitions; returns what to log."""
        raise NotImplementedError

    def enrich(self, transitions: Transitions) -> Transitions:
        """What the replay shall keep of steps that were just taken. By default all there is."""
        return transitions

    def batch(self) -> Transitions:
        """What an update learns from."""
        return self.replay.sample(self.settings.batch, self.generator)

    # -- what is the same for all

    @property
    def policy(self) -> nn.Module:
        return self.review.best if self.review and self.review.found else self.average

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """All whose rate falls."""
        return [self.actor_optimiser, self.critic_optimiser]

    def parts(self) -> dict[str, Any]:
        # the actors and the critic have the normaliser
        names = ("actor", "average", "critic", "target", "replay", "actor_optimiser", "critic_optimiser")
        own = {"review": self.review} if self.review else {}
        return {**{name: getattr(self, name) for name in names}, **own}

    def begin_with(self, saved: dict[str, Any]) -> None:
        super().begin_with(saved)
        review = saved.get("part review")
        if review and math.isfinite(review["best return"]):  # or there is no best one yet
            best = frozen(self.actor)
            best.load_state_dict(review["best"])
            self._go_on_from(best)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "learned": self.learned, "reviewed": self.reviewed}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.learned = saved["learned"]
        self.reviewed = saved.get("reviewed", 0)  # which runs from before reviews do not have

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
        """Play the policy, and go back to the best one if none was better for long; returns what to log."""
        found = review.look(self.average)
        played = int(found.lengths.sum())
        self.steps += played
        self.reviewed += played
        if review.overdue:
            self._go_on_from(review.best)
            review.wait_again()
        return {"review": float(found.returns.mean()), "best review": review.best_return}

    def _go_on_from(self, policy: nn.Module) -> None:
        """Let the actor act like this policy, with an optimiser that remembers nothing of where it went."""
        for network in (self.actor, self.average):
            act_like(network, policy)
        self.actor_optimiser.state.clear()

    @torch.no_grad()
    def take_step(self) -> Transitions:
        """Act once in all environments and remember it."""
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
        """(num_envs, action_size) anywhere in [-1, 1], each environment's its own."""
        return self.action_draws().uniform(-1.0, 1.0, self.env.action_size)

    def scaled(self, reward: torch.Tensor) -> torch.Tensor:
        return self.settings.reward_scale * reward

    def target_values(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """(2, n) of the target critics."""
        x = torch.cat([self.seen(observation), action], -1)
        return torch.stack([net(x)[..., 0] for net in self.target.children()])

    def learn_values(self, batch: Transitions, following: torch.Tensor) -> torch.Tensor:
        """Fit both critics to reward plus value (n,) of what follows; returns the loss."""
        going_on = torch.where(batch.terminated, 0.0, self.settings.gamma * following)
        goal = (self.scaled(batch.reward) + going_on).detach()
        loss = ((self.critic(batch.observation, batch.action) - goal) ** 2).sum(0).mean()
        descend(self.critic_optimiser, loss)
        follow(self.target, self.critic.nets, self.settings.target_rate)
        return loss.detach()

    def adam(self, module: nn.Module, betas: tuple[float, float] = USUAL_BETAS) -> torch.optim.Adam:
        return torch.optim.Adam(module.parameters(), self.settings.rate, betas=betas, fused=True)

    def noise(self, *shape: int) -> torch.Tensor:
        """Of mean 0 and variance 1, that belongs to no environment."""
        return torch.randn(shape, generator=self.generator, dtype=self.env.dtype, device=self.env.device)


def descend(optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimiser.zero_grad()
    loss.backward(inputs=optimiser.param_groups[0]["params"])  # whatever else the loss depends on stays as it is
    optimiser.step()
