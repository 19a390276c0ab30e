"""Contacts between spheres and capsules: sphere-sphere, sphere-capsule, capsule-capsule.

Each is two spheres ("balls") around points of the two axes: n points from b to a, z = distance - radii, and p lies in
the middle of the overlap.
"""

from types import SimpleNamespace

import warp as wp

PARALLEL = 1.0e-4  # squared sine of the angle below which two capsules touch at both ends of their overlap
TINY = 1.0e-16  # squared distance below which a normal is chosen, not computed
ABSENT = 15  # code of a candidate that does not exist


def make_round(g):
    real, vec3, mat33, Pose, PointBar = g.real, g.vec3, g.mat33, g.Pose, g.PointBar
    pose_bar, radius_bar = g.pose_bar, g.radius_bar

    @wp.func
    def balls_point(ca: vec3, ra: real, cb: vec3, rb: real, fallback: vec3):
        """fallback: the normal of coincident centres."""
        d = ca - cb
        length = wp.sqrt(wp.dot(d, d))
        n = fallback
        if length * length > real(TINY):
            n = d / length
        return (ca + cb) * real(0.5) + n * (real(0.5) * (rb - ra)), n, length - ra - rb

    @wp.func
    def balls_adjoint(ca: vec3, ra: real, cb: vec3, rb: real, fallback: vec3, bar: PointBar):
        """Returns ca_bar, ra_bar, cb_bar, rb_bar."""
        d = ca - cb
        length = wp.sqrt(wp.dot(d, d))
        n = fallback
        turn = vec3()
        if length * length > real(TINY):
            n = d / length
            turn = bar.n + bar.p * (real(0.5) * (rb - ra))
            turn = (turn - n * wp.dot(n, turn)) / length
        d_bar = turn + n * bar.z
        half = real(0.5) * wp.dot(n, bar.p)
        return bar.p * real(0.5) + d_bar, -bar.z - half, bar.p * real(0.5) - d_bar, -bar.z + half

    @wp.func
    def spheres_point(feature: int, a: Pose, b: Pose):
        return balls_point(a.x, a.size[0], b.x, b.size[0], vec3(real(0.0), real(0.0), real(1.0)))

    @wp.func
    def spheres_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        up = vec3(real(0.0), real(0.0), real(1.0))
        ca_bar, ra_bar, cb_bar, rb_bar = balls_adjoint(a.x, a.size[0], b.x, b.size[0], up, bar)
        return pose_bar(ca_bar, vec3(), radius_bar(ra_bar)), pose_bar(cb_bar, vec3(), radius_bar(rb_bar))

    @wp.func
    def sphere_capsule_point(feature: int, a: Pose, b: Pose):
        u = b.R[:, 2]
        along = wp.clamp(wp.dot(u, a.x - b.x), -b.size[1], b.size[1])
        return balls_point(a.x, a.size[0], b.x + u * along, b.size[0], b.R[:, 0])

    @wp.func
    def sphere_capsule_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        u = b.R[:, 2]
        d = a.x - b.x
        half = b.size[1]
        free = wp.dot(u, d)
        along = wp.clamp(free, -half, half)
        xa_bar, ra_bar, cb_bar, rb_bar = balls_adjoint(a.x, a.size[0], b.x + u * along, b.size[0], b.R[:, 0], bar)
        along_bar = wp.dot(u, cb_bar)
        u_bar = cb_bar * along
        half_bar = real(0.0)
        xb_bar = cb_bar
        if free > half:
            half_bar = along_bar
        elif free < -half:
            half_bar = -along_bar
        else:
            xa_bar += u * along_bar
            xb_bar -= u * along_bar
            u_bar += d * along_bar
        A = pose_bar(xa_bar, vec3(), radius_bar(ra_bar))
        return A, pose_bar(xb_bar, wp.cross(u, u_bar), vec3(rb_bar, half_bar, real(0.0)))

    @wp.func
    def end_state(along: real, half: real):
        """0: inside the axis, 1: at or below its lower end, 2: at or above its upper end."""
        return wp.where(along <= -half, 1, wp.where(along >= half, 2, 0))

    @wp.func
    def axis_end(state: int, half: real):
        return wp.where(state == 1, -half, half)

    @wp.func
    def capsules_mode(a: Pose, b: Pose):
        """mode = code of candidate 0 + 16 code of candidate 1; code = 3 state on a + state on b (end_state), or ABSENT.

        Nearly parallel capsules touch at both ends of their overlap.
        """
        ha = a.size[1]
        hb = b.size[1]
        d = a.x - b.x
        ua = a.R[:, 2]
        ub = b.R[:, 2]
        along = wp.dot(ua, ub)
        c = wp.dot(ua, d)
        f = wp.dot(ub, d)
        det = real(1.0) - along * along
        if det < real(PARALLEL):
            shadow = wp.abs(along) * hb  # half length of b's axis seen from a, around -c
            if wp.min(ha, shadow - c) > wp.max(-ha, -shadow - c):
                lower = wp.where(along > real(0.0), 1, 2)  # the end of b that is lower along a
                first = wp.where(-ha > -shadow - c, 3, lower)
                second = wp.where(ha < shadow - c, 6, 3 - lower)
                return first + 16 * second
            det = real(1.0)
        i = end_state((along * f - c) / det, ha)
        s = (along * f - c) / det
        if i != 0:
            s = axis_end(i, ha)
        j = end_state(along * s + f, hb)
        if j != 0:
            i = end_state(along * axis_end(j, hb) - c, ha)
        return 3 * i + j + 16 * ABSENT

    @wp.func
    def capsule_axes(code: int, a: Pose, b: Pose):
        """Where on the two axes the balls are: s on a, t on b."""
        ua = a.R[:, 2]
        ub = b.R[:, 2]
        d = a.x - b.x
        along = wp.dot(ua, ub)
        c = wp.dot(ua, d)
        f = wp.dot(ub, d)
        i = code // 3
        j = code % 3
        s = axis_end(i, a.size[1])
        t = axis_end(j, b.size[1])
        if i == 0 and j == 0:
            s = (along * f - c) / wp.max(real(1.0) - along * along, real(TINY))
        elif i == 0:
            s = along * t - c
        if j == 0:
            t = along * s + f
        return s, t

    @wp.func
    def capsule_axes_adjoint(code: int, a: Pose, b: Pose, s_bar: real, t_bar: real):
        """Returns d_bar (d = xa - xb), ua_bar, ha_bar, ub_bar, hb_bar."""
        s, t = capsule_axes(code, a, b)
        ua = a.R[:, 2]
        ub = b.R[:, 2]
        d = a.x - b.x
        along = wp.dot(ua, ub)
        i = code // 3
        j = code % 3
        along_bar = real(0.0)
        c_bar = real(0.0)
        f_bar = real(0.0)
        ha_bar = real(0.0)
        hb_bar = real(0.0)
        if i == 0 and j == 0:
            det = wp.max(real(1.0) - along * along, real(TINY))
            f_bar = (along * s_bar + t_bar) / det
            c_bar = -(s_bar + along * t_bar) / det
            along_bar = f_bar * s - c_bar * t
        elif i == 0:
            c_bar = -s_bar
            along_bar = t * s_bar
            hb_bar = axis_end(j, t_bar + along * s_bar)
        elif j == 0:
            f_bar = t_bar
            along_bar = s * t_bar
            ha_bar = axis_end(i, s_bar + along * t_bar)
        else:
            ha_bar = axis_end(i, s_bar)
            hb_bar = axis_end(j, t_bar)
        return ua * c_bar + ub * f_bar, ub * along_bar + d * c_bar, ha_bar, ua * along_bar + d * f_bar, hb_bar

    @wp.func
    def across(ua: vec3, Ra: mat33, ub: vec3):
        """A normal for capsules whose axes meet."""
        n = wp.cross(ua, ub)
        length = wp.length(n)
        if length * length > real(1.0e-12):
            n = n / length
        else:
            n = Ra[:, 0]
        return n

    @wp.func
    def candidate_code(feature: int):
        """Code of the candidate that a feature of capsules_mode names."""
        mode = feature // 16
        return wp.where(feature < 0, ABSENT, wp.where(feature % 16 == 0, mode % 16, mode // 16))

    @wp.func
    def capsules_point(feature: int, a: Pose, b: Pose):
        """feature: 16 mode + candidate (0, 1)."""
        ua = a.R[:, 2]
        ub = b.R[:, 2]
        code = candidate_code(feature)
        s, t = capsule_axes(code, a, b)
        p, n, z = balls_point(a.x + ua * s, a.size[0], b.x + ub * t, b.size[0], across(ua, a.R, ub))
        return p, n, wp.where(code == ABSENT, real(1.0), z)

    @wp.func
    def capsules_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        o = real(0.0)
        ua = a.R[:, 2]
        ub = b.R[:, 2]
        code = candidate_code(feature)
        s, t = capsule_axes(code, a, b)
        ca_bar, ra_bar, cb_bar, rb_bar = balls_adjoint(
            a.x + ua * s, a.size[0], b.x + ub * t, b.size[0], across(ua, a.R, ub), bar
        )
        d_bar, ua_bar, ha_bar, ub_bar, hb_bar = capsule_axes_adjoint(code, a, b, wp.dot(ua, ca_bar), wp.dot(ub, cb_bar))
        A = pose_bar(ca_bar + d_bar, wp.cross(ua, ua_bar + ca_bar * s), vec3(ra_bar, ha_bar, o))
        return A, pose_bar(cb_bar - d_bar, wp.cross(ub, ub_bar + cb_bar * t), vec3(rb_bar, hb_bar, o))

    return SimpleNamespace(
        sphere_sphere=SimpleNamespace(point=spheres_point, adjoint=spheres_adjoint),
        sphere_capsule=SimpleNamespace(point=sphere_capsule_point, adjoint=sphere_capsule_adjoint),
        capsule_capsule=SimpleNamespace(mode=capsules_mode, point=capsules_point, adjoint=capsules_adjoint),
    )
