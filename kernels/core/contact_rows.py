"""A contact's three rows: J, right-hand side b, and their adjoint to points, normals and gaps.

In the adjoint a row e_r of J occurs in products f.(velocity of the contact point under a motion X): with X = W and
f = e_r x_r / dt, X = v + dv and f = e_r b_bar_r, for a bounce X = v, and for E (delassus.py) X = Z_r and f = e_r.
"""

import warp as wp

from ..types import SURE, exports, stage


def make_contact_rows(t, s, gaps, detection, path):
    real, vec3, vec6, mat36 = t.real, t.vec3, t.vec6, t.mat36
    Env, EnvBar, Contact, ContactBar, Half = t.Env, t.EnvBar, t.Contact, t.ContactBar, t.Half
    angular, wrench, velocity_at, cross_force = s.angular, s.wrench, s.velocity_at, s.cross_force
    SIDES = wp.constant(t.sizes.sides)

    @wp.func
    def wrench_rows(p: vec3, n: vec3, t1: vec3, t2: vec3):
        """Wrenches of unit forces along n, t1 and t2 at p."""
        a = wp.cross(p, n)
        b = wp.cross(p, t1)
        c = wp.cross(p, t2)
        return mat36(
            a[0], a[1], a[2], n[0], n[1], n[2],
            b[0], b[1], b[2], t1[0], t1[1], t1[2],
            c[0], c[1], c[2], t2[0], t2[1], t2[2],
        )  # fmt: skip

    @wp.func
    def contact_bias(e: wp.ref[Env], contact: wp.ref[Contact], approach: real):
        """What the normal velocity must make up for."""
        bounce = real(0.0)
        if approach < -gaps.bounce_above(e):
            bounce = e.params.restitution[e.index, contact.pair] * approach
        bias, cfm = gaps.gap_bias(e, contact.z, bounce)
        contact.cfm = cfm
        contact.approach = approach
        return bias

    @wp.func
    def contact_bias_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], contact: wp.ref[Contact], bar: wp.ref[ContactBar]):
        """Adds to bar.z; returns the adjoint of the velocity of approach, which counts if the contact bounces."""
        k = contact.pair
        z_bar, approach_bar, restitution_bar, soft = gaps.gap_bias_adjoint(
            e, e_bar, contact.z, contact.approach, e.params.restitution[e.index, k], bar.b[0]
        )
        bar.z = bar.z + z_bar
        if e_bar.params.touch != 0:
            e_bar.params.restitution[e.index, k] = e_bar.params.restitution[e.index, k] + restitution_bar
            e_bar.params.cfm[e.index] = e_bar.params.cfm[e.index] + soft * (bar.b[0] * contact.x[0] + bar.E)
        return approach_bar

    @wp.func
    def contact_rows(e: wp.ref[Env], k: int, contact: wp.ref[Contact]):
        """Up pass of contact k's rows; returns b, the row velocities without contact impulses plus the bias.

        Also returns whether it stays a row: fast under the step's forces, it turns out to be an impact.
        """
        p = contact.p
        n = contact.n
        t1 = contact.t
        t2 = contact.s
        velocity = vec3()
        acceleration = vec3()
        if contact.link_a > 0:
            F = wrench_rows(p, n, t1, t2)
            velocity = F @ e.links[contact.link_a].v
            acceleration = path.propagate(e, e.paths, SIDES * k, contact.link_a, F, real(0.0))
        if contact.link_b > 0:
            F = -wrench_rows(p + contact.shift, n, t1, t2)
            velocity += F @ e.links[contact.link_b].v
            if wp.static(t.sizes.sides == 2):
                acceleration += path.propagate(e, e.paths, SIDES * k + 1, contact.link_b, F, real(0.0))
        b = velocity + acceleration * e.model.dt
        stays = bool(True)
        if wp.static(t.sizes.impacts > 0):
            stays = e.roles[k] == SURE or b[0] > -e.model.restitution_threshold
        b[0] = b[0] + contact_bias(e, contact, velocity[0])
        return b, stays

    @wp.func
    def add_side(e: wp.ref[Env], i: int, p: vec3, f: vec3, x: wp.array(dtype=real)):
        w = wrench(p, f)
        for d in range(e.model.depth[i]):
            j = e.model.chain[i, d]
            x[j] = x[j] + wp.dot(e.dofs[j].S, w)
        free = e.model.free_dof[i]
        if free >= 0:
            for d in range(6):
                x[free + d] = x[free + d] + w[(d + 3) % 6]

    @wp.func
    def add_normal(e: wp.ref[Env], contact: wp.ref[Contact], f: real, x: wp.array(dtype=real)):
        """Add f times the normal row of J to x, of any contact."""
        if contact.link_a > 0:
            add_side(e, contact.link_a, contact.p, contact.n * f, x)
        if contact.link_b > 0:
            add_side(e, contact.link_b, contact.p + contact.shift, contact.n * (-f), x)

    @wp.func
    def pull(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, p: vec3, f: vec3, X: vec6):
        """Adjoint of f.(velocity under X of the point p of link i) to the link's place; returns that to the point."""
        p_bar = wp.cross(f, angular(X))
        root = e.model.root[i]
        e_bar.links[root].origin = e_bar.links[root].origin - p_bar
        e_bar.links[i].direct = e_bar.links[i].direct + cross_force(X, wrench(p, f))
        return p_bar

    @wp.func
    def side_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, second: bool, approach_bar: real):
        """One side of contact k: wrenches on its link; returns what it adds to the adjoints of n, t and s."""
        i = e.contacts[k].link_a
        p = e.contacts[k].p
        sign = real(1.0)
        if second:
            i = e.contacts[k].link_b
            p = p + e.contacts[k].shift
            sign = real(-1.0)
        x = e.contacts[k].x * (sign / e.model.dt)
        b = e_bar.contacts[k].b * sign
        m = approach_bar * sign
        fx = e.contacts[k].n * x[0] + e.contacts[k].t * x[1] + e.contacts[k].s * x[2]
        fb = e.contacts[k].n * b[0] + e.contacts[k].t * b[1] + e.contacts[k].s * b[2]
        fm = e.contacts[k].n * m
        W = e_bar.links[i].W
        v = e.links[i].v
        v_next = v + e.links[i].dv
        p_bar = pull(e, e_bar, i, p, fx, W) + pull(e, e_bar, i, p, fb, v_next)
        e_bar.links[i].Wbar = e_bar.links[i].Wbar - wrench(p, fx)
        e_bar.links[i].dvbar = e_bar.links[i].dvbar + wrench(p, fb)
        under_W = velocity_at(W, p)
        under_v = velocity_at(v_next, p)
        n_bar = under_W * x[0] + under_v * b[0]
        if m != real(0.0):
            p_bar += pull(e, e_bar, i, p, fm, v)
            e_bar.links[i].vbar = e_bar.links[i].vbar - wrench(p, fm)
            n_bar += velocity_at(v, p) * m
        e_bar.contacts[k].p = e_bar.contacts[k].p + p_bar
        return n_bar, under_W * x[1] + under_v * b[1], under_W * x[2] + under_v * b[2]

    @wp.func
    def half_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, half: wp.ref[Half]):
        """The same for what E adds to one side."""
        i = half.link
        sign = real(1 - 2 * half.second)
        p = e.contacts[k].p
        if half.second != 0:
            p = p + e.contacts[k].shift
        Z = half.Z
        p_bar = pull(e, e_bar, i, p, e.contacts[k].n * sign, Z[0])
        p_bar += pull(e, e_bar, i, p, e.contacts[k].t * sign, Z[1])
        p_bar += pull(e, e_bar, i, p, e.contacts[k].s * sign, Z[2])
        e_bar.contacts[k].p = e_bar.contacts[k].p + p_bar
        return velocity_at(Z[0], p) * sign, velocity_at(Z[1], p) * sign, velocity_at(Z[2], p) * sign

    @wp.func
    def hit_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """What the moment depends on at which contact e.hit is reached (impacts.py), from its z, b and approach."""
        k = e.hit
        for side in range(2):
            if (side == 0 and e.contacts[k].link_a > 0) or (side == 1 and e.contacts[k].link_b > 0):
                dn, _dt, _ds = side_adjoint(e, e_bar, k, side == 1, e_bar.approach)
                e_bar.contacts[k].n = e_bar.contacts[k].n + dn
        detection.contact_adjoint(e, e_bar, e.contacts[k], e_bar.contacts[k])

    @stage
    def contacts_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """What the contacts' rows and right-hand sides depend on: wrenches on links, and parameters."""
        for k in range(e.num_contacts):
            approach_bar = contact_bias_adjoint(e, e_bar, e.contacts[k], e_bar.contacts[k])
            n_bar = e_bar.contacts[k].n
            t_bar = vec3()
            s_bar = vec3()
            for side in range(2):
                if (side == 0 and e.contacts[k].link_a > 0) or (side == 1 and e.contacts[k].link_b > 0):
                    dn, dt, ds = side_adjoint(e, e_bar, k, side == 1, approach_bar)
                    n_bar += dn
                    t_bar += dt
                    s_bar += ds
            for h in range(e_bar.num_halves):
                if e_bar.halves[h].row == 3 * k:
                    dn, dt, ds = half_adjoint(e, e_bar, k, e_bar.halves[h])
                    n_bar += dn
                    t_bar += dt
                    s_bar += ds
            e_bar.contacts[k].n = n_bar + detection.tangents_adjoint(e.contacts[k].n, t_bar, s_bar)
            if e_bar.params.touch != 0:
                pair = e.contacts[k].pair
                e_bar.params.friction[e.index, pair] = e_bar.params.friction[e.index, pair] + e_bar.contacts[k].mu
            detection.contact_adjoint(e, e_bar, e.contacts[k], e_bar.contacts[k])
        if wp.static(t.sizes.impacts > 0):
            if e.hit >= 0:
                hit_adjoint(e, e_bar)

    return exports(wrench_rows, contact_bias, contact_bias_adjoint, contact_rows, contacts_adjoint, add_normal)
