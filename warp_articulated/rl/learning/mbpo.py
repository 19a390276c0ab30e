"""Model-based policy optimisation (Janner et al., "When to Trust Your Model", 2019): actor-critic on imagined steps.

An ensemble of networks learns the dynamics. Starting from visited states, it imagines a few steps of the policy. There
are far more imagined steps than simulated ones; the actor and the critics learn from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..env import Env
from ..random import fork
from ..state import State
from .dynamics import Ensemble, ModelSettings, fit
from .replay import STEP, Replay, Transitions
from .sac import Sac
from .sac import Settings as SacSettings


@dataclass(frozen=True)
class MbpoSettings(SacSettings, ModelSettings):
    """Settings of `Mbpo`. Steps are control steps of single environments. The paper's ant uses much larger values:
    250 steps between trainings, 100000 branches, 20 updates per step."""

    updates: int = 16
    retrain_every: int = 250
    """Steps between two trainings of the model; new steps are imagined after each training."""
    branches: int = 4000
    """Number of replay states from which steps are imagined."""
    length_first: int = 1
    """Initial number of steps imagined from each state."""
    length_last: int = 1
    """Final number of steps imagined from each state."""
    length_from: int = 0
    """Steps after which the length starts to grow, linearly."""
    length_to: int = 1
    """Steps after which the length reaches `length_last`."""
    imagined: int = 40_000
    """Number of imagined steps that are kept; older ones come from outdated models and policies."""
    real_ratio: float = 0.05
    """Share of simulated transitions in an update."""


class Mbpo(Sac):
    """See the module docstring and `MbpoSettings`."""

    Settings = MbpoSettings

    def __init__(self, env: Env, settings: MbpoSettings, seed: int = 0):
        if settings.enhancement != "none":
            raise ValueError(
                f"enhancement is {settings.enhancement!r}; it must be 'none' for Mbpo, because imagined steps have no "
                "simulator state and no gradients."
            )
        if settings.model_holdout == 1.0:
            raise ValueError("model_holdout is 1.0; it must be below 1, otherwise there is no training data.")
        if max(settings.warm_up, env.num_envs) < 2:
            raise ValueError(f"warm_up is {settings.warm_up}; it must be at least 2 to train a model.")
        if settings.branches > settings.imagined:
            raise ValueError(f"branches is {settings.branches}; it must be at most imagined, {settings.imagined}.")
        super().__init__(env, settings, seed)
        self.model = Ensemble(env.observation_size, env.action_size, settings).to(env._like)
        decay = settings.model_decay
        self.model_optimiser = torch.optim.AdamW(self.model.parameters(), settings.model_rate, weight_decay=decay)
        self.imagined = Replay(settings.imagined)
        self.trained_at = -settings.retrain_every
        """Value of `collected` at the last training of the model."""
        self.notes: dict[str, float] = {}

    def parts(self) -> dict[str, Any]:
        own = ("model", "model_optimiser", "imagined")
        return {**super().parts(), **{name: getattr(self, name) for name in own}}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "trained_at": self.trained_at}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.trained_at = saved["trained_at"]

    @property
    def collected(self) -> int:
        """Steps used for learning; steps of reviews are not."""
        return self.steps - self.reviewed

    @property
    def length(self) -> int:
        """Current number of steps imagined from a state."""
        s = self.settings
        share = (self.collected - s.length_from) / max(1, s.length_to - s.length_from)
        return round(s.length_first + min(1.0, max(0.0, share)) * (s.length_last - s.length_first))

    def advance(self) -> dict[str, float]:
        self.notes = {}
        return {**super().advance(), **self.notes}

    def take_step(self) -> Transitions:
        transitions = super().take_step()
        if self.collected >= max(self.settings.warm_up, self.trained_at + self.settings.retrain_every):
            self.trained_at = self.collected
            self.learn_model()
            self.imagine()
        return transitions

    def learn_model(self) -> None:
        """Train the model on all simulated transitions."""
        seen = self.replay.all()
        transitions = (seen.observation, seen.action, seen.reward, seen.next_observation, seen.terminated)
        steps = fork(seen.state.key, seen.state.frame)  # samples around a step share its state
        with torch.enable_grad():
            self.notes |= fit(self.model, self.model_optimiser, transitions, self.settings, self.generator, steps)

    @torch.no_grad()
    def imagine(self) -> None:
        """Run the policy in the model, from visited states.

        The model also predicts episode ends: the task's rule needs states of the simulator, which the model does not
        have, and an observation may not contain everything the rule depends on.
        """
        observation = self.replay.sample(self.settings.branches, self.generator).observation
        for _ in range(self.length):
            action = self.act(observation, self.noise(len(observation), self.env.action_size))
            following, reward, ended = self.model.predict(observation, action, self.generator)
            self.imagined.add(stateless(observation, action, reward, following, ended))
            observation = following[~ended]
            if len(observation) == 0:
                break

    def batch(self) -> Transitions:
        """Imagined transitions, and a few simulated ones."""
        number = self.settings.batch
        real = round(self.settings.real_ratio * number)
        some, most = self.replay.sample(real, self.generator), self.imagined.sample(number - real, self.generator)
        return stateless(*(torch.cat([getattr(some, name), getattr(most, name)]) for name in STEP))


def stateless(
    observation: torch.Tensor,
    action: torch.Tensor,
    reward: torch.Tensor,
    next_observation: torch.Tensor,
    terminated: torch.Tensor,
) -> Transitions:
    """Transitions without a simulator state."""
    nothing, none = observation[:, :0], torch.zeros_like(terminated, dtype=torch.int64)
    state = State(nothing, nothing, none, none)
    return Transitions(state, observation, action, reward, next_observation, terminated)
