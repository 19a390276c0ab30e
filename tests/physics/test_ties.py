"""Loops, coupled joints and tendons against closed forms and MuJoCo, whose soft constraints are made stiff."""

import warnings

import mujoco
import numpy as np
import pytest
import torch
from mjcf_oracle import our_q, write
from scipy.integrate import solve_ivp
from tied_models import tied_model, tied_states

import warp_articulated as wa
from warp_articulated.geometry.kinematics import lowest_point
from warp_articulated.importers.urdf import load_urdf
from warp_articulated.model.closure import residuals

# MuJoCo at a stiffness and a step at which its loops open by less than 1e-7; both step errors are of first order
STIFF, FINE = (-1e7, -2e4), 5e-5

ROD = '<geom type="capsule" fromto="0 0 0 {}" size="0.01" mass="{}" contype="0" conaffinity="0"/>'


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing may be left out
        return wa.load(path)


def simulate(model, seconds, *, u=None, qd=None, dt=1e-3, **options):
    sim = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=dt, **options)
    q, rates = sim.initial_state()
    if qd is not None:
        rates = rates + torch.as_tensor(qd, dtype=q.dtype)
    controls = (sim.initial_control() if u is None else torch.as_tensor(u, dtype=q.dtype)[None]).expand(
        round(seconds / dt), 1, -1
    )
    qs, qds = sim.rollout(q, rates, controls.contiguous())
    return qs[:, 0].numpy(), qds[:, 0].numpy()


def in_mujoco(path, seconds, u=None, step=FINE, qpos=None):
    m = mujoco.MjModel.from_xml_path(str(path))
    m.opt.timestep, m.opt.iterations, m.opt.tolerance = step, 200, 1e-14
    m.eq_solref[:] = STIFF
    m.eq_solimp[:, :2] = 0.99999
    d = mujoco.MjData(m)
    if qpos is not None:
        d.qpos[:] = qpos
    if u is not None:
        d.ctrl[:] = u
    for _ in range(round(seconds / step)):
        mujoco.mj_step(m, d)
    return m, d


def opening(model, qs) -> float:
    """Largest error of any equality constraint on the way, m or rad."""
    return max(float(np.abs(residuals(model, q)[0]).max()) for q in qs)


# -- loops


FOUR_BAR = f"""
<worldbody>
  <body name="a"><joint name="ja" axis="0 1 0"/>{ROD.format("0 0 0.2", 0.2)}
    <body name="b" pos="0 0 0.2"><joint name="jb" axis="0 1 0"/>{ROD.format("0.3 0 0.05", 0.3)}
      <body name="c" pos="0.3 0 0.05"><joint name="jc" axis="AXIS"/>{ROD.format("0.05 0 -0.25", 0.25)}</body>
    </body>
  </body>
</worldbody>
<equality><connect name="pin" body1="c" anchor="0.05 0 -0.25"/></equality>
<actuator><motor joint="ja"/></actuator>
"""


def test_four_bar_linkage_moves_as_in_mujoco(tmp_path):
    path = write(tmp_path, FOUR_BAR.replace("AXIS", "0 1 0"))
    model = load(path)
    assert "loop pin: point of c and world, planar" in str(model)
    _, d = in_mujoco(path, 0.3, u=[0.2])
    errors = []
    for dt in (1e-3, 5e-4):
        qs, _ = simulate(model, 0.3, u=[0.2], dt=dt)
        errors.append(np.abs(qs[-1] - d.qpos).max())
    assert errors[0] < 5e-3 * np.abs(d.qpos).max()
    assert errors[1] < 0.6 * errors[0]  # what differs is the step


def test_a_planar_loop_with_a_rounded_axis_is_not_locked(tmp_path):
    """An axis 1e-3 rad off locks three rows; two rows across the axes leave the linkage free."""
    straight = load(write(tmp_path, FOUR_BAR.replace("AXIS", "0 1 0")))
    tilted = load(write(tmp_path, FOUR_BAR.replace("AXIS", "0.001 1 0")))
    assert np.abs(simulate(tilted, 0.2)[0][-1] - simulate(straight, 0.2)[0][-1]).max() < 1e-3


