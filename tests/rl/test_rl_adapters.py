"""The Gymnasium and rsl_rl adapters: their checkers pass, and results equal those of Env."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode
from rl_batches import make
from rsl_rl.runners import OnPolicyRunner
from rsl_rl.utils import check_nan

import warp_articulated as wa
from warp_articulated.rl import gym
from warp_articulated.rl.rsl import RslEnv


def vector(task="Cartpole", num_envs=3, **options):
    return gymnasium.make_vec(f"warp_articulated/{task}-v0", num_envs=num_envs, **options)


# -- Gymnasium


def test_gymnasium_checker_passes():
    env = gymnasium.make("warp_articulated/Cartpole-v0").unwrapped
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env_checker.check_env(env)
    texts = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    assert all("observation space" in text and "infinity" in text for text in texts), texts  # speeds are unbounded


def test_gymnasium_checks_for_batches_pass():
    env = vector()
    env_checker.check_reset_seed_determinism(env)
    env_checker.check_reset_return_type(env)
    env_checker.check_reset_options(env)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.observation_space.shape == (3, 5) and env.single_observation_space.shape == (5,)
    assert env.action_space.shape == (3, 1) and env.action_space.high.max() == 1
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation) and info == {}
    assert reward.shape == terminated.shape == truncated.shape == (3,)
    assert terminated.dtype == truncated.dtype == np.bool_


def test_every_task_has_an_id():
    ids = {name for name in gymnasium.registry if name.startswith("warp_articulated/")}
    chains = {f"PendulumReach{n}" for n in range(1, 8)}
    tasks = set(wa.rl.TASKS) - {"PendulumReach"} | chains
    assert ids == {f"warp_articulated/{task}-v0" for task in tasks}
    env = vector("PendulumReach3", 2, torque="paper")
    assert env.action_space.shape == (2, 3) and env.env.torque[0] == 10
    assert "PendulumReach3" in repr(env)


def test_vector_env_equals_env():
    env, plain = vector(), make("Cartpole", 3)
    observation, _ = env.reset(seed=5)
    assert np.array_equal(observation, plain.reset(5).numpy())
    generator = np.random.default_rng(0)
    ended = 0
    for _ in range(80):
        action = generator.uniform(-1, 1, (3, 1)).astype(np.float32)
        ours, step = env.step(action), plain.step(torch.as_tensor(action))
        for x, y in zip(ours[:4], step, strict=False):
            assert np.array_equal(x, y.numpy())
        info = ours[4]
        over = (step.terminated | step.truncated).numpy()
        assert bool(info) == over.any()
        for k in np.flatnonzero(over):
            assert info["_final_obs"][k] and np.array_equal(info["final_obs"][k], step.final_observation[k].numpy())
            ended += 1
    assert ended > 2


@pytest.mark.parametrize("single", [False, True])
def test_writing_into_returned_observations_does_not_change_the_state(single, monkeypatch):
    """Even if a task's observation is the state itself."""
    batch = make("Cartpole", 1 if single else 3)
    monkeypatch.setattr(batch, "observe", lambda state: state.q)
    env = gym.SingleEnv(batch) if single else gym.VectorEnv(batch)
    for act in (lambda: env.reset(seed=0), lambda: env.step(np.zeros(env.action_space.shape, np.float32))):
        returned = act()[0]
        again = batch.state.q.clone()
        returned[:] = 7.0
        assert torch.equal(batch.state.q, again)


def test_reset_mask_resets_part_of_a_batch():
    env = vector()
    before, _ = env.reset(seed=0)
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (before == after).all(1).tolist() == [True, False, True]
    seeded, _ = env.reset(seed=7, options={"reset_mask": np.array([False, True, True])})
    assert np.array_equal(seeded[0], before[0]) and np.array_equal(seeded[1:], env.reset(seed=7)[0][1:])


def test_unseeded_environments_differ():
    sync = vector(vectorization_mode="sync").reset()[0]
    singles = [gymnasium.make("warp_articulated/Cartpole-v0").reset()[0] for _ in range(2)]
    batches = [vector(num_envs=1).reset()[0][0] for _ in range(2)]
    assert len(np.unique([*sync, *singles, *batches], axis=0)) == 7
    same = [vector(num_envs=1, seed=3).reset()[0] for _ in range(2)]
    assert np.array_equal(*same)


def test_next_step_autoreset():
    """Like Gymnasium's batch of single environments."""
    env = vector(episode_length=4, autoreset_mode="NextStep")
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    plain = make("Cartpole", 3, episode_length=4)
    assert np.array_equal(env.reset(seed=5)[0], plain.reset(5).numpy())
    action = np.full((3, 1), 0.3, np.float32)
    for _ in range(3):
        env.step(action)
        plain.step(torch.as_tensor(action))
    last, step = env.step(action), plain.step(torch.as_tensor(action))
    assert last[3].all() and last[4] == {} and np.array_equal(last[0], step.final_observation.numpy())
    first = env.step(action)
    assert np.array_equal(first[0], step.observation.numpy())  # the action had no effect
    assert not first[1].any() and not first[2].any() and not first[3].any()
    assert np.array_equal(env.step(action)[0], plain.step(torch.as_tensor(action)).observation.numpy())


