"""The MJCF importer against MuJoCo itself: poses, inertias, mass matrix, joints, forces of drives."""

import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
from mjcf_oracle import (
    ASSETS,
    ZOO,
    drive_forces,
    full_mass_matrix,
    load,
    mass_matrix,
    our_q,
    random_qpos,
    velocity_map,
    write,
)

from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.mjcf import load_mjcf
from warp_articulated.model import NV, WORLD, DriveType, JointType, ModelError

GYMNASIUM = [
    "ant", "half_cheetah", "hopper", "walker2d", "swimmer", "humanoid", "humanoidstandup", "inverted_pendulum",
    "inverted_double_pendulum", "reacher", "pusher",
]  # fmt: skip


@pytest.fixture(scope="session")
def zoo(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mjcf") / "zoo.xml"
    path.write_text(ZOO)
    return path


@pytest.fixture(params=[*GYMNASIUM, "zoo"])
def file(request, zoo) -> Path:
    return zoo if request.param == "zoo" else ASSETS / f"{request.param}.xml"


def test_link_poses_are_mujocos_body_poses(file):
    model, m = load(file)
    data = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    names = {m.body(b).name or f"body{b}": b for b in range(1, m.nbody)}
    last = [(i, names[n]) for i, n in enumerate(model.link_names) if n in names]
    assert len(last) == np.sum(m.body_jntnum > 0)
    for _ in range(5):
        data.qpos[:] = random_qpos(m, rng)
        mujoco.mj_kinematics(m, data)
        rotation, origin = link_transforms(model, our_q(m, data.qpos))
        for i, b in last:
            np.testing.assert_allclose(origin[i] + rotation[i] @ model.frame_pos[i], data.xpos[b], atol=1e-12)
            np.testing.assert_allclose(rotation[i], data.xmat[b].reshape(3, 3), atol=1e-12)


def test_shapes_are_where_mujocos_geoms_are(file):
    model, m = load(file)
    data = mujoco.MjData(m)
    data.qpos[:] = random_qpos(m, np.random.default_rng(1))
    mujoco.mj_kinematics(m, data)
    rotation, origin = link_transforms(model, our_q(m, data.qpos))
    assert len(model.shapes) == m.ngeom
    for g, shape in enumerate(model.shapes):
        R, p = (np.eye(3), np.zeros(3)) if shape.link == WORLD else (rotation[shape.link], origin[shape.link])
        np.testing.assert_allclose(p + R @ shape.pos, data.geom_xpos[g], atol=1e-12)
        np.testing.assert_allclose(R @ quat_to_matrix(shape.quat), data.geom_xmat[g].reshape(3, 3), atol=1e-12)


def test_mass_matrix_equals_mujocos(file):
    model, m = load(file)
    data = mujoco.MjData(m)
    rng = np.random.default_rng(2)
    for _ in range(3):
        data.qpos[:] = random_qpos(m, rng)
        mujoco.mj_forward(m, data)
        T = velocity_map(m, data.qpos)
        full = T.T @ full_mass_matrix(m, data) @ T
        np.testing.assert_allclose(mass_matrix(model, our_q(m, data.qpos)), full, rtol=0, atol=1e-10 * full.max())


def test_moving_mass_com_and_inertia_equal_mujocos(file):
    model, m = load(file)
    data = mujoco.MjData(m)
    data.qpos[:] = random_qpos(m, np.random.default_rng(3))
    mujoco.mj_forward(m, data)
    moving = np.flatnonzero(m.body_weldid != 0)
    assert model.mass.sum() == pytest.approx(m.body_mass[moving].sum(), rel=1e-12)
    rotation, origin = link_transforms(model, our_q(m, data.qpos))
    coms = origin + np.einsum("nij,nj->ni", rotation, model.com)
    turned = rotation @ model.inertia @ rotation.transpose(0, 2, 1)
    ours = total_inertia(model.mass, coms, turned)
    axes = data.ximat[moving].reshape(-1, 3, 3)
    theirs = total_inertia(
        m.body_mass[moving], data.xipos[moving], axes * m.body_inertia[moving, None, :] @ axes.transpose(0, 2, 1)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-10 * np.abs(theirs).max())


def total_inertia(mass, com, inertia) -> np.ndarray:
    """Inertia (3, 3) about the world's origin, and the first moment (3,) below it."""
    square = np.einsum("ni,ni->n", com, com)[:, None, None] * np.eye(3) - np.einsum("ni,nj->nij", com, com)
    return np.vstack([(inertia + mass[:, None, None] * square).sum(0), mass @ com])


def test_default_pose_and_joint_parameters_are_those_of_the_file(file):
    model, m = load(file)
    qpos0 = m.qpos0.copy()
    for j in np.flatnonzero(m.jnt_limited):  # no ball joint is limited
        qpos0[m.jnt_qposadr[j]] = np.clip(qpos0[m.jnt_qposadr[j]], *m.jnt_range[j])
    np.testing.assert_allclose(model.q0, our_q(m, qpos0), atol=1e-15)
    np.testing.assert_array_equal(model.armature, m.dof_armature)
    np.testing.assert_array_equal(model.damping, m.dof_damping)
    np.testing.assert_array_equal(model.gravity, m.opt.gravity)
    assert list(model.joint_names) == [m.joint(j).name for j in range(m.njnt)]
    for j, name in enumerate(model.joint_names):
        at = model.joint_v(name)
        if m.jnt_type[j] < 2:
            continue
        v = at.start
        assert model.stiffness[v] == m.jnt_stiffness[j] and model.spring_ref[v] == m.qpos_spring[m.jnt_qposadr[j]]
        assert model.frictionloss[v] == m.dof_frictionloss[m.jnt_dofadr[j]]
        expected = m.jnt_range[j] if m.jnt_limited[j] else (-np.inf, np.inf)
        assert (model.lower[v], model.upper[v]) == tuple(expected)


def test_drives_apply_the_forces_of_mujocos_actuators(file):
    check_drives(*load(file))


def check_drives(model, m):
    """qfrc_actuator at random states and controls, with the controls in the order of our u."""
    data = mujoco.MjData(m)
    rng = np.random.default_rng(4)
    assert model.nu == m.nu
    if not model.nu:
        return
    ours = [model.drive_names.index(m.actuator(a).name or m.joint(m.actuator_trnid[a, 0]).name) for a in range(m.nu)]
    assert sorted(ours) == list(range(m.nu))
    for _ in range(5):
        data.qpos[:], data.qvel[:] = random_qpos(m, rng), rng.normal(size=m.nv)
        data.ctrl[:] = rng.uniform(-0.4, 0.4, size=m.nu)  # within every ctrlrange
        u = np.zeros(m.nu)
        u[ours] = data.ctrl
        mujoco.mj_forward(m, data)
        tau = drive_forces(model, our_q(m, data.qpos), data.qvel, u)
        np.testing.assert_allclose(tau, data.qfrc_actuator, atol=1e-9)


ACTUATED = """
<worldbody>
  <body name="a"><joint name="one" axis="0 1 0" ref="30"/><geom size="0.1"/>
    <body name="b" pos="1 0 0"><joint name="two" type="slide" axis="1 0 0" ref="0.2"/><geom size="0.1"/>
      <body name="c" pos="1 0 0"><joint name="three" actuatorfrcrange="-2 2"/><geom size="0.1" pos="0.2 0 0"/></body>
    </body>
  </body>
</worldbody>
<actuator>
  <position name="servo" joint="two" kp="20" kv="3" gear="-2" forcerange="-9 9"/>
  <motor name="motor" joint="one" gear="-3" forcerange="-0.5 0.5"/>
  <velocity name="speed" joint="one" kv="4" gear="2"/>
  <general name="general" joint="two" gainprm="6" biastype="affine" biasprm="0 -3 -1" gear="1.5"/>
  <motor name="bounded" joint="three" gear="5"/>
  <motor name="pull" joint="two" gear="-4" forcerange="-0.1 0.6"/>
  <position name="oneway" joint="one" kp="9" forcerange="1 3"/>
</actuator>
"""


def test_all_kinds_of_actuators_with_gears_and_limits(tmp_path):
    model, m = load(write(tmp_path, ACTUATED))
    check_drives(model, m)
    kinds = dict(zip(model.drive_names, model.drive_type))
    assert kinds["servo"] == kinds["general"] == DriveType.POSITION
    pull = model.drive("pull")
    assert (model.effort[pull], model.effort_center[pull]) == pytest.approx((1.4, -1.0))
    assert "effort 1.4 about -1 (-2.4 to 0.4)" in str(model)
    assert kinds["speed"] == DriveType.VELOCITY and kinds["motor"] == DriveType.TORQUE


@pytest.mark.parametrize("name", ["ant", "humanoid"])
def test_actuators_keep_the_order_of_the_file(name):
    model, m = load(ASSETS / f"{name}.xml")
    order = [m.joint(m.actuator_trnid[a, 0]).name for a in range(m.nu)]
    joints = [model.joint_names[model.joint_of_link[np.flatnonzero(model.v_start == v)[0]]] for v in model.drive_dof]
    assert joints == order and joints != sorted(joints, key=model.joint_names.index)
    rng = np.random.default_rng(5)
    data = mujoco.MjData(m)
    data.qpos[:], data.ctrl[:] = random_qpos(m, rng), rng.uniform(-0.4, 0.4, m.nu)  # within every ctrlrange
    mujoco.mj_forward(m, data)
    tau = drive_forces(model, our_q(m, data.qpos), np.zeros(m.nv), data.ctrl)  # ctrl is u
    np.testing.assert_allclose(tau, data.qfrc_actuator, atol=1e-9)


def test_rotor_inertia_of_an_actuator_is_multiplied_by_the_gear_squared(tmp_path):
    if not hasattr(mujoco.MjModel, "actuator_armature"):
        pytest.skip("this version of MuJoCo has no actuator armature")
    path = write(
        tmp_path,
        '<worldbody><body><joint name="j"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="j" gear="3" armature="2" damping="5"/></actuator>',
    )
    model, m = load(path)
    data = mujoco.MjData(m)
    data.qvel[:] = 1.5
    mujoco.mj_forward(m, data)
    np.testing.assert_allclose(mass_matrix(model, model.q0), full_mass_matrix(m, data), rtol=1e-12)
    np.testing.assert_allclose(-model.damping * 1.5, data.qfrc_passive, rtol=1e-12)


def test_unsupported_actuators_are_left_out_with_a_warning(tmp_path):
    path = write(
        tmp_path,
        '<worldbody><body name="b"><joint name="j"/><geom size="0.1"/></body></worldbody>'
        '<actuator><adhesion name="glue" body="b" ctrlrange="0 1"/><cylinder name="piston" joint="j"/>'
        '<motor joint="j"/></actuator>',
    )
    with pytest.warns(UserWarning, match="glue.*piston"):
        model = load_mjcf(path)
    assert model.drive_names == ("j",)
    assert sum("the simulation will differ" in note for note in model.notes) == 2


def test_unsupported_features_are_listed(tmp_path):
    path = write(
        tmp_path,
        '<option density="1.2"/><worldbody><body name="a"><joint name="j"/><geom size="0.1"/></body>'
        '<body name="b"><joint name="k" type="ball" range="0 1" limited="true" stiffness="2"/><geom size="0.1"/></body>'
        '<site name="s"/><site name="t"/></worldbody>'
        '<tendon><spatial stiffness="3"><site site="s"/><site site="t"/></spatial></tendon>',
    )
    with pytest.warns(UserWarning, match="the simulation will differ"):
        notes = " ".join(load_mjcf(path).notes)
    for word in ("runs through sites", "fluid", "range of ball", "spring of ball"):
        assert word in notes


def test_disable_flags_are_honoured(tmp_path):
    flags = " ".join(f'{f}="disable"' for f in ("gravity", "contact", "limit", "actuation", "spring", "damper"))
    path = write(
        tmp_path,
        f'<option><flag {flags}/></option><worldbody><geom type="plane" size="1 1 1"/><body><joint name="j" '
        'range="-1 1" limited="true" stiffness="1" damping="1"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="j"/></actuator>',
    )
    model = load_mjcf(path)
    assert not model.gravity.any() and not len(model.pairs) and model.nu == 0
    assert np.isinf(model.upper[0]) and model.stiffness[0] == 0 and model.damping[0] == 0


def test_missing_names_are_made_up(tmp_path):
    path = write(
        tmp_path,
        '<worldbody><body><joint/><joint type="slide"/><geom size="1"/><geom size="1"/></body>'
        '<body name="body1_joint"><joint name="body1_joint2"/><geom size="1"/></body></worldbody>',
    )
    model = load_mjcf(path)
    assert len(set(model.joint_names)) == 3 and len(set(model.link_names)) == 3
    assert "body1_joint2" in model.joint_names and "body1_joint" in model.link_names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<worldbody><body name='x'><joint/></body></worldbody>", "mass and inertia"),
        ("<worldbody><geom size='1'/></worldbody>", "no moving link"),
        ("<nonsense/>", "nonsense"),
    ],
)
def test_files_that_cannot_be_simulated_are_refused_by_name(tmp_path, text, said):
    with pytest.raises(ModelError, match=rf"robot.xml.*{said}"):
        load_mjcf(write(tmp_path, text))
    with pytest.raises(ModelError, match=r"missing.xml.*no such file"):
        load_mjcf(tmp_path / "missing.xml")


def test_without_mujoco_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ModelError, match="pip install mujoco"):
        load_mjcf(write(tmp_path, "<worldbody/>"))


def test_merged_bodies_are_listed(zoo):
    model, _ = load(zoo)
    assert dict(model.merged) == {"stand": "world", "plate": "arm", "knob": "arm"}
    assert model.link_names[:3] == ("arm:slide", "arm:hinge", "arm")
    assert sum(NV[JointType(t)] for t in model.joint_type) == model.nv


def test_a_name_that_is_no_text_gives_an_error(tmp_path):
    text = '<mujoco><worldbody><body name="arm"><freejoint/><geom size="1"/></body></worldbody></mujoco>'
    (tmp_path / "r.xml").write_bytes(text.encode().replace(b"arm", b"a\xe9m"))
    with pytest.raises(ModelError, match=r"r\.xml.*(UTF-8|XML)"):
        load_mjcf(tmp_path / "r.xml")
