"""Impacts and resting contacts against closed forms: bounces, momentum, stacks, resting shapes, limits, full lists.

Everything runs in float64 in one model (contact_room.py), except the box stack and the contact list.
"""

from itertools import product

import numpy as np
import pytest
import torch
from contact_room import FREE, HULL, UP, G, Room, rest_depth, rotate, turn
from mjcf_oracle import jacobians

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

H = 1e-3
NO_GRAVITY = [0.0, 0.0, 0.0]


def bounce(height, e, h, mass, cfm, steps):
    """Heights of a ball above the floor in semi-implicit Euler, as defined by the contact model."""
    z, v, heights = height, 0.0, [height]
    for _ in range(steps):
        free = v - G * h
        if z < 0:
            bias, soft = 0.2 * z / h, cfm
            if v < -0.05 and e * v < bias:  # cfm does not apply to a bounce
                bias, soft = e * v, 0.0
            free -= min(free + bias, 0.0) / (1 + mass * soft)
        v, z = free, z + h * free
        heights.append(z)
    return np.array(heights)


@pytest.mark.parametrize("cfm", [0.0, 1e-2])
def test_ball_follows_the_discrete_bounce_law(cfm):
    e = np.array([0.0, 0.3, 0.5, 0.8, 1.0])
    room = Room(5, cfm=cfm)
    room.place("ball", pos=[0, 0, 1.1])
    room.run(1200, restitution=e)
    for k in range(5):
        expected = bounce(1.0, e[k], H, FREE["ball"][0], cfm, 1200)
        np.testing.assert_allclose(room.at("ball")[:, k, 2] - 0.1, expected, rtol=0, atol=1e-9)


def apexes(room, e, **params):
    """Heights that the ball reaches after its first impact, dropped from 1 m."""
    room.place("ball", pos=[0, 0, 1.1])
    room.run(9000, restitution=e, **params)
    z = room.at("ball")[..., 2] - 0.1
    first = np.argmax(z < 0, axis=0)
    return np.array([z[first[k] :, k].max() for k in range(len(e))])


def test_bounce_height_is_restitution_squared():
    e = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
    top = apexes(Room(5, dt=1e-4, cfm=0.0), e)
    # a step of 0.1 ms at 4.4 m/s: the impact is detected up to 0.44 mm late
    np.testing.assert_allclose(top, e**2, rtol=0, atol=1e-3)


def test_bounce_height_does_not_depend_on_mass():
    e = np.array([0.5, 0.5, 1.0])
    room = Room(3, dt=1e-4)
    mass = np.tile(room.model.mass, (3, 1))
    mass[:, 2] = [1.0, 25.0, 25.0]
    np.testing.assert_allclose(apexes(room, e, mass=mass), e**2, rtol=0.02)


def test_slow_impacts_do_not_bounce():
    """Below the threshold of 0.05 m/s, here dropped from 0.1 mm; a resting ball does not bounce either."""
    room = Room(2)
    room.place("ball", pos=[[4, 0, 0.1001], [4, 0, 0.1]])
    room.run(1000, restitution=1.0)
    speed, z = room.speed("ball")[..., 2], room.at("ball")[..., 2] - 0.1
    # a ball that is pushed out of the floor rises with erp depth / h, not with e v
    assert speed[:, 0].max() < 0.2 * np.abs(z[:, 0].min()) / H + 1e-12
    assert np.abs(speed[-500:]).max() < 1e-6
    np.testing.assert_allclose(z[-1], -rest_depth(FREE["ball"][0] * G), rtol=1e-6)


def momenta(velocity_a, velocity_b, offset):
    """Total linear and angular momentum of the two balls, (n, 3) each; offset: from the first to the second."""
    (ma, ia, _), (mb, ib, _) = FREE["ball"], FREE["heavy ball"]
    p = ma * velocity_a[:, :3] + mb * velocity_b[:, :3]
    spin = ia[0] * velocity_a[:, 3:] + ib[0] * velocity_b[:, 3:]
    return p, spin + np.cross(offset, mb * velocity_b[:, :3])


