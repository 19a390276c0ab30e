"""Contacts between two boxes: separating axes, then the common polygon of two faces or the crossing of two edges.

The axis of least depth wins, but faces of a come before faces of b before pairs of edges unless the later one is
clearly less deep: a resting box must not flip between them. Face contact: up to eight points, the slots of
faces.py; z is the height of the incident face over the reference face. Edge contact: one point, candidate 0.
p lies midway between the two faces or edges.
"""

from types import SimpleNamespace

import warp as wp

from .faces import GROW, make_faces

PREFER = 0.95  # "clearly less deep": by this factor,
SLACK = 1.0e-3  # and by this part of the smallest half size more
SKEW = 1.0e-5  # squared sine of the angle above which two edges can cross
FACES = 72  # pairs of faces: (reference is a or b) x 6 x 6
EDGES = FACES * 6**8  # modes from here on are pairs of edges


def make_boxbox(g):
    real, vec3, mat33, Pose, PointBar, pose_bar = g.real, g.vec3, g.mat33, g.Pose, g.PointBar, g.pose_bar
    faces = make_faces(g)
    face_pair, polygon_mode = faces.face_pair, faces.polygon_mode
    polygon_corner, polygon_corner_adjoint = faces.polygon_corner, faces.polygon_corner_adjoint

    @wp.func
    def face_mode(axis: int, is_b: bool, x: Pose, y: Pose):
        """Mode of the contact on the face of x (box b if is_b) along `axis` that looks at y."""
        e = x.R[:, axis]
        code = 12 * axis
        if wp.dot(e, y.x - x.x) >= real(0.0):
            code += 6
        else:
            e = -e
        j = int(0)
        for k in range(1, 3):
            if wp.abs(wp.dot(e, y.R[:, k])) > wp.abs(wp.dot(e, y.R[:, j])):
                j = k
        code += 2 * j + wp.where(wp.dot(e, y.R[:, j]) < real(0.0), 1, 0)
        digits = polygon_mode(face_pair(code, x, y))
        return wp.where(is_b, code + 36, code) + FACES * digits

    @wp.func
    def edge_mode(i: int, j: int, a: Pose, b: Pose):
        """Mode of the crossing of an edge of a along axis i and one of b along axis j."""
        n = wp.cross(a.R[:, i], b.R[:, j])
        code = 32 * (3 * i + j)
        if wp.dot(n, a.x - b.x) >= real(0.0):
            code += 16
        else:
            n = -n
        for k in range(2):
            if wp.dot(n, a.R[:, (i + 1 + k) % 3]) < real(0.0):
                code += 1 << k
            if wp.dot(n, b.R[:, (j + 1 + k) % 3]) > real(0.0):
                code += 4 << k
        return EDGES + code

    @wp.func
    def boxes_mode(a: Pose, b: Pose):
        """-1: apart. Face contact: FACES times polygon_mode + 36 if the reference is b + code of face_pair.

        Edge contact: EDGES + 32 (3 axis of a + axis of b) + 16 if n is along the cross product of the axes + signs of
        the edge's place in b (8, 4) and in a (2, 1) on the axes after next and next.
        """
        sa = a.size
        sb = b.size
        d = a.x - b.x
        if wp.length(d) > wp.length(sa) + wp.length(sb):
            return -1
        da = d @ a.R
        db = d @ b.R
        C = wp.transpose(a.R) @ b.R
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
            return edge_mode(edge // 3, edge % 3, a, b)
        if on_b:
            return face_mode(face_b, True, b, a)
        return face_mode(face_a, False, a, b)

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
    def face_point(mode: int, slot: int, x: Pose, y: Pose):
        """p, outward normal of x, z."""
        pair = face_pair(mode % 36, x, y)
        digit = slot_digit(mode, slot)
        alpha, beta = polygon_corner(pair, slot, digit)
        P = pair.f + pair.a * alpha + pair.b * beta
        z = wp.dot(pair.e, P) - pair.he
        return x.x + P - pair.e * (real(0.5) * z), pair.e, wp.where(digit == 0, real(1.0), z)

    @wp.func
    def face_adjoint(mode: int, slot: int, x: Pose, y: Pose, bar: PointBar):
        """Returns the adjoints of x and y; bar.n belongs to the outward normal of x."""
        code = mode % 36
        i = code // 12
        j = (code // 2) % 3
        outward = wp.where((code // 6) % 2 == 1, real(1.0), real(-1.0))
        facing = wp.where(code % 2 == 1, real(1.0), real(-1.0))
        pair = face_pair(code, x, y)
        digit = slot_digit(mode, slot)
        alpha, beta = polygon_corner(pair, slot, digit)
        P = pair.f + pair.a * alpha + pair.b * beta
        arm = P - pair.e * (real(0.5) * (wp.dot(pair.e, P) - pair.he))  # p - x
        half = real(0.5) * wp.dot(pair.e, bar.p)
        force, su_bar, sv_bar = polygon_corner_adjoint(pair, slot, digit, bar.p + pair.e * (bar.z - half))

        sx_bar = vec3()
        sx_bar[i] = half - bar.z
        sx_bar[(i + 1) % 3] = su_bar * real(GROW)
        sx_bar[(i + 2) % 3] = sv_bar * real(GROW)
        local = force @ y.R
        sy_bar = vec3()
        sy_bar[j] = facing * local[j]
        sy_bar[(j + 1) % 3] = -outward * facing * alpha * local[(j + 1) % 3]
        sy_bar[(j + 2) % 3] = beta * local[(j + 2) % 3]
        phi_x = wp.cross(arm, bar.p) + wp.cross(pair.e, bar.n) - wp.cross(P, force)
        return pose_bar(bar.p - force, phi_x, sx_bar), pose_bar(force, wp.cross(P + x.x - y.x, force), sy_bar)

    @wp.func
    def edge_point(code: int, a: Pose, b: Pose):
        u = a.R[:, code // 96]
        v = b.R[:, (code // 32) % 3]
        ca = a.x + a.R @ edge_corner(code, code // 96, a.size)
        cb = b.x + b.R @ edge_corner(code // 4, (code // 32) % 3, b.size)
        d = ca - cb
        n = wp.cross(u, v)
        along = wp.dot(u, v)
        det = wp.max(wp.dot(n, n), real(SKEW))
        n = n / wp.where((code // 16) % 2 == 1, wp.sqrt(det), -wp.sqrt(det))
        s = (along * wp.dot(v, d) - wp.dot(u, d)) / det
        t = along * s + wp.dot(v, d)
        return (ca + cb + u * s + v * t) * real(0.5), n, wp.dot(n, d)

    @wp.func
    def edge_adjoint(code: int, a: Pose, b: Pose, bar: PointBar):
        i = code // 96
        j = (code // 32) % 3
        u = a.R[:, i]
        v = b.R[:, j]
        arm_a = a.R @ edge_corner(code, i, a.size)
        arm_b = b.R @ edge_corner(code // 4, j, b.size)
        d = a.x + arm_a - b.x - arm_b
        n = wp.cross(u, v)
        along = wp.dot(u, v)
        det = wp.max(wp.dot(n, n), real(SKEW))
        length = wp.where((code // 16) % 2 == 1, wp.sqrt(det), -wp.sqrt(det))
        n = n / length
        s = (along * wp.dot(v, d) - wp.dot(u, d)) / det
        t = along * s + wp.dot(v, d)

        c_bar = bar.p * real(0.5)
        s_bar = wp.dot(u, c_bar)
        t_bar = wp.dot(v, c_bar)
        vd_bar = (along * s_bar + t_bar) / det
        ud_bar = -(s_bar + along * t_bar) / det
        along_bar = vd_bar * s - ud_bar * t
        cross_bar = bar.n + d * bar.z
        cross_bar = (cross_bar - n * wp.dot(n, cross_bar)) / length
        d_bar = n * bar.z + u * ud_bar + v * vd_bar
        u_bar = c_bar * s + v * along_bar + d * ud_bar + wp.cross(v, cross_bar)
        v_bar = c_bar * t + u * along_bar + d * vd_bar + wp.cross(cross_bar, u)

        xa_bar = c_bar + d_bar
        xb_bar = c_bar - d_bar
        one = vec3(real(1.0))
        sa_bar = wp.cw_mul(edge_corner(code, i, one), xa_bar @ a.R)
        sb_bar = wp.cw_mul(edge_corner(code // 4, j, one), xb_bar @ b.R)
        A = pose_bar(xa_bar, wp.cross(u, u_bar) + wp.cross(arm_a, xa_bar), sa_bar)
        return A, pose_bar(xb_bar, wp.cross(v, v_bar) + wp.cross(arm_b, xb_bar), sb_bar)

    @wp.func
    def boxes_point(feature: int, a: Pose, b: Pose):
        """feature: 16 mode + candidate (0..7)."""
        mode = feature // 16
        slot = feature % 16
        if feature < 0 or (mode >= EDGES and slot > 0):
            return b.x, vec3(real(0.0), real(0.0), real(1.0)), real(1.0)
        if mode >= EDGES:
            p, n, z = edge_point(mode - EDGES, a, b)
            return p, n, z
        if (mode // 36) % 2 == 1:
            p, n, z = face_point(mode, slot, b, a)
            return p, n, z
        p, n, z = face_point(mode, slot, a, b)
        return p, -n, z

    @wp.func
    def boxes_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        mode = feature // 16
        slot = feature % 16
        if mode >= EDGES:
            return edge_adjoint(mode - EDGES, a, b, bar)
        if (mode // 36) % 2 == 1:
            B, A = face_adjoint(mode, slot, b, a, bar)
            return A, B
        flipped = PointBar()
        flipped.p = bar.p
        flipped.n = -bar.n
        flipped.z = bar.z
        return face_adjoint(mode, slot, a, b, flipped)

    return SimpleNamespace(box_box=SimpleNamespace(mode=boxes_mode, point=boxes_point, adjoint=boxes_adjoint))
