"""What the MJCF tests share: the same file in MuJoCo and here, the maps between both states, a mass
matrix, and forces of drives."""

import warnings
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.mjcf import load_mjcf
from warp_articulated.model import WORLD, DriveType, JointType

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


# Every joint type, several joints with anchors and references on one body, bodies without joints on links and world.
ZOO = """
<mujoco model="zoo">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <geom density="500"/>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" pos="0 0 -1" euler="0.1 0 0"/>
    <body name="stand" pos="0.3 0.1 0.2" euler="0.2 0.4 -0.3">
      <geom name="post" type="box" size="0.1 0.1 0.1"/>
      <body name="arm" pos="0.1 -0.2 0.3" quat="0.7 0.1 -0.5 0.3">
        <joint name="slide" type="slide" axis="1 2 0" pos="0.3 0 0.1" ref="0.4" damping="0.3" range="-1 2"/>
        <joint name="hinge" type="hinge" axis="0 1 1" pos="0.1 0.2 -0.1" ref="-0.7" stiffness="3" springref="0.2"/>
        <joint name="twist" type="hinge" axis="1 0 0.2" pos="-0.2 0 0.1" ref="0.3" armature="0.2" frictionloss="0.1"/>
        <geom name="upper" type="capsule" size="0.05" fromto="0 0 0 0.4 0.1 0"/>
        <body name="plate" pos="0.2 0.1 0" euler="0 0.3 0.5">
          <geom name="disc" type="cylinder" size="0.1 0.02" pos="0 0 0.1"/>
          <body name="knob" pos="0 0 0.2">
            <inertial mass="0.4" pos="0.01 0.02 0.03" fullinertia="0.02 0.03 0.04 0.001 0.002 -0.003"/>
          </body>
          <body name="wrist" pos="0.3 0 0.1" euler="0.5 0 0">
            <joint name="ball" type="ball" pos="0.05 -0.02 0.1" armature="0.05" damping="0.2"/>
            <geom name="hand" type="box" size="0.05 0.1 0.02" pos="0.1 0 0" euler="0 0.2 0"/>
            <body name="finger" pos="0.1 0.05 0">
              <joint name="grip" type="hinge" axis="0 0 1" pos="0.02 0 0" limited="true" range="0.1 0.9"/>
              <geom name="tip" type="sphere" size="0.03" pos="0.05 0 0"/>
            </body>
          </body>
        </body>
      </body>
    </body>
    <body name="puck" pos="1 2 3" euler="0.3 0.2 0.1">
      <joint name="float" type="free" armature="0.1" damping="0.05"/>
      <geom name="puck" type="cylinder" size="0.2 0.05" pos="0.1 0 0"/>
      <body name="flag" pos="0 0 0.1">
        <joint name="flap" type="hinge" axis="0 1 0"/>
        <geom name="cloth" type="box" size="0.1 0.01 0.1" pos="0 0 0.1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def load(path: Path, **options):
    """Both sides; the swimmer's fluid is known to be missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_mjcf(path, **options), compile_quietly(path)


def compile_quietly(path: Path):
    """MuJoCo's own warnings would go to a log file in the working directory."""
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    finally:
        mujoco.set_mju_user_warning(None)


def write(folder: Path, body: str) -> Path:
    path = folder / "robot.xml"
    path.write_text(f"<mujoco>{body}</mujoco>")
    return path


def random_qpos(m, rng) -> np.ndarray:
    qpos = m.qpos0.copy()
    mujoco.mj_integratePos(m, qpos, rng.normal(size=m.nv), 1.0)
    return qpos


def our_q(m, qpos) -> np.ndarray:
    """wxyz to xyzw, in free and ball joints."""
    q = qpos.copy()
    for j in range(m.njnt):
        at = m.jnt_qposadr[j] + {0: 3, 1: 0}.get(int(m.jnt_type[j]), -1 - m.nq)
        if at >= 0:
            q[at : at + 4] = np.roll(qpos[at : at + 4], -1)
    return q


def velocity_map(m, qpos) -> np.ndarray:
    """(nv, nv): MuJoCo's qvel from our qd. Its angular velocities are in the moving frame, ours are not."""
    T = np.eye(m.nv)
    for j in range(m.njnt):
        if m.jnt_type[j] <= 1:
            q, v = m.jnt_qposadr[j] + 3 * (m.jnt_type[j] == 0), m.jnt_dofadr[j] + 3 * (m.jnt_type[j] == 0)
            T[v : v + 3, v : v + 3] = quat_to_matrix(np.roll(qpos[q : q + 4], -1)).T
    return T


def jacobians(model, q):
    """Angular and linear velocity of every link's origin per unit qd, (nl, 3, nv) each, in world axes."""
    rotation, origin = link_transforms(model, q)
    angular, linear = np.zeros((2, model.num_links, 3, model.nv))
    for i in range(model.num_links):
        parent, v = model.parent[i], model.v_start[i]
        kind, R, p = JointType(model.joint_type[i]), np.eye(3), np.zeros(3)
        if parent != WORLD:
            R, p = rotation[parent], origin[parent]
            arm = origin[i] - p
            angular[i] = angular[parent]
            linear[i] = linear[parent] + np.cross(angular[parent].T, arm).T
        joint = R @ quat_to_matrix(model.joint_quat[i])
        if kind == JointType.FREE:
            linear[i][:, v : v + 3] = angular[i][:, v + 3 : v + 6] = np.eye(3)
        elif kind == JointType.SPHERICAL:
            angular[i][:, v : v + 3] = joint
        else:
            (angular if kind == JointType.REVOLUTE else linear)[i][:, v] = joint @ model.axis[i]
    return rotation, origin, angular, linear


def mass_matrix(model, q) -> np.ndarray:
    """Sum of m Jv^T Jv + Jw^T I Jw over all links, and the armature."""
    rotation, _, angular, linear = jacobians(model, q)
    M = np.diag(model.armature).astype(float)
    for i in range(model.num_links):
        com = rotation[i] @ model.com[i]
        Jv = linear[i] + np.cross(angular[i].T, com).T
        M += model.mass[i] * Jv.T @ Jv + angular[i].T @ rotation[i] @ model.inertia[i] @ rotation[i].T @ angular[i]
    return M


def full_mass_matrix(m, data) -> np.ndarray:
    full = np.zeros((m.nv, m.nv))
    try:
        mujoco.mj_fullM(m, data, full)  # since 3.4
    except TypeError:
        mujoco.mj_fullM(m, full, data.qM)
    return full


def drive_forces(model, q, qd, u) -> np.ndarray:
    """The law that model.DriveType states."""
    tau = np.zeros(model.nv)
    for k, v in enumerate(model.drive_dof):
        position = q[model.q_start[np.flatnonzero(model.v_start == v)[0]]]
        target, kp, kd = model.gear[k] * u[k], model.kp[k], model.kd[k]
        force = {
            DriveType.TORQUE: target,
            DriveType.POSITION: kp * (target - position) - kd * qd[v],
            DriveType.VELOCITY: kd * (target - qd[v]),
        }[DriveType(model.drive_type[k])]
        tau[v] += np.clip(force, *(model.effort_center[k] + np.array([-1, 1]) * model.effort[k]))
    return tau
