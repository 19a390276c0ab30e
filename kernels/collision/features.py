"""Contact points of two convex shapes from the vertices and faces that make them, and their adjoints.

A feature names all that a point depends on, so that forward step and adjoint cannot disagree. Its two lowest bits:
0  vertex i of the incident polygon over the reference face
1  edge i of the incident polygon where it crosses side j of the reference face
2  corner j of the reference face over the incident face
3  the nearest points of two vertices, of a vertex and a line, or of two lines, without faces
Kinds 0 to 2: the shape x with the reference face owns the normal, the point lies on the incident shape y, which may be
a point or a segment with a radius. The gap is the height of the incident point over the reference face.
"""

from functools import cache

import warp as wp

from ..types import exports
from .hulls import make_hulls

GROW = 1.0001  # reference faces are taken a little larger: equal faces have their corners in common then
TINY = {wp.float64: 1e-14, wp.float32: 1e-9}  # m; of vertices that coincide the normal is chosen, not computed
VERTEX, CROSSING, CORNER, NEAREST = 0, 1, 2, 3


@cache
def make_features(real):
    hulls = make_hulls(real)
    vec3, Hulls, Solid, SolidBar, PointBar = hulls.vec3, hulls.Hulls, hulls.Solid, hulls.SolidBar, hulls.PointBar
    arm, vertex_arm, apply, face_normal = hulls.arm, hulls.vertex_arm, hulls.apply, hulls.face_normal
    polygon_size, polygon_corner = hulls.polygon_size, hulls.polygon_corner

    tiny = wp.constant(real(TINY[real]))

    @wp.func
    def face_feature(kind: int, on_b: bool, ref: int, inc: int, i: int, j: int):
        return kind + wp.where(on_b, 4, 0) + (ref << 3) + (inc << 10) + (i << 17) + (j << 23)

    @wp.func
    def nearest_feature(a0: int, a1: int, b0: int, b1: int, positive: bool):
        """a0 = a1: a vertex of a, otherwise the line through both. positive: for lines, n is along their product."""
        return 3 + wp.where(positive, 4, 0) + (a0 << 3) + (a1 << 9) + (b0 << 15) + (b1 << 21)

    @wp.func
    def ref_of(feature: int):
        return (feature >> 3) & 127

    @wp.func
    def inc_of(feature: int):
        return (feature >> 10) & 127

    @wp.func
    def i_of(feature: int):
        return (feature >> 17) & 63

    @wp.func
    def j_of(feature: int):
        return (feature >> 23) & 63

    @wp.func
    def six_bits(feature: int, start: int):
        return (feature >> start) & 63

    @wp.func
    def next_corner(h: wp.ref[Hulls], s: Solid, f: int, k: int):
        """Corner of a face after corner k."""
        following = k + 1
        if following >= polygon_size(h, s, f):
            following = 0
        return polygon_corner(h, s, f, following)

    @wp.func
    def grown_corner(h: wp.ref[Hulls], s: Solid, f: int, k: int):
        """Corner of a reference face, before the scale."""
        middle = h.middle[s.face + f]
        return middle + (polygon_corner(h, s, f, k) - middle) * real(GROW)

    @wp.func
    def side_normal(h: wp.ref[Hulls], s: Solid, f: int, k: int):
        return s.R @ h.sides[h.corner_start[s.face + f] + k]

    @wp.func
    def safe(x: real):
        return wp.where(wp.abs(x) > real(1.0e-12), x, real(1.0e-12))

    @wp.func
    def incident_point(h: wp.ref[Hulls], feature: int, x: Solid, y: Solid):
        """The point of y from the centre of x; its place along the incident edge or on the reference normal."""
        kind = feature & 3
        ref = ref_of(feature)
        inc = inc_of(feature)
        d = y.x - x.x
        along = real(0.0)
        P = d
        if kind == CORNER:
            e = face_normal(h, x, ref)
            m = face_normal(h, y, inc)
            P = arm(x, grown_corner(h, x, ref, j_of(feature)))
            along = wp.dot(m, d + arm(y, h.middle[y.face + inc]) - P) / safe(wp.dot(m, e))
            P = P + e * along
        else:
            P = d + arm(y, polygon_corner(h, y, inc, i_of(feature)))
            if kind == CROSSING:
                g = d + arm(y, next_corner(h, y, inc, i_of(feature))) - P
                s = side_normal(h, x, ref, j_of(feature))
                C = arm(x, grown_corner(h, x, ref, j_of(feature)))
                along = wp.dot(s, C - P) / safe(wp.dot(s, g))
                P = P + g * along
        return P, along

    @wp.func
    def face_point(h: wp.ref[Hulls], feature: int, x: Solid, y: Solid):
        """p, outward normal of x, z."""
        e = face_normal(h, x, ref_of(feature))
        P, _along = incident_point(h, feature, x, y)
        height = wp.dot(e, P - arm(x, h.middle[x.face + ref_of(feature)]))
        return x.x + P - e * (real(0.5) * (height + y.radius)), e, height - y.radius

    @wp.func
    def face_adjoint(h: wp.ref[Hulls], feature: int, x: Solid, y: Solid, bar: PointBar):
        """Returns the adjoints of x and y; bar.n belongs to the outward normal of x."""
        kind = feature & 3
        ref = ref_of(feature)
        inc = inc_of(feature)
        e = face_normal(h, x, ref)
        P, along = incident_point(h, feature, x, y)
        middle = h.middle[x.face + ref]
        height = wp.dot(e, P - arm(x, middle))
        half = real(0.5) * wp.dot(e, bar.p)
        height_bar = bar.z - half
        P_bar = bar.p + e * height_bar
        force = P_bar  # on the incident shape at P
        Y = SolidBar()
        unit = vec3()
        X_scale = wp.cw_mul(middle, (e * (-height_bar)) @ x.R)
        if kind == CORNER:
            m = face_normal(h, y, inc)
            force = m * (wp.dot(P_bar, e) / safe(wp.dot(m, e)))
            unit = h.middle[y.face + inc]
            X_scale += wp.cw_mul(grown_corner(h, x, ref, j_of(feature)), (P_bar - force) @ x.R)
        else:
            unit = polygon_corner(h, y, inc, i_of(feature))
            if kind == CROSSING:
                following = next_corner(h, y, inc, i_of(feature))
                g = arm(y, following - unit)
                s = side_normal(h, x, ref, j_of(feature))
                push = s * (wp.dot(P_bar, g) / safe(wp.dot(s, g)))
                force = P_bar - push
                unit = unit + (following - unit) * along
                X_scale += wp.cw_mul(grown_corner(h, x, ref, j_of(feature)), push @ x.R)
        Y.x = force
        Y.phi = wp.cross(x.x - y.x + P, force)
        Y.scale = wp.cw_mul(unit, force @ y.R)
        Y.radius = -bar.z - half
        # moving both shapes together moves the point and the normal with them
        X = SolidBar()
        X.x = bar.p - force
        X.phi = wp.cross(P - e * (real(0.5) * (height + y.radius)), bar.p) + wp.cross(e, bar.n) - wp.cross(P, force)
        X.scale = X_scale
        return X, Y

    @wp.func
    def line(h: wp.ref[Hulls], s: Solid, i: int, j: int):
        """From vertex i to vertex j; exactly zero for a vertex alone, whatever the compiler fuses."""
        u = vec3()
        if i != j:
            u = arm(s, h.vertices[s.first + j] - h.vertices[s.first + i])
        return u

    @wp.func
    def on_line(p0: vec3, g: vec3, q: vec3):
        """Where on the line p0 + t g the point nearest to q is; 0 if g is zero, which means a vertex."""
        square = wp.dot(g, g)
        t = real(0.0)
        if square > real(0.0):
            t = wp.dot(g, q - p0) / square
        return t

    @wp.func
    def crossing_lines(d: vec3, u: vec3, v: vec3):
        """Where the lines d + s u and t v are nearest: s and t."""
        n = wp.cross(u, v)
        det = wp.max(wp.dot(n, n), real(1.0e-30))
        ud = wp.dot(u, d)
        vd = wp.dot(v, d)
        uv = wp.dot(u, v)
        return (uv * vd - wp.dot(v, v) * ud) / det, (wp.dot(u, u) * vd - uv * ud) / det

    @wp.func
    def lines_normal(feature: int, u: vec3, v: vec3):
        """Unit normal of two lines, and the signed length that it was divided by."""
        n = wp.cross(u, v)
        length = wp.max(wp.length(n), real(1.0e-15))
        length = wp.where((feature & 4) != 0, length, -length)
        return n / length, length

    @wp.func
    def nearest_point(h: wp.ref[Hulls], feature: int, a: Solid, b: Solid):
        """p, n, z of kind 3."""
        arm_a = vertex_arm(h, a, six_bits(feature, 3))
        arm_b = vertex_arm(h, b, six_bits(feature, 15))
        u = line(h, a, six_bits(feature, 3), six_bits(feature, 9))
        v = line(h, b, six_bits(feature, 15), six_bits(feature, 21))
        A = arm_a  # from the centre of a, both
        B = b.x - a.x + arm_b
        n = b.R[:, 2]
        z = real(0.0)
        if six_bits(feature, 3) != six_bits(feature, 9) and six_bits(feature, 15) != six_bits(feature, 21):
            s, t = crossing_lines(A - B, u, v)
            n, _length = lines_normal(feature, u, v)
            z = wp.dot(n, A - B)
            A = A + u * s
            B = B + v * t
        else:
            A = A + u * on_line(A, u, B)
            B = B + v * on_line(B, v, A)
            z = wp.length(A - B)
            if z > tiny:
                n = (A - B) / z
        return a.x + (A + B - n * a.radius) * real(0.5), n, z - a.radius

    @wp.func
    def nearest_adjoint(h: wp.ref[Hulls], feature: int, a: Solid, b: Solid, bar: PointBar):
        arm_a = vertex_arm(h, a, six_bits(feature, 3))
        arm_b = vertex_arm(h, b, six_bits(feature, 15))
        u = line(h, a, six_bits(feature, 3), six_bits(feature, 9))
        v = line(h, b, six_bits(feature, 15), six_bits(feature, 21))
        A = arm_a
        B = b.x - a.x + arm_b
        c_bar = bar.p * real(0.5)
        n_bar = bar.n - bar.p * (real(0.5) * a.radius)
        n = b.R[:, 2]
        A_bar = c_bar  # of the first vertices; those of the second ones are u_bar and v_bar
        B_bar = c_bar
        u_bar = vec3()
        v_bar = vec3()
        if six_bits(feature, 3) != six_bits(feature, 9) and six_bits(feature, 15) != six_bits(feature, 21):
            d = A - B
            s, t = crossing_lines(d, u, v)
            n, length = lines_normal(feature, u, v)
            m_bar = n_bar + d * bar.z
            m_bar = (m_bar - n * wp.dot(n, m_bar)) / length
            # (s, -t) solves G x = -(u.d, v.d) with the Gram matrix G of u and v
            s_bar = wp.dot(u, c_bar)
            t_bar = wp.dot(v, c_bar)
            uv = wp.dot(u, v)
            det = length * length
            ud_bar = -(wp.dot(v, v) * s_bar + uv * t_bar) / det
            vd_bar = (uv * s_bar + wp.dot(u, u) * t_bar) / det
            uv_bar = ud_bar * (-t) + vd_bar * s
            u_bar = wp.cross(v, m_bar) + c_bar * s + d * ud_bar + u * (real(2.0) * s * ud_bar) + v * uv_bar
            v_bar = wp.cross(m_bar, u) + c_bar * t + d * vd_bar - v * (real(2.0) * t * vd_bar) + u * uv_bar
            d_bar = n * bar.z + u * ud_bar + v * vd_bar
            A_bar = c_bar + d_bar - u_bar
            B_bar = c_bar - d_bar - v_bar
        else:
            s = on_line(A, u, B)
            P = A + u * s
            t = on_line(B, v, P)
            d = P - B - v * t
            length = wp.length(d)
            d_bar = vec3()
            if length > tiny:
                n = d / length
                d_bar = (n_bar - n * wp.dot(n, n_bar)) / length
            d_bar += n * bar.z
            A_bar = c_bar + d_bar
            B_bar = c_bar - d_bar
            if six_bits(feature, 3) != six_bits(feature, 9):
                h_bar = u * (wp.dot(u, A_bar) / wp.dot(u, u))  # of B as it moves the point along the line
                u_bar = A_bar * s + (B - A - u * (real(2.0) * s)) * (wp.dot(u, A_bar) / wp.dot(u, u))
                A_bar = A_bar - h_bar - u_bar
                B_bar = B_bar + h_bar
            elif six_bits(feature, 15) != six_bits(feature, 21):
                h_bar = v * (wp.dot(v, B_bar) / wp.dot(v, v))
                v_bar = B_bar * t + (A - B - v * (real(2.0) * t)) * (wp.dot(v, B_bar) / wp.dot(v, v))
                B_bar = B_bar - h_bar - v_bar
                A_bar = A_bar + h_bar
        bar_a = SolidBar()
        bar_b = SolidBar()
        bar_a = apply(bar_a, a, h.vertices[a.first + six_bits(feature, 3)], A_bar)
        bar_a = apply(bar_a, a, h.vertices[a.first + six_bits(feature, 9)], u_bar)
        bar_b = apply(bar_b, b, h.vertices[b.first + six_bits(feature, 15)], B_bar)
        bar_b = apply(bar_b, b, h.vertices[b.first + six_bits(feature, 21)], v_bar)
        bar_a.radius = -bar.z - wp.dot(n, c_bar)
        return bar_a, bar_b

    @wp.func
    def point(h: wp.ref[Hulls], feature: int, a: Solid, b: Solid):
        """p, n, z of a feature."""
        if (feature & 3) == NEAREST:
            p, n, z = nearest_point(h, feature, a, b)
            return p, n, z
        if (feature & 4) != 0:
            p, n, z = face_point(h, feature, b, a)
            return p, n, z
        p, n, z = face_point(h, feature, a, b)
        return p, -n, z

    @wp.func
    def adjoint(h: wp.ref[Hulls], feature: int, a: Solid, b: Solid, bar: PointBar):
        """The adjoints of a and b, as SolidBars."""
        if (feature & 3) == NEAREST:
            return nearest_adjoint(h, feature, a, b, bar)
        if (feature & 4) != 0:
            B, A = face_adjoint(h, feature, b, a, bar)
            return A, B
        flipped = PointBar()
        flipped.p = bar.p
        flipped.n = -bar.n
        flipped.z = bar.z
        return face_adjoint(h, feature, a, b, flipped)

    return exports(
        face_feature, nearest_feature, point, adjoint, grown_corner, side_normal, next_corner, **vars(hulls),
    )  # fmt: skip
