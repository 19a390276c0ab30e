"""Steps with general convex pairs: gradients against central differences, and independence of the batch."""

import numpy as np
import pytest
import torch
from convex_models import tray
from scipy.spatial.transform import Rotation

import warp_articulated as wa

HEIGHTS = (0.1, 0.05, 0.1, 0.1, 0.1)


def states(model, count, seed=0):
    """Bodies on the table, one to three millimetres deep, turned a little and moving."""
    rng = np.random.default_rng(seed)
    q, qd = np.zeros((count, model.nq)), 0.3 * rng.normal(size=(count, model.nv))
    for k, height in enumerate(HEIGHTS):
        depth = rng.uniform(0.001, 0.003, count)
        place = [0.5 * k - 1.0 + 0.03 * rng.normal(size=count), 0.03 * rng.normal(size=count), 0.1 + height - depth]
        tilt = Rotation.from_rotvec(0.03 * rng.normal(size=(count, 3)))
        if k == 1:  # the capsule lies
            tilt = tilt * Rotation.from_euler("y", 90, degrees=True)
        q[:, 7 * k : 7 * k + 3] = np.stack(place, 1)
        q[:, 7 * k + 3 : 7 * k + 7] = tilt.as_quat()
    return torch.tensor(q), torch.tensor(qd)


@pytest.fixture(scope="module")
def scene():
    model = tray()
    return model, wa.Simulator(
        model, 6, device="cpu", dtype="float64", dt=0.002, tolerance=0.0, iterations=200, validate=False
    )  # unused sizes are zero, and differences make them negative


def test_step_gradients_match_central_differences(scene):
    model, sim = scene
    touching = {k for k, (a, b) in enumerate(model.pairs) if 5 in (a, b)}  # every body touches the table
    q, qd = states(model, 6)
    found = sim.contacts(q, qd, sim.initial_control())
    assert all(set(found.pairs[i][found.active[i]].tolist()) == touching for i in range(6))
    rng = np.random.default_rng(1)
    wq, wv = torch.tensor(rng.normal(size=(6, model.nv))), torch.tensor(rng.normal(size=(6, model.nv)))
    u = sim.initial_control()
    base, _ = sim.step(q, qd, u)

    def loss(dq, v, size):
        q1, qd1 = sim.step(wa.retract(model, q, dq), v, u, params={"shape_size": size})
        return ((wa.difference(model, base, q1) * wq).sum(1) + (qd1 * wv).sum(1)) * 1e-2

    start = [torch.zeros(6, model.nv, dtype=torch.float64), qd, sim.params["shape_size"].clone()]
    inputs = [x.clone().requires_grad_() for x in start]
    gradients = torch.autograd.grad(loss(*inputs).sum(), inputs)
    for k, (x, gradient) in enumerate(zip(start, gradients)):
        flat = gradient.reshape(6, -1)
        expected = torch.zeros_like(flat)
        for j in range(flat.shape[1]):
            step = torch.zeros_like(flat)
            step[:, j] = 1e-6
            values = []
            for sign in (1, -1):
                moved = [s if i != k else x + sign * step.reshape(x.shape) for i, s in enumerate(start)]
                values.append(loss(*moved).detach())
            expected[:, j] = (values[0] - values[1]) / 2e-6
        size = expected.abs().amax(1).clamp(min=1.0)
        error = (flat - expected).abs().amax(1) / size
        # an environment in which a contact comes or goes within the difference is not compared
        assert (error < 2e-6).sum() >= 5, (k, error)


def test_steps_and_gradients_do_not_depend_on_the_batch(scene):
    model, sim = scene
    q, qd = states(model, 6)

    def run(sim, q, qd):
        q, qd = q.clone().requires_grad_(), qd.clone().requires_grad_()
        qs, qds = sim.rollout(q, qd, sim.initial_control().repeat(5, 1, 1))
        return (qs[-1], qds[-1], *torch.autograd.grad(qs[-1].square().sum() + qds[-1].sum(), (q, qd)))

    whole = run(sim, q, qd)
    one = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=0.002, tolerance=0.0, iterations=200)
    for k in (0, 3, 5):
        for all_of_them, alone in zip(whole, run(one, q[k : k + 1], qd[k : k + 1])):
            assert torch.equal(all_of_them[k], alone[0])
    turned = run(sim, q.flip(0), qd.flip(0))
    for x, y in zip(whole, turned):
        assert torch.equal(x, y.flip(0))
