"""Gradients of steps and rollouts against central differences of the simulation: the zoo, and random trees."""

from functools import cache

import numpy as np
import pytest
import torch
from gradient_zoo import (
    BALL,
    FREE,
    HINGE,
    POINTS,
    SLIDER,
    STEPS,
    TOLERANCE,
    assert_agreement,
    directional_errors,
    quotients,
    random_inertia,
    small_simulator,
    toy_model,
    unit,
    zoo_simulator,
    zoo_states,
)

from warp_articulated.device.parameters import GROUPS, PARAMETERS
from warp_articulated.model import NV, WORLD, Body, Drive, DriveType, JointType, Shape, ShapeType, assemble

# of models with a field or with loops and tendons: test_terrain_gradients.py, test_tie_gradients.py
ELSEWHERE = ("terrain_origin", *GROUPS["terrain"], *GROUPS["ties"])
EVERYTHING = ["q", "qd", "u", *(name for name in PARAMETERS if name not in ELSEWHERE)]


# -- the comparison itself must detect small errors and kinks


class OffByALittle:
    """A simulator whose gradient of the masses is wrong by a factor of 1 + 1e-5."""

    def __init__(self, sim):
        self.sim, self.params, self.num_envs = sim, sim.params, sim.num_envs

    def rollout(self, q, qd, u, *, params, **options):
        mass = params["mass"]
        return self.sim.rollout(q, qd, u, params={**params, "mass": mass + 1e-5 * (mass - mass.detach())}, **options)


def test_relative_error_of_1e_5_is_detected():
    sim = small_simulator(toy_model(), 4 * POINTS, dt=2e-3)
    q, qd, u = (x[:4] for x in zoo_states(sim))
    assert_agreement(directional_errors(sim, q, qd, u, names=["mass", "com"]))
    found = directional_errors(OffByALittle(sim), q, qd, u, names=["mass", "com"])
    assert found["mass"].error.amax(1).min() > 9e-6 and found["com"].error.max() < TOLERANCE
    with pytest.raises(AssertionError, match="mass"):
        assert_agreement(found)


def test_zoo_gives_every_parameter_a_value():
    """What a parameter does to the gradients of other inputs shows only where it is not zero."""
    given = zoo_simulator().params
    idle = [name for name in given if name not in ELSEWHERE and not bool(given[name].any())]
    assert not idle, f"give {idle} a value other than zero in zoo_model of tests/helpers/gradient_zoo.py"


def test_quotients_are_doubtful_at_a_kink_and_only_there():
    h = torch.tensor(STEPS, dtype=torch.float64)
    points = torch.stack([h, -h], 1)[..., None]

    def sampled(f):
        slope, doubt = quotients(f(points) - f(torch.zeros(1, dtype=h.dtype)))
        return slope.item(), doubt.item()

    slope, doubt = sampled(lambda x: torch.exp(3 * x) + 100)
    assert doubt < 1e-7 and slope == pytest.approx(3.0, abs=1e-7)
    for place in (0.0, 1e-7, -1e-9):  # closer than the steps, or exactly here
        assert sampled(lambda x, place=place: x + 1e-3 * (x - place).abs())[1] > 1e-5
    slope, doubt = sampled(lambda x: x + (x - 1e-4).abs())  # shorter steps do not reach it
    assert doubt < 1e-7 and slope == pytest.approx(0.0, abs=1e-7)


# -- the zoo: all features in one model


SOLVERS = [
    (50, "cone", 0.2),
    (50, "pyramid", 0.2),
    (4, "cone", 0.2),
    (4, "pyramid", 0.2),
    (50, "cone", 0.002),
    (4, "pyramid", 0.002),
]


@pytest.mark.parametrize(("iterations", "friction", "erp"), SOLVERS)
def test_gradient_of_a_step_matches_differences_for_every_input(iterations, friction, erp):
    """With 4 sweeps the solver is far from converged, and the gradient is that of the 4 sweeps.

    With erp 0.2 overlaps are pushed apart so fast that hardly any contact or limit bounces. The effect of drives and
    dry friction is then so small that rounding hides much of it, so few of these samples are usable: 2 of
    12 of dry friction.
    """
    states, fast = 6, erp > 0.1
    options = {"max_push_speed": 20.0} if fast else {}  # with the default all limits would be at the cap
    sim = zoo_simulator(states * 2 * POINTS, iterations=iterations, friction=friction, erp=erp, **options)
    q, qd, u = (x[:states] for x in zoo_states(sim))
    effective = [name for name in EVERYTHING if not (fast and name in ("restitution", "limit_restitution"))]
    assert_agreement(directional_errors(sim, q, qd, u), effective, least=0.15 if fast else 0.8)


