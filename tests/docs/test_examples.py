"""Every example runs with --quick, writes its files, and reaches its result."""

import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import warp_articulated as wa

EXAMPLES = Path(__file__).parents[2] / "examples"


def files_of(folder: Path) -> set[str]:
    """Names of the files in a folder; none may be empty."""
    assert all(path.stat().st_size > 0 for path in folder.iterdir())
    json.loads((folder / "summary.json").read_text("utf-8"))
    return {path.name for path in folder.iterdir()}


MOTION = {"motion.usdc", "motion.gif", "motion.png", "summary.json"}


def test_friction_sweep_follows_the_closed_form():
    error = runpy.run_path(str(EXAMPLES / "friction_sweep.py"))["main"]()
    assert error < 2e-3  # half a step of sliding, v dt, and a box that starts just above contact


def test_racecar_finds_the_friction_that_stops_it_at_the_target(tmp_path):
    import racecar_friction

    found = racecar_friction.main(["--quick", "--seeds", "1", "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"curves.png", "landscape.png"}
    assert found["runs"]["Gauss-Newton"][0]["reached"] <= 10 and abs(found["x"] - 0.8) < 1e-3
    assert abs(found["speed"]) < 1e-3  # it has stopped
    # wheels that hardly turn slide like a block, v^2 / (2 mu g), up to half a step's distance and their slow roll
    assert found["friction"] == pytest.approx(1.0 / (2 * 9.81 * 0.8), rel=0.02)


def test_throw_gets_closer_to_the_target(tmp_path):
    import throw

    found = throw.main(["--quick", "--seeds", "1", "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"curves.png"}
    losses = found["runs"]["Gauss-Newton"][0]["losses"]
    assert losses[-1] < found["goal"] < losses[0]
    assert losses[-1] < found["runs"]["CMA-ES"][0]["losses"][-1]


def test_golf_swing_gets_closer_to_the_target(tmp_path):
    import golf

    found = golf.main(["--quick", "--seeds", "1", "--iterations", "8", "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"curves.png"}
    losses = found["runs"]["Gauss-Newton"][0]["losses"]
    assert losses[-1] < 0.5 * losses[0]


def test_golf_swing_is_found_by_plain_descent_if_impacts_interrupt_steps(tmp_path):
    import golf

    mode = ["--contact-time", "impact", "--search", "descent"]
    found = golf.main(["--quick", "--seeds", "1", "--iterations", "10", *mode, "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"curves.png"}
    losses = found["runs"]["gradient descent"][0]["losses"]
    assert losses[-1] < 0.4 * losses[0]  # with "step" none of them helps: the gradient points uphill


def test_mpc_cost_decreases_with_every_iteration(tmp_path):
    import mpc

    found = mpc.main(["--quick", "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"curves.png"}
    (costs,) = found["costs"]
    assert all(after <= before for before, after in itertools.pairwise(costs)) and costs[-1] < 0.8 * costs[0]


@pytest.fixture
def identify():
    import identify

    torch.set_default_dtype(torch.float64)  # as its main does
    return identify


def test_jacobian_of_recordings_matches_finite_differences(identify):
    model = wa.load("laikago_feet")
    parameters = identify.Parameters(model)
    data = identify.record(model, parameters(torch.zeros(parameters.count)), 4, seed=3)
    estimator = identify.Estimator(parameters, data)
    by_state, by_theta = estimator.jacobian(lambda _: None)
    chance = torch.Generator().manual_seed(1)
    dx, dtheta = torch.randn(4, 2 * model.nv, generator=chance), torch.randn(parameters.count, generator=chance)
    dx, dtheta = 0.1 * dx, dtheta * parameters.prior
    h = 1e-6
    minus, plus = (
        estimator.predict(
            s * h * dtheta, wa.retract(model, data.q[0], s * h * dx[:, : model.nv]), data.qd + s * h * dx[:, model.nv :]
        )
        for s in (-1, 1)
    )
    quotient = wa.difference(model, minus, plus) / (2 * h)
    slope = (by_state @ dx[..., None])[..., 0] + by_theta @ dtheta
    # within h a contact may switch on or off, except for the last two robots, which are in the air: only rounding there
    for robot, tolerance in ((2, 1e-6), (3, 1e-6), (0, 1e-4), (1, 1e-4)):
        off = (slope[:, robot] - quotient[:, robot]).norm() / quotient[:, robot].norm()
        assert off < tolerance, (robot, float(off))


def test_identified_parameters_predict_held_out_motion(identify, tmp_path):
    found = identify.main(["--quick", "--out", str(tmp_path)])
    assert files_of(tmp_path) == MOTION | {"parameters.png"}
    (run,) = found["seeds"]
    assert run["costs"][-1] < 0.1 * run["costs"][0]
    for what, before in run["prediction"]["before"].items():
        assert run["prediction"]["after"][what] < 0.5 * before
    assert np.isfinite(list(run["within_two_sd"].values())).all()
