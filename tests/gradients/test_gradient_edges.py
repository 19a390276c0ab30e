"""Gradients where a formula could divide by zero or a law has a kink: rest, no slip, first touch, no friction."""

from functools import cache

import numpy as np
import pytest
import torch
from gradient_zoo import POINTS, assert_agreement, directional_errors, small_simulator, toy_model

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

HALF = np.sqrt(0.5)
FACING = {  # quaternion and normal of a plane
    "+z": ([0, 0, 0, 1], [0, 0, 1]),
    "-z": ([1, 0, 0, 0], [0, 0, -1]),
    "+x": ([0, HALF, 0, HALF], [1, 0, 0]),
    "-x": ([0, -HALF, 0, HALF], [-1, 0, 0]),
    "+y": ([-HALF, 0, 0, HALF], [0, 1, 0]),
    "-y": ([HALF, 0, 0, HALF], [0, -1, 0]),
}
RADIUS = 0.1


@cache
def ball(facing):
    """A ball with its com slightly off centre, and a plane through the origin towards which gravity points."""
    quat, up = (np.array(x, float) for x in FACING[facing])
    inertia = np.array([[0.005, 0.001, 0], [0.001, 0.004, 0], [0, 0, 0.006]])
    body = Body("ball", WORLD, "ball", JointType.FREE, mass=1.0, com=np.array([0.01, 0.02, 0.0]), inertia=inertia)
    shapes = [
        Shape(ShapeType.SPHERE, 0, np.array([RADIUS]), name="ball"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.zeros(3), quat, "plane"),
    ]
    return assemble("ball", [body], shapes, gravity=-9.81 * up, pairs=[(0, 1, 0.4, 0.5)])


def ball_state(sim, facing, depth):
    q, qd = sim.initial_state()
    q[:, :3] = (RADIUS - depth) * torch.tensor(FACING[facing][1], dtype=q.dtype)
    return q, qd


def all_gradients(sim, q, qd, u, steps, **params):
    """Gradients of the sum of squares of the last state, by input, including all parameters."""
    inputs = {"q": q, "qd": qd, "u": u.repeat(steps, 1, 1), **sim.params, **params}
    inputs = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    states = sim.rollout(inputs["q"], inputs["qd"], inputs["u"], params={name: inputs[name] for name in sim.params})
    loss = sum(x[-1].square().sum() for x in states)
    return dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))


@pytest.mark.parametrize("facing", FACING)
def test_gradient_matches_differences_when_the_normal_is_an_axis(facing):
    """Balls that roll, slide and bounce."""
    states = 6
    sim = small_simulator(ball(facing), states * 2 * POINTS, erp=0.02)
    q, qd = (x[:states] for x in ball_state(sim, facing, 0.002))
    qd += torch.randn(qd.shape, generator=torch.Generator().manual_seed(0), dtype=qd.dtype)
    found = directional_errors(sim, q, qd, sim.initial_control()[:states])
    assert_agreement(found, ["q", "qd", "mass", "com", "inertia", "friction", "restitution", "shape_size"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("depth", [1e-3, 1e-7, 0.0], ids=["in contact", "just touching", "about to touch"])
@pytest.mark.parametrize("mu", [0.0, 0.4])
@pytest.mark.parametrize("facing", FACING)
def test_gradients_of_a_ball_at_rest_are_finite(facing, mu, depth, dtype):
    """Zero velocity, zero slip, zero spin; with and without friction."""
    sim = small_simulator(ball(facing), 1, dtype)
    q, qd = ball_state(sim, facing, depth)
    assert sim.contacts(q, qd).active.any() if depth > 0.0 and dtype == "float64" else True
    found = all_gradients(sim, q, qd, sim.initial_control(), 3, friction=torch.full_like(sim.params["friction"], mu))
    for name, gradient in found.items():
        assert torch.isfinite(gradient).all(), name
    assert (found["gravity"] != 0).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0])
def test_gradients_of_a_robot_that_stands_still_are_finite(dtype, mu):
    """Laikago in its symmetric stance: four feet just touch, nothing moves, nothing slips."""
    sim = small_simulator(wa.load("laikago_feet"), 1, dtype)
    friction = torch.full_like(sim.params["friction"], mu)
    for steps in (1, 50):
        found = all_gradients(sim, *sim.initial_state(), sim.initial_control(), steps, friction=friction)
        for name, gradient in found.items():
            assert torch.isfinite(gradient).all(), name
        assert (found["u"] != 0).any() and (found["mass"] != 0).any()


def test_gradient_at_zero_friction_is_one_sided():
    """mu = 0 is a kink: friction acts on one side only. The gradient is that of positive mu."""
    sim = small_simulator(ball("+z"), 1)
    q, qd = ball_state(sim, "+z", 1e-3)
    qd[0, :2] = torch.tensor([1.0, -0.5])

    def speed(mu):
        return sim.step(q, qd, params={"friction": mu})[1][0, 0]

    mu = torch.tensor(0.0, dtype=q.dtype, requires_grad=True)
    gradient = torch.autograd.grad(speed(mu), mu)[0]
    h = 1e-6
    difference = (speed(torch.tensor(h, dtype=q.dtype)) - speed(torch.tensor(0.0, dtype=q.dtype))) / h
    assert difference < -1e-3
    torch.testing.assert_close(gradient, difference, rtol=1e-5, atol=0.0)  # one-sided: accurate to about h


def test_gradient_depends_only_on_the_direction_of_a_quaternion():
    """-e and 2 e are the same orientation as e. The resulting quaternion has e's sign and unit length."""
    sim = small_simulator(toy_model(), 1, dt=2e-3, erp=0.02)
    gen = torch.Generator().manual_seed(3)
    q, qd = sim.initial_state()
    q += 0.3 * torch.randn(q.shape, generator=gen, dtype=q.dtype)
    q[:, 2] = 0.15
    qd += torch.randn(qd.shape, generator=gen, dtype=q.dtype)
    assert sim.contacts(q, qd).active.any()
    weights = [torch.randn(x.shape, generator=gen, dtype=q.dtype) for x in (q, qd)]
    quats = [slice(3, 7), slice(8, 12)]  # of trunk and arm
    turns = torch.zeros(q.shape[1], dtype=bool)
    for at in quats:
        turns[at] = True

    def gradients(factor):
        """Gradients by q and qd, with all quaternions multiplied by a factor."""
        x, v = torch.where(turns, factor * q, q).requires_grad_(), qd.clone().requires_grad_()
        asked = torch.where(turns, np.sign(factor) * weights[0], weights[0])
        return torch.autograd.grad(sim.step(x, v), (x, v), (asked, weights[1]))

    q_bar, qd_bar = gradients(1.0)
    for at in quats:
        along = (q_bar[:, at] * q[:, at]).sum()
        assert q_bar[:, at].norm() > 0.1 and along.abs() < 1e-12 * q_bar.norm()
    for factor in (-1.0, 2.0, -0.3, 10.0):
        ours = gradients(factor)
        expected = torch.where(turns, q_bar / factor, q_bar)
        torch.testing.assert_close(ours[0], expected, rtol=1e-9, atol=1e-10 * float(q_bar.abs().max()))
        torch.testing.assert_close(ours[1], qd_bar, rtol=1e-9, atol=1e-10 * float(qd_bar.abs().max()))