def test_disabled_autoreset():
    env = vector(episode_length=2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    action = np.zeros((3, 1), np.float32)
    env.step(action)
    mask = np.array([True, False, False])
    env.reset(options={"reset_mask": mask})
    ended = env.step(action)[3]
    assert ended.tolist() == [False, True, True]
    with pytest.raises(
        RuntimeError, match=r"episode of environment 1 has ended; call reset with options={.reset_mask.: ...} for"
    ):
        env.step(action)
    env.reset(options={"reset_mask": ended})
    assert env.step(action)[3].tolist() == [True, False, False]
    env.reset(seed=0)  # all of them
    env.step(action)


def test_wrapper_that_rejects_the_default_mode_accepts_next_step():
    wrapped = gymnasium.wrappers.vector.NormalizeObservation(vector(autoreset_mode="NextStep"))
    wrapped.reset(seed=0)
    assert np.isfinite(wrapped.step(np.zeros((3, 1), np.float32))[0]).all()


def test_gymnasium_wrapper_counts_episodes():
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector(episode_length=4, swing_up=True))
    env.reset(seed=0)
    infos = [env.step(np.zeros((3, 1), np.float32))[4] for _ in range(4)]
    assert infos[-1]["episode"]["l"].tolist() == [4, 4, 4] and infos[2] == {}


def test_single_env_is_not_reset_automatically():
    env = gymnasium.make("warp_articulated/Cartpole-v0", episode_length=3, swing_up=True)
    env.reset(seed=1)
    steps = [env.step(np.ones(1, np.float32)) for _ in range(3)]
    assert [s[2:4] for s in steps] == [(False, False), (False, False), (False, True)]
    assert env.unwrapped.env.state.frame.item() == 3  # where it ended, for a last picture
    env.reset()
    assert env.unwrapped.env.state.frame.item() == 0


def test_single_env_renders():
    env = gymnasium.make("warp_articulated/Cartpole-v0", render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    for _ in range(20):
        env.step(np.ones(1, np.float32))
    assert first.shape == (360, 480, 3) and first.dtype == np.uint8 and (first != env.render()).any()
    assert env.metadata["render_fps"] == 50


def test_bad_input_error_messages():
    with pytest.raises(ValueError, match="render_mode is 'human'; it must be 'rgb_array', or None"):
        gym.SingleEnv(make("Cartpole", 1), "human")
    env = vector()
    env.reset()
    with pytest.raises(ValueError, match=r"action has shape \(3, 2\); it must be \(3, 1\)\."):
        env.step(np.zeros((3, 2)))
    with pytest.raises(TypeError, match="actions is a str; it must be an array of numbers"):
        env.step("left")
    with pytest.raises(ValueError, match=r"reset_mask has shape \(3,\) and is torch.int64; it must be \(3,\) of bool"):
        env.reset(options={"reset_mask": [1, 0, 0]})
    with pytest.raises(ValueError, match="autoreset_mode is 'never'; it must be one of 'NextStep'"):
        vector(autoreset_mode="never")
    with pytest.raises(ValueError, match=r"env has 2 environments; a gymnasium\.Env must have exactly one"):
        gym.SingleEnv(make("Cartpole", 2))


# -- rsl_rl

NETWORK = {"class_name": "MLPModel", "hidden_dims": [16]}
SETTINGS = {
    "num_steps_per_env": 8,
    "save_interval": 100,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1},
    "actor": {**NETWORK, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
    "critic": NETWORK,
}


def test_rsl_rl_runner_learns():
    torch.manual_seed(0)
    env = RslEnv(make("Cartpole", 4, dtype="float32"))
    runner = OnPolicyRunner(env, {**SETTINGS}, log_dir=None, device="cpu")
    before = [p.detach().clone() for p in runner.alg.actor.parameters()]
    runner.learn(2, init_at_random_ep_len=True)
    assert any(not torch.equal(a, b) for a, b in zip(before, runner.alg.actor.parameters(), strict=True))
    assert not any(x.is_inference() for x in (env.env.state.q, env.env.state.frame, env.get_observations()["policy"]))


def test_rsl_env_equals_env():
    env, plain = RslEnv(make("Cartpole", 3, episode_length=4)), make("Cartpole", 3, episode_length=4)
    assert torch.equal(env.get_observations()["policy"], plain.reset())
    assert (env.num_envs, env.num_actions, env.max_episode_length) == (3, 1, 4)
    env.episode_length_buf = torch.tensor([0, 1, 3])
    action = torch.zeros(3, 1)
    with torch.inference_mode():
        observation, reward, done, extras = env.step(action)
    step = plain.step(action)
    check_nan(observation, reward, done)
    assert torch.equal(reward, step.reward) and torch.equal(observation["policy"][:2], step.observation[:2])
    assert done.tolist() == [0, 0, 1] and extras["time_outs"].tolist() == [False, False, True]
    assert env.episode_length_buf.tolist() == [1, 2, 0] and observation.batch_size == (3,)


# -- without these packages


def test_env_needs_neither_package_and_adapters_name_the_missing_one():
    code = (
        "import sys; sys.modules['gymnasium'] = sys.modules['rsl_rl'] = None;"
        "import warp_articulated as wa; assert 'torch' not in sys.modules; assert 'rl' in dir(wa); wa.rl.Ant;"
        "import importlib\n"
        "for name, package in (('gym', 'gymnasium'), ('rsl', 'rsl-rl-lib')):\n"
        "    try:\n"
        "        importlib.import_module(f'warp_articulated.rl.{name}')\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert str(error).startswith(f'warp_articulated.rl.{name} needs {package}: pip install'), error\n"
        "    else:\n"
        "        raise SystemExit(f'{name} was imported')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
