"""Couplings: sums of polynomials of joint positions, such as the lengths of fixed tendons.

Coupling c is the sum over its terms m of c_m0 + c_m1 t + ... + c_m4 t^4, with t the position of the term's joint minus
term_ref[m]. `slope` is a term's entry of the coupling's Jacobian, `curve` what changes it.
"""

import warp as wp

from ..types import POWERS, TORQUE, VELOCITY, exports


def make_couplings(t, s):
    real, Env, EnvBar = t.real, t.Env, t.EnvBar

    @wp.func
    def offset(e: wp.ref[Env], m: int):
        return e.q[e.model.dof_q[e.model.term_dof[m]]] - e.model.term_ref[m]

    @wp.func
    def coef(e: wp.ref[Env], m: int, n: int):
        return e.params.coupling_coef[e.index, m, n]

    @wp.func
    def value(e: wp.ref[Env], m: int):
        x = offset(e, m)
        return coef(e, m, 0) + x * (coef(e, m, 1) + x * (coef(e, m, 2) + x * (coef(e, m, 3) + x * coef(e, m, 4))))

    @wp.func
    def slope(e: wp.ref[Env], m: int):
        x = offset(e, m)
        cubic = real(3.0) * coef(e, m, 3) + real(4.0) * x * coef(e, m, 4)
        return coef(e, m, 1) + x * (real(2.0) * coef(e, m, 2) + x * cubic)

    @wp.func
    def curve(e: wp.ref[Env], m: int):
        x = offset(e, m)
        return real(2.0) * coef(e, m, 2) + x * (real(6.0) * coef(e, m, 3) + real(12.0) * x * coef(e, m, 4))

    @wp.func
    def length(e: wp.ref[Env], c: int):
        """Value of a coupling."""
        total = real(0.0)
        for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
            total += value(e, m)
        return total

    @wp.func
    def rate(e: wp.ref[Env], c: int):
        total = real(0.0)
        for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
            total += slope(e, m) * e.qd[e.model.term_dof[m]]
        return total

    @wp.func
    def term_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], m: int, value_bar: real, slope_bar: real):
        j = e.model.dof_q[e.model.term_dof[m]]
        e_bar.q[j] = e_bar.q[j] + slope(e, m) * value_bar + curve(e, m) * slope_bar
        if e_bar.params.ties != 0:
            x = offset(e, m)
            power = real(1.0)
            below = real(0.0)
            for n in range(POWERS):
                e_bar.params.coupling_coef[e.index, m, n] = (
                    e_bar.params.coupling_coef[e.index, m, n] + power * value_bar + real(n) * below * slope_bar
                )
                below = power
                power = power * x

    # A drive on a coupling. Its gains are those of a joint's drive, with the coupling in place of the joint.

    @wp.func
    def drive_gains(e: wp.ref[Env], k: int):
        kp = e.params.kp[e.index, k]
        if e.model.drive_type[k] == VELOCITY:
            kp = real(0.0)
        return kp, e.params.kd[e.index, k]

    @wp.func
    def drive_target(e: wp.ref[Env], k: int):
        """Force of a PD drive at rest."""
        kp, kd = drive_gains(e, k)
        goal = e.model.gear[k] * e.u[k]
        if e.model.drive_type[k] == VELOCITY:
            return kd * goal
        return kp * (goal - length(e, e.model.drive_coupling[k]))

    @wp.func
    def drive_target_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, force_bar: real):
        """Returns the adjoint of the coupling's value."""
        kp, kd = drive_gains(e, k)
        goal = e.model.gear[k] * e.u[k]
        length_bar = real(0.0)
        gain = kp
        if e.model.drive_type[k] == VELOCITY:
            gain = kd
            if e_bar.params.joints != 0:
                e_bar.params.kd[e.index, k] = e_bar.params.kd[e.index, k] + goal * force_bar
        else:
            length_bar = -kp * force_bar
            if e_bar.params.joints != 0:
                stretch = goal - length(e, e.model.drive_coupling[k])
                e_bar.params.kp[e.index, k] = e_bar.params.kp[e.index, k] + stretch * force_bar
        e_bar.u[k] = e_bar.u[k] + gain * e.model.gear[k] * force_bar
        return length_bar

    @wp.func
    def pull(e: wp.ref[Env], k: int):
        """Force of a torque drive on the joints of its coupling; PD drives are rows (ties.py)."""
        if e.model.drive_type[k] == TORQUE:
            c = e.model.drive_coupling[k]
            force = s.clip(e.model.gear[k] * e.u[k], e.params.effort_limit[e.index, k])
            for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
                j = e.model.term_dof[m]
                e.dofs[j].u = e.dofs[j].u + slope(e, m) * force

    @wp.func
    def pull_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int):
        if e.model.drive_type[k] == TORQUE:
            c = e.model.drive_coupling[k]
            wanted = e.model.gear[k] * e.u[k]
            limit = e.params.effort_limit[e.index, k]
            force = s.clip(wanted, limit)
            force_bar = real(0.0)
            for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
                joint_bar = e_bar.dofs[e.model.term_dof[m]].s
                force_bar += slope(e, m) * joint_bar
                term_adjoint(e, e_bar, m, real(0.0), force * joint_bar)
            if wp.abs(wanted) < limit:
                e_bar.u[k] = e_bar.u[k] + e.model.gear[k] * force_bar
            elif e_bar.params.joints != 0:
                e_bar.params.effort_limit[e.index, k] = (
                    e_bar.params.effort_limit[e.index, k] + wp.sign(wanted) * force_bar
                )

    return exports(
        length, rate, slope, term_adjoint, drive_gains, drive_target, drive_target_adjoint, pull, pull_adjoint
    )
