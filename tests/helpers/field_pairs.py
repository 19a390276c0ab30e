"""Shapes over height fields and block fields: kernels that evaluate their contacts and adjoints, and random scenes."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import warp as wp
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.field import make_field
from warp_articulated.kernels.collision.pairs import kind_of, make_choice
from warp_articulated.kernels.collision.pose import make_pose
from warp_articulated.kernels.collision.triangles import CODES, NODE

from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import SLOTS

PLANE = ShapeType.PLANE
SHAPES = {"sphere": 1, "capsule": 2, "box": 8, "cylinder": 5, "mesh": 1}  # balls; a mesh has one corner, as its size
NODES = 200  # candidates for nodes that the kernels look at
EYE = np.eye(3)
OPTIONS = {"enable_backward": False, "max_unroll": 1}
TRIANGLES = ("corner", "edge x", "edge y", "diagonal", "lower", "upper")


def element(code, blocks):
    """Name of the element that a code ends with."""
    kind = code % CODES
    if kind >= NODE:
        return "node"
    if not blocks:
        return TRIANGLES[kind]
    sides = int(kind % 3 > 0) + int(kind // 3 % 3 > 0)
    return ("top" if sides == 0 else "top edge" if sides == 1 else "top corner") if kind >= 9 else (
        "wall" if sides == 1 else "wall edge"
    )  # fmt: skip


@cache
def kernels(real, blocks):
    g = make_pose(real)
    types = tuple(pair for pair in SLOTS if pair[1] == PLANE)
    field = make_field(g, make_choice(real, types), blocks)
    vec3, mat33, Pose, Field = g.vec3, g.mat33, g.Pose, field.Field

    @wp.func
    def pose(x: vec3, R: mat33, size: vec3):
        p = Pose()
        p.x = x
        p.R = R
        p.size = size
        return p

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def search(
        f: Field, radius: real, reach: real, xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33),
        sa: wp.array(dtype=vec3), xb: vec3, Rb: mat33, feature: wp.array2d(dtype=int),
    ):  # fmt: skip
        i = wp.tid()
        a = pose(xa[i], Ra[i], sa[i])
        b = pose(xb, Rb, vec3())
        for k in range(f.balls):
            first, second = field.search(f, k, a, b, reach)
            feature[i, 2 * k] = first
            feature[i, 2 * k + 1] = second
        ni0, nj0, ni, nj = field.nodes(f, a, b, radius)
        for c in range(wp.min(ni * nj, feature.shape[1] - 2 * f.balls)):
            j = nj0 * wp.static(field.surface.corners_per_node) + c % nj
            feature[i, 2 * f.balls + c] = field.node_feature(f, ni0 + c // nj, j, a, b, reach)

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def point(
        f: Field, xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3), xb: vec3, Rb: mat33,
        feature: wp.array(dtype=int), p: wp.array(dtype=vec3), n: wp.array(dtype=vec3), z: wp.array(dtype=real),
    ):  # fmt: skip
        i = wp.tid()
        pi, ni, zi = field.point(f, feature[i], pose(xa[i], Ra[i], sa[i]), pose(xb, Rb, vec3()))
        p[i] = pi
        n[i] = ni
        z[i] = zi

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def adjoint(
        f: Field, xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3), xb: vec3, Rb: mat33,
        feature: wp.array(dtype=int), bars: wp.array2d(dtype=vec3), out: wp.array2d(dtype=vec3),
    ):  # fmt: skip
        i = wp.tid()
        f.env = i  # the gradient of the heights is one for each row; the heights are shared
        bar = g.PointBar()
        bar.p = bars[i, 0]
        bar.n = bars[i, 1]
        bar.z = bars[i, 2][0]
        A, B = field.adjoint(f, feature[i], pose(xa[i], Ra[i], sa[i]), pose(xb, Rb, vec3()), bar)
        out[i, 0] = A.x
        out[i, 1] = A.phi
        out[i, 2] = A.size
        out[i, 3] = B.x

    return SimpleNamespace(search=search, point=point, adjoint=adjoint, Field=Field, vec3=vec3, mat33=mat33)


class FieldScene:
    """Shapes xa, Ra, sa (n, ...) of one kind over one field with a frame xb, Rb."""

    def __init__(self, kind, blocks, heights, spacing, xa, Ra, sa, xb=(0, 0, 0), Rb=EYE, real=wp.float64):
        self.kind, self.blocks, self.heights, self.spacing, self.real = kind, blocks, heights, spacing, real
        self.xa, self.xb, self.Rb = np.atleast_2d(np.asarray(xa, float)), np.asarray(xb, float), Rb
        count = len(self.xa)
        self.Ra, self.sa = np.broadcast_to(Ra, (count, 3, 3)), np.broadcast_to(sa, (count, 3))
        self.k = kernels(real, blocks)

    def replaced(self, **changes):
        keys = ("kind", "blocks", "heights", "spacing", "xa", "Ra", "sa", "xb", "Rb", "real")
        return FieldScene(**({key: getattr(self, key) for key in keys} | changes))

    def __getitem__(self, rows):
        return self.replaced(xa=self.xa[rows], Ra=self.Ra[rows], sa=self.sa[rows])

    def _field(self, bar=None):
        f = self.k.Field()
        heights = np.broadcast_to(self.heights, (1, *self.heights.shape))
        f.heights = wp.array(np.ascontiguousarray(heights), dtype=self.real)
        if bar is not None:  # the same heights for every row: stride 0
            self._owner = f.heights
            strides = (0, *f.heights.strides[1:])
            f.heights = wp.array(ptr=self._owner.ptr, shape=bar.shape, strides=strides, dtype=self.real)
            f.bar, f.wanted = bar, 1
        f.dx, f.dy = self.spacing
        f.kind = kind_of(ShapeType[self.kind.upper()], PLANE)
        f.balls = SHAPES[self.kind]
        return f

    def _shapes(self):
        k = self.k
        arrays = (wp.array(self.xa, dtype=k.vec3), wp.array(self.Ra, dtype=k.mat33), wp.array(self.sa, dtype=k.vec3))
        return [*arrays, k.vec3(self.xb), k.mat33(np.asarray(self.Rb))]

    def features(self, reach=0.0):
        """(n, candidates) int, -1 where there is none; as detection finds them."""
        balls = SHAPES[self.kind]
        out = wp.full((len(self.xa), 2 * balls + NODES), -1, dtype=int)
        radius = {"box": np.linalg.norm(self.sa, axis=1), "capsule": self.sa[:, :2].sum(1)}.get(
            self.kind, self.sa[:, 0]
        )
        wp.launch(self.k.search, len(self.xa), [self._field(), radius.max(), reach, *self._shapes(), out])
        return out.numpy()

    def points(self, feature):
        """p, n (n, 3), z (n,) of one feature a row."""
        count = len(self.xa)
        out = [wp.full(count, np.nan, dtype=dtype) for dtype in (self.k.vec3, self.k.vec3, self.real)]
        wp.launch(self.k.point, count, [self._field(), *self._shapes(), wp.array(feature, dtype=int), *out])
        return [x.numpy() for x in out]

    def contacts(self, reach=0.0):
        """Rows, features, p, n, z of all candidates that exist."""
        feature = self.features(reach)
        rows, columns = np.nonzero(feature >= 0)
        found = feature[rows, columns]
        return rows, found, *self[rows].points(found)

    def adjoint(self, feature, bars):
        """(n, 4, 3): xa_bar, phia, sa_bar, xb_bar; and (n, rows, columns). bars: (n, 3, 3) p, n, and z first."""
        out = wp.full((len(feature), 4), np.nan, dtype=self.k.vec3)
        bar = wp.zeros((len(feature), *self.heights.shape), dtype=self.real)
        arguments = [wp.array(feature, dtype=int), wp.array(bars, dtype=self.k.vec3), out]
        f = self._field(bar)
        wp.launch(self.k.adjoint, len(feature), [f, *self._shapes(), *arguments])
        return out.numpy(), bar.numpy()


def random_scene(kind, blocks, count, seed=0, real=wp.float64):
    """Shapes that touch rough ground with cells about as large as they are."""
    rng = np.random.default_rng(seed)
    heights = rng.uniform(0.0, 0.12, (9, 8))
    spacing = (0.1, 0.12)
    xb, Rb = np.array([0.3, -0.2, 0.1]), Rotation.from_rotvec([0.1, -0.05, 0.4]).as_matrix()
    low = np.array([-0.45, -0.45, 0.0 if kind in ("box", "cylinder", "mesh") else 0.02])
    local = rng.uniform(low, [0.45, 0.45, 0.2], (count, 3))
    size = rng.uniform(0.03, 0.1, (count, 3))
    Ra = Rotation.random(count, random_state=rng).as_matrix()
    return FieldScene(kind, blocks, heights, spacing, xb + local @ Rb.T, Ra, size, xb, Rb, real)


def triangles(heights, spacing):
    """(n, 3, 3) corners in the field's frame."""
    rows, columns = heights.shape
    x = (np.arange(rows) - (rows - 1) / 2) * spacing[0]
    y = (np.arange(columns) - (columns - 1) / 2) * spacing[1]
    node = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], -1)
    a, b, c, d = node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:]
    lower, upper = np.stack([a, b, c], 2), np.stack([a, c, d], 2)
    return np.concatenate([lower.reshape(-1, 3, 3), upper.reshape(-1, 3, 3)])


