"""The simulator as a Python object: threads, copies, lifetime, parameters changed in place."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gradient_zoo import small_simulator, toy_inputs

import warp_articulated as wa


def test_threads_that_share_a_simulator_get_correct_gradients():
    sim, q, qd, u = toy_inputs(2, steps=50)

    def gradient(k):
        start = (q + 1e-3 * k).requires_grad_()
        qs, qds = sim.rollout(start, qd, u)
        return torch.autograd.grad(qs[-1].pow(2).sum() + qds[-1].sum(), start)[0]

    expected = [gradient(k) for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(torch.equal(a, b) for a, b in zip(pool.map(gradient, range(4)), expected, strict=True))


def test_simulator_and_trajectory_are_freed_after_a_backward_pass():
    sim, q, qd, u = toy_inputs(2)
    u.requires_grad_()
    qs, qds = sim.rollout(q, qd, u)
    qs[-1].sum().backward()
    alive = [weakref.ref(x) for x in (sim, qs, qds)]
    del sim, qs, qds
    gc.collect()
    assert [x() for x in alive] == [None] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_process_can_use_a_simulator():
    """In a separate process, because pytest's has threads of other tests."""
    code = (
        "import multiprocessing as mp, warp_articulated as wa\n"
        "sim = wa.Simulator(wa.load('laikago_feet'), 4, threads=2)\n"
        "state = sim.initial_state()\n"
        "expected = sim.step(*state)[0].tolist()\n"
        "def work(out): out.put(sim.step(*state)[0].tolist())\n"
        "context = mp.get_context('fork'); out = context.Queue()\n"
        "child = context.Process(target=work, args=(out,)); child.start()\n"
        "assert out.get(timeout=60) == expected; child.join(); assert child.exitcode == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_copies_and_pickles_give_the_same_results():
    sim, q, qd, u = toy_inputs(2)
    sim = wa.Simulator(sim.model, 2, device="cpu", dtype="float64", dt=1e-3, erp=0.1, friction="pyramid", threads=1)
    expected = sim.step(q, qd, u[0])
    for other in (copy.deepcopy(sim), pickle.loads(pickle.dumps(sim))):
        assert all(torch.equal(a, b) for a, b in zip(other.step(q, qd, u[0]), expected, strict=True))


def test_default_parameters_cannot_be_changed_in_place():
    sim, q, qd, u = toy_inputs(2)
    sim.params["friction"][0] = 0.3  # it is shared by all environments
    with pytest.raises(RuntimeError, match="changed in place"):
        sim.step(q, qd, u[0])


def test_numpy_parameters_may_change_before_the_backward_pass():
    sim, q, qd, u = toy_inputs(2)
    start = q.clone().requires_grad_()
    mu = np.full((2, 1), 0.4)
    loss = sim.rollout(start, qd, u, params={"friction": mu})[1][-1].sum()
    (before,) = torch.autograd.grad(loss, start, retain_graph=True)
    mu[:] = 0.0
    (after,) = torch.autograd.grad(loss, start)
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("inertia", -torch.eye(3), "negative principal moment"),
        ("lower", 2.0, r"params\['lower'\] is above params\['upper'\]"),
        ("friction", 1j, "must be a tensor or numbers"),
    ],
)
def test_invalid_parameters_are_errors(name, value, message):
    sim = small_simulator(wa.load("laikago_feet"), 1, validate=True)
    if name == "lower":
        value = torch.where(sim.params["lower"].isfinite(), sim.params["upper"] + value, sim.params["lower"])
    with pytest.raises((ValueError, TypeError), match=message):
        sim.step(*sim.initial_state(), params={name: value})
