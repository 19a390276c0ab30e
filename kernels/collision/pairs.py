"""All pairs of shapes that can touch: which functions compute their contact points, and the choice among them.

In a pair (a, b) the lower ShapeType is first. A contact is p (point, world axes, any origin), n (unit normal from b to
a) and z (gap, negative: penetration). A candidate is one of the points that a pair can make. A pair is
    mode(a, b)                          result of a search that its points share; -1: apart. 0 if nothing is searched
    point(feature, a, b) -> p, n, z     feature = 16 mode + candidate; z > 0 if there is no such point
    adjoint(feature, a, b, bar)         bar: PointBar; returns the PoseBars of a and b
The adjoint takes the branches that `feature` names, so it cannot disagree with the forward step. The number of
candidates is in SLOTS (model/pairs.py); a mesh has one per corner. To add a pair, write its functions, add it to
`make_pairs` and to SLOTS.
"""

from functools import cache

import warp as wp

from ...model.pairs import BOX, CAPSULE, CYLINDER, MESH, PLANE, SLOTS, SPHERE
from ..types import exports
from .box import make_box
from .boxbox import make_boxbox
from .plane import make_plane
from .pose import make_pose
from .round import make_round


def kind_of(a: int, b: int) -> int:
    """The number of a pair of shape types in the kernels; there may be eight types."""
    return 8 * a + b


MESH_PLANE = wp.constant(kind_of(MESH, PLANE))


@cache
def make_pairs(real) -> dict[tuple[int, int], object]:
    """The functions of every pair, by its two types."""
    g = make_pose(real)
    plane, rounded, box, boxes = make_plane(g), make_round(g), make_box(g), make_boxbox(g)
    return {
        (SPHERE, PLANE): plane.sphere_plane,
        (CAPSULE, PLANE): plane.capsule_plane,
        (BOX, PLANE): plane.box_plane,
        (CYLINDER, PLANE): plane.cylinder_plane,
        (MESH, PLANE): plane.mesh_plane,
        (SPHERE, SPHERE): rounded.sphere_sphere,
        (SPHERE, CAPSULE): rounded.sphere_capsule,
        (CAPSULE, CAPSULE): rounded.capsule_capsule,
        (SPHERE, BOX): box.sphere_box,
        (CAPSULE, BOX): box.capsule_box,
        (BOX, BOX): boxes.box_box,
    }


def make_choice(real, kinds):
    """mode, point, adjoint and candidates of a pair whose kind is known at run time.

    kinds: pairs of shape types that occur. Others are not compiled: box against box alone would double the time.
    """
    g = make_pose(real)
    vec3, Pose, PoseBar, PointBar = g.vec3, g.Pose, g.PoseBar, g.PointBar

    @wp.func
    def mode(kind: int, a: Pose, b: Pose):
        return 0

    @wp.func
    def point(kind: int, feature: int, a: Pose, b: Pose):
        return vec3(), vec3(), real(1.0)

    @wp.func
    def adjoint(kind: int, feature: int, a: Pose, b: Pose, bar: PointBar):
        return PoseBar(), PoseBar()

    @wp.func
    def candidates(kind: int):
        return 1

    choice = exports(mode, point, adjoint, candidates)
    for types in kinds:
        choice = _or(g, types, make_pairs(real)[types], choice)
    return choice


def _or(g, types, pair, others):
    """The functions of `pair` if the kind is this one, those of the others if not."""
    Pose, PointBar = g.Pose, g.PointBar
    this_kind, count = wp.constant(kind_of(*types)), wp.constant(SLOTS[types])

    @wp.func
    def point(kind: int, feature: int, a: Pose, b: Pose):
        p, n, z = others.point(kind, feature, a, b)
        if kind == this_kind:
            p, n, z = pair.point(feature, a, b)
        return p, n, z

    @wp.func
    def adjoint(kind: int, feature: int, a: Pose, b: Pose, bar: PointBar):
        if kind == this_kind:
            return pair.adjoint(feature, a, b, bar)
        return others.adjoint(kind, feature, a, b, bar)

    @wp.func
    def candidates(kind: int):
        return wp.where(kind == this_kind, count, others.candidates(kind))

    if not hasattr(pair, "mode"):
        return exports(point, adjoint, candidates, mode=others.mode)

    @wp.func
    def mode(kind: int, a: Pose, b: Pose):
        if kind == this_kind:
            return pair.mode(a, b)
        return others.mode(kind, a, b)

    return exports(point, adjoint, candidates, mode)
