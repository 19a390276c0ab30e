"""Adjoints of the general convex pairs against central differences, for every kind of feature."""

import numpy as np
import pytest
import warp as wp
from convex_pairs import KINDS, random_convex_pairs

from warp_articulated.model import ShapeType

FACE = ("vertex", "crossing", "corner")


def branch(feature):
    """The kind of a feature, and the shape that owns its normal, or what it lies between."""
    if feature & 3 < 3:
        return f"{'b' if feature & 4 else 'a'} {FACE[feature & 3]}"
    a0, a1, b0, b1 = (feature >> shift & 63 for shift in (3, 9, 15, 21))
    return f"nearest {'line' if a0 != a1 else 'vertex'} {'line' if b0 != b1 else 'vertex'}"


def branches(kind):
    """Those that pairs of a kind must show."""
    a = KINDS[kind][0]
    if a == ShapeType.SPHERE:
        return {"b vertex", "nearest vertex line", "nearest vertex vertex"}
    if a == ShapeType.CAPSULE:
        near = {"nearest vertex line", "nearest vertex vertex", "nearest line line", "nearest line vertex"}
        return {"b vertex", "b crossing"} | near
    return {f"{x} {kind}" for x in "ab" for kind in FACE} | {"nearest line line"}


@pytest.mark.parametrize("kind", KINDS)
def test_adjoint_matches_central_differences(kind):
    seen = set()
    for seed, flat in ((1, 0.2), (2, 0.9)):
        pairs = random_convex_pairs(kind, 150, seed, flat=flat)
        count, feature, *_ = pairs.collide()
        i, k = np.nonzero(np.arange(4) < count[:, None])
        pairs, feature = pairs[i], feature[i, k]
        rng = np.random.default_rng(0)
        p_bar, n_bar = rng.normal(size=(2, len(i), 3))
        z_bar = rng.normal(size=len(i))
        gradient = pairs.adjoint(feature, p_bar, n_bar, z_bar)
        expected = np.zeros_like(gradient)
        for place in range(6):
            for axis in range(3):
                value = []
                for step in (1e-6, -1e-6):
                    *_, p, n, z = pairs.moved(place, axis, step).collide(feature[:, None])
                    value.append((p[:, 0] * p_bar).sum(1) + (n[:, 0] * n_bar).sum(1) + z[:, 0] * z_bar)
                expected[:, place, axis] = (value[0] - value[1]) / 2e-6
        size = np.maximum(abs(expected).max((1, 2)), 1.0)
        error = abs(gradient - expected).max((1, 2)) / size
        # A difference over 1e-6 is rough where the gradient itself turns over a short distance (nearly parallel edges).
        smooth = size < 100.0
        assert smooth.mean() > 0.9
        assert error[smooth].max() < 1e-6, (branch(feature[smooth][error[smooth].argmax()]), error[smooth].max())
        seen |= {branch(f) for f in feature[smooth]}
    assert branches(kind) <= seen, branches(kind) - seen


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_in_single_precision(kind):
    pairs = random_convex_pairs(kind, 200, 3, flat=0.5, real=wp.float32)
    count, feature, *_ = pairs.collide()
    i, k = np.nonzero(np.arange(4) < count[:, None])
    bars = np.random.default_rng(0).normal(size=(3, len(i), 3))
    assert np.isfinite(pairs[i].adjoint(feature[i, k], bars[0], bars[1], bars[2, :, 0])).all()
