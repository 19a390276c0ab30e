"""The other commands: info, render, export, bench, doctor; help, version and errors of all commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pxr import Usd

import warp_articulated as wa
from warp_articulated.cli import doctor, main

ROBOT = "laikago_feet"
COMMANDS = ("simulate", "view", "info", "render", "export", "bench", "doctor")


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def film():
    model = wa.load(ROBOT)
    q = np.tile(model.q0, (101, 4, 1)) + 0.05 * np.sin(np.arange(101))[:, None, None]
    result = wa.Trajectory(model, q, 0.01, env_ids=[2, 3, 4, 9])
    result.save("run.npz")
    return result


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert f"examples:\n  warp-articulated {command}" in said and "--debug" in said and "--quiet" in said


def test_version_and_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"warp-articulated {wa.__version__}\n"
    for wrong in ([], ["fly"], ["info"]):
        with pytest.raises(SystemExit) as stop:
            main(wrong)
        assert stop.value.code == 2


def test_info_prints_the_tree_and_the_scenes(capsys):
    assert main(["info", ROBOT]) == 0
    assert capsys.readouterr().out.strip() == str(wa.load(ROBOT))
    assert main(["info", "scenes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == wa.scene_names() and all(len(line.split()) > 3 for line in lines)


def test_info_tells_what_a_gpu_must_have(capsys):
    assert main(["info", ROBOT, "--gpu", "H100", "--max-contacts", "4", "--json", "memory.json"]) == 0
    gpu, heads, forward, adjoint, *_ = capsys.readouterr().out.splitlines()
    assert gpu == "H100 SXM: 132 multiprocessors x 2,048 threads, 80 GB, sm_90"
    assert heads.split() == ["model", "kernel", "stack,", "bytes", "reserved,", "GB", "of", "memory", "fits"]
    with open("memory.json") as file:
        found = json.load(file)
    assert found["gpu"]["memory"] == 80 * 10**9 and found["max_contacts"] == 4 and not found["exact"]
    for row, line in zip(found["rows"], (forward, adjoint), strict=True):
        assert row["reserved_bytes"] == 132 * 2048 * row["stack_bytes"] and row["fits"]
        assert line.split()[:4] == [
            ROBOT,
            row["kernel"],
            f"{row['stack_bytes']:,}",
            f"{row['reserved_bytes'] / 1e9:.2f}",
        ]
    assert main(["info", "laikago", "--gpu", "rtx4090", "--max-contacts", "128", "--dtype", "float64", "--quiet"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and all(line.endswith(" NO") for line in said[1:])


def test_info_of_all_scenes_on_a_gpu(capsys):
    assert main(["info", "scenes", "--gpu", "T4", "--quiet"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[0] for row in rows] == [name for name in wa.scene_names() for _ in range(2)]


def test_info_compiles_for_exact_figures(capsys, monkeypatch):
    from warp_articulated.device import reservation

    monkeypatch.setattr(reservation, "compiled_stack", lambda kernel, arch: 1000 * arch)
    assert main(["info", "box", "--gpu", "L4", "--compile"]) == 0
    assert "forward          89,000" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["info", ROBOT], ["doctor"]])
def test_an_unknown_gpu_lists_the_known(command, capsys):
    assert main([*command, "--gpu", "RTX 9"]) == 1
    assert "The GPU 'RTX 9' is not known. Known are: A100 40 GB," in capsys.readouterr().err


def test_error_is_one_line_without_debug(capsys):
    with open("robot.urdf", "w") as file:
        file.write("<robot name='x'>")
    assert main(["info", "robot.urdf"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("warp-articulated: robot.urdf") and error.count("\n") == 1
    with pytest.raises(wa.ModelError):
        main(["info", "robot.urdf", "--debug"])


def test_unexpected_error_names_its_type(monkeypatch, capsys):
    monkeypatch.setattr(wa, "load", lambda *_, **__: {}["missing"])
    assert main(["info", ROBOT]) == 1
    assert capsys.readouterr().err == "warp-articulated: KeyError: 'missing'\n"


def test_closed_pipe_prints_no_error():
    command = f"{sys.executable} -m warp_articulated info laikago | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("laikago") and done.stderr == ""


def test_urdf_options_reach_the_importer(capsys):
    from robots import SCENES

    path = str(SCENES / "laikago.urdf")
    assert main(["info", path, "--floating", "--drive", "position", "--kp", "77", "--kd", "3"]) == 0
    said = capsys.readouterr().out
    assert "free" in said and "position drive, kp 77, kd 3" in said
    assert main(["info", ROBOT, "--floating"]) == 1
    assert "the option 'floating' does not apply" in capsys.readouterr().err


def test_option_reaches_any_keyword_of_the_importer(capsys):
    from robots import SCENES

    path = str(SCENES / "laikago.urdf")
    assert main(["info", path, "--floating", "--option", "self_collision=false", "--option", "friction=0.25"]) == 0
    assert "17 collision pairs" in capsys.readouterr().out
    assert main(["info", path, "--option", "wings=2"]) == 1
    assert "the option 'wings' does not apply" in capsys.readouterr().err
    assert main(["info", path, "--floating", "--option", "floating=false"]) == 1
    assert "'floating' of the model is given twice" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["info", path, "--option", "wings"])


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["render", ROBOT, "a.png", "--fps", "3"], "--fps"),
        (["render", ROBOT, "a.png", "--follow"], "--follow"),
        (["export", ROBOT, "a.npz", "--layout", "instancer"], "--layout"),
        (["export", ROBOT, "a.npz", "--no-physics"], "--no-physics"),
        (["export", ROBOT, "a.html", "--layout", "hierarchy"], "--layout"),
        (["export", ROBOT, "a.npz", "--env-ids", "0"], "--env-ids"),
        (["render", ROBOT, "a.png", "--end", "1"], "--end"),
        (["simulate", ROBOT, "--env-ids", "0"], "--env-ids"),
        (["simulate", ROBOT, "--fps", "60", "--png", "a.png"], "--fps"),
        (["simulate", ROBOT, "--size", "9x9", "--npz", "a.npz"], "--size"),
        (["simulate", ROBOT, "--gif", "a.gif", "--fps", "60"], "--fps"),
        (["simulate", ROBOT, "--envs", "1000000000"], "--envs"),
        (["info", "scenes", "--floating"], "--floating"),
        (["info", ROBOT, "--max-contacts", "4"], "--max-contacts"),
        (["info", ROBOT, "--compile"], "--compile"),
        (["info", ROBOT, "--json", "a.json"], "--json"),
    ],
)
def test_options_without_effect_are_errors(arguments, option, capsys):
    assert main(arguments) == 1
    assert option in capsys.readouterr().err


def test_render_a_model_and_a_film(film, capsys):
    assert main(["render", ROBOT, "a.png", "--size", "64x36"]) == 0
    assert Image.open("a.png").size == (64, 36)
    assert main(["render", "run.npz", "b.png", "--env-ids", "9", "--end", "0.5", "--size", "64x36"]) == 0
    assert main(["render", "run.npz", "c.gif", "--start", "0.2", "--end", "0.6", "--fps", "10", "--size", "64x36"]) == 0
    assert Image.open("c.gif").n_frames == 5
    np.testing.assert_array_equal(np.array(Image.open("b.png")), wa.render(film.model, film.q[50, 3:], size=(64, 36)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run.npz", "a.bmp"], ".png"),
        (["run.npz", "a.png", "--env-ids", "2,5"], "run.npz has no environment 5; it has 2-4, 9."),
        (["run.npz", "a.gif", "--start", "2"], "is not within run.npz, which has 0 to 1 s"),
        (["run.npz", "a.gif", "--start", "0.5", "--end", "0.2"], "is not within run.npz"),
        (["nothing.npz", "a.png"], "there is no such file"),
    ],
)
def test_render_errors(film, arguments, says, capsys):
    assert main(["render", *arguments]) == 1
    assert says in capsys.readouterr().err


def test_export_format_follows_the_suffix(film, capsys):
    assert main(["export", "run.npz", "run.usda", "--env-ids", "2,9", "--fps", "30"]) == 0
    stage = Usd.Stage.Open("run.usda")
    assert stage.GetEndTimeCode() == 30 and stage.GetPrimAtPath("/World/env_9")
    assert main(["export", "run.npz", "part.npz", "--start", "0.5", "--env-ids", "3"]) == 0
    part = wa.Trajectory.load("part.npz")
    np.testing.assert_array_equal(part.q, film.q[50:, 1:2])
    assert main(["export", ROBOT, "model.npz"]) == 0
    assert str(wa.load("model.npz")) == str(film.model)
    assert main(["export", "model.npz", "still.usda"]) == 0
    assert Usd.Stage.Open("still.usda").GetEndTimeCode() == 0
    assert main(["export", ROBOT, "model.step"]) == 1
    assert ".usdc or .html or .npz" in capsys.readouterr().err


def test_the_input_is_not_overwritten(film, capsys):
    before = Path("run.npz").read_bytes()
    Path("link.npz").symlink_to("run.npz")
    for output in ("run.npz", "./run.npz", "link.npz"):
        assert main(["export", "run.npz", output, "--start", "0.5"]) == 1
        assert "is also the input" in capsys.readouterr().err
    assert Path("run.npz").read_bytes() == before


def test_symlinked_output_is_followed(film, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a.usda", "a.png", "a.npz"):
        Path(name).symlink_to(tmp_path / "data" / name)
        assert main(["render" if name.endswith("png") else "export", "run.npz", name]) == 0
        assert Path(name).is_symlink() and (tmp_path / "data" / name).stat().st_size > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("work", ["simulate", "render"])
def test_signal_leaves_no_incomplete_files(film, number, work):
    if work == "simulate":
        arguments = ["simulate", ROBOT, "--envs", "2048", "--steps", "1000000", "--npz", "out.npz"]
    else:
        arguments = ["render", "run.npz", "out.gif", "--size", "1600x900"]
    process = subprocess.Popen(
        [sys.executable, "-m", "warp_articulated", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs inherit "ignored"
    )  # fmt: skip
    try:
        if work == "simulate":
            while b"ready" not in process.stdout.readline():
                assert process.poll() is None
            time.sleep(0.5)
        else:  # render prints nothing; imports take about 3 s of processor time, so after 7 s it is drawing
            while float(Path(f"/proc/{process.pid}/stat").read_text().split()[13]) < 7.0 * os.sysconf("SC_CLK_TCK"):
                time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number, said
    assert os.listdir() == ["run.npz"]


def test_bench_measures_and_writes(capsys):
    options = ["--envs", "1", "4", "--steps", "10", "--repeat", "1", "--gradient", "--json", "result.json"]
    assert main(["bench", ROBOT, *options]) == 0
    with open("result.json") as file:
        rows = json.load(file)["rows"]
    assert [row["environments"] for row in rows] == [1, 4]
    assert all(row["us_per_step"] > 0 and row["us_backward"] > 0 and not row["diverged"] for row in rows)
    said = capsys.readouterr().out.splitlines()
    assert said[1].split()[0] == "environments" and len(said) == 5


def test_doctor_passes_here(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "warp-lang" in said and "kernel cache" in said and "all checks passed" in said and "FAIL" not in said


def test_doctor_tells_what_robots_reserve_of_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", {})
    assert main(["doctor", "--gpu", "RTX 3060"]) == 0
    said = capsys.readouterr().out
    assert "GPU memory of RTX 3060: 28 multiprocessors x 1,536 threads, 12 GB, sm_86\n    ok  laikago_feet" in said
    assert "forward: stack " in said and " bytes, reserves " in said
    monkeypatch.setattr(doctor, "ROBOTS", ())
    assert main(["doctor"]) == 0
    assert "GPU memory" not in capsys.readouterr().out  # none is here, or no robot is asked for


def test_doctor_reports_a_missing_device_once(capsys):
    assert main(["doctor", "--device", "cuda:7"]) == 1
    assert capsys.readouterr().out.count("There is no device 'cuda:7'") == 1


def test_doctor_reports_failures(monkeypatch, capsys):
    def broken(device):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(doctor, "CHECKS", {"pendulum": broken, "block": lambda device: ("x 1, closed form 2", False)})
    monkeypatch.setattr(doctor, "NEEDED", ("warp-lang", "no-such-package"))
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "FAIL  pendulum         RuntimeError: no compiler" in said
    assert "FAIL  no-such-package  is not installed" in said and "3 checks failed" in said
