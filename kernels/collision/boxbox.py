"""Contacts between two boxes: separating axes, then the common polygon of two faces or the crossing of two edges.

The axis of least depth wins, but faces of a come before faces of b before pairs of edges unless the later one is
clearly less deep: a resting box must not flip between them. Face contact: up to eight points, the slots of
collision_faces.py; z is the height of the incident face over the reference face. Edge contact: one point, candidate 0.
p lies midway between the two faces or edges. Adjoints: see collision.py.
"""

from types import SimpleNamespace

import warp as wp

from .faces import GROW, make_collision_faces

PREFER = 0.95  # "clearly less deep": by this factor,
SLACK = 1.0e-3  # and by this part of the smallest half size more
SKEW = 1.0e-5  # squared sine of the angle above which two edges can cross
FACES = 72  # pairs of faces: (reference is a or b) x 6 x 6
EDGES = FACES * 6**8  # modes from here on are pairs of edges


def make_collision_boxbox(t):
    real, vec3, mat33 = t.real, t.vec3, t.mat33
    faces = make_collision_faces(t)
    face_pair, polygon_mode = faces.face_pair, faces.polygon_mode
    polygon_corner, polygon_corner_adjoint = faces.polygon_corner, faces.polygon_corner_adjoint

    @wp.func
    def face_mode(axis: int, is_b: bool, x: vec3, X: mat33, sx: vec3, y: vec3, Y: mat33, sy: vec3):
        """Mode of the contact on the face of X (box b if is_b) along `axis` that looks at Y."""
        e = X[:, axis]
        code = 12 * axis
        if wp.dot(e, y - x) >= real(0.0):
            code += 6
        else:
            e = -e
        j = int(0)
        for k in range(1, 3):
            if wp.abs(wp.dot(e, Y[:, k])) > wp.abs(wp.dot(e, Y[:, j])):
                j = k
        code += 2 * j + wp.where(wp.dot(e, Y[:, j]) < real(0.0), 1, 0)
        digits = polygon_mode(face_pair(code, x, X, sx, y, Y, sy))
        return wp.where(is_b, code + 36, code) + FACES * digits

    @wp.func
    def edge_mode(i: int, j: int, d: vec3, Ra: mat33, Rb: mat33):
        """Mode of the crossing of an edge of a along axis i and one of b along axis j; d = xa - xb."""
        n = wp.cross(Ra[:, i], Rb[:, j])
        code = 32 * (3 * i + j)
        if wp.dot(n, d) >= real(0.0):
            code += 16
        else:
            n = -n
        for k in range(2):
            if wp.dot(n, Ra[:, (i + 1 + k) % 3]) < real(0.0):
                code += 1 << k
            if wp.dot(n, Rb[:, (j + 1 + k) % 3]) > real(0.0):
                code += 4 << k
        return EDGES + code

    @wp.func
    def box_box_mode(xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        """-1: apart. Face contact: FACES times polygon_mode + 36 if the reference is b + code of face_pair.

        Edge contact: EDGES + 32 (3 axis of a + axis of b) + 16 if n is along the cross product of the axes + signs of
        the edge's place in b (8, 4) and in a (2, 1) on the axes after next and next.
        """
        d = xa - xb
        if wp.length(d) > wp.length(sa) + wp.length(sb):
            return -1
        da = d @ Ra
        db = d @ Rb
        C = wp.transpose(Ra) @ Rb
        A = mat33()
        for i in range(3):
            for j in range(3):
                A[i, j] = wp.abs(C[i, j])

        reach_a = sa + A @ sb
        reach_b = sb + sa @ A
        face_a = int(0)
        face_b = int(0)
        for i in range(3):
            if wp.abs(da[i]) > reach_a[i] or wp.abs(db[i]) > reach_b[i]:
                return -1
            if reach_a[i] - wp.abs(da[i]) < reach_a[face_a] - wp.abs(da[face_a]):
                face_a = i
            if reach_b[i] - wp.abs(db[i]) < reach_b[face_b] - wp.abs(db[face_b]):
                face_b = i
        slack = real(SLACK) * wp.min(wp.min(sa), wp.min(sb))
        depth = reach_a[face_a] - wp.abs(da[face_a])
        depth_b = reach_b[face_b] - wp.abs(db[face_b])
        on_b = depth_b < real(PREFER) * depth - slack
        depth = wp.where(on_b, depth_b, depth)

        depth = real(PREFER) * depth - slack
        edge = int(-1)
        for i in range(3):
            i1 = (i + 1) % 3
            i2 = (i + 2) % 3
            for j in range(3):
                sine2 = C[i1, j] * C[i1, j] + C[i2, j] * C[i2, j]
                if sine2 > real(SKEW):
                    j1 = (j + 1) % 3
                    j2 = (j + 2) % 3
                    away = wp.abs(C[i1, j] * da[i2] - C[i2, j] * da[i1])
                    reach = sa[i1] * A[i2, j] + sa[i2] * A[i1, j] + sb[j1] * A[i, j2] + sb[j2] * A[i, j1]
                    edge_depth = (reach - away) / wp.sqrt(sine2)
                    if edge_depth < -slack:  # less may be rounding divided by a small sine
                        return -1
                    if edge_depth < depth:
                        depth = edge_depth
                        edge = 3 * i + j
        if edge >= 0:
            return edge_mode(edge // 3, edge % 3, d, Ra, Rb)
        if on_b:
            return face_mode(face_b, True, xb, Rb, sb, xa, Ra, sa)
        return face_mode(face_a, False, xa, Ra, sa, xb, Rb, sb)

    @wp.func
    def slot_digit(mode: int, slot: int):
        digits = mode // FACES
        for _k in range(slot):
            digits = digits // 6
        return digits % 6

    @wp.func
    def edge_corner(code: int, axis: int, s: vec3):
        """Middle of an edge along `axis`, box frame; bits 0 and 1 of code: signs on the two next axes."""
        corner = vec3()
        i1 = (axis + 1) % 3
        i2 = (axis + 2) % 3
        corner[i1] = wp.where(code % 2 == 1, s[i1], -s[i1])
        corner[i2] = wp.where((code // 2) % 2 == 1, s[i2], -s[i2])
        return corner

    @wp.func
    def face_point(mode: int, slot: int, x: vec3, X: mat33, sx: vec3, y: vec3, Y: mat33, sy: vec3):
        """p, outward normal of X, z."""
        pair = face_pair(mode % 36, x, X, sx, y, Y, sy)
        digit = slot_digit(mode, slot)
        alpha, beta = polygon_corner(pair, slot, digit)
        P = pair.f + pair.a * alpha + pair.b * beta
        z = wp.dot(pair.e, P) - pair.he
        return x + P - pair.e * (real(0.5) * z), pair.e, wp.where(digit == 0, real(1.0), z)

    @wp.func
    def face_point_adjoint(
        mode: int, slot: int,
        x: vec3, X: mat33, sx: vec3,
        y: vec3, Y: mat33, sy: vec3,
        p_bar: vec3, n_bar: vec3, z_bar: real,
    ):  # fmt: skip
        """Returns x_bar, phi_x, sx_bar, y_bar, phi_y, sy_bar; n_bar belongs to the outward normal of X."""
        code = mode % 36
        i = code // 12
        j = (code // 2) % 3
        outward = wp.where((code // 6) % 2 == 1, real(1.0), real(-1.0))
        facing = wp.where(code % 2 == 1, real(1.0), real(-1.0))
        pair = face_pair(code, x, X, sx, y, Y, sy)
        digit = slot_digit(mode, slot)
        alpha, beta = polygon_corner(pair, slot, digit)
        P = pair.f + pair.a * alpha + pair.b * beta
        arm = P - pair.e * (real(0.5) * (wp.dot(pair.e, P) - pair.he))  # p - x
        half = real(0.5) * wp.dot(pair.e, p_bar)
        force, su_bar, sv_bar = polygon_corner_adjoint(pair, slot, digit, p_bar + pair.e * (z_bar - half))

        sx_bar = vec3()
        sx_bar[i] = half - z_bar
        sx_bar[(i + 1) % 3] = su_bar * real(GROW)
        sx_bar[(i + 2) % 3] = sv_bar * real(GROW)
        local = force @ Y
        sy_bar = vec3()
        sy_bar[j] = facing * local[j]
        sy_bar[(j + 1) % 3] = -outward * facing * alpha * local[(j + 1) % 3]
        sy_bar[(j + 2) % 3] = beta * local[(j + 2) % 3]
        phi_x = wp.cross(arm, p_bar) + wp.cross(pair.e, n_bar) - wp.cross(P, force)
        return p_bar - force, phi_x, sx_bar, force, wp.cross(P + x - y, force), sy_bar

    @wp.func
    def edge_point(code: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        u = Ra[:, code // 96]
        v = Rb[:, (code // 32) % 3]
        ca = xa + Ra @ edge_corner(code, code // 96, sa)
        cb = xb + Rb @ edge_corner(code // 4, (code // 32) % 3, sb)
        d = ca - cb
        n = wp.cross(u, v)
        b = wp.dot(u, v)
        det = wp.max(wp.dot(n, n), real(SKEW))
        n = n / wp.where((code // 16) % 2 == 1, wp.sqrt(det), -wp.sqrt(det))
        s = (b * wp.dot(v, d) - wp.dot(u, d)) / det
        t = b * s + wp.dot(v, d)
        return (ca + cb + u * s + v * t) * real(0.5), n, wp.dot(n, d)

    @wp.func
    def edge_point_adjoint(
        code: int,
        xa: vec3, Ra: mat33, sa: vec3,
        xb: vec3, Rb: mat33, sb: vec3,
        p_bar: vec3, n_bar: vec3, z_bar: real,
    ):  # fmt: skip
        """Returns xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        i = code // 96
        j = (code // 32) % 3
        u = Ra[:, i]
        v = Rb[:, j]
        corner_a = edge_corner(code, i, sa)
        corner_b = edge_corner(code // 4, j, sb)
        arm_a = Ra @ corner_a
        arm_b = Rb @ corner_b
        d = xa + arm_a - xb - arm_b
        n = wp.cross(u, v)
        b = wp.dot(u, v)
        det = wp.max(wp.dot(n, n), real(SKEW))
        length = wp.where((code // 16) % 2 == 1, wp.sqrt(det), -wp.sqrt(det))
        n = n / length
        s = (b * wp.dot(v, d) - wp.dot(u, d)) / det
        t = b * s + wp.dot(v, d)

        c_bar = p_bar * real(0.5)
        s_bar = wp.dot(u, c_bar)
        t_bar = wp.dot(v, c_bar)
        vd_bar = (b * s_bar + t_bar) / det
        ud_bar = -(s_bar + b * t_bar) / det
        b_bar = vd_bar * s - ud_bar * t
        cross_bar = n_bar + d * z_bar
        cross_bar = (cross_bar - n * wp.dot(n, cross_bar)) / length
        d_bar = n * z_bar + u * ud_bar + v * vd_bar
        u_bar = c_bar * s + v * b_bar + d * ud_bar + wp.cross(v, cross_bar)
        v_bar = c_bar * t + u * b_bar + d * vd_bar + wp.cross(cross_bar, u)

        xa_bar = c_bar + d_bar
        xb_bar = c_bar - d_bar
        phia = wp.cross(u, u_bar) + wp.cross(arm_a, xa_bar)
        phib = wp.cross(v, v_bar) + wp.cross(arm_b, xb_bar)
        one = vec3(real(1.0))
        sa_bar = wp.cw_mul(edge_corner(code, i, one), xa_bar @ Ra)
        sb_bar = wp.cw_mul(edge_corner(code // 4, j, one), xb_bar @ Rb)
        return xa_bar, phia, sa_bar, xb_bar, phib, sb_bar

    @wp.func
    def box_box_point(feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        """feature: 16 mode + candidate (0..7)."""
        mode = feature // 16
        slot = feature % 16
        if feature < 0 or (mode >= EDGES and slot > 0):
            return xb, vec3(real(0.0), real(0.0), real(1.0)), real(1.0)
        if mode >= EDGES:
            p, n, z = edge_point(mode - EDGES, xa, Ra, sa, xb, Rb, sb)
            return p, n, z
        if (mode // 36) % 2 == 1:
            p, n, z = face_point(mode, slot, xb, Rb, sb, xa, Ra, sa)
            return p, n, z
        p, n, z = face_point(mode, slot, xa, Ra, sa, xb, Rb, sb)
        return p, -n, z

    @wp.func
    def box_box_point_adjoint(
        feature: int,
        xa: vec3, Ra: mat33, sa: vec3,
        xb: vec3, Rb: mat33, sb: vec3,
        p_bar: vec3, n_bar: vec3, z_bar: real,
    ):  # fmt: skip
        """Returns xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        mode = feature // 16
        slot = feature % 16
        if mode >= EDGES:
            return edge_point_adjoint(mode - EDGES, xa, Ra, sa, xb, Rb, sb, p_bar, n_bar, z_bar)
        if (mode // 36) % 2 == 1:
            xb_bar, phib, sb_bar, xa_bar, phia, sa_bar = face_point_adjoint(
                mode, slot, xb, Rb, sb, xa, Ra, sa, p_bar, n_bar, z_bar
            )
            return xa_bar, phia, sa_bar, xb_bar, phib, sb_bar
        return face_point_adjoint(mode, slot, xa, Ra, sa, xb, Rb, sb, p_bar, -n_bar, z_bar)

    return SimpleNamespace(**locals())
