"""Forward dynamics, mass matrix and link poses of whole batches, against Pinocchio (URDF) and MuJoCo (MJCF).

Errors are relative to the largest number in the robot's whole batch: accelerations of a light hand are a thousand times
those of the trunk, and both result from the same sums. Measured errors of forward dynamics for the robots below are at
most 5e-14 in float64 and 4e-6 in float32.
"""

import mujoco
import numpy as np
import pytest
import torch
from mjcf_oracle import ASSETS, ZOO, full_mass_matrix, load, our_q, random_qpos, velocity_map
from robots import PinocchioRobot, example_robot, pybullet_robot, random_q, scene_in_pinocchio

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import NV, JointType

STATES = 50
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}

# file: whether its root is free. Arms, quadrupeds, humanoids, wheels; ball joints in pybullet's humanoid.
ROBOTS = {
    pybullet_robot("kuka_iiwa/model.urdf"): False,
    pybullet_robot("franka_panda/panda.urdf"): False,
    pybullet_robot("xarm/xarm6_with_gripper.urdf"): False,
    pybullet_robot("a1/a1.urdf"): True,
    pybullet_robot("mini_cheetah/mini_cheetah.urdf"): True,
    pybullet_robot("laikago/laikago_toes_zup.urdf"): True,
    pybullet_robot("quadruped/minitaur.urdf"): False,
    pybullet_robot("humanoid/humanoid.urdf"): True,
    pybullet_robot("racecar/racecar.urdf"): True,
    pybullet_robot("r2d2.urdf"): True,
    example_robot("ur5_robot"): False,
    example_robot("z1"): False,
    example_robot("anymal"): True,
    example_robot("go2"): True,
    example_robot("solo12"): True,
    example_robot("icub"): False,
    example_robot("pr2"): False,
    example_robot("talos_reduced"): True,
}
WITH_ARMATURE = {"icub"}  # its file has joints of 2e-12 kg m^2, which no simulator can handle without rotor inertia
GYMNASIUM = sorted(ASSETS.glob("*.xml"))


def batch(model, dtype, own=STATES // 2):
    """q, qd, tau and armature (STATES, ...), exact in `dtype`; the first `own` states have the model's armature."""
    rng = np.random.default_rng(0)
    q = np.array([random_q(model, rng) for _ in range(STATES)])
    qd, tau = rng.normal(size=(2, STATES, model.nv))
    armature = np.tile(model.armature, (STATES, 1))
    hinges = [model.v_start[i] for i in range(model.num_links) if NV[JointType(model.joint_type[i])] == 1]
    armature[own:, hinges] += rng.uniform(0.01, 0.1, size=(STATES - own, len(hinges)))
    return [x.astype(dtype).astype(float) for x in (q, qd, 10.0 * tau, armature)]


def simulate(model, dtype, q, qd, tau, armature):
    """Our forward dynamics, mass matrices, and rotations and origins of all links, as float64."""
    sim = wa.Simulator(model, STATES, device="cpu", dtype=dtype)
    q, qd, tau = (torch.as_tensor(x).to(sim.dtype) for x in (q, qd, tau))
    params = {"armature": torch.as_tensor(armature)}
    qdd = sim.forward_dynamics(q, qd, tau, params=params)
    poses = sim.link_poses(q).double().numpy()
    rotations = np.array([[quat_to_matrix(p[3:]) for p in env] for env in poses])
    return qdd.double().numpy(), sim.mass_matrix(q, params=params).double().numpy(), rotations, poses[..., :3]


def check(ours, theirs, tolerance, what, least=0.0):
    """Assert a relative error; least: lower bound of the reference magnitude."""
    error = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), least)
    assert error < tolerance, f"{what}: relative error {error:.1e}"


