"""Contact geometry against MuJoCo, closed forms and separating axes."""

import mujoco
import numpy as np
import pytest
import warp as wp
from collision_pairs import EYE, Pairs, deepest, random_pairs, turn
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from scipy.spatial.transform import Rotation
from warp_articulated.kernels.collision.pairs import kind_of, make_pairs

from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import CONVEX, SLOTS

SPHERE, CAPSULE, BOX = ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX


def mujoco_distance(pairs, types):
    """Signed distance and normal from b to a that MuJoCo gives."""
    names = {SPHERE: "sphere", CAPSULE: "capsule", BOX: "box"}
    bodies = "".join(
        f'<body mocap="true"><geom type="{names[kind]}" size="0.1 0.1 0.1"/></body>'
        if kind == BOX
        else f'<body mocap="true"><geom type="{names[kind]}" size="0.1{" 0.1" * (kind == CAPSULE)}"/></body>'
        for kind in types
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    xa, Ra, sa, xb, Rb, sb = pairs.data
    distances, normals = [], []
    for i in range(len(xa)):
        for body, (x, R, s) in enumerate(((xa[i], Ra[i], sa[i]), (xb[i], Rb[i], sb[i]))):
            data.mocap_pos[body] = x
            data.mocap_quat[body] = np.roll(Rotation.from_matrix(R).as_quat(), 1)
            model.geom_size[body, : (1, 2, 3)[types[body]]] = s[: (1, 2, 3)[types[body]]]
            model.geom_rbound[body] = 10.0
        mujoco.mj_kinematics(model, data)
        fromto = np.zeros(6)
        distance = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, fromto)
        d = fromto[:3] - fromto[3:]
        distances.append(distance)
        normals.append(d / distance if distance else d)
    return np.array(distances), np.array(normals)


@pytest.mark.parametrize("kind", ["sphere_sphere", "sphere_capsule", "sphere_box", "capsule_capsule", "capsule_box"])
def test_distance_and_normal_match_mujoco(kind):
    types = [{"sphere": SPHERE, "capsule": CAPSULE, "box": BOX}[name] for name in kind.split("_")]
    pairs = random_pairs(kind, 400, 3)
    _, n, z = deepest(pairs)
    distance, normal = mujoco_distance(pairs, types)
    touching = distance < 0.0
    if kind == "capsule_box":  # where the axis cuts the box MuJoCo does not look for the shortest way out; see below
        touching &= z > -pairs.data[2][:, 0]
    assert touching.sum() > 100
    assert abs(z - distance)[touching].max() < 1e-9
    assert abs(n - normal)[touching].max() < 1e-9


def half_width(R, s, axes):
    """Half the width of boxes R, s along unit axes (n, k, 3)."""
    return (abs(np.einsum("nki,nij->nkj", axes, R)) * s[:, None]).sum(2)


def crossed(Ra, Rb):
    """(n, 9, 3) unit cross products of the columns of Ra and Rb; zero where they are nearly parallel."""
    c = np.cross(Ra.transpose(0, 2, 1)[:, :, None], Rb.transpose(0, 2, 1)[:, None]).reshape(len(Ra), -1, 3)
    length = np.linalg.norm(c, axis=2, keepdims=True)
    return np.where(length > 4e-3, c / np.maximum(length, 1e-12), 0.0)


def overlap(pairs):
    """Least overlap over all separating axes, and those of the faces of a, the faces of b and the pairs of edges."""
    xa, Ra, sa, xb, Rb, sb = pairs.data
    groups = []
    for axes in (Ra.transpose(0, 2, 1), Rb.transpose(0, 2, 1), crossed(Ra, Rb)):
        width = half_width(Ra, sa, axes) + half_width(Rb, sb, axes)
        depth = width - abs(np.einsum("nki,ni->nk", axes, xa - xb))
        groups.append(np.where((axes == 0.0).all(2), np.inf, depth).min(1))
    return np.min(groups, axis=0), groups


