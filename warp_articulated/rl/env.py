"""`Env`: a batch of environments as functions of torch tensors, differentiable from actions to rewards.

A task is a subclass that defines observations, rewards, termination and initial states. Nothing here loops over
environments, and on CUDA nothing synchronises with the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import torch
import warp as wp

from ..device import checks
from ..model import Model
from ..simulator import Simulator
from .capture import CapturedStep
from .random import Random, fork, seeded
from .state import State, Step

NEXT_EPISODE = -1  # no frame has this number


class Env:
    """A batch of auto-resetting environments.

    A task overrides `observe` and `reward` and, if needed, `begin`, `terminated`, `control`, `memory`, `remember`,
    `vary` and `disturb`. These methods accept batches of any size and are pure functions of their arguments.

    Args:
        model: the model to simulate.
        num_envs: number of environments.
        dt: time step of the simulation, s. Default: the class attribute.
        substeps: simulation steps per control step. Default: the class attribute.
        episode_length: control steps after which an episode is truncated. Default: the class attribute.
        seed: seed of all random numbers, until `reset(seed=...)` sets another.
        first_env: number of the first environment, if others are simulated elsewhere. An environment's random numbers
            depend only on the seed and its number, not on where it is simulated.
        options: options of the Simulator: device, dtype, threads, iterations, ...
    """

    dt: float = 5e-3
    substeps: int = 4
    episode_length: int = 1000

    def __init__(
        self,
        model: Model,
        num_envs: int = 1,
        *,
        dt: float | None = None,
        substeps: int | None = None,
        episode_length: int | None = None,
        seed: int = 0,
        first_env: int = 0,
        **options,
    ):
        self.model = model
        self.num_envs = checks.whole("num_envs", num_envs, 1)
        self.dt = self.dt if dt is None else dt
        self.substeps = self.substeps if substeps is None else substeps
        length = self.episode_length if episode_length is None else episode_length
        self.episode_length = checks.whole("episode_length", length, 1)
        self.seed = checks.seed(seed)
        self.first_env = checks.whole("first_env", first_env, 0)
        self.action_size = model.nu
        """Size of an action; each entry is in [-1, 1]. Default: one entry per drive."""
        self._options = {**options, "dt": self.dt, "substeps": self.substeps}
        self._sims: dict[int, Simulator] = {}
        self.sim = self.simulator(self.num_envs)
        """The simulator of this batch."""
        self.control_dt = self.sim.dt * self.sim.substeps
        """Duration of a control step, s."""
        self.dtype = self.sim.dtype
        """torch dtype of states, actions, observations and rewards."""
        self._like = torch.empty(0, dtype=self.dtype, device=wp.device_to_torch(self.sim.device))
        self.device = self._like.device
        """torch device of all tensors."""
        self._pose = self._like.new_tensor(model.q0.copy())  # stored, because copies to CUDA synchronise
        self._state: State | None = None

    # -- defined by a task

    def observe(self, state: State) -> torch.Tensor:
        """Observation (n, observation_size) of a state."""
        raise NotImplementedError(f"{type(self).__name__} has no observe(state); a task must define it.")

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        """Reward (n,) of a step; action (n, action_size) is the clipped action, in [-1, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no reward(...); a task must define it.")

    def terminated(self, state: State) -> torch.Tensor:
        """(n,) bool: the episode terminates in this state; its value is zero. Default: never."""
        return torch.zeros_like(state.frame, dtype=torch.bool)

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Initial q (n, nq) and qd (n, nv) of episodes, n = len(random). Default: at rest in the model's pose."""
        return self._pose.repeat(len(random), 1), self._like.new_zeros(len(random), self.model.nv)

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        """Simulator control (n, nu) for an action in [-1, 1]. Default: the action itself."""
        return action

    def memory(self, random: Random) -> dict[str, torch.Tensor]:
        """state.memory at the start of an episode, (n, ...) each: commands, goals, earlier actions."""
        return {}

    def remember(self, before: State, action: torch.Tensor, after: State) -> Mapping[str, torch.Tensor]:
        """state.memory after a step; `after` still has the old memory. Default: unchanged."""
        return after.memory

    def vary(self, random: Random) -> dict[str, torch.Tensor]:
        """Simulator parameters, (n, ...) each, for one episode. Default: the model's parameters."""
        return {}

    def disturb(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        """(q, qd) from which to simulate instead of the state's q and qd, for pushes. Default: no disturbance.

        Random numbers: `self.random(state)`.
        """
        return state.q, state.qd

    def lost(self, before: State) -> torch.Tensor:
        """Reward (n,) of a step in which the simulation diverged. Default: zero.

        A task whose rewards accumulate progress must take that progress back here; otherwise diverging would pay.
        """
        return torch.zeros_like(before.q[:, 0])

    def measures(self, before: State, after: State) -> dict[str, torch.Tensor]:
        """Measures of a step other than the reward, (n,) each, such as a speed. Default: none."""
        return {}

    # -- called by the user

    def reset(self, seed: int | None = None) -> torch.Tensor:
        """Start new episodes in all environments; returns the first observations (num_envs, observation_size).

        seed: the same seed gives the same episodes; None: the next episodes of the current seed.
        """
        if seed is None and self._state is not None:
            self._state = self._begun(fork(self._state.key, NEXT_EPISODE))
        else:
            self._state = self.fresh(self.num_envs, self.seed if seed is None else seed)
        return self._observed(self._state)

    def step(self, action: torch.Tensor) -> Step:
        """Apply an action for control_dt in all environments; environments whose episode ends are reset.

        Gradients flow from all returned tensors to this action and, through the state, to earlier actions, back to
        the last `detach` or the start of the episode. An environment that diverges is terminated; its reward is
        `lost`, and it has no gradient.

        action: (num_envs, action_size), clipped to [-1, 1].
        """
        after, reward, terminated = self.transition(self.state, action)
        truncated = (after.frame >= self.episode_length) & ~terminated
        final = self._observed(after)
        self._state = self._restarted(after, terminated | truncated)
        observation = final if self._state is after else self._observed(self._state)
        return Step(observation, reward, terminated, truncated, final)

    def transition(self, state: State, action: torch.Tensor) -> tuple[State, torch.Tensor, torch.Tensor]:
        """One control step from any batch of states: (state, reward (n,), terminated (n,)).

        A pure function: the state of this Env does not change, and nothing is reset.
        """
        sim = self.simulator(len(state))
        action = checks.state("action", action, (len(state), self.action_size), self._like, sim.validate).clamp(-1, 1)
        u = self.control(state, action)
        q, qd = sim.step(*self.disturb(state), u, params=state.params or None)
        lost = sim._diverged >= 0  # not sim.diverged: a list of indices would synchronise with the device
        # a diverged environment keeps its old state, because its new one is meaningless
        q = torch.where(lost[:, None], state.q.detach(), q)
        qd = torch.where(lost[:, None], state.qd.detach(), qd)
        after = replace(state, q=q, qd=qd, frame=state.frame + 1)
        after = replace(after, memory=self._remembered(state, action, after))
        earned = self._checked("reward", self.reward(state, action, after), state)
        reward = torch.where(lost, self._checked("lost", self.lost(state), state), earned)
        return after, reward, self._checked("terminated", self.terminated(after), state, torch.bool) | lost

    def restart(self, mask: torch.Tensor, seed: int | None = None) -> torch.Tensor:
        """Start new episodes where mask (num_envs,) is true; returns the observations of all environments.

        seed: the same seed gives the same episodes as `reset`; None: the next episodes of the current seed.
        """
        mask = torch.as_tensor(mask, device=self.device)
        if mask.shape != (self.num_envs,) or mask.dtype != torch.bool:
            raise ValueError(
                f"mask has shape {tuple(mask.shape)} and is {mask.dtype}; it must be ({self.num_envs},) of torch.bool."
            )
        keys = None if seed is None else seeded(checks.seed(seed), len(mask), self.device, self.first_env)
        self._state = self._restarted(self.state, mask, keys)
        return self._observed(self._state)

    def fresh(self, num: int, seed: int) -> State:
        """Initial states of `num` episodes, for `transition`; the state of this Env does not change.

        `dataclasses.replace(env.fresh(n, seed), q=q, qd=qd)` is a state with given positions and velocities.
        """
        keys = seeded(checks.seed(seed), checks.whole("num", num, 1), self.device, self.first_env)
        return self._begun(keys)

    def capture(self, *, warm_ups: int = 3, copy: bool = True) -> CapturedStep:
        """`step` as a CUDA graph, for batches so small that the host is slower than the GPU; after `reset`.

        Returns a function of the action with the results of `step`, but no gradients. It changes `state` in place:
        `state.map(torch.clone)` keeps one. A task's methods must not wait for the GPU.

        warm_ups: steps that are taken before, and taken back.
        copy: whether results are copied, or overwritten by the next step.
        """
        return CapturedStep(self, warm_ups, copy)

    def detach(self) -> None:
        """Cut the gradient here: later steps propagate gradients back to this state and no further."""
        self.state = self.state.detach()

    @property
    def state(self) -> State:
        """Current state of the environments. May be set to a state with the same number of environments."""
        if self._state is None:
            raise RuntimeError("The environments have no state yet; call reset() first.")
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        if len(state) != self.num_envs:
            raise ValueError(f"state has {len(state)} environments; it must have {self.num_envs}.")
        self._state = state

    @cached_property
    def observation_size(self) -> int:
        """Size of an observation."""
        with torch.no_grad():
            return self._observed(self.fresh(1, 0)).shape[1]

    # -- helpers for tasks

    def simulator(self, num: int) -> Simulator:
        """The simulator for a batch of `num` states, for queries such as link_poses."""
        if num not in self._sims:
            # tensors that are made in inference mode could not be differentiated afterwards
            with torch.inference_mode(False):
                self._sims[num] = Simulator(self.model, num, **self._options)
        return self._sims[num]

    def random(self, state: State) -> Random:
        """Random numbers of this frame; the same whenever the step from this state is computed."""
        return Random(fork(state.key, state.frame), self._like, block=1)

    # -- internal

    def _checked(self, name: str, value: torch.Tensor, state: State, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Check that a task's method returned (n,); torch would silently broadcast (n, 1) to (n, n)."""
        if value.shape != (len(state),) or dtype not in (None, value.dtype):
            raise ValueError(
                f"{type(self).__name__}.{name} returns shape {tuple(value.shape)} of {value.dtype} for {len(state)} "
                f"environments; it must be ({len(state)},){'' if dtype is None else f' of {dtype}'}."
            )
        return value

    def _observed(self, state: State) -> torch.Tensor:
        observation = self.observe(state)
        if observation.ndim != 2 or len(observation) != len(state):
            raise ValueError(
                f"{type(self).__name__}.observe returns shape {tuple(observation.shape)} for {len(state)} "
                f"environments; it must be ({len(state)}, observation_size)."
            )
        return observation

    def _remembered(self, before: State, action: torch.Tensor, after: State) -> Mapping[str, torch.Tensor]:
        memory = self.remember(before, action, after)
        if memory.keys() != before.memory.keys():  # a new episode would lose any other name
            names = [", ".join(x) or "nothing" for x in (memory, before.memory)]
            raise ValueError(
                f"{type(self).__name__}.remember returns {names[0]}; it must return the names that memory returns: "
                f"{names[1]}."
            )
        return memory

    def _begun(self, keys: torch.Tensor) -> State:
        random = Random(keys, self._like)
        with torch.no_grad():
            q, qd = self.begin(random)
            memory, params = self.memory(random), self.vary(random)
        return State(q, qd, torch.zeros_like(keys), keys, memory, params)

    def _restarted(self, state: State, mask: torch.Tensor, keys: torch.Tensor | None = None) -> State:
        """The state with new episodes where mask is true; on the CPU, the same object if mask is false everywhere.

        keys: (num_envs,) keys of the new episodes. Default: the next episodes.
        """
        if mask.device.type != "cpu":
            return self._restarted_unseen(state, mask, keys)
        rows = torch.nonzero(mask).flatten()
        if len(rows) == 0:
            return state
        fresh = self._begun(fork(state.key[rows], NEXT_EPISODE) if keys is None else keys[rows])
        return fresh.map(lambda new, old: old.index_copy(0, rows, new), state)

    def _restarted_unseen(self, state: State, mask: torch.Tensor, keys: torch.Tensor | None = None) -> State:
        """The same without reading the mask back: start new episodes everywhere and select by the mask."""
        fresh = self._begun(fork(state.key, NEXT_EPISODE) if keys is None else keys)
        return fresh.map(lambda new, old: torch.where(mask.view(-1, *[1] * (new.ndim - 1)), new, old), state)
