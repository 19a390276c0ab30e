"""The benchmarks run, and refuse to time what is not valid. No timing is asserted."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import gradient
import machine
import mujoco_twin
import render
import scaling
import throughput


@pytest.fixture(scope="module")
def model():
    return throughput.scene()


def test_mujoco_twin_is_the_same_robot(model):
    m = mujoco_twin.twin(model, solver="Newton", dt=1e-3, iterations=50)  # compares the mass matrices itself
    assert m.opt.timestep == 1e-3 and m.opt.iterations == 50
    np.testing.assert_allclose(m.actuator_forcerange[:, 1], model.effort)
    np.testing.assert_allclose(m.jnt_range[1:], np.stack([model.lower, model.upper], 1)[6:])
    np.testing.assert_allclose(m.geom_friction[:, 0], 1.0)


def test_another_robot_is_refused(model):
    m = mujoco_twin.twin(model, solver="Newton", dt=1e-3, iterations=50)
    mass = model.mass.copy()
    mass[[1, 2]] += [0.1, -0.1]  # the same total
    with pytest.raises(SystemExit, match="mass matrix differs"):
        mujoco_twin._check_same(replace(model, mass=mass), m)
    with pytest.raises(SystemExit, match="weighs"):
        mujoco_twin._check_same(replace(model, mass=1.1 * model.mass), m)


def test_states_that_are_not_valid_are_refused(model):
    q = np.tile(model.q0, (3, 1))
    assert throughput.stands(model, q) == ""
    fallen, lost = q.copy(), q.copy()
    fallen[1, 3:7] = [np.sin(0.3), 0, 0, np.cos(0.3)]
    lost[2, 9] = np.nan
    assert "fell" in throughput.stands(model, fallen)
    assert "not finite" in throughput.stands(model, lost)


def test_chains_have_as_many_links_as_asked_for():
    model = scaling.chain(40)
    assert (model.num_links, model.nq, model.nv, len(model.pairs)) == (40, 40, 40, 0)


def test_description_of_the_machine_has_no_paths():
    facts = machine.describe()
    assert facts["cores"] >= 1 and facts["python"] and facts["mujoco"] == mujoco.__version__
    assert "/" not in json.dumps(facts)


@pytest.mark.slow
def test_quick_throughput_run_writes_valid_results(tmp_path, capsys):
    out = tmp_path / "results" / "throughput.json"
    throughput.main(["--quick", "--out", str(out)])
    results = json.loads(out.read_text())
    rows = results["laikago"]
    assert {r["engine"] for r in rows} == {"warp_articulated", "MuJoCo"}
    assert all(r["contacts"] == [4] and r["microseconds"] > 0 for r in rows)
    assert all(r["iterations"] == 50 for r in rows if r["solver"] == "forced")
    # feet sink into the floor, by less than their radius
    assert all(0 < r["penetration"] < 0.03 for r in rows)
    assert [r["links"] for r in results["chains"]["rows"]] == [10, 20]
    assert set(results["startup"]) == {"cold", "warm"}
    assert "MuJoCo" in capsys.readouterr().out


def test_gradient_benchmark_measures_and_reports():
    line = gradient.measure(gradient.QUICK, "float32", "early exit 1e-5")
    assert all(line[key] > 0 for key in ("forward", "backward", "backward, parameters", "jacobians"))
    assert line["backward / forward"] == line["backward"] / line["forward"]
    memory = gradient.rollout_memory(8, 50, "sqrt")
    assert memory["state_bytes"] == 4 * 8 * 50 * 37 and memory["extra_bytes"] >= 0
    results = {"cost": [line], "memory": [memory], "first_gradient_seconds": {"cold": 20.0, "warm": 0.5}}
    text = gradient.report(results)
    assert "early exit 1e-5" in text and "First gradient: 20.0 s" in text


def test_gradient_benchmark_refuses_robots_that_fell(monkeypatch):
    monkeypatch.setattr(gradient, "stands", lambda model, q: "a robot fell")
    with pytest.raises(SystemExit, match="No figures: float32, early exit 1e-5: a robot fell"):
        gradient.Robots(gradient.QUICK, "float32", "early exit 1e-5", 1)


def test_pictures_are_timed(capsys):
    render.main(["--quick"])
    assert "| 4 | 96 x 54 |" in capsys.readouterr().out
