"""The simulation in PyTorch: autograd rules, memory, divergence."""

import weakref

import pytest
import torch
from gradient_zoo import toy_inputs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from warp_articulated import autograd


def leaves(*tensors):
    return [x.clone().requires_grad_() for x in tensors]


# -- autograd rules


NAMES = ("mass", "com", "inertia", "joint_quat", "friction", "kp", "gravity")


@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(steps):
    """torch's check of every entry; differences with step 1e-6 are accurate to about 1e-9 of the largest."""
    sim, q, qd, u = toy_inputs(1, steps)
    params = [sim.params[name].clone() for name in NAMES]
    params[2] += 0.01 * torch.tensor([[0, 1, 2], [-1, 0, 3], [-2, -3, 0]])  # only its symmetric part is used

    def last_state(q, qd, u, *params):
        params = dict(zip(NAMES, params, strict=True))
        if steps == 1:
            return sim.step(q, qd, u[0], params=params)
        return tuple(x[-1] for x in sim.rollout(q, qd, u, params=params, checkpoint_every=2))

    inputs = leaves(q, qd, u, *params)
    assert torch.autograd.gradcheck(last_state, inputs, eps=1e-6, atol=1e-6, rtol=1e-6)
    inertia_bar = torch.autograd.grad(sum(x.sum() for x in last_state(*inputs)), inputs[5])[0]
    assert torch.equal(inertia_bar, inertia_bar.mT) and (inertia_bar != 0).any()


def test_several_losses_of_one_rollout_add_up():
    sim, q, qd, u = toy_inputs()
    inputs = leaves(q, qd, u)
    qs, qds = sim.rollout(*inputs)
    losses = [qs[-1].square().sum(), qds[2].sum(), (qs[1:] * qs[:-1]).sum()]
    apart = [torch.autograd.grad(loss, inputs, retain_graph=True) for loss in losses]
    together = torch.autograd.grad(sum(losses), inputs)
    for whole, *parts in zip(together, *apart, strict=True):
        torch.testing.assert_close(whole, sum(parts), rtol=1e-11, atol=1e-11)
    with pytest.raises(RuntimeError, match="second time"):
        losses[0].backward()


def test_chained_rollouts_equal_one_long_rollout():
    """A second rollout continues from the end of the first, and the loss depends on both."""
    sim, q, qd, u = toy_inputs()
    inputs = leaves(q, qd, u)
    first = sim.rollout(inputs[0], inputs[1], inputs[2][:4])
    second = sim.rollout(first[0][-1], first[1][-1], inputs[2][4:])
    apart = [torch.cat([a, b[1:]]) for a, b in zip(first, second, strict=True)]
    whole = sim.rollout(*inputs)
    ours, theirs = (torch.autograd.grad(sum(x.square().sum() for x in states), inputs) for states in (apart, whole))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_only_requested_gradients_are_computed():
    sim, q, qd, u = toy_inputs()
    mass = sim.params["mass"].clone().requires_grad_()
    qs, _ = sim.rollout(q, qd, u, params={"mass": mass, "friction": 0.5})
    qs[-1].sum().backward()  # no incoming gradient for qds
    assert (mass.grad != 0).any() and q.grad is None and u.grad is None
    (alone,) = leaves(q)
    qs, qds = sim.rollout(alone, qd, u)
    assert torch.autograd.grad(qds[-1].sum(), alone)[0].abs().sum() > 0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        loss = sim.step(alone, qd, u[0])[0].square().sum()
        torch.autograd.grad(loss, alone, create_graph=True)[0].sum().backward()


def test_incoming_gradients_may_have_any_layout():
    sim, q, qd, u = toy_inputs()
    inputs = leaves(q, qd, u)
    qs, qds = sim.rollout(*inputs)
    ones = [torch.ones_like(x) for x in (qs, qds)]
    spread = [x.new_ones(()).expand(x.shape) for x in (qs, qds)]  # the gradient of a sum over all states
    turned = [torch.ones_like(x.transpose(0, 2)).transpose(0, 2) for x in (qs, qds)]
    found = [torch.autograd.grad((qs, qds), inputs, bars, retain_graph=True) for bars in (ones, spread, turned)]
    for bars in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(bars, found[0], strict=True))


def test_rollout_without_steps_has_the_gradient_of_the_identity():
    sim, q, qd, u = toy_inputs(steps=0)
    inputs = leaves(q, qd, u)
    states = sim.rollout(*inputs)
    bars = [torch.randn_like(x) for x in states]
    found = torch.autograd.grad(states, inputs, bars)
    assert torch.equal(found[0], bars[0][0]) and torch.equal(found[1], bars[1][0]) and found[2].shape == u.shape


