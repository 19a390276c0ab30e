"""A crowd of robots: automatic differentiation of all at once gives what ours does, and is not started in vain."""

import json
import shutil

import numpy as np
import pytest

from autodiff import autodiff, cpp_drivers, crowd, methods


def program_or_skip(method):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    try:
        cpp_drivers.program(method)
    except cpp_drivers.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def ours():
    """Last states and gradient of two robots and three steps."""
    _, last, gradient = methods.run_ours(methods.Problem(2), 3, "ours")
    return np.concatenate([last, gradient])


@pytest.mark.parametrize("method", ["C++ doubles", "ADOL-C", "Ceres jets"])
def test_two_robots_in_cpp_do_what_ours_do(method, ours, tmp_path):
    program_or_skip(method)
    problem = methods.Problem(2)
    problem.write(tmp_path / "model")
    figures, found = autodiff.run(method, 3, tmp_path, 60, robots=2)
    assert found is not None, figures
    states = 2 * len(problem.state)
    assert len(found) == (states if method == "C++ doubles" else len(ours))
    assert np.abs(found - ours[: len(found)]).max() < 1e-9 * np.abs(ours).max()  # double precision, a few steps
    assert np.abs(found[: states // 2] - found[states // 2 : states]).max() > 1e-6  # the robots differ


def test_a_cpp_program_that_gets_no_memory_says_so(tmp_path, monkeypatch):
    program_or_skip("Ceres jets")
    methods.Problem(2).write(tmp_path / "model")
    monkeypatch.setattr(autodiff, "MEMORY_GB", 1)
    figures, found = autodiff.run("Ceres jets", 100_000, tmp_path, 60, robots=2)  # 3 GB of Jacobians
    assert found is None and figures["refused"] == "takes more than 1 GB"


def a_row(method, robots, steps, forward=1.0, backward=2.0, memory=100.0, **more):
    return {"method": method, "robots": robots, "steps": steps, "forward_ms": forward * robots,
            "backward_ms": backward * robots, "memory_mb": memory, **more}  # fmt: skip


def test_report_and_plot_need_the_json_file_only(tmp_path):
    late = {"method": "ADOL-C", "robots": 10, "steps": 5000, "refused": "would take about 23 GB"}
    rows = [a_row("ours", n, k, 0.01, 0.02, 1e-4 * n * k) for n in (10, 100) for k in (1000, 5000)]
    rows += [a_row("ours sqrt", 100, 5000, 0.01, 0.03, 7.0), a_row("ours one thread", 10, 1000, 0.02, 0.04, 1.0)]
    rows += [a_row("ADOL-C", 10, 1000, 1.2, 0.3, 4500.0), a_row("Ceres jets", 10, 1000, 1.1, 0.001, 150.0), late]
    results = json.loads(json.dumps({"rows": rows}))
    parts = crowd.report(results)
    assert "| 10 | ADOL-C | 4,500 | - | 1,200 + 300 | - |" in parts["table"]
    assert "- ADOL-C. 10 robots, 5,000 steps: would take about 23 GB." in parts["table"]
    assert "Ceres jets, takes 36.7 times as long as ours (18.3 times as long as ours on one thread)" in parts["summary"]
    assert "backward alone 0.05 times, and 150 times the memory (150 and 1 MB)" in parts["summary"]
    assert "No automatic differentiation could be run with 100 robots" in parts["summary"]
    assert "100 robots and 5,000 steps takes ours 50 MB and 15 s" in parts["summary"]
    crowd.reporting.draw(results, crowd.plot, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_what_is_late_large_missing_or_wrong_has_a_reason_and_no_figures(tmp_path, monkeypatch):
    started = []

    def run(method, steps, folder, seconds, robots):
        started.append((method, robots))
        answer = np.ones(robots * (37 + 37 + 12 * steps))
        if method == "Ceres jets" and robots > 1:
            answer[-1] = np.nan
        seconds_of = {"Warp tape": 0.4, "ours": 0.001}.get(method, 0.01)
        return {"forward_s": seconds_of, "backward_s": seconds_of, "before_mb": 1.0, "peak_mb": 1.5}, answer

    monkeypatch.setattr(crowd, "run", run)
    monkeypatch.setattr(crowd, "prepare", lambda methods, folder: {"CppAD": "its headers are not here"})
    arguments = ["--robots", "2", "20", "--steps", "100", "--seconds", "5", "--out", str(tmp_path / "crowd.json")]
    rows = {(r["method"], r["robots"]): r for r in crowd.main(arguments)["rows"]}
    assert "not finite" in rows["Ceres jets", 2]["refused"]
    assert rows["CppAD", 2]["refused"] == "its headers are not here" and ("CppAD", 2) not in started
    assert "refused" not in rows["Warp tape", 2] and ("Warp tape", 2) in started
    assert "would take about 8 s" in rows["Warp tape", 20]["refused"] and ("Warp tape", 20) not in started
    assert rows["ours", 20]["memory_mb"] == 0.5 and ("ours float32", 20) in started
    assert len(json.loads((tmp_path / "crowd.json").read_text())["rows"]) == len(rows)


def test_a_crowd_of_ours_that_is_not_finite_ends_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(crowd, "prepare", lambda methods, folder: {})
    monkeypatch.setattr(crowd, "run", lambda *a: ({}, np.array([np.nan])))
    with pytest.raises(SystemExit, match="not finite"):
        crowd.main(["--out", str(tmp_path / "crowd.json")])
    assert not (tmp_path / "crowd.json").exists()
