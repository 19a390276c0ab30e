"""Projected Gauss-Seidel for b + A x = 0 with x within bounds: normal >= 0, friction within mu times the normal.

Row r takes steps of -(residual) / a_r, where a_r is A_rr or more (see prepare_contact). `y` holds, for every row, the
value that such a step leads to, but for the impulses of the row's own contact; contacts.G is what those add, and
rows[r], row r of A outside that block, is what a change of x_r does to y: y -= rows[r] d, with no division. Sweeps
start from x = 0.

The adjoint reverses every sweep. Kernels that need it record what each row's step led to before it was projected:
history[sweep, row]; which way a projection went is decided again from these numbers. With x_bar divided by a_r like
y, the reverse of a row's step is omega = -x_bar_r, b_bar_r += omega, x_bar += rows[r] omega: the forward's vectors.
A_bar is b_bar x^T + E; E, from the distance between x at that moment and the final x, vanishes with convergence.
"""

from types import SimpleNamespace

import warp as wp

from ..types import LIMIT, PACK


def make_pgs(t, s):
    real, vec3, mat33, pack = t.real, t.vec3, t.mat33, t.pack
    Model, Contact, JointRow = t.Model, t.Contact, t.JointRow
    ContactBar, JointRowBar = t.ContactBar, t.JointRowBar
    larger, clip = s.larger, s.clip
    recording = t.sizes.sweeps > 0
    single = real == wp.float32
    TINY = wp.constant(real(1e-12 if single else 1e-24))
    VANISHED = wp.constant(real(1e-9 if single else 1e-18))  # adjoints this much smaller than at the start are zero
    NEGLIGIBLE = wp.constant(real(3e-8 if single else 1e-17))  # E this much smaller than b_bar x^T is zero

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
    def record(history: wp.array2d(dtype=real), sweep: int, row: int, value: real):
        if wp.static(recording):
            history[sweep, row] = value

    @wp.func
    def update_contact(
        pyramid: int, contact: wp.ref[Contact], yn: real, yt: real, ys: real, sweep: int, row: int,
        history: wp.array2d(dtype=real),
    ):  # fmt: skip
        """One Gauss-Seidel step of a contact; returns its new impulse, normal and two tangents.

        Three numbers rather than a vec3: that would go through memory, in the middle of the solver's critical path.
        """
        G = contact.G
        x = contact.x
        xn = larger(yn - G[0, 0] * x[0] - (G[0, 1] * x[1] + G[0, 2] * x[2]), real(0.0))
        limit = contact.mu * xn
        xt = yt - G[1, 2] * x[2] - G[1, 1] * x[1] - G[1, 0] * xn
        xs = ys - G[2, 2] * x[2] - G[2, 0] * xn
        record(history, sweep, row, xn)
        record(history, sweep, row + 1, xt)
        if pyramid != 0:
            xt = clip(xt, limit)
            xs = xs - G[2, 1] * xt
            record(history, sweep, row + 2, xs)
            xs = clip(xs, limit)
        else:
            xs = xs - G[2, 1] * x[1]
            record(history, sweep, row + 2, xs)
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
        packs: wp.array(dtype=pack), history: wp.array2d(dtype=real),
    ):  # fmt: skip
        """Impulses contacts.x and joint_rows.x; `packs` is y in packs.

        Returns the number of sweeps, that of those before the impulses came to rest, the last one's largest change.
        """
        count = 3 * num_contacts + num_joint_rows
        num_packs = (count + PACK - 1) / PACK
        sweeps = int(0)
        moving = int(0)
        change = real(0.0)
        while sweeps < model.iterations and count > 0:
            change = real(0.0)
            for k in range(num_joint_rows):
                r = 3 * num_contacts + k
                x = y[r]
                record(history, sweeps, r, x)
                x = wp.where(x > joint_rows[k].low, x, joint_rows[k].low)
                x = wp.where(x < joint_rows[k].high, x, joint_rows[k].high)
                d = x - joint_rows[k].x
                joint_rows[k].x = x
                for c in range(num_packs):
                    packs[c] = packs[c] - rows[r, c] * d
                change = larger(change, wp.abs(d))
            for k in range(num_contacts):
                r = 3 * k
                xn, xt, xs = update_contact(model.pyramid, contacts[k], y[r], y[r + 1], y[r + 2], sweeps, r, history)
                dn = xn - contacts[k].x[0]
                dt = xt - contacts[k].x[1]
                ds = xs - contacts[k].x[2]
                contacts[k].x = vec3(xn, xt, xs)
                for c in range(num_packs):
                    packs[c] = packs[c] - rows[r, c] * dn - rows[r + 1, c] * dt - rows[r + 2, c] * ds
                change = larger(larger(change, wp.abs(dn)), larger(wp.abs(dt), wp.abs(ds)))
            sweeps += 1
            if change > real(0.0):
                moving = sweeps
            if change <= model.tolerance:
                break
        return sweeps, moving, change

    @wp.func
    def impulse_after(pyramid: int, mu: real, history: wp.array2d(dtype=real), sweep: int, r: int):
        """The impulse of the contact with rows r, r + 1, r + 2 after a sweep; zero before the first."""
        xn = real(0.0)
        xt = real(0.0)
        xs = real(0.0)
        if sweep >= 0:
            xn = history[sweep, r]
            xt = history[sweep, r + 1]
            xs = history[sweep, r + 2]
            limit = mu * xn
            if pyramid != 0:
                xt = clip(xt, limit)
                xs = clip(xs, limit)
            else:
                rho2 = xt * xt + xs * xs
                if rho2 > limit * limit:
                    scale = limit / wp.sqrt(rho2)
                    xt = xt * scale
                    xs = xs * scale
        return xn, xt, xs

    @wp.func
    def update_contact_adjoint(
        pyramid: int, contact: wp.ref[Contact], bar: wp.ref[ContactBar], yn: real, yt: real, ys: real, x_bar: vec3
    ):
        """From x_bar after a contact's step (scaled): omega of its rows, and the own part of x_bar before the step.

        yn, yt, ys: what the step led to before the projection.
        """
        G = contact.G
        Ainv = contact.Ainv
        mu = contact.mu
        limit = mu * yn
        tn = x_bar[0]
        tt = x_bar[1]
        ts = x_bar[2]
        on = real(0.0)
        ot = real(0.0)
        os = real(0.0)
        if pyramid != 0:
            if wp.abs(ys) < limit:
                os = -ts
                tn += G[0, 2] * os
                tt += G[1, 2] * os
            else:
                side = wp.sign(ys) * ts * inverse(Ainv[2])
                tn += mu * side * Ainv[0]
                bar.mu = bar.mu + side * yn
            if wp.abs(yt) < limit:
                ot = -tt
                tn += G[0, 1] * ot
            else:
                side = wp.sign(yt) * tt * inverse(Ainv[1])
                tn += mu * side * Ainv[0]
                bar.mu = bar.mu + side * yn
            tt = real(0.0)  # each tangent starts anew, but for what the other one saw of it
            ts = G[2, 1] * ot
        else:
            rho2 = yt * yt + ys * ys
            if rho2 > limit * limit:
                rho = wp.sqrt(rho2)
                et = yt / rho
                es = ys / rho
                along = et * tt + es * ts
                tt = (tt - et * along) * (limit / rho)
                ts = (ts - es * along) * (limit / rho)
                along = along * inverse(Ainv[1])
                tn += mu * along * Ainv[0]
                bar.mu = bar.mu + yn * along
            ot = -tt
            os = -ts
            tn += G[0, 1] * ot + G[0, 2] * os
            tt = G[1, 1] * ot + G[1, 2] * os
            ts = G[2, 1] * ot + G[2, 2] * os
        if yn > real(0.0):
            on = -tn
            tt += G[1, 0] * on
            ts += G[2, 0] * on
        bar.b = bar.b + vec3(on, ot, os)
        return vec3(on, ot, os), vec3(G[0, 0] * on, tt, ts)

    @wp.func
    def share(dx: real, x: real):
        """dx as a part of x, the impulse that it belongs to; a large number if there is none in the end."""
        return wp.where(dx == real(0.0), real(0.0), dx / (x + TINY))

    @wp.func
    def step_back(
        pyramid: int, contact: wp.ref[Contact], sweep: int, r: int, omega: vec3, num_packs: int, moved: real,
        history: wp.array2d(dtype=real), dx: wp.array(dtype=real), dx_packs: wp.array(dtype=pack),
        E: wp.array2d(dtype=real), E_packs: wp.array2d(dtype=pack),
    ):  # fmt: skip
        """Put dx back to before a contact's step and add the step to E; returns how large dx has been beside x.

        The steps' lengths depend on A too: a_n is a multiple of A_nn, the tangents' is 0.6 (A_tt + A_ss) or, in the
        pyramid, their own diagonal.
        """
        x = contact.x
        n0, t0, s0 = impulse_after(pyramid, contact.mu, history, sweep - 1, r)
        dn = n0 - x[0]
        dt = t0 - x[1]
        ds = s0 - x[2]
        dx[r] = dn
        dx[r + 1] = dt
        dx[r + 2] = ds
        for c in range(num_packs):
            d = dx_packs[c]
            E_packs[r, c] = E_packs[r, c] + d * omega[0]
            E_packs[r + 1, c] = E_packs[r + 1, c] + d * omega[1]
            E_packs[r + 2, c] = E_packs[r + 2, c] + d * omega[2]
        # the tangents' step came after the normal's, in the pyramid one after the other
        rise = history[sweep, r] - n0
        E[r + 1, r] = E[r + 1, r] + omega[1] * rise
        E[r + 2, r] = E[r + 2, r] + omega[2] * rise
        to_t = omega[1] * (history[sweep, r + 1] - t0)
        to_s = omega[2] * (history[sweep, r + 2] - s0)
        if pyramid != 0:
            turn = clip(history[sweep, r + 1], contact.mu * history[sweep, r]) - t0
            E[r + 2, r + 1] = E[r + 2, r + 1] + omega[2] * turn
        else:
            to_t = real(0.6) * (to_t + to_s)
            to_s = to_t
        E[r, r] = E[r, r] + omega[0] * rise * inverse(contact.G[0, 0] + real(1.0))
        E[r + 1, r + 1] = E[r + 1, r + 1] + to_t
        E[r + 2, r + 2] = E[r + 2, r + 2] + to_s
        return larger(moved, share(larger(wp.abs(dn), larger(wp.abs(dt), wp.abs(ds))), x[0]))

    @wp.func
    def update_row_adjoint(row: wp.ref[JointRow], bar: wp.ref[JointRowBar], y: real, x_bar: real, scale: real):
        """omega of a joint's row; a row at its bound hands x_bar to the bound."""
        o = real(0.0)
        if y > row.low and y < row.high:
            o = -x_bar
            bar.b = bar.b + o
        elif row.kind != LIMIT:
            bar.bound = bar.bound + wp.where(y >= row.high, x_bar, -x_bar) * inverse(scale)
        return o

    @wp.func
    def solve_adjoint(
        model: Model, num_contacts: int, num_joint_rows: int, sweeps: int, moving: int, rows: wp.array2d(dtype=pack),
        scale: wp.array(dtype=real), contacts: wp.array(dtype=Contact), joint_rows: wp.array(dtype=JointRow),
        history: wp.array2d(dtype=real), x_bar: wp.array(dtype=real), x_bar_packs: wp.array(dtype=pack),
        dx: wp.array(dtype=real), dx_packs: wp.array(dtype=pack), E: wp.array2d(dtype=real),
        E_packs: wp.array2d(dtype=pack), contact_bars: wp.array(dtype=ContactBar),
        joint_row_bars: wp.array(dtype=JointRowBar),
    ):  # fmt: skip
        """Reverse the sweeps, from the scaled x_bar: leaves b_bar in the bars, and E."""
        count = 3 * num_contacts + num_joint_rows
        num_packs = (count + PACK - 1) / PACK
        start = real(0.0)
        for r in range(count):
            start = larger(start, wp.abs(x_bar[r]))
        for c in range(num_packs):
            dx_packs[c] = pack()
            for r in range(count):
                E_packs[r, c] = pack()
        for k in range(num_contacts):
            contact_bars[k].weight = real(0.0)
        for k in range(num_joint_rows):
            joint_row_bars[k].weight = real(0.0)
        moved = real(0.0)
        for n in range(sweeps):
            sweep = sweeps - 1 - n
            largest = real(0.0)
            for m in range(num_contacts):
                k = num_contacts - 1 - m
                r = 3 * k
                o, own = update_contact_adjoint(
                    model.pyramid, contacts[k], contact_bars[k], history[sweep, r], history[sweep, r + 1],
                    history[sweep, r + 2], vec3(x_bar[r], x_bar[r + 1], x_bar[r + 2]),
                )  # fmt: skip
                for c in range(num_packs):
                    x_bar_packs[c] = x_bar_packs[c] + rows[r, c] * o[0] + rows[r + 1, c] * o[1] + rows[r + 2, c] * o[2]
                x_bar[r] = own[0]
                x_bar[r + 1] = own[1]
                x_bar[r + 2] = own[2]
                most = larger(wp.abs(o[0]), larger(wp.abs(o[1]), wp.abs(o[2])))
                if sweep < moving:
                    moved = step_back(
                        model.pyramid, contacts[k], sweep, r, o, num_packs, moved, history, dx, dx_packs, E, E_packs
                    )
                    contact_bars[k].weight = larger(contact_bars[k].weight, most * moved)
                largest = larger(largest, most)
            for m in range(num_joint_rows):
                k = num_joint_rows - 1 - m
                r = 3 * num_contacts + k
                omega = update_row_adjoint(joint_rows[k], joint_row_bars[k], history[sweep, r], x_bar[r], scale[r])
                for c in range(num_packs):
                    x_bar_packs[c] = x_bar_packs[c] + rows[r, c] * omega
                x_bar[r] = real(0.0)
                if sweep < moving:
                    for c in range(num_packs):
                        E_packs[r, c] = E_packs[r, c] + dx_packs[c] * omega
                    before = real(0.0)
                    if sweep > 0:
                        before = history[sweep - 1, r]
                        before = wp.where(before > joint_rows[k].low, before, joint_rows[k].low)
                        before = wp.where(before < joint_rows[k].high, before, joint_rows[k].high)
                    dx[r] = before - joint_rows[k].x
                    moved = larger(moved, share(wp.abs(dx[r]), wp.abs(joint_rows[k].x)))
                    joint_row_bars[k].weight = larger(joint_row_bars[k].weight, wp.abs(omega) * moved)
                largest = larger(largest, wp.abs(omega))
            if largest <= start * VANISHED:
                break  # not only saves time: subnormal numbers are slow

    @wp.func
    def matters(
        num_contacts: int, num_joint_rows: int, contact_bars: wp.array(dtype=ContactBar),
        joint_row_bars: wp.array(dtype=JointRowBar), E: wp.array2d(dtype=real),
    ):  # fmt: skip
        """Whether E is more than rounding beside b_bar x^T; hands its diagonal, the compliances' part, to the bars."""
        found = bool(False)
        for k in range(num_contacts):
            contact_bars[k].E = E[3 * k, 3 * k]
            b = contact_bars[k].b
            if contact_bars[k].weight > NEGLIGIBLE * larger(wp.abs(b[0]), larger(wp.abs(b[1]), wp.abs(b[2]))):
                found = True
        for k in range(num_joint_rows):
            r = 3 * num_contacts + k
            joint_row_bars[k].E = E[r, r]
            if joint_row_bars[k].weight > NEGLIGIBLE * wp.abs(joint_row_bars[k].b):
                found = True
        return found

    return SimpleNamespace(**locals())