@pytest.mark.parametrize("which", [0, 1])
def test_changing_a_trajectory_in_place_before_backward_is_an_error(which):
    sim, q, qd, u = toy_inputs()
    states = sim.rollout(*leaves(q, qd, u))
    loss = states[0][-1].sum() + states[1][-1].sum()
    with torch.no_grad():
        states[which].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_states_are_the_same_and_have_no_graph(mode):
    sim, q, qd, u = toy_inputs()
    inputs = leaves(q, qd, u)
    expected = [*sim.rollout(*inputs), *sim.step(*inputs[:2], inputs[2][0])]
    with mode():
        found = [*sim.rollout(*inputs), *sim.step(*inputs[:2], inputs[2][0])]
    assert all(x.requires_grad for x in expected) and not any(x.requires_grad for x in found)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_strided_inputs_give_the_same_as_contiguous_ones():
    """They are copied; the gradients have the layout of the inputs."""
    sim, q, qd, u = toy_inputs()
    found = []
    for dense in (True, False):
        x, v, w = leaves(q, qd, u) if dense else leaves(q.T, torch.stack([qd, qd], -1), u.transpose(0, 2))
        qs, qds = sim.rollout(x, v, w) if dense else sim.rollout(x.T, v[..., 1], w.transpose(0, 2))
        bars = torch.autograd.grad(qs[-1].square().sum() + qds[-1].sum(), (x, v, w))
        found.append(bars if dense else (bars[0].T, bars[1][..., 1], bars[2].transpose(0, 2)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.filterwarnings("ignore:Dynamo:UserWarning")
def test_compiled_policy_gives_the_same_gradients():
    """torch.compile cannot trace the simulation: the graph breaks there and continues afterwards."""
    torch.manual_seed(0)
    sim, q, qd, _ = toy_inputs()
    policy = torch.nn.Linear(q.shape[1] + qd.shape[1], 1, dtype=q.dtype)

    def loss(q, qd):
        for _ in range(3):
            q, qd = sim.step(q, qd, torch.tanh(policy(torch.cat([q, qd], -1))))
        return q.square().sum() + qd.square().sum()

    compiled = torch.compile(loss, backend="eager")
    ours, theirs = (torch.autograd.grad(f(q, qd), list(policy.parameters())) for f in (compiled, loss))
    for a, b in zip(ours, theirs, strict=True):
        assert (b != 0).any()
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


# -- environments that diverge


@pytest.mark.filterwarnings("ignore:.*diverged:RuntimeWarning")
@pytest.mark.parametrize("every", [1, 4])
def test_gradient_of_a_diverged_environment_is_that_of_its_last_state(every):
    """Environment 0 diverges at once, 1 under control 3, 2 not at all."""
    sim, q, qd, u = toy_inputs(3)
    qd[0, 0] = 1e7
    u[3, 1] = 1e12
    inputs = leaves(q, qd, u)
    states = [x[-1] for x in sim.rollout(*inputs, checkpoint_every=every)]
    assert sim.diverged.tolist() == [0, 1]
    bars = [torch.randn_like(x) for x in states]
    found = torch.autograd.grad(states, inputs, bars)
    assert all(torch.isfinite(x).all() for x in found)
    assert torch.equal(found[0][0], bars[0][0]) and torch.equal(found[1][0], bars[1][0])
    assert not found[2][:, 0].any() and not found[2][3:, 1].any() and found[2][:3, 1].all() and found[2][:, 2].all()
    short = [x[-1] for x in sim.rollout(inputs[0], inputs[1], inputs[2][:3])]
    expected = torch.autograd.grad(short, inputs, bars)
    assert torch.equal(found[0][1], expected[0][1]) and torch.equal(found[1][1], expected[1][1])
    assert torch.equal(found[2][:, 1], expected[2][:, 1])


@pytest.mark.filterwarnings("ignore:.*diverged:RuntimeWarning")
def test_gradient_includes_the_substeps_before_divergence():
    """A push that takes two steps of the same control to reach the speed at which an environment is stopped."""
    sim, q, qd, u = toy_inputs(1)
    u[3] = 1e5
    inputs = leaves(q, qd, u)
    ways = [sim.rollout(*inputs, substeps=4), sim.rollout(*inputs[:2], inputs[2].repeat_interleave(4, 0))]
    _, qds = ways[1]
    assert len(sim.diverged) == 1 and qds[13].abs().max() > 1e5 and torch.equal(qds[14], qds[13])
    found = [torch.autograd.grad((qs[-1].sum(), qds[-1].sum()), inputs) for qs, qds in ways]
    assert found[0][2][3].abs().item() > 0.0 and not found[0][2][4:].any()
    for ours, theirs in zip(*found, strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12 * float(theirs.abs().max()))


# -- memory


class Launches:
    """Records the tensor arguments of a simulator's kernel launches, as (address, shape)."""

    def __init__(self, sim, monkeypatch):
        self.seen = []
        run = sim._engine.launcher.run

        def look(kernel, model, params, arguments):
            tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
            self.seen.append({a.data_ptr(): tuple(a.shape) for a in tensors if a.numel()})
            run(kernel, model, params, arguments)

        monkeypatch.setattr(sim._engine.launcher, "run", look)


def test_kernels_use_the_callers_memory(monkeypatch):
    sim, q, qd, u = toy_inputs()
    launches = Launches(sim, monkeypatch)
    inputs = leaves(q, qd, u)
    qs, qds = sim.rollout(*inputs)
    assert {inputs[2].data_ptr(), qs.data_ptr(), qds.data_ptr()} <= launches.seen[0].keys()
    bars = [torch.randn_like(x) for x in (qs, qds)]
    u_bar = torch.autograd.grad((qs, qds), inputs, bars)[2]
    mine = (inputs[2], qs, qds, *bars, u_bar)
    assert len(launches.seen) == 2 and {x.data_ptr() for x in mine} <= launches.seen[1].keys()


@pytest.mark.parametrize("every", [1, 4, 7, "sqrt", 100])
def test_number_of_checkpoints_and_of_steps_replayed_together(monkeypatch, every):
    steps, together = 23, 9
    monkeypatch.setattr(autograd, "REPLAY", together)
    sim, q, qd, u = toy_inputs(steps=steps)
    launches = Launches(sim, monkeypatch)
    qs, qds = sim.rollout(*leaves(q, qd, u), checkpoint_every=every)
    k = {"sqrt": 5}.get(every, every)
    assert len(qs) == len(qds) == 1 + -(-steps // k)
    kept = [x for x in qs.grad_fn.saved_tensors if x is not None and x.ndim == 3]  # None: there is no wrench
    saved = [x for x in kept if x.shape[-1] in (q.shape[1], qd.shape[1])]
    assert [len(x) for x in saved] == [len(qs), len(qds)]
    del launches.seen[:]
    (qs[-1].sum() + qds[-1].sum()).backward()
    rows = [shape[0] for seen in launches.seen for shape in seen.values() if len(shape) == 3 and shape[2] != 1]
    assert max(rows) <= (steps + 1 if every == 1 else max(k, together // k * k) + 1)


class Allocations(TorchDispatchMode):
    """Peak bytes of the tensors allocated within this context."""

    alive = most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in known:
                size = x.untyped_storage().nbytes()
                self.alive += size
                self.most = max(self.most, self.alive)
                weakref.finalize(x, self.free, size)
        return out

    def free(self, size):
        self.alive -= size


@pytest.mark.parametrize("every", [1, 10])
def test_memory_of_backward_does_not_grow_with_the_horizon(every):
    """Except for the gradient of the controls, which has their length. Segments of 10 are replayed six at a time."""
    beyond = []
    for steps in (80, 400):
        sim, q, qd, u = toy_inputs(steps=steps)
        inputs = leaves(q, qd, u)
        mass = sim.params["mass"].clone().requires_grad_()
        states = sim.rollout(*inputs, params={"mass": mass}, checkpoint_every=every)
        bars = [torch.ones_like(x) for x in states]
        with Allocations() as allocations:
            torch.autograd.grad(states, [*inputs, mass], bars)
        assert allocations.most >= u.nbytes
        beyond.append(allocations.most - u.nbytes)
    assert beyond[0] == beyond[1] > 0


def test_simulator_does_not_keep_a_dropped_trajectory_alive():
    sim, q, qd, u = toy_inputs(steps=3)
    for _ in range(2):  # the first call records the launch, the second replaces its arguments
        qs, qds = sim.rollout(q, qd, u)
        held = [weakref.ref(qs), weakref.ref(qds)]
        del qs, qds
        assert [ref() for ref in held] == [None, None]
