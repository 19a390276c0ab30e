"""Adjoints of contacts with height fields and block fields against central differences, by kind of element."""

import numpy as np
import pytest
import warp as wp
from field_pairs import SHAPES, element, random_scene
from scipy.spatial.transform import Rotation

ROUND = {
    False: {"corner", "edge x", "edge y", "diagonal", "lower", "upper"},
    True: {"top", "wall", "top edge", "top corner", "wall edge"},
}
FLAT = {False: {"lower", "upper"}, True: {"top", "wall"}}
EXPECTED = {"sphere": ROUND, "capsule": ROUND, "box": FLAT, "cylinder": FLAT, "mesh": FLAT}
WITH_NODES = ("capsule", "box")
STEP = 3e-7


def loss(scene, feature, bars):
    p, n, z = scene.points(feature)
    return (p * bars[:, 0]).sum(1) + (n * bars[:, 1]).sum(1) + z * bars[:, 2, 0]


def differences(scene, feature, bars):
    """(n, 4, 3) by the place of the shape, its orientation, its size and the place of the field."""
    out = np.zeros((len(feature), 4, 3))
    for place in range(4):
        for axis in range(3):
            sides = []
            for step in (STEP, -STEP):
                move = step * np.eye(3)[axis]
                change = (
                    {"xa": scene.xa + move},
                    {"Ra": Rotation.from_rotvec(move).as_matrix() @ scene.Ra},
                    {"sa": scene.sa + move},
                    {"xb": scene.xb + move},
                )[place]
                sides.append(loss(scene.replaced(**change), feature, bars))
            out[:, place, axis] = (sides[0] - sides[1]) / (2 * STEP)
    return out


def height_differences(scene, feature, bars):
    out = np.zeros((len(feature), *scene.heights.shape))
    for i, j in np.ndindex(scene.heights.shape):
        sides = []
        for step in (STEP, -STEP):
            heights = scene.heights.copy()
            heights[i, j] += step
            sides.append(loss(scene.replaced(heights=heights), feature, bars))
        out[:, i, j] = (sides[0] - sides[1]) / (2 * STEP)
    return out


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_adjoint_matches_central_differences_for_every_element(kind, blocks):
    scene = random_scene(kind, blocks, 3000, seed=1)
    rows, feature, _, _, _ = scene.contacts()
    names = np.array([element(f // SHAPES[kind], blocks) for f in feature])
    expected = EXPECTED[kind][blocks] | ({"node"} if kind in WITH_NODES else set())
    assert set(names) == expected
    rng = np.random.default_rng(2)
    for name in sorted(expected):
        some = rng.permutation(np.flatnonzero(names == name))[:60]
        assert len(some) >= 5
        one, chosen = scene[rows[some]], feature[some]
        bars = rng.normal(size=(len(some), 3, 3))
        gradient, by_heights = one.adjoint(chosen, bars)
        wanted, wanted_heights = differences(one, chosen, bars), height_differences(one, chosen, bars)
        size = np.maximum(abs(wanted).max((1, 2)), 1.0)
        size = np.maximum(size, abs(wanted_heights).max((1, 2)))
        smooth = size < 100.0  # nearer to an edge than 1 cm a difference is rough
        assert smooth.mean() > 0.5
        assert (abs(gradient - wanted).max((1, 2)) / size)[smooth].max() < 1e-6, name
        assert (abs(by_heights - wanted_heights).max((1, 2)) / size)[smooth].max() < 1e-6, name


@pytest.mark.parametrize("real", [wp.float64, wp.float32])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_degenerate_places_give_finite_contacts_and_gradients(kind, blocks, real):
    scene = random_scene(kind, blocks, 1, real=real)
    flat = np.zeros_like(scene.heights)
    flat[4:] = 0.1
    grid = [0.0, 0.05, 0.06, 0.1, 0.4, 0.42, 1e-9, -0.05, -0.4]
    place = np.array(np.meshgrid(grid, grid, [0.0, 0.05, 0.1, 0.1 + 1e-9])).reshape(3, -1).T
    scene = scene.replaced(heights=flat, xa=place, Ra=np.eye(3), sa=[0.05, 0.05, 0.05], xb=np.zeros(3), Rb=np.eye(3))
    rows, feature, p, n, z = scene.contacts()
    assert len(rows) > 50 and np.isfinite(p).all() and np.isfinite(z).all()
    length = np.linalg.norm(n, axis=1)
    assert (abs(length - 1.0) < 1e-5)[z > -0.05 + 1e-6].all()
    bars = np.random.default_rng(0).normal(size=(len(rows), 3, 3))
    gradient, heights = scene[rows].adjoint(feature, bars)
    assert np.isfinite(gradient).all() and np.isfinite(heights).all()
