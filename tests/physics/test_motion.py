"""Motion over time: MuJoCo trajectories, conserved quantities, closed forms of joint forces.

Exact closed forms are compared at 1e-12 in float64: a few dozen rounding errors of numbers near one.
"""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from mjcf_oracle import ASSETS, load, our_q, velocity_map, write
from small_models import DT, INERTIA, hinge, simulator

import warp_articulated as wa
from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.importers.urdf import load_urdf
from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, assemble


def free_body(com=(0.0, 0.0, 0.0)):
    body = Body("stone", WORLD, "root", JointType.FREE, mass=2.0, com=np.array(com), inertia=np.diag([0.1, 0.2, 0.25]))
    return assemble("stone", [body], gravity=(0.0, 0.0, 0.0))


def column(*values):
    """One number per environment, as a state or control of size one."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def run(sim, q, qd, steps, u=None):
    """Trajectories (steps + 1, num_envs, n), as numpy, with the control held."""
    u = sim.initial_control() if u is None else u
    qs, qds = sim.rollout(q, qd, u.expand(steps, *u.shape).contiguous())
    return qs.numpy(), qds.numpy()


# -- MuJoCo trajectories; its Euler integrator is like ours: semi-implicit, implicit joint damping, exact rotations


def mujoco_trajectory(m, qpos, qvel, forces):
    """q and qd (steps + 1, n), in our convention, of a MuJoCo run without constraints; forces: joints (steps, nv)."""
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_ACTUATION
    data = mujoco.MjData(m)
    data.qpos[:], data.qvel[:] = qpos, qvel
    states = []
    for force in [*forces, np.zeros(m.nv)]:
        states.append((our_q(m, data.qpos), velocity_map(m, data.qpos).T @ data.qvel))
        data.qfrc_applied[:] = force
        mujoco.mj_step(m, data)
    return map(np.array, zip(*states))


def test_ant_in_the_air_matches_mujoco():
    model, m = load(ASSETS / "ant.xml")
    no_pairs = {key: getattr(model, key)[:0] for key in ("pairs", "pair_friction", "pair_restitution")}
    free = np.full(model.nv, np.inf)
    model = replace(model, lower=-free, upper=free, **no_pairs)
    rng = np.random.default_rng(0)
    steps, dt = 300, 0.005
    m.opt.timestep = dt
    m.opt.density = m.opt.viscosity = 0.0
    qpos, qvel = m.qpos0.copy(), rng.normal(size=m.nv)
    mujoco.mj_integratePos(m, qpos, rng.normal(size=m.nv), 0.5)
    u = rng.uniform(-0.3, 0.3, size=(steps, model.nu))
    forces = np.zeros((steps, m.nv))
    forces[:, model.drive_dof] = model.gear * u
    theirs_q, theirs_qd = mujoco_trajectory(m, qpos, qvel, forces)
    sim = simulator(model, dt=dt)
    start = [torch.as_tensor(x[:1]) for x in (theirs_q, theirs_qd)]
    qs, qds = sim.rollout(*start, torch.as_tensor(u)[:, None])
    moved = np.ptp(theirs_q, axis=0)
    assert moved[3:7].max() > 0.3 and moved[7:].min() > 0.3  # it rotates and every joint bends while it falls
    # the same scheme, so only rounding differs: 4e-15 after 300 steps. Armature and damping keep it from growing;
    # a change of 1e-8 in damping, armature or one inertia gives a difference of 1e-8 here
    np.testing.assert_allclose(same_sign(model, qs[:, 0].numpy(), theirs_q), theirs_q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(qds[:, 0].numpy(), theirs_qd, rtol=0, atol=1e-12)


def same_sign(model, q, like):
    """q with the quaternion signs of `like`."""
    q = q.copy()
    for i in range(model.num_links):
        kind, at = model.joint_type[i], model.q_start[i]
        if kind in (JointType.FREE, JointType.SPHERICAL):
            part = slice(at + 3 * (kind == JointType.FREE), at + 4 + 3 * (kind == JointType.FREE))
            q[:, part] *= np.sign(np.sum(q[:, part] * like[:, part], axis=1, keepdims=True))
    return q


BALL_URDF = """<robot name="ball">
  <link name="base"/>
  <link name="bob"><inertial><origin xyz="0.1 0 -0.4"/><mass value="1.5"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.04" ixy="0.002" ixz="0.001" iyz="-0.003"/></inertial></link>
  <joint name="socket" type="spherical"><origin xyz="0.1 0.2 0.3" rpy="0.3 -0.4 0.5"/>
    <parent link="base"/><child link="bob"/><dynamics damping="0.05"/></joint>
