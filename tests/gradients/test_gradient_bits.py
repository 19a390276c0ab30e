"""Gradients are bitwise equal for any threads, batch size and order; and rollouts, steps and substeps agree.

Laikago on its feet, with contacts, bounces and saturated drives, and different parameters in every environment.
"""

from functools import cache

import numpy as np
import pytest
import torch
from gradient_zoo import small_simulator

import warp_articulated as wa
from warp_articulated.device.structs import ordered_sum

ENVS, STEPS = 16, 20
ALL = tuple(range(ENVS))
LAST = (0, STEPS)  # states in the loss


@cache
def batch(dtype):
    """States, controls and parameters of ENVS environments, by name; u is (STEPS, ENVS, nu)."""
    model, rng = wa.load("laikago_feet"), np.random.default_rng(3)
    q = np.tile(model.q0, (ENVS, 1))
    q[:, 2] -= rng.uniform(0.0, 0.02, size=ENVS)
    q[:, 3:7] += rng.normal(scale=0.05, size=(ENVS, 4))
    q[:, 7:] += rng.normal(scale=0.05, size=(ENVS, 12))
    values = {
        "q": q,
        "qd": rng.normal(scale=0.5, size=(ENVS, model.nv)),
        "u": model.u0 + rng.normal(scale=0.2, size=(STEPS, ENVS, model.nu)),
        "friction": rng.uniform(0.1, 1.0, size=(ENVS, len(model.pairs))),
        "restitution": rng.uniform(0.0, 0.5, size=(ENVS, len(model.pairs))),
        "mass": model.mass * rng.uniform(0.8, 1.2, size=(ENVS, model.num_links)),
        "joint_quat": model.joint_quat + rng.normal(scale=0.02, size=(ENVS, model.num_links, 4)),
        "effort_limit": rng.uniform(30.0, 60.0, size=(ENVS, model.nu)),
    }
    return {name: torch.tensor(x, dtype=getattr(torch, dtype)) for name, x in values.items()}


@cache
def loss_weights(dtype):
    """Loss weights of all states of a rollout, q and qd."""
    gen = torch.Generator().manual_seed(1)
    nq, nv = batch(dtype)["q"].shape[1], batch(dtype)["qd"].shape[1]
    return [torch.randn(STEPS + 1, ENVS, n, generator=gen).to(getattr(torch, dtype)) for n in (nq, nv)]


def run(sim, inputs, **options):
    """States, differentiable with respect to the inputs."""
    params = {name: x for name, x in inputs.items() if name in sim.params}
    return sim.rollout(inputs["q"], inputs["qd"], inputs["u"], params=params, **options)


def kept_rows(every):
    return [*range(0, STEPS, 5 if every == "sqrt" else every), STEPS]  # 5 = ceil(sqrt(STEPS))


def gradients(dtype, envs=ALL, asked=LAST, every=1, **options):
    """Gradients of the weighted states `asked` of these environments, simulated in that order, by input."""
    envs = list(envs)
    inputs = {name: (x[:, envs] if name == "u" else x[envs]) for name, x in batch(dtype).items()}
    inputs = {name: x.clone(memory_format=torch.contiguous_format).requires_grad_() for name, x in inputs.items()}
    sim = small_simulator(wa.load("laikago_feet"), len(envs), dtype, **options)
    kept = kept_rows(every)
    weights = []
    for w in loss_weights(dtype):
        chosen = torch.zeros_like(w)
        chosen[list(asked)] = w[list(asked)]
        weights.append(chosen[kept][:, envs])
    states = run(sim, inputs, checkpoint_every=every)
    found = torch.autograd.grad(states, list(inputs.values()), weights)
    return dict(zip(inputs, found, strict=True))


@pytest.fixture(scope="module", params=["float32", "float64"])
def dtype(request):
    return request.param


@cache
def reference(dtype):
    """The whole batch in order on one thread; all other ways of running it must give the same."""
    found = gradients(dtype, threads=1)
    for name, gradient in found.items():
        assert torch.isfinite(gradient).all() and (gradient != 0).any(), name
    return found


def assert_same_bits(ours, theirs):
    for name in theirs:
        assert torch.equal(ours[name], theirs[name]), name


def test_gradients_do_not_depend_on_threads(dtype):
    assert_same_bits(gradients(dtype, threads=2), reference(dtype))


def test_gradients_are_the_same_when_repeated(dtype):
    assert_same_bits(gradients(dtype, threads=1), reference(dtype))


