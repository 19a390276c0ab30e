"""Joint forces: drives with their effort limits, springs and dampers.

Springs, dampers and PD drives act at the end of the step (implicitly), so that stiff ones stay stable: the force at
the present state goes to dofs.u and its derivative to dofs.diagonal. A drive whose force at the present state is
beyond its limit becomes a bounded row instead (joint_rows.py): the same law, but never more than the limit.

There is room for all limits or all drives, whichever are more, and for dry friction. If joints beyond their limits and
other drives have taken all rows, a saturated drive acts with its effort limit throughout the step, like a torque drive.
So a step never overflows, and no row is lost that keeps a joint within its limits.

At an impact no forces act, and the diagonal has armature only.
"""

import warp as wp

from ..types import DRIVE, THRUST, TORQUE, VELOCITY, exports, stage


def make_actuation(t, s, limits, couplings):
    real, Env, EnvBar, clip = t.real, t.Env, t.EnvBar, s.clip
    tied = t.sizes.ties > 0

    @wp.func
    def passive_forces(e: wp.ref[Env]):
        h = e.model.dt
        for j in range(e.model.num_dofs):
            d = e.params.damping[e.index, j]
            force = -d * e.qd[j]
            diagonal = e.params.armature[e.index, j] + h * d
            if e.model.dof_q[j] >= 0:
                k = e.params.stiffness[e.index, j]
                force -= k * (e.q[e.model.dof_q[j]] + h * e.qd[j] - e.model.spring_ref[j])
                diagonal += h * h * k
            e.dofs[j].u = force
            e.dofs[j].diagonal = diagonal

    @wp.func
    def diagonal_bar(e: wp.ref[Env], e_bar: wp.ref[EnvBar], j: int):
        """Adjoint of what is added to the diagonal of Mhat at a dof."""
        return -(e_bar.dofs[j].s * e.dofs[j].dqd / e.model.dt + real(0.5) * e_bar.dofs[j].kappa)

    @wp.func
    def passive_forces_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        h = e.model.dt
        for j in range(e.model.num_dofs):
            force_bar = e_bar.dofs[j].s
            k = real(0.0)
            stretch = real(0.0)
            if e.model.dof_q[j] >= 0:
                k = e.params.stiffness[e.index, j]
                stretch = e.q[e.model.dof_q[j]] + h * e.qd[j] - e.model.spring_ref[j]
                e_bar.q[e.model.dof_q[j]] = e_bar.q[e.model.dof_q[j]] - k * force_bar
            e_bar.qd[j] = e_bar.qd[j] - (e.params.damping[e.index, j] + h * k) * force_bar
            if e_bar.params.joints != 0:
                d_bar = diagonal_bar(e, e_bar, j)
                e_bar.params.armature[e.index, j] = e_bar.params.armature[e.index, j] + d_bar
                e_bar.params.damping[e.index, j] = e_bar.params.damping[e.index, j] + (h * d_bar - e.qd[j] * force_bar)
                if e.model.dof_q[j] >= 0:
                    e_bar.params.stiffness[e.index, j] = e_bar.params.stiffness[e.index, j] + (
                        h * h * d_bar - stretch * force_bar
                    )

    @wp.func
    def drive_gains(e: wp.ref[Env], k: int):
        """kp and kd as they act: a velocity drive has no kp."""
        kp = e.params.kp[e.index, k]
        if e.model.drive_type[k] == VELOCITY:
            kp = real(0.0)
        return kp, e.params.kd[e.index, k]

    @wp.func
    def drive_target(e: wp.ref[Env], k: int):
        """Force of a PD drive when the joint does not move."""
        kp, kd = drive_gains(e, k)
        force = kp * (e.model.gear[k] * e.u[k] - e.q[e.model.dof_q[e.model.drive_dof[k]]])
        if e.model.drive_type[k] == VELOCITY:
            force = kd * e.model.gear[k] * e.u[k]
        return force

    @wp.func
    def drive_target_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, force_bar: real):
        kp, kd = drive_gains(e, k)
        gear = e.model.gear[k]
        if e.model.drive_type[k] == VELOCITY:
            e_bar.u[k] = e_bar.u[k] + kd * gear * force_bar
            if e_bar.params.joints != 0:
                e_bar.params.kd[e.index, k] = e_bar.params.kd[e.index, k] + gear * e.u[k] * force_bar
        else:
            n = e.model.dof_q[e.model.drive_dof[k]]
            e_bar.u[k] = e_bar.u[k] + kp * gear * force_bar
            e_bar.q[n] = e_bar.q[n] - kp * force_bar
            if e_bar.params.joints != 0:
                e_bar.params.kp[e.index, k] = e_bar.params.kp[e.index, k] + (gear * e.u[k] - e.q[n]) * force_bar

    @wp.func
    def excess(e: wp.ref[Env], k: int, force: real):
        """A drive's force from the middle of its range, which is zero unless its limits differ."""
        x = force
        if wp.static(t.sizes.lopsided):
            x -= e.model.effort_center[k]
        return x

    @wp.func
    def within_effort(e: wp.ref[Env], k: int, force: real):
        """A drive's force within its limits."""
        x = clip(excess(e, k, force), e.params.effort_limit[e.index, k])
        if wp.static(t.sizes.lopsided):
            x += e.model.effort_center[k]
        return x

    @wp.func
    def damping_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, damping_bar: real):
        """Of h kp + kd, what a PD drive resists a rate with."""
        if e_bar.params.joints != 0:
            e_bar.params.kd[e.index, k] = e_bar.params.kd[e.index, k] + damping_bar
            if e.model.drive_type[k] != VELOCITY:
                e_bar.params.kp[e.index, k] = e_bar.params.kp[e.index, k] + e.model.dt * damping_bar

    @wp.func
    def add_row(e: wp.ref[Env], kind: int, dof: int, sign: real, low: real, high: real):
        """Put a joint's row at the end of the list; returns its place."""
        k = e.num_joint_rows
        e.joint_rows[k].kind = kind
        e.joint_rows[k].dof = dof
        e.joint_rows[k].link = e.model.dof_link[dof]
        e.joint_rows[k].sign = sign
        e.joint_rows[k].low = low
        e.joint_rows[k].high = high
        e.num_joint_rows = k + 1
        return k

    @wp.func
    def room_for_drives(e: wp.ref[Env]):
        """Rows that joints beyond their limits and dry friction leave to drives."""
        count = e.model.max_joint_rows - e.model.num_rubbing
        for n in range(e.model.num_limited):
            if limits.limit_side(e, e.model.limited[n]) != 0:
                count -= 1
        return count

    @wp.func
    def drive_forces(e: wp.ref[Env]):
        """Add the drives' forces; a drive beyond its limit becomes a row."""
        h = e.model.dt
        room = int(-1)  # not known before a drive needs it
        for k in range(e.model.num_drives):
            j = e.model.drive_dof[k]
            if wp.static(tied):
                if j < 0:
                    couplings.pull(e, k)
                    continue
            limit = e.params.effort_limit[e.index, k]
            if wp.static(t.sizes.thrusts):
                if e.model.drive_type[k] == THRUST:
                    continue
            if e.model.drive_type[k] == TORQUE:
                e.dofs[j].u = e.dofs[j].u + within_effort(e, k, e.model.gear[k] * e.u[k])
            else:
                kp, kd = drive_gains(e, k)
                damping = h * kp + kd
                force = drive_target(e, k) - damping * e.qd[j]
                if wp.abs(excess(e, k, force)) > limit:
                    if room < 0:
                        room = room_for_drives(e)
                    if e.num_joint_rows < room:
                        row = add_row(e, DRIVE, j, real(1.0), -limit * h, limit * h)
                        e.joint_rows[row].index = k
                        if wp.static(t.sizes.lopsided):
                            e.joint_rows[row].low = (e.model.effort_center[k] - limit) * h
                            e.joint_rows[row].high = (e.model.effort_center[k] + limit) * h
                    else:
                        e.dofs[j].u = e.dofs[j].u + within_effort(e, k, force)
                else:  # also if it is not a number: the environment then diverges and is stopped
                    e.dofs[j].u = e.dofs[j].u + force
                    e.dofs[j].diagonal = e.dofs[j].diagonal + h * damping

    @wp.func
    def drive_forces_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        h = e.model.dt
        saturated = int(0)
        room = int(-1)
        for k in range(e.model.num_drives):
            j = e.model.drive_dof[k]
            if wp.static(tied):
                if j < 0:
                    couplings.pull_adjoint(e, e_bar, k)
                    continue
            limit = e.params.effort_limit[e.index, k]
            force_bar = e_bar.dofs[j].s
            if wp.static(t.sizes.thrusts):
                if e.model.drive_type[k] == THRUST:
                    continue
            if e.model.drive_type[k] == TORQUE:
                force = excess(e, k, e.model.gear[k] * e.u[k])
                if wp.abs(force) < limit:
                    e_bar.u[k] = e_bar.u[k] + e.model.gear[k] * force_bar
                elif e_bar.params.joints != 0:
                    e_bar.params.effort_limit[e.index, k] = (
                        e_bar.params.effort_limit[e.index, k] + wp.sign(force) * force_bar
                    )
            else:
                kp, kd = drive_gains(e, k)
                damping = h * kp + kd
                force = excess(e, k, drive_target(e, k) - damping * e.qd[j])
                if wp.abs(force) > limit:
                    if room < 0:
                        room = room_for_drives(e)
                    if saturated >= room and e_bar.params.joints != 0:
                        e_bar.params.effort_limit[e.index, k] = (
                            e_bar.params.effort_limit[e.index, k] + wp.sign(force) * force_bar
                        )
                    saturated += 1
                else:
                    drive_target_adjoint(e, e_bar, k, force_bar)
                    e_bar.qd[j] = e_bar.qd[j] - damping * force_bar
                    d_bar = diagonal_bar(e, e_bar, j)
                    damping_adjoint(e, e_bar, k, h * d_bar - e.qd[j] * force_bar)

    @stage
    def actuation(e: wp.ref[Env]):
        """Forces dofs.u, their implicit part dofs.diagonal, and the first joint rows: drives beyond their limit."""
        e.num_joint_rows = 0
        if t.at_impact(e):
            for j in range(e.model.num_dofs):
                e.dofs[j].u = real(0.0)
                e.dofs[j].diagonal = e.params.armature[e.index, j]
        else:
            passive_forces(e)
            drive_forces(e)

    @stage
    def actuation_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """From the adjoint s of the joint forces. Drives that became rows are left to joint_rows.py."""
        if t.at_impact(e):
            if e_bar.params.joints != 0:
                for j in range(e.model.num_dofs):
                    e_bar.params.armature[e.index, j] = e_bar.params.armature[e.index, j] + diagonal_bar(e, e_bar, j)
        else:
            passive_forces_adjoint(e, e_bar)
            drive_forces_adjoint(e, e_bar)

    return exports(
        actuation,
        actuation_adjoint,
        add_row,
        diagonal_bar,
        drive_gains,
        drive_target,
        drive_target_adjoint,
        excess,
        within_effort,
        damping_adjoint,
    )
