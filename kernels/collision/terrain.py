"""Pairs of a shape and the model's height field or block field, as detection lists them: see field.py."""

import warp as wp

from ...model import FIELDS
from ...model.pairs import MESH, PLANE
from ..types import exports
from .field import make_field
from .pairs import kind_of, make_choice
from .pose import make_pose

MESH_KIND = wp.constant(kind_of(MESH, PLANE))
FIELD_TYPE = wp.constant(int(min(FIELDS)))  # and above
PLANE_KIND = wp.constant(int(PLANE))


def field_kinds(sizes):
    """The kinds of pairs that have a field."""
    return tuple(kind for kind in sizes.kinds if kind[1] in FIELDS)


def make_terrain(t, shape_radius, reach):
    """Only for models that have such pairs: there is code for one kind of field.

    shape_radius(e, shape) and reach(e, a, b): see detection.py.
    """
    real, vec3, Env, EnvBar, Contact = t.real, t.vec3, t.Env, t.EnvBar, t.Contact
    g = make_pose(real)
    Pose, PointBar = g.Pose, g.PointBar
    kinds = field_kinds(t.sizes)
    plane = make_choice(real, tuple((a, int(PLANE)) for a, _ in kinds))
    field = make_field(g, plane, blocks=kinds[0][1] == max(FIELDS))
    Field = field.Field

    @wp.func
    def is_field(e: wp.ref[Env], pair: int):
        return e.model.pair_kind[pair] % 8 >= FIELD_TYPE

    @wp.func
    def field_of(e: wp.ref[Env], pair: int):
        f = Field()
        f.heights = e.params.heights
        f.wanted = 0
        f.env = e.index
        f.dx = e.model.field_dx
        f.dy = e.model.field_dy
        f.kind = e.model.pair_kind[pair] // 8 * 8 + PLANE_KIND
        f.balls = plane.candidates(f.kind)
        if f.kind == MESH_KIND:
            f.balls = e.model.vertex_count[e.model.pair_a[pair]]
        return f

    @wp.func
    def corner(e: wp.ref[Env], pair: int, ball: int, a: Pose):
        """The shape; if it is a mesh, with the corner that a ball is, in place of its size."""
        if e.model.pair_kind[pair] // 8 * 8 + PLANE_KIND == MESH_KIND:
            a.size = e.model.vertices[e.model.vertex_start[e.model.pair_a[pair]] + ball]
        return a

    @wp.func
    def candidates(e: wp.ref[Env], pair: int, a: Pose, b: Pose):
        """How many points a pair may have: two for every ball, then one for every node near the shape."""
        f = field_of(e, pair)
        _i, _j, ni, nj = field.nodes(f, a, b, shape_radius(e, e.model.pair_a[pair]))
        return 2 * f.balls + ni * nj

    @wp.func
    def feature(e: wp.ref[Env], pair: int, c: int, following: int, a: Pose, b: Pose):
        """Features of candidate c and of the next one; -1: there is none. following: what the call before said of c."""
        f = field_of(e, pair)
        shape = e.model.pair_a[pair]
        gap = reach(e, shape, e.model.pair_b[pair])
        first = int(-1)
        second = int(-1)
        if c < 2 * f.balls and c % 2 == 1:
            first = following
        elif c < 2 * f.balls:
            first, second = field.search(f, c // 2, corner(e, pair, c // 2, a), b, gap)
        else:
            i, j, _ni, nj = field.nodes(f, a, b, shape_radius(e, shape))
            k = c - 2 * f.balls
            per_node = wp.static(field.surface.corners_per_node)
            first = field.node_feature(f, i + k // nj, per_node * j + k % nj, a, b, gap)
        return first, second

    @wp.func
    def point(e: wp.ref[Env], pair: int, feature: int, a: Pose, b: Pose):
        """Far away if the feature is -1."""
        f = field_of(e, pair)
        p, n, z = vec3(), vec3(), real(1.0)
        if feature >= 0:
            p, n, z = field.point(f, feature, corner(e, pair, feature % f.balls, a), b)
        return p, n, z

    @wp.func
    def adjoint(
        e: wp.ref[Env], e_bar: wp.ref[EnvBar], contact: wp.ref[Contact], a: Pose, b: Pose, bar: PointBar
    ):  # fmt: skip
        """Returns the PoseBars of both shapes, and adds to the gradient of the heights."""
        f = field_of(e, contact.pair)
        if e_bar.params.terrain != 0:
            f.wanted = 1
            f.bar = e_bar.params.heights
        A, B = field.adjoint(f, contact.feature, corner(e, contact.pair, contact.feature % f.balls, a), b, bar)
        if f.kind == MESH_KIND:
            A.size = vec3()  # corners are not parameters
        if e_bar.params.touch != 0:
            e_bar.params.terrain_origin[e.index] = e_bar.params.terrain_origin[e.index] - B.x
        return A, B

    return exports(is_field, candidates, feature, point, adjoint)
