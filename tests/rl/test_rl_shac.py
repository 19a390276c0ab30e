"""SHAC: its gradient against finite differences, its targets computed manually, and gradient clipping."""

import pytest
import torch
from rl_batches import make

from warp_articulated.rl.learning.networks import Normaliser, bound_gradients, log_squash
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac

GAMMA, TRACE = 0.9, 0.8


def learner(task="Cartpole", **options):
    settings = {"num_envs": 4, "horizon": 8, "env_clip": 1e12, "gamma": GAMMA, "trace": TRACE, "actor_hidden": (8,)}
    made = Shac(make(task, 4, dtype="float64", **options), make_settings(Shac, settings), 0)
    made.normaliser.see(torch.randn(50, made.env.observation_size, dtype=torch.float64))
    return made


def test_gradient_matches_finite_differences_across_episode_ends():
    """With contacts, truncated episodes, noise and the critic, in float64."""
    found = learner("LaikagoWalk", episode_length=6)
    start = found.env.state.detach()

    def loss():
        found.env.state = start
        return found._rollout()

    *_, ended, _, first = loss()
    assert ended[:-1].any()  # within the window
    weights = list(found.actor.parameters())
    gradient = torch.autograd.grad(first, weights)
    torch.manual_seed(0)
    for k in range(3):
        along = [torch.randn_like(p) for p in weights]
        sides = []
        for sign in (1.0, -1.0):
            with torch.no_grad():
                for p, v in zip(weights, along, strict=True):
                    p += sign * 1e-6 * v
            sides.append(float(loss()[-1].detach()))
            with torch.no_grad():
                for p, v in zip(weights, along, strict=True):
                    p -= sign * 1e-6 * v
        expected = sum(float((g * v).sum()) for g, v in zip(gradient, along, strict=True))
        # differences with step 1e-6 of a loss of order 1 are accurate to about 1e-10; slopes are of order 0.1
        assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(expected, rel=1e-5), k


def test_gain_is_the_discounted_reward_plus_the_value_at_truncation():
    """Computed manually from the steps: `final_observation` for truncated episodes, zero for terminated ones."""
    found = learner(episode_length=5)
    env = found.env
    env.state.q[0, 1], env.state.qd[0, 1] = 0.45, 3.0  # about to fall
    plain, steps = env.step, []
    env.step = lambda action: steps.append(plain(action)) or steps[-1]
    try:
        loss = found._rollout()[-1].detach()
    finally:
        del env.step
    gain = 0.0
    for e in range(env.num_envs):
        power = 1.0
        for k, step in enumerate(steps):
            gain += power * step.reward[e].item()
            power *= GAMMA
            over = bool(step.terminated[e] | step.truncated[e])
            if (over or k == len(steps) - 1) and not step.terminated[e]:
                gain += power * found.target(found.normaliser(step.final_observation))[e, 0].item()
            power = 1.0 if over else power
    assert any(s.terminated[0] for s in steps[:-1]) and any(s.truncated.any() for s in steps[:-1])
    assert float(loss) == pytest.approx(-gain / 4 / 8, rel=1e-12)


def test_td_lambda_targets_stop_at_the_end_of_an_episode():
    found = learner()
    rewards = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]], dtype=torch.float64)
    # the second environment terminates in its second step; the third is truncated there, with value 7
    ended = torch.tensor([[False] * 3, [False, True, True], [False] * 3])
    following = torch.tensor([[10.0, 10.0, 10.0], [20.0, 0.0, 7.0], [30.0, 30.0, 30.0]], dtype=torch.float64)
    last = 4.0 + GAMMA * 30.0
    middle = 2.0 + GAMMA * ((1 - TRACE) * 20.0 + TRACE * last), 2.0, 2.0 + GAMMA * 7.0
    first = [1.0 + GAMMA * ((1 - TRACE) * 10.0 + TRACE * later) for later in middle]
    expected = torch.tensor([first, middle, [last] * 3], dtype=torch.float64)
    torch.testing.assert_close(found._targets(rewards, ended, following), expected)


def test_gradients_are_clipped_per_row():
    x = torch.ones(4, 2, requires_grad=True)
    middle = 1.0 * x
    bound_gradients(5.0, middle)
    weights = torch.tensor([[3.0, 4.0], [30.0, 40.0], [torch.nan, 1.0], [0.0, 0.0]])
    (middle * weights).sum().backward()
    assert torch.allclose(x.grad, torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 1.0], [0.0, 0.0]]))


def test_clipping_does_not_depend_on_other_environments():
    """A reset of another environment within the window does not change the gradient of this one."""
    gradients = []
    for frames in ([0, 0], [0, 17]):  # the second is truncated in its third step, or not at all
        env = make("Cartpole", 2, dtype="float64", episode_length=20, swing_up=True)
        found = Shac(env, make_settings(Shac, {"num_envs": 2, "horizon": 6, "env_clip": 1e-3}), 0)
        state = env.fresh(2, 0)
        state.frame[:] = torch.tensor(frames)
        env.state = state
        arrived = []
        sample = found.actor.sample

        def watched(*x, sample=sample, arrived=arrived):
            action = sample(*x)
            action.register_hook(lambda g: arrived.append(g[0]))
            return action

        found.actor.sample = watched
        found._rollout()[-1].backward()
        gradients.append(torch.stack(arrived))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=0.0)


def test_normaliser_has_the_mean_and_variance_of_all_observations():
    x = 3.0 + 2.0 * torch.randn(300, 4, dtype=torch.float64)
    normaliser = Normaliser(4).double()
    for part in x.split([1, 99, 200]):
        normaliser.see(part)
    torch.testing.assert_close(normaliser.mean, x.mean(0))
    torch.testing.assert_close(normaliser.variance, x.var(0, correction=0))
    seen = normaliser(x)
    assert seen.mean(0).abs().max() < 1e-12 and (seen.std(0, correction=0) - 1.0).abs().max() < 1e-4


def test_log_squash_is_the_log_derivative_of_tanh():
    raw = torch.linspace(-3.0, 3.0, 13, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.tanh(raw).sum(), raw)
    torch.testing.assert_close(log_squash(raw), slope.log())
    assert torch.isfinite(log_squash(torch.tensor([-50.0, 50.0]))).all()
