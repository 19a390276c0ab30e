"""The Delassus matrix A = J Mhat^-1 J^T of the rows, and its adjoint.

A_kl is a sum over the common part of two rows' paths to the world (paths.py).

The adjoint is that of E : A (pgs.py). With B = E + E^T, Y_r = Mhat^-1 J_r^T and V_i(.) the motion of link i under a
vector of rates, it needs, root to tips,
    Z_r = V_i(sum_s B_rs Y_s)                       for the rows r whose path passes through i
    K_i = sum_rs B_rs V_i(Y_r) V_i(Y_s)^T
    F_r                                             row r's wrench as it arrives at link i, rebuilt going outwards
and moving everything beyond joint i by a motion m changes E : A by m . (K x* IA - sum_r Z_r x* F_r), with all vectors
of link i if m is a motion of the joint, and of its parent (with the IA that it passes on) if m moves the joint's place.
"""

import warp as wp

from ..types import FREE, TENDON_LIMIT, TURN, exports, stage


def make_delassus(t, s, dynamics, rows):
    real, vec3, vec6, mat33, mat36, sym6 = t.real, t.vec3, t.vec6, t.mat33, t.mat36, t.sym6
    Env, EnvBar, Half, Paths = t.Env, t.EnvBar, t.Half, t.Paths
    SIDES = wp.constant(t.sizes.sides)
    tied = t.sizes.ties > 0
    ties = rows.ties

    # Sides are numbered SIDES * contact + side.
    # Indices are passed rather than views of an array: making a view costs as much as a product.

    @wp.func
    def share_root(e: wp.ref[Env], i: int, l: int):
        return e.model.free_dof[i] >= 0 and e.model.free_dof[i] == e.model.free_dof[l]

    @wp.func
    def side_block(e: wp.ref[Env], i: int, l: int, one: int, two: int):
        """Part of A between side `one` of a contact, on link i, and side `two` of a contact, on link l."""
        G = mat33()
        if share_root(e, i, l):
            g = e.paths.root[one].u @ e.paths.root[two].uD
            G = mat33(g[0, 0], g[0, 1], g[0, 2], g[1, 0], g[1, 1], g[1, 2], g[2, 0], g[2, 1], g[2, 2])
        for d in range(e.model.common[i, l]):
            G += wp.outer(e.paths.u[one, d], e.paths.uD[two, d])
        return G

    @wp.func
    def contact_block(e: wp.ref[Env], k: int, l: int):
        a = e.contacts[k].link_a
        c = e.contacts[l].link_a
        G = side_block(e, a, c, SIDES * k, SIDES * l)
        if wp.static(t.sizes.sides == 2):
            b = e.contacts[k].link_b
            d = e.contacts[l].link_b
            G += side_block(e, a, d, SIDES * k, SIDES * l + 1)
            G += side_block(e, b, c, SIDES * k + 1, SIDES * l)
            G += side_block(e, b, d, SIDES * k + 1, SIDES * l + 1)
        return G

    @wp.func
    def joint_side_block(e: wp.ref[Env], i: int, l: int, row: int, side: int):
        """Part of A between a joint's row, on link i, and one side of a contact, on link l."""
        g = vec3()
        if share_root(e, i, l):
            f = e.joint_paths.root[row].u @ e.paths.root[side].uD
            g = vec3(f[0, 0], f[0, 1], f[0, 2])
        for d in range(e.model.common[i, l]):
            g += e.paths.uD[side, d] * e.joint_paths.u[row, d][0]
        return g

    @wp.func
    def joint_block(e: wp.ref[Env], i: int, l: int, row: int, other: int):
        """Entry of A between two joints' rows, on links i and l."""
        a = real(0.0)
        if share_root(e, i, l):
            f = e.joint_paths.root[row].u @ e.joint_paths.root[other].uD
            a = f[0, 0]
        for d in range(e.model.common[i, l]):
            a += e.joint_paths.u[row, d][0] * e.joint_paths.u[other, d][0] * e.dofs[e.model.chain[i, d]].Dinv
        return a

    @stage
    def delassus(e: wp.ref[Env]):
        """A between the active rows; a contact's own block goes to contacts.G and leaves zeros here."""
        for k in range(e.num_contacts):
            for l in range(k):
                G = contact_block(e, k, l)
                for r in range(3):
                    for c in range(3):
                        e.A[3 * k + r, 3 * l + c] = G[r, c]
                        e.A[3 * l + c, 3 * k + r] = G[r, c]
            G = contact_block(e, k, k)
            G[0, 0] = G[0, 0] + e.contacts[k].cfm
            e.contacts[k].G = G
            for r in range(3):
                for c in range(3):
                    e.A[3 * k + r, 3 * k + c] = real(0.0)
        for k in range(e.num_joint_rows):
            r = 3 * e.num_contacts + k
            i = e.joint_rows[k].link
            for l in range(e.num_contacts):
                side = SIDES * l
                g = joint_side_block(e, i, e.contacts[l].link_a, k, side)
                if wp.static(t.sizes.sides == 2):
                    g += joint_side_block(e, i, e.contacts[l].link_b, k, side + 1)
                for c in range(3):
                    e.A[r, 3 * l + c] = g[c]
                    e.A[3 * l + c, r] = g[c]
            for l in range(k + 1):
                a = joint_block(e, i, e.joint_rows[l].link, k, l)
                if k == l:
                    a += e.joint_rows[k].cfm
                e.A[r, 3 * e.num_contacts + l] = a
                e.A[3 * e.num_contacts + l, r] = a

    # Adjoint. A half is one side of a contact, or a joint's row: three rows, of which a joint uses the first.

    @wp.func
    def fill_half(e: wp.ref[Env], half: wp.ref[Half], paths: wp.ref[Paths], side: int, F: mat36):
        """From the wrenches F on the half's link; side: its number in paths."""
        link = half.link
        for d in range(e.model.depth[link]):
            F -= wp.outer(paths.uD[side, d], e.dofs[e.model.chain[link, d]].U)
        half.F = F
        half.Z = mat36()
        free = e.model.free_dof[link]
        if free >= 0:
            u = paths.root[side].u
            half.H = wp.matrix_from_rows(
                dynamics.free_motion(e, free, u[0]),
                dynamics.free_motion(e, free, u[1]),
                dynamics.free_motion(e, free, u[2]),
            )

    @wp.func
    def contact_half(e: wp.ref[Env], half: wp.ref[Half], k: int, second: int, link: int):
        """One side of contact k; F: the part of its wrenches that reaches the root."""
        side = SIDES * k + second
        sign = real(1 - 2 * second)
        p = e.contacts[k].p + e.contacts[k].shift * real(second)
        half.link = link
        half.row = 3 * k
        half.rows = 3
        half.second = second
        F = wp.matrix_from_rows(
            s.wrench(p, e.contacts[k].n * sign),
            s.wrench(p, e.contacts[k].t * sign),
            s.wrench(p, e.contacts[k].s * sign),
        )
        fill_half(e, half, e.paths, side, F)

    @wp.func
    def joint_half(e: wp.ref[Env], half: wp.ref[Half], k: int, link: int):
        half.link = link
        half.row = 3 * e.num_contacts + k
        half.rows = 1
        half.second = 0
        F = vec6()
        for d in range(e.model.depth[link]):
            j = e.model.chain[link, d]
            F -= e.dofs[j].U * (e.joint_paths.u[k, d][0] * e.dofs[j].Dinv)
        o = vec6()
        half.F = wp.matrix_from_rows(F, o, o)
        half.Z = mat36()
        free = e.model.free_dof[link]
        if free >= 0:
            half.H = wp.matrix_from_rows(dynamics.free_motion(e, free, e.joint_paths.root[k].u[0]), o, o)

    @wp.func
    def tie_half(e: wp.ref[Env], e_bar: wp.ref[EnvBar], count: int, F: mat36, own: real):
        """Complete half `count`, one side of a tie, or one dof of a coupling with the force `own`."""
        side = count - e_bar.first_tie
        rows.side_path.propagate(e, e_bar.tie_paths, side, e_bar.halves[count].link, F, own)
        fill_half(e, e_bar.halves[count], e_bar.tie_paths, side, F)

    @wp.func
    def coupling_halves(e: wp.ref[Env], e_bar: wp.ref[EnvBar], count: int, c: int, row: int, sign: real):
        for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
            e_bar.halves[count].link = e.model.dof_link[e.model.term_dof[m]]
            e_bar.halves[count].row = row
            e_bar.halves[count].rows = 1
            e_bar.halves[count].second = 0
            tie_half(e, e_bar, count, mat36(), sign * rows.couplings.slope(e, m))
            count += 1
        return count

    @wp.func
    def list_tie_halves(e: wp.ref[Env], e_bar: wp.ref[EnvBar], count: int):
        """Halves of ties and of tendons' bounded rows; returns the number of all halves."""
        e_bar.first_tie = count
        first = 3 * e.num_contacts
        for k in range(e.num_joint_rows):
            if e.joint_rows[k].kind >= TENDON_LIMIT:
                c = ties.bounded_coupling(e, e.joint_rows[k])
                count = coupling_halves(e, e_bar, count, c, first + k, e.joint_rows[k].sign)
        first += e.num_joint_rows
        for k in range(e.num_ties):
            row = first + e.ties[k].row
            if e.ties[k].kind <= TURN:
                for second in range(2):
                    link = wp.where(second == 0, e.ties[k].link_a, e.ties[k].link_b)
                    if link > 0:
                        e_bar.halves[count].link = link
                        e_bar.halves[count].row = row
                        e_bar.halves[count].rows = 3
                        e_bar.halves[count].second = second
                        tie_half(e, e_bar, count, ties.side_wrenches(e.ties[k], second), real(0.0))
                        count += 1
            else:
                c = ties.coupling_of(e, e.ties[k].kind, e.ties[k].index)
                count = coupling_halves(e, e_bar, count, c, row, real(1.0))
        return count

    @wp.func
    def list_halves(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        count = int(0)
        for k in range(e.num_contacts):
            if e.contacts[k].link_a > 0:
                contact_half(e, e_bar.halves[count], k, 0, e.contacts[k].link_a)
                count += 1
            if wp.static(t.sizes.sides == 2):
                if e.contacts[k].link_b > 0:
                    contact_half(e, e_bar.halves[count], k, 1, e.contacts[k].link_b)
                    count += 1
        for k in range(e.num_joint_rows):
            if wp.static(not tied) or e.joint_rows[k].kind < TENDON_LIMIT:
                joint_half(e, e_bar.halves[count], k, e.joint_rows[k].link)
                count += 1
        if wp.static(tied):
            count = list_tie_halves(e, e_bar, count)
        e_bar.num_halves = count

    @wp.func
    def both(e_bar: wp.ref[EnvBar], r: int, c: int):
        return e_bar.E[r, c] + e_bar.E[c, r]

    @wp.func
    def both3(e_bar: wp.ref[EnvBar], r: int, c: int):
        return vec3(both(e_bar, r, c), both(e_bar, r, c + 1), both(e_bar, r, c + 2))

    @wp.func
    def block(e_bar: wp.ref[EnvBar], k: wp.ref[Half], l: wp.ref[Half]):
        """Of E + E^T, between the rows of two halves."""
        o = real(0.0)
        r = k.row
        c = l.row
        if k.rows == 3:
            if l.rows == 3:
                return wp.matrix_from_rows(both3(e_bar, r, c), both3(e_bar, r + 1, c), both3(e_bar, r + 2, c))
            return mat33(both(e_bar, r, c), o, o, both(e_bar, r + 1, c), o, o, both(e_bar, r + 2, c), o, o)
        if l.rows == 3:
            return wp.matrix_from_rows(both3(e_bar, r, c), vec3(), vec3())
        return mat33(both(e_bar, r, c), o, o, o, o, o, o, o, o)

    @wp.func
    def crossed(Z: mat36, F: mat36):
        """Sum over the rows of Z x* F."""
        return s.cross_force(Z[0], F[0]) + s.cross_force(Z[1], F[1]) + s.cross_force(Z[2], F[2])

    @wp.func
    def free_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int):
        """Motions of a free root: Z and K, which is also kappa; what turns it."""
        free = e.model.free_dof[i]
        K = sym6()
        turn = vec6()
        for k in range(e_bar.num_halves):
            if e.model.free_dof[e_bar.halves[k].link] == free:
                Z = mat36()
                for l in range(e_bar.num_halves):
                    if e.model.free_dof[e_bar.halves[l].link] == free:
                        Z += block(e_bar, e_bar.halves[k], e_bar.halves[l]) @ e_bar.halves[l].H
                e_bar.halves[k].Z = Z
                H = e_bar.halves[k].H
                # symmetric only in the sum over k
                K += (s.sym6_outers(H[0], Z[0]) + s.sym6_outers(H[1], Z[1]) + s.sym6_outers(H[2], Z[2])) * real(0.5)
                turn -= crossed(Z, e_bar.halves[k].F)
        e_bar.links[i].K = K
        e_bar.links[i].turn = turn + s.sym6_cross(K, e.links[i].IA)
        e_bar.dofs[free].kappa = K[15]
        e_bar.dofs[free + 1].kappa = K[18]
        e_bar.dofs[free + 2].kappa = K[20]
        e_bar.dofs[free + 3].kappa = K[0]
        e_bar.dofs[free + 4].kappa = K[6]
        e_bar.dofs[free + 5].kappa = K[11]

    @wp.func
    def pick(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int):
        """List the halves whose path passes through joint i; returns how many."""
        picked = int(0)
        depth = e.model.depth[i]
        for k in range(e_bar.num_halves):
            if e.model.common[e_bar.halves[k].link, i] == depth:
                e_bar.halves[picked].pick = k
                picked += 1
        return picked

    @wp.func
    def dof_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], j: int, d: int, picked: int, K: sym6):
        """Carry Z, F and K over dof j, number d of the path; returns K."""
        S = e.dofs[j].S
        U = e.dofs[j].U
        Dinv = e.dofs[j].Dinv
        for m in range(picked):
            k = e_bar.halves[m].pick
            r = e_bar.halves[k].row
            if wp.static(tied):
                if k >= e_bar.first_tie:
                    e_bar.halves[k].u = e_bar.tie_paths.u[k - e_bar.first_tie, d]
                    continue
            if e_bar.halves[k].rows == 3:
                e_bar.halves[k].u = e.paths.u[SIDES * (r / 3) + e_bar.halves[k].second, d]
            else:
                e_bar.halves[k].u = vec3(e.joint_paths.u[r - 3 * e.num_contacts, d][0], real(0.0), real(0.0))
        k1 = -s.sym6_mul(K, U)
        kappa = real(0.0)
        for m in range(picked):
            k = e_bar.halves[m].pick
            u = e_bar.halves[k].u
            Z = e_bar.halves[k].Z
            z = -(Z @ U)
            for n in range(picked):
                l = e_bar.halves[n].pick
                z += block(e_bar, e_bar.halves[k], e_bar.halves[l]) @ e_bar.halves[l].u
            z = z * Dinv
            k1 += u @ Z
            kappa += wp.dot(u, z)
            e_bar.halves[k].Z = Z + wp.outer(z, S)
            e_bar.halves[k].F = e_bar.halves[k].F + wp.outer(u * Dinv, U)
            if wp.static(tied):
                if e_bar.halves[k].rows == 1:
                    # the rate of its last dof, for ties.half_rate; H itself is used at the root only
                    e_bar.halves[k].H = wp.matrix_from_rows(vec6(z[0]), vec6(), vec6())
        k1 = k1 * Dinv
        kappa = (kappa - wp.dot(U, k1)) * Dinv
        e_bar.dofs[j].kappa = kappa
        return K + s.sym6_outers(k1 + S * (real(0.5) * kappa), S)

    @wp.func
    def wrench_at(e_bar: wp.ref[EnvBar], picked: int, K: sym6, I: sym6):
        """K x* I - sum of Z x* F over the halves that are picked."""
        turn = s.sym6_cross(K, I)
        for m in range(picked):
            k = e_bar.halves[m].pick
            turn -= crossed(e_bar.halves[k].Z, e_bar.halves[k].F)
        return turn

    @wp.func
    def joint_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int):
        """With the link's own vectors for the joint's dofs, with the parent's for the place of the joint on it."""
        start = e.model.v_start[i]
        n = e.model.num_joint_dofs[i]
        d = e.model.depth[i] - n
        picked = pick(e, e_bar, i)
        K = e_bar.links[e.model.parent[i]].K
        IA = s.shift_inertia(e.links[i].IA, e.links[i].r)
        if e_bar.params.placements != 0:
            Ia = IA
            for c in range(n):
                Ia = Ia - s.sym6_outer(e.dofs[start + c].U, e.dofs[start + c].U * e.dofs[start + c].Dinv)
            e_bar.links[i].turn = wrench_at(e_bar, picked, K, Ia)
        for c in range(n):
            K = dof_adjoint(e, e_bar, start + c, d + c, picked, K)
        e_bar.links[i].K = K
        turn = wrench_at(e_bar, picked, K, IA)
        for c in range(n):
            e_bar.dofs[start + c].turn = wp.dot(e.dofs[start + c].S, turn)

    @stage
    def delassus_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Gradient of E : A for every joint (turn, kappa) and link (K), root to tips; fills the halves."""
        e_bar.num_halves = 0
        if e_bar.with_E:
            list_halves(e, e_bar)
            e_bar.links[0].K = sym6()
            for i in range(1, e.model.num_links):
                if e.model.joint_type[i] == FREE:
                    free_adjoint(e, e_bar, i)
                else:
                    joint_adjoint(e, e_bar, i)

    return exports(delassus, delassus_adjoint)
