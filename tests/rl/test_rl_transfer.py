"""Policies in MuJoCo: same observations, same robot, same task; and Ant-v5 as in Gymnasium."""

import json
import subprocess
import sys
from dataclasses import replace

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from rl_batches import actions, make

from warp_articulated import rl
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.rl import transfer
from warp_articulated.rl.learning.evaluation import evaluate
from warp_articulated.rl.learning.policy_file import save_policy
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac

TASKS = ("LaikagoStand", "LaikagoWalk")


def in_mujoco(task, num_envs=1, **options):
    return transfer.in_mujoco(task, num_envs, device="cpu", **options)


def random_states(model, n, seed=0):
    """qpos (n, nq), qvel (n, nv) with random orientations and joint angles."""
    rng = np.random.default_rng(seed)
    qpos, qvel = rng.normal(size=(n, model.nq)), 3.0 * rng.normal(size=(n, model.nv))
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    return qpos, qvel


# -- Ant-v5


def test_ant_observes_the_same_as_ant_v5():
    world = gymnasium.make("Ant-v5").unwrapped
    world.reset(seed=0)
    env = make("Ant", 1)
    qpos, qvel = random_states(world.model, 20)
    theirs = []
    for position, velocity in zip(qpos, qvel):
        world.set_state(position, velocity)
        theirs.append(world._get_obs()[:27])
    q, qd = transfer.from_mujoco(qpos, qvel)
    ours = env.observe(replace(env.fresh(20, 0), q=q, qd=qd))
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12)  # both are float64 here


def test_ant_has_the_mass_matrix_of_ant_v5():
    world = gymnasium.make("Ant-v5").unwrapped
    env = make("Ant", 1)
    error = mass_matrix_error(world.model, env.model)
    assert error < 3e-6  # our file has six digits
    heavier = replace(env.model, mass=env.model.mass * np.linspace(1.0, 1.01, env.model.num_links))
    assert mass_matrix_error(world.model, heavier) > 1e-4


def test_standing_still_earns_about_a_thousand_in_ant_v5():
    found = transfer.play_ant_v5(lambda seen: torch.zeros(len(seen), 8), episodes=2, seed=3)
    assert found.lengths.tolist() == [1000, 1000]
    assert (found.returns > 980).all() and (found.returns < 1000).all()  # 1 per step, minus contact costs
    assert (found.measures["forward"].abs() < 0.5).all()
    torch.testing.assert_close(found.measures["speed"], found.measures["forward"] / 50.0)


def test_play_ant_v5_equals_a_gymnasium_loop():
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(27, 8), torch.nn.Tanh())
    world = gymnasium.make("Ant-v5")
    for seed in (5, 6):
        # one at a time: a batch rounds the policy's actions differently, and contacts amplify that
        found = transfer.play_ant_v5(policy, episodes=1, seed=seed)
        seen, info = world.reset(seed=seed)
        start, total, steps, over = info["x_position"], 0.0, 0, False
        while not over:
            with torch.no_grad():
                action = policy(torch.tensor(seen[None, :27], dtype=torch.float32))[0].double().numpy()
            seen, reward, terminated, truncated, info = world.step(action)
            total, steps, over = total + reward, steps + 1, terminated or truncated
        assert steps == int(found.lengths[0]) and total == pytest.approx(float(found.returns[0]), rel=1e-9)
        assert info["x_position"] - start == pytest.approx(float(found.measures["forward"][0]), abs=1e-9)
    first, second = transfer.play_ant_v5(lambda seen: 0.1 * seen[:, :8], episodes=2).returns
    assert first != second  # the initial states differ


def test_actions_are_clipped_before_they_act_and_cost():
    loud, full = (
        transfer.play_ant_v5(lambda seen, size=size: torch.full((len(seen), 8), size), episodes=1)
        for size in (5.0, 1.0)
    )
    assert torch.equal(loud.returns, full.returns)


# -- the Laikago in MuJoCo


