"""Keyframes of MJCF files against MuJoCo's: states, controls, several robots, files."""

import mujoco
import numpy as np
import pytest
from mjcf_oracle import load, our_q, velocity_map, write

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_multiply, rotate

ROBOT = """
<worldbody>
  <body name="puck" pos="0 0 1" euler="10 20 30">
    <freejoint name="float"/><geom size="0.1"/>
    <body name="leg" pos="0.3 0 0">
      <joint name="knee" range="-60 60"/><geom size="0.1" pos="0.1 0 0"/>
      <body name="foot" pos="0.3 0 0" euler="5 6 7"><joint name="ball" type="ball"/><geom size="0.1"/></body>
    </body>
    <body name="tail" pos="-0.3 0 0"><joint name="wag" type="slide" ref="0.2"/><geom size="0.1"/></body>
  </body>
</worldbody>
<actuator>
  <position name="tail" joint="wag" kp="5" gear="2"/>
  <motor name="ball" joint="ball" gear="1 0 0"/>
  <motor name="knee" joint="knee"/>
</actuator>
<keyframe>
  <key name="home" qpos="1 2 3 0.5 0.5 -0.5 0.5 0.3 0.6 0 0 0.8 0.1" qvel="1 2 3 4 5 6 7 8 9 10 11" ctrl="0.1 0.2 0.3"/>
  <key/>
  <key name="tilted" qpos="0 0 0 2 0 1 0 -2 1 1 1 1 0"/>
</keyframe>
"""


@pytest.fixture
def robot(tmp_path):
    return load(write(tmp_path, ROBOT))


def test_keyframes_are_mujocos(robot):
    model, m = robot
    assert list(model.keyframes) == ["home", "key1", "tilted"]
    assert model.drive_names == ("tail", "knee")  # one on a ball joint is left out
    for k, key in enumerate(model.keyframes.values()):
        np.testing.assert_allclose(key.q, our_q(m, m.key_qpos[k]), atol=1e-15)
        np.testing.assert_allclose(velocity_map(m, m.key_qpos[k]) @ key.qd, m.key_qvel[k], atol=1e-13)
        np.testing.assert_array_equal(key.u, m.key_ctrl[k][[0, 2]])
    assert not np.allclose(model.keyframes["home"].qd, m.key_qvel[0])  # the axes do differ


def test_keyframes_move_bodies_as_mujoco_moves_them(robot):
    """One step of time: poses after q moves with qd, against mj_integratePos."""
    model, m = robot
    qpos = m.key_qpos[0].copy()
    mujoco.mj_integratePos(m, qpos, m.key_qvel[0], 1e-7)
    key = model.keyframes["home"]
    moved = key.q.copy()
    for joint in model.joint_names:
        at, v = model.joint_q(joint), model.joint_v(joint)
        if at.stop - at.start == 1:
            moved[at] += 1e-7 * key.qd[v]
            continue
        spin = key.qd[v][-3:]
        quat = key.q[at][-4:]
        moved[at][-4:] += 0.5e-7 * quat_multiply(np.append(spin, 0.0), quat)
        moved[at][:-4] += 1e-7 * key.qd[v][:-3]
    np.testing.assert_allclose(moved, our_q(m, qpos), atol=1e-11)


def test_keyframes_leave_the_default_pose_alone_and_cannot_be_written(robot):
    model, m = robot
    np.testing.assert_allclose(model.q0, our_q(m, m.qpos0), atol=1e-15)
    for array in (model.keyframes["home"].q, model.keyframes["home"].qd, model.keyframes["home"].u):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    assert not any("keyframe" in note for note in model.notes)
    assert "keyframes: home, key1, tilted" in str(model)
    assert wa.load("laikago").keyframes == {}


def test_keyframes_that_are_not_finite_are_left_out(tmp_path):
    body = '<worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>'
    model, _ = load(write(tmp_path, body + '<keyframe><key qpos="nan"/><key name="key0" qpos="1"/></keyframe>'))
    assert any("'key0' is left out" in note for note in model.notes)
    assert [key.q.tolist() for key in model.keyframes.values()] == [[1.0]]


def test_a_combined_model_has_the_keyframes_of_its_robots(robot):
    model, _ = robot
    turn = np.array([0.0, 0.0, np.sin(0.4), np.cos(0.4)])
    both = wa.combine([model, wa.load("cartpole"), model], poses=[None, None, [1.0, 2.0, 3.0, *turn]])
    assert list(both.keyframes) == list(model.keyframes)
    key, home = both.keyframes["home"], model.keyframes["home"]
    nq, nv, nu = model.nq, model.nv, model.nu
    for whole, part, width in ((key.q, home.q, nq), (key.qd, home.qd, nv), (key.u, home.u, nu)):
        np.testing.assert_array_equal(whole[:width], part)
    np.testing.assert_array_equal(key.q[nq:-nq], both.q0[nq:-nq])
    np.testing.assert_array_equal(key.qd[nv:-nv], 0.0)
    np.testing.assert_array_equal(key.u[-nu:], home.u)
    np.testing.assert_allclose(key.q[-nq:][:3], rotate(turn, home.q[:3]) + [1, 2, 3], atol=1e-15)
    np.testing.assert_allclose(key.q[-nq:][3:7], quat_multiply(turn, home.q[3:7]), atol=1e-15)
    for part in (slice(0, 3), slice(3, 6)):
        np.testing.assert_allclose(key.qd[-nv:][part], rotate(turn, home.qd[part]), atol=1e-14)
    np.testing.assert_array_equal(key.q[-nq:][7:], home.q[7:])


def test_keyframes_survive_a_file_and_old_files_have_none(robot, tmp_path):
    from warp_articulated.model.file import model_arrays, model_from_arrays

    model, _ = robot
    model.save(tmp_path / "robot.npz")
    again = wa.load(tmp_path / "robot.npz")
    for name, key in model.keyframes.items():
        for field in ("q", "qd", "u"):
            np.testing.assert_array_equal(getattr(again.keyframes[name], field), getattr(key, field))
    arrays = {key: value for key, value in model_arrays(model).items() if not key.startswith("model.key_")}
    assert model_from_arrays(arrays, "file").keyframes == {}


def test_a_keyframe_can_be_the_default_pose(tmp_path):
    path = write(tmp_path, ROBOT)
    with pytest.warns(UserWarning, match="'ball' is left out"):
        model = wa.load(path, keyframe="home")
    key = model.keyframes["home"]
    np.testing.assert_array_equal(model.q0, key.q)
    np.testing.assert_array_equal(model.u0, key.u)
    assert any("'home' moves" in note for note in model.notes)
    with (
        pytest.warns(UserWarning),
        pytest.raises(wa.ModelError, match=r"robot.xml.*no keyframe is called 'hom'.*'home'"),
    ):
        wa.load(path, keyframe="hom")
