"""`Simulator`: a model on a device, ready to run batches of it from PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
import warp as wp

from .autograd import Rollout, Step
from .device import checks
from .device.eager import eager
from .kernels.rollout import make_rollout, make_rollout_adjoint
from .queries import Queries


class Simulator(Queries):
    """Many copies of a model, stepped together, one per thread.

    Args:
        model: what to simulate, from `load` or `combine`.
        num_envs: copies of it.
        device: "cpu" or "cuda:0"; by default the first CUDA device if there is one.
        dtype: "float32" or "float64".
        dt: seconds per step.
        substeps: steps of dt per control, which is held in between.
        iterations: sweeps of the contact solver at most.
        tolerance: N s; the solver stops early once no impulse changes by more.
        threads: CPU threads to spread the environments over, by default all cores. Results do not depend on it.
        friction: "cone" (Coulomb) or "pyramid" (each tangent limited by itself, as in the paper).
        erp: share of a penetration or limit violation that is removed per step.
        cfm: 1/kg, compliance of contact normals and joint limits.
        restitution_threshold: m/s; slower impacts do not bounce. By default 0.05 or three steps of free fall.
        max_push_speed: m/s, at which penetrating shapes are pushed apart at most; deep overlaps come apart gently.
        max_contacts: contacts at once per environment (rounded up to 4, 8, 16, ...); beyond it the deepest are kept and
            `dropped_contacts` counts the others.
        validate: refuse states and controls that are not finite; by default on the CPU only, where it costs no sync.
    """

    @eager
    def step(self, q, qd, u=None, *, substeps: int | None = None, params: Mapping | None = None):
        """State after one control step of `substeps` times dt.

        Args:
            q, qd: (num_envs, nq) and (num_envs, nv).
            u: (num_envs, nu); by default the control that goes with the default pose.
            params: parameters that differ from `self.params`, by name; (num_envs, ...) or shared.
        """
        q, qd = self._state(q, qd)
        u = self._control(u)
        own = self._own_params(params)
        substeps = self._substeps(substeps)
        counts = self._counts()
        if self._differentiates(u, q, qd, *own.values()):
            q, qd = Step.apply(self, counts, substeps, tuple(own), u, q, qd, *own.values())
        else:
            q, qd = self._forward_one(counts, substeps, u, q, qd, own)
        self._report(counts)
        return q, qd

    @eager
    def rollout(
        self, q, qd, u, *, substeps: int | None = None, params: Mapping | None = None,
        checkpoint_every: int | str = 1,
    ):  # fmt: skip
        """States (T + 1, num_envs, nq) and (T + 1, num_envs, nv) of T control steps, the initial one included.

        Args:
            q, qd: initial state, (num_envs, nq) and (num_envs, nv).
            u: (T, num_envs, nu).
            substeps: steps of dt per control; None: as of the constructor.
            params: as of `step`.
            checkpoint_every: keep and return only every k-th state (and the last): 1 + ceil(T / k) rows, from which
                a backward pass simulates the others again, k at a time; "sqrt" is k = ceil(sqrt(T)).
        """
        q, qd = self._state(q, qd)
        u = checks.state("u", u, (-1, self.num_envs, self.model.nu), self._like, self.validate)
        own = self._own_params(params)
        substeps = self._substeps(substeps)
        every = checks.interval("checkpoint_every", checkpoint_every, u.shape[0])
        counts = self._counts()
        if self._differentiates(u, q, qd, *own.values()):
            states = Rollout.apply(self, counts, substeps, every, tuple(own), u, q, qd, *own.values())
        else:
            states = self._forward(counts, substeps, every, u, q, qd, own)
        self._report(counts)
        return states

    def _counts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """For one call: where each environment ran away (-1: nowhere), and how many contacts it dropped."""
        return torch.full_like(self._diverged, -1), torch.zeros_like(self._dropped)

    def _forward(self, counts, substeps, every, u, q, qd, params, every_step=False):
        """Run the rollout kernel; `every_step`: for the backward pass, with the states between the controls."""
        stride = 1 if every_step else every * substeps
        rows = 1 - (-u.shape[0] * substeps // stride)
        qs, qds = q.new_empty(rows, *q.shape), qd.new_empty(rows, *qd.shape)
        qs[0], qds[0] = q.detach(), qd.detach()
        if u.shape[0] > 0:
            self._run(make_rollout, params, substeps, stride, u, qs, qds, *counts)
        return qs, qds

    def _forward_one(self, counts, substeps, u, q, qd, params):
        """One control: copies of the state, stepped in place."""
        q, qd = q.detach().clone(), qd.detach().clone()
        rows = (x[None].expand(2, -1, -1) for x in (q, qd))  # before and after are the same memory
        self._run(make_rollout, params, substeps, substeps, u[None], *rows, *counts)
        return q, qd

    def _launch_adjoint(self, params, *arguments) -> None:
        self._run(make_rollout_adjoint, params, *arguments)

    @property
    def diverged(self) -> torch.Tensor:
        """Indices of the environments that ran away in the last step or rollout; each was stopped where it was."""
        return torch.nonzero(self._diverged >= 0).flatten()

    @property
    def dropped_contacts(self) -> torch.Tensor:
        """(num_envs,) contacts of the last step or rollout that had no room, summed over its steps."""
        return self._dropped

    # -- without torch

    @eager
    def step_warp(self, state_in, control: wp.array, state_out) -> None:
        """One control step on Warp arrays: state_in and state_out are (q, qd), control is (num_envs, nu)."""
        self._check_warp(state_in=state_in, control=control, state_out=state_out)
        for before, after in zip(state_in, state_out, strict=True):
            wp.copy(after, before)
        q, qd = (_in_place(after) for after in state_out)
        u = control.reshape((1, *control.shape))
        counts = self._counts()
        self._run(make_rollout, {}, self.substeps, self.substeps, u, q, qd, *counts)
        self._report(counts)

    @eager
    def step_adjoint_warp(self, state_in, control: wp.array, state_bar, control_bar: wp.array) -> None:
        """Adjoint of `step_warp` on Warp arrays.

        state_bar, (q, qd), comes in as the gradient with respect to the state after the step and leaves as that with
        respect to state_in; control_bar, (num_envs, nu), is added to.
        """
        self._check_warp(state_in=state_in, control=control, state_bar=state_bar, control_bar=control_bar)
        q, qd = (wp.to_torch(x) for x in state_in)
        u, u_bar = wp.to_torch(control)[None], wp.to_torch(control_bar)[None]
        qs, qds = q[None], qd[None]
        if self.substeps > 1:
            qs, qds = self._forward(self._counts(), self.substeps, 1, u, q, qd, {}, every_step=True)
        never = torch.full_like(self._diverged, 1)
        stride = self.substeps + 1  # no further gradients come in on the way
        bars = [wp.to_torch(x) for x in state_bar]
        self._launch_adjoint(
            {}, self.substeps, stride, u, qs, qds, never, qs, qds, *bars, u_bar, self._types.ParamsBar()
        )

    def _check_warp(self, **arrays) -> None:
        """Refuse Warp arrays of another shape, precision or device: the kernels would read beyond their end."""
        for name, value in arrays.items():
            sizes = (self.model.nu,) if name.startswith("control") else (self.model.nq, self.model.nv)
            for array, size in zip(value if len(sizes) == 2 else [value], sizes, strict=True):
                checks.warp_array(name, array, (self.num_envs, size), self._real, self.device)

    def _report(self, counts: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Keep what a call counted; say at once that environments ran away, where looking costs no synchronisation."""
        self._diverged, self._dropped = counts
        if not self.device.is_cpu:
            return
        bad = self.diverged
        if len(bad):
            warnings.warn(
                f"{len(bad)} of {self.num_envs} environments diverged and were stopped where they were, first "
                f"environment {int(bad[0])} at step {int(self._diverged[bad[0]])}; see Simulator.diverged.",
                RuntimeWarning,
                stacklevel=4,
            )
        dropped = int(self._dropped.sum())
        if dropped and not self._told_of_drops:
            self._told_of_drops = True  # once: it tends to happen in every step
            warnings.warn(
                f"{dropped} contacts had no room in the list of {self._sizes.contacts} per environment, so the "
                "shallowest were left out; see Simulator(max_contacts=...) and Simulator.dropped_contacts.",
                RuntimeWarning,
                stacklevel=4,
            )


def _in_place(a: wp.array) -> wp.array:
    """Two rows of stride zero, before and after a step: the kernel reads and writes `a` itself."""
    return wp.array(ptr=a.ptr, shape=(2, *a.shape), strides=(0, *a.strides), dtype=a.dtype, device=a.device)
