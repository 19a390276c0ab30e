"""Every kind of broken robot gets an error message that names the file, line and element, or the argument."""

import numpy as np
import pytest

from warp_articulated.importers.loading import load
from warp_articulated.model import Body, JointType, ModelError, assemble

MASS = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
LINKS = f'<link name="base"/>\n<link name="arm">{MASS}</link>'
JOINT = '<joint name="hip" type="revolute"><parent link="base"/><child link="arm"/>%s</joint>'


def robot(*lines):
    return "\n".join(['<robot name="r">', *lines, "</robot>"])


def arm(link="", joint=""):
    """A robot whose link (line 3) and joint (line 4) contain the given elements."""
    return robot('<link name="base"/>', f'<link name="arm">{link or MASS}</link>', JOINT % joint)


def shape(geometry):
    return arm(link=f"{MASS}<collision><geometry>{geometry}</geometry></collision>")


BROKEN = {
    "empty file": ("  ", r"r\.urdf: the file is empty"),
    "no xml": ("hello", r"r\.urdf:1: the file is not well-formed XML"),
    "unclosed": ("<robot>\n<link name='a'>\n</robot>", r"r\.urdf:3: the file is not well-formed XML: mismatched tag"),
    "other root": ("<mujoco/>", r"r\.urdf:1: <mujoco>: a URDF file must start with <robot>"),
    "xacro": (robot('<xacro:include filename="x"/>'), r"r\.urdf:2: <xacro:include>: this is a xacro file"),
    "no link": (robot(), r"r\.urdf:1: <robot name=\"r\">: there is no <link>"),
    "nothing moves": (robot('<link name="a"/>'), r"no link can move.*floating=True"),
    "nameless link": (robot("<link/>"), r":2: <link>: the attribute 'name' is missing"),
    "two links": (robot('<link name="a"/>', '<link name="a"/>'), r":3: <link name=\"a\">: another link .* line 2"),
    "two joints": (
        robot(LINKS, '<link name="c"/>', JOINT % "", JOINT.replace("arm", "c") % ""),
        r":6: <joint name=\"hip\">: another joint of this name is in line 5",
    ),
    "two roots": (robot('<link name="a"/>', '<link name="b"/>'), r"2 root links: 'a' \(line 2\), 'b' \(line 3\)"),
    "only a circle": (
        robot(LINKS, JOINT % "", '<joint name="b" type="fixed"><parent link="arm"/><child link="base"/></joint>'),
        "in a circle, so there is no root",
    ),
    "circle beside a root": (
        robot('<link name="z"/>', LINKS, JOINT % "",
              '<joint name="b" type="fixed"><parent link="arm"/><child link="base"/></joint>'),
        "is its own ancestor through a circle",
    ),
    "closed loop": (
        robot(LINKS, JOINT % "", (JOINT % "").replace("hip", "again")),
        r":5: <joint name=\"again\">: link 'arm' is already the child of joint 'hip'",
    ),
    "unknown link": (robot('<link name="base"/>', JOINT % ""), r":3: <child> in <joint name=\"hip\">: .*'arm'"),
    "own parent": (
        robot('<link name="a"/>', '<joint name="j" type="fixed"><parent link="a"/><child link="a"/></joint>'),
        "joins link 'a' to itself",
    ),
    "no parent": (
        robot(LINKS, '<joint name="hip" type="revolute"><child link="arm"/></joint>'),
        r":4: <joint name=\"hip\">: the element <parent> is missing",
    ),
    "no type": (robot(LINKS, '<joint name="hip"/>'), r"<joint name=\"hip\">: the attribute 'type' is missing"),
    "planar": (arm().replace("revolute", "planar"), r":4: .*type 'planar' are not supported; .*two prismatic"),
    "unknown type": (arm().replace("revolute", "screw"), "type 'screw' are not supported; revolute"),
    "zero axis": (arm(joint='<axis xyz="0 0 0"/>'), r":4: <axis> in <joint name=\"hip\">: .*must not be zero"),
    "two numbers": (arm(joint='<origin xyz="1 2"/>'), r":4: <origin> in .*: xyz=\"1 2\" is not 3 finite numbers"),
    "no number": (arm(joint='<origin rpy="0 0 x"/>'), r"rpy=\"0 0 x\" is not 3 finite numbers"),
    "nan": (arm(joint='<origin xyz="0 nan 0"/>'), r"xyz=\"0 nan 0\" is not 3 finite numbers"),
    "limits": (arm(joint='<limit lower="1" upper="-1"/>'), r":4: <limit> in .*: lower=1 is above upper=-1"),
    "effort": (arm(joint='<limit lower="0" upper="1" effort="-2"/>'), r"effort=\"-2\" must be at least 0"),
    "damping": (arm(joint='<dynamics damping="-1"/>'), r"<dynamics> in .*: damping=\"-1\" must be at least 0"),
    "mimic": (arm(joint='<mimic joint="hip"/>'), r":4: <mimic> in <joint name=\"hip\">: .*itself; .*mimic='ignore'"),
    "no mass": (arm(link="<inertial/>"), r":3: <inertial> in <link name=\"arm\">: the element <mass> is missing"),
    "negative mass": (arm(link=MASS.replace("1", "-1", 1)), r"<mass> in .*: value=\"-1\" must be at least 0"),
    "no ixx": (arm(link=MASS.replace("ixx", "xx")), r"<inertia> in .*: the attribute 'ixx' is missing"),
    "negative inertia": (arm(link=MASS.replace('ixx="1"', 'ixx="-1"')), r":3: .*negative principal moment"),
    "hidden negative inertia": (arm(link=MASS.replace("ixx", 'ixy="2" ixx')), r":3: .*negative principal moment"),
    "massless leaf": (arm(link="<visual/>".replace("<visual/>", " ")), "link 'arm' has no mass and carries no other"),
    "point mass on its axis": (
        arm(link='<inertial><mass value="1"/></inertial>'), "nothing resists joint 'hip': link 'arm'",
    ),
    "no geometry": (arm(link=f"{MASS}<collision/>"), r"<collision> in .*: the element <geometry> is missing"),
    "empty geometry": (shape(""), "<geometry> in .*: it is empty; one of sphere"),
    "unknown geometry": (shape('<cone r="1"/>'), "<cone> in .*: this kind of shape is not known"),
    "flat box": (shape('<box size="1 0 1"/>'), "size=\"1 0 1\" must be three positive numbers"),
    "no radius": (shape("<sphere/>"), "<sphere> in .*: the attribute 'radius' is missing"),
    "negative radius": (shape('<sphere radius="-1"/>'), "radius=\"-1\" must be larger than 0"),
    "moving plane": (shape("<plane/>"), "a plane must be fixed to the world"),
    "missing mesh": (shape('<mesh filename="a.stl"/>'), r"r\.urdf:3: <mesh> .*\"arm\">: .*'a\.stl'.*meshes=False"),
    "missing package": (shape('<mesh filename="package://p/a.stl"/>'), "'package://p/a.stl' was not found"),
    "unread mesh": (shape('<mesh filename="a.fbx"/>'), r"a\.fbx: meshes of kind \.fbx are not read; \.stl"),
    "flat mesh": (shape('<mesh filename="flat.obj"/>'), "has no volume"),
    "broken mesh": (shape('<mesh filename="broken.obj"/>'), r"broken\.obj:2: 'v 1 x 2' is not"),
    "empty mesh": (shape('<mesh filename="empty.stl"/>'), "has no corners"),
    "huge origin": (arm(joint='<origin xyz="1e200 0 0"/>'), r":4: <origin> in .*: xyz=\"1e200 0 0\" is too large"),
    "huge mass": (arm(link=MASS.replace("1", "1e300", 1)), r":3: <mass> in .*: value=\"1e300\" is too large"),
    "huge inertia": (arm(link=MASS.replace('ixx="1"', 'ixx="1e308"')), r"ixx=\"1e308\" is too large"),
    "long mesh name": (shape(f'<mesh filename="{"a" * 5000}.stl"/>'), "was not found"),
    "bad friction": (
        arm(link=f'{MASS}<contact><lateral_friction value="-1"/></contact><collision><geometry><sphere radius="1"/>'
                 "</geometry></collision>"),
        r"<lateral_friction> in <contact> in <link name=\"arm\">: value=\"-1\" must be at least 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_broken_urdf(tmp_path, what):
    text, sentence = BROKEN[what]
    (tmp_path / "a.fbx").write_text("?")
    (tmp_path / "flat.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\n")
    (tmp_path / "broken.obj").write_text("v 0 0 0\nv 1 x 2\n")
    (tmp_path / "empty.stl").write_text("solid nothing\nendsolid nothing\n")
    path = tmp_path / "r.urdf"
    path.write_text(text)
    with pytest.raises(ModelError, match=sentence) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"drive": "force"}, "drive='force' is not known; 'torque', 'position', 'velocity' are"),
        ({"drive": "position"}, "a position drive needs kp, and joint 'hip' has none"),
        ({"drive": "velocity"}, "a velocity drive needs kd"),
        ({"drive": "position", "kp": {"knee": 1}}, "kp names joint 'knee'"),
        ({"drive": "position", "kp": -1}, "kp=-1 for joint 'hip' must be a number"),
        ({"kp": 3}, "kp and kd have no meaning for torque drives"),
        ({"passive": ["knee"]}, "passive names joint 'knee', which is not a driven joint; hip are"),
        ({"exclude": [("arm", "leg")]}, "exclude names 'leg', which is not a link"),
        ({"exclude": ["arm"]}, "must be pairs of link names"),
        ({"mimic": "refuse"}, "mimic='refuse' is not known"),
        ({"friction": -1}, "friction=-1 must be"),
        ({"gravity": (0, 0)}, "gravity=.* must be three finite numbers"),
        ({"floating": "no"}, "floating='no' must be True or False"),
        ({"ground": 1}, "ground=1 must be True or False"),
        ({"fixed": True}, "the option 'fixed' does not apply to .*r.urdf; it takes floating"),
    ],
)
def test_bad_options(tmp_path, options, sentence):
    path = tmp_path / "r.urdf"
    path.write_text(arm())
    with pytest.raises(ModelError, match=sentence):
        load(path, **options)


