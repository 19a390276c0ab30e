"""The surface of a height field: two triangles a cell, as seen by a point near it; and its adjoint.

heights[i, j] is the node at x = (i - (rows - 1) / 2) dx, y = (j - (columns - 1) / 2) dy, in the field's frame. A code
names one element: 64 times the number of a node, plus what begins there (a corner, one of three edges or two faces),
or NODE and more where the node itself meets a face of another shape (field.py).
A point touches the surface where its distance has a local minimum: in a valley there are two such places.
"""

import warp as wp

from ..types import exports

CORNER, EDGE_X, EDGE_Y, DIAGONAL, LOWER, UPPER = range(6)
CODES = 64  # codes of a node
NODE = 20  # the first code of a node against another shape
SLACK = 1.0e-4  # a foot may be outside its edge or face by this part of it, or rounding could lose a contact
AHEAD = 1.0e-6  # squared sine by which a neighbour must come nearer to be preferred
SAME = 0.999  # cosine above which two normals are one contact
SHARP = 0.02  # a node protrudes if the slope falls by this much or more across it
FAR = 1.0e6


def make_best(g):
    """The two nearest places so far; see `consider`."""
    real, vec3 = g.real, g.vec3

    @wp.struct
    class Best:
        first: int  # code, -1: none
        second: int
        s: real  # distance
        t: real  # of the second
        n: vec3
        m: vec3  # normal of the second

    @wp.func
    def consider(best: wp.ref[Best], code: int, s: real, n: vec3):
        """Keep the nearest place, and the nearest other one whose normal is another."""
        if s < best.s:
            if best.first >= 0 and best.s < best.t and wp.dot(n, best.n) < real(SAME):
                best.second = best.first
                best.t = best.s
                best.m = best.n
            best.first = code
            best.s = s
            best.n = n
        elif s < best.t and best.first >= 0 and wp.dot(n, best.n) < real(SAME):
            best.second = code
            best.t = s
            best.m = n

    @wp.func
    def nothing(reach: real):
        best = Best()
        best.first = -1
        best.second = -1
        best.s = reach
        best.t = reach
        return best

    @wp.func
    def both(best: wp.ref[Best]):
        """The codes; a second place may have become the same contact as the first."""
        second = best.second
        if second >= 0 and wp.dot(best.n, best.m) >= real(SAME):
            second = -1
        return best.first, second

    return exports(consider, nothing, both, Best=Best)


