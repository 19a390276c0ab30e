"""Rows J of contacts and joints, Delassus matrix A = J Mhat^-1 J^T, right-hand side b, and impulses.

A row is a wrench on a link (one per side of a contact) or a unit force on a dof. Its up pass leaves one number
u = S.f per dof between the link and its root, kept in `paths` (and once more times Dinv). With w the up pass of any right-hand side t
    J Mhat^-1 t      = sum over the path   u Dinv w
    A_kl             = sum over the common part of two paths   u_k Dinv u_l
    up pass of J^T x = u x on the dofs
so nothing here needs a down pass. Rows 3k, 3k + 1, 3k + 2 belong to contact k, the joints' rows follow.
"""

from types import SimpleNamespace

import warp as wp

from .types import FREE


def make_contact(t):
    real, vec3, mat33, mat36 = t.real, t.vec3, t.mat33, t.mat36
    Model, Params, Link, Dof, Contact, JointRow = t.Model, t.Params, t.Link, t.Dof, t.Contact, t.JointRow

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
    def leave(d: int, u: vec3, dof: wp.ref[Dof], path: wp.array2d(dtype=vec3)):
        """Note what rows leave on a dof; returns it times Dinv."""
        uD = u * dof.Dinv
        path[0, d] = u
        path[1, d] = uD
        return uD

    @wp.func
    def propagate_free(F: mat36, start: int, dofs: wp.array(dtype=Dof), path: wp.array2d(dtype=vec3)):
        """Up pass through the six dofs of a free root: a triangular substitution, since their axes are unit vectors."""
        w0 = vec3(F[0, 0], F[1, 0], F[2, 0])
        w1 = vec3(F[0, 1], F[1, 1], F[2, 1])
        w2 = vec3(F[0, 2], F[1, 2], F[2, 2])
        v0 = vec3(F[0, 3], F[1, 3], F[2, 3])
        v1 = vec3(F[0, 4], F[1, 4], F[2, 4])
        v2 = vec3(F[0, 5], F[1, 5], F[2, 5])
        u = leave(5, w2, dofs[start + 5], path)
        acceleration = u * dofs[start + 5].u
        U = dofs[start + 5].U
        w1 -= u * U[1]
        w0 -= u * U[0]
        v2 -= u * U[5]
        v1 -= u * U[4]
        v0 -= u * U[3]
        u = leave(4, w1, dofs[start + 4], path)
        acceleration += u * dofs[start + 4].u
        U = dofs[start + 4].U
        w0 -= u * U[0]
        v2 -= u * U[5]
        v1 -= u * U[4]
        v0 -= u * U[3]
        u = leave(3, w0, dofs[start + 3], path)
        acceleration += u * dofs[start + 3].u
        U = dofs[start + 3].U
        v2 -= u * U[5]
        v1 -= u * U[4]
        v0 -= u * U[3]
        u = leave(2, v2, dofs[start + 2], path)
        acceleration += u * dofs[start + 2].u
        U = dofs[start + 2].U
        v1 -= u * U[4]
        v0 -= u * U[3]
        u = leave(1, v1, dofs[start + 1], path)
        acceleration += u * dofs[start + 1].u
        v0 -= u * dofs[start + 1].U[3]
        u = leave(0, v0, dofs[start], path)
        return acceleration + u * dofs[start].u

    @wp.func
    def propagate(model: Model, link: int, F: mat36, dofs: wp.array(dtype=Dof), path: wp.array2d(dtype=vec3)):
        """Up pass of three rows from a link to its root; returns J Mhat^-1 times the forces left in dofs.u."""
        acceleration = vec3()
        depth = model.depth[link]
        root = model.root[link]
        free = int(0)
        if model.joint_type[root] == FREE:
            free = 6
        for n in range(depth - free):
            d = depth - 1 - n
            j = model.chain[link, d]
            uD = leave(d, F @ dofs[j].S, dofs[j], path)
            acceleration += uD * dofs[j].u
            F = F - wp.outer(uD, dofs[j].U)
        if free > 0:
            acceleration += propagate_free(F, model.v_start[root], dofs, path)
        return acceleration

    @wp.func
    def contact_bias(model: Model, params: Params, env: int, contact: wp.ref[Contact], approach: real):
        """What the normal velocity after the step must make up for: penetration, or the bounce."""
        bias = params.erp[env] * contact.z / model.dt
        if approach < -model.restitution_threshold:
            bounce = params.restitution[env, contact.pair] * approach
            bias = wp.where(bounce < bias, bounce, bias)
        return bias

    @wp.func
    def contact_rows(
        model: Model, params: Params, env: int, contact: wp.ref[Contact], links: wp.array(dtype=Link),
        dofs: wp.array(dtype=Dof), path: wp.array3d(dtype=vec3),
    ):  # fmt: skip
        """Up pass of one contact's rows; returns b, the row velocities without contact impulses plus the bias."""
        p = contact.p
        n = contact.n
        t1 = contact.t
        t2 = contact.s
        velocity = vec3()
        acceleration = vec3()
        if contact.link_a > 0:
            F = wrench_rows(p, n, t1, t2)
            velocity = F @ links[contact.link_a].v
            acceleration = propagate(model, contact.link_a, F, dofs, path[0])
        if contact.link_b > 0:
            F = -wrench_rows(p + contact.shift, n, t1, t2)
            velocity += F @ links[contact.link_b].v
            if wp.static(t.sizes.sides == 2):
                acceleration += propagate(model, contact.link_b, F, dofs, path[1])
        b = velocity + acceleration * model.dt
        b[0] = b[0] + contact_bias(model, params, env, contact, velocity[0])
        return b

    @wp.func
    def side_block(model: Model, i: int, l: int, one: wp.array(dtype=vec3), two: wp.array(dtype=vec3)):
        """Part of A between one side of a contact on link i and one side of a contact on link l."""
        G = mat33()
        for d in range(model.common[i, l]):
            G += wp.outer(one[d], two[d])
        return G

    @wp.func
    def contact_block(
        model: Model, k: int, l: int, contacts: wp.array(dtype=Contact), paths: wp.array4d(dtype=vec3)
    ):
        a = contacts[k].link_a
        c = contacts[l].link_a
        G = side_block(model, a, c, paths[k, 0, 0], paths[l, 0, 1])
        if wp.static(t.sizes.sides == 2):
            b = contacts[k].link_b
            d = contacts[l].link_b
            G += side_block(model, a, d, paths[k, 0, 0], paths[l, 1, 1])
            G += side_block(model, b, c, paths[k, 1, 0], paths[l, 0, 1])
            G += side_block(model, b, d, paths[k, 1, 0], paths[l, 1, 1])
        return G

    @wp.func
    def joint_contact_block(
        model: Model, link: int, l: int, contacts: wp.array(dtype=Contact), path: wp.array(dtype=real),
        paths: wp.array4d(dtype=vec3),
    ):  # fmt: skip
        g = vec3()
        for d in range(model.common[link, contacts[l].link_a]):
            g += paths[l, 0, 1, d] * path[d]
        if wp.static(t.sizes.sides == 2):
            for d in range(model.common[link, contacts[l].link_b]):
                g += paths[l, 1, 1, d] * path[d]
        return g

    @wp.func
    def delassus(
        model: Model, cfm: real, num_contacts: int, num_joint_rows: int, dofs: wp.array(dtype=Dof),
        contacts: wp.array(dtype=Contact), paths: wp.array4d(dtype=vec3), joint_rows: wp.array(dtype=JointRow),
        joint_paths: wp.array2d(dtype=real), A: wp.array2d(dtype=real), blocks: wp.array2d(dtype=vec3),
    ):  # fmt: skip
        """A between the active rows; a contact's own block goes to contacts.G and leaves zeros here."""
        for k in range(num_contacts):
            for l in range(k):
                G = contact_block(model, k, l, contacts, paths)
                for r in range(3):
                    blocks[3 * k + r, l] = G[r]
                    blocks[3 * l + r, k] = vec3(G[0, r], G[1, r], G[2, r])
            G = contact_block(model, k, k, contacts, paths)
            G[0, 0] = G[0, 0] + cfm
            contacts[k].G = G
            for r in range(3):
                blocks[3 * k + r, k] = vec3()
        for k in range(num_joint_rows):
            r = 3 * num_contacts + k
            i = joint_rows[k].link
            for l in range(num_contacts):
                g = joint_contact_block(model, i, l, contacts, joint_paths[k], paths)
                blocks[r, l] = g
                for c in range(3):
                    A[3 * l + c, r] = g[c]
            for l in range(k + 1):
                a = real(0.0)
                for d in range(model.common[i, joint_rows[l].link]):
                    a += joint_paths[k, d] * joint_paths[l, d] * dofs[model.chain[i, d]].Dinv
                c = 3 * num_contacts + l
                if k == l:
                    a += joint_rows[k].cfm
                A[r, c] = a
                A[c, r] = a

    @wp.func
    def apply_side(model: Model, link: int, x: vec3, path: wp.array(dtype=vec3), dofs: wp.array(dtype=Dof)):
        for d in range(model.depth[link]):
            j = model.chain[link, d]
            dofs[j].u = dofs[j].u + wp.dot(path[d], x)

    @wp.func
    def apply_impulses(
        model: Model, num_contacts: int, num_joint_rows: int, contacts: wp.array(dtype=Contact),
        paths: wp.array4d(dtype=vec3), joint_rows: wp.array(dtype=JointRow), joint_paths: wp.array2d(dtype=real),
        dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        """Turn the forces dofs.u into impulses and add those of the rows."""
        for j in range(model.num_dofs):
            dofs[j].u = dofs[j].u * model.dt
        for k in range(num_contacts):
            apply_side(model, contacts[k].link_a, contacts[k].x, paths[k, 0, 0], dofs)
            if wp.static(t.sizes.sides == 2):
                apply_side(model, contacts[k].link_b, contacts[k].x, paths[k, 1, 0], dofs)
        for k in range(num_joint_rows):
            i = joint_rows[k].link
            for d in range(model.depth[i]):
                j = model.chain[i, d]
                dofs[j].u = dofs[j].u + joint_paths[k, d] * joint_rows[k].x

    return SimpleNamespace(**locals())
