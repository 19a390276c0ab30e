"""Projected Gauss-Seidel for b + A x = 0 with x within bounds: normal >= 0, friction within mu times the normal.

Row r takes steps of -(residual) / a_r, where a_r is A_rr or more (see prepare_contact). `y` holds, for every row, the
value that such a step leads to, without the impulses of the row's own contact; contacts.G adds those, and
rows[r], row r of A outside that block, is what a change of x_r does to y: y -= rows[r] d, with no division. Sweeps
start from x = 0.

The adjoint reverses every sweep. Kernels that need it record what each row's step led to before it was projected:
history[sweep, row]; which way a projection went is decided again from these numbers. With x_bar divided by a_r like
y, the reverse of a row's step is omega = -x_bar_r, b_bar_r += omega, x_bar += rows[r] omega: the forward's vectors.
A_bar is b_bar x^T + E; E, from the distance between x at that moment and the final x, vanishes with convergence.
"""

import warp as wp

from ..types import LIMIT, PACK, exports, stage


def make_pgs(t, s):
    real, vec3, mat33, pack = t.real, t.vec3, t.mat33, t.pack
    Env, EnvBar, Contact = t.Env, t.EnvBar, t.Contact
    larger, clip = s.larger, s.clip
    recording = t.sizes.sweeps > 0
    single = real == wp.float32
    TINY = wp.constant(real(1e-12 if single else 1e-24))
    VANISHED = wp.constant(real(1e-9 if single else 1e-18))  # adjoints this much smaller than at the start are zero
    NEGLIGIBLE = wp.constant(real(1.2e-7 if single else 1e-17))  # E this much smaller than b_bar x^T is rounding

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
    def packs(e: wp.ref[Env]):
        """Packs that hold all rows."""
        return (3 * e.num_contacts + e.num_joint_rows + PACK - 1) / PACK

    @wp.func
    def prepare(e: wp.ref[Env]):
        """Scale A by columns and turn y, which is b on entry, into the solution for x = 0."""
        count = 3 * e.num_contacts + e.num_joint_rows
        num_packs = packs(e)
        for k in range(e.num_contacts):
            Ainv = prepare_contact(e.model.pyramid, e.contacts[k])
            for i in range(3):
                e.scale[3 * k + i] = Ainv[i]
        for k in range(e.num_joint_rows):
            r = 3 * e.num_contacts + k
            e.scale[r] = inverse(e.A[r, r])
            e.A[r, r] = real(0.0)
            e.joint_rows[k].x = real(0.0)
        for r in range(count, num_packs * PACK):
            e.scale[r] = real(0.0)
        for c in range(num_packs):
            factor = e.scale_packs[c]
            e.y_packs[c] = -wp.cw_mul(e.y_packs[c], factor)
            for r in range(count):
                e.rows[r, c] = wp.cw_mul(e.rows[r, c], factor)

    @wp.func
    def record(e: wp.ref[Env], sweep: int, row: int, value: real):
        if wp.static(recording):
            e.history[sweep, row] = value

    @wp.func
    def update_contact(e: wp.ref[Env], contact: wp.ref[Contact], r: int, sweep: int):
        """One Gauss-Seidel step of the contact with rows r, r + 1, r + 2; returns its new impulse, normal and tangents.

        Three numbers rather than a vec3: that would go through memory, in the middle of the solver's critical path.
        """
        G = contact.G
        x = contact.x
        xn = larger(e.y[r] - G[0, 0] * x[0] - (G[0, 1] * x[1] + G[0, 2] * x[2]), real(0.0))
        limit = contact.mu * xn
        xt = e.y[r + 1] - G[1, 2] * x[2] - G[1, 1] * x[1] - G[1, 0] * xn
        xs = e.y[r + 2] - G[2, 2] * x[2] - G[2, 0] * xn
        record(e, sweep, r, xn)
        record(e, sweep, r + 1, xt)
        if e.model.pyramid != 0:
            xt = clip(xt, limit)
            xs = xs - G[2, 1] * xt
            record(e, sweep, r + 2, xs)
            xs = clip(xs, limit)
        else:
            xs = xs - G[2, 1] * x[1]
            record(e, sweep, r + 2, xs)
            rho2 = xt * xt + xs * xs
            if rho2 > limit * limit:
                # the store keeps the compiler from computing root and quotient also for contacts that stick
                scale = limit / wp.sqrt(rho2)
                contact.slip = scale
                xt = xt * scale
                xs = xs * scale
        return xn, xt, xs

    @wp.func
    def within(e: wp.ref[Env], k: int, x: real):
        """x within the bounds of a joint's row."""
        x = wp.where(x > e.joint_rows[k].low, x, e.joint_rows[k].low)
        return wp.where(x < e.joint_rows[k].high, x, e.joint_rows[k].high)

    @stage
    def solve(e: wp.ref[Env]):
        """Impulses contacts.x and joint_rows.x from A and y = b; sweeps, moving and change say how it went."""
        prepare(e)
        count = 3 * e.num_contacts + e.num_joint_rows
        num_packs = packs(e)
        sweeps = int(0)
        moving = int(0)
        change = real(0.0)
        while sweeps < e.model.iterations and count > 0:
            last = change
            change = real(0.0)
            largest = real(0.0)
            for k in range(e.num_joint_rows):
                r = 3 * e.num_contacts + k
                x = e.y[r]
                record(e, sweeps, r, x)
                x = within(e, k, x)
                d = x - e.joint_rows[k].x
                e.joint_rows[k].x = x
                for c in range(num_packs):
                    e.y_packs[c] = e.y_packs[c] - e.rows[r, c] * d
                change = larger(change, wp.abs(d))
                largest = larger(largest, wp.abs(x))
            for k in range(e.num_contacts):
                r = 3 * k
                xn, xt, xs = update_contact(e, e.contacts[k], r, sweeps)
                dn = xn - e.contacts[k].x[0]
                dt = xt - e.contacts[k].x[1]
                ds = xs - e.contacts[k].x[2]
                e.contacts[k].x = vec3(xn, xt, xs)
                for c in range(num_packs):
                    e.y_packs[c] = e.y_packs[c] - e.rows[r, c] * dn - e.rows[r + 1, c] * dt - e.rows[r + 2, c] * ds
                change = larger(larger(change, wp.abs(dn)), larger(wp.abs(dt), wp.abs(ds)))
                largest = larger(largest, xn)
            sweeps += 1
            if change > real(0.0):
                moving = sweeps
            if change <= e.model.tolerance:
                break
            # rounding can make the last bits alternate for ever, and a warp waits for its slowest robot
            if sweeps > 1 and change >= last and change <= e.model.rounding * largest:
                break
        e.sweeps = sweeps
        e.moving = moving
        e.change = change

    @wp.func
    def impulse_after(e: wp.ref[Env], k: int, sweep: int):
        """The impulse of contact k after a sweep; zero before the first."""
        r = 3 * k
        xn = real(0.0)
        xt = real(0.0)
        xs = real(0.0)
        if sweep >= 0:
            xn = e.history[sweep, r]
            xt = e.history[sweep, r + 1]
            xs = e.history[sweep, r + 2]
            limit = e.contacts[k].mu * xn
            if e.model.pyramid != 0:
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
    def update_contact_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, sweep: int):
        """From x_bar after a contact's step (scaled): omega of its rows, and the own part of x_bar before the step."""
        r = 3 * k
        G = e.contacts[k].G
        Ainv = e.contacts[k].Ainv
        mu = e.contacts[k].mu
        # what the step led to before the projection
        yn = e.history[sweep, r]
        yt = e.history[sweep, r + 1]
        ys = e.history[sweep, r + 2]
        mu_bar = real(0.0)
        limit = mu * yn
        tn = e_bar.x[r]
        tt = e_bar.x[r + 1]
        ts = e_bar.x[r + 2]
        on = real(0.0)
        ot = real(0.0)
        os = real(0.0)
        if e.model.pyramid != 0:
            if wp.abs(ys) < limit:
                os = -ts
                tn += G[0, 2] * os
                tt += G[1, 2] * os
            else:
                side = wp.sign(ys) * ts * inverse(Ainv[2])
                tn += mu * side * Ainv[0]
                mu_bar += side * yn
            if wp.abs(yt) < limit:
                ot = -tt
                tn += G[0, 1] * ot
            else:
                side = wp.sign(yt) * tt * inverse(Ainv[1])
                tn += mu * side * Ainv[0]
                mu_bar += side * yn
            tt = real(0.0)  # each tangent starts from zero, except for what the other one saw of it
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
                mu_bar += yn * along
            ot = -tt
            os = -ts
            tn += G[0, 1] * ot + G[0, 2] * os
            tt = G[1, 1] * ot + G[1, 2] * os
            ts = G[2, 1] * ot + G[2, 2] * os
        if yn > real(0.0):
            on = -tn
            tt += G[1, 0] * on
            ts += G[2, 0] * on
        e_bar.contacts[k].mu = e_bar.contacts[k].mu + mu_bar
        e_bar.contacts[k].b = e_bar.contacts[k].b + vec3(on, ot, os)
        return vec3(on, ot, os), vec3(G[0, 0] * on, tt, ts)

    @wp.func
    def share(dx: real, x: real):
        """dx as a share of x, the final impulse; a large number if that is zero."""
        return wp.where(dx == real(0.0), real(0.0), dx / (x + TINY))

    @wp.func
    def step_back(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, sweep: int, omega: vec3, num_packs: int):
        """Put dx back to before a contact's step and add the step to E; returns dx as a share of x.

        The steps' lengths depend on A too: a_n is a multiple of A_nn, the tangents' is 0.6 (A_tt + A_ss) or, in the
        pyramid, their own diagonal.
        """
        r = 3 * k
        x = e.contacts[k].x
        n0, t0, s0 = impulse_after(e, k, sweep - 1)
        dn = n0 - x[0]
        dt = t0 - x[1]
        ds = s0 - x[2]
        e_bar.dx[r] = dn
        e_bar.dx[r + 1] = dt
        e_bar.dx[r + 2] = ds
        for c in range(num_packs):
            d = e_bar.dx_packs[c]
            e_bar.E_packs[r, c] = e_bar.E_packs[r, c] + d * omega[0]
            e_bar.E_packs[r + 1, c] = e_bar.E_packs[r + 1, c] + d * omega[1]
            e_bar.E_packs[r + 2, c] = e_bar.E_packs[r + 2, c] + d * omega[2]
        # the tangents' step came after the normal's, in the pyramid one after the other
        rise = e.history[sweep, r] - n0
        e_bar.E[r + 1, r] = e_bar.E[r + 1, r] + omega[1] * rise
        e_bar.E[r + 2, r] = e_bar.E[r + 2, r] + omega[2] * rise
        to_t = omega[1] * (e.history[sweep, r + 1] - t0)
        to_s = omega[2] * (e.history[sweep, r + 2] - s0)
        if e.model.pyramid != 0:
            turn = clip(e.history[sweep, r + 1], e.contacts[k].mu * e.history[sweep, r]) - t0
            e_bar.E[r + 2, r + 1] = e_bar.E[r + 2, r + 1] + omega[2] * turn
        else:
            to_t = real(0.6) * (to_t + to_s)
            to_s = to_t
        e_bar.E[r, r] = e_bar.E[r, r] + omega[0] * rise * inverse(e.contacts[k].G[0, 0] + real(1.0))
        e_bar.E[r + 1, r + 1] = e_bar.E[r + 1, r + 1] + to_t
        e_bar.E[r + 2, r + 2] = e_bar.E[r + 2, r + 2] + to_s
        return share(larger(wp.abs(dn), larger(wp.abs(dt), wp.abs(ds))), x[0])

    @wp.func
    def update_row_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, sweep: int):
        """omega of a joint's row; a row at its bound passes x_bar to the bound."""
        r = 3 * e.num_contacts + k
        y = e.history[sweep, r]
        x_bar = e_bar.x[r]
        omega = real(0.0)
        if y > e.joint_rows[k].low and y < e.joint_rows[k].high:
            omega = -x_bar
            e_bar.joint_rows[k].b = e_bar.joint_rows[k].b + omega
        elif e.joint_rows[k].kind != LIMIT:
            bound_bar = wp.where(y >= e.joint_rows[k].high, x_bar, -x_bar) * inverse(e.scale[r])
            e_bar.joint_rows[k].bound = e_bar.joint_rows[k].bound + bound_bar
        return omega

    @wp.func
    def matters(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Whether E is more than rounding compared with b_bar x^T; its diagonal, for cfm, goes to the bars."""
        found = bool(False)
        for k in range(e.num_contacts):
            e_bar.contacts[k].E = e_bar.E[3 * k, 3 * k]
            b = e_bar.contacts[k].b
            if e_bar.contacts[k].weight > NEGLIGIBLE * larger(wp.abs(b[0]), larger(wp.abs(b[1]), wp.abs(b[2]))):
                found = True
        for k in range(e.num_joint_rows):
            r = 3 * e.num_contacts + k
            e_bar.joint_rows[k].E = e_bar.E[r, r]
            if e_bar.joint_rows[k].weight > NEGLIGIBLE * wp.abs(e_bar.joint_rows[k].b):
                found = True
        e_bar.with_E = found

    @stage
    def solve_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Reverse the sweeps, from the scaled x_bar: leaves b_bar in the bars, E, and whether E matters."""
        count = 3 * e.num_contacts + e.num_joint_rows
        num_packs = packs(e)
        start = real(0.0)
        for r in range(count):
            start = larger(start, wp.abs(e_bar.x[r]))
        for c in range(num_packs):
            e_bar.dx_packs[c] = pack()
            for r in range(count):
                e_bar.E_packs[r, c] = pack()
        for k in range(e.num_contacts):
            e_bar.contacts[k].weight = real(0.0)
        for k in range(e.num_joint_rows):
            e_bar.joint_rows[k].weight = real(0.0)
        moved = real(0.0)
        for n in range(e.sweeps):
            sweep = e.sweeps - 1 - n
            largest = real(0.0)
            for m in range(e.num_contacts):
                k = e.num_contacts - 1 - m
                r = 3 * k
                o, own = update_contact_adjoint(e, e_bar, k, sweep)
                for c in range(num_packs):
                    e_bar.x_packs[c] = (
                        e_bar.x_packs[c] + e.rows[r, c] * o[0] + e.rows[r + 1, c] * o[1] + e.rows[r + 2, c] * o[2]
                    )
                e_bar.x[r] = own[0]
                e_bar.x[r + 1] = own[1]
                e_bar.x[r + 2] = own[2]
                most = larger(wp.abs(o[0]), larger(wp.abs(o[1]), wp.abs(o[2])))
                if sweep < e.moving:
                    moved = larger(moved, step_back(e, e_bar, k, sweep, o, num_packs))
                    e_bar.contacts[k].weight = larger(e_bar.contacts[k].weight, most * moved)
                largest = larger(largest, most)
            for m in range(e.num_joint_rows):
                k = e.num_joint_rows - 1 - m
                r = 3 * e.num_contacts + k
                omega = update_row_adjoint(e, e_bar, k, sweep)
                for c in range(num_packs):
                    e_bar.x_packs[c] = e_bar.x_packs[c] + e.rows[r, c] * omega
                e_bar.x[r] = real(0.0)
                if sweep < e.moving:
                    for c in range(num_packs):
                        e_bar.E_packs[r, c] = e_bar.E_packs[r, c] + e_bar.dx_packs[c] * omega
                    before = real(0.0)
                    if sweep > 0:
                        before = within(e, k, e.history[sweep - 1, r])
                    e_bar.dx[r] = before - e.joint_rows[k].x
                    moved = larger(moved, share(wp.abs(e_bar.dx[r]), wp.abs(e.joint_rows[k].x)))
                    e_bar.joint_rows[k].weight = larger(e_bar.joint_rows[k].weight, wp.abs(omega) * moved)
                largest = larger(largest, wp.abs(omega))
            if largest <= start * VANISHED:
                break  # not only saves time: subnormal numbers are slow
        matters(e, e_bar)

    return exports(solve, solve_adjoint)
