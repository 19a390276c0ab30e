"""Tasks of the user's own, in a file: trained and played from Python and from the command line."""

import json
import os
import textwrap

import pytest
import torch

import warp_articulated as wa
from warp_articulated import rl
from warp_articulated.cli import main
from warp_articulated.rl.learning.policy_file import load_policy
from warp_articulated.rl.learning.runlog import read_log
from warp_articulated.rl.learning.training import train

TASK = """
from dataclasses import dataclass

import torch
from neighbour import GAIN

import warp_articulated as wa


@dataclass
class Costs:
    action: float = 0.1


class Push(wa.rl.Env):
    dt, substeps, episode_length = 5e-3, 4, 20

    def __init__(self, num_envs=1, *, goal=0.0, **options):
        super().__init__(wa.load("cartpole"), num_envs, **options)
        self.goal, self.costs = goal, Costs()

    def observe(self, state):
        return torch.cat([state.q, state.qd], 1)

    def reward(self, before, action, after):
        return -GAIN * (after.q[:, 0] - self.goal) ** 2 - self.costs.action * (action**2).sum(1)


class Closed(Push):
    def __init__(self, num_envs=1, *, goal=0.0):
        super().__init__(num_envs, goal=goal)


number = 3


class Thing:
    pass
"""
QUICK = {"settings": {"num_envs": 4, "horizon": 4}, "steps": 32, "threads": 1, "device": "cpu"}
WORDS = ("--steps", 32, "--envs", 4, "--set", "horizon=4", "--threads", 1, "--device", "cpu", "--quiet")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with own/task.py and its neighbour."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "task.py").write_text(TASK)
    (tmp_path / "own" / "neighbour.py").write_text("GAIN = 2.0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return main([str(word) for word in words])


def test_a_file_and_a_class_name_a_task():
    env = wa.rl.make("own/task.py:Push", 3, goal=0.5, device="cpu")
    assert type(env).__name__ == "Push" and env.goal == 0.5 and env.reset(0).shape == (3, 4)
    again = wa.rl.make(type(env), 2, device="cpu")
    assert type(again) is type(env) and again.num_envs == 2
    assert wa.rl.make(rl.Cartpole, 1, device="cpu").swing_up is False


@pytest.mark.parametrize("by", ["file", "class"])
def test_train_from_python_and_make_from_the_policy(by, folder):
    task = "own/task.py:Push" if by == "file" else rl.tasks.task_class("own/task.py:Push")
    run = train(task, options={"goal": 0.2}, minutes=1.0, **QUICK)
    assert str(run) == os.path.join("runs", "Push-shac-0")
    assert json.loads((run / "run.json").read_text())["task"] == "task.py:Push"
    found = load_policy(run / "policy.pt")
    assert found.task == "task.py:Push" and str(folder) not in str(found.describe())
    env = found.make(2, task=task, device="cpu")
    assert env.goal == 0.2 and found.policy(env.reset(0)).shape == (2, 1)
    train(task, options={"goal": 0.2}, resume=True, **{**QUICK, "steps": 48})  # the same task


def test_a_file_that_a_policy_names_is_not_run(monkeypatch):
    """Running it would be running a stranger's program."""
    run = train("own/task.py:Push", **QUICK)
    os.rename("own/task.py", "task.py")  # where the policy says it is
    ran = []
    monkeypatch.setattr("warp_articulated.rl.tasks.class_in_file", lambda task: ran.append(task))
    says = (
        r"trained for task\.py:Push, which is not a task of this library; name it: --task task\.py:Push.*that you name"
    )
    with pytest.raises(ValueError, match=says):
        load_policy(run / "policy.pt").make(1)
    assert not ran


def test_train_and_play_from_the_command_line(capsys):
    assert run("train", "own/task.py:Push", *WORDS) == 0
    assert run("train", "--task", "own/task.py:Push", *WORDS, "--resume") == 1
    assert "already has 32 steps" in capsys.readouterr().err  # the same run by the other spelling
    play = ("play", "runs/Push-shac-0", "--episodes", 2, "--threads", 1, "--device", "cpu")
    assert run(*play) == 1
    assert "name it: --task task.py:Push" in capsys.readouterr().err
    assert run(*play, "--task", "own/task.py:Push", "--json", "r.json") == 0
    assert "policy for task.py:Push, trained with shac" in capsys.readouterr().out
    assert json.loads(open("r.json").read())["task"] == "own/task.py:Push"
    assert run(*play, "--task", "Cartpole") == 1
    assert "was trained with observation_size 4, but here Cartpole has 5" in capsys.readouterr().err
    for words, says in (
        (("Ant", "--task", "Ant"), "the task is given twice"),
        ((), "the task is missing; give one: Ant"),
    ):
        assert run("train", *words, "--quiet") == 1
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "error", "says"),
    [
        (
            "nowhere/task.py:Push",
            FileNotFoundError,
            r"there is no file nowhere/task\.py, which should have the task Push",
        ),
        ("own/task.py:Pusch", ValueError, r"own/task\.py has no class Pusch; did you mean Push\?"),
        ("own/task.py:Zzz", ValueError, r"own/task\.py has no class Zzz; its tasks are Push, Closed\."),
        ("own/task.py", ValueError, r"without a class; its tasks are Push, Closed: own/task\.py:Push\."),
        ("own/task.py:Thing", ValueError, r"Thing of own/task\.py is not a task; it must be a subclass of wa\.rl\.Env"),
        ("own/task.py:number", ValueError, r"number of own/task\.py is not a task"),
        ("syntax.py:Push", ValueError, r"syntax\.py cannot be run: line 3: SyntaxError: "),
        ("fails.py:Push", ValueError, r"fails\.py cannot be run: line 3: ZeroDivisionError: division by zero\."),
        ("empty.py:Push", ValueError, r"empty\.py has no class Push; it has no subclass of wa\.rl\.Env\."),
        ("Pusch", ValueError, r"task is 'Pusch'; it must be one of Ant, .*, or a subclass.*task\.py:MyEnv\."),
        (3, ValueError, "task is 3; it must be one of Ant"),
        (torch.nn.Linear, ValueError, "Linear'>; it must be one of Ant"),
    ],
)
def test_errors_say_what_is_wrong(task, error, says, folder):
    (folder / "syntax.py").write_text("x = 1\n\nclass Push(:\n")
    (folder / "fails.py").write_text("x = 1\n\ny = x / 0\n")
    (folder / "empty.py").write_text("")
    for call in (lambda: rl.make(task), lambda: train(task, **QUICK)):
        with pytest.raises(error, match=says):
            call()
    assert not (folder / "runs").exists()


