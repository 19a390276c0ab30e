"""Adjoint of the equations of motion by position, rates and bodies, once the solve has been reversed.

By implicit differentiation the step's adjoint is that of -s.(M a + C), a the mean acceleration of the step, plus what
contacts put on the links (contact_rows.py): no recursion of the forward solve has to be reversed. Every gradient is a
wrench: moving joint i moves its subtree, so it is S_i times the sum of what pulls on the subtree. Vectors X that link i
passes to its subtree (v, a, W, v + dv) do not move with it, so X x* (their adjoint) is subtracted from that sum.

At an impact the equations are M (change of the rates) = J^T x: no products of velocities, no gravity.
"""

import warp as wp

from ..types import FREE, SPHERICAL, exports, stage


def make_motion(t, s, integrate, wrenches, gravcomp):
    real, vec3, vec6, mat33 = t.real, t.vec3, t.vec6, t.mat33
    Env, EnvBar, Link, LinkBar = t.Env, t.EnvBar, t.Link, t.LinkBar
    angular, linear, cross_motion, cross_force = s.angular, s.linear, s.cross_motion, s.cross_force
    rigid_mul, velocity_at = s.rigid_mul, s.velocity_at

    @stage
    def clear(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        for i in range(e.model.num_links):
            e_bar.links[i].Wbar = vec6()
            e_bar.links[i].vbar = vec6()
            e_bar.links[i].abar = vec6()
            e_bar.links[i].dvbar = vec6()
            e_bar.links[i].direct = vec6()
            e_bar.links[i].origin = vec3()
            e_bar.links[i].turn = vec6()
        for j in range(e.model.num_dofs):
            e_bar.dofs[j].turn = real(0.0)
            e_bar.dofs[j].kappa = real(0.0)

    @wp.func
    def mean_acceleration(e: wp.ref[Env], link: wp.ref[Link]):
        return link.a + link.dv * (real(1.0) / e.model.dt)

    @wp.func
    def subtree_wrench(e: wp.ref[Env], link: wp.ref[Link], bar: wp.ref[LinkBar], of: wp.ref[LinkBar]):
        """What pulls on a subtree with sums `of`, when it moves against the vectors of a link."""
        v = link.v
        return (
            cross_force(v, of.vbar) + cross_force(mean_acceleration(e, link), of.abar)
            + cross_force(bar.W, of.Wbar) - cross_force(v + link.dv, of.dvbar) + of.direct
        )  # fmt: skip

    @wp.func
    def add_own(e: wp.ref[Env], i: int, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        """Add the link's own terms of -s.(M a + C) to the sums over its subtree."""
        m = e.params.mass[e.index, i - 1]
        c = link.r + link.R @ e.params.com[e.index, i - 1]
        Ic = s.rotate_inertia(link.R, e.params.inertia[e.index, i - 1])
        v = link.v
        W = bar.W
        h = rigid_mul(m, c, Ic, v)
        if t.at_impact(e):
            bar.Wbar = bar.Wbar + rigid_mul(m, c, Ic, mean_acceleration(e, link))
        else:
            bar.Wbar = bar.Wbar + rigid_mul(m, c, Ic, mean_acceleration(e, link)) + cross_force(v, h)
            bar.vbar = bar.vbar + rigid_mul(m, c, Ic, cross_motion(W, v)) - cross_force(W, h)
        bar.abar = bar.abar + rigid_mul(m, c, Ic, W)

    @wp.func
    def free_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        k = e.model.q_start[i]
        j = e.model.v_start[i]
        rate = bar.dvbar - bar.vbar
        force = linear(bar.abar)
        if t.at_impact(e):
            force = vec3()
        # a depends on the rates: qd is the velocity of a moving point
        v_bar = linear(rate) - wp.cross(angular(link.v), force)
        w_bar = angular(rate) + wp.cross(linear(link.v), force)
        for n in range(3):
            e_bar.qd[j + n] = e_bar.qd[j + n] + v_bar[n]
            e_bar.qd[j + 3 + n] = e_bar.qd[j + 3 + n] + w_bar[n]
            e_bar.q[k + n] = e_bar.q[k + n] + bar.origin[n]
        phi = angular(subtree_wrench(e, link, bar, bar)) + angular(bar.turn)
        integrate.rotation_adjoint(e, e_bar, k + 3, phi)

    @wp.func
    def joint_adjoint(
        e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, parent: wp.ref[Link], link: wp.ref[Link], bar: wp.ref[LinkBar]
    ):
        k = e.model.q_start[i]
        j = e.model.v_start[i]
        turn = subtree_wrench(e, link, bar, bar)
        abar = bar.abar
        if t.at_impact(e):
            abar = vec6()
        rate = bar.dvbar - bar.vbar + cross_force(parent.v, abar)
        if e.model.joint_type[i] == SPHERICAL:
            phi = vec3()
            for n in range(3):
                phi[n] = wp.dot(e.dofs[j + n].S, turn) + e_bar.dofs[j + n].turn
                e_bar.qd[j + n] = e_bar.qd[j + n] + wp.dot(e.dofs[j + n].S, rate)
            integrate.rotation_adjoint(e, e_bar, k, phi)
        else:
            e_bar.q[k] = e_bar.q[k] + wp.dot(e.dofs[j].S, turn) + e_bar.dofs[j].turn
            e_bar.qd[j] = e_bar.qd[j] + wp.dot(e.dofs[j].S, rate)
        # a depends on v through v x S qd, upstream of the joint's own motion: not before
        bar.vbar = bar.vbar + cross_force(link.v - parent.v, abar)

    @wp.func
    def placement_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, parent: wp.ref[Link], bar: wp.ref[LinkBar]):
        """A joint's place on its parent is like a joint between the two."""
        G = subtree_wrench(e, parent, e_bar.links[e.model.parent[i]], bar) + bar.turn
        R = parent.R
        at = vec3()
        push = bar.origin
        if e.model.parent[i] > 0:
            at = parent.r + R @ e.params.joint_pos[e.index, i - 1]
            push = linear(G)
        e_bar.params.joint_pos[e.index, i - 1] = e_bar.params.joint_pos[e.index, i - 1] + push @ R
        e_bar.params.joint_turn[e.index, i - 1] = (
            e_bar.params.joint_turn[e.index, i - 1] + (angular(G) - wp.cross(at, linear(G))) @ R
        )

    @wp.func
    def body_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        """Mass, centre of mass and inertia."""
        R = link.R
        c = link.r + R @ e.params.com[e.index, i - 1]
        v = link.v
        W = bar.W
        a = mean_acceleration(e, link)
        x = cross_motion(W, v)
        if t.at_impact(e):
            x = vec6()
        uW = velocity_at(W, c)
        ua = velocity_at(a, c)
        ux = velocity_at(x, c)
        uv = velocity_at(v, c)
        m_bar = -wp.dot(uW, ua) - wp.dot(ux, uv)
        c_bar = (
            wp.cross(ua, angular(W)) + wp.cross(uW, angular(a)) + wp.cross(uv, angular(x)) + wp.cross(ux, angular(v))
        )
        I_bar = wp.outer(angular(W), angular(a)) + wp.outer(angular(x), angular(v))
        I_bar = (I_bar + wp.transpose(I_bar)) * real(-0.5)
        if e_bar.with_E:
            # 1/2 K : dI, with u = v + w x c in place of v
            K = bar.K
            cx = wp.skew(c)
            Kww = mat33(K[0], K[1], K[2], K[1], K[6], K[7], K[2], K[7], K[11])
            Kvw = mat33(K[3], K[8], K[12], K[4], K[9], K[13], K[5], K[10], K[14])
            Kvv = mat33(K[15], K[16], K[17], K[16], K[18], K[19], K[17], K[19], K[20])
            Kuw = Kvw - cx @ Kww
            Kuv = Kvv - cx @ wp.transpose(Kvw)
            m_bar -= real(0.5) * wp.trace(Kuw @ cx + Kuv)
            c_bar += vec3(Kuw[1, 2] - Kuw[2, 1], Kuw[2, 0] - Kuw[0, 2], Kuw[0, 1] - Kuw[1, 0])
            I_bar -= Kww * real(0.5)
        m = e.params.mass[e.index, i - 1]
        e_bar.params.mass[e.index, i - 1] = e_bar.params.mass[e.index, i - 1] + m_bar
        e_bar.params.com[e.index, i - 1] = e_bar.params.com[e.index, i - 1] - (c_bar * m) @ R
        e_bar.params.inertia[e.index, i - 1] = e_bar.params.inertia[e.index, i - 1] + wp.transpose(R) @ I_bar @ R

    @wp.func
    def add_to_parent(bar: wp.ref[LinkBar], parent: wp.ref[LinkBar]):
        parent.vbar = parent.vbar + bar.vbar
        parent.abar = parent.abar + bar.abar
        parent.Wbar = parent.Wbar + bar.Wbar
        parent.dvbar = parent.dvbar + bar.dvbar
        parent.direct = parent.direct + bar.direct

    @stage
    def motion_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Adds to e_bar.q, qd and params, tips to root."""
        for n in range(1, e.model.num_links):
            i = e.model.num_links - n
            p = e.model.parent[i]
            add_own(e, i, e.links[i], e_bar.links[i])
            if wp.static(t.sizes.wrenches):
                if not t.at_impact(e):
                    wrenches.wrench_adjoint(e, e_bar, i, e.links[i], e_bar.links[i])
            if wp.static(t.sizes.gravcomp):
                if not t.at_impact(e):
                    gravcomp.lift_adjoint(e, e_bar, i, e.links[i], e_bar.links[i])
            if e.model.joint_type[i] == FREE:
                free_adjoint(e, e_bar, i, e.links[i], e_bar.links[i])
            else:
                joint_adjoint(e, e_bar, i, e.links[p], e.links[i], e_bar.links[i])
                if e_bar.params.placements != 0:
                    placement_adjoint(e, e_bar, i, e.links[p], e_bar.links[i])
            if e_bar.params.bodies != 0:
                body_adjoint(e, e_bar, i, e.links[i], e_bar.links[i])
            if p > 0:
                add_to_parent(e_bar.links[i], e_bar.links[p])
            elif e_bar.params.joints != 0 and not t.at_impact(e):
                e_bar.params.gravity[e.index] = e_bar.params.gravity[e.index] + linear(e_bar.links[i].abar)

    return exports(clear, motion_adjoint)
