"""`Batch`: a model on a device, its parameters and compiled kernels, and the checks of what a caller hands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
import warp as wp

from ..kernels.queries.contacts import make_contacts, make_contacts_adjoint
from ..kernels.queries.diagnostics import make_diagnostics
from ..kernels.queries.dynamics import make_forward_dynamics, make_forward_dynamics_adjoint, make_mass_matrix
from ..kernels.queries.jacobians import make_jacobians
from ..kernels.queries.poses import make_link_poses, make_link_poses_adjoint
from ..kernels.rollout import make_rollout, make_rollout_adjoint
from ..kernels.types import Sizes, make_arguments
from ..model import JointType, Model
from . import checks, parameters
from .launch import Launcher
from .structs import broadcast, check_names, check_rows, check_values, model_struct, params_struct
from .topology import QUERY_STEPS, SWEEP_STEPS, round_up, sizes_of

PRECISIONS = {"float32": (wp.float32, torch.float32), "float64": (wp.float64, torch.float64)}


class Batch:
    """Copies of a model on one device. Arguments: see Simulator."""

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
        self.model = model
        self.num_envs = checks.whole("num_envs", num_envs, 1)
        self.substeps = checks.whole("substeps", substeps, 1)
        checks.positive("dt", dt)
        for name, value in (("tolerance", tolerance), ("erp", erp), ("cfm", cfm)):
            checks.positive(name, value, zero=True)
        checks.positive("max_push_speed", max_push_speed)
        self.dt = float(dt)
        self.device = checks.device(device)
        self.validate = self.device.is_cpu if validate is None else checks.flag("validate", validate)
        self._real, self.dtype = PRECISIONS[dtype]
        self._like = torch.empty(0, dtype=self.dtype, device=wp.device_to_torch(self.device))
        self._launcher = Launcher(self.device, self.num_envs, threads)
        self._sizes = sizes_of(model, checks.whole("max_contacts", max_contacts, 1))
        iterations = checks.whole("iterations", iterations, 0)
        if restitution_threshold is None:
            restitution_threshold = max(0.05, 3.0 * float(abs(model.gravity).max()) * dt)
        checks.positive("restitution_threshold", restitution_threshold, zero=True)
        solver = {
            "dt": dt,
            "iterations": iterations,
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
        self._frames: wp.array = wp.array(model.frame_pos, dtype=self._types.vec3, device=self.device)
        self._told_of_drops = False
        self._diverged = torch.full((self.num_envs,), -1, dtype=torch.int32, device=self._like.device)
        self._dropped = torch.zeros(self.num_envs, dtype=torch.int32, device=self._like.device)
        # Kernels of the adjoint record the solver's sweeps. Those that know nothing of contacts are small and quick: a
        # few sizes of them serve all models.
        tree = Sizes(round_up(self._sizes.links, QUERY_STEPS), round_up(self._sizes.dofs, QUERY_STEPS), depth=1)
        recording = replace(self._sizes, sweeps=round_up(iterations, SWEEP_STEPS))
        self._kernel_sizes = {
            **dict.fromkeys((make_rollout, make_contacts, make_diagnostics), self._sizes),
            **dict.fromkeys((make_rollout_adjoint, make_contacts_adjoint, make_jacobians), recording),
            **dict.fromkeys((make_forward_dynamics, make_forward_dynamics_adjoint, make_mass_matrix), tree),
            **dict.fromkeys((make_link_poses, make_link_poses_adjoint), tree),
        }

    def __reduce__(self):
        """Copies and pickles are made anew from the model and the options: kernels and devices stay where they are."""
        return _remake, (type(self), self.model, self.num_envs, self._options)

    # -- what a user starts from

    def initial_state(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(num_envs, nq) default pose and (num_envs, nv) zero velocity."""
        q = self._like.new_tensor(self.model.q0.copy()).repeat(self.num_envs, 1)
        return q, self._like.new_zeros(self.num_envs, self.model.nv)

    def initial_control(self) -> torch.Tensor:
        """(num_envs, nu) control that goes with the default pose."""
        return self._like.new_tensor(self.model.u0.copy()).repeat(self.num_envs, 1)

    # -- inner workings

    def _default_params(self, erp: float, cfm: float) -> dict[str, torch.Tensor]:
        values = parameters.defaults(self.model, erp=erp, cfm=cfm)
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
            check_values(own, self.params)
        if "inertia" in own:  # the kernels read one half of it
            own["inertia"] = 0.5 * (own["inertia"] + own["inertia"].mT)
        return own

    def _run(self, factory, params: Mapping[str, torch.Tensor], *arguments) -> None:
        """Launch the kernel that a factory makes; params as from _own_params."""
        if any(value._version for value in self.params.values()):
            raise RuntimeError(
                "Simulator.params was changed in place. Its tensors are shared by all environments and by gradients on "
                "their way: clone one, change the clone and hand it in, as in step(..., params={'mass': mass})."
            )
        kernel = factory(self._real, self._kernel_sizes[factory])
        struct, held = self._params, self._held
        if params:
            struct, held = params_struct(self._types, params, base=self._params)
        self._launcher.run(kernel, self._model, struct, list(arguments))
        del held  # alive until the launch has returned; on CUDA torch's allocator keeps stream order

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


def _remake(kind, model: Model, num_envs: int, options: dict):
    return kind(model, num_envs, **options)


def _quaternions(model: Model) -> tuple[list[int], list[str]]:
    """Where in q the quaternions start, and the joints they belong to."""
    offset = {JointType.FREE: 3, JointType.SPHERICAL: 0}
    links = [i for i in range(model.num_links) if model.joint_type[i] in offset]
    starts = [int(model.q_start[i]) + offset[JointType(model.joint_type[i])] for i in links]
    return starts, [model.joint_names[model.joint_of_link[i]] for i in links]
