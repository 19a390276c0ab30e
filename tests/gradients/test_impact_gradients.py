"""Gradients of steps that impacts interrupt, against central differences of the same step in float64.

A ball in a corner meets every kind of impact by construction; robots meet them when they are thrown. Differences that
do not agree with themselves are not compared (gradient_zoo.py): there an impact enters or leaves the step, or the
order of two changes.
"""

import warnings
from functools import cache

import numpy as np
import pytest
import torch
from gradient_zoo import (
    POINTS,
    TOLERANCE,
    assert_agreement,
    directional_errors,
    random_inertia,
    small_simulator,
    zoo_model,
    zoo_states,
)

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

H = 2e-3
HALF = np.sqrt(0.5)


def simulator(model, num_envs, **options):
    return small_simulator(model, num_envs, **{"dt": H, "contact_time": "impact", **options})


def unit(quat):
    return np.array(quat) / np.linalg.norm(quat)


# -- a ball in the corner of a floor and a wall


@cache
def corner():
    """Neither are the planes upright nor is the ball's com in its middle."""
    ball = Body("ball", WORLD, "ball", JointType.FREE, mass=1.3, com=np.array([0.02, -0.01, 0.015]), damping=0.1)
    ball.inertia = random_inertia(np.random.default_rng(1), 1.3)
    floor, wall = unit([0.1, -0.05, 0, 1]), unit([0.05, HALF, 0.02, HALF])
    shapes = [
        Shape(ShapeType.SPHERE, 0, np.array([0.1, 0, 0]), np.array([0.01, 0.02, -0.01])),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.zeros(3), floor),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.zeros(3), wall),
    ]
    return assemble("corner", [ball], shapes, pairs=[(0, 1, 0.4, 0.5), (0, 2, 0.3, 0.6)])


def ball_state(gaps, velocity, spin):
    """q and qd of a ball with these gaps from floor and wall; velocity of its middle."""
    model = corner()
    normals = [quat_to_matrix(shape.quat)[:, 2] for shape in model.shapes[1:]]
    middle = np.linalg.solve(np.array([*normals, [0, 1, 0]]), np.array([*gaps, 0.2]) + 0.1)
    quat = unit([0.1, 0.2, 0.3, 1])
    arm = quat_to_matrix(quat) @ model.shapes[0].pos
    return np.r_[middle - arm, quat], np.r_[velocity - np.cross(spin, arm), spin]


IMPACTS = {  # gaps over H x 1 m/s, velocity, spin, friction, and how many impacts there are
    "none": ((50, 50), (-1, 0.3, -1), (1, 2, 3), 0.4, 0),
    "slips": ((0.4, 50), (0.2, 3, -1), (0.1, 0.2, 0.3), 0.1, 1),
    "sticks": ((0.4, 50), (0.01, 0.03, -1), (0.1, 0.2, 0.3), 3.0, 1),
    "late, slips": ((-0.3, 50), (0.2, 3, -1), (0.1, 0.2, 0.3), 0.1, 1),
    "late, sticks": ((-0.3, 50), (0.01, 0.03, -1), (0.1, 0.2, 0.3), 3.0, 1),
    "two": ((0.3, 0.5), (-1.5, 0.5, -1.2), (1, -2, 3), 0.3, 2),
    "two, one late": ((-0.4, 0.5), (-1.5, 0.5, -1.2), (1, -2, 3), 0.3, 2),
    "clamped": ((-5, 50), (0.2, 0.5, -1), (1, 2, 3), 0.3, 1),  # five steps deep, so it is taken back by one step
    "both clamped": ((-5, -6), (-1, 0.5, -1), (1, 2, 3), 0.3, 2),
}


@cache
def ball_states():
    rows = [
        (*ball_state(np.array(gaps) * H, velocity, spin), np.full(2, mu))
        for gaps, velocity, spin, mu, _ in IMPACTS.values()
    ]
    q, qd, friction = (torch.tensor(np.array(x)) for x in zip(*rows, strict=True))
    return q, qd, torch.zeros(len(q), 0).double(), {"friction": friction}


def bounced(sim, q, qd, u, params):
    """Number of contacts and limits per environment whose restitution matters: they met in an impact."""
    names = ("restitution", "limit_restitution")
    values = [params.get(name, sim.params[name]).clone().requires_grad_() for name in names]
    _, qd = sim.step(q, qd, u, params={**params, **dict(zip(names, values, strict=True))})
    weights = torch.linspace(0.5, 1.5, qd.shape[1], dtype=qd.dtype)
    return sum((bar != 0).sum(1) for bar in torch.autograd.grad((qd * weights).sum(), values))


