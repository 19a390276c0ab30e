"""Joint forces: drives with their effort limits, springs and dampers.

Springs, dampers and PD drives act at the end of the step (implicitly), so that stiff ones stay stable: the force at
the present state goes to dofs.u and its derivative to dofs.diagonal. A drive whose force at the present state is
beyond its limit becomes a bounded row instead (joint_rows.py): the same law, but never more than the limit.
"""

from types import SimpleNamespace

import warp as wp

from ..types import DRIVE, TORQUE, VELOCITY


def make_actuation(t, s):
    real, Model, Params, Dof, JointRow = t.real, t.Model, t.Params, t.Dof, t.JointRow
    ParamsBar, DofBar = t.ParamsBar, t.DofBar
    clip = s.clip

    @wp.func
    def passive_forces(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        h = model.dt
        for j in range(model.num_dofs):
            d = params.damping[env, j]
            force = -d * qd[j]
            diagonal = params.armature[env, j] + h * d
            if model.dof_q[j] >= 0:
                k = params.stiffness[env, j]
                force -= k * (q[model.dof_q[j]] + h * qd[j] - model.spring_ref[j])
                diagonal += h * h * k
            dofs[j].u = force
            dofs[j].diagonal = diagonal

    @wp.func
    def diagonal_bar(model: Model, dof: wp.ref[Dof], bar: wp.ref[DofBar]):
        """Adjoint of what is added to the diagonal of Mhat at a dof."""
        return -(bar.s * dof.dqd / model.dt + real(0.5) * bar.kappa)

    @wp.func
    def passive_forces_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        dofs: wp.array(dtype=Dof), bars: wp.array(dtype=DofBar), q_bar: wp.array(dtype=real),
        qd_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        h = model.dt
        for j in range(model.num_dofs):
            force_bar = bars[j].s
            k = real(0.0)
            stretch = real(0.0)
            if model.dof_q[j] >= 0:
                k = params.stiffness[env, j]
                stretch = q[model.dof_q[j]] + h * qd[j] - model.spring_ref[j]
                q_bar[model.dof_q[j]] = q_bar[model.dof_q[j]] - k * force_bar
            qd_bar[j] = qd_bar[j] - (params.damping[env, j] + h * k) * force_bar
            if params_bar.joints != 0:
                d_bar = diagonal_bar(model, dofs[j], bars[j])
                params_bar.armature[env, j] = params_bar.armature[env, j] + d_bar
                params_bar.damping[env, j] = params_bar.damping[env, j] + (h * d_bar - qd[j] * force_bar)
                if model.dof_q[j] >= 0:
                    params_bar.stiffness[env, j] = params_bar.stiffness[env, j] + (h * h * d_bar - stretch * force_bar)

    @wp.func
    def drive_gains(model: Model, params: Params, env: int, k: int):
        """kp and kd as they act: a velocity drive has no kp."""
        kp = params.kp[env, k]
        if model.drive_type[k] == VELOCITY:
            kp = real(0.0)
        return kp, params.kd[env, k]

    @wp.func
    def drive_target(model: Model, params: Params, env: int, k: int, u: real, q: real):
        """Force of a PD drive when the joint does not move."""
        kp, kd = drive_gains(model, params, env, k)
        force = kp * (model.gear[k] * u - q)
        if model.drive_type[k] == VELOCITY:
            force = kd * model.gear[k] * u
        return force

    @wp.func
    def drive_target_adjoint(
        model: Model, params: Params, env: int, k: int, u: wp.array(dtype=real), q: wp.array(dtype=real),
        force_bar: real, q_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        kp, kd = drive_gains(model, params, env, k)
        gear = model.gear[k]
        if model.drive_type[k] == VELOCITY:
            u_bar[k] = u_bar[k] + kd * gear * force_bar
            if params_bar.joints != 0:
                params_bar.kd[env, k] = params_bar.kd[env, k] + gear * u[k] * force_bar
        else:
            n = model.dof_q[model.drive_dof[k]]
            u_bar[k] = u_bar[k] + kp * gear * force_bar
            q_bar[n] = q_bar[n] - kp * force_bar
            if params_bar.joints != 0:
                params_bar.kp[env, k] = params_bar.kp[env, k] + (gear * u[k] - q[n]) * force_bar

    @wp.func
    def damping_adjoint(model: Model, env: int, k: int, damping_bar: real, params_bar: ParamsBar):
        """Of h kp + kd, what a PD drive resists a rate with."""
        if params_bar.joints != 0:
            params_bar.kd[env, k] = params_bar.kd[env, k] + damping_bar
            if model.drive_type[k] != VELOCITY:
                params_bar.kp[env, k] = params_bar.kp[env, k] + model.dt * damping_bar

    @wp.func
    def add_row(
        model: Model, rows: wp.array(dtype=JointRow), count: int, kind: int, index: int, dof: int, sign: real,
        low: real, high: real,
    ):  # fmt: skip
        """Put a joint's row at the end of the list; returns its new length."""
        rows[count].kind = kind
        rows[count].index = index
        rows[count].dof = dof
        rows[count].link = model.dof_link[dof]
        rows[count].sign = sign
        rows[count].low = low
        rows[count].high = high
        return count + 1

    @wp.func
    def drive_forces(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof), rows: wp.array(dtype=JointRow),
    ):  # fmt: skip
        """Adds the drives' forces; returns how many of them became rows."""
        h = model.dt
        count = int(0)
        for k in range(model.num_drives):
            j = model.drive_dof[k]
            limit = params.effort_limit[env, k]
            if model.drive_type[k] == TORQUE:
                dofs[j].u = dofs[j].u + clip(model.gear[k] * u[k], limit)
            else:
                kp, kd = drive_gains(model, params, env, k)
                damping = h * kp + kd
                force = drive_target(model, params, env, k, u[k], q[model.dof_q[j]]) - damping * qd[j]
                if wp.abs(force) > limit:
                    count = add_row(model, rows, count, DRIVE, k, j, real(1.0), -limit * h, limit * h)
                else:  # also if it is not a number: the environment then runs away and is stopped
                    dofs[j].u = dofs[j].u + force
                    dofs[j].diagonal = dofs[j].diagonal + h * damping
        return count

    @wp.func
    def drive_forces_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof), bars: wp.array(dtype=DofBar),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real),
        params_bar: ParamsBar,
    ):  # fmt: skip
        h = model.dt
        for k in range(model.num_drives):
            j = model.drive_dof[k]
            limit = params.effort_limit[env, k]
            force_bar = bars[j].s
            if model.drive_type[k] == TORQUE:
                force = model.gear[k] * u[k]
                if wp.abs(force) < limit:
                    u_bar[k] = u_bar[k] + model.gear[k] * force_bar
                elif params_bar.joints != 0:
                    params_bar.effort_limit[env, k] = params_bar.effort_limit[env, k] + wp.sign(force) * force_bar
            else:
                kp, kd = drive_gains(model, params, env, k)
                damping = h * kp + kd
                force = drive_target(model, params, env, k, u[k], q[model.dof_q[j]]) - damping * qd[j]
                if not (wp.abs(force) > limit):
                    drive_target_adjoint(model, params, env, k, u, q, force_bar, q_bar, u_bar, params_bar)
                    qd_bar[j] = qd_bar[j] - damping * force_bar
                    d_bar = diagonal_bar(model, dofs[j], bars[j])
                    damping_adjoint(model, env, k, h * d_bar - qd[j] * force_bar, params_bar)

    @wp.func
    def actuation(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof), rows: wp.array(dtype=JointRow),
    ):  # fmt: skip
        """Forces dofs.u and their implicit part dofs.diagonal; returns how many joint rows it made."""
        passive_forces(model, params, env, q, qd, dofs)
        return drive_forces(model, params, env, q, qd, u, dofs, rows)

    @wp.func
    def actuation_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof), bars: wp.array(dtype=DofBar),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real),
        params_bar: ParamsBar,
    ):  # fmt: skip
        """From bars.s, the adjoint of the joint forces. Drives that became rows are left to joint_rows.py."""
        passive_forces_adjoint(model, params, env, q, qd, dofs, bars, q_bar, qd_bar, params_bar)
        drive_forces_adjoint(model, params, env, q, qd, u, dofs, bars, q_bar, qd_bar, u_bar, params_bar)

    return SimpleNamespace(**locals())
