"""Bounds of u from MJCF's ctrlrange: MuJoCo's forces of controls beyond them are ours of the clipped ones."""

import mujoco
import numpy as np
import pytest
from mjcf_oracle import ASSETS, drive_forces, load, our_q, random_qpos, write

import warp_articulated as wa
from warp_articulated.model import Body, Drive, JointType, ModelError, assemble

ROBOT = """
<compiler angle="radian"/>
{option}
<worldbody>
  <body><joint name="a" range="-1 2"/><geom size="0.1" pos="0 1 0"/>
    <body><joint name="b" type="slide"/><geom size="0.1" pos="0 1 0"/>
      <body><joint name="c"/><geom size="0.1" pos="0 1 0"/></body>
    </body>
  </body>
</worldbody>
<actuator>
  <velocity name="spin" joint="c" kv="3" gear="2" ctrlrange="-0.5 0.25"/>
  <motor name="torque" joint="b" gear="-4" ctrlrange="-1 2"/>
  <position name="target" joint="a" kp="7" gear="3" inheritrange="0.5"/>
  <motor name="off" joint="b" ctrllimited="false" ctrlrange="-1 1"/>
  <motor name="free" joint="b"/>
</actuator>
"""


def check_clipping(model, m):
    """Controls far outside: MuJoCo clips them by itself."""
    data = mujoco.MjData(m)
    rng = np.random.default_rng(0)
    ours = [model.drive(m.actuator(a).name or m.joint(m.actuator_trnid[a, 0]).name) for a in range(m.nu)]
    beyond = 0
    for _ in range(5):
        data.qpos[:], data.qvel[:] = random_qpos(m, rng), rng.normal(size=m.nv)
        data.ctrl[:] = rng.normal(scale=5.0, size=m.nu)
        mujoco.mj_forward(m, data)
        u = np.zeros(m.nu)
        u[ours] = data.ctrl
        clipped = np.clip(u, *model.control_range.T)
        beyond += np.sum(clipped != u)
        tau = drive_forces(model, our_q(m, data.qpos), data.qvel, clipped)
        np.testing.assert_allclose(tau, data.qfrc_actuator, atol=1e-9)
    return beyond


def test_clipped_controls_give_the_forces_of_mujoco(tmp_path):
    model, m = load(write(tmp_path, ROBOT.format(option="")))
    assert check_clipping(model, m) > 0
    bounds = {name: model.control_range[model.drive(name)].tolist() for name in model.drive_names}
    assert bounds["spin"] == [-0.5, 0.25] and bounds["torque"] == [-1.0, 2.0]
    assert bounds["off"] == bounds["free"] == [-np.inf, np.inf]
    assert np.isfinite(bounds["target"]).all()  # from the joint's range
    assert not any("ctrlrange" in note for note in model.notes)
    assert "torque drive torque, gear -4, u in [-1, 2]" in str(model)


@pytest.mark.parametrize("name", ["ant", "humanoid", "hopper", "pusher"])
def test_clipped_controls_of_gymnasiums_robots_give_the_forces_of_mujoco(name):
    assert check_clipping(*load(ASSETS / f"{name}.xml")) > 0


def test_a_file_that_switches_clipping_off_has_no_range(tmp_path):
    option = '<option><flag clampctrl="disable"/></option>'
    model, m = load(write(tmp_path, ROBOT.format(option=option)))
    np.testing.assert_array_equal(model.control_range, [[-np.inf, np.inf]] * 5)
    assert check_clipping(model, m) == 0


def test_a_urdf_has_no_range():
    model = wa.load("laikago")
    np.testing.assert_array_equal(model.control_range, [[-np.inf, np.inf]] * model.nu)


def test_ranges_go_through_combine_and_files(tmp_path):
    from warp_articulated.model.file import model_arrays, model_from_arrays

    model, _ = load(write(tmp_path, ROBOT.format(option="")))
    both = wa.combine([wa.load("cartpole"), model])
    np.testing.assert_array_equal(both.control_range[-model.nu :], model.control_range)
    arrays = model_arrays(model)
    np.testing.assert_array_equal(model_from_arrays(arrays, "file").control_range, model.control_range)
    del arrays["model.control_range"]
    old = model_from_arrays(arrays, "file").control_range
    np.testing.assert_array_equal(old, [[-np.inf, np.inf]] * model.nu)


@pytest.mark.parametrize("bounds", [(1.0, -1.0), (np.nan, 1.0)])
def test_a_range_without_inside_is_refused(bounds):
    leg = Body("leg", -1, "hip", JointType.REVOLUTE, mass=1.0, inertia=np.eye(3))
    with pytest.raises(ModelError, match="'hip': its control range is"):
        assemble("arm", [leg], drives=[Drive("hip", name="hip", control_range=bounds)])
