"""The step for Warp's own tape (benchmarks/autodiff/taped_step.py) is our simulator's step, and so is its gradient."""

import numpy as np
import pytest
import torch

import warp_articulated as wa
from autodiff.taped_step import TapedRollout

STEPS = 5


class Problem:
    """Robots on their feet, each with its own controls in every step, and weights of the last state."""

    def __init__(self, num_envs: int, size: float = 0.1):
        rng = np.random.default_rng(0)
        self.model = wa.load("laikago_feet")
        self.sim = wa.Simulator(self.model, num_envs, dtype="float64", iterations=50, device="cpu")
        self.q, self.qd = self.sim.initial_state()
        self.qd[1:, 0] = 1.0  # m/s: these slide, the first one's feet stick
        self.u = self.model.u0 + size * rng.normal(size=(STEPS, num_envs, self.model.nu))
        self.bars = [rng.normal(size=x.shape) for x in (self.q, self.qd)]

    def ours(self):
        inputs = [torch.clone(torch.as_tensor(x)).requires_grad_() for x in (self.q, self.qd, self.u)]
        states = self.sim.rollout(*inputs)
        sum((x[-1] * torch.tensor(bar)).sum() for x, bar in zip(states, self.bars)).backward()
        return [x.detach().numpy() for x in states], [x.grad.numpy() for x in inputs]

    def taped(self):
        return TapedRollout(self.model, len(self.q), STEPS, dt=self.sim.dt, iterations=50)

    def forward(self, rollout):
        return rollout.forward(self.q.numpy(), self.qd.numpy(), self.u)


@pytest.mark.slow  # compiles Warp's adjoints, 12 to 25 s
def test_taped_step_has_our_trajectory_and_our_gradient_every_time():
    problem = Problem(num_envs=2)
    states, gradients = problem.ours()
    rollout = problem.taped()
    for _ in range(2):  # the second time nothing may be left of the first
        for found, expected in zip(problem.forward(rollout), states):
            np.testing.assert_allclose(found, expected, atol=1e-11)  # measured: 1e-13
        rollout.check()
        for found, expected in zip(rollout.backward(*problem.bars), gradients):
            assert np.abs(found - expected).max() < 1e-12 * np.abs(expected).max()  # measured: 3e-15
    impulse, mu = rollout.work["x"].numpy()[:, -1], problem.model.pair_friction
    within = np.hypot(impulse[..., 1], impulse[..., 2]) < (1.0 - 1e-9) * mu * impulse[..., 0]
    touching = impulse[..., 0] > 0.0
    cases = {"sticks": touching & within, "slides": touching & ~within, "flies": ~touching}
    assert all(case.any() for case in cases.values()), cases


@pytest.mark.slow
def test_taped_step_refuses_drives_at_their_limits():
    problem = Problem(num_envs=1, size=1.0)
    rollout = problem.taped()
    problem.forward(rollout)
    with pytest.raises(ValueError, match="limit"):
        rollout.check()
