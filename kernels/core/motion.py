"""Adjoint of the equations of motion: what position, rates and bodies are worth, once the solve has been reversed.

By implicit differentiation the step's adjoint is that of -s.(M a + C), a the mean acceleration of the step, plus what
contacts put on the links (contact.py): no recursion of the forward solve has to be reversed. Every gradient is a
wrench: moving joint i moves its subtree, so it is S_i times the sum of what pulls on the subtree. Vectors X that link i
hands to its subtree (v, a, W, v + dv) do not move with it, so X x* (their adjoint) is taken off that sum.
"""

from types import SimpleNamespace

import warp as wp

from ..types import FREE, SPHERICAL


def make_motion(t, s, integrate):
    real, vec3, vec6, mat33 = t.real, t.vec3, t.vec6, t.mat33
    Model, Params, ParamsBar, Link, Dof, LinkBar, DofBar = (
        t.Model, t.Params, t.ParamsBar, t.Link, t.Dof, t.LinkBar, t.DofBar
    )  # fmt: skip
    angular, linear, cross_motion, cross_force = s.angular, s.linear, s.cross_motion, s.cross_force
    rigid_mul, velocity_at = s.rigid_mul, s.velocity_at

    @wp.func
    def clear(model: Model, bars: wp.array(dtype=LinkBar), dof_bars: wp.array(dtype=DofBar)):
        for i in range(model.num_links):
            bars[i].Wbar = vec6()
            bars[i].vbar = vec6()
            bars[i].abar = vec6()
            bars[i].dvbar = vec6()
            bars[i].direct = vec6()
            bars[i].origin = vec3()
            bars[i].turn = vec6()
        for j in range(model.num_dofs):
            dof_bars[j].turn = real(0.0)
            dof_bars[j].kappa = real(0.0)

    @wp.func
    def subtree_wrench(dt: real, link: wp.ref[Link], bar: wp.ref[LinkBar], of: wp.ref[LinkBar]):
        """What pulls on a subtree with sums `of`, when it moves against the vectors of a link."""
        v = link.v
        dv = link.dv
        return (
            cross_force(v, of.vbar) + cross_force(link.a + dv * (real(1.0) / dt), of.abar)
            + cross_force(bar.W, of.Wbar) - cross_force(v + dv, of.dvbar) + of.direct
        )  # fmt: skip

    @wp.func
    def add_own(params: Params, env: int, i: int, dt: real, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        """Add the link's own terms of -s.(M a + C) to the sums over its subtree."""
        m = params.mass[env, i - 1]
        c = link.c
        Ic = link.Ic
        v = link.v
        W = bar.W
        h = rigid_mul(m, c, Ic, v)
        bar.Wbar = bar.Wbar + rigid_mul(m, c, Ic, link.a + link.dv * (real(1.0) / dt)) + cross_force(v, h)
        bar.abar = bar.abar + rigid_mul(m, c, Ic, W)
        bar.vbar = bar.vbar + rigid_mul(m, c, Ic, cross_motion(W, v)) - cross_force(W, h)

    @wp.func
    def free_adjoint(
        model: Model, i: int, q: wp.array(dtype=real), link: wp.ref[Link], bar: wp.ref[LinkBar],
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real),
    ):  # fmt: skip
        k = model.q_start[i]
        j = model.v_start[i]
        rate = bar.dvbar - bar.vbar
        force = linear(bar.abar)
        # a depends on the rates: qd is the velocity of a moving point
        v_bar = linear(rate) - wp.cross(angular(link.v), force)
        w_bar = angular(rate) + wp.cross(linear(link.v), force)
        for n in range(3):
            qd_bar[j + n] = qd_bar[j + n] + v_bar[n]
            qd_bar[j + 3 + n] = qd_bar[j + 3 + n] + w_bar[n]
            q_bar[k + n] = q_bar[k + n] + bar.origin[n]
        phi = angular(subtree_wrench(model.dt, link, bar, bar)) + angular(bar.turn)
        integrate.rotation_adjoint(q, k + 3, phi, q_bar)

    @wp.func
    def joint_adjoint(
        model: Model, i: int, q: wp.array(dtype=real), parent: wp.ref[Link], link: wp.ref[Link],
        bar: wp.ref[LinkBar], dofs: wp.array(dtype=Dof), dof_bars: wp.array(dtype=DofBar),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real),
    ):  # fmt: skip
        k = model.q_start[i]
        j = model.v_start[i]
        turn = subtree_wrench(model.dt, link, bar, bar)
        rate = bar.dvbar - bar.vbar + cross_force(parent.v, bar.abar)
        if model.joint_type[i] == SPHERICAL:
            phi = vec3()
            for n in range(3):
                phi[n] = wp.dot(dofs[j + n].S, turn) + dof_bars[j + n].turn
                qd_bar[j + n] = qd_bar[j + n] + wp.dot(dofs[j + n].S, rate)
            integrate.rotation_adjoint(q, k, phi, q_bar)
        else:
            q_bar[k] = q_bar[k] + wp.dot(dofs[j].S, turn) + dof_bars[j].turn
            qd_bar[j] = qd_bar[j] + wp.dot(dofs[j].S, rate)
        # a depends on v through v x S qd, upstream of the joint's own motion: not before
        bar.vbar = bar.vbar + cross_force(link.v - parent.v, bar.abar)

    @wp.func
    def placement_adjoint(
        model: Model, params: Params, env: int, i: int, parent: wp.ref[Link], parent_bar: wp.ref[LinkBar],
        bar: wp.ref[LinkBar], params_bar: ParamsBar,
    ):  # fmt: skip
        """A joint's place on its parent is like a joint between the two."""
        G = subtree_wrench(model.dt, parent, parent_bar, bar) + bar.turn
        R = parent.R
        at = vec3()
        push = bar.origin
        if model.parent[i] > 0:
            at = parent.r + R @ params.joint_pos[env, i - 1]
            push = linear(G)
        params_bar.joint_pos[env, i - 1] = params_bar.joint_pos[env, i - 1] + push @ R
        params_bar.joint_turn[env, i - 1] = (
            params_bar.joint_turn[env, i - 1] + (angular(G) - wp.cross(at, linear(G))) @ R
        )

    @wp.func
    def body_adjoint(
        params: Params, env: int, i: int, dt: real, with_K: bool, link: wp.ref[Link], bar: wp.ref[LinkBar],
        params_bar: ParamsBar,
    ):  # fmt: skip
        """Mass, centre of mass and inertia."""
        c = link.c
        R = link.R
        v = link.v
        W = bar.W
        a = link.a + link.dv * (real(1.0) / dt)
        x = cross_motion(W, v)
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
        if with_K:
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
        m = params.mass[env, i - 1]
        params_bar.mass[env, i - 1] = params_bar.mass[env, i - 1] + m_bar
        params_bar.com[env, i - 1] = params_bar.com[env, i - 1] - (c_bar * m) @ R
        params_bar.inertia[env, i - 1] = params_bar.inertia[env, i - 1] + wp.transpose(R) @ I_bar @ R

    @wp.func
    def add_to_parent(bar: wp.ref[LinkBar], parent: wp.ref[LinkBar]):
        parent.vbar = parent.vbar + bar.vbar
        parent.abar = parent.abar + bar.abar
        parent.Wbar = parent.Wbar + bar.Wbar
        parent.dvbar = parent.dvbar + bar.dvbar
        parent.direct = parent.direct + bar.direct

    @wp.func
    def motion_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), with_K: bool, links: wp.array(dtype=Link),
        dofs: wp.array(dtype=Dof), bars: wp.array(dtype=LinkBar), dof_bars: wp.array(dtype=DofBar),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """Adds to q_bar, qd_bar and params_bar, tips to root."""
        for n in range(1, model.num_links):
            i = model.num_links - n
            p = model.parent[i]
            add_own(params, env, i, model.dt, links[i], bars[i])
            if model.joint_type[i] == FREE:
                free_adjoint(model, i, q, links[i], bars[i], q_bar, qd_bar)
            else:
                joint_adjoint(model, i, q, links[p], links[i], bars[i], dofs, dof_bars, q_bar, qd_bar)
                if params_bar.placements != 0:
                    placement_adjoint(model, params, env, i, links[p], bars[p], bars[i], params_bar)
            if params_bar.bodies != 0:
                body_adjoint(params, env, i, model.dt, with_K, links[i], bars[i], params_bar)
            if p > 0:
                add_to_parent(bars[i], bars[p])
            elif params_bar.joints != 0:
                params_bar.gravity[env] = params_bar.gravity[env] + linear(bars[i].abar)

    return SimpleNamespace(**locals())
