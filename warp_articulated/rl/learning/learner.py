"""`Learner`: what all algorithms have in common, so that one loop can train, save, resume and play any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..env import Env
from ..random import Random, fork
from ..state import State, Step
from .distributed import sum_over_processes, world_size

# which of an environment's streams of random numbers disturbs actions, and says when it begins; tasks draw from others
ACTIONS, BEGINNING = 1, 2


class Learner:
    """An algorithm at work on a batch of environments.

    A subclass has `Settings`, a frozen dataclass of numbers; makes its networks in `__init__`; names in `parts` all
    that a checkpoint must hold; and overrides `advance` and `policy`.

    Args:
        env: the batch; the learner resets it.
        settings: of the algorithm.
        seed: of weights, minibatches and, in the environments, of episodes and disturbed actions.
    """

    Settings: ClassVar[type]
    parallel: ClassVar[bool] = False
    """Whether several processes can share the work."""

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        self.env, self.settings, self.seed = env, settings, seed
        self.steps = 0
        """Control steps of environments so far, of all processes."""
        self.iterations = 0
        """Calls of `advance` so far."""
        self.generator = torch.Generator(device=env.device).manual_seed(seed)
        """Of all random numbers that do not belong to an environment."""
        self.episodes = Episodes(env)
        torch.manual_seed(seed)  # weights, which modules draw from torch's own generator
        self.observation = env.reset(seed)
        self._stagger()

    def advance(self) -> dict[str, float]:
        """Collect and learn once; returns what to log beside steps and time."""
        raise NotImplementedError

    @property
    def policy(self) -> nn.Module:
        """From observations (n, observation_size) to actions (n, action_size), without noise."""
        raise NotImplementedError

    def parts(self) -> dict[str, Any]:
        """Whatever has state_dict and load_state_dict and changes while learning: networks, optimisers, buffers."""
        raise NotImplementedError

    def _stagger(self) -> None:
        """Let the first episode of every environment begin at a frame of its own.

        Otherwise all are at the same point, and an update sees only the beginnings of episodes, another one only their
        ends: most of all where every episode begins in the same state, as a pendulum's.
        """
        state = self.env.state
        share = Random(fork(fork(state.key, state.frame), BEGINNING), self.env._like, block=1).uniform(0.0, 1.0, 1)[
            :, 0
        ]
        self.env.state = replace(state, frame=(share * self.env.episode_length).to(state.frame))
        self.observation = self.env.observe(self.env.state)
        self.episodes.whole = self.env.state.frame == 0

    def action_noise(self) -> torch.Tensor:
        """(num_envs, action_size) of mean 0 and variance 1, each environment's its own: no matter who simulates it."""
        return self.action_draws().normal(self.env.action_size)

    def action_draws(self) -> Random:
        """Random numbers for the next actions, each environment's its own."""
        state = self.env.state
        keys = fork(fork(state.key, state.frame), ACTIONS)
        return Random(keys, self.env._like, block=self.env.action_size)

    def count(self, step: Step) -> None:
        """Take note of a step of all environments."""
        self.observation = step.observation.detach()
        self.steps += self.env.num_envs * world_size()
        self.episodes.count(step)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on exactly from here."""
        state = self.env.state
        return {
            "steps": self.steps,
            "iterations": self.iterations,
            "generator": self.generator.get_state(),
            "torch": torch.get_rng_state(),
            "environments": {name: getattr(state, name) for name in ("q", "qd", "frame", "key", "memory", "params")},
            "episodes": self.episodes.state_dict(),
            **{f"part {name}": part.state_dict() for name, part in self.parts().items()},
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        fresh, environments = self.env.fresh(1, 0), saved["environments"]
        for group in ("memory", "params"):
            changed = getattr(fresh, group).keys() ^ environments[group].keys()
            if changed:
                raise ValueError(
                    f"What was saved is of another {type(self.env).__name__}, whose episodes differ in "
                    f"{', '.join(sorted(changed))}: it cannot go on, but a new run may begin with its networks."
                )
        self.steps, self.iterations = saved["steps"], saved["iterations"]
        self.generator.set_state(saved["generator"].cpu())
        torch.set_rng_state(saved["torch"].cpu())
        self.env.state = State(**saved["environments"])
        self.observation = self.env.observe(self.env.state).detach()
        self.episodes.load_state_dict(saved["episodes"])
        for name, part in self.parts().items():
            part.load_state_dict(saved[f"part {name}"])

    def begin_with(self, saved: dict[str, Any]) -> None:
        """Take over the networks of another run's `state_dict`; all else begins anew.

        If the policy is an average of actors, the actor becomes that: it is what was evaluated.
        """
        networks = {name: part for name, part in self.parts().items() if isinstance(part, nn.Module)}
        for name, network in networks.items():
            source = "average" if name == "actor" and "average" in networks else name
            network.load_state_dict(saved[f"part {source}"])


class Episodes:
    """Returns and lengths of the episodes that ended since they were last asked for."""

    def __init__(self, env: Env):
        self.running = torch.zeros(2, env.num_envs, dtype=env.dtype, device=env.device)  # return, length
        self.whole = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)  # seen from their beginning on
        self.ended = torch.zeros(3, dtype=env.dtype, device=env.device)  # sums of returns and lengths; how many

    @torch.no_grad()
    def count(self, step: Step) -> None:
        self.running = self.running + torch.stack([step.reward.detach(), torch.ones_like(step.reward)])
        over = step.terminated | step.truncated
        counted = over & self.whole
        done = torch.where(counted, self.running, 0.0).sum(1)
        self.ended = self.ended + torch.cat([done, counted.sum(0, keepdim=True).to(done)])
        self.whole = self.whole | over
        self.running = torch.where(over, 0.0, self.running)

    def collect(self) -> dict[str, float]:
        """Their means over all processes, or {} if no episode ended; the count begins anew."""
        (sums,) = sum_over_processes(self.ended)
        total, length, number = sums.tolist()
        self.ended = torch.zeros_like(self.ended)
        return {"return": total / number, "length": length / number} if number else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"running": self.running, "whole": self.whole, "ended": self.ended}

    def load_state_dict(self, saved: dict[str, torch.Tensor]) -> None:
        self.running, self.whole, self.ended = saved["running"], saved["whole"], saved["ended"]
