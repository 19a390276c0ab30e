"""Wrenches, frames, inverse dynamics, contact forces and sensors: against Pinocchio, MuJoCo and what physics says."""

import mujoco
import numpy as np
import pinocchio as pin
import pytest
import torch
from mjcf_oracle import ASSETS, ZOO, load, our_q, random_qpos, velocity_map, write
from robots import PinocchioRobot, example_robot, pybullet_robot, random_q

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix

STATES = 10
ROBOTS = {  # whether the root is free
    pybullet_robot("kuka_iiwa/model.urdf"): False,
    pybullet_robot("franka_panda/panda.urdf"): False,
    pybullet_robot("laikago/laikago_toes_zup.urdf"): True,
    pybullet_robot("mini_cheetah/mini_cheetah.urdf"): True,
    pybullet_robot("racecar/racecar.urdf"): True,
    pybullet_robot("r2d2.urdf"): True,
    example_robot("ur5_robot"): False,
    example_robot("anymal"): True,
    example_robot("solo12"): True,
    example_robot("talos_reduced"): True,
}


def close(ours, theirs, tolerance=1e-10):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(np.abs(theirs).max(), 1.0))


@pytest.mark.parametrize("path", ROBOTS, ids=lambda path: path.stem)
def test_frames_and_inverse_dynamics_match_pinocchio(path):
    model = wa.load(path, floating=ROBOTS[path], meshes=False, mimic="ignore")
    robot = PinocchioRobot(model, path, floating=ROBOTS[path])
    robot.set_armature(model.armature)
    sim = wa.Simulator(model, STATES, device="cpu", dtype="float64")
    rng = np.random.default_rng(0)
    q = np.array([random_q(model, rng) for _ in range(STATES)])
    qd, qdd = rng.normal(size=(2, STATES, model.nv))
    names = [name for name in model.frames if robot.pin.existFrame(name)]
    assert len(names) == len(model.frames), "Pinocchio has a frame for every link of the file"
    q_, qd_ = torch.tensor(q), torch.tensor(qd)
    poses, velocities = sim.frame_poses(q_, names).numpy(), sim.frame_velocities(q_, qd_, names).numpy()
    jacobians, tau = sim.frame_jacobians(q_, names).numpy(), sim.inverse_dynamics(q_, qd_, torch.tensor(qdd)).numpy()
    for e in range(STATES):
        s = robot.state(q[e], qd[e])
        pin.forwardKinematics(robot.pin, robot.data, s.q, s.v)
        pin.updateFramePlacements(robot.pin, robot.data)
        pin.computeJointJacobians(robot.pin, robot.data, s.q)
        for k, name in enumerate(names):
            frame = robot.pin.getFrameId(name)
            place = robot.data.oMf[frame]
            close(poses[e, k, :3], place.translation)
            close(quat_to_matrix(poses[e, k, 3:]), place.rotation)
            moving = pin.getFrameVelocity(robot.pin, robot.data, frame, pin.LOCAL_WORLD_ALIGNED)
            close(velocities[e, k], moving.vector)
            J = pin.getFrameJacobian(robot.pin, robot.data, frame, pin.LOCAL_WORLD_ALIGNED)
            close(jacobians[e, k], J @ s.T)
        close(tau[e], s.T.T @ pin.rnea(robot.pin, robot.data, s.q, s.v, s.T @ qdd[e] + s.bias))


