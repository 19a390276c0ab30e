"""The steps that the benchmark differentiates automatically are ours: same trajectory, same gradient."""

import json
import shutil

import numpy as np
import pytest

from autodiff import autodiff, checkpoints


@pytest.mark.slow
def test_methods_compute_what_ours_does(tmp_path):
    results = autodiff.main(["--methods", "C++ doubles", "torch", "--steps", "3", "--out", str(tmp_path / "a.json")])
    for row in results["rows"]:
        if row["method"] == "C++ doubles" and shutil.which("g++") is None:
            assert "g++" in row["refused"]
            continue
        assert "refused" not in row, row
        assert row["state_error"] < 1e-12  # double precision, a few steps
        if row["method"] == "torch":
            assert row["gradient_error"] < 1e-10 and row["backward_ms"] > 0
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_a_method_that_computes_something_else_is_refused():
    ours = np.arange(6.0)
    row = {"method": "torch", "steps": 1, "forward_s": 1.0, "backward_s": 1.0, "before_mb": 1.0, "peak_mb": 2.0}
    assert "refused" not in autodiff.compare(row, ours + 1e-9, ours, 3)
    assert "last state differs" in autodiff.compare(row, ours + 1e-3, ours, 3)["refused"]
    wrong = ours + np.array([0, 0, 0, 0, 0, 0.1])
    assert "gradient differs" in autodiff.compare(row, wrong, ours, 3)["refused"]
    broken = ours + np.array([0, 0, 0, 0, 0, np.nan])
    assert "not finite" in autodiff.compare(row, broken, ours, 3)["refused"]


def a_row(method, forward, backward, memory, steps=1000, robots=1):
    return {"method": method, "steps": steps, "robots": robots, "forward_ms": forward, "backward_ms": backward,
            "memory_mb": memory}  # fmt: skip


def test_what_would_take_too_long_or_too_much_is_not_started():
    rows = [a_row("torch", 100.0, 150.0, 1000.0), a_row("CppAD", 1.0, 1.0, 500.0, steps=100, robots=10)]
    assert autodiff.forecast("torch", 1500, rows, 420) == ""
    assert "would take about 1250 s" in autodiff.forecast("torch", 5000, rows, 420)
    assert "would take about 50 GB" in autodiff.forecast("CppAD", 100_000, rows, 420)
    assert autodiff.forecast("CppAD", 10_000, rows, 420) == autodiff.forecast("ADOL-C", 10**9, rows, 420) == ""
    rows.append({"method": "CppAD", "steps": 200, "robots": 10, "refused": "takes more than 16 GB"})
    assert autodiff.forecast("CppAD", 4000, rows, 420) == "takes more than 16 GB"


def test_running_out_of_memory_is_distinguished_from_other_failures():
    assert autodiff.failure("terminate called\n  what():  std::bad_alloc\n") == "takes more than 16 GB"
    assert autodiff.failure("Traceback\nValueError: a contact jams.\n") == "ValueError: a contact jams"
    assert "killed" in autodiff.failure("")


def test_report_says_which_goals_are_met_against_which_method():
    rows = [a_row("ours", 0.01, 0.02, 1.0), a_row("C++ doubles", 0.001, 0.0, 0.1), a_row("ours sqrt", 0.01, 0.03, 0.1),
            a_row("Ceres jets", 1.0, 0.002, 15.0), a_row("ADOL-C", 1.2, 0.3, 450.0),
            {"method": "torch", "steps": 1000, "robots": 1, "refused": "takes more than 420 s"}]  # fmt: skip
    parts = autodiff.report(json.loads(json.dumps({"rows": rows})))
    text = parts["summary"]
    assert "is Ceres jets: 1 ms per step; ours takes 0.03 ms, one in 33.4." in text
    assert "0.1 times as much (goal 10: not met). Jets do their work forward" in text
    assert "ADOL-C has the fastest backward pass, 0.3 ms: 15 times as much as ours (goal 10: met)" in text
    assert "15 times as much (goal 100: not met)" in text and "150 times as much memory (goal 100: met)" in text
    assert "torch, 1,000 steps: takes more than 420 s." in parts["reasons"] and "ADF" in parts["reasons"]
    assert "| torch | - |" in parts["memory"] and "C++ doubles" not in parts["backward"]


def test_checkpoint_report_compares_the_longest_interval_with_all_states(tmp_path):
    cases = [(n, k) for n in (1, 100) for k in checkpoints.INTERVALS]
    rows = [{"robots": n, "steps": 5000, "every": k, "interval": 71 if k == "sqrt" else k, "forward_us": 1.0,
             "backward_us": 2.0 + (k == 70), "memory_mb": 8.0 / n} for n, k in cases]  # fmt: skip
    results = json.loads(json.dumps({"rows": rows}))
    text = checkpoints.report(results)["summary"]
    assert "every 70 steps, the backward pass takes 1.5 times as long" in text
    assert "35.5 forward steps for each, would take 18.8 times as long" in text
    assert checkpoints.report(results)["table"].count("\n| ") == 1 + len(rows)
    checkpoints.reporting.draw(results, checkpoints.plot, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