def test_limits_may_be_as_large_as_they_like(tmp_path):
    (tmp_path / "r.urdf").write_text(arm(joint='<limit lower="-1.7e308" upper="1.7e308" effort="1e300"/>'))
    assert load(tmp_path / "r.urdf").upper == [1.7e308]


def test_bad_paths(tmp_path):
    for name in ("x" * 5000, "x" * 5000 + ".urdf", "a\0b.urdf", "a\ud800.npz"):
        with pytest.raises(ModelError, match="there is no such file"):
            load(name)
    with pytest.raises(ModelError, match=r"laikagoo: there is no such file.* Did you mean the scene 'laikago'"):
        load("laikagoo")
    with pytest.raises(ModelError, match=r"robots/spider\.urdf: there is no such file"):
        load("robots/spider.urdf")
    with pytest.raises(ModelError, match="this is a directory"):
        load(tmp_path)
    (tmp_path / "a.usda").write_text("#usda")
    with pytest.raises(ModelError, match=r"a\.usda: files of kind \.usda are not read: USD is written"):
        load(tmp_path / "a.usda")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ModelError, match=r"files of kind \.txt are not read; \.urdf"):
        load(tmp_path / "a.txt")
    with pytest.raises(ModelError, match="the option 'floating' does not apply to the scene 'box'"):
        load("box", floating=True)
    with pytest.raises(ModelError, match="42 is neither"):
        load(42)


