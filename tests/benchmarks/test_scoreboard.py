"""The gradient scoreboard: exact answers against other ways to get them, and verdicts that can be bad."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

from engines import mjcf, mujoco, ours, scoreboard
from gradients import cases, gradient_truth, scoreboard_report

# -- the exact answers


def quotient(case, name, delta=1e-5):
    ends = [replace(case, inputs=case.inputs | {name: case.inputs[name] + side * delta}) for side in (1, -1)]
    up, down = (case.truth(end).value for end in ends)
    return (up - down) / (2 * delta)


@pytest.mark.parametrize("name", ["S1", "S2", "I1", "W", "D"])
def test_exact_gradients_are_those_of_the_exact_path(name):
    case = cases.CASES[name]
    truth = case.truth(case)
    for x in case.inputs:
        expected = 0.0 if x == "m" else quotient(case, x)
        if name == "I1" and x == "v0":
            expected = case.span
        assert truth.gradient[x] == pytest.approx(expected, rel=1e-6, abs=1e-9), x


def test_exact_answers_are_the_closed_forms():
    wall, drop = (cases.CASES[name].truth(cases.CASES[name]) for name in "WD")
    assert wall.gradient["y0"] == pytest.approx(-0.5) and wall.gradient["v0"] == pytest.approx(-0.5 * 1.5)
    speed, left = np.sqrt(2 * cases.G), 0.8 - np.sqrt(2 / cases.G)
    assert drop.gradient["y0"] == pytest.approx(1.5 * cases.G * left / speed - 0.5)
    stick = cases.CASES["I2"].truth(cases.CASES["I2"])
    assert stick.value == 0 and set(stick.gradient.values()) == {0.0}


def test_the_pendulum_is_that_of_the_variational_equation():
    case = cases.CASES["P"]
    truth = case.truth(case)
    exact = gradient_truth.pendulum_true(case.span)
    assert [truth.gradient[x] for x in cases.ROD] == pytest.approx(list(exact), rel=1e-7)


def test_the_double_pendulum_keeps_its_energy_and_is_that_of_scipy():
    case = replace(cases.CASES["C 1 s"], span=0.5)
    start = np.array(list(case.inputs.values()))
    end = solve_ivp(lambda _, y: cases.double_slope(y, None), (0, 0.5), start, rtol=1e-11, atol=1e-12).y[:, -1]
    assert case.truth(case).value == pytest.approx(end[1], abs=1e-8)

    def energy(y):
        first, second, w1, w2 = y[0], y[0] + y[1], y[2], y[2] + y[3]
        speed1 = 0.25 * w1**2
        x = np.array([np.cos(first) * w1 + 0.5 * np.cos(second) * w2, np.sin(first) * w1 + 0.5 * np.sin(second) * w2])
        height = -0.5 * np.cos(first) - np.cos(first) - 0.5 * np.cos(second)
        return 0.5 * (speed1 + x @ x) + 0.01 * (w1**2 + w2**2) + cases.G * height

    assert energy(end) == pytest.approx(energy(start), abs=1e-6)


def test_the_spin_turns_as_quaternions_do():
    q = cases.turned_start({"rx": 0.1, "ry": -0.2, "rz": 0.3, "length_q": 1.0})
    angle = 2 * np.arctan(np.linalg.norm([0.05, -0.1, 0.15]))  # a small vector is a turn up to its third order
    axis = np.array([0.1, -0.2, 0.3]) / np.linalg.norm([0.1, -0.2, 0.3])
    expected = Rotation.from_rotvec(angle * axis).as_matrix() @ Rotation.from_quat(cases.SPIN_START).as_matrix()
    assert cases.matrix(q) == pytest.approx(expected, abs=1e-12)
    case = cases.CASES["Q"]
    for k, name in enumerate(("rx", "ry", "rz", "length_q")):
        up, down = (cases.turned_start(case.inputs | {name: case.inputs[name] + s * 1e-6}) for s in (1, -1))
        slope = (up - down) / 2e-6
        for part in range(4):
            assert cases.spin_chain(np.eye(4)[part], np.zeros(3))[name] == pytest.approx(slope[part], abs=1e-8), k


@pytest.mark.parametrize("releases", [True, False])
def test_a_spring_bounces_with_the_restitution_asked_for(releases):
    k, c = cases.spring(0.5, 0.05, releases)
    depth, speed, h, time = 0.0, 1.0, 1e-6, 0.0
    while True:
        force = max(k * depth + c * (speed if releases else max(speed, 0.0)), 0.0)
        speed -= h * force
        depth += h * speed
        time += h
        if depth <= 0 or (speed < 0 and force == 0):
            break
    assert -speed == pytest.approx(0.5, rel=1e-3) and 0.02 < time < 0.06


# -- verdicts


@pytest.mark.parametrize(
    ("gradient", "noise", "said"),
    [(1.0, 0.0, "right"), (1.0 + 1e-6, 0.0, "right"), (1.1, 0.0, "wrong"), (-1.0, 0.01, "wrong"),
     (1.015, 0.01, "right"), (None, 0.0, "NaN"), (float("nan"), 0.0, "NaN"), (1.3, 0.2, "not resolved"),
     (99.0, 0.2, "not resolved")],
)  # fmt: skip
def test_verdicts(gradient, noise, said):
    assert scoreboard_report.verdict(gradient, 1.0, 1.0, 1e-5, noise)[0] == said


class Sliding(scoreboard.Scoreboard):
    """Semi-implicit Euler of case S1 written out, with a fault if asked for."""

    name, package, method, contact = "by hand", "numpy", "by hand", "Coulomb"
    models = ("slide",)
    fault = 1.0

    def value(self, case, x):
        place, speed, h = 0.0, x["v0"], self.dt(case)
        for _ in range(self.steps(case)):
            speed -= h * x["mu"] * cases.G
            place += h * speed
        return place

    def gradient(self, case):
        n, h = self.steps(case), self.dt(case)
        return {"v0": h * n, "mu": self.fault * -cases.G * h * h * n * (n + 1) / 2}


def row(engine, *names):
    found = scoreboard.report(engine, list(names))
    judged = {case: scoreboard_report.judge(case, said, engine.dtype) for case, said in found["cases"].items()}
    return {"label": engine.name, **found, "cases": judged}


@pytest.mark.parametrize(("fault", "said"), [(1.0, "right"), (1.1, "wrong"), (float("nan"), "NaN")])
def test_a_faulty_gradient_shows_in_both_tables(fault, said):
    engine = Sliding()
    engine.fault = fault
    found = json.loads(json.dumps({"engines": {"hand": row(engine, "S1", "W")}}, allow_nan=False))
    by_mu = found["engines"]["hand"]["cases"]["S1"]["inputs"]["mu"]
    assert by_mu["self"] == by_mu["true"] == said
    parts = scoreboard_report.report(found)
    assert set(parts) == {"self", "true", "summary", "numbers", "notes"}
    for kind in ("self", "true"):
        assert said in parts[kind] and "not supported" in parts[kind]
        assert ("right: v0" in parts[kind]) == (said != "right")
    assert "m of S1: It has no derivative by this input." in parts["notes"]


def test_another_motion_is_reported():
    class Sticky(Sliding):
        def value(self, case, x):
            return 0.5 * super().value(case, x)

    found = {"engines": {"hand": row(Sticky(), "S1")}}
    assert "forward motion differs by 35 %" in scoreboard_report.notes(found)
    assert found["engines"]["hand"]["cases"]["S1"]["inputs"]["v0"]["self"] == "wrong"


def test_an_engine_that_fails_has_the_reason():
    class Broken(Sliding):
        def gradient(self, case):
            raise RuntimeError("no such thing")

    found = {"engines": {"hand": row(Broken(), "S1")}}
    parts = scoreboard_report.report(found)
    assert "failed" in parts["self"] and "RuntimeError: no such thing" in parts["notes"]


# -- engines


def test_mujoco_differentiates_what_it_can():
    found = row(mujoco.Scoreboard(), "S1", "Q")
    slide, spin = (found["cases"][case]["inputs"] for case in ("S1", "Q"))
    assert slide["v0"]["self"] == slide["v0"]["true"] == "right"
    assert "unsupported" in slide["mu"] and "unsupported" in spin["length_q"]
    assert {spin[x][kind] for x in ("rx", "ry", "rz") for kind in ("self", "true")} == {"right"}


def test_the_springs_of_mujoco_bounce_with_half_of_the_speed():
    from mujoco import MjData, MjModel, mj_step

    for name, speed in (("W", 1.3), ("D", np.sqrt(2 * cases.G))):
        m = MjModel.from_xml_string(mjcf.mjcf(cases.CASES[name], 1e-4, "pyramidal"))
        m.opt.gravity[:] = 0.0
        d = MjData(m)
        d.qpos[0], d.qvel[0] = 0.01, -speed
        mj_step(m, d, 1500)
        assert d.qvel[0] / speed == pytest.approx(0.5, abs=0.01)


def test_ours_is_right_about_its_program_and_wrong_about_the_wall():
    found = row(ours.Scoreboard(), "S1", "W", "Q")
    for case in found["cases"].values():
        assert {entry["self"] for entry in case["inputs"].values()} == {"right"}
    wall = found["cases"]["W"]["inputs"]
    # the step of the hit does not move with the start: even the sign is wrong, and the scoreboard says so
    assert (wall["y0"]["true"], wall["v0"]["true"], wall["e"]["true"]) == ("wrong", "wrong", "right")
    assert wall["y0"]["gradient"] == pytest.approx(1.0)


def test_ours_with_the_time_of_impact_is_right_about_wall_and_drop():
    found = row(ours.Scoreboard("impact"), "W", "D")
    for case in found["cases"].values():
        for entry in case["inputs"].values():
            assert (entry["self"], entry["true"]) == ("right", "right")


def test_the_picture_is_drawn(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure()
    scoreboard_report.plot({"engines": {"hand": row(Sliding(), "S1")}}, figure)
    figure.savefig(tmp_path / "grid.png")
    assert len(figure.axes) == 2
