"""A joint's row in the contact problem: a limit, a drive beyond its effort, or dry friction.

Each is one bounded row on one dof: J is the unit vector of the dof (times a sign), low <= x <= high. Bounded rows of
tendons, which act on several dofs, are in the same list, but their code is in ties.py.
"""

import warp as wp

from ..types import DRIVE, DRY_FRICTION, LIMIT, TENDON_LIMIT, exports


def make_joint_rows(t, gaps, actuation, path, ties):
    real, Env, EnvBar, JointRow, JointRowBar = t.real, t.Env, t.EnvBar, t.JointRow, t.JointRowBar
    mat16 = wp.types.matrix(shape=(1, 6), dtype=real)

    @wp.func
    def list_rows(e: wp.ref[Env]):
        """Add joints beyond a limit and joints with dry friction to the list, behind the drives (actuation.py)."""
        for n in range(e.model.num_limited):
            j = e.model.limited[n]
            side = gaps.limit_side(e, j)
            if side != 0:
                actuation.add_row(e, LIMIT, j, real(side), real(0.0), real(wp.inf))
        if not t.at_impact(e):
            for n in range(e.model.num_rubbing):
                j = e.model.rubbing[n]
                high = e.params.frictionloss[e.index, j] * e.model.dt
                actuation.add_row(e, DRY_FRICTION, j, real(1.0), -high, high)

    @wp.func
    def row_terms(e: wp.ref[Env], row: wp.ref[JointRow]):
        """Bias and compliance of a row."""
        bias = real(0.0)
        cfm = real(0.0)
        j = row.dof
        if row.kind == LIMIT:
            gap = gaps.limit_gap(e, j, row.sign)
            bounce = row.sign * e.qd[j]
            if bounce < -gaps.bounce_above(e):
                bounce = e.params.limit_restitution[e.index, j] * bounce
            else:
                bounce = real(0.0)
            bias, cfm = gaps.gap_bias(e, gap, bounce)
        elif row.kind == DRIVE:
            # x = h tau with tau = kp (target - q - h v) - kd v, solved for v: v + x cfm + bias = 0
            kp, kd = actuation.drive_gains(e, row.index)
            gain = e.model.dt * kp + kd
            bias = -actuation.drive_target(e, row.index) / gain
            cfm = real(1.0) / (e.model.dt * gain)
        return bias, cfm

    @wp.func
    def joint_row(e: wp.ref[Env], k: int, row: wp.ref[JointRow]):
        """Up pass of row k; returns its entry of b, and whether it stays a row: limits may turn out to be impacts."""
        if wp.static(t.sizes.ties > 0):
            if row.kind >= TENDON_LIMIT:
                return ties.bounded_row(e, row), True
        acceleration = path.propagate(e, e.joint_paths, k, row.link, mat16(), row.sign)
        bias, cfm = row_terms(e, row)
        row.cfm = cfm
        rate = row.sign * e.qd[row.dof] + acceleration[0] * e.model.dt
        stays = bool(True)
        if wp.static(t.sizes.impacts > 0):
            if row.kind == LIMIT and not t.at_impact(e) and rate <= -e.model.restitution_threshold:
                stays = gaps.touches(gaps.limit_gap(e, row.dof, row.sign))
                stays = stays or gaps.marked(e, -1, gaps.limit_code(row.dof, row.sign))
        return rate + bias, stays

    @wp.func
    def limit_gap_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], dof: int, sign: real, gap_bar: real):
        n = e.model.dof_q[dof]
        e_bar.q[n] = e_bar.q[n] + sign * gap_bar
        if e_bar.params.joints != 0:
            if sign > real(0.0):
                e_bar.params.lower[e.index, dof] = e_bar.params.lower[e.index, dof] - gap_bar
            else:
                e_bar.params.upper[e.index, dof] = e_bar.params.upper[e.index, dof] + gap_bar

    @wp.func
    def joint_row_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], row: wp.ref[JointRow], bar: wp.ref[JointRowBar]):
        """What b (J is constant), compliance and bounds depend on."""
        if wp.static(t.sizes.ties > 0):
            if row.kind >= TENDON_LIMIT:
                return  # ties.py
        j = row.dof
        e_bar.qd[j] = e_bar.qd[j] + row.sign * bar.b
        cfm_bar = bar.b * row.x + bar.E
        if row.kind == LIMIT:
            gap = gaps.limit_gap(e, j, row.sign)
            approach = row.sign * e.qd[j]
            gap_bar, approach_bar, restitution_bar, soft = gaps.gap_bias_adjoint(
                e, e_bar, gap, approach, e.params.limit_restitution[e.index, j], bar.b
            )
            limit_gap_adjoint(e, e_bar, j, row.sign, gap_bar)
            e_bar.qd[j] = e_bar.qd[j] + row.sign * approach_bar
            if e_bar.params.touch != 0:
                e_bar.params.limit_restitution[e.index, j] = (
                    e_bar.params.limit_restitution[e.index, j] + restitution_bar
                )
                e_bar.params.cfm[e.index] = e_bar.params.cfm[e.index] + soft * cfm_bar
        elif row.kind == DRIVE:
            k = row.index
            kp, kd = actuation.drive_gains(e, k)
            gain = e.model.dt * kp + kd
            target = actuation.drive_target(e, k)
            actuation.drive_target_adjoint(e, e_bar, k, -bar.b / gain)
            gain_bar = (bar.b * target - cfm_bar / e.model.dt) / (gain * gain)
            actuation.damping_adjoint(e, e_bar, k, gain_bar)
            if e_bar.params.joints != 0:
                e_bar.params.effort_limit[e.index, k] = e_bar.params.effort_limit[e.index, k] + e.model.dt * bar.bound
        elif e_bar.params.joints != 0:
            e_bar.params.frictionloss[e.index, j] = e_bar.params.frictionloss[e.index, j] + e.model.dt * bar.bound

    return exports(list_rows, row_terms, joint_row, joint_row_adjoint, limit_gap_adjoint)