def check_against_pinocchio(model, robots, dtype, tolerance=None, **options):
    tolerance = tolerance or TOLERANCE[dtype]
    q, qd, tau, armature = batch(model, dtype, **options)
    qdd, M, rotations, origins = simulate(model, dtype, q, qd, tau, armature)
    for robot in robots:
        links, dofs = list(robot.links), robot.dofs
        expected = []
        for e in range(STATES):
            robot.set_armature(armature[e])
            state = robot.state(q[e], qd[e])
            expected.append(
                (robot.forward_dynamics(state, tau[e]), robot.mass_matrix(state), *robot.link_transforms(state))
            )
        their_qdd, their_M, their_rotations, their_origins = map(np.array, zip(*expected))
        check(qdd[:, dofs], their_qdd[:, dofs], tolerance, "forward dynamics")
        check(M[:, dofs], their_M[:, dofs], tolerance, "mass matrix")  # columns of other robots are zero
        check(rotations[:, links], their_rotations, tolerance, "rotations of links")
        check(origins[:, links], their_origins, tolerance, "origins of links", least=1.0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", wa.scene_names())
def test_scenes_match_pinocchio(name, dtype):
    model = wa.load(name)
    check_against_pinocchio(model, scene_in_pinocchio(model), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("path", ROBOTS, ids=lambda path: path.stem)
def test_robots_match_pinocchio(path, dtype):
    check_robot(path, dtype, own=0 if path.stem in WITH_ARMATURE else STATES // 2)


def check_robot(path, dtype, **options):
    model = wa.load(path, floating=ROBOTS[path], meshes=False, mimic="ignore")
    check_against_pinocchio(model, [PinocchioRobot(model, path, floating=ROBOTS[path])], dtype, **options)


@pytest.fixture
def zoo(tmp_path):
    """Every joint type of MJCF, and bodies with several joints."""
    path = tmp_path / "zoo.xml"
    path.write_text(ZOO)
    return path


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("path", GYMNASIUM, ids=lambda path: path.stem)
def test_gymnasium_robots_match_mujoco(path, dtype):
    check_against_mujoco(path, dtype)


def test_every_joint_type_matches_mujoco(zoo):
    check_against_mujoco(zoo, "float64")


def test_light_finger_far_from_the_base_is_accurate_in_float32(zoo):
    # about the tree's origin instead of the link's, the articulated inertia would lose eps m r^2 / I: 1.2e-4 here
    check_against_mujoco(zoo, "float32")


def test_joint_of_almost_no_inertia_is_accurate():
    # a joint of 2e-12 kg m^2: 7e-8 measured, while Pinocchio differs by 9e-9 from a solution with 40 digits
    check_robot(example_robot("icub"), "float64", own=STATES, tolerance=2e-7)


def check_against_mujoco(path, dtype):
    """Inertia and bias forces only: all other joint forces are disabled in MuJoCo and not part of tau here."""
    tolerance = TOLERANCE[dtype]
    model, m = load(path)
    bits = mujoco.mjtDisableBit
    m.opt.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION | bits.mjDSBL_SPRING | bits.mjDSBL_DAMPER
    m.opt.density = m.opt.viscosity = 0.0
    rng = np.random.default_rng(1)
    _, qd, tau, armature = batch(model, dtype, own=STATES)
    q, expected = np.zeros((STATES, model.nq)), []
    bodies = {m.body(b).name or f"body{b}": b for b in range(1, m.nbody)}
    links = {i: bodies[name] for i, name in enumerate(model.link_names) if name in bodies}
    data = mujoco.MjData(m)
    for e in range(STATES):
        qpos = random_qpos(m, rng).astype(dtype).astype(float)
        T = velocity_map(m, qpos)  # a rotation: qvel = T qd, their acceleration is T qdd, their force T tau
        q[e] = our_q(m, qpos)
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = qpos, T @ qd[e], T @ tau[e]
        mujoco.mj_forward(m, data)
        rotations = data.xmat[list(links.values())].reshape(-1, 3, 3)
        M = T.T @ full_mass_matrix(m, data) @ T
        expected.append((T.T @ data.qacc, M, rotations, data.xpos[list(links.values())]))
    qdd, M, rotations, origins = simulate(model, dtype, q, qd, tau, armature)
    their_qdd, their_M, their_rotations, their_origins = map(np.array, zip(*expected))
    check(qdd, their_qdd, tolerance, "forward dynamics")
    check(M, their_M, tolerance, "mass matrix")
    check(rotations[:, list(links)], their_rotations, tolerance, "rotations of links")
    check(origins[:, list(links)], their_origins, tolerance, "origins of links", least=1.0)