def test_a_capsule_whose_axis_cuts_a_box_leaves_it_the_shortest_way():
    pairs = random_pairs("capsule_box", 4000, 4, spread=0.3)
    _, n, z = deepest(pairs)
    xa, Ra, sa, xb, Rb, sb = pairs.data
    rod = np.stack([np.zeros(len(sa)), np.zeros(len(sa)), sa[:, 1]], 1)  # the axis is a box without width
    depth, (_, face, edge) = overlap(Pairs("capsule_box", xa, Ra, rod, xb, Rb, sb))
    cutting = depth > 1e-6
    face_wins = cutting & (face < edge)
    edge_wins = cutting & (edge < 0.95 * face)
    assert face_wins.sum() > 100 and edge_wins.sum() > 100
    np.testing.assert_allclose(z[face_wins | edge_wins], (-depth - sa[:, 0])[face_wins | edge_wins], atol=1e-9)
    # Moved out along the normal by that much, the capsule just touches.
    out = Pairs("capsule_box", xa - z[:, None] * n, Ra, sa, xb, Rb, sb)[face_wins | edge_wins]
    distance, _ = mujoco_distance(out, (CAPSULE, BOX))
    assert abs(distance).max() < 1e-9


def test_depth_of_boxes_is_their_overlap_along_the_best_axis():
    for spread, aligned in ((0.6, 0.0), (0.3, 0.0), (0.6, 1.0)):
        pairs = random_pairs("box_box", 4000, 5, spread, aligned)
        _, n, z = deepest(pairs)
        depth, (a, b, edge) = overlap(pairs)
        assert (z[depth < 0] > 0).all()
        slack = 1e-3 * np.minimum(pairs.data[2], pairs.data[5]).min(1)
        face = np.where(b < 0.95 * a - slack, b, a)
        unbiased = (depth > 0) & ((face == depth) | (edge < 0.95 * face - slack))
        assert unbiased.sum() > 500
        # Corners that stick out by 1e-4 of the size still count, so a depth may be off by as much of the tilt.
        np.testing.assert_allclose(z[unbiased], -depth[unbiased], atol=1e-4 if aligned else 1e-9)
        biased = (depth > 0) & ~unbiased
        assert (z[biased] < 0).mean() > 0.99 and (z[biased] > -depth[biased] / 0.9 - 2 * slack[biased]).all()
        assert (np.einsum("ni,ni->n", n, pairs.data[0] - pairs.data[3])[depth > 0] > -1e-12).all()


def test_boxes_in_contact_do_not_overlap_once_moved_apart():
    pairs = random_pairs("box_box", 2000, 6, 0.5, 0.3)
    _, n, z = deepest(pairs)
    depth, _ = overlap(pairs)
    xa, *rest = pairs[depth > 0].data
    apart, _ = overlap(Pairs("box_box", xa - 1.001 * (z * (z < 0))[depth > 0, None] * n[depth > 0], *rest))
    assert np.quantile(apart, 0.98) < 1e-9


def points_of(pairs):
    """p, n, z of the touching candidates of a single pair."""
    _, p, n, z = pairs.collide()
    active = z[0] < 0
    return p[0, active], n[0, active], z[0, active]


@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-7, -1e-5])
@pytest.mark.parametrize(
    "sizes", [((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.2, 0.3, 0.1), (1, 2, 0.5)), ((3, 1, 0.5), (1, 3, 0.5))]
)
def test_a_box_resting_on_a_box_has_four_points_of_equal_depth(sizes, tilt):
    sa, sb = np.array(sizes)
    xa = np.array([0.0, 0.0, sa[2] + sb[2] - 1e-3])
    R = Rotation.from_rotvec([tilt, -tilt, tilt]).as_matrix()
    p, n, z = points_of(Pairs("box_box", xa, R, sa, np.zeros(3), EYE, sb))
    assert len(p) == 4
    np.testing.assert_allclose(z, -1e-3, atol=1e-3 * abs(tilt) + 4 * abs(tilt))
    np.testing.assert_allclose(n, [[0, 0, 1]] * 4, atol=3 * abs(tilt))
    np.testing.assert_allclose(p[:, 2], sb[2] - 5e-4, atol=5 * abs(tilt))
    np.testing.assert_allclose(np.sort(abs(p[:, :2]), axis=0), [np.minimum(sa, sb)[:2]] * 4, atol=1e-3 + 5 * abs(tilt))
    np.testing.assert_allclose(p[:, :2].mean(0), 0.0, atol=1e-3)


