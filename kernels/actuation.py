"""Joint forces: drives with their effort limits, springs and dampers.

Springs, dampers and PD drives act at the end of the step (implicitly), so that stiff ones stay stable: the force at
the present state goes to dofs.u and its derivative to dofs.diagonal. A drive whose force at the present state is
beyond its limit becomes a bounded row instead (contact.py): the same law, but never more than the limit.
"""

from types import SimpleNamespace

import warp as wp

from .types import TORQUE, VELOCITY


def make_actuation(t, s):
    real, Model, Params, Dof = t.real, t.Model, t.Params, t.Dof
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
    def drive_force(
        model: Model, params: Params, env: int, k: int, q: wp.array(dtype=real), qd: wp.array(dtype=real), u: real
    ):
        """Force of a PD drive if it acted on the present rate; beyond the limit it becomes a row."""
        j = model.drive_dof[k]
        kp, kd = drive_gains(model, params, env, k)
        return drive_target(model, params, env, k, u, q[model.dof_q[j]]) - (model.dt * kp + kd) * qd[j]

    @wp.func
    def drive_forces(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        h = model.dt
        for k in range(model.num_drives):
            j = model.drive_dof[k]
            limit = params.effort_limit[env, k]
            if model.drive_type[k] == TORQUE:
                dofs[j].u = dofs[j].u + clip(model.gear[k] * u[k], limit)
            else:
                force = drive_force(model, params, env, k, q, qd, u[k])
                if wp.abs(force) <= limit:
                    kp, kd = drive_gains(model, params, env, k)
                    dofs[j].u = dofs[j].u + force
                    dofs[j].diagonal = dofs[j].diagonal + h * (kd + h * kp)

    @wp.func
    def actuation(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        passive_forces(model, params, env, q, qd, dofs)
        drive_forces(model, params, env, q, qd, u, dofs)

    return SimpleNamespace(**locals())
