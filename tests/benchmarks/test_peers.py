"""The standing robot of benchmarks/speed/peers.py, with ours and MuJoCo C, which run in the tests' own environment."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from engines import environments, mujoco, ours, registry, standing
from speed import peers, peers_report, standing_scene

FEW = ["--batch", "2", "--seconds", "0.01", "--repetitions", "1", "--gradient-steps", "4"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    standing_scene.write(folder)
    return folder


def ask(cls, scene, *arguments):
    return json.loads(json.dumps(standing.report(cls, standing.arguments(["--scene", str(scene), *FEW, *arguments]))))


@pytest.mark.parametrize("cls", [ours.Standing, mujoco.Standing])
def test_an_engine_stands_and_reports_its_rate(scene, cls):
    found = ask(cls, scene)
    assert "refused" not in found and found["finite"]
    assert found["steps_per_second"] > 0 and found["mass"] == pytest.approx(25.567)
    judged = peers.judge(peers.wa.load(str(scene / "model.npz")), found)
    assert "refused" not in judged and 0 < judged["penetration_mm"] < 5


@pytest.mark.parametrize(
    ("cls", "variant", "tolerance"),
    # ours is exact up to the differences; MuJoCo's are differences of each step, multiplied
    [(ours.Standing, "float64", 1e-6), (mujoco.Standing, "Newton", 1e-5)],
)
def test_a_gradient_is_compared_with_differences_of_the_same_engine(scene, cls, variant, tolerance):
    found = ask(cls, scene, "--gradient", "--variant", variant)["gradient"]
    assert found["supported"] and found["finite"]
    assert found["difference_noise"] < tolerance and found["relative_error"] < tolerance


class Wrong(mujoco.Standing):
    """An engine that may be given a fault."""

    weight, sink = 1.0, 0.0

    def mass(self):
        return self.weight * super().mass()

    def state(self):
        q, qd = super().state()
        q[:, 2] -= self.sink
        return q, qd


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [({"weight": 1.1}, "It weighs"), ({"sink": 0.05}, "does not stand"), ({"sink": np.nan}, "not finite")],
)
def test_an_engine_that_simulates_something_else_is_refused(scene, fault, sentence):
    found = ask(type("Faulty", (Wrong,), fault), scene)
    assert sentence in found["refused"] and "steps_per_second" not in found


def test_a_wrong_gradient_shows(scene):
    class Off(mujoco.Standing):
        def gradient(self, steps):
            return 1.1 * super().gradient(steps)

    found = ask(Off, scene, "--gradient", "--variant", "Newton")["gradient"]
    assert found["relative_error"] == pytest.approx(0.1, rel=1e-3)


def test_an_engine_that_does_not_install_has_the_reason(scene, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise OSError("It does not install: no such package.")

    monkeypatch.setattr(peers, "python_of", fails)
    plan = peers.Plan((1,), (1,), 10, [])
    found = {"x": peers.measure("x", registry.STANDING["pybullet"], plan, scene, tmp_path)}
    assert peers_report.sentences(found) == ["PyBullet: It does not install: no such package."]


def test_a_run_over_the_limit_has_the_reason(scene, tmp_path):
    found = environments.ask(sys.executable, registry.STANDING["mujoco"], tmp_path, 0.01, ["--scene", str(scene)])
    assert found["refused"].startswith("It took over")


def test_no_environment_takes_torch_without_a_version():
    assert "torch==" in environments.CONSTRAINTS
    packages = [package for steps in environments.ENVIRONMENTS.values() for step in steps for package in step]
    assert all("==" in package for package in packages)


def test_an_engine_answers_from_its_own_process(scene, tmp_path):
    """benchmarks/engines has files named after engines' packages, which must not be imported in their place."""
    found = environments.ask(
        sys.executable, registry.STANDING["mujoco"], tmp_path, 120, ["--scene", str(scene), "--gradient", *FEW]
    )
    assert found["name"] == "MuJoCo C, CG" and found["gradient"]["finite"]


def test_every_row_has_a_file_and_an_environment():
    for row in (*registry.STANDING.values(), *registry.SCOREBOARD.values()):
        text = (Path(environments.__file__).parent / f"{row.engine}.py").read_text("utf-8")
        asked = not getattr(row, "unsupported", "")
        assert (f"class {row.role.capitalize()}(" in text) == asked, f"{row.engine}, {row.role}"
        assert row.environment is None or row.environment in environments.ENVIRONMENTS
    for row in registry.SCOREBOARD.values():
        assert bool(row.standing) + bool(row.no_standing) + bool(row.unsupported) == 1
        assert not row.standing or row.standing in registry.STANDING
