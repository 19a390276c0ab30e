"""The command line with a simulator that only stands still: options, files, messages and exit codes."""

import types

import numpy as np
import pytest
import torch
from display_model import display_model
from PIL import Image
from pxr import Usd

import warp_articulated as wa
from warp_articulated.cli import joint_offsets, main
from warp_articulated.model import JointType


class StandStill:
    """Has the Simulator's interface, but every state is the last one."""

    device = "cpu"
    diverged = torch.zeros(0, dtype=torch.long)

    def __init__(self, model, num_envs, **_):
        self.model, self.num_envs = model, num_envs

    def initial_state(self):
        return torch.tensor(self.model.q0).repeat(self.num_envs, 1), torch.zeros(self.num_envs, self.model.nv)

    def rollout(self, q, qd, u):
        assert u.shape[1:] == (self.num_envs, self.model.nu)
        return q.expand(len(u) + 1, *q.shape).clone(), qd.expand(len(u) + 1, *qd.shape)


@pytest.fixture
def still(monkeypatch):
    monkeypatch.setattr(wa, "load", lambda *_, **__: display_model(), raising=False)
    monkeypatch.setattr(wa, "Simulator", StandStill, raising=False)


def test_simulate_writes_a_film_and_a_picture(still, tmp_path, capsys):
    film, picture = tmp_path / "run.usdc", tmp_path / "end.png"
    options = ["--envs", "20", "--steps", "120", "--perturb", "0.1", "--usd", str(film), "--png", str(picture)]
    assert main(["simulate", "any", *options]) == 0
    stage = Usd.Stage.Open(str(film))
    assert stage.GetEndTimeCode() == 7  # 0.12 s at 60 frames per second
    assert stage.GetPrimAtPath("/World/env_15") and not stage.GetPrimAtPath("/World/env_16")
    assert Image.open(picture).size == (960, 540)
    said = capsys.readouterr().out
    assert "2,400 environment steps" in said and "real time" in said


def test_diverged_environments_are_told_and_left_out(still, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(StandStill, "diverged", torch.tensor([1]))
    rollout = StandStill.rollout

    def diverging(self, q, qd, u):
        qs, qds = rollout(self, q, qd, u)
        qs[1:, 1] = torch.nan
        return qs, qds

    monkeypatch.setattr(StandStill, "rollout", diverging)
    film = tmp_path / "run.usda"
    assert main(["simulate", "any", "--envs", "3", "--steps", "60", "--usd", str(film)]) == 3
    assert "1 of 3 environments diverged: 1" in capsys.readouterr().err
    stage = Usd.Stage.Open(str(film))
    assert [bool(stage.GetPrimAtPath(f"/World/env_{e}")) for e in range(3)] == [True, False, True]


def test_an_unwritable_path_is_told_before_the_work(still, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(StandStill, "rollout", lambda *_: pytest.fail("it must not simulate"))
    assert main(["simulate", "any", "--usd", str(tmp_path / "nowhere" / "run.usd")]) == 1
    error = capsys.readouterr().err
    assert "nowhere does not exist" in error and "Traceback" not in error


def test_an_error_is_one_line_unless_debugging(monkeypatch, capsys):
    def load(*_):
        raise ValueError("robot.urdf: it is broken.")

    monkeypatch.setattr(wa, "load", load, raising=False)
    assert main(["info", "robot.urdf"]) == 1
    assert capsys.readouterr().err == "warp-articulated: robot.urdf: it is broken.\n"
    with pytest.raises(ValueError, match="broken"):
        main(["info", "robot.urdf", "--debug"])


@pytest.mark.parametrize("wrong", [["--envs", "0"], ["--dt", "-1"], ["--dtype", "float16"], ["--steps", "some"]])
def test_wrong_options_are_usage_errors(wrong):
    with pytest.raises(SystemExit) as stop:
        main(["simulate", "any", *wrong])
    assert stop.value.code == 2


def test_offsets_move_single_joints_only_and_keep_limits():
    model = display_model()
    limited = types.SimpleNamespace(**{k: getattr(model, k) for k in ("joint_type", "q_start", "v_start", "q0", "nq")})
    limited.lower, limited.upper = np.full(model.nv, -np.inf), np.full(model.nv, 0.61)
    offsets = joint_offsets(limited, 100, 0.2, seed=1)
    single = model.q_start[np.isin(model.joint_type, (JointType.REVOLUTE, JointType.PRISMATIC))]
    assert np.flatnonzero(np.abs(offsets).max(0)).tolist() == sorted(single.tolist())
    assert (model.q0 + offsets)[:, single].max() <= 0.61 + 1e-12
    np.testing.assert_array_equal(offsets, joint_offsets(limited, 100, 0.2, seed=1))
