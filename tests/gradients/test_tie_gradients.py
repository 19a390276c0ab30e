"""Gradients through loops, coupled joints and tendons, against central differences in float64."""

import numpy as np
import pytest
import torch
from gradient_zoo import POINTS, assert_agreement, directional_errors, small_simulator
from tied_models import near_the_pose, tied_model, tied_states

from warp_articulated.device.parameters import PARAMETERS

# Not all of these act in every state: overlaps are pushed apart faster than a contact bounces, and the bounce of a
# limit hides how far it is exceeded.
NAMES = [name for name in PARAMETERS if name not in ("gravcomp", "heights", "terrain_origin")]
EVERYTHING = ["q", "qd", "u", *(name for name in NAMES if name not in ("restitution", "upper"))]
STATES = 6
OPTIONS = {"dt": 2e-3, "erp": 0.02, "max_push_speed": 50.0}  # with the default many errors would be at its cap


@pytest.mark.parametrize(("iterations", "friction"), [(50, "cone"), (4, "cone"), (4, "pyramid")])
def test_gradient_of_a_step_matches_differences_for_every_input(iterations, friction):
    """With 4 sweeps the contacts are far from converged; the ties are exact all the same."""
    sim = small_simulator(tied_model(), STATES * 2 * POINTS, iterations=iterations, friction=friction, **OPTIONS)
    q, qd, u = (x[:STATES] for x in tied_states(sim))
    found = directional_errors(sim, q, qd, u, names=NAMES, params=near_the_pose(sim, STATES))
    assert_agreement(found, EVERYTHING)


def test_gradient_of_a_rollout_matches_differences_for_every_input():
    sim = small_simulator(tied_model(), STATES * POINTS, **OPTIONS)
    q, qd, u = (x[:STATES] for x in tied_states(sim, seed=1))
    params, every = near_the_pose(sim, STATES), {"substeps": 2, "checkpoint_every": 2}
    found = directional_errors(sim, q, qd, 0.1 * u, 3, NAMES, directions=1, params=params, **every)
    assert_agreement(found, [name for name in EVERYTHING if name != "limit_restitution"])


def test_gradient_does_not_depend_on_the_other_environments():
    """Bitwise, as everywhere: one environment alone, and as the last of seven."""
    many, one = (small_simulator(tied_model(), n, **OPTIONS) for n in (7, 1))
    states = tied_states(many, seed=2)

    def gradients(sim, rows):
        leaves = [x[rows].clone().requires_grad_() for x in states]
        qs, qds = sim.rollout(leaves[0], leaves[1], leaves[2].expand(5, -1, -1))
        loss = (qs[-1] * torch.arange(1.0, sim.model.nq + 1)).sum() + qds[-1].sum()
        return [qs[-1, -1].detach(), *(g[-1] for g in torch.autograd.grad(loss, leaves))]

    for alone, among in zip(gradients(one, slice(6, 7)), gradients(many, slice(None))):
        assert torch.equal(alone, among)


def test_jacobians_are_the_gradients_of_a_step():
    sim = small_simulator(tied_model(), 2, **OPTIONS)
    q, qd, u = tied_states(sim, seed=3)
    _, B = sim.jacobians(q, qd, u)
    u.requires_grad_()
    _, qd_next = sim.step(q, qd, u)
    nv = sim.model.nv
    for row in np.arange(0, nv, 7):
        (by_u,) = torch.autograd.grad(qd_next[:, row].sum(), u, retain_graph=True)
        assert (B[:, nv + row] - by_u).abs().max() < 1e-12