def test_two_balls_conserve_momentum_and_separate_with_restitution():
    """Central and oblique hits with friction: both momenta to rounding, restitution along the normal."""
    rng = np.random.default_rng(0)
    n = 32
    e = rng.uniform(0, 1, n)
    heading = rng.normal(size=(n, 3))
    heading /= np.linalg.norm(heading, axis=1, keepdims=True)
    room = Room(n, cfm=0.0)
    far = np.array([0, 0, 50.0])
    offset = heading * rng.uniform(0.19, 0.1999, (n, 1))
    va, vb = rng.normal(size=(2, n, 3)) * 0.3 + [heading * 1.5, -heading * 1.5]
    room.place("ball", pos=far, velocity=va, spin=rng.normal(size=(n, 3)))
    room.place("heavy ball", pos=far + offset, velocity=vb, spin=rng.normal(size=(n, 3)))
    room.run(1, gravity=NO_GRAVITY, restitution=e, friction=0.4)
    a, b = room.speed("ball"), room.speed("heavy ball")
    for before, after in zip(momenta(a[0], b[0], offset), momenta(a[1], b[1], offset), strict=True):
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-13)
    approach = np.einsum("ni,ni->n", heading, b[0, :, :3] - a[0, :, :3])
    separation = np.einsum("ni,ni->n", heading, b[1, :, :3] - a[1, :, :3])
    push = 0.2 * (0.2 - np.linalg.norm(offset, axis=1)) / H
    np.testing.assert_allclose(separation, np.maximum(-e * approach, push), rtol=1e-9)


def test_collision_inside_one_tree_conserves_its_momentum():
    """Two carts graze each other on two tracks of one free rail: the hit turns the rail; all forces are internal."""
    room = Room(cfm=0.0)
    q, v = room.model.joint_q("cart2").start, room.model.joint_v("cart1").start
    ahead = np.sqrt(0.195**2 - 0.1**2)  # the tracks are 0.1 m apart; 5 mm deep
    room.q[:, q] += ahead - 0.5
    room.qd[:, v], room.qd[:, v + 1] = 1.0, -2.0
    room.place("rail", quat=turn([1, 2, 3], 0.7), velocity=[0.3, -0.2, 0.1])
    room.run(1, gravity=NO_GRAVITY, restitution=0.6, friction=0.8)
    _, origin, angular, linear = jacobians(room.model, room.q[0].numpy())
    names = room.model.link_names
    links = [names.index(name) for name in ("rail", "cart1", "cart2")]
    totals = []
    for qd in room.qds[:, 0].numpy():
        p, spin = np.zeros(3), np.zeros(3)
        for i in links:
            p += room.model.mass[i] * linear[i] @ qd
            spin += np.cross(origin[i], room.model.mass[i] * linear[i] @ qd)
            spin += room.model.inertia[i][0, 0] * angular[i] @ qd  # all inertias are multiples of the identity
        totals.append(np.append(p, spin))
    np.testing.assert_allclose(totals[1], totals[0], rtol=0, atol=1e-12)
    assert abs(room.qds[1, 0, room.model.joint_v("rail")][3:]).max() > 0.01  # the hit turns the rail
    # both are on the rail, so their relative motion along the line of centres is that of the tracks
    one, two = linear[links[1]] @ room.qds[1, 0].numpy(), linear[links[2]] @ room.qds[1, 0].numpy()
    normal = (origin[links[2]] - origin[links[1]]) / 0.195
    approach = -3.0 * ahead / 0.195
    assert (two - one) @ normal == pytest.approx(max(-0.6 * approach, 0.2 * 0.005 / H), rel=1e-9)