def test_ball_meets_as_many_impacts_as_it_should():
    q, qd, u, params = ball_states()
    sim = simulator(corner(), len(q))
    assert bounced(sim, q, qd, u, params).tolist() == [case[-1] for case in IMPACTS.values()]
    # the friction of an impact matters where it slips
    mu = params["friction"].clone().requires_grad_()
    _, after = sim.step(q, qd, u, params={"friction": mu})
    (bar,) = torch.autograd.grad(after[:, 0].sum(), mu)
    sticks = ["stick" in name or name in ("none", "clamped") for name in IMPACTS]
    assert (bar == 0).all(1).tolist() == sticks


def test_gradient_of_every_kind_of_impact_matches_differences_for_every_input():
    q, qd, u, params = ball_states()
    sim = simulator(corner(), len(q) * 2 * POINTS)
    found = directional_errors(sim, q, qd, u, params=params)
    matter = ["q", "qd", "gravity", "mass", "com", "inertia", "damping", "friction", "restitution", "shape_pos"]
    assert_agreement(found, [*matter, "shape_size", "erp", "cfm"], least=0.9)
    for name, samples in found.items():  # what is measured, a thousand times less than the usual tolerance
        assert samples.error.max() < (1e-9 if name not in ("mass", "gravity", "damping", "com") else TOLERANCE), name


def test_gradient_of_a_rollout_through_bounces_matches_differences():
    """Thrown into the corner, 20 steps: by then each ball has hit floor or wall at least once."""
    q, qd, u, params = (x[1:7] if torch.is_tensor(x) else x for x in ball_states())
    params = {name: value[1:7] for name, value in params.items()}
    sim = simulator(corner(), len(q) * POINTS)
    found = directional_errors(sim, q, qd, u, steps=20, directions=1, params=params, checkpoint_every=7)
    assert_agreement(found, ["q", "qd", "gravity", "mass", "restitution", "friction", "shape_size"], least=0.6)


def test_gradient_does_not_depend_on_batch_size_or_checkpoints():
    q, qd, _, params = ball_states()

    def gradients(some, **options):
        inputs = [q[some], qd[some], *(value[some] for value in params.values())]
        inputs = [x.clone().requires_grad_() for x in inputs]
        sim = simulator(corner(), len(inputs[0]), threads=options.pop("threads", None))
        controls = torch.zeros(12, len(inputs[0]), 0).double()
        states = sim.rollout(*inputs[:2], controls, params={"friction": inputs[2]}, **options)
        return torch.autograd.grad(sum(x[-1].square().sum() for x in states), inputs)

    everyone = gradients(slice(None))
    for some, options in (([3, 5], {}), (slice(None), {"checkpoint_every": 5}), (slice(None), {"threads": 1})):
        for ours, theirs in zip(gradients(some, **options), everyone, strict=True):
            assert torch.equal(ours, theirs[some])


def test_truth_of_a_bounce_off_a_wall():
    """x = -e (v t - x_0) after the impact: with "step" the derivative by x_0 has the wrong sign, for every step."""
    plane = Shape(ShapeType.PLANE, WORLD, np.zeros(0))
    ball = Body("ball", WORLD, "ball", JointType.FREE, mass=1.0, inertia=np.eye(3) * 0.004)
    sphere = Shape(ShapeType.SPHERE, 0, np.array([0.1, 0, 0]))
    model = assemble("wall", [ball], [sphere, plane], pairs=[(0, 1, 0.0, 0.5)], gravity=(0, 0, 0))
    derivatives = []
    for mode in ("step", "impact"):
        sim = simulator(model, 1, contact_time=mode)
        z, v, e = (torch.tensor([[x]], dtype=torch.float64, requires_grad=True) for x in (1.0, -1.0, 0.5))
        q = torch.cat([torch.zeros(1, 2).double(), z + 0.1, torch.tensor([[0, 0, 0, 1.0]]).double()], 1)
        qd = torch.cat([torch.zeros(1, 2).double(), v, torch.zeros(1, 3).double()], 1)
        qs, _ = sim.rollout(q, qd, torch.zeros(750, 1, 0).double(), params={"restitution": e})
        derivatives.append([x.item() for x in torch.autograd.grad(qs[-1, 0, 2], (z, v, e))])
    # z_T = -e (z_0 + v T) with T = 1.5 s
    assert derivatives[1] == pytest.approx([-0.5, -0.75, 0.5], abs=1e-12)
    assert derivatives[0] == pytest.approx([1.0, 0.75, 0.5], abs=2e-2)


# -- robots


THROWS = {  # scene: speed downwards, steps that are looked at, least share of usable differences of an input
    "laikago_feet": (1.0, 60, 0.4),
    "ant": (2.0, 150, 0.4),
    "racecar": (0.0, 60, 0.4),
    "panda_throw": (0.0, 60, 0.4),
    "boxes3": (0.0, 60, 0.4),
}


