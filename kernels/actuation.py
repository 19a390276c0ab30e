"""Joint forces: drives with their effort limits, springs and dampers.

Springs, dampers and PD drives act at the end of the step (implicitly), so that stiff ones stay stable: the force at
the present state goes to dofs.u and its derivative to dofs.diagonal. A drive whose force at the present state is
beyond its limit becomes a bounded row instead (joint_rows.py): the same law, but never more than the limit.
"""

from types import SimpleNamespace

import warp as wp

from .types import DRIVE, TORQUE, VELOCITY


def make_actuation(t, s):
    real, Model, Params, Dof, JointRow = t.real, t.Model, t.Params, t.Dof, t.JointRow
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
                if wp.abs(force) <= limit:
                    dofs[j].u = dofs[j].u + force
                    dofs[j].diagonal = dofs[j].diagonal + h * damping
                else:
                    count = add_row(model, rows, count, DRIVE, k, j, real(1.0), -limit * h, limit * h)
        return count

    @wp.func
    def actuation(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof), rows: wp.array(dtype=JointRow),
    ):  # fmt: skip
        """Forces dofs.u and their implicit part dofs.diagonal; returns how many joint rows it made."""
        passive_forces(model, params, env, q, qd, dofs)
        return drive_forces(model, params, env, q, qd, u, dofs, rows)

    return SimpleNamespace(**locals())
