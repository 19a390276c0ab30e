"""Rows J of contacts, right-hand side b, and impulses; and what they are worth to points, normals and gaps.

A row is a wrench on a link (one per side of a contact) or a unit force on a dof. Its up pass leaves one number
u = S.f on every dof between the link and the world. With w the up pass of any right-hand side t
    J Mhat^-1 t      = sum over the path   u Dinv w
    A_kl             = sum over the common part of two paths   u_k Dinv u_l
    up pass of J^T x = u x on the dofs
so nothing here needs a down pass. u is kept twice, plain and times Dinv: for the six dofs of a free root in Root, for
the others in `paths`. Rows 3k, 3k + 1, 3k + 2 belong to contact k, the joints' rows follow.

In the adjoint a row e_r of J occurs in products f.(velocity of the contact point under a motion X): with X = W and
f = e_r x_r / dt, X = v + dv and f = e_r b_bar_r, for a bounce X = v, and for E (delassus.py) X = Z_r and f = e_r.
"""

from types import SimpleNamespace

import warp as wp


def make_contact(t, s, dynamics, detection, frames):
    real, vec3, vec6, mat33, mat36 = t.real, t.vec3, t.vec6, t.mat33, t.mat36
    Model, Params, ParamsBar, Link, Dof = t.Model, t.Params, t.ParamsBar, t.Link, t.Dof
    LinkBar, ContactBar, JointRowBar, Half = t.LinkBar, t.ContactBar, t.JointRowBar, t.Half
    angular, wrench, velocity_at, cross_force = s.angular, s.wrench, s.velocity_at, s.cross_force
    Contact, JointRow, Root, JointRoot = t.Contact, t.JointRow, t.Root, t.JointRoot
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
    def propagate(
        model: Model, link: int, F: mat36, dofs: wp.array(dtype=Dof), side: int, paths: wp.array2d(dtype=vec3),
        root: wp.ref[Root],
    ):  # fmt: skip
        """Up pass of three rows from a link to the world; returns J Mhat^-1 times the forces left in dofs.u."""
        acceleration = vec3()
        depth = model.depth[link]
        for n in range(depth):
            d = depth - 1 - n
            j = model.chain[link, d]
            u = F @ dofs[j].S
            uD = u * dofs[j].Dinv
            paths[2 * side, d] = u
            paths[2 * side + 1, d] = uD
            acceleration += uD * dofs[j].u
            F = F - wp.outer(uD, dofs[j].U)
        free = model.free_dof[link]
        if free >= 0:
            dynamics.substitute(F, free, dofs, root)
            acceleration += dynamics.root_product(dynamics.root_forces(free, dofs), root)
        return acceleration

    @wp.func
    def contact_bias(model: Model, params: Params, env: int, contact: wp.ref[Contact], approach: real):
        """What the normal velocity must make up for: penetration, or the bounce, which is not softened by cfm."""
        push = params.erp[env] * contact.z / model.dt
        bias = wp.where(push > -model.max_push_speed, push, -model.max_push_speed)
        contact.cfm = params.cfm[env]
        contact.approach = approach
        if approach < -model.restitution_threshold:
            bounce = params.restitution[env, contact.pair] * approach
            if bounce < bias:
                bias = bounce
                contact.cfm = real(0.0)
        return bias

    @wp.func
    def contact_bias_adjoint(
        model: Model, params: Params, env: int, contact: wp.ref[Contact], bar: wp.ref[ContactBar],
        params_bar: ParamsBar,
    ):  # fmt: skip
        """Adds to bar.z; returns the adjoint of the velocity of approach, which counts if the contact bounces."""
        b = bar.b[0]
        push = params.erp[env] * contact.z / model.dt
        bias = wp.where(push > -model.max_push_speed, push, -model.max_push_speed)
        if contact.approach < -model.restitution_threshold:
            bounce = params.restitution[env, contact.pair]
            if bounce * contact.approach < bias:
                if params_bar.touch != 0:
                    k = contact.pair
                    params_bar.restitution[env, k] = params_bar.restitution[env, k] + b * contact.approach
                return bounce * b
        if push > -model.max_push_speed:
            bar.z = bar.z + params.erp[env] / model.dt * b
            if params_bar.touch != 0:
                params_bar.erp[env] = params_bar.erp[env] + contact.z / model.dt * b
        if params_bar.touch != 0:
            params_bar.cfm[env] = params_bar.cfm[env] + b * contact.x[0] + bar.E
        return real(0.0)

    @wp.func
    def contact_rows(
        model: Model, params: Params, env: int, k: int, contact: wp.ref[Contact], links: wp.array(dtype=Link),
        dofs: wp.array(dtype=Dof), paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root),
    ):  # fmt: skip
        """Up pass of contact k's rows; returns b, the row velocities without contact impulses plus the bias."""
        p = contact.p
        n = contact.n
        t1 = contact.t
        t2 = contact.s
        velocity = vec3()
        acceleration = vec3()
        if contact.link_a > 0:
            F = wrench_rows(p, n, t1, t2)
            velocity = F @ links[contact.link_a].v
            acceleration = propagate(model, contact.link_a, F, dofs, SIDES * k, paths, roots[SIDES * k])
        if contact.link_b > 0:
            F = -wrench_rows(p + contact.shift, n, t1, t2)
            velocity += F @ links[contact.link_b].v
            if wp.static(t.sizes.sides == 2):
                side = SIDES * k + 1
                acceleration += propagate(model, contact.link_b, F, dofs, side, paths, roots[side])
        b = velocity + acceleration * model.dt
        b[0] = b[0] + contact_bias(model, params, env, contact, velocity[0])
        return b

    @wp.func
    def apply_side(
        model: Model, link: int, x: vec3, side: int, paths: wp.array2d(dtype=vec3), root: wp.ref[Root],
        dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        for d in range(model.depth[link]):
            j = model.chain[link, d]
            dofs[j].u = dofs[j].u + wp.dot(paths[2 * side, d], x)
        free = model.free_dof[link]
        if free >= 0:
            f = x @ root.u
            for d in range(6):
                dofs[free + d].u = dofs[free + d].u + f[d]

    @wp.func
    def apply_joint_row(
        model: Model, link: int, x: real, row: int, joint_paths: wp.array2d(dtype=real), root: wp.ref[JointRoot],
        dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        for d in range(model.depth[link]):
            j = model.chain[link, d]
            dofs[j].u = dofs[j].u + joint_paths[row, d] * x
        free = model.free_dof[link]
        if free >= 0:
            for d in range(6):
                dofs[free + d].u = dofs[free + d].u + root.u[d] * x

    @wp.func
    def apply_impulses(
        model: Model, num_contacts: int, num_joint_rows: int, contacts: wp.array(dtype=Contact),
        paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root), joint_rows: wp.array(dtype=JointRow),
        joint_paths: wp.array2d(dtype=real), joint_roots: wp.array(dtype=JointRoot), dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        """Turn the forces dofs.u into impulses and add those of the rows."""
        for j in range(model.num_dofs):
            dofs[j].u = dofs[j].u * model.dt
        for k in range(num_contacts):
            side = SIDES * k
            apply_side(model, contacts[k].link_a, contacts[k].x, side, paths, roots[side], dofs)
            if wp.static(t.sizes.sides == 2):
                apply_side(model, contacts[k].link_b, contacts[k].x, side + 1, paths, roots[side + 1], dofs)
        for k in range(num_joint_rows):
            apply_joint_row(model, joint_rows[k].link, joint_rows[k].x, k, joint_paths, joint_roots[k], dofs)

    @wp.func
    def side_product(
        model: Model, link: int, side: int, paths: wp.array2d(dtype=vec3), root: wp.ref[Root],
        dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        """J Mhat^-1 times what was left in dofs.u by an up pass, for one side of a contact."""
        x = vec3()
        for d in range(model.depth[link]):
            x += paths[2 * side + 1, d] * dofs[model.chain[link, d]].u
        free = model.free_dof[link]
        if free >= 0:
            x += dynamics.root_product(dynamics.root_forces(free, dofs), root)
        return x

    @wp.func
    def impulses_adjoint(
        model: Model, num_contacts: int, num_joint_rows: int, contacts: wp.array(dtype=Contact),
        paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root), joint_rows: wp.array(dtype=JointRow),
        joint_paths: wp.array2d(dtype=real), joint_roots: wp.array(dtype=JointRoot), dofs: wp.array(dtype=Dof),
        scale: wp.array(dtype=real), bars: wp.array(dtype=ContactBar), joint_row_bars: wp.array(dtype=JointRowBar),
        x_bar: wp.array(dtype=real),
    ):  # fmt: skip
        """Adjoint of the impulses, scaled for the solver, from the up pass of the adjoint of the new rates."""
        for k in range(num_contacts):
            side = SIDES * k
            x = bars[k].x + side_product(model, contacts[k].link_a, side, paths, roots[side], dofs)
            if wp.static(t.sizes.sides == 2):
                x += side_product(model, contacts[k].link_b, side + 1, paths, roots[side + 1], dofs)
            for r in range(3):
                x_bar[3 * k + r] = x[r] * scale[3 * k + r]
            bars[k].b = vec3()
            bars[k].mu = real(0.0)
        for k in range(num_joint_rows):
            i = joint_rows[k].link
            y = real(0.0)
            for d in range(model.depth[i]):
                j = model.chain[i, d]
                y += joint_paths[k, d] * dofs[j].Dinv * dofs[j].u
            free = model.free_dof[i]
            if free >= 0:
                y += wp.dot(joint_roots[k].uD, dynamics.root_forces(free, dofs))
            r = 3 * num_contacts + k
            x_bar[r] = y * scale[r]
            joint_row_bars[k].b = real(0.0)
            joint_row_bars[k].bound = real(0.0)

    @wp.func
    def apply_b_bar(
        model: Model, num_contacts: int, num_joint_rows: int, contacts: wp.array(dtype=Contact),
        paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root), joint_rows: wp.array(dtype=JointRow),
        joint_paths: wp.array2d(dtype=real), joint_roots: wp.array(dtype=JointRoot), bars: wp.array(dtype=ContactBar),
        joint_row_bars: wp.array(dtype=JointRowBar), dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        """Add the up pass of J^T b_bar to dofs.u."""
        for k in range(num_contacts):
            side = SIDES * k
            apply_side(model, contacts[k].link_a, bars[k].b, side, paths, roots[side], dofs)
            if wp.static(t.sizes.sides == 2):
                apply_side(model, contacts[k].link_b, bars[k].b, side + 1, paths, roots[side + 1], dofs)
        for k in range(num_joint_rows):
            apply_joint_row(model, joint_rows[k].link, joint_row_bars[k].b, k, joint_paths, joint_roots[k], dofs)

    @wp.func
    def pull(
        root: int, p: vec3, f: vec3, X: vec6, bar: wp.ref[LinkBar], contact_bar: wp.ref[ContactBar],
        bars: wp.array(dtype=LinkBar),
    ):  # fmt: skip
        """Adjoint of f.(velocity under X of the point p of a link) to the point and to the link's place."""
        p_bar = wp.cross(f, angular(X))
        contact_bar.p = contact_bar.p + p_bar
        bars[root].origin = bars[root].origin - p_bar
        bar.direct = bar.direct + cross_force(X, wrench(p, f))

    @wp.func
    def side_adjoint(
        model: Model, i: int, p: vec3, sign: real, approach_bar: real, contact: wp.ref[Contact],
        contact_bar: wp.ref[ContactBar], link: wp.ref[Link], bars: wp.array(dtype=LinkBar),
    ):  # fmt: skip
        """One side of a contact: wrenches on its link; returns what it adds to the adjoints of n, t and s."""
        root = model.root[i]
        x = contact.x * (sign / model.dt)
        b = contact_bar.b * sign
        m = approach_bar * sign
        fx = contact.n * x[0] + contact.t * x[1] + contact.s * x[2]
        fb = contact.n * b[0] + contact.t * b[1] + contact.s * b[2]
        fm = contact.n * m
        W = bars[i].W
        v = link.v
        v_next = v + link.dv
        pull(root, p, fx, W, bars[i], contact_bar, bars)
        pull(root, p, fb, v_next, bars[i], contact_bar, bars)
        bars[i].Wbar = bars[i].Wbar - wrench(p, fx)
        bars[i].dvbar = bars[i].dvbar + wrench(p, fb)
        under_W = velocity_at(W, p)
        under_v = velocity_at(v_next, p)
        n_bar = under_W * x[0] + under_v * b[0]
        if m != real(0.0):
            pull(root, p, fm, v, bars[i], contact_bar, bars)
            bars[i].vbar = bars[i].vbar - wrench(p, fm)
            n_bar += velocity_at(v, p) * m
        return n_bar, under_W * x[1] + under_v * b[1], under_W * x[2] + under_v * b[2]

    @wp.func
    def half_adjoint(
        model: Model, half: wp.ref[Half], contact: wp.ref[Contact], contact_bar: wp.ref[ContactBar],
        bars: wp.array(dtype=LinkBar),
    ):  # fmt: skip
        """The same for what E brings to one side."""
        i = half.link
        root = model.root[i]
        sign = real(1 - 2 * half.second)
        p = contact.p
        if half.second != 0:
            p = p + contact.shift
        Z = half.Z
        pull(root, p, contact.n * sign, Z[0], bars[i], contact_bar, bars)
        pull(root, p, contact.t * sign, Z[1], bars[i], contact_bar, bars)
        pull(root, p, contact.s * sign, Z[2], bars[i], contact_bar, bars)
        return velocity_at(Z[0], p) * sign, velocity_at(Z[1], p) * sign, velocity_at(Z[2], p) * sign

    @wp.func
    def contacts_adjoint(
        model: Model, params: Params, env: int, num_contacts: int, num_halves: int, links: wp.array(dtype=Link),
        contacts: wp.array(dtype=Contact), contact_bars: wp.array(dtype=ContactBar), halves: wp.array(dtype=Half),
        q: wp.array(dtype=real), bars: wp.array(dtype=LinkBar), params_bar: ParamsBar,
    ):  # fmt: skip
        """All that the rows and the right-hand side of contacts depend on: wrenches on links, and parameters."""
        for k in range(num_contacts):
            m = contact_bias_adjoint(model, params, env, contacts[k], contact_bars[k], params_bar)
            n_bar = contact_bars[k].n
            t_bar = vec3()
            s_bar = vec3()
            a = contacts[k].link_a
            b = contacts[k].link_b
            if a > 0:
                dn, dt, ds = side_adjoint(
                    model, a, contacts[k].p, real(1.0), m, contacts[k], contact_bars[k], links[a], bars
                )
                n_bar += dn
                t_bar += dt
                s_bar += ds
            if b > 0:
                p = contacts[k].p + contacts[k].shift
                dn, dt, ds = side_adjoint(model, b, p, real(-1.0), m, contacts[k], contact_bars[k], links[b], bars)
                n_bar += dn
                t_bar += dt
                s_bar += ds
            for h in range(num_halves):
                if halves[h].row == 3 * k:
                    dn, dt, ds = half_adjoint(model, halves[h], contacts[k], contact_bars[k], bars)
                    n_bar += dn
                    t_bar += dt
                    s_bar += ds
            n_bar += frames.tangents_adjoint(contacts[k].n, t_bar, s_bar)
            if params_bar.touch != 0:
                pair = contacts[k].pair
                params_bar.friction[env, pair] = params_bar.friction[env, pair] + contact_bars[k].mu
            detection.contact_adjoint(
                model, params, env, q, contacts[k], contact_bars[k].p, n_bar, contact_bars[k].z, links, bars,
                params_bar,
            )  # fmt: skip

    return SimpleNamespace(**locals())