def test_half_overlapping_boxes_touch_at_the_corners_of_the_overlap():
    p, _, z = points_of(Pairs("box_box", [0.5, 0.0, 0.99], EYE, [0.5] * 3, np.zeros(3), EYE, [0.5] * 3))
    corners = sorted(map(tuple, np.round(p[:, :2], 3) + 0.0))
    assert corners == [(0.0, -0.5), (0.0, 0.5), (0.5, -0.5), (0.5, 0.5)]
    np.testing.assert_allclose(z, -0.01, atol=1e-12)


def test_a_box_turned_by_45_degrees_on_a_box_has_eight_points():
    p, _, z = points_of(Pairs("box_box", [0, 0, 0.99], turn("z", 45), [0.5] * 3, np.zeros(3), EYE, [0.5] * 3))
    assert len(p) == 8
    np.testing.assert_allclose(z, -0.01, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(p[:, :2], axis=1), 0.5 * np.hypot(1, np.tan(np.pi / 8)), rtol=2e-4)
    angles = np.sort(np.degrees(np.arctan2(p[:, 1], p[:, 0])))
    np.testing.assert_allclose(np.diff(angles), 45.0, atol=0.1)


def test_points_of_resting_boxes_span_the_common_polygon():
    rng = np.random.default_rng(10)
    count = 300
    sa, sb = rng.uniform(0.2, 0.8, (2, count, 3))
    yaw, offset = rng.uniform(0, 2 * np.pi, count), rng.uniform(-0.5, 0.5, (count, 2))
    Ra = Rotation.from_rotvec(np.stack([np.zeros(count), np.zeros(count), yaw], 1)).as_matrix()
    noise = Rotation.from_rotvec(1e-6 * rng.normal(size=(count, 3))).as_matrix()
    _, p, _, z = Pairs(
        "box_box", np.c_[offset, sa[:, 2] + sb[:, 2] - 0.001], noise @ Ra, sa, np.zeros(3), EYE, sb
    ).collide()
    most = 0
    for i in range(count):
        turned = Ra[i, :2, :2].T
        sides = [np.c_[k * turned, -k * turned @ offset[i] - sa[i, :2]] for k in (1, -1)]
        sides += [np.c_[k * np.eye(2), -sb[i, :2]] for k in (1, -1)]
        sides = np.concatenate(sides)  # a.x + b <= 0
        inside = linprog([0, 0, -1], np.c_[sides[:, :2], np.ones(8)], -sides[:, 2], bounds=[(None, None)] * 3).x
        if inside[2] < 1e-3:
            continue
        polygon = ConvexHull(HalfspaceIntersection(sides, inside[:2]).intersections)
        touching = z[i] < 0
        np.testing.assert_allclose(z[i, touching], -0.001, atol=1e-5)
        found = ConvexHull(p[i, touching, :2])
        assert abs(found.volume - polygon.volume) < 1e-3 * polygon.volume + 1e-4
        assert touching.sum() <= len(polygon.vertices) + 1
        most = max(most, touching.sum())
    assert most == 8


