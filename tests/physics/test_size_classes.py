"""The kernels that all tests share compute what a user's kernels do, which have room for one robot only."""

import pytest
import torch
from shared_kernels import CLASSES, own_kernels, shared_sizes
from small_models import varied

import warp_articulated as wa
from warp_articulated.device import engine
from warp_articulated.device.topology import sizes_of


def run(model):
    """States of a rollout with contacts, and gradients by its inputs."""
    q, qd, u, params = varied(model, num_envs=8)
    inputs = {"q": q, "qd": qd, "u": u, **params}
    inputs = {name: x.requires_grad_() for name, x in inputs.items()}
    sim = wa.Simulator(model, 8, device="cpu")
    qs, qds = sim.rollout(q, qd, u, params={name: inputs[name] for name in params})
    loss = qs[-1].square().sum() + qds[-1].square().sum()
    found = torch.autograd.grad(loss, list(inputs.values()))
    return {"qs": qs.detach(), "qds": qds.detach(), **dict(zip(inputs, found, strict=True))}


def test_a_kernel_with_more_room_computes_the_same():
    model = wa.load("laikago_feet")
    assert engine.sizes_of(model, 32) == CLASSES[0]
    expected = run(model)
    with own_kernels():
        assert engine.sizes_of(model, 32) == sizes_of(model, 32) != CLASSES[0]
        found = run(model)
    for name, x in expected.items():
        # single precision: 20 steps of rounding, which the compiler may order otherwise
        torch.testing.assert_close(found[name], x, rtol=0.0, atol=1e-4 * float(x.abs().max()), msg=name)


@pytest.mark.parametrize("scene", wa.scene_names())
def test_every_scene_has_room(scene):
    assert shared_sizes(wa.load(scene), 32) in CLASSES


def test_a_list_of_contacts_that_may_overflow_keeps_its_length():
    model = wa.load("box")
    assert shared_sizes(model, 4) == sizes_of(model, 4) and shared_sizes(model, 8) == CLASSES[0]