def test_a_class_that_does_not_pass_on_options_is_explained():
    assert rl.make("own/task.py:Closed", 2, goal=1.0).goal == 1.0
    with pytest.raises(
        ValueError, match=r"Closed has no option 'first_env'; it has goal; let Closed.__init__ take \*\*opt"
    ):
        train("own/task.py:Closed", **QUICK)


def test_the_latest_version_of_a_file_is_used(folder):
    assert rl.make("own/task.py:Push", device="cpu").episode_length == 20
    text = textwrap.dedent(TASK).replace("5e-3, 4, 20", "5e-3, 4, 2000")
    (folder / "own" / "task.py").write_text(text)
    assert rl.make("own/task.py:Push", device="cpu").episode_length == 2000


def test_minutes_are_seconds_times_sixty():
    run = train("own/task.py:Push", minutes=0.005, **{**QUICK, "steps": None})
    rows = read_log(run)
    assert rows[-1]["seconds"] >= 0.3 > (rows[-2]["seconds"] if len(rows) > 1 else 0.0)
    with pytest.raises(ValueError, match="seconds and minutes are both given"):
        train("Cartpole", seconds=3.0, minutes=1.0)
    with pytest.raises(ValueError, match="minutes is 0"):
        train("Cartpole", minutes=0.0)
