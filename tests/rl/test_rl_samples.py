"""Sample enhancement: Jacobians of control steps, samples around true steps, and which samples are copies."""

from dataclasses import replace

import pytest
import torch
from rl_batches import actions, make

from warp_articulated import rl
from warp_articulated.rl.learning.enhancement import jacobians
from warp_articulated.rl.learning.jacobian import step_jacobian
from warp_articulated.rl.learning.replay import Transitions
from warp_articulated.rl.learning.sac import Sac
from warp_articulated.rl.learning.sample_enhancement import more_samples


def taken(env, frames=5, seed=0, size=0.5):
    """Steps with random actions, taken after some frames."""
    controls = actions(env, frames + 1, seed, size)
    env.reset(seed)
    for action in controls[:-1]:
        env.step(action)
    return step_from(env, env.state, controls[-1])


def step_from(env, state, action):
    after, reward, terminated = env.transition(state, action)
    return Transitions(state, env.observe(state), action, reward, env.observe(after), terminated)


def samples(env, steps, form, number=4, reach=0.01):
    """The added samples only."""
    return more_samples(env, steps, form, number, reach, torch.Generator().manual_seed(0))[len(steps) :]


def backward_rows(env, state, action):
    """Jacobian (n, observation_size + 1, action_size) by one backward pass per row."""
    action = action.detach().requires_grad_()
    after, reward, _ = env.transition(state, action)
    outputs = torch.cat([env.observe(after), reward[:, None]], 1)
    rows = [torch.autograd.grad(row.sum(), action, retain_graph=True)[0] for row in outputs.unbind(1)]
    return torch.stack(rows, 1)


@pytest.mark.parametrize(
    ("task", "options"),
    [("PendulumReach", {"n": 3}), ("LaikagoStand", {}), ("LaikagoWalk", {}), ("Cartpole", {})],
)
def test_jacobian_matches_the_backward_pass(task, options):
    """With contacts, pushes, parameters that differ between environments, and observed actions."""
    env = make(task, 3, dtype="float64", **options)
    steps = taken(env, 12)
    found = step_jacobian(env, steps.state, steps.action)
    expected = backward_rows(env, steps.state, steps.action)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize(("task", "options"), [("PendulumReach", {"n": 2}), ("LaikagoStand", {"push": 0.0})])
def test_error_of_first_order_samples_is_second_order(task, options):
    env = make(task, 2, dtype="float64", **options)
    steps = taken(env, 12)
    check_second_order(env, steps)


@pytest.mark.slow
def test_error_of_first_order_samples_is_second_order_for_an_ant_on_the_ground():
    """Compiles additional kernels."""
    env = rl.Ant(2, dtype="float64", device="cpu")
    check_second_order(env, taken(env, 20))


def check_second_order(env, steps):
    errors = []
    for reach in (1e-3, 5e-4):
        linear, true = (samples(env, steps, form, reach=reach) for form in ("first-order", "true"))
        assert torch.equal(linear.action, true.action) and len(linear) == 4 * len(steps)
        moved = (true.next_observation - steps.next_observation.repeat_interleave(4, 0)).abs().amax(1)
        assert moved.min() > 10 * errors[0][0].max() if errors else moved.min() > 0
        by_observation = (linear.next_observation - true.next_observation).abs().amax(1)
        errors.append((by_observation, (linear.reward - true.reward).abs()))
    for whole, half in zip(*errors, strict=True):
        assert whole.max() > 1e-10  # from curvature, not rounding
        assert abs(whole.sum() / half.sum() - 4) < 0.2  # the third-order term is a few permille of the second


def test_samples_stay_within_reach_and_action_bounds():
    env = make("PendulumReach", 2, n=2)
    steps = taken(env)
    steps = step_from(env, steps.state, torch.tensor([[1.0, -1.0], [0.3, 0.995]]))
    for form in ("first-order", "true"):
        around = samples(env, steps, form, number=50, reach=0.1)
        away = (around.action - steps.action.repeat_interleave(50, 0)).abs()
        assert around.action.abs().max() <= 1.0 and away.max() <= 0.1 + 1e-6 and away[50:, 0].max() > 0.08
        expected = step_from(env, around.state, around.action)
        torch.testing.assert_close(around.next_observation, expected.next_observation, rtol=0, atol=0.02)
        assert torch.equal(around.observation, expected.observation)


