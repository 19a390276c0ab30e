"""The common polygon of a reference and an incident face: at most four of its corners, as features.

Its corners are corners of the incident face above the reference face, places where an edge of the incident face crosses
a side of the reference face, and corners of the reference face below the incident one.
"""

from functools import cache

import warp as wp

from ..types import exports
from .features import CORNER, CROSSING, GROW, VERTEX, make_features

SPOTS = 64  # corners of a polygon that are looked at
DEEPER = 1.0e-3  # of the thickness: a point is deepest only if it is deeper by this, or rounding would choose
STRICT = 0.9998  # corners of a reference face on the edge of the incident one are crossings already
CLEARLY = 1.001  # a point is farther only if it is by this factor: corners of regular polygons are equally far


@cache
def make_manifold(real):
    f = make_features(real)
    vec3, Hulls, Solid, arm = f.vec3, f.Hulls, f.Solid, f.arm
    face_normal, polygon_size, polygon_corner = f.face_normal, f.polygon_size, f.polygon_corner

    @wp.struct
    class Spot:
        """A corner of the common polygon."""

        feature: int
        p: vec3  # from the centre of the first shape
        z: real

    @wp.struct
    class Faces:
        """A reference face of x and an incident face (or point, or segment) of y."""

        ref: int
        inc: int
        on_b: bool  # x is the second shape of the pair
        spots: wp.array(dtype=Spot)  # memory for the corners of their common polygon
        reach: real  # points with a larger gap are left out

    @wp.func
    def seen_from(h: wp.ref[Hulls], x: Solid, ref: int, p: vec3):
        """A point, given from the centre of x in world axes, from the middle of a face in the axes of x."""
        return p @ x.R - wp.cw_mul(x.scale, h.middle[x.face + ref])

    @wp.func
    def room(h: wp.ref[Hulls], x: Solid, side: int):
        """Distance of a side of a face from its middle; scales stretch it, but do not turn it."""
        n = h.sides[side]
        return h.room[side] * wp.dot(n, wp.cw_mul(x.scale, n))

    @wp.func
    def is_above(h: wp.ref[Hulls], x: Solid, ref: int, p: vec3, grow: real):
        """True if a point, seen from the middle of a face, is inside all sides of the face, which grows by a factor."""
        inside = bool(True)
        k = h.corner_start[x.face + ref]
        end = k + h.corner_count[x.face + ref]
        while inside and k < end:
            inside = wp.dot(h.sides[k], p) <= grow * room(h, x, k)
            k += 1
        return inside

    @wp.func
    def add_spot(h: wp.ref[Hulls], faces: Faces, count: int, feature: int, a: Solid, b: Solid):
        """Returns the number of spots; one with too large a gap is left out."""
        p, _n, z = f.point(h, feature, a, b)
        if z > faces.reach or count >= SPOTS:
            return count
        faces.spots[count].feature = feature
        faces.spots[count].p = p - a.x
        faces.spots[count].z = z
        return count + 1

    @wp.func
    def crossings(h: wp.ref[Hulls], x: Solid, ref: int, p: vec3, g: vec3):
        """Sides of a face through which the edge from p to p + g comes in and goes out; -1: none. See seen_from.

        Both -1: the edge is nowhere above the face, if its ends are not.
        """
        enter = real(0.0) * g[0]
        leave = real(1.0) + enter
        first = int(-1)
        last = int(-1)
        side = h.corner_start[x.face + ref]
        for k in range(h.corner_count[x.face + ref]):
            start = wp.dot(h.sides[side + k], p) - real(GROW) * room(h, x, side + k)
            speed = wp.dot(h.sides[side + k], g)
            if start > real(0.0) and start + speed > real(0.0):
                leave = real(-1.0)
            elif start > real(0.0):
                if start > -speed * enter:
                    enter = -start / speed
                    first = k
            elif start + speed > real(0.0):
                if -start < speed * leave:
                    leave = -start / speed
                    last = k
        if enter > leave:
            first = -1
            last = -1
        return first, last

    @wp.func
    def incident_spots(h: wp.ref[Hulls], faces: Faces, a: Solid, b: Solid):
        """Corners and edges of the incident face; returns the number of spots, and whether all corners are above."""
        x = a
        y = b
        if faces.on_b:
            x = b
            y = a
        count = int(0)
        corners = polygon_size(h, y, faces.inc)
        first = seen_from(h, x, faces.ref, y.x - x.x + arm(y, polygon_corner(h, y, faces.inc, 0)))
        p = first
        above = is_above(h, x, faces.ref, p, real(GROW))
        all_above = above
        for i in range(corners):
            if above:
                feature = f.face_feature(VERTEX, faces.on_b, faces.ref, faces.inc, i, 0)
                count = add_spot(h, faces, count, feature, a, b)
            q = first
            if i + 1 < corners:
                q = seen_from(h, x, faces.ref, y.x - x.x + arm(y, polygon_corner(h, y, faces.inc, i + 1)))
            q_above = is_above(h, x, faces.ref, q, real(GROW))
            all_above = all_above and q_above
            if not (above and q_above) and (i + 1 < corners or corners > 2):
                enter, leave = crossings(h, x, faces.ref, p, q - p)
                if enter >= 0:
                    feature = f.face_feature(CROSSING, faces.on_b, faces.ref, faces.inc, i, enter)
                    count = add_spot(h, faces, count, feature, a, b)
                if leave >= 0:
                    feature = f.face_feature(CROSSING, faces.on_b, faces.ref, faces.inc, i, leave)
                    count = add_spot(h, faces, count, feature, a, b)
            p = q
            above = q_above
        return count, all_above

    @wp.func
    def reference_spots(h: wp.ref[Hulls], count: int, faces: Faces, a: Solid, b: Solid):
        """Corners of the reference face below the incident face; returns the number of spots."""
        x = a
        y = b
        if faces.on_b:
            x = b
            y = a
        e = face_normal(h, x, faces.ref) @ y.R
        m = h.normal[y.face + faces.inc]
        slope = wp.dot(e, m)
        if slope > real(-1.0e-3):
            return count  # seen from its edge, a face covers nothing
        for j in range(polygon_size(h, x, faces.ref)):
            p = seen_from(h, y, faces.inc, x.x - y.x + arm(x, f.grown_corner(h, x, faces.ref, j)))
            p -= e * (wp.dot(m, p) / slope)  # onto the incident face
            if is_above(h, y, faces.inc, p, real(STRICT)):
                feature = f.face_feature(CORNER, faces.on_b, faces.ref, faces.inc, 0, j)
                count = add_spot(h, faces, count, feature, a, b)
        return count

    @wp.func
    def spread(spots: wp.array(dtype=Spot), count: int, features: wp.array(dtype=int), n: vec3, slack: real):
        """Choose four spots: the deepest, the farthest from it, and the farthest on both sides of their line."""
        one = int(0)
        for k in range(1, count):
            if spots[k].z < spots[one].z - slack:
                one = k
        two = int(0)
        most = real(0.0)
        for k in range(count):
            d = spots[k].p - spots[one].p
            if wp.dot(d, d) > real(CLEARLY) * most:
                most = wp.dot(d, d)
                two = k
        across = wp.cross(n, spots[two].p - spots[one].p)
        three = int(-1)
        four = int(-1)
        right = real(1.0e-6) * most
        left = -right
        for k in range(count):
            side = wp.dot(across, spots[k].p - spots[one].p)
            if side > real(CLEARLY) * right:
                right = side
                three = k
            if side < real(CLEARLY) * left:
                left = side
                four = k
        features[0] = spots[one].feature
        kept = int(1)
        if two != one:
            features[kept] = spots[two].feature
            kept += 1
        if three >= 0:
            features[kept] = spots[three].feature
            kept += 1
        if four >= 0:
            features[kept] = spots[four].feature
            kept += 1
        return kept

    @wp.func
    def common_polygon(h: wp.ref[Hulls], faces: Faces, a: Solid, b: Solid):
        """All corners of the common polygon whose gap is small enough; returns their number."""
        count, all_above = incident_spots(h, faces, a, b)
        y_faces = wp.where(faces.on_b, a.faces, b.faces)
        if y_faces > 0 and not all_above:
            count = reference_spots(h, count, faces, a, b)
        return count

    @wp.func
    def keep_four(h: wp.ref[Hulls], faces: Faces, count: int, features: wp.array(dtype=int), a: Solid, b: Solid):
        """Write at most four features; returns their number."""
        kept = count
        if count <= 4:
            for k in range(count):
                features[k] = faces.spots[k].feature
        else:
            x = a
            if faces.on_b:
                x = b
            slack = real(DEEPER) * f.thickness(h, x)
            kept = spread(faces.spots, count, features, face_normal(h, x, faces.ref), slack)
        return kept

    return exports(common_polygon, keep_four, Spot=Spot, Faces=Faces, **vars(f))
