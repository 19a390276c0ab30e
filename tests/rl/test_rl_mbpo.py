"""Model-based policy optimisation: the ensemble, imagined steps, checkpoints, and learning."""

import copy

import pytest
import torch
from rl_batches import make

from warp_articulated.rl.learning.dynamics import Ensemble, ModelSettings, fit
from warp_articulated.rl.learning.evaluation import evaluate
from warp_articulated.rl.learning.mbpo import Mbpo

NOISE = 0.1


def known(n, seed, noise=NOISE):
    """Transitions of a small nonlinear system; the first number is noisy, a large second number ends the episode."""
    generator = torch.Generator().manual_seed(seed)
    observation, action = (2 * torch.rand(n, size, generator=generator) - 1 for size in (2, 1))
    x, y = observation.unbind(1)
    change = torch.stack([torch.sin(3 * x) + noise * torch.randn(n, generator=generator), 0.5 * action[:, 0] * y], 1)
    return observation, action, 100 * (x * y + action[:, 0]), observation + change, y > 0.5


def fitted(transitions, steps=None, **settings):
    torch.manual_seed(0)
    numbers = ModelSettings(**{"members": 4, "elites": 3, "model_hidden": (64, 64), **settings})
    ensemble = Ensemble(2, 1, numbers)
    optimiser = torch.optim.AdamW(ensemble.parameters(), 3e-3)
    notes = fit(ensemble, optimiser, transitions, numbers, torch.Generator().manual_seed(0), steps)
    return ensemble, notes


@pytest.fixture(scope="module")
def ensemble():
    return fitted(known(4000, 0), model_batches=800, model_patience=30)[0]


def test_ensemble_learns_a_known_function_and_its_noise(ensemble):
    observation, action, reward, following, ended = known(3000, 1, noise=0.0)
    draws = [ensemble.predict(observation, action, torch.Generator().manual_seed(k)) for k in range(20)]
    reached = torch.stack([d[0] for d in draws])
    assert (reached.mean(0) - following).std(0).max() < 0.05  # a twentieth of the signal; the noise is averaged
    spread = reached.std(0).mean(0)
    assert 0.7 * NOISE < spread[0] < 1.5 * NOISE and spread[1] < 0.3 * NOISE
    assert (torch.stack([d[1] for d in draws]).mean(0) - reward).std() < 5.0  # rewards are in the hundreds
    right = torch.stack([d[2] for d in draws]) == ended
    assert right.float().mean() > 0.97


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
def test_predictions_keep_the_order_of_rows(ensemble, n):
    observation, action, reward, _, _ = known(n, 2)
    _, predicted, ended = ensemble.predict(observation, action, torch.Generator().manual_seed(0))
    assert predicted.shape == ended.shape == (n,)
    assert (predicted - reward).abs().max() < 40.0  # rows in the wrong order would differ by hundreds


def test_elites_are_the_best_predictors(ensemble):
    spoilt = copy.deepcopy(ensemble)
    spoilt.weights[-1].data[1] = 0.0  # a member with zero weights that is not trained again
    numbers = ModelSettings(members=4, elites=3, model_hidden=(64, 64), model_batches=0)
    fit(spoilt, torch.optim.SGD(spoilt.parameters()), known(1000, 3), numbers, torch.Generator())
    assert sorted(spoilt.elites.tolist()) == [0, 2, 3]


def test_training_stops_without_improvement_and_keeps_the_best():
    observation, action, reward, following, ended = known(400, 0)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(5))
    nonsense = (observation, action, reward[order], observation + (following - observation)[order], ended[order])
    _, notes = fitted(nonsense, model_batches=5000, model_check=20, model_patience=3)
    assert notes["model steps"] < 1000
    assert notes["model error"] < 1.7  # predicting the mean: 1, plus 0.56 for ends; overfitting: more


def test_samples_around_a_step_are_held_out_with_it():
    """Random targets can only be predicted by memorising other samples around the same step."""
    observation, action, reward, following, ended = known(30, 0)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(5))
    nonsense = (observation, action, reward[order], observation + (following - observation)[order], ended[order])
    around = tuple(x.repeat_interleave(10, 0) for x in nonsense)
    step = torch.arange(30).repeat_interleave(10)
    patient = {"model_batches": 600, "model_check": 100, "model_patience": 6, "model_holdout": 0.3}
    leaking, honest = (fitted(around, steps, **patient)[1]["model error"] for steps in (None, step))
    assert leaking < 0.3 < 1.0 < honest
    with pytest.raises(ValueError, match="transitions have 1 step; there must be at least 2"):
        fitted(around, torch.zeros(300, dtype=torch.int64))


