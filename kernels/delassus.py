"""The Delassus matrix A = J Mhat^-1 J^T of the rows, and its adjoint.

A_kl is a sum over the common part of two rows' paths to the world (contact.py).

The adjoint is that of 1/2 E : A with a symmetric E (pgs.symmetrise). With Y_r = Mhat^-1 J_r^T and V_i(.) the motion
of link i under a vector of rates, it needs, root to tips,
    Z_r = V_i(sum_s E_rs Y_s)                       for the rows r whose path passes through i
    K_i = sum_rs E_rs V_i(Y_r) V_i(Y_s)^T
    F_r                                             row r's wrench as it arrives at link i, rebuilt going outwards
and moving everything beyond joint i by a motion m changes the sum by m . (K x* IA - sum_r Z_r x* F_r), in which all
four belong either to link i or, with what IA hands to the parent, to its parent: for one dof it is the same.
"""

from types import SimpleNamespace

import warp as wp

from .types import FREE, SPHERICAL


def make_delassus(t, s, dynamics):
    real, vec3, vec6, mat33, sym6 = t.real, t.vec3, t.vec6, t.mat33, t.sym6
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

    # Adjoint. A half is one row on one side of a contact, or a joint's row.

    @wp.func
    def add_half(halves: wp.array(dtype=Half), count: int, link: int, row: int, second: int, F: vec6, H: vec6):
        """Put one at the end of the list, if it can move anything; returns the new length."""
        if link > 0:
            halves[count].link = link
            halves[count].row = row
            halves[count].second = second
            halves[count].F = F
            halves[count].H = H
            halves[count].Z = vec6()
            count += 1
        return count

    @wp.func
    def contact_halves(
        model: Model, link: int, second: int, p: vec3, k: int, side: int, contact: wp.ref[Contact],
        dofs: wp.array(dtype=Dof), paths: wp.array2d(dtype=vec3), root: wp.ref[Root],
        halves: wp.array(dtype=Half), count: int,
    ):  # fmt: skip
        """The three halves of one side of contact k; F is what is left of their wrenches at the root."""
        sign = real(1 - 2 * second)
        Fn = s.wrench(p, contact.n * sign)
        Ft = s.wrench(p, contact.t * sign)
        Fs = s.wrench(p, contact.s * sign)
        for d in range(model.depth[link]):
            U = dofs[model.chain[link, d]].U
            uD = paths[2 * side + 1, d]
            Fn -= U * uD[0]
            Ft -= U * uD[1]
            Fs -= U * uD[2]
        Hn = vec6()
        Ht = vec6()
        Hs = vec6()
        free = model.free_dof[link]
        if free >= 0:
            Hn = dynamics.free_motion(free, root.u[0], dofs)
            Ht = dynamics.free_motion(free, root.u[1], dofs)
            Hs = dynamics.free_motion(free, root.u[2], dofs)
        count = add_half(halves, count, link, 3 * k, second, Fn, Hn)
        count = add_half(halves, count, link, 3 * k + 1, second, Ft, Ht)
        return add_half(halves, count, link, 3 * k + 2, second, Fs, Hs)

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
            count = contact_halves(
                model, contacts[k].link_a, 0, p, k, side, contacts[k], dofs, paths, roots[side], halves, count
            )
            if wp.static(t.sizes.sides == 2):
                count = contact_halves(
                    model, contacts[k].link_b, 1, p + contacts[k].shift, k, side + 1, contacts[k], dofs,
                    paths, roots[side + 1], halves, count,
                )  # fmt: skip
        for k in range(num_joint_rows):
            link = joint_rows[k].link
            F = vec6()
            for d in range(model.depth[link]):
                j = model.chain[link, d]
                F -= dofs[j].U * (joint_paths[k, d] * dofs[j].Dinv)
            H = vec6()
            free = model.free_dof[link]
            if free >= 0:
                H = dynamics.free_motion(free, joint_roots[k].u, dofs)
            count = add_half(halves, count, link, 3 * num_contacts + k, 0, F, H)
        return count

    @wp.func
    def path_entry(
        num_contacts: int, row: int, second: int, d: int, paths: wp.array2d(dtype=vec3),
        joint_paths: wp.array2d(dtype=real),
    ):  # fmt: skip
        """u of a half on dof d of its path."""
        u = real(0.0)
        if row < 3 * num_contacts:
            v = paths[2 * (SIDES * (row / 3) + second), d]
            u = wp.where(row % 3 == 0, v[0], wp.where(row % 3 == 1, v[1], v[2]))
        else:
            u = joint_paths[row - 3 * num_contacts, d]
        return u

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
                Z = vec6()
                for l in range(count):
                    if model.free_dof[halves[l].link] == free:
                        Z += halves[l].H * E[halves[k].row, halves[l].row]
                halves[k].Z = Z
                K += s.sym6_outers(halves[k].H, Z) * real(0.5)
                turn -= cross_force(Z, halves[k].F)
        bar.K = K
        bar.turn = turn + s.sym6_cross(K, link.IA)
        dof_bars[free].kappa = K[15]
        dof_bars[free + 1].kappa = K[18]
        dof_bars[free + 2].kappa = K[20]
        dof_bars[free + 3].kappa = K[0]
        dof_bars[free + 4].kappa = K[6]
        dof_bars[free + 5].kappa = K[11]

    @wp.func
    def dof_adjoint(
        model: Model, i: int, d: int, j: int, count: int, num_contacts: int, halves: wp.array(dtype=Half),
        paths: wp.array2d(dtype=vec3), joint_paths: wp.array2d(dtype=real), E: wp.array2d(dtype=real), K: sym6,
        dofs: wp.array(dtype=Dof), bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        """Carry Z, F and K over dof j of link i, number d of the path; returns K."""
        S = dofs[j].S
        U = dofs[j].U
        Dinv = dofs[j].Dinv
        for k in range(count):
            if model.common[halves[k].link, i] > d:
                halves[k].u = path_entry(num_contacts, halves[k].row, halves[k].second, d, paths, joint_paths)
        k1 = -s.sym6_mul(K, U)
        kappa = real(0.0)
        for k in range(count):
            if model.common[halves[k].link, i] > d:
                u = halves[k].u
                Z = halves[k].Z
                z = -wp.dot(Z, U)
                for l in range(count):
                    if model.common[halves[l].link, i] > d:
                        z += E[halves[k].row, halves[l].row] * halves[l].u
                z = z * Dinv
                k1 += Z * u
                kappa += u * z
                halves[k].Z = Z + S * z
                halves[k].F = halves[k].F + U * (u * Dinv)
        k1 = k1 * Dinv
        kappa = (kappa - wp.dot(U, k1)) * Dinv
        bars[j].kappa = kappa
        return K + s.sym6_outers(k1 + S * (real(0.5) * kappa), S)

    @wp.func
    def wrench_at(model: Model, i: int, d: int, count: int, halves: wp.array(dtype=Half), K: sym6, I: sym6):
        """K x* I - sum of Z x* F over the halves whose path has more than d dofs in common with link i's."""
        turn = s.sym6_cross(K, I)
        for k in range(count):
            if model.common[halves[k].link, i] > d:
                turn -= cross_force(halves[k].Z, halves[k].F)
        return turn

    @wp.func
    def joint_adjoint(
        model: Model, i: int, count: int, num_contacts: int, halves: wp.array(dtype=Half),
        paths: wp.array2d(dtype=vec3), joint_paths: wp.array2d(dtype=real), E: wp.array2d(dtype=real),
        links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof), bars: wp.array(dtype=LinkBar),
        dof_bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        start = model.v_start[i]
        n = model.num_joint_dofs[i]
        d = model.depth[i] - n
        K = bars[model.parent[i]].K
        IA = s.shift_inertia(links[i].IA, links[i].r)
        Ia = IA
        for c in range(n):
            Ia = Ia - s.sym6_outer(dofs[start + c].U, dofs[start + c].U * dofs[start + c].Dinv)
        turn = wrench_at(model, i, d, count, halves, K, Ia)
        bars[i].turn = turn
        for c in range(n):
            K = dof_adjoint(
                model, i, d + c, start + c, count, num_contacts, halves, paths, joint_paths, E, K, dofs, dof_bars
            )
        bars[i].K = K
        if model.joint_type[i] == SPHERICAL:
            # its axes belong to the parent, and do not move with the link
            turn = wrench_at(model, i, d + n - 1, count, halves, K, IA)
        for c in range(n):
            dof_bars[start + c].turn = wp.dot(dofs[start + c].S, turn)

    @wp.func
    def delassus_adjoint(
        model: Model, num_contacts: int, num_joint_rows: int, links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof),
        contacts: wp.array(dtype=Contact), paths: wp.array2d(dtype=vec3), roots: wp.array(dtype=Root),
        joint_rows: wp.array(dtype=JointRow), joint_paths: wp.array2d(dtype=real),
        joint_roots: wp.array(dtype=JointRoot), E: wp.array2d(dtype=real), halves: wp.array(dtype=Half),
        bars: wp.array(dtype=LinkBar), dof_bars: wp.array(dtype=DofBar),
    ):  # fmt: skip
        """Gradient of 1/2 E : A for every joint (turn, kappa) and link (K), root to tips; returns how many halves."""
        count = list_halves(
            model, num_contacts, num_joint_rows, dofs, contacts, paths, roots, joint_rows, joint_paths, joint_roots,
            halves,
        )  # fmt: skip
        bars[0].K = sym6()
        for i in range(1, model.num_links):
            if model.joint_type[i] == FREE:
                free_adjoint(model, i, count, halves, E, links[i], bars[i], dof_bars)
            else:
                joint_adjoint(model, i, count, num_contacts, halves, paths, joint_paths, E, links, dofs, bars, dof_bars)
        return count

    return SimpleNamespace(**locals())
