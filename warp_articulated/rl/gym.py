"""The tasks as Gymnasium environments: `gymnasium.make_vec` for a batch, `gymnasium.make` for a single environment.

Importing this module registers "warp_articulated/Ant-v0" and the other tasks. Arrays are numpy arrays without
gradients; for gradients use `rl.Env`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

try:
    import gymnasium
except ModuleNotFoundError:
    raise ModuleNotFoundError("warp_articulated.rl.gym needs gymnasium: pip install 'warp-articulated[rl]'.") from None

from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ..device.checks import plain_numpy
from ..show.pictures.render import render
from .env import Env
from .state import Step
from .tasks import TASKS, make

PICTURE = (480, 360)  # pixels


class VectorEnv(gymnasium.vector.VectorEnv):
    """A batch of environments.

    Args:
        env: the batch.
        autoreset_mode: when to reset an environment whose episode has ended. SAME_STEP: in the step that ended it;
            info["_final_obs"] (num_envs,) marks the ended episodes, info["final_obs"] (num_envs,) has their last
            observations, and None for the others. NEXT_STEP: in the following step, which ignores its action and has
            reward 0. DISABLED: when `reset` is called with options={"reset_mask": ...}.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env: Env, autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP):
        self.env = env
        self.num_envs = env.num_envs
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(repr(mode.value) for mode in AutoresetMode)
            raise ValueError(f"autoreset_mode is {autoreset_mode!r}; it must be one of {known}.") from None
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = spaces(env)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self._over = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)  # and not yet reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Returns the observations and {}. options["reset_mask"], (num_envs,) bool: which environments to reset."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask")
        with torch.no_grad():
            if mask is None:
                observation = self.env.reset(seed)
                self._over = torch.zeros_like(self._over)
            else:
                mask = _mask(self.env, mask)
                observation = self.env.restart(mask, seed)
                self._over = self._over & ~mask
        return _copy(observation), {}

    def step(self, actions: np.ndarray):
        """Observations, rewards, terminations, truncations and info of one control step."""
        action = _tensor(self.env, "actions", actions)
        with torch.no_grad():
            step = self.env.step(action) if self.autoreset_mode is AutoresetMode.SAME_STEP else self._go_on(action)
        reward, terminated, truncated, final = (x.cpu().numpy() for x in step[1:])
        info: dict[str, Any] = {}
        ended = terminated | truncated
        if ended.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            info = {"final_obs": np.full(self.num_envs, None, object), "_final_obs": ended}
            for i in np.flatnonzero(ended):
                info["final_obs"][i] = final[i]
        return _copy(step.observation), reward, terminated, truncated, info

    def _go_on(self, action: torch.Tensor) -> Step:
        """A step without resetting episodes that end in it; NEXT_STEP resets those that ended before it."""
        env, over = self.env, self._over
        if self.autoreset_mode is AutoresetMode.DISABLED and bool(over.any()):
            raise RuntimeError(
                f"The episode of environment {int(over.nonzero()[0])} has ended; call reset with "
                "options={'reset_mask': ...} for all ended environments, or choose another autoreset_mode."
            )
        env.state, reward, terminated = env.transition(env.state, action)
        observation = env.restart(over)
        reward, terminated = torch.where(over, 0.0, reward), terminated & ~over
        truncated = (env.state.frame >= env.episode_length) & ~terminated & ~over
        self._over = terminated | truncated
        return Step(observation, reward, terminated, truncated, observation)


class SingleEnv(gymnasium.Env):
    """A single environment; the user resets it when its episode ends.

    Args:
        env: a batch of one.
        render_mode: "rgb_array" for pictures, or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, env: Env, render_mode: str | None = None):
        if env.num_envs != 1:
            raise ValueError(f"env has {env.num_envs} environments; a gymnasium.Env must have exactly one.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; it must be 'rgb_array', or None for no pictures.")
        self.env = env
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1.0 / env.control_dt)}
        self.observation_space, self.action_space = spaces(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Returns the first observation and {}."""
        super().reset(seed=seed)
        with torch.no_grad():
            return _copy(self.env.reset(seed)[0]), {}

    def step(self, action: np.ndarray):
        """Observation, reward, terminated, truncated and {} of one control step."""
        env = self.env
        with torch.no_grad():
            # not env.step, which would reset the environment
            env.state, reward, terminated = env.transition(env.state, _tensor(env, "action", action)[None])
            observation = _copy(env.observe(env.state)[0])
        truncated = bool(env.state.frame >= env.episode_length) and not bool(terminated)
        return observation, float(reward), bool(terminated), truncated, {}

    def render(self) -> np.ndarray | None:
        """Picture (height, width, 3) of the current state, uint8; None without a render_mode."""
        return None if self.render_mode is None else render(self.env.model, self.env.state.q, size=PICTURE)


def spaces(env: Env) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Spaces of observations, unbounded, and of actions, in [-1, 1]."""
    dtype = np.float32 if env.dtype == torch.float32 else np.float64
    observation = gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_size,), dtype)
    return observation, gymnasium.spaces.Box(-1.0, 1.0, (env.action_size,), dtype)


def make_vector(
    task: str, num_envs: int = 1, autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP, **options
) -> VectorEnv:
    """Entry point of gymnasium.make_vec; options are passed to the task's class."""
    return VectorEnv(make(task, num_envs, **_seeded(options)), autoreset_mode)


def make_single(task: str, render_mode: str | None = None, **options) -> SingleEnv:
    """Entry point of gymnasium.make; options are passed to the task's class."""
    return SingleEnv(make(task, **_seeded(options)), render_mode)


def _seeded(options: dict[str, Any]) -> dict[str, Any]:
    """Add a random seed by default: in Gymnasium, unseeded environments differ from each other."""
    return {"seed": int(np.random.default_rng().integers(2**62)), **options}


def _copy(observation: torch.Tensor) -> np.ndarray:
    """A copy, because an observation may share memory with the state and callers may write into it."""
    return observation.cpu().numpy().copy()


def _mask(env: Env, value) -> torch.Tensor:
    mask = torch.as_tensor(plain_numpy(np.asarray(value)), device=env.device)
    if mask.shape != (env.num_envs,) or mask.dtype != torch.bool:
        raise ValueError(
            f"reset_mask has shape {tuple(mask.shape)} and is {mask.dtype}; it must be ({env.num_envs},) of bool."
        )
    return mask


def _tensor(env: Env, name: str, value) -> torch.Tensor:
    try:
        return torch.as_tensor(plain_numpy(np.asarray(value)), dtype=env.dtype, device=env.device)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a {type(value).__name__}; it must be an array of numbers.") from None


def _register() -> None:
    ids: dict[str, dict] = {task: {"task": task} for task in TASKS if task != "PendulumReach"}
    ids |= {f"PendulumReach{n}": {"task": "PendulumReach", "n": n} for n in range(1, 8)}
    for name, options in ids.items():
        gymnasium.register(
            f"warp_articulated/{name}-v0",
            entry_point=f"{__name__}:make_single",
            vector_entry_point=f"{__name__}:make_vector",
            kwargs=options,
        )


_register()
