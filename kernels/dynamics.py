"""Articulated-body factorisation and solve (Featherstone, chapter 7, in world axes).

The factorisation (U, Dinv per dof) is made once per step. A solve Mhat y = t is then
    up:    w_j = t_j - S_j.f_j,  f_parent += f_j + U_j Dinv_j w_j        tips to root
    down:  y_j = Dinv_j (w_j - U_j.m_parent),  m_j = m_parent + S_j y_j  root to tips
and quantities such as J Mhat^-1 t need only the up pass (contact.py). The bias force goes up with the first one.
"""

from types import SimpleNamespace

import warp as wp

from .types import FREE


def make_dynamics(t, s):
    real, vec6 = t.real, t.vec6
    Model, Params, Link, Dof = t.Model, t.Params, t.Link, t.Dof
    cross_force, rigid_mul = s.cross_force, s.rigid_mul

    @wp.func
    def link_inertia(params: Params, env: int, i: int, link: wp.ref[Link]):
        """Inertia and bias force of one link alone."""
        m = params.mass[env, i - 1]
        R = link.R
        v = link.v
        c = link.r + R @ params.com[env, i - 1]
        Ic = s.rotate_inertia(R, params.inertia[env, i - 1])
        link.c = c
        link.Ic = Ic
        link.IA = s.rigid_inertia(m, c, Ic)
        link.pA = rigid_mul(m, c, Ic, link.a) + cross_force(v, rigid_mul(m, c, Ic, v))

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
        count = model.num_joint_dofs[i]
        for n in range(count):
            j = model.v_start[i] + count - 1 - n
            S = dofs[j].S
            U = s.sym6_mul(IA, S)
            UD = eliminate(dofs[j], U, wp.dot(S, U), wp.dot(S, pA))
            IA = IA - s.sym6_outer(U, UD)
            pA = pA + UD * dofs[j].u
        parent.IA = parent.IA + IA
        parent.pA = parent.pA + pA

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
    def solve_down(model: Model, links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof)):
        """Velocity changes from the impulses u on the dofs."""
        for i in range(1, model.num_links):
            m = links[model.parent[i]].dv
            for n in range(model.num_joint_dofs[i]):
                j = model.v_start[i] + n
                dqd = dofs[j].Dinv * (dofs[j].u - wp.dot(dofs[j].U, m))
                dofs[j].dqd = dqd
                m = m + dofs[j].S * dqd
            links[i].dv = m

    @wp.func
    def composite_inertia(model: Model, params: Params, env: int, links: wp.array(dtype=Link)):
        """IA becomes the inertia of the whole subtree, as if its joints were locked (for the mass matrix)."""
        for i in range(1, model.num_links):
            link_inertia(params, env, i, links[i])
        for n in range(1, model.num_links):
            i = model.num_links - n
            p = model.parent[i]
            if p > 0:
                links[p].IA = links[p].IA + links[i].IA

    return SimpleNamespace(**locals())
