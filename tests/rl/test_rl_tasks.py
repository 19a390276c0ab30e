"""RL tasks: sane physics, reachable goals, and observations against oracles."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from rl_batches import actions, make

from warp_articulated import rl
from warp_articulated.geometry.rotations import quat_to_matrix

# -- randomised parameters and pushes


def test_parameters_differ_between_environments_and_affect_the_motion():
    env = make("LaikagoWalk", 3, push=0.0)
    env.reset()
    state = env.state
    for value in state.params.values():
        assert not torch.equal(value[0], value[1])
    assert torch.equal(state.params["mass"][:, 1:], env.sim.params["mass"][:, 1:])  # the legs are unchanged
    # the same state and action with the model's parameters: a different motion in every environment
    still = torch.zeros(3, 12)
    landed = state
    for _ in range(10):
        landed, _, _ = env.transition(landed, still)
    ours, usual = (env.transition(s, still)[0] for s in (landed, replace(landed, params={})))
    assert ((ours.qd - usual.qd).abs().amax(1) > 1e-3).all()
    expected = env.sim.step(landed.q, landed.qd, env.control(landed, still), params=landed.params)
    assert torch.equal(ours.qd, expected[1])


def test_parameters_are_drawn_from_the_ranges_of_the_task():
    env = make("LaikagoWalk", 64)
    drawn, usual = env.fresh(64, 0).params, env.sim.params
    for value, (low, high) in (
        (drawn["mass"][:, 0] / usual["mass"][0, 0], env.MASS), (drawn["kp"] / usual["kp"][:1], env.GAINS),
        (drawn["kd"] / usual["kd"][:1], env.GAINS), (drawn["friction"], env.GROUND),
        (drawn["cfm"].log10(), env.SOFTNESS), (drawn["erp"], env.RIGHTING),
    ):  # fmt: skip
        edge = 0.2 * (high - low)
        assert low - 1e-6 <= value.min() < low + edge and high - edge < value.max() <= high + 1e-6


def test_parameters_are_redrawn_for_a_new_episode():
    env = make("LaikagoWalk", 3)
    env.reset()
    before = env.state
    env.restart(torch.tensor([False, True, False]))
    for name, value in env.state.params.items():
        assert (value == before.params[name]).flatten(1).all(1).tolist() == [True, False, True], name
    assert not torch.equal(env.state.memory["command"][1], before.memory["command"][1])
    assert make("LaikagoWalk", 3, randomise=False).fresh(3, 0).params == {}


def test_frequency_and_strength_of_pushes():
    env = make("LaikagoStand", 1, push=0.5)
    state = env.fresh(20_000, 0)
    kick = env.disturb(state)[1] - state.qd
    pushed = (kick != 0).any(1)
    assert abs(pushed.sum() / 20_000 - env.control_dt / 4.0) < 0.002  # five standard deviations
    assert kick[:, 2:].abs().max() == 0 and 0.45 < kick.abs().max() < 0.5 + 1e-6


# -- the tasks

STILL = {  # least and most frames of the first episodes with zero actions
    "Ant": (1000, 1000),
    "Cartpole": (10, 100),
    "Hopper": (20, 500),
    "LaikagoStand": (500, 500),
    "LaikagoWalk": (500, 500),
    "PendulumReach": (100, 100),
}


@pytest.mark.parametrize("task", sorted(rl.TASKS))
def test_whole_episodes_stay_finite(task):
    options = {"n": 7} if task == "PendulumReach" else {"push": 0.0} if "Laikago" in task else {}
    env = make(task, 4, **options)
    assert env.episode_length == STILL[task][1] or STILL[task][1] < env.episode_length
    first = torch.full((4,), -1)
    for kind in ("still", "random"):
        env.reset(seed=1)
        controls = actions(env, env.episode_length, size=0.0 if kind == "still" else 1.0)
        with torch.no_grad():
            for t, action in enumerate(controls):
                step = env.step(action)
                assert all(torch.isfinite(x).all() for x in step) and len(env.sim.diverged) == 0
                if kind == "still":
                    first = torch.where((first < 0) & (step.terminated | step.truncated), t + 1, first)
    least, most = STILL[task]
    assert (first >= least).all() and (first <= most).all()


def upwards(env, state):
    """An action that swings a chain up: gravity compensation, and a PD law on the joint accelerations."""
    ends = env.ends(state.q)
    starts = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
    arms = (ends[:, :, None] - starts[:, None]) * torch.ones(ends.shape[1], ends.shape[1]).tril()[:, :, None]
    mass = torch.tensor(env.model.mass, dtype=state.q.dtype)
    weight = 9.81 * torch.einsum("k,nki->ni", mass, arms[..., 0])
    inertia = torch.einsum("k,nkid,nkjd->nij", mass, arms, arms)
    goal = torch.zeros_like(state.q)
    goal[:, 0] = torch.pi / 2
    wanted = 36.0 * (goal - state.q) - 12.0 * state.qd  # critically damped, 6 rad/s
    return (weight + (inertia @ wanted[..., None])[..., 0]) / env.torque


@pytest.mark.parametrize("n", [2, 7])
def test_goal_of_the_pendulum_is_reachable(n):
    env = make("PendulumReach", 1, n=n)
    env.reset()
    total = 0.0
    for _ in range(100):
        step = env.step(upwards(env, env.state))
        total += float(step.reward)
    assert 0.999 * n**2 / 2 < total <= n**2 / 2
    assert step.terminated.all() and not step.truncated.any()  # the time limit is part of the task


def test_pendulum_has_the_papers_torques_and_link_ends_match_the_simulator():
    env = make("PendulumReach", 2, n=7)
    assert abs(float(env.torque[0]) / 1.5 - 291) < 0.5 and make("PendulumReach", 1, n=2, torque="paper").torque[0] == 10
    q = actions(env, 1, size=2.0)[0]
    hinges = env.sim.link_poses(q)[:, :, 1:3]
    assert (env.ends(q)[:, :-1] - hinges[:, 1:]).abs().max() < 1e-6  # a link ends at the joint of the next
    assert env.observe(replace(env.fresh(2, 0), q=q)).shape == (2, 22)


def test_default_steps_suffice_for_long_chains_with_the_papers_torques():
    """Torques that switch at random never diverge, and ten frames agree with much finer steps."""
    reached = []
    for options in ({}, {"substeps": 64}):
        env = make("PendulumReach", 16, n=7, torque="paper", **options)
        assert env.substeps == options.get("substeps", 4)
        env.reset(seed=0)
        with torch.no_grad():
            for t, action in enumerate(actions(env, 100)):
                step = env.step(action.sign())
                assert len(env.sim.diverged) == 0
                if t == 9:
                    reached.append(step.final_observation[:, 7:21])
    assert (reached[0] - reached[1]).abs().max() < 0.1  # m, of 3.5


def test_ant_on_randomised_ground():
    env, plain = make("Ant", 64, randomise=True), make("Ant", 64)
    state, usual = env.fresh(64, 0), plain.fresh(64, 0)
    for name, (low, high) in {
        "friction": env.FRICTION, "restitution": env.BOUNCE, "erp": env.RIGHTING, "cfm": env.SOFTNESS,
    }.items():  # fmt: skip
        drawn = state.params[name]
        assert low <= drawn.min() < low + 0.2 * (high - low) and high - 0.2 * (high - low) < drawn.max() <= high
        assert torch.equal(drawn, drawn[:, :1].expand_as(drawn))  # the same under all feet
    assert not usual.params
    assert 0.05 < float((state.q - usual.q)[:, 2].mean()) < 0.15 and 0.4 < float((state.qd - usual.qd).std()) < 0.6
    still = torch.zeros(64, 8)
    with torch.no_grad():
        other, one = (e.transition(s, still)[0] for e, s in ((env, state), (plain, usual)))
        for _ in range(20):
            other, one = env.transition(other, still)[0], plain.transition(one, still)[0]
    assert len(env.simulator(64).diverged) == 0 and torch.isfinite(other.q).all()
    # on soft or bouncy ground the ants do not all rest at the same height, as they do on the default ground
    assert other.q[:, 2].std() > 2.0 * one.q[:, 2].std()


def test_frequency_and_strength_of_kicks():
    env = make("Ant", 4, randomise=True)
    state = env.fresh(4000, 0)
    q, qd = env.disturb(state)
    kick = (qd - state.qd)[:, :6]
    assert torch.equal(q, state.q) and torch.equal(qd[:, 6:], state.qd[:, 6:])
    kicked = kick.abs().sum(1) > 0
    assert 0.035 < float(kicked.float().mean()) < 0.065  # every second, in frames of 0.05 s
    most = kick.abs().amax(0)
    assert (most <= torch.tensor(env.KICK)).all() and (most > 0.9 * torch.tensor(env.KICK)).all()


def test_ant_has_the_observations_and_actions_of_gymnasium():
    theirs = gymnasium.make("Ant-v5").unwrapped
    theirs.reset(seed=0)
    env = make("Ant", 1)
    state = env.fresh(1, 0)
    state = replace(state, qd=torch.linspace(-2.0, 3.0, 14)[None])
    q, qd = state.q[0].double().numpy(), state.qd[0].double().numpy()
    qvel = qd.copy()
    qvel[3:6] = quat_to_matrix(q[3:7]).T @ qd[3:6]  # MuJoCo uses body axes
    theirs.set_state(np.concatenate([q[:3], np.roll(q[3:7], 1), q[7:]]), qvel)
    assert np.abs(env.observe(state)[0].numpy() - theirs._get_obs()[:27]).max() < 1e-6
    joints = [theirs.model.joint(k).name for k in theirs.model.actuator_trnid[:, 0]]
    action = torch.linspace(-1.0, 1.0, 8)[None]
    assert dict(zip(joints, action[0].tolist())) == dict(
        zip(env.model.drive_names, env.control(state, action)[0].tolist())
    )
    assert env.control_dt == pytest.approx(theirs.dt)


def test_ant_reward_and_termination():
    env = make("Ant", 1)
    state = env.fresh(1, 0)
    ahead = replace(state, q=state.q + torch.eye(15)[0] * 0.1)
    assert env.reward(state, 0.5 * torch.ones(1, 8), ahead).item() == pytest.approx(0.1 / 0.05 - 0.5 * 2.0 + 1.0, 1e-5)
    heights = torch.tensor([0.1, 0.3, 0.9, 1.1])
    states = env.fresh(4, 0)
    states.q[:, 2] = heights
    assert env.terminated(states).tolist() == [True, False, False, True]


def test_laikago_observes_in_body_axes():
    env = make("LaikagoStand", 3)
    state = env.fresh(3, 0)
    q = state.q.double().numpy()
    velocity, spin, up = (x.numpy() for x in env.trunk(state))
    for k in range(3):
        R = quat_to_matrix(q[k, 3:7])
        assert np.abs(velocity[k] - R.T @ state.qd[k, :3].numpy()).max() < 1e-6
        assert np.abs(spin[k] - R.T @ state.qd[k, 3:6].numpy()).max() < 1e-6
        assert np.abs(up[k] - R[2]).max() < 1e-6
        assert np.arccos(R[2, 2]) < 0.15  # it leans by at most 0.1 rad about two axes
