"""`train` end to end: it learns, resumes exactly, and reports errors."""

import json

import pytest
import torch

from warp_articulated import rl
from warp_articulated.device.launch import LOADING
from warp_articulated.rl.learning.evaluation import evaluate
from warp_articulated.rl.learning.policies import policy_path
from warp_articulated.rl.learning.policy_file import load_policy, save_policy
from warp_articulated.rl.learning.runlog import read_log
from warp_articulated.rl.learning.sac import Sac
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac
from warp_articulated.rl.learning.training import CHECKPOINT, EVALUATION_SEED, train

SHORT = {"num_envs": 4, "horizon": 4}  # settings of all algorithms with a horizon
NAN = float("nan")
TIMES = ("seconds", "steps/s")


def short(folder, steps=64, algorithm="shac", **options):
    """Iterations of 16 steps, each with an evaluation and a checkpoint."""
    return train(
        "Cartpole", algorithm, folder,
        **{
            "settings": SHORT, "options": {"episode_length": 20}, "steps": steps, "evaluate_every": 0.0,
            "checkpoint_every": 0.0, "evaluation_episodes": 2, "threads": 1, "device": "cpu", **options,
        },
    )  # fmt: skip


def rows(folder):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in read_log(folder)]


def assert_equal(one, two):
    """Assert that nested dicts, lists and tensors are bitwise equal."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for name in one:
            assert_equal(one[name], two[name])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for x, y in zip(one, two, strict=True):
            assert_equal(x, y)
    else:
        assert one == two


def test_shac_learns_to_balance(tmp_path):
    settings = {"num_envs": 32, "horizon": 16, "iterations": 100, "average_rate": 0.3}
    env = rl.make("Cartpole", 16, threads=1, device="cpu")
    untrained = Shac(env, make_settings(Shac, settings), 1).policy
    before = evaluate(env, untrained, EVALUATION_SEED).summary()["return"]
    folder = train(
        "Cartpole", "shac", tmp_path / "run", settings=settings, seed=1, steps=32 * 16 * 30, threads=1, device="cpu",
    )  # fmt: skip
    last = read_log(folder)[-1]
    assert last["evaluated return"] > before + 40.0  # with seeds 0, 1, 2 it was 66, 124 and 88 more
    files = {"policy.pt", "checkpoint.pt", "run.json", "log.csv", "log.jsonl", "curve.png"}
    assert files <= {path.name for path in folder.iterdir()}
    found = load_policy(policy_path(folder))
    again = evaluate(found.make(16, threads=1, device="cpu"), found.policy, EVALUATION_SEED).summary()["return"]
    assert again == pytest.approx(last["evaluated return"], rel=1e-6)
    assert found.info["algorithm"] == "shac" and found.info["log"]["steps"] == last["steps"]


def test_first_episodes_are_staggered_independently_of_the_process():
    settings = make_settings(Shac, {**SHORT, "num_envs": 32})
    frames = Shac(rl.make("Cartpole", 32, device="cpu"), settings, 5).env.state.frame
    assert frames.unique().numel() > 20 and 0 <= int(frames.min()) < 60 and 240 < int(frames.max()) < 300
    some = Shac(rl.make("Cartpole", 8, first_env=8, device="cpu"), settings, 5).env.state.frame
    assert torch.equal(some, frames[8:16])


def test_only_completely_observed_episodes_are_counted():
    learner = Shac(rl.make("Cartpole", 16, episode_length=20, device="cpu"), make_settings(Shac, SHORT), 0)
    begun, lengths = learner.env.state.frame.clone(), []
    for _ in range(12):
        lengths += [row["length"] for row in [learner.advance()] if "length" in row]
    assert begun.min() < 5 and begun.max() > 15
    assert lengths and all(length == 20.0 for length in lengths)


def test_entropy_setting_is_the_weight_of_the_entropy():
    """With the same seed and actions, only the gradient of the noise differs, by this weight."""
    slopes = []
    for entropy in (0.0, 0.25):
        settings = make_settings(Shac, {**SHORT, "entropy": entropy})
        learner = Shac(rl.make("Cartpole", settings.num_envs, dtype="float64", device="cpu"), settings, 0)
        *_, loss = learner._rollout()
        slopes.append(torch.autograd.grad(loss, [learner.actor.log_std, learner.actor.net[0].weight]))
    (noise, weight), (noisier, same) = slopes
    torch.testing.assert_close(noise - noisier, torch.full_like(noise, 0.25))
    assert torch.equal(weight, same) and noise.abs().max() > 0.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"settings": {"horizon": 0}}, "horizon is 0; it must be a whole number of at least 1"),
        ({"settings": {"iterations": 0}}, "iterations is 0; it must be a whole number of at least 1"),
        ({"settings": {"gamma": 5.0}}, "gamma is 5.0; it must be between 0 and 1"),
        (
            {"algorithm": "sac", "settings": {"actor_betas": [0.9]}},
            r"actor_betas is \(0.9,\); it must be two numbers such as 0.9, at least 0.0 and below 1.0",
        ),
        (
            {"algorithm": "sac", "settings": {"actor_betas": ["a", 0.9]}},
            r"actor_betas is \('a', 0.9\); it must be two numbers",
        ),
        (
            {"algorithm": "sac", "settings": {"actor_betas": [0.9, 1.0]}},
            r"actor_betas is \(0.9, 1.0\); it must be two numbers",
        ),
        ({"algorithm": "sac", "settings": {"last_rate": 2.0}}, "last_rate is 2.0; it must be between 0 and 1"),
        ({"settings": {"actor_hidden": ["a"]}}, "actor_hidden is 'a'; it must be a whole number of at least 1"),
        (
            {"algorithm": "sac", "settings": {"actor_every": 0}},
            "actor_every is 0; it must be a whole number of",
        ),
        ({"algorithm": "sac", "settings": {"target_entropy": "high"}}, "target_entropy is 'high'; it must be a number"),
        ({"algorithm": "sac", "settings": {"samples_around": -1}}, "samples_around is -1; .* number of at least 0"),
        ({"algorithm": "sac", "settings": {"review_every": "often"}}, "review_every is 'often'; .* whole number"),
        ({"algorithm": "sac", "settings": {"updates": 0}}, "updates is 0; it must be a whole number of at least 1"),
        (
            {"algorithm": "sac", "settings": {"reward_scale": NAN}},
            "reward_scale is nan; it must be a number above",
        ),
        ({"algorithm": "sql", "settings": {"value_particles": 0}}, "value_particles is 0; it must be a whole number"),
        ({"algorithm": "mbpo", "settings": {"length_last": -1}}, "length_last is -1; it must be a whole number"),
        ({"algorithm": "mbpo", "settings": {"model_holdout": -1.0}}, "model_holdout is -1.0; .* between 0 and 1"),
        ({"algorithm": "ppo", "settings": {"std": -1.0}}, "std is -1.0; it must be a number above zero"),
        ({"algorithm": "ppo", "settings": {"num_envs": 1, "horizon": 3}}, "num_envs is 1 and horizon is 3; .* least 4"),
        ({"settings": {"clip": -1.0}}, "clip is -1.0; it must be a number above zero"),
        ({"settings": {"log_std": NAN}}, "log_std is nan; it must be a number"),
        ({"options": {"first_env": 1}}, "first_env is not a task option here"),
        ({"options": {"threads": 1}}, "threads is not a task option here"),
        ({"seconds": 0.0}, "seconds is 0.0; it must be a number above zero"),
        ({"steps": 0}, "steps is 0; it must be a whole number of at least 1"),
    ],
)
def test_wrong_settings_are_errors_and_leave_no_folder(given, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        train("Cartpole", **{"algorithm": "shac", **given}, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_resuming_needs_more_time_or_steps_than_done(tmp_path):
    folder = short(tmp_path / "run", steps=32)
    with pytest.raises(ValueError, match=r"has already trained for \d+ s; give a longer time to continue"):
        short(folder, resume=True, seconds=1e-6)
    with pytest.raises(ValueError, match="already has 32 steps; give more steps to continue"):
        short(folder, resume=True, steps=32)


@pytest.mark.parametrize("algorithm", ["shac", "ppo"])
def test_resumed_run_equals_an_uninterrupted_one(algorithm, tmp_path):
    whole = short(tmp_path / "whole", algorithm=algorithm)
    part = short(tmp_path / "part", steps=32, algorithm=algorithm)
    assert len(read_log(part)) == 2
    with open(part / "log.jsonl", "a") as file:  # killed while writing
        file.write(json.dumps({"steps": 48, "return": 7.0}) + '\n{"steps": 6')
    assert short(part, algorithm=algorithm, resume=True) == part
    assert len(rows(whole)) == 4 and rows(part) == rows(whole)
    one, two = (torch.load(folder / CHECKPOINT, weights_only=True) for folder in (whole, part))
    assert_equal(one["learner"], two["learner"])
    assert_equal(one["own"], two["own"])
    head = (part / "log.csv").read_text().splitlines()
    assert head[0].startswith("steps,seconds,steps/s") and len(head) == 5


def test_run_older_than_a_setting_resumes_with_its_default(tmp_path):
    folder = short(tmp_path / "run", steps=16)
    saved = torch.load(folder / CHECKPOINT, weights_only=True)
    del saved["run"]["settings"]["entropy"]
    torch.save(saved, folder / CHECKPOINT)
    with pytest.raises(ValueError, match=r"has entropy 0.0, not 0.5; it must be the same to resume"):
        short(folder, resume=True, settings={**SHORT, "entropy": 0.5})
    assert len(read_log(short(folder, resume=True))) == 4


@pytest.mark.parametrize(("horizon", "minibatches"), [(2, 4), (1, 4), (4, 2)])
def test_critic_loss_is_the_mean_over_minibatches(horizon, minibatches):
    """With learning rate zero, every minibatch is a part of the same loss."""
    settings = make_settings(Shac, {**SHORT, "horizon": horizon, "minibatches": minibatches, "critic_rate": 0.0})
    learner = Shac(rl.make("Cartpole", 4, device="cpu"), settings, 0)
    seen, rewards, *_ = learner._rollout()
    targets = torch.ones_like(rewards)
    with torch.no_grad():
        found = (learner.critic(learner.normaliser(seen))[..., 0] - targets) ** 2
    assert learner._learn_values(seen, targets) == pytest.approx(float(found.mean()), rel=1e-5)


def test_noise_is_bounded():
    """A far too large entropy weight drives the noise to its bound, not to infinity."""
    settings = make_settings(Shac, {**SHORT, "entropy": 1e3, "actor_rate": 1.0})
    learner = Shac(rl.make("Cartpole", 4, device="cpu"), settings, 0)
    for _ in range(5):
        learner.advance()
    assert (learner.actor.log_std == 1.0).all()


def test_run_without_a_checkpoint_may_start_again(tmp_path):
    folder = short(tmp_path / "run", steps=16)
    (folder / CHECKPOINT).unlink()
    short(folder, steps=16)
    assert len(read_log(folder)) == 1


@pytest.mark.parametrize(
    ("algorithm", "settings"), [(Shac, SHORT), (Sac, {"num_envs": 4, "hidden": (8,), "warm_up": 4})]
)
def test_begin_with_loads_all_networks_and_nothing_else(algorithm, settings):
    made = make_settings(algorithm, {**settings, "average_rate": 0.5})
    first, second = (algorithm(rl.make("Cartpole", 4, device="cpu"), made, seed) for seed in (0, 1))
    for _ in range(4):
        first.advance()
    second.begin_with(first.state_dict())
    for name, part in first.parts().items():
        if isinstance(part, torch.nn.Module):  # normalisers are part of the actors
            source = first.average if name == "actor" else part
            assert_equal(second.parts()[name].state_dict(), source.state_dict())
    assert not torch.equal(first.actor.net[0].weight, first.average.net[0].weight)
    assert second.steps == second.iterations == 0 and not second.actor_optimiser.state


def test_begin_with_loads_the_best_reviewed_policy():
    made = make_settings(Sac, {"num_envs": 4, "hidden": (8,), "warm_up": 4, "review_every": 1, "review_episodes": 1})
    first, second = (Sac(rl.make("Cartpole", 4, device="cpu"), made, seed) for seed in (0, 1))
    for _ in range(4):
        first.advance()
    seen = first.replay.all()
    best = first.policy(seen.observation)
    for _ in range(40):
        first.review.best_return = 1e9  # the best policy does not change, and its normaliser gets outdated
        first.advance()
    value = first.critic(seen.observation, seen.action)
    second.begin_with(first.state_dict())
    for policy in (second.actor, second.average, second.policy):
        assert (policy(seen.observation) - best).abs().max() < 1e-5
    assert torch.equal(second.critic(seen.observation, seen.action), value)


def test_begin_with_loads_the_last_policy_if_none_was_reviewed():
    made = make_settings(Sac, {"num_envs": 4, "hidden": (8,), "warm_up": 4, "review_every": 1000, "rate": 0.01})
    first, second = (Sac(rl.make("Cartpole", 4, device="cpu"), made, seed) for seed in (0, 1))
    for _ in range(20):
        first.advance()
    second.begin_with(first.state_dict())
    seen = first.replay.all().observation
    assert torch.equal(second.actor(seen), first.actor(seen)) and torch.equal(second.policy(seen), first.policy(seen))


def test_checkpoint_of_another_version_of_a_task_is_an_error():
    made = make_settings(Sac, {"num_envs": 2, "hidden": (8,), "capacity": 10})
    learner = Sac(rl.make("LaikagoWalk", 2, device="cpu"), made, 0)
    saved = learner.state_dict()
    del saved["environments"]["params"]["cfm"]
    with pytest.raises(ValueError, match=r"different LaikagoWalk: its episodes differ in cfm\. .* begin with"):
        learner.load_state_dict(saved)


def test_run_may_begin_with_the_networks_of_another(tmp_path):
    first = short(tmp_path / "first")
    other = {"options": {"episode_length": 30}, "seed": 7}
    second = short(tmp_path / "second", 16, begin_with=first, **other)
    whole = short(tmp_path / "whole", 48, begin_with=first, **other)
    assert read_log(second)[0]["noise"] != read_log(first)[0]["noise"]  # learned, and loaded
    assert json.loads((second / "run.json").read_text())["begin_with"] == str(first)
    short(second, 32, resume=True, **other)
    assert rows(short(second, 48, resume=True, begin_with=first, **other)) == rows(whole)
    assert torch.load(second / CHECKPOINT, weights_only=True)["run"]["begin_with"] == str(first)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"begin_with": "nothing"}, FileNotFoundError, "begin_with is nothing, which has no checkpoint.pt"),
        ({"algorithm": "ppo"}, ValueError, "a run of 'shac'; it must be a run of 'ppo'"),
        (
            {"settings": {**SHORT, "actor_hidden": (8,)}},
            ValueError,
            "of Cartpole with different networks",
        ),
    ],
)
def test_networks_that_do_not_fit_are_errors_and_leave_no_folder(given, error, says, tmp_path):
    first = short(tmp_path / "first", 16)
    with pytest.raises(error, match=says):
        short(tmp_path / "second", 16, **{"begin_with": first, **given})
    assert not (tmp_path / "second").exists()


def test_begin_with_rejects_a_file_that_is_not_a_checkpoint(tmp_path):
    (tmp_path / CHECKPOINT).write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="was not written by train"):
        short(tmp_path / "run", begin_with=tmp_path)


def test_best_policy_is_kept(tmp_path):
    """With a far too high learning rate, the last policy is not the best one."""
    wild = {**SHORT, "actor_rate": 0.5, "average_rate": 1.0}
    folder = short(tmp_path / "run", 96, settings=wild, options={"episode_length": 200})
    returns = [row["evaluated return"] for row in read_log(folder)]
    assert max(returns) > returns[-1]
    best = load_policy(folder / "best.pt")
    found = evaluate(best.make(2, threads=1, device="cpu"), best.policy, EVALUATION_SEED).summary()["return"]
    assert found == pytest.approx(max(returns), rel=1e-3)
    assert best.info["log"]["evaluated return"] == pytest.approx(max(returns))


def test_best_policy_newer_than_the_checkpoint_is_kept(tmp_path):
    """The run was killed after an evaluation and before the next checkpoint."""
    folder = short(tmp_path / "run", steps=16)
    env = rl.make("Cartpole", 4, device="cpu")
    policy = Shac(env, make_settings(Shac, SHORT), 0).policy
    save_policy(folder / "best.pt", policy, env, log={"evaluated return": 1e9})
    short(folder, resume=True, steps=32)
    assert load_policy(folder / "best.pt").info["log"]["evaluated return"] == 1e9
    fresh = short(tmp_path / "other", steps=16)
    (fresh / CHECKPOINT).unlink()
    save_policy(fresh / "best.pt", policy, env, log={"evaluated return": 1e9})
    short(fresh, steps=16)  # starts from scratch and ignores the old file
    assert load_policy(fresh / "best.pt").info["log"]["evaluated return"] < 1e9


def test_compile_time_does_not_count(tmp_path, monkeypatch):
    class Slow(Shac):
        def advance(self):
            LOADING.wall += 100.0  # as if most of the time were compiling
            return super().advance()

    monkeypatch.setattr("warp_articulated.rl.learning.training.learner_class", lambda name: Slow)
    before = LOADING.wall
    try:
        (row,) = read_log(short(tmp_path / "run", steps=16))
        loaded = LOADING.wall - before
    finally:
        LOADING.wall = before
    assert row["seconds"] < -90.0 and loaded > 100.0  # includes the kernels of the run


def test_stopped_run_is_saved_and_can_be_resumed(tmp_path):
    asked, done = iter([False, True]), []
    rare = {"evaluate_every": 100.0, "checkpoint_every": 100.0}
    part = short(tmp_path / "part", **rare, stop=lambda: next(asked), report=lambda row, share: done.append(share))
    assert done == [0.25, 0.5]
    assert torch.load(part / CHECKPOINT, weights_only=True)["learner"]["steps"] == 32
    short(part, **rare, resume=True)
    assert rows(part) == rows(short(tmp_path / "whole", **rare))


def test_until_stops_at_a_return(tmp_path):
    folder = short(tmp_path / "run", steps=1600, until=-1e9)
    assert [row["steps"] for row in read_log(folder)] == [16] and (folder / CHECKPOINT).exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"task": "Catpole"}, "task is 'Catpole'; it must be one of Ant, Cartpole"),
        ({"algorithm": "dqn"}, "algorithm is 'dqn'; it must be one of shac, sac, sql, mbpo, ppo"),
        ({"settings": {"gama": 0.9}}, "Shac has no setting 'gama'; it has num_envs, horizon"),
        ({"settings": {"horizon": 2.5}}, r"horizon is 2\.5; it must have the same type as the default 16"),
        ({"settings": {"gamma": "much"}}, r"gamma is 'much'; it must have the same type as the default 0\.99"),
        ({"options": {"swingup": True}}, "Cartpole has no option 'swingup'; it has swing_up, dt"),
        ({"task": "PendulumReach"}, "PendulumReach needs the option n"),
        ({"options": {"task": 1}}, "task is not a task option here"),
        ({"until": float("nan")}, "until is nan; it must be a number"),
        ({"algorithm": "sac", "settings": {"target_entropy": True}}, "target_entropy is True; it must be a number"),
        ({"seed": 1 << 63}, r"seed is 9223372036854775808; it must be below 2\*\*63"),
    ],
)
def test_wrong_arguments_are_errors_and_leave_no_folder(arguments, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        train(**{"task": "Cartpole", "folder": tmp_path / "run", "device": "cpu", **arguments})
    assert not (tmp_path / "run").exists()


def test_resume_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no checkpoint\.pt; there is nothing to resume"):
        short(tmp_path / "none", resume=True)
    folder = short(tmp_path / "run", steps=16)
    with pytest.raises(FileExistsError, match="already contains a run; resume it, or choose another folder"):
        short(folder)
    with pytest.raises(ValueError, match="has horizon 4, not 8; it must be the same to resume"):
        short(folder, settings={**SHORT, "horizon": 8}, resume=True)
    with pytest.raises(ValueError, match="has seed 0, not 1; it must be the same to resume"):
        short(folder, seed=1, resume=True)
    with pytest.raises(ValueError, match="has algorithm shac, not ppo; it must be the same to resume"):
        short(folder, algorithm="ppo", settings={}, resume=True)
    assert len(read_log(folder)) == 1  # unchanged
    whole = (folder / CHECKPOINT).read_bytes()
    for content in (b"no checkpoint", whole[: len(whole) // 2]):
        (folder / CHECKPOINT).write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint\.pt is damaged or was not written by train\.$"):
            short(folder, resume=True)
    (folder / CHECKPOINT).write_bytes((folder / "policy.pt").read_bytes())
    with pytest.raises(ValueError, match=r"checkpoint\.pt was not written by train\.$"):
        short(folder, resume=True)
    with pytest.raises(ValueError, match=r"log\.csv, which is a file; it must be a folder"):
        short(folder / "log.csv")


def test_resumed_run_evaluates_when_an_uninterrupted_one_would(tmp_path):
    folder = short(tmp_path / "run", 64, evaluate_every=1e9, stop=lambda: True)
    (row,) = read_log(folder)
    assert "evaluated return" not in row and (folder / "log.csv").exists()
    calls = []
    short(folder, 640, evaluate_every=row["seconds"], resume=True, stop=lambda: calls.append(0) or len(calls) == 1)
    assert "evaluated return" in read_log(folder)[1]  # was due before it stopped
