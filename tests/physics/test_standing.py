"""A robot on the ground: Laikago stands, drops, is thrown, and does so equally well 10 km from the origin."""

import mujoco
import numpy as np
import pytest
import torch
from mjcf_oracle import jacobians
from robots import SCENES

import warp_articulated as wa
from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.importers.scene_files import load_scene

G, H = 9.81, 1e-3


def toe_places(model, q):
    """Centres of the toes (4, 3)."""
    rotation, origin = link_transforms(model, np.asarray(q, float))
    toes = [shape for shape in model.shapes if shape.name.endswith("toe")]
    return np.array([origin[toe.link] + rotation[toe.link] @ toe.pos for toe in toes])


def simulate(sim, seconds, q=None, qd=None, **params):
    """States (T + 1, num_envs, n) of a rollout with the default control."""
    first = sim.initial_state()
    u = sim.initial_control()
    u = u.expand(round(seconds / sim.dt), *u.shape).contiguous()
    return sim.rollout(first[0] if q is None else q, first[1] if qd is None else qd, u, params=params)


def toe_path(model, qs):
    """Largest horizontal distance of a toe from its initial position, m."""
    places = np.array([toe_places(model, q) for q in qs[::50, 0].double().numpy()])
    return np.linalg.norm(places[..., :2] - places[0, :, :2], axis=2).max()


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scene", ["laikago", "laikago_feet"])
def test_laikago_stands_still_and_the_ground_carries_its_weight(scene, dtype, tolerance):
    model = load_scene(scene)
    sim = wa.Simulator(model, device="cpu", dtype=dtype, tolerance=tolerance)
    qs, qds = simulate(sim, 2.0, friction=1.0)
    # u0 holds q0: measured 12 um at tolerance 1e-5 (the impulse error of each step), otherwise 3 um
    assert toe_path(model, qs) < 1e-4
    assert (qs[-1] - qs[0]).abs().max() < 1e-4
    found = sim.contacts(qs[-1], qds[-1], sim.initial_control(), params={"friction": 1.0})
    weight = model.mass.sum() * G * H
    assert found.active.sum() == 4 and found.depths.max() < 1e-5
    assert found.impulses[..., 2].sum().item() == pytest.approx(weight, rel=1e-3 if dtype == "float32" else 1e-6)
    # the load on the toes is balanced: torques about the com vanish
    forces = found.impulses[found.active][:, 2].double().numpy()
    rotation, origin = link_transforms(model, qs[-1, 0].double().numpy())
    com = model.mass @ (origin + np.einsum("nij,nj->ni", rotation, model.com)) / model.mass.sum()
    arms = found.points[found.active].double().numpy() - com
    np.testing.assert_allclose(forces @ arms[:, :2], 0, atol=1e-4 * weight)
    assert found.impulses[found.active][:, :2].sum(0).abs().max() < 1e-3 * weight


@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_laikago_comes_to_rest_after_a_push(tolerance):
    """Sagging legs (the drive targets are q0) and a sideways push: it comes to rest and then does not slide."""
    model = load_scene("laikago")
    sim = wa.Simulator(model, device="cpu", tolerance=tolerance)
    q, qd = sim.initial_state()
    qd[:, :2] = torch.tensor([0.1, 0.1])
    u = torch.as_tensor(model.q0[7:].copy()).float().expand(2000, 1, 12).contiguous()
    qs, qds = sim.rollout(q, qd, u)
    assert toe_path(model, qs) < 1e-2  # the hips tilt by 5 mm; toes roll and lift
    qs, qds = sim.rollout(qs[-1], qds[-1], u)
    assert toe_path(model, qs) < 1e-4
    found = sim.contacts(qs[-1], qds[-1], u[-1])
    assert found.impulses[..., 2].sum().item() == pytest.approx(model.mass.sum() * G * H, rel=1e-3)
    assert found.depths.max() < 1e-5


def test_laikago_stands_with_low_friction():
    """Laikago also stands with friction 0.2, as in the paper: u0 balances it without pushing its legs apart."""
    model = load_scene("laikago_feet")
    sim = wa.Simulator(model, device="cpu")
    qs, _ = simulate(sim, 2.0)
    assert toe_path(model, qs) < 1e-4


def laikago_in_mujoco(model):
    """The same URDF loaded by MuJoCo, with the same ground and drives."""
    spec = mujoco.MjSpec.from_file(str(SCENES / "laikago.urdf"))
    spec.body("chassis").add_freejoint()
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    for k, joint in enumerate(model.joint_names[1:]):
        drive = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        drive.gainprm[0], drive.biasprm[1], drive.biasprm[2] = model.kp[k], -model.kp[k], -model.kd[k]
        drive.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        drive.forcerange = [-model.effort[k], model.effort[k]]
    for geom in spec.geoms:  # the robot collides with the ground only
        geom.contype, geom.conaffinity = (0, 1) if geom.name == "floor" else (1, 0)
    spec.option.timestep = H
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return spec.compile()