def interrupted(model, q, qd, u, params):
    """True for environments whose step is another one if no approach is fast enough for an impact."""
    steps = [
        torch.cat(simulator(model, len(q), max_contacts=32, **options).step(q, qd, u, params=params), 1)
        for options in ({}, {"restitution_threshold": 1e3})
    ]
    return ((steps[0] - steps[1]).abs() > 1e-9).any(1)


@cache
def thrown(scene, envs=16, hits=18, others=6):
    """q, qd, u, params before steps of thrown robots that impacts interrupt, then before some that none does.

    No first steps: there robots stand, and their contacts are redundant. An impact has no cfm, so by the restitution of
    one pair alone its derivative is that of a solver that has not converged.
    """
    speed, last, _ = THROWS[scene]
    model, gen = wa.load(scene), torch.Generator().manual_seed(0)
    sim = simulator(model, envs, max_contacts=32)
    q, qd = sim.initial_state()
    qd += 1.5 * torch.randn(qd.shape, generator=gen, dtype=qd.dtype)
    qd[:, 2] -= speed
    u = sim.initial_control()
    u += 0.1 * torch.randn(u.shape, generator=gen, dtype=u.dtype)
    params = {name: sim.params[name] + 0.3 for name in ("restitution", "limit_restitution")}
    qs, qds = sim.rollout(q, qd, u.expand(last, -1, -1).contiguous(), params=params)
    assert not len(sim.diverged)
    met = torch.stack([interrupted(model, q, qd, u, params) for q, qd in zip(qs[1:], qds[1:], strict=True)])
    chosen = [torch.nonzero(x)[torch.randperm(int(x.sum()), generator=gen)] for x in (met, ~met)]
    assert len(chosen[0]) >= hits
    step, env = torch.cat([chosen[0][:hits], chosen[1][:others]]).T
    return qs[1 + step, env], qds[1 + step, env], u[env], {name: x[env] for name, x in params.items()}, hits


@pytest.mark.parametrize("scene", THROWS)
def test_gradient_of_thrown_robots_matches_differences_for_every_input(scene):
    """Feet, wheels, fingers and corners that hit, slide and turn; joints that hit their limits."""
    q, qd, u, params, hits = thrown(scene)
    sim = simulator(wa.load(scene), len(q) * POINTS, max_contacts=32)
    found = directional_errors(sim, q, qd, u, directions=1, params=params)
    assert_agreement(found, ["q", "qd", "mass", "restitution", "shape_size"], least=THROWS[scene][2])
    assert torch.cat([samples.kept[:hits].flatten() for samples in found.values()]).double().mean() > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [50, 4])
def test_gradient_of_the_zoo_matches_differences(iterations):
    """Deep overlaps at random, at 1 m/s: clamped impacts of many contacts, and of all types of shapes."""
    states = 12
    sim = simulator(zoo_model(), states * POINTS, iterations=iterations, erp=0.02)
    q, qd, u = (x[:states] for x in zoo_states(sim))
    found = directional_errors(sim, q, qd, u, directions=1)
    assert_agreement(found, ["q", "qd", "u", "mass", "restitution", "friction"], least=0.5)


# -- finite


def check_finite(model, count, seed):
    """Gradients by everything of five steps from random poses close to the ground, fast, with controls of all sizes."""
    rng = np.random.default_rng(seed)
    sim = simulator(model, count, max_contacts=32)
    q, qd = sim.initial_state()
    q += torch.tensor(rng.normal(size=q.shape) * 0.1)
    qd += torch.tensor(rng.normal(size=qd.shape) * rng.choice([0.1, 1, 10], (count, 1)))
    u = sim.initial_control() + torch.tensor(rng.normal(size=(5, count, model.nu)) * rng.choice([0.1, 10], (count, 1)))
    params = {name: value.clone().requires_grad_() for name, value in sim.params.items()}
    leaves = [q.requires_grad_(), qd.requires_grad_(), u.requires_grad_(), *params.values()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        states = sim.rollout(*leaves[:3], params=params)
    bars = torch.autograd.grad(sum(x[-1].square().sum() for x in states), leaves)
    assert all(torch.isfinite(bar).all() for bar in bars)


@pytest.mark.parametrize("scene", ["laikago_feet", "panda_throw"])
def test_gradients_of_five_hundred_thrown_robots_are_finite(scene):
    check_finite(wa.load(scene), 500, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("scene", THROWS)
def test_gradients_of_thousands_of_thrown_robots_are_finite(scene):
    for seed in range(6):
        check_finite(wa.load(scene), 500, seed)
