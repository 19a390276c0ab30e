"""Questions about a state, asked of a whole batch: dynamics, poses, contacts, Jacobians, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .autograd import ContactOutputs, ForwardDynamics, LinkPoses
from .device import checks
from .device.eager import eager
from .device.engine import Batch
from .kernels.queries.contacts import make_contacts, make_contacts_adjoint
from .kernels.queries.diagnostics import make_diagnostics
from .kernels.queries.dynamics import make_forward_dynamics, make_forward_dynamics_adjoint, make_mass_matrix
from .kernels.queries.jacobians import make_jacobians
from .kernels.queries.poses import make_link_poses, make_link_poses_adjoint


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


@dataclass(frozen=True)
class Diagnostics:
    """What says whether a gradient can be trusted; all (T, num_envs)."""

    contacts: torch.Tensor  # int, that the step resolved
    joint_rows: torch.Tensor  # int, limits, saturated drives and dry friction among the solver's rows
    sweeps: torch.Tensor  # int, solver iterations made
    residual: torch.Tensor  # N s, largest change of an impulse in the last sweep
    margin: torch.Tensor  # smallest relative distance of an impulse, a drive or an impact from where its law switches
    gap: torch.Tensor  # m or rad, smallest distance of a pair from touching or parting, or of a joint from a limit
    fall: float  # m, |gravity| dt^2: how far the velocity of one step of free fall leads in a step

    def near_switch(self, margin: float = 1e-3, gap: float | None = None) -> torch.Tensor:
        """(T, num_envs) bool: steps so close to a switch that their gradient may hold on one side only.

        gap: m or rad; by default a hundredth of `fall`, to which the depth of resting contacts is proportional.
        """
        return (self.margin < margin) | (self.gap < (0.01 * self.fall if gap is None else gap))


class Queries(Batch):
    """What can be asked of a Simulator without stepping it."""

    @eager
    def forward_dynamics(self, q, qd, tau, *, params: Mapping | None = None) -> torch.Tensor:
        """Accelerations (num_envs, nv) from joint forces tau (num_envs, nv), without contacts.

        tau is all that acts on the joints: springs, damping, drives and limits are not added.
        """
        q, qd = self._state(q, qd)
        tau = checks.state("tau", tau, (self.num_envs, self.model.nv), self._like, self.validate)
        own = self._own_params(params)
        if self._differentiates(tau, q, qd, *own.values()):
            return ForwardDynamics.apply(self, tuple(own), tau, q, qd, *own.values())
        return self._forward_dynamics(tau, q, qd, own)

    def _forward_dynamics(self, tau, q, qd, params):
        qdd = torch.empty_like(qd)
        self._run(make_forward_dynamics, params, q, qd, tau, qdd)
        return qdd

    def _forward_dynamics_adjoint(self, tau, q, qd, params, outputs_bar, params_bar):
        bars = [torch.zeros_like(x) for x in (q, qd, tau)]
        self._run(make_forward_dynamics_adjoint, params, q, qd, tau, *outputs_bar, *bars, params_bar)
        return bars[2], bars[0], bars[1]

    @eager
    def mass_matrix(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """Joint-space inertia (num_envs, nv, nv), armature included."""
        q, qd = self._state(q, None)
        own = self._own_params(params)
        self._without_gradients("mass_matrix", q, *own.values())
        M = q.new_zeros(self.num_envs, self.model.nv, self.model.nv)
        self._run(make_mass_matrix, own, q, qd, M)
        return M

    @eager
    def link_poses(self, q, *, params: Mapping | None = None) -> torch.Tensor:
        """World position and quaternion xyzw (num_envs, links, 7) of every link, in the order of model.link_names."""
        q, _ = self._state(q, None)
        own = self._own_params(params)
        if self._differentiates(q, *own.values()):
            return LinkPoses.apply(self, tuple(own), q, *own.values())
        return self._link_poses(q, own)

    def _link_poses(self, q, params):
        poses = q.new_empty(self.num_envs, self.model.num_links, 7)
        self._run(make_link_poses, params, self._frames, q, q.new_zeros(self.num_envs, self.model.nv), poses)
        return poses

    def _link_poses_adjoint(self, q, params, outputs_bar, params_bar):
        q_bar, still = torch.zeros_like(q), q.new_zeros(self.num_envs, self.model.nv)
        unused = torch.zeros_like(still)
        self._run(make_link_poses_adjoint, params, self._frames, q, still, *outputs_bar, q_bar, unused, params_bar)
        return (q_bar,)

    @eager
    def contacts(self, q, qd, u=None, *, params: Mapping | None = None) -> Contacts:
        """The contacts that a step of dt from this state would resolve, and their impulses."""
        q, qd = self._state(q, qd)
        u = self._control(u)
        own = self._own_params(params)
        if self._differentiates(u, q, qd, *own.values()):
            found = ContactOutputs.apply(self, tuple(own), u, q, qd, *own.values())
        else:
            found = self._contacts(u, q, qd, own)
        points, normals, depths, impulses, pairs, counts, change = found
        active = torch.arange(points.shape[1], device=q.device) < counts[:, :1]
        return Contacts(points, normals, depths, impulses, active, pairs, counts[:, 2], change, counts[:, 3])

    def _contacts(self, u, q, qd, params):
        slots = max(self._sizes.contacts, 1)
        points, normals, impulses = (q.new_zeros(self.num_envs, slots, 3) for _ in range(3))
        depths, change = q.new_zeros(self.num_envs, slots), q.new_zeros(self.num_envs)
        pairs = torch.zeros(self.num_envs, slots, dtype=torch.int32, device=q.device)
        counts = torch.zeros(self.num_envs, 4, dtype=torch.int32, device=q.device)
        outputs = (points, normals, depths, impulses, pairs, counts, change)
        self._run(make_contacts, params, q, qd, u, *outputs)
        return outputs

    def _contacts_adjoint(self, u, q, qd, params, outputs_bar, params_bar):
        bars = [torch.zeros_like(x) for x in (q, qd, u)]
        self._run(make_contacts_adjoint, params, q, qd, u, *outputs_bar, *bars, params_bar)
        return bars[2], bars[0], bars[1]

    @eager
    def jacobians(self, q, qd, u=None, *, params: Mapping | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Dense derivatives of one step of dt, all in one launch.

        Returns:
            A: (num_envs, 2 nv, 2 nv), d(next q, next qd) / d(q, qd), positions first.
            B: (num_envs, 2 nv, nu), d(next q, next qd) / du.

        Positions are measured in the tangent space, in the order of qd: a rotation by the vector phi turns the
        quaternion e into exp(phi) e, with phi in world axes for a free joint and in the axes of the joint's frame on
        the parent for a ball joint.
        """
        q, qd = self._state(q, qd)
        u = self._control(u)
        own = self._own_params(params)
        self._without_gradients("jacobians", q, qd, u, *own.values())
        nv, nu = self.model.nv, self.model.nu
        A, B = q.new_zeros(self.num_envs, 2 * nv, 2 * nv), q.new_zeros(self.num_envs, 2 * nv, nu)
        scratch = (torch.empty_like(q), torch.empty_like(qd))
        self._run(make_jacobians, own, q, qd, u, *scratch, A, B, self._types.ParamsBar())
        return A, B

    @eager
    def diagnose(self, qs, qds, u, *, params: Mapping | None = None) -> Diagnostics:
        """How converged, and how far from a switch, the steps of a trajectory are: where to trust its gradient.

        Args:
            qs, qds: states before the steps, (T, num_envs, ...) or, as `rollout` returns them, one more.
            u: (T, num_envs, nu). With substeps, only the first step of each control is looked at.
        """
        if len(qs) < len(u):
            raise ValueError(
                f"qs has {len(qs)} states for {len(u)} controls; diagnose needs the state before every control, as "
                "rollout returns them with checkpoint_every=1."
            )
        u = checks.state("u", u, (-1, self.num_envs, self.model.nu), self._like, self.validate)
        steps = u.shape[0]
        qs = checks.state("qs", qs[:steps], (steps, self.num_envs, self.model.nq), self._like, self.validate)
        qds = checks.state("qds", qds[:steps], (steps, self.num_envs, self.model.nv), self._like, self.validate)
        counts = torch.zeros(steps, self.num_envs, 3, dtype=torch.int32, device=u.device)
        residual, margin, gap = (u.new_zeros(steps, self.num_envs) for _ in range(3))
        own = {name: value.detach() for name, value in self._own_params(params).items()}
        if steps:
            states = (x.detach() for x in (u, qs, qds))
            self._run(make_diagnostics, own, *states, counts, residual, margin, gap)
        fall = float(abs(self.model.gravity).max()) * self.dt**2
        return Diagnostics(counts[..., 0], counts[..., 1], counts[..., 2], residual, margin, gap, fall)
