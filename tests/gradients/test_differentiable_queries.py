"""Gradients of queries, of wrenches and of sensors, the adjoint on Warp arrays, and the gradient reliability
diagnostics."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import warp as wp
from gradient_zoo import small_simulator, toy_model, zoo_simulator, zoo_states

import warp_articulated as wa

STEP = 1e-6


def assert_gradients(function, inputs, tolerance=1e-7):
    """Compare with central differences along one random direction; `function` returns one number per environment.

    Rounding of the quotients is about 1e-16 / 1e-6 for numbers near 10, with slopes near 1.
    """
    gen = torch.Generator().manual_seed(0)
    inputs = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    gradients = torch.autograd.grad(function(**inputs).sum(), list(inputs.values()))
    for (name, x), gradient in zip(inputs.items(), gradients, strict=True):
        d = torch.randn(x.shape, generator=gen, dtype=x.dtype)
        if name == "inertia":
            d = d + d.mT
        with torch.no_grad():
            plus, minus = (function(**{**inputs, name: x + s * d}) for s in (STEP, -STEP))
        quotient, product = (plus - minus) / (2 * STEP), (gradient * d).flatten(1).sum(1)
        assert product.abs().max() > 1e-6, f"{name} does nothing here"
        assert (quotient - product).abs().max() < tolerance * quotient.abs().max(), name


def weights_for(shapes, seed=1):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen, dtype=torch.float64) for shape in shapes]


def test_link_poses_are_differentiable():
    sim = zoo_simulator(4)
    q, _, _ = zoo_states(sim)
    (weight,) = weights_for([(4, sim.model.num_links, 7)])
    inputs = {name: sim.params[name] for name in ("joint_pos", "joint_quat")}
    assert_gradients(lambda q, **params: (weight * sim.link_poses(q, params=params)).sum((1, 2)), {"q": q} | inputs)


def test_forward_dynamics_are_differentiable():
    sim = zoo_simulator(4)
    q, qd, _ = zoo_states(sim)
    weight, tau = weights_for([(4, sim.model.nv)] * 2)
    names = ("gravity", "mass", "com", "inertia", "joint_pos", "joint_quat", "armature")
    inputs = {"q": q, "qd": qd, "tau": tau} | {name: sim.params[name] for name in names}
    assert_gradients(
        lambda q, qd, tau, **params: (weight * sim.forward_dynamics(q, qd, tau, params=params)).sum(1), inputs
    )


def touching(num_envs=4, **options):
    """The toy model landing, with its foot 1 mm to 2 cm in the ground."""
    sim = small_simulator(toy_model(), num_envs, **options)
    gen = torch.Generator().manual_seed(3)
    q, qd = sim.initial_state()
    qd = 0.3 * torch.randn(qd.shape, generator=gen, dtype=q.dtype)
    qd[:, 2] -= 1.0
    u = 0.3 * torch.randn(num_envs, sim.model.nu, generator=gen, dtype=q.dtype)
    q[:, 2] += 1.0
    gap = sim.diagnose(q[None], qd[None], u[None]).gap[0]
    q[:, 2] -= gap + torch.linspace(1e-3, 2e-2, num_envs, dtype=q.dtype)
    return sim, q, qd, u


def test_contacts_are_differentiable():
    sim, q, qd, u = touching()
    found = sim.contacts(q, qd, u)
    assert found.active[:, 0].all() and (found.impulses[:, 0].norm(dim=-1) > 0).all()
    outputs = ("points", "normals", "depths", "impulses")
    weights = weights_for([getattr(found, name).shape for name in outputs])

    def loss(q, qd, u, **params):
        found = sim.contacts(q, qd, u, params=params)
        return sum((w * getattr(found, name)).flatten(1).sum(1) for w, name in zip(weights, outputs, strict=True))

    inputs = {"q": q, "qd": qd, "u": u}
    inputs |= {name: sim.params[name] for name in ("mass", "shape_pos", "shape_size", "friction", "erp", "cfm")}
    inputs["friction"] = 0.1 * inputs["friction"]  # some slide
    assert_gradients(loss, inputs)
    counts = sim.contacts(q.requires_grad_(), qd, u)
    assert counts.impulses.requires_grad and not counts.sweeps.requires_grad and not counts.residual.requires_grad


BODY = ("mass", "com", "inertia", "joint_pos", "joint_quat", "armature")


def test_inverse_dynamics_are_differentiable():
    sim = zoo_simulator(4)
    q, qd, _ = zoo_states(sim)
    weight, qdd = weights_for([(4, sim.model.nv)] * 2)
    inputs = {"q": q, "qd": qd, "qdd": qdd} | {name: sim.params[name] for name in ("gravity", *BODY)}
    assert_gradients(
        lambda q, qd, qdd, **params: (weight * sim.inverse_dynamics(q, qd, qdd, params=params)).sum(1), inputs
    )


def test_mass_matrix_is_differentiable():
    sim = zoo_simulator(4)
    q, _, _ = zoo_states(sim)
    (weight,) = weights_for([(4, sim.model.nv, sim.model.nv)])
    inputs = {"q": q} | {name: sim.params[name] for name in BODY}
    assert_gradients(lambda q, **params: (weight * sim.mass_matrix(q, params=params)).sum((1, 2)), inputs)
    gravity = sim.params["gravity"].clone().requires_grad_()
    armature = sim.params["armature"].clone().requires_grad_()
    M = sim.mass_matrix(q, params={"gravity": gravity, "armature": armature})
    assert (torch.autograd.grad((weight * M).sum(), gravity)[0] == 0).all()


def test_frames_are_differentiable():
    model = wa.load("laikago_feet")
    sim = small_simulator(model, 4)
    gen = torch.Generator().manual_seed(0)
    q, qd = (x + 0.3 * torch.randn(x.shape, generator=gen, dtype=x.dtype) for x in sim.initial_state())
    frames = ["FR_toe", "chassis", "RL_upper_leg"]
    poses, velocities = weights_for([(4, 3, 7), (4, 3, 6)])
    placed = {name: sim.params[name] for name in ("joint_pos", "joint_quat")}
    assert_gradients(
        lambda q, **params: (poses * sim.frame_poses(q, frames, params=params)).sum((1, 2)), {"q": q} | placed
    )
    assert_gradients(
        lambda q, qd, **params: (velocities * sim.frame_velocities(q, qd, frames, params=params)).sum((1, 2)),
        {"q": q, "qd": qd} | placed,
    )
    with pytest.raises(NotImplementedError, match="frame_jacobians has no gradients"):
        sim.frame_jacobians(q.requires_grad_(), frames)


def test_velocities_of_every_joint_are_differentiable():
    sim = zoo_simulator(4)
    q, qd, _ = zoo_states(sim)
    (weight,) = weights_for([(4, sim.model.num_links, 6)])
    inputs = {"q": q, "qd": qd} | {name: sim.params[name] for name in ("joint_pos", "joint_quat")}
    assert_gradients(lambda q, qd, **params: (weight * sim.frame_velocities(q, qd, params=params)).sum((1, 2)), inputs)


def test_force_on_a_body_is_differentiable():
    sim, q, qd, u = touching()
    weight, wrench = weights_for([(4, 3), (4, sim.model.num_links, 6)])
    assert (sim.contacts(q, qd, u, wrench=wrench).force_on("leg").norm(dim=-1) > 0).all()
    inputs = {"q": q, "qd": qd, "u": u, "wrench": wrench, "mass": sim.params["mass"]}

    def loss(q, qd, u, wrench, **params):
        return (weight * sim.contacts(q, qd, u, wrench=wrench, params=params).force_on("leg")).sum(1)

    assert_gradients(loss, inputs)


def test_jacobians_and_diagnostics_are_those_of_the_step_with_its_wrench():
    sim, q, qd, u = touching()
    (wrench,) = weights_for([(4, sim.model.num_links, 6)])
    wrench *= 20.0
    A, B = sim.jacobians(q, qd, u, wrench=wrench)
    leaf = u.clone().requires_grad_()
    qd_next = sim.step(q, qd, leaf, wrench=wrench)[1]
    for j in range(sim.model.nv):
        (row,) = torch.autograd.grad(qd_next[:, j].sum(), leaf, retain_graph=True)
        torch.testing.assert_close(B[:, sim.model.nv + j], row, rtol=0, atol=1e-12)
    pushed, alone = (sim.diagnose(q[None], qd[None], u[None], wrench=w) for w in (wrench, None))
    assert not torch.equal(pushed.margin, alone.margin)
    assert not torch.equal(A, sim.jacobians(q, qd, u)[0])


@pytest.mark.parametrize("contact_time", ["step", "impact"])
def test_wrenches_are_differentiable(contact_time):
    """Forces and torques on all links of a robot that touches, over several steps and checkpoints."""
    sim, q, qd, u = touching(contact_time=contact_time)
    wrench, weight_q, weight_qd = weights_for([(5, 4, sim.model.num_links, 6), q.shape, qd.shape])
    names = ("mass", "com", "inertia", "joint_pos", "joint_quat", "gravity", "friction")
    inputs = {"wrench": wrench, "q": q, "qd": qd} | {name: sim.params[name] for name in names}
    inputs["friction"] = 0.1 * inputs["friction"]
    controls = u.expand(5, -1, -1)

    def loss(wrench, q, qd, **params):
        qs, qds = sim.rollout(q, qd, controls, wrench=wrench, params=params, checkpoint_every=2)
        return (weight_q * qs[-1]).sum(1) + (weight_qd * qds[-1]).sum(1)

    with torch.no_grad():  # so that differences of the wrenches are those of an environment
        turned = loss(wrench, q, qd)
    assert turned.isfinite().all()
    batch_first = {name: x.transpose(0, 1) if name == "wrench" else x for name, x in inputs.items()}
    assert_gradients(lambda wrench, **rest: loss(wrench.transpose(0, 1), **rest), batch_first, tolerance=1e-6)


def test_a_wrench_for_all_steps_has_the_sum_of_their_gradients():
    sim, q, qd, u = touching()
    (wrench,) = weights_for([(4, sim.model.num_links, 6)])
    held = wrench.clone().requires_grad_()
    listed = wrench.expand(3, -1, -1, -1).clone().requires_grad_()
    controls = u.expand(3, -1, -1)
    for given in (held, listed):
        sim.rollout(q, qd, controls, wrench=given)[1][-1].square().sum().backward()
    torch.testing.assert_close(held.grad, listed.grad.sum(0))
    one = wrench.clone().requires_grad_()
    sim.step(q, qd, u, wrench=one, substeps=3)[1].square().sum().backward()
    torch.testing.assert_close(one.grad, held.grad)


def test_controls_beyond_their_range_act_like_its_end_and_have_no_gradient():
    model = replace(toy_model(), control_range=np.array([[-0.2, 0.1]]))
    free = small_simulator(toy_model(), 4)
    sim, (_, q, qd, _) = small_simulator(model, 4), touching()
    u = torch.tensor([[-0.3], [-0.1], [0.05], [0.5]], dtype=sim.dtype).requires_grad_()
    ends, inside = u.detach().clamp(-0.2, 0.1), torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=sim.dtype)
    limited = ends.clone().requires_grad_()
    for method in ("step", "rollout"):
        given = [x[None] if method == "rollout" else x for x in (u, limited)]
        found, expected = (getattr(s, method)(q, qd, x)[1] for s, x in zip((sim, free), given, strict=True))
        assert torch.equal(found, expected)
        bar, full = (torch.autograd.grad(x.square().sum(), y)[0] for x, y in ((found, u), (expected, limited)))
        assert (full != 0).all() and torch.equal(bar[:, 0], full[:, 0] * inside)
    with torch.no_grad():
        (A, B), (A_free, B_free) = sim.jacobians(q, qd, u), free.jacobians(q, qd, ends)
        assert torch.equal(A, A_free) and torch.equal(B[..., 0], B_free[..., 0] * inside[:, None])
        assert torch.equal(sim.contacts(q, qd, u).impulses, free.contacts(q, qd, ends).impulses)
        arrays = [wp.from_torch(x.clone()) for x in (q, qd, u.detach(), torch.empty_like(q), torch.empty_like(qd))]
        sim.step_warp(arrays[:2], arrays[2], arrays[3:])
        assert torch.equal(wp.to_torch(arrays[4]), free.step(q, qd, ends)[1])
        assert torch.equal(wp.to_torch(arrays[2]), u)  # the caller's own is left alone
        bars = [wp.from_torch(torch.ones_like(x)) for x in (q, qd, u)]
        sim.step_adjoint_warp(arrays[:2], arrays[2], bars[:2], bars[2])
        changed = wp.to_torch(bars[2])[:, 0] != 1.0
        assert changed.tolist() == [False, True, True, False]


def test_imu_is_differentiable():
    sim, q, qd, u = touching()
    imu = wa.sensors.Imu(sim, "arm")
    weights = weights_for([(4, 3)] * 2)

    def loss(q, qd, u):
        reading = imu(q, qd, *sim.step(q, qd, u))
        return sum((w * x).sum(1) for w, x in zip(weights, reading, strict=True))

    assert_gradients(loss, {"q": q, "qd": qd, "u": u})


@pytest.mark.parametrize("substeps", [1, 3])
def test_step_adjoint_warp_equals_torch_backward(substeps):
    sim, q, qd, u = touching()
    sim.substeps = substeps
    inputs = [x.clone().requires_grad_() for x in (q, qd, u)]
    bars = weights_for([q.shape, qd.shape])
    expected = torch.autograd.grad(sim.step(*inputs), inputs, bars)
    arrays = [wp.from_torch(x) for x in (q, qd, u)]
    state_bar = [wp.from_torch(x.clone()) for x in bars]
    control_bar = wp.from_torch(torch.ones_like(u))
    sim.step_adjoint_warp(arrays[:2], arrays[2], state_bar, control_bar)
    for found, x in zip(state_bar, expected[:2], strict=True):
        assert torch.equal(wp.to_torch(found), x)
    torch.testing.assert_close(wp.to_torch(control_bar) - 1.0, expected[2], rtol=0, atol=1e-15)  # added to the ones


# -- diagnostics


def test_gap_is_the_distance_to_the_ground():
    sim, q, qd, u = touching()
    depth = sim.contacts(q, qd, u).depths[:, 0]
    torch.testing.assert_close(sim.diagnose(q[None], qd[None], u[None]).gap[0], depth, rtol=0, atol=1e-12)
    q[:, 2] += 0.5  # in the air
    seen = sim.diagnose(q[None], qd[None], u[None])
    torch.testing.assert_close(seen.gap[0], 0.5 - depth, rtol=0, atol=1e-12)
    assert (seen.contacts == 0).all() and not seen.near_switch().any() and seen.near_switch(gap=1.0).all()


def test_margin_vanishes_where_sticking_becomes_sliding():
    """At the friction that just holds the foot, the margin is zero and the gradient changes."""
    sim, q, qd, u = touching()
    sticky = {"friction": 2.0}
    impulse = sim.contacts(q, qd, u, params=sticky).impulses[:, 0]
    normal = sim.contacts(q, qd, u, params=sticky).normals[:, 0]
    along = (impulse * normal).sum(-1)
    needed = (impulse - normal * along[:, None]).norm(dim=-1) / along
    assert (needed < 1.9).all()  # it sticks
    margins = {}
    for factor in (0.5, 0.999, 1.001, 2.0):
        seen = sim.diagnose(q[None], qd[None], u[None], params={"friction": (factor * needed)[:, None]})
        assert (seen.contacts == 1).all() and (seen.residual < 1e-4).all()
        margins[factor] = seen.margin[0]
    for near, far in ((0.999, 0.5), (1.001, 2.0)):
        assert (margins[near] < 0.01 * margins[far]).all(), margins


def test_diagnose_accepts_the_states_of_a_rollout():
    sim, q, qd, u = touching()
    controls = u.expand(7, -1, -1).contiguous()
    qs, qds = sim.rollout(q, qd, controls)
    seen = sim.diagnose(qs, qds, controls)
    assert seen.margin.shape == seen.gap.shape == seen.residual.shape == (7, sim.num_envs)
    assert seen.margin[seen.contacts > 0].isfinite().all()
    assert seen.margin[seen.contacts == 0].isinf().all()  # its only drive has no limit
    assert (seen.contacts[0] == sim.contacts(q, qd, u).active.sum(1)).all()


@pytest.mark.parametrize("dt", [1e-3, 2e-4])
def test_standing_robot_is_not_near_a_switch(dt):
    """For any step size: with smaller steps its feet rest less deep, and fall less far in a step."""
    model = wa.load("laikago_feet")
    sim = small_simulator(model, 1, dt=dt)
    u = sim.initial_control().repeat(int(0.3 / dt), 1, 1)
    qs, qds = sim.rollout(*sim.initial_state(), u)
    late = slice(len(u) - 20, len(u))
    seen = sim.diagnose(qs[late], qds[late], u[late])
    assert (seen.contacts == 4).all() and not seen.near_switch().any(), seen


def test_diagnose_needs_every_state():
    sim, q, qd, u = touching()
    controls = u.expand(7, -1, -1).contiguous()
    qs, qds = sim.rollout(q, qd, controls, checkpoint_every=3)
    with pytest.raises(ValueError, match="checkpoint_every=1"):
        sim.diagnose(qs, qds, controls)


def test_drive_near_its_limit_is_near_a_switch():
    model = wa.load("pendulum1")
    sim = small_simulator(model, 2)
    q, qd = sim.initial_state()
    limit = 3.0
    params = {"effort_limit": limit}
    u = torch.tensor([[limit * (1 - 1e-5)], [0.5 * limit]], dtype=sim.dtype)
    seen = sim.diagnose(q[None], qd[None], u[None], params=params)
    torch.testing.assert_close(seen.margin[0], torch.tensor([1e-5, 0.5], dtype=sim.dtype), rtol=1e-6, atol=0)
    assert seen.near_switch(margin=1e-4)[0].tolist() == [True, False]
