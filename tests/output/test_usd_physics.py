"""The physics of USD exports, read back with USD's parser and compared with the model."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from display_model import display_model, moving_positions
from every_joint import machine
from pxr import Sdf, Usd, UsdGeom, UsdPhysics, UsdShade
from stages import complaints, open_stage, pose_in_stage

from warp_articulated import load
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble
from warp_articulated.show.usd import export_usd

DEGREE = np.pi / 180


@pytest.fixture(scope="module")
def model():
    return machine()


@pytest.fixture(scope="module")
def positions(model):
    return moving_positions(model, 4, 2)


@pytest.fixture(scope="module")
def stage(model, positions, tmp_path_factory):
    path = tmp_path_factory.mktemp("usd") / "machine.usda"
    export_usd(path, model, positions, spacing=3.0)
    return open_stage(path)


def parsed(stage) -> dict:
    """Everything that USD's physics parser finds, by kind, as lists of (path, description)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = UsdPhysics.LoadUsdPhysicsFromRange(stage, ["/"], [])
    return {str(kind).split(".")[-1]: list(zip(*lists)) for kind, lists in found.items()}


def xyzw(quat) -> np.ndarray:
    return np.array([*quat.GetImaginary(), quat.GetReal()])


def prim_of(stage, name, env=0):
    return stage.GetPrimAtPath(f"/World/env_{env}/{name}")


def joint_of(stage, link, env=0):
    return stage.GetPrimAtPath(f"/World/env_{env}/joints/{link}_joint")


def test_stage_passes_validation_and_usds_parser_finds_everything(stage):
    assert complaints(stage) == []
    found = parsed(stage)
    assert all(description.isValid for kind in found.values() for _, description in kind)
    count = {kind: len(entries) for kind, entries in found.items()}
    assert count == {
        "Scene": 1, "RigidBody": 14, "Articulation": 4, "RevoluteJoint": 6, "PrismaticJoint": 2, "SphericalJoint": 2,
        "SphereShape": 14, "PlaneShape": 1, "RigidBodyMaterial": 2, "CollisionGroup": 3,
    }  # fmt: skip


def test_scene_has_the_models_gravity(stage, model):
    scene = UsdPhysics.Scene(stage.GetPrimAtPath("/World/physics_scene"))
    gravity = np.array(scene.GetGravityDirectionAttr().Get()) * scene.GetGravityMagnitudeAttr().Get()
    np.testing.assert_allclose(gravity, model.gravity, rtol=1e-6)


def test_bodies_have_the_models_mass_and_inertia(stage, model):
    for i, name in enumerate(model.link_names):
        mass = UsdPhysics.MassAPI(prim_of(stage, name))
        assert mass.GetMassAttr().Get() == pytest.approx(model.mass[i])
        # the prim has the file's body frame
        com = np.array(mass.GetCenterOfMassAttr().Get()) + model.frame_pos[i]
        np.testing.assert_allclose(com, model.com[i], atol=1e-6)
        axes = quat_to_matrix(xyzw(mass.GetPrincipalAxesAttr().Get()))
        inertia = axes @ np.diag(mass.GetDiagonalInertiaAttr().Get()) @ axes.T
        np.testing.assert_allclose(inertia, model.inertia[i], atol=1e-7)


def test_joint_frames_differ_only_by_the_joints_motion(stage, model, positions):
    for env in range(2):
        space = stage.GetPrimAtPath(f"/World/env_{env}")
        for i, name in enumerate(model.link_names):
            kind = model.joint_type[i]
            if kind == JointType.FREE:
                continue
            joint = UsdPhysics.Joint(joint_of(stage, name, env))
            for frame in range(4):
                R, p = joint_motion(stage, joint, frame, space)
                q = positions[frame, env, model.q_start[i] :]
                token = joint.GetPrim().GetAttribute("physics:axis").Get()
                axis = np.eye(3)["XYZ".index(token)]
                slide = q[0] * axis if kind == JointType.PRISMATIC else np.zeros(3)
                np.testing.assert_allclose(p, slide, atol=2e-6)
                if kind == JointType.REVOLUTE:
                    turn = quat_to_matrix(np.append(np.sin(q[0] / 2) * axis, np.cos(q[0] / 2)))
                elif kind == JointType.SPHERICAL:
                    turn = quat_to_matrix(q[:4])
                else:
                    turn = np.eye(3)
                np.testing.assert_allclose(R, turn, atol=2e-6)