def test_samples_around_a_terminated_step_are_copies():
    """Otherwise terminations would be too rare in the replay."""
    env = make("PendulumReach", 2, n=2)
    steps = taken(env)
    last = replace(steps.state, frame=torch.tensor([env.episode_length - 1, 7]))
    steps = step_from(env, last, steps.action)
    assert steps.terminated.tolist() == [True, False]
    for form in ("first-order", "one-row"):
        around = samples(env, steps, form)
        assert around.terminated.tolist() == [True] * 4 + [False] * 4
        for name, x in steps.tensors().items():
            assert torch.equal(around.tensors()[name][:4], x[:1].expand_as(around.tensors()[name][:4])), name
        assert (around.action[4:] != steps.action[1]).all() and (around.reward[4:] != steps.reward[1]).all()
    assert samples(env, steps, "true").terminated.tolist() == [True] * 4 + [False] * 4


def test_diverged_step_does_not_affect_others():
    env = make("PendulumReach", 2, n=2)
    steps = taken(env)
    wild = replace(steps.state, qd=torch.stack([torch.full((2,), 1e30), steps.state.qd[1]]))
    with pytest.warns(RuntimeWarning, match="diverged"):
        spoilt = step_from(env, wild, steps.action)
        around = samples(env, spoilt, "first-order")
        slopes = jacobians(env, wild, steps.action)
    expected = samples(env, steps, "first-order")
    assert all((slope[0] == 0).all() and slope[1].isfinite().all() and slope[1].any() for slope in slopes.values())
    assert spoilt.terminated.tolist() == [True, False]
    assert torch.equal(around.next_observation[4:], expected.next_observation[4:])
    assert torch.equal(around.action[:4], steps.action[:1].expand(4, 2)) and torch.isfinite(around.reward).all()
    assert around.terminated.tolist() == [True] * 4 + [False] * 4


def test_step_that_diverges_with_finite_numbers_has_no_slope():
    """The simulator keeps a diverged environment at its last state; the control step then has no effect."""
    env = make("PendulumReach", 2, n=2)
    steps = taken(env)
    wild = replace(steps.state, qd=torch.stack([torch.full((2,), 1e5), steps.state.qd[1]]))
    with pytest.warns(RuntimeWarning, match="diverged"):
        after, _, terminated = env.transition(wild, steps.action)
        slope = step_jacobian(env, wild, steps.action)
        stored = jacobians(env, wild, steps.action)
    assert terminated[0] and after.q.isfinite().all()
    assert slope[0].isnan().all() and slope[1].isfinite().all() and not stored["reward slope"][0].any()


def test_one_row_changes_one_entry_by_too_much():
    env = make("PendulumReach", 3, n=2)
    steps = taken(env)
    right, wrong = (samples(env, steps, form, reach=1e-3) for form in ("first-order", "one-row"))
    whole = right.next_observation - steps.next_observation.repeat_interleave(4, 0)
    one = wrong.next_observation - steps.next_observation.repeat_interleave(4, 0)
    changed = one != 0
    assert (changed.sum(1) <= 1).all() and changed.sum() > 6  # the time does not depend on the action
    torch.testing.assert_close(one[changed], env.observation_size * whole[changed], rtol=1e-2, atol=1e-5)
    assert torch.equal(right.reward, wrong.reward)


@pytest.mark.parametrize("form", ["first-order", "one-row", "true"])
def test_sac_learns_from_the_samples(form):
    env = make("PendulumReach", 2, n=1)
    learner = Sac(env, Sac.Settings(num_envs=2, warm_up=4, updates=1, batch=8, samples=form, samples_around=3))
    for _ in range(3):
        learner.advance()
    assert learner.steps == 6 and len(learner.replay) == 24 and learner.updates == 2


def test_wrong_settings_are_errors():
    env = make("PendulumReach", 2, n=1)
    with pytest.raises(ValueError, match="samples is 'many'; it must be one of none, first-order, one-row, true"):
        Sac(env, Sac.Settings(samples="many"))
    with pytest.raises(ValueError, match="enhancement is 'paper'"):
        Sac(env, Sac.Settings(samples="true", enhancement="paper"))
