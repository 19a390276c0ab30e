"""There is room for all joint limits or all saturated drives, whichever are more: what a drive without a row does."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import warp_articulated as wa
from warp_articulated.model import DriveType

DOFS = slice(6, 18)  # of the Laikago's twelve hinges
COORDINATES = slice(7, 19)


def strained(beyond: int, saturated: int):
    """A flying Laikago with joints beyond their upper limits and drives beyond their effort limits."""
    sim = wa.Simulator(wa.load("laikago_feet"), 1, device="cpu", dtype="float64")
    q, qd = sim.initial_state()
    q[:, 2] += 1.0
    u = sim.initial_control()
    u[:, :saturated] += 50.0
    upper = sim.params["upper"].clone()
    past = 0.01 + 0.001 * torch.arange(beyond)
    upper[:, DOFS][:, :beyond] = q[:, COORDINATES][:, :beyond] - past
    qd = qd + 0.1 * torch.tensor(np.random.default_rng(0).normal(size=qd.shape))
    return sim, q, qd, u, {"upper": upper}


@pytest.mark.parametrize(
    ("beyond", "saturated", "rows"), [(0, 12, 12), (12, 0, 12), (12, 12, 12), (6, 12, 12), (3, 7, 10)]
)
def test_limits_have_rows_before_drives(beyond, saturated, rows):
    sim, q, qd, u, params = strained(beyond, saturated)
    with torch.no_grad():
        found = sim.diagnose(torch.stack([q, q]), torch.stack([qd, qd]), u[None], params=params)
    assert int(found.joint_rows[0, 0]) == rows


def test_drive_without_a_row_acts_with_its_effort_limit():
    """Twelve limits take all rows, so the drives must do what torque drives with the same limit do."""
    sim, q, qd, u, params = strained(12, 12)
    torque = replace(sim.model, drive_type=np.full_like(sim.model.drive_type, DriveType.TORQUE))
    force = torch.sign(u - q[:, COORDINATES]) * sim.params["effort_limit"]
    other = wa.Simulator(torque, 1, device="cpu", dtype="float64")
    ours, theirs = sim.step(q, qd, u, params=params), other.step(q, qd, force, params=params)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("beyond", "saturated"), [(12, 12), (6, 12), (3, 7)])
def test_gradients_match_differences_where_drives_have_no_row(beyond, saturated):
    sim, q, qd, u, params = strained(beyond, saturated)
    weights = torch.linspace(0.3, 1.0, sim.model.nv, dtype=torch.float64)

    def loss(u, effort, qd, mass):
        changed = params | {"effort_limit": effort, "mass": mass}
        qs, qds = sim.rollout(q, qd, u.expand(3, -1, -1), params=changed)
        return torch.sin(3 * qs[-1]).sum() + (qds[-1] * weights).sum()

    inputs = [u, sim.params["effort_limit"].clone(), qd, sim.params["mass"].clone()]
    leaves = [x.clone().requires_grad_() for x in inputs]
    gradients = torch.autograd.grad(loss(*leaves), leaves)
    rng, h = np.random.default_rng(1), 1e-5
    for k, gradient in enumerate(gradients):
        way = torch.tensor(rng.normal(size=gradient.shape))
        with torch.no_grad():
            there, back = ([x + s * h * way if n == k else x for n, x in enumerate(inputs)] for s in (1, -1))
            difference = (loss(*there) - loss(*back)) / (2 * h)
        # rounding of the loss, of size 10, over the step
        torch.testing.assert_close((gradient * way).sum(), difference, rtol=1e-6, atol=1e-8)
    assert gradients[1].abs().max() > 1e-6  # effort limits matter here
