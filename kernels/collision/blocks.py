"""The surface of a block field: every cell is a column with a flat top; and its adjoint.

heights[i, j] is the top of the column around x = (i - (rows - 1) / 2) dx, y = (j - (columns - 1) / 2) dy, dx by dy
wide. Codes are as in triangles.py; here an element is a region around the column: i + 3 j + 9 k, where i and j say if
the point is between the walls (0) or beyond the lower (1) or upper one (2), and k = 1 if it is above the top. What a
neighbour covers is no wall.
"""

import warp as wp

from ..types import exports
from .triangles import CODES, make_best

NOWHERE = -1.0e6  # height beside the field
PREFER_FIRST = 0.999  # another way out must be shorter by this


def make_blocks(g, Field):
    real, vec3 = g.real, g.vec3
    b = make_best(g)

    @wp.func
    def height(f: Field, i: int, j: int):
        h = real(NOWHERE)
        if i >= 0 and j >= 0 and i < f.heights.shape[1] and j < f.heights.shape[2]:
            h = f.heights[f.env, i, j]
        return h

    @wp.func
    def middle(f: Field, i: int, j: int):
        x = (real(i) - real(0.5) * real(f.heights.shape[1] - 1)) * f.dx
        y = (real(j) - real(0.5) * real(f.heights.shape[2] - 1)) * f.dy
        return vec3(x, y, f.heights[f.env, i, j])

    @wp.func
    def step(digit: int):
        """-1, 0 or 1: towards the lower wall, none or the upper one."""
        return wp.where(digit == 0, 0, 2 * digit - 3)

    @wp.func
    def outward(f: Field, code: int, c: vec3):
        """From the column to the point, along the axes that the region names, and how many these are."""
        region = code % CODES
        i = (code // CODES) // f.heights.shape[2]
        j = (code // CODES) % f.heights.shape[2]
        l = c - middle(f, i, j)
        sx = step(region % 3)
        sy = step((region // 3) % 3)
        half = real(0.5)
        out = vec3(
            wp.where(sx == 0, real(0.0), l[0] - real(sx) * half * f.dx),
            wp.where(sy == 0, real(0.0), l[1] - real(sy) * half * f.dy),
            wp.where(region >= 9, l[2], real(0.0)),
        )
        return out, wp.abs(sx) + wp.abs(sy) + region // 9

    @wp.func
    def single(code: int):
        """Normal of a region with one axis."""
        region = code % CODES
        return vec3(real(step(region % 3)), real(step((region // 3) % 3)), real(region // 9))

    @wp.func
    def distance(f: Field, code: int, c: vec3):
        """Normal and distance of a point from an element; of a top or a wall, signed."""
        out, count = outward(f, code, c)
        n = single(code)
        s = wp.dot(n, out)
        if count > 1:
            s = wp.length(out)
            n = out / wp.max(s, real(1.0e-12))
        return n, s

    @wp.func
    def add_height(f: Field, i: int, j: int, z_bar: real):
        f.bar[f.env, i, j] = f.bar[f.env, i, j] + z_bar

    @wp.func
    def distance_adjoint(f: Field, code: int, c: vec3, n_bar: vec3, s_bar: real):
        """Returns c_bar, and adds to the gradient of the heights if it is wanted."""
        _out, count = outward(f, code, c)
        n, s = distance(f, code, c)
        c_bar = n * s_bar
        if count > 1:
            c_bar += (n_bar - n * wp.dot(n, n_bar)) / wp.max(s, real(1.0e-12))
            named = single(code)
            c_bar = wp.cw_mul(c_bar, wp.cw_mul(named, named))
        if f.wanted != 0 and code % CODES >= 9:
            cell = code // CODES
            add_height(f, cell // f.heights.shape[2], cell % f.heights.shape[2], -c_bar[2])
        return c_bar

    @wp.func
    def first_node(x: real, d: real, count: int):
        """The column that x is in, on an axis with so many columns, or the outermost one."""
        return wp.clamp(int(wp.floor(x / d + real(0.5) * real(count))), 0, count - 1)

    @wp.func
    def way_out(f: Field, i: int, j: int, c: vec3):
        """Code of the side by which a point inside a column leaves the ground on the shortest way: the top or a wall.

        Behind a wall the way goes on to the neighbour's top, if that is higher.
        """
        l = c - middle(f, i, j)
        shortest = -l[2]
        region = int(9)
        for side in range(4):
            digit = 1 + side % 2
            di = wp.where(side < 2, step(digit), 0)
            dj = wp.where(side < 2, 0, step(digit))
            way = real(0.5) * f.dx - real(di) * l[0]
            if side >= 2:
                way = real(0.5) * f.dy - real(dj) * l[1]
            way += wp.max(height(f, i + di, j + dj) - c[2], real(0.0))
            if way < real(PREFER_FIRST) * shortest:  # not a covered wall that rounding puts there
                shortest = way
                region = wp.where(side < 2, digit, 3 * digit)
        return CODES * (i * f.heights.shape[2] + j) + region

    @wp.func
    def beside(f: Field, code: int, c: vec3):
        """Code of the neighbour's top, if a point leaves a column by a wall and is below that top too; else -1."""
        region = code % CODES
        i = (code // CODES) // f.heights.shape[2] + step(region % 3)
        j = (code // CODES) % f.heights.shape[2] + step((region // 3) % 3)
        found = int(-1)
        if region < 9 and height(f, i, j) > c[2]:
            found = CODES * (i * f.heights.shape[2] + j) + 9
        return found

    @wp.func
    def under(f: Field, c: vec3):
        """Code of the top under a point, or of the way out of the column that it is in; -1 beside the field."""
        code = int(-1)
        x = c[0] / f.dx + real(0.5) * real(f.heights.shape[1])
        y = c[1] / f.dy + real(0.5) * real(f.heights.shape[2])
        if x >= real(0.0) and y >= real(0.0):
            if x <= real(f.heights.shape[1]) and y <= real(f.heights.shape[2]):
                i = first_node(c[0], f.dx, f.heights.shape[1])
                j = first_node(c[1], f.dy, f.heights.shape[2])
                code = CODES * (i * f.heights.shape[2] + j) + 9
                if c[2] < f.heights[f.env, i, j]:
                    code = way_out(f, i, j, c)
        return code

    @wp.func
    def region_of(f: Field, i: int, j: int, c: vec3):
        """Region of a point around a column; 0 if it is inside, or nearest to what a neighbour covers."""
        l = c - middle(f, i, j)
        half = real(0.5)
        x = wp.where(l[0] < -half * f.dx, 1, wp.where(l[0] > half * f.dx, 2, 0))
        y = wp.where(l[1] < -half * f.dy, 1, wp.where(l[1] > half * f.dy, 2, 0))
        top = wp.where(l[2] > real(0.0), 1, 0)
        di = step(x)
        dj = step(y)
        z = wp.min(c[2], c[2] - l[2])  # height of the foot
        covered = (x != 0 and height(f, i + di, j) >= z) or (y != 0 and height(f, i, j + dj) >= z)
        if x != 0 and y != 0:
            covered = covered or height(f, i + di, j + dj) >= z
        return wp.where(covered, 0, x + 3 * y + 9 * top)

    @wp.func
    def nearest(f: Field, c: vec3, reach: real):
        """Codes of the two nearest places within reach of a point outside the columns, -1 where there is none."""
        best = b.nothing(reach)
        rows = f.heights.shape[1]
        columns = f.heights.shape[2]
        for i in range(first_node(c[0] - reach, f.dx, rows), first_node(c[0] + reach, f.dx, rows) + 1):
            for j in range(first_node(c[1] - reach, f.dy, columns), first_node(c[1] + reach, f.dy, columns) + 1):
                region = region_of(f, i, j, c)
                if region != 0:
                    code = CODES * (i * columns + j) + region
                    n, s = distance(f, code, c)
                    b.consider(best, code, s, n)
        first, second = b.both(best)
        return first, second

    @wp.func
    def protrudes(f: Field, i: int, j: int, corner: int):
        """Whether a corner of a column sticks out; of equal columns around it, the first one has it."""
        h = height(f, i, j)
        di = 2 * (corner % 2) - 1
        dj = 2 * (corner // 2) - 1
        free = bool(True)
        lower = bool(False)
        for k in range(1, 4):
            ki = i + wp.where(k % 2 == 1, di, 0)
            kj = j + wp.where(k >= 2, dj, 0)
            other = height(f, ki, kj)
            before = ki < i or (ki == i and kj < j)
            free = free and (other < h or (other == h and not before))
            lower = lower or other < h
        return free and lower

    @wp.func
    def place(f: Field, i: int, j: int, corner: int):
        """One of the four corners of a column's top."""
        half = real(0.5)
        sx = real(2 * (corner % 2) - 1)
        sy = real(2 * (corner // 2) - 1)
        return middle(f, i, j) + vec3(sx * half * f.dx, sy * half * f.dy, real(0.0))

    return exports(
        distance, distance_adjoint, under, beside, nearest, protrudes, place, first_node, add_height, corners_per_node=4
    )