@pytest.mark.parametrize("yaw", [0.0, 1e-5, 1e-3, 1e-2])
def test_resting_boxes_keep_their_face_contact_in_single_precision(yaw):
    # Rounding (1e-7 of 1 m) over the small sine of two nearly parallel edges must not fake a gap or an edge contact.
    rng = np.random.default_rng(11)
    count = 1000
    sa, sb = rng.uniform(0.05, 0.5, (2, count, 3))
    sb[::2] = sa[::2]
    depth = 10 ** rng.uniform(-5, -3, count)
    xa = np.c_[rng.uniform(-0.5, 0.5, (count, 2)) * np.minimum(sa, sb)[:, :2], sa[:, 2] + sb[:, 2] - depth]
    whole = Rotation.random(count, random_state=rng)
    turned = Rotation.from_rotvec(np.outer(yaw * rng.normal(size=count), [0, 0, 1]))
    pairs = Pairs(
        "box_box", whole.apply(xa), (whole * turned).as_matrix(), sa, np.zeros(3), whole.as_matrix(), sb, wp.float32
    )
    _, _, n, z = pairs.collide()
    assert ((z < 0).sum(1) >= 4).all()
    np.testing.assert_allclose(z.min(1), -depth, atol=1e-6)
    np.testing.assert_allclose(n[:, 0], whole.as_matrix()[:, :, 2], atol=1e-6)


def test_crossed_edges_touch_at_one_point():
    Ra, Rb = turn("y", 45), turn("x", 45)
    p, n, z = points_of(
        Pairs("box_box", [0.1, 0.05, 0.2 * 2**1.5 - 0.01], Ra, [0.2, 1, 0.2], np.zeros(3), Rb, [1, 0.2, 0.2])
    )
    assert len(p) == 1
    np.testing.assert_allclose(n[0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(z[0], -0.01, atol=1e-12)
    np.testing.assert_allclose(p[0], [0.1, 0, 0.2 * 2**0.5 - 0.005], atol=1e-12)


def surface(kind, s, count=20000):
    """Points on the surface of a shape."""
    rng = np.random.default_rng(0)
    if kind == "box":
        return np.array(np.meshgrid(*[(-x, x) for x in s])).reshape(3, -1).T
    angle = rng.uniform(0, 2 * np.pi, count)
    rim = np.stack([s[0] * np.cos(angle), s[0] * np.sin(angle), s[1] * rng.choice([-1, 1], count)], 1)
    if kind == "cylinder":
        return rim
    ball = rng.normal(size=(count, 3))
    return s[0] * ball / np.linalg.norm(ball, axis=1)[:, None] + np.array([0, 0, s[1]]) * rng.choice(
        [-1, 1], (count, 1)
    )


@pytest.mark.parametrize("kind", ["capsule_plane", "box_plane", "cylinder_plane"])
def test_height_over_a_plane_is_that_of_the_lowest_surface_point(kind):
    pairs = random_pairs(kind, 50, 7)
    p, n, z = deepest(pairs)
    for i in range(50):
        xa, Ra, sa, xb, Rb, _ = (x[i] for x in pairs.data)
        height = (xa + surface(kind.split("_")[0], sa) @ Ra.T - xb) @ Rb[:, 2]
        assert z[i] <= height.min() + 2e-6  # the rim point of a cylinder is rounded off by 1e-3 of tilt
        assert z[i] > height.min() - 1e-3  # 20000 samples come that close
        np.testing.assert_allclose(n[i], Rb[:, 2])
        np.testing.assert_allclose((p[i] - xb) @ n[i], z[i], atol=1e-12)


def test_sphere_and_vertex_over_a_plane():
    for kind in ("sphere_plane", "mesh_plane"):
        pairs = random_pairs(kind, 50, 8)
        xa, Ra, sa, xb, Rb, _ = pairs.data
        p, n, z = deepest(pairs)
        up = Rb[:, :, 2]
        lowest = xa - sa[:, :1] * up if kind == "sphere_plane" else xa + np.einsum("nij,nj->ni", Ra, sa)
        np.testing.assert_allclose(p, lowest, atol=1e-14)
        np.testing.assert_allclose(n, up)
        np.testing.assert_allclose(z, ((lowest - xb) * up).sum(1), atol=1e-14)


def test_an_upright_cylinder_stands_on_a_polygon_around_its_centre():
    for R in (EYE, turn("x", 180), turn("z", 77), turn("x", 1e-7)):
        p, _, z = points_of(Pairs("cylinder_plane", [1, 2, 0.29], R, [0.2, 0.3, 0], np.zeros(3), EYE, np.zeros(3)))
        np.testing.assert_allclose(z, -0.01, atol=1e-8)
        arm = p[:, :2] - [1, 2]
        rim = arm[np.linalg.norm(arm, axis=1) > 0.19]
        angles = np.sort(np.arctan2(rim[:, 1], rim[:, 0]))
        assert len(rim) >= 3 and np.diff(np.append(angles, angles[0] + 2 * np.pi)).max() < np.radians(121)


def test_a_cylinder_on_its_side_rolls_smoothly():
    angles = np.linspace(0, 360, 721)
    R = turn("x", 90) @ Rotation.from_euler("z", angles[:, None], degrees=True).as_matrix()
    _, p, _, z = Pairs("cylinder_plane", [0, 0, 0.19], R, [0.2, 0.3, 0], np.zeros(3), EYE, np.zeros(3)).collide()
    assert ((z < 0).sum(1) == 2).all()
    np.testing.assert_allclose(z[:, :2], -0.01, atol=1e-6)
    np.testing.assert_allclose(abs(p[:, :2]), [[[0, 0.3, 0.01]] * 2] * len(angles), atol=1e-6)


@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-6, -1e-4])
def test_capsules_lying_along_each_other_touch_at_two_points(tilt):
    xa = np.array([0.199, 0, 0.3])
    for flip in (0, 180):
        R = turn("x", flip) @ Rotation.from_rotvec([0, tilt, 0]).as_matrix()
        p, n, z = points_of(Pairs("capsule_capsule", xa, R, [0.1, 0.5, 0], np.zeros(3), EYE, [0.1, 0.4, 0]))
        assert len(p) == 2
        np.testing.assert_allclose(z, -1e-3, atol=abs(tilt))
        np.testing.assert_allclose(np.sort(p[:, 2]), [-0.2, 0.4], atol=abs(tilt))
        np.testing.assert_allclose(n, [[1, 0, 0]] * 2, atol=1e-12 + 2 * abs(tilt))


