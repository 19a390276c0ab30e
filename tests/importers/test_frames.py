"""Frames of a model: links, bodies that fixed joints merged and MJCF sites, with their poses held to MuJoCo's."""

import mujoco
import numpy as np
import pytest
from mjcf_oracle import ASSETS, load, our_q, random_qpos, write
from robots import random_q

import warp_articulated as wa
from warp_articulated.geometry.kinematics import batch_link_poses
from warp_articulated.geometry.rotations import quat_multiply, quat_to_matrix, rotate
from warp_articulated.model import Body, Frame, JointType, ModelError, assemble

SITES = """
<worldbody>
  <site name="origin" pos="0.1 0.2 0.3" euler="10 20 30"/>
  <body name="stand" pos="0.3 0.1 0.2" euler="20 40 -30">
    <geom size="0.1"/>
    <site name="on_stand" pos="0 0 0.1" euler="0 0 15"/>
    <body name="arm" pos="0.1 -0.2 0.3" euler="5 6 7">
      <joint name="slide" type="slide" axis="1 2 0" ref="0.4"/>
      <joint name="hinge" axis="0 1 1" pos="0.1 0.2 -0.1" ref="-30"/>
      <geom size="0.1"/>
      <site name="elbow" pos="0.2 0 0.1" euler="0 50 0"/>
      <site pos="1 1 1"/>
      <body name="plate" pos="0.2 0.1 0" euler="0 30 50">
        <geom size="0.1"/>
        <site name="arm" pos="0 0.3 0" euler="70 0 0"/>
        <body name="wrist" pos="0.3 0 0.1" euler="50 0 0">
          <joint name="ball" type="ball" pos="0.05 -0.02 0.1"/>
          <geom size="0.1"/>
          <site name="palm" pos="0.01 0.02 0.03" euler="3 2 1"/>
        </body>
      </body>
    </body>
  </body>
  <body name="puck"><freejoint/><geom size="0.1"/><site name="top" pos="0 0 0.1"/></body>
</worldbody>
"""


def frame_poses(model, q):
    """World positions and rotation matrices of all frames at one q."""
    origins, quats = batch_link_poses(model, q)
    origins, quats = np.vstack([origins, np.zeros(3)]), np.vstack([quats, [0, 0, 0, 1]])  # link -1: the world
    turn = quats[model.frame_link]
    turned = quat_to_matrix(quat_multiply(turn, model.frame_quat))
    return origins[model.frame_link] + rotate(turn, model.frame_offset), turned


