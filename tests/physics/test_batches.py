"""Batches: bitwise equality for any threads, size and order; parameters per environment; divergence; bad input."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import warp as wp
from small_models import hinge, simulator, varied

import warp_articulated as wa

# -- batches: laikago on its feet, with contacts, saturating drives and different parameters in every environment


ENVS = 64


@pytest.fixture(scope="module")
def laikago():
    return wa.load("laikago_feet")


def laikago_run(model, envs, q, qd, u, params, **options):
    """Trajectories of the environments in `envs`, simulated in that order."""
    sim = simulator(model, len(envs), "float32", dt=1e-3, **options)
    params = {name: value[envs] for name, value in params.items()}
    return sim.rollout(q[envs], qd[envs], u[:, envs].contiguous(), params=params)


def assert_same_bits(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.isfinite(a).all() and torch.equal(a, b)


@pytest.fixture(scope="module")
def reference(laikago):
    """The whole batch in order on one thread; all other ways of running it must give the same."""
    inputs = varied(laikago, ENVS)
    qs, qds = laikago_run(laikago, list(range(ENVS)), *inputs, threads=1)
    assert qs[-1].unique(dim=0).shape[0] == ENVS  # no two environments are alike
    sim = simulator(laikago, ENVS, "float32", dt=1e-3)
    touching = int(sim.contacts(qs[-1], qds[-1], params=inputs[3]).active.any(1).sum())
    assert touching > ENVS / 2
    return inputs, qs, qds


def test_results_do_not_depend_on_threads(laikago, reference):
    inputs, qs, qds = reference
    assert_same_bits(laikago_run(laikago, list(range(ENVS)), *inputs, threads=2), (qs, qds))


@pytest.mark.parametrize("envs", [[0], [63], list(range(7)), list(range(20, 27))], ids=len)
def test_results_do_not_depend_on_batch_size(laikago, reference, envs):
    inputs, qs, qds = reference
    assert_same_bits(laikago_run(laikago, envs, *inputs), (qs[:, envs], qds[:, envs]))


def test_results_do_not_depend_on_the_order_of_environments(laikago, reference):
    inputs, qs, qds = reference
    envs = np.random.default_rng(4).permutation(ENVS).tolist()
    assert_same_bits(laikago_run(laikago, envs, *inputs), (qs[:, envs], qds[:, envs]))


def test_rollout_equals_repeated_steps_and_keeps_every_kth(laikago, reference):
    (q, qd, u, params), qs, qds = reference
    sim = simulator(laikago, ENVS, "float32", dt=1e-3)
    states = [(q, qd)]
    for control in u:
        states.append(sim.step(*states[-1], control, params=params))
    assert_same_bits(map(torch.stack, zip(*states)), (qs, qds))
    kept = [0, 8, 16, 20]
    assert_same_bits(sim.rollout(q, qd, u, params=params, checkpoint_every=8), (qs[kept], qds[kept]))


def test_substeps_equal_steps_with_the_same_control(laikago):
    q, qd, u, params = varied(laikago, ENVS)
    sim = simulator(laikago, ENVS, "float32", dt=1e-3, substeps=4)
    apart = q, qd
    for _ in range(4):
        apart = sim.step(*apart, u[0], substeps=1, params=params)
    assert_same_bits(sim.step(q, qd, u[0], params=params), apart)
    assert_same_bits(sim.step(q, qd, u[0], substeps=4, params=params), apart)


def test_step_warp_equals_step(laikago):
    q, qd, u, _ = varied(laikago, ENVS)
    sim = simulator(laikago, ENVS, "float32", dt=1e-3)
    before = [wp.array(x.numpy(), dtype=float, device="cpu") for x in (q, qd)]
    after = [wp.array(np.full_like(x.numpy(), np.nan), dtype=float, device="cpu") for x in (q, qd)]
    sim.step_warp(before, wp.array(u[0].numpy(), dtype=float, device="cpu"), after)
    assert_same_bits([wp.to_torch(x) for x in after], sim.step(q, qd, u[0]))
    assert_same_bits([wp.to_torch(x) for x in before], (q, qd))


def test_parameters_of_an_environment_act_like_those_of_a_model(laikago, reference):
    (q, qd, u, _), _, _ = reference
    default = laikago_run(laikago, list(range(4)), q, qd, u, {})
    changes = {
        "mass": (1, laikago.mass * 1.3, "mass"),
        "friction": (2, laikago.pair_friction * 3.0, "pair_friction"),
        "gravity": (3, np.array([1.0, 0.0, -3.7]), "gravity"),
    }
    sim = simulator(laikago, 4, "float32", dt=1e-3)
    params = {name: sim.params[name].clone() for name in changes}
    for name, (env, value, _) in changes.items():
        params[name][env] = torch.as_tensor(value)
    changed = sim.rollout(q[:4], qd[:4], u[:, :4].contiguous(), params=params)
    assert_same_bits([x[:, 0] for x in changed], [x[:, 0] for x in default])
    for env, value, field in changes.values():
        assert not torch.equal(changed[0][:, env], default[0][:, env])
        alone = laikago_run(replace(laikago, **{field: value}), [env], q, qd, u, {})
        assert_same_bits([x[:, [env]] for x in changed], alone)


def test_shared_parameters_equal_repeated_ones(laikago, reference):
    (q, qd, u, _), _, _ = reference
    sim = simulator(laikago, ENVS, "float32", dt=1e-3)
    shared = sim.step(q, qd, u[0], params={"friction": 0.7, "mass": laikago.mass * 1.1})
    repeated = {"friction": torch.full((ENVS, len(laikago.pairs)), 0.7)}
    repeated["mass"] = torch.as_tensor(laikago.mass * 1.1).float().repeat(ENVS, 1)
    assert_same_bits(sim.step(q, qd, u[0], params=repeated), shared)


def test_unknown_parameters_and_wrong_shapes_are_errors():
    sim = simulator(hinge(), 3)
    state = sim.initial_state()
    with pytest.raises(ValueError, match="no parameter 'weight'; the parameters are gravity, mass"):
        sim.step(*state, params={"weight": 1.0})
    with pytest.raises(ValueError, match=r"params\['mass'\] has shape \(5, 2\); it must be \(1,\).*\(3, 1\)"):
        sim.step(*state, params={"mass": torch.ones(5, 2)})
    with pytest.raises(ValueError, match="gives a limit to a joint that has none"):
        sim.step(*state, params={"upper": 1.0})
    with pytest.raises(ValueError, match="gives dry friction to a joint that has none"):
        sim.step(*state, params={"frictionloss": 1.0})


# -- divergence and bad input


@pytest.mark.parametrize("cause", ["velocity", "parameter"])
def test_diverged_environments_are_reported_and_do_not_affect_others(laikago, reference, cause):
    (q, qd, u, params), qs, qds = reference
    bad, rest = [5, 40], [e for e in range(ENVS) if e not in (5, 40)]
    qd, params = qd.clone(), {name: value.clone() for name, value in params.items()}
    if cause == "velocity":
        qd[bad, 10] = 1e7
    else:
        params["mass"][bad, 3] = torch.nan
    sim = simulator(laikago, ENVS, "float32", dt=1e-3, validate=False)
    with pytest.warns(RuntimeWarning, match="2 of 64 environments diverged.*first environment 5 at step 0"):
        got = sim.rollout(q, qd, u, params=params)
    assert sim.diverged.tolist() == bad
    assert_same_bits([x[:, rest] for x in got], [x[:, rest] for x in (qs, qds)])
    assert torch.equal(got[0][-1, bad], q[bad])  # they keep their last state
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sim.rollout(qs[0], qds[0], u)
    assert sim.diverged.tolist() == []


def bad_states():
    q, qd, u = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2)
    u = u.double()
    nan = q.clone()
    nan[2, 1] = torch.nan
    endless = qd.clone()
    endless[1, 0] = torch.inf
    return {
        "q nan": ((nan, qd, u), ValueError, "q has a number that is not finite, first in environment 2"),
        "qd inf": ((q, endless, u), ValueError, "qd has a number that is not finite, first in environment 1"),
        "u nan": ((q, qd, nan), ValueError, "u has a number that is not finite, first in environment 2"),
        "q shape": ((q[:2], qd, u), ValueError, r"q has shape \(2, 2\); it must be \(3, 2\)"),
        "u shape": ((q, qd, u[:, :1]), ValueError, r"u has shape \(3, 1\); it must be \(3, 2\)"),
        "flat qd": ((q, qd[0], u), ValueError, r"qd has shape \(2,\); it must be \(3, 2\)"),
        "dtype": ((q.float(), qd, u), TypeError, r"q is torch.float32; this simulator computes in torch.float64"),
        "device": ((q, qd.to("meta"), u), ValueError, "qd is on meta; this simulator is on cpu"),
        "list": ((q, qd, [[0.0, 0.0]] * 3), TypeError, "u is a list; it must be a torch tensor"),
    }


@pytest.mark.parametrize("case", bad_states())
def test_bad_states_and_controls_are_errors(case):
    arguments, error, sentence = bad_states()[case]
    sim = simulator(wa.load("double_pendulum"), 3)
    assert sim.model.nu == 2
    with pytest.raises(error, match=sentence):
        sim.step(*arguments)
    q, qd, u = arguments
    if isinstance(u, torch.Tensor):
        with pytest.raises(error, match=sentence.replace("must be (3, 2)", "must be")):
            sim.forward_dynamics(q, qd, u) if case[0] != "u" else sim.step(q, qd, u)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"num_envs": 0}, ValueError, "num_envs is 0; it must be a whole number of at least 1"),
        ({"dt": 0.0}, ValueError, "dt is 0.0; it must be a number above zero"),
        ({"dt": float("nan")}, ValueError, "dt is nan"),
        ({"dtype": "float16"}, ValueError, "dtype is 'float16'; it must be 'float32' or 'float64'"),
        ({"device": "tpu"}, ValueError, "no device 'tpu' on this machine; the devices are"),
        ({"substeps": 1.5}, ValueError, "substeps is 1.5"),
        ({"iterations": -1}, ValueError, "iterations is -1"),
        ({"tolerance": -1.0}, ValueError, "tolerance is -1.0; it must be a number of zero or more"),
        ({"friction": "sticky"}, ValueError, "friction is 'sticky'; it must be 'cone' or 'pyramid'"),
        ({"threads": 0}, ValueError, "threads is 0"),
        ({"max_contacts": 0}, ValueError, "max_contacts is 0"),
        ({"dt": "fast"}, (TypeError, ValueError), "dt is 'fast'"),
        ({"num_envs": "many"}, (TypeError, ValueError), "num_envs is 'many'"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_bad_options_are_errors(options, error, sentence):
    with pytest.raises(error, match=sentence):
        wa.Simulator(hinge(), **{"device": "cpu", **options})


@pytest.mark.parametrize("name", ["sphere", "box"])
def test_models_without_drives_fall_and_rest(name):
    model = wa.load(name)
    assert model.nu == 0
    sim = simulator(model, 2, dt=1e-3)
    q, qd = sim.initial_state()
    q[1, 2] += 0.5
    fallen, speed = sim.step(q, qd)
    assert speed[1, 2] == pytest.approx(-9.81e-3) and fallen[1, 2] < q[1, 2]
    qs, qds = sim.rollout(q, qd, torch.zeros(1500, 2, 0, dtype=torch.float64))
    # it rests where the scene puts it, up to the depth of a soft contact
    np.testing.assert_allclose(qs[-1, :, 2], float(model.q0[2]), atol=1e-3)
    assert qds[-1].abs().max() < 1e-3
    assert sim.initial_control().shape == (2, 0)


BAD_VALUES = {
    "friction": (-1.0, "is negative"),
    "kp": (torch.nan, "is not finite"),
    "shape_size": (torch.tensor([-1.0, 0.0, 0.0]), "is negative"),
    "gravity": (-9.81, r"its last axes must be \(3,\)"),
    "joint_quat": (torch.zeros(4), "is a quaternion near zero"),
    "mass": ("heavy", "must be a tensor or numbers"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_invalid_parameter_values_are_errors(laikago, name):
    sim = simulator(laikago, 2, "float32", dt=1e-3)
    value, sentence = BAD_VALUES[name]
    with pytest.raises((ValueError, TypeError), match=sentence):
        sim.step(*sim.initial_state(), params={name: value})


def test_joint_frames_of_one_call_do_not_persist(laikago):
    sim = simulator(laikago, 2, "float32", dt=1e-3)
    q, _ = sim.initial_state()
    before = sim.link_poses(q)
    turned = sim.link_poses(q, params={"joint_quat": torch.tensor([0.0, 0.0, 0.0, 1.0])})
    assert (turned - before).abs().max() > 0.01
    assert torch.equal(sim.link_poses(q), before)


def test_default_parameters_cannot_be_assigned(laikago):
    sim = simulator(laikago, 2, "float32", dt=1e-3)
    with pytest.raises(TypeError):
        sim.params["gravity"] = torch.zeros(3)


def test_step_warp_rejects_arrays_of_the_wrong_shape(laikago):
    sim = simulator(laikago, 2, "float32", dt=1e-3)
    q, qd, u = (wp.zeros((2, n), dtype=wp.float32, device="cpu") for n in (laikago.nq, laikago.nv, laikago.nu))
    with pytest.raises(ValueError, match=r"state_out has an array of shape \(2, 3\)"):
        sim.step_warp((q, qd), u, (wp.zeros((2, 3), dtype=wp.float32, device="cpu"), qd))


def test_subnormal_setting_of_the_caller_has_no_effect_and_is_kept(laikago):
    """Kernels flush subnormal numbers to zero, for speed, and restore the caller's setting."""
    sim = simulator(laikago, 2, "float32", dt=1e-3, threads=2)
    results = []
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        try:
            q, qd = sim.initial_state()
            results.append(sim.step(q, qd + 1e-30))
            assert (np.float32(1e-39) * np.float32(1.0) == 0.0) == flush
        finally:
            torch.set_flush_denormal(False)
    assert_same_bits(*results)
