"""When the contact solver stops: at a fixed point, or when only rounding is left."""

import numpy as np
import pytest
import torch

import warp_articulated as wa

ENVS = 256


def pushed(dtype: str):
    """Laikagos on their feet, a moment after different pushes."""
    sim = wa.Simulator(wa.load("laikago_feet"), ENVS, device="cpu", dtype=dtype)
    q, qd = sim.initial_state()
    u = sim.initial_control()
    rng = np.random.default_rng(0)
    q, qd = (x[-1] for x in sim.rollout(q, qd, u.expand(300, -1, -1), checkpoint_every=300))
    q[:, 7:] += 0.01 * torch.tensor(rng.normal(size=(ENVS, 12)), dtype=q.dtype)
    qd += 0.1 * torch.tensor(rng.normal(size=(ENVS, 18)), dtype=q.dtype)
    q, qd = (x[-1] for x in sim.rollout(q, qd, u.expand(20, -1, -1), checkpoint_every=20))
    return sim, q, qd, u


def strict(sim):
    """The same simulator, which only stops when no bit changes."""
    dtype = str(sim.dtype).removeprefix("torch.")
    return wa.Simulator(sim.model, ENVS, device="cpu", dtype=dtype, tolerance=0.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_default_exit_changes_impulses_by_rounding_only(dtype):
    sim, q, qd, u = pushed(dtype)
    found, exact = sim.contacts(q, qd, u), strict(sim).contacts(q, qd, u)
    largest = exact.impulses.abs().amax(dim=(1, 2), keepdim=True)
    # a few units in the last place of the largest impulse, which is what the last bits alternate by
    assert ((found.impulses - exact.impulses).abs() <= 16 * torch.finfo(sim.dtype).eps * largest).all()
    assert (found.sweeps <= exact.sweeps).all()
    # problems that reach a fixed point are not touched
    settled = exact.residual == 0
    assert settled.float().mean() > 0.8
    assert ((found.impulses == exact.impulses).all(dim=2).all(dim=1) | (found.sweeps < exact.sweeps))[settled].all()


def test_no_pushed_robot_keeps_its_warp_waiting():
    sim, q, qd, u = pushed("float32")
    exact = strict(sim).contacts(q, qd, u)
    assert (exact.sweeps == 50).any()  # what the exit is for
    assert sim.contacts(q, qd, u).sweeps.max() < 30


def test_exit_does_not_depend_on_the_scale_of_the_masses():
    """Masses times 1024, a power of two, scale every number exactly."""
    sim, q, qd, u = pushed("float32")
    names = ("mass", "inertia", "kp", "kd", "effort_limit", "damping", "armature", "frictionloss")
    heavy = {name: 1024.0 * sim.params[name] for name in names} | {"cfm": sim.params["cfm"] / 1024.0}
    light = sim.contacts(q, qd, u)
    scaled = sim.contacts(q, qd, u, params=heavy)
    assert torch.equal(light.sweeps, scaled.sweeps)
    assert torch.equal(1024.0 * light.impulses, scaled.impulses)


def test_gradients_are_those_of_the_strict_solver():
    sim, q, qd, u = pushed("float32")
    weights = torch.linspace(0.3, 1.0, 18)

    def gradients(sim):
        leaves = [x.clone().requires_grad_() for x in (q, qd, u)]
        _, rates = sim.step(*leaves)
        return torch.autograd.grad((rates * weights).sum(), leaves)

    for ours, exact in zip(gradients(sim), gradients(strict(sim))):
        scale = exact.abs().amax(dim=1, keepdim=True)
        assert ((ours - exact).abs() <= 1e-4 * scale).all()
