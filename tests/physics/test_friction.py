"""Dry friction against closed forms of semi-implicit Euler: sliding, stopping, inclines, the shape of the cone.

The block's com is in its base and it starts at its resting depth, so its four corners always carry the same load and
only friction acts: the closed forms then hold to rounding, up to the solver's 50 sweeps (1e-10).
"""

import numpy as np
import pytest
import torch
from contact_room import FREE, SHAPES, UP, G, Room, rest_depth, rotate, turn

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

H = 1e-3
MASS = FREE["block"][0]
MU = 0.3
DIRECTIONS = np.arange(16) * np.pi / 8 + 0.1  # no direction is along a tangent axis or a side of the block
HEADINGS = np.stack([np.cos(DIRECTIONS), np.sin(DIRECTIONS), 0 * DIRECTIONS], axis=1)


def sliding_room(velocity, **options):
    room = Room(len(velocity), **options)
    room.place("block", pos=[0, 0, 0.05 - rest_depth(MASS * G / 4)], velocity=velocity)
    return room


def test_sliding_block_decelerates_by_mu_g_in_every_direction():
    steps = 200
    room = sliding_room(HEADINGS).run(steps, friction=MU)
    path = room.at("block")[-1, :, :3] - room.at("block")[0, :, :3]
    expected = steps * H - MU * G * H * H * steps * (steps + 1) / 2
    np.testing.assert_allclose(path, HEADINGS * expected, rtol=0, atol=1e-9)
    # no rotation: friction has no lever arm about the com
    np.testing.assert_allclose(room.at("block")[-1, :, 3:], [UP] * 16, rtol=0, atol=1e-8)


def test_sliding_distance_does_not_depend_on_mass():
    room = sliding_room(HEADINGS[:4])
    factor = np.array([0.1, 1.0, 10.0, 100.0])
    mass, inertia = np.tile(room.model.mass, (4, 1)), np.tile(room.model.inertia, (4, 1, 1, 1))
    mass[:, 0] *= factor
    inertia[:, 0] *= factor[:, None, None]
    room.q[:, 2] = torch.tensor(0.05 - rest_depth(mass[:, 0] * G / 4))
    room.run(200, friction=MU, mass=mass, inertia=inertia)
    expected = 200 * H - MU * G * H * H * 200 * 201 / 2
    np.testing.assert_allclose(np.linalg.norm(room.at("block")[-1, :, :2], axis=1), expected, rtol=0, atol=1e-9)


def test_block_stops_at_the_expected_distance_and_stays():
    speeds = np.array([0.05, 0.2, 0.5, 1.0])
    room = sliding_room(HEADINGS[:4] * speeds[:, None]).run(1500, friction=MU)
    path = np.linalg.norm(room.at("block")[..., :2], axis=2)
    for k, v0 in enumerate(speeds):
        n = int(np.ceil(v0 / (MU * G * H)))  # the step that stops it
        expected = H * np.sum(v0 - MU * G * H * np.arange(1, n))
        # after that step it is at rest to the accuracy of 50 sweeps
        np.testing.assert_allclose(path[n:, k], expected, rtol=0, atol=1e-8)


def inclined(angle, heading, tilt_gravity):
    """Paths down a slope (T + 1, n) along each heading, by rotating gravity or the floor."""
    if tilt_gravity:
        gravity = G * (np.sin(angle)[:, None] * heading - np.cos(angle)[:, None] * [0, 0, 1])
        room = Room(len(angle))
        room.place("block", pos=np.stack([0 * angle, 0 * angle, 0.05 - rest_depth(MASS * G * np.cos(angle) / 4)], 1))
        room.run(500, friction=MU, gravity=gravity)
        return np.einsum("tni,ni->tn", room.at("block")[..., :3], heading)
    paths = []
    for a, e in zip(angle, heading, strict=True):
        quat = turn(np.cross([0, 0, 1], e), a)
        room = Room(floor_quat=quat)
        start = rotate(quat, np.array([0, 0, 0.05 - rest_depth(MASS * G * np.cos(a) / 4)]))
        room.place("block", pos=start, quat=quat)
        room.run(500, friction=MU)
        paths.append((room.at("block")[..., 0, :3] - start) @ rotate(quat, e))
    return np.stack(paths, 1)


@pytest.mark.parametrize("tilt_gravity", [True, False], ids=["gravity turned", "floor turned"])
def test_incline_holds_below_the_angle_of_friction_and_slips_above(tilt_gravity):
    heading = HEADINGS[[0, 3, 6, 9, 12, 15]]
    angle = np.arctan(MU * np.array([0.5, 0.9, 0.99, 1.01, 1.1, 2.0]))
    path = inclined(angle, heading, tilt_gravity)
    # sticks; the creep is the error of 50 sweeps, which converge slowly at the edge of the cone (1 um/s at 99 %)
    assert (np.abs(path[:, :3]).max(0) < [1e-9, 1e-9, 1e-6]).all()
    n = np.arange(501)[:, None]
    expected = G * (np.sin(angle) - MU * np.cos(angle)) * H * H * n * (n + 1) / 2
    # just above the angle all four corners should slide, but after 50 sweeps 1e-4 of one still sticks
    np.testing.assert_allclose(path[:, 3], expected[:, 3], rtol=0, atol=1e-6)
    np.testing.assert_allclose(path[:, 4:], expected[:, 4:], rtol=0, atol=2e-9)


