"""Projected Gauss-Seidel for b + A x = 0 with x within bounds: normal >= 0, friction within mu times the normal.

Row r takes steps of -(residual) / a_r, where a_r is A_rr or more (see prepare_contact). `y` holds, for every row, the
value that such a step leads to, but for the impulses of the row's own contact; contacts.G is what those add, and
rows[r], row r of A outside that block, is what a change of x_r does to y: y -= rows[r] d, with no division. Sweeps
start from x = 0.
"""

from types import SimpleNamespace

import warp as wp

from .types import PACK


def make_pgs(t, s):
    real, vec3, mat33, pack = t.real, t.vec3, t.mat33, t.pack
    Model, Contact, JointRow = t.Model, t.Contact, t.JointRow
    larger, clip = s.larger, s.clip
    if real == wp.float32:
        TINY = wp.constant(real(1e-12))
    else:
        TINY = wp.constant(real(1e-24))

    @wp.func
    def inverse(a: real):
        """1 / a; 0 for a row that nothing can move, which then has no impulse."""
        return wp.where(a > TINY, real(1.0) / a, real(0.0))

    @wp.func
    def prepare_contact(pyramid: int, contact: wp.ref[Contact]):
        """Steps of the contact's rows, and its own block divided by them; returns 1 / a.

        Friction on the edge of the cone grows with the normal impulse and pushes back on it, by the factor `jam`. From
        jam = 1 on full steps of the normal row would swing between two values for ever, so it takes shorter ones (by a
        power of two, which is locally constant). The two tangents share one step, so that friction ends up opposite to
        the slip; 0.6 of the trace does not depend on the choice of tangents, and converges for every block, as at
        least half of the larger eigenvalue.
        """
        G = contact.G
        an = G[0, 0]
        at = G[1, 1]
        as_ = G[2, 2]
        if pyramid == 0:
            jam = contact.mu * wp.sqrt(G[0, 1] * G[0, 1] + G[0, 2] * G[0, 2]) + an
            while jam > real(1.75) * an and an > TINY:
                an = an * real(2.0)
            at = real(0.6) * (at + as_)
            as_ = at
        Ainv = vec3(inverse(an), inverse(at), inverse(as_))
        contact.Ainv = Ainv
        contact.G = mat33(
            G[0, 0] * Ainv[0] - real(1.0), G[0, 1] * Ainv[0], G[0, 2] * Ainv[0],
            G[1, 0] * Ainv[1], G[1, 1] * Ainv[1] - real(1.0), G[1, 2] * Ainv[1],
            G[2, 0] * Ainv[2], G[2, 1] * Ainv[2], G[2, 2] * Ainv[2] - real(1.0),
        )  # fmt: skip
        contact.x = vec3()
        return Ainv

    @wp.func
    def prepare(
        model: Model, num_contacts: int, num_joint_rows: int, contacts: wp.array(dtype=Contact),
        joint_rows: wp.array(dtype=JointRow), A: wp.array2d(dtype=real), rows: wp.array2d(dtype=pack),
        scale: wp.array(dtype=real), scale_packs: wp.array(dtype=pack), y_packs: wp.array(dtype=pack),
    ):  # fmt: skip
        """Scale A by columns and turn y, which is b on entry, into the solution for x = 0."""
        count = 3 * num_contacts + num_joint_rows
        num_packs = (count + PACK - 1) / PACK
        for k in range(num_contacts):
            Ainv = prepare_contact(model.pyramid, contacts[k])
            for i in range(3):
                scale[3 * k + i] = Ainv[i]
        for k in range(num_joint_rows):
            r = 3 * num_contacts + k
            scale[r] = inverse(A[r, r])
            A[r, r] = real(0.0)
            joint_rows[k].x = real(0.0)
        for r in range(count, num_packs * PACK):
            scale[r] = real(0.0)
        for c in range(num_packs):
            factor = scale_packs[c]
            y_packs[c] = -wp.cw_mul(y_packs[c], factor)
            for r in range(count):
                rows[r, c] = wp.cw_mul(rows[r, c], factor)

    @wp.func
    def update_contact(pyramid: int, contact: wp.ref[Contact], yn: real, yt: real, ys: real):
        """One Gauss-Seidel step of a contact; returns its new impulse, normal and two tangents.

        Three numbers rather than a vec3: that would go through memory, in the middle of the solver's critical path.
        """
        G = contact.G
        x = contact.x
        xn = larger(yn - G[0, 0] * x[0] - (G[0, 1] * x[1] + G[0, 2] * x[2]), real(0.0))
        limit = contact.mu * xn
        xt = yt - G[1, 2] * x[2] - G[1, 1] * x[1] - G[1, 0] * xn
        xs = ys - G[2, 2] * x[2] - G[2, 0] * xn
        if pyramid != 0:
            xt = clip(xt, limit)
            xs = clip(xs - G[2, 1] * xt, limit)
        else:
            xs = xs - G[2, 1] * x[1]
            rho2 = xt * xt + xs * xs
            if rho2 > limit * limit:
                # the store keeps the compiler from computing root and quotient also for contacts that stick
                scale = limit / wp.sqrt(rho2)
                contact.slip = scale
                xt = xt * scale
                xs = xs * scale
        return xn, xt, xs

    @wp.func
    def solve(
        model: Model, num_contacts: int, num_joint_rows: int, rows: wp.array2d(dtype=pack),
        contacts: wp.array(dtype=Contact), joint_rows: wp.array(dtype=JointRow), y: wp.array(dtype=real),
        packs: wp.array(dtype=pack),
    ):  # fmt: skip
        """Impulses contacts.x and joint_rows.x; `packs` is y in packs. Returns the last sweep's largest change."""
        count = 3 * num_contacts + num_joint_rows
        num_packs = (count + PACK - 1) / PACK
        sweeps = int(0)
        change = real(0.0)
        while sweeps < model.iterations and count > 0:
            change = real(0.0)
            for k in range(num_joint_rows):
                r = 3 * num_contacts + k
                x = y[r]
                x = wp.where(x > joint_rows[k].low, x, joint_rows[k].low)
                x = wp.where(x < joint_rows[k].high, x, joint_rows[k].high)
                d = x - joint_rows[k].x
                joint_rows[k].x = x
                for c in range(num_packs):
                    packs[c] = packs[c] - rows[r, c] * d
                change = larger(change, wp.abs(d))
            for k in range(num_contacts):
                r = 3 * k
                xn, xt, xs = update_contact(model.pyramid, contacts[k], y[r], y[r + 1], y[r + 2])
                dn = xn - contacts[k].x[0]
                dt = xt - contacts[k].x[1]
                ds = xs - contacts[k].x[2]
                contacts[k].x = vec3(xn, xt, xs)
                for c in range(num_packs):
                    packs[c] = packs[c] - rows[r, c] * dn - rows[r + 1, c] * dt - rows[r + 2, c] * ds
                change = larger(larger(change, wp.abs(dn)), larger(wp.abs(dt), wp.abs(ds)))
            sweeps += 1
            if change <= model.tolerance:
                break
        return sweeps, change

    return SimpleNamespace(**locals())