@pytest.mark.parametrize("name", ["zoo", "humanoid.xml", "walker2d.xml"])
def test_wrenches_accelerate_as_in_mujoco(name, tmp_path):
    path = ASSETS / name
    if name == "zoo":
        path = tmp_path / "zoo.xml"
        path.write_text(ZOO)
    model, m = load(path)
    bits = mujoco.mjtDisableBit
    m.opt.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION | bits.mjDSBL_SPRING | bits.mjDSBL_DAMPER
    m.opt.density = m.opt.viscosity = 0.0
    rng, data, dt = np.random.default_rng(1), mujoco.MjData(m), 1e-3
    sim = wa.Simulator(model, STATES, device="cpu", dtype="float64", dt=dt)
    qpos = np.array([random_qpos(m, rng) for _ in range(STATES)])
    q, qd = np.array([our_q(m, x) for x in qpos]), rng.normal(size=(STATES, model.nv))
    # a body of several joints is several links here, the last of which has its name and its mass
    bodies = {model.link(m.body(b).name): b for b in range(1, m.nbody) if m.body(b).name in model.link_names}
    wrench = np.zeros((STATES, model.num_links, 6))
    wrench[:, list(bodies)] = 5.0 * rng.normal(size=(STATES, len(bodies), 6))
    poses = sim.link_poses(torch.tensor(q)).numpy()
    expected = []
    for e in range(STATES):
        T = velocity_map(m, qpos[e])
        data.qpos[:], data.qvel[:] = qpos[e], T @ qd[e]
        mujoco.mj_kinematics(m, data)
        mujoco.mj_comPos(m, data)
        for link, b in bodies.items():
            # what is fixed to a body belongs to the link here, so the centre of mass is another one
            com = poses[e, link, :3] + quat_to_matrix(poses[e, link, 3:]) @ (model.com[link] - model.frame_pos[link])
            data.xfrc_applied[b] = wrench[e, link]
            data.xfrc_applied[b, 3:] += np.cross(com - data.xipos[b], wrench[e, link, :3])
        mujoco.mj_forward(m, data)
        expected.append(T.T @ data.qacc)
    nothing = dict.fromkeys(("damping", "stiffness", "frictionloss", "kp", "kd"), 0.0)
    wide = {
        "lower": np.where(np.isfinite(model.lower), -1e9, -np.inf),
        "upper": np.where(np.isfinite(model.upper), 1e9, np.inf),
    }
    params = nothing | {name: torch.tensor(value) for name, value in wide.items()}
    state, u = (torch.tensor(q), torch.tensor(qd)), torch.zeros(STATES, model.nu, dtype=sim.dtype)
    _, after = sim.step(*state, u, wrench=torch.tensor(wrench), params=params)
    free = ~sim.contacts(*state, u).active.any(1).numpy()
    assert free.sum() >= 3, "some states are free of contacts"
    close(((after.numpy() - qd) / dt)[free], np.array(expected)[free], 1e-8)


DRONE = """
<worldbody>
  <body name="drone" pos="0 0 1">
    <freejoint/>
    <geom name="hull" type="box" size="0.15 0.1 0.03" mass="0.8"/>
    <geom name="camera" type="sphere" size="0.03" pos="0.1 0 0.05" mass="0.1"/>
    <site name="rotor1" pos="0.2 0.2 0.02"/><site name="rotor2" pos="-0.2 0.2 0.02"/>
    <site name="rotor3" pos="-0.2 -0.2 0.02"/><site name="rotor4" pos="0.2 -0.2 0.02"/>
  </body>
</worldbody>
"""


def test_a_drone_with_rotors_at_sites_hovers(tmp_path):
    """Thrusts along the rotors' axes, as wrenches; found by a controller that knows poses, velocities and masses."""
    model = wa.load(write(tmp_path, DRONE))
    sim = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=2e-3)
    rotors = [name for name in model.frames if name.startswith("rotor")]
    assert len(rotors) == 4
    q, qd = sim.initial_state()
    q[:, 3:7] = torch.tensor([0.05, -0.08, 0.0, 1.0], dtype=sim.dtype)  # tilted
    weight = 9.81 * float(model.mass.sum())
    for _ in range(2000):
        pose, body = sim.frame_poses(q, rotors)[0], sim.frame_poses(q, ["drone"])[0, 0]
        up = torch.tensor(quat_to_matrix(body[3:].numpy())[:, 2])
        com = body[:3] + torch.tensor(quat_to_matrix(body[3:].numpy()) @ (model.com[0] - model.frame_pos[0]))
        arms = pose[:, :3] - com
        lift = weight + 4.0 * (1.0 - q[0, 2]) - 3.0 * qd[0, 2]
        torque = 0.6 * torch.linalg.cross(up, torch.tensor([0.0, 0.0, 1.0], dtype=sim.dtype)) - 0.12 * qd[0, 3:6]
        # four thrusts that give the lift and the two torques across the axis
        A = torch.stack([torch.ones(4, dtype=sim.dtype), *torch.linalg.cross(arms, up.expand(4, 3)).T[:2]])
        thrust = torch.linalg.lstsq(A, torch.stack([lift, torque[0], torque[1]])).solution
        force = thrust[:, None] * up
        wrench = torch.cat([force.sum(0), torch.linalg.cross(arms, force).sum(0)])[None, None]
        q, qd = sim.step(q, qd, wrench=wrench)
    tilt = 1.0 - float(quat_to_matrix(q[0, 3:7].numpy())[2, 2])
    assert abs(float(q[0, 2]) - 1.0) < 1e-3 and tilt < 1e-6  # it may drift: nothing holds its place
    assert float(qd[0, 2:5].abs().max()) < 1e-3


