"""Gradients in cases with a known answer (benchmarks/gradients/gradient_truth.py), and the report of their errors.

Everything in float64 and in two models, whose kernels are most of the time that this takes.
"""

import json
from functools import cache

import numpy as np
import pytest
import torch

from gradients import gradient_report, gradient_truth
from gradients.gradient_truth import SELF, TRUE, Bench
from warp_articulated.device.parameters import GROUPS


@cache
def records(case):
    return case(Bench())


def chosen(case, quantity="", kind=None):
    found = [r for r in records(case) if quantity in r.quantity and kind in (None, r.kind)]
    assert found, f"no record of {quantity}"
    return found


def assert_right(found, tolerance):
    wrong = [(r.case, r.quantity, r.ours, r.expected) for r in found if not r.error <= tolerance]
    assert not wrong


@pytest.mark.parametrize("case", [gradient_truth.sliding, gradient_truth.inclines])
def test_friction_has_the_gradients_of_the_closed_forms(case):
    """Of the program's to rounding (measured: 1e-15, with four corners 5e-14); of the motion's to first order in dt."""
    assert_right(chosen(case, kind=SELF), 1e-12)
    # 170 steps of sliding or more
    assert_right(chosen(case, kind=TRUE), 1 / 170)


def test_block_that_sticks_has_no_gradient_and_does_not_creep():
    assert_right([r for r in records(gradient_truth.inclines) if r.case == "I2"], 1e-14)


def test_impacts_have_the_gradients_of_the_program():
    assert_right(chosen(gradient_truth.wall, kind=SELF) + chosen(gradient_truth.drop, kind=SELF), 1e-12)


def test_impacts_have_the_true_gradient_by_restitution():
    # late by up to a step of 1 ms: of the 0.05 s after the first hit of the ball that is 2 %
    assert_right(chosen(gradient_truth.wall, "/de", TRUE) + chosen(gradient_truth.drop, "/de", TRUE), 2e-2)


def test_impacts_do_not_have_the_true_gradient_by_the_start_and_the_table_says_so():
    """Known and documented: if this fails, the simulator has become better, and the docs must say so."""
    wrong = chosen(gradient_truth.wall, "dq/dq0", TRUE)[:2] + chosen(gradient_truth.drop, "dy/dy0", TRUE)[:2]
    for r in wrong:
        assert r.ours == pytest.approx(1.0) and r.expected < 0
        assert "wrong" in r.remark or "does not help" in r.remark


def test_remedies_against_the_bias_of_impacts_work_as_the_table_says():
    coarse, fine = chosen(gradient_truth.wall, "soft wall")
    assert fine.error < 0.3 and fine.error < 0.2 * coarse.error  # first order: a tenth of dt, a tenth of the error
    # of the ball a tenth of a metre each way also bends the closed form, by some percent
    assert_right(chosen(gradient_truth.wall, "by differences") + chosen(gradient_truth.drop, "by differences"), 0.1)


def test_pendulum_has_the_gradients_of_its_recursion_and_in_the_limit_those_of_its_motion():
    assert_right(chosen(gradient_truth.swings, kind=SELF), 1e-11)  # 10,000 steps of rounding
    plain = [r for r in chosen(gradient_truth.swings, kind=TRUE) if "dt ->" not in r.quantity]
    limit = chosen(gradient_truth.swings, "dt ->", TRUE)
    assert_right(plain, 2e-3)
    # an error in dt and dt^2 goes, that in dt^3 stays
    assert_right(limit, 1e-6)
    assert all(a.error < 1e-2 * b.error for a, b in zip(limit, plain, strict=True))


def test_four_feet_have_the_gradients_of_differences_in_any_order():
    # one step is piecewise linear in the torque: differences are exact up to rounding over a step of 0.1 N m
    assert_right(chosen(gradient_truth.feet), 1e-10)


