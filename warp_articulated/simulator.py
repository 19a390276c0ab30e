"""`Simulator`: a model on a device, ready to run batches of it from PyTorch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
import warp as wp

from . import checks, parameters
from .autograd import Rollout, Step
from .device_model import broadcast, check_names, check_rows, check_values, model_struct, params_struct
from .kernels.queries import make_contacts, make_forward_dynamics, make_link_poses, make_mass_matrix
from .kernels.rollout import make_rollout, make_rollout_adjoint
from .kernels.types import Sizes, make_arguments
from .launch import Launcher
from .model import JointType, Model
from .topology import QUERY_STEPS, SWEEP_STEPS, round_up, sizes_of

PRECISIONS = {"float32": (wp.float32, torch.float32), "float64": (wp.float64, torch.float64)}


@dataclass(frozen=True)
class Contacts:
    """Contacts that one step resolves. Slots that are not `active` hold zeros."""

    points: torch.Tensor  # (num_envs, slots, 3) m, world
    normals: torch.Tensor  # (num_envs, slots, 3) unit, on the pair's first shape
    depths: torch.Tensor  # (num_envs, slots) m, penetration
    impulses: torch.Tensor  # (num_envs, slots, 3) N s, on the pair's first shape, world axes
    active: torch.Tensor  # (num_envs, slots) bool
    pairs: torch.Tensor  # (num_envs, slots) int, row of model.pairs
    sweeps: torch.Tensor  # (num_envs,) int, solver iterations made
    residual: torch.Tensor  # (num_envs,) N s, largest change of an impulse in the last sweep
    dropped: torch.Tensor  # (num_envs,) int, contacts that had no room


class Simulator:
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

    def __init__(
        self,
        model: Model,
        num_envs: int = 1,
        *,
        device: str | None = None,
        dtype: str = "float32",
        dt: float = 1e-3,
        substeps: int = 1,
        iterations: int = 50,
        tolerance: float = 0.0,
        threads: int | None = None,
        friction: str = "cone",
        erp: float = 0.2,
        cfm: float = 1e-2,
        restitution_threshold: float | None = None,
        max_push_speed: float = 5.0,
        max_contacts: int = 32,
        validate: bool | None = None,
    ):
        if not isinstance(model, Model):
            raise TypeError(f"model is a {type(model).__name__}; it must be a Model, as wa.load(...) returns.")
        dtype = str(dtype).removeprefix("torch.")
        if dtype not in PRECISIONS:
            raise ValueError(f"dtype is {dtype!r}; it must be 'float32' or 'float64'.")
        if friction not in ("cone", "pyramid"):
            raise ValueError(
                f"friction is {friction!r}; it must be 'cone' or 'pyramid'. Coefficients are parameters: "
                "rollout(..., params={'friction': ...})."
            )
        self.model = model
        self.num_envs = checks.whole("num_envs", num_envs, 1)
        self.substeps = checks.whole("substeps", substeps, 1)
        checks.positive("dt", dt)
        for name, value in (("tolerance", tolerance), ("erp", erp), ("cfm", cfm)):
            checks.positive(name, value, zero=True)
        checks.positive("max_push_speed", max_push_speed)
        self.dt = float(dt)
        self.device = checks.device(device)
        self.validate = self.device.is_cpu if validate is None else validate
        self._real, self.dtype = PRECISIONS[dtype]
        self._like = torch.empty(0, dtype=self.dtype, device=wp.device_to_torch(self.device))
        self._launcher = Launcher(self.device, self.num_envs, threads)
        self._sizes = sizes_of(model, checks.whole("max_contacts", max_contacts, 1))
        if restitution_threshold is None:
            restitution_threshold = max(0.05, 3.0 * float(abs(model.gravity).max()) * dt)
        checks.positive("restitution_threshold", restitution_threshold, zero=True)
        self._iterations = checks.whole("iterations", iterations, 0)
        solver = {
            "dt": dt,
            "iterations": self._iterations,
            "tolerance": tolerance,
            "pyramid": int(friction == "pyramid"),
            "restitution_threshold": restitution_threshold,
            "max_push_speed": max_push_speed,
        }
        self._types = make_arguments(self._real)
        self._model = model_struct(self._types, model, self.device, solver)
        self._shapes = parameters.shapes(model)
        self.params: Mapping[str, torch.Tensor] = MappingProxyType(self._default_params(erp, cfm))
        """Default parameters: name -> (num_envs, ...), one value that all environments share. `clone` to change."""
        self._params, self._held = params_struct(self._types, self.params)
        self._rotations = _quaternions(model)
        self._told_of_drops = False
        self._diverged = torch.full((self.num_envs,), -1, dtype=torch.int32, device=self._like.device)
        self._dropped = torch.zeros(self.num_envs, dtype=torch.int32, device=self._like.device)

    # -- what a user starts from

    def initial_state(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(num_envs, nq) default pose and (num_envs, nv) zero velocity."""
        q = self._like.new_tensor(self.model.q0.copy()).repeat(self.num_envs, 1)
        return q, self._like.new_zeros(self.num_envs, self.model.nv)

    def initial_control(self) -> torch.Tensor:
        """(num_envs, nu) control that goes with the default pose."""
        return self._like.new_tensor(self.model.u0.copy()).repeat(self.num_envs, 1)

    # -- simulation

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
        if self._differentiates(u, q, qd, *own.values()):
            return Step.apply(self, substeps, tuple(own), u, q, qd, *own.values())
        qs, qds = self._forward(substeps, 1, u[None], q, qd, own)
        return qs[1], qds[1]

    def rollout(
        self, q, qd, u, *, substeps: int | None = None, params: Mapping | None = None,
        checkpoint_every: int | str = 1,
    ):  # fmt: skip
        """States (T + 1, num_envs, nq) and (T + 1, num_envs, nv) of T control steps, the initial one included.

        Args:
            u: (T, num_envs, nu).
            checkpoint_every: keep and return only every k-th state (and the last): 1 + ceil(T / k) rows, from which
                a backward pass simulates the others again, k at a time; "sqrt" is k = ceil(sqrt(T)).
        """
        q, qd = self._state(q, qd)
        u = checks.state("u", u, (-1, self.num_envs, self.model.nu), self._like, self.validate)
        own = self._own_params(params)
        substeps = self._substeps(substeps)
        if checkpoint_every == "sqrt":
            every = max(1, math.isqrt(max(u.shape[0] - 1, 0)) + 1)
        else:
            every = checks.whole("checkpoint_every", checkpoint_every, 1)
        if self._differentiates(u, q, qd, *own.values()):
            return Rollout.apply(self, substeps, every, tuple(own), u, q, qd, *own.values())
        return self._forward(substeps, every, u, q, qd, own)

    def _forward(self, substeps, every, u, q, qd, params, every_step=False):
        """Run the rollout kernel; with `every_step`, return the states between the controls too, and report nothing."""
        stride = 1 if every_step else every * substeps
        rows = 1 - (-u.shape[0] * substeps // stride)
        qs, qds = q.new_empty(rows, *q.shape), qd.new_empty(rows, *qd.shape)
        qs[0], qds[0] = q.detach(), qd.detach()
        found = (self._diverged, self._dropped)
        if every_step:
            found = tuple(torch.empty_like(x) for x in found)
        if u.shape[0] == 0:
            found[0].fill_(-1)
            found[1].zero_()
        else:
            self._run(make_rollout, params, substeps, stride, u, qs, qds, *found)
        if not every_step:
            self._report()
        return qs, qds

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

    # -- questions about a state

    def forward_dynamics(self, q, qd, tau, *, params: Mapping | None = None) -> torch.Tensor:
        """Accelerations (num_envs, nv) from joint forces tau (num_envs, nv), without contacts.

        tau is all that acts on the joints: springs, damping, drives and limits are not added.
        """
        q, qd = self._state(q, qd)
        tau = checks.state("tau", tau, (self.num_envs, self.model.nv), self._like, self.validate)
        own = self._own_params(params)
        self._without_gradients("forward_dynamics", q, qd, tau, *own.values())
        qdd = torch.empty_like(qd)
        self._run(make_forward_dynamics, own, q, qd, tau, qdd)
        return qdd

    def mass_matrix(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """Joint-space inertia (num_envs, nv, nv), armature included."""
        q, qd = self._state(q, None)
        own = self._own_params(params)
        self._without_gradients("mass_matrix", q, *own.values())
        M = q.new_zeros(self.num_envs, self.model.nv, self.model.nv)
        self._run(make_mass_matrix, own, q, qd, M)
        return M

    def link_poses(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """World position and quaternion xyzw (num_envs, links, 7) of every link, in the order of model.link_names."""
        q, qd = self._state(q, None)
        poses = q.new_empty(self.num_envs, self.model.num_links, 7)
        frames: wp.array = wp.array(self.model.frame_pos, dtype=self._types.vec3, device=self.device)
        self._run(make_link_poses, self._own_params(params), frames, q, qd, poses)
        return poses

    def contacts(self, q, qd, u=None, *, params: Mapping | None = None) -> Contacts:
        """The contacts that a step of dt from this state would resolve, and their impulses."""
        q, qd = self._state(q, qd)
        u = self._control(u)
        slots = max(self._sizes.contacts, 1)
        points, normals, impulses = (q.new_zeros(self.num_envs, slots, 3) for _ in range(3))
        depths, change = q.new_zeros(self.num_envs, slots), q.new_zeros(self.num_envs)
        pairs = torch.zeros(self.num_envs, slots, dtype=torch.int32, device=q.device)
        counts = torch.zeros(self.num_envs, 4, dtype=torch.int32, device=q.device)
        self._run(make_contacts, self._own_params(params), q, qd, u, points, normals, depths, impulses, pairs, counts, change)
        active = torch.arange(slots, device=q.device) < counts[:, :1]
        return Contacts(points, normals, depths, impulses, active, pairs, counts[:, 2], change, counts[:, 3])

    # -- without torch

    def step_warp(self, state_in, control: wp.array, state_out) -> None:
        """One control step on Warp arrays: state_in and state_out are (q, qd), control is (num_envs, nu)."""
        shapes = [(self.num_envs, n) for n in (self.model.nq, self.model.nv)]
        for name, pair in (("state_in", state_in), ("state_out", state_out)):
            for array, shape in zip(pair, shapes, strict=True):
                checks.warp_array(name, array, shape, self._real, self.device)
        checks.warp_array("control", control, (self.num_envs, self.model.nu), self._real, self.device)
        for before, after in zip(state_in, state_out, strict=True):
            wp.copy(after, before)
        q, qd = (_in_place(after) for after in state_out)
        u = control.reshape((1, *control.shape))
        self._run(make_rollout, {}, self.substeps, self.substeps, u, q, qd, self._diverged, self._dropped)
        self._report()

    # -- inner workings

    def _default_params(self, erp: float, cfm: float) -> dict[str, torch.Tensor]:
        values = parameters.defaults(self.model, erp, cfm)
        return {
            name: self._like.new_tensor(value.copy()).expand(self.num_envs, *value.shape)
            for name, value in values.items()
        }

    def _own_params(self, params: Mapping | None) -> dict[str, torch.Tensor]:
        """What the caller gives, as (num_envs, ...) tensors that torch can differentiate."""
        if params is None:
            return {}
        if not isinstance(params, Mapping):
            raise TypeError(f"params is a {type(params).__name__}; it must be a dict of parameters by name.")
        check_names(params)
        own = {
            name: broadcast(name, value, self._shapes[name], self.num_envs, self._like)
            for name, value in params.items()
        }
        check_rows(self.model, own)
        if self.validate:
            check_values(own)
        if "inertia" in own:  # the kernels read one half of it
            own["inertia"] = 0.5 * (own["inertia"] + own["inertia"].mT)
        return own

    def _run(self, factory, params: Mapping[str, torch.Tensor], *arguments) -> None:
        """Launch a kernel; params as from _own_params."""
        kernel = factory(self._real, self._kernel_sizes(factory))
        struct, held = self._params, self._held
        if params:
            struct, held = params_struct(self._types, {**self.params, **params})
        self._launcher.run(kernel, self._model, struct, list(arguments))
        del held  # alive until the launch has returned; on CUDA torch's allocator keeps stream order

    def _kernel_sizes(self, factory) -> Sizes:
        """Kernels that know nothing of contacts are small and quick: a few sizes of them serve all models."""
        if factory in (make_rollout, make_contacts):
            return self._sizes
        if factory in (make_rollout_adjoint,):
            return replace(self._sizes, sweeps=round_up(self._iterations, SWEEP_STEPS))
        return Sizes(round_up(self._sizes.links, QUERY_STEPS), round_up(self._sizes.dofs, QUERY_STEPS), depth=1)

    def _state(self, q, qd):
        q = checks.state("q", q, (self.num_envs, self.model.nq), self._like, self.validate)
        if self.validate:
            checks.quaternions(q, *self._rotations)
        if qd is None:
            return q, q.new_zeros(self.num_envs, self.model.nv)
        return q, checks.state("qd", qd, (self.num_envs, self.model.nv), self._like, self.validate)

    def _control(self, u):
        if u is None:
            return self.initial_control()
        return checks.state("u", u, (self.num_envs, self.model.nu), self._like, self.validate)

    def _substeps(self, substeps: int | None) -> int:
        return self.substeps if substeps is None else checks.whole("substeps", substeps, 1)

    @staticmethod
    def _differentiates(*inputs: torch.Tensor) -> bool:
        return torch.is_grad_enabled() and any(x.requires_grad for x in inputs)

    def _without_gradients(self, name: str, *inputs: torch.Tensor) -> None:
        if self._differentiates(*inputs):
            raise NotImplementedError(f"Simulator.{name} has no gradients; call it under torch.no_grad().")

    def _report(self) -> None:
        """Say at once that environments ran away, where looking costs no synchronisation."""
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


def _quaternions(model: Model) -> tuple[list[int], list[str]]:
    """Where in q the quaternions start, and the joints they belong to."""
    offset = {JointType.FREE: 3, JointType.SPHERICAL: 0}
    links = [i for i in range(model.num_links) if model.joint_type[i] in offset]
    starts = [int(model.q_start[i]) + offset[JointType(model.joint_type[i])] for i in links]
    return starts, [model.joint_names[model.joint_of_link[i]] for i in links]
