"""The tasks as rsl_rl environments, for its `OnPolicyRunner`."""

from __future__ import annotations

from dataclasses import replace

import torch

try:
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict
except ModuleNotFoundError:
    raise ModuleNotFoundError("warp_articulated.rl.rsl needs rsl-rl-lib: pip install 'warp-articulated[rl]'.") from None

from .env import Env


class RslEnv(VecEnv):
    """A batch of environments; observations are in the group "policy".

    Args:
        env: the batch.
    """

    def __init__(self, env: Env):
        self.env = env
        self.num_envs = env.num_envs
        self.num_actions = env.action_size
        self.max_episode_length = env.episode_length
        self.device = env.device
        self.cfg = {"task": type(env).__name__, "dt": env.dt, "substeps": env.substeps, "seed": env.seed}
        self._observation = env.reset()

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """(num_envs,) control steps since the start of the episode; the runner may set it, to stagger episodes."""
        return self.env.state.frame

    @episode_length_buf.setter
    def episode_length_buf(self, frame: torch.Tensor) -> None:
        self.env.state = replace(self.env.state, frame=frame.to(self.env.state.frame))
        self._observation = self.env.observe(self.env.state)

    def get_observations(self) -> TensorDict:
        """Current observations."""
        return TensorDict({"policy": self._observation}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Returns observations, rewards (num_envs,), dones (num_envs,) and {"time_outs": truncated (num_envs,)}."""
        # The runner collects in inference mode. Tensors created there cannot be differentiated later, and the
        # environment's state is used afterwards.
        with torch.inference_mode(False), torch.no_grad():
            step = self.env.step(actions.to(self.env.dtype))
            self._observation = step.observation
            ended = (step.terminated | step.truncated).long()
        return self.get_observations(), step.reward, ended, {"time_outs": step.truncated}
