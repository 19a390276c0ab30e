"""Least depth of two convex polytopes that overlap: the expanding polytope of van den Bergen 2001, small.

It starts from the tetrahedron that GJK ends with and grows inside the difference a - b towards the facet nearest to the
origin. It is used for its direction: even if it stops early, that is a valid way to push the shapes apart.
"""

from functools import cache

import warp as wp

from ..types import exports
from .gjk import make_gjk

CORNERS = 26  # of the polytope at most: 20 are enough at depths up to 5 % of the size
FACETS = 48
ENOUGH = {wp.float64: 1e-11, wp.float32: 2e-6}  # of the size: what another corner must gain
VISIBLE = {wp.float64: 1e-12, wp.float32: 1e-6}  # of the size: how far above a facet a corner sees it
VOLUME = {wp.float64: 1e-9, wp.float32: 1e-5}  # of the size: how far apart the first corners are


@cache
def make_epa(real):
    gjk = make_gjk(real)
    vec3, Hulls, Solid, Corner = gjk.vec3, gjk.Hulls, gjk.Solid, gjk.Corner
    difference, add_corner, listed = gjk.difference, gjk.add_corner, gjk.listed

    enough, visible, volume = (
        wp.constant(real(ENOUGH[real])),
        wp.constant(real(VISIBLE[real])),
        wp.constant(real(VOLUME[real])),
    )

    @wp.struct
    class Facet:
        """A triangle of the polytope."""

        n: vec3  # outward
        h: real  # distance of its plane from the origin
        corners: int  # a + 64 b + 4096 c, counter-clockwise seen from outside
        visible: int  # from the new corner

    @wp.struct
    class Growth:
        """Memory of the polytope."""

        corners: wp.array(dtype=Corner)
        facets: wp.array(dtype=Facet)
        rim: wp.array(dtype=int)  # twice FACETS

    @wp.func
    def facet_corner(f: int, k: int):
        return (f >> (6 * k)) & 63

    @wp.func
    def axis_of(k: int):
        """The six directions of the axes."""
        d = vec3()
        d[k // 2] = wp.where(k % 2 == 0, real(1.0), real(-1.0))
        return d

    @wp.func
    def enlarges(corners: wp.array(dtype=Corner), count: int, w: vec3, slack: real):
        """True if a point is off the point, line or plane of the first corners."""
        arm = w - corners[0].w
        off = wp.length(arm)
        if count == 2:
            u = wp.normalize(corners[1].w - corners[0].w)
            off = wp.length(arm - u * wp.dot(u, arm))
        elif count == 3:
            n = wp.normalize(wp.cross(corners[1].w - corners[0].w, corners[2].w - corners[0].w))
            off = wp.abs(wp.dot(n, arm))
        return off > slack

    @wp.func
    def complete(h: wp.ref[Hulls], corners: wp.array(dtype=Corner), count: int, a: Solid, b: Solid):
        """Add corners until there are four that span a volume; returns how many there are."""
        for k in range(14):
            if count < 4:
                d = axis_of(k % 6)
                if count == 3 and k >= 6:
                    d = wp.cross(corners[1].w - corners[0].w, corners[2].w - corners[0].w)
                    d = wp.where(k % 2 == 0, d, -d)
                w, i, j = difference(h, a, b, d, corners[0].a, corners[0].b)
                if enlarges(corners, count, w, volume * wp.length(w - corners[0].w)):
                    add_corner(corners, count, w, i, j)
                    count += 1
        return count

    @wp.func
    def add_facet(corners: wp.array(dtype=Corner), facets: wp.array(dtype=Facet), k: int, packed: int):
        """False if the triangle has no area."""
        a = corners[facet_corner(packed, 0)].w
        u = corners[facet_corner(packed, 1)].w - a
        v = corners[facet_corner(packed, 2)].w - a
        n = wp.cross(u, v)
        length = wp.length(n)
        good = length > real(1.0e-12) * wp.max(wp.dot(u, u), wp.dot(v, v))
        if good:
            facets[k].n = n / length
            facets[k].h = wp.dot(n, a) / length
            facets[k].corners = packed
            facets[k].visible = 0
        return good

    @wp.func
    def first_facets(corners: wp.array(dtype=Corner), facets: wp.array(dtype=Facet)):
        """Of the tetrahedron; returns 4, or 0 if it has no volume."""
        count = int(0)
        for k in range(4):
            i = (k + 1) % 4
            j = (k + 2) % 4
            l = (k + 3) % 4
            n = wp.cross(corners[j].w - corners[i].w, corners[l].w - corners[i].w)
            packed = i + 64 * j + 4096 * l
            if wp.dot(n, corners[k].w - corners[i].w) > real(0.0):
                packed = i + 64 * l + 4096 * j
            if add_facet(corners, facets, k, packed):
                count += 1
        return wp.where(count == 4, 4, 0)

    @wp.func
    def is_rim(facets: wp.array(dtype=Facet), rim: wp.array(dtype=int), visible: int, one: int, two: int):
        """True if none of the visible facets, which rim[FACETS:] lists, has the edge in the other direction."""
        found = bool(True)
        for k in range(visible):
            f = facets[rim[FACETS + k]].corners
            a = facet_corner(f, 0)
            b = facet_corner(f, 1)
            c = facet_corner(f, 2)
            if (a == two and b == one) or (b == two and c == one) or (c == two and a == one):
                found = False
        return found

    @wp.func
    def expand(
        corners: wp.array(dtype=Corner), facets: wp.array(dtype=Facet), rim: wp.array(dtype=int), count: int,
        corner: int, slack: real,
    ):  # fmt: skip
        """Replace the facets that a new corner sees; returns their new number, 0 if there is no room or no volume."""
        w = corners[corner].w
        seen = int(0)
        for k in range(count):
            facets[k].visible = 0
            if wp.dot(facets[k].n, w) - facets[k].h > slack:
                facets[k].visible = 1
                rim[FACETS + seen] = k
                seen += 1
        edges = int(0)
        for k in range(seen):
            f = facets[rim[FACETS + k]].corners
            for m in range(3):
                one = facet_corner(f, m)
                two = facet_corner(f, (m + 1) % 3)
                if edges < FACETS and is_rim(facets, rim, seen, one, two):
                    rim[edges] = one + 64 * two + 4096 * corner
                    edges += 1
        if seen == 0 or count - seen + edges > FACETS:
            return 0
        kept = int(0)
        for k in range(count):
            if facets[k].visible == 0:
                if kept != k:
                    facets[kept] = facets[k]
                kept += 1
        for k in range(edges):
            if not add_facet(corners, facets, kept, rim[k]):
                return 0
            kept += 1
        return kept

    @wp.func
    def epa(h: wp.ref[Hulls], growth: Growth, count: int, a: Solid, b: Solid):
        """Direction n from b to a, gap along it, and the triangle of the facet, packed; -1: there is no volume."""
        corners = growth.corners
        facets = growth.facets
        n = vec3(real(0.0), real(0.0), real(1.0))
        triangle = int(-1)
        depth = real(wp.inf)
        known = complete(h, corners, count, a, b)
        left = int(0)
        size = real(0.0)
        if known == 4:
            left = first_facets(corners, facets)
            for k in range(4):
                size = wp.max(size, wp.length(corners[k].w))
        while left > 0:
            best = int(0)
            for k in range(1, left):
                if facets[k].h < facets[best].h:
                    best = k
            out = facets[best].n
            height = facets[best].h
            packed = facets[best].corners
            near = corners[facet_corner(packed, 0)]
            w, i, j = difference(h, a, b, out, near.a, near.b)
            seen = wp.dot(w, out)
            done = seen - height <= enough * size
            if seen < depth or done:  # a facet that only has the same direction names other vertices
                depth = seen
                n = -out
                triangle = packed
            left_now = left
            left = 0
            if not done and known < CORNERS and not listed(corners, known, i, j):
                add_corner(corners, known, w, i, j)
                left = expand(corners, facets, growth.rim, left_now, known, visible * size)
                known += 1
        return n, -depth, triangle

    return exports(epa, facet_corner, Facet=Facet, Growth=Growth, **vars(gjk))