def test_drop_ends_in_the_same_pose_as_in_mujoco():
    model = load_scene("laikago")
    oracle = laikago_in_mujoco(model)
    assert oracle.body_mass.sum() == pytest.approx(model.mass.sum())
    data = mujoco.MjData(oracle)
    data.qpos[:] = model.q0
    data.qpos[3:7] = [1, 0, 0, 0]
    data.qpos[2] = 0.55
    data.ctrl[:] = model.u0
    for _ in range(2000):
        mujoco.mj_step(oracle, data)
    sim = wa.Simulator(model, device="cpu")
    q, _ = sim.initial_state()
    q[:, 2] = 0.55
    qs, qds = simulate(sim, 2.0, q=q)
    end = qs[-1, 0].double().numpy()
    # MuJoCo's soft contacts sink by 1 mm, and both robots slide a little on impact
    assert end[2] == pytest.approx(data.qpos[2], abs=1e-2)
    np.testing.assert_allclose(end[7:], data.qpos[7:], atol=0.05)
    assert abs(end[3:6]).max() < 0.05 and np.abs(data.qpos[4:7]).max() < 0.05
    assert qds[-1].abs().max() < 0.05
    # in the air only gravity acts
    fall = 0.55 - G * H * H * 100 * 101 / 2
    assert qs[100, 0, 2].item() == pytest.approx(fall, abs=2e-3)  # the base, while the legs extend


def test_accuracy_ten_kilometres_from_the_origin():
    """float32, with targets that move all legs. Heights, angles and rotations agree; far away x has a grid of 1 mm."""
    model = load_scene("laikago")
    sim = wa.Simulator(model, 2, device="cpu")
    q, qd = sim.initial_state()
    q[1, :2] = torch.tensor([1e4, -1e4])
    phase = torch.arange(12) * 0.7
    swing = 0.15 * torch.sin(2 * np.pi * 2.0 * H * torch.arange(1000)[:, None] + phase)
    u = (sim.initial_control()[0] + swing)[:, None].expand(1000, 2, 12).contiguous()
    qs, qds = sim.rollout(q, qd, u)
    here, there = qs[:, 0], qs[:, 1]
    assert (here[:, 7:] - here[0, 7:]).abs().max() > 0.1  # it moves
    # everything except x and y is computed relative to the base: measured bitwise equal
    np.testing.assert_allclose(there[:, 2:], here[:, 2:], rtol=0, atol=1e-5)
    np.testing.assert_allclose(qds[:, 1], qds[:, 0], rtol=0, atol=1e-3)
    # there x and y have a grid of 1 mm: a step is rounded by up to half of it, so slow motion is lost
    spacing = np.spacing(np.float32(1e4))
    moved = (there[:, :2] - there[0, :2] - here[:, :2]).abs().amax(1)
    assert spacing == pytest.approx(1e-3, rel=0.03)
    assert (moved <= spacing / 2 * torch.arange(1001) + 1e-6).all()


