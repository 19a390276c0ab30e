"""Forces on links from MJCF files, actuators at sites and gravity compensation: accelerations against MuJoCo's."""

import mujoco
import numpy as np
import pytest
import torch
from mjcf_oracle import load, our_q, random_qpos, velocity_map, write

import warp_articulated as wa
from warp_articulated.importers.mjcf import load_mjcf
from warp_articulated.model import Body, Drive, DriveType, JointType, ModelError, Thrust, assemble

STATES = 6
DRONE = """
<compiler angle="radian"/>
<option gravity="1 -2 -9"/>
<worldbody>
  <body name="hull" pos="0 0 1" euler="0.1 0.2 0.3" gravcomp="{hull}">
    <freejoint/><geom type="box" size="0.3 0.2 0.1" pos="0.05 0 0.02"/>
    <site name="left" pos="0.3 0.1 0.05" euler="0.3 0.2 0.1"/>
    <body name="boom" pos="0.4 0 0" euler="0 0.4 0.2" gravcomp="{hull}"><geom size="0.1" pos="0.2 0 0"/></body>
    <body name="arm" pos="-0.3 0 0" gravcomp="{arm}">
      <joint name="shoulder" axis="0 1 0"/><geom type="capsule" size="0.05" fromto="0 0 0 -0.4 0 0.1"/>
      <body name="rod" pos="-0.4 0 0"><joint name="slide" type="slide" axis="1 0 1"/><geom size="0.1" pos="0 0.1 0"/>
        <body name="tip" pos="-0.1 0 0" euler="0.2 0.5 0" gravcomp="0.7">
          <joint name="ball" type="ball"/><geom type="box" size="0.1 0.05 0.02" pos="0.1 0 0"/>
          <body name="nozzle" pos="0.1 0.1 0" euler="0.3 0 0.2" gravcomp="0.7"><geom size="0.02"/>
            <site name="jet" pos="0 0 0.1" quat="0.5 0.1 0.2 0.3"/></body>
        </body>
      </body>
    </body>
  </body>
</worldbody>
<actuator>
  <motor name="second" joint="slide" gear="3"/>
  <general name="jet" site="jet" gear="1 -2 3 0.1 0.2 -0.3" gainprm="2" forcerange="-1.5 1.5"/>
  <motor name="left" site="left" gear="0 0 1 0 0 -0.2" ctrlrange="0 3"/>
  <position name="first" joint="shoulder" kp="5"/>
</actuator>
"""


def acceleration(model, m, controls):
    """Mean accelerations of a short step, ours and MuJoCo's, in our axes, at random states."""
    dt, rng, data = 1e-7, np.random.default_rng(0), mujoco.MjData(m)
    m.opt.timestep = dt
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    sim = wa.Simulator(model, STATES, device="cpu", dtype="float64", dt=dt)
    qpos, qd = np.array([random_qpos(m, rng) for _ in range(STATES)]), rng.normal(size=(STATES, m.nv))
    q = np.array([our_q(m, x) for x in qpos])
    _, after = sim.step(torch.tensor(q), torch.tensor(qd), torch.tensor(controls))
    theirs = np.zeros((STATES, m.nv))
    for k in range(STATES):
        T = velocity_map(m, qpos[k])
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[k], T @ qd[k], controls[k]
        mujoco.mj_forward(m, data)
        theirs[k] = T.T @ data.qacc  # rates in a turning frame: of body axes only, which w x w leaves alone
    return (after.numpy() - qd) / dt, theirs


@pytest.mark.parametrize(("hull", "arm"), [(0, 0), (1, 1), (0.4, -0.3), (1.5, 0)])
def test_sites_and_gravcomp_accelerate_as_in_mujoco(tmp_path, hull, arm):
    model, m = load(write(tmp_path, DRONE.format(hull=hull, arm=arm)), self_collision=False)
    assert model.drive_names == ("second", "jet", "left", "first") and not any("differ" in n for n in model.notes)
    controls = np.random.default_rng(1).uniform(-1.0, 3.0, size=(STATES, 4))
    assert (2 * abs(controls[:, 1]) > 1.5).any() and (2 * abs(controls[:, 1]) < 1.5).any()  # at its limit and below
    ours, theirs = acceleration(model, m, controls)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())
    np.testing.assert_allclose(model.gravcomp, [hull, arm, 0, 0.7], atol=1e-15)


