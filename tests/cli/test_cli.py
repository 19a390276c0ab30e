"""`warp-articulated simulate`: output files hold what the simulator computed; options, messages and exit codes."""

import os
import pty
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from display_model import display_model
from PIL import Image
from pxr import Usd

import warp_articulated as wa
from warp_articulated.cli import main
from warp_articulated.cli.control import joint_offsets, random_range
from warp_articulated.model import JointType

ROBOT = "laikago_feet"  # its kernels are compiled for other tests too


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def simulate(*options):
    return main(["simulate", ROBOT, *map(str, options)])


def test_all_outputs_of_one_run(tmp_path, capsys):
    small = ("--size", "64x36", "--perturb", 0.1)
    files = ("--usd", "run.usdc", "--png", "end.png", "--gif", "run.gif", "--npz", "run.npz")
    assert simulate("--envs", 5, "--steps", 120, *small, *files) == 0
    film = wa.Trajectory.load("run.npz")
    assert film.q.shape == (121, 5, film.model.nq) and film.u.shape == (120, 5, film.model.nu)
    stage = Usd.Stage.Open("run.usdc")
    assert stage.GetEndTimeCode() == 7  # 0.12 s at 60 frames per second
    assert stage.GetPrimAtPath("/World/env_4")
    assert Image.open("end.png").size == (64, 36)
    assert Image.open("run.gif").n_frames == 4  # 25 frames per second
    said = capsys.readouterr().out
    assert "600 environment steps" in said and "steps/s" in said and "real time" in said
    assert sorted(os.listdir()) == ["end.png", "run.gif", "run.npz", "run.usdc"]


def test_npz_data_equal_a_rollout_of_the_simulator(capsys):
    assert simulate("--envs", 2, "--steps", 70, "--perturb", 0.1, "--seed", 3, "--npz", "run.npz") == 0
    film = wa.Trajectory.load("run.npz")
    sim = wa.Simulator(wa.load(ROBOT), num_envs=2)
    q, qd = sim.initial_state()
    q = q + torch.as_tensor(joint_offsets(sim.model, 2, 0.1, 3)).to(q)
    qs, qds = sim.rollout(q, qd, sim.initial_control().repeat(70, 1, 1))
    np.testing.assert_array_equal(film.q, qs.numpy())
    np.testing.assert_array_equal(film.qd, qds.numpy())
    np.testing.assert_array_equal(film.u[0], sim.initial_control().numpy())


def test_control_file_repeats_a_run(capsys):
    common = ("--envs", 3, "--perturb", 0.1, "--npz")
    assert simulate(*common, "first.npz", "--steps", 130, "--control", "random", "--seed", 5) == 0
    assert simulate(*common, "second.npz", "--control", "first.npz", "--seed", 5) == 0
    first, second = np.load("first.npz"), np.load("second.npz")
    for name in ("q", "qd", "u"):
        np.testing.assert_array_equal(first[name], second[name])
    assert np.ptp(first["u"], axis=(0, 1)).min() > 0.1  # it moved
    assert simulate("--steps", 131, *common, "third.npz", "--control", "first.npz") == 1
    assert "first.npz has controls for 130 steps, but --steps asks for 131." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"v": np.zeros((5, 12))}, "array u is missing"),
        ({"u": np.zeros((5, 3))}, r"u has shape (5, 3)"),
        ({"u": np.zeros((5, 7, 12))}, r"u has shape (5, 7, 12)"),
        ({"u": np.full((5, 12), np.nan)}, "non-finite"),
    ],
)
def test_wrong_control_file_is_reported(arrays, says, capsys):
    np.savez("u.npz", **arrays)
    assert simulate("--envs", 2, "--control", "u.npz") == 1
    assert says in capsys.readouterr().err
    assert simulate("--control", "walk") == 1
    assert "it must be hold, zero, random or an .npz file" in capsys.readouterr().err


def test_only_selected_environments_are_written(capsys):
    assert simulate("--envs", 6, "--steps", 20, "--env-ids", "1,3-4", "--usd", "run.usda", "--npz", "run.npz") == 0
    assert wa.Trajectory.load("run.npz").env_ids.tolist() == [1, 3, 4]
    stage = Usd.Stage.Open("run.usda")
    assert [bool(stage.GetPrimAtPath(f"/World/env_{e}")) for e in range(6)] == [False, True, False, True, True, False]
    assert simulate("--envs", 3, "--env-ids", "1,3", "--npz", "run.npz") == 1
    assert "--env-ids names environment 3, but --envs is 3." in capsys.readouterr().err


