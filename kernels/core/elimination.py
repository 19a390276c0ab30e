"""Equality rows (ties.py) are eliminated exactly before the contact solver runs, and solved for after it.

With e the ties' rows, c all others, and A_ee + cfm = L L^T, Y = L^-1 A_ec, y = L^-1 b_e:
    A' = A_cc - Y^T Y,   b' = b_c - Y^T y,   x_c = PGS(A', b'),   x_e = -L^-T (y + Y x_c)
As plain rows of the solver, loops of light links would take hundreds of sweeps.

Adjoint: the solver is reversed from x_c_bar - Y^T L^-1 x_e_bar, which gives b_c_bar and E'; then
    b_e_bar = -L^-T (L^-1 x_e_bar + Y b_c_bar),   A_bar = b_bar x^T + P E' P^T   with P = [1; -G], G = L^-T Y
so all that follows is as without ties, with longer b_bar, x and E.

Where ties lock the direction of a row, A'_rr is rounding and compliance. Such rows take no impulse (FLOOR).
"""

import warp as wp

from ..types import PACK, TENDON_LIMIT, exports, stage

FLOOR = 3e-5  # of A_rr


def make_elimination(t, s):
    real, vec3, vec6, Env, EnvBar = t.real, t.vec3, t.vec6, t.Env, t.EnvBar
    SIDES = wp.constant(t.sizes.sides)
    LOCKED = wp.constant(real(FLOOR))

    @wp.func
    def side_product(e: wp.ref[Env], row: int, link: int, side: int):
        """Entries of A between a tie's row and one side of a contact, on a link."""
        g = vec3()
        free = e.model.free_dof[link]
        if free >= 0:
            u = vec6(
                e.tie_u[row, free], e.tie_u[row, free + 1], e.tie_u[row, free + 2],
                e.tie_u[row, free + 3], e.tie_u[row, free + 4], e.tie_u[row, free + 5],
            )  # fmt: skip
            f = u @ e.paths.root[side].uD
            g = vec3(f[0], f[1], f[2])
        for d in range(e.model.depth[link]):
            g += e.paths.uD[side, d] * e.tie_u[row, e.model.chain[link, d]]
        return g

    @wp.func
    def contact_product(e: wp.ref[Env], row: int, k: int):
        g = side_product(e, row, e.contacts[k].link_a, SIDES * k)
        if wp.static(t.sizes.sides == 2):
            g += side_product(e, row, e.contacts[k].link_b, SIDES * k + 1)
        return g

    @wp.func
    def tie_product(e: wp.ref[Env], row: int, other: int):
        a = real(0.0)
        for j in range(e.model.num_dofs):
            a += e.tie_u[row, j] * e.tie_u[other, j] * e.dofs[j].Dinv
        return a

    @wp.func
    def joint_product(e: wp.ref[Env], row: int, k: int):
        """Entry of A between a tie's row and joint row k."""
        a = real(0.0)
        if e.joint_rows[k].kind >= TENDON_LIMIT:
            a = tie_product(e, row, e.joint_rows[k].dof)
        else:
            link = e.joint_rows[k].link
            free = e.model.free_dof[link]
            if free >= 0:
                for d in range(6):
                    a += e.tie_u[row, free + d] * e.joint_paths.root[k].uD[d, 0]
            for d in range(e.model.depth[link]):
                j = e.model.chain[link, d]
                a += e.tie_u[row, j] * e.joint_paths.u[k, d][0] * e.dofs[j].Dinv
        return a

    @wp.func
    def add_bounded(e: wp.ref[Env]):
        """Entries of A of the joint rows that are tendons'; delassus.py has left zeros."""
        first = 3 * e.num_contacts
        for k in range(e.num_joint_rows):
            if e.joint_rows[k].kind >= TENDON_LIMIT:
                row = e.joint_rows[k].dof
                r = first + k
                for l in range(e.num_contacts):
                    g = contact_product(e, row, l)
                    for c in range(3):
                        e.A[r, 3 * l + c] = g[c]
                        e.A[3 * l + c, r] = g[c]
                for l in range(e.num_joint_rows):
                    a = joint_product(e, row, l)
                    if l == k:
                        a += e.joint_rows[k].cfm
                    e.A[r, first + l] = a
                    e.A[first + l, r] = a

    @wp.func
    def factorise(e: wp.ref[Env], count: int):
        """L, Y and y from A and b."""
        columns = (count + PACK - 1) / PACK * PACK
        for r in range(e.num_tie_rows):
            for k in range(e.num_contacts):
                g = contact_product(e, r, k)
                for c in range(3):
                    e.tie_Y[r, 3 * k + c] = g[c]
            for k in range(e.num_joint_rows):
                e.tie_Y[r, 3 * e.num_contacts + k] = joint_product(e, r, k)
            for c in range(count, columns):
                e.tie_Y[r, c] = real(0.0)
            for o in range(r + 1):
                a = tie_product(e, r, o)
                if o == r:
                    a += e.tie_cfm[r]
                for n in range(o):
                    a -= e.tie_L[r, n] * e.tie_L[o, n]
                if o == r:
                    # in exact arithmetic a pivot is never smaller
                    a = wp.sqrt(s.larger(a, e.tie_cfm[r]))
                else:
                    a = a / e.tie_L[o, o]
                e.tie_L[r, o] = a
            y = e.tie_y[r]
            for o in range(r):
                f = e.tie_L[r, o]
                y -= f * e.tie_y[o]
                for c in range(count):
                    e.tie_Y[r, c] = e.tie_Y[r, c] - f * e.tie_Y[o, c]
            f = real(1.0) / e.tie_L[r, r]
            e.tie_y[r] = y * f
            for c in range(count):
                e.tie_Y[r, c] = e.tie_Y[r, c] * f

    @wp.func
    def reduce_contact(e: wp.ref[Env], k: int):
        """Move what A' has in a contact's own block to contacts.G, and let go of directions that ties lock."""
        r = 3 * k
        G = e.contacts[k].G
        normal = G[0, 0] * LOCKED
        tangents = (G[1, 1] + G[2, 2]) * LOCKED
        for a in range(3):
            for c in range(3):
                G[a, c] = G[a, c] + e.A[r + a, r + c]
                e.A[r + a, r + c] = real(0.0)
        if G[0, 0] < normal:
            for a in range(3):
                G[0, a] = real(0.0)
                G[a, 0] = real(0.0)
        if G[1, 1] + G[2, 2] < tangents:
            for a in range(3):
                G[1, a] = real(0.0)
                G[2, a] = real(0.0)
                G[a, 1] = real(0.0)
                G[a, 2] = real(0.0)
        e.contacts[k].G = G

    @stage
    def eliminate(e: wp.ref[Env]):
        """A and b of the contact problem become A' and b'."""
        add_bounded(e)
        count = 3 * e.num_contacts + e.num_joint_rows
        factorise(e, count)
        for k in range(e.num_joint_rows):
            e.scale[3 * e.num_contacts + k] = e.A[3 * e.num_contacts + k, 3 * e.num_contacts + k] * LOCKED
        for r in range(e.num_tie_rows):
            for i in range(count):
                f = e.tie_Y[r, i]
                e.y[i] = e.y[i] - f * e.tie_y[r]
                if f != real(0.0):
                    for c in range(count):
                        e.A[i, c] = e.A[i, c] - f * e.tie_Y[r, c]
        for k in range(e.num_contacts):
            reduce_contact(e, k)
        for r in range(3 * e.num_contacts, count):
            if e.A[r, r] < e.scale[r]:
                e.A[r, r] = real(0.0)

    @wp.func
    def substitute_back(e: wp.ref[Env], x: wp.array(dtype=real)):
        """L^-T x, in place."""
        for n in range(e.num_tie_rows):
            r = e.num_tie_rows - 1 - n
            a = x[r]
            for o in range(r + 1, e.num_tie_rows):
                a -= e.tie_L[o, r] * x[o]
            x[r] = a / e.tie_L[r, r]

    @stage
    def solve_ties(e: wp.ref[Env]):
        """Impulses of the ties, once those of the other rows are known."""
        for r in range(e.num_tie_rows):
            a = e.tie_y[r]
            for k in range(e.num_contacts):
                x = e.contacts[k].x
                a += e.tie_Y[r, 3 * k] * x[0] + e.tie_Y[r, 3 * k + 1] * x[1] + e.tie_Y[r, 3 * k + 2] * x[2]
            for k in range(e.num_joint_rows):
                a += e.tie_Y[r, 3 * e.num_contacts + k] * e.joint_rows[k].x
            e.tie_x[r] = -a
        substitute_back(e, e.tie_x)

    @stage
    def solve_ties_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """From the adjoint of the ties' impulses to that of the others', which is scaled; leaves L^-1 x_e_bar."""
        for r in range(e.num_tie_rows):
            a = e_bar.tie_x[r]
            for o in range(r):
                a -= e.tie_L[r, o] * e_bar.tie_x[o]
            a = a / e.tie_L[r, r]
            e_bar.tie_x[r] = a
            for c in range(3 * e.num_contacts + e.num_joint_rows):
                e_bar.x[c] = e_bar.x[c] - e.scale[c] * e.tie_Y[r, c] * a

    @wp.func
    def extend_E(e: wp.ref[Env], e_bar: wp.ref[EnvBar], count: int):
        """Rows and columns of P E' P^T that belong to ties; they come last."""
        for n in range(e.num_tie_rows):
            r = e.num_tie_rows - 1 - n
            for c in range(count):
                a = e.tie_Y[r, c]
                for o in range(r + 1, e.num_tie_rows):
                    a -= e.tie_L[o, r] * e_bar.tie_G[o, c]
                e_bar.tie_G[r, c] = a / e.tie_L[r, r]
        for r in range(e.num_tie_rows):
            for c in range(count):
                row = real(0.0)
                column = real(0.0)
                for o in range(count):
                    row += e_bar.tie_G[r, o] * e_bar.E[o, c]
                    column += e_bar.tie_G[r, o] * e_bar.E[c, o]
                e_bar.E[count + r, c] = -row
                e_bar.E[c, count + r] = -column
        for r in range(e.num_tie_rows):
            for o in range(e.num_tie_rows):
                a = real(0.0)
                for c in range(count):
                    a -= e_bar.E[count + r, c] * e_bar.tie_G[o, c]
                e_bar.E[count + r, count + o] = a

    @stage
    def eliminate_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """After the solver's: b_bar and E of the ties."""
        count = 3 * e.num_contacts + e.num_joint_rows
        for r in range(e.num_tie_rows):
            a = e_bar.tie_x[r]
            for k in range(e.num_contacts):
                b = e_bar.contacts[k].b
                a += e.tie_Y[r, 3 * k] * b[0] + e.tie_Y[r, 3 * k + 1] * b[1] + e.tie_Y[r, 3 * k + 2] * b[2]
            for k in range(e.num_joint_rows):
                a += e.tie_Y[r, 3 * e.num_contacts + k] * e_bar.joint_rows[k].b
            e_bar.tie_b[r] = -a
        substitute_back(e, e_bar.tie_b)
        if e_bar.with_E:
            extend_E(e, e_bar, count)
        for r in range(e.num_tie_rows):
            e_bar.tie_E[r] = real(0.0)
            if e_bar.with_E:
                e_bar.tie_E[r] = e_bar.E[count + r, count + r]

    return exports(eliminate, solve_ties, solve_ties_adjoint, eliminate_adjoint)
