"""Adjoints of the contact geometry against central differences, and degenerate inputs."""

from itertools import product

import numpy as np
import pytest
import warp as wp
from collision_pairs import EYE, KINDS, Pairs, kernels, random_pairs, turn
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.boxbox import EDGES, FACES


def branch(kind, feature):
    """Name of the branch that a feature takes."""
    mode, k = feature // 16, feature % 16
    if kind == "cylinder_plane":
        return "rim" if k < 2 else "support"
    if kind == "capsule_capsule":
        code = (mode // 16**k) % 16
        return ("free " if code < 3 else "end ") + ("free" if code % 3 == 0 else "end")
    if kind == "capsule_box":
        code = (mode // 256**k) % 256
        rule, region = code // 27, code % 27
        sides = sum(digit > 0 for digit in (region % 3, region // 3 % 3, region // 9))
        return ("end" if rule < 2 else "side" if rule < 8 else "free") + f" {sides}"
    if kind == "box_box":
        if mode >= EDGES:
            return "edges"
        digit = mode // FACES // 6**k % 6
        name = "absent" if digit == 0 else "corner" if digit == 1 else "crossing"
        return "ab"[mode % 72 // 36] + (" incident " if k < 4 else " reference ") + name
    return kind


BRANCHES = {  # all must be seen by the adjoint test
    "cylinder_plane": {"rim", "support"},
    "capsule_capsule": {"free free", "free end", "end free", "end end"},
    "capsule_box": {"end 1", "end 2", "end 3", "side 1", "free 2", "free 3"},
    "box_box": {"edges"}
    | {f"{x} {y} {z}" for x in "ab" for y in ("incident", "reference") for z in ("corner", "crossing")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_adjoint_matches_central_differences(kind):
    batches = [random_pairs(kind, 400, 1, aligned=0.3), random_pairs(kind, 400, 2, spread=0.3, aligned=0.7)]
    if kind == "cylinder_plane":  # nearly upright
        batches[1].data[1] = batches[1].data[4] @ Rotation.from_rotvec([[0.05, -0.03, 0.4]]).as_matrix()
    seen = set()
    for pairs in batches:
        feature, _, _, z = pairs.collide()
        i, k = np.nonzero(z < (0.0 if kind == "box_box" else 0.5))
        rng = np.random.default_rng(0)
        i, k = rng.permutation(np.stack([i, k], 1))[:600].T
        pairs, feature = pairs[i], feature[i, k]
        p_bar, n_bar = rng.normal(size=(2, len(i), 3))
        z_bar = rng.normal(size=len(i))
        gradient = pairs.adjoint(feature, p_bar, n_bar, z_bar)
        expected = np.zeros_like(gradient)
        for place in range(6):
            for axis in range(3):
                value = []
                for step in (1e-6, -1e-6):
                    _, p, n, z = pairs.moved(place, axis, step).collide(feature[:, None])
                    value.append((p[:, 0] * p_bar).sum(1) + (n[:, 0] * n_bar).sum(1) + z[:, 0] * z_bar)
                expected[:, place, axis] = (value[0] - value[1]) / 2e-6
        size = np.maximum(abs(expected).max((1, 2)), 1.0)
        error = abs(gradient - expected).max((1, 2)) / size
        # A difference over 1e-6 is rough where the gradient itself turns over a short distance (nearly parallel axes).
        smooth = size < 100.0
        assert smooth.mean() > 0.9
        assert error[smooth].max() < 1e-6, (feature[error.argmax()], error.max())
        seen |= {branch(kind, f) for f in feature}
    assert BRANCHES.get(kind, set()) <= seen


def degenerate(kind, real):
    """Coincident centres, parallel and crossing axes, zero sizes, touching faces: everything that could divide by 0."""
    places = [[0] * 3, [0.2, 0, 0], [0, 0, 0.2], [0, 0, 0.4], [0.2, 0.2, 0], [0.2] * 3, [0, 0, 1e-12], [1e-7] * 3]
    turns = [EYE, turn("x", 90), turn("y", 45), turn("z", 45), turn("x", 180), turn("x", 1e-7), turn("x", 90 + 1e-7)]
    sizes = [[0.2] * 3, [0.1, 0.2, 0.3], [0] * 3, [0.1, 0, 0.1], [0, 0.1, 0], [1e-8] * 3]
    xa, Ra, sa, Rb, sb = zip(*product(places, turns, sizes, turns[:3], sizes))
    return Pairs(kind, np.array(xa), np.array(Ra), np.array(sa), np.zeros(3), np.array(Rb), np.array(sb), real=real)


@pytest.mark.parametrize("real", [wp.float64, wp.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_inputs_give_finite_contacts_and_gradients(kind, real):
    pairs = degenerate(kind, real)
    feature, p, n, z = pairs.collide()
    assert np.isfinite(p).all() and np.isfinite(n).all() and np.isfinite(z).all()
    i, k = np.nonzero(z < 0)
    np.testing.assert_allclose(np.linalg.norm(n[i, k], axis=1), 1.0, atol=1e-5)
    bars = np.random.default_rng(0).normal(size=(3, len(i), 3))
    gradient = pairs[i].adjoint(feature[i, k], bars[0], bars[1], bars[2, :, 0])
    assert np.isfinite(gradient).all()


def test_tangents_are_a_right_handed_frame_and_their_adjoint_matches_differences():
    rng = np.random.default_rng(9)
    n = np.concatenate([rng.normal(size=(100, 3)), EYE, -EYE])
    n /= np.linalg.norm(n, axis=1)[:, None]
    n = n[abs(n[:, 2] + 0.5) > 1e-4]  # the seam
    bars = rng.normal(size=(len(n), 2, 3))
    k = kernels(wp.float64)

    def run(n):
        out = wp.full((len(n), 3), np.nan, dtype=k.vec3)
        wp.launch(k.tangent_frame, len(n), [wp.array(n, dtype=k.vec3), wp.array(bars, dtype=k.vec3), out])
        return out.numpy()

    out = run(n)
    frame = np.stack([n, out[:, 0], out[:, 1]], 1)
    np.testing.assert_allclose(frame @ frame.transpose(0, 2, 1), [EYE] * len(n), atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(frame), 1.0)
    for axis in EYE:
        value = [(run(Rotation.from_rotvec(s * axis).apply(n))[:, :2] * bars).sum((1, 2)) for s in (1e-6, -1e-6)]
        slope = (np.cross(axis, n) * out[:, 2]).sum(1)
        np.testing.assert_allclose(slope, (value[0] - value[1]) / 2e-6, atol=1e-8)