def test_parallelogram_is_a_pendulum(tmp_path):
    """Two equal cranks and a rod that stays parallel to the ground: th'' = -g sin th (m + M) / (2 m / 3 + M) / L."""
    length, crank, rod = 0.3, 0.4, 0.7
    text = f"""<worldbody>
      <body><joint name="left" axis="0 -1 0"/>{ROD.format(f"0 0 {-length}", crank)}
        <body name="rod" pos="0 0 {-length}"><joint name="top" axis="0 -1 0"/>{ROD.format("0.5 0 0", rod)}</body></body>
      <body name="right" pos="0.5 0 0"><joint axis="0 -1 0"/>{ROD.format(f"0 0 {-length}", crank)}</body>
    </worldbody><equality><connect body1="right" body2="rod" anchor="0 0 {-length}"/></equality>"""
    model = load(write(tmp_path, text)).with_pose({"left": 0.8})
    np.testing.assert_allclose(model.q0, [0.8, -0.8, 0.8], atol=1e-8)  # the others follow
    # the capsules are uniform up to their round ends, so inertia is that of the model
    spin = sum(model.inertia[i, 1, 1] + model.mass[i] * model.com[i, 2] ** 2 for i in (0, 2)) + rod * length**2
    weight = 9.81 * (2 * crank * length / 2 + rod * length)
    exact = solve_ivp(lambda _, y: [y[1], -weight * np.sin(y[0]) / spin], (0, 1), [0.8, 0], rtol=1e-10, atol=1e-12)
    errors = [abs(simulate(model, 1.0, dt=dt)[0][-1][0] - exact.y[0, -1]) for dt in (1e-3, 2.5e-4)]
    assert errors[0] < 0.01 and errors[1] < 0.3 * errors[0]


SPATIAL = f"""
<worldbody>
  <body name="pelvis" pos="0 0 1"><freejoint/>
    <geom type="box" size="0.1 0.1 0.1" mass="10" contype="0" conaffinity="0"/>
    <body name="thigh"><joint name="hip" axis="0 1 0"/>{ROD.format("0 0 -0.4", 2)}
      <body name="shin" pos="0 0 -0.4"><joint name="knee" axis="0 1 0" ref="20"/>{ROD.format("0 0 -0.35", 1)}
        <body name="foot" pos="0 0 -0.35"><joint name="ankle" axis="0 1 0"/>{ROD.format("0.15 0 0", 0.3)}</body></body>
      <body name="rod" pos="-0.03 0.02 -0.05"><joint type="ball"/>{ROD.format("0 0 -0.5", 0.05)}</body>
    </body>
  </body>
</worldbody>
<equality><connect name="heel" body1="rod" body2="foot" anchor="0 0 -0.5"/></equality>
<actuator><motor joint="hip"/><motor joint="knee"/></actuator>
"""


def test_a_leg_with_a_rod_on_ball_joints_moves_as_in_mujoco(tmp_path):
    """Cassie's kind of loop: light, not planar, below a floating base."""
    path = write(tmp_path, SPATIAL)
    model = load(path)
    m, d = in_mujoco(path, 0.2, u=[3.0, -2.0])
    qs, _ = simulate(model, 0.2, u=[3.0, -2.0], dt=2.5e-4)
    assert np.abs(qs[-1] - our_q(m, d.qpos)).max() < 5e-3 * np.abs(d.qpos).max()
    assert opening(model, qs[::20]) < 1e-4


WELDED = """
<worldbody>
  <body name="a" pos="0 0 1"><freejoint/>
    <geom type="box" size="0.1 0.05 0.03" mass="1" contype="0" conaffinity="0"/>JOINED</body>APART
</worldbody>
"""
PART = (
    '<body name="b" pos="{}" euler="20 30 40">{}<geom type="box" size="0.04 0.08 0.02" mass="2" contype="0" '
    'conaffinity="0"/></body>'
)


def test_welded_bodies_move_as_one(tmp_path):
    one = load(write(tmp_path, WELDED.replace("JOINED", PART.format("0.2 0.1 0", "")).replace("APART", "")))
    apart = PART.format("0.2 0.1 1", "<freejoint/>")
    two = load(
        write(
            tmp_path,
            WELDED.replace("JOINED", "").replace("APART", apart) + '<equality><weld body1="a" body2="b"/></equality>',
        )
    )
    spin = np.array([0.5, 0, 0.2, 1.0, -2.0, 3.0])
    qs, _ = simulate(one, 0.5, qd=spin)
    arm = np.array([0.2, 0.1, 0.0])
    both = np.concatenate([spin, spin[:3] + np.cross(spin[3:], arm), spin[3:]])
    pair, _ = simulate(two, 0.5, qd=both)
    assert np.abs(pair[-1, :3] - qs[-1, :3]).max() < 2e-3
    assert min(np.abs(pair[-1, 3:7] - sign * qs[-1, 3:7]).max() for sign in (1, -1)) < 5e-3
    assert opening(two, pair[::50]) < 1e-4


