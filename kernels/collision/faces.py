"""The polygon that two faces of two boxes have in common.

The reference box x has the face with outward normal e; the incident box y the face that looks most against it. The
incident face is f + alpha a + beta b, |alpha|, |beta| <= 1, seen from the centre of x; the reference face is |u| <= su,
|v| <= sv along the axes U, V. Their common polygon has at most eight corners, and each is the start of a part of one
edge: slots 0..3 are the edges of the incident face, slots 4..7 those of the reference face. The digit of a slot says
where that part starts: 0 nowhere, 1 at the edge's own corner, 2..5 where it enters the other face through its side
-x, +x, -y, +y (x, y: u, v of the reference face; alpha, beta of the incident face).
"""

import warp as wp

from ..types import exports

GROW = 1.0001  # the reference face is taken a little larger: equal boxes have four common corners then, not eight
TINY = 1.0e-12


def make_faces(g):
    real, vec3, Pose = g.real, g.vec3, g.Pose

    @wp.struct
    class FacePair:
        """Reference and incident face, world axes, from the centre of the reference box."""

        e: vec3  # outward normal of the reference face
        U: vec3
        V: vec3
        he: real  # half size of the reference box along e, and, grown, along U and V
        su: real
        sv: real
        f: vec3  # centre of the incident face
        a: vec3  # half edges of the incident face; (a, b) turn like (U, V)
        b: vec3

    @wp.func
    def face_pair(code: int, x: Pose, y: Pose):
        """code = 6 (2 i + (e along +axis)) + 2 j + (normal of y's face along +axis)."""
        i = code // 12
        j = (code // 2) % 3
        outward = wp.where((code // 6) % 2 == 1, real(1.0), real(-1.0))
        facing = wp.where(code % 2 == 1, real(1.0), real(-1.0))
        iu = (i + 1) % 3
        iv = (i + 2) % 3
        ja = (j + 1) % 3
        jb = (j + 2) % 3
        pair = FacePair()
        pair.e = x.R[:, i] * outward
        pair.U = x.R[:, iu]
        pair.V = x.R[:, iv]
        pair.he = x.size[i]
        pair.su = x.size[iu] * real(GROW)
        pair.sv = x.size[iv] * real(GROW)
        pair.f = y.x - x.x + y.R[:, j] * (facing * y.size[j])
        pair.a = y.R[:, ja] * (-outward * facing * y.size[ja])
        pair.b = y.R[:, jb] * y.size[jb]
        return pair

    @wp.func
    def corner_x(edge: int):
        """Edge k of a face starts at corner (corner_x, corner_y) and runs counter-clockwise; even ones run along x."""
        return wp.where(edge == 1 or edge == 2, real(1.0), real(-1.0))

    @wp.func
    def corner_y(edge: int):
        return wp.where(edge >= 2, real(1.0), real(-1.0))

    @wp.func
    def clip(x: real, y: real, dx: real, dy: real):
        """Digit of the edge from (x, y) to (x, y) + (dx, dy) against the square |x|, |y| <= 1."""
        digit = int(1)
        enter = real(0.0) * x
        leave = real(1.0) + enter
        for k in range(4):
            position = wp.where(k < 2, x, y)
            speed = wp.where(k < 2, dx, dy)
            if k % 2 == 0:
                position = -position
                speed = -speed
            room = real(1.0) - position  # to the side k: -x, +x, -y, +y
            if wp.abs(speed) < real(1.0e-6):
                if room < real(0.0):
                    leave = real(-1.0)
            elif speed < real(0.0):
                if room < speed * enter:
                    enter = room / speed
                    digit = 2 + k
            elif room < speed * leave:
                leave = room / speed
        return wp.where(enter <= leave, digit, 0)

    @wp.func
    def incident_coordinates(pair: FacePair, u: real, v: real):
        """alpha, beta of the incident point above (u, v) of the reference face."""
        fu = u - wp.dot(pair.U, pair.f)
        fv = v - wp.dot(pair.V, pair.f)
        au = wp.dot(pair.U, pair.a)
        av = wp.dot(pair.V, pair.a)
        bu = wp.dot(pair.U, pair.b)
        bv = wp.dot(pair.V, pair.b)
        det = wp.max(au * bv - av * bu, real(TINY) * real(TINY))
        return (fu * bv - fv * bu) / det, (au * fv - av * fu) / det

    @wp.func
    def polygon_mode(pair: FacePair):
        """The digits of all slots: sum of digit 6^slot."""
        su = wp.max(pair.su, real(TINY))
        sv = wp.max(pair.sv, real(TINY))
        digits = int(0)
        weight = int(1)
        for k in range(4):
            start = pair.f + pair.a * corner_x(k) + pair.b * corner_y(k)
            end = pair.f + pair.a * corner_x((k + 1) % 4) + pair.b * corner_y((k + 1) % 4)
            x = wp.dot(pair.U, start) / su
            y = wp.dot(pair.V, start) / sv
            dx = wp.dot(pair.U, end - start) / su
            dy = wp.dot(pair.V, end - start) / sv
            digits += weight * clip(x, y, dx, dy)
            weight *= 6
        for k in range(4):
            x, y = incident_coordinates(pair, pair.su * corner_x(k), pair.sv * corner_y(k))
            j = (k + 1) % 4
            x1, y1 = incident_coordinates(pair, pair.su * corner_x(j), pair.sv * corner_y(j))
            digits += weight * clip(x, y, x1 - x, y1 - y)
            weight *= 6
        return digits

    @wp.func
    def crossing(slot: int, digit: int):
        """An incident line crossing a side of the reference face: does alpha vary along the line, value of the other
        coordinate, is it a side in u, and the sign of that side."""
        k = slot % 4
        even = k % 2 == 0
        corner = wp.where(even, corner_y(k), corner_x(k))
        side = wp.where(digit % 2 == 1, real(1.0), real(-1.0))
        if slot < 4:
            return even, corner, digit < 4, side
        return digit >= 4, side, not even, corner

    @wp.func
    def safe(x: real):
        return wp.where(wp.abs(x) > real(TINY), x, real(TINY))

    @wp.func
    def polygon_corner(pair: FacePair, slot: int, digit: int):
        """alpha, beta of a corner of the common polygon."""
        x = corner_x(slot % 4)
        y = corner_y(slot % 4)
        if digit > 1:
            vary_alpha, fixed, in_u, sign = crossing(slot, digit)
            W = pair.V
            limit = sign * pair.sv
            if in_u:
                W = pair.U
                limit = sign * pair.su
            if vary_alpha:
                x = (limit - wp.dot(W, pair.f + pair.b * fixed)) / safe(wp.dot(W, pair.a))
                y = fixed
            else:
                y = (limit - wp.dot(W, pair.f + pair.a * fixed)) / safe(wp.dot(W, pair.b))
                x = fixed
        elif slot >= 4:
            x, y = incident_coordinates(pair, x * pair.su, y * pair.sv)
        return x, y

    @wp.func
    def polygon_corner_adjoint(pair: FacePair, slot: int, digit: int, P_bar: vec3):
        """For P = f + alpha a + beta b: the force on that point of the incident box, and su_bar, sv_bar."""
        force = P_bar
        su_bar = real(0.0)
        sv_bar = real(0.0)
        if digit > 1:
            vary_alpha, _fixed, in_u, sign = crossing(slot, digit)
            W = pair.V
            if in_u:
                W = pair.U
            g = pair.b
            if vary_alpha:
                g = pair.a
            k = wp.dot(P_bar, g) / safe(wp.dot(W, g))
            force = P_bar - W * k
            if in_u:
                su_bar = sign * k
            else:
                sv_bar = sign * k
        elif slot >= 4:
            normal = wp.cross(pair.a, pair.b)
            force = normal * (wp.dot(P_bar, pair.e) / safe(wp.dot(normal, pair.e)))
            su_bar = corner_x(slot % 4) * wp.dot(pair.U, P_bar - force)
            sv_bar = corner_y(slot % 4) * wp.dot(pair.V, P_bar - force)
        return force, su_bar, sv_bar

    return exports(face_pair, polygon_mode, polygon_corner, polygon_corner_adjoint)
