"""Contacts with height fields and block fields against exact distances to their surface."""

import coal
import numpy as np
import pytest
from field_pairs import FieldScene, columns, distance_to_triangles, element, random_scene, triangles
from scipy.spatial.transform import Rotation

EYE = np.eye(3)


def first_contacts(scene, reach):
    """Normal and gap of each shape's nearest contact, in the field's frame, and the mask of shapes that have one."""
    rows, _, _, n, z = scene.contacts(reach)
    gap, normal = np.full(len(scene.xa), np.inf), np.zeros((len(scene.xa), 3))
    for i in np.argsort(-z):
        gap[rows[i]], normal[rows[i]] = z[i], n[i] @ scene.Rb
    return normal, gap, np.isfinite(gap)


def test_a_sphere_has_its_distance_to_the_triangles():
    scene = random_scene("sphere", False, 2000, seed=3)
    local = (scene.xa - scene.xb) @ scene.Rb
    distance, place = distance_to_triangles(local, triangles(scene.heights, scene.spacing))
    edge = [(n - 1) / 2 * d for n, d in zip(scene.heights.shape, scene.spacing)]
    within = (abs(local[:, :2]) < edge).all(1)
    normal, gap, found = first_contacts(scene, reach=0.02)
    below = found & (gap + scene.sa[:, 0] < 0.0)
    above = within & ~below
    assert above.sum() > 1000 and below.sum() > 100
    near = above & (distance - scene.sa[:, 0] < 0.02 - 1e-9)
    assert near.sum() > 500 and found[near].all() and not found[above & ~near].any()
    np.testing.assert_allclose(gap[near], (distance - scene.sa[:, 0])[near], atol=1e-12)
    np.testing.assert_allclose(normal[near], ((local - place) / distance[:, None])[near], atol=1e-9)


def test_a_sphere_has_the_distance_that_coal_finds():
    scene = random_scene("sphere", False, 300, seed=4)
    local = (scene.xa - scene.xb) @ scene.Rb
    corners = triangles(scene.heights, scene.spacing)
    mesh = coal.BVHModelOBBRSS()
    mesh.beginModel(len(corners), 3 * len(corners))
    for a, b, c in corners:
        mesh.addTriangle(a, b, c)
    mesh.endModel()
    _, gap, found = first_contacts(scene, reach=0.05)
    seen = 0
    for i in np.flatnonzero(found & (gap > 1e-3)):  # apart: in contact coal returns depths, by other rules
        result = coal.DistanceResult()
        ball = coal.Sphere(float(scene.sa[i, 0]))
        coal.distance(ball, coal.Transform3s(EYE, local[i]), mesh, coal.Transform3s(), coal.DistanceRequest(), result)
        assert abs(result.min_distance - gap[i]) < 1e-6
        seen += 1
    assert seen > 50


def test_a_sphere_has_its_distance_to_the_columns():
    scene = random_scene("sphere", True, 2000, seed=5)
    local = (scene.xa - scene.xb) @ scene.Rb
    centres, half = columns(scene.heights, scene.spacing)
    out = np.maximum(abs(local[:, None] - centres) - half, 0.0)
    distance = np.linalg.norm(out, axis=-1).min(1)
    apart = distance > 0.0
    assert apart.sum() > 1000 and (~apart).sum() > 100
    _, gap, found = first_contacts(scene, reach=0.02)
    near = apart & (distance - scene.sa[:, 0] < 0.02 - 1e-9)
    assert near.sum() > 500 and found[near].all() and not found[apart & ~near].any()
    np.testing.assert_allclose(gap[near], (distance - scene.sa[:, 0])[near], atol=1e-12)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_ball_in_a_corner_of_a_stair_touches_tread_and_riser(blocks):
    heights = np.zeros((6, 6))
    heights[3:] = 0.2
    foot = -0.05 if not blocks else 0.0  # the riser is one cell wide, or a wall
    scene = FieldScene("sphere", blocks, heights, (0.1, 0.1), [[foot - 0.018, 0.013, 0.029]], EYE, [0.03, 0, 0])
    _, _, _, n, z = scene.contacts()
    assert len(z) == 2
    riser = np.array([-1.0, 0, 0]) if blocks else np.array([-0.2, 0, 0.1]) / np.hypot(0.1, 0.2)
    expected = {False: [[0, 0, 1], riser], True: [[0, 0, 1], riser]}[blocks]
    order = np.argsort(-n[:, 2])
    np.testing.assert_allclose(n[order], expected, atol=1e-12)
    np.testing.assert_allclose(z[order[0]], -0.001, atol=1e-12)


def test_a_corner_at_the_foot_of_a_wall_touches_wall_and_ground():
    heights = np.zeros((6, 6))
    heights[3:] = 0.2
    place = [[1e-6, 0.0, -1e-5], [1e-6, 0.0, 0.1], [0.05, 0.0, 0.19], [-1e-3, 0.0, -1e-5], [0.1, 0.0, 0.1999]]
    scene = FieldScene("mesh", True, heights, (0.1, 0.1), place, EYE, [0, 0, 0])
    rows, _, _, n, z = scene.contacts()
    assert list(rows) == [0, 0, 1, 2, 3, 4]
    wall, up = [-1.0, 0, 0], [0, 0, 1.0]
    np.testing.assert_allclose(n, [wall, up, wall, up, up, up], atol=1e-12)
    np.testing.assert_allclose(z, [-1e-6, -1e-5, -1e-6, -0.01, -1e-5, -1e-4], atol=1e-12)


