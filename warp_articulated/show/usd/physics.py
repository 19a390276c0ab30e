"""The model as UsdPhysics: bodies with mass, joints with limits and drives, so that other tools can simulate it.

Everything is written once, below the prototype of an environment; colliders and collision filters are in collision.py.
UsdPhysics measures angles in degrees, also in the gains of drives.
"""

from __future__ import annotations

import numpy as np
from pxr import Gf, Sdf, Usd, UsdGeom, UsdPhysics

from ...geometry.rotations import matrix_to_quat, quat_multiply, unit_quat
from ...model import WORLD, DriveType, JointType, Model
from .collision import add_colliders, may_touch
from .shapes import frame_of, prim_names, quat_to_usd, vec3

SCENE = "/World/physics_scene"
DEGREE = np.pi / 180.0
# A zero means "not given" in USD. A link without mass or inertia gets a share of the whole robot's mass so small
# that motions do not change, as a ball of this radius (m).
TINY_SHARE, TINY_RADIUS = 1e-6, 1e-2


def add_physics(stage: Usd.Stage, model: Model, root: str, link_names: list[str], shape_paths: dict[int, str]) -> None:
    """Physics schemas for the links below `root`, whose prims exist already.

    Args:
        link_names: prim names of the links.
        shape_paths: prims of the shapes, by their index in model.shapes, without the shared grounds.
    """
    _add_scene(stage, model)
    links = [f"{root}/{name}" for name in link_names]
    for i, path in enumerate(links):
        _add_body(stage.GetPrimAtPath(path), model, i)
    add_colliders(stage, model, links, shape_paths)
    joint_names = prim_names(model.joint_names)
    joints: dict[int, Usd.Prim] = {}
    for i in range(model.num_links):
        if model.joint_type[i] != JointType.FREE:
            UsdGeom.Scope.Define(stage, f"{root}/joints")
            joints[i] = _add_joint(stage, f"{root}/joints/{joint_names[model.joint_of_link[i]]}", model, root, links, i)
    _mark_articulations(stage, model, links, joints)


def _add_scene(stage: Usd.Stage, model: Model) -> None:
    scene = UsdPhysics.Scene.Define(stage, SCENE)
    magnitude = float(np.linalg.norm(model.gravity))
    scene.CreateGravityMagnitudeAttr(magnitude)
    scene.CreateGravityDirectionAttr(vec3(model.gravity / magnitude) if magnitude > 0 else Gf.Vec3f(0.0, 0.0, -1.0))


def _add_body(prim: Usd.Prim, model: Model, link: int) -> None:
    UsdPhysics.RigidBodyAPI.Apply(prim)
    mass, inertia = float(model.mass[link]), model.inertia[link]
    mass = mass if mass > 0 else TINY_SHARE * (float(model.mass.sum()) or 1.0)
    if not inertia.any():
        inertia = 0.4 * min(mass, TINY_SHARE * (float(model.mass.sum()) or 1.0)) * TINY_RADIUS**2 * np.eye(3)
    moments, axes = principal_axes(inertia)
    schema = UsdPhysics.MassAPI.Apply(prim)
    schema.CreateMassAttr(mass)
    schema.CreateCenterOfMassAttr(vec3(model.com[link] - frame_of(model, link)))
    schema.CreateDiagonalInertiaAttr(vec3(moments))
    schema.CreatePrincipalAxesAttr(quat_to_usd(axes))


