"""Contacts between spheres and capsules: sphere-sphere, sphere-capsule, capsule-capsule.

Each is two spheres ("balls") around points of the two axes: n points from b to a, z = distance - radii, and p lies in
the middle of the overlap. Conventions of the adjoints: collision_plane.py.
"""

from types import SimpleNamespace

import warp as wp

PARALLEL = 1.0e-4  # squared sine of the angle below which two capsules touch at both ends of their overlap
TINY = 1.0e-16  # squared distance below which a normal is chosen, not computed
ABSENT = 15  # code of a candidate that does not exist


def make_collision_round(t):
    real, vec3, mat33 = t.real, t.vec3, t.mat33

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
    def balls_point_adjoint(
        ca: vec3, ra: real, cb: vec3, rb: real, fallback: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns ca_bar, ra_bar, cb_bar, rb_bar."""
        d = ca - cb
        length = wp.sqrt(wp.dot(d, d))
        n = fallback
        turn = vec3()
        if length * length > real(TINY):
            n = d / length
            turn = n_bar + p_bar * (real(0.5) * (rb - ra))
            turn = (turn - n * wp.dot(n, turn)) / length
        d_bar = turn + n * z_bar
        half = real(0.5) * wp.dot(n, p_bar)
        return p_bar * real(0.5) + d_bar, -z_bar - half, p_bar * real(0.5) - d_bar, -z_bar + half

    @wp.func
    def sphere_sphere_point(xa: vec3, ra: real, xb: vec3, rb: real):
        return balls_point(xa, ra, xb, rb, vec3(real(0.0), real(0.0), real(1.0)))

    @wp.func
    def sphere_sphere_point_adjoint(xa: vec3, ra: real, xb: vec3, rb: real, p_bar: vec3, n_bar: vec3, z_bar: real):
        """Returns xa_bar, ra_bar, xb_bar, rb_bar."""
        return balls_point_adjoint(xa, ra, xb, rb, vec3(real(0.0), real(0.0), real(1.0)), p_bar, n_bar, z_bar)

    @wp.func
    def sphere_capsule_point(xa: vec3, ra: real, xb: vec3, Rb: mat33, sb: vec3):
        u = Rb[:, 2]
        along = wp.clamp(wp.dot(u, xa - xb), -sb[1], sb[1])
        return balls_point(xa, ra, xb + u * along, sb[0], Rb[:, 0])

    @wp.func
    def sphere_capsule_point_adjoint(
        xa: vec3, ra: real, xb: vec3, Rb: mat33, sb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns xa_bar, ra_bar, xb_bar, phib, sb_bar."""
        u = Rb[:, 2]
        d = xa - xb
        free = wp.dot(u, d)
        along = wp.clamp(free, -sb[1], sb[1])
        xa_bar, ra_bar, cb_bar, rb_bar = balls_point_adjoint(
            xa, ra, xb + u * along, sb[0], Rb[:, 0], p_bar, n_bar, z_bar
        )
        along_bar = wp.dot(u, cb_bar)
        u_bar = cb_bar * along
        half_bar = real(0.0)
        xb_bar = cb_bar
        if free > sb[1]:
            half_bar = along_bar
        elif free < -sb[1]:
            half_bar = -along_bar
        else:
            xa_bar += u * along_bar
            xb_bar -= u * along_bar
            u_bar += d * along_bar
        return xa_bar, ra_bar, xb_bar, wp.cross(u, u_bar), vec3(rb_bar, half_bar, real(0.0))

    @wp.func
    def end_state(along: real, half: real):
        """0: inside the axis, 1: at or below its lower end, 2: at or above its upper end."""
        return wp.where(along <= -half, 1, wp.where(along >= half, 2, 0))

    @wp.func
    def axis_end(state: int, half: real):
        return wp.where(state == 1, -half, half)

    @wp.func
    def capsule_capsule_mode(xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        """mode = code of candidate 0 + 16 code of candidate 1; code = 3 state on a + state on b (end_state), or ABSENT.

        -1: surely apart. Nearly parallel capsules touch at both ends of their overlap.
        """
        d = xa - xb
        reach = sa[0] + sa[1] + sb[0] + sb[1]
        if wp.dot(d, d) > reach * reach:
            return -1
        ua = Ra[:, 2]
        ub = Rb[:, 2]
        b = wp.dot(ua, ub)
        c = wp.dot(ua, d)
        f = wp.dot(ub, d)
        det = real(1.0) - b * b
        if det < real(PARALLEL):
            shadow = wp.abs(b) * sb[1]  # half length of b's axis seen from a, around -c
            if wp.min(sa[1], shadow - c) > wp.max(-sa[1], -shadow - c):
                lower = wp.where(b > real(0.0), 1, 2)  # the end of b that is lower along a
                first = wp.where(-sa[1] > -shadow - c, 3, lower)
                second = wp.where(sa[1] < shadow - c, 6, 3 - lower)
                return first + 16 * second
            det = real(1.0)
        i = end_state((b * f - c) / det, sa[1])
        s = (b * f - c) / det
        if i != 0:
            s = axis_end(i, sa[1])
        j = end_state(b * s + f, sb[1])
        if j != 0:
            i = end_state(b * axis_end(j, sb[1]) - c, sa[1])
        return 3 * i + j + 16 * ABSENT

    @wp.func
    def capsule_axes(code: int, ua: vec3, ha: real, ub: vec3, hb: real, d: vec3):
        """Where on the two axes the balls sit: s on a, t on b."""
        b = wp.dot(ua, ub)
        c = wp.dot(ua, d)
        f = wp.dot(ub, d)
        i = code // 3
        j = code % 3
        s = axis_end(i, ha)
        t = axis_end(j, hb)
        if i == 0 and j == 0:
            s = (b * f - c) / wp.max(real(1.0) - b * b, real(TINY))
        elif i == 0:
            s = b * t - c
        if j == 0:
            t = b * s + f
        return s, t

    @wp.func
    def capsule_axes_adjoint(
        code: int, ua: vec3, ha: real, ub: vec3, hb: real, d: vec3, s: real, t: real, s_bar: real, t_bar: real
    ):
        """Returns d_bar, ua_bar, ha_bar, ub_bar, hb_bar."""
        b = wp.dot(ua, ub)
        i = code // 3
        j = code % 3
        b_bar = real(0.0)
        c_bar = real(0.0)
        f_bar = real(0.0)
        ha_bar = real(0.0)
        hb_bar = real(0.0)
        if i == 0 and j == 0:
            det = wp.max(real(1.0) - b * b, real(TINY))
            f_bar = (b * s_bar + t_bar) / det
            c_bar = -(s_bar + b * t_bar) / det
            b_bar = f_bar * s - c_bar * t
        elif i == 0:
            c_bar = -s_bar
            b_bar = t * s_bar
            hb_bar = axis_end(j, t_bar + b * s_bar)
        elif j == 0:
            f_bar = t_bar
            b_bar = s * t_bar
            ha_bar = axis_end(i, s_bar + b * t_bar)
        else:
            ha_bar = axis_end(i, s_bar)
            hb_bar = axis_end(j, t_bar)
        return ua * c_bar + ub * f_bar, ub * b_bar + d * c_bar, ha_bar, ua * b_bar + d * f_bar, hb_bar

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
        """Code of the candidate that a feature of capsule_capsule_mode names."""
        mode = feature // 16
        return wp.where(feature < 0, ABSENT, wp.where(feature % 16 == 0, mode % 16, mode // 16))

    @wp.func
    def capsule_capsule_point(feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        """feature: 16 mode + candidate (0, 1)."""
        ua = Ra[:, 2]
        ub = Rb[:, 2]
        code = candidate_code(feature)
        s, t = capsule_axes(code, ua, sa[1], ub, sb[1], xa - xb)
        p, n, z = balls_point(xa + ua * s, sa[0], xb + ub * t, sb[0], across(ua, Ra, ub))
        return p, n, wp.where(code == ABSENT, real(1.0), z)

    @wp.func
    def capsule_capsule_point_adjoint(
        feature: int,
        xa: vec3, Ra: mat33, sa: vec3,
        xb: vec3, Rb: mat33, sb: vec3,
        p_bar: vec3, n_bar: vec3, z_bar: real,
    ):  # fmt: skip
        """Returns xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        ua = Ra[:, 2]
        ub = Rb[:, 2]
        d = xa - xb
        code = candidate_code(feature)
        s, t = capsule_axes(code, ua, sa[1], ub, sb[1], d)
        ca_bar, ra_bar, cb_bar, rb_bar = balls_point_adjoint(
            xa + ua * s, sa[0], xb + ub * t, sb[0], across(ua, Ra, ub), p_bar, n_bar, z_bar
        )
        d_bar, ua_bar, ha_bar, ub_bar, hb_bar = capsule_axes_adjoint(
            code, ua, sa[1], ub, sb[1], d, s, t, wp.dot(ua, ca_bar), wp.dot(ub, cb_bar)
        )
        phia = wp.cross(ua, ua_bar + ca_bar * s)
        phib = wp.cross(ub, ub_bar + cb_bar * t)
        o = real(0.0)
        return ca_bar + d_bar, phia, vec3(ra_bar, ha_bar, o), cb_bar - d_bar, phib, vec3(rb_bar, hb_bar, o)

    return SimpleNamespace(**locals())
