"""The Delassus matrix A = J Mhat^-1 J^T of the rows, and its adjoint.

A_kl is a sum over the common part of two rows' paths to the world (contact.py).

The adjoint is that of E : A (pgs.py). With B = E + E^T, Y_r = Mhat^-1 J_r^T and V_i(.) the motion of link i under a
vector of rates, it needs, root to tips,
    Z_r = V_i(sum_s B_rs Y_s)                       for the rows r whose path passes through i
    K_i = sum_rs B_rs V_i(Y_r) V_i(Y_s)^T
    F_r                                             row r's wrench as it arrives at link i, rebuilt going outwards
and moving everything beyond joint i by a motion m changes E : A by m . (K x* IA - sum_r Z_r x* F_r), with all vectors
of link i if m is a motion of the joint, and of its parent (with what IA hands to it) if m moves the joint's place.
"""

from types import SimpleNamespace

import warp as wp

from ..types import FREE


def make_delassus(t, s, dynamics):
    real, vec3, vec6, mat33, mat36, sym6 = t.real, t.vec3, t.vec6, t.mat33, t.mat36, t.sym6
    Model, Link, Dof = t.Model, t.Link, t.Dof
    Contact, JointRow, Root, JointRoot = t.Contact, t.JointRow, t.Root, t.JointRoot
    LinkBar, DofBar, Half = t.LinkBar, t.DofBar, t.Half
    cross_force = s.cross_force
    SIDES = wp.constant(t.sizes.sides)

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

    # Adjoint. A half is one side of a contact, or a joint's row: three rows, of which a joint uses the first.

    @wp.func
    def contact_half(
        model: Model, link: int, second: int, p: vec3, k: int, side: int, contact: wp.ref[Contact],
        dofs: wp.array(dtype=Dof), paths: wp.array2d(dtype=vec3), root: wp.ref[Root], half: wp.ref[Half],
    ):  # fmt: skip
        """One side of contact k; F is what is left of its wrenches at the root."""
        sign = real(1 - 2 * second)
        half.link = link
        half.row = 3 * k
        half.rows = 3
        half.second = second
        F = wp.matrix_from_rows(
            s.wrench(p, contact.n * sign), s.wrench(p, contact.t * sign), s.wrench(p, contact.s * sign)
        )
        for d in range(model.depth[link]):
            F -= wp.outer(paths[2 * side + 1, d], dofs[model.chain[link, d]].U)
        half.F = F
        half.Z = mat36()
        free = model.free_dof[link]
        if free >= 0:
            half.H = wp.matrix_from_rows(
                dynamics.free_motion(free, root.u[0], dofs),
                dynamics.free_motion(free, root.u[1], dofs),
                dynamics.free_motion(free, root.u[2], dofs),
            )

    @wp.func
    def joint_half(
        model: Model, row: int, k: int, joint_row: wp.ref[JointRow], dofs: wp.array(dtype=Dof),
        joint_paths: wp.array2d(dtype=real), root: wp.ref[JointRoot], half: wp.ref[Half],
    ):  # fmt: skip
        link = joint_row.link
        half.link = link
        half.row = row
        half.rows = 1
        half.second = 0
        F = vec6()
        for d in range(model.depth[link]):
            j = model.chain[link, d]
            F -= dofs[j].U * (joint_paths[k, d] * dofs[j].Dinv)
        o = vec6()
        half.F = wp.matrix_from_rows(F, o, o)
        half.Z = mat36()
        free = model.free_dof[link]
        if free >= 0:
            half.H = wp.matrix_from_rows(dynamics.free_motion(free, root.u, dofs), o, o)

    @wp.func
    def list_halves(
        model: Model, num_contacts: int, num_joint_rows: int, dofs: wp.array(dtype=Dof),
        contacts: wp.array(dtype=Contact), paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root),
        joint_rows: wp.array(dtype=JointRow), joint_paths: wp.array2d(dtype=real),
        joint_roots: wp.array(dtype=JointRoot), halves: wp.array(dtype=Half),
    ):  # fmt: skip
        count = int(0)
        for k in range(num_contacts):
            side = SIDES * k
            p = contacts[k].p
            if contacts[k].link_a > 0:
                contact_half(
                    model, contacts[k].link_a, 0, p, k, side, contacts[k], dofs, paths, roots[side], halves[count]
                )
                count += 1
            if wp.static(t.sizes.sides == 2):
                if contacts[k].link_b > 0:
                    p = p + contacts[k].shift
                    contact_half(
                        model, contacts[k].link_b, 1, p, k, side + 1, contacts[k], dofs, paths, roots[side + 1],
                        halves[count],
                    )  # fmt: skip
                    count += 1
        for k in range(num_joint_rows):
            row = 3 * num_contacts + k
            joint_half(model, row, k, joint_rows[k], dofs, joint_paths, joint_roots[k], halves[count])
            count += 1
        return count

    @wp.func
    def both(E: wp.array2d(dtype=real), r: int, c: int):
        return E[r, c] + E[c, r]

    @wp.func
    def block(E: wp.array2d(dtype=real), k: wp.ref[Half], l: wp.ref[Half]):
        """Of E + E^T, between the rows of two halves."""
        o = real(0.0)
        r = k.row
        c = l.row
        if k.rows == 3:
            if l.rows == 3:
                return mat33(
                    both(E, r, c), both(E, r, c + 1), both(E, r, c + 2),
                    both(E, r + 1, c), both(E, r + 1, c + 1), both(E, r + 1, c + 2),
                    both(E, r + 2, c), both(E, r + 2, c + 1), both(E, r + 2, c + 2),
                )  # fmt: skip
            return mat33(both(E, r, c), o, o, both(E, r + 1, c), o, o, both(E, r + 2, c), o, o)
        if l.rows == 3:
            return mat33(both(E, r, c), both(E, r, c + 1), both(E, r, c + 2), o, o, o, o, o, o)
        return mat33(both(E, r, c), o, o, o, o, o, o, o, o)

    @wp.func
    def crossed(Z: mat36, F: mat36):
        """Sum over the rows of Z x* F."""
        return cross_force(Z[0], F[0]) + cross_force(Z[1], F[1]) + cross_force(Z[2], F[2])

    @wp.func
    def free_adjoint(
        model: Model, i: int, count: int, halves: wp.array(dtype=Half), E: wp.array2d(dtype=real),
        link: wp.ref[Link], bar: wp.ref[LinkBar], dof_bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        """Motions of a free root: Z and K, which is also kappa; what turns it."""
        free = model.free_dof[i]
        K = sym6()
        turn = vec6()
        for k in range(count):
            if model.free_dof[halves[k].link] == free:
                Z = mat36()
                for l in range(count):
                    if model.free_dof[halves[l].link] == free:
                        Z += block(E, halves[k], halves[l]) @ halves[l].H
                halves[k].Z = Z
                H = halves[k].H
                # symmetric only in the sum over k
                K += (s.sym6_outers(H[0], Z[0]) + s.sym6_outers(H[1], Z[1]) + s.sym6_outers(H[2], Z[2])) * real(0.5)
                turn -= crossed(Z, halves[k].F)
        bar.K = K
        bar.turn = turn + s.sym6_cross(K, link.IA)
        dof_bars[free].kappa = K[15]
        dof_bars[free + 1].kappa = K[18]
        dof_bars[free + 2].kappa = K[20]
        dof_bars[free + 3].kappa = K[0]
        dof_bars[free + 4].kappa = K[6]
        dof_bars[free + 5].kappa = K[11]

    @wp.func
    def pick(model: Model, i: int, count: int, halves: wp.array(dtype=Half)):
        """List the halves whose path passes through joint i; returns how many."""
        picked = int(0)
        depth = model.depth[i]
        for k in range(count):
            if model.common[halves[k].link, i] == depth:
                halves[picked].pick = k
                picked += 1
        return picked

    @wp.func
    def dof_adjoint(
        d: int, picked: int, num_contacts: int, halves: wp.array(dtype=Half), paths: wp.array2d(dtype=vec3),
        joint_paths: wp.array2d(dtype=real), E: wp.array2d(dtype=real), K: sym6, dof: wp.ref[Dof],
        bar: wp.ref[DofBar],
    ):  # fmt: skip
        """Carry Z, F and K over a dof, number d of the path; returns K."""
        S = dof.S
        U = dof.U
        Dinv = dof.Dinv
        for m in range(picked):
            k = halves[m].pick
            r = halves[k].row
            if halves[k].rows == 3:
                halves[k].u = paths[2 * (SIDES * (r / 3) + halves[k].second), d]
            else:
                halves[k].u = vec3(joint_paths[r - 3 * num_contacts, d], real(0.0), real(0.0))
        k1 = -s.sym6_mul(K, U)
        kappa = real(0.0)
        for m in range(picked):
            k = halves[m].pick
            u = halves[k].u
            Z = halves[k].Z
            z = -(Z @ U)
            for n in range(picked):
                l = halves[n].pick
                z += block(E, halves[k], halves[l]) @ halves[l].u
            z = z * Dinv
            k1 += u @ Z
            kappa += wp.dot(u, z)
            halves[k].Z = Z + wp.outer(z, S)
            halves[k].F = halves[k].F + wp.outer(u * Dinv, U)
        k1 = k1 * Dinv
        kappa = (kappa - wp.dot(U, k1)) * Dinv
        bar.kappa = kappa
        return K + s.sym6_outers(k1 + S * (real(0.5) * kappa), S)

    @wp.func
    def wrench_at(picked: int, halves: wp.array(dtype=Half), K: sym6, I: sym6):
        """K x* I - sum of Z x* F over the halves that are picked."""
        turn = s.sym6_cross(K, I)
        for m in range(picked):
            k = halves[m].pick
            turn -= crossed(halves[k].Z, halves[k].F)
        return turn

    @wp.func
    def joint_adjoint(
        model: Model, i: int, placements: int, count: int, num_contacts: int, halves: wp.array(dtype=Half),
        paths: wp.array2d(dtype=vec3), joint_paths: wp.array2d(dtype=real), E: wp.array2d(dtype=real),
        links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof), bars: wp.array(dtype=LinkBar),
        dof_bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        """With the link's own vectors for the joint's dofs, with the parent's for the place of the joint on it."""
        start = model.v_start[i]
        n = model.num_joint_dofs[i]
        d = model.depth[i] - n
        picked = pick(model, i, count, halves)
        K = bars[model.parent[i]].K
        IA = s.shift_inertia(links[i].IA, links[i].r)
        if placements != 0:
            Ia = IA
            for c in range(n):
                Ia = Ia - s.sym6_outer(dofs[start + c].U, dofs[start + c].U * dofs[start + c].Dinv)
            bars[i].turn = wrench_at(picked, halves, K, Ia)
        for c in range(n):
            K = dof_adjoint(
                d + c, picked, num_contacts, halves, paths, joint_paths, E, K, dofs[start + c], dof_bars[start + c]
            )
        bars[i].K = K
        turn = wrench_at(picked, halves, K, IA)
        for c in range(n):
            dof_bars[start + c].turn = wp.dot(dofs[start + c].S, turn)

    @wp.func
    def delassus_adjoint(
        model: Model, num_contacts: int, num_joint_rows: int, placements: int, links: wp.array(dtype=Link),
        dofs: wp.array(dtype=Dof), contacts: wp.array(dtype=Contact), paths: wp.array2d(dtype=vec3),
        roots: wp.array(dtype=Root), joint_rows: wp.array(dtype=JointRow), joint_paths: wp.array2d(dtype=real),
        joint_roots: wp.array(dtype=JointRoot), E: wp.array2d(dtype=real), halves: wp.array(dtype=Half),
        bars: wp.array(dtype=LinkBar), dof_bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        """Gradient of E : A for every joint (turn, kappa) and link (K), root to tips; returns how many halves."""
        count = list_halves(
            model, num_contacts, num_joint_rows, dofs, contacts, paths, roots, joint_rows, joint_paths, joint_roots,
            halves,
        )  # fmt: skip
        bars[0].K = sym6()
        for i in range(1, model.num_links):
            if model.joint_type[i] == FREE:
                free_adjoint(model, i, count, halves, E, links[i], bars[i], dof_bars)
            else:
                joint_adjoint(
                    model, i, placements, count, num_contacts, halves, paths, joint_paths, E, links, dofs, bars,
                    dof_bars,
                )  # fmt: skip
        return count

    return SimpleNamespace(**locals())
