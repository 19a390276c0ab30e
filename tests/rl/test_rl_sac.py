"""Learners with a replay: the ring buffer, bitwise resuming, learning a small task, and error messages."""

import copy
import io

import pytest
import torch
from rl_batches import make

from warp_articulated import rl
from warp_articulated.rl.learning.enhancement import FORMS
from warp_articulated.rl.learning.policy_file import load_policy, save_policy
from warp_articulated.rl.learning.replay import Replay, Transitions
from warp_articulated.rl.learning.review import Review
from warp_articulated.rl.learning.sac import Actor, Sac
from warp_articulated.rl.learning.sql import Sql, stein_direction

SMALL = {"num_envs": 4, "hidden": (16, 16), "batch": 16, "warm_up": 12, "updates": 2, "capacity": 40}
LEARNERS = [(Sac, {"enhancement": form, "enhanced_batch": 8, "actor_every": 2}) for form in FORMS]
LEARNERS += [(Sac, {"norm": True, "actor_betas": (0.7, 0.95), "iterations": 20, "last_rate": 0.01})]
REVIEWS = {"review_every": 2, "review_episodes": 2, "patience": 1}
LEARNERS += [(Sac, REVIEWS)]
LEARNERS += [(Sql, {"particles": 4, "value_particles": 4, **more}) for more in ({}, REVIEWS)]


def learner(algorithm, seed=0, task="PendulumReach", **settings):
    env = make(task, SMALL["num_envs"], **({"n": 2} if task == "PendulumReach" else {}))
    return algorithm(env, algorithm.Settings(**{**SMALL, **settings}), seed)


def numbered(first, number):
    """Transitions whose rewards are consecutive numbers."""
    count = torch.arange(first, first + number)
    state = rl.State(
        count[:, None].float(), count[:, None].float(), count, count, {"goal": count.float()}, {"mass": count}
    )
    x = count[:, None].float()
    return Transitions(state, x, x, count.float(), x + 1, count % 2 == 0, {"slope": x})


# -- replay


def test_replay_keeps_the_last_transitions_complete():
    replay = Replay(10)
    for first in range(0, 16, 4):
        replay.add(numbered(first, 4))
    assert len(replay) == 10 and replay.added == 16
    kept = replay.all()
    assert sorted(kept.reward.tolist()) == list(range(6, 16))
    for name, x in kept.tensors().items():
        expected = {"next_observation": kept.reward + 1, "terminated": kept.reward % 2 == 0}.get(name, kept.reward)
        assert torch.equal(x.reshape(-1).float(), expected.float()), name
    assert kept.state.params["mass"].dtype == torch.int64


