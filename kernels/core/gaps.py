"""What contact normals and joint limits share: when a gap is a row of the solver, and the row's right-hand side.

Both are a gap z >= 0 with a rate J v, so they follow one law. In steps that impacts may interrupt (impacts.py) a row
carries no bounce: fast approaches wait for their impact, and slow ones may close their gap, but no more.
"""

import warp as wp

from ..types import exports

TOUCH = {wp.float64: 1e-6, wp.float32: 4e-6}  # m or rad; an impact takes all gaps up to this along


def make_gaps(t, s):
    real, vec3, Env, EnvBar, at_impact = t.real, t.vec3, t.Env, t.EnvBar, t.at_impact
    TOUCHING = wp.constant(real(TOUCH[real]))
    interrupts = t.sizes.impacts > 0

    @wp.func
    def touches(z: real):
        return z <= TOUCHING

    @wp.func
    def turning(e: wp.ref[Env], link: int, p: vec3):
        """Acceleration of a point of a link when no joint accelerates, gravity apart."""
        v = e.links[link].v
        a = e.links[link].a - e.links[0].a
        return s.velocity_at(a, p) + wp.cross(s.angular(v), s.velocity_at(v, p))

    @wp.func
    def drift(e: wp.ref[Env], contact: wp.ref[t.Contact]):
        """What a step adds to the rate of the gap of a contact that is held.

        A row holds the point of a turning link along the normal of the step's start: within a step it turns away.
        """
        turn = turning(e, contact.link_a, contact.p) - turning(e, contact.link_b, contact.p + contact.shift)
        return e.h * wp.abs(wp.dot(contact.n, turn))

    @wp.func
    def marked(e: wp.ref[Env], pair: int, feature: int):
        """True for what took part in the impact that the interval begins with, or is what an impact is solved for."""
        found = bool(False)
        impact = (e.stage - 1) // 2
        for k in range(e.num_marks):
            if e.marks[impact, k].pair == pair and e.marks[impact, k].feature == feature:
                found = True
        return found

    @wp.func
    def limit_code(dof: int, sign: real):
        """Names a limit in a Mark: the lower one has sign 1."""
        return 2 * dof + wp.where(sign > real(0.0), 0, 1)

    @wp.func
    def limit_gap(e: wp.ref[Env], dof: int, sign: real):
        """Distance from the lower (sign 1) or the upper limit (-1)."""
        x = e.q[e.model.dof_q[dof]]
        return wp.where(sign > real(0.0), x - e.params.lower[e.index, dof], e.params.upper[e.index, dof] - x)

    @wp.func
    def limit_side(e: wp.ref[Env], dof: int):
        """1 or -1 if the lower or upper limit of a dof is a row, 0 if neither is."""
        side = int(0)
        x = e.q[e.model.dof_q[dof]]
        if wp.static(interrupts):
            sign = real(1.0)
            if e.params.upper[e.index, dof] - x < x - e.params.lower[e.index, dof]:
                sign = real(-1.0)
            gap = limit_gap(e, dof, sign)
            row = marked(e, -1, limit_code(dof, sign))
            if at_impact(e):
                row = row or touches(gap)
            elif gap < e.h * e.model.restitution_threshold:
                row = row or sign * e.qd[dof] > -e.model.restitution_threshold
            if row:
                side = int(sign)
        else:
            if x < e.params.lower[e.index, dof]:
                side = 1
            elif x > e.params.upper[e.index, dof]:
                side = -1
        return side

    @wp.func
    def bounce_above(e: wp.ref[Env]):
        """Speed of approach below which nothing bounces; at an impact, also what would come back within six steps."""
        speed = e.model.restitution_threshold
        if at_impact(e):
            speed = wp.max(speed, e.stages[e.stage - 1].press)
        return speed

    @wp.func
    def gap_bias(e: wp.ref[Env], z: real, bounce: real):
        """What the rate of a gap must make up for: penetration or a bounce, which cfm does not soften; and the cfm.

        bounce: restitution times the approach, 0 if that is too slow.
        """
        push = e.params.erp[e.index] * z / e.model.dt
        bias = wp.where(push > -e.model.max_push_speed, push, -e.model.max_push_speed)
        cfm = e.params.cfm[e.index]
        if at_impact(e):
            bias = bounce
            cfm = real(0.0)
        elif wp.static(interrupts):
            if z > real(0.0):
                bias = z / e.model.dt
        elif bounce < bias:
            bias = bounce
            cfm = real(0.0)
        return bias, cfm

    @wp.func
    def gap_bias_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], z: real, approach: real, restitution: real, b: real):
        """From the adjoint b of the bias: those of gap, approach and restitution, and 1 if cfm acts, 0 if not."""
        push = e.params.erp[e.index] * z / e.model.dt
        free = push > -e.model.max_push_speed
        bounces = approach < -bounce_above(e)
        if wp.static(not interrupts):
            bounces = bounces and restitution * approach < wp.where(free, push, -e.model.max_push_speed)
        z_bar = real(0.0)
        approach_bar = real(0.0)
        restitution_bar = real(0.0)
        soft = real(1.0)
        if at_impact(e) or wp.static(not interrupts):
            if bounces:
                approach_bar = restitution * b
                restitution_bar = approach * b
                soft = real(0.0)
        if at_impact(e):
            soft = real(0.0)
        elif wp.static(interrupts) and z > real(0.0):
            z_bar = b / e.model.dt
        elif free and soft > real(0.0):
            z_bar = e.params.erp[e.index] / e.model.dt * b
            if e_bar.params.touch != 0:
                e_bar.params.erp[e.index] = e_bar.params.erp[e.index] + z / e.model.dt * b
        return z_bar, approach_bar, restitution_bar, soft

    return exports(touches, drift, marked, limit_code, limit_gap, limit_side, bounce_above, gap_bias, gap_bias_adjoint)
