"""Random pairs of shapes, and kernels that evaluate contact geometry and its adjoints on them."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import warp as wp
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.frames import make_frames
from warp_articulated.kernels.collision.pairs import kind_of, make_choice, make_pairs
from warp_articulated.kernels.collision.pose import make_pose
from warp_articulated.kernels.types import make_arguments

from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import CONVEX, SLOTS

TYPES = {f"{a.name}_{b.name}".lower(): (a, b) for a, b in SLOTS if (a, b) not in CONVEX}
CANDIDATES = {name: 1 if types[0] == ShapeType.MESH else SLOTS[types] for name, types in TYPES.items()}
KINDS = list(TYPES)
OPTIONS = {"enable_backward": False, "max_unroll": 1}


@cache
def kernels(real):
    """Kernels that evaluate all candidates of one kind of pair; a mesh has one corner, in place of its size."""
    t, g, choice = make_arguments(real), make_pose(real), make_choice(real, make_pairs(real))
    frames = make_frames(t)
    vec3, mat33, Pose, PointBar = t.vec3, t.mat33, g.Pose, g.PointBar

    @wp.func
    def pose(x: vec3, R: mat33, size: vec3):
        p = Pose()
        p.x = x
        p.R = R
        p.size = size
        return p

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def forward(
        kind: int, searching: int,
        xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3),
        xb: wp.array(dtype=vec3), Rb: wp.array(dtype=mat33), sb: wp.array(dtype=vec3),
        feature: wp.array2d(dtype=int),
        p: wp.array2d(dtype=vec3), n: wp.array2d(dtype=vec3), z: wp.array2d(dtype=real),
    ):  # fmt: skip
        i = wp.tid()
        a = pose(xa[i], Ra[i], sa[i])
        b = pose(xb[i], Rb[i], sb[i])
        if searching != 0:
            mode = choice.mode(kind, a, b)
            for k in range(feature.shape[1]):
                feature[i, k] = 16 * mode + k
        for k in range(feature.shape[1]):
            pk, nk, zk = choice.point(kind, feature[i, k], a, b)
            p[i, k] = pk
            n[i, k] = nk
            z[i, k] = zk

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def adjoint(
        kind: int,
        xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3),
        xb: wp.array(dtype=vec3), Rb: wp.array(dtype=mat33), sb: wp.array(dtype=vec3),
        feature: wp.array(dtype=int),
        p_bar: wp.array(dtype=vec3), n_bar: wp.array(dtype=vec3), z_bar: wp.array(dtype=real),
        out: wp.array2d(dtype=vec3),
    ):  # fmt: skip
        i = wp.tid()
        bar = PointBar()
        bar.p = p_bar[i]
        bar.n = n_bar[i]
        bar.z = z_bar[i]
        A, B = choice.adjoint(kind, feature[i], pose(xa[i], Ra[i], sa[i]), pose(xb[i], Rb[i], sb[i]), bar)
        out[i, 0] = A.x
        out[i, 1] = A.phi
        out[i, 2] = A.size
        out[i, 3] = B.x
        out[i, 4] = B.phi
        out[i, 5] = B.size

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def tangent_frame(n: wp.array(dtype=vec3), bars: wp.array2d(dtype=vec3), out: wp.array2d(dtype=vec3)):
        i = wp.tid()
        first, second = frames.tangents(n[i])
        out[i, 0] = first
        out[i, 1] = second
        out[i, 2] = frames.tangents_adjoint(n[i], bars[i, 0], bars[i, 1])

    return SimpleNamespace(
        forward=forward, adjoint=adjoint, tangent_frame=tangent_frame, vec3=vec3, mat33=mat33, real=real
    )


class Pairs:
    """A batch of pairs of one kind: xa, Ra, sa, xb, Rb, sb as numpy arrays."""

    def __init__(self, kind, xa, Ra, sa, xb, Rb, sb, real=wp.float64):
        self.kind, self.real = kind, real
        count = max(len(np.atleast_2d(x)) for x in (xa, sa, xb, sb))
        count = max(count, *(len(R) if np.ndim(R) == 3 else 1 for R in (Ra, Rb)))
        self.data = [np.broadcast_to(x, (count, 3)) for x in (xa, sa, xb, sb)]
        self.data.insert(1, np.broadcast_to(Ra, (count, 3, 3)))
        self.data.insert(4, np.broadcast_to(Rb, (count, 3, 3)))

    def __getitem__(self, index):
        return Pairs(self.kind, *(x[index] for x in self.data), real=self.real)

    def arrays(self):
        k = kernels(self.real)
        return [wp.array(x, dtype=k.mat33 if x.ndim == 3 else k.vec3) for x in self.data]

    def collide(self, feature=None):
        """feature (n, c) int, p and n (n, c, 3), z (n, c) of all candidates, or of the given features."""
        k = kernels(self.real)
        shape = (len(self.data[0]), CANDIDATES[self.kind]) if feature is None else feature.shape
        features = wp.array(np.zeros(shape) if feature is None else feature, dtype=int)
        out = [wp.full(shape, np.nan, dtype=k.vec3), wp.full(shape, np.nan, dtype=k.vec3)]
        out.append(wp.full(shape, np.nan, dtype=self.real))
        arguments = [kind_of(*TYPES[self.kind]), int(feature is None), *self.arrays(), features, *out]
        wp.launch(k.forward, shape[0], arguments)
        return features.numpy(), *(x.numpy() for x in out)

    def adjoint(self, feature, p_bar, n_bar, z_bar):
        """(n, 6, 3): xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        k = kernels(self.real)
        out = wp.full((len(feature), 6), np.nan, dtype=k.vec3)
        bars = [wp.array(p_bar, dtype=k.vec3), wp.array(n_bar, dtype=k.vec3), wp.array(z_bar, dtype=self.real)]
        arguments = [kind_of(*TYPES[self.kind]), *self.arrays(), wp.array(feature, dtype=int), *bars, out]
        wp.launch(k.adjoint, len(feature), arguments)
        return out.numpy()

    def moved(self, place, axis, step):
        data = [x.copy() for x in self.data]
        if place in (1, 4):
            data[place] = Rotation.from_rotvec(step * np.eye(3)[axis]).as_matrix() @ data[place]
        else:
            data[place][:, axis] += step
        return Pairs(self.kind, *data)


def random_pairs(kind, count, seed, spread=0.6, aligned=0.0):
    """Random poses; `aligned` is the part of b that is turned only slightly against a."""
    rng = np.random.default_rng(seed)
    Ra, Rb = (Rotation.random(count, random_state=rng).as_matrix() for _ in "ab")
    close = rng.random(count) < aligned
    quarter = Rotation.create_group("O").as_matrix()[rng.integers(24, size=count)]
    slight = Rotation.from_rotvec(0.004 * rng.normal(size=(count, 3))).as_matrix()
    Rb[close] = (slight @ Ra @ quarter)[close]
    xb = rng.normal(size=(count, 3))
    xa = xb + spread * rng.normal(size=(count, 3))
    return Pairs(kind, xa, Ra, rng.uniform(0.2, 0.6, (count, 3)), xb, Rb, rng.uniform(0.2, 0.6, (count, 3)))


def deepest(pairs):
    """p, n, z of the deepest candidate of every pair."""
    _, p, n, z = pairs.collide()
    best = np.arange(len(z)), z.argmin(1)
    return p[best], n[best], z[best]


EYE = np.eye(3)


def turn(axis, degrees):
    return Rotation.from_euler(axis, degrees, degrees=True).as_matrix()