@pytest.mark.parametrize(("dtype", "most"), [("float64", 1e-4), ("float32", 2e-4)])
def test_new_rates_obey_the_ties_however_early_the_contact_solver_stops(dtype, most):
    """J qd' is what removes 0.8 of the errors in a step, to the compliance, with contacts and limits that act."""
    sim = wa.Simulator(tied_model(), 8, device="cpu", dtype=dtype, dt=1e-3, iterations=3, max_push_speed=50.0)
    q, qd, u = tied_states(sim)
    assert min(lowest_point(sim.model, x) for x in q.double().numpy()) < -0.1  # far in the ground
    _, rates = sim.step(q, qd, u)
    for env in range(sim.num_envs):
        error, J, _, _ = residuals(sim.model, q[env].double().numpy())
        change = J @ rates[env].double().numpy() + 0.8 * error / sim.dt
        assert np.abs(change).max() < most * np.abs(J * qd[env].double().numpy()).sum(1).max()


# -- couplings and tendons


COUPLED = """
<worldbody>
  <body name="a"><joint name="one" axis="0 1 0" ref="10"/><geom size="0.05" pos="0.3 0 0" mass="1"/></body>
  <body name="b" pos="0 1 0"><joint name="two" type="slide" axis="1 0 0" ref="0.1"/><geom size="0.05" mass="2"/></body>
  <body name="c" pos="0 2 0"><joint name="three" axis="0 1 0"/><geom size="0.05" pos="0.2 0 0" mass="0.5"/></body>
</worldbody>
"""
TENDONS = """
<tendon>
  <fixed name="spring" stiffness="40" damping="0.3" springlength="-0.02 0.05"><joint joint="one" coef="0.5"/>
    <joint joint="three" coef="-0.8"/></fixed>
  <fixed name="wire"><joint joint="one" coef="0.7"/><joint joint="two" coef="1.1"/></fixed>
</tendon>
<actuator>
  <position name="pull" tendon="wire" kp="30" kv="1" forcerange="-5 5" gear="1.5"/>
  <motor name="tug" tendon="spring" gear="0.5"/>
  <motor name="joint" joint="two"/>
</actuator>
"""


@pytest.mark.parametrize(
    ("what", "body", "u"),
    [
        ("polynomial", '<equality><joint joint1="one" joint2="two" polycoef="0.05 0.7 0.4 -0.3 0.2"/></equality>', []),
        ("constant", '<equality><joint joint1="three" polycoef="0.1 0 0 0 0"/></equality>', []),
        (
            "tendon",
            '<tendon><fixed name="t"><joint joint="one" coef="0.5"/><joint joint="two" coef="2"/></fixed></tendon>'
            '<equality><tendon tendon1="t" polycoef="0.02 0 0 0 0"/></equality>',
            [],
        ),
        ("springs and drives", TENDONS, [0.1, 0.4, -0.5]),
        ("drive at its limit", TENDONS, [1.5, 0.4, -0.5]),
    ],
)
def test_coupled_joints_and_tendons_move_as_in_mujoco(tmp_path, what, body, u):
    path = write(tmp_path, COUPLED + body)
    model = load(path)
    m, d = in_mujoco(path, 0.2, u=u or None, qpos=model.q0)
    ours = [u[m.actuator(name).id] for name in model.drive_names] if u else None
    qs, _ = simulate(model, 0.2, u=ours, dt=2.5e-5)  # springs of 6 Hz; implicit steps damp them
    moved = np.abs(d.qpos - model.q0).max()
    assert moved > 0.01
    assert np.abs(qs[-1] - d.qpos).max() < 5e-3 * moved


def test_a_tendon_at_its_limit_stops(tmp_path):
    """From a start beyond the other limit."""
    joints = '<joint joint="one" coef="1"/><joint joint="three" coef="1"/>'
    limited = f'<tendon><fixed limited="true" range="-0.3 0.1">{joints}</fixed></tendon>'
    model = load(write(tmp_path, COUPLED + limited))
    qs, _ = simulate(model, 3.0, u=[])
    length = qs[:, 0] + qs[:, 2]
    assert length[0] > 0.17 and length[100:].max() < 0.1 + 1e-2  # pushed back
    assert length.min() > -0.3 - 6e-3 and length[-1] == pytest.approx(-0.3, abs=1e-5)  # 5.6 m/s in steps of 1 ms


# -- a gripper