def principal_axes(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal moments (3,) and the quaternion R of their axes: inertia = R diag(moments) R^T."""
    moments = np.diag(inertia)
    if np.abs(inertia - np.diag(moments)).max() <= 1e-9 * np.abs(inertia).max():
        return moments, np.array([0.0, 0.0, 0.0, 1.0])  # the link's own axes, in their order
    moments, axes = np.linalg.eigh(inertia)
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    return np.maximum(moments, 0.0), matrix_to_quat(axes)


def _add_joint(stage: Usd.Stage, path: str, model: Model, root: str, links: list[str], link: int) -> Usd.Prim:
    """The joint between a link and its parent. Its frames in both bodies coincide at q = 0."""
    kind, parent = JointType(model.joint_type[link]), int(model.parent[link])
    schema = {
        JointType.REVOLUTE: UsdPhysics.RevoluteJoint,
        JointType.PRISMATIC: UsdPhysics.PrismaticJoint,
        JointType.SPHERICAL: UsdPhysics.SphericalJoint,
    }[kind]
    joint = schema.Define(stage, path)
    # the world is the environment's place, which is not the stage's origin
    joint.CreateBody0Rel().SetTargets([root if parent == WORLD else links[parent]])
    joint.CreateBody1Rel().SetTargets([links[link]])
    token, turn = ("Z", np.array([0.0, 0.0, 0.0, 1.0])) if kind == JointType.SPHERICAL else joint_axis(model.axis[link])
    joint.CreateAxisAttr(token)
    joint.CreateLocalPos0Attr(vec3(model.joint_pos[link] - frame_of(model, parent)))
    joint.CreateLocalRot0Attr(quat_to_usd(quat_multiply(model.joint_quat[link], turn)))
    joint.CreateLocalPos1Attr(vec3(-frame_of(model, link)))
    joint.CreateLocalRot1Attr(quat_to_usd(turn))
    joint.CreateCollisionEnabledAttr(may_touch(model, parent, link))
    if kind != JointType.SPHERICAL:
        _add_limits(joint, model, link)
        _add_drive(joint.GetPrim(), model, link)
    _add_dof_extras(joint.GetPrim(), model, link)
    return joint.GetPrim()


def joint_axis(axis: np.ndarray) -> tuple[str, np.ndarray]:
    """The name of the coordinate axis nearest to a unit axis (3,), and the quaternion that turns it to the axis."""
    k = int(np.argmax(np.abs(axis)))
    start = np.eye(3)[k]
    if axis[k] < 0 and np.abs(np.delete(axis, k)).max() < 1e-9:
        return "XYZ"[k], np.append(np.eye(3)[(k + 1) % 3], 0.0)  # half a turn; the shortest one is not unique
    quat = np.append(np.cross(start, axis), 1.0 + start @ axis)
    return "XYZ"[k], unit_quat(quat)


def _add_limits(joint, model: Model, link: int) -> None:
    dof = int(model.v_start[link])
    unit = DEGREE if model.joint_type[link] == JointType.REVOLUTE else 1.0
    if np.isfinite(model.lower[dof]):
        joint.CreateLowerLimitAttr(float(model.lower[dof] / unit))
    if np.isfinite(model.upper[dof]):
        joint.CreateUpperLimitAttr(float(model.upper[dof] / unit))


def _add_drive(prim: Usd.Prim, model: Model, link: int) -> None:
    """One drive for everything that acts along the joint: its spring and damper, position and velocity drives.

    USD has one drive per joint, of force stiffness (target - q) + damping (target velocity - qd). Torque drives are
    left out: their force is an input.
    """
    dof = int(model.v_start[link])
    gains = [(model.stiffness[dof], model.damping[dof], model.spring_ref[dof], 0.0)]
    effort = 0.0
    for k in np.flatnonzero((model.drive_dof == dof) & (model.drive_type != DriveType.TORQUE)):
        position = model.drive_type[k] == DriveType.POSITION
        target = float(model.gear[k] * model.u0[k])
        gains.append((model.kp[k] if position else 0.0, model.kd[k],
                      target if position else 0.0, 0.0 if position else target))  # fmt: skip
        effort += model.effort[k]
    kp, kd = sum(g[0] for g in gains), sum(g[1] for g in gains)
    if not (kp > 0 or kd > 0):
        return
    angular = model.joint_type[link] == JointType.REVOLUTE
    unit = DEGREE if angular else 1.0
    drive = UsdPhysics.DriveAPI.Apply(prim, "angular" if angular else "linear")
    drive.CreateTypeAttr("force")
    drive.CreateStiffnessAttr(float(kp * unit))
    drive.CreateDampingAttr(float(kd * unit))
    drive.CreateTargetPositionAttr(float(sum(g[0] * g[2] for g in gains) / kp / unit) if kp > 0 else 0.0)
    drive.CreateTargetVelocityAttr(float(sum(g[1] * g[3] for g in gains) / kd / unit) if kd > 0 else 0.0)
    if len(gains) > 1 and np.isfinite(effort):
        drive.CreateMaxForceAttr(float(effort))


def _add_dof_extras(prim: Usd.Prim, model: Model, link: int) -> None:
    """Rotor inertia and dry friction, which UsdPhysics lacks, as the attributes that Newton reads."""
    dof = int(model.v_start[link])
    for name, value in (("newton:armature", model.armature[dof]), ("newton:friction", model.frictionloss[dof])):
        if value > 0:
            prim.CreateAttribute(name, Sdf.ValueTypeNames.Float, custom=True).Set(float(value))


def _mark_articulations(stage: Usd.Stage, model: Model, links: list[str], joints: dict[int, Usd.Prim]) -> None:
    """ArticulationRootAPI on the root body of a floating tree, or on the joint that connects a tree to the world.

    A free body without children is a rigid body, not an articulation.
    """
    carries = set(model.parent.tolist())
    for root in np.flatnonzero(model.parent == WORLD).tolist():
        if root in joints:
            UsdPhysics.ArticulationRootAPI.Apply(joints[root])
        elif root in carries:
            UsdPhysics.ArticulationRootAPI.Apply(stage.GetPrimAtPath(links[root]))
