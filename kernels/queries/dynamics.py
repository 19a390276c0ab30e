"""Accelerations from joint forces, without contacts, and their adjoint; the mass matrix."""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import FREE, Sizes


def make_accelerate(s):
    real, t = s.t.real, s.t

    @wp.func
    def accelerate(e: wp.ref[t.Env], tau: wp.array(dtype=real)):
        """Joint accelerations M^-1 (tau - C) in dofs.dqd, by the articulated-body algorithm."""
        s.kinematics.kinematics(e)
        for j in range(e.model.num_dofs):
            e.dofs[j].u = tau[j]
            e.dofs[j].diagonal = e.params.armature[e.index, j]
        s.dynamics.factorise(e)
        s.dynamics.solve_down(e)

    return accelerate


@cache
def make_forward_dynamics(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, accelerate = s.t, make_accelerate(s)

    @wp.kernel(**KERNEL, module_options=module_options())
    def forward_dynamics(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        tau: wp.array2d(dtype=real), qdd: wp.array2d(dtype=real),
    ):  # fmt: skip
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        accelerate(e, tau[env])
        for j in range(model.num_dofs):
            qdd[env, j] = e.dofs[j].dqd

    return forward_dynamics


@cache
def make_forward_dynamics_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, accelerate = s.t, make_accelerate(s)

    @wp.kernel(**KERNEL, module_options=module_options())
    def forward_dynamics_adjoint(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        tau: wp.array2d(dtype=real), qdd_bar: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), tau_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """Like a step of one second without contacts, except for the old rates; q_bar and qd_bar come in as zeros."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see env.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.model.dt = real(1.0)
        e.q = q[env]
        e.qd = qd[env]
        accelerate(e, tau[env])
        e_bar.qd = qdd_bar[env]
        s.dynamics.solve_up_adjoint(e, e_bar)
        s.dynamics.solve_down_adjoint(e, e_bar)
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        s.motion.clear(e, e_bar)
        s.motion.motion_adjoint(e, e_bar)
        for j in range(model.num_dofs):
            tau_bar[env, j] = e_bar.dofs[j].s
            if params_bar.joints != 0:
                params_bar.armature[env, j] = params_bar.armature[env, j] - e_bar.dofs[j].s * e.dofs[j].dqd

    return forward_dynamics_adjoint


@cache
def make_mass_matrix(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, g = s.t, s.spatial
    vec6 = t.vec6

    @wp.kernel(**KERNEL, module_options=module_options())
    def mass_matrix(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        M: wp.array3d(dtype=real),
    ):  # fmt: skip
        """Composite-rigid-body algorithm (Featherstone, chapter 6); M comes in as zeros, armature is added."""
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        s.dynamics.composite_inertia(e)
        for j in range(model.num_dofs):
            i = model.dof_link[j]
            free = model.free_dof[i]
            S = e.dofs[j].S
            if model.joint_type[i] == FREE:
                S = vec6()
                S[(j - free + 3) % 6] = real(1.0)
            # the axis about the link's origin, where IA is known, and the wrench about the tree's
            v = g.linear(S) + wp.cross(g.angular(S), e.links[i].r)
            f = g.sym6_angular(e.links[i].IA, g.angular(S)) + g.sym6_linear(e.links[i].IA, v)
            f = g.shift_force(f, e.links[i].r)
            for d in range(model.depth[i]):
                k = model.chain[i, d]
                m = wp.dot(e.dofs[k].S, f)
                M[env, j, k] = m
                M[env, k, j] = m
            if free >= 0:
                for d in range(6):
                    M[env, j, free + d] = f[(d + 3) % 6]
                    M[env, free + d, j] = f[(d + 3) % 6]
            M[env, j, j] = M[env, j, j] + params.armature[env, j]

    return mass_matrix
