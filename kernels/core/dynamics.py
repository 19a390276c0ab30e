"""Articulated-body factorisation and solve (Featherstone, chapter 7, in world axes).

The factorisation (U, Dinv per dof) is made once per step. A solve Mhat y = t is then
    up:    w_j = t_j - S_j.f_j,  f_parent += f_j + U_j Dinv_j w_j        tips to root
    down:  y_j = Dinv_j (w_j - U_j.m_parent),  m_j = m_parent + S_j y_j  root to tips
and quantities such as J Mhat^-1 t need only the up pass (paths.py). The bias force goes up with the first one.

All vectors are about the tree's origin O, but IA and pA are about the link's own origin: about O the inertia of a
light link far out would drown in its m r^2, and Dinv with it (float32: 5e-4 off on a PR2, below 2e-6 now).
"""

import warp as wp

from ..types import FREE, PRISMATIC, exports, stage


def make_dynamics(t, s, wrenches, gravcomp, thrusts):
    real, vec6, Env, EnvBar, Link, Dof = t.real, t.vec6, t.Env, t.EnvBar, t.Link, t.Dof
    spatial, angular, linear = s.spatial, s.angular, s.linear

    @wp.func
    def link_inertia(e: wp.ref[Env], i: int, link: wp.ref[Link]):
        """Inertia and bias force of one link alone, about its own origin."""
        m = e.params.mass[e.index, i - 1]
        R = link.R
        w = angular(link.v)
        d = R @ e.params.com[e.index, i - 1]
        c = link.r + d
        Ic = s.rotate_inertia(R, e.params.inertia[e.index, i - 1])
        link.IA = s.rigid_inertia(m, d, Ic)
        # force from the com's acceleration, moment from the rotation about the com (Newton and Euler)
        f = (linear(link.a) + wp.cross(angular(link.a), c) + wp.cross(w, linear(link.v) + wp.cross(w, c))) * m
        n = s.sym3_mul(Ic, angular(link.a)) + wp.cross(w, s.sym3_mul(Ic, w))
        if wp.static(t.sizes.wrenches):
            f -= wrenches.force(e, i)
            n -= wrenches.torque(e, i)
        if wp.static(t.sizes.gravcomp):
            f -= gravcomp.lift(e, i)
        link.pA = spatial(n + wp.cross(d, f), f)
        if t.at_impact(e):
            link.pA = vec6()

    @wp.func
    def eliminate(dof: wp.ref[Dof], U: vec6, SU: real, Sp: real):
        """Dinv and the force left on a dof with U = IA S; returns U Dinv."""
        Dinv = real(1.0) / (SU + dof.diagonal)
        dof.U = U
        dof.Dinv = Dinv
        dof.u = dof.u - Sp
        return U * Dinv

    @wp.func
    def articulate(e: wp.ref[Env], i: int, parent: wp.ref[Link], link: wp.ref[Link]):
        """Eliminate the dofs of joint i and add the articulated inertia and bias to the parent."""
        IA = link.IA
        pA = link.pA
        r = link.r
        count = e.model.num_joint_dofs[i]
        slides = e.model.joint_type[i] == PRISMATIC
        for k in range(count):
            j = e.model.v_start[i] + count - 1 - k
            # about the link's own origin the axis is (n; 0) or (0; n)
            U = vec6()
            UD = vec6()
            if slides:
                n = linear(e.dofs[j].S)
                U = s.sym6_linear(IA, n)
                UD = eliminate(e.dofs[j], U, wp.dot(n, linear(U)), wp.dot(n, linear(pA)))
            else:
                n = angular(e.dofs[j].S)
                U = s.sym6_angular(IA, n)
                UD = eliminate(e.dofs[j], U, wp.dot(n, angular(U)), wp.dot(n, angular(pA)))
            e.dofs[j].U = s.shift_force(U, r)
            IA = IA - s.sym6_outer(U, UD)
            pA = pA + UD * e.dofs[j].u
        if e.model.parent[i] > 0:
            d = r - parent.r
            parent.IA = parent.IA + s.shift_inertia(IA, d)
            parent.pA = parent.pA + s.shift_force(pA, d)

    @wp.func
    def articulate_free(e: wp.ref[Env], link: wp.ref[Link], start: int):
        """The same for a free joint, whose axes are unit vectors: U is a column of the remaining IA."""
        I = link.IA
        p = link.pA
        U = vec6(I[2], I[7], I[11], I[12], I[13], I[14])
        UD = eliminate(e.dofs[start + 5], U, U[2], p[2])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * e.dofs[start + 5].u
        U = vec6(I[1], I[6], I[7], I[8], I[9], I[10])
        UD = eliminate(e.dofs[start + 4], U, U[1], p[1])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * e.dofs[start + 4].u
        U = vec6(I[0], I[1], I[2], I[3], I[4], I[5])
        UD = eliminate(e.dofs[start + 3], U, U[0], p[0])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * e.dofs[start + 3].u
        U = vec6(I[5], I[10], I[14], I[17], I[19], I[20])
        UD = eliminate(e.dofs[start + 2], U, U[5], p[5])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * e.dofs[start + 2].u
        U = vec6(I[4], I[9], I[13], I[16], I[18], I[19])
        UD = eliminate(e.dofs[start + 1], U, U[4], p[4])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * e.dofs[start + 1].u
        U = vec6(I[3], I[8], I[12], I[15], I[16], I[17])
        UD = eliminate(e.dofs[start + 0], U, U[3], p[3])

    @stage
    def factorise(e: wp.ref[Env]):
        for i in range(1, e.model.num_links):
            link_inertia(e, i, e.links[i])
        if wp.static(t.sizes.thrusts):
            thrusts.push(e)
        for n in range(1, e.model.num_links):
            i = e.model.num_links - n
            if e.model.joint_type[i] == FREE:
                articulate_free(e, e.links[i], e.model.v_start[i])
            else:
                articulate(e, i, e.links[e.model.parent[i]], e.links[i])

    @wp.func
    def root_forces(e: wp.ref[Env], start: int):
        """dofs.u of a free root."""
        return vec6(
            e.dofs[start].u,
            e.dofs[start + 1].u,
            e.dofs[start + 2].u,
            e.dofs[start + 3].u,
            e.dofs[start + 4].u,
            e.dofs[start + 5].u,
        )

    @wp.func
    def free_motion(e: wp.ref[Env], start: int, u: vec6):
        """Motion of a free root from the impulses on its dofs, linear ones first: what `substitute` leaves to do."""
        v0 = e.dofs[start].Dinv * u[0]
        U = e.dofs[start + 1].U
        v1 = e.dofs[start + 1].Dinv * (u[1] - U[3] * v0)
        U = e.dofs[start + 2].U
        v2 = e.dofs[start + 2].Dinv * (u[2] - U[3] * v0 - U[4] * v1)
        U = e.dofs[start + 3].U
        w0 = e.dofs[start + 3].Dinv * (u[3] - U[3] * v0 - U[4] * v1 - U[5] * v2)
        U = e.dofs[start + 4].U
        w1 = e.dofs[start + 4].Dinv * (u[4] - U[3] * v0 - U[4] * v1 - U[5] * v2 - U[0] * w0)
        U = e.dofs[start + 5].U
        w2 = e.dofs[start + 5].Dinv * (u[5] - U[3] * v0 - U[4] * v1 - U[5] * v2 - U[0] * w0 - U[1] * w1)
        return vec6(w0, w1, w2, v0, v1, v2)

    @stage
    def solve_down(e: wp.ref[Env]):
        """Velocity changes from the impulses u on the dofs."""
        for i in range(1, e.model.num_links):
            if e.model.joint_type[i] == FREE:
                j = e.model.v_start[i]
                m = free_motion(e, j, root_forces(e, j))
                e.links[i].dv = m
                e.dofs[j].dqd = m[3]
                e.dofs[j + 1].dqd = m[4]
                e.dofs[j + 2].dqd = m[5]
                e.dofs[j + 3].dqd = m[0]
                e.dofs[j + 4].dqd = m[1]
                e.dofs[j + 5].dqd = m[2]
            else:
                m = e.links[e.model.parent[i]].dv
                for n in range(e.model.num_joint_dofs[i]):
                    j = e.model.v_start[i] + n
                    dqd = e.dofs[j].Dinv * (e.dofs[j].u - wp.dot(e.dofs[j].U, m))
                    e.dofs[j].dqd = dqd
                    m = m + e.dofs[j].S * dqd
                e.links[i].dv = m

    @stage
    def solve_up_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Up pass of the adjoint of the new rates, into dofs.u. The wrenches on their way are kept in links.pA."""
        for i in range(1, e.model.num_links):
            e.links[i].pA = vec6()
        for n in range(1, e.model.num_links):
            i = e.model.num_links - n
            f = e.links[i].pA
            if e.model.joint_type[i] == FREE:
                j = e.model.v_start[i]
                e.dofs[j + 5].u = e_bar.qd[j + 5] - f[2]
                f += e.dofs[j + 5].U * (e.dofs[j + 5].Dinv * e.dofs[j + 5].u)
                e.dofs[j + 4].u = e_bar.qd[j + 4] - f[1]
                f += e.dofs[j + 4].U * (e.dofs[j + 4].Dinv * e.dofs[j + 4].u)
                e.dofs[j + 3].u = e_bar.qd[j + 3] - f[0]
                f += e.dofs[j + 3].U * (e.dofs[j + 3].Dinv * e.dofs[j + 3].u)
                e.dofs[j + 2].u = e_bar.qd[j + 2] - f[5]
                f += e.dofs[j + 2].U * (e.dofs[j + 2].Dinv * e.dofs[j + 2].u)
                e.dofs[j + 1].u = e_bar.qd[j + 1] - f[4]
                f += e.dofs[j + 1].U * (e.dofs[j + 1].Dinv * e.dofs[j + 1].u)
                e.dofs[j].u = e_bar.qd[j] - f[3]
            else:
                count = e.model.num_joint_dofs[i]
                for k in range(count):
                    j = e.model.v_start[i] + count - 1 - k
                    w = e_bar.qd[j] - wp.dot(e.dofs[j].S, f)
                    e.dofs[j].u = w
                    f += e.dofs[j].U * (e.dofs[j].Dinv * w)
                p = e.model.parent[i]
                if p > 0:
                    e.links[p].pA = e.links[p].pA + f

    @stage
    def solve_down_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """From dofs.u, the adjoint s = dt Mhat^-1 (rate_bar + J^T b_bar) of the joint forces, and its motion W."""
        h = e.model.dt
        e_bar.links[0].W = vec6()
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            if e.model.joint_type[i] == FREE:
                m = free_motion(e, j, root_forces(e, j)) * h
                e_bar.links[i].W = m
                e_bar.dofs[j].s = m[3]
                e_bar.dofs[j + 1].s = m[4]
                e_bar.dofs[j + 2].s = m[5]
                e_bar.dofs[j + 3].s = m[0]
                e_bar.dofs[j + 4].s = m[1]
                e_bar.dofs[j + 5].s = m[2]
            else:
                m = e_bar.links[e.model.parent[i]].W
                for n in range(e.model.num_joint_dofs[i]):
                    k = j + n
                    w = e.dofs[k].Dinv * (h * e.dofs[k].u - wp.dot(e.dofs[k].U, m))
                    e_bar.dofs[k].s = w
                    m = m + e.dofs[k].S * w
                e_bar.links[i].W = m

    @wp.func
    def combine(e: wp.ref[Env], i: int, m: vec6, x: wp.array(dtype=real)):
        """Motion of link i: the parent's motion m, and the joint's axes times x[dof]."""
        j = e.model.v_start[i]
        if e.model.joint_type[i] == FREE:
            return vec6(x[j + 3], x[j + 4], x[j + 5], x[j], x[j + 1], x[j + 2])
        for n in range(e.model.num_joint_dofs[i]):
            m = m + e.dofs[j + n].S * x[j + n]
        return m

    @wp.func
    def project(e: wp.ref[Env], i: int, f: vec6, n: int):
        """What a wrench about O does on dof n of joint i."""
        if e.model.joint_type[i] == FREE:
            return f[(n + 3) % 6]
        return wp.dot(e.dofs[e.model.v_start[i] + n].S, f)

    @wp.func
    def recursive_newton_euler(e: wp.ref[Env], qdd: wp.array(dtype=real), tau: wp.array(dtype=real)):
        """Joint forces without armature (Featherstone, chapter 5). links.dv: what qdd adds to the accelerations."""
        for i in range(1, e.model.num_links):
            e.links[i].dv = combine(e, i, e.links[e.model.parent[i]].dv, qdd)
            e.links[i].a = e.links[i].a + e.links[i].dv
            link_inertia(e, i, e.links[i])
        for k in range(1, e.model.num_links):
            i = e.model.num_links - k
            p = e.model.parent[i]
            f = s.shift_force(e.links[i].pA, e.links[i].r)
            for n in range(e.model.num_joint_dofs[i]):
                tau[e.model.v_start[i] + n] = project(e, i, f, n)
            if p > 0:
                e.links[p].pA = e.links[p].pA + s.shift_force(e.links[i].pA, e.links[i].r - e.links[p].r)

    @wp.func
    def composite_inertia(e: wp.ref[Env]):
        """IA becomes the inertia of the whole subtree about the link's origin, as if its joints were locked."""
        for i in range(1, e.model.num_links):
            link_inertia(e, i, e.links[i])
        for n in range(1, e.model.num_links):
            i = e.model.num_links - n
            p = e.model.parent[i]
            if p > 0:
                e.links[p].IA = e.links[p].IA + s.shift_inertia(e.links[i].IA, e.links[i].r - e.links[p].r)

    return exports(
        factorise, root_forces, free_motion, solve_down, solve_up_adjoint, solve_down_adjoint, combine, project,
        recursive_newton_euler, composite_inertia,
    )  # fmt: skip