def test_samples_are_uniform_and_repeatable():
    replay = Replay(8)
    replay.add(numbered(0, 5))
    once, again = (replay.sample(5000, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(once.reward, again.reward)
    shares = torch.bincount(once.reward.long(), minlength=8) / 5000
    assert (shares[:5] - 0.2).abs().max() < 0.03 and shares[5:].sum() == 0  # 5 standard deviations; never unfilled rows
    assert torch.equal(once.state.memory["goal"], once.reward)


def test_restored_replay_continues_at_the_same_row():
    replay, other = Replay(6), Replay(6)
    replay.add(numbered(0, 4))
    replay.add(numbered(4, 4))
    other.load_state_dict(copy.deepcopy(replay.state_dict()))
    for each in (replay, other):
        each.add(numbered(8, 3))
    assert torch.equal(replay.all().reward, other.all().reward)
    assert sorted(other.all().reward.tolist()) == list(range(5, 11))


def test_saved_replay_is_not_larger_than_its_contents():
    replay, file = Replay(100_000), io.BytesIO()
    replay.add(numbered(0, 4))
    torch.save(replay.state_dict(), file)
    assert file.tell() < 20_000


def test_replay_errors():
    replay = Replay(6)
    with pytest.raises(RuntimeError, match="The replay is empty"):
        replay.sample(3)
    with pytest.raises(RuntimeError, match="The replay is empty"):
        replay.all()
    with pytest.raises(ValueError, match="transitions has 7 steps; it must have at most the capacity, 6"):
        replay.add(numbered(0, 7))
    replay.add(numbered(0, 2))
    step = numbered(0, 1)
    with pytest.raises(ValueError, match=r"transitions has .*; it must have the same as the first: .*extra slope"):
        replay.add(Transitions(step.state, step.observation, step.action, step.reward, step.action, step.terminated))
    with pytest.raises(ValueError, match="has capacity 6; this one has 5"):
        Replay(5).load_state_dict(replay.state_dict())
    with pytest.raises(ValueError, match="capacity"):
        Replay(0)


def test_step_from_the_replay_can_be_simulated_again():
    for task in ("Ant", "LaikagoWalk"):
        sac = learner(Sac, task=task)
        for _ in range(3):
            sac.take_step()
        kept = sac.replay.all()
        after, reward, terminated = sac.env.transition(kept.state, kept.action)
        assert torch.equal(sac.env.observe(after), kept.next_observation)
        assert torch.equal(reward, kept.reward) and torch.equal(terminated, kept.terminated)


# -- learners


@pytest.mark.parametrize(("algorithm", "settings"), LEARNERS)
def test_learning_resumes_bitwise(algorithm, settings):
    first = learner(algorithm, **settings)
    for _ in range(12):  # the ring buffer has wrapped around
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    expected = [first.advance() for _ in range(4)]
    second = learner(algorithm, seed=1, **settings)
    file.seek(0)
    second.load_state_dict(torch.load(file))
    found = [second.advance() for _ in range(4)]
    assert found == expected and "critic loss" in expected[-1]
    assert ("entropy" in expected[-1]) == (algorithm is Sac)  # the last of two updates may not update the actor
    for name in ("actor", "average", "policy", "seen"):
        ours, theirs = (getattr(x, name).state_dict() for x in (second, first))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    reviewed = 200 * 7 if "review_every" in settings else 0  # two episodes per review, once learning has started
    assert second.steps == first.steps == 64 + reviewed


def score(env, policy):
    """Mean return of one episode per environment, without noise."""
    state, total = env.fresh(env.num_envs, 0), 0.0
    with torch.no_grad():
        for _ in range(env.episode_length):
            state, reward, _ = env.transition(state, policy(env.observe(state)))
            total += float(reward.mean())
    return total


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (Sac, {"enhancement": "none"}),
        (Sac, {"enhancement": "exact", "norm": True, "actor_betas": (0.7, 0.95)}),
        (Sql, {}),
        pytest.param(Sac, {"enhancement": "paper"}, marks=pytest.mark.slow),
    ],
)
def test_learns_to_raise_a_link(algorithm, settings):
    """In 20 frames the best policy applies full torque; an untrained policy lets the link fall."""
    env = make("PendulumReach", 16, n=1, episode_length=20)
    numbers = {"hidden": (32, 32), "rate": 3e-3, "target_rate": 0.02, "temperature": 1e-3, "gamma": 0.95}
    learner = algorithm(env, algorithm.Settings(**numbers, batch=64, warm_up=320, updates=4, **settings), seed=0)
    best = score(env, lambda seen: torch.ones(len(seen), 1))
    before = score(env, learner.policy)
    for _ in range(80):
        learner.advance()
    after = score(env, learner.policy)
    assert before < -best and after > 0.6 * best


@pytest.mark.parametrize("algorithm", [Sac, Sql])
def test_saved_policy_accepts_one_observation_or_a_batch(algorithm, tmp_path):
    learning = learner(algorithm)
    save_policy(tmp_path / "p.pt", learning.policy, learning.env, {"n": 2})
    policy, seen = load_policy(tmp_path / "p.pt").policy, learning.env.observe(learning.env.fresh(3, 0))
    expected = learning.policy(seen)
    for found in (policy(seen), torch.stack([policy(one) for one in seen])):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("last", [0.1, 0.02])
def test_policy_follows_the_actor_and_the_rate_falls_to_last_rate(last):
    sac = learner(Sac, average_rate=0.25, iterations=10, **({} if last == 0.1 else {"last_rate": last}))
    for _ in range(14):
        before, was = copy.deepcopy(sac.average.net), sac.iterations
        sac.advance()
        rate = 3e-4 * max(last, 1.0 - (1.0 - last) * was / 10)
        assert [o.param_groups[0]["lr"] for o in sac.optimisers()] == pytest.approx([rate] * 3)
        # the mean of the first four, then a quarter per iteration
        share = max(0.25, 1.0 / (was - 1)) if sac.steps >= sac.settings.warm_up else 0.0
        for old, new, aim in zip(before.parameters(), sac.policy.net.parameters(), sac.actor.net.parameters()):
            torch.testing.assert_close(new, old + share * (aim - old))
    assert rate == pytest.approx(3e-4 * last)


