"""Robots that the tests share, and the same robots in Pinocchio with the maps between both states."""

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pinocchio as pin
import pybullet_data

from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.urdf import load_urdf
from warp_articulated.model import NV, JointType, Model

SCENES = Path(__file__).resolve().parents[2] / "scenes"


def pybullet_robot(name: str) -> Path:
    return Path(pybullet_data.getDataPath()) / name


def example_robot(name: str) -> Path:
    files = importlib.metadata.distribution("example-robot-data").files
    return Path(next(f for f in files if f.name == f"{name}.urdf").locate())


def pinocchio_model(path: Path, floating: bool) -> pin.Model:
    """Pinocchio's model of the same file, without shapes (its parser does not know capsules).

    Its parser does not know ball joints either: they become floating joints, whose translation stays zero.
    """
    root = ElementTree.fromstring(path.read_bytes().strip().rstrip(b"\0"))
    for link in root.iter("link"):
        for shape in [e for e in link if e.tag in ("visual", "collision")]:
            link.remove(shape)
    for joint in root.iter("joint"):
        if joint.get("type") in ("spherical", "ball"):
            joint.set("type", "floating")
    text = ElementTree.tostring(root, encoding="unicode")
    return pin.buildModelFromXML(text, pin.JointModelFreeFlyer()) if floating else pin.buildModelFromXML(text)


def random_q(model: Model, rng) -> np.ndarray:
    q = model.q0.copy()
    for i in range(model.num_links):
        kind, at = JointType(model.joint_type[i]), model.q_start[i]
        quat = rng.normal(size=4)
        quat /= np.linalg.norm(quat)
        if kind == JointType.FREE:
            q[at : at + 7] = [*rng.normal(size=3), *quat]
        elif kind == JointType.SPHERICAL:
            q[at : at + 4] = quat
        else:
            q[at] = rng.uniform(-2, 2)
    return q


@dataclass
class PinocchioState:
    """A state in Pinocchio's conventions: its v is T qd, and its acceleration is T qdd + bias."""

    q: np.ndarray
    v: np.ndarray
    T: np.ndarray  # (nv of Pinocchio, nv of the model)
    bias: np.ndarray


class PinocchioRobot:
    """One robot in Pinocchio, and which links of a model it stands for.

    A free joint's qd is in world axes here, in the axes of the moving link there; a ball joint's is in the axes of
    the joint's frame on the parent here, of the link there.
    """

    def __init__(self, model: Model, path: Path, *, floating: bool, first_link: int = 0):
        alone = load_urdf(path, floating=floating, meshes=False, mimic="ignore")
        self.model, self.pin = model, pinocchio_model(path, floating)
        self.data = self.pin.createData()
        self.links = range(first_link, first_link + alone.num_links)
        names = [alone.joint_names[k] for k in alone.joint_of_link]
        rooted = floating and alone.joint_type[0] == JointType.FREE
        self.joints = [self.pin.getJointId("root_joint" if rooted and not k else n) for k, n in enumerate(names)]
        self.dofs = np.sort(np.concatenate([self._dofs_of(i) for i in self.links]))
        assert self.pin.njoints == 1 + len(self.joints)

    def _dofs_of(self, link: int) -> np.ndarray:
        return self.model.v_start[link] + np.arange(NV[JointType(self.model.joint_type[link])])

    def state(self, q: np.ndarray, qd: np.ndarray) -> PinocchioState:
        there = pin.neutral(self.pin)
        T, bias = np.zeros((self.pin.nv, self.model.nv)), np.zeros(self.pin.nv)
        for i, joint in zip(self.links, self.joints):
            at, dofs, kind = self.model.q_start[i], self._dofs_of(i), JointType(self.model.joint_type[i])
            place, row = self.pin.joints[joint].idx_q, self.pin.joints[joint].idx_v
            if kind == JointType.FREE:
                world = pin.SE3(quat_to_matrix(q[at + 3 : at + 7]), q[at : at + 3])
                there[place : place + 7] = pin.SE3ToXYZQUAT(self.pin.jointPlacements[joint].actInv(world))
                R = world.rotation
                T[row : row + 3, dofs[:3]] = T[row + 3 : row + 6, dofs[3:]] = R.T
                bias[row : row + 3] = -R.T @ np.cross(qd[dofs[3:]], qd[dofs[:3]])
            elif kind == JointType.SPHERICAL:  # a floating joint there, see pinocchio_model
                there[place + 3 : place + 7] = q[at : at + 4]
                T[row + 3 : row + 6, dofs] = quat_to_matrix(q[at : at + 4]).T
            else:
                # Pinocchio keeps cosine and sine of a continuous joint
                wide = self.pin.joints[joint].nq == 2
                there[place : place + 1 + wide] = (np.cos(q[at]), np.sin(q[at])) if wide else q[at]
                T[row, dofs] = 1.0
        return PinocchioState(there, T @ qd, T, bias)

    def set_armature(self, armature: np.ndarray) -> None:
        """armature (nv of the model,), zero on free and ball joints."""
        for i, joint in zip(self.links, self.joints):
            if NV[JointType(self.model.joint_type[i])] == 1:
                self.pin.armature[self.pin.joints[joint].idx_v] = armature[self.model.v_start[i]]

    def mass_matrix(self, s: PinocchioState) -> np.ndarray:
        M = np.triu(pin.crba(self.pin, self.data, s.q))
        return s.T.T @ (M + np.triu(M, 1).T) @ s.T

    def forward_dynamics(self, s: PinocchioState, tau: np.ndarray) -> np.ndarray:
        """Our accelerations (nv,), zero on the dofs of other robots."""
        T, qdd = s.T[:, self.dofs], np.zeros(self.model.nv)
        if T.shape[0] == T.shape[1]:
            there = pin.aba(self.pin, self.data, s.q, s.v, np.linalg.solve(T.T, tau[self.dofs]))
            qdd[self.dofs] = np.linalg.solve(T, there - s.bias)
        else:  # the translation of ball joints is held, so their rows of the equation of motion are left out
            M = self.mass_matrix(s)[np.ix_(self.dofs, self.dofs)]
            force = pin.rnea(self.pin, self.data, s.q, s.v, s.bias)
            qdd[self.dofs] = np.linalg.solve(M, tau[self.dofs] - T.T @ force)
        return qdd

    def link_transforms(self, s: PinocchioState) -> tuple[np.ndarray, np.ndarray]:
        """World rotation (links, 3, 3) and origin (links, 3) of this robot's links."""
        pin.forwardKinematics(self.pin, self.data, s.q)
        places = [self.data.oMi[joint] for joint in self.joints]
        return np.array([p.rotation for p in places]), np.array([p.translation for p in places])


def scene_in_pinocchio(model: Model) -> list[PinocchioRobot]:
    """The robots of one of our scenes, from the files that the scene's JSON names."""
    robots, first = [], 0
    for entry in json.loads((SCENES / f"{model.name}.json").read_text())["robots"]:
        assert "pose" not in entry
        robot = PinocchioRobot(model, SCENES / entry["file"], floating=entry.get("floating", False), first_link=first)
        robots.append(robot)
        first = robot.links.stop
    assert first == model.num_links
    return robots
