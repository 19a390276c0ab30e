"""How far the steps of a trajectory are from a switch, where a gradient is one-sided; one environment per thread."""

from functools import cache

import warp as wp

from ..rollout import make_stages, module_options
from ..types import TORQUE, Sizes


@cache
def make_diagnostics(real, sizes: Sizes):
    stages = make_stages(real, sizes)
    t, step, actuation, detection, larger = (
        stages.t, stages.step, stages.actuation, stages.detection, stages.spatial.larger
    )  # fmt: skip
    Model, Params, Memory, Work, Counts = t.Model, t.Params, step.Memory, step.Work, step.Counts

    @wp.func
    def smaller(a: real, b: real):
        return wp.where(a < b, a, b)

    @wp.func
    def impulse_margin(model: Model, counts: Counts, work: Work):
        """Smallest distance of an impulse from where its projection sets in or ends, over the largest impulse."""
        margin = real(wp.inf)
        scale = real(0.0)
        for k in range(counts.contacts):
            x = work.contacts[k].x
            G = work.contacts[k].G
            r = 3 * k
            # what one more step of each row would lead to
            yn = work.y[r] - G[0, 0] * x[0] - G[0, 1] * x[1] - G[0, 2] * x[2]
            yt = work.y[r + 1] - G[1, 0] * x[0] - G[1, 1] * x[1] - G[1, 2] * x[2]
            ys = work.y[r + 2] - G[2, 0] * x[0] - G[2, 1] * x[1] - G[2, 2] * x[2]
            scale = larger(scale, wp.length(x))
            margin = smaller(margin, wp.abs(yn))
            if x[0] > real(0.0):
                limit = work.contacts[k].mu * x[0]
                if model.pyramid != 0:
                    margin = smaller(margin, smaller(wp.abs(wp.abs(yt) - limit), wp.abs(wp.abs(ys) - limit)))
                else:
                    margin = smaller(margin, wp.abs(wp.sqrt(yt * yt + ys * ys) - limit))
        for k in range(counts.joint_rows):
            y = work.y[3 * counts.contacts + k]
            scale = larger(scale, wp.abs(work.joint_rows[k].x))
            margin = smaller(margin, smaller(wp.abs(y - work.joint_rows[k].low), wp.abs(y - work.joint_rows[k].high)))
        if scale > real(0.0):
            margin = margin / scale
        return margin

    @wp.func
    def drive_margin(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real),
    ):  # fmt: skip
        """Smallest distance of a drive's force from its effort limit, over that limit."""
        margin = real(wp.inf)
        for k in range(model.num_drives):
            j = model.drive_dof[k]
            limit = params.effort_limit[env, k]
            force = model.gear[k] * u[k]
            if model.drive_type[k] != TORQUE:
                kp, kd = actuation.drive_gains(model, params, env, k)
                force = actuation.drive_target(model, params, env, k, u[k], q[model.dof_q[j]])
                force -= (model.dt * kp + kd) * qd[j]
            if limit > real(0.0) and limit < real(wp.inf):
                margin = smaller(margin, wp.abs(wp.abs(force) - limit) / limit)
        return margin

    @wp.func
    def bounce_margin(model: Model, params: Params, env: int, counts: Counts, work: Work):
        """The same for the speed from which on an impact bounces."""
        margin = real(wp.inf)
        for k in range(counts.contacts):
            if params.restitution[env, work.contacts[k].pair] > real(0.0):
                if model.restitution_threshold > real(0.0):
                    speed = work.contacts[k].approach + model.restitution_threshold
                    margin = smaller(margin, wp.abs(speed) / model.restitution_threshold)
        return margin

    @wp.func
    def limit_gap(model: Model, params: Params, env: int, q: wp.array(dtype=real)):
        gap = real(wp.inf)
        for n in range(model.num_limited):
            j = model.limited[n]
            x = q[model.dof_q[j]]
            gap = smaller(gap, smaller(wp.abs(x - params.lower[env, j]), wp.abs(x - params.upper[env, j])))
        return gap

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def diagnostics(
        model: Model, params: Params, first: int, u: wp.array3d(dtype=real), q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real), counts: wp.array3d(dtype=int), residual: wp.array2d(dtype=real),
        margin: wp.array2d(dtype=real), gap: wp.array2d(dtype=real),
    ):  # fmt: skip
        env = first + wp.tid()
        memory = Memory()
        work = step.view(memory)
        for n in range(u.shape[0]):
            found = step.evaluate(model, params, env, q[n, env], qd[n, env], u[n, env], work)
            counts[n, env, 0] = found.contacts
            counts[n, env, 1] = found.joint_rows
            counts[n, env, 2] = found.sweeps
            residual[n, env] = found.change
            margin[n, env] = smaller(
                impulse_margin(model, found, work),
                smaller(
                    drive_margin(model, params, env, q[n, env], qd[n, env], u[n, env]),
                    bounce_margin(model, params, env, found, work),
                ),
            )
            gap[n, env] = smaller(
                detection.smallest_gap(model, params, env, q[n, env], work.links),
                limit_gap(model, params, env, q[n, env]),
            )

    return diagnostics
