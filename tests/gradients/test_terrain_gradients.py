"""Gradients of simulations on height fields and block fields against central differences in float64."""

import numpy as np
import pytest
import torch
from small_models import one_body

import warp_articulated as wa
from warp_articulated import terrain
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

KINDS = {
    "sphere": (ShapeType.SPHERE, [0.09]),
    "capsule": (ShapeType.CAPSULE, [0.06, 0.1]),
    "box": (ShapeType.BOX, [0.16, 0.12, 0.05]),
    "cylinder": (ShapeType.CYLINDER, [0.1, 0.06]),
}
STEP = 1e-6


def scene(blocks):
    """One body of each kind, 1.1 m apart, on rough ground with a step."""
    names = list(KINDS)
    parts = [Body(n, WORLD, f"root {n}", JointType.FREE, mass=1.0, inertia=0.01 * np.eye(3)) for n in names]
    shapes = [Shape(KINDS[n][0], k, np.array(KINDS[n][1])) for k, n in enumerate(names)]
    rng = np.random.default_rng(3)
    heights = rng.uniform(0.0, 0.03, (44, 14))
    heights[:, 7:] += 0.1
    field = terrain.Field(heights, (0.1, 0.1), blocks)
    shapes.append(field.shape())
    return assemble("scene", parts, shapes, pairs=[(k, len(names), 0.7, 0.3) for k in range(len(names))])


def state(sim, seed):
    """Bodies that have just touched the ground, tilted and moving."""
    rng, model = np.random.default_rng(seed), sim.model
    q = torch.as_tensor(model.q0.copy())[None]
    for k, name in enumerate(model.link_names):
        q[0, 7 * k : 7 * k + 3] = torch.tensor([1.1 * k - 1.65, rng.uniform(-0.05, 0.05), 0.4])
        q[0, 7 * k + 3 : 7 * k + 6] = torch.as_tensor(rng.normal(scale=0.05, size=3))
        if name == "capsule":  # lying, along x
            q[0, 7 * k + 3 : 7 * k + 7] = torch.tensor([0.0, np.sqrt(0.5), 0.02, np.sqrt(0.5)])
    qd = torch.as_tensor(rng.normal(scale=0.3, size=(1, model.nv)))
    for _ in range(200):
        found = sim.contacts(q, qd, sim.initial_control())
        touching = set(found.pairs[found.active].tolist())
        for k in set(range(model.num_links)) - touching:
            q[0, 7 * k + 2] -= 3e-3
    assert touching == set(range(model.num_links))
    return q, qd


def compare(sim, q, qd, steps, names, weights):
    """Largest error of the gradients, relative to the largest gradient of each input."""
    params = {name: sim.params[name][0].clone() for name in names}
    inputs = {"q": q.clone(), "qd": qd.clone(), **params}
    u = torch.zeros(steps, 1, 0, dtype=q.dtype)

    def loss(values):
        qs, qds = sim.rollout(values["q"], values["qd"], u, params={name: values[name] for name in names})
        return (qs[-1] * weights[0]).sum() + 0.1 * (qds[-1] * weights[1]).sum()

    given = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    gradients = dict(zip(given, torch.autograd.grad(loss(given), list(given.values()))))
    errors = {}
    for name, value in inputs.items():
        flat = gradients[name].flatten()
        places = torch.arange(len(flat))
        if name == "heights":  # those that count, and some that do not
            places = torch.cat([torch.nonzero(flat).flatten(), places[:5]])
            assert 3 <= len(places) - 5 < 200
        elif name == "shape_size":
            places = torch.nonzero(value.flatten()).flatten()
        expected = torch.zeros(len(places), dtype=flat.dtype)
        for k, place in enumerate(places):
            sides = []
            for step in (STEP, -STEP):
                moved = value.clone()
                moved.view(-1)[place] += step
                sides.append(loss({**inputs, name: moved}))
            expected[k] = (sides[0] - sides[1]) / (2 * STEP)
        errors[name] = float((flat[places] - expected).abs().max() / expected.abs().max())
    return errors


@pytest.mark.parametrize("blocks", [False, True])
def test_gradients_of_a_step_and_of_a_rollout_match_differences(blocks):
    model = scene(blocks)
    sim = wa.Simulator(model, dtype="float64", dt=2e-3, iterations=200)
    names = ["heights", "terrain_origin", "shape_size", "shape_pos", "friction"]
    q, qd = state(sim, 1)
    rng = np.random.default_rng(5)
    weights = [torch.as_tensor(rng.normal(size=x.shape)) for x in (q, qd)]
    errors = compare(sim, q, qd, 1, names, weights)
    assert max(errors.values()) < 1e-6, errors
    errors = compare(sim, q, qd, 12, names, weights)
    assert max(errors.values()) < 1e-5, errors


def test_the_time_of_an_impact_on_a_field_is_differentiated():
    field = terrain.slope(20.0, (4, 4))
    ball = Shape(ShapeType.SPHERE, 0, np.array([0.1]), restitution=0.5)
    body = field.under(one_body(ball, ground=True))
    sim = wa.Simulator(body, dtype="float64", contact_time="impact", dt=2e-3)
    q, qd = sim.initial_state()
    q[:, 2] = 0.3
    weights = [torch.ones_like(q), torch.ones_like(qd)]
    weights[0][:, 3:] = 0.0
    errors = compare(sim, q, qd, 140, ["terrain_origin", "shape_size"], weights)
    assert max(errors.values()) < 1e-4, errors
