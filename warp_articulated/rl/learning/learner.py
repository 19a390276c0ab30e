"""`Learner`: the common interface of all algorithms, so that one loop can train, save, resume and play any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from ..env import Env
from ..random import Random, fork
from ..state import State, Step
from .distributed import sum_over_processes, world_size

# random streams of an environment for action noise and for the initial frame; tasks draw from other streams
ACTIONS, BEGINNING = 1, 2


class Learner:
    """An algorithm that trains on a batch of environments.

    A subclass has `Settings`, a frozen dataclass; creates its networks in `__init__`; returns in `parts` everything a
    checkpoint must contain; and overrides `advance` and `policy`.

    Args:
        env: the batch; the learner resets it.
        settings: settings of the algorithm.
        seed: seed of weights, minibatches, episodes and action noise.
    """

    Settings: ClassVar[type]
    parallel: ClassVar[bool] = False
    """Whether it supports several processes."""

    def __init__(self, env: Env, settings: Any, seed: int = 0):
        self.env, self.settings, self.seed = env, settings, seed
        self.steps = 0
        """Control steps of single environments so far, over all processes."""
        self.iterations = 0
        """Calls of `advance` so far."""
        self.generator = torch.Generator(device=env.device).manual_seed(seed)
        """Generator of all random numbers that do not belong to an environment."""
        self.episodes = Episodes(env)
        torch.manual_seed(seed)  # for the weights, which modules draw from torch's global generator
        self.observation = env.reset(seed)
        self._stagger()

    def advance(self) -> dict[str, float]:
        """One iteration of collecting and learning; returns what to log in addition to steps and time."""
        raise NotImplementedError

    @property
    def policy(self) -> nn.Module:
        """Maps observations (n, observation_size) to actions (n, action_size), without noise."""
        raise NotImplementedError

    def parts(self) -> dict[str, Any]:
        """Objects with state_dict and load_state_dict that change during training: networks, optimisers, buffers."""
        raise NotImplementedError

    def _stagger(self) -> None:
        """Start the first episode of every environment at a random frame.

        Otherwise all episodes are in phase: some updates see only their beginnings, others only their ends. This
        matters most where every episode starts in the same state, as for the pendulum.
        """
        state = self.env.state
        share = Random(fork(fork(state.key, state.frame), BEGINNING), self.env._like, block=1).uniform(0.0, 1.0, 1)[
            :, 0
        ]
        self.env.state = replace(state, frame=(share * self.env.episode_length).to(state.frame))
        self.observation = self.env.observe(self.env.state)
        self.episodes.whole = self.env.state.frame == 0

    def action_noise(self) -> torch.Tensor:
        """Noise (num_envs, action_size) with mean 0 and variance 1; independent of which process simulates it."""
        return self.action_draws().normal(self.env.action_size)

    def action_draws(self) -> Random:
        """Random numbers for the next actions, from each environment's key."""
        state = self.env.state
        keys = fork(fork(state.key, state.frame), ACTIONS)
        return Random(keys, self.env._like, block=self.env.action_size)

    def count(self, step: Step) -> None:
        """Count a step of all environments."""
        self.observation = step.observation.detach()
        self.steps += self.env.num_envs * world_size()
        self.episodes.count(step)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue exactly from here."""
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
        """Continue from the result of `state_dict`."""
        fresh, environments = self.env.fresh(1, 0), saved["environments"]
        for group in ("memory", "params"):
            changed = getattr(fresh, group).keys() ^ environments[group].keys()
            if changed:
                raise ValueError(
                    f"The checkpoint belongs to a different {type(self.env).__name__}: its episodes differ in "
                    f"{', '.join(sorted(changed))}. It cannot be resumed, but a new run may begin with its networks."
                )
        self.steps, self.iterations = saved["steps"], saved["iterations"]
        self.generator.set_state(saved["generator"].cpu())
        torch.set_rng_state(saved["torch"].cpu())
        self.env.state = State(**saved["environments"])
        self.observation = self.env.observe(self.env.state).detach()
        self.episodes.load_state_dict(saved["episodes"])
        for name, part in self.parts().items():
            state = saved[f"part {name}"]
            part.load_state_dict(counts_on_host(state) if isinstance(part, torch.optim.Optimizer) else state)

    def begin_with(self, saved: dict[str, Any]) -> None:
        """Load the networks of another run's `state_dict`; everything else starts from scratch.

        If the policy is an average of actors, the actor is set to the average, because that is what was evaluated.
        """
        networks = {name: part for name, part in self.parts().items() if isinstance(part, nn.Module)}
        for name, network in networks.items():
            source = "average" if name == "actor" and "average" in networks else name
            network.load_state_dict(saved[f"part {source}"])


def counts_on_host(saved: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's state with its counts of updates on the CPU, where a new one has them.

    Otherwise every update of a resumed run would read them from the GPU, for each parameter. Fused optimisers, which
    have them on the device, move them back.
    """
    state = {
        key: {
            name: value.cpu() if name == "step" and isinstance(value, torch.Tensor) else value
            for name, value in own.items()
        }
        for key, own in saved["state"].items()
    }
    return {**saved, "state": state}


class Episodes:
    """Returns and lengths of the episodes that ended since the last `collect`."""

    def __init__(self, env: Env):
        self.running = torch.zeros(2, env.num_envs, dtype=env.dtype, device=env.device)  # return, length
        self.whole = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)  # observed from their start
        self.ended = torch.zeros(3, dtype=env.dtype, device=env.device)  # sum of returns, sum of lengths, count

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
        """Mean return and length over all processes, or {} if no episode ended; resets the count."""
        (sums,) = sum_over_processes(self.ended)
        total, length, number = sums.tolist()
        self.ended = torch.zeros_like(self.ended)
        return {"return": total / number, "length": length / number} if number else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"running": self.running, "whole": self.whole, "ended": self.ended}

    def load_state_dict(self, saved: dict[str, torch.Tensor]) -> None:
        self.running, self.whole, self.ended = saved["running"], saved["whole"], saved["ended"]