def test_a_ball_that_rolls_over_flat_columns_never_touches_their_sides():
    heights = np.full((8, 8), 0.3)
    x = np.linspace(-0.3, 0.3, 1201)
    place = np.stack([x, 0.7 * x, np.full_like(x, 0.349)], 1)
    for blocks in (False, True):
        rows, _, _, n, z = FieldScene("sphere", blocks, heights, (0.1, 0.1), place, EYE, [0.05, 0, 0]).contacts()
        assert len(set(rows)) == len(rows) == len(place)
        np.testing.assert_allclose(n, np.broadcast_to([0, 0, 1.0], n.shape), atol=1e-9)
        np.testing.assert_allclose(z, -0.001, atol=1e-12)


def test_the_normal_turns_steadily_round_the_nose_of_a_stair():
    heights = np.zeros((6, 6))
    heights[3:] = 0.2
    angle = np.linspace(0.05, np.pi / 2 - 0.05, 200)
    place = np.stack([-0.05 * np.cos(angle), 0 * angle, 0.2 + 0.05 * np.sin(angle)], 1)
    rows, feature, _, n, z = FieldScene("sphere", True, heights, (0.1, 0.1), place, EYE, [0.051, 0, 0]).contacts()
    edges = np.array([element(f, True) == "top edge" for f in feature])
    assert set(rows[edges]) == set(range(200))
    np.testing.assert_allclose(np.arctan2(n[edges, 2], -n[edges, 0]), angle, atol=1e-9)
    np.testing.assert_allclose(z[edges], -0.001, atol=1e-12)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", ["box", "cylinder", "mesh", "capsule"])
def test_shapes_on_a_flat_field_touch_it_as_a_plane(kind, blocks):
    rng = np.random.default_rng(6)
    heights = np.full((21, 21), 0.1)
    size = rng.uniform(0.03, 0.1, (200, 3))
    place = np.c_[rng.uniform(-0.5, 0.5, (200, 2)), rng.uniform(0.1, 0.25, 200)]
    Ra = Rotation.random(200, random_state=rng).as_matrix()
    scene = FieldScene(kind, blocks, heights, (0.1, 0.1), place, Ra, size)
    rows, _, p, n, z = scene.contacts()
    from collision_pairs import Pairs

    _, points, _, gaps = Pairs(f"{kind}_plane", place, Ra, size, [0, 0, 0.1], EYE, np.zeros(3)).collide()
    assert len(rows) == (gaps < 0).sum() > 30
    np.testing.assert_allclose(np.sort(z), np.sort(gaps[gaps < 0]), atol=1e-12)
    np.testing.assert_allclose(n, np.broadcast_to([0, 0, 1.0], n.shape), atol=1e-12)
    order, expected = np.lexsort(np.round(p.T, 9)), points[gaps < 0]
    np.testing.assert_allclose(p[order], expected[np.lexsort(np.round(expected.T, 9))], atol=1e-9)


@pytest.mark.parametrize("blocks", [False, True])
def test_the_nose_of_a_stair_does_not_pass_through_a_sole(blocks):
    heights = np.zeros((8, 8))
    heights[4:] = 0.2
    scene = FieldScene("box", blocks, heights, (0.05, 0.05), [[0.0, 0.004, 0.2199]], EYE, [0.1, 0.06, 0.02])
    _, feature, p, n, z = scene.contacts()
    nodes = np.array([element(f // 8, blocks) == "node" for f in feature])
    assert nodes.sum() >= 2
    np.testing.assert_allclose(n[nodes], np.broadcast_to([0, 0, 1.0], (nodes.sum(), 3)), atol=1e-12)
    np.testing.assert_allclose(z[nodes], -1e-4, atol=1e-12)
    assert abs(p[nodes, 0] - (0.0 if blocks else 0.025)).max() < 1e-9


def test_a_capsule_across_a_ridge_lies_on_its_nodes():
    heights = np.zeros((9, 9))
    heights[4] = 0.1
    along = Rotation.from_euler("y", 90, degrees=True).as_matrix()
    scene = FieldScene("capsule", False, heights, (0.1, 0.1), [[0.03, 0.0, 0.119]], along, [0.02, 0.2, 0])
    _, feature, _, n, z = scene.contacts()
    nodes = [k for k, f in enumerate(feature) if element(f // 2, False) == "node"]
    assert len(nodes) == 1
    np.testing.assert_allclose(n[nodes[0]], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(z[nodes[0]], -0.001, atol=1e-12)


def test_there_is_nothing_beside_a_field():
    heights = np.zeros((5, 5))
    place = [[0.2 + 0.051, 0, 0.0], [0.3, 0, -1.0], [0.2 + 0.03, 0, -0.01], [0.2 + 0.03, 0.0, 0.035], [0.0, 0, -3.0]]
    scene = FieldScene("sphere", False, heights, (0.1, 0.1), place, EYE, [0.05, 0, 0])
    rows, _, _, n, z = scene.contacts()
    assert list(rows) == [3, 4]  # above the border edge; and below the field, where all is ground
    np.testing.assert_allclose(n[0], np.array([0.03, 0, 0.035]) / np.hypot(0.03, 0.035), atol=1e-12)
    np.testing.assert_allclose(z, [np.hypot(0.03, 0.035) - 0.05, -3.05], atol=1e-12)
