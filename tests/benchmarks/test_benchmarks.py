"""The benchmarks run, and refuse to time what is not valid. No timing is asserted."""

import json
import re
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import run_all
from lib import machine, mujoco_twin, reporting
from output import render, usd_export
from speed import gradient, throughput


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
    assert set(results["startup"]) == {"cold", "warm"}
    assert "MuJoCo" in capsys.readouterr().out


def test_gradient_benchmark_measures_and_reports():
    line = gradient.measure(gradient.QUICK, "float32", "early exit 1e-5")
    assert all(line[key] > 0 for key in ("forward", "backward", "backward, parameters", "jacobians"))
    assert line["backward / forward"] == line["backward"] / line["forward"]
    memory = [gradient.rollout_memory(8, 50, every) for every in ("1", "sqrt")]
    assert all(x["state_bytes"] == 4 * 8 * 50 * 37 and x["extra_bytes"] >= 0 for x in memory)
    results = {"cost": [line], "memory": memory, "first_gradient_seconds": {"cold": 20.0, "warm": 0.5}}
    text = gradient.report(results)
    assert "early exit 1e-5" in text["cost"] and "First gradient: 20.0 s" in text["first"]
    assert f"The backward pass takes {line['backward']:.1f} us" in text["headline"]


def test_gradient_benchmark_refuses_robots_that_fell(monkeypatch):
    monkeypatch.setattr(gradient, "stands", lambda model, q: "a robot fell")
    with pytest.raises(SystemExit, match="No figures: float32, early exit 1e-5: a robot fell"):
        gradient.Robots(gradient.QUICK, "float32", "early exit 1e-5", 1)


def test_pictures_are_timed(capsys, tmp_path):
    render.main(["--quick", "--out", str(tmp_path / "render.json")])
    assert "| 4 | 96 x 54 |" in capsys.readouterr().out
    assert (tmp_path / "render.png").exists()


def committed(name):
    return json.loads((machine.RESULTS / f"{name}.json").read_text())


def test_committed_throughput_is_reported():
    results = committed("throughput")
    text = throughput.report(results)
    rows = {
        (r["engine"], r["solver"], r["dtype"], r["batch"], r["threads"]): r["microseconds"] for r in results["laikago"]
    }
    ours = rows["warp_articulated", "early exit", "float32", 4096, 1]
    forced = rows["warp_articulated", "forced", "float32", 4096, 1]
    best = min(rows["MuJoCo", solver, "float64", 1024, 1] for solver in ("CG", "PGS", "Newton"))
    equal = rows["MuJoCo", "PGS, forced", "float64", 1024, 1]
    assert f"ours is {best / ours:.1f} times as fast" in text["headline"]
    assert f"it is {equal / forced:.1f} times as fast" in text["headline"]
    assert len(text["laikago"].splitlines()) == 2 + len(rows)
    assert f"{results['ratios']['second core, batch 4096']:.3g}" in text["ratios"]
    assert f"{results['startup']['cold']['first_step']:.3g}" in text["startup"]


def test_committed_gradients_are_reported():
    results = committed("gradient")
    text = gradient.report(results)
    line = next(
        x for x in results["cost"] if (x["dtype"], x["solver"], x["threads"]) == ("float32", "early exit 1e-5", 1)
    )
    assert f"takes {line['backward']:.1f} us" in text["headline"]
    assert f"{line['backward / forward']:.1f} times the forward step" in text["headline"]
    assert f"{line['jacobians']:.3g}" in text["cost"]
    assert f"{results['memory'][1]['extra_bytes'] / 1e6:.0f} MB with checkpoints" in text["headline"]
    assert f"| {results['memory'][0]['extra_bytes'] / 1e6:.3g} |" in text["memory"]
    assert f"{results['first_gradient_seconds']['cold']:.1f} s" in text["first"]


def test_committed_pictures_and_exports_are_reported():
    results = committed("render")
    assert f"| 1 | 480 x 270 | {results['cases'][0]['picture_ms']:.3g} |" in render.report(results)["table"]
    results = committed("usd_export")
    text = usd_export.report(results)
    assert f"| 4096 x 200 | instancer | {results['exports']['4096 x 200']['seconds']:.3g} |" in text["table"]
    assert f"Newton {results['newton']['version']}" in text["newton"] and "laikago_feet" in text["newton"]
    assert "was not asked" in usd_export.report(results | {"newton": None})["newton"]


@pytest.mark.parametrize("benchmark", [throughput, gradient, render, usd_export], ids=lambda module: module.__name__)
def test_committed_results_are_drawn(benchmark, tmp_path):
    reporting.draw(committed(Path(benchmark.__file__).stem), benchmark.plot, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_readme_lists_every_command_and_result():
    text = (machine.BENCHMARKS / "README.md").read_text("utf-8")
    scripts = re.findall(r"`python (benchmarks/\S+\.py)`", text)
    assert {machine.script(name) for name in run_all.BENCHMARKS} == {machine.ROOT / path for path in scripts}
    assert all(f"`{path.name}`" in text for path in machine.RESULTS.glob("*.json"))
