"""Gradients through impacts: the event-driven truth against closed forms, and the simulator against that truth.

All bodies are in one model, so that few kernels compile. Bounds are those of the design's small models. A few inputs
of each case are enough here; benchmarks/gradients/impacts.py takes all.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from gradients import cube_toss, event_truth, impact_cases, impacts
from gradients.event_truth import FreeBody, Hit
from gradients.impact_cases import G

# a few inputs by which the truth is differentiated; differences of a motion take their time
SOME = {
    "spheres, oblique": ("y1", "vx1", "e"),
    "incline, slips": ("z", "vx", "mu"),
    "incline, sticks": ("z", "vx", "e"),
    "box on its corner": ("z", "rx", "vx"),
    "double pendulum, driven": ("a1", "w2", "k"),
    "rod in space": ("z", "rx", "wy"),
}


@cache
def case(name):
    return replace(impact_cases.case(name), some=SOME.get(name, ()))


@cache
def errors(name, mode, *counts):
    found = [impact_cases.jacobian(case(name), mode, steps)[1] for steps in counts]
    assert all(np.isfinite(J).all() for J in found)
    return [impact_cases.error(case(name), J) for J in found]


# -- the truth


def test_closed_forms_have_the_derivatives_of_the_textbook():
    ball = event_truth.complex_step(event_truth.bounces, {"y0": 1.0, "v0": 0.0, "e": 0.5, "g": G}, 0.8, ("y0", "e"))
    left, down = 0.8 - np.sqrt(2 / G), np.sqrt(2 * G)
    assert ball[0] == pytest.approx([1.5 * G * left / down - 0.5, down * left], rel=1e-13)
    cart = event_truth.complex_step(event_truth.wall, {"q0": 0.0, "v0": 1.0, "e": 0.5}, 1.5, ("q0", "v0", "e"))
    assert cart[0] == pytest.approx([-0.5, -0.75, -0.5], rel=1e-13)


def test_integrated_bounces_agree_with_their_closed_form():
    body = FreeBody(np.zeros((1, 3)), 0.1, 0.004 * np.ones(3))
    x = impact_cases.case("incline, slips").inputs | {"z": 0.3, "vx": 0.0, "vy": 0.0, "wx": 0.0, "wy": 0.0, "e": 0.8}
    end, found, hits, doubt = event_truth.differences(body, x, 0.9, ("z", "vz", "e", "g"), (3,))
    values = {"y0": 0.2, "v0": 0.0, "e": 0.8, "g": G}
    exact = event_truth.complex_step(event_truth.bounces, values, 0.9, tuple(values))
    assert len(hits) == 3 and doubt < 1e-9
    assert [end[2] - 0.1, end[9]] == pytest.approx(event_truth.bounces(values, 0.9), abs=1e-11)
    assert found[[2, 8]] == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_impacts_stop_the_point_or_push_against_the_slip_on_the_cone(seed):
    rng = np.random.default_rng(seed)
    root, rows, v = rng.normal(size=(6, 6)), rng.normal(size=(3, 6)), rng.normal(size=6)
    mass = root @ root.T + np.eye(6)
    v = v * -np.sign(rows[0] @ v)  # approaching
    try:
        after, kind, _ = event_truth.impact(mass, rows, v, 0.3, 0.4)
    except ValueError:
        pytest.skip("friction without a unique solution")
    assert rows[0] @ after == pytest.approx(-0.3 * rows[0] @ v)
    impulse = np.linalg.solve(rows @ np.linalg.solve(mass, rows.T), rows @ (after - v))
    slip = rows[1:] @ after
    if kind == "stick":
        assert np.abs(slip).max() < 1e-12 and np.linalg.norm(impulse[1:]) <= 0.4 * impulse[0]
    else:
        assert impulse[1:] == pytest.approx(-0.4 * impulse[0] * slip / np.linalg.norm(slip))


def test_free_bodies_keep_energy_and_momentum_between_impacts():
    body = impact_cases.case("rod in space").motion
    x = impact_cases.case("rod in space").inputs | {"z": 50.0, "g": 0.0}
    q, v = body.start(x)
    end, hits = body.run(x, 0.8)
    q1, v1 = end[:7], end[7:]
    momentum, energy = body.mass(q, x) @ v, v @ body.mass(q, x) @ v
    assert not hits and body.mass(q1, x) @ v1 == pytest.approx(momentum, abs=1e-10)
    assert v1 @ body.mass(q1, x) @ v1 == pytest.approx(energy, rel=1e-10)


def test_differences_across_a_switch_are_refused():
    graze = case("box on its corner")
    _, hits = graze.motion.run(graze.inputs, 0.4)
    with pytest.raises(ValueError, match="the impacts change within the differences by z"):
        # the end of the span is within the difference's reach of the first impact
        event_truth.differences(graze.motion, graze.inputs, hits[0].time + 1e-5, ("z",), (3,))
    assert all(isinstance(hit, Hit) for hit in hits)


def test_rigid_cube_of_the_toss_has_a_derivative_only_if_it_does_not_come_to_rest():
    assert cube_toss.rigid(0.15) is None
    found = cube_toss.rigid(0.5)
    assert [round(found[name], 4) for name in ("y", "gradient", "impacts")] == [-0.6068, 0.6755, 2]
    assert found["narrow"] == pytest.approx(found["gradient"], rel=1e-4)


# -- the simulator


def test_resolving_contacts_per_step_is_wrong_whatever_the_step():
    """Known and documented. What the present step gets wrong is the time of the impact."""
    assert errors("wall", "step", 50, 100) == pytest.approx([1.5, 1.5], rel=5e-2)
    assert errors("drop, e = 0.5", "step", 100, 400) == pytest.approx([0.75, 0.75], rel=1e-2)
    assert min(errors("joint limit, e = 0", "step", 100, 400)) > 1


@pytest.mark.parametrize("name", ["wall", "balls in line, e = 1"])
def test_impacts_without_forces_have_exact_gradients_with_any_step(name):
    assert max(errors(name, "impact", 50, 77, 100)) < 1e-9


def test_balls_that_stay_on_the_floor_have_no_gradient():
    assert errors("drop, e = 0", "impact", 200)[0] < 1e-4


# errors of the design's small models at 400 steps, with some room where the model or the inputs are others
BOUNDS = {
    "drop, e = 0.5": 1.1e-3,
    "drop, e = 1": 1.1e-3,
    "joint limit, e = 0": 1.2e-3,
    "spheres, oblique": 2e-4,
    "incline, sticks": 6e-3,
    "box on its corner": 1e-2,
    "double pendulum, driven": 8e-2,
}
FIRST_ORDER = ("drop, e = 0.5", "drop, e = 1", "joint limit, e = 0", "incline, sticks", "box on its corner")


@pytest.mark.parametrize("name", BOUNDS)
def test_gradients_through_impacts_are_close_to_the_truth(name):
    counts = (100, 200, 400)
    found = errors(name, "impact", *counts)
    assert found[-1] < BOUNDS[name]
    if name in FIRST_ORDER:
        assert 0.8 < impacts.order(list(counts), found) < 1.2


def test_energy_and_slopes_of_many_bounces_are_right():
    coarse, fine = errors("eight bounces", "impact", 600, 1200)
    assert fine < 6.5e-4 and coarse < 1.3e-3


def test_limits_without_a_second_side_are_impacts_too():
    limit = case("joint limit, e = 0.4")
    sim = impact_cases.simulator("impact", 2, limit.span / 200)
    x = torch.tensor(list(limit.inputs.values()), dtype=sim.dtype).repeat(2, 1)
    q, qd, u, params = impact_cases.start(limit, sim, x)
    params["upper"] = sim.params["upper"].clone()
    params["upper"][1] = torch.inf
    qs, qds = sim.rollout(q, qd, u.expand(200, -1, -1), params=params)
    for states in (qs, qds):
        assert torch.equal(states[:, 0], states[:, 1])


def test_an_edge_that_lands_flat_stays_parallel_to_the_floor():
    """Both corners of the edge of a turning cube arrive at once, up to the curvature of their paths."""
    sim = impact_cases.simulator("impact", 1, 1e-3)
    (q, qd), place, rates = sim.initial_state(), sim.model.joint_q("cube").start, sim.model.joint_v("cube").start
    q[0, place : place + 7] = torch.tensor([0.0, 0.0, 0.2, *cube_toss.TURN])
    qd[0, rates + 2], qd[0, rates + 3] = -2.0, 8.0
    _, qds = sim.rollout(q, qd, sim.initial_control().expand(90, -1, -1))
    assert qds[-1, 0, rates + 2] > 0.1  # it has bounced
    # what 50 sweeps leave is 1e-3 rad/s; one corner before the other is 5 rad/s
    assert qds[:, 0, rates + 4 : rates + 6].abs().max() < 0.05


# -- the report


def test_order_is_a_slope_and_none_where_there_is_no_error():
    assert impacts.order([50, 100, 200], [0.4, 0.2, 0.1]) == pytest.approx(1.0)
    assert impacts.order([50, 100, 200], [1e-12, 1e-12, 1e-12]) is None
    assert impacts.order([50, 100, 200], [1.0, np.inf, 1.0]) is None
    sizes = impacts.dense(impact_cases.case("wall"))
    assert (sizes[0], sizes[8], sizes[-1], len(sizes)) == (50, 100, 1600, 41)


def test_report_of_a_few_cases_is_written(tmp_path, capsys):
    found = impacts.main(["--quick", "--cases", "wall,PD", "--out", str(tmp_path / "impacts.json")])
    text = capsys.readouterr().out
    assert set(found["cases"]) == {"wall", "double pendulum, wall", "PD drive, e = 0.5"}
    assert (tmp_path / "impacts.png").exists() and str(tmp_path) not in text
    assert "| wall | closed form |" in text and "exact" in impacts.report(found)["overview"]
    assert impacts.figures(found)["cases"] == "3"
