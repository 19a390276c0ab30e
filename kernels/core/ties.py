"""Equality constraints: loops that are closed, joints that are coupled, springs and drives of tendons.

A tie is a block of one or three rows J v + cfm x + bias = 0 without bounds, which elimination.py takes out of the
contact problem. Kinds: POINT (two points coincide) and TURN (two links keep their orientation) make a loop, COUPLING
is a coupling (couplings.py) that is zero, SPRING and PULL are a tendon's spring and PD drive, which are compliant. A
loop's rows are along axes fixed in link a; a direction that is not held has a zero axis and its row does nothing.

A row's up pass is kept for all dofs at once: tie_u[row, dof]. With w the up pass of any right-hand side
    J Mhat^-1 t = sum over the dofs of u Dinv w,        A_rs = sum over the dofs of u_r Dinv u_s.
Tendons at a limit, or whose drive is beyond its effort, have bounds: they are joint rows (joint_rows.py) whose up pass
is here too, from the end of the array.
"""

import warp as wp

from ..types import (
    COUPLING,
    POINT,
    PULL,
    SPRING,
    TENDON_DRIVE,
    TENDON_LIMIT,
    TORQUE,
    TURN,
    exports,
    stage,
)


def make_ties(t, s, couplings, contact, side_path, actuation, detection):
    real, vec3, vec6, mat33, mat36 = t.real, t.vec3, t.vec6, t.mat33, t.mat36
    Env, EnvBar, Tie, JointRow, JointRowBar = t.Env, t.EnvBar, t.Tie, t.JointRow, t.JointRowBar
    angular, spatial, velocity_at, wrench, cross_force = s.angular, s.spatial, s.velocity_at, s.wrench, s.cross_force
    LAST = wp.constant(t.sizes.tie_rows - 1)

    @wp.func
    def column(R: mat33, c: int):
        return vec3(R[0, c], R[1, c], R[2, c])

    @wp.func
    def place(e: wp.ref[Env], tie: wp.ref[Tie]):
        """Points, axes and error of a loop's tie."""
        k = tie.index
        a = e.model.loop_a[k]
        b = e.model.loop_b[k]
        Ra = e.links[a].R
        Rb = e.links[b].R
        tie.link_a = a
        tie.link_b = b
        tie.pa = e.links[a].r + Ra @ e.params.loop_pos[e.index, k, 0]
        tie.pb = e.links[b].r + Rb @ e.params.loop_pos[e.index, k, 1]
        tie.axes = e.model.loop_axes[k, tie.kind] @ wp.transpose(Ra)
        if tie.kind == POINT:
            tie.error = tie.pa - tie.pb - detection.tree_shift(e, a, b)
        else:
            # sum of b_c x a_c over the axes is twice the turn from b to a, for small ones
            B = Rb @ e.model.loop_rot[k]
            turn = vec3()
            for c in range(3):
                turn += wp.cross(column(B, c), column(Ra, c))
            tie.error = turn * real(0.5)

    @wp.func
    def place_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], tie: wp.ref[Tie], error_bar: vec3, axes_bar: mat33):
        """Of error and axes, to the two links."""
        k = tie.index
        a = tie.link_a
        b = tie.link_b
        Ra = e.links[a].R
        couple = vec3()
        for r in range(3):
            couple += wp.cross(tie.axes[r], axes_bar[r])
        if tie.kind == POINT:
            point_adjoint(e, e_bar, a, tie.pa, error_bar)
            point_adjoint(e, e_bar, b, tie.pb, -error_bar)
        else:
            B = e.links[b].R @ e.model.loop_rot[k]
            half = error_bar * real(0.5)
            other = vec3()
            for c in range(3):
                couple += wp.cross(column(Ra, c), wp.cross(half, column(B, c)))
                other += wp.cross(column(B, c), wp.cross(column(Ra, c), half))
            if b > 0:
                e_bar.links[b].direct = e_bar.links[b].direct + spatial(other, vec3())
        if a > 0:
            e_bar.links[a].direct = e_bar.links[a].direct + spatial(couple, vec3())

    @wp.func
    def point_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, p: vec3, p_bar: vec3):
        """Of a point fixed to link i."""
        if i > 0:
            e_bar.links[i].direct = e_bar.links[i].direct + wrench(p, p_bar)
            root = e.model.root[i]
            e_bar.links[root].origin = e_bar.links[root].origin + p_bar

    @wp.func
    def side_wrenches(tie: wp.ref[Tie], second: int):
        """What a loop's rows are on one of its links."""
        A = tie.axes * real(1 - 2 * second)
        p = tie.pa
        if second != 0:
            p = tie.pb
        F = mat36()
        if tie.kind == POINT:
            F = contact.wrench_rows(p, A[0], A[1], A[2])
        else:
            F = wp.matrix_from_rows(spatial(A[0], vec3()), spatial(A[1], vec3()), spatial(A[2], vec3()))
        return F

    @wp.func
    def spread(e: wp.ref[Env], row: int, rows: int, link: int, F: mat36, own: real):
        """Add the up pass of wrenches F on a link to tie_u; own: a force on the link's last dof instead."""
        depth = e.model.depth[link]
        for n in range(depth):
            j = e.model.chain[link, depth - 1 - n]
            u = F @ e.dofs[j].S
            if n == 0 and own != real(0.0):
                u = vec3(own, real(0.0), real(0.0))
            for r in range(rows):
                e.tie_u[row + r, j] = e.tie_u[row + r, j] + u[r]
            F = F - wp.outer(u * e.dofs[j].Dinv, e.dofs[j].U)
        free = e.model.free_dof[link]
        if free >= 0:
            root = t.Root()
            side_path.substitute(e, free, F, root)
            for r in range(rows):
                for d in range(6):
                    e.tie_u[row + r, free + d] = e.tie_u[row + r, free + d] + root.u[r, d]

    @wp.func
    def clear_row(e: wp.ref[Env], row: int):
        for j in range(e.model.num_dofs):
            e.tie_u[row, j] = real(0.0)

    @wp.func
    def product(e: wp.ref[Env], row: int):
        """J Mhat^-1 times what an up pass has left in dofs.u."""
        x = real(0.0)
        for j in range(e.model.num_dofs):
            x += e.tie_u[row, j] * (e.dofs[j].Dinv * e.dofs[j].u)
        return x

    @wp.func
    def spread_coupling(e: wp.ref[Env], row: int, c: int, sign: real):
        clear_row(e, row)
        for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
            spread(e, row, 1, e.model.dof_link[e.model.term_dof[m]], mat36(), couplings.slope(e, m) * sign)

    @wp.func
    def coupling_of(e: wp.ref[Env], kind: int, index: int):
        if kind == PULL:
            index = e.model.drive_coupling[index]
        return index

    @wp.func
    def spring(e: wp.ref[Env], c: int):
        """Stretch and stiffness of a tendon; it is slack between two lengths."""
        x = couplings.length(e, c)
        k = e.params.tendon_stiffness[e.index, c]
        stretch = real(0.0)
        if x > e.model.coupling_rest[c, 1]:
            stretch = x - e.model.coupling_rest[c, 1]
        elif x < e.model.coupling_rest[c, 0]:
            stretch = x - e.model.coupling_rest[c, 0]
        else:
            k = real(0.0)
        return stretch, k

    @wp.func
    def drive_force(e: wp.ref[Env], k: int):
        """Force of a tendon's PD drive at the present rates."""
        kp, kd = couplings.drive_gains(e, k)
        damping = e.model.dt * kp + kd
        return couplings.drive_target(e, k) - damping * couplings.rate(e, e.model.drive_coupling[k])

    @wp.func
    def saturated(e: wp.ref[Env], k: int):
        return wp.abs(drive_force(e, k)) > e.params.effort_limit[e.index, k]

    @wp.func
    def acts(e: wp.ref[Env], kind: int, index: int):
        """Whether a tie has rows in this step."""
        active = bool(True)
        if kind == SPRING:
            _stretch, k = spring(e, index)
            active = k + e.params.tendon_damping[e.index, index] > real(0.0)
        elif kind == PULL:
            kp, kd = couplings.drive_gains(e, index)
            active = e.model.drive_type[index] != TORQUE and kp + kd > real(0.0) and not saturated(e, index)
        if t.at_impact(e):
            active = active and kind <= COUPLING
        return active

    @wp.func
    def terms(e: wp.ref[Env], tie: wp.ref[Tie], r: int):
        """Bias and compliance of row r of a tie."""
        h = e.model.dt
        bias = real(0.0)
        cfm = real(0.0)
        if tie.kind == SPRING:
            stretch, k = spring(e, tie.index)
            gain = h * k + e.params.tendon_damping[e.index, tie.index]
            bias = k * stretch / gain
            cfm = real(1.0) / (h * gain)
        elif tie.kind == PULL:
            bias, cfm = drive_terms(e, tie.index)
        else:
            error = tie.error[0]
            if tie.kind == COUPLING:
                cfm = e.params.coupling_cfm[e.index, tie.index]
            else:
                error = wp.dot(tie.axes[r], tie.error)
                cfm = e.params.loop_cfm[e.index, tie.index, tie.kind]
                if wp.dot(tie.axes[r], tie.axes[r]) == real(0.0):
                    cfm = real(1.0)  # a row that does nothing
            if not t.at_impact(e):
                bias = s.clip(e.model.tie_erp * error / h, e.model.max_push_speed)
        return bias, cfm

    @wp.func
    def drive_terms(e: wp.ref[Env], k: int):
        """Bias and compliance of a PD drive as a row, see joint_rows.py."""
        kp, kd = couplings.drive_gains(e, k)
        gain = e.model.dt * kp + kd
        return -couplings.drive_target(e, k) / gain, real(1.0) / (e.model.dt * gain)

    @wp.func
    def drive_terms_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, bias_bar: real, cfm_bar: real):
        """Returns the adjoint of the coupling's value."""
        kp, kd = couplings.drive_gains(e, k)
        h = e.model.dt
        gain = h * kp + kd
        length_bar = couplings.drive_target_adjoint(e, e_bar, k, -bias_bar / gain)
        gain_bar = (bias_bar * couplings.drive_target(e, k) - cfm_bar / h) / (gain * gain)
        actuation.damping_adjoint(e, e_bar, k, gain_bar)
        return length_bar

    @wp.func
    def find_tie(e: wp.ref[Env], tie: wp.ref[Tie]):
        """Up pass of a tie's rows, and b in tie_y."""
        row = tie.row
        if tie.kind <= TURN:
            place(e, tie)
            for r in range(3):
                clear_row(e, row + r)
            velocity = vec3()
            for side in range(2):
                i = tie.link_a
                if side == 1:
                    i = tie.link_b
                if i > 0:
                    F = side_wrenches(tie, side)
                    velocity += F @ e.links[i].v
                    spread(e, row, 3, i, F, real(0.0))
            for r in range(3):
                e.tie_y[row + r] = velocity[r]
        else:
            c = coupling_of(e, tie.kind, tie.index)
            tie.error = vec3(couplings.length(e, c), real(0.0), real(0.0))
            spread_coupling(e, row, c, real(1.0))
            e.tie_y[row] = couplings.rate(e, c)
        for r in range(row, row + tie.rows):
            bias, cfm = terms(e, tie, r - row)
            e.tie_cfm[r] = cfm
            e.tie_y[r] = e.tie_y[r] + product(e, r) * e.model.dt + bias

    @stage
    def find_ties(e: wp.ref[Env]):
        """List the ties that act, with their up passes and b."""
        count = int(0)
        row = int(0)
        for k in range(e.model.num_ties):
            kind = e.model.tie_kind[k]
            index = e.model.tie_index[k]
            if acts(e, kind, index):
                e.ties[count].kind = kind
                e.ties[count].index = index
                e.ties[count].row = row
                e.ties[count].rows = wp.where(kind <= TURN, 3, 1)
                find_tie(e, e.ties[count])
                row += e.ties[count].rows
                count += 1
        e.num_ties = count
        e.num_tie_rows = row

    # Rows of tendons with bounds

    @wp.func
    def add_bounded(e: wp.ref[Env], kind: int, index: int, sign: real, low: real, high: real):
        k = e.num_joint_rows
        e.joint_rows[k].kind = kind
        e.joint_rows[k].index = index
        e.joint_rows[k].dof = LAST - e.num_bounded
        e.joint_rows[k].link = 0  # the joints' own code finds no path from here
        e.joint_rows[k].sign = sign
        e.joint_rows[k].low = low
        e.joint_rows[k].high = high
        e.num_joint_rows = k + 1
        e.num_bounded = e.num_bounded + 1

    @wp.func
    def list_bounded(e: wp.ref[Env]):
        """Add tendons at a limit and tendons' drives beyond their effort to the joint rows."""
        e.num_bounded = 0
        if not t.at_impact(e):
            for n in range(e.model.num_limited_couplings):
                c = e.model.limited_couplings[n]
                x = couplings.length(e, c)
                if x < e.model.coupling_range[c, 0]:
                    add_bounded(e, TENDON_LIMIT, c, real(1.0), real(0.0), real(wp.inf))
                elif x > e.model.coupling_range[c, 1]:
                    add_bounded(e, TENDON_LIMIT, c, real(-1.0), real(0.0), real(wp.inf))
            for k in range(e.model.num_drives):
                if e.model.drive_coupling[k] >= 0 and e.model.drive_type[k] != TORQUE:
                    if saturated(e, k):
                        high = e.params.effort_limit[e.index, k] * e.model.dt
                        add_bounded(e, TENDON_DRIVE, k, real(1.0), -high, high)

    @wp.func
    def bounded_coupling(e: wp.ref[Env], row: wp.ref[JointRow]):
        c = row.index
        if row.kind == TENDON_DRIVE:
            c = e.model.drive_coupling[row.index]
        return c

    @wp.func
    def limit_gap(e: wp.ref[Env], row: wp.ref[JointRow]):
        """Of a tendon, negative beyond the limit."""
        side = wp.where(row.sign > real(0.0), 0, 1)
        return row.sign * (couplings.length(e, row.index) - e.model.coupling_range[row.index, side])

    @wp.func
    def bounded_row(e: wp.ref[Env], row: wp.ref[JointRow]):
        """Up pass of a tendon's bounded row; returns its entry of b."""
        c = bounded_coupling(e, row)
        spread_coupling(e, row.dof, c, row.sign)
        bias = real(0.0)
        cfm = real(0.0)
        if row.kind == TENDON_LIMIT:
            push = e.params.erp[e.index] * limit_gap(e, row) / e.model.dt
            bias = wp.where(push > -e.model.max_push_speed, push, -e.model.max_push_speed)
            cfm = e.params.cfm[e.index]
        else:
            bias, cfm = drive_terms(e, row.index)
        row.cfm = cfm
        return row.sign * couplings.rate(e, c) + product(e, row.dof) * e.model.dt + bias

    # Adjoint

    @wp.func
    def half_rate(e: wp.ref[Env], e_bar: wp.ref[EnvBar], row: int, dof: int):
        """What E does to the entry of J of a row at a dof; row: of E."""
        z = real(0.0)
        for h in range(e_bar.num_halves):
            if e_bar.halves[h].row == row and e_bar.halves[h].link == e.model.dof_link[dof]:
                z = e_bar.halves[h].H[0, 0]
        return z

    @wp.func
    def coupling_adjoint(
        e: wp.ref[Env], e_bar: wp.ref[EnvBar], c: int, row: wp.ref[JointRow], bar: wp.ref[JointRowBar], value_bar: real
    ):
        """J of a coupling's row, with its sign, x, b and place in E, and the coupling's value."""
        for m in range(e.model.term_start[c], e.model.term_start[c + 1]):
            j = e.model.term_dof[m]
            slope_bar = row.x / e.model.dt * e_bar.dofs[j].s + bar.b * (e.qd[j] + e.dofs[j].dqd)
            slope_bar += half_rate(e, e_bar, row.dof, j)
            e_bar.qd[j] = e_bar.qd[j] + row.sign * couplings.slope(e, m) * bar.b
            couplings.term_adjoint(e, e_bar, m, value_bar, row.sign * slope_bar)

    @wp.func
    def bounded_row_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int):
        """Of joint row k, which is a tendon's."""
        cfm_bar = e_bar.joint_rows[k].b * e.joint_rows[k].x + e_bar.joint_rows[k].E
        b = e_bar.joint_rows[k].b
        value_bar = real(0.0)
        if e.joint_rows[k].kind == TENDON_LIMIT:
            gap = limit_gap(e, e.joint_rows[k])
            if e.params.erp[e.index] * gap / e.model.dt > -e.model.max_push_speed:
                value_bar = e.joint_rows[k].sign * b * e.params.erp[e.index] / e.model.dt
                if e_bar.params.touch != 0:
                    e_bar.params.erp[e.index] = e_bar.params.erp[e.index] + b * gap / e.model.dt
            if e_bar.params.touch != 0:
                e_bar.params.cfm[e.index] = e_bar.params.cfm[e.index] + cfm_bar
        else:
            d = e.joint_rows[k].index
            value_bar = drive_terms_adjoint(e, e_bar, d, b, cfm_bar)
            if e_bar.params.joints != 0:
                e_bar.params.effort_limit[e.index, d] = (
                    e_bar.params.effort_limit[e.index, d] + e.model.dt * e_bar.joint_rows[k].bound
                )
        row = JointRow()
        row.sign = e.joint_rows[k].sign
        row.x = e.joint_rows[k].x
        row.dof = 3 * e.num_contacts + k
        c = bounded_coupling(e, e.joint_rows[k])
        coupling_adjoint(e, e_bar, c, row, e_bar.joint_rows[k], value_bar)

    @wp.func
    def coupling_tie_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], tie: wp.ref[Tie], first: int):
        row = JointRow()
        row.sign = real(1.0)
        row.x = e.tie_x[tie.row]
        row.dof = first + tie.row
        bar = JointRowBar()
        bar.b = e_bar.tie_b[tie.row]
        cfm_bar = bar.b * row.x + e_bar.tie_E[tie.row]
        value_bar = real(0.0)
        k = tie.index
        h = e.model.dt
        if tie.kind == COUPLING:
            if wp.abs(e.model.tie_erp * tie.error[0] / h) < e.model.max_push_speed and not t.at_impact(e):
                value_bar = bar.b * e.model.tie_erp / h
            if e_bar.params.ties != 0:
                e_bar.params.coupling_cfm[e.index, k] = e_bar.params.coupling_cfm[e.index, k] + cfm_bar
        elif tie.kind == SPRING:
            stretch, stiffness = spring(e, k)
            gain = h * stiffness + e.params.tendon_damping[e.index, k]
            value_bar = bar.b * stiffness / gain
            gain_bar = -(bar.b * stiffness * stretch + cfm_bar / h) / (gain * gain)
            if e_bar.params.ties != 0:
                e_bar.params.tendon_damping[e.index, k] = e_bar.params.tendon_damping[e.index, k] + gain_bar
                if stretch != real(0.0):
                    e_bar.params.tendon_stiffness[e.index, k] = (
                        e_bar.params.tendon_stiffness[e.index, k] + h * gain_bar + bar.b * stretch / gain
                    )
        else:
            value_bar = drive_terms_adjoint(e, e_bar, k, bar.b, cfm_bar)
        coupling_adjoint(e, e_bar, coupling_of(e, tie.kind, k), row, bar, value_bar)

    @wp.func
    def row_under(e: wp.ref[Env], e_bar: wp.ref[EnvBar], tie: wp.ref[Tie], second: int, F: vec6, X: vec6):
        """Adjoint of (a row's wrench F on a side).X to the place of the link; returns that of the row's axis."""
        i = tie.link_a
        p = tie.pa
        if second != 0:
            i = tie.link_b
            p = tie.pb
        e_bar.links[i].direct = e_bar.links[i].direct + cross_force(X, F)
        n_bar = angular(X)
        if tie.kind == POINT:
            n_bar = velocity_at(X, p)
            p_bar = wp.cross(s.linear(F), angular(X))
            e_bar.links[i].direct = e_bar.links[i].direct + wrench(p, p_bar)
            if e_bar.params.ties != 0:
                e_bar.params.loop_pos[e.index, tie.index, second] = (
                    e_bar.params.loop_pos[e.index, tie.index, second] + p_bar @ e.links[i].R
                )
        return n_bar * real(1 - 2 * second)

    @wp.func
    def loop_side_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], tie: wp.ref[Tie], second: int, first: int):
        """One side of a loop's rows; returns the adjoint of the axes."""
        i = tie.link_a
        if second != 0:
            i = tie.link_b
        F = side_wrenches(tie, second)
        W = e_bar.links[i].W
        v_next = e.links[i].v + e.links[i].dv
        axes_bar = mat33()
        for r in range(3):
            x = e.tie_x[tie.row + r] / e.model.dt
            b = e_bar.tie_b[tie.row + r]
            n_bar = row_under(e, e_bar, tie, second, F[r] * x, W) * x
            n_bar += row_under(e, e_bar, tie, second, F[r] * b, v_next) * b
            e_bar.links[i].Wbar = e_bar.links[i].Wbar - F[r] * x
            e_bar.links[i].dvbar = e_bar.links[i].dvbar + F[r] * b
            for c in range(3):
                axes_bar[r, c] = n_bar[c]
        for h in range(e_bar.num_halves):
            if e_bar.halves[h].row == first + tie.row and e_bar.halves[h].second == second:
                Z = e_bar.halves[h].Z
                for r in range(3):
                    n_bar = row_under(e, e_bar, tie, second, F[r], Z[r])
                    for c in range(3):
                        axes_bar[r, c] = axes_bar[r, c] + n_bar[c]
        return axes_bar

    @wp.func
    def loop_tie_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], tie: wp.ref[Tie], first: int):
        axes_bar = mat33()
        if tie.link_a > 0:
            axes_bar += loop_side_adjoint(e, e_bar, tie, 0, first)
        if tie.link_b > 0:
            axes_bar += loop_side_adjoint(e, e_bar, tie, 1, first)
        error_bar = vec3()
        for r in range(3):
            b = e_bar.tie_b[tie.row + r]
            share = e.model.tie_erp / e.model.dt
            n = tie.axes[r]
            if wp.abs(share * wp.dot(n, tie.error)) < e.model.max_push_speed and not t.at_impact(e):
                error_bar += n * (b * share)
                for c in range(3):
                    axes_bar[r, c] = axes_bar[r, c] + tie.error[c] * (b * share)
            if e_bar.params.ties != 0 and wp.dot(n, n) > real(0.0):
                e_bar.params.loop_cfm[e.index, tie.index, tie.kind] = (
                    e_bar.params.loop_cfm[e.index, tie.index, tie.kind]
                    + b * e.tie_x[tie.row + r] + e_bar.tie_E[tie.row + r]
                )  # fmt: skip
        if tie.kind == POINT and e_bar.params.ties != 0:
            a_bar = error_bar @ e.links[tie.link_a].R
            b_bar = error_bar @ e.links[tie.link_b].R
            e_bar.params.loop_pos[e.index, tie.index, 0] = e_bar.params.loop_pos[e.index, tie.index, 0] + a_bar
            e_bar.params.loop_pos[e.index, tie.index, 1] = e_bar.params.loop_pos[e.index, tie.index, 1] - b_bar
        place_adjoint(e, e_bar, tie, error_bar, axes_bar)

    @stage
    def ties_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """What the rows of ties depend on: wrenches on links, state, control and parameters."""
        first = 3 * e.num_contacts + e.num_joint_rows
        for k in range(e.num_ties):
            if e.ties[k].kind <= TURN:
                loop_tie_adjoint(e, e_bar, e.ties[k], first)
            else:
                coupling_tie_adjoint(e, e_bar, e.ties[k], first)
        for k in range(e.num_joint_rows):
            if e.joint_rows[k].kind >= TENDON_LIMIT:
                bounded_row_adjoint(e, e_bar, k)

    return exports(
        find_ties, list_bounded, bounded_row, product, ties_adjoint, side_wrenches, coupling_of, bounded_coupling,
        drive_force,
    )  # fmt: skip
