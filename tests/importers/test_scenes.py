"""The scenes of the package: they load, and have the data of the experiments that they reproduce."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.loading import load
from warp_articulated.importers.scene_files import _folder, load_scene, load_scene_file, scene_names
from warp_articulated.model import DriveType, JointType, ModelError, ShapeType

LEGS = ("FR", "FL", "RR", "RL")


def shape_places(model, q):
    """World rotation and position of every shape at q."""
    rotation, origin = link_transforms(model, q)
    places = {}
    for shape in model.shapes:
        R, p = (np.eye(3), np.zeros(3)) if shape.link < 0 else (rotation[shape.link], origin[shape.link])
        places[shape.name] = (R @ quat_to_matrix(shape.quat), p + R @ shape.pos)
    return places


def test_every_listed_scene_exists():
    wanted = ["ant", "box", "boxes3", "cartpole", "double_pendulum", "golf", "hopper", "laikago", "laikago_feet"]
    wanted += ["panda_throw", *(f"pendulum{n}" for n in range(1, 8)), "racecar", "sphere"]
    assert scene_names() == wanted


@pytest.mark.parametrize("name", scene_names())
def test_scene_loads_with_a_pose_inside_its_limits(name):
    model = load(name)
    assert model.name == name
    assert np.isfinite(model.q0).all() and np.isfinite(model.u0).all()
    for i in range(model.num_links):
        if model.joint_type[i] in (JointType.REVOLUTE, JointType.PRISMATIC):
            at, v = model.q_start[i], model.v_start[i]
            assert model.lower[v] <= model.q0[at] <= model.upper[v], model.joint_names[model.joint_of_link[i]]
    assert len({tuple(sorted(pair)) for pair in model.pairs.tolist()}) == len(model.pairs)
    assert not any("triangle" in note for note in model.notes)


@pytest.mark.parametrize("name", ["laikago", "laikago_feet"])
def test_laikago_is_the_robot_of_the_paper(name):
    model = load_scene(name)
    assert (model.nq, model.nv, model.nu) == (19, 18, 12)
    assert model.mass.sum() == pytest.approx(25.567, abs=1e-9)
    assert model.joint_names[1:] == tuple(f"{leg}_{part}" for leg in LEGS for part in ("hip", "upper", "lower"))

    def toe(angles, leg):
        q = model.q0.copy()
        q[:7] = [0, 0, 0, 0, 0, 0, 1]
        q[7:] = np.tile(angles, 4)
        return shape_places(model, q)[f"{leg}_toe"][1]

    # the published numbers have four digits
    np.testing.assert_allclose(toe((0, 0, 0), "FR"), [0.0349, -0.1146, -0.4883], atol=1e-4)
    np.testing.assert_allclose(toe((0.2, 0, -0.5), "FR"), [0.1575, -0.2010, -0.4530], atol=1e-4)


def test_laikago_stands_on_its_toes():
    model = load_scene("laikago")
    places = shape_places(model, model.q0)
    toes = np.array([places[f"{leg}_toe"][1] for leg in LEGS])
    np.testing.assert_allclose(toes[:, 2], 0.03, atol=1e-5)
    rotation, origin = link_transforms(model, model.q0)
    coms = origin + np.einsum("nij,nj->ni", rotation, model.com)
    com = model.mass @ coms / model.mass.sum()
    low, high = toes[:, :2].min(0), toes[:, :2].max(0)
    assert (low + 0.05 < com[:2]).all() and (com[:2] < high - 0.05).all()
    for shape in model.shapes:  # only the toes are near the ground
        if shape.link >= 0 and not shape.name.endswith("toe"):
            R, p = places[shape.name]
            reach = shape.size[0] + abs(R[2, 2]) * shape.size[1] if shape.type == ShapeType.CAPSULE else 0.1
            assert p[2] - reach > 0.005, shape.name
    assert (model.drive_type == DriveType.POSITION).all()
    np.testing.assert_allclose(model.u0, model.q0[7:], atol=0.05)  # a little more, against gravity
    assert (model.effort == 100).all()


def test_laikago_feet_touches_with_toes_only():
    model = load_scene("laikago_feet")
    assert {model.shapes[k].body for k in model.pairs.ravel()} == {"ground", *(f"{leg}_toe" for leg in LEGS)}
    np.testing.assert_allclose(model.pair_friction, 0.2)


@pytest.mark.parametrize("n", range(1, 8))
def test_pendulum_needs_the_known_torque_to_stay_horizontal(n):
    model = load_scene(f"pendulum{n}")
    rotation, origin = link_transforms(model, model.q0)
    coms = origin + np.einsum("nij,nj->ni", rotation, model.com)
    torque = 9.81 * model.mass @ coms[:, 1]
    assert torque == pytest.approx(9.81 * (0.5 + 2.16 * sum(0.5 * k for k in range(2, n + 1))))
    up = model.q0.copy()
    up[0] = np.pi / 2
    rotation, origin = link_transforms(model, up)
    np.testing.assert_allclose(origin[-1] + rotation[-1] @ [0, 0.5, 0], [0, 0, 0.5 * n], atol=1e-12)


def test_ant_has_the_dimensions_of_gymnasium():
    model = load_scene("ant")
    assert (model.nq, model.nv, model.nu) == (15, 14, 8)
    assert model.armature.tolist() == [0] * 6 + [1] * 8
    assert model.damping.tolist() == [0] * 6 + [1] * 8
    assert model.gear.tolist() == [150] * 8
    places = shape_places(model, model.q0)
    feet = [f"{side}_foot" for side in ("front_left", "front_right", "back_left", "back_right")]
    ends = [places[f][1] + sign * places[f][0][:, 2] * np.sqrt(0.08) for f in feet for sign in (-1, 1)]
    # every ankle bends down
    assert min(end[2] for end in ends[1::2]) == pytest.approx(0.75 - np.sqrt(0.32) * np.sin(1), abs=1e-5)
    assert np.ptp([end[2] for end in ends[1::2]]) < 1e-5


def test_panda_holds_the_ball():
    model = load_scene("panda_throw")
    assert (model.nq, model.nu) == (16, 9)
    places = shape_places(model, model.q0)
    np.testing.assert_allclose(places["ball"][1], [0.0906, -0.0087, 0.8242], atol=1e-5)
    for side, sign in (("left", 1), ("right", -1)):
        R, p = places[f"{side}_finger"]
        # the ball's radius and half a finger apart, across the finger, pressed together by 0.1 mm: both touch at once
        np.testing.assert_allclose(R.T @ (places["ball"][1] - p), [0, -sign * 0.0199, 0], atol=1e-5)
    touching = {frozenset((model.shapes[a].name, model.shapes[b].name)) for a, b in model.pairs}
    assert touching == {frozenset(("ball", other)) for other in ("left_finger", "right_finger", "ground")}


def test_golf_ball_lies_on_its_tee():
    model = load_scene("golf")
    assert model.q0[model.joint_q("ball")][:3].tolist() == [0, -0.1, -0.85]
    places = shape_places(model, model.q0)
    tee = next(s for s in model.shapes if s.name == "tee")
    assert places["tee"][1][2] + tee.size[2] == pytest.approx(-0.85 - 0.025)
    touching = {frozenset((model.shapes[a].name, model.shapes[b].name)) for a, b in model.pairs}
    assert touching == {frozenset(("ball", other)) for other in ("club", "tee", "ground")}
    np.testing.assert_allclose(model.pair_friction, 2.0)
    np.testing.assert_allclose(model.pair_restitution, 0.5)


def test_racecar_rolls_on_four_spheres():
    model = load_scene("racecar")
    assert model.nv == 6 + 6
    places = shape_places(model, model.q0)
    wheels = [s for s in model.shapes if s.type == ShapeType.SPHERE]
    assert len(wheels) == 4 == len(model.pairs)
    for wheel in wheels:
        assert wheel.size[0] == 0.05 == pytest.approx(places[wheel.name][1][2])


def write(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"robots": []}', "'robots' must be a list"),
        ('{"robot": []}', "has no entry 'robot'"),
        ('{"robots": [{}]}', "has no 'file'"),
        ('{"robots": [{"file": "x.urdf"}]}', "x.urdf: the file cannot be read"),
        ('{"robots": [{"file": "x.urdf", "mass": 1}]}', "has no entry 'mass'"),
        ('{"robots": [{"file": "x.urdf"}], "ground": 3}', "'ground' is 3"),
        ("[" * 100_000, "nested too deeply"),
        ('{"robots": [{"file": 5}]}', "'file' is 5; it must be text"),
        ('{"robots": [{"file": "\\u0000"}]}', "must be text"),
        ('{"robots": [{"file": "\\ud800"}]}', "must be text"),
        ('{"robots": [{"file": "%s"}]}' % ("x" * 5000), "cannot be read"),
        ('{"robots": [{"file": "/dev/zero"}]}', "a device or a pipe"),
        ('{"robots": [{"file": "x.urdf", "name": []}]}', "'name' is"),
    ],
)
def test_bad_scene_files(tmp_path, text, message):
    with pytest.raises(ModelError, match=message):
        load_scene_file(write(tmp_path, text))


POLE = (
    '<robot name="pole"><link name="base"/><link name="rod"><inertial><mass value="1"/><inertia ixx="1" iyy="1" '
    'izz="1"/></inertial></link><joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/>'
    "</joint></robot>"
)


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"q0": []}, "'q0' is"),
        ({"q0": {"hinge": "abc"}}, "pose of joint 'hinge' is 'abc'; it must be 1 finite"),
        ({"q0": {"hinge": [[1], [2, 3]]}}, "pose of joint 'hinge'"),
        ({"q0": {"hinge": float("nan")}}, "pose of joint 'hinge'"),
        ({"q0": {"hinge": 10**400}}, "pose of joint 'hinge'"),
        ({"u0": [float("nan")]}, "u0 is"),
        ({"u0": "abc"}, "u0 has"),
        ({"u0": [1, 2]}, "u0 has 2 entries"),
        ({"exclude": [5]}, "exclude=5 must be pairs"),
        ({"exclude": 5}, "exclude=5 must be pairs"),
        ({"exclude": [[[], []]]}, "list of names"),
        ({"ground": {"z": "x"}}, "'z' is 'x'"),
        ({"ground": {"z": float("inf")}}, "'z' is inf"),
        ({"gravity": ["a", "b", "c"]}, "gravity="),
        ({"gravity": [[1], [1, 2], 3]}, "gravity="),
        ({"friction": []}, "friction="),
        ({"friction": 1e16}, "friction="),
        ({"collide": 5}, "collide=5 must be a list of names"),
        ({"collide": [[]]}, "list of names"),
        ({"pose": "abc"}, "poses.0. has shape"),
        ({"pose": {}}, "poses.0. has shape"),
        ({"pose": [0, 0, float("nan")]}, "in finite numbers"),
        ({"gear": float("inf")}, "'gear' is inf"),
        ({"gear": 0}, "'gear' is 0; it must be a positive number"),
        ({"gear": 10**400}, "'gear' is inf"),
        ({"damping": float("nan")}, "'damping' is nan"),
        ({"spring_ref": float("inf")}, "'spring_ref' is inf"),
        ({"drive": 5}, "drive=5 is not known"),
        ({"drive": {"hinge": []}}, "drive=.. is not known"),
        ({"drive": "position", "kp": "x"}, "kp='x' for joint"),
        ({"drive": "position", "kp": 10**400}, "kp=inf for joint"),
        ({"passive": 5}, "passive=5 must be a list of names"),
        ({"passive": [[]]}, "list of names"),
        ({"mimic": []}, "mimic="),
        ({"floating": 1}, "floating=1"),
    ],
)
def test_entries_of_a_wrong_type_give_an_error(tmp_path, entries, message):
    (tmp_path / "pole.urdf").write_text(POLE)
    scene = {"robots": [{"file": "pole.urdf"}]}
    for key, value in entries.items():
        (scene if key in ("q0", "u0", "exclude", "ground", "gravity", "friction") else scene["robots"][0])[key] = value
    with pytest.raises(ModelError, match=message) as caught:
        load_scene_file(write(tmp_path, json.dumps(scene)))
    assert str(tmp_path) in str(caught.value)


def test_whole_numbers_may_be_large(tmp_path):
    shutil.copy(_folder() / "box.urdf", tmp_path)
    scene = '{"robots": [{"file": "box.urdf", "floating": true}], "ground": true, "friction": 121474836480}'
    np.testing.assert_allclose(load_scene_file(write(tmp_path, scene)).pair_friction, 121474836480)


def test_scene_overrides_name_real_joints_and_bodies(tmp_path):
    (tmp_path / "pole.urdf").write_text(POLE)
    robot = '{"robots": [{"file": "pole.urdf", %s}]}'
    model = load_scene_file(write(tmp_path, robot % '"armature": 2, "gear": 3, "spring_ref": -1, "pose": [1, 2, 3]'))
    assert (model.armature, model.gear, model.spring_ref) == ([2], [3], [-1])
    assert model.joint_pos[0].tolist() == [1, 2, 3]
    for entry, message in (
        ('"armature": {"knee": 1}', "no joint is called 'knee'"),
        ('"gear": {"knee": 1}', "'gear' names 'knee'"),
        ('"damping": -1', "'damping' is -1"),
        ('"collide": ["knee"]', "'collide' names 'knee'"),
    ):
        with pytest.raises(ModelError, match=message):
            load_scene_file(write(tmp_path, robot % entry))


@pytest.mark.parametrize("name", ["ant", "hopper"])
def test_gymnasium_robots_have_gymnasiums_masses_and_places(name):
    import gymnasium
    import mujoco

    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / f"{name}.xml"
    oracle = mujoco.MjModel.from_xml_path(str(path))
    model, data = load_scene(name), mujoco.MjData(oracle)
    joints = 7 if name == "ant" else 3
    data.qpos[joints:] = model.q0[joints:]
    mujoco.mj_kinematics(oracle, data)
    # our files are written with six digits
    assert model.mass.sum() == pytest.approx(oracle.body_mass.sum(), rel=1e-5)
    places = shape_places(model, model.q0)
    ours = [places[s.name][1] for s in model.shapes if s.link >= 0]
    np.testing.assert_allclose(ours, data.geom_xpos[1:], atol=1e-5)