GRIPPER = """<robot name="gripper">
<link name="rail"/>
<link name="palm"><inertial><mass value="1"/><inertia ixx=".01" iyy=".01" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>
</link>
<link name="left">FINGER</link><link name="right">FINGER</link>
<joint name="lift" type="prismatic"><parent link="rail"/><child link="palm"/><origin xyz="0 0 0.1"/><axis xyz="0 0 1"/>
  <limit lower="-1" upper="1" effort="100"/></joint>
<joint name="left" type="prismatic"><parent link="palm"/><child link="left"/><origin xyz="-0.09 0 0"/>
  <axis xyz="1 0 0"/>
  <limit lower="0" upper="0.1" effort="20"/></joint>
<joint name="right" type="prismatic"><parent link="palm"/><child link="right"/><origin xyz="0.09 0 0"/>
  <axis xyz="-1 0 0"/><limit lower="0" upper="0.1" effort="20"/><mimic joint="left"/></joint>
</robot>"""
FINGER = (
    '<inertial><mass value="0.1"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial>'
    + "".join(
        f'<collision><origin xyz="0 {y} {z}"/><geometry><sphere radius="0.02"/></geometry></collision>'
        for y in (-0.02, 0.02)
        for z in (-0.02, 0.02)
    )
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mimic_gripper_closes_on_a_box_and_lifts_it(tmp_path, dtype):
    (tmp_path / "gripper.urdf").write_text(GRIPPER.replace("FINGER", FINGER))
    (tmp_path / "box.urdf").write_text(
        '<robot name="box"><link name="box"><inertial><mass value="0.5"/><inertia ixx="8e-4" iyy="8e-4" izz="8e-4" '
        'ixy="0" ixz="0" iyz="0"/></inertial><collision><geometry><box size="0.08 0.1 0.1"/></geometry></collision>'
        "</link></robot>"
    )
    hand = load_urdf(tmp_path / "gripper.urdf", drive="position", kp=2000, kd=50, friction=0.8)
    scene = wa.combine([hand, load_urdf(tmp_path / "box.urdf", floating=True, friction=0.8)], [None, [0.01, 0, 0.05]])
    sim = wa.Simulator(scene, 1, device="cpu", dtype=dtype, dt=2e-3)
    q, qd = sim.initial_state()
    box, fingers = scene.joint_q("root"), [scene.joint_q(name).start for name in ("left", "right")]
    steps, u = 1000, sim.initial_control().repeat(1000, 1, 1)
    squeeze, lift = scene.drive("left"), scene.drive("lift")
    u[:, :, squeeze] = 0.08
    u[300:, :, lift] += torch.linspace(0, 0.2, steps - 300).to(u)[:, None]
    qs, _ = sim.rollout(q, qd, u)
    gap = (qs[:, 0, fingers[0]] - qs[:, 0, fingers[1]]).abs()
    assert gap.max() < 1e-4  # the right finger follows the left one
    assert abs(qs[250, 0, box][0]) < 1e-3  # so the box is centred
    palm = scene.joint_q("lift").start
    rise, slip = qs[-1, 0, box][2] - q[0, box][2], (qs[300:, 0, box][:, 2] - qs[300:, 0, palm])
    assert rise > 0.18 and slip.max() - slip.min() < 1e-3  # friction holds it; the drive sags by 12 mm


# -- files, and input that has no meaning


def test_ties_survive_files_and_combinations(tmp_path):
    model = tied_model()
    model.save(tmp_path / "tied.npz")
    again = wa.load(tmp_path / "tied.npz")
    for name in vars(model.ties):
        assert np.array_equal(getattr(again.ties, name), getattr(model.ties, name)), name
    both = wa.combine([model, model])
    assert both.ties.loop_names[:2] == ("tied1/arms", "tied1/hold") and len(set(both.ties.loop_names)) == 6
    np.testing.assert_allclose(residuals(both, both.q0)[0], 0.0, atol=1e-8)
    np.testing.assert_array_equal(both.drive_coupling[len(model.drive_coupling) :] >= 0, model.drive_coupling >= 0)


@pytest.mark.parametrize(
    ("equality", "message"),
    [
        ('<connect name="x" body1="a" anchor="1e20 0 0"/>', "loop 'x': its first point"),
        ('<connect name="x" body1="a" anchor="0.5 0 0.5"/><connect name="y" body1="a" body2="b" anchor="9 9 9"/>'
         '<joint joint1="two" polycoef="3"/>', "cannot be fulfilled together"),
    ],
)  # fmt: skip
def test_ties_without_a_meaning_are_refused(tmp_path, equality, message):
    with pytest.raises(wa.ModelError, match=message):
        load(write(tmp_path, COUPLED + f"<equality>{equality}</equality>"))


def test_a_constraint_within_one_link_is_a_note(tmp_path):
    body = '<body name="a"><joint/><geom size="1"/><body name="b"><geom size="0.1"/></body></body>'
    path = write(tmp_path, f'<worldbody>{body}</worldbody><equality><weld name="x" body1="a" body2="b"/></equality>')
    model = load(path)
    assert not model.ties and any("'x' joins bodies that do not move against each other" in n for n in model.notes)