def test_jacobian_of_a_chaotic_motion_grows_and_stays_finite():
    found = gradient_truth.chaos(Bench(), spans=(1.0, 2.0, 5.0))
    assert all(np.isfinite(r.ours) for r in found)
    assert found[0].ours < found[1].ours < found[2].ours
    # differences lose to rounding what the norm (up to 1e4) makes of it
    assert_right(found, 1e-6)


def test_gradient_by_a_quaternion_is_tangent_to_it():
    assert_right(chosen(gradient_truth.spin, "tangents"), 1e-8)  # differences of fourth order with a step of 1e-3
    assert_right(chosen(gradient_truth.spin, "along"), 1e-14)


def quotients(f):
    """Of one direction and one sample."""
    h = torch.tensor(gradient_report.STEPS).double()
    return torch.stack([(f(h) - f(0 * h)) / h, (f(0 * h) - f(-h)) / h])[..., None, None]


def test_report_tells_errors_from_kinks():
    def smooth(x):
        return 2 * x + 5 * x**2

    def bent(x):
        return torch.where(x > 0, 2 * x, 3 * x)

    right, wrong = (torch.full((1, 1), slope, dtype=torch.float64) for slope in (2.0, 2.002))
    assert gradient_report.judge(quotients(smooth), right)["error"] == pytest.approx([0], abs=1e-9)
    assert gradient_report.judge(quotients(smooth), wrong)["error"] == pytest.approx([1e-3], rel=1e-5)
    at_kink = gradient_report.judge(quotients(bent), right)
    assert len(at_kink["error"]) == 0 and at_kink["kink"] == pytest.approx([0], abs=1e-9)
    assert gradient_report.judge(quotients(bent), wrong)["kink"][0] > 5e-4
    # nothing happens: right if the gradient is zero too, and not to be left out if it is not
    still = gradient_report.judge(quotients(torch.zeros_like), 0 * right)
    assert len(still["error"]) == len(still["kink"]) == 0
    assert gradient_report.judge(quotients(torch.zeros_like), right)["error"][0] > 1
    assert gradient_report.judge(quotients(smooth), torch.nan * right)["error"] == [np.inf]


def test_report_of_a_few_steps_is_written_and_has_small_errors(tmp_path, capsys):
    plan = gradient_report.Plan(
        samples=2, directions=2, horizons=(1, 3), regimes=("sticking", "joint limit"), single=False,
        cases=(gradient_truth.spin,),
    )  # fmt: skip
    gradient_report.main(["--out", str(tmp_path)], plan)
    text = (tmp_path / "gradient_report.md").read_text("utf-8")
    results = json.loads((tmp_path / "gradient_report.json").read_text("utf-8"))
    assert capsys.readouterr().out.strip() == text.strip()
    assert "python benchmarks/gradients/gradient_report.py" in text.splitlines()[0]
    assert str(tmp_path) not in text and len(results["truth"]) == 4
    rows = results["errors"]
    assert len(rows) == 2 * 2 * len(gradient_report.INPUTS)
    used = {r["input"] for r in rows if r["samples"]}
    # feet that stick, drives and joints below their limits, no fields and no ties: these do not act
    idle = {"effort_limit", "friction", "restitution", "limit_restitution", "terrain_origin"}
    assert set(gradient_report.INPUTS) - used <= {*idle, *GROUPS["terrain"], *GROUPS["ties"]}
    seen = [r for r in rows if r["samples"]]
    # what is larger are the differences' own errors, which they admit; erp and cfm move feet by micrometres only
    assert max(r["worst"] for r in seen if r["input"] not in ("erp", "cfm")) < 1e-4
    # 1.1e-6: kd of standing robots, whose gradient is 2e-3 beside others of 3e3
    assert max(r["worst_beyond_doubt"] or 0 for r in seen) < 3e-6
    assert np.median([r["median"] for r in seen]) < 1e-8
    assert sum(r["kinks"] for r in rows) < 0.05 * sum(r["samples"] for r in rows)
