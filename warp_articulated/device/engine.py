"""`Engine`: a model on a device, its default parameters and compiled kernels, with one method for each kernel.

Inputs are checked tensors of the engine's dtype and device; `params` maps names to (num_envs, ...) tensors and holds
only the parameters that differ from the defaults. Nothing here is recorded by torch: autograd.py does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import torch
import warp as wp

from ..kernels.queries.contacts import make_contacts, make_contacts_adjoint
from ..kernels.queries.diagnostics import make_diagnostics
from ..kernels.queries.dynamics import (
    make_forward_dynamics,
    make_forward_dynamics_adjoint,
    make_inverse_dynamics,
    make_inverse_dynamics_adjoint,
    make_mass_matrix,
    make_mass_matrix_adjoint,
)  # fmt: skip
from ..kernels.queries.jacobians import make_jacobians
from ..kernels.queries.poses import make_link_poses, make_link_poses_adjoint
from ..kernels.queries.velocities import make_frame_jacobians, make_link_velocities, make_link_velocities_adjoint
from ..kernels.rollout import make_rollout, make_rollout_adjoint
from ..kernels.types import Sizes, make_arguments
from ..model import Model
from . import parameters
from .launch import Launcher
from .structs import model_struct, params_struct
from .topology import QUERY_STEPS, SWEEP_STEPS, round_up, sizes_of

PRECISIONS = {"float32": (wp.float32, torch.float32), "float64": (wp.float64, torch.float64)}

WEIGHTLESS = (  # kernels that gravity does not enter
    make_mass_matrix, make_mass_matrix_adjoint, make_link_poses, make_link_poses_adjoint, make_link_velocities,
    make_link_velocities_adjoint, make_frame_jacobians,
)  # fmt: skip

Counts = tuple[torch.Tensor, torch.Tensor]
"""(num_envs,) control in which an environment diverged, or -1; (num_envs,) contacts that had no room."""


class Engine:
    """Copies of a model on one device.

    Args:
        model: what to simulate.
        num_envs: copies of it.
        device: where.
        dtype: "float32" or "float64".
        threads: CPU threads; None: all cores.
        max_contacts: contacts at once per environment, before rounding up.
        max_impacts: that may interrupt a step; 0: steps do not look for the time of an impact.
        erp, cfm: defaults of the parameters that are not part of the model.
        solver: fields of the kernels' Model struct that are not part of the model: dt, iterations, ...
    """

    def __init__(
        self, model: Model, num_envs: int, *, device: wp.Device, dtype: str, threads: int | None, max_contacts: int,
        max_impacts: int, erp: float, cfm: float, solver: Mapping[str, float | int],
    ):  # fmt: skip
        self.model, self.num_envs = model, num_envs
        self.real, self.dtype = PRECISIONS[dtype]
        self.like = torch.empty(0, dtype=self.dtype, device=wp.device_to_torch(device))
        self.launcher = Launcher(device, num_envs, threads)
        self.types = make_arguments(self.real)
        self.device_model = model_struct(self.types, model, device, solver)
        self.shapes = parameters.shapes(model)
        self.params: Mapping[str, torch.Tensor] = MappingProxyType(
            {
                name: self.like.new_tensor(value.copy()).expand(num_envs, *value.shape)
                for name, value in parameters.defaults(model, erp=erp, cfm=cfm).items()
            }
        )
        self.device_params, self._held = params_struct(self.types, self.params)
        nothing = torch.zeros(num_envs, dtype=torch.int32, device=self.like.device)
        self._no_counts: Counts = (nothing - 1, nothing)
        self._frames: wp.array = wp.array(model.frame_pos, dtype=self.types.vec3, device=device)
        self.sizes = replace(sizes_of(model, max_contacts, exact=device.is_cuda), impacts=max_impacts)
        # Adjoint kernels record the solver's sweeps. Kernels without contacts are small and quick: a few sizes of them
        # serve all models.
        sweeps = max(int(solver["iterations"]), 1)
        recording = replace(self.sizes, sweeps=sweeps if device.is_cuda else round_up(sweeps, SWEEP_STEPS))
        tree = Sizes(self.sizes.links, self.sizes.dofs, depth=1)
        if not device.is_cuda:
            tree = Sizes(round_up(tree.links, QUERY_STEPS), round_up(tree.dofs, QUERY_STEPS), depth=1)
        falling = replace(tree, gravcomp=self.sizes.gravcomp)
        self._kernel_sizes = {
            **dict.fromkeys((make_rollout, make_contacts, make_diagnostics), self.sizes),
            **dict.fromkeys((make_rollout_adjoint, make_contacts_adjoint, make_jacobians), recording),
            **dict.fromkeys((make_forward_dynamics, make_forward_dynamics_adjoint), falling),
            **dict.fromkeys((make_inverse_dynamics, make_inverse_dynamics_adjoint), falling),
            **dict.fromkeys((make_mass_matrix, make_mass_matrix_adjoint), tree),
            **dict.fromkeys((make_link_poses, make_link_poses_adjoint), tree),
            **dict.fromkeys((make_link_velocities, make_link_velocities_adjoint, make_frame_jacobians), tree),
        }
        self._no_wrench = {ndim: self.like.new_zeros((0,) * ndim) for ndim in (3, 4)}

    def _run(self, factory, params: Mapping[str, torch.Tensor], *arguments, wrenches: bool = False) -> None:
        """Launch the kernel that a factory makes; wrenches: with code for those of the caller."""
        if any(value._version for value in self.params.values()):
            raise RuntimeError(
                "Simulator.params was changed in place. Its tensors are shared by all environments and by pending "
                "backward passes: clone one, change the clone and pass it, as in step(..., params={'mass': mass})."
            )
        sizes = self._kernel_sizes[factory]
        if wrenches:
            sizes = replace(sizes, wrenches=True)
        if "gravcomp" in params and factory not in WEIGHTLESS:
            sizes = replace(sizes, gravcomp=True)
        kernel = factory(self.real, sizes)
        struct, held = self.device_params, self._held
        if params:
            struct, held = params_struct(self.types, params, base=self.device_params)
        self.launcher.run(kernel, self.device_model, struct, list(arguments))
        del held  # alive until the launch has returned; on CUDA torch's allocator keeps stream order

    # -- steps

    def counts(self) -> Counts:
        """For one call: nothing has diverged, no contact was dropped."""
        diverged, dropped = self._no_counts
        return diverged.clone(), dropped.clone()

    def rollout(self, counts: Counts, substeps: int, stride: int, u, wrench, q, qd, params):
        """The initial state and every `stride`-th state after it, and the last; (rows, num_envs, ...).

        stride: in steps of dt, of which a control has `substeps`.
        wrench: (controls, num_envs, links, 6) or None.
        """
        rows = 1 - (-u.shape[0] * substeps // stride)
        qs, qds = q.new_empty(rows, *q.shape), qd.new_empty(rows, *qd.shape)
        qs[0], qds[0] = q.detach(), qd.detach()
        if u.shape[0] > 0:
            self._steps(params, substeps, stride, u, wrench, qs, qds, *counts)
        return qs, qds

    def _steps(self, params, substeps: int, stride: int, u, wrench, *arguments) -> None:
        acting, wrenches = self._acting(wrench, 4)
        self._run(make_rollout, params, substeps, stride, u, acting, *arguments, wrenches=wrenches)

    def _acting(self, wrench, ndim: int) -> tuple[torch.Tensor, bool]:
        """What a kernel gets for a wrench, and whether it needs the code for it."""
        return (self._no_wrench[ndim], False) if wrench is None else (wrench, True)

    def rollout_adjoint(
        self, params, substeps: int, stride: int, u, wrench, *arguments, wrench_bar, params_bar
    ) -> None:
        """Adjoint of a rollout; arguments are those of the kernel between wrench and wrench_bar."""
        (acting, wrenches), (bar, _) = self._acting(wrench, 4), self._acting(wrench_bar, 4)
        arguments = (u, acting, *arguments, bar, params_bar)
        self._run(make_rollout_adjoint, params, substeps, stride, *arguments, wrenches=wrenches)

    def step(self, counts: Counts, substeps: int, u, wrench, q, qd, params):
        """The state after one control: copies of the given state, stepped in place."""
        q, qd = q.detach().clone(), qd.detach().clone()
        rows = (x[None].expand(2, -1, -1) for x in (q, qd))  # before and after are the same memory
        self._steps(params, substeps, substeps, u[None], None if wrench is None else wrench[None], *rows, *counts)
        return q, qd

    def step_in_place(self, counts: Counts, substeps: int, u: wp.array, q: wp.array, qd: wp.array) -> None:
        """One control on Warp arrays; q and qd are overwritten."""
        rows = (_before_and_after(x) for x in (q, qd))
        self._steps({}, substeps, substeps, u.reshape((1, *u.shape)), None, *rows, *counts)

    def step_adjoint(self, substeps: int, u, q, qd, u_bar, q_bar, qd_bar) -> None:
        """Adjoint of one control with the default parameters; q_bar and qd_bar are overwritten, u_bar is added to."""
        qs, qds = q[None], qd[None]
        if substeps > 1:
            qs, qds = self.rollout(self.counts(), substeps, 1, u[None], None, q, qd, {})
        never = torch.ones_like(self._no_counts[0])  # diverged
        stride = substeps + 1  # beyond the end: no gradients are added on the way, so qs and qds only fill the place
        self.rollout_adjoint(
            {}, substeps, stride, u[None], None, qs, qds, never, qs, qds, q_bar, qd_bar, u_bar[None], wrench_bar=None,
            params_bar=self.types.ParamsBar(),
        )  # fmt: skip

    # -- queries; adjoints return the gradients in the order of the query's inputs

    def forward_dynamics(self, tau, q, qd, params):
        qdd = torch.empty_like(qd)
        self._run(make_forward_dynamics, params, q, qd, tau, qdd)
        return qdd

    def forward_dynamics_adjoint(self, tau, q, qd, params, outputs_bar, params_bar):
        bars = [torch.zeros_like(x) for x in (q, qd, tau)]
        self._run(make_forward_dynamics_adjoint, params, q, qd, tau, *outputs_bar, *bars, params_bar)
        return bars[2], bars[0], bars[1]

    def mass_matrix(self, q, params):
        still, M = self._still(q), q.new_zeros(self.num_envs, self.model.nv, self.model.nv)
        self._run(make_mass_matrix, params, q, still, M)
        return M

    def mass_matrix_adjoint(self, q, params, outputs_bar, params_bar):
        q_bar, scratch = torch.zeros_like(q), (self._still(q), self._still(q), self._still(q))
        still, unit, qd_bar = scratch
        self._run(make_mass_matrix_adjoint, params, q, still, *outputs_bar, unit, q_bar, qd_bar, params_bar)
        return (q_bar,)

    def inverse_dynamics(self, q, qd, qdd, params):
        tau = torch.empty_like(qd)
        self._run(make_inverse_dynamics, params, q, qd, qdd, tau)
        return tau

    def inverse_dynamics_adjoint(self, q, qd, qdd, params, outputs_bar, params_bar):
        bars = [torch.zeros_like(x) for x in (q, qd, qdd)]
        self._run(make_inverse_dynamics_adjoint, params, q, qd, qdd, *outputs_bar, *bars, params_bar)
        return bars

    def link_velocities(self, q, qd, params):
        velocities = q.new_empty(self.num_envs, self.model.num_links, 6)
        self._run(make_link_velocities, params, self._frames, q, qd, velocities)
        return velocities

    def link_velocities_adjoint(self, q, qd, params, outputs_bar, params_bar):
        bars = [torch.zeros_like(x) for x in (q, qd)]
        self._run(make_link_velocities_adjoint, params, self._frames, q, qd, *outputs_bar, *bars, params_bar)
        return bars

    def frame_jacobians(self, q, links, offsets, params):
        """links: (frames,) int32, 0 for the world; offsets: (frames, 3) in the links' frames."""
        J = q.new_zeros(self.num_envs, len(links), 6, self.model.nv)
        if len(links):
            offsets = wp.from_torch(offsets, dtype=self.types.vec3)
            self._run(make_frame_jacobians, params, links, offsets, q, self._still(q), J)
        return J

    def link_poses(self, q, params):
        poses = q.new_empty(self.num_envs, self.model.num_links, 7)
        self._run(make_link_poses, params, self._frames, q, self._still(q), poses)
        return poses

    def link_poses_adjoint(self, q, params, outputs_bar, params_bar):
        q_bar, unused = torch.zeros_like(q), self._still(q)
        arguments = (*outputs_bar, q_bar, unused, params_bar)
        self._run(make_link_poses_adjoint, params, self._frames, q, self._still(q), *arguments)
        return (q_bar,)

    def contacts(self, u, wrench, q, qd, params):
        slots = max(self.sizes.contacts, 1)
        points, normals, impulses = (q.new_zeros(self.num_envs, slots, 3) for _ in range(3))
        depths, change = q.new_zeros(self.num_envs, slots), q.new_zeros(self.num_envs)
        found = self._found(slots)
        counts = torch.zeros(self.num_envs, 4, dtype=torch.int32, device=q.device)
        acting, wrenches = self._acting(wrench, 3)
        outputs = (points, normals, depths, impulses, found, counts, change)
        self._run(make_contacts, params, q, qd, u, acting, *outputs, wrenches=wrenches)
        return points, normals, depths, impulses, found[..., 0].clone(), counts, change

    def contacts_adjoint(self, u, wrench, q, qd, params, outputs_bar, params_bar):
        acting, wrenches = self._acting(wrench, 3)
        bars = [torch.zeros_like(x) for x in (q, qd, u, acting)]
        found = self._found(outputs_bar[0].shape[1])
        arguments = (q, qd, u, acting, *outputs_bar, found, *bars, params_bar)
        self._run(make_contacts_adjoint, params, *arguments, wrenches=wrenches)
        q_bar, qd_bar, u_bar, wrench_bar = bars
        return u_bar, wrench_bar if wrenches else None, q_bar, qd_bar

    def jacobians(self, u, wrench, q, qd, params):
        nv, nu = self.model.nv, self.model.nu
        A, B = q.new_zeros(self.num_envs, 2 * nv, 2 * nv), q.new_zeros(self.num_envs, 2 * nv, nu)
        acting, wrenches = self._acting(wrench, 3)
        scratch = [torch.zeros_like(acting), *(torch.empty_like(x) for x in (q, qd, q, qd))]
        self._run(make_jacobians, params, q, qd, u, acting, *scratch, A, B, self.types.ParamsBar(), wrenches=wrenches)
        return A, B

    def diagnostics(self, u, wrench, qs, qds, params):
        steps = u.shape[0]
        counts = torch.zeros(steps, self.num_envs, 4, dtype=torch.int32, device=u.device)
        numbers = [u.new_zeros(steps, self.num_envs) for _ in range(5)]
        if steps:
            acting, wrenches = self._acting(wrench, 4)
            self._run(make_diagnostics, params, u, acting, qs, qds, counts, *numbers, wrenches=wrenches)
        return counts, *numbers

    def _found(self, slots: int) -> torch.Tensor:
        """Room for what names the contacts of a step: pair, feature, and the evaluation where it occurs first."""
        return torch.zeros(self.num_envs, slots, 3, dtype=torch.int32, device=self.like.device)

    def _still(self, q):
        """Velocities of zero."""
        return q.new_zeros(self.num_envs, self.model.nv)


def _before_and_after(a: wp.array) -> wp.array:
    """Two rows of stride zero: the kernel reads and writes `a` itself."""
    return wp.array(ptr=a.ptr, shape=(2, *a.shape), strides=(0, *a.strides), dtype=a.dtype, device=a.device)
