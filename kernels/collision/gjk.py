"""Distance of two convex polytopes without their radii: Gilbert, Johnson, Keerthi 1988, on the difference a - b.

The corners of the last simplex are left in `corners`: they say which vertices the nearest points lie between.
"""

from functools import cache

import warp as wp

from ..types import exports
from .hulls import make_hulls

MOST_STEPS = 32  # 14 are enough for 99 % of random pairs
CLOSE = {wp.float64: 1e-13, wp.float32: 1e-6}  # relative change of the squared distance that ends the search
TOUCH = {wp.float64: 1e-26, wp.float32: 1e-12}  # squared distance, relative to the corners', that counts as none
FLAT = {wp.float64: 1e-13, wp.float32: 1e-6}  # sine below which a fourth corner lies in the plane of the others


@cache
def make_gjk(real):
    hulls = make_hulls(real)
    vec3, Hulls, Solid, difference = hulls.vec3, hulls.Hulls, hulls.Solid, hulls.difference

    close, touch, flat = wp.constant(real(CLOSE[real])), wp.constant(real(TOUCH[real])), wp.constant(real(FLAT[real]))

    @wp.struct
    class Corner:
        """A point of the difference a - b, and the vertices that it is the difference of."""

        w: vec3
        a: int
        b: int

    @wp.func
    def nearest_on_segment(a: vec3, b: vec3):
        """Weights of the ends for the point nearest to the origin."""
        u = b - a
        length2 = wp.dot(u, u)
        along = real(0.0)
        if length2 > real(0.0):
            along = wp.clamp(-wp.dot(a, u) / length2, real(0.0), real(1.0))
        return vec3(real(1.0) - along, along, real(0.0))

    @wp.func
    def nearest_on_triangle(a: vec3, b: vec3, c: vec3):
        """Weights of the corners for the point nearest to the origin; zero for those that it does not need."""
        u = b - a
        v = c - a
        n = wp.cross(u, v)
        area2 = wp.dot(n, n)
        # the origin over the inside of the triangle: all three weights positive
        wb = wp.dot(wp.cross(v, a), n)
        wc = wp.dot(wp.cross(a, u), n)
        wa = area2 - wb - wc
        if area2 > real(0.0) and wa > real(0.0) and wb > real(0.0) and wc > real(0.0):
            return vec3(wa, wb, wc) / area2
        # otherwise the nearest of the three sides
        best = nearest_on_segment(a, b)
        p = a * best[0] + b * best[1]
        least = wp.dot(p, p)
        side = nearest_on_segment(a, c)
        p = a * side[0] + c * side[1]
        if wp.dot(p, p) < least:
            least = wp.dot(p, p)
            best = vec3(side[0], real(0.0), side[1])
        side = nearest_on_segment(b, c)
        p = b * side[0] + c * side[1]
        if wp.dot(p, p) < least:
            best = vec3(real(0.0), side[0], side[1])
        return best

    @wp.func
    def keep(corners: wp.array(dtype=Corner), one: int, two: int, three: int, weights: vec3):
        """Reduce the simplex to those of three corners that have weights; returns their number and the point."""
        first = corners[one]
        second = corners[two]
        third = corners[three]
        count = int(0)
        if weights[0] > real(0.0):
            corners[count] = first
            count += 1
        if weights[1] > real(0.0):
            corners[count] = second
            count += 1
        if weights[2] > real(0.0):
            corners[count] = third
            count += 1
        return count, first.w * weights[0] + second.w * weights[1] + third.w * weights[2]

    @wp.func
    def other_corner(skip: int, k: int):
        """Corner k of the three of a tetrahedron that are not `skip`."""
        return wp.where(k < skip, k, k + 1)

    @wp.func
    def nearest_on_tetrahedron(corners: wp.array(dtype=Corner)):
        """Returns the corners that are kept (4: the origin is inside) and the point of theirs that is nearest."""
        found = int(-1)
        least = real(0.0)
        best = vec3()
        for skip in range(4):
            a = corners[other_corner(skip, 0)].w
            b = corners[other_corner(skip, 1)].w
            c = corners[other_corner(skip, 2)].w
            rest = corners[skip].w - a
            n = wp.cross(b - a, c - a)
            height = wp.dot(n, rest)
            level = wp.abs(height) <= flat * wp.length(n) * wp.length(rest)
            if level or height * wp.dot(n, a) > real(0.0):  # the origin is on the other side of this face
                weights = nearest_on_triangle(a, b, c)
                p = a * weights[0] + b * weights[1] + c * weights[2]
                if found < 0 or wp.dot(p, p) < least:
                    found = skip
                    least = wp.dot(p, p)
                    best = weights
        count = int(4)
        v = vec3()
        if found >= 0:
            count, v = keep(corners, other_corner(found, 0), other_corner(found, 1), other_corner(found, 2), best)
        return count, v

    @wp.func
    def add_corner(corners: wp.array(dtype=Corner), k: int, w: vec3, i: int, j: int):
        corners[k].w = w
        corners[k].a = i
        corners[k].b = j

    @wp.func
    def listed(corners: wp.array(dtype=Corner), count: int, i: int, j: int):
        found = bool(False)
        for k in range(count):
            if corners[k].a == i and corners[k].b == j:
                found = True
        return found

    @wp.func
    def gjk(h: wp.ref[Hulls], corners: wp.array(dtype=Corner), a: Solid, b: Solid, start: vec3, reach: real):
        """Corners of the last simplex (0: farther apart than `reach`), and the shortest vector from b to a.

        The vector is zero if the polytopes overlap. start: from the middle of b to that of a.
        """
        v = start
        if wp.dot(v, v) == real(0.0):
            v = vec3(real(1.0), real(0.0), real(0.0))
        count = int(0)
        size2 = real(0.0)
        last = real(wp.inf)
        last_a = int(0)
        last_b = int(0)
        for _step in range(MOST_STEPS):
            w, i, j = difference(h, a, b, -v, last_a, last_b)
            last_a = i
            last_b = j
            square = wp.dot(v, v)
            along = wp.dot(v, w)
            if along > real(0.0) and along * along > reach * reach * square:
                return 0, v
            if count > 0:
                if square - along <= close * square or square >= last or listed(corners, count, i, j):
                    return count, v
                last = square
            add_corner(corners, count, w, i, j)
            count += 1
            size2 = wp.max(size2, wp.dot(w, w))
            v = w
            if count == 2:
                weights = nearest_on_segment(corners[0].w, w)
                count, v = keep(corners, 0, 1, 1, weights)
            elif count == 3:
                weights = nearest_on_triangle(corners[0].w, corners[1].w, w)
                count, v = keep(corners, 0, 1, 2, weights)
            elif count == 4:
                count, v = nearest_on_tetrahedron(corners)
            if count == 4 or wp.dot(v, v) <= touch * size2:
                return count, vec3()
        return count, v

    return exports(gjk, add_corner, listed, Corner=Corner, **vars(hulls))
