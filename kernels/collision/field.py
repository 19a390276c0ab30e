"""Contacts of a shape (a) with a height field or a block field (b).

A shape is seen as balls, often of radius zero: the candidates that it has against a plane (plane.py). A ball touches
the elements of the surface that are nearest to it, at most two; below the surface, and without a radius, what is under
it. Besides, nodes that stick out touch the faces of boxes and the sides of capsules.

A feature is `balls` times a code (triangles.py) plus the ball; of a node's code, NODE + 6 corner + face of the box.
p lies on the ball, or is the node; n points out of the ground.
"""

import warp as wp

from ...model.pairs import BOX, CAPSULE, CYLINDER, PLANE, SPHERE
from ..types import exports
from .blocks import make_blocks
from .triangles import CODES, NODE, make_triangles

SPHERE_KIND, CAPSULE_KIND, BOX_KIND, CYLINDER_KIND = (
    wp.constant(8 * kind + PLANE) for kind in (SPHERE, CAPSULE, BOX, CYLINDER)
)
ABSENT = 0.5  # m; a candidate of a cylinder that a plane through its middle has farther away than this does not exist
FACING = -0.1  # a node meets the faces of a box whose normals point up by no more than minus this


def make_field(g, plane, blocks: bool):
    """plane: choice (pairs.py) among the pairs of the same shapes with a plane; blocks: of a block field."""
    real, vec3 = g.real, g.vec3
    Pose, PoseBar, PointBar = g.Pose, g.PoseBar, g.PointBar

    @wp.struct
    class Field:
        """A field, and the shape that is tested against it."""

        heights: wp.array(dtype=real, ndim=3)  # [environment, i, j]
        bar: wp.array(dtype=real, ndim=3)  # gradient of the heights,
        wanted: int  # if this is 1
        env: int
        dx: real
        dy: real
        kind: int  # of the shape's pair with a plane
        balls: int

    surface = make_blocks(g, Field) if blocks else make_triangles(g, Field)
    PER_NODE = surface.corners_per_node

    @wp.func
    def through_middle(a: Pose, b: Pose):
        """A plane like the field's, through the middle of the shape."""
        level = Pose()
        level.x = a.x
        level.R = b.R
        return level

    @wp.func
    def ball(f: Field, k: int, a: Pose, b: Pose):
        """Centre and radius of a ball; the radius is -1 if there is none."""
        p, n, z = plane.point(f.kind, k, a, through_middle(a, b))
        r = real(0.0)
        if f.kind == SPHERE_KIND or f.kind == CAPSULE_KIND:
            r = a.size[0]
        elif f.kind == CYLINDER_KIND and z > real(ABSENT):
            r = real(-1.0)
        return p + n * wp.max(r, real(0.0)), r

    @wp.func
    def ball_adjoint(f: Field, k: int, a: Pose, b: Pose, c_bar: vec3, r_bar: real):
        """Returns the adjoint of the shape. Its point on a plane is c - r n."""
        bar = PointBar()
        bar.p = c_bar
        A, _B = plane.adjoint(f.kind, k, a, through_middle(a, b), bar)
        if f.kind == SPHERE_KIND or f.kind == CAPSULE_KIND:
            A.size = A.size + g.radius_bar(r_bar + wp.dot(b.R[:, 2], c_bar))
        return A

    @wp.func
    def search(f: Field, k: int, a: Pose, b: Pose, reach: real):
        """Features of at most two contacts of a ball, -1 where there is none; reach: the largest gap that counts."""
        c, r = ball(f, k, a, b)
        local = (c - b.x) @ b.R
        first = int(-1)
        second = int(-1)
        code = surface.under(f, local)
        s = real(1.0)
        if code >= 0:
            _n, s = surface.distance(f, code, local)
        if r == real(0.0) or s <= real(0.0):
            if s <= reach and r >= real(0.0):
                first = code
                second = surface.beside(f, code, local)
        elif r > real(0.0):
            first, second = surface.nearest(f, local, r + reach)
        if first >= 0:
            first = first * f.balls + k
        if second >= 0:
            second = second * f.balls + k
        return first, second

    @wp.func
    def nodes(f: Field, a: Pose, b: Pose, radius: real):
        """First node and numbers of nodes along x and y that may be in a shape with a bounding sphere."""
        i = int(0)
        j = int(0)
        ni = int(0)
        nj = int(0)
        if f.kind == BOX_KIND or f.kind == CAPSULE_KIND:
            c = (a.x - b.x) @ b.R
            rows = f.heights.shape[1]
            columns = f.heights.shape[2]
            i = surface.first_node(c[0] - radius, f.dx, rows)
            j = surface.first_node(c[1] - radius, f.dy, columns)
            ni = surface.first_node(c[0] + radius, f.dx, rows) - i + 1
            nj = (surface.first_node(c[1] + radius, f.dy, columns) - j + 1) * PER_NODE
        return i, j, ni, nj

    @wp.func
    def face_of(l: vec3, s: vec3, up: vec3):
        """The face of a box by which a node at l leaves it; -1 if it is outside. up: in the frame of the box.

        Faces are numbered 2 axis, at the negative end, and 2 axis + 1.
        """
        face = int(-1)
        depth = real(wp.inf)
        inside = bool(True)
        for k in range(6):
            axis = k // 2
            sign = real(2 * (k % 2) - 1)
            d = s[axis] - sign * l[axis]
            inside = inside and d > real(0.0)
            if d < depth and -sign * up[axis] > real(FACING):
                depth = d
                face = k
        return wp.where(inside, face, -1)

    @wp.func
    def node_feature(f: Field, i: int, j: int, a: Pose, b: Pose, reach: real):
        """Feature of the contact of a node's corner with a shape, or -1; j: PER_NODE times node plus corner."""
        feature = int(-1)
        corner = j % PER_NODE
        w = b.x + b.R @ surface.place(f, i, j // PER_NODE, corner)
        face = int(-1)
        if f.kind == BOX_KIND:
            face = face_of((w - a.x) @ a.R, a.size, b.R[:, 2] @ a.R)
        else:
            d, _t = from_axis(w, a)
            length = wp.length(d)
            if wp.abs(wp.dot(a.R[:, 2], w - a.x)) < a.size[1] and length < a.size[0] + reach:
                if wp.dot(d, b.R[:, 2]) > real(0.0):
                    face = 0
        if face >= 0:
            if surface.protrudes(f, i, j // PER_NODE, corner):
                code = CODES * (i * f.heights.shape[2] + j // PER_NODE) + NODE + 6 * corner + face
                feature = code * f.balls
        return feature

    @wp.func
    def from_axis(w: vec3, a: Pose):
        """From a point to the axis of a capsule, and where along it that is."""
        y = w - a.x
        u = a.R[:, 2]
        t = wp.dot(u, y)
        return u * t - y, t

    @wp.func
    def node_place(f: Field, code: int):
        cell = code // CODES
        return surface.place(f, cell // f.heights.shape[2], cell % f.heights.shape[2], (code % CODES - NODE) // 6)

    @wp.func
    def node_point(f: Field, code: int, a: Pose, b: Pose):
        w = b.x + b.R @ node_place(f, code)
        d, _t = from_axis(w, a)
        length = wp.length(d)
        n = d / wp.max(length, real(1.0e-12))
        z = length - a.size[0]
        if f.kind == BOX_KIND:
            face = (code % CODES - NODE) % 6
            sign = real(2 * (face % 2) - 1)
            n = a.R[:, face // 2] * (-sign)
            z = -wp.dot(n, w - a.x) - a.size[face // 2]
        return w, n, z

    @wp.func
    def node_adjoint(f: Field, code: int, a: Pose, b: Pose, bar: PointBar):
        w = b.x + b.R @ node_place(f, code)
        _w, n, _z = node_point(f, code, a, b)
        A = PoseBar()
        if f.kind == BOX_KIND:
            face = (code % CODES - NODE) % 6
            A.x = n * bar.z
            A.phi = wp.cross(n, bar.n - (w - a.x) * bar.z)
            size = vec3()
            size[face // 2] = -bar.z
            A.size = size
        else:
            d, t = from_axis(w, a)
            u = a.R[:, 2]
            d_bar = n * bar.z + (bar.n - n * wp.dot(n, bar.n)) / wp.max(wp.length(d), real(1.0e-12))
            along = wp.dot(u, d_bar)
            A.x = d_bar - u * along
            A.phi = wp.cross(u, d_bar * t + (w - a.x) * along)
            A.size = g.radius_bar(-bar.z)
        w_bar = bar.p - A.x
        if f.wanted != 0:
            cell = code // CODES
            surface.add_height(f, cell // f.heights.shape[2], cell % f.heights.shape[2], wp.dot(b.R[:, 2], w_bar))
        B = PoseBar()
        B.x = w_bar
        return A, B

    @wp.func
    def point(f: Field, feature: int, a: Pose, b: Pose):
        code = feature // f.balls
        if code % CODES >= NODE:
            w, m, d = node_point(f, code, a, b)
            return w, m, d
        c, r = ball(f, feature % f.balls, a, b)
        n, s = surface.distance(f, code, (c - b.x) @ b.R)
        normal = b.R @ n
        return c - normal * r, normal, s - r

    @wp.func
    def adjoint(f: Field, feature: int, a: Pose, b: Pose, bar: PointBar):
        """Returns the PoseBars of both shapes. The field does not turn, so its couple is left at zero."""
        code = feature // f.balls
        if code % CODES >= NODE:
            A, B = node_adjoint(f, code, a, b, bar)
            return A, B
        k = feature % f.balls
        c, r = ball(f, k, a, b)
        local = (c - b.x) @ b.R
        n, _s = surface.distance(f, code, local)
        pull = b.R @ surface.distance_adjoint(f, code, local, (bar.n - bar.p * r) @ b.R, bar.z)
        C = ball_adjoint(f, k, a, b, bar.p + pull, -bar.z - wp.dot(b.R @ n, bar.p))
        D = PoseBar()
        D.x = -pull
        return C, D

    return exports(search, nodes, node_feature, point, adjoint, Field=Field, surface=surface)
