"""Proximal policy optimisation (Schulman et al., 2017) of rsl_rl, as a baseline.

It does not use simulation gradients. Networks, losses and the adaptive learning rate are rsl_rl's; the loop, the log
and the checkpoints are ours, as for any other learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

try:
    from rsl_rl.algorithms import PPO
    from rsl_rl.models import MLPModel
    from rsl_rl.storage import RolloutStorage
    from tensordict import TensorDict
except ModuleNotFoundError:
    raise ModuleNotFoundError("the algorithm ppo needs rsl-rl-lib: pip install 'warp-articulated[rl]'.") from None

from ..env import Env
from .learner import Learner

GROUPS = {"actor": ["policy"], "critic": ["policy"]}  # both have the same observations


@dataclass(frozen=True)
class PpoSettings:
    """Settings of `Ppo`."""

    num_envs: int = 256
    horizon: int = 24
    """Control steps per environment and iteration."""
    gamma: float = 0.99
    trace: float = 0.95
    """Lambda of generalised advantage estimation."""
    rate: float = 1e-3
    """Initial learning rate; it adapts to keep the policy's change at target_kl."""
    target_kl: float = 0.01
    epochs: int = 5
    minibatches: int = 4
    ratio_clip: float = 0.2
    """Distance of the likelihood ratio from 1 at which it is clipped."""
    value_clip: bool = False
    """Whether changes of values are also clipped to ratio_clip; only useful if rewards are scaled for it."""
    entropy: float = 0.005
    """Weight of the entropy in the loss."""
    clip: float = 1.0
    """Largest norm of the gradient of the weights."""
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    critic_hidden: tuple[int, ...] = (128, 64, 32)
    std: float = 0.5
    """Initial standard deviation of the action noise; it is learned."""


class Mean(nn.Module):
    """Mean action, clipped to [-1, 1]; shares its networks with rsl_rl's actor."""

    squash = "clip"

    def __init__(self, actor: MLPModel):
        super().__init__()
        self.normaliser, self.net = actor.obs_normalizer, actor.mlp

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.net(self.normaliser(observation)).clamp(-1.0, 1.0)


class Ppo(Learner):
    """PPO: moves the policy in small steps towards actions that were better than expected.

    Its noise comes from torch's global generator, so on CUDA a resumed run continues with different random numbers.

    Args:
        env: the batch.
        settings: settings of the algorithm.
        seed: seed of all random numbers.
    """

    Settings = PpoSettings

    def __init__(self, env: Env, settings: PpoSettings, seed: int = 0):
        steps = env.num_envs * settings.horizon
        if steps < max(2, settings.minibatches):  # advantages are normalised, which needs two
            raise ValueError(
                f"num_envs is {env.num_envs} and horizon is {settings.horizon}; their product must be at least "
                f"{max(2, settings.minibatches)}, one step per minibatch."
            )
        super().__init__(env, settings, seed)
        observed = self._grouped(self.observation)
        noise = {"class_name": "GaussianDistribution", "init_std": settings.std, "std_type": "log"}
        self.actor = MLPModel(
            observed, GROUPS, "actor", env.action_size, settings.actor_hidden,
            obs_normalization=True, distribution_cfg=noise,
        ).to(env._like)  # fmt: skip
        self.critic = MLPModel(
            observed, GROUPS, "critic", 1, settings.critic_hidden, obs_normalization=True
        ).to(env._like)  # fmt: skip
        device = str(env.device)
        self.algorithm = PPO(
            self.actor,
            self.critic,
            RolloutStorage("rl", env.num_envs, settings.horizon, observed, [env.action_size], device),
            num_learning_epochs=settings.epochs,
            num_mini_batches=settings.minibatches,
            clip_param=settings.ratio_clip,
            gamma=settings.gamma,
            lam=settings.trace,
            entropy_coef=settings.entropy,
            learning_rate=settings.rate,
            max_grad_norm=settings.clip,
            use_clipped_value_loss=settings.value_clip,
            desired_kl=settings.target_kl,
            device=device,
        )
        self._policy = Mean(self.actor)

    @property
    def policy(self) -> Mean:
        return self._policy

    def parts(self) -> dict[str, Any]:
        return {"actor": self.actor, "critic": self.critic, "optimiser": self.algorithm.optimizer}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.algorithm.learning_rate = self.algorithm.optimizer.param_groups[0]["lr"]

    def advance(self) -> dict[str, float]:
        with torch.no_grad():
            for _ in range(self.settings.horizon):
                step = self.env.step(self.algorithm.act(self._grouped(self.observation)))
                self.count(step)
                over = step.terminated | step.truncated
                observed = self._grouped(self.observation)
                self.algorithm.process_env_step(observed, step.reward, over, {"time_outs": step.truncated})
            self.algorithm.compute_returns(observed)
        losses = self.algorithm.update()
        self.iterations += 1
        return {
            **self.episodes.collect(),
            "critic loss": losses["value"],
            "learning rate": self.algorithm.learning_rate,
            "noise": float(self.actor.output_std.detach().mean()),
        }

    def _grouped(self, observation: torch.Tensor) -> TensorDict:
        return TensorDict({"policy": observation}, batch_size=[self.env.num_envs])
