"""The steps that the benchmark differentiates automatically are ours: same trajectory, same gradient."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import autodiff

NEEDS = {"C++ doubles": "g++", "torch": None}


@pytest.mark.parametrize("method", NEEDS)
def test_method_computes_what_ours_does(method, tmp_path):
    if NEEDS[method] and shutil.which(NEEDS[method]) is None:
        pytest.skip(f"{method} needs {NEEDS[method]}")
    results = autodiff.main(["--methods", method, "--steps", "3", "--output", str(tmp_path / "result.json")])
    (row,) = results["rows"]
    assert "refused" not in row, row
    assert row["state_error"] < 1e-12  # double precision, a few steps
    if method != "C++ doubles":
        assert row["gradient_error"] < 1e-10 and row["backward_ms"] > 0


def test_a_method_that_computes_something_else_is_refused():
    import numpy as np

    ours = np.arange(6.0)
    figures = {"forward_s": 1.0, "backward_s": 1.0, "before_mb": 1.0, "peak_mb": 2.0}
    assert "refused" not in autodiff.compare("torch", 1, figures, ours + 1e-9, ours, 3)
    assert "last state differs" in autodiff.compare("torch", 1, figures, ours + 1e-3, ours, 3)["refused"]
    wrong = ours + np.array([0, 0, 0, 0, 0, 0.1])
    assert "gradient differs" in autodiff.compare("torch", 1, figures, wrong, ours, 3)["refused"]
