"""Accelerations from joint forces, joint forces from accelerations and the mass matrix, without contacts; adjoints."""

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


def make_inverse_adjoint(s):
    real, t = s.t.real, s.t
    vec6 = t.vec6

    @wp.func
    def inverse_adjoint(
        e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], qdd: wp.array(dtype=real), tau_bar: wp.array(dtype=real)
    ):
        """Adjoint of tau = M qdd + C, without armature: -s.(M a + C) of motion.py with s = -tau_bar and dt = 1.

        After `kinematics`. Adds to e_bar.q, qd and params; M tau_bar can be read from the sums abar.
        """
        s.motion.clear(e, e_bar)
        e.links[0].dv = vec6()
        e_bar.links[0].W = vec6()
        for i in range(1, e.model.num_links):
            p = e.model.parent[i]
            e.links[i].dv = s.dynamics.combine(e, i, e.links[p].dv, qdd)
            e_bar.links[i].W = -s.dynamics.combine(e, i, -e_bar.links[p].W, tau_bar)
        s.motion.motion_adjoint(e, e_bar)

    return inverse_adjoint


@cache
def make_inverse_dynamics(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t

    @wp.kernel(**KERNEL, module_options=module_options())
    def inverse_dynamics(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        qdd: wp.array2d(dtype=real), tau: wp.array2d(dtype=real),
    ):  # fmt: skip
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        s.dynamics.recursive_newton_euler(e, qdd[env], tau[env])
        for j in range(model.num_dofs):
            tau[env, j] = tau[env, j] + params.armature[env, j] * qdd[env, j]

    return inverse_dynamics


@cache
def make_inverse_dynamics_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, inverse_adjoint = s.t, make_inverse_adjoint(s)

    @wp.kernel(**KERNEL, module_options=module_options())
    def inverse_dynamics_adjoint(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        qdd: wp.array2d(dtype=real), tau_bar: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), qdd_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """q_bar and qd_bar come in as zeros."""
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
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        s.kinematics.kinematics(e)
        inverse_adjoint(e, e_bar, qdd[env], tau_bar[env])
        for i in range(1, model.num_links):
            for n in range(model.num_joint_dofs[i]):
                j = model.v_start[i] + n
                armature = params.armature[env, j] * tau_bar[env, j]
                qdd_bar[env, j] = armature - s.dynamics.project(e, i, e_bar.links[i].abar, n)
                if params_bar.joints != 0:
                    params_bar.armature[env, j] = params_bar.armature[env, j] + tau_bar[env, j] * qdd[env, j]

    return inverse_dynamics_adjoint


@cache
def make_mass_matrix_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, inverse_adjoint = s.t, make_inverse_adjoint(s)
    vec6 = t.vec6

    @wp.kernel(**KERNEL, module_options=module_options())
    def mass_matrix_adjoint(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        M_bar: wp.array3d(dtype=real), unit: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """Column j of M are the joint forces of unit acceleration j at rest, without gravity; qd and unit are zeros.

        qd_bar is scratch.
        """
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
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        s.kinematics.kinematics(e)
        for i in range(model.num_links):
            e.links[i].a = vec6()
        gravity_bar = t.vec3()
        if params_bar.joints != 0:
            gravity_bar = params_bar.gravity[env]
        for j in range(model.num_dofs):
            unit[env, j] = real(1.0)
            inverse_adjoint(e, e_bar, unit[env], M_bar[env, j])
            unit[env, j] = real(0.0)
            if params_bar.joints != 0:
                params_bar.armature[env, j] = params_bar.armature[env, j] + M_bar[env, j, j]
        if params_bar.joints != 0:  # the adjoint of motion takes a for an acceleration against gravity
            params_bar.gravity[env] = gravity_bar

    return mass_matrix_adjoint


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
