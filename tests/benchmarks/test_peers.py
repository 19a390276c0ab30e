"""The contract of benchmarks/peers.py, with ours and MuJoCo C, which need no environment of their own."""

import json
import sys

import numpy as np
import peer_common
import peer_mujoco
import peer_ours
import peer_report
import peer_scene
import peers
import pytest

FEW = ["--batch", "2", "--seconds", "0.01", "--repetitions", "1", "--gradient-steps", "4"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    peer_scene.write(folder)
    return folder


def ask(cls, scene, *arguments):
    return json.loads(
        json.dumps(peer_common.report(cls, peer_common.arguments(["--scene", str(scene), *FEW, *arguments])))
    )


@pytest.mark.parametrize("cls", [peer_ours.Ours, peer_mujoco.MuJoCo])
def test_a_peer_stands_and_tells_its_rate(scene, cls):
    found = ask(cls, scene)
    assert "refused" not in found and found["finite"]
    assert found["steps_per_second"] > 0 and found["mass"] == pytest.approx(25.567)
    judged = peers.judge(peers.wa.load(str(scene / "model.npz")), found)
    assert "refused" not in judged and 0 < judged["penetration_mm"] < 5


@pytest.mark.parametrize(
    ("cls", "variant", "tolerance"),
    # ours is exact up to the differences; MuJoCo's are differences of each step, multiplied
    [(peer_ours.Ours, "float64", 1e-6), (peer_mujoco.MuJoCo, "Newton", 1e-5)],
)
def test_a_gradient_is_compared_with_differences_of_the_same_engine(scene, cls, variant, tolerance):
    found = ask(cls, scene, "--gradient", "--variant", variant)["gradient"]
    assert found["supported"] and found["finite"]
    assert found["difference_noise"] < tolerance and found["relative_error"] < tolerance


class Wrong(peer_mujoco.MuJoCo):
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
    class Off(peer_mujoco.MuJoCo):
        def gradient(self, steps):
            return 1.1 * super().gradient(steps)

    found = ask(Off, scene, "--gradient", "--variant", "Newton")["gradient"]
    assert found["relative_error"] == pytest.approx(0.1, rel=1e-3)


def test_a_peer_that_does_not_install_has_a_sentence(scene, tmp_path, monkeypatch):
    def fails(*arguments, **options):
        raise OSError("It does not install: no such package.")

    monkeypatch.setattr(peers, "python_of", fails)
    plan = peers.Plan((1,), (1,), 10, [])
    found = {"x": peers.measure("x", peers.PEERS["pybullet"], plan, scene, tmp_path)}
    assert peer_report.sentences(found) == ["PyBullet: It does not install: no such package."]


def test_a_run_over_the_limit_has_a_sentence(scene, tmp_path):
    found = peers.ask(sys.executable, peers.PEERS["mujoco"], scene, tmp_path, 0.01, [])
    assert found["refused"].startswith("It took over")


def test_no_environment_takes_torch_without_a_version():
    assert "torch==" in peers.CONSTRAINTS
    packages = [package for steps in peers.ENVIRONMENTS.values() for step in steps for package in step]
    assert all("==" in package for package in packages)