def test_one_wrench_for_all_steps_is_the_same_wrench_in_every_step():
    sim = wa.Simulator(wa.load("laikago_feet"), 2, device="cpu", dtype="float64")
    state, u = sim.initial_state(), sim.initial_control().expand(5, -1, -1)
    wrench = torch.randn(2, sim.model.num_links, 6, generator=torch.Generator().manual_seed(0), dtype=sim.dtype)
    held, listed = (sim.rollout(*state, u, wrench=w) for w in (wrench, wrench.expand(5, -1, -1, -1).clone()))
    stepped = state
    for _ in range(5):
        stepped = sim.step(*stepped, u[0], wrench=wrench)
    for a, b, c in zip(held, listed, stepped, strict=True):
        assert torch.equal(a, b) and torch.equal(a[-1], c)
    plain = sim.rollout(*state, u)
    zero = sim.rollout(*state, u, wrench=torch.zeros_like(wrench))
    torch.testing.assert_close(zero, plain, rtol=0, atol=1e-12)
    assert not torch.equal(held[0][-1], plain[0][-1])
    with pytest.raises(ValueError, match=r"wrench has shape .* must be \(2, 13, 6\)"):
        sim.step(*state, u[0], wrench=wrench[:, :3])
    with pytest.raises(ValueError, match="wrench has a number that is not finite"):
        sim.step(*state, u[0], wrench=wrench * float("nan"))


@pytest.fixture(scope="module")
def standing():
    """A Laikago at rest on its four feet."""
    sim = wa.Simulator(wa.load("laikago"), 1, device="cpu", dtype="float64")
    u = sim.initial_control()
    qs, qds = sim.rollout(*sim.initial_state(), u.expand(1500, -1, -1))
    return sim, qs[-1], qds[-1], u


def test_feet_carry_the_robot(standing):
    sim, q, qd, u = standing
    found = sim.contacts(q, qd, u)
    toes = [f"{leg}_toe" for leg in ("FR", "FL", "RR", "RL")]
    carried = sum(found.force_on(toe) for toe in toes)[0]
    weight = 9.81 * sim.model.mass.sum()
    np.testing.assert_allclose(carried, [0, 0, weight], atol=1e-2)
    np.testing.assert_allclose(found.force_on("ground")[0], -carried, atol=1e-9)  # the other side of every pair
    np.testing.assert_array_equal(found.force_on("FR_lower_leg"), found.force_on("FR_toe"))  # the toe is fixed to it
    assert (found.force_on("chassis") == 0).all()
    touch = wa.sensors.Touch(sim, toes)(q, qd, u)
    assert touch.shape == (1, 4, 3) and torch.equal(touch[:, 1], found.force_on("FL_toe"))
    with pytest.raises(wa.ModelError, match="no body is called 'FR_to'; the nearest names are 'FR_toe'"):
        found.force_on("FR_to")
    with pytest.raises(wa.ModelError, match="no body is called 'left foot'"):
        wa.sensors.Touch(sim, "left foot")


def test_feet_carry_what_presses_the_robot_down(standing):
    sim, q, qd, u = standing
    toes = [f"{leg}_toe" for leg in ("FR", "FL", "RR", "RL")]
    wrench = torch.zeros(1, sim.model.num_links, 6, dtype=sim.dtype)
    wrench[0, sim.model.link("chassis"), 2] = -100.0
    qs, qds = sim.rollout(q, qd, u.expand(1500, -1, -1), wrench=wrench)
    carried = wa.sensors.Touch(sim, toes)(qs[-1], qds[-1], u, wrench=wrench).sum(1)[0]
    np.testing.assert_allclose(carried, [0, 0, 9.81 * sim.model.mass.sum() + 100.0], atol=1.0)  # it still sways


