"""Contacts of two convex shapes of any kind: which features touch, and the functions that detection calls.

If the polytopes are apart, and only radii can touch, the nearest points do. If they overlap, the direction of least
depth names a face of each, and the larger face owns the normal; the other one, or two edges, come first only if they
are clearly less deep: a resting box must not flip between them. A triangle of the difference would mix both faces.
"""

from functools import cache

import warp as wp

from ..types import exports
from .boxbox import PREFER, SKEW, SLACK
from .epa import CORNERS, FACETS, make_epa
from .manifold import SPOTS, make_manifold

NEAR = 1.0e-4  # of the thickness: nearer polytopes overlap, since their difference has no direction any more
FACING = {wp.float64: 1e-12, wp.float32: 1e-6}  # squared sine: a nearer direction is the face's own
ALONG = 1.0e-4  # squared sine below which a capsule lies along an edge
SHORT = 1.0e-3  # of a capsule: two points closer than this are one


@cache
def make_convex(real):
    epa, m = make_epa(real), make_manifold(real)
    vec3, Hulls, Solid, Corner, Facet = m.vec3, m.Hulls, m.Solid, epa.Corner, epa.Facet
    Spot, Faces, Growth, facet_corner = m.Spot, m.Faces, epa.Growth, epa.facet_corner
    face_normal, face_area, facing, difference = m.face_normal, m.face_area, m.facing, m.difference

    upright = wp.constant(real(FACING[real]))

    @wp.struct
    class Search:
        """Memory of a search; what is written first is dead when `spots`, in the same place, are."""

        corners: wp.array(dtype=Corner)
        facets: wp.array(dtype=Facet)
        rim: wp.array(dtype=int)  # twice FACETS
        spots: wp.array(dtype=Spot)
        features: wp.array(dtype=int)  # the result
        reach: real  # gaps up to this count

    @wp.func
    def vertices_of(search: Search, triangle: int, second: bool):
        """Two vertices of a (of b, if second) that a facet's corners have; equal: only one; -1: three."""
        one = int(-1)
        two = int(-1)
        more = bool(False)
        for k in range(3):
            corner = search.corners[facet_corner(triangle, k)]
            v = wp.where(second, corner.b, corner.a)
            if one < 0:
                one = v
                two = v
            elif v != one and two == one:
                two = v
            elif v != one and v != two:
                more = True
        return wp.where(more, -1, one), two

    @wp.func
    def crossing_edges(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, n: vec3, triangle: int):
        """The feature of two edges, if that is what a facet of the difference is made of; -1 if not."""
        feature = int(-1)
        a0, a1 = vertices_of(search, triangle, False)
        b0, b1 = vertices_of(search, triangle, True)
        if a0 >= 0 and b0 >= 0 and a0 != a1 and b0 != b1:
            u = m.vertex_arm(h, a, a1) - m.vertex_arm(h, a, a0)
            v = m.vertex_arm(h, b, b1) - m.vertex_arm(h, b, b0)
            c = wp.cross(u, v)
            if wp.dot(c, c) > real(SKEW) * wp.dot(u, u) * wp.dot(v, v):
                feature = m.nearest_feature(a0, a1, b0, b1, wp.dot(c, n) > real(0.0))
        return feature

    @wp.func
    def depth_along(h: wp.ref[Hulls], a: Solid, b: Solid, n: vec3, i: int, j: int):
        """How far a must move along n to leave b, without radii; vertices i and j are near the deepest ones."""
        w, _i, _j = difference(h, a, b, -n, i, j)
        return -wp.dot(w, n)

    @wp.func
    def choose_faces(h: wp.ref[Hulls], a: Solid, b: Solid, n: vec3, deep: Corner):
        """The faces that look at each other along n, which of them is the reference, and the depth along its normal.

        deep: a corner of the facet of least depth.
        """
        faces = Faces()
        inc = facing(h, b, n)
        depth = depth_along(h, a, b, face_normal(h, b, inc), deep.a, deep.b)
        faces.on_b = True
        faces.ref = inc
        faces.inc = 0
        if a.faces > 0:
            faces.on_b = False
            faces.ref = facing(h, a, -n)
            faces.inc = inc
            depth_b = depth
            depth = depth_along(h, a, b, -face_normal(h, a, faces.ref), deep.a, deep.b)
            slack = real(SLACK) * wp.min(m.thickness(h, a), m.thickness(h, b))
            b_first = face_area(h, b, inc) > face_area(h, a, faces.ref)
            turn = depth_b < real(PREFER) * depth - slack
            if b_first:
                turn = depth >= real(PREFER) * depth_b - slack
            if turn:
                faces.on_b = True
                faces.inc = faces.ref
                faces.ref = inc
                depth = depth_b
        return faces, depth

    @wp.func
    def face_below(h: wp.ref[Hulls], a: Solid, b: Solid, faces: Faces):
        """The incident face that has the vertex farthest below the reference face, and looks most against it."""
        x = a
        y = b
        if faces.on_b:
            x = b
            y = a
        e = face_normal(h, x, faces.ref)
        vertex = m.extreme(h, y, -e, 0)
        best = int(0)
        least = real(2.0)
        for k in range(y.faces):
            along = wp.dot(e, face_normal(h, y, k))
            if along < least:
                start = h.corner_start[y.face + k]
                for c in range(h.corner_count[y.face + k]):
                    if h.corners[start + c] == vertex:
                        least = along
                        best = k
        return best

    @wp.func
    def overlapping(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, count: int, reach: real):
        """Features of polytopes that overlap; GJK has left `count` corners. Also the direction and the gap of EPA."""
        growth = Growth()
        growth.corners = search.corners
        growth.facets = search.facets
        growth.rim = search.rim
        n, gap, triangle = epa.epa(h, growth, count, a, b)
        found = int(0)
        if triangle >= 0:
            edges = crossing_edges(h, search, a, b, n, triangle)
            faces, depth = choose_faces(h, a, b, n, search.corners[facet_corner(triangle, 0)])
            faces.reach = reach
            faces.spots = search.spots
            slack = real(SLACK) * m.thickness(h, b)
            if a.faces > 0:
                slack = wp.min(slack, real(SLACK) * m.thickness(h, a))
            turn = wp.where(edges >= 0 and -gap < real(PREFER) * depth - slack, 1, 0)
            while found == 0 and turn < 4:
                if turn == 1 and edges >= 0:
                    search.features[0] = edges
                    found = 1
                elif turn == 0 or turn == 2 or (turn == 3 and a.faces > 0):
                    if turn == 3:  # the faces have nothing in common, so the other shape's is the reference
                        faces.ref = wp.where(faces.on_b, facing(h, a, -n), facing(h, b, n))
                        faces.on_b = not faces.on_b
                    if turn > 1:
                        faces.inc = face_below(h, a, b, faces)
                    found = m.common_polygon(h, faces, a, b)
                    found = m.keep_four(h, faces, found, search.features, a, b)
                turn += 1
        return found, n, gap

    @wp.func
    def lying_along(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, b0: int, b1: int):
        """Both ends of the stretch that a capsule and an edge share; returns 2, or 0 if there is no such stretch."""
        start = m.vertex_arm(h, a, 0)
        u = m.vertex_arm(h, a, 1) - start
        p = b.x - a.x + m.vertex_arm(h, b, b0) - start
        v = m.vertex_arm(h, b, b1) - m.vertex_arm(h, b, b0)
        c = wp.cross(u, v)
        square = wp.dot(u, u)
        found = int(0)
        if wp.dot(c, c) < real(ALONG) * square * wp.dot(v, v):
            lower = b0
            upper = b1
            low = wp.dot(u, p) / square
            high = low + wp.dot(u, v) / square
            if high < low:
                lower = b1
                upper = b0
                swap = low
                low = high
                high = swap
            if wp.min(high, real(1.0)) - wp.max(low, real(0.0)) > real(SHORT):
                search.features[0] = m.nearest_feature(0, 1, lower, lower, True)
                if low < real(0.0):
                    search.features[0] = m.nearest_feature(0, 0, b0, b1, True)
                search.features[1] = m.nearest_feature(0, 1, upper, upper, True)
                if high > real(1.0):
                    search.features[1] = m.nearest_feature(1, 1, b0, b1, True)
                found = 2
        return found

    @wp.func
    def far_end(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, count: int):
        """Where else a capsule is near the face below its nearest point: returns 2 with one of the spots, or 1."""
        p, _n, _z = m.point(h, search.features[0], a, b)
        u = a.R[:, 2]
        most = real(SHORT) * a.scale[2]
        kept = int(1)
        for k in range(count):
            away = wp.abs(wp.dot(u, search.spots[k].p + a.x - p))
            if away > most and search.spots[k].z > -a.radius:  # not below the whole of b
                most = away
                search.features[1] = search.spots[k].feature
                kept = 2
        return kept

    @wp.func
    def apart(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, count: int, n: vec3):
        """Features of a sphere or capsule a whose axis is outside of b, with GJK's last simplex and the normal n."""
        a0 = search.corners[0].a
        b0 = search.corners[0].b
        a1 = a0
        b1 = b0
        c1 = b0
        for k in range(1, count):
            if search.corners[k].a != a0:
                a1 = search.corners[k].a
            other = search.corners[k].b
            if other != b0:
                if b1 == b0:
                    b1 = other
                elif other != b1:
                    c1 = other
        faces = Faces()
        faces.on_b = True
        faces.ref = facing(h, b, n)
        faces.inc = 0
        faces.reach = search.reach
        faces.spots = search.spots
        over_face = m.common_polygon(h, faces, a, b)
        found = int(0)
        turn = wp.cross(n, face_normal(h, b, faces.ref))
        if c1 != b0 or wp.dot(turn, turn) < upright:
            found = wp.min(over_face, 2)
            for k in range(found):
                search.features[k] = search.spots[k].feature
        if found == 0 and a.count == 2 and b0 != b1:
            found = lying_along(h, search, a, b, b0, b1)
        if found == 0:
            positive = bool(True)
            if a0 != a1 and b0 != b1:
                v = m.vertex_arm(h, b, b1) - m.vertex_arm(h, b, b0)
                u = m.vertex_arm(h, a, a1) - m.vertex_arm(h, a, a0)
                positive = wp.dot(wp.cross(u, v), n) > real(0.0)
            search.features[0] = m.nearest_feature(a0, a1, b0, b1, positive)
            found = 1
            if a.count == 2:
                found = far_end(h, search, a, b, over_face)
        return found

    @wp.func
    def middle(h: wp.ref[Hulls], s: Solid):
        return m.arm(s, h.centre[s.shape])

    @wp.func
    def bound(h: wp.ref[Hulls], s: Solid):
        """Radius of a sphere around the middle that holds the polytope."""
        r = h.bound[s.shape]
        if r == real(0.0):
            r = wp.length(s.scale)
        return r + s.radius

    @wp.func
    def search_pair(h: wp.ref[Hulls], search: Search, a: Solid, b: Solid, reach: real):
        """Write the features of a pair whose gap may be up to `reach`; returns their number, the normal and the gap.

        Polytopes without a radius are looked at only if they overlap.
        """
        start = a.x - b.x + middle(h, a) - middle(h, b)
        found = int(0)
        n = vec3()
        gap = real(1.0)
        if wp.length(start) <= bound(h, a) + bound(h, b) + reach:
            room = real(0.0)
            if a.radius > real(0.0):
                room = a.radius + reach
            count, v = epa.gjk(h, search.corners, a, b, start, room)
            if count > 0:
                length = wp.length(v)
                if length > real(NEAR) * m.thickness(h, b) and a.radius > real(0.0):
                    n = v / length
                    gap = length - a.radius
                    search.reach = reach
                    found = apart(h, search, a, b, count, n)
                else:
                    found, n, gap = overlapping(h, search, a, b, count, reach)
                    gap = gap - a.radius
        return found, n, gap

    return exports(
        search_pair, Search=Search, Corner=Corner, Facet=Facet, CORNERS=CORNERS, FACETS=FACETS, SPOTS=SPOTS, **vars(m)
    )