def joint_motion(stage, joint, frame, space):
    """Rotation and translation of the joint's frame on body 1, in the frame on body 0."""
    sides = []
    for body, pos, rot in (
        (joint.GetBody0Rel(), joint.GetLocalPos0Attr(), joint.GetLocalRot0Attr()),
        (joint.GetBody1Rel(), joint.GetLocalPos1Attr(), joint.GetLocalRot1Attr()),
    ):
        R, p = pose_in_stage(stage.GetPrimAtPath(body.GetTargets()[0]), frame, space)
        sides.append((R @ quat_to_matrix(xyzw(rot.Get())), p + R @ np.array(pos.Get())))
    (R0, p0), (R1, p1) = sides
    return R0.T @ R1, R0.T @ (p1 - p0)


def test_limits_are_in_degrees_or_metres(stage):
    tower, lift, arm, rod = (joint_of(stage, name) for name in ("tower", "lift", "arm", "rod"))
    tower, rod, arm = (UsdPhysics.RevoluteJoint(j) for j in (tower, rod, arm))
    lift = UsdPhysics.PrismaticJoint(lift)
    assert tower.GetLowerLimitAttr().Get() == pytest.approx(-0.5 / DEGREE)
    assert tower.GetUpperLimitAttr().Get() == pytest.approx(1.5 / DEGREE)
    assert (lift.GetLowerLimitAttr().Get(), lift.GetUpperLimitAttr().Get()) == pytest.approx((-0.2, 0.3))
    assert (rod.GetLowerLimitAttr().Get(), arm.GetUpperLimitAttr().Get()) == (-np.inf, np.inf)
    assert rod.GetUpperLimitAttr().Get() == pytest.approx(1.0 / DEGREE)


def test_drives_give_the_models_forces(stage, model):
    """tau(q, qd) of each USD drive against the model's law: spring, damper and drive together, in SI."""
    q, qd = 0.3, -0.7
    expected = {
        "tower": 80.0 * (2.0 * 0.2 - q) - 3.0 * qd,
        "lift": 6.0 * (0.5 - qd) - 2.0 * qd,
        "arm": 5.0 * (0.4 - q),
    }
    for name, force in expected.items():
        angular = name != "lift"
        unit = DEGREE if angular else 1.0
        drive = UsdPhysics.DriveAPI(joint_of(stage, name), "angular" if angular else "linear")
        pull = drive.GetStiffnessAttr().Get() * (drive.GetTargetPositionAttr().Get() - q / unit)
        brake = drive.GetDampingAttr().Get() * (drive.GetTargetVelocityAttr().Get() - qd / unit)
        assert pull + brake == pytest.approx(force, rel=1e-5)
        assert drive.GetTypeAttr().Get() == "force"
    assert UsdPhysics.DriveAPI(joint_of(stage, "tower"), "angular").GetMaxForceAttr().Get() == 50.0
    assert UsdPhysics.DriveAPI(joint_of(stage, "lift"), "linear").GetMaxForceAttr().Get() == np.inf
    assert not joint_of(stage, "rod").HasAPI(UsdPhysics.DriveAPI)  # its drive's force is an input


def test_rotor_inertia_and_dry_friction_are_written_for_newton(stage):
    assert joint_of(stage, "arm").GetAttribute("newton:armature").Get() == pytest.approx(0.02)
    assert joint_of(stage, "rod").GetAttribute("newton:friction").Get() == pytest.approx(0.3)


def test_articulations_begin_at_the_root_body_or_at_the_joint_to_the_world(stage):
    roots = {str(p.GetPath()) for p in stage.Traverse() if p.HasAPI(UsdPhysics.ArticulationRootAPI)}
    assert roots == {f"/World/env_{e}/{at}" for e in (0, 1) for at in ("joints/tower_joint", "float")}
    for _, description in parsed(stage)["Articulation"]:
        bodies = {path.name for path in description.articulatedBodies if path}
        assert bodies - {"env_0", "env_1"} in ({"tower", "lift", "arm", "hand"}, {"float", "rod"})


