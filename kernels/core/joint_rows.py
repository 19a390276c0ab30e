"""A joint's row in the contact problem: a limit, a drive beyond its effort, or dry friction.

Each is one bounded row on one dof: J is the unit vector of the dof (times a sign), low <= x <= high.
"""

import warp as wp

from ..types import DRIVE, DRY_FRICTION, LIMIT, exports


def make_joint_rows(t, actuation, path):
    real, Env, EnvBar, JointRow, JointRowBar = t.real, t.Env, t.EnvBar, t.JointRow, t.JointRowBar
    mat16 = wp.types.matrix(shape=(1, 6), dtype=real)

    @wp.func
    def list_rows(e: wp.ref[Env]):
        """Add joints beyond a limit and joints with dry friction to the list, behind the drives (actuation.py)."""
        for n in range(e.model.num_limited):
            j = e.model.limited[n]
            x = e.q[e.model.dof_q[j]]
            if x < e.params.lower[e.index, j]:
                actuation.add_row(e, LIMIT, j, real(1.0), real(0.0), real(wp.inf))
            elif x > e.params.upper[e.index, j]:
                actuation.add_row(e, LIMIT, j, real(-1.0), real(0.0), real(wp.inf))
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
            gap = e.q[e.model.dof_q[j]] - e.params.lower[e.index, j]
            if row.sign < real(0.0):
                gap = e.params.upper[e.index, j] - e.q[e.model.dof_q[j]]
            bias = e.params.erp[e.index] * gap / e.model.dt
            cfm = e.params.cfm[e.index]
        elif row.kind == DRIVE:
            # x = h tau with tau = kp (target - q - h v) - kd v, solved for v: v + x cfm + bias = 0
            kp, kd = actuation.drive_gains(e, row.index)
            gain = e.model.dt * kp + kd
            bias = -actuation.drive_target(e, row.index) / gain
            cfm = real(1.0) / (e.model.dt * gain)
        return bias, cfm

    @wp.func
    def joint_row(e: wp.ref[Env], k: int, row: wp.ref[JointRow]):
        """Up pass of row k; returns its entry of b."""
        acceleration = path.propagate(e, e.joint_paths, k, row.link, mat16(), row.sign)
        bias, cfm = row_terms(e, row)
        row.cfm = cfm
        return row.sign * e.qd[row.dof] + acceleration[0] * e.model.dt + bias

    @wp.func
    def joint_row_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], row: wp.ref[JointRow], bar: wp.ref[JointRowBar]):
        """What b (J is constant), compliance and bounds depend on."""
        j = row.dof
        e_bar.qd[j] = e_bar.qd[j] + row.sign * bar.b
        cfm_bar = bar.b * row.x + bar.E
        if row.kind == LIMIT:
            n = e.model.dof_q[j]
            per_gap = e.params.erp[e.index] / e.model.dt * bar.b
            e_bar.q[n] = e_bar.q[n] + row.sign * per_gap
            if e_bar.params.joints != 0:
                if row.sign > real(0.0):
                    e_bar.params.lower[e.index, j] = e_bar.params.lower[e.index, j] - per_gap
                else:
                    e_bar.params.upper[e.index, j] = e_bar.params.upper[e.index, j] + per_gap
            if e_bar.params.touch != 0:
                gap = e.q[n] - e.params.lower[e.index, j]
                if row.sign < real(0.0):
                    gap = e.params.upper[e.index, j] - e.q[n]
                e_bar.params.erp[e.index] = e_bar.params.erp[e.index] + gap / e.model.dt * bar.b
                e_bar.params.cfm[e.index] = e_bar.params.cfm[e.index] + cfm_bar
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

    return exports(list_rows, row_terms, joint_row, joint_row_adjoint)