def test_a_weightless_robot_at_rest_stays_there(tmp_path):
    inner = '<body name="b" pos="1 0 0" gravcomp="1"><joint axis="1 1 0"/><geom size="0.1" pos="0 0.3 0"/></body>'
    bodies = f'<body name="a" gravcomp="1"><joint axis="0 1 0" pos="1 0 0"/><geom size="0.1"/>{inner}</body>'
    model, _ = load(write(tmp_path, f"<worldbody>{bodies}</worldbody>"))
    sim = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=1e-2)
    _, qds = sim.rollout(*sim.initial_state(), sim.initial_control().repeat(20, 1, 1))
    assert qds.abs().max() < 1e-12
    assert "gravcomp 1" in str(model)


def test_bodies_of_one_link_with_different_gravcomp_get_a_note(tmp_path):
    body = '<body name="a" gravcomp="1"><joint/><geom size="0.1"/><body pos="1 0 0"><geom size="0.1"/></body></body>'
    with pytest.warns(UserWarning, match="'a', have different gravcomp"):
        model = load_mjcf(write(tmp_path, f"<worldbody>{body}</worldbody>"))
    np.testing.assert_allclose(model.gravcomp, 0.5)


@pytest.mark.parametrize(
    ("actuator", "reason"),
    [
        ('<motor name="x" site="s" refsite="r"/>', "between two sites"),
        ('<motor name="x" site="r"/>', "fixed to the world"),
        ('<velocity name="x" site="s" kv="2"/>', "velocity of a site"),
        ('<adhesion name="x" body="a" ctrlrange="0 1"/>', "adhesion"),
        ('<motor name="x" site="s" gear="0 0 0 0 0 0"/>', "gear is zero"),
    ],
)
def test_other_actuators_on_links_are_left_out_with_the_reason(tmp_path, actuator, reason):
    body = '<site name="r"/><body name="a"><joint name="j"/><geom size="0.1"/><site name="s"/></body>'
    path = write(tmp_path, f"<worldbody>{body}</worldbody><actuator>{actuator}<motor joint='j'/></actuator>")
    with pytest.warns(UserWarning, match=f"Actuator 'x' is left out.*{reason}"):
        model = load_mjcf(path)
    assert model.drive_names == ("j",)


def test_thrusts_and_gravcomp_go_through_files_and_combine(tmp_path):
    text = DRONE.format(hull=0.4, arm=1).replace('gravity="1 -2 -9"', "")
    model, _ = load(write(tmp_path, text), self_collision=False)
    model.save(tmp_path / "m.npz")
    again = wa.load(tmp_path / "m.npz")
    both = wa.combine([wa.load("cartpole"), model])
    first = wa.load("cartpole").num_links
    for key in ("gravcomp", "thrust_pos", "thrust_wrench", "thrust_drive", "thrust_link", "drive_dof"):
        np.testing.assert_array_equal(getattr(again, key), getattr(model, key))
    np.testing.assert_array_equal(both.gravcomp[first:], model.gravcomp)
    np.testing.assert_array_equal(both.thrust_link, model.thrust_link + first)
    np.testing.assert_array_equal(both.thrust_wrench, model.thrust_wrench)
    assert [both.drive_names[k] for k in both.thrust_drive] == ["jet", "left"]
    assert "pushed by u[1] torque drive jet, gear 2, effort 1.5" in str(model)


@pytest.mark.parametrize(
    ("thrust", "kind", "said"),
    [
        (Thrust(3, np.zeros(3), np.zeros(6)), DriveType.TORQUE, "pushes link 3"),
        (Thrust(0, np.full(3, np.nan), np.zeros(6)), DriveType.TORQUE, "place of its thrust"),
        (Thrust(0, np.zeros(3), np.zeros(3)), DriveType.TORQUE, "force and torque of its thrust"),
        (Thrust(0, np.zeros(3), np.zeros(6)), DriveType.POSITION, "must be a torque drive"),
    ],
)
def test_impossible_thrusts_are_refused_by_name(thrust, kind, said):
    leg = Body("leg", -1, "hip", JointType.REVOLUTE, mass=1.0, inertia=np.eye(3))
    with pytest.raises(ModelError, match=f"jet.*{said}"):
        assemble("rocket", [leg], drives=[Drive("", kind, kp=1.0, name="jet", thrust=thrust)])
    with pytest.raises(ModelError, match=r"'leg'.*gravcomp is nan"):
        assemble("rocket", [Body("leg", -1, "hip", JointType.REVOLUTE, mass=1.0, inertia=np.eye(3), gravcomp=np.nan)])
