"""Every example runs, and shows what it says."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_friction_sweep_follows_the_closed_form():
    error = runpy.run_path(str(EXAMPLES / "friction_sweep.py"))["main"]()
    assert error < 2e-3  # half a step of sliding, v dt, and a box that starts just touching
