"""Random pairs of convex shapes, and kernels that search their contacts and reverse them."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import warp as wp
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.convex import make_convex
from warp_articulated.kernels.types import make_arguments

from warp_articulated.device.structs import hulls_struct
from warp_articulated.model import Shape, ShapeType
from warp_articulated.model.pairs import CONVEX
from warp_articulated.model.polytopes import polytope_of

OPTIONS = {"enable_backward": False, "max_unroll": 1}
KINDS = {f"{a.name}_{b.name}".lower(): (a, b) for a, b in CONVEX}


@cache
def kernels(real):
    t, c = make_arguments(real), make_convex(real)
    vec3, mat33 = t.vec3, t.mat33

    @wp.func
    def solid(h: wp.ref[t.Hulls], shape: int, kind: int, x: vec3, R: mat33, size: vec3):
        p = c.Pose()
        p.x = x
        p.R = R
        p.size = size
        return c.solid(h, shape, kind, p)

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def forward(
        hulls: t.Hulls, kinds: wp.vec2i, searching: int, reach: real,
        xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3),
        xb: wp.array(dtype=vec3), Rb: wp.array(dtype=mat33), sb: wp.array(dtype=vec3),
        corners: wp.array2d(dtype=c.Corner), facets: wp.array2d(dtype=c.Facet), rim: wp.array2d(dtype=int),
        spots: wp.array2d(dtype=c.Spot), feature: wp.array2d(dtype=int), count: wp.array(dtype=int),
        p: wp.array2d(dtype=vec3), n: wp.array2d(dtype=vec3), z: wp.array2d(dtype=real),
    ):  # fmt: skip
        i = wp.tid()
        h = hulls
        a = solid(h, 2 * i, kinds[0], xa[i], Ra[i], sa[i])
        b = solid(h, 2 * i + 1, kinds[1], xb[i], Rb[i], sb[i])
        points = feature.shape[1]
        if searching != 0:
            search = c.Search()
            search.corners = corners[i]
            search.facets = facets[i]
            search.rim = rim[i]
            search.spots = spots[i]
            search.features = feature[i]
            found, direction, gap = c.search_pair(h, search, a, b, reach)
            count[i] = found
            points = found
            n[i, 4] = direction
            z[i, 4] = gap
        for k in range(points):
            pk, nk, zk = c.point(h, feature[i, k], a, b)
            p[i, k] = pk
            n[i, k] = nk
            z[i, k] = zk

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def adjoint(
        hulls: t.Hulls, kinds: wp.vec2i,
        xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3),
        xb: wp.array(dtype=vec3), Rb: wp.array(dtype=mat33), sb: wp.array(dtype=vec3),
        feature: wp.array(dtype=int),
        p_bar: wp.array(dtype=vec3), n_bar: wp.array(dtype=vec3), z_bar: wp.array(dtype=real),
        out: wp.array2d(dtype=vec3),
    ):  # fmt: skip
        i = wp.tid()
        h = hulls
        bar = c.PointBar()
        bar.p = p_bar[i]
        bar.n = n_bar[i]
        bar.z = z_bar[i]
        a = solid(h, 2 * i, kinds[0], xa[i], Ra[i], sa[i])
        b = solid(h, 2 * i + 1, kinds[1], xb[i], Rb[i], sb[i])
        A, B = c.adjoint(h, feature[i], a, b, bar)
        out[i, 0] = A.x
        out[i, 1] = A.phi
        out[i, 2] = c.size_bar(kinds[0], A)
        out[i, 3] = B.x
        out[i, 4] = B.phi
        out[i, 5] = c.size_bar(kinds[1], B)

    return SimpleNamespace(forward=forward, adjoint=adjoint, c=c, t=t, vec3=vec3, mat33=mat33)


KNOWN: dict = {}


def hull_of(shape):
    """The polytope of a shape, which takes some milliseconds to make."""
    if id(shape) not in KNOWN:
        KNOWN[id(shape)] = shape, polytope_of(shape)  # the shape itself, so that its id is not used again
    return KNOWN[id(shape)][1]


class ConvexPairs:
    """A batch of pairs of one kind; shapes: two for each pair; data: xa, Ra, sa, xb, Rb, sb as numpy arrays."""

    def __init__(self, kind, shapes, data, real=wp.float64):
        self.types, self.shapes, self.data, self.real = KINDS[kind], shapes, data, real
        self.kind, self._hulls = kind, None

    def __getitem__(self, index):
        shapes = [self.shapes[i] for i in np.arange(len(self.shapes))[index]]
        return ConvexPairs(self.kind, shapes, [x[index] for x in self.data], self.real)

    def at(self, real):
        return ConvexPairs(self.kind, self.shapes, self.data, real)

    def _arguments(self):
        if self._hulls is None:
            self._hulls = self._tables()
        return self._hulls, wp.vec2i(*map(int, self.types))

    def _tables(self):
        k = kernels(self.real)

        def array(values, dtype):
            return wp.array(np.ascontiguousarray(values), dtype=dtype)

        return hulls_struct(k.t, [hull_of(s) for pair in self.shapes for s in pair], array)

    def _poses(self):
        k = kernels(self.real)
        return [wp.array(x, dtype=k.mat33 if x.ndim == 3 else k.vec3) for x in self.data]

    def collide(self, feature=None, reach=0.0):
        """count (n,), feature (n, 4), p and n (n, 5, 3), z (n, 5): four points, then the search's own."""
        k, size = kernels(self.real), len(self.shapes)
        shape = (size, 5 if feature is None else feature.shape[1])
        features = wp.array(np.full((size, 4), -1) if feature is None else feature, dtype=int)
        memory = [
            wp.zeros((size, k.c.CORNERS), dtype=k.c.Corner), wp.zeros((size, k.c.FACETS), dtype=k.c.Facet),
            wp.zeros((size, 2 * k.c.FACETS), dtype=int), wp.zeros((size, k.c.SPOTS), dtype=k.c.Spot),
        ]  # fmt: skip
        count = wp.zeros(size, dtype=int)
        out = [wp.full(shape, np.nan, dtype=k.vec3), wp.full(shape, np.nan, dtype=k.vec3)]
        out.append(wp.full(shape, np.nan, dtype=self.real))
        hulls, kinds = self._arguments()
        inputs = [hulls, kinds, int(feature is None), self.real(reach), *self._poses(), *memory, features, count, *out]
        wp.launch(k.forward, size, inputs)
        return count.numpy(), features.numpy(), *(x.numpy() for x in out)

    def adjoint(self, feature, p_bar, n_bar, z_bar):
        """(n, 6, 3): xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        k = kernels(self.real)
        out = wp.full((len(feature), 6), np.nan, dtype=k.vec3)
        bars = [wp.array(p_bar, dtype=k.vec3), wp.array(n_bar, dtype=k.vec3), wp.array(z_bar, dtype=self.real)]
        wp.launch(
            k.adjoint, len(feature), [*self._arguments(), *self._poses(), wp.array(feature, dtype=int), *bars, out]
        )
        return out.numpy()

    def moved(self, place, axis, step):
        data = [x.copy() for x in self.data]
        if place in (1, 4):
            data[place] = Rotation.from_rotvec(step * np.eye(3)[axis]).as_matrix() @ data[place]
        else:
            data[place][:, axis] += step
        moved = ConvexPairs(self.kind, self.shapes, data, self.real)
        moved._hulls = self._hulls
        return moved

    def vertices(self, i, which):
        """World vertices of a shape of pair i, without its radius."""
        shape, (x, R, s) = self.shapes[i][which], [column[i] for column in self.data[3 * which : 3 * which + 3]]
        scale = {
            ShapeType.SPHERE: np.zeros(3), ShapeType.CAPSULE: np.array([0, 0, s[1]]), ShapeType.BOX: s,
            ShapeType.CYLINDER: np.array([s[0], s[0], s[1]]), ShapeType.MESH: np.ones(3),
        }[shape.type]  # fmt: skip
        return x + (hull_of(shape).vertices * scale) @ R.T

    def radius(self, i):
        return self.data[2][i, 0] if self.types[0] <= ShapeType.CAPSULE else 0.0


def random_hull(rng):
    """Corners on an ellipsoid, 8 to 64 of them."""
    points = rng.normal(size=(rng.integers(8, 65), 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points * rng.uniform(0.2, 0.6, 3) + 0.1 * rng.normal(size=3)


def box_hull(half):
    return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half


def random_shape(kind, rng):
    """A shape of a type; of meshes, half are boxes, whose faces can lie on each other."""
    vertices = None
    if kind == ShapeType.MESH:
        vertices = box_hull(rng.uniform(0.2, 0.6, 3)) if rng.random() < 0.5 else random_hull(rng)
    return Shape(kind, 0, np.zeros(3), name="random", vertices=vertices)


def random_convex_pairs(kind, count, seed, depth=(-3.0, -1.0), flat=0.0, real=wp.float64):
    """Random pairs that touch, at depths of 10**depth of the size; flat: the share with faces that are nearly parallel.

    Shapes with a radius touch with it or with their axis.
    """
    rng = np.random.default_rng(seed)
    types = KINDS[kind]
    known = [[random_shape(t, rng) for _ in range(40)] for t in types]
    shapes = [tuple(known[side][rng.integers(40)] for side in (0, 1)) for _ in range(count)]
    R = [Rotation.random(count, random_state=rng).as_matrix() for _ in "ab"]
    close = rng.random(count) < flat
    slight = Rotation.from_rotvec(10 ** rng.uniform(-9, -2, (count, 1)) * rng.normal(size=(count, 3))).as_matrix()
    quarter = Rotation.create_group("O").as_matrix()[rng.integers(24, size=count)]
    R[1][close] = (slight @ R[0] @ quarter)[close]
    data = [np.zeros((count, 3)), R[0], rng.uniform(0.2, 0.6, (count, 3))]
    data += [np.zeros((count, 3)), R[1], rng.uniform(0.2, 0.6, (count, 3))]
    pairs = ConvexPairs(kind, shapes, data, real)
    for i in range(count):
        A, B = pairs.vertices(i, 0), pairs.vertices(i, 1)
        hull = ConvexHull((A[:, None] - B[None]).reshape(-1, 3)) if len(A) > 1 else ConvexHull(A - B)
        triangles = hull.points[hull.simplices]
        area = np.linalg.norm(np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]), axis=1)
        f = rng.choice(len(area), p=area / area.sum())
        n = hull.equations[f, :3]
        out = pairs.radius(i) * rng.uniform(-0.2, 1.0)
        if pairs.radius(i) and rng.random() < 0.5:  # beyond an edge or a corner
            n = n + 0.7 * rng.normal(size=3)
            n /= np.linalg.norm(n)
        out -= 0.2 * 10 ** rng.uniform(*depth)
        # put the origin of the difference there: b moves by that point
        data[3][i] = rng.dirichlet([1, 1, 1]) @ triangles[f] + out * n
    return pairs