def mass_matrix_error(m, model):
    """Largest difference between MuJoCo's mass matrix and ours, kg, kg m or kg m^2."""
    import warp_articulated as wa

    sim = wa.Simulator(model, 3, device="cpu", dtype="float64")
    qpos, qvel = random_states(m, 3)
    ours = sim.mass_matrix(transfer.from_mujoco(qpos, qvel)[0]).numpy()
    data, worst = mujoco.MjData(m), 0.0
    for k in range(3):
        data.qpos[:] = qpos[k]
        mujoco.mj_forward(m, data)
        turn = np.eye(m.nv)
        turn[3:6, 3:6] = quat_to_matrix(np.roll(qpos[k, 3:7], -1)).T
        # products with unit velocities: MuJoCo's function for the whole matrix differs between versions
        product = np.zeros((m.nv, m.nv))
        for column in range(m.nv):
            mujoco.mj_mulM(m, data, product[column], np.ascontiguousarray(turn[:, column]))
        worst = max(worst, np.abs(product @ turn - ours[k]).max())
    return worst


def test_laikago_in_mujoco_is_the_same_robot():
    env = in_mujoco("LaikagoStand")
    m = env.sim.mujoco
    assert mass_matrix_error(m, env.model) < 1e-10 * env.model.mass.sum()
    np.testing.assert_allclose(m.jnt_range[1:], np.stack([env.model.lower, env.model.upper], 1)[6:])
    np.testing.assert_allclose(m.actuator_gainprm[:, 0], env.model.kp)
    np.testing.assert_allclose(m.actuator_biasprm[:, 1:3], -np.stack([env.model.kp, env.model.kd], 1))
    np.testing.assert_allclose(m.actuator_forcerange[:, 1], env.model.effort)
    assert env.control_dt == pytest.approx(make("LaikagoStand").control_dt)


def test_only_toes_touch_with_the_friction_of_the_task():
    env = in_mujoco("LaikagoStand")
    m, data = env.sim.mujoco, mujoco.MjData(env.sim.mujoco)
    data.qpos[:] = np.concatenate([env.model.q0[:3], [1.0, 0.0, 0.0, 0.0], env.model.q0[7:]])
    data.qpos[2] = 0.0  # half of the robot is below the ground
    mujoco.mj_forward(m, data)
    legs = {m.body(m.geom_bodyid[geom]).name for contact in data.contact for geom in contact.geom}
    assert data.ncon == 4 and legs == {"world", *(f"{leg}_lower_leg" for leg in ("FR", "FL", "RR", "RL"))}
    assert all(contact.friction[0] == pytest.approx(0.8) and contact.dim == 3 for contact in data.contact)


@pytest.mark.parametrize("task", TASKS)
def test_laikago_observations_match_mujoco(task):
    env = in_mujoco(task, 5, dtype="float64")
    m, data = env.sim.mujoco, mujoco.MjData(env.sim.mujoco)
    qpos, qvel = random_states(m, 5)
    q, qd = transfer.from_mujoco(qpos, qvel)
    state = replace(env.fresh(5, 0), q=q, qd=qd)
    state = replace(state, memory={name: torch.randn_like(value) for name, value in state.memory.items()})
    trunk = m.body("chassis").id
    for k in range(5):
        data.qpos[:], data.qvel[:] = qpos[k], qvel[k]
        mujoco.mj_forward(m, data)
        motion = np.zeros(6)  # angular, linear, of the trunk's frame in its own axes
        mujoco.mj_objectVelocity(m, data, mujoco.mjtObj.mjOBJ_XBODY, trunk, motion, 1)
        up = data.xmat[trunk].reshape(3, 3).T @ [0.0, 0.0, 1.0]
        angles = [data.joint(name).qpos[0] - env.model.q0[7 + i] for i, name in enumerate(env.model.drive_names)]
        rates = [data.joint(name).qvel[0] for name in env.model.drive_names]
        kept = [state.memory[name][k].numpy() for name in ("action", "command") if name in state.memory]
        expected = np.concatenate([motion[3:], motion[:3], up, angles, rates, *kept])
        seen = env.observe(state)[k].numpy()[: len(expected)]  # the rest is the clock, independent of the simulator
        np.testing.assert_allclose(seen, expected, atol=1e-9)