@pytest.mark.parametrize("envs", [(0,), (15,), (4, 5, 6), (11, 3, 15, 0, 8)], ids=str)
def test_gradients_do_not_depend_on_batch_size_or_order(dtype, envs):
    expected = {name: (x[:, envs] if name == "u" else x[list(envs)]) for name, x in reference(dtype).items()}
    assert_same_bits(gradients(dtype, envs), expected)


@pytest.mark.parametrize("every", [3, 7, "sqrt", STEPS + 1])
def test_gradients_do_not_depend_on_checkpoints(dtype, every):
    asked = kept_rows(every)
    assert_same_bits(gradients(dtype, asked=asked, every=every), gradients(dtype, asked=asked))


def test_shared_parameters_get_the_sum_over_environments_in_a_fixed_order(dtype):
    model = wa.load("laikago_feet")
    sim = small_simulator(model, ENVS, dtype)
    values = {"friction": torch.tensor(0.5), "mass": torch.tensor(model.mass), "gravity": torch.tensor(model.gravity)}
    shared = {name: x.to(sim.dtype).requires_grad_() for name, x in values.items()}
    own = {name: sim.params[name].clone() for name in values} | {
        "friction": torch.full_like(sim.params["friction"], 0.5)
    }
    own = {name: x.requires_grad_() for name, x in own.items()}
    states = {name: batch(dtype)[name] for name in ("q", "qd", "u")}
    found = []
    for params in (shared, own, shared):
        qs, qds = run(sim, {**states, **params})
        found.append(torch.autograd.grad(qs[-1].square().sum() + qds[-1].square().sum(), list(params.values())))
    for name, ours, per_env, again in zip(values, *found, strict=True):
        expected = ordered_sum(per_env)
        assert torch.equal(ours, again)
        if name == "friction":  # also shared by all pairs: torch sums over them
            torch.testing.assert_close(ours, expected.sum())
        else:
            assert torch.equal(ours, expected)
            torch.testing.assert_close(ours, per_env.sum(0), rtol=1e-4, atol=1e-4 * float(per_env.abs().max()))


def test_gradient_of_a_rollout_equals_that_of_its_steps():
    """To rounding, which grows a little over the steps: torch sums in a different order than the kernel."""
    inputs = {name: x.clone().requires_grad_() for name, x in batch("float64").items()}
    sim = small_simulator(wa.load("laikago_feet"), ENVS)
    params = {name: x for name, x in inputs.items() if name in sim.params}
    states = [(inputs["q"], inputs["qd"])]
    for control in inputs["u"]:
        states.append(sim.step(*states[-1], control, params=params))
    states = [torch.stack(x) for x in zip(*states, strict=True)]
    apart = torch.autograd.grad(states, list(inputs.values()), loss_weights("float64"))
    together = gradients("float64", asked=range(STEPS + 1))
    for (name, ours), theirs in zip(together.items(), apart, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-11 * float(theirs.abs().max()), msg=name)


@pytest.mark.parametrize("every", [1, 3])
def test_gradient_with_substeps_equals_that_of_steps_with_the_same_control(every):
    controls, substeps = 5, STEPS // 5
    inputs = {name: x.clone().requires_grad_() for name, x in batch("float64").items()}
    inputs["u"] = batch("float64")["u"][:controls].clone().requires_grad_()
    sim = small_simulator(wa.load("laikago_feet"), ENVS)
    ways = [run(sim, inputs, substeps=substeps, checkpoint_every=every)]
    ways.append(run(sim, {**inputs, "u": inputs["u"].repeat_interleave(substeps, 0)}))
    assert all(torch.equal(a[-1], b[-1]) for a, b in zip(*ways, strict=True))
    found = [torch.autograd.grad(sum(x[-1].square().sum() for x in states), list(inputs.values())) for states in ways]
    for name, ours, theirs in zip(inputs, *found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-12 * float(theirs.abs().max()), msg=name)


def test_gradient_in_float32_matches_float64_to_its_precision():
    """Where both precisions have the same contacts; a contact in only one of them changes the trajectory."""
    single, double = reference("float32"), reference("float64")
    for name in double:
        axes = [k for k in range(double[name].ndim) if k != (name == "u")]
        error = (single[name] - double[name]).norm(dim=axes) / double[name].norm(dim=axes).clamp(min=1e-9)
        assert error.quantile(0.75) < 1e-3, (name, error)
