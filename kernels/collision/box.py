"""Contacts of a sphere or capsule (shape a) with a box (shape b).

A contact is a sphere around a point c (box frame) of a's axis. Space around the box has 27 regions: on each axis c is
inside, below the lower or above the upper side. If c is inside on all, a face is chosen instead, so that a region
always has one to three sides: a face, an edge or a corner. p lies on the box.
"""

from types import SimpleNamespace

import warp as wp

TINY = 1.0e-20  # squared distance below which a point counts as inside
DEEP = 1.0e-12  # squared distance below which a capsule's axis counts as cutting the box
STEEP = 1.0e-6  # an axis direction below this is parallel to the face
ALONG = 0.9999  # squared cosine above which a capsule lies along an edge
SHORT = 1.0e-3  # two points closer than this part of the half length are one
PREFER_FACE = 0.95  # a cut edge must be this much less deep than a face to be chosen
CLOSEST = 8  # rule for the point of the capsule's axis: 0, 1 its ends; 2..7 where it crosses a side; 8 the closest
ABSENT = 255
AHEAD = 0.02  # m; a capsule that is farther from the box on some axis is not looked at


def make_box(g):
    real, vec3, Pose, PointBar = g.real, g.vec3, g.Pose, g.PointBar
    pose_bar, radius_bar = g.pose_bar, g.radius_bar

    @wp.func
    def region_sides(region: int):
        """Per axis -1, 0 or 1: below, inside or above the box."""
        o = real(0.0)
        one = real(1.0)
        i = region % 3
        j = (region // 3) % 3
        k = region // 9
        return vec3(
            wp.where(i == 0, o, wp.where(i == 1, -one, one)),
            wp.where(j == 0, o, wp.where(j == 1, -one, one)),
            wp.where(k == 0, o, wp.where(k == 1, -one, one)),
        )

    @wp.func
    def face_region(axis: int, positive: bool):
        scale = wp.where(axis == 0, 1, wp.where(axis == 1, 3, 9))
        return wp.where(positive, 2 * scale, scale)

    @wp.func
    def outside_region(c: vec3, s: vec3):
        """Region of c, how many of its axes are outside, and the squared distance to the box."""
        region = int(0)
        count = int(0)
        distance2 = real(0.0)
        for i in range(3):
            out = wp.abs(c[i]) - s[i]
            if out > real(0.0):
                region += face_region(i, c[i] > real(0.0))
                count += 1
                distance2 += out * out
        return region, count, distance2

    @wp.func
    def nearest_face(c: vec3, s: vec3):
        axis = int(0)
        for i in range(1, 3):
            if s[i] - wp.abs(c[i]) < s[axis] - wp.abs(c[axis]):
                axis = i
        return face_region(axis, c[axis] >= real(0.0))

    @wp.func
    def box_region(c: vec3, s: vec3):
        region, count, distance2 = outside_region(c, s)
        if count == 0 or (count > 1 and distance2 < real(TINY)):
            region = nearest_face(c, s)
        return region

    @wp.func
    def project(sides: vec3, c: vec3, s: vec3):
        """The point of the region's face, edge or corner next to c."""
        o = real(0.0)
        return vec3(
            wp.where(sides[0] == o, c[0], sides[0] * s[0]),
            wp.where(sides[1] == o, c[1], sides[1] * s[1]),
            wp.where(sides[2] == o, c[2], sides[2] * s[2]),
        )

    @wp.func
    def region_normal(sides: vec3, out: vec3):
        """Unit normal for the distance vector `out`, and the length it was divided by (0: a face, nothing divided)."""
        n = sides
        length = real(0.0)
        if wp.dot(sides, sides) > real(1.5):
            length = wp.max(wp.length(out), real(1.0e-12))
            n = out / length
        return n, length

    @wp.func
    def out_adjoint(n: vec3, length: real, n_bar: vec3, z_bar: real):
        """Adjoint of the distance vector under n = region_normal and z = n.out."""
        out_bar = n * z_bar
        if length > real(0.0):
            out_bar += (n_bar - n * wp.dot(n, n_bar)) / length
        return out_bar

    @wp.func
    def project_adjoint(sides: vec3, out_bar: vec3, face_bar: vec3):
        """Adjoint of face = project(c), out = c - face; returns l_bar, s_bar."""
        inside = vec3(real(1.0)) - wp.cw_mul(sides, sides)
        l_bar = wp.cw_mul(inside, face_bar) + wp.cw_mul(vec3(real(1.0)) - inside, out_bar)
        return l_bar, wp.cw_mul(sides, face_bar - out_bar)

    @wp.func
    def sphere_box_point(feature: int, a: Pose, b: Pose):
        c = (a.x - b.x) @ b.R
        sides = region_sides(box_region(c, b.size))
        face = project(sides, c, b.size)
        out = c - face
        n, _length = region_normal(sides, out)
        return b.x + b.R @ face, b.R @ n, wp.dot(n, out) - a.size[0]

    @wp.func
    def sphere_box_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        c = (a.x - b.x) @ b.R
        sides = region_sides(box_region(c, b.size))
        face = project(sides, c, b.size)
        n, length = region_normal(sides, c - face)
        out_bar = out_adjoint(n, length, bar.n @ b.R, bar.z)
        l_bar, size = project_adjoint(sides, out_bar, bar.p @ b.R)
        x = b.R @ l_bar
        phi = wp.cross(b.R @ n, bar.n) + wp.cross(b.R @ face, bar.p) - wp.cross(a.x - b.x, x)
        return pose_bar(x, vec3(), radius_bar(-bar.z)), pose_bar(bar.p - x, phi, size)

    @wp.func
    def slope(l0: vec3, w: vec3, s: vec3, along: real):
        """Half the derivative of the squared distance of l0 + along w to the box: never decreases."""
        g = real(0.0)
        for i in range(3):
            x = l0[i] + along * w[i]
            g += w[i] * (x - wp.clamp(x, -s[i], s[i]))
        return g

    @wp.func
    def closest_along(l0: vec3, w: vec3, h: real, s: vec3):
        """Point of the axis l0 + along w, |along| <= h, that is closest to the box, and the rule for it."""
        lo = real(-1.0) * h
        hi = real(1.0) * h
        g_lo = slope(l0, w, s, lo)
        g_hi = slope(l0, w, s, hi)
        if g_lo >= real(0.0):
            return lo, 0
        if g_hi <= real(0.0):
            return hi, 1
        for k in range(6):  # between the crossings of the six sides the slope is linear
            i = k // 2
            if wp.abs(w[i]) > real(STEEP):
                x = (wp.where(k % 2 == 0, -s[i], s[i]) - l0[i]) / w[i]
                if x > lo and x < hi:
                    g = slope(l0, w, s, x)
                    if g <= real(0.0):
                        lo = x
                        g_lo = g
                    else:
                        hi = x
                        g_hi = g
        return lo - g_lo * (hi - lo) / (g_hi - g_lo), CLOSEST

    @wp.func
    def stretch(l0: vec3, w: vec3, h: real, s: vec3, sides: vec3):
        """The part of the axis between those sides of the box that the region does not name: both ends and rules."""
        lo = real(-1.0) * h
        hi = real(1.0) * h
        rule_lo = int(0)
        rule_hi = int(1)
        for i in range(3):
            if sides[i] == real(0.0):
                if wp.abs(w[i]) > real(STEEP):
                    up = wp.where(w[i] > real(0.0), 1, 0)
                    enter = (wp.where(up == 1, -s[i], s[i]) - l0[i]) / w[i]
                    leave = (wp.where(up == 1, s[i], -s[i]) - l0[i]) / w[i]
                    if enter > lo:
                        lo = enter
                        rule_lo = 3 + 2 * i - up
                    if leave < hi:
                        hi = leave
                        rule_hi = 2 + 2 * i + up
                elif wp.abs(l0[i]) > s[i]:
                    hi = lo - real(1.0)
        return lo, rule_lo, hi, rule_hi

    @wp.func
    def both_ends(l0: vec3, w: vec3, h: real, s: vec3, region: int):
        """Mode of a capsule that lies along a face or an edge: both ends of the stretch, if it is no mere point."""
        lo, rule_lo, hi, rule_hi = stretch(l0, w, h, s, region_sides(region))
        second = int(ABSENT)
        if hi - lo > real(SHORT) * h:
            second = rule_hi * 27 + region
        return rule_lo * 27 + region + 256 * second

    @wp.func
    def cutting_mode(l0: vec3, w: vec3, h: real, s: vec3):
        """Mode of a capsule whose axis cuts the box: the way out of least depth, over a face or over an edge."""
        depth = s[0] + h * wp.abs(w[0]) - wp.abs(l0[0])
        axis = int(0)
        for i in range(1, 3):
            d = s[i] + h * wp.abs(w[i]) - wp.abs(l0[i])
            if d < depth:
                depth = d
                axis = i
        depth = depth * real(PREFER_FACE)
        edge = int(-1)
        for k in range(3):
            i = (k + 1) % 3
            j = (k + 2) % 3
            length2 = w[i] * w[i] + w[j] * w[j]
            if length2 > real(1.0 - ALONG):
                d = s[i] * wp.abs(w[j]) + s[j] * wp.abs(w[i]) - wp.abs(w[j] * l0[i] - w[i] * l0[j])
                d = d / wp.sqrt(length2)
                if d < depth:
                    depth = d
                    turned = w[j] * l0[i] - w[i] * l0[j] > real(0.0)
                    edge = face_region(i, (w[j] > real(0.0)) == turned) + face_region(j, (w[i] < real(0.0)) == turned)
        region = face_region(axis, l0[axis] >= real(0.0))
        mode = both_ends(l0, w, h, s, region)
        if edge >= 0:
            mode = CLOSEST * 27 + edge + 256 * ABSENT
        return mode

    @wp.func
    def capsule_box_mode(a: Pose, b: Pose):
        """mode = code of candidate 0 + 256 code of candidate 1; code = 27 rule + region, or ABSENT. -1: surely apart.

        On a face: both ends of the stretch above it. Otherwise the closest point, and the far end of that stretch.
        """
        l0 = (a.x - b.x) @ b.R
        w = a.R[:, 2] @ b.R
        h = a.size[1]
        sb = b.size
        for i in range(3):
            if wp.abs(l0[i]) > sb[i] + a.size[0] + h * wp.abs(w[i]) + real(AHEAD):
                return -1
        x, rule = closest_along(l0, w, h, sb)
        c = l0 + w * x
        region, count, distance2 = outside_region(c, sb)
        if distance2 <= real(DEEP):
            return cutting_mode(l0, w, h, sb)
        code = rule * 27 + region
        sides = region_sides(region)
        free = vec3(real(1.0)) - wp.cw_mul(sides, sides)
        if count == 1 or (count == 2 and wp.dot(free, wp.cw_mul(w, w)) > real(ALONG)):
            return both_ends(l0, w, h, sb, region)
        face = int(0)  # the face that the closest point is farthest from
        for i in range(1, 3):
            if wp.abs(c[i]) - sb[i] > wp.abs(c[face]) - sb[face]:
                face = i
        above = face_region(face, c[face] > real(0.0))
        lo, rule_lo, hi, rule_hi = stretch(l0, w, h, sb, region_sides(above))
        if hi > lo and hi - x > x - lo and hi - x > real(SHORT) * h:
            return code + 256 * (rule_hi * 27 + above)
        if hi > lo and x - lo > real(SHORT) * h:
            return rule_lo * 27 + above + 256 * code
        return code + 256 * ABSENT

    @wp.func
    def axis_point(rule: int, sides: vec3, l0: vec3, w: vec3, h: real, s: vec3):
        """Where on the capsule's axis the candidate sits, and the number that it was divided by."""
        divisor = real(1.0)
        along = wp.where(rule == 0, -h, h)
        if rule == CLOSEST:
            named = wp.cw_mul(sides, sides)
            wn = wp.cw_mul(named, w)
            divisor = wp.max(wp.dot(wn, wn), real(TINY))
            along = -wp.dot(wn, l0 - wp.cw_mul(sides, s)) / divisor
        elif rule > 1 and rule < CLOSEST:  # not an absent candidate
            i = rule // 2 - 1
            divisor = wp.where(wp.abs(w[i]) > real(TINY), w[i], real(1.0))
            along = (wp.where(rule % 2 == 0, -s[i], s[i]) - l0[i]) / divisor
        return along, divisor

    @wp.func
    def edge_normal(sides: vec3, w: vec3):
        """Unit normal of an edge crossed by direction w, out of the box, and the signed length it was divided by."""
        edge = vec3(real(1.0)) - wp.cw_mul(sides, sides)
        n = wp.cross(w, edge)
        length = wp.max(wp.length(n), real(1.0e-12))
        length = wp.where(wp.dot(n, sides) < real(0.0), -length, length)
        return n / length, length

    @wp.func
    def candidate(feature: int):
        """Code of the candidate that a feature of capsule_box_mode names."""
        mode = feature // 16
        return wp.where(feature < 0, ABSENT, wp.where(feature % 16 == 0, mode % 256, mode // 256))

    @wp.func
    def capsule_box_point(feature: int, a: Pose, b: Pose):
        """feature: 16 mode + candidate (0, 1)."""
        code = candidate(feature)
        rule = code // 27
        sides = region_sides(code % 27)
        l0 = (a.x - b.x) @ b.R
        w = a.R[:, 2] @ b.R
        along, _divisor = axis_point(rule, sides, l0, w, a.size[1], b.size)
        c = l0 + w * along
        face = project(sides, c, b.size)
        out = c - face
        n, _length = region_normal(sides, out)
        if rule == CLOSEST and wp.dot(sides, sides) < real(2.5):
            n, _length = edge_normal(sides, w)
        return b.x + b.R @ face, b.R @ n, wp.where(code == ABSENT, real(1.0), wp.dot(n, out) - a.size[0])

    @wp.func
    def capsule_box_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        code = candidate(feature)
        rule = code // 27
        sides = region_sides(code % 27)
        u = a.R[:, 2]
        l0 = (a.x - b.x) @ b.R
        w = u @ b.R
        along, divisor = axis_point(rule, sides, l0, w, a.size[1], b.size)
        c = l0 + w * along
        face = project(sides, c, b.size)
        out = c - face
        n, length = region_normal(sides, out)
        nl_bar = bar.n @ b.R
        w_bar = vec3()
        if rule == CLOSEST and wp.dot(sides, sides) < real(2.5):
            n, length = edge_normal(sides, w)
            edge = vec3(real(1.0)) - wp.cw_mul(sides, sides)
            w_bar = wp.cross(edge, (nl_bar - n * wp.dot(n, nl_bar)) / length)
            length = real(0.0)  # n does not depend on `out`
        out_bar = out_adjoint(n, length, nl_bar, bar.z)
        l_bar, size = project_adjoint(sides, out_bar, bar.p @ b.R)

        w_bar += l_bar * along
        along_bar = wp.dot(w, l_bar)
        half_bar = real(0.0)
        if rule == CLOSEST:
            k = -along_bar / divisor
            named = wp.cw_mul(sides, sides)
            w_bar += wp.cw_mul(named, out + w * along) * k
            l_bar += wp.cw_mul(named, w) * k
            size -= wp.cw_mul(sides, w) * k
        elif rule > 1 and rule < CLOSEST:  # not an absent candidate
            i = rule // 2 - 1
            k = along_bar / divisor
            w_bar[i] = w_bar[i] - along * k
            l_bar[i] = l_bar[i] - k
            size[i] = size[i] + wp.where(rule % 2 == 0, -k, k)
        else:
            half_bar = wp.where(rule == 0, -along_bar, along_bar)
        x = b.R @ l_bar
        phia = wp.cross(u, b.R @ w_bar)
        phib = wp.cross(b.R @ n, bar.n) + wp.cross(b.R @ face, bar.p) - wp.cross(a.x - b.x, x) - phia
        return pose_bar(x, phia, vec3(-bar.z, half_bar, real(0.0))), pose_bar(bar.p - x, phib, size)

    return SimpleNamespace(
        sphere_box=SimpleNamespace(point=sphere_box_point, adjoint=sphere_box_adjoint),
        capsule_box=SimpleNamespace(mode=capsule_box_mode, point=capsule_box_point, adjoint=capsule_box_adjoint),
    )
