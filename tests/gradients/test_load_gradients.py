"""Gradients through drives that push links, gravity compensation, and efforts that are not symmetric."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gradient_zoo import (
    BALL,
    FREE,
    HINGE,
    POINTS,
    SLIDER,
    assert_agreement,
    directional_errors,
    random_inertia,
    small_simulator,
    unit,
)

from warp_articulated.model import WORLD, Body, Drive, DriveType, Shape, ShapeType, Thrust, assemble

NAMES = ["mass", "com", "gravity", "gravcomp", "inertia", "joint_pos", "joint_quat", "effort_limit"]


def machine():
    """A floating tree and a fixed one that thrusts push at turned places, one of them below its effort limit."""
    rng = np.random.default_rng(3)
    tree = {"hull": (WORLD, FREE), "arm": (0, HINGE), "hand": (1, BALL), "base": (WORLD, HINGE), "rod": (3, SLIDER)}
    bodies = [
        Body(
            name, parent, name, kind, pos=rng.normal(size=3) * 0.2, quat=unit(rng, 4), axis=unit(rng, 3), mass=1.0,
            com=rng.normal(size=3) * 0.1, inertia=random_inertia(rng, 1.0), damping=0.1, gravcomp=0.3 * k - 0.4,
        )
        for k, (name, (parent, kind)) in enumerate(tree.items())
    ]  # fmt: skip
    efforts = {0: np.inf, 2: 0.4, 4: 3.0, 1: 0.5}
    drives = [
        Drive(
            "", gear=1.5, effort=effort, name=f"jet{link}", thrust=Thrust(link, rng.normal(size=3) * 0.2, unit(rng, 6))
        )
        for link, effort in efforts.items()
    ]
    drives.insert(1, Drive("arm", gear=2.0, effort=0.6, effort_center=-0.3))
    drives.append(Drive("rod", DriveType.POSITION, kp=40.0, kd=2.0, effort=1.0, effort_center=0.5))
    drives.append(Drive("base", DriveType.VELOCITY, kd=3.0, effort=2.0, effort_center=-1.5))
    drives[0] = replace(drives[0], effort=0.5, effort_center=0.2)
    foot = Shape(ShapeType.SPHERE, 0, np.array([0.3]), name="foot")
    plane = Shape(ShapeType.PLANE, WORLD, np.zeros(0), name="plane")
    return assemble("machine", bodies, [foot, plane], drives, pairs=[(0, 1, 0.4, 0.2)])


def start(num_envs, **options):
    sim = small_simulator(machine(), num_envs * POINTS, dt=2e-3, **options)
    gen = torch.Generator().manual_seed(0)
    q, qd = (
        x[:num_envs] + 0.2 * torch.randn(x[:num_envs].shape, generator=gen, dtype=x.dtype) for x in sim.initial_state()
    )
    q[:, 2] = torch.linspace(0.28, 0.5, num_envs)  # some touch the ground
    return sim, q, qd, 0.5 * torch.randn(num_envs, sim.model.nu, generator=gen, dtype=q.dtype)


@pytest.mark.parametrize("contact_time", ["step", "impact"])
def test_thrusts_and_gravcomp_are_differentiable(contact_time):
    sim, q, qd, u = start(4, contact_time=contact_time)
    limits = sim.params["effort_limit"][0, [2, 3, 4]]
    beyond = (1.5 * u[:, [2, 3, 4]]).abs() > limits
    assert beyond.any() and not beyond.all()
    assert_agreement(directional_errors(sim, q, qd, u, 3, names=NAMES), nonzero=["u", "q", *NAMES])


def test_jacobians_have_the_thrusts():
    sim, q, qd, u = start(1)
    sim = small_simulator(sim.model, 1, dt=2e-3)
    _, B = sim.jacobians(q, qd, u)
    h, moved = 1e-6, []
    for k in range(sim.model.nu):
        move = torch.zeros_like(u)
        move[0, k] = h
        (_, more), (_, less) = (sim.step(q, qd, u + sign * move) for sign in (1, -1))
        slope = ((more - less) / (2 * h))[0]
        assert (B[0, sim.model.nv :, k] - slope).abs().max() < 1e-7 * B.abs().max()
        moved.append(bool(slope.any()))
    assert any(moved) and not all(moved)  # some are at their limits


def test_forward_and_inverse_dynamics_have_gravcomp_and_its_gradients():
    sim, q, qd, _ = start(4)
    sim = small_simulator(sim.model, 4)
    gen = torch.Generator().manual_seed(1)
    qdd, weight = torch.randn(2, *qd.shape, generator=gen, dtype=q.dtype)
    tau = sim.inverse_dynamics(q, qd, qdd)
    assert (sim.forward_dynamics(q, qd, tau) - qdd).abs().max() < 1e-10
    light = {"gravcomp": torch.zeros_like(sim.params["gravcomp"])}
    assert (sim.inverse_dynamics(q, qd, qdd, params=light) - tau).abs().max() > 0.1
    assert torch.equal(sim.mass_matrix(q, params=light), sim.mass_matrix(q))
    for query, force in ((sim.inverse_dynamics, qdd), (sim.forward_dynamics, tau)):
        for name in ("gravcomp", "mass", "com", "gravity"):
            x = sim.params[name].clone().requires_grad_()
            d = torch.randn(x.shape, generator=gen, dtype=x.dtype)

            def loss(y, query=query, force=force, name=name):
                return (weight * query(q, qd, force, params={name: y})).sum()

            gradient = (torch.autograd.grad(loss(x), x)[0] * d).sum()
            slope = (loss(x.detach() + 1e-6 * d) - loss(x.detach() - 1e-6 * d)) / 2e-6
            assert abs(gradient - slope) < 1e-7 * max(1.0, abs(slope)), name


def test_a_robot_without_gravcomp_can_get_it_by_parameters():
    model = assemble("ball", [Body("ball", WORLD, "free", FREE, mass=2.0, inertia=np.eye(3))])
    sim = small_simulator(model, 1, dt=1e-2)
    q, qd = sim.initial_state()
    share = torch.tensor(0.25, dtype=q.dtype, requires_grad=True)
    _, faster = sim.step(q, qd, params={"gravcomp": share})
    assert faster[0, 2].item() == pytest.approx(-9.81e-2 * 0.75)
    assert torch.autograd.grad(faster[0, 2], share)[0].item() == pytest.approx(9.81e-2)