def test_states_convert_to_mujoco_and_back():
    env = in_mujoco("LaikagoStand", 4, dtype="float64")
    state = env.fresh(4, 0)
    there = transfer.to_mujoco(state.q, state.qd)
    assert np.abs(there[1][:, 3:6] - state.qd[:, 3:6].numpy()).max() > 0.01  # the robots are rotated
    for new, old in zip(transfer.from_mujoco(*there), (state.q, state.qd)):
        torch.testing.assert_close(new, old, atol=1e-12, rtol=0)


@pytest.mark.parametrize("task", TASKS)
def test_episodes_and_pushes_are_the_same_as_in_ours(task):
    options = {"randomise": False} if task == "LaikagoWalk" else {}
    theirs, ours = (env.fresh(300, 7) for env in (in_mujoco(task, 300, push=0.5), make(task, 300, push=0.5, **options)))
    assert torch.equal(theirs.q, ours.q) and torch.equal(theirs.qd, ours.qd) and theirs.params == {}
    assert all(torch.equal(theirs.memory[name], value) for name, value in ours.memory.items())
    env = in_mujoco(task, 300, push=0.5)
    after, still = (env.disturb(replace(s, frame=s.frame + 3))[1] for s in (theirs, ours))
    assert torch.equal(after, still) and (after != theirs.qd).any()


def test_drives_move_a_flying_robot_as_in_ours():
    theirs, ours = in_mujoco("LaikagoStand", 4, push=0.0), make("LaikagoStand", 4, push=0.0, dt=1e-3, substeps=20)
    begin = theirs.fresh(4, 0)
    begin.q[:, 2] += 2.0
    a, b = begin, begin
    for action in actions(theirs, 5):
        (a, *_), (b, *_) = theirs.transition(a, action), ours.transition(b, action)
    moved = (a.q[:, 7:] - begin.q[:, 7:]).abs().max()
    assert moved > 0.2
    # both are first-order methods at 1 ms, and joints move at up to 18 rad/s
    assert (a.q[:, 7:] - b.q[:, 7:]).abs().max() < 0.02 and (a.q[:, :7] - b.q[:, :7]).abs().max() < 0.005


def test_laikago_stands_at_the_same_height_as_in_ours():
    heights = []
    for env in (in_mujoco("LaikagoStand", 3, push=0.0), make("LaikagoStand", 3, push=0.0)):
        state = env.fresh(3, 1)
        for _ in range(100):
            state, reward, terminated = env.transition(state, torch.zeros(3, 12))
            assert not terminated.any()
        assert (reward > 0.95).all()
        heights.append(state.q[:, 2])
    assert (heights[0] - heights[1]).abs().max() < 0.01


def test_stiff_ground_penetrates_less():
    """A standing robot sinks in by a millimetre or more on MuJoCo's default ground."""
    depths = []
    for stiff in (False, True):
        env = in_mujoco("LaikagoStand", 1, push=0.0, stiff=stiff)
        state = env.fresh(1, 1)
        for _ in range(100):
            state, _, _ = env.transition(state, torch.zeros(1, 12))
        data = mujoco.MjData(env.sim.mujoco)
        data.qpos[:] = transfer.to_mujoco(state.q, state.qd)[0][0]
        mujoco.mj_forward(env.sim.mujoco, data)
        assert data.ncon == 4
        depths.append(-data.contact.dist.min())
    assert depths[0] > 1e-3 and abs(depths[1]) < 0.2e-3


def test_rolled_over_robot_terminates_in_mujoco():
    env = in_mujoco("LaikagoStand", 2, push=0.0)
    begin = env.begin

    def rolling(random):
        q, qd = begin(random)
        qd[1, 3:6] = 10.0 * torch.tensor(quat_to_matrix(q[1, 3:7].numpy())[:, 0])
        return q, qd

    env.begin = rolling
    found = evaluate(env, lambda seen: torch.zeros(len(seen), 12))
    assert found.lengths[0] == env.episode_length and found.lengths[1] < 50