def make_triangles(g, Field):
    real, vec3 = g.real, g.vec3
    b = make_best(g)
    Best = b.Best

    @wp.func
    def inside(f: Field, i: int, j: int):
        return i >= 0 and j >= 0 and i < f.heights.shape[1] and j < f.heights.shape[2]

    @wp.func
    def node(f: Field, i: int, j: int):
        x = (real(i) - real(0.5) * real(f.heights.shape[1] - 1)) * f.dx
        y = (real(j) - real(0.5) * real(f.heights.shape[2] - 1)) * f.dy
        return vec3(x, y, f.heights[f.env, i, j])

    @wp.func
    def second_of(element: int):
        """Steps from the first corner of an element to the second one."""
        di = wp.where(element == EDGE_X or element == DIAGONAL or element == LOWER, 1, 0)
        dj = wp.where(element == EDGE_Y or element == DIAGONAL, 1, 0)
        if element == UPPER:
            di = 1
            dj = 1
        return di, dj

    @wp.func
    def third_of(element: int):
        return wp.where(element == LOWER, 1, 0), 1

    @wp.func
    def foot(element: int, v0: vec3, v1: vec3, v2: vec3, c: vec3):
        """Unit normal and distance of c from the corner, the line or the plane of an element; of a plane, signed.

        Also returns where along the line the foot is.
        """
        along = real(0.0)
        if element >= LOWER:
            m = wp.cross(v1 - v0, v2 - v0)
            n = m / wp.length(m)
            s = wp.dot(n, c - v0)
        else:
            d = c - v0
            if element != CORNER:
                edge = v1 - v0
                along = wp.dot(edge, d) / wp.dot(edge, edge)
                d -= edge * along
            s = wp.length(d)
            n = d / wp.max(s, real(1.0e-12))
        return n, s, along

    @wp.func
    def corners(f: Field, code: int):
        element = code % CODES
        i = (code // CODES) // f.heights.shape[2]
        j = (code // CODES) % f.heights.shape[2]
        v0 = node(f, i, j)
        v1 = v0
        v2 = v0
        if element != CORNER:
            di, dj = second_of(element)
            v1 = node(f, i + di, j + dj)
        if element >= LOWER:
            di2, dj2 = third_of(element)
            v2 = node(f, i + di2, j + dj2)
        return v0, v1, v2

    @wp.func
    def distance(f: Field, code: int, c: vec3):
        """Normal and distance of a point from an element."""
        v0, v1, v2 = corners(f, code)
        n, s, _along = foot(code % CODES, v0, v1, v2, c)
        return n, s

    @wp.func
    def add_height(f: Field, i: int, j: int, z_bar: real):
        f.bar[f.env, i, j] = f.bar[f.env, i, j] + z_bar

    @wp.func
    def distance_adjoint(f: Field, code: int, c: vec3, n_bar: vec3, s_bar: real):
        """Returns c_bar, and adds to the gradient of the heights if it is wanted."""
        element = code % CODES
        v0, v1, v2 = corners(f, code)
        n, s, along = foot(element, v0, v1, v2, c)
        across = n_bar - n * wp.dot(n, n_bar)
        c_bar = n * s_bar
        v0_bar = vec3()
        v1_bar = vec3()
        v2_bar = vec3()
        if element >= LOWER:
            one = v1 - v0
            two = v2 - v0
            m_bar = (across + (c - v0 - n * s) * s_bar) / wp.length(wp.cross(one, two))
            v1_bar = wp.cross(two, m_bar)
            v2_bar = wp.cross(m_bar, one)
            v0_bar = -v1_bar - v2_bar - c_bar
        else:
            c_bar += across / wp.max(s, real(1.0e-12))  # of d, the way from the foot to c
            v0_bar = -c_bar
            if element != CORNER:
                edge = v1 - v0
                pull = -wp.dot(edge, c_bar) / wp.dot(edge, edge)
                v1_bar = (c - v0 - edge * (real(2.0) * along)) * pull - c_bar * along
                v0_bar = -c_bar - edge * pull - v1_bar
                c_bar += edge * pull
        if f.wanted != 0:
            i = (code // CODES) // f.heights.shape[2]
            j = (code // CODES) % f.heights.shape[2]
            add_height(f, i, j, v0_bar[2])
            if element != CORNER:
                di, dj = second_of(element)
                add_height(f, i + di, j + dj, v1_bar[2])
            if element >= LOWER:
                di2, dj2 = third_of(element)
                add_height(f, i + di2, j + dj2, v2_bar[2])
        return c_bar

    @wp.func
    def under(f: Field, c: vec3):
        """Code of the face that is under or over a point; -1 beside the field."""
        x = c[0] / f.dx + real(0.5) * real(f.heights.shape[1] - 1)
        y = c[1] / f.dy + real(0.5) * real(f.heights.shape[2] - 1)
        code = int(-1)
        if x >= real(0.0) and y >= real(0.0):
            if x <= real(f.heights.shape[1] - 1) and y <= real(f.heights.shape[2] - 1):
                i = wp.min(int(wp.floor(x)), f.heights.shape[1] - 2)
                j = wp.min(int(wp.floor(y)), f.heights.shape[2] - 2)
                code = CODES * (i * f.heights.shape[2] + j) + wp.where(x - real(i) >= y - real(j), LOWER, UPPER)
        return code

    @wp.func
    def beside(f: Field, code: int, c: vec3):
        """A point below the surface touches one face only."""
        return -1

    @wp.func
    def ahead(f: Field, i: int, j: int, v: vec3, d: vec3):
        """True if the surface comes nearer from a foot v towards node (i, j); d: from the foot to the point."""
        found = bool(False)
        if inside(f, i, j):
            way = node(f, i, j) - v
            rate = wp.dot(d, way)
            found = rate > real(0.0) and rate * rate > real(AHEAD) * wp.dot(d, d) * wp.dot(way, way)
        return found

    @wp.func
    def is_minimum(f: Field, element: int, i: int, j: int, v: vec3, d: vec3):
        """Whether a corner or a foot v on an edge is nearer than what adjoins it."""
        if element == EDGE_X:
            return not (ahead(f, i + 1, j + 1, v, d) or ahead(f, i, j - 1, v, d))
        if element == EDGE_Y:
            return not (ahead(f, i + 1, j + 1, v, d) or ahead(f, i - 1, j, v, d))
        if element == DIAGONAL:
            return not (ahead(f, i + 1, j, v, d) or ahead(f, i, j + 1, v, d))
        nearer = ahead(f, i + 1, j, v, d) or ahead(f, i - 1, j, v, d) or ahead(f, i, j + 1, v, d)
        nearer = nearer or ahead(f, i, j - 1, v, d) or ahead(f, i + 1, j + 1, v, d) or ahead(f, i - 1, j - 1, v, d)
        return not nearer

    @wp.func
    def consider_element(f: Field, best: wp.ref[Best], element: int, i: int, j: int, c: vec3):
        code = CODES * (i * f.heights.shape[2] + j) + element
        v0, v1, v2 = corners(f, code)
        n, s, along = foot(element, v0, v1, v2, c)
        low = real(-SLACK)
        high = real(1.0 + SLACK)
        if s >= real(0.0) and s < best.t and n[2] > real(0.0):
            d = n * s
            found = bool(False)
            if element >= LOWER:
                one = v1 - v0
                two = v2 - v0
                p = c - d - v0
                m = wp.cross(one, two)
                first = wp.dot(wp.cross(p, two), m) / wp.dot(m, m)
                second = wp.dot(wp.cross(one, p), m) / wp.dot(m, m)
                found = first >= low and second >= low and first + second <= high
            elif along >= low and along <= high:
                found = is_minimum(f, element, i, j, c - d, d)
            if found:
                b.consider(best, code, s, n)

    @wp.func
    def highest(f: Field, i: int, j: int):
        """Of the corners of a cell."""
        k = wp.min(i + 1, f.heights.shape[1] - 1)
        m = wp.min(j + 1, f.heights.shape[2] - 1)
        low = wp.max(f.heights[f.env, i, j], f.heights[f.env, k, j])
        return wp.max(low, wp.max(f.heights[f.env, i, m], f.heights[f.env, k, m]))

    @wp.func
    def first_node(x: real, d: real, count: int):
        """The last node that is not beyond x, on an axis with so many nodes d apart."""
        return wp.clamp(int(wp.floor(x / d + real(0.5) * real(count - 1))), 0, count - 1)

    @wp.func
    def nearest(f: Field, c: vec3, reach: real):
        """Codes of the two nearest places within reach of a point above the surface, -1 where there is none."""
        best = b.nothing(reach)
        rows = f.heights.shape[1]
        columns = f.heights.shape[2]
        for i in range(first_node(c[0] - reach, f.dx, rows), first_node(c[0] + reach, f.dx, rows) + 1):
            for j in range(first_node(c[1] - reach, f.dy, columns), first_node(c[1] + reach, f.dy, columns) + 1):
                if highest(f, i, j) > c[2] - reach:
                    for element in range(6):
                        di, dj = second_of(element)
                        if i + di < rows and j + wp.max(dj, wp.where(element >= LOWER, 1, 0)) < columns:
                            consider_element(f, best, element, i, j, c)
        first, second = b.both(best)
        return first, second

    @wp.func
    def falls(f: Field, i: int, j: int, di: int, dj: int):
        """True if the surface bends down across a node, along one line of the grid; its border does."""
        bend = real(FAR)
        if inside(f, i - di, j - dj) and inside(f, i + di, j + dj):
            bend = real(2.0) * f.heights[f.env, i, j] - f.heights[f.env, i - di, j - dj]
            bend -= f.heights[f.env, i + di, j + dj]
        length = wp.where(di != 0, f.dx, f.dy)
        return bend > real(SHARP) * length

    @wp.func
    def protrudes(f: Field, i: int, j: int, corner: int):
        """Whether a node can touch a flat shape: not on a plane or in a valley. Here a node has one corner."""
        return falls(f, i, j, 1, 0) or falls(f, i, j, 0, 1) or falls(f, i, j, 1, 1)

    @wp.func
    def place(f: Field, i: int, j: int, corner: int):
        return node(f, i, j)

    return exports(
        distance, distance_adjoint, under, beside, nearest, protrudes, place, first_node, add_height, corners_per_node=1
    )