def distance_to_triangles(points, corners):
    """Distances (n,) of points from the nearest of the triangles, and where it is (n, 3)."""
    a, b, c = (corners[None, :, k] for k in range(3))
    p = points[:, None]
    candidates = []
    for start, end in ((a, b), (b, c), (c, a)):
        along = ((p - start) * (end - start)).sum(-1) / ((end - start) ** 2).sum(-1)
        candidates.append(start + np.clip(along, 0.0, 1.0)[..., None] * (end - start))
    n = np.cross(b - a, c - a)
    foot = p - n * (((p - a) * n).sum(-1) / (n * n).sum(-1))[..., None]
    inside = np.ones(foot.shape[:2], bool)
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= (np.cross(end - start, foot - start) * n).sum(-1) >= 0.0
    candidates.append(np.where(inside[..., None], foot, candidates[0]))
    places = np.concatenate(candidates, 1)
    distance = np.linalg.norm(p - places, axis=-1)
    best = distance.argmin(1)
    row = np.arange(len(points))
    return distance[row, best], places[row, best]


def columns(heights, spacing):
    """Centres and half sizes (n, 3) of the boxes of a block field, 10 m deep."""
    rows, count = heights.shape
    x = (np.arange(rows) - (rows - 1) / 2) * spacing[0]
    y = (np.arange(count) - (count - 1) / 2) * spacing[1]
    X, Y = np.meshgrid(x, y, indexing="ij")
    centres = np.stack([X, Y, heights - 5.0], -1).reshape(-1, 3)
    return centres, np.broadcast_to([spacing[0] / 2, spacing[1] / 2, 5.0], centres.shape)