def check_against_mujoco(model, m):
    data = mujoco.MjData(m)
    bodies = {m.body(b).name or f"body{b}": b for b in range(1, m.nbody)}
    sites = {m.site(s).name: s for s in range(m.nsite) if m.site(s).name}
    rng = np.random.default_rng(0)
    for _ in range(3):
        data.qpos[:] = random_qpos(m, rng)
        mujoco.mj_kinematics(m, data)
        pos, turn = frame_poses(model, our_q(m, data.qpos))
        found = 0
        for name, p, R in zip(model.frames, pos, turn):
            site = name.removeprefix("site:")
            if name in bodies:
                theirs, axes = data.xpos[bodies[name]], data.xmat[bodies[name]]
            elif site in sites:
                theirs, axes = data.site_xpos[sites[site]], data.site_xmat[sites[site]]
            else:
                assert ":" in name  # a link between two joints of one body
                continue
            found += 1
            np.testing.assert_allclose(p, theirs, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(R, axes.reshape(3, 3), atol=1e-12, err_msg=name)
        assert found == len(bodies) + len(sites)


def test_frames_of_mjcf_bodies_and_sites_are_where_mujoco_has_them(tmp_path):
    model, m = load(write(tmp_path, SITES))
    links = ("arm:slide", "arm", "wrist", "puck")
    assert model.frames == (*links, "stand", "plate", "origin", "on_stand", "elbow", "site:arm", "palm", "top")
    assert model.frame_link.tolist() == [0, 1, 2, 3, -1, 1, -1, -1, 1, 1, 2, 3]
    assert "Site 'arm' has the name of a body; its frame is called 'site:arm'." in model.notes
    check_against_mujoco(model, m)


@pytest.mark.parametrize("name", ["ant", "humanoid", "reacher", "pusher"])
def test_frames_of_gymnasiums_robots_are_where_mujoco_has_them(name):
    check_against_mujoco(*load(ASSETS / f"{name}.xml"))


def test_a_links_frame_is_what_link_poses_returns(tmp_path):
    model, _ = load(write(tmp_path, SITES))
    sim = wa.Simulator(model, num_envs=1, dtype="float64")
    q = random_q(model, np.random.default_rng(1))
    poses = sim.link_poses(sim.initial_state()[0].new_tensor(q[None]))[0].numpy()
    pos, turn = frame_poses(model, q)
    assert model.frames[: model.num_links] == model.link_names
    np.testing.assert_allclose(pos[: model.num_links], poses[:, :3], atol=1e-12)
    np.testing.assert_allclose(turn[: model.num_links], quat_to_matrix(poses[:, 3:]), atol=1e-12)


URDF = """
<robot name="arm">
  <link name="base"/>
  <joint name="mount" type="fixed"><parent link="base"/><child link="stand"/><origin xyz="1 2 3" rpy="0 0 0.5"/></joint>
  <link name="stand"/>
  <joint name="hip" type="continuous">
    <parent link="stand"/><child link="leg"/><origin xyz="0 0 1"/><axis xyz="0 0 1"/>
  </joint>
  <link name="leg"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial></link>
  <joint name="ankle" type="fixed"><parent link="leg"/><child link="foot"/><origin xyz="1 0 0" rpy="0.2 0 0"/></joint>
  <link name="foot"/>
  <joint name="toe" type="fixed"><parent link="foot"/><child link="nail"/><origin xyz="0 1 0"/></joint>
  <link name="nail"/>
</robot>
"""


@pytest.fixture
def arm(tmp_path):
    (tmp_path / "arm.urdf").write_text(URDF)
    return wa.load(tmp_path / "arm.urdf")


def test_frames_of_a_urdf_are_all_its_links(arm):
    assert arm.frames == ("leg", "base", "stand", "foot", "nail")
    assert arm.frame_link.tolist() == [0, -1, -1, 0, 0]
    pos, _ = frame_poses(arm, np.array([0.3]))
    c, s = np.cos(0.8), np.sin(0.8)
    out = [-s * np.cos(0.2), c * np.cos(0.2), np.sin(0.2)]  # the foot's y axis
    wanted = [[1, 2, 4], [0, 0, 0], [1, 2, 3], [1 + c, 2 + s, 4], np.add([1 + c, 2 + s, 4], out)]
    np.testing.assert_allclose(pos, wanted, atol=1e-12)


def test_combine_moves_and_renames_frames(arm, tmp_path):
    turn = [0, 0, np.sin(0.2), np.cos(0.2)]
    both = wa.combine([arm, arm, load(write(tmp_path, SITES))[0]], poses=[None, [0, 0, 5, *turn], None])
    assert both.frames[: both.num_links] == both.link_names
    names = both.frames[both.num_links :]
    assert names[:8] == tuple(f"arm{k}/{n}" for k in (1, 2) for n in ("base", "stand", "foot", "nail"))
    single, _ = frame_poses(arm, np.array([0.3]))
    q = both.q0.copy()
    q[:2] = 0.3
    pos, _ = frame_poses(both, q)
    moved = rotate(np.array(turn), single) + [0, 0, 5]
    for k, where in ((1, single), (2, moved)):
        for name, p in zip(arm.frames, where):
            np.testing.assert_allclose(pos[both.frames.index(f"arm{k}/{name}")], p, atol=1e-12)
    assert "palm" in both.frames and both.frame_link[both.frames.index("palm")] == both.link_names.index("wrist")


def test_frames_survive_a_file_and_old_files_have_those_of_links(arm, tmp_path):
    from warp_articulated.model.file import model_arrays, model_from_arrays

    arrays = model_arrays(arm)
    again = model_from_arrays(arrays, "file")
    assert again.frames == arm.frames
    np.testing.assert_array_equal(again.frame_quat, arm.frame_quat)
    old = {key: value for key, value in arrays.items() if key not in (
        "model.frames", "model.frame_link", "model.frame_offset", "model.frame_quat")}  # fmt: skip
    older = model_from_arrays(old, "file")
    assert older.frames == older.link_names
    np.testing.assert_array_equal(older.frame_offset, older.frame_pos)
    np.testing.assert_array_equal(older.frame_quat, [[0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (Frame("leg", 0, np.zeros(3), np.array([0, 0, 0, 1.0])), "called 'leg'"),
        (Frame("far", 1, np.zeros(3), np.array([0, 0, 0, 1.0])), "'far' .* on link 1"),
        (Frame("odd", 0, np.full(3, np.nan), np.array([0, 0, 0, 1.0])), "'odd' is at"),
    ],
)
def test_frames_that_cannot_be_used_are_refused(frame, says):
    leg = Body("leg", -1, "hip", JointType.REVOLUTE, mass=1.0, inertia=np.eye(3))
    with pytest.raises(ModelError, match=says):
        assemble("arm", [leg], frames=[frame])
