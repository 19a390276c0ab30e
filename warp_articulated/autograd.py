"""The engine's kernels as functions that PyTorch can differentiate, by the hand-written adjoint kernels.

A backward pass needs only what the caller has anyway: the inputs, and the states that the rollout returns. They are
saved through torch, so changing them in place before `backward` raises torch's own error.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch.autograd.function import once_differentiable

from .device import parameters
from .device.engine import Counts, Engine
from .device.structs import params_bar_struct
from .geometry.rotations import quat_multiply

REPLAY = 64  # steps that a backward pass recomputes at once, if checkpoints are closer: it stores their states

Params = Mapping[str, torch.Tensor]


def step(engine: Engine, counts: Counts, substeps: int, u, wrench, q, qd, params: Params):
    """See Engine.step."""
    if not differentiates(u, wrench, q, qd, *params.values()):
        return engine.step(counts, substeps, u, wrench, q, qd, params)
    return Step.apply(engine, counts, substeps, tuple(params), u, wrench, q, qd, *params.values())


def rollout(engine: Engine, counts: Counts, substeps: int, every: int, u, wrench, q, qd, params: Params):
    """See Engine.rollout; every: controls between two rows."""
    if not differentiates(u, wrench, q, qd, *params.values()):
        return engine.rollout(counts, substeps, every * substeps, u, wrench, q, qd, params)
    return Rollout.apply(engine, counts, substeps, every, tuple(params), u, wrench, q, qd, *params.values())


def query(engine: Engine, name: str, inputs: Sequence[torch.Tensor | None], params: Params):
    """What the engine's method of that name returns for (*inputs, params); its adjoint is called name_adjoint."""
    if not differentiates(*inputs, *params.values()):
        return getattr(engine, name)(*inputs, params)
    return Query.apply(engine, name, tuple(params), *inputs, *params.values())


