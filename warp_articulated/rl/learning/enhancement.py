"""Policy enhancement (Qiao et al., "Efficient Differentiable Simulation of Articulated Bodies", 2021, Section 5).

The slope of a critic by the action is only as good as the critic is between the actions that were tried. A step of
differentiable simulation in front of it replaces most of that slope by the truth (Eq. 13):

    dQ(s, a)/da = dr/da + gamma dQ(s', mu(s'))/ds' ds'/da

"exact" simulates the step again at the action that the policy chooses now. "paper" keeps the Jacobians of the action
that was taken, and weights a sample by how close to it the policy still is (Eq. 16). Many steps in front of a critic
are what `shac` does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..env import Env
from ..state import State
from .jacobian import step_jacobian
from .replay import Transitions

FORMS = ("none", "exact", "paper")

Value = Callable[[torch.Tensor], torch.Tensor]
"""From observations (n, observation_size) to the values (n,) of being there."""


def expanded_value(
    env: Env, state: State, action: torch.Tensor, following: Value, gamma: float, scale: float = 1.0
) -> torch.Tensor:
    """(n,) scale r + gamma following(s') of a simulated step; nothing follows where it terminated."""
    after, reward, terminated = env.transition(state, action)
    return scale * reward + torch.where(terminated, 0.0, gamma * following(env.observe(after)))


def exact_slope(
    env: Env, state: State, action: torch.Tensor, following: Value, gamma: float, scale: float = 1.0
) -> torch.Tensor:
    """(n, action_size) slope of `expanded_value` by the action: a batched step of simulation and its adjoint.

    Zero where it is not finite, as that of a step through which numbers of the adjoint overflow.
    """
    with torch.enable_grad():
        action = action.detach().requires_grad_()
        value = expanded_value(env, state, action, following, gamma, scale)
        slope = torch.autograd.grad(value.sum(), action)[0]
    return torch.where(slope.isfinite().all(1, keepdim=True), slope, 0.0)


def jacobians(env: Env, state: State, action: torch.Tensor) -> dict[str, torch.Tensor]:
    """How the reward, (n, action_size), and the next observation, (n, observation_size, action_size), change by action.

    Zero where a step diverges, or its Jacobian is not finite.
    """
    slopes = step_jacobian(env, state, action)
    slopes = torch.where(slopes.isfinite().all(2, keepdim=True).all(1, keepdim=True), slopes, 0.0)
    return {"reward slope": slopes[:, -1], "observation slope": slopes[:, :-1]}


def stored_slope(batch: Transitions, following: Value, gamma: float, scale: float = 1.0) -> torch.Tensor:
    """(n, action_size) the same slope at the action that was taken, from the `jacobians` in batch.extra."""
    with torch.enable_grad():
        reached = batch.next_observation.detach().requires_grad_()
        value = torch.where(batch.terminated, 0.0, gamma * following(reached))
        slope = torch.autograd.grad(value.sum(), reached)[0]
    through = torch.einsum("no,noa->na", slope, batch.extra["observation slope"])
    return scale * batch.extra["reward slope"] + through


def closeness(action: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """(n, 1) weight of a stored slope for an action that is not the one that was taken (Eq. 16)."""
    return torch.exp(-(action - taken).norm(dim=1, keepdim=True))
