"""Policy enhancement: gradients against finite differences, and the two forms against each other."""

from dataclasses import replace

import pytest
import torch
from rl_batches import make

from warp_articulated.rl.learning.enhancement import closeness, exact_slope, expanded_value, jacobians, stored_slope
from warp_articulated.rl.learning.replay import Transitions
from warp_articulated.rl.learning.sac import Sac

TASKS = [("PendulumReach", {"n": 3}), ("LaikagoWalk", {})]


def learner(task, options, num_envs=6, **settings):
    env = make(task, num_envs, dtype="float64", **options)
    small = {"num_envs": num_envs, "hidden": (16, 16), "warm_up": 0, "updates": 0, "capacity": 200}
    return Sac(env, Sac.Settings(**{**small, **settings}), seed=3)


def collected(sac, steps=5):
    """Contents of the replay after some steps."""
    for _ in range(steps):
        sac.take_step()
    return sac.replay.all()


@pytest.mark.parametrize(("task", "options"), TASKS)
def test_exact_slope_matches_finite_differences_of_the_expanded_value(task, options):
    sac = learner(task, options)
    batch = collected(sac, 12)[-6:]  # the Laikago has landed
    action = 0.9 * batch.action

    def value(a):
        with torch.no_grad():
            return expanded_value(sac.env, batch.state, a, sac.value, 0.9, scale=0.3)

    slope = exact_slope(sac.env, batch.state, action, sac.value, 0.9, scale=0.3)
    direction = torch.randn(action.shape, generator=torch.Generator().manual_seed(1), dtype=action.dtype)
    h = 1e-5
    expected = (value(action + h * direction) - value(action - h * direction)) / (2 * h)
    assert torch.allclose((slope * direction).sum(1), expected, rtol=1e-6, atol=1e-9)  # h^2, and rounding / h
    assert (slope.norm(dim=1) > 0).all()


@pytest.mark.parametrize(("task", "options"), TASKS)
def test_both_forms_agree_at_the_action_that_was_taken(task, options):
    sac = learner(task, options, enhancement="paper", gamma=0.9, reward_scale=0.3)
    batch = collected(sac)
    exact = exact_slope(sac.env, batch.state, batch.action, sac.value, 0.9, scale=0.3)
    stored = stored_slope(batch, sac.value, 0.9, scale=0.3)
    assert torch.allclose(stored, exact, rtol=1e-9, atol=1e-12)  # same terms, different order of summation
    assert torch.equal(closeness(batch.action, batch.action), torch.ones(len(batch), 1, dtype=torch.float64))
    assert torch.equal(sac.slope(batch, batch.action), stored)


def test_value_is_the_mean_of_both_critics():
    sac = learner("PendulumReach", {"n": 2})
    observation = collected(sac, 1).observation
    both = sac.critic(observation, sac.actor(observation))
    assert torch.equal(sac.value(observation), both.mean(0)) and (both[0] != both[1]).all()


def test_jacobians_predict_a_nearby_step():
    env = make("PendulumReach", 2, n=2, dtype="float64")
    state, action = env.fresh(2, 0), torch.tensor([[0.2, -0.4], [0.5, 0.1]], dtype=torch.float64)
    slopes = jacobians(env, state, action)
    h = 1e-5 * torch.tensor([[1.0, -2.0], [0.5, 1.0]], dtype=torch.float64)
    (ahead, gain, _), (behind, loss, _) = (env.transition(state, action + x) for x in (h, -h))
    moved = torch.einsum("noa,na->no", slopes["observation slope"], 2 * h)
    assert torch.allclose(env.observe(ahead) - env.observe(behind), moved, rtol=1e-6, atol=1e-12)
    assert torch.allclose(gain - loss, (slopes["reward slope"] * 2 * h).sum(1), rtol=1e-6, atol=1e-12)


def test_next_value_is_zero_where_a_step_terminates():
    sac = learner("PendulumReach", {"n": 2}, num_envs=2, enhancement="paper")
    batch = collected(sac, 1)
    last = replace(batch.state, frame=torch.tensor([98, 99]))
    slope = exact_slope(sac.env, last, batch.action, sac.value, 1.0)
    reward = batch.extra["reward slope"]
    assert torch.allclose(slope[1], reward[1], rtol=1e-9)
    assert not torch.allclose(slope[0], reward[0], rtol=1e-3)
    ended = replace(batch, terminated=torch.tensor([True, True]))
    assert torch.equal(stored_slope(ended, sac.value, 1.0), reward)


def test_non_finite_slope_is_zero():
    sac = learner("PendulumReach", {"n": 2}, num_envs=2)
    batch = collected(sac, 1)

    def following(seen):
        return torch.tensor([torch.inf, 1.0], dtype=seen.dtype) * sac.value(seen)

    slope = exact_slope(sac.env, batch.state, batch.action, following, 0.9)
    expected = exact_slope(sac.env, batch.state, batch.action, sac.value, 0.9)
    assert torch.equal(slope[0], torch.zeros_like(slope[0])) and torch.equal(slope[1], expected[1])


def test_weight_of_a_stored_slope_decreases_with_distance():
    taken = torch.zeros(3, 2)
    action = torch.tensor([[0.0, 0.0], [0.3, 0.4], [1.0, 0.0]])
    expected = torch.tensor([[0.0], [-0.5], [-1.0]]).exp()
    assert torch.allclose(closeness(action, taken), expected)


def test_slope_without_enhancement_is_the_critics():
    """Without simulation the slope is the critic's: zero for a critic that ignores the action."""
    sac = learner("PendulumReach", {"n": 2}, num_envs=2)
    batch = collected(sac)
    with torch.no_grad():
        for net in sac.critic.nets:
            net[0].weight[:, -2:] = 0.0
    assert torch.equal(sac.slope(batch, batch.action.clone()), torch.zeros_like(batch.action))
    enhanced = exact_slope(sac.env, batch.state, batch.action, sac.value, 0.9)
    assert isinstance(batch, Transitions) and (enhanced.abs().sum(1) > 0).all()