def test_parallel_capsules_end_to_end_touch_at_one_point():
    p, n, _ = points_of(Pairs("capsule_capsule", [0, 0.05, 1.05], EYE, [0.1, 0.5, 0], np.zeros(3), EYE, [0.1, 0.4, 0]))
    assert len(p) == 1
    d = np.array([0, 0.05, 0.15])
    np.testing.assert_allclose(n[0], d / np.linalg.norm(d), atol=1e-12)


@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1e-6, -1e-4])
@pytest.mark.parametrize("x, ends", [(0.0, (-0.3, 0.3)), (0.4, (0.1, 0.5)), (-0.45, (-0.5, -0.15))])
def test_a_capsule_lying_on_a_box_touches_at_both_ends_of_the_overlap(x, ends, tilt):
    R = turn("y", 90) @ Rotation.from_rotvec([0, tilt, 0]).as_matrix()
    pairs = Pairs("capsule_box", [x, 0.1, 0.598], R, [0.1, 0.3, 0], np.zeros(3), EYE, [0.5, 0.5, 0.5])
    p, n, z = points_of(pairs)
    assert len(p) == 2
    np.testing.assert_allclose(z, -2e-3, atol=abs(tilt))
    np.testing.assert_allclose(np.sort(p[:, 0]), ends, atol=1e-9 + 2 * abs(tilt))
    np.testing.assert_allclose(n, [[0, 0, 1]] * 2, atol=1e-12 + 2 * abs(tilt))


def test_every_supported_pair_has_its_geometry_and_the_lower_type_first():
    assert set(make_pairs(wp.float64)) == set(SLOTS) - set(CONVEX)
    assert all(a <= b <= ShapeType.PLANE for a, b in SLOTS)
    assert len({kind_of(*types) for types in SLOTS}) == len(SLOTS)
    assert max(SLOTS.values()) <= 16  # a feature is 16 mode + candidate
