"""`Simulator`: a model on a device, ready to run batches of it from PyTorch.

Methods check their arguments and call autograd.py, or the engine where there are no gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import warp as wp

from . import autograd
from .autograd import eager
from .device import checks, cuda
from .device.engine import PRECISIONS, Counts, Engine
from .device.frames import Frames, numbers_of
from .device.results import Contacts, Diagnostics
from .device.structs import broadcast, check_names, check_rows, check_values
from .device.topology import default_contacts
from .model import JointType, Model

TIE_ERP = 0.8  # share of the error of a loop or coupling that is removed per step
# What the solver takes for rounding, as a share of the largest impulse: a few units in the last place
ROUNDING = {"float32": 2.0**-21, "float64": 2.0**-50}


class Simulator:
    """Many copies of a model, stepped together, one per thread.

    Args:
        model: what to simulate, from `load` or `combine`.
        num_envs: copies of it.
        device: "cpu" or "cuda:0"; by default the first CUDA device if there is one, or what the environment variable
            WARP_ARTICULATED_DEVICE names.
        dtype: "float32" or "float64".
        dt: seconds per step.
        substeps: steps of dt per control, which is held in between.
        iterations: sweeps of the contact solver at most.
        tolerance: N s; the solver stops early once no impulse changes by more. By default when nothing changes, or when
            changes no longer shrink and are rounding errors of the largest impulse. 0: only when nothing changes.
        threads: CPU threads to spread the environments over, by default all cores. Results do not depend on it.
        friction: "cone" (Coulomb) or "pyramid" (each tangent limited by itself, as in the paper).
        erp: share of a penetration or limit violation that is removed per step.
        cfm: 1/kg, compliance of contact normals and joint limits.
        contact_time: "step": contacts begin with a step; "impact": an impact interrupts the step at the time when it
            happens, so that gradients follow that time and are those of the motion (docs/gradients.md).
        max_impacts: that may interrupt one step; later ones are made up for in the next step.
        restitution_threshold: m/s or rad/s; slower impacts do not bounce, nor interrupt a step. By default 0.05 or
            three steps of free fall.
        max_push_speed: m/s, highest speed at which penetrating shapes are pushed apart, so that deep overlaps separate
            gently.
        max_contacts: contacts at once per environment (rounded up to 4, 8, 16, ...); beyond it the deepest are kept and
            `dropped_contacts` counts the others. By default 16, and 8 more for every tree after the first.
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
        tolerance: float | None = None,
        threads: int | None = None,
        friction: str = "cone",
        erp: float = 0.2,
        cfm: float = 1e-2,
        contact_time: str = "step",
        max_impacts: int = 2,
        restitution_threshold: float | None = None,
        max_push_speed: float = 5.0,
        max_contacts: int | None = None,
        validate: bool | None = None,
    ):
        given = dict(locals())
        self._options = {name: given[name] for name in given if name not in ("self", "model", "num_envs")}
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
        if contact_time not in ("step", "impact"):
            raise ValueError(f"contact_time is {contact_time!r}; it must be 'step' or 'impact'.")
        max_impacts = checks.whole("max_impacts", max_impacts, 1)
        checks.positive("dt", dt)
        for name, value in (("tolerance", tolerance or 0.0), ("erp", erp), ("cfm", cfm)):
            checks.positive(name, value, zero=True)
        checks.positive("max_push_speed", max_push_speed)
        if restitution_threshold is None:
            restitution_threshold = max(0.05, 3.0 * float(abs(model.gravity).max()) * dt)
        # without a slowest impact, a resting contact would interrupt every step
        checks.positive("restitution_threshold", restitution_threshold, zero=contact_time == "step")
        if max_contacts is None:
            max_contacts = default_contacts(model)
        max_contacts = checks.whole("max_contacts", max_contacts, 1)
        self.model = model
        self.num_envs = checks.whole("num_envs", num_envs, 1)
        self.substeps = checks.whole("substeps", substeps, 1)
        self.dt = float(dt)
        self.device = checks.device(device)
        checks.batch(self.num_envs, model, dtype)
        if device is not None:
            self._options["device"] = self.device.alias  # Warp's own objects cannot be pickled
        self.validate = self.device.is_cpu if validate is None else checks.flag("validate", validate)
        # tensors that are made in inference mode could not be differentiated, nor their versions read
        with torch.inference_mode(False), cuda.current(self.device):
            self._engine = Engine(
                model,
                self.num_envs,
                device=self.device,
                dtype=dtype,
                threads=threads,
                max_contacts=max_contacts,
                max_impacts=max_impacts if contact_time == "impact" else 0,
                erp=erp,
                cfm=cfm,
                solver={
                    "dt": dt,
                    "iterations": checks.whole("iterations", iterations, 0),
                    "tolerance": tolerance or 0.0,
                    "rounding": ROUNDING[dtype] if tolerance is None else 0.0,
                    "pyramid": int(friction == "pyramid"),
                    "restitution_threshold": restitution_threshold,
                    "max_push_speed": max_push_speed,
                    "tie_erp": TIE_ERP,
                },
            )
            # kept on the device: a copy from the host at every step would wait, and no CUDA graph could hold it
            self._q0, u0 = (self._engine.like.new_tensor(x.copy()) for x in (model.q0, model.u0))
            self._u0 = u0.repeat(self.num_envs, 1)
            bounds = model.control_range.T
            self._bounds = (
                [self._engine.like.new_tensor(x.copy()) for x in bounds] if np.isfinite(bounds).any() else None
            )
            self._diverged, self._dropped = self._engine.counts()
        self.dtype = self._engine.dtype
        self.params = self._engine.params
        """Default parameters: name -> (num_envs, ...), one value that all environments share. `clone` to change."""
        self._quaternions = _quaternions(model)
        self._frames: dict[tuple[int, ...], Frames] = {}
        self._warned_of_drops = False

    def __reduce__(self):
        """Copies and pickles are built again from the model and the options; kernels and devices are not copied."""
        return _rebuild, (type(self), self.model, self.num_envs, self._options)

    def initial_state(self, keyframe: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """(num_envs, nq) default pose and (num_envs, nv) zero velocity, or the state of one of model.keyframes."""
        if keyframe is None:
            return self._q0.repeat(self.num_envs, 1), self._q0.new_zeros(self.num_envs, self.model.nv)
        key = self.model.keyframes[keyframe]
        q, qd = (self._q0.new_tensor(x).repeat(self.num_envs, 1) for x in (key.q, key.qd))
        return q, qd

    def initial_control(self, keyframe: str | None = None) -> torch.Tensor:
        """(num_envs, nu) control that goes with the default pose, or with one of model.keyframes."""
        if keyframe is None:
            return self._u0.clone()
        return self._u0.new_tensor(self.model.keyframes[keyframe].u).repeat(self.num_envs, 1)

    # -- steps

    @eager
    def step(self, q, qd, u=None, *, wrench=None, substeps: int | None = None, params: Mapping | None = None):
        """State after one control step of `substeps` times dt.

        Args:
            q, qd: (num_envs, nq) and (num_envs, nv).
            u: (num_envs, nu), clipped to model.control_range, beyond which it has no gradient; by default the control
                that goes with the default pose.
            wrench: (num_envs, links, 6): force (N) and torque (N m) of yours on every link, in world axes, at the
                link's centre of mass. None: nothing but gravity, contacts and joints acts.
            substeps: steps of dt; None: the constructor's value.
            params: parameters that differ from `self.params`, by name; (num_envs, ...) or shared.
        """
        q, qd = self._state(q, qd)
        u = self._control(u)
        wrench = self._wrench(wrench)
        own = self._own_params(params)
        counts = self._engine.counts()
        q, qd = autograd.step(self._engine, counts, self._substeps(substeps), u, wrench, q, qd, own)
        self._report(counts)
        return q, qd

    @eager
    def rollout(
        self, q, qd, u, *, wrench=None, substeps: int | None = None, params: Mapping | None = None,
        checkpoint_every: int | str = 1,
    ):  # fmt: skip
        """States (T + 1, num_envs, nq) and (T + 1, num_envs, nv) of T control steps, the initial one included.

        Args:
            q, qd: initial state, (num_envs, nq) and (num_envs, nv).
            u: (T, num_envs, nu).
            wrench: (T, num_envs, links, 6), or (num_envs, links, 6) for all steps; see `step`.
            substeps: steps of dt per control; None: the constructor's value.
            params: see `step`.
            checkpoint_every: keep and return only every k-th state (and the last): 1 + ceil(T / k) rows, from which
                a backward pass simulates the others again, k at a time; "sqrt" is k = ceil(sqrt(T)).
        """
        q, qd = self._state(q, qd)
        u = self._clipped(self._checked("u", u, -1, self.num_envs, self.model.nu))
        wrench = self._wrenches(wrench, u.shape[0])
        own = self._own_params(params)
        every = checks.interval("checkpoint_every", checkpoint_every, u.shape[0])
        counts = self._engine.counts()
        states = autograd.rollout(self._engine, counts, self._substeps(substeps), every, u, wrench, q, qd, own)
        self._report(counts)
        return states

    @property
    def diverged(self) -> torch.Tensor:
        """Indices of the environments that diverged in the last step or rollout; each was stopped where it was."""
        return torch.nonzero(self._diverged >= 0).flatten()

    @property
    def dropped_contacts(self) -> torch.Tensor:
        """(num_envs,) contacts of the last step or rollout that had no room, summed over its steps."""
        return self._dropped

    # -- steps without torch

    @eager
    def step_warp(self, state_in, control: wp.array, state_out) -> None:
        """One control step on Warp arrays: state_in and state_out are (q, qd), control is (num_envs, nu)."""
        self._check_warp(state_in=state_in, control=control, state_out=state_out)
        with cuda.on_warp_stream(self.device):  # or the kernel might start before the copies have ended
            for before, after in zip(state_in, state_out, strict=True):
                wp.copy(after, before)
            counts = self._engine.counts()
            clipped: Any = control if self._bounds is None else wp.from_torch(self._clipped(wp.to_torch(control)))
            self._engine.step_in_place(counts, self.substeps, clipped, *state_out)
        self._report(counts)

    @eager
    def step_adjoint_warp(self, state_in, control: wp.array, state_bar, control_bar: wp.array) -> None:
        """Adjoint of `step_warp` on Warp arrays.

        state_bar, (q, qd), comes in as the gradient with respect to the state after the step and leaves as that with
        respect to state_in; control_bar, (num_envs, nu), is added to.
        """
        self._check_warp(state_in=state_in, control=control, state_bar=state_bar, control_bar=control_bar)
        u, q, qd, u_bar, *state = (wp.to_torch(x) for x in (control, *state_in, control_bar, *state_bar))
        with cuda.on_warp_stream(self.device):
            clipped = self._clipped(u)
            own = u_bar if clipped is u else torch.zeros_like(u)
            self._engine.step_adjoint(self.substeps, clipped, q, qd, own, *state)
            if clipped is not u:
                u_bar += torch.where(clipped == u, own, 0.0)

    # -- queries

    @eager
    def forward_dynamics(self, q, qd, tau, *, params: Mapping | None = None) -> torch.Tensor:
        """Accelerations (num_envs, nv) from joint forces tau (num_envs, nv), without contacts.

        tau is all that acts on the joints: springs, damping, drives and limits are not added.
        """
        q, qd = self._state(q, qd)
        tau = self._checked("tau", tau, self.num_envs, self.model.nv)
        return autograd.query(self._engine, "forward_dynamics", (tau, q, qd), self._own_params(params))

    @eager
    def inverse_dynamics(self, q, qd, qdd, *, params: Mapping | None = None) -> torch.Tensor:
        """Joint forces (num_envs, nv) that accelerate the joints by qdd (num_envs, nv), without contacts.

        The inverse of `forward_dynamics`: springs, damping, drives and limits are not subtracted.
        """
        q, qd = self._state(q, qd)
        qdd = self._checked("qdd", qdd, self.num_envs, self.model.nv)
        return autograd.query(self._engine, "inverse_dynamics", (q, qd, qdd), self._own_params(params))

    @eager
    def mass_matrix(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """Joint-space inertia (num_envs, nv, nv), armature included."""
        return autograd.query(self._engine, "mass_matrix", (self._positions(q),), self._own_params(params))

    @eager
    def link_poses(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """World position and quaternion xyzw (num_envs, links, 7) of every link, in the order of model.link_names."""
        return autograd.query(self._engine, "link_poses", (self._positions(q),), self._own_params(params))

    @eager
    def frame_poses(self, q, frames=None, *, params: Mapping | None = None) -> torch.Tensor:
        """World position and quaternion xyzw (num_envs, frames, 7) of frames.

        frames: names in model.frames (links, bodies that fixed joints merged, MJCF sites) or their numbers, in the
            order of the result; None: all.
        """
        chosen, links = self._chosen(frames), self.link_poses(q, params=params)
        return chosen.poses(links)

    @eager
    def frame_velocities(self, q, qd, frames=None, *, params: Mapping | None = None) -> torch.Tensor:
        """Linear velocities of the origins of frames, and angular velocities, world axes (num_envs, frames, 6)."""
        chosen = self._chosen(frames)
        q, qd = self._state(q, qd)
        own = self._own_params(params)
        poses = autograd.query(self._engine, "link_poses", (q,), own)
        return chosen.velocities(poses, autograd.query(self._engine, "link_velocities", (q, qd), own))

    @eager
    def frame_jacobians(self, q, frames=None, *, params: Mapping | None = None) -> torch.Tensor:
        """Jacobians (num_envs, frames, 6, nv): frame_velocities = J qd."""
        chosen, q = self._chosen(frames), self._positions(q)
        own = self._own_params(params)
        _refuse_gradients("frame_jacobians", q, *own.values())
        return self._engine.frame_jacobians(q, chosen.kernel_links, chosen.kernel_offsets, own)

    @eager
    def contacts(self, q, qd, u=None, *, wrench=None, params: Mapping | None = None) -> Contacts:
        """The contacts that a step of dt from this state would resolve, and their impulses; arguments as for `step`."""
        q, qd = self._state(q, qd)
        given = (self._control(u), self._wrench(wrench), q, qd)
        found = autograd.query(self._engine, "contacts", given, self._own_params(params))
        points, normals, depths, impulses, pairs, counts, change = found
        active = torch.arange(points.shape[1], device=q.device) < counts[:, :1]
        return Contacts(
            points, normals, depths, impulses, active, pairs, counts[:, 2], change, counts[:, 3], self.dt, self.model
        )

    @eager
    def jacobians(
        self, q, qd, u=None, *, wrench=None, params: Mapping | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Dense derivatives of one step of dt, all in one launch; arguments as for `step`.

        Returns:
            A: (num_envs, 2 nv, 2 nv), d(next q, next qd) / d(q, qd), positions first.
            B: (num_envs, 2 nv, nu), d(next q, next qd) / du.

        Positions are measured in the tangent space, in the order of qd: a rotation by the vector phi turns the
        quaternion e into exp(phi) e, with phi in world axes for a free joint and in the axes of the joint's frame on
        the parent for a ball joint.
        """
        q, qd = self._state(q, qd)
        u, wrench = self._given_control(u), self._wrench(wrench)
        own = self._own_params(params)
        _refuse_gradients("jacobians", q, qd, u, wrench, *own.values())
        clipped = self._clipped(u)
        A, B = self._engine.jacobians(clipped, wrench, q, qd, own)
        if clipped is not u:  # a control outside its range changes nothing
            B = torch.where((clipped == u)[:, None], B, 0.0)
        return A, B

    @eager
    def diagnose(self, qs, qds, u, *, wrench=None, params: Mapping | None = None) -> Diagnostics:
        """How converged, and how far from a switch, the steps of a trajectory are: where to trust its gradient.

        Args:
            qs, qds: states before the steps, (T, num_envs, ...) or, as `rollout` returns them, one more.
            u: (T, num_envs, nu). With substeps, only the first step of each control is examined.
            wrench, params: those of the rollout.
        """
        if len(qs) < len(u):
            raise ValueError(
                f"qs has {len(qs)} states for {len(u)} controls; diagnose needs the state before every control, as "
                "rollout returns them with checkpoint_every=1."
            )
        u = self._clipped(self._checked("u", u, -1, self.num_envs, self.model.nu))
        steps = u.shape[0]
        qs = self._checked("qs", qs[:steps], steps, self.num_envs, self.model.nq)
        qds = self._checked("qds", qds[:steps], steps, self.num_envs, self.model.nv)
        own = {name: value.detach() for name, value in self._own_params(params).items()}
        wrench = self._wrenches(wrench, steps)
        wrench = None if wrench is None else wrench.detach()
        counts, *numbers = self._engine.diagnostics(u.detach(), wrench, qs.detach(), qds.detach(), own)
        fall = float(abs(self.model.gravity).max()) * self.dt**2
        contacts, rows, sweeps, impacts = counts.unbind(-1)
        residual, margin, gap, time, speed = numbers
        return Diagnostics(contacts, rows, sweeps, impacts, residual, margin, gap, time, speed, fall)

    # -- checks of arguments

    def _checked(self, name: str, value, *shape: int) -> torch.Tensor:
        return checks.state(name, value, shape, self._engine.like, self.validate)

    def _positions(self, q) -> torch.Tensor:
        q = self._checked("q", q, self.num_envs, self.model.nq)
        if self.validate:
            checks.quaternions(q, *self._quaternions)
        return q

    def _state(self, q, qd) -> tuple[torch.Tensor, torch.Tensor]:
        q = self._positions(q)
        if qd is None:
            return q, q.new_zeros(self.num_envs, self.model.nv)
        return q, self._checked("qd", qd, self.num_envs, self.model.nv)

    def _control(self, u) -> torch.Tensor:
        return self._clipped(self._given_control(u))

    def _given_control(self, u) -> torch.Tensor:
        return self._u0 if u is None else self._checked("u", u, self.num_envs, self.model.nu)

    def _clipped(self, u: torch.Tensor) -> torch.Tensor:
        """u within model.control_range; torch gives what is outside no gradient."""
        return u if self._bounds is None else torch.clamp(u, *self._bounds)

    def _wrench(self, wrench) -> torch.Tensor | None:
        if wrench is None:
            return None
        return self._checked("wrench", wrench, self.num_envs, self.model.num_links, 6)

    def _wrenches(self, wrench, steps: int) -> torch.Tensor | None:
        """(steps, num_envs, links, 6); one for all steps is expanded, which takes no memory."""
        if wrench is None or getattr(wrench, "ndim", 4) == 3:
            held = self._wrench(wrench)
            return None if held is None else held.expand(steps, *held.shape)
        return self._checked("wrench", wrench, steps, self.num_envs, self.model.num_links, 6)

    def _chosen(self, frames) -> Frames:
        numbers = numbers_of(self.model, frames)
        if numbers not in self._frames:
            self._frames[numbers] = Frames(self.model, numbers, self._engine.like)
        return self._frames[numbers]

    def _substeps(self, substeps: int | None) -> int:
        return self.substeps if substeps is None else checks.whole("substeps", substeps, 1)

    def _own_params(self, params: Mapping | None) -> dict[str, torch.Tensor]:
        """The caller's parameters as (num_envs, ...) tensors that torch can differentiate."""
        if params is None:
            return {}
        if not isinstance(params, Mapping):
            raise TypeError(f"params is a {type(params).__name__}; it must be a dict of parameters by name.")
        check_names(params)
        shapes, like = self._engine.shapes, self._engine.like
        own = {name: broadcast(name, value, shapes[name], self.num_envs, like) for name, value in params.items()}
        if self.validate:  # both read the numbers, for which CUDA would wait
            check_rows(self.model, own)
            check_values(own, self.params)
        if "inertia" in own:  # the kernels read one half of it
            own["inertia"] = 0.5 * (own["inertia"] + own["inertia"].mT)
        return own

    def _check_warp(self, **arrays) -> None:
        """Refuse Warp arrays of another shape, precision or device: the kernels would read beyond their end."""
        for name, value in arrays.items():
            sizes = (self.model.nu,) if name.startswith("control") else (self.model.nq, self.model.nv)
            for array, size in zip(value if len(sizes) == 2 else [value], sizes, strict=True):
                checks.warp_array(name, array, (self.num_envs, size), self._engine.real, self.device)

    # -- after a call

    def _report(self, counts: Counts) -> None:
        """Keep the counts of a call. Warn about them on the CPU, where reading them costs no synchronisation."""
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
        if dropped and not self._warned_of_drops:
            self._warned_of_drops = True  # once: it tends to happen in every step
            warnings.warn(
                f"{dropped} contacts had no room in the list of {self._engine.sizes.contacts} per environment, so the "
                "shallowest were left out; see Simulator(max_contacts=...) and Simulator.dropped_contacts.",
                RuntimeWarning,
                stacklevel=4,
            )


def _rebuild(kind, model: Model, num_envs: int, options: dict):
    return kind(model, num_envs, **options)


def _refuse_gradients(name: str, *inputs: torch.Tensor | None) -> None:
    if autograd.differentiates(*inputs):
        raise NotImplementedError(f"Simulator.{name} has no gradients; call it under torch.no_grad().")


def _quaternions(model: Model) -> tuple[list[int], list[str]]:
    """Where in q the quaternions start, and the joints they belong to."""
    offset = {JointType.FREE: 3, JointType.SPHERICAL: 0}
    links = [i for i in range(model.num_links) if model.joint_type[i] in offset]
    starts = [int(model.q_start[i]) + offset[JointType(model.joint_type[i])] for i in links]
    return starts, [model.joint_names[model.joint_of_link[i]] for i in links]