def test_force_on_a_body_is_what_accelerates_it():
    """A falling pile: Newton's law for every box, whatever touches it."""
    model = wa.load("boxes3")
    sim = wa.Simulator(model, 1, device="cpu", dtype="float64")
    qs, qds = sim.rollout(*sim.initial_state(), torch.zeros(600, 1, 0, dtype=sim.dtype))
    pushed = 0
    for n in range(0, 600, 20):
        found = sim.contacts(qs[n], qds[n])
        for link, name in enumerate(model.link_names):
            at = int(model.v_start[link])
            v, after = qds[n, 0, at : at + 6], qds[n + 1, 0, at : at + 6]
            R = quat_to_matrix(qs[n, 0, model.q_start[link] + 3 : model.q_start[link] + 7].numpy())
            assert np.allclose(R @ model.com[link], 0.0)  # so that its origin's acceleration is its own
            acceleration = (after - v)[:3] / sim.dt
            force = model.mass[link] * (acceleration - torch.tensor(model.gravity))
            np.testing.assert_allclose(found.force_on(name)[0], force, atol=1e-6 * max(1.0, float(force.norm())))
            pushed += float(force.norm()) > 1.0
    assert pushed > 20


def test_imu_reads_gravity_at_rest_and_nothing_in_free_fall(standing):
    sim, q, qd, u = standing
    imu = wa.sensors.Imu(sim, "chassis")
    reading = imu(q, qd, *sim.step(q, qd, u))
    np.testing.assert_allclose(reading.accelerometer[0], [0, 0, 9.81], atol=1e-3)
    np.testing.assert_allclose(reading.gyroscope[0], 0.0, atol=1e-4)
    high = q.clone()
    high[:, 2] += 5.0
    limp = {"kp": 0.0, "kd": 0.0, "damping": 0.0}
    centre = sim.step(high, torch.zeros_like(qd), params=limp)
    toe = wa.sensors.Imu(sim, "FR_toe")(high, torch.zeros_like(qd), *centre)
    np.testing.assert_allclose(toe.accelerometer[0], 0.0, atol=1e-6)


def test_imu_of_a_spinning_body_reads_its_rate_and_the_pull_to_the_axis():
    model = wa.load("pendulum1")
    sim = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=1e-5)
    q, qd = sim.initial_state()
    qd[:] = 7.0
    frame = model.link_names[-1]
    before = q - 0.5 * sim.dt * qd  # the mean acceleration of a step is that of its middle
    reading = wa.sensors.Imu(sim, frame)(before, qd, before + sim.dt * qd, qd, params={"gravity": torch.zeros(3)})
    axis = torch.tensor(model.axis[0])
    np.testing.assert_allclose(reading.gyroscope[0], 7.0 * axis, atol=1e-9)
    arm = sim.frame_poses(q, frame)[0, 0, :3] - torch.tensor(model.joint_pos[0])
    np.testing.assert_allclose(reading.accelerometer.norm(), 49.0 * arm.norm(), rtol=1e-4, atol=1e-6)


def test_imu_knows_the_substeps_of_a_step():
    sim = wa.Simulator(wa.load("sphere"), 1, device="cpu", dtype="float64")
    q, qd = sim.initial_state()
    q[:, 2] += 5.0
    wrench = torch.zeros(1, 1, 6, dtype=sim.dtype)
    wrench[0, 0, 0] = 2.0 * sim.model.mass[0]
    after = sim.step(q, qd, wrench=wrench, substeps=4)
    reading = wa.sensors.Imu(sim, 0)(q, qd, *after, substeps=4)
    np.testing.assert_allclose(reading.accelerometer[0], [2.0, 0.0, 0.0], atol=1e-9)