def test_diverged_robot_terminates_and_leaves_no_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = in_mujoco("LaikagoStand", 3, push=0.0)
    begin = env.fresh(3, 0)
    fast = begin.qd.clone()
    fast[1, 8] = 1e9
    after, reward, terminated = env.transition(replace(begin, qd=fast), torch.zeros(3, 12))
    assert terminated.tolist() == [False, True, False] and reward[1] == 0.0 and torch.isfinite(after.q).all()
    assert torch.equal(after.q[1], begin.q[1]) and not list(tmp_path.iterdir())
    assert not env.transition(begin, torch.zeros(3, 12))[2].any()  # the next step works again


# -- errors


def test_error_messages():
    with pytest.raises(ValueError, match=r"task is 'Ant'; in MuJoCo it must be one of LaikagoStand, LaikagoWalk\."):
        transfer.in_mujoco("Ant")
    with pytest.raises(ValueError, match=r"randomise is True; it must be False in MuJoCo"):
        transfer.in_mujoco("LaikagoWalk", randomise=True)
    with pytest.raises(ValueError, match="LaikagoWalk has no option 'foo'; it has terrain, randomise"):
        transfer.in_mujoco("LaikagoWalk", foo=1)
    with pytest.raises(ValueError, match="stiff is 'no'; it must be True or False"):
        transfer.in_mujoco("LaikagoStand", stiff="no")
    env = in_mujoco("LaikagoStand")
    state = env.fresh(1, 0)
    with pytest.raises(ValueError, match=r"params has mass; it must be None, MuJoCo uses the model's parameters\."):
        env.transition(replace(state, params={"mass": env.sim.params["mass"]}), torch.zeros(1, 12))
    with pytest.raises(ValueError, match="episodes is 0; it must be a whole number"):
        transfer.play_ant_v5(lambda seen: seen[:, :8], episodes=0)
    with pytest.raises(ValueError, match=r"policy returns actions of shape \(1, 12\) for 1 ants; it must be \(1, 8\)"):
        transfer.play_ant_v5(lambda seen: seen[:, :12], episodes=1)


def test_missing_package_is_named():
    code = (
        "import sys\n"
        "for package in ('gymnasium', 'mujoco'):\n"
        "    sys.modules[package] = None\n"
        "    try:\n"
        "        import warp_articulated.rl.transfer\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert str(error).startswith(f'warp_articulated.rl.transfer needs {package}: pip install'), error\n"
        "    else:\n"
        "        raise SystemExit('it was imported')\n"
        "    del sys.modules[package]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the benchmark


@pytest.mark.slow
def test_quick_benchmark_reports_all_policies(tmp_path, capsys):
    from learning import transfer as benchmark

    files = []
    for task in ("Ant", "LaikagoWalk"):
        env = rl.make(task, 1, device="cpu")
        policy = Shac(env, make_settings(Shac, {"num_envs": 1}), 0).policy
        files.append(tmp_path / f"{task.lower()}_random.pt")
        save_policy(files[-1], policy, env)
    out = tmp_path / "transfer.json"
    benchmark.main(["--quick", "--out", str(out), *map(str, files)])
    results = json.loads(out.read_text())
    rows = {(row["policy"], row["simulator"]): row for row in results["ant"]}
    assert {("ant_random", "Ant-v5"), ("ant_random", "ours"), ("zero actions", "Ant-v5")} <= set(rows)
    assert 980 < np.mean(rows["zero actions", "Ant-v5"]["returns"]) < 1000
    assert {row["simulator"] for row in results["laikago"]} == {"ours", "MuJoCo", "MuJoCo, stiff ground"}
    printed = capsys.readouterr().out
    assert "868 ± 77" in printed and "ant_random" in printed and "laikagowalk_random" in printed
    assert set(benchmark.report(results)) == {"ant", "laikago", "same_actions", "differences", "headline"}