@pytest.mark.parametrize("algorithm", [Sac, Sql])
def test_settings_control_layer_norms_and_adam_betas(algorithm):
    def norms(network):
        return [m for m in network.modules() if isinstance(m, torch.nn.LayerNorm)]

    plain, steady = learner(algorithm), learner(algorithm, norm=True, actor_betas=(0.7, 0.95))
    assert not norms(plain.actor) and not norms(plain.critic)
    assert len(norms(steady.actor)) == len(norms(steady.average)) == 2  # one per hidden layer
    assert len(norms(steady.critic)) == len(norms(steady.target)) == 4  # and per critic
    assert steady.actor_optimiser.param_groups[0]["betas"] == (0.7, 0.95)
    for optimiser in (plain.actor_optimiser, plain.critic_optimiser, steady.critic_optimiser):
        assert optimiser.param_groups[0]["betas"] == (0.9, 0.999)


class Pushing(torch.nn.Module):
    """A policy with a constant action."""

    def __init__(self, action):
        super().__init__()
        self.action = torch.nn.Parameter(torch.tensor([action]))

    def forward(self, observation):
        return self.action.expand(len(observation), 1)


def test_review_keeps_the_best_policy_and_its_age():
    env = make("PendulumReach", 2, n=1, episode_length=20)
    env.reset(seed=0)
    before = env.state.q.clone()
    review = Review(env, Pushing(0.0), episodes=3, patience=2)
    returns, overdue = [], []
    for action in (-1.0, 1.0, 0.5, 0.0):
        assert int(review.look(Pushing(action)).lengths.sum()) == 3 * 20  # all episodes have full length
        returns.append(review.best_return)
        overdue.append(review.overdue)
    rising = score(env, Pushing(1.0))
    assert returns[0] == pytest.approx(score(env, Pushing(-1.0))) and returns[1:] == pytest.approx([rising] * 3)
    assert float(review.best.action) == 1.0 and overdue == [False, False, False, True]
    review.wait_again()
    assert not review.overdue and float(review.best.action) == 1.0
    assert torch.equal(env.state.q, before)


def test_non_finite_returns_are_never_the_best(monkeypatch):
    env = make("PendulumReach", 2, n=1, episode_length=3)
    monkeypatch.setattr(env, "reward", lambda before, action, after: action[:, 0] / 0.0)
    review = Review(env, Pushing(0.0), episodes=1, patience=1)
    for action in (1.0, 0.0):  # infinite, and NaN
        review.look(Pushing(action))
    assert not review.found and not review.overdue


@pytest.mark.parametrize("algorithm", [Sac, Sql])
def test_actor_returns_to_the_best_policy_without_improvement(algorithm):
    learning = learner(algorithm, review_every=2, review_episodes=1, patience=20, average_rate=0.5)
    assert learning.policy is learning.average  # there is no reviewed policy yet
    while not learning.learned or learning.iterations % 2:
        learning.advance()
    seen = learning.replay.all().observation.clone()  # the ring buffer wraps around
    acted = learning.policy(seen)
    assert learning.policy is learning.review.best and learning.review.found
    learning.review.best_return = 1e9  # unreachable
    for _ in range(39):
        learning.advance()
        assert (learning.actor(seen) - acted).abs().max() > 1e-4 and torch.equal(learning.policy(seen), acted)
    assert (learning.seen(seen) - learning.policy.normaliser(seen)).abs().max() > 0.1  # it has changed since
    row = learning.advance()
    for network in (learning.actor, learning.average):
        assert (network(seen) - acted).abs().max() < 1e-5
    assert row["best review"] == 1e9 and row["review"] < 2.0
    assert not learning.actor_optimiser.state and learning.critic_optimiser.state
    assert learning.reviewed == 21 * 100 and learning.steps == 4 * learning.iterations + learning.reviewed
    learning.advance()
    assert (learning.actor(seen) - acted).abs().max() > 1e-5


def test_same_seed_learns_the_same_and_another_does_not():
    notes = []
    for seed in (0, 0, 1):
        sac = learner(Sac, seed)
        notes.append([sac.advance() for _ in range(6)][-1])
    assert notes[0] == notes[1] != notes[2]


