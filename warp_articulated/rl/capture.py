"""`CapturedStep`: the steps of a batch of environments as one CUDA graph.

A step of a small batch is bound by the host, which queues up to some hundred operations one by one. A graph queues them
all at once. It reads and writes the same memory whenever it is replayed, so the state lives there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..device import checks, cuda
from .state import State, Step

if TYPE_CHECKING:
    from .env import Env


class CapturedStep:
    """A function of the action with the results of `env.step`, without gradients; made by `env.capture()`.

    Args:
        env: the batch; its state is the same afterwards, but its tensors are overwritten by every captured step.
        warm_ups: steps before the capture, in which kernels are compiled and loaded.
        copy: return copies. Otherwise the results are overwritten by the next step.
    """

    def __init__(self, env: Env, warm_ups: int = 3, copy: bool = True):
        cuda.require(env.device, "env.capture()")
        if env.sim.validate:
            raise ValueError(
                "env.capture() cannot check numbers, because a CUDA graph cannot wait for them; make the environments "
                "with validate=False, which is the default on CUDA."
            )
        self.env, self.copy = env, checks.flag("copy", copy)
        self._given = env.state  # fails with a clear message before the first reset
        self._state = self._given.map(_own)
        self._action = env._like.new_zeros(env.num_envs, env.action_size)
        self._step: Step | None = None
        try:
            # without gradients, and not in inference mode: its tensors could not be changed in place afterwards
            with torch.inference_mode(False), torch.no_grad():
                self._replay = cuda.capture(env.device, self._body, checks.whole("warm_ups", warm_ups, 1))
        finally:
            env.state = self._given

    def __call__(self, action: torch.Tensor) -> Step:
        """Apply an action (num_envs, action_size), as `env.step` does."""
        env = self.env
        action = checks.state("action", action, tuple(self._action.shape), self._action, False)
        if torch.is_grad_enabled() and (action.requires_grad or env.state.q.requires_grad):
            raise RuntimeError(
                "A captured step has no gradients; call env.step(action) for them, or this under torch.no_grad()."
            )
        with torch.no_grad():
            if env.state is not self._state:  # reset, restarted, or set by the user
                _copy(self._state, env.state)
            self._action.copy_(action)
            self._replay()
            env.state = self._state
            assert self._step is not None
            return Step(*(x.clone() for x in self._step)) if self.copy else self._step

    def _body(self) -> None:
        """What the graph holds: one step from the state in its own memory, to the same memory."""
        env = self.env
        env.state = self._state
        # copies, because a task may hand out the state's own memory, which is overwritten below
        self._step = Step(*(x.clone() for x in env.step(self._action)))
        after = env.state
        if after is not self._state:
            _copy(self._state, after)


def _own(x: torch.Tensor) -> torch.Tensor:
    """Memory for x alone: values that all environments share would overlap, and could not be written."""
    return x.detach().clone(memory_format=torch.contiguous_format)


def _copy(to: State, of: State) -> None:
    if to.memory.keys() != of.memory.keys() or to.params.keys() != of.params.keys():
        raise ValueError("The state has other memory or parameters than at env.capture(); call env.capture() again.")
    to.map(lambda a, b: a.copy_(b), of)
