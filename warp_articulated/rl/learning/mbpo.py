"""Model-based policy optimisation (Janner et al., "When to Trust Your Model", 2019): actor-critic on imagined steps.

An ensemble of networks learns where actions lead. From states that were really visited it imagines a few steps of the
policy, far more of them than are ever simulated, and the actor and the critics learn from those.
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
    """Of `Mbpo`. Steps are control steps of single environments. Those of the paper's ant are far more of everything:
    250 steps between trainings, 100000 branches, 20 updates a step."""

    updates: int = 16
    retrain_every: int = 250
    """Steps between two trainings of the model; after each, new steps are imagined."""
    branches: int = 4000
    """States of the replay from which steps are imagined."""
    length_first: int = 1
    """Steps that are imagined from each, at first."""
    length_last: int = 1
    """The same at last."""
    length_from: int = 0
    """Steps after which the length begins to grow, linearly."""
    length_to: int = 1
    """Steps after which it has grown to `length_last`."""
    imagined: int = 40_000
    """Imagined steps that are kept; the oldest are forgotten, as they come from older models and policies."""
    real_ratio: float = 0.05
    """Share of an update's transitions that were simulated."""


class Mbpo(Sac):
    """See the module's docstring; `MbpoSettings` are its numbers."""

    Settings = MbpoSettings

    def __init__(self, env: Env, settings: MbpoSettings, seed: int = 0):
        if settings.enhancement != "none":
            raise ValueError(
                f"enhancement is {settings.enhancement!r}; it must be 'none' for Mbpo: imagined steps begin in no "
                "state of the simulator, and have no gradients."
            )
        if settings.model_holdout == 1.0:
            raise ValueError("model_holdout is 1.0; it must be below 1, or there is nothing to learn from.")
        if max(settings.warm_up, env.num_envs) < 2:
            raise ValueError(f"warm_up is {settings.warm_up}; it must be at least 2: one step is no data for a model.")
        if settings.branches > settings.imagined:
            raise ValueError(f"branches is {settings.branches}; it must be at most imagined, {settings.imagined}.")
        super().__init__(env, settings, seed)
        self.model = Ensemble(env.observation_size, env.action_size, settings).to(env._like)
        decay = settings.model_decay
        self.model_optimiser = torch.optim.AdamW(self.model.parameters(), settings.model_rate, weight_decay=decay)
        self.imagined = Replay(settings.imagined)
        self.trained_at = -settings.retrain_every
        """Collected steps at which the model was trained last."""
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
        """Steps that were learned from: those of reviews were not."""
        return self.steps - self.reviewed

    @property
    def length(self) -> int:
        """Steps that are imagined from a state at present."""
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
        """Train the model on all that was simulated."""
        seen = self.replay.all()
        transitions = (seen.observation, seen.action, seen.reward, seen.next_observation, seen.terminated)
        steps = fork(seen.state.key, seen.state.frame)  # samples around a step begin in its state
        with torch.enable_grad():
            self.notes |= fit(self.model, self.model_optimiser, transitions, self.settings, self.generator, steps)

    @torch.no_grad()
    def imagine(self) -> None:
        """Let the policy act in the model, from states that were visited.

        Whether a step ends the episode, the model says itself: the task's own rule is one of states of the simulator,
        which the model knows nothing of, and an observation need not show all that the rule asks for.
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
        """Imagined steps, and a few that were simulated."""
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
    """Transitions that begin in no state of the simulator."""
    nothing, none = observation[:, :0], torch.zeros_like(terminated, dtype=torch.int64)
    state = State(nothing, nothing, none, none)
    return Transitions(state, observation, action, reward, next_observation, terminated)
