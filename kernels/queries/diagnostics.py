"""How far the steps of a trajectory are from a switch, where a gradient is one-sided; one environment per thread."""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import NOTHING, TORQUE, Sizes


@cache
def make_diagnostics(real, sizes: Sizes):
    s = make_step(real, sizes)
    t, larger = s.t, s.spatial.larger

    @wp.func
    def smaller(a: real, b: real):
        return wp.where(a < b, a, b)

    @wp.func
    def impulse_margin(e: wp.ref[t.Env]):
        """Smallest distance of an impulse from where its projection sets in or ends, over the largest impulse."""
        margin = real(wp.inf)
        scale = real(0.0)
        for k in range(e.num_contacts):
            x = e.contacts[k].x
            G = e.contacts[k].G
            r = 3 * k
            # what one more step of each row would lead to
            yn = e.y[r] - G[0, 0] * x[0] - G[0, 1] * x[1] - G[0, 2] * x[2]
            yt = e.y[r + 1] - G[1, 0] * x[0] - G[1, 1] * x[1] - G[1, 2] * x[2]
            ys = e.y[r + 2] - G[2, 0] * x[0] - G[2, 1] * x[1] - G[2, 2] * x[2]
            scale = larger(scale, wp.length(x))
            margin = smaller(margin, wp.abs(yn))
            if x[0] > real(0.0):
                limit = e.contacts[k].mu * x[0]
                if e.model.pyramid != 0:
                    margin = smaller(margin, smaller(wp.abs(wp.abs(yt) - limit), wp.abs(wp.abs(ys) - limit)))
                else:
                    margin = smaller(margin, wp.abs(wp.sqrt(yt * yt + ys * ys) - limit))
        for k in range(e.num_joint_rows):
            y = e.y[3 * e.num_contacts + k]
            scale = larger(scale, wp.abs(e.joint_rows[k].x))
            margin = smaller(margin, smaller(wp.abs(y - e.joint_rows[k].low), wp.abs(y - e.joint_rows[k].high)))
        if scale > real(0.0):
            margin = margin / scale
        return margin

    @wp.func
    def drive_margin(e: wp.ref[t.Env]):
        """Smallest distance of a drive's force from its effort limit, over that limit."""
        margin = real(wp.inf)
        for k in range(e.model.num_drives):
            limit = e.params.effort_limit[e.index, k]
            force = e.model.gear[k] * e.u[k]
            if e.model.drive_type[k] > TORQUE:  # a PD drive
                j = e.model.drive_dof[k]
                if wp.static(sizes.ties > 0):
                    if j < 0:
                        force = s.rows.ties.drive_force(e, k)
                if j >= 0:
                    kp, kd = s.actuation.drive_gains(e, k)
                    force = s.actuation.drive_target(e, k) - (e.model.dt * kp + kd) * e.qd[j]
            if limit > real(0.0) and limit < real(wp.inf):
                margin = smaller(margin, wp.abs(wp.abs(s.actuation.excess(e, k, force)) - limit) / limit)
        return margin

    @wp.func
    def bounce_margin(e: wp.ref[t.Env]):
        """The same for the speed above which an impact bounces."""
        margin = real(wp.inf)
        for k in range(e.num_contacts):
            if e.params.restitution[e.index, e.contacts[k].pair] > real(0.0):
                if e.model.restitution_threshold > real(0.0):
                    speed = e.contacts[k].approach + e.model.restitution_threshold
                    margin = smaller(margin, wp.abs(speed) / e.model.restitution_threshold)
        return margin

    @wp.func
    def limit_gap(e: wp.ref[t.Env]):
        gap = real(wp.inf)
        for n in range(e.model.num_limited):
            j = e.model.limited[n]
            x = e.q[e.model.dof_q[j]]
            gap = smaller(gap, smaller(wp.abs(x - e.params.lower[e.index, j]), wp.abs(x - e.params.upper[e.index, j])))
        return gap

    @wp.func
    def impact(e: wp.ref[t.Env], time: wp.array(dtype=real), speed: wp.array(dtype=real)):
        """Time of the first impact over dt, and the lowest speed of one over that of the slowest impacts."""
        s.impacts.arrival(e)
        if e.hit != NOTHING:
            if e.stage == 0:
                time[e.index] = e.tau / e.h
            speed[e.index] = smaller(speed[e.index], s.impacts.speed(e) / e.model.restitution_threshold)

    @wp.kernel(**KERNEL, module_options=module_options())
    def diagnostics(
        model: t.Model, params: t.Params, first: int, u: wp.array3d(dtype=real), wrench: wp.array4d(dtype=real),
        q: wp.array3d(dtype=real), qd: wp.array3d(dtype=real), counts: wp.array3d(dtype=int),
        residual: wp.array2d(dtype=real),
        margin: wp.array2d(dtype=real), gap: wp.array2d(dtype=real), time: wp.array2d(dtype=real),
        speed: wp.array2d(dtype=real),
    ):  # fmt: skip
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        for n in range(u.shape[0]):
            e.q = q[n, env]
            e.qd = qd[n, env]
            e.u = u[n, env]
            if wp.static(sizes.wrenches):
                e.wrench = wrench[n, env]
            s.begin(e)
            time[n, env] = real(wp.inf)
            speed[n, env] = real(wp.inf)
            more = bool(True)
            while more:
                s.evaluate(e)
                if e.stage == 0:
                    counts[n, env, 0] = e.num_contacts
                    counts[n, env, 1] = e.num_joint_rows
                    counts[n, env, 2] = e.sweeps
                    residual[n, env] = e.change
                    margin[n, env] = smaller(impulse_margin(e), smaller(drive_margin(e), bounce_margin(e)))
                    gap[n, env] = smaller(s.detection.smallest_gap(e), limit_gap(e))
                if wp.static(sizes.impacts > 0):
                    if not t.at_impact(e):
                        impact(e, time[n], speed[n])
                counts[n, env, 3] = (e.stage + 1) / 2
                more = not s.last(e)
            e.stage = 0

    return diagnostics
