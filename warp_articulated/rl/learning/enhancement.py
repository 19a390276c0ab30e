"""Policy enhancement (Qiao et al., "Efficient Differentiable Simulation of Articulated Bodies", 2021, Section 5).

A critic's gradient with respect to the action is only as good as its interpolation between the actions tried. Putting
one step of differentiable simulation before the critic replaces most of that gradient by the exact one (Eq. 13):

    dQ(s, a)/da = dr/da + gamma dQ(s', mu(s'))/ds' ds'/da

"exact" simulates the step again with the policy's current action. "paper" stores the Jacobians at the action that was
taken, and weights a sample by how close the current action is to it (Eq. 16). `shac` simulates many steps before the
critic.
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
"""Maps observations (n, observation_size) to values (n,)."""


def expanded_value(
    env: Env, state: State, action: torch.Tensor, following: Value, gamma: float, scale: float = 1.0
) -> torch.Tensor:
    """(n,) scale r + gamma following(s') of a simulated step; only scale r where it terminated."""
    after, reward, terminated = env.transition(state, action)
    return scale * reward + torch.where(terminated, 0.0, gamma * following(env.observe(after)))


def exact_slope(
    env: Env, state: State, action: torch.Tensor, following: Value, gamma: float, scale: float = 1.0
) -> torch.Tensor:
    """Gradient of `expanded_value` (n, action_size) with respect to the action: a batched step and its adjoint.

    Zero where it is not finite, for example where the adjoint overflows.
    """
    with torch.enable_grad():
        action = action.detach().requires_grad_()
        value = expanded_value(env, state, action, following, gamma, scale)
        slope = torch.autograd.grad(value.sum(), action)[0]
    return torch.where(slope.isfinite().all(1, keepdim=True), slope, 0.0)


def jacobians(env: Env, state: State, action: torch.Tensor) -> dict[str, torch.Tensor]:
    """Derivatives of reward (n, action_size) and next observation (n, observation_size, action_size) by the action.

    Zero where a step diverges or its Jacobian is not finite.
    """
    slopes = step_jacobian(env, state, action)
    slopes = torch.where(slopes.isfinite().all(2, keepdim=True).all(1, keepdim=True), slopes, 0.0)
    return {"reward slope": slopes[:, -1], "observation slope": slopes[:, :-1]}


def stored_slope(batch: Transitions, following: Value, gamma: float, scale: float = 1.0) -> torch.Tensor:
    """The same gradient (n, action_size) at the action that was taken, from the `jacobians` in batch.extra."""
    with torch.enable_grad():
        reached = batch.next_observation.detach().requires_grad_()
        value = torch.where(batch.terminated, 0.0, gamma * following(reached))
        slope = torch.autograd.grad(value.sum(), reached)[0]
    through = torch.einsum("no,noa->na", slope, batch.extra["observation slope"])
    return scale * batch.extra["reward slope"] + through


def closeness(action: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
    """(n, 1) weight of a stored gradient for an action that differs from the one taken (Eq. 16)."""
    return torch.exp(-(action - taken).norm(dim=1, keepdim=True))
