"""Rows J of contacts, Delassus matrix A = J Mhat^-1 J^T, right-hand side b, and impulses.

A row is a wrench on a link (one per side of a contact) or a unit force on a dof. Its up pass leaves one number
u = S.f on every dof between the link and the world. With w the up pass of any right-hand side t
    J Mhat^-1 t      = sum over the path   u Dinv w
    A_kl             = sum over the common part of two paths   u_k Dinv u_l
    up pass of J^T x = u x on the dofs
so nothing here needs a down pass. u is kept twice, plain and times Dinv: for the six dofs of a free root in Root, for
the others in `paths`. Rows 3k, 3k + 1, 3k + 2 belong to contact k, the joints' rows follow.
"""

from types import SimpleNamespace

import warp as wp


def make_contact(t, dynamics):
    real, vec3, mat33, mat36 = t.real, t.vec3, t.mat33, t.mat36
    Model, Params, Link, Dof = t.Model, t.Params, t.Link, t.Dof
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
        if approach < -model.restitution_threshold:
            bounce = params.restitution[env, contact.pair] * approach
            if bounce < bias:
                bias = bounce
                contact.cfm = real(0.0)
        return bias

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

    # Sides are numbered SIDES * contact + side; paths has two rows for each, u and u Dinv.
    # Indices are passed rather than views of an array: making a view costs as much as a product.

    @wp.func
    def side_block(
        model: Model, i: int, l: int, one: int, two: int, paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root)
    ):
        """Part of A between side `one` of a contact, on link i, and side `two` of a contact, on link l."""
        G = mat33()
        if model.free_dof[i] >= 0 and model.free_dof[i] == model.free_dof[l]:
            g = roots[one].u @ roots[two].uD
            G = mat33(g[0, 0], g[0, 1], g[0, 2], g[1, 0], g[1, 1], g[1, 2], g[2, 0], g[2, 1], g[2, 2])
        for d in range(model.common[i, l]):
            G += wp.outer(paths[2 * one, d], paths[2 * two + 1, d])
        return G

    @wp.func
    def contact_block(
        model: Model, k: int, l: int, contacts: wp.array(dtype=Contact), paths: wp.array2d(dtype=vec3),
        roots: wp.array(dtype=Root),
    ):  # fmt: skip
        a = contacts[k].link_a
        c = contacts[l].link_a
        G = side_block(model, a, c, SIDES * k, SIDES * l, paths, roots)
        if wp.static(t.sizes.sides == 2):
            b = contacts[k].link_b
            d = contacts[l].link_b
            G += side_block(model, a, d, SIDES * k, SIDES * l + 1, paths, roots)
            G += side_block(model, b, c, SIDES * k + 1, SIDES * l, paths, roots)
            G += side_block(model, b, d, SIDES * k + 1, SIDES * l + 1, paths, roots)
        return G

    @wp.func
    def joint_side_block(
        model: Model, i: int, l: int, row: int, joint_paths: wp.array2d(dtype=real), joint_root: wp.ref[JointRoot],
        side: int, paths: wp.array2d(dtype=vec3), root: wp.ref[Root],
    ):  # fmt: skip
        """Part of A between a joint's row and one side of a contact on link l."""
        g = vec3()
        if model.free_dof[i] >= 0 and model.free_dof[i] == model.free_dof[l]:
            g = dynamics.root_product(joint_root.u, root)
        for d in range(model.common[i, l]):
            g += paths[2 * side + 1, d] * joint_paths[row, d]
        return g

    @wp.func
    def delassus(
        model: Model, num_contacts: int, num_joint_rows: int, dofs: wp.array(dtype=Dof),
        contacts: wp.array(dtype=Contact), paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root),
        joint_rows: wp.array(dtype=JointRow), joint_paths: wp.array2d(dtype=real),
        joint_roots: wp.array(dtype=JointRoot), A: wp.array2d(dtype=real), blocks: wp.array2d(dtype=vec3),
    ):  # fmt: skip
        """A between the active rows; a contact's own block goes to contacts.G and leaves zeros here."""
        for k in range(num_contacts):
            for l in range(k):
                G = contact_block(model, k, l, contacts, paths, roots)
                for r in range(3):
                    blocks[3 * k + r, l] = G[r]
                    blocks[3 * l + r, k] = vec3(G[0, r], G[1, r], G[2, r])
            G = contact_block(model, k, k, contacts, paths, roots)
            G[0, 0] = G[0, 0] + contacts[k].cfm
            contacts[k].G = G
            for r in range(3):
                blocks[3 * k + r, k] = vec3()
        for k in range(num_joint_rows):
            r = 3 * num_contacts + k
            i = joint_rows[k].link
            for l in range(num_contacts):
                side = SIDES * l
                g = joint_side_block(
                    model, i, contacts[l].link_a, k, joint_paths, joint_roots[k], side, paths, roots[side]
                )
                if wp.static(t.sizes.sides == 2):
                    g += joint_side_block(
                        model, i, contacts[l].link_b, k, joint_paths, joint_roots[k], side + 1, paths, roots[side + 1]
                    )
                blocks[r, l] = g
                for c in range(3):
                    A[3 * l + c, r] = g[c]
            for l in range(k + 1):
                a = real(0.0)
                m = joint_rows[l].link
                if model.free_dof[i] >= 0 and model.free_dof[i] == model.free_dof[m]:
                    a = wp.dot(joint_roots[k].u, joint_roots[l].uD)
                for d in range(model.common[i, m]):
                    a += joint_paths[k, d] * joint_paths[l, d] * dofs[model.chain[i, d]].Dinv
                if k == l:
                    a += joint_rows[k].cfm
                A[r, 3 * num_contacts + l] = a
                A[3 * num_contacts + l, r] = a

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
            i = joint_rows[k].link
            x = joint_rows[k].x
            for d in range(model.depth[i]):
                j = model.chain[i, d]
                dofs[j].u = dofs[j].u + joint_paths[k, d] * x
            free = model.free_dof[i]
            if free >= 0:
                for d in range(6):
                    dofs[free + d].u = dofs[free + d].u + joint_roots[k].u[d] * x

    return SimpleNamespace(**locals())
