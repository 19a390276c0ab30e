"""Steps that impacts interrupt, so that gradients follow the time of an impact; docs/gradients.md has the derivation.

Semi-implicit Euler is the leapfrog method: rates lag half a step behind positions. With D the change of the rates in an
evaluation over the full h, it stands for the path, t after the start of an interval,
    v(t) = v + (lead + t) / h D        q(t) = q (+) t (v + (lead + t / 2) / h D)
where lead is h / 2 at the start of a step and 0 after an impact. If a gap that is not a row closes on the path before
the step is over, the state is taken there, the impact is solved in an instant, and one more evaluation gives the path
of the rest. Stages of a step: even ones are evaluations of motion, odd ones impacts. A gap that is found in penetration
closes at a time before the interval: the state is taken back to it.

In the adjoint the time tau of an impact is a function of the gap: z + J d = 0 with d the displacement until then.
"""

import warp as wp

from ..types import HIT_LIMIT, LIMIT, NOTHING, exports, stage


def make_impacts(t, s, gaps, integrate, rows):
    real, vec3, Env, EnvBar, Contact = t.real, t.vec3, t.Env, t.EnvBar, t.Contact
    rate = integrate.rate
    LAST = wp.constant(2 * t.sizes.impacts)  # stage that nothing interrupts
    GRAZING = wp.constant(real(1e-3))  # of the slowest impact: slower ones do not make gradients larger

    @wp.func
    def begin(e: wp.ref[Env]):
        """Start a step from e.q and e.qd."""
        e.start_q = e.q
        e.start_qd = e.qd
        e.stage = 0
        e.rest = e.h
        e.num_marks = 0
        e.model.dt = e.h

    @wp.func
    def lead(e: wp.ref[Env]):
        return wp.where(e.stage == 0, real(0.5) * e.h, real(0.0))

    @wp.func
    def closes(e: wp.ref[Env], z: real, v: real, dv: real):
        """When a gap closes whose rate is v and changes by dv over h; infinite if it does not, never before -h."""
        w = v + lead(e) / e.h * dv
        time = real(wp.inf)
        square = w * w - real(2.0) * z * dv / e.h
        if square > real(0.0) and z < real(wp.inf):  # a joint without a limit on this side
            both = wp.sqrt(square) - w
            if both > real(0.0) and (z > real(0.0) or w < real(0.0)):
                time = wp.max(real(2.0) * z / both, -e.h)
        return time

    @wp.func
    def normal_rates(e: wp.ref[Env], contact: wp.ref[Contact]):
        """Rate of a contact's gap, and its change over the step."""
        p = contact.p
        o = p + contact.shift
        a = contact.link_a
        b = contact.link_b
        v = wp.dot(contact.n, s.velocity_at(e.links[a].v, p) - s.velocity_at(e.links[b].v, o))
        dv = wp.dot(contact.n, s.velocity_at(e.links[a].dv, p) - s.velocity_at(e.links[b].dv, o))
        return v, dv

    @wp.func
    def limit_arrival(e: wp.ref[Env], dof: int, sign: real):
        """Let a limit end the interval if it is reached before e.tau."""
        gap = gaps.limit_gap(e, dof, sign)
        time = closes(e, gap, sign * e.qd[dof], sign * e.dofs[dof].dqd)
        if time < e.tau:
            row = bool(False)
            for k in range(e.num_joint_rows):
                if e.joint_rows[k].kind == LIMIT and e.joint_rows[k].dof == dof:
                    row = row or e.joint_rows[k].sign == sign
            if not row:
                e.tau = time
                e.hit = HIT_LIMIT
                e.hit_pair = -1
                e.hit_feature = gaps.limit_code(dof, sign)

    @wp.func
    def limit_sign(e: wp.ref[Env]):
        """Of the limit that ends the interval."""
        return real(1 - 2 * (e.hit_feature % 2))

    @wp.func
    def arrival(e: wp.ref[Env]):
        """Find the first gap that closes on the path of the interval, if any: tau and hit."""
        e.hit = NOTHING
        e.tau = e.rest
        press = real(0.0)
        if e.stage < LAST:
            for k in range(e.num_contacts, e.num_near):
                v, dv = normal_rates(e, e.contacts[k])
                time = closes(e, e.contacts[k].z, v, dv)
                if time < e.tau:
                    press = -dv
                    e.tau = time
                    e.hit = k
                    e.hit_pair = e.contacts[k].pair
                    e.hit_feature = e.contacts[k].feature
            for n in range(e.model.num_limited):
                limit_arrival(e, e.model.limited[n], real(1.0))
                limit_arrival(e, e.model.limited[n], real(-1.0))
            if e.hit == HIT_LIMIT:
                press = -limit_sign(e) * e.dofs[e.hit_feature // 2].dqd
        e.stages[e.stage].press = real(3.0) * press

    @wp.func
    def speed(e: wp.ref[Env]):
        """At which the gap closes that ends the interval."""
        end = (lead(e) + e.tau) / e.h
        v = real(0.0)
        if e.hit >= 0:
            w, dw = normal_rates(e, e.contacts[e.hit])
            v = w + end * dw
        else:
            v = limit_sign(e) * rate(e, e.hit_feature // 2, end)
        return -v

    @wp.func
    def duration(e: wp.ref[Env]):
        """Of the interval, as a share of the step; 1 at an impact."""
        share = real(1.0)
        if not t.at_impact(e):
            share = wp.where(e.hit != NOTHING, e.tau, e.rest) / e.h
        return share

    @wp.func
    def mark_rows(e: wp.ref[Env]):
        """What takes part in an impact stays a row after it."""
        impact = e.stage // 2
        for k in range(e.num_contacts):
            e.marks[impact, k].pair = e.contacts[k].pair
            e.marks[impact, k].feature = e.contacts[k].feature
        for k in range(e.num_joint_rows):
            e.marks[impact, e.num_contacts + k].pair = -1
            e.marks[impact, e.num_contacts + k].feature = gaps.limit_code(e.joint_rows[k].dof, e.joint_rows[k].sign)
        e.num_marks = e.num_contacts + e.num_joint_rows

    @wp.func
    def enter_impact(e: wp.ref[Env], impact: int):
        """Place and rates of an impact are known: make it what is evaluated next."""
        e.stage = 2 * impact + 1
        e.hit = NOTHING
        e.model.dt = real(1.0)
        e.q = e.stage_q[impact]
        e.qd = e.stage_qd[2 * impact]
        e.marks[impact, 0].pair = e.stages[2 * impact].pair
        e.marks[impact, 0].feature = e.stages[2 * impact].feature
        e.num_marks = 1

    @wp.func
    def enter_motion(e: wp.ref[Env], impact: int):
        """The same for the motion after an impact."""
        e.stage = 2 * impact + 2
        e.model.dt = e.h
        e.q = e.stage_q[impact]
        e.qd = e.stage_qd[2 * impact + 1]

    @stage
    def interrupted(e: wp.ref[Env]):
        """After an evaluation: prepares the next one of the same step and returns True, or False if it was the last."""
        more = bool(False)
        n = e.stage // 2
        if t.at_impact(e):
            mark_rows(e)
            for j in range(e.model.num_dofs):
                e.stage_qd[e.stage, j] = rate(e, j, real(1.0))
            enter_motion(e, n)
            more = True
        else:
            arrival(e)
            e.stages[e.stage].rest = e.rest
            e.stages[e.stage].num_marks = e.num_marks
            if e.hit != NOTHING:
                e.stages[e.stage].pair = e.hit_pair
                e.stages[e.stage].feature = e.hit_feature
                ahead = lead(e) + e.tau
                integrate.move(e, e.stage_q[n], e.tau, (ahead - real(0.5) * e.tau) / e.h)
                for j in range(e.model.num_dofs):
                    e.stage_qd[e.stage, j] = rate(e, j, ahead / e.h)
                e.rest = e.rest - e.tau
                enter_impact(e, n)
                more = True
        return more

    @wp.func
    def settles(e: wp.ref[Env], j: int):
        """True for a joint whose rate after an impact is stopped by more than half within the step.

        Dry friction or a stiff drive does that in a time that the step does not resolve. On the path its displacement
        would depend on when the impact happens; it takes the new rate throughout instead.
        """
        return e.model.dof_q[j] >= 0 and e.qd[j] * e.dofs[j].dqd < real(-0.5) * e.qd[j] * e.qd[j]

    @stage
    def finish(e: wp.ref[Env], q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real)):
        """The next state, once nothing interrupts the step; q_next may be q, and qd_next qd."""
        if e.stage == 0:
            integrate.integrate(e, q_next, qd_next)
        else:
            share = e.rest / e.h
            integrate.move(e, q_next, e.rest, real(0.5) * share)
            for j in range(e.model.num_dofs):
                if settles(e, j):
                    q_next[e.model.dof_q[j]] = e.q[e.model.dof_q[j]] + e.rest * rate(e, j, real(1.0))
                qd_next[j] = rate(e, j, share - real(0.5))
        e.stage = 0

    @wp.func
    def previous(e: wp.ref[Env]):
        """Back to the stage before."""
        n = (e.stage - 1) // 2
        if not t.at_impact(e):
            enter_impact(e, n)
        else:
            if n == 0:
                e.stage = 0
                e.model.dt = e.h
                e.q = e.start_q
                e.qd = e.start_qd
            else:
                enter_motion(e, n - 1)
            e.rest = e.stages[e.stage].rest
            e.num_marks = e.stages[e.stage].num_marks

    @wp.func
    def share_out(e_bar: wp.ref[EnvBar], j: int, time: real, mean: real, end: real):
        """Adjoints of displacement (extra) and rate at the end (qd) of a dof, to D (qd) and to the start (extra).

        The displacement is time (v + mean D), the rate is v + end D. evaluate_adjoint takes D's adjoint for that of
        v + D, and so counts it for v too.
        """
        d_bar = e_bar.extra[j]
        v_bar = e_bar.qd[j]
        change_bar = time * mean * d_bar + end * v_bar
        e_bar.extra[j] = time * d_bar + v_bar - change_bar
        e_bar.qd[j] = change_bar

    @wp.func
    def end_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Of `finish` after an impact."""
        share = e.rest / e.h
        integrate.move_adjoint(e, e_bar, e.rest, real(0.5) * share)
        rest_bar = e_bar.duration
        for j in range(e.model.num_dofs):
            d_bar = e_bar.extra[j]
            v_bar = e_bar.qd[j]
            along = share  # of D, in what the displacement grows by with the time
            mean = real(0.5) * share
            if settles(e, j):
                along = real(1.0)
                mean = real(1.0)
            rest_bar += d_bar * rate(e, j, along) + v_bar * e.dofs[j].dqd / e.h
            share_out(e_bar, j, e.rest, mean, share - real(0.5))
        e_bar.rest = rest_bar

    @wp.func
    def contact_time_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], gap_bar: real, mean: real):
        """Of the time at which contact e.hit is reached; contact_rows.hit_adjoint does the rest."""
        k = e.hit
        along = gap_bar * e.tau  # of J (v + mean D)
        e.contacts[k].x = vec3()
        e_bar.contacts[k].p = vec3()
        e_bar.contacts[k].n = vec3()
        e_bar.contacts[k].z = gap_bar
        e_bar.contacts[k].b = vec3(along * mean, real(0.0), real(0.0))
        e_bar.approach = along * (real(1.0) - mean)
        rows.contact.add_normal(e, e.contacts[k], along * mean, e_bar.qd)
        rows.contact.add_normal(e, e.contacts[k], -along * mean, e_bar.extra)

    @wp.func
    def limit_time_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], gap_bar: real, mean: real):
        """The same for a joint's limit."""
        j = e.hit_feature // 2
        sign = limit_sign(e)
        along = sign * gap_bar * e.tau
        rows.joint.limit_gap_adjoint(e, e_bar, j, sign, gap_bar)
        e_bar.qd[j] = e_bar.qd[j] + along * mean
        e_bar.extra[j] = e_bar.extra[j] + along - along * mean

    @wp.func
    def arrival_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Of the state at an impact, and of its time, to the interval before it."""
        end = (lead(e) + e.tau) / e.h
        mean = (lead(e) + real(0.5) * e.tau) / e.h
        integrate.move_adjoint(e, e_bar, e.tau, mean)
        tau_bar = e_bar.duration - e_bar.rest
        for j in range(e.model.num_dofs):
            tau_bar += e_bar.extra[j] * rate(e, j, end) + e_bar.qd[j] * e.dofs[j].dqd / e.h
            share_out(e_bar, j, e.tau, mean, end)
        gap_bar = tau_bar / wp.max(speed(e), GRAZING * e.model.restitution_threshold)
        if e.tau <= -e.h:
            gap_bar = real(0.0)
        if e.hit == HIT_LIMIT:
            limit_time_adjoint(e, e_bar, gap_bar, mean)
        else:
            contact_time_adjoint(e, e_bar, gap_bar, mean)

    @stage
    def finish_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """What comes after an evaluation, to be called before evaluate_adjoint.

        e_bar.q and qd come in as adjoints of what the stage leads to; e_bar.qd leaves as that of the evaluated rates.
        """
        if not t.at_impact(e):
            if e.hit != NOTHING:
                arrival_adjoint(e, e_bar)
            elif e.stage > 0:
                end_adjoint(e, e_bar)
            else:
                integrate.integrate_adjoint(e, e_bar)

    @stage
    def start_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """To be called after evaluate_adjoint: what it left to the rates at the start of the stage."""
        if not t.at_impact(e) and (e.hit != NOTHING or e.stage > 0):
            for j in range(e.model.num_dofs):
                e_bar.qd[j] = e_bar.qd[j] + e_bar.extra[j]

    return exports(begin, arrival, speed, duration, interrupted, finish, previous, finish_adjoint, start_adjoint)