def test_urdf_in_a_file_called_xml(tmp_path):
    (tmp_path / "r.xml").write_text(arm())
    assert load(tmp_path / "r.xml").link_names == ("arm",)


def body(**changes):
    values = dict(name="a", parent=-1, joint_name="j", joint_type=JointType.REVOLUTE, mass=1.0, inertia=np.eye(3))
    return Body(**(values | changes))


NAN3 = np.array([0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    "bodies, sentence",
    [
        ([], "there is no moving link"),
        ([body(parent=0)], "has parent 0; a parent must come earlier"),
        ([body(), body(joint_name="k")], "two links are called 'a'"),
        ([body(), body(name="b")], "two joints are called 'j'"),
        ([body(name="")], "has no name"),
        ([body(mass=-1.0)], "link 'a': the mass is -1.0"),
        ([body(mass=np.nan)], "the mass is nan"),
        ([body(com=NAN3)], "com is .* must be 3 finite numbers"),
        ([body(inertia=np.full((3, 3), np.nan))], "inertia must be 3 x 3 finite"),
        ([body(inertia=np.array([[1.0, 1, 0], [0, 1, 0], [0, 0, 1]]))], "not symmetric"),
        ([body(inertia=np.diag([1.0, 1.0, -0.1]))], "negative principal moment"),
        ([body(axis=np.zeros(3))], "joint 'j': its axis is zero"),
        ([body(quat=np.zeros(4))], "quaternion of its frame is zero"),
        ([body(lower=1.0, upper=0.0)], "lower limit 1 is above the upper limit 0"),
        ([body(damping=-1.0)], "the damping is -1.0"),
        ([body(armature=-1.0)], "the armature is -1.0"),
        ([body(q0=np.zeros(2))], "q0 is .* must be 1 finite numbers"),
        (
            [body(), body(name="b", joint_name="k", parent=0, joint_type=JointType.FREE)],
            "the parent of a free joint must be the world",
        ),
        ([body(mass=0.0, inertia=np.zeros((3, 3)))], "has no mass and carries no other link"),
        ([body(inertia=np.zeros((3, 3)), joint_type=JointType.FREE)], "nothing resists joint 'j'"),
        # two massless links in a row that slide along the same axis: their motion is undetermined
        (
            [
                body(mass=0.0, inertia=np.zeros((3, 3)), joint_type=JointType.PRISMATIC),
                body(name="b", joint_name="k", parent=0, joint_type=JointType.PRISMATIC),
            ],
            "nothing resists joint 'j'",
        ),
    ],
)
def test_bodies_that_cannot_be_simulated(bodies, sentence):
    with pytest.raises(ModelError, match=sentence):
        assemble("robot", bodies)


def test_unusual_but_valid_bodies_are_accepted():
    massless = dict(mass=0.0, inertia=np.zeros((3, 3)))
    slides = [
        body(**massless, joint_type=JointType.PRISMATIC, axis=np.array([1.0, 0, 0])),
        body(name="b", joint_name="k", parent=0, joint_type=JointType.PRISMATIC),
    ]
    assert assemble("robot", slides).notes == ()
    assert assemble("robot", [body(**massless, armature=0.1)]).nv == 1
    thin = assemble("robot", [body(inertia=np.diag([1.0, 1.0, 2.5]))])
    assert "a breaks the triangle inequality" in thin.notes[0]
    assert assemble("robot", [body(inertia=np.diag([1.0, 1.0, 2.0005]))]).notes == ()


def test_poses_that_cannot_be_simulated():
    free = assemble("robot", [body(joint_type=JointType.FREE)])
    with pytest.raises(ModelError, match=r"pose of joint 'j' is .* quaternion must not be zero"):
        free.with_pose({"j": [0.0] * 7})
    with pytest.raises(ModelError, match="it must be 7 finite numbers"):
        free.with_pose({"j": "abc"})
    # a gimbal: turned by a right angle its first axis is that of the last one, and its rings weigh nothing
    rings = [
        body(mass=0.0, inertia=np.zeros((3, 3)), axis=np.array([1.0, 0, 0])),
        body(name="b", joint_name="k", parent=0, mass=0.0, inertia=np.zeros((3, 3)), axis=np.array([0.0, 1, 0])),
        body(name="c", joint_name="l", parent=1),
    ]
    gimbal = assemble("gimbal", rings)
    assert gimbal.with_pose({"k": 1.0}).q0[1] == 1.0
    with pytest.raises(ModelError, match="nothing resists joint 'j'"):
        gimbal.with_pose({"k": np.pi / 2})
