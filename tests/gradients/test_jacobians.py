"""Dense Jacobians of a step against Pinocchio's analytical derivatives, finite differences through contact, and
torch's backward pass."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
import torch
from robots import SCENES, PinocchioRobot, random_q, scene_in_pinocchio

import warp_articulated as wa

DT = 1e-3
STATES = 6


def skew(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def pinocchio_derivatives(robot, q, qd, tau):
    """d(qdd)/dq, d(qdd)/dqd, d(qdd)/dtau in our conventions, from Pinocchio's computeABADerivatives.

    With a free root, Pinocchio's v is R^T qd, its tangent of q is R^T times ours, its force is R^T tau, and
    qdd = R a + (w x v; 0); the chain rule gives the extra terms.
    """
    s = robot.state(q, qd)
    T = s.T
    force = np.linalg.solve(T.T, tau)
    pin.computeABADerivatives(robot.pin, robot.data, s.q, s.v, force)
    by_q, by_v, by_tau = robot.data.ddq_dq.copy(), robot.data.ddq_dv.copy(), np.triu(robot.data.Minv)
    by_tau = by_tau + np.triu(by_tau, 1).T
    back = np.linalg.inv(T)
    if robot.model.joint_type[0] != 0:
        return back @ by_q @ T, back @ by_v @ T, back @ by_tau @ back.T
    n = robot.model.nv
    v, w = qd[:3], qd[3:6]
    a = back @ robot.data.ddq
    turn = [np.zeros((n, n)) for _ in range(3)]  # derivatives of T qd, T^-T tau and T^-1 a by a rotation (columns 3:6)
    for rows in (slice(0, 3), slice(3, 6)):
        turn[0][rows, 3:6] = T[rows, rows] @ skew(qd[rows])
        turn[1][rows, 3:6] = T[rows, rows] @ skew(tau[rows])
        turn[2][rows, 3:6] = -skew(a[rows])
    product = np.zeros((n, n))  # d(w x v)/dqd
    product[:3, :3], product[:3, 3:6] = skew(w), -skew(v)
    dq = turn[2] + back @ (by_q @ T + by_v @ turn[0] + by_tau @ turn[1])
    return dq, back @ by_v @ T + product, back @ by_tau @ back.T


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def states(model, seed=0):
    rng = np.random.default_rng(seed)
    q = np.array([random_q(model, rng) for _ in range(STATES)])
    return q, rng.normal(size=(STATES, model.nv))


def without_joint_forces(sim):
    """Parameters for which v+ = v + dt FD(q, v, tau) exactly: no implicit forces, and only tau acts."""
    names = ("armature", "damping", "stiffness", "kp", "kd")
    free = {"lower": -torch.inf, "upper": torch.inf}
    values = {name: torch.zeros_like(sim.params[name]) for name in names}
    return values | {name: torch.full_like(sim.params[name], x) for name, x in free.items()}


def test_jacobians_of_an_arm_match_pinocchio():
    model = wa.load(SCENES / "panda.urdf")
    none = {"pairs": np.zeros((0, 2), int), "pair_friction": np.zeros(0), "pair_restitution": np.zeros(0)}
    model = replace(model, **none)  # at random angles it would collide with itself
    robot = PinocchioRobot(model, SCENES / "panda.urdf", floating=False)
    sim = wa.Simulator(model, STATES, device="cpu", dtype="float64", dt=DT)
    q, qd = states(model)
    u = np.random.default_rng(1).normal(size=(STATES, model.nu))
    params = without_joint_forces(sim) | {"effort_limit": torch.full_like(sim.params["effort_limit"], torch.inf)}
    A, B = sim.jacobians(*map(torch.from_numpy, (q, qd, u)), params=params)
    n = model.nv
    for env in range(STATES):
        tau = np.zeros(n)
        tau[model.drive_dof] = model.gear * u[env]
        dq, dqd, dtau = pinocchio_derivatives(robot, q[env], qd[env], tau)
        # both are float64 recursions over nine links: 1e-8 leaves room for ill-conditioned poses (measured 1e-11)
        assert relative((A[env, n:, :n]).numpy() / DT, dq) < 1e-8
        assert relative((A[env, n:, n:].numpy() - np.eye(n)) / DT, dqd) < 1e-8
        assert relative(B[env, n:].numpy() / DT, dtau[:, model.drive_dof] * model.gear) < 1e-8
        assert relative(A[env, :n].numpy(), np.hstack([np.eye(n), np.zeros((n, n))]) + DT * A[env, n:].numpy()) < 1e-14


@pytest.fixture(scope="module")
def laikago():
    return wa.Simulator(wa.load("laikago_feet"), STATES, device="cpu", dtype="float64", dt=DT)


def test_jacobians_of_a_flying_robot_match_pinocchio(laikago):
    model, n = laikago.model, laikago.model.nv
    (robot,) = scene_in_pinocchio(model)
    q, qd = states(model)
    q[:, 2] += 10.0
    u = laikago.initial_control()
    A, _ = laikago.jacobians(torch.from_numpy(q), torch.from_numpy(qd), u, params=without_joint_forces(laikago))
    for env in range(STATES):
        dq, dqd, _ = pinocchio_derivatives(robot, q[env], qd[env], np.zeros(n))
        assert relative(A[env, n:, :n].numpy() / DT, dq) < 1e-8
        assert relative((A[env, n:, n:].numpy() - np.eye(n)) / DT, dqd) < 1e-8


def standing(sim, seed=0):
    """Disturbed robots on their feet, some with sliding feet."""
    gen = torch.Generator().manual_seed(seed)
    q, qd = sim.initial_state()
    q = wa.retract(sim.model, q, 0.02 * torch.randn(qd.shape, generator=gen, dtype=q.dtype))
    q[:, 2] = sim.model.q0[2] - 0.02
    qd = 0.5 * torch.randn(qd.shape, generator=gen, dtype=q.dtype)
    u = sim.initial_control() + 0.1 * torch.randn(sim.num_envs, sim.model.nu, generator=gen, dtype=q.dtype)
    return q, qd, u


def test_jacobians_through_contact_match_differences(laikago):
    model, n, h = laikago.model, laikago.model.nv, 1e-7
    q, qd, u = standing(laikago)
    assert int(laikago.contacts(q, qd, u).active.sum(1).min()) >= 2
    A, B = laikago.jacobians(q, qd, u)
    gen = torch.Generator().manual_seed(5)
    for _ in range(4):
        dq, dqd = (torch.randn(qd.shape, generator=gen, dtype=q.dtype) for _ in range(2))
        du = torch.randn(u.shape, generator=gen, dtype=q.dtype)
        ends = [laikago.step(wa.retract(model, q, s * h * dq), qd + s * h * dqd, u + s * h * du) for s in (1, -1)]
        quotient = torch.cat([wa.difference(model, ends[1][0], ends[0][0]), ends[0][1] - ends[1][1]], 1) / (2 * h)
        product = (A @ torch.cat([dq, dqd], 1)[..., None] + B @ du[..., None])[..., 0]
        # rounding of the quotient: 1e-16 / 1e-7 for rates near 1, with changes near 100
        assert ((quotient - product).abs().amax(1) / quotient.abs().amax(1)).max() < 1e-7
        positions = (quotient - product)[:, :n].abs().amax(1) / quotient[:, :n].abs().amax(1)
        assert positions.max() < 1e-7


def test_jacobians_agree_with_the_backward_pass(laikago):
    q, qd, u = standing(laikago, seed=1)
    n = laikago.model.nv
    A, B = laikago.jacobians(q, qd, u)
    inputs = [qd.clone().requires_grad_(), u.clone().requires_grad_()]
    _, qd_next = laikago.step(q, *inputs)
    weights = torch.randn(qd.shape, generator=torch.Generator().manual_seed(2), dtype=q.dtype)
    by_qd, by_u = torch.autograd.grad((weights * qd_next).sum(), inputs)
    # the same sums in two different kernels
    torch.testing.assert_close((weights[:, None] @ A[:, n:, n:])[:, 0], by_qd, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close((weights[:, None] @ B[:, n:])[:, 0], by_u, rtol=1e-10, atol=1e-12)


def test_jacobians_do_not_depend_on_the_batch(laikago):
    q, qd, u = standing(laikago)
    A, B = laikago.jacobians(q, qd, u)
    one = wa.Simulator(laikago.model, 1, device="cpu", dtype="float64", dt=DT)
    A1, B1 = one.jacobians(q[2:3], qd[2:3], u[2:3])
    assert torch.equal(A[2:3], A1) and torch.equal(B[2:3], B1)


def test_jacobians_report_that_they_have_no_gradient(laikago):
    q, qd, u = standing(laikago)
    with pytest.raises(NotImplementedError, match="jacobians has no gradients"):
        laikago.jacobians(q.requires_grad_(), qd, u)