def test_gradient_of_a_rollout_matches_differences_for_every_input():
    """Bodies that fly, collide, push and slide for 6 steps of 2 ms, two per control."""
    states = 8
    sim = zoo_simulator(states * POINTS, erp=0.02)
    q, qd, u = (x[:states] for x in zoo_states(sim, seed=1))
    found = directional_errors(sim, q, qd, u, steps=3, directions=1, substeps=2, checkpoint_every=2)
    assert_agreement(found, EVERYTHING)


# -- random trees up to the size of Laikago, whose kernels they share


@cache
def random_tree(seed, ground):
    """Random trees with joints and drives of all types, and four balls above a plane."""
    rng = np.random.default_rng(seed)
    bodies, drives, depth, dofs = [], [], [], 0
    for k in range(rng.integers(2, 13)):
        parent = int(rng.integers(-1, k)) if k else WORLD
        kind = JointType(rng.choice([HINGE, SLIDER, BALL] + [FREE] * 2 * (parent == WORLD)))
        deep = (0 if parent == WORLD else depth[parent]) + (0 if kind == FREE else NV[kind])
        if dofs + NV[kind] > 24 or deep > 8:
            break
        dofs += NV[kind]
        depth.append(deep)
        one_dof, mass = kind in (HINGE, SLIDER), rng.uniform(0.3, 2.0)
        limited = one_dof and rng.random() < 0.5
        bodies.append(
            Body(
                f"body{k}", parent, f"joint{k}", kind, pos=rng.normal(size=3) * 0.2, quat=unit(rng, 4),
                axis=unit(rng, 3), mass=mass, com=rng.normal(size=3) * 0.1, inertia=random_inertia(rng, mass),
                armature=rng.uniform(0.0, 0.1), damping=rng.uniform(0.0, 0.5),
                stiffness=rng.uniform(1, 10) if one_dof else 0.0, frictionloss=0.2 if one_dof and k % 3 == 0 else 0.0,
                lower=-0.2 if limited else -np.inf, upper=0.2 if limited else np.inf,
            )
        )  # fmt: skip
        if one_dof:
            drive = DriveType(rng.choice([DriveType.POSITION, DriveType.VELOCITY, DriveType.TORQUE]))
            drives.append(Drive(f"joint{k}", drive, kp=rng.uniform(10, 60), kd=rng.uniform(1, 5), effort=4.0))
    shapes = [
        Shape(ShapeType.SPHERE, int(link), np.array([rng.uniform(0.1, 0.25)]), rng.normal(size=3) * 0.1)
        for link in rng.integers(0, len(bodies), size=4)
    ]
    plane = Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.array([0, 0, ground]), np.array([0.1, -0.2, 0.3, 1.0]))
    pairs = [(k, len(shapes), rng.uniform(0.1, 1.0), rng.uniform(0.0, 0.8)) for k in range(len(shapes))]
    return assemble(f"tree{seed}", bodies, [*shapes, plane], drives, pairs=pairs)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ground", [-50.0, 0.0], ids=["in the air", "on a plane"])
def test_gradient_matches_differences_for_random_trees(seed, ground):
    """With 10 sweeps only: if converged to rounding, some trees jam with friction at the edge of the cone but without
    slip, and rounding then decides in every sweep on which side of the edge the gradient is taken.
    """
    states = 6
    sim = small_simulator(random_tree(seed, ground), states * 2 * POINTS, dt=2e-3, erp=0.02, iterations=10)
    q, qd, u = zoo_states(sim, seed)
    touching = int(sim.contacts(q, qd, u).active[:states].sum())
    assert touching >= states if ground == 0.0 else touching == 0
    found = directional_errors(sim, *(x[:states] for x in (q, qd, u)))
    assert_agreement(found, ["q", "qd", "mass", "inertia", *(["friction", "shape_size"] if touching else [])])