def differentiates(*inputs: torch.Tensor | None) -> bool:
    """Whether torch records what is done with the inputs."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def eager(method: Callable) -> Callable:
    """A method that torch.compile calls instead of tracing it: there is nothing in it to compile.

    torch.compiler.disable does that too, but loads the compiler at once, which takes longer than loading the rest.
    """
    disabled: list[Callable] = []

    @functools.wraps(method)
    def call(*args, **options):
        if "torch._dynamo" not in sys.modules:
            return method(*args, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(method))
        return disabled[0](*args, **options)

    return call


class Rollout(torch.autograd.Function):
    """(states, controls, parameters) -> states at every `every`-th control; returns 1 + ceil(T / every) rows."""

    @staticmethod
    def forward(
        ctx, engine: Engine, counts, substeps: int, every: int, names: Sequence[str], u, wrench, q, qd, *values
    ):
        params = dict(zip(names, values, strict=True))
        qs, qds = engine.rollout(counts, substeps, every * substeps, u, wrench, q, qd, params)
        ctx.engine, ctx.substeps, ctx.every, ctx.names = engine, substeps, every, names
        ctx.diverged = counts[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(u, wrench, qs, qds, *values)
        return qs, qds

    @staticmethod
    @once_differentiable
    def backward(ctx, qs_bar, qds_bar):
        u, wrench, qs, qds, *values = ctx.saved_tensors
        adjoint = RolloutAdjoint(ctx, u, wrench, values)
        q_bar, qd_bar = adjoint.run(qs, qds, qs_bar, qds_bar)
        return None, None, None, None, None, adjoint.u_bar, adjoint.wrench_bar, q_bar, qd_bar, *adjoint.params_bar


class Step(torch.autograd.Function):
    """A rollout of one control that keeps its inputs and returns the next state alone."""

    @staticmethod
    def forward(ctx, engine: Engine, counts, substeps: int, names: Sequence[str], u, wrench, q, qd, *values):
        q_next, qd_next = engine.step(counts, substeps, u, wrench, q, qd, dict(zip(names, values, strict=True)))
        ctx.engine, ctx.substeps, ctx.every, ctx.names = engine, substeps, 1, names
        ctx.diverged = counts[0]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(u, wrench, q, qd, *values)
        return q_next, qd_next

    @staticmethod
    @once_differentiable
    def backward(ctx, q_next_bar, qd_next_bar):
        u, wrench, q, qd, *values = ctx.saved_tensors
        adjoint = RolloutAdjoint(ctx, u[None], None if wrench is None else wrench[None], values)
        bars = [None if bar is None else torch.stack([torch.zeros_like(bar), bar]) for bar in (q_next_bar, qd_next_bar)]
        q_bar, qd_bar = adjoint.run(q[None], qd[None], *bars)
        wrench_bar = None if adjoint.wrench_bar is None else adjoint.wrench_bar[0]
        return None, None, None, None, adjoint.u_bar[0], wrench_bar, q_bar, qd_bar, *adjoint.params_bar


class RolloutAdjoint:
    """One backward pass: walks back over groups of segments between checkpoints."""

    def __init__(self, ctx, u: torch.Tensor, wrench: torch.Tensor | None, values: Sequence[torch.Tensor]):
        self.engine, self.substeps, self.every, self.u, self.wrench = ctx.engine, ctx.substeps, ctx.every, u, wrench
        self.params = dict(zip(ctx.names, values, strict=True))
        # an environment that diverged stays where it was from that control on
        self.stopped = torch.where(ctx.diverged < 0, u.shape[0], ctx.diverged)
        self.wanted = [
            name if need else None
            for name, need in zip(ctx.names, ctx.needs_input_grad[-len(ctx.names) :], strict=True)
        ] if ctx.names else []  # fmt: skip
        self.bars = ParameterBars(self.engine, [name for name in self.wanted if name])
        self.u_bar = torch.zeros_like(u)
        self.wrench_bar = None if wrench is None else torch.zeros_like(wrench)

    @property
    def params_bar(self) -> list[torch.Tensor | None]:
        """Gradients of the parameters, in the order in which they were given."""
        return [self.bars.gradient(name, self.params[name]) if name else None for name in self.wanted]

    def run(self, qs, qds, qs_bar, qds_bar):
        """Returns the gradients of the initial state. Rows are checkpoints."""
        rows = 1 - (-self.u.shape[0] // self.every)
        qs_bar, qds_bar = (
            like.new_zeros(()).expand(rows, *like.shape[1:]) if bar is None else bar
            for bar, like in ((qs_bar, qs), (qds_bar, qds))
        )
        q_bar, qd_bar = torch.zeros_like(qs[0]), torch.zeros_like(qds[0])
        if self.every * self.substeps == 1:
            if len(self.u):
                self._launch(slice(None), qs, qds, qs_bar, qds_bar, 1, q_bar, qd_bar)
        else:
            for first, last in self._groups(rows):
                span = slice(first * self.every, last * self.every)
                stride = len(self.u[span]) // (last - first) * self.substeps
                q, qd = self._replay(span, qs[first], qds[first])
                ends = slice(first, last + 1)
                self._launch(span, q, qd, qs_bar[ends], qds_bar[ends], stride, q_bar, qd_bar)
                del q, qd  # before the next ones are made
        return q_bar + qs_bar[0], qd_bar + qds_bar[0]

    def _groups(self, rows: int) -> Iterator[tuple[int, int]]:
        """Rows between which to replay at once, last ones first.

        Short segments are replayed together, or launches would cost more than the steps in them. A shorter last
        segment is replayed alone.
        """
        last = rows - 1
        if last * self.every > len(self.u):
            yield last - 1, last
            last -= 1
        together = max(REPLAY // (self.every * self.substeps), 1)
        while last > 0:
            yield max(last - together, 0), last
            last -= together

    def _inputs(self, span: slice):
        """Controls and wrenches of some controls, and their gradients."""
        inputs = (self.u, self.wrench, self.u_bar, self.wrench_bar)
        return [None if x is None else x[span] for x in inputs]

    def _replay(self, span: slice, q, qd):
        """The states within some segments, by the forward kernel itself: the same to the last bit."""
        u, wrench, _, _ = self._inputs(span)
        if self.substeps == 1:
            u = u[:-1]  # the state after the last step is not needed
        return self.engine.rollout(self.engine.counts(), self.substeps, 1, u, wrench, q, qd, self.params)

    def _launch(self, span: slice, qs, qds, qs_bar, qds_bar, stride, q_bar, qd_bar):
        u, wrench, u_bar, wrench_bar = self._inputs(span)
        stopped = self.stopped - (span.start or 0)
        self.engine.rollout_adjoint(
            self.params, self.substeps, stride, u, wrench, qs, qds, stopped, qs_bar, qds_bar, q_bar, qd_bar, u_bar,
            wrench_bar=wrench_bar, params_bar=self.bars.struct,
        )  # fmt: skip


class ParameterBars:
    """Memory for the gradients of the requested parameters, per environment."""

    def __init__(self, engine: Engine, wanted: Sequence[str]):
        self.arrays: dict[str, torch.Tensor] = {}
        groups = {group for group, names in parameters.GROUPS.items() if not set(names).isdisjoint(wanted)}
        for group in groups:
            for name in parameters.GROUPS[group]:
                shape = engine.shapes[name][:-1] + (3,) if name == "joint_quat" else engine.shapes[name]
                self.arrays[name] = engine.like.new_zeros(engine.num_envs, *shape)
        self.struct = params_bar_struct(engine.types, groups, self.arrays)

    def gradient(self, name: str, value: torch.Tensor) -> torch.Tensor:
        bar = self.arrays[name]
        if name == "joint_quat":  # the kernels give a rotation from the left
            return rotation_to_quat(bar, value)
        return bar


def rotation_to_quat(phi_bar: torch.Tensor, quat: torch.Tensor) -> torch.Tensor:
    """Gradient of a quaternion xyzw of any length from that of a rotation exp(phi) from its left."""
    turned = quat_multiply(torch.nn.functional.pad(phi_bar, (0, 1)), quat)
    return turned * (2.0 / (quat * quat).sum(-1, keepdim=True))


class Query(torch.autograd.Function):
    """Queries of one state: (inputs, parameters) -> tensors."""

    @staticmethod
    def forward(ctx, engine: Engine, name: str, names: Sequence[str], *tensors):
        inputs, params = Query.split(names, tensors)
        ctx.engine, ctx.name, ctx.names = engine, name, names
        ctx.save_for_backward(*tensors)
        found = getattr(engine, name)(*inputs, params)
        if name == "contacts":  # points, normals, depths, impulses; the rest are counts
            ctx.mark_non_differentiable(*found[4:])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx, *outputs_bar):
        inputs, params = Query.split(ctx.names, ctx.saved_tensors)
        needed = ctx.needs_input_grad[3 + len(inputs) :]
        wanted = {name for name, need in zip(ctx.names, needed, strict=True) if need}
        bars = ParameterBars(ctx.engine, sorted(wanted))
        outputs = [bar.contiguous() for bar in outputs_bar[: 4 if ctx.name == "contacts" else None]]
        bar = getattr(ctx.engine, f"{ctx.name}_adjoint")(*inputs, params, outputs, bars.struct)
        return None, None, None, *bar, *(bars.gradient(n, params[n]) if n in wanted else None for n in ctx.names)

    @staticmethod
    def split(names: Sequence[str], tensors: Sequence[torch.Tensor]):
        """Inputs and parameters."""
        count = len(tensors) - len(names)
        return tensors[:count], dict(zip(names, tensors[count:], strict=True))
