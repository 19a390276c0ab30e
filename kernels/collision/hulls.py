"""Convex shapes for the general pairs: a polytope that the size scales, plus a radius (model/polytopes.py).

All points of a shape are x + R (scale * unit), with `unit` a constant of the tables. So the adjoint of a shape is a
list of forces at such points.
"""

from functools import cache

import warp as wp

from ...model.pairs import BOX, CAPSULE, CYLINDER, MESH, SPHERE
from ..types import exports, make_arguments
from .pose import make_pose

SPHERE_TYPE, CAPSULE_TYPE = wp.constant(int(SPHERE)), wp.constant(int(CAPSULE))
BOX_TYPE, CYLINDER_TYPE, MESH_TYPE = wp.constant(int(BOX)), wp.constant(int(CYLINDER)), wp.constant(int(MESH))


@cache
def make_hulls(real):
    g, arguments = make_pose(real), make_arguments(real)
    vec3, mat33, Pose, Hulls = g.vec3, g.mat33, g.Pose, arguments.Hulls

    @wp.struct
    class Solid:
        """A convex shape in world axes, relative to an origin that both shapes of a pair share."""

        x: vec3
        R: mat33
        scale: vec3  # of the unit polytope along the axes
        radius: real  # around the polytope
        shape: int
        first: int  # vertex
        count: int  # of vertices
        face: int  # the first one
        faces: int  # their number; 0: a point or a segment

    @wp.struct
    class SolidBar:
        """Adjoint of a Solid: force at its centre, couple, scale and radius."""

        x: vec3
        phi: vec3
        scale: vec3
        radius: real

    @wp.func
    def solid(h: wp.ref[Hulls], shape: int, kind: int, pose: Pose):
        """kind: its ShapeType."""
        s = Solid()
        s.x = pose.x
        s.R = pose.R
        s.scale = pose.size
        s.radius = real(0.0)
        if kind <= CAPSULE_TYPE:
            s.radius = pose.size[0]
            s.scale = vec3(real(0.0), real(0.0), pose.size[1])
        elif kind == CYLINDER_TYPE:
            s.scale = vec3(pose.size[0], pose.size[0], pose.size[1])
        elif kind == MESH_TYPE:
            s.scale = vec3(real(1.0))
        s.shape = shape
        s.first = h.vertex_start[shape]
        s.count = h.vertex_count[shape]
        s.face = h.face_start[shape]
        s.faces = h.face_count[shape]
        return s

    @wp.func
    def size_bar(kind: int, bar: SolidBar):
        """Adjoint of a shape's size; the corners of a mesh are no parameters."""
        o = real(0.0)
        size = bar.scale
        if kind == SPHERE_TYPE:
            size = vec3(bar.radius, o, o)
        elif kind == CAPSULE_TYPE:
            size = vec3(bar.radius, bar.scale[2], o)
        elif kind == CYLINDER_TYPE:
            size = vec3(bar.scale[0] + bar.scale[1], bar.scale[2], o)
        elif kind == MESH_TYPE:
            size = vec3()
        return size

    @wp.func
    def arm(s: Solid, unit: vec3):
        """From the centre to a point of the shape, world axes."""
        return s.R @ wp.cw_mul(s.scale, unit)

    @wp.func
    def vertex_arm(h: wp.ref[Hulls], s: Solid, i: int):
        return s.R @ wp.cw_mul(s.scale, h.vertices[s.first + i])

    @wp.func
    def face_normal(h: wp.ref[Hulls], s: Solid, f: int):
        """Outward. No scale turns it: meshes are not scaled, and the axes of cubes and prisms are."""
        return s.R @ h.normal[s.face + f]

    @wp.func
    def face_area(h: wp.ref[Hulls], s: Solid, f: int):
        c = s.scale
        return wp.length(wp.cw_mul(vec3(c[1] * c[2], c[2] * c[0], c[0] * c[1]), h.area[s.face + f]))

    @wp.func
    def polygon_size(h: wp.ref[Hulls], s: Solid, f: int):
        """Corners of a face; a point and a segment are polygons themselves."""
        size = s.count
        if s.faces > 0:
            size = h.corner_count[s.face + f]
        return size

    @wp.func
    def polygon_corner(h: wp.ref[Hulls], s: Solid, f: int, k: int):
        """Vertex of a face's corner k, before the scale."""
        i = k
        if s.faces > 0:
            i = h.corners[h.corner_start[s.face + f] + k]
        return h.vertices[s.first + i]

    @wp.func
    def extreme(h: wp.ref[Hulls], s: Solid, d: vec3, start: int):
        """The vertex that is farthest along d, found by walking from vertex to vertex, always upwards."""
        local = wp.cw_mul(s.scale, d @ s.R)
        best = int(start)
        most = wp.dot(local, h.vertices[s.first + start])
        at = int(-1)
        while at != best:
            at = best
            first = h.neighbour_start[s.first + at]
            for k in range(first, first + h.neighbour_count[s.first + at]):
                vertex = h.neighbours[k]
                height = wp.dot(local, h.vertices[s.first + vertex])
                if height > most:
                    most = height
                    best = vertex
        return best

    @wp.func
    def difference(h: wp.ref[Hulls], a: Solid, b: Solid, d: vec3, start_a: int, start_b: int):
        """The point of a - b that is farthest along d, without radii, and its vertices; searched from other ones."""
        i = extreme(h, a, d, start_a)
        j = extreme(h, b, -d, start_b)
        return a.x - b.x + vertex_arm(h, a, i) - vertex_arm(h, b, j), i, j

    @wp.func
    def facing(h: wp.ref[Hulls], s: Solid, d: vec3):
        """The face whose normal is most along d."""
        local = d @ s.R
        best = int(0)
        most = wp.dot(local, h.normal[s.face])
        for k in range(1, s.faces):
            along = wp.dot(local, h.normal[s.face + k])
            if along > most:
                most = along
                best = k
        return best

    @wp.func
    def thickness(h: wp.ref[Hulls], s: Solid):
        """Half the width of a shape with faces where it is thin."""
        return h.thickness[s.shape] * wp.min(s.scale)

    @wp.func
    def apply(bar: SolidBar, s: Solid, unit: vec3, force: vec3):
        """The bar with a force at a point of the shape."""
        bar.x = bar.x + force
        bar.phi = bar.phi + wp.cross(arm(s, unit), force)
        bar.scale = bar.scale + wp.cw_mul(unit, force @ s.R)
        return bar

    return exports(
        solid, size_bar, arm, vertex_arm, face_normal, face_area, polygon_size, polygon_corner, extreme, difference,
        facing, thickness, apply, Solid=Solid, SolidBar=SolidBar, Hulls=Hulls, **vars(g),
    )  # fmt: skip