</robot>"""
BALL_MJCF = """<compiler angle="radian" eulerseq="XYZ"/><worldbody>
  <body name="bob" pos="0.1 0.2 0.3" euler="0.3 -0.4 0.5"><joint name="socket" type="ball" damping="0.05"/>
    <inertial pos="0.1 0 -0.4" mass="1.5" fullinertia="0.02 0.03 0.04 0.002 0.001 -0.003"/></body></worldbody>"""


def test_pendulum_on_a_ball_joint_matches_mujoco(tmp_path):
    (tmp_path / "ball.urdf").write_text(BALL_URDF)
    model = load_urdf(tmp_path / "ball.urdf")
    m = mujoco.MjModel.from_xml_path(str(write(tmp_path, BALL_MJCF)))
    steps, dt = 500, 0.002
    m.opt.timestep = dt
    rng = np.random.default_rng(1)
    theirs_q, theirs_qd = mujoco_trajectory(m, m.qpos0, 3.0 * rng.normal(size=3), np.zeros((steps, 3)))
    sim = simulator(model, dt=dt)
    assert model.nu == 0
    qs, qds = run(sim, torch.as_tensor(theirs_q[:1]), torch.as_tensor(theirs_qd[:1]), steps)
    # the same scheme again: rounding of 500 steps, measured 9e-15. MuJoCo's default gravity is the same as ours
    np.testing.assert_allclose(same_sign(model, qs[:, 0], theirs_q), theirs_q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(qds[:, 0], theirs_qd, rtol=0, atol=1e-12)


# -- conserved quantities


def energy(sim, qs, qds):
    """Energy of every state of environment 0, J."""
    model, energies = sim.model, []
    for q, qd in zip(qs[:, 0], qds[:, 0]):
        M = sim.mass_matrix(torch.as_tensor(q)[None])[0].numpy()
        rotation, origin = link_transforms(model, q)
        coms = origin + np.einsum("nij,nj->ni", rotation, model.com)
        energies.append(qd @ M @ qd / 2 - model.mass @ coms @ model.gravity)
    return np.array(energies)


def undamped(name):
    model = wa.load(name)
    return replace(model, damping=np.zeros(model.nv))


def test_energy_error_of_a_double_pendulum_is_first_order():
    errors = []
    for dt in (2e-3, 1e-3, 5e-4):
        sim = simulator(undamped("double_pendulum"), dt=dt)
        qs, qds = run(sim, *sim.initial_state(), round(1.0 / dt))
        energies = energy(sim, qs[:: round(0.02 / dt)], qds[:: round(0.02 / dt)])
        errors.append(np.abs(energies - energies[0]).max())
    # halving dt halves the error, up to higher orders
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2.0, rtol=0.1)


def test_energy_of_a_pendulum_oscillates_but_does_not_drift():
    """Its inertia is constant, so semi-implicit Euler is symplectic; with more joints only the order holds."""
    sim = simulator(undamped("pendulum1"), dt=2e-3)
    qs, qds = run(sim, *sim.initial_state(), 20_000)
    error = np.abs(energy(sim, qs[::10], qds[::10]) - energy(sim, qs[:1], qds[:1]))
    assert 0 < error[1000:].max() < 1.01 * error[:1000].max()


def momenta(model, qs, qds):
    """Linear momentum and angular momentum about the com of a free body, in world axes, (steps + 1, 3) each."""
    linear, angular = [], []
    for q, qd in zip(qs[:, 0], qds[:, 0]):
        R, _ = link_transforms(model, q)
        linear.append(model.mass[0] * (qd[:3] + np.cross(qd[3:], R[0] @ model.com[0])))
        angular.append(R[0] @ model.inertia[0] @ R[0].T @ qd[3:])
    return np.array(linear), np.array(angular)


def spin(model, dt):
    sim = simulator(model, dt=dt)
    q, qd = sim.initial_state()
    qd[:] = torch.tensor([0.3, -0.2, 0.1, 2.0, 1.0, 3.0])
    return momenta(model, *run(sim, q, qd, round(1.0 / dt)))


def test_free_body_conserves_linear_momentum_exactly_and_angular_momentum_to_first_order():
    errors = []
    for dt in (4e-3, 2e-3, 1e-3):
        linear, angular = spin(free_body(), dt)
        np.testing.assert_allclose(linear, linear[:1].repeat(len(linear), 0), rtol=0, atol=1e-14)
        errors.append(np.abs(angular - angular[0]).max())
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2.0, rtol=0.1)
    assert errors[-1] < 0.01 * np.abs(angular[0]).max()


def test_both_momentum_errors_are_first_order_if_the_com_is_not_the_origin():
    errors = []
    for dt in (4e-3, 2e-3, 1e-3):
        both = spin(free_body(com=(0.1, -0.05, 0.2)), dt)
        errors.append([np.abs(p - p[0]).max() for p in both])
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 2.0, rtol=0.1)


# -- joint forces against the closed form of one implicit step of a hinge


Q, QD = np.array([-0.7, 0.0, 0.4, 1.9]), np.array([0.5, -2.0, 30.0, 0.0])


def one_step(model, u=None):
    sim = simulator(model, len(Q))
    u = None if u is None else column(*u)
    q, qd = sim.step(column(*Q), column(*QD), u)
    np.testing.assert_allclose(q[:, 0], Q + DT * qd[:, 0].numpy(), rtol=1e-12)
    return qd[:, 0].numpy()


def test_springs_dampers_and_armature_act_implicitly():
    k, d, a, ref = 40.0, 3.0, 0.2, 0.3
    model = hinge(stiffness=k, damping=d, armature=a, spring_ref=ref)
    # (I + a) (v - qd) / h = -k (q + h v - ref) - d v
    expected = ((INERTIA + a) * QD - DT * k * (Q - ref)) / (INERTIA + a + DT * d + DT**2 * k)
    np.testing.assert_allclose(one_step(model), expected, rtol=1e-12)


@pytest.mark.parametrize("effort", [np.inf, 5.0])
@pytest.mark.parametrize("kind", [DriveType.POSITION, DriveType.VELOCITY])
def test_drives_act_implicitly_and_within_their_effort(kind, effort):
    kp, kd, gear = 60.0, 4.0, 2.0
    u = np.array([0.3, -1.0, 0.1, 0.95])
    model = hinge(Drive("hinge", kind, kp=kp, kd=kd, gear=gear, effort=effort))
    if kind == DriveType.VELOCITY:
        tau = INERTIA * kd * (gear * u - QD) / (INERTIA + DT * kd)
    else:
        tau = INERTIA * (kp * (gear * u - Q - DT * QD) - kd * QD) / (INERTIA + DT * kd + DT**2 * kp)
    saturated = np.abs(tau) > effort
    assert saturated.any() == np.isfinite(effort) and not saturated.all()
    expected = QD + DT / INERTIA * np.clip(tau, -effort, effort)
    np.testing.assert_allclose(one_step(model, u), expected, rtol=1e-10, atol=1e-12)


def test_torque_drive_is_clipped_to_its_effort():
    u = np.array([0.1, -3.0, 3.0, 0.0])
    model = hinge(Drive("hinge", gear=10.0, effort=7.0))
    np.testing.assert_allclose(one_step(model, u), QD + DT / INERTIA * np.clip(10 * u, -7, 7), rtol=1e-12, atol=1e-14)


def test_velocity_drive_reaches_its_speed():
    sim = simulator(hinge(Drive("hinge", DriveType.VELOCITY, kd=50.0)))
    _, qds = run(sim, *sim.initial_state(), 100, column(3.0))
    np.testing.assert_allclose(qds[-1], 3.0, rtol=1e-9)


def test_drives_with_very_high_gains_are_stable():
    robot = wa.load("double_pendulum")
    drives = [Drive(name, DriveType.POSITION, kp=1e9, kd=1e3) for name in robot.joint_names]
    model = replace(
        robot, drive_dof=np.arange(2), drive_type=np.full(2, int(DriveType.POSITION)), gear=np.ones(2),
        kp=np.array([d.kp for d in drives]), kd=np.array([d.kd for d in drives]), effort=np.full(2, np.inf),
        control_range=np.tile([-np.inf, np.inf], (2, 1)), drive_names=robot.joint_names, u0=np.zeros(2),
    )  # fmt: skip
    sim = simulator(model, dt=DT)
    target = torch.tensor([[0.5, -1.0]], dtype=torch.float64)
    qs, _ = run(sim, *sim.initial_state(), 200, target)
    # the weight of the rods, 15 N m, bends a drive of 1e9 N m/rad by 1.5e-8 rad
    np.testing.assert_allclose(qs[-1], target, rtol=0, atol=1e-7)
    assert np.abs(qs).max() < 1.3


def test_joint_limit_stops_a_falling_pendulum():
    limit, dt = 0.5, 1e-3
    model = hinge(gravity=(0.0, 0.0, -9.81), com=(0.4, 0.0, 0.0), upper=limit, lower=-10.0)
    sim = simulator(model, dt=dt)
    qs, qds = run(sim, *sim.initial_state(), 3000)
    q, qd = qs[:, 0, 0], qds[:, 0, 0]
    assert q[100] > 0.01  # it fell
    # at most one step at the highest speed beyond the limit, because it is detected only then
    assert limit < q.max() < limit + 1.01 * dt * qd.max()
    assert abs(q[-1] - limit) < 1e-5 and abs(qd[-1]) < 1e-5


def test_dry_friction_holds_a_joint_below_its_breakaway_torque():
    loss = 2.0
    model = hinge(Drive("hinge"), frictionloss=loss)
    sim = simulator(model, 4)
    q, qd = sim.initial_state()
    tau = np.array([0.9, -0.99, 1.5, -4.0]) * loss
    qs, qds = run(sim, q, qd, 50, column(*tau))
    speed = 50 * DT / INERTIA * (tau - np.clip(tau, -loss, loss))
    np.testing.assert_allclose(qds[-1, :, 0], speed, rtol=0, atol=1e-12)
    np.testing.assert_allclose(qs[-1, :2, 0], 0.0, atol=1e-14)


def test_dry_friction_decelerates_a_joint_uniformly_and_stops_it():
    loss = 2.0
    sim = simulator(hinge(frictionloss=loss), 2)
    q, _ = sim.initial_state()
    _, qds = run(sim, q, column(1.0, -1.5), 60)
    steps = np.arange(61)[:, None]
    start = np.array([1.0, -1.5])
    expected = np.sign(start) * np.maximum(np.abs(start) - steps * DT * loss / INERTIA, 0.0)
    np.testing.assert_allclose(qds[:, :, 0], expected, rtol=0, atol=1e-12)