def test_world_may_be_first_or_second_in_a_pair():
    """A ball on a world box and a box on a world ball both bounce up, with their restitution."""
    room = Room(cfm=0.0)
    room.place("ball", pos=[0.1, 0.2, 20.6 - 1e-4], velocity=[0, 0, -1])
    room.place("brick", pos=[0, 0, 30.55 - 1e-4], velocity=[0, 0, -1])
    room.run(1, gravity=NO_GRAVITY, restitution=0.7)
    np.testing.assert_allclose(room.speed("ball")[1, 0], [0, 0, 0.7, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(room.speed("brick")[1, 0], [0, 0, 0.7, 0, 0, 0], atol=1e-12)


RESTS = {  # body: initial orientation, and possible heights at rest
    "capsule": (turn([1, 0.3, 0], 1.2), [0.05]),
    "cylinder": (turn([1, 0.3, 0], 0.1), [0.15]),
    "hull": (turn([1, 0.3, 0], 0.3), [0.1]),
    "brick": (turn([1, 0.7, 0], 0.9), [0.05, 0.1]),
}


def test_every_shape_comes_to_rest_on_its_side_or_base():
    """Dropped tilted (the brick on a corner) from 10 cm: after 4 s each is at rest, at the depth of its weight."""
    room = Room()
    for body, (quat, _) in RESTS.items():
        room.place(body, pos=[0, 0, 0.35], quat=quat)
    room.run(4000, friction=0.5)
    for body, (_, heights) in RESTS.items():
        end = room.at(body)[-1, 0]
        # a standing cylinder has five points, too many for 50 sweeps to converge: it trembles by some micrometres
        assert np.abs(room.speed(body)[-500:]).max() < (1e-2 if body == "cylinder" else 1e-3), body
        assert np.abs(room.at(body)[-500:] - room.at(body)[-1]).max() < 1e-4, body
        assert np.abs(end[2] - np.array(heights)).min() < 1e-5, (body, end)
    axis = rotate(room.at("capsule")[-1, 0, 3:], np.array([0, 0, 1.0]))
    assert abs(axis[2]) < 1e-5
    for body in ("cylinder", "hull"):
        assert rotate(room.at(body)[-1, 0, 3:], np.array([0, 0, 1.0]))[2] > 1 - 1e-9, body
    sides = np.abs([rotate(room.at("brick")[-1, 0, 3:], axis)[2] for axis in np.eye(3)])
    assert sides.max() > 1 - 1e-9


def test_lying_cylinder_rolls_and_standing_hull_stays():
    room = Room()
    room.place("cylinder", pos=[0, 0, 0.1], quat=turn([1, 0, 0], np.pi / 2), velocity=[0.5, 0, 0], spin=[0, 5, 0])
    start = [12, 0, 0.1 - rest_depth(FREE["hull"][0] * G / 4)]
    room.place("hull", pos=start)
    room.run(1000, friction=0.5)
    # rolling is lossless: 1 m/s x 0.5 s, up to micrometres of settling
    np.testing.assert_allclose(room.at("cylinder")[-1, 0, :2], [0.5, 0], atol=1e-4)
    np.testing.assert_allclose(room.at("hull")[-1, 0], [*start, *UP], atol=1e-7)
    assert HULL[:, 2].min() == -0.1


def test_limit_holds_against_a_drive_that_pushes_into_it():
    """At rest the limit carries the drive's torque: it is violated like a contact with this force."""
    room = Room(3)
    room.u = torch.tensor([[2.0, 60.0], [-2.0, -1000.0], [0.2, 0.0]]).double()  # N are clipped to 50
    room.run(2000)
    torque = np.array([80.0, -80.0])  # kp (2 - q) exceeds the effort limit of 80 N m
    limit = np.array([0.3, -0.5])
    np.testing.assert_allclose(room.at("arm")[-1, :2, 0], limit + rest_depth(torque), rtol=0, atol=1e-9)
    np.testing.assert_allclose(room.at("piston")[-1, :2, 0], limit + rest_depth(np.array([50.0, -50.0])), atol=1e-9)
    # at impact it overshoots by at most one step at its speed
    for joint in ("arm", "piston"):
        beyond = np.maximum(room.at(joint)[:, :2, 0] - 0.3, -0.5 - room.at(joint)[:, :2, 0])
        assert beyond.max() < H * np.abs(room.speed(joint)).max() + 1e-5
    assert room.at("arm")[-1, 2, 0] == pytest.approx(0.2, abs=1e-6)  # no effect inside the limits


def test_stack_of_three_boxes_stays_up():
    model = wa.load("boxes3")
    sim = wa.Simulator(model, 1, device="cpu", dtype="float32")
    q, qd = sim.initial_state()
    qs, _ = sim.rollout(q, qd, torch.zeros(2000, 1, 0))
    end = qs[-1, 0].numpy().reshape(3, 7)
    start = q[0].numpy().reshape(3, 7)
    assert np.abs(end[:, :3] - start[:, :3]).max() < 1e-4
    assert np.abs(end[:, 3:6]).max() < 1e-4
    # the contacts below boxes 1, 2, 3 carry 3, 2, 1 weights, each on four corners
    sunk = np.cumsum([rest_depth(weights * G / 4) for weights in (3, 2, 1)])
    np.testing.assert_allclose(start[:, 2] - end[:, 2], sunk, rtol=0, atol=2e-6)


def test_full_contact_list_keeps_the_deepest_and_counts_the_rest():
    model = wa.load("box")
    sim = wa.Simulator(model, 2, device="cpu", dtype="float64", max_contacts=4)
    q, qd = sim.initial_state()
    quat = turn([1, 2, 0.5], 0.4)
    q[0] = torch.tensor([0, 0, -0.5, *quat])  # all eight corners are below the floor, at different depths
    found = sim.contacts(q, qd)
    corners = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
    depths = np.sort(0.5 - rotate(np.tile(quat, (8, 1)), corners)[:, 2])[::-1]
    assert found.active.sum(1).tolist() == [4, 0]
    np.testing.assert_allclose(np.sort(found.depths[0].numpy())[::-1], depths[:4], rtol=1e-12)
    assert found.dropped.tolist() == [4, 0]
    sim.step(q, qd)
    assert sim.dropped_contacts.tolist() == [4, 0]
    sim.rollout(q, qd, torch.zeros(3, 2, 0, dtype=torch.float64))
    assert 4 < sim.dropped_contacts[0] <= 12 and sim.dropped_contacts[1] == 0


KINDS = {ShapeType.SPHERE: [0.1, 0, 0], ShapeType.CAPSULE: [0.1, 0.1, 0], ShapeType.BOX: [0.1, 0.1, 0.1]}


def test_every_moving_shape_rests_on_every_shape_of_the_world():
    """Nine towers in one environment, so that the world's shape is first in some pairs and second in others."""
    bodies, shapes, pairs = [], [], []
    for k, (below, above) in enumerate(product(KINDS, KINDS)):
        lift = Body(f"b{k}", WORLD, f"j{k}", JointType.PRISMATIC, pos=np.array([k, 0.0, 0.45]), mass=1.0)
        lift.inertia = np.eye(3) * 0.01
        bodies.append(lift)
        shapes.append(Shape(below, WORLD, np.array(KINDS[below]), pos=np.array([k, 0.0, 0.0])))
        shapes.append(Shape(above, k, np.array(KINDS[above])))
        pairs.append((2 * k, 2 * k + 1, 1.0, 0.0))
    sim = wa.Simulator(assemble("towers", bodies, shapes, pairs=pairs), device="cpu", dtype="float64")
    qs, _ = sim.rollout(*sim.initial_state(), torch.zeros(800, 1, 0).double())
    half = {ShapeType.SPHERE: 0.1, ShapeType.CAPSULE: 0.2, ShapeType.BOX: 0.1}
    heights = [half[below] + half[above] for below, above in product(KINDS, KINDS)]
    np.testing.assert_allclose(qs[-1, 0].numpy() + 0.45, heights, rtol=0, atol=1e-4)