def test_learner_marks_samples_around_the_same_step(monkeypatch):
    calls = []

    def noted(model, optimiser, transitions, settings, generator, steps):
        calls.append((transitions[0], steps))
        return {}

    monkeypatch.setattr("warp_articulated.rl.learning.mbpo.fit", noted)
    learner = small(samples="true", samples_around=3)
    while not calls:
        learner.advance()
    observation, steps = calls[0]
    assert len(steps) == 4 * len(steps.unique())
    for step in steps.unique():
        assert (observation[steps == step] == observation[steps == step][0]).all()


def test_settings_without_training_data_are_errors():
    with pytest.raises(ValueError, match=r"model_holdout is 1\.0; it must be below 1"):
        small(model_holdout=1.0)
    with pytest.raises(ValueError, match="warm_up is 1; it must be at least 2"):
        small(num_envs=1, warm_up=1)
    assert "model error" in small(num_envs=1, warm_up=2, collect=2).advance()


def small(num_envs=2, **settings):
    few = {"warm_up": 20, "updates": 1, "batch": 16, "hidden": (16, 16), "gamma": 1.0, "retrain_every": 10}
    model = {"members": 3, "elites": 2, "model_hidden": (16,), "model_batches": 20, "branches": 30, "imagined": 300}
    env = make("PendulumReach", num_envs, n=1)
    return Mbpo(env, Mbpo.Settings(**{"num_envs": num_envs, **few, **model, **settings}), seed=3)


def test_learning_resumes_bitwise(tmp_path):
    whole, half = small(), small()
    for _ in range(17):  # into the second model, between two trainings
        whole.advance(), half.advance()
    torch.save(half.state_dict(), tmp_path / "half.pt")
    resumed = small()
    resumed.load_state_dict(torch.load(tmp_path / "half.pt", weights_only=True))
    for _ in range(8):
        expected, found = whole.advance(), resumed.advance()
        assert found == expected
    assert any(name.startswith("model") for name in expected) or whole.trained_at == resumed.trained_at > 40
    for old, new in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(old, new)
    for old, new in zip(whole.actor.parameters(), resumed.actor.parameters(), strict=True):
        assert torch.equal(old, new)


def test_imagined_rollouts_grow_longer_and_end():
    learner = small(length_first=1, length_last=5, length_from=20, length_to=60, imagined=30)
    lengths = []
    for _ in range(40):
        learner.advance()
        lengths.append(learner.length)
    assert lengths[9] == 1 and lengths[19] == 3 and lengths[29] == lengths[39] == 5
    learner.model.biases[-1].data[..., -1] = 100.0  # every step ends
    learner.imagined.added = 0
    learner.imagine()
    assert learner.imagined.added == 30 and learner.imagined.all().terminated.all()


def test_steps_of_reviews_do_not_count_for_the_model():
    plain, reviewed = small(), small(review_every=1, review_episodes=2)
    for learner in (plain, reviewed):
        for _ in range(12):
            learner.advance()
    assert reviewed.reviewed > 0 and reviewed.steps == plain.steps + reviewed.reviewed
    assert reviewed.collected == plain.collected == plain.steps and reviewed.length == plain.length
    assert reviewed.trained_at == plain.trained_at > 0


def test_updates_mix_simulated_and_imagined_steps():
    learner = small(batch=40, real_ratio=0.25)
    for _ in range(12):
        learner.advance()
    learner.imagined._tensors["reward"].fill_(7.0)
    assert (learner.batch().reward == 7.0).sum() == 30


def test_samples_around_true_steps_train_the_model():
    learner = small(samples="first-order", samples_around=4)
    for _ in range(12):
        learner.advance()
    assert learner.steps == 24 and len(learner.replay) == 120


def test_wrong_settings_are_errors():
    with pytest.raises(ValueError, match="enhancement is 'exact'; it must be 'none' for Mbpo"):
        small(enhancement="exact")
    with pytest.raises(ValueError, match="branches is 301; it must be at most imagined, 300"):
        small(branches=301)
    with pytest.raises(ValueError, match="elites is 4; it must be from 1 to the 3 members"):
        small(elites=4)


def test_learns_to_raise_a_pendulum():
    env = make("PendulumReach", 4, n=1)
    settings = Mbpo.Settings(
        num_envs=4, gamma=1.0, updates=4, batch=128, hidden=(64, 64), rate=2e-3, reward_scale=20.0, temperature=0.05,
        warm_up=400, branches=2000, imagined=8000, model_hidden=(64, 64), model_batches=200,
    )  # fmt: skip
    learner = Mbpo(env, settings, seed=1)
    judge = make("PendulumReach", 1, n=1)
    reached = evaluate(judge, learner.policy).summary()["return"]
    assert reached < 0.1  # of 0.5
    while reached < 0.3 and learner.steps < 3000:
        learner.advance()
        if learner.steps % 200 == 0:
            reached = evaluate(judge, learner.policy).summary()["return"]
    assert reached >= 0.3
