"""The URDF importer against Pinocchio: inertias and forward kinematics of our robots and of well-known ones."""

import re

import numpy as np
import pinocchio as pin
import pytest
from robots import SCENES, example_robot, pinocchio_model, pybullet_robot, random_q

from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.loading import load
from warp_articulated.importers.meshes import MAX_HULL_VERTICES, convex_hull, load_hull
from warp_articulated.importers.urdf import load_urdf
from warp_articulated.model import DriveType, JointType, ModelError, ShapeType

OURS = sorted(path.name for path in SCENES.glob("*.urdf"))
PYBULLET = [
    "a1/a1.urdf", "cartpole.urdf", "franka_panda/panda.urdf", "kuka_iiwa/model.urdf", "laikago/laikago_toes_zup.urdf",
    "mini_cheetah/mini_cheetah.urdf", "quadruped/minitaur.urdf", "r2d2.urdf", "racecar/racecar.urdf",
    "xarm/xarm6_with_gripper.urdf",
]  # fmt: skip
EXAMPLE = ["anymal", "go2", "icub", "panda", "pr2", "solo12", "talos_reduced", "tiago", "ur5_robot", "z1"]


def check_against_pinocchio(path, floating):
    model = load_urdf(path, floating=floating, meshes=False, mimic="ignore")
    oracle = pinocchio_model(path, floating)
    data = oracle.createData()
    assert oracle.nv == model.nv

    rng = np.random.default_rng(0)
    q, q_oracle = random_q(model, rng), pin.neutral(oracle)
    ids = []
    for i in range(model.num_links):
        name = model.joint_names[model.joint_of_link[i]]
        joint = oracle.getJointId("root_joint" if floating and model.joint_of_link[i] == 0 else name)
        at, place = model.q_start[i], oracle.joints[joint].idx_q
        ids.append(joint)
        if model.joint_type[i] == JointType.FREE:
            world = pin.SE3(quat_to_matrix(q[at + 3 : at + 7]), q[at : at + 3])
            q_oracle[place : place + 7] = pin.SE3ToXYZQUAT(oracle.jointPlacements[joint].actInv(world))
        elif oracle.joints[joint].nq == 2:  # Pinocchio stores cosine and sine of a continuous joint
            q_oracle[place : place + 2] = np.cos(q[at]), np.sin(q[at])
        else:
            q_oracle[place] = q[at]
    pin.forwardKinematics(oracle, data, q_oracle)
    rotation, origin = link_transforms(model, q)
    for i, joint in enumerate(ids):
        # float64 on both sides, chains of up to 20 rotations
        np.testing.assert_allclose(rotation[i], data.oMi[joint].rotation, atol=1e-10)
        np.testing.assert_allclose(origin[i], data.oMi[joint].translation, atol=1e-10)
        inertia = oracle.inertias[joint]
        np.testing.assert_allclose(model.mass[i], inertia.mass, atol=1e-12)
        np.testing.assert_allclose(model.inertia[i], inertia.inertia, atol=1e-10)
        if inertia.mass > 0:
            np.testing.assert_allclose(model.com[i], inertia.lever, atol=1e-10)


@pytest.mark.parametrize("name", OURS)
def test_our_robots_match_pinocchio(name):
    floating = name in ("ant.urdf", "ball.urdf", "box.urdf", "laikago.urdf", "racecar.urdf", "sphere.urdf")
    check_against_pinocchio(SCENES / name, floating)


@pytest.mark.parametrize("name", PYBULLET)
def test_pybullet_robots_match_pinocchio(name):
    check_against_pinocchio(pybullet_robot(name), floating=False)


@pytest.mark.parametrize("name", EXAMPLE)
def test_example_robots_match_pinocchio(name):
    check_against_pinocchio(example_robot(name), floating=name in ("anymal", "go2", "solo12", "talos_reduced"))


def test_joints_keep_the_order_of_the_file():
    path = example_robot("talos_reduced")
    joints = re.findall(r'<joint name="([^"]*)" type="(?:revolute|prismatic|continuous)"', path.read_text())
    model = load_urdf(path, meshes=False, mimic="ignore", floating=True)
    assert list(model.joint_names) == ["root", *joints]
    assert (model.parent < np.arange(model.num_links)).all()