def test_only_shapes_that_collide_are_colliders_and_have_a_material(stage, model):
    hand = [p for p in prim_of(stage, "hand").GetChildren()]
    assert [p.HasAPI(UsdPhysics.CollisionAPI) for p in hand] == [True, False]
    for prim in (hand[0], stage.GetPrimAtPath("/World/ground/collider")):
        material, _ = UsdShade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")
        surface = UsdPhysics.MaterialAPI(material.GetPrim())
        shape = model.shapes[3 if prim == hand[0] else 8]
        assert surface.GetStaticFrictionAttr().Get() == pytest.approx(shape.friction)
        assert surface.GetDynamicFrictionAttr().Get() == pytest.approx(shape.friction)
        assert surface.GetRestitutionAttr().Get() == pytest.approx(shape.restitution)


def colliding_pairs(stage) -> set[frozenset[str]]:
    """Pairs of colliders that filters, joints and groups of a stage allow to touch, as UsdPhysics defines them."""
    colliders = [p for p in stage.Traverse() if p.HasAPI(UsdPhysics.CollisionAPI)]
    table = UsdPhysics.CollisionGroup.ComputeCollisionGroupTable(stage)
    members = {
        g.GetPath(): UsdPhysics.CollisionGroup(g).GetCollidersCollectionAPI().ComputeMembershipQuery()
        for g in stage.Traverse() if g.IsA(UsdPhysics.CollisionGroup)
    }  # fmt: skip
    apart = set()
    for prim in stage.Traverse():
        if prim.HasAPI(UsdPhysics.FilteredPairsAPI):
            targets = UsdPhysics.FilteredPairsAPI(prim).GetFilteredPairsRel().GetTargets()
            assert all(stage.GetPrimAtPath(t) for t in targets)
            apart |= {frozenset((prim.GetPath(), t)) for t in targets}
        if prim.IsA(UsdPhysics.Joint) and not UsdPhysics.Joint(prim).GetCollisionEnabledAttr().Get():
            joint = UsdPhysics.Joint(prim)
            apart.add(frozenset((joint.GetBody0Rel().GetTargets()[0], joint.GetBody1Rel().GetTargets()[0])))
    found = set()
    for k, one in enumerate(colliders):
        for two in colliders[:k]:
            (a, body_a), (b, body_b) = ((p.GetPath(), p.GetPath().GetParentPath()) for p in (one, two))
            groups = [[g for g, query in members.items() if query.IsPathIncluded(p)] for p in (a, b)]
            if body_a == body_b or any(frozenset(pair) in apart for pair in
                                       ((a, b), (a, body_b), (body_a, b), (body_a, body_b))):  # fmt: skip
                continue
            if all(table.IsCollisionEnabled(g, h) for g in groups[0] for h in groups[1]):
                found.add(frozenset((str(a), str(b))))
    return found


def expected_pairs(model, envs) -> set[frozenset[str]]:
    count: dict[int, int] = {}
    paths = []
    for shape in model.shapes:
        j = count[shape.link] = count.get(shape.link, -1) + 1
        link = "" if shape.link == WORLD else model.link_names[shape.link].replace(" ", "_")
        paths.append("/World/ground/collider" if shape.link == WORLD else f"/World/env_%d/{link}/shape_{j}")
    return {
        frozenset(path % env if "%" in path else path for path in (paths[a], paths[b]))
        for env in range(envs)
        for a, b in model.pairs.tolist()
    }


@pytest.mark.parametrize("scene", ["machine", "laikago_feet", "display", "explicit"])
def test_exactly_the_models_pairs_may_touch(tmp_path, scene):
    if scene == "explicit":  # parent and child, one of two shapes, and not the ground
        model = replace(machine(), pairs=np.array([[0, 1], [2, 5], [3, 8]]))
    else:
        model = {"machine": machine, "display": display_model}.get(scene, lambda: load(scene))()
    export_usd(tmp_path / "run.usdc", model, np.tile(model.q0, (1, 2, 1)))
    assert colliding_pairs(open_stage(tmp_path / "run.usdc")) == expected_pairs(model, 2)