def test_density_of_actions_integrates_to_one():
    actor = Actor(torch.nn.Identity(), 2, (8,), 1, norm=False).double()
    observation = torch.tensor([[0.3, -0.7]], dtype=torch.float64)
    noise = torch.linspace(-6.0, 6.0, 20001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        action, density = actor.sample(observation.expand(len(noise), -1), noise)
        middle = actor(observation)
    area = torch.trapezoid(density.exp(), action[:, 0])
    assert abs(area - 1.0) < 1e-6
    assert abs(middle[0] - action[10000]) < 1e-12


def test_replay_has_the_final_observation_of_an_episode():
    """Not the first observation of the next episode."""
    env = make("Cartpole", 4, episode_length=3)
    found = Sac(env, Sac.Settings(**SMALL), 0)
    for _ in range(8):
        found.take_step()
    kept = found.replay.all()
    ended = kept.state.frame == 2
    after, reward, terminated = env.transition(kept.state, kept.action)
    assert ended.sum() > 4 and not kept.terminated.any() and not terminated.any()  # all truncated
    torch.testing.assert_close(kept.next_observation, env.observe(after), rtol=0, atol=1e-6)
    torch.testing.assert_close(kept.reward, reward, rtol=0, atol=1e-6)


def test_critics_are_fitted_to_the_reward_plus_the_soft_value_of_the_next_state():
    """Computed manually: lower target critic minus temperature times log density, and zero after termination."""
    found = learner(Sac, gamma=0.9, reward_scale=3.0, temperature=0.5)
    while found.steps < 40:
        found.take_step()
    batch = found.replay.all()
    batch = Transitions.of({**batch.tensors(), "terminated": torch.arange(len(batch)) % 3 == 0})
    with torch.no_grad():
        for p in found.target.parameters():
            p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3))  # to differ from the critics
    before = found.generator.get_state()
    following = found._following(batch.next_observation)
    found.generator.set_state(before)
    with torch.no_grad():
        noise = found.noise(len(batch), found.env.action_size)
        action, density = found.actor.sample(batch.next_observation, noise)
        x = torch.cat([found.seen(batch.next_observation), action], 1)
        lower = torch.minimum(*(net(x)[:, 0] for net in found.target))
        expected = lower - 0.5 * density
        going_on = 0.9 * expected * (~batch.terminated)
        misses = found.critic(batch.observation, batch.action) - (3.0 * batch.reward + going_on)
    torch.testing.assert_close(following, expected)
    loss = found.learn_values(batch, following)
    torch.testing.assert_close(loss, (misses**2).sum(0).mean())


@pytest.mark.parametrize(("target", "rises"), [(100.0, True), (-100.0, False)])
def test_temperature_rises_while_entropy_is_too_low(target, rises):
    found = learner(Sac, target_entropy=target)
    while found.steps < 20:
        found.take_step()
    before = float(found.temperature())
    found.update(found.batch())
    assert (float(found.temperature()) > before) == rises


def test_actor_update_raises_value_plus_entropy():
    """One small step along the gradient raises the mean of Q minus temperature times log density."""
    found = learner(Sac, rate=1e-4, temperature=0.2)
    while found.steps < 40:
        found.take_step()
    batch = found.replay.all()
    noise = torch.randn(len(batch), found.env.action_size, generator=torch.Generator().manual_seed(0))

    def gain():
        with torch.no_grad():
            action, density = found.actor.sample(batch.observation, noise)
            return (found.critic.lower(batch.observation, action) - 0.2 * density).mean()

    found.noise = lambda *shape: noise
    before = gain()
    found._learn_actions(batch)
    assert gain() > before


def test_particles_converge_to_the_density():
    """A Gaussian with mean 1 and standard deviation 0.5."""
    particles = torch.randn(1, 60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(800):
        particles = particles + 0.1 * stein_direction(particles, particles, -(particles - 1.0) / 0.25)
    assert abs(particles.mean() - 1.0) < 0.02
    assert abs(particles.std() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (Sac, {"enhancement": "some"}, "enhancement is 'some'; it must be one of none, exact, paper."),
        (Sac, {"temperature": 0.0}, "temperature is 0.0; it must be positive"),
        (Sql, {"temperature": -1.0}, "temperature is -1.0; it must be positive"),
        (Sql, {"particles": 1}, "particles is 1; it must be at least 2"),
    ],
)
def test_wrong_settings_are_errors(algorithm, settings, message):
    with pytest.raises(ValueError, match=message):
        learner(algorithm, **settings)