def throw(num_envs, steps, seed):
    """Random poses, velocities and targets over the full joint range; half of the robots start 1 cm in the ground."""
    model = load_scene("laikago")
    rng = np.random.default_rng(seed)
    low, high = model.lower[6:], model.upper[6:]
    q = np.tile(model.q0, (num_envs, 1))
    quat = rng.normal(size=(num_envs, 4))
    q[:, 3:7] = quat / np.linalg.norm(quat, axis=1, keepdims=True)
    q[:, 7:] = rng.uniform(low, high, (num_envs, 12))
    q[:, 2] = 0.0
    qd = rng.normal(size=(num_envs, model.nv)) * 2
    u = rng.uniform(low, high, (-(-steps // 10), num_envs, 12)).repeat(10, 0)[:steps]
    sim = wa.Simulator(model, num_envs, device="cpu")
    q, qd, u = (torch.tensor(a, dtype=torch.float32) for a in (q, qd, u))
    below = sim.contacts(q, qd, u[0]).depths.max(1).values  # extent of the robot below its base
    q[:, 2] = torch.where(torch.arange(num_envs) % 2 == 0, below - 0.01, below + 0.2)
    qd[:, 2] -= 3
    return sim, q, qd, u


def check_thrown(num_envs, steps, seed):
    sim, q, qd, u = throw(num_envs, steps, seed)
    touching = sim.contacts(q, qd, u[0])
    assert touching.active.any(1).float().mean() > 0.45
    assert touching.depths.max() < 0.02
    qs, qds = sim.rollout(q, qd, u, checkpoint_every=20)
    assert torch.isfinite(qs).all() and torch.isfinite(qds).all()
    assert len(sim.diverged) == 0 and sim.dropped_contacts.sum() == 0
    for k in range(1, len(qs)):
        found = sim.contacts(qs[k], qds[k], u[-1])
        # a point at 30 m/s penetrates 3 cm before a step can stop it
        assert found.depths.max() < 0.05
        assert (qs[k, :, 2] > 0.03).all()
    assert found.active.any(1).float().mean() > 0.15  # the others are in the air, thrown up by their legs
    assert (qs[..., 3:7].norm(dim=-1) - 1).abs().max() < 1e-5
    return sim, qs, qds, u


def test_thrown_robots_neither_diverge_nor_sink():
    """In all visited states, every normal impulse is positive, and friction is inside its cone or pyramid."""
    sim, qs, qds, u = check_thrown(2000, 200, seed=0)
    model = sim.model
    for friction in ("cone", "pyramid"):
        other = wa.Simulator(model, sim.num_envs, device="cpu", friction=friction)
        for k in range(0, len(qs), 5):
            found = other.contacts(qs[k], qds[k], u[-1], params={"friction": 0.7})
            x = found.impulses[found.active]
            # all normals are z, and the tangents x and y
            assert (found.normals[found.active] == torch.tensor([0.0, 0.0, 1.0])).all()
            size = x[:, :2].abs().max(1).values if friction == "pyramid" else x[:, :2].norm(dim=1)
            assert (x[:, 2] >= 0).all()
            # float32 rounding of the projection
            assert (size <= 0.7 * x[:, 2] * (1 + 1e-6) + 1e-9).all()
            assert (size > 0.69 * x[:, 2]).float().mean() > 0.2  # many slide


@pytest.mark.slow
def test_ten_thousand_thrown_robots_neither_diverge_nor_sink():
    check_thrown(10_000, 200, seed=1)


def test_solver_converges_for_a_jamming_contact():
    """Friction that presses its own contact (mu times the coupling exceeds the normal's diagonal) must converge."""
    model = load_scene("laikago")
    pose = [0.3818, -0.2597, 0.5147, -0.7465, -0.0590, -0.6589, 0.0716, 0.2886, 0.7156, -1.3572, 0.0466, 2.1269]
    pose += [-1.1535, -0.1427, 0.6930, -1.4888, -0.1447, 0.9703, -1.0554]
    rates = [1.6869, -0.5881, 0.1602, 0.9891, 5.0239, -3.0529, -1.5880, 27.0608, -29.7005, -2.9815, 11.0742, -12.2252]
    rates += [1.7140, -9.0356, 4.2061, 26.5482, 11.6609, -14.0999]
    targets = [0.3075, 3.1922, -2.0901, -0.0829, 0.4401, -1.5574, -0.0772, 0.4967, -1.3681, 0.7842, 2.0642, -1.4148]
    q, qd, u = (torch.tensor([a], dtype=torch.float64) for a in (pose, rates, targets))
    q[:, 3:7] /= q[:, 3:7].norm()
    found = [
        wa.Simulator(model, device="cpu", dtype="float64", iterations=n).contacts(q, qd, u).impulses for n in (50, 51)
    ]
    assert found[0].abs().max() > 0
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-6)


def test_u0_balances_the_weight():
    """u0 carries the weight with vertical forces at the toes: the virtual work of gravity, toes and drives is zero."""
    model = load_scene("laikago")
    rotation, _, angular, linear = jacobians(model, model.q0)
    work = np.zeros(model.nv)
    for i in range(model.num_links):
        arm = rotation[i] @ model.com[i]
        work += model.mass[i] * G * -(linear[i] + np.cross(angular[i].T, arm).T)[2]
    toes = [shape for shape in model.shapes if shape.name.endswith("toe")]
    rows = np.array([(linear[s.link] + np.cross(angular[s.link].T, rotation[s.link] @ s.pos).T)[2] for s in toes])
    forces = np.linalg.lstsq(rows[:, :6].T, -work[:6], rcond=None)[0]
    torque = -(work + rows.T @ forces)[6:]
    # u0 is written with five digits: 5e-6 rad times 300 N m/rad
    np.testing.assert_allclose(model.kp * (model.u0 - model.q0[7:]), torque, atol=2e-3)
