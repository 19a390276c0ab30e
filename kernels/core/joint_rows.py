"""Rows of joints in the contact problem: limits, drives beyond their effort, dry friction.

Each is one bounded row on one dof: J is the unit vector of the dof (times a sign), low <= x <= high.
"""

from types import SimpleNamespace

import warp as wp

from ..types import DRIVE, DRY_FRICTION, LIMIT


def make_joint_rows(t, actuation, dynamics):
    real, vec6, mat36 = t.real, t.vec6, t.mat36
    JointRow, Root, JointRoot = t.JointRow, t.Root, t.JointRoot
    Model, Params, ParamsBar, Dof, JointRowBar = t.Model, t.Params, t.ParamsBar, t.Dof, t.JointRowBar
    add_row = actuation.add_row

    @wp.func
    def find_rows(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), rows: wp.array(dtype=JointRow), count: int
    ):
        """Add joints beyond a limit and joints with dry friction to the list; returns its new length."""
        o = real(0.0)
        for n in range(model.num_limited):
            j = model.limited[n]
            x = q[model.dof_q[j]]
            if x < params.lower[env, j]:
                count = add_row(model, rows, count, LIMIT, 0, j, real(1.0), o, real(wp.inf))
            elif x > params.upper[env, j]:
                count = add_row(model, rows, count, LIMIT, 0, j, real(-1.0), o, real(wp.inf))
        for n in range(model.num_rubbing):
            j = model.rubbing[n]
            high = params.frictionloss[env, j] * model.dt
            count = add_row(model, rows, count, DRY_FRICTION, 0, j, real(1.0), -high, high)
        return count

    @wp.func
    def row_terms(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), u: wp.array(dtype=real), row: wp.ref[JointRow]
    ):
        """Bias and compliance of a row."""
        bias = real(0.0)
        cfm = real(0.0)
        j = row.dof
        if row.kind == LIMIT:
            gap = q[model.dof_q[j]] - params.lower[env, j]
            if row.sign < real(0.0):
                gap = params.upper[env, j] - q[model.dof_q[j]]
            bias = params.erp[env] * gap / model.dt
            cfm = params.cfm[env]
        elif row.kind == DRIVE:
            # x = h tau with tau = kp (target - q - h v) - kd v, solved for v: v + x cfm + bias = 0
            kp, kd = actuation.drive_gains(model, params, env, row.index)
            gain = model.dt * kp + kd
            bias = -actuation.drive_target(model, params, env, row.index, u[row.index], q[model.dof_q[j]]) / gain
            cfm = real(1.0) / (model.dt * gain)
        return bias, cfm

    @wp.func
    def propagate_row(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), k: int, row: wp.ref[JointRow], dofs: wp.array(dtype=Dof),
        paths: wp.array2d(dtype=real), root: wp.ref[JointRoot],
    ):  # fmt: skip
        """Up pass of row k; returns its entry of b."""
        link = row.link
        f = vec6()
        acceleration = real(0.0)
        depth = model.depth[link]
        for n in range(depth):
            d = depth - 1 - n
            j = model.chain[link, d]
            uj = wp.dot(f, dofs[j].S)
            if j == row.dof:
                uj += row.sign
            paths[k, d] = uj
            uD = uj * dofs[j].Dinv
            acceleration += uD * dofs[j].u
            f = f - dofs[j].U * uD
        free = model.free_dof[link]
        if free >= 0:
            F = mat36()
            F[0] = f
            three = Root()
            dynamics.substitute(F, free, dofs, three)
            root.u = three.u[0]
            for d in range(6):
                root.uD[d] = three.uD[d, 0]
            acceleration += wp.dot(root.uD, dynamics.root_forces(free, dofs))
        bias, cfm = row_terms(model, params, env, q, u, row)
        row.cfm = cfm
        return row.sign * qd[row.dof] + acceleration * model.dt + bias

    @wp.func
    def row_terms_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), u: wp.array(dtype=real),
        row: wp.ref[JointRow], bar: wp.ref[JointRowBar], q_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real),
        params_bar: ParamsBar,
    ):  # fmt: skip
        """Of bias, compliance and bounds."""
        j = row.dof
        cfm_bar = bar.b * row.x + bar.E
        if row.kind == LIMIT:
            n = model.dof_q[j]
            per_gap = params.erp[env] / model.dt * bar.b
            q_bar[n] = q_bar[n] + row.sign * per_gap
            if params_bar.joints != 0:
                if row.sign > real(0.0):
                    params_bar.lower[env, j] = params_bar.lower[env, j] - per_gap
                else:
                    params_bar.upper[env, j] = params_bar.upper[env, j] + per_gap
            if params_bar.touch != 0:
                gap = q[n] - params.lower[env, j]
                if row.sign < real(0.0):
                    gap = params.upper[env, j] - q[n]
                params_bar.erp[env] = params_bar.erp[env] + gap / model.dt * bar.b
                params_bar.cfm[env] = params_bar.cfm[env] + cfm_bar
        elif row.kind == DRIVE:
            k = row.index
            kp, kd = actuation.drive_gains(model, params, env, k)
            gain = model.dt * kp + kd
            target = actuation.drive_target(model, params, env, k, u[k], q[model.dof_q[j]])
            actuation.drive_target_adjoint(model, params, env, k, u, q, -bar.b / gain, q_bar, u_bar, params_bar)
            gain_bar = (bar.b * target - cfm_bar / model.dt) / (gain * gain)
            actuation.damping_adjoint(model, env, k, gain_bar, params_bar)
            if params_bar.joints != 0:
                params_bar.effort_limit[env, k] = params_bar.effort_limit[env, k] + model.dt * bar.bound
        elif params_bar.joints != 0:
            params_bar.frictionloss[env, j] = params_bar.frictionloss[env, j] + model.dt * bar.bound

    @wp.func
    def joint_rows_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), u: wp.array(dtype=real), count: int,
        rows: wp.array(dtype=JointRow), bars: wp.array(dtype=JointRowBar), q_bar: wp.array(dtype=real),
        qd_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """What b and the bounds of the joints' rows depend on directly; J is constant."""
        for k in range(count):
            j = rows[k].dof
            qd_bar[j] = qd_bar[j] + rows[k].sign * bars[k].b
            row_terms_adjoint(model, params, env, q, u, rows[k], bars[k], q_bar, u_bar, params_bar)

    return SimpleNamespace(**locals())