def test_diverged_environments_are_reported(monkeypatch, capsys):
    calls = iter([[], [1], [], []])  # diverges in the first chunk only, after the launch that compiles
    monkeypatch.setattr(wa.Simulator, "diverged", property(lambda self: torch.tensor(next(calls, []))))
    monkeypatch.setattr(wa.Simulator, "_report", lambda *_: None)
    assert simulate("--envs", 3, "--steps", 120, "--quiet") == 3
    assert "1 of 3 environments diverged and were stopped: " in capsys.readouterr().err


def test_real_divergence_is_reported_and_the_film_is_still_written(capsys):
    np.savez("u.npz", u=np.full((3, 8), 1e30))
    assert main(["simulate", "ant", "--control", "u.npz", "--dt", "0.1", "--npz", "run.npz"]) == 3
    assert "1 of 1 environments diverged" in capsys.readouterr().err
    assert np.isfinite(np.load("run.npz")["q"]).all()


def test_unwritable_path_is_reported_before_simulating(monkeypatch, capsys):
    monkeypatch.setattr(wa.Simulator, "rollout", lambda *_: pytest.fail("it must not simulate"))
    for option, name in (("--usd", "run.usd"), ("--gif", "run.gif"), ("--npz", "run.npz"), ("--png", "run.png")):
        assert simulate(option, f"nowhere/{name}") == 1
        error = capsys.readouterr().err
        assert "nowhere does not exist" in error and "Traceback" not in error
    assert simulate("--usd", "run.obj") == 1
    assert ".usdc" in capsys.readouterr().err


def test_quiet_prints_the_throughput_only(capsys):
    assert simulate("--steps", 10, "--quiet", "--png", "x.png", "--size", "32x18") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 and "steps/s" in out and err == ""


def test_no_progress_bar_without_a_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "warp_articulated", "simulate", "cartpole", "--steps", "20"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "\r" not in done.stderr + done.stdout and done.stderr == ""


def test_progress_bar_on_a_terminal():
    mine, its = pty.openpty()
    command = [sys.executable, "-m", "warp_articulated", "simulate", ROBOT, "--envs", "64", "--steps", "20000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its) as process:
        os.close(its)
        shown = b""
        while b"% " not in shown:
            part = os.read(mine, 1000)
            if not part:
                break
            shown += part
        process.kill()
    os.close(mine)
    assert b"simulating [" in shown and b"steps/s" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        ["--envs", "0"], ["--dt", "-1"], ["--dtype", "float16"], ["--steps", "some"], ["--fps", "0"],
        ["--env-ids", "3-1"], ["--env-ids", "1,1"], ["--size", "12"], ["--seed", "-1"],
    ],
)  # fmt: skip
def test_wrong_options_are_usage_errors(wrong, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["simulate", ROBOT, *wrong])
    assert stop.value.code == 2
    assert "error: argument" in capsys.readouterr().err


def test_offsets_move_only_single_dof_joints_and_respect_limits():
    model = display_model()
    limited = types.SimpleNamespace(**{k: getattr(model, k) for k in ("joint_type", "q_start", "v_start", "q0", "nq")})
    limited.lower, limited.upper = np.full(model.nv, -np.inf), np.full(model.nv, 0.61)
    offsets = joint_offsets(limited, 100, 0.2, seed=1)
    single = model.q_start[np.isin(model.joint_type, (JointType.REVOLUTE, JointType.PRISMATIC))]
    assert np.flatnonzero(np.abs(offsets).max(0)).tolist() == sorted(single.tolist())
    assert (model.q0 + offsets)[:, single].max() <= 0.61 + 1e-12
    np.testing.assert_array_equal(offsets, joint_offsets(limited, 100, 0.2, seed=1))


@pytest.mark.parametrize("scene", wa.scene_names())
def test_random_controls_stay_within_the_limits(scene):
    model = wa.load(scene)
    low, high = random_range(model)
    assert (low <= high).all() and np.isfinite([low, high]).all()
    torque = model.drive_type == 0
    assert (np.abs(high * model.gear)[torque] <= np.maximum(model.effort[torque], np.abs(model.gear[torque]))).all()
    dof = model.drive_dof[model.drive_type == 1]
    target = (high * model.gear)[model.drive_type == 1]
    assert (target <= model.upper[dof] + 1e-12).all()
