"""`Env`: many copies of a task as functions of torch tensors, differentiable from actions to rewards.

A task is a subclass that says what it observes, what it rewards, when it ends and how it begins. Nothing in here loops
over environments, and on CUDA nothing waits for the device.
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
from .random import Random, fork, seeded
from .state import State, Step

NEXT_EPISODE = -1  # no frame has this number


class Env:
    """A batch of environments that begin anew by themselves, each when its episode ends.

    A task overrides `observe` and `reward`, and of `begin`, `terminated`, `control`, `memory`, `remember`, `vary` and
    `disturb` what it needs. They take batches of any size, and are pure: all they know is in their arguments.

    Args:
        model: what to simulate.
        num_envs: copies of it.
        dt: s per step of the simulation; by default that of the class.
        substeps: steps of the simulation per control; by default those of the class.
        episode_length: control steps until an episode is truncated; by default those of the class.
        seed: of all random numbers, until `reset(seed=...)` gives another one.
        first_env: number of the first of these environments, if others are simulated elsewhere: a seed means the same
            for an environment of a given number, wherever it is simulated.
        options: of the Simulator: device, dtype, threads, iterations, ...
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
        """Numbers in an action, all of them in [-1, 1]: by default one for every drive."""
        self._options = {**options, "dt": self.dt, "substeps": self.substeps}
        self._sims: dict[int, Simulator] = {}
        self.sim = self.simulator(self.num_envs)
        """The simulator of this batch."""
        self.control_dt = self.sim.dt * self.sim.substeps
        """s per control step."""
        self.dtype = self.sim.dtype
        """torch's dtype of states, actions, observations and rewards."""
        self._like = torch.empty(0, dtype=self.dtype, device=wp.device_to_torch(self.sim.device))
        self.device = self._like.device
        """torch's device of all tensors."""
        self._pose = self._like.new_tensor(model.q0.copy())  # kept: copies to CUDA wait for it
        self._state: State | None = None

    # -- what a task says

    def observe(self, state: State) -> torch.Tensor:
        """(n, observation_size) what a policy sees of a state."""
        raise NotImplementedError(f"{type(self).__name__} has no observe(state); a task must say what it observes.")

    def reward(self, before: State, action: torch.Tensor, after: State) -> torch.Tensor:
        """(n,) what a step is worth; action (n, action_size) is what acted, in [-1, 1]."""
        raise NotImplementedError(f"{type(self).__name__} has no reward(...); a task must say what it rewards.")

    def terminated(self, state: State) -> torch.Tensor:
        """(n,) bool: the episode ends in this state, and nothing comes after it. By default never."""
        return torch.zeros_like(state.frame, dtype=torch.bool)

    def begin(self, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, nq) and (n, nv), n = len(random): where episodes begin. By default at rest in the model's pose."""
        return self._pose.repeat(len(random), 1), self._like.new_zeros(len(random), self.model.nv)

    def control(self, state: State, action: torch.Tensor) -> torch.Tensor:
        """(n, nu) control of the simulator for an action in [-1, 1]. By default the action itself."""
        return action

    def memory(self, random: Random) -> dict[str, torch.Tensor]:
        """What state.memory holds when an episode begins, (n, ...) each: commands, goals, earlier actions."""
        return {}

    def remember(self, before: State, action: torch.Tensor, after: State) -> Mapping[str, torch.Tensor]:
        """What state.memory holds after a step; `after` still has the old one. By default it stays."""
        return after.memory

    def vary(self, random: Random) -> dict[str, torch.Tensor]:
        """Parameters of the simulator, (n, ...) each, for one episode. By default those of the model."""
        return {}

    def disturb(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        """(q, qd) from which the simulation goes on instead of the state's own: pushes. By default none.

        `self.random(state)` has the random numbers for it.
        """
        return state.q, state.qd

    def lost(self, before: State) -> torch.Tensor:
        """(n,) what a step is worth with which the simulation diverged. By default nothing.

        A task whose rewards add up to what was reached must take it back here, or ending so would pay.
        """
        return torch.zeros_like(before.q[:, 0])

    def measures(self, before: State, after: State) -> dict[str, torch.Tensor]:
        """What beside the reward tells how good a step was, (n,) each, such as a speed. By default nothing."""
        return {}

    # -- what a policy calls

    def reset(self, seed: int | None = None) -> torch.Tensor:
        """Begin new episodes everywhere; returns their first observations (num_envs, observation_size).

        seed: the same one leads to the same episodes; None: those that come next.
        """
        if seed is None and self._state is not None:
            self._state = self._begun(fork(self._state.key, NEXT_EPISODE))
        else:
            self._state = self.fresh(self.num_envs, self.seed if seed is None else seed)
        return self._observed(self._state)

    def step(self, action: torch.Tensor) -> Step:
        """Act for control_dt in all environments; episodes that end begin anew at once.

        Gradients go from all that is returned to this action and, through the state, to earlier ones, until `detach`
        or until the episode began. An environment that diverges is terminated, with the reward that the task has for
        it and no gradient.

        action: (num_envs, action_size); beyond [-1, 1] it acts like -1 or 1.
        """
        after, reward, terminated = self.transition(self.state, action)
        truncated = (after.frame >= self.episode_length) & ~terminated
        final = self._observed(after)
        self._state = self._restarted(after, terminated | truncated)
        observation = final if self._state is after else self._observed(self._state)
        return Step(observation, reward, terminated, truncated, final)

    def transition(self, state: State, action: torch.Tensor) -> tuple[State, torch.Tensor, torch.Tensor]:
        """Where an action leads from any batch of states: (state, reward (n,), terminated (n,)).

        A pure function: the environments' own state does not move, and no episode begins anew.
        """
        sim = self.simulator(len(state))
        action = checks.state("action", action, (len(state), self.action_size), self._like, sim.validate).clamp(-1, 1)
        u = self.control(state, action)
        q, qd = sim.step(*self.disturb(state), u, params=state.params or None)
        lost = sim._diverged >= 0  # not sim.diverged: a list of indices would have to wait for the device
        # one that ran away counts as not having moved: whatever it would hand on is of no use to anybody
        q = torch.where(lost[:, None], state.q.detach(), q)
        qd = torch.where(lost[:, None], state.qd.detach(), qd)
        after = replace(state, q=q, qd=qd, frame=state.frame + 1)
        after = replace(after, memory=self._remembered(state, action, after))
        earned = self._told("reward", self.reward(state, action, after), state)
        reward = torch.where(lost, self._told("lost", self.lost(state), state), earned)
        return after, reward, self._told("terminated", self.terminated(after), state, torch.bool) | lost

    def restart(self, mask: torch.Tensor, seed: int | None = None) -> torch.Tensor:
        """Begin new episodes where mask (num_envs,) is true; returns the observations of all environments.

        seed: the same one leads to the same episodes, those of `reset`; None: those that come next.
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
        """`num` beginnings of episodes, for `transition`; the environments' own state does not move.

        `replace(env.fresh(n, seed), q=q, qd=qd)` (of dataclasses) is a state at given positions and velocities.
        """
        keys = seeded(checks.seed(seed), checks.whole("num", num, 1), self.device, self.first_env)
        return self._begun(keys)

    def detach(self) -> None:
        """Cut the gradient here: later steps lead back to this state and not beyond."""
        self.state = self.state.detach()

    @property
    def state(self) -> State:
        """Where the environments are now. May be set, to a state of as many environments."""
        if self._state is None:
            raise RuntimeError("The environments have no state yet; call reset() before anything else.")
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        if len(state) != self.num_envs:
            raise ValueError(f"state has {len(state)} environments; it must have {self.num_envs}.")
        self._state = state

    @cached_property
    def observation_size(self) -> int:
        """Numbers in an observation."""
        with torch.no_grad():
            return self._observed(self.fresh(1, 0)).shape[1]

    # -- what a task may use

    def simulator(self, num: int) -> Simulator:
        """The simulator of a batch of `num` states, for link_poses and the like."""
        if num not in self._sims:
            # tensors that are made in inference mode could not be differentiated afterwards
            with torch.inference_mode(False):
                self._sims[num] = Simulator(self.model, num, **self._options)
        return self._sims[num]

    def random(self, state: State) -> Random:
        """Random numbers of this frame: the same ones whenever the step from this state is computed."""
        return Random(fork(state.key, state.frame), self._like, block=1)

    # -- inner workings

    def _told(self, name: str, value: torch.Tensor, state: State, dtype: torch.dtype | None = None) -> torch.Tensor:
        """What a task's function returned, (n,): torch would stretch (n, 1) to (n, n) without a word."""
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
        if memory.keys() != before.memory.keys():  # what memory() does not begin with, a new episode would lose
            names = [", ".join(x) or "nothing" for x in (memory, before.memory)]
            raise ValueError(
                f"{type(self).__name__}.remember returns {names[0]}; memory begins with {names[1]}, and both must have "
                "the same names."
            )
        return memory

    def _begun(self, keys: torch.Tensor) -> State:
        random = Random(keys, self._like)
        with torch.no_grad():
            q, qd = self.begin(random)
            memory, params = self.memory(random), self.vary(random)
        return State(q, qd, torch.zeros_like(keys), keys, memory, params)

    def _restarted(self, state: State, mask: torch.Tensor, keys: torch.Tensor | None = None) -> State:
        """The state with new episodes where mask is true; itself if that is nowhere, and looking costs no wait.

        keys: (num_envs,) of the new episodes; by default of those that come next.
        """
        if mask.device.type != "cpu":
            return self._restarted_unseen(state, mask, keys)
        rows = torch.nonzero(mask).flatten()
        if len(rows) == 0:
            return state
        fresh = self._begun(fork(state.key[rows], NEXT_EPISODE) if keys is None else keys[rows])
        return fresh.map(lambda new, old: old.index_copy(0, rows, new), state)

    def _restarted_unseen(self, state: State, mask: torch.Tensor, keys: torch.Tensor | None = None) -> State:
        """The same without asking the device which ones: all begin anew, and those of the mask are taken."""
        fresh = self._begun(fork(state.key, NEXT_EPISODE) if keys is None else keys)
        return fresh.map(lambda new, old: torch.where(mask.view(-1, *[1] * (new.ndim - 1)), new, old), state)