def test_noise_of_an_imu_has_its_deviation_and_its_seed():
    sim = wa.Simulator(wa.load("laikago_feet"), 4096, device="cpu")
    state = sim.initial_state()
    quiet = wa.sensors.Imu(sim, "chassis")(*state, *state)
    noisy = [wa.sensors.Imu(sim, "chassis", accelerometer_noise=0.5, gyroscope_noise=0.1, seed=s) for s in (0, 0, 1)]
    first, same, other = (imu(*state, *state) for imu in noisy)
    assert torch.equal(first.gyroscope, same.gyroscope) and not torch.equal(first.gyroscope, other.gyroscope)
    assert abs(float((first.accelerometer - quiet.accelerometer).std()) - 0.5) < 0.02
    assert abs(float((first.gyroscope - quiet.gyroscope).std()) - 0.1) < 0.004
    with pytest.raises(ValueError, match="gyroscope_noise is -1"):
        wa.sensors.Imu(sim, "chassis", gyroscope_noise=-1)
    with pytest.raises(wa.ModelError, match="no frame is called 'trunk'"):
        wa.sensors.Imu(sim, "trunk")
    with pytest.raises(TypeError, match="an Imu has one frame"):
        wa.sensors.Imu(sim, ["chassis", "FR_toe"])


def test_a_robot_starts_from_a_keyframe(tmp_path):
    body = '<body name="a"><joint name="j" axis="0 1 0"/><geom size=".1" pos="1 0 0"/></body>'
    text = f"""<worldbody>{body}</worldbody>
      <actuator><position joint="j" kp="5" ctrlrange="0.5 1"/></actuator>
      <keyframe><key name="home" qpos="0.6" qvel="2" ctrl="0.7"/></keyframe>"""
    model = wa.load(write(tmp_path, text))
    sim = wa.Simulator(model, 3, device="cpu")
    q, qd = sim.initial_state("home")
    assert (
        q.dtype == torch.float32
        and torch.equal(q, torch.full((3, 1), 0.6))
        and torch.equal(qd, torch.full((3, 1), 2.0))
    )
    assert torch.equal(sim.initial_control("home"), torch.full((3, 1), 0.7))
    assert torch.equal(sim.initial_control(), torch.full((3, 1), 0.5))  # q0 is 0, which the range does not allow
    assert any("outside its control range" in note for note in model.notes)
    assert "hom" not in model.keyframes and model.keyframes.get("hom") is None
    for ask in (sim.initial_state, sim.initial_control, lambda name: model.keyframes[name]):
        with pytest.raises(wa.ModelError, match="no keyframe is called 'hom'; the nearest names are 'home'"):
            ask("hom")


def test_wrong_names_say_what_they_are_names_of():
    model = wa.load("laikago_feet")
    with pytest.raises(wa.ModelError, match="'FR_toe' is not a link; a fixed joint merged it into 'FR_lower_leg'"):
        model.link("FR_toe")
    with pytest.raises(wa.ModelError, match="no frame is called"):
        model.frame(["FR_toe"])


def test_frames_are_chosen_by_name_or_number():
    model = wa.load("laikago_feet")
    sim = wa.Simulator(model, 2, device="cpu", dtype="float64")
    q, _ = sim.initial_state()
    everything = sim.frame_poses(q)
    assert everything.shape == (2, len(model.frames), 7)
    assert torch.equal(everything[:, : model.num_links], sim.link_poses(q))
    order = ["RL_toe", "chassis", "RL_toe"]
    numbers = [model.frame(name) for name in order]
    assert torch.equal(sim.frame_poses(q, order), everything[:, numbers])
    assert torch.equal(sim.frame_poses(q, numbers), everything[:, numbers])
    assert sim.frame_poses(q, "RL_toe").shape == (2, 1, 7) and sim.frame_poses(q, []).shape == (2, 0, 7)
    assert sim.frame_jacobians(q, []).shape == (2, 0, 6, model.nv)
    for wrong in (len(model.frames), -1, 1.5, True):
        with pytest.raises(ValueError, match=r"it must be a name in model\.frames or a number from 0 to 16"):
            sim.frame_poses(q, [wrong])


def test_frames_on_the_world_do_not_move(tmp_path):
    body = '<body name="a"><joint/><geom size=".1"/></body>'
    text = f'<worldbody><site name="goal" pos="1 2 3" euler="0 0 90"/>{body}</worldbody>'
    sim = wa.Simulator(wa.load(write(tmp_path, text)), 1, device="cpu", dtype="float64")
    q, qd = sim.initial_state()
    half = 0.5**0.5
    np.testing.assert_allclose(sim.frame_poses(q, "goal")[0, 0], [1, 2, 3, 0, 0, half, half], atol=1e-12)
    assert (sim.frame_velocities(q, qd + 1.0, "goal") == 0).all() and (sim.frame_jacobians(q, "goal") == 0).all()
