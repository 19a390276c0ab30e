"""Several processes under torchrun: same result as one process, and a killed process loses no progress."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

# float64: sums over processes are rounded differently, and weights must still agree
COMMON = ["Cartpole", "--algo", "shac", "--option", 'dtype="float64"', "--threads", "1", "--device", "cpu"]
SMALL = ["--set", "num_envs=8", "--set", "horizon=8", "--set", "critic_epochs=2", "--checkpoint-every", "0"]
SMALL += ["--set", "actor_hidden=[16]", "--set", "critic_hidden=[16]", "--evaluate-every", "1000"]


def start(folder, steps, *more, processes=1):
    runner = (
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
    )
    command = [sys.executable, *runner, "-m", "warp_articulated", "train", *COMMON, *SMALL]
    command += ["--folder", str(folder), "--steps", str(steps), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    return out


def checkpoint(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def weights(folder):
    learner = checkpoint(folder)["learner"]
    return torch.cat([x.flatten().double() for part in ("actor", "critic") for x in learner[f"part {part}"].values()])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """1280 steps with one process and with two."""
    folder = tmp_path_factory.mktemp("runs")
    finish(start(folder / "one", 1280))
    out = finish(start(folder / "two", 1280, processes=2))
    return folder, out


def test_two_processes_learn_the_same_as_one(runs):
    folder, out = runs
    one, two = weights(folder / "one"), weights(folder / "two")
    assert checkpoint(folder / "one")["learner"]["iterations"] == 20
    # rounding of 20 iterations; different minibatches, noise or episodes would change the first digits
    torch.testing.assert_close(two, one, rtol=1e-11, atol=1e-13)
    assert out.count("without noise") == 1, "only the first process prints"


def test_killed_process_stops_the_run_with_a_message_and_loses_no_progress(runs):
    folder, _ = runs
    killed = folder / "killed"
    process = start(killed, 1_000_000, processes=2)
    deadline = time.monotonic() + 120
    while not (killed / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert err.count("the same command with --resume continues from there") == 1, err
    reached = checkpoint(killed)["learner"]["steps"]
    assert 0 < reached
    steps = reached + 256
    finish(start(killed, steps, "--resume", processes=2))
    finish(start(folder / "whole", steps, processes=2))
    assert torch.equal(weights(killed), weights(folder / "whole"))
    rows = [(folder / name / "log.csv").read_text().count("\n") for name in ("killed", "whole")]
    assert rows[0] == rows[1] == steps // 64 + 1


def test_num_envs_must_be_a_multiple_of_the_processes(tmp_path):
    process = start(tmp_path / "odd", 64, processes=3)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "num_envs is 8; it must be a multiple of the 3 processes." in err
