"""Random pairs of shapes, and kernels that evaluate contact geometry and its adjoints on them."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import warp as wp
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.frames import make_frames
from warp_articulated.kernels.collision.pairs import make_collision

SPHERE, CAPSULE, BOX, CYLINDER, MESH, PLANE = range(6)
CANDIDATES = {
    "sphere_plane": 1, "capsule_plane": 2, "box_plane": 8, "cylinder_plane": 5, "mesh_plane": 1,
    "sphere_sphere": 1, "sphere_capsule": 1, "sphere_box": 1, "capsule_capsule": 2, "capsule_box": 2, "box_box": 8,
}  # fmt: skip
KINDS = list(CANDIDATES)
OPTIONS = {"enable_backward": False, "max_unroll": 1}


@cache
def kernels(real):
    """Kernels that evaluate all candidates of one kind of pair; a mesh has one vertex, in place of its size."""
    vec3, mat33 = wp.types.vector(3, real), wp.types.matrix((3, 3), real)
    t = SimpleNamespace(real=real, vec3=vec3, mat33=mat33)
    g, frames = make_collision(t), make_frames(t)

    @wp.func
    def search(kind: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        mode = 0
        if kind == 8:
            mode = g.capsule_capsule_mode(xa, Ra, sa, xb, Rb, sb)
        elif kind == 9:
            mode = g.capsule_box_mode(xa, Ra, sa, xb, Rb, sb)
        elif kind == 10:
            mode = g.box_box_mode(xa, Ra, sa, xb, Rb, sb)
        return mode

    @wp.func
    def point(kind: int, feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3):
        p = vec3()
        n = vec3()
        z = real(0.0)
        nb = Rb[:, 2]
        if kind == 0:
            p, n, z = g.sphere_plane_point(xa, sa[0], xb, nb)
        elif kind == 1:
            p, n, z = g.capsule_plane_point(feature, xa, Ra, sa, xb, nb)
        elif kind == 2:
            p, n, z = g.box_plane_point(feature, xa, Ra, sa, xb, nb)
        elif kind == 3:
            p, n, z = g.cylinder_plane_point(feature, xa, Ra, sa, xb, nb)
        elif kind == 4:
            p, n, z = g.mesh_plane_point(xa, Ra, sa, xb, nb)
        elif kind == 5:
            p, n, z = g.sphere_sphere_point(xa, sa[0], xb, sb[0])
        elif kind == 6:
            p, n, z = g.sphere_capsule_point(xa, sa[0], xb, Rb, sb)
        elif kind == 7:
            p, n, z = g.sphere_box_point(xa, sa[0], xb, Rb, sb)
        elif kind == 8:
            p, n, z = g.capsule_capsule_point(feature, xa, Ra, sa, xb, Rb, sb)
        elif kind == 9:
            p, n, z = g.capsule_box_point(feature, xa, Ra, sa, xb, Rb, sb)
        else:
            p, n, z = g.box_box_point(feature, xa, Ra, sa, xb, Rb, sb)
        return p, n, z

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def forward(
        kind: int, searching: int,
        xa: wp.array(dtype=vec3), Ra: wp.array(dtype=mat33), sa: wp.array(dtype=vec3),
        xb: wp.array(dtype=vec3), Rb: wp.array(dtype=mat33), sb: wp.array(dtype=vec3),
        feature: wp.array2d(dtype=int),
        p: wp.array2d(dtype=vec3), n: wp.array2d(dtype=vec3), z: wp.array2d(dtype=real),
    ):  # fmt: skip
        i = wp.tid()
        if searching != 0:
            mode = search(kind, xa[i], Ra[i], sa[i], xb[i], Rb[i], sb[i])
            for k in range(feature.shape[1]):
                feature[i, k] = 16 * mode + k
        for k in range(feature.shape[1]):
            pk, nk, zk = point(kind, feature[i, k], xa[i], Ra[i], sa[i], xb[i], Rb[i], sb[i])
            p[i, k] = pk
            n[i, k] = nk
            z[i, k] = zk

    @wp.func
    def point_adjoint(
        kind: int, feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, Rb: mat33, sb: vec3,
        p: vec3, n: vec3, z: real,
    ):  # fmt: skip
        o = real(0.0)
        nb = Rb[:, 2]
        fa = vec3()
        ta = vec3()
        ga = vec3()
        fb = vec3()
        tb = vec3()
        gb = vec3()
        ra = real(0.0)
        rb = real(0.0)
        if kind == 0:
            fa, ra, fb, tb = g.sphere_plane_point_adjoint(xa, sa[0], xb, nb, p, n, z)
            ga = vec3(ra, o, o)
        elif kind == 1:
            fa, ta, ga, fb, tb = g.capsule_plane_point_adjoint(feature, xa, Ra, sa, xb, nb, p, n, z)
        elif kind == 2:
            fa, ta, ga, fb, tb = g.box_plane_point_adjoint(feature, xa, Ra, sa, xb, nb, p, n, z)
        elif kind == 3:
            fa, ta, ga, fb, tb = g.cylinder_plane_point_adjoint(feature, xa, Ra, sa, xb, nb, p, n, z)
        elif kind == 4:
            fa, ta, ga, fb, tb = g.mesh_plane_point_adjoint(xa, Ra, sa, xb, nb, p, n, z)
        elif kind == 5:
            fa, ra, fb, rb = g.sphere_sphere_point_adjoint(xa, sa[0], xb, sb[0], p, n, z)
            ga = vec3(ra, o, o)
            gb = vec3(rb, o, o)
        elif kind == 6:
            fa, ra, fb, tb, gb = g.sphere_capsule_point_adjoint(xa, sa[0], xb, Rb, sb, p, n, z)
            ga = vec3(ra, o, o)
        elif kind == 7:
            fa, ra, fb, tb, gb = g.sphere_box_point_adjoint(xa, sa[0], xb, Rb, sb, p, n, z)
            ga = vec3(ra, o, o)
        elif kind == 8:
            fa, ta, ga, fb, tb, gb = g.capsule_capsule_point_adjoint(feature, xa, Ra, sa, xb, Rb, sb, p, n, z)
        elif kind == 9:
            fa, ta, ga, fb, tb, gb = g.capsule_box_point_adjoint(feature, xa, Ra, sa, xb, Rb, sb, p, n, z)
        else:
            fa, ta, ga, fb, tb, gb = g.box_box_point_adjoint(feature, xa, Ra, sa, xb, Rb, sb, p, n, z)
        return fa, ta, ga, fb, tb, gb

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
        fa, ta, ga, fb, tb, gb = point_adjoint(
            kind, feature[i], xa[i], Ra[i], sa[i], xb[i], Rb[i], sb[i], p_bar[i], n_bar[i], z_bar[i]
        )
        out[i, 0] = fa
        out[i, 1] = ta
        out[i, 2] = ga
        out[i, 3] = fb
        out[i, 4] = tb
        out[i, 5] = gb

    @wp.kernel(module="unique", enable_backward=False, module_options=OPTIONS)
    def tangent_frame(n: wp.array(dtype=vec3), bars: wp.array2d(dtype=vec3), out: wp.array2d(dtype=vec3)):
        i = wp.tid()
        first, second = frames.tangents(n[i])
        out[i, 0] = first
        out[i, 1] = second
        out[i, 2] = frames.tangents_adjoint(n[i], bars[i, 0], bars[i, 1])

    return SimpleNamespace(**locals())


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
        arguments = [KINDS.index(self.kind), int(feature is None), *self.arrays(), features, *out]
        wp.launch(k.forward, shape[0], arguments)
        return features.numpy(), *(x.numpy() for x in out)

    def adjoint(self, feature, p_bar, n_bar, z_bar):
        """(n, 6, 3): xa_bar, phia, sa_bar, xb_bar, phib, sb_bar."""
        k = kernels(self.real)
        out = wp.full((len(feature), 6), np.nan, dtype=k.vec3)
        bars = [wp.array(p_bar, dtype=k.vec3), wp.array(n_bar, dtype=k.vec3), wp.array(z_bar, dtype=self.real)]
        arguments = [KINDS.index(self.kind), *self.arrays(), wp.array(feature, dtype=int), *bars, out]
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
