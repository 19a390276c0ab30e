"""One point of a pair of shapes, whatever their types: choice among the pairs of collision.py; and the adjoint."""

from types import SimpleNamespace

import warp as wp

# ShapeType numbers, see warp_articulated/model.py
SPHERE, CAPSULE, BOX, CYLINDER, MESH, PLANE = range(6)


def kind_of(a: int, b: int) -> int:
    """The number of a pair of shape types in the kernels."""
    return 8 * a + b


SPHERE_PLANE = wp.constant(kind_of(SPHERE, PLANE))
CAPSULE_PLANE = wp.constant(kind_of(CAPSULE, PLANE))
BOX_PLANE = wp.constant(kind_of(BOX, PLANE))
CYLINDER_PLANE = wp.constant(kind_of(CYLINDER, PLANE))
MESH_PLANE = wp.constant(kind_of(MESH, PLANE))
SPHERE_SPHERE = wp.constant(kind_of(SPHERE, SPHERE))
SPHERE_CAPSULE = wp.constant(kind_of(SPHERE, CAPSULE))
SPHERE_BOX = wp.constant(kind_of(SPHERE, BOX))
CAPSULE_CAPSULE = wp.constant(kind_of(CAPSULE, CAPSULE))
CAPSULE_BOX = wp.constant(kind_of(CAPSULE, BOX))
BOX_BOX = wp.constant(kind_of(BOX, BOX))


def make_pair_points(t, collision):
    real, vec3, mat33, Model = t.real, t.vec3, t.mat33, t.Model
    # only the kinds that the model has are compiled: box against box alone would double the compile time
    kinds = {kind_of(a, b) for a, b in t.sizes.kinds}

    @wp.struct
    class Pose:
        """A shape in world axes, relative to the origin that both shapes of a pair share."""

        x: vec3
        R: mat33
        size: vec3

    @wp.func
    def pair_mode(kind: int, a: Pose, b: Pose):
        """What the pair's points have in common, see collision.py; -1 if it does not touch."""
        mode = int(0)
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                mode = collision.capsule_capsule_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                mode = collision.capsule_box_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                mode = collision.box_box_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        return mode

    @wp.func
    def pair_candidates(model: Model, kind: int, a: int):
        """How many points the pair may make."""
        count = int(1)
        if kind == CAPSULE_PLANE or kind == CAPSULE_CAPSULE or kind == CAPSULE_BOX:
            count = 2
        elif kind == CYLINDER_PLANE:
            count = 5
        elif kind == BOX_PLANE or kind == BOX_BOX:
            count = 8
        elif kind == MESH_PLANE:
            count = model.vertex_count[a]
        return count

    @wp.func
    def pair_point(model: Model, kind: int, feature: int, shape_a: int, a: Pose, b: Pose):
        """One point of a pair: where, normal, gap."""
        p = vec3()
        n = vec3()
        z = real(1.0)
        nb = vec3(b.R[0, 2], b.R[1, 2], b.R[2, 2])
        if wp.static(SPHERE_PLANE in kinds):
            if kind == SPHERE_PLANE:
                p, n, z = collision.sphere_plane_point(a.x, a.size[0], b.x, nb)
        if wp.static(CAPSULE_PLANE in kinds):
            if kind == CAPSULE_PLANE:
                p, n, z = collision.capsule_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(BOX_PLANE in kinds):
            if kind == BOX_PLANE:
                p, n, z = collision.box_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(CYLINDER_PLANE in kinds):
            if kind == CYLINDER_PLANE:
                p, n, z = collision.cylinder_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(MESH_PLANE in kinds):
            if kind == MESH_PLANE:
                vertex = model.vertices[model.vertex_start[shape_a] + feature]
                p, n, z = collision.mesh_plane_point(a.x, a.R, vertex, b.x, nb)
        if wp.static(SPHERE_SPHERE in kinds):
            if kind == SPHERE_SPHERE:
                p, n, z = collision.sphere_sphere_point(a.x, a.size[0], b.x, b.size[0])
        if wp.static(SPHERE_CAPSULE in kinds):
            if kind == SPHERE_CAPSULE:
                p, n, z = collision.sphere_capsule_point(a.x, a.size[0], b.x, b.R, b.size)
        if wp.static(SPHERE_BOX in kinds):
            if kind == SPHERE_BOX:
                p, n, z = collision.sphere_box_point(a.x, a.size[0], b.x, b.R, b.size)
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                p, n, z = collision.capsule_capsule_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                p, n, z = collision.capsule_box_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                p, n, z = collision.box_box_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        return p, n, z

    @wp.struct
    class PoseBar:
        """Adjoint of a Pose: force at its centre, couple, size."""

        x: vec3
        phi: vec3
        size: vec3

    @wp.func
    def pair_point_adjoint(
        model: Model, kind: int, feature: int, shape_a: int, a: Pose, b: Pose, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        o = real(0.0)
        nb = vec3(b.R[0, 2], b.R[1, 2], b.R[2, 2])
        xa = vec3()
        phia = vec3()
        sa = vec3()
        xb = vec3()
        phib = vec3()
        sb = vec3()
        if wp.static(SPHERE_PLANE in kinds):
            if kind == SPHERE_PLANE:
                xa, ra, xb, phib = collision.sphere_plane_point_adjoint(a.x, a.size[0], b.x, nb, p_bar, n_bar, z_bar)
                sa = vec3(ra, o, o)
        if wp.static(CAPSULE_PLANE in kinds):
            if kind == CAPSULE_PLANE:
                xa, phia, sa, xb, phib = collision.capsule_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
        if wp.static(BOX_PLANE in kinds):
            if kind == BOX_PLANE:
                xa, phia, sa, xb, phib = collision.box_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
        if wp.static(CYLINDER_PLANE in kinds):
            if kind == CYLINDER_PLANE:
                xa, phia, sa, xb, phib = collision.cylinder_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
        if wp.static(MESH_PLANE in kinds):
            if kind == MESH_PLANE:
                vertex = model.vertices[model.vertex_start[shape_a] + feature]
                xa, phia, _vertex_bar, xb, phib = collision.mesh_plane_point_adjoint(
                    a.x, a.R, vertex, b.x, nb, p_bar, n_bar, z_bar
                )
        if wp.static(SPHERE_SPHERE in kinds):
            if kind == SPHERE_SPHERE:
                xa, ra, xb, rb = collision.sphere_sphere_point_adjoint(
                    a.x, a.size[0], b.x, b.size[0], p_bar, n_bar, z_bar
                )
                sa = vec3(ra, o, o)
                sb = vec3(rb, o, o)
        if wp.static(SPHERE_CAPSULE in kinds):
            if kind == SPHERE_CAPSULE:
                xa, ra, xb, phib, sb = collision.sphere_capsule_point_adjoint(
                    a.x, a.size[0], b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                sa = vec3(ra, o, o)
        if wp.static(SPHERE_BOX in kinds):
            if kind == SPHERE_BOX:
                xa, ra, xb, phib, sb = collision.sphere_box_point_adjoint(
                    a.x, a.size[0], b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                sa = vec3(ra, o, o)
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                xa, phia, sa, xb, phib, sb = collision.capsule_capsule_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                xa, phia, sa, xb, phib, sb = collision.capsule_box_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                xa, phia, sa, xb, phib, sb = collision.box_box_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
        A = PoseBar()
        A.x = xa
        A.phi = phia
        A.size = sa
        B = PoseBar()
        B.x = xb
        B.phi = phib
        B.size = sb
        return A, B

    return SimpleNamespace(**locals())