def test_brick_with_a_raised_com_slips_at_the_same_angle():
    """Its front edge carries more, but the total friction is still mu times the total weight."""
    heading = HEADINGS
    for tan, slips in ((0.99 * MU, False), (1.05 * MU, True)):
        angle = np.arctan(tan)
        room = Room(16)
        # not at depth 0: bodies that just touch would fall freely for one step
        room.place("brick", pos=[0, 0, 0.05 - rest_depth(MASS * G / 4)])
        room.run(500, friction=MU, gravity=G * (np.sin(angle) * heading - np.cos(angle) * np.array([0, 0, 1.0])))
        path = room.at("brick")[-1, :, :3]
        along = np.einsum("ni,ni->n", path, heading)
        if slips:
            # the load shifts to the front corners within a few steps, which changes 18 mm by micrometres
            expected = G * (np.sin(angle) - MU * np.cos(angle)) * H * H * 500 * 501 / 2
            np.testing.assert_allclose(along, expected, rtol=1e-3)
        else:
            assert np.abs(along).max() < 1e-5


def test_friction_opposes_the_slip_of_every_corner():
    """A spinning, sliding cube: friction dissipates the maximum power, -mu n |slip| at each contact."""
    model = wa.load("box")
    sim = wa.Simulator(model, 16, device="cpu", dtype="float64")
    q, qd = sim.initial_state()
    q[:, 2] -= rest_depth(G / 4)
    qd[:, :3], qd[:, 5] = torch.tensor(HEADINGS), 7.0
    found = sim.contacts(q, qd, params={"friction": MU})
    _, qd = sim.step(q, qd, params={"friction": MU})
    assert (found.active.sum(1) == 4).all()
    points, impulses = (
        found.points[found.active].view(16, 4, 3).numpy(),
        found.impulses[found.active].view(16, 4, 3).numpy(),
    )
    slip = qd[:, None, :3].numpy() + np.cross(qd[:, None, 3:].numpy(), points - q[:, None, :3].numpy())
    power = np.sum(impulses[..., :2] * slip[..., :2], axis=2)
    most = MU * impulses[..., 2] * np.linalg.norm(slip[..., :2], axis=2)
    assert (impulses[..., 2] > 0).sum() >= 48  # the cube leans onto its leading edge
    # accuracy of 50 sweeps
    np.testing.assert_allclose(power, -most, rtol=0, atol=1e-6 * most.max())


def test_pyramid_brakes_each_axis_independently():
    """Along a tangent axis like the cone; in between up to sqrt(2) more, mu g along each axis."""
    headings = np.array([[1, 0, 0], [0, -1, 0], [np.sqrt(0.5), np.sqrt(0.5), 0], [0.8, -0.6, 0]])
    steps = 100
    room = sliding_room(headings, friction="pyramid").run(steps, friction=MU)
    expected = headings * steps * H - np.sign(headings) * MU * G * H * H * steps * (steps + 1) / 2
    # while both axes slide each is exact; an axis at rest is held to the accuracy of the solver
    np.testing.assert_allclose(room.at("block")[-1, :, :3] - [0, 0, room.q[0, 2]], expected, rtol=0, atol=1e-8)


def test_zero_friction_is_frictionless():
    room = sliding_room(HEADINGS).run(200, friction=0.0)
    np.testing.assert_allclose(room.at("block")[-1, :, :2], HEADINGS[:, :2] * 200 * H, rtol=0, atol=1e-9)


def test_rolling_ball_keeps_rolling():
    """Friction stops the slip of a ball after a known time; then it rolls at 5/7 of its speed, without loss."""
    room = Room()
    radius, mass = SHAPES["ball"][1][0], FREE["ball"][0]
    inertia = FREE["ball"][1][0]
    room.place("ball", pos=[0, 0, radius - rest_depth(mass * G)], velocity=[1, 0, 0])
    room.run(1500, friction=MU)
    speed = room.speed("ball")[:, 0]
    rolling = 1 / (1 + inertia / (mass * radius**2))
    assert rolling == pytest.approx(5 / 7)
    stop = int(np.ceil((1 - rolling) / (MU * G * H)))
    # the contact point is a few micrometres closer to the centre than the radius
    np.testing.assert_allclose(speed[stop:, 0], rolling, rtol=1e-5)
    np.testing.assert_allclose(speed[stop:, 4] * radius, rolling, rtol=1e-4)


def slider(degrees):
    """A foot that can only move vertically and along one horizontal line."""
    a = np.radians(degrees)
    bodies = [
        Body("x", WORLD, "x", JointType.PRISMATIC, axis=np.array([np.cos(a), np.sin(a), 0]), mass=0.1),
        Body("z", 0, "z", JointType.PRISMATIC, mass=1.0),
    ]
    ball = Shape(ShapeType.SPHERE, 1, np.array([0.1, 0, 0]), np.array([0, 0, 0.1]), name="foot")
    return assemble("slider", bodies, [ball, Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="floor")])


@pytest.mark.parametrize(
    "degrees",
    [0, 30, 44, 45],
)
def test_planar_mechanism_stops_in_one_step_in_any_direction(degrees):
    """The tangent block of A is singular, and full at 45 degrees: the joint update of both tangents must handle it."""
    for iterations in (50, 51):
        sim = wa.Simulator(slider(degrees), device="cpu", dtype="float64", iterations=iterations)
        q, qd = torch.tensor([[0, -1e-5]]).double(), torch.tensor([[0.005, 0]]).double()
        _, qd = sim.step(q, qd)
        assert abs(qd[0, 0].item()) < 1e-8, iterations
