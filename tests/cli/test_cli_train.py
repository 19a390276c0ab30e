"""`warp-articulated train` and `play`: messages, output files and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from PIL import Image
from pxr import Usd

from warp_articulated import rl
from warp_articulated.cli import main
from warp_articulated.cli.policy_control import PolicyControl
from warp_articulated.rl.learning.policy_file import save_policy
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac

ALONE = ("--threads", 1, "--device", "cpu")
SMALL = (*ALONE, "--set", "horizon=4", "--envs", 4, "--option", "episode_length=20")
OURS = [sys.executable, "-m", "warp_articulated"]


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*words):
    return main([str(word) for word in words])


def write_policy(name="p.pt", task="Cartpole", **options):
    """Write the policy of an untrained actor."""
    env = rl.make(task, 2, device="cpu", threads=1, **options)
    save_policy(name, Shac(env, make_settings(Shac, {"num_envs": 2}), 0).policy, env, options, algorithm="shac")


def test_train_resume_and_play(capsys):
    assert run("train", "Cartpole", *SMALL, "--steps", 32, "--evaluate-every", 0) == 0
    said = capsys.readouterr().out.splitlines()
    assert "16 steps   return " in said[0] and said[2].startswith("return ") and "after 32 steps" in said[2]
    assert said[3] == "wrote " + ", ".join(f"runs/Cartpole-shac-0/{x}" for x in ("policy.pt", "log.csv", "curve.png"))
    assert said[4] == "watch it: warp-articulated play runs/Cartpole-shac-0 --gif film.gif"
    assert run("train", "Cartpole", *SMALL, "--steps", 48) == 1
    assert "runs/Cartpole-shac-0 already contains a run; resume it" in capsys.readouterr().err
    assert run("train", "Cartpole", *SMALL, "--steps", 48, "--resume", "--quiet") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("return ") and "after 48 steps" in line
    assert run("play", "runs/Cartpole-shac-0", "--episodes", 3, *ALONE, "--json", "r.json") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "policy for Cartpole, trained with shac" and said[1].startswith("3 episodes: return ")
    report = json.loads(open("r.json").read())
    assert report["options"] == {"episode_length": 20} and len(report["episodes"]["return"]) == 3
    assert report["mean"]["return"] == pytest.approx(sum(report["episodes"]["return"]) / 3)


def test_films_show_the_selected_episodes(capsys):
    write_policy(episode_length=30)
    films = ("--gif", "p.gif", "--usd", "p.usda", "--png", "p.png", "--size", "64x36")
    chosen = ("--env-ids", "0,2", "--seconds", 0.2, *ALONE)
    assert run("play", "p.pt", "--episodes", 3, *chosen, *films) == 0
    stage = Usd.Stage.Open("p.usda")
    assert [bool(stage.GetPrimAtPath(f"/World/env_{e}")) for e in range(3)] == [True, False, True]
    assert stage.GetTimeCodesPerSecond() == 50 and stage.GetEndTimeCode() == 10  # control steps of 0.02 s
    assert Image.open("p.gif").n_frames == 6 and Image.open("p.png").size == (64, 36)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrote")] == [
        "wrote p.usda", "wrote p.gif", "wrote p.png",
    ]  # fmt: skip


def test_play_view_serves_a_browser(capsys):
    write_policy()
    assert run("play", "p.pt", "--view", "--port", 0, "--seconds", 0.5, "--episodes", 2, *ALONE) == 0
    assert "open http://127.0.0.1:" in capsys.readouterr().out
    assert run("play", "p.pt", "--view", "--gif", "p.gif") == 1
    assert "--gif would have no effect: --view writes no files" in capsys.readouterr().err


def test_export_writes_a_policy_as_programs(capsys):
    write_policy()
    assert run("export", "p.pt", "--torchscript", "program.pt", "--onnx", "p.onnx") == 0
    assert capsys.readouterr().out == "wrote program.pt\nwrote p.onnx\n"
    assert run("play", "program.pt") == 1
    assert "program.pt is a TorchScript program, which is not run" in capsys.readouterr().err
    for words, says in (
        (("p.pt",), "the output is missing; give a file, or --torchscript or --onnx for a policy"),
        (("p.pt", "p.usda", "--onnx", "q.onnx"), "p.usda would not be written"),
        (("p.pt", "--torchscript", "p.pt"), "the output p.pt is also the input"),
        (("p.pt", "--torchscript", "p.onnx"), "must end in .pt"),
        (("p.pt", "--onnx", "q.onnx", "--floating"), "--floating would have no effect: a policy is exported"),
        (("walker", "--onnx", "q.onnx"), "there is no file, run or policy walker"),
    ):
        assert run("export", *words) == 1
        assert says in capsys.readouterr().err
    assert not os.path.exists("q.onnx")


def test_options_and_seeds_reach_the_task(capsys):
    write_policy(episode_length=90)
    results = []
    for words in ((), ("--seed", 1), ("--option", "swing_up=true"), ("--option", "swing_up=False")):
        assert run("play", "p.pt", "--episodes", 2, *ALONE, "--json", "r.json", *words) == 0
        results.append(json.loads(open("r.json").read())["episodes"])
    assert results[0] == results[3] != results[1]
    assert run("play", "p.pt", "--episodes", 2, *ALONE, "--option", 'dtype="float64"') == 0
    assert results[2]["length"] == [90, 90] and max(results[0]["length"]) < 90  # swinging up never terminates


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "Catpole"), "task is 'Catpole'"),
        (("train", "Cartpole", "--set", "gama=1"), "Shac has no setting 'gama'"),
        (("train", "Cartpole", "--set", "num_envs=4", "--envs", "4"), "'num_envs' of the algorithm is given twice"),
        (("train", "Cartpole", "--option", "n=3"), "Cartpole has no option 'n'"),
        (("train", "Cartpole", "--option", "swing_up=no"), "swing_up is 'no'; it must be True or False"),
        (("train", "Cartpole", "--resume"), "runs/Cartpole-shac-0 has no checkpoint.pt"),
        (("train", "Cartpole", "--folder", "file/run"), "file/run"),
        (("train", "Cartpole", "--folder", "file"), "folder is file, which is a file; it must be a folder"),
        (("play", "walker"), "there is no file, run or policy walker"),
        (("play", "p.pt", "--gif", "nowhere/p.gif"), "the folder nowhere does not exist"),
        (("play", "p.pt", "--seconds", "3"), "--seconds would have no effect: no film is written"),
        (("play", "p.pt", "--port", "8000"), "--port would have no effect: --view is not given"),
        (("play", "p.pt", "--png", "p.png", "--env-ids", "99"), "--env-ids names episode 99, but --episodes is 16"),
        (("play", "p.pt", "--option", "num_envs=3"), "num_envs is not a task option here; it is an argument of play"),
        (("train", "Cartpole", "--seed", str(1 << 63)), "seed is 9223372036854775808; it must be below 2**63"),
        (("play", "p.pt", "--option", "n=2"), "was trained with observation_size 4, but here PendulumReach has 7"),
    ],
)
def test_error_messages(words, says, capsys):
    open("file", "x").close()
    if words[0] == "play":
        write_policy(task="PendulumReach", n=1)
    assert run(*words) == 1
    said = capsys.readouterr().err
    assert says in said and "Traceback" not in said and not os.path.exists("runs")


@pytest.mark.parametrize("wrong", [["--algo", "dqn"], ["--minutes", "0"], ["--envs", "0"], ["--set", "gamma"]])
def test_wrong_options_are_usage_errors(wrong):
    with pytest.raises(SystemExit) as stop:
        main(["train", "Cartpole", *wrong])
    assert stop.value.code == 2


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_run_says_how_to_resume(sent, code):
    command = [*OURS, "train", "Cartpole", *map(str, SMALL), "--checkpoint-every", "1000", "--folder", "r"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    # shells make background jobs ignore Ctrl-C, and children inherit that
    with subprocess.Popen(command, **pipes, preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL)) as process:
        while not os.path.exists("r/log.jsonl") and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(sent)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code
    steps = torch.load("r/checkpoint.pt", weights_only=True)["learner"]["steps"]
    assert said == (
        "\nstopping after this iteration; repeat to stop at once, without saving\n"
        f"warp-articulated: stopped. r/checkpoint.pt was written at step {steps:,}; the same command with --resume "
        "continues from there.\n"
    )


@pytest.mark.slow
def test_loss_of_the_first_process_is_reported_by_another():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "warp_articulated"]
    command = [*torchrun, "train", "Cartpole", *map(str, SMALL), "--checkpoint-every", "0", "--folder", "r"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not os.path.exists("r/checkpoint.pt") and process.poll() is None:
            time.sleep(0.05)
        children = open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()
        (victim,) = [c for c in children if "\0RANK=0\0" in open(f"/proc/{c}/environ").read()]
        os.kill(int(victim), signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    lines = [line for line in said.splitlines() if line.startswith("warp-articulated: ")]
    assert len(lines) == 1 and "a process of the run was lost" in lines[0]
    assert "--resume continues from there" in lines[0]


def test_policy_control_matches_env_step():
    """Same actions and memory as `Env.step`, for a task with memory: last action and command."""
    env = rl.make("LaikagoWalk", 2, device="cpu", threads=1, push=0.0, randomise=False)
    policy = Shac(env, make_settings(Shac, {"num_envs": 2}), 0).policy
    env.reset(3)
    state = env.fresh(2, 3)
    control = PolicyControl(env, policy, state)
    with torch.no_grad():
        for k in range(3):
            now = env.state
            u = control(k * env.control_dt, now.q, now.qd)
            action = policy(env.observe(now))
            torch.testing.assert_close(u, env.control(now, action))
            torch.testing.assert_close(control(k * env.control_dt, now.q, now.qd), u)  # called twice
            env.step(action)
        first = control(0.0, state.q, state.qd)  # the viewer was reset
        torch.testing.assert_close(first, env.control(state, policy(env.observe(state))))


def test_included_policies_play():
    """The task of every included policy exists and fits the policy."""
    from warp_articulated.rl.learning.policies import policy_names, policy_path
    from warp_articulated.rl.learning.policy_file import load_policy

    for name in policy_names():
        found = load_policy(policy_path(name))
        env = found.make(1, device="cpu")
        assert (env.observation_size, env.action_size) == (found.info["observation_size"], found.info["action_size"])
        action = found.policy(env.reset())
        assert action.shape == (1, env.action_size) and action.abs().max() <= 1
