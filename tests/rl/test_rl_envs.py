"""RL environments: gradients, resets, seeds, random numbers and error messages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rl_batches import actions, make

import warp_articulated as wa
from warp_articulated import rl
from warp_articulated.rl.random import Random, seeded


def play(env, controls, seed=0):
    env.reset(seed)
    return [env.step(a) for a in controls]


def same(a, b):
    """Whether two states, or two results of steps, are bitwise equal."""
    if isinstance(a, rl.State):
        pairs = []
        a.map(lambda x, y: pairs.append((x, y)) or x, b)
    else:
        pairs = list(zip(a, b, strict=True))
    return all(torch.equal(x, y) for x, y in pairs)


# -- gradients


@pytest.mark.parametrize(("task", "options"), [("PendulumReach", {"n": 3}), ("LaikagoStand", {})])
def test_gradient_of_a_return_matches_finite_differences(task, options):
    env = make(task, 2, dtype="float64", **options)
    start, controls = env.fresh(2, 5), actions(env, 12, size=0.8)  # 12 frames: the Laikago has landed

    def returns(controls, qd):
        env.state = replace(start, qd=qd)
        return sum(env.step(a).reward for a in controls)

    inputs = [controls.clone().requires_grad_(), start.qd.clone().requires_grad_()]
    slopes = torch.autograd.grad(returns(*inputs).sum(), inputs)
    directions = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype) for x in inputs]
    ahead, behind = (returns(*(x + h * d for x, d in zip(inputs, directions))).detach() for h in (1e-5, -1e-5))
    expected = (ahead - behind).sum() / 2e-5
    found = sum((s * d).sum() for s, d in zip(slopes, directions))
    assert abs(found - expected) < 1e-6 * abs(expected)  # h^2 and rounding / h, each times some hundred


def test_gradients_stop_at_the_start_of_an_episode_only_in_that_environment():
    env = make("PendulumReach", 2, n=2, dtype="float64")
    controls = actions(env, 6).requires_grad_()

    def last_reward(restart):
        env.reset(0)
        for k, action in enumerate(controls):
            if k == 3 and restart:
                env.restart(torch.tensor([True, False]))
            step = env.step(action)
        return step.reward

    whole = torch.autograd.grad(last_reward(False).sum(), controls)[0]
    cut = torch.autograd.grad(last_reward(True).sum(), controls)[0]
    assert torch.equal(cut[:, 1], whole[:, 1]) and whole[:3].abs().min() > 0
    assert torch.equal(cut[:3, 0], torch.zeros_like(cut[:3, 0])) and cut[3:, 0].abs().min() > 0


def test_detach_cuts_the_gradient():
    env = make("PendulumReach", 1, n=2, dtype="float64")
    first, second = actions(env, 2).requires_grad_()
    env.reset()
    env.step(first)
    env.detach()
    slopes = torch.autograd.grad(env.step(second).reward.sum(), (first, second), allow_unused=True)
    assert slopes[0] is None and slopes[1].abs().min() > 0


# -- episodes


def test_reset_of_one_environment_does_not_affect_others():
    env = make("Cartpole", 4)
    calm = actions(env, 20, size=0.1)  # too short to fall
    pushed = calm.clone()
    pushed[:, 0] = 1.0  # falls repeatedly
    quiet, noisy = play(env, calm), play(env, pushed)
    assert any(s.terminated[0] for s in noisy) and not any(s.terminated.any() for s in quiet)
    for a, b in zip(quiet, noisy, strict=True):
        assert same([x[1:] for x in a], [x[1:] for x in b])


def test_same_seed_gives_the_same_trajectory_for_any_batch_size():
    few, many = make("LaikagoWalk", 2, episode_length=3), make("LaikagoWalk", 5, episode_length=3)
    controls = actions(many, 8)  # across two episode ends
    first, again = play(many, controls, seed=3), play(many, controls, seed=3)
    alone, other = play(few, controls[:, :2], seed=3), play(many, controls, seed=4)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert all(same([x[:2] for x in a], b) for a, b in zip(first, alone, strict=True))
    assert not torch.equal(first[0].observation, other[0].observation)


def test_restart_is_the_same_with_and_without_reading_the_mask():
    """On CUDA the mask is not read, because that would synchronise."""
    env = make("LaikagoWalk", 5)
    env.reset()
    mask = torch.tensor([True, False, False, True, False])
    state = replace(env.state, q=env.state.q.clone().requires_grad_())
    seen, unseen = env._restarted(state, mask), env._restarted_unseen(state, mask)
    assert same(seen, unseen) and not same(seen[mask], state[mask]) and same(seen[~mask], state[~mask])
    slopes = [torch.autograd.grad(s.q.sum(), state.q)[0] for s in (seen, unseen)]
    assert torch.equal(*slopes) and torch.equal(slopes[0], (~mask)[:, None].float().expand(-1, 19))


def test_next_reset_gives_different_episodes():
    env = make("Cartpole", 2)
    first, second = env.reset(), env.reset()
    assert not torch.equal(first, second) and not torch.equal(first[0], first[1])
    assert torch.equal(env.reset(seed=env.seed), first)


def test_transition_equals_step_and_does_not_change_the_state():
    env = make("LaikagoWalk", 32)
    controls = actions(env, 20)
    env.reset()
    pushes = 0
    for action in controls:
        before = env.state
        after, reward, terminated = env.transition(before, action)
        one, *_ = env.transition(before[2:3], action[2:3])  # any batch of states
        assert env.state is before and same(one, after[2:3])
        pushes += int((env.disturb(before)[1] != before.qd).any(1).sum())
        step = env.step(action)
        going = ~(step.terminated | step.truncated)
        assert torch.equal(step.reward, reward) and torch.equal(step.terminated, terminated)
        assert torch.equal(step.final_observation, env.observe(after)) and same(env.state[going], after[going])
    assert pushes > 0


def test_transition_accepts_given_states():
    env = make("Cartpole", 2)
    q, qd = torch.tensor([[0.5, 0.1], [0.0, -0.2], [0.1, 0.0]]), torch.zeros(3, 2)
    after, _, _ = env.transition(replace(env.fresh(3, 0), q=q, qd=qd), torch.zeros(3, 1))
    expected = env.simulator(3).step(q, qd, torch.zeros(3, 1))
    assert (
        torch.equal(after.q, expected[0]) and torch.equal(after.qd, expected[1]) and after.frame.tolist() == [1, 1, 1]
    )


def test_states_can_be_concatenated_and_indexed():
    env = make("LaikagoWalk", 2)
    a, b = env.fresh(2, 0), env.fresh(3, 1)
    both = a.map(lambda *x: torch.cat(x), b)
    assert len(both) == 5 and same(both[2:], b) and same(both[torch.arange(5) < 2], a)


def test_final_observation_is_kept():
    env = make("Cartpole", 3, episode_length=30)
    controls = torch.zeros(31, 3, 1)
    controls[:, 0] = 1.0
    steps = play(env, controls)
    fall = next(k for k, s in enumerate(steps) if s.terminated[0])
    step = steps[fall]
    assert abs(step.final_observation[0, 2]) > np.sin(0.5) > abs(step.observation[0, 2])
    assert torch.equal(step.final_observation[1:], step.observation[1:])
    end = steps[29]
    assert end.truncated.tolist() == [False, True, True] and not end.terminated.any()  # the first was reset earlier
    assert not torch.equal(end.final_observation[1:], end.observation[1:])
    assert env.state.frame[1:].tolist() == [1, 1]


def test_diverged_environment_terminates_and_does_not_affect_others():
    env = make("Cartpole", 3, swing_up=True, dtype="float64")
    controls = actions(env, 2).requires_grad_()
    whole = play(env, controls)
    env.reset(0)
    qd = env.state.qd.clone()
    qd[0, 1] = 1e7  # rad/s: too fast for the simulator
    env.state = replace(env.state, qd=qd)
    with pytest.warns(RuntimeWarning, match="1 of 3 environments diverged"):
        step = env.step(controls[0])
    assert step.terminated.tolist() == [True, False, False] and step.reward[0] == 0
    assert torch.isfinite(env.state.qd).all() and env.state.frame.tolist() == [0, 1, 1]
    assert same([x[1:] for x in step], [x[1:] for x in whole[0]])
    later = env.step(controls[1])
    assert same([x[1:] for x in later], [x[1:] for x in whole[1]])
    slope = torch.autograd.grad(step.reward.sum() + later.reward.sum(), controls)[0]
    expected = torch.autograd.grad(sum(s.reward.sum() for s in whole), controls)[0]
    assert torch.equal(slope[:, 1:], expected[:, 1:]) and slope[0, 0] == 0 and torch.isfinite(slope).all()


def test_gradients_work_after_stepping_in_inference_mode():
    env = make("Cartpole", 1, dtype="float64")
    with torch.inference_mode():
        env.transition(env.fresh(2, 0), torch.zeros(2, 1, dtype=torch.float64))  # creates a simulator
    action = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    _, reward, _ = env.transition(env.fresh(2, 0), action)
    assert torch.autograd.grad(reward.sum(), action)[0].abs().min() > 0


# -- random numbers


def test_random_numbers_are_uniform_and_uncorrelated():
    draws = Random(seeded(0, 2000, torch.device("cpu")), torch.empty(0)).uniform(0.0, 1.0, 20)
    share = torch.histc(draws, 10, 0.0, 1.0) / draws.numel()
    assert (share - 0.1).abs().max() < 0.006  # four standard deviations of 4000 +- 60
    other = Random(seeded(1, 2000, torch.device("cpu")), torch.empty(0)).uniform(0.0, 1.0, 20)
    rows = torch.cat([draws, other], 1).T  # (40, 2000): neither counters nor seeds may be correlated
    off = torch.corrcoef(rows) - torch.eye(40)
    across = torch.corrcoef(torch.stack([draws[:-1].flatten(), draws[1:].flatten()]))[0, 1]  # nor environments
    assert off.abs().max() < 0.11 and abs(across) < 0.02  # five standard deviations, four


def test_normal_numbers_are_normal():
    x = Random(seeded(0, 5000, torch.device("cpu")), torch.empty(0)).normal(4)
    assert x.shape == (5000, 4) and abs(x.mean()) < 0.03 and abs(x.var() - 1) < 0.04 and abs((x**4).mean() - 3) < 0.25


def test_random_draws_new_numbers_and_is_repeatable():
    keys = seeded(7, 3, torch.device("cpu"))
    a, b = Random(keys, torch.empty(0)), Random(keys, torch.empty(0))
    first, second = a.uniform(-1.0, 1.0, 2), a.uniform(-1.0, 1.0, 2)
    assert not torch.equal(first, second)
    assert torch.equal(b.uniform(-1.0, 1.0, 4), torch.cat([first, second], 1))  # independent of the sizes drawn
    assert a.uniform(torch.tensor([0.0, 10.0]), torch.tensor([1.0, 11.0]), 2).floor().tolist() == 3 * [[0.0, 10.0]]


# -- errors


class Nothing(rl.Env):
    """A task that defines nothing."""


BAD = {
    "task": (lambda env: rl.make("Anf"), "task is 'Anf'; it must be one of Ant, Cartpole, "),
    "n": (lambda env: rl.PendulumReach(8), "n is 8; it must be a whole number of links from 1 to 7"),
    "n, a word": (lambda env: rl.PendulumReach("3"), "n is '3'"),
    "n, a flag": (lambda env: rl.PendulumReach(True), "n is True"),
    "no substeps": (lambda env: rl.PendulumReach(1, substeps=0), "substeps is 0; it must be a whole number"),
    "torque": (lambda env: rl.PendulumReach(1, torque="much"), "torque is 'much'; it must be 'reachable' or 'paper'"),
    "swing_up": (lambda env: rl.Cartpole(swing_up="no"), "swing_up is 'no'; it must be True or False"),
    "ant": (lambda env: rl.Ant(randomise="no"), "randomise is 'no'; it must be True or False"),
    "walk": (lambda env: rl.LaikagoWalk(randomise=7), "randomise is 7; it must be True or False"),
    "validate": (lambda env: rl.Cartpole(validate="no"), "validate is 'no'; it must be True or False"),
    "push": (lambda env: rl.LaikagoStand(push=-1), "push is -1; it must be a number of zero or more"),
    "num_envs": (lambda env: rl.Cartpole(0), "num_envs is 0; it must be a whole number of at least 1"),
    "episode_length": (lambda env: rl.Cartpole(episode_length=0), "episode_length is 0; it must be a whole number"),
    "seed": (lambda env: env.reset(-1), "seed is -1; it must be a whole number of at least 0"),
    "large seed": (lambda env: env.reset(1 << 63), r"seed is 9223372036854775808; it must be below 2\*\*63"),
    "shape": (lambda env: env.step(torch.zeros(2, 3)), r"action has shape \(2, 3\); it must be \(2, 1\)"),
    "NaN": (lambda env: env.step(torch.tensor([[0.0], [torch.nan]])), "action has a number that is not finite.* 1"),
    "dtype": (lambda env: env.step(torch.zeros(2, 1, dtype=torch.float64)), "action is torch.float64"),
    "list": (lambda env: env.step([[0.0], [0.0]]), "action is a list; it must be a torch tensor"),
    "mask": (lambda env: env.restart(torch.ones(3, dtype=torch.bool)), r"mask has shape \(3,\) .* must be \(2,\)"),
    "state": (lambda env: setattr(env, "state", env.fresh(3, 0)), "state has 3 environments; it must have 2"),
    "option": (lambda env: rl.Cartpole(dt=-1.0), "dt is -1.0; it must be a number above zero"),
    "no reset": (lambda env: rl.Cartpole().step(torch.zeros(1, 1)), r"no state yet; call reset\(\) first"),
    "no observe": (lambda env: Nothing(wa.load("cartpole")).reset(), r"Nothing has no observe\(state\)"),
    "no reward": (lambda env: Nothing(wa.load("cartpole")).reward(*3 * [None]), r"Nothing has no reward\(...\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_error_messages(case):
    env = make("Cartpole", 2)
    env.reset()
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, RuntimeError, NotImplementedError), match=message) as caught:
        call(env)
    assert str(caught.value).endswith(".")


WRONG = {
    "reward": (lambda *_: torch.zeros(2, 1), r"Spin.reward returns shape \(2, 1\) of torch.float32 .* must be \(2,\)"),
    "terminated": (lambda _: torch.zeros(2), r"Spin.terminated .* of torch.float32 .* must be \(2,\) of torch.bool"),
    "lost": (lambda _: torch.zeros(()), r"Spin.lost returns shape \(\)"),
    "observe": (lambda state: state.q[:, 0], r"Spin.observe returns shape \(\d,\) .* \(\d, observation_size\)"),
    "remember": (lambda *_: {"speed": torch.zeros(2)}, "Spin.remember returns speed; .* that memory returns: nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_return_value_of_a_task_is_an_error(name, monkeypatch):
    function, message = WRONG[name]
    env = Spin(wa.load("cartpole"), 2, device="cpu")
    monkeypatch.setattr(env, name, function)
    with pytest.raises(ValueError, match=message):
        env.reset()
        env.step(torch.zeros(2, 1))


# -- a custom task


class Spin(rl.Env):
    """A minimal task: spin the pole of a cart-pole."""

    def observe(self, state):
        return state.qd

    def reward(self, before, action, after):
        return after.qd[:, 1]


def test_task_needs_only_observe_and_reward():
    env = Spin(wa.load("cartpole"), 2, episode_length=2, device="cpu")
    assert torch.equal(env.reset(), torch.zeros(2, 2)) and env.observation_size == 2
    steps = [env.step(torch.ones(2, 1)) for _ in range(2)]
    assert torch.equal(steps[0].reward, steps[0].observation[:, 1]) and steps[1].truncated.all()
    assert torch.equal(steps[1].observation, torch.zeros(2, 2)) and not env.step(torch.ones(2, 1)).truncated.any()