def test_links_without_mass_get_a_little_and_hulls_are_convex(tmp_path):
    inner = Body("inner", WORLD, "a", JointType.REVOLUTE, axis=np.eye(3)[0])
    outer = Body("outer", 0, "b", JointType.REVOLUTE, mass=2.0, inertia=np.eye(3))
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    model = assemble("pair", [inner, outer], [Shape(ShapeType.MESH, 1, np.zeros(0), vertices=corners)])
    export_usd(tmp_path / "run.usda", model, model.q0[None])
    stage = open_stage(tmp_path / "run.usda")
    assert complaints(stage) == []
    mass = UsdPhysics.MassAPI(prim_of(stage, "inner"))
    assert 0 < mass.GetMassAttr().Get() < 1e-5
    assert 0 < min(mass.GetDiagonalInertiaAttr().Get()) <= max(mass.GetDiagonalInertiaAttr().Get()) < 1e-8
    hull = stage.GetPrimAtPath("/World/env_0/outer/shape_0")
    assert UsdPhysics.MeshCollisionAPI(hull).GetApproximationAttr().Get() == "convexHull"


def test_slopes_are_infinite_planes_in_physics(tmp_path):
    slope = Shape(ShapeType.PLANE, WORLD, np.zeros(0), quat=np.array([0.0, 0.2, 0.0, 0.98]))
    ball = Body("ball", WORLD, "free", JointType.FREE, mass=1.0, inertia=np.eye(3))
    model = assemble("slope", [ball], [Shape(ShapeType.SPHERE, 0, np.array([0.1])), slope])
    export_usd(tmp_path / "run.usda", model, model.q0[None])
    stage = open_stage(tmp_path / "run.usda")
    collider = stage.GetPrimAtPath("/World/env_0/world/shape_0/collider")
    rotation, _ = pose_in_stage(collider, Usd.TimeCode.Default(), stage.GetDefaultPrim())
    np.testing.assert_allclose(rotation, quat_to_matrix(slope.quat), atol=1e-6)
    assert UsdGeom.Plane(collider).GetAxisAttr().Get() == "Z"
    assert len(parsed(stage)["PlaneShape"]) == 1
    assert not [p for p in stage.Traverse() if p.HasAPI(UsdPhysics.ArticulationRootAPI)]


def test_an_invisible_ground_is_still_a_collider(tmp_path):
    ground = Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.array([0.0, 0.0, -0.4]), color=(1.0, 1.0, 1.0, 0.0))
    ball = Body("ball", WORLD, "free", JointType.FREE, mass=1.0, inertia=np.eye(3))
    model = assemble("dark", [ball], [Shape(ShapeType.SPHERE, 0, np.array([0.1])), ground])
    export_usd(tmp_path / "run.usda", model, model.q0[None])
    stage = open_stage(tmp_path / "run.usda")
    assert complaints(stage) == []
    _, place = pose_in_stage(stage.GetPrimAtPath("/World/ground/collider"), 0, stage.GetDefaultPrim())
    assert place[2] == pytest.approx(-0.4)
    assert not stage.GetPrimAtPath("/World/ground/surface")


def test_tools_that_simulate_start_at_the_first_frame(stage):
    for name in ("float", "hand"):
        prim = prim_of(stage, name)
        for at in ("xformOp:translate", "xformOp:orient"):
            assert prim.GetAttribute(at).Get() == prim.GetAttribute(at).Get(0)


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
def test_without_physics_there_is_no_physics(model, tmp_path, layout):
    export_usd(tmp_path / "run.usda", model, model.q0[None], physics=False, layout=layout)
    stage = open_stage(tmp_path / "run.usda")
    assert complaints(stage) == []
    assert not any("hysics" in schema for p in stage.TraverseAll() for schema in p.GetAppliedSchemas())
    assert not stage.GetPrimAtPath(Sdf.Path("/World/physics_scene"))