def test_a_real_robot_with_its_meshes():
    model = load_urdf(pybullet_robot("kuka_iiwa/model.urdf"))
    meshes = [s for s in model.shapes if s.type == ShapeType.MESH]
    assert len(meshes) == 8
    for shape in meshes:
        check_hull(shape.vertices, shape.faces)


def test_packages_are_found_above_the_file():
    model = load_urdf(example_robot("ur5_robot"))
    assert sum(s.type == ShapeType.MESH for s in model.shapes) == 7


def test_humanoid_with_ball_joints():
    model = load_urdf(pybullet_robot("humanoid/humanoid.urdf"), floating=True)
    assert (model.joint_type == JointType.SPHERICAL).sum() == 8
    assert sum(s.type == ShapeType.CAPSULE for s in model.shapes) == 8


def check_hull(vertices, faces):
    assert len(vertices) <= MAX_HULL_VERTICES
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    # counter-clockwise from outside: every vertex lies behind every face
    size = np.ptp(vertices, axis=0).max()
    assert (np.einsum("fk,vfk->vf", normals, vertices[:, None] - a[None]) <= 1e-7 * size**3).all()
    volume = np.einsum("ij,ij->", a, np.cross(b, c)) / 6
    assert volume > 0


def test_hull_reduction_stays_inside_and_close():
    points = np.random.default_rng(1).normal(size=(4000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    vertices, faces = convex_hull(points)
    check_hull(vertices, faces)
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    heights = np.einsum("ij,ij->i", normals, a) / np.linalg.norm(normals, axis=1)
    # a sphere in 64 points: no face closer to the centre than 85 % of the radius
    assert heights.min() > 0.85


CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)


def cube_file(folder, kind):
    from scipy.spatial import ConvexHull

    triangles = CUBE[ConvexHull(CUBE).simplices]
    path = folder / f"cube_{kind}.{'stl' if kind in ('text', 'binary') else kind}"
    if kind == "binary":
        record = np.zeros(len(triangles), np.dtype([("numbers", "<f4", (4, 3)), ("attribute", "<u2")]))
        record["numbers"][:, 1:] = triangles
        path.write_bytes(b"solid?".ljust(80) + np.uint32(len(triangles)).tobytes() + record.tobytes())
    elif kind == "text":
        facets = "".join(
            "facet normal 0 0 0\nouter loop\n"
            + "".join(f"vertex {' '.join(map(str, p))}\n" for p in t)
            + "endloop\nendfacet\n"
            for t in triangles
        )
        path.write_text(f"solid cube\n{facets}endsolid cube\n")
    elif kind == "obj":
        path.write_text("".join(f"v {' '.join(map(str, p))}\n" for p in CUBE) + "f 1 2 3\n")
    else:
        numbers = " ".join(str(100 * x) for x in CUBE.ravel())
        path.write_text(
            '<COLLADA><asset><unit meter="0.01"/></asset><library_geometries><geometry id="g"><mesh>'
            f'<source id="p"><float_array>{numbers}</float_array></source>'
            '<vertices><input semantic="POSITION" source="#p"/></vertices></mesh></geometry></library_geometries>'
            "<library_visual_scenes><visual_scene><node><translate>0 0 0</translate><rotate>0 0 1 0</rotate>"
            '<instance_geometry url="#g"/></node></visual_scene></library_visual_scenes></COLLADA>'
        )
    return path


@pytest.mark.parametrize("kind", ["text", "binary", "obj", "dae"])
def test_mesh_files_of_every_kind(tmp_path, kind):
    vertices, faces, _ = load_hull(cube_file(tmp_path, kind), np.array([1.0, -2.0, 3.0]))
    check_hull(vertices, faces)
    assert len(vertices) == 8
    np.testing.assert_allclose(vertices.min(0), [0, -2, 0], atol=1e-6)
    np.testing.assert_allclose(vertices.max(0), [1, 0, 3], atol=1e-6)


ARM = """<robot name="arm">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base"><collision><geometry><box size="1 1 1"/></geometry></collision></link>
  <link name="upper">
    <contact><lateral_friction value="0.25"/><restitution value="0.5"/></contact>
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><box size="1 1 1"/></geometry><material name="red"/></visual>
    <collision><geometry><sphere radius="0.1"/></geometry></collision>
  </link>
  <link name="cuff"><collision><geometry><sphere radius="0.2"/></geometry></collision></link>
  <link name="wrist"><inertial><mass value="1"/></inertial></link>
  <link name="lower">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>
    <collision><geometry><capsule radius="0.1" length="0.6"/></geometry></collision>
  </link>
  <link name="hand">
    <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>
    <visual><geometry><cylinder radius="0.1" length="0.4"/></geometry></visual>
  </link>
  <joint name="slide" type="prismatic"><parent link="wrist"/><child link="lower"/><limit lower="0.1" upper="1"/></joint>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 2 0"/>
    <limit lower="-1" upper="2" effort="7"/><dynamics damping="0.3" friction="0.2"/></joint>
  <joint name="cuff" type="fixed"><origin xyz="0 0 1"/><parent link="upper"/><child link="cuff"/></joint>
  <joint name="elbow" type="continuous"><origin xyz="1 0 0"/><parent link="cuff"/><child link="wrist"/></joint>
  <joint name="ball" type="ball"><parent link="lower"/><child link="hand"/></joint>
</robot>"""


@pytest.fixture
def arm(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return path


def test_joint_properties_and_order(arm):
    model = load_urdf(arm)
    assert model.joint_names == ("slide", "shoulder", "elbow", "ball")
    assert model.link_names == ("upper", "wrist", "lower", "hand")
    assert model.merged == (("base", "world"), ("cuff", "upper"))
    shoulder = model.joint_v("shoulder")
    assert (model.lower[shoulder], model.upper[shoulder]) == (-1, 2)
    assert (model.damping[shoulder], model.frictionloss[shoulder]) == (0.3, 0.2)
    np.testing.assert_allclose(model.axis[0], [0, 1, 0])
    assert model.drive_names == ("slide", "shoulder", "elbow")
    assert model.effort.tolist() == [np.inf, 7, np.inf]
    assert np.isinf(model.upper[model.joint_v("elbow")]).all()
    assert str(model).count("\n") > 5


def test_shapes_colours_and_contact_properties(arm):
    model = load_urdf(arm)
    shapes = {s.body: s for s in model.shapes}
    assert shapes["base"].link == -1 and shapes["base"].type == ShapeType.BOX
    assert shapes["cuff"].link == 0 and shapes["cuff"].pos.tolist() == [0, 0, 1]
    assert shapes["upper"].color == (1, 0, 0, 1)
    assert (shapes["upper"].friction, shapes["upper"].restitution) == (0.25, 0.5)
    assert shapes["lower"].size.tolist() == [0.1, 0.3]
    assert not shapes["hand"].collide and shapes["hand"].type == ShapeType.CYLINDER


def test_neighbours_do_not_collide(arm):
    def touching(model):
        return {frozenset((model.shapes[a].body, model.shapes[b].body)) for a, b in model.pairs}

    # the wrist has no shape, so the upper and the lower arm are neighbours; so are the base and the upper arm
    assert touching(load_urdf(arm)) == {frozenset(("base", "lower"))}
    assert touching(load_urdf(arm, exclude=[("lower", "base")])) == set()
    assert touching(load_urdf(arm, self_collision=False)) == set()
    grounded = touching(load_urdf(arm, self_collision=False, ground=True))
    assert grounded == {frozenset(("ground", body)) for body in ("upper", "cuff", "lower")}


def test_drives(arm):
    model = load_urdf(arm, drive="position", kp={"slide": 5, "elbow": 6}, kd=1, effort=9, passive=["shoulder"])
    assert model.drive_names == ("slide", "elbow")
    assert model.kp.tolist() == [5, 6] and model.kd.tolist() == [1, 1] and model.effort.tolist() == [9, 9]
    mixed = load_urdf(arm, drive={"elbow": "velocity"}, kd={"elbow": 2})
    assert mixed.drive_type.tolist() == [DriveType.TORQUE, DriveType.TORQUE, DriveType.VELOCITY]


BOX = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
FLOATING = f"""<robot name="two">
  <link name="world"/><link name="body">{BOX}</link><link name="leg">{BOX}</link><link name="stone">{BOX}</link>
  <joint name="free" type="floating"><origin xyz="1 2 3"/><parent link="world"/><child link="body"/></joint>
  <joint name="hip" type="revolute"><origin xyz="0 0 1"/><parent link="body"/><child link="leg"/></joint>
  <joint name="loose" type="floating"><origin xyz="0 1 0"/><parent link="leg"/><child link="stone"/></joint>
</robot>"""


@pytest.mark.parametrize("floating", [False, True])
def test_floating_joints_of_the_file(tmp_path, floating):
    path = tmp_path / "two.urdf"
    path.write_text(FLOATING)
    model = load_urdf(path, floating=floating)
    assert model.joint_names == ("free", "hip", "loose")
    assert model.parent.tolist() == [-1, 0, -1]
    np.testing.assert_allclose(model.q0[model.joint_q("free")], [1, 2, 3, 0, 0, 0, 1])
    np.testing.assert_allclose(model.q0[model.joint_q("loose")], [1, 3, 4, 0, 0, 0, 1])
    assert any("a separate tree" in note for note in model.notes)
    assert any("no limits for hip" in note for note in model.notes)
    assert [s.name for s in model.shapes] == ["ground"]


def test_mimic_joints_follow_or_are_ignored():
    path = pybullet_robot("franka_panda/panda.urdf")
    model = load_urdf(path, meshes=False)
    assert model.ties.coupling_names == ("panda_finger_joint2",)
    assert model.ties.coupling_coef.tolist() == [[0, 1, 0, 0, 0], [0, -1, 0, 0, 0]]
    assert "panda_finger_joint1" in model.drive_names and "panda_finger_joint2" not in model.drive_names
    open_hand = model.with_pose({"panda_finger_joint1": 0.03})
    np.testing.assert_allclose(open_hand.q0[-2:], 0.03)  # the other one follows
    model = load_urdf(path, meshes=False, mimic="ignore")
    assert not model.ties and "panda_finger_joint2" in model.drive_names
    assert any("panda_finger_joint2" in note for note in model.notes)


def test_mimic_of_a_joint_that_is_not_there_is_a_note(tmp_path):
    """Real files have such mistakes, and Pinocchio loads them too."""
    text = (SCENES / "cartpole.urdf").read_text("utf-8")
    (tmp_path / "r.urdf").write_text(text.replace("</joint>", '<mimic joint="nobody"/></joint>', 1))
    model = load_urdf(tmp_path / "r.urdf")
    assert not model.ties and any("'nobody', which the file does not have" in note for note in model.notes)


def test_floating_robot_starts_on_the_added_ground(tmp_path):
    path = tmp_path / "box.urdf"
    path.write_text(
        """<robot name="box"><link name="a"><inertial><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1" ixy="0"
        ixz="0" iyz="0"/></inertial><collision><origin xyz="0 0 -.2"/><geometry><box size=".2 .2 .4"/></geometry>
        </collision></link></robot>"""
    )
    assert load_urdf(path, floating=True).q0[2] == pytest.approx(0.4)
    assert load_urdf(path, floating=True, ground=False).q0[2] == 0.0


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
@pytest.mark.parametrize("start", ["\ufeff", "", '\ufeff<?xml version="1.0" encoding="utf-16"?>\n'])
@pytest.mark.parametrize("end", ["", "\n", "\r\n\n"])
def test_files_in_utf_16_are_read(tmp_path, encoding, start, end):
    text = (SCENES / "cartpole.urdf").read_text("utf-8")
    text = start + text[text.index("<robot") :].strip().replace('"cart"', '"Wägelchen"') + end
    for name in ("robot.urdf", "robot.xml"):  # load looks for the root of an .xml file first
        (tmp_path / name).write_bytes(text.replace('"utf-16"', f'"{encoding[:6].rstrip("-")}"').encode(encoding))
        model = load(tmp_path / name)
        assert "Wägelchen" in model.link_names
        assert model.mass.tolist() == load_urdf(SCENES / "cartpole.urdf").mass.tolist()


def test_an_error_in_a_utf_16_file_names_its_line(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_bytes("<robot name='a'>\n<link/>\n</robot>\n".encode("utf-16"))
    with pytest.raises(ModelError, match=r"robot\.urdf:2: <link>: the attribute 'name' is missing"):
        load_urdf(path)
