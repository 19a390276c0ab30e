"""Articulated-body factorisation and solve (Featherstone, chapter 7, in world axes).

The factorisation (U, Dinv per dof) is made once per step. A solve Mhat y = t is then
    up:    w_j = t_j - S_j.f_j,  f_parent += f_j + U_j Dinv_j w_j        tips to root
    down:  y_j = Dinv_j (w_j - U_j.m_parent),  m_j = m_parent + S_j y_j  root to tips
and quantities such as J Mhat^-1 t need only the up pass (contact.py). The bias force goes up with the first one.

All vectors are about the tree's origin O, but IA and pA are about the link's own origin: about O the inertia of a
light link far out would drown in its m r^2, and Dinv with it (float32: 5e-4 off on a PR2, below 2e-6 now).
"""

from types import SimpleNamespace

import warp as wp

from ..types import FREE, PRISMATIC


def make_dynamics(t, s):
    real, vec3, vec6, mat36, mat64 = t.real, t.vec3, t.vec6, t.mat36, t.mat64
    Model, Params, Link, Dof, Root = t.Model, t.Params, t.Link, t.Dof, t.Root
    LinkBar, DofBar = t.LinkBar, t.DofBar
    spatial, angular, linear = s.spatial, s.angular, s.linear

    @wp.func
    def link_inertia(params: Params, env: int, i: int, link: wp.ref[Link]):
        """Inertia and bias force of one link alone, about its own origin."""
        m = params.mass[env, i - 1]
        R = link.R
        w = angular(link.v)
        d = R @ params.com[env, i - 1]
        c = link.r + d
        Ic = s.rotate_inertia(R, params.inertia[env, i - 1])
        link.c = c
        link.Ic = Ic
        link.IA = s.rigid_inertia(m, d, Ic)
        # force from the com's acceleration, moment from the rotation about the com (Newton and Euler)
        f = (linear(link.a) + wp.cross(angular(link.a), c) + wp.cross(w, linear(link.v) + wp.cross(w, c))) * m
        n = s.sym3_mul(Ic, angular(link.a)) + wp.cross(w, s.sym3_mul(Ic, w))
        link.pA = spatial(n + wp.cross(d, f), f)

    @wp.func
    def eliminate(dof: wp.ref[Dof], U: vec6, SU: real, Sp: real):
        """Dinv and the force left on a dof with U = IA S; returns U Dinv."""
        Dinv = real(1.0) / (SU + dof.diagonal)
        dof.U = U
        dof.Dinv = Dinv
        dof.u = dof.u - Sp
        return U * Dinv

    @wp.func
    def articulate(model: Model, i: int, parent: wp.ref[Link], link: wp.ref[Link], dofs: wp.array(dtype=Dof)):
        """Eliminate the dofs of joint i and hand the articulated inertia and bias to the parent."""
        IA = link.IA
        pA = link.pA
        r = link.r
        count = model.num_joint_dofs[i]
        slides = model.joint_type[i] == PRISMATIC
        for k in range(count):
            j = model.v_start[i] + count - 1 - k
            # about the link's own origin the axis is (n; 0) or (0; n)
            U = vec6()
            UD = vec6()
            if slides:
                n = linear(dofs[j].S)
                U = s.sym6_linear(IA, n)
                UD = eliminate(dofs[j], U, wp.dot(n, linear(U)), wp.dot(n, linear(pA)))
            else:
                n = angular(dofs[j].S)
                U = s.sym6_angular(IA, n)
                UD = eliminate(dofs[j], U, wp.dot(n, angular(U)), wp.dot(n, angular(pA)))
            dofs[j].U = s.shift_force(U, r)
            IA = IA - s.sym6_outer(U, UD)
            pA = pA + UD * dofs[j].u
        if model.parent[i] > 0:
            d = r - parent.r
            parent.IA = parent.IA + s.shift_inertia(IA, d)
            parent.pA = parent.pA + s.shift_force(pA, d)

    @wp.func
    def articulate_free(link: wp.ref[Link], dofs: wp.array(dtype=Dof), start: int):
        """The same for a free joint, whose axes are unit vectors: U is a column of what is left of IA."""
        I = link.IA
        p = link.pA
        U = vec6(I[2], I[7], I[11], I[12], I[13], I[14])
        UD = eliminate(dofs[start + 5], U, U[2], p[2])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * dofs[start + 5].u
        U = vec6(I[1], I[6], I[7], I[8], I[9], I[10])
        UD = eliminate(dofs[start + 4], U, U[1], p[1])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * dofs[start + 4].u
        U = vec6(I[0], I[1], I[2], I[3], I[4], I[5])
        UD = eliminate(dofs[start + 3], U, U[0], p[0])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * dofs[start + 3].u
        U = vec6(I[5], I[10], I[14], I[17], I[19], I[20])
        UD = eliminate(dofs[start + 2], U, U[5], p[5])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * dofs[start + 2].u
        U = vec6(I[4], I[9], I[13], I[16], I[18], I[19])
        UD = eliminate(dofs[start + 1], U, U[4], p[4])
        I = I - s.sym6_outer(U, UD)
        p = p + UD * dofs[start + 1].u
        U = vec6(I[3], I[8], I[12], I[15], I[16], I[17])
        UD = eliminate(dofs[start + 0], U, U[3], p[3])

    @wp.func
    def factorise(model: Model, params: Params, env: int, links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof)):
        for i in range(1, model.num_links):
            link_inertia(params, env, i, links[i])
        for n in range(1, model.num_links):
            i = model.num_links - n
            if model.joint_type[i] == FREE:
                articulate_free(links[i], dofs, model.v_start[i])
            else:
                articulate(model, i, links[model.parent[i]], links[i], dofs)

    @wp.func
    def root_forces(start: int, dofs: wp.array(dtype=Dof)):
        """dofs.u of a free root."""
        return vec6(
            dofs[start].u, dofs[start + 1].u, dofs[start + 2].u, dofs[start + 3].u, dofs[start + 4].u, dofs[start + 5].u
        )

    @wp.func
    def root_product(f: vec6, root: wp.ref[Root]):
        """Sum over the dofs of a free root of f times uD, for three rows."""
        g = f @ root.uD
        return vec3(g[0], g[1], g[2])

    @wp.func
    def substitute(F: mat36, start: int, dofs: wp.array(dtype=Dof), root: wp.ref[Root]):
        """Up pass of three rows through a free root: a triangular substitution, since its axes are unit vectors."""
        w0 = vec3(F[0, 0], F[1, 0], F[2, 0])
        w1 = vec3(F[0, 1], F[1, 1], F[2, 1])
        w2 = vec3(F[0, 2], F[1, 2], F[2, 2])
        v0 = vec3(F[0, 3], F[1, 3], F[2, 3])
        v1 = vec3(F[0, 4], F[1, 4], F[2, 4])
        v2 = vec3(F[0, 5], F[1, 5], F[2, 5])
        U = dofs[start + 5].U
        d5 = w2 * dofs[start + 5].Dinv
        w1 -= d5 * U[1]
        w0 -= d5 * U[0]
        v2 -= d5 * U[5]
        v1 -= d5 * U[4]
        v0 -= d5 * U[3]
        U = dofs[start + 4].U
        d4 = w1 * dofs[start + 4].Dinv
        w0 -= d4 * U[0]
        v2 -= d4 * U[5]
        v1 -= d4 * U[4]
        v0 -= d4 * U[3]
        U = dofs[start + 3].U
        d3 = w0 * dofs[start + 3].Dinv
        v2 -= d3 * U[5]
        v1 -= d3 * U[4]
        v0 -= d3 * U[3]
        U = dofs[start + 2].U
        d2 = v2 * dofs[start + 2].Dinv
        v1 -= d2 * U[4]
        v0 -= d2 * U[3]
        d1 = v1 * dofs[start + 1].Dinv
        v0 -= d1 * dofs[start + 1].U[3]
        root.u = wp.matrix_from_cols(v0, v1, v2, w0, w1, w2)
        d0 = v0 * dofs[start].Dinv
        o = real(0.0)
        root.uD = mat64(
            d0[0], d0[1], d0[2], o,
            d1[0], d1[1], d1[2], o,
            d2[0], d2[1], d2[2], o,
            d3[0], d3[1], d3[2], o,
            d4[0], d4[1], d4[2], o,
            d5[0], d5[1], d5[2], o,
        )  # fmt: skip

    @wp.func
    def free_motion(start: int, u: vec6, dofs: wp.array(dtype=Dof)):
        """Motion of a free root from the impulses on its dofs, linear ones first: what `substitute` leaves to do."""
        v0 = dofs[start].Dinv * u[0]
        U = dofs[start + 1].U
        v1 = dofs[start + 1].Dinv * (u[1] - U[3] * v0)
        U = dofs[start + 2].U
        v2 = dofs[start + 2].Dinv * (u[2] - U[3] * v0 - U[4] * v1)
        U = dofs[start + 3].U
        w0 = dofs[start + 3].Dinv * (u[3] - U[3] * v0 - U[4] * v1 - U[5] * v2)
        U = dofs[start + 4].U
        w1 = dofs[start + 4].Dinv * (u[4] - U[3] * v0 - U[4] * v1 - U[5] * v2 - U[0] * w0)
        U = dofs[start + 5].U
        w2 = dofs[start + 5].Dinv * (u[5] - U[3] * v0 - U[4] * v1 - U[5] * v2 - U[0] * w0 - U[1] * w1)
        return vec6(w0, w1, w2, v0, v1, v2)

    @wp.func
    def solve_down(model: Model, links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof)):
        """Velocity changes from the impulses u on the dofs."""
        for i in range(1, model.num_links):
            if model.joint_type[i] == FREE:
                j = model.v_start[i]
                m = free_motion(j, root_forces(j, dofs), dofs)
                links[i].dv = m
                dofs[j].dqd = m[3]
                dofs[j + 1].dqd = m[4]
                dofs[j + 2].dqd = m[5]
                dofs[j + 3].dqd = m[0]
                dofs[j + 4].dqd = m[1]
                dofs[j + 5].dqd = m[2]
            else:
                m = links[model.parent[i]].dv
                for n in range(model.num_joint_dofs[i]):
                    j = model.v_start[i] + n
                    dqd = dofs[j].Dinv * (dofs[j].u - wp.dot(dofs[j].U, m))
                    dofs[j].dqd = dqd
                    m = m + dofs[j].S * dqd
                links[i].dv = m

    @wp.func
    def solve_up_adjoint(
        model: Model, links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof), bars: wp.array(dtype=LinkBar),
        qd_bar: wp.array(dtype=real),
    ):  # fmt: skip
        """Up pass of the adjoint of the new rates, into dofs.u. The wrenches on their way are kept in bars.direct."""
        for i in range(1, model.num_links):
            bars[i].direct = vec6()
        for n in range(1, model.num_links):
            i = model.num_links - n
            f = bars[i].direct
            if model.joint_type[i] == FREE:
                j = model.v_start[i]
                dofs[j + 5].u = qd_bar[j + 5] - f[2]
                f += dofs[j + 5].U * (dofs[j + 5].Dinv * dofs[j + 5].u)
                dofs[j + 4].u = qd_bar[j + 4] - f[1]
                f += dofs[j + 4].U * (dofs[j + 4].Dinv * dofs[j + 4].u)
                dofs[j + 3].u = qd_bar[j + 3] - f[0]
                f += dofs[j + 3].U * (dofs[j + 3].Dinv * dofs[j + 3].u)
                dofs[j + 2].u = qd_bar[j + 2] - f[5]
                f += dofs[j + 2].U * (dofs[j + 2].Dinv * dofs[j + 2].u)
                dofs[j + 1].u = qd_bar[j + 1] - f[4]
                f += dofs[j + 1].U * (dofs[j + 1].Dinv * dofs[j + 1].u)
                dofs[j].u = qd_bar[j] - f[3]
            else:
                count = model.num_joint_dofs[i]
                for k in range(count):
                    j = model.v_start[i] + count - 1 - k
                    w = qd_bar[j] - wp.dot(dofs[j].S, f)
                    dofs[j].u = w
                    f += dofs[j].U * (dofs[j].Dinv * w)
                p = model.parent[i]
                if p > 0:
                    bars[p].direct = bars[p].direct + f

    @wp.func
    def solve_down_adjoint(
        model: Model, dofs: wp.array(dtype=Dof), bars: wp.array(dtype=LinkBar), dof_bars: wp.array(dtype=DofBar)
    ):
        """From dofs.u, the adjoint s = dt Mhat^-1 (rate_bar + J^T b_bar) of the joint forces, and its motion W."""
        h = model.dt
        bars[0].W = vec6()
        for i in range(1, model.num_links):
            j = model.v_start[i]
            if model.joint_type[i] == FREE:
                m = free_motion(j, root_forces(j, dofs), dofs) * h
                bars[i].W = m
                dof_bars[j].s = m[3]
                dof_bars[j + 1].s = m[4]
                dof_bars[j + 2].s = m[5]
                dof_bars[j + 3].s = m[0]
                dof_bars[j + 4].s = m[1]
                dof_bars[j + 5].s = m[2]
            else:
                m = bars[model.parent[i]].W
                for n in range(model.num_joint_dofs[i]):
                    k = j + n
                    w = dofs[k].Dinv * (h * dofs[k].u - wp.dot(dofs[k].U, m))
                    dof_bars[k].s = w
                    m = m + dofs[k].S * w
                bars[i].W = m

    @wp.func
    def composite_inertia(model: Model, params: Params, env: int, links: wp.array(dtype=Link)):
        """IA becomes the inertia of the whole subtree about the link's origin, as if its joints were locked."""
        for i in range(1, model.num_links):
            link_inertia(params, env, i, links[i])
        for n in range(1, model.num_links):
            i = model.num_links - n
            p = model.parent[i]
            if p > 0:
                links[p].IA = links[p].IA + s.shift_inertia(links[i].IA, links[i].r - links[p].r)

    return SimpleNamespace(**locals())
