"""One rule for every kind of command in README and docs: how to run it quickly, or how to check it.

`check(command, folder)` returns if the command is correct, and fails with a message otherwise.
"""

import re
import runpy
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from doc_pages import ROOT, Command
from mjcf_oracle import ASSETS

import warp_articulated as wa
from warp_articulated.cli import _parser, main
from warp_articulated.cli.console import loader_option

ROBOT = "laikago_feet"  # its kernels are compiled for other tests too
TASKS = {task: "Cartpole" for task in wa.rl.TASKS if task != "PendulumReach"}
STANDS_FOR = {"cuda:0": "cpu", "laikago": ROBOT, "ant": ROBOT, "COMMAND": "simulate", "n=3": "n=1", **TASKS}
MOST = {"--envs": 16, "--steps": 20, "--repeat": 1, "--episodes": 16}
SMALL = "64x36"
OUTPUT_OPTIONS = ("--usd", "--gif", "--png", "--npz", "--json", "--torchscript", "--onnx")
TASK_FILE = "import warp_articulated as wa\n\n\nclass Squat(wa.rl.Cartpole):\n    pass\n"
VARIABLES = {"ENVS": "32", "STEPS": "60"}


def fill(folder: Path) -> None:
    """Write the files that the pages assume: robot.urdf, robot.xml, robot.npz, run.npz, u.npz, task.py."""
    shutil.copy(ROOT / "scenes" / "laikago.urdf", folder / "robot.urdf")
    shutil.copy(ASSETS / "ant.xml", folder / "robot.xml")
    model = wa.load(ROBOT)
    model.save(folder / "robot.npz")
    q = np.tile(model.q0, (101, 16, 1)) + 0.05 * np.sin(np.arange(101))[:, None, None]
    u = np.tile(model.u0, (100, 16, 1))
    wa.Trajectory(model, q, 0.01, qd=np.zeros((101, 16, model.nv)), u=u).save(folder / "run.npz")
    np.savez(folder / "u.npz", u=u[:20, 0])
    (folder / "task.py").write_text(TASK_FILE)


def fill_run(arguments: list[str], folder: Path) -> None:
    """Train the run that is resumed, played or started from, and copy its policy to policy.pt."""
    named = (
        arguments[1:2]
        if arguments[0] in ("play", "export")
        else after(arguments, "--begin-with") or after(arguments, "--folder")
    )
    run = Path(*named) if named and named[0].startswith("runs/") else Path("runs/Cartpole-shac-0")
    trained = quick(["train", "Cartpole", "--folder", str(run)])
    assert main([*trained, "--steps", "16", "--quiet"]) == 0
    shutil.copy(run / "policy.pt", folder / "policy.pt")


def one_toed(path: Path) -> None:
    """Keep one toe as the only collision shape of a Laikago URDF, so that it shares the kernel of laikago_feet."""
    text = path.read_text()
    parts = re.split(r"(<link name=\"\w+\">.*?</link>)", text, flags=re.DOTALL)
    cut = [p if 'name="FR_toe"' in p[:40] else re.sub(r"<collision>.*?</collision>", "", p, flags=re.S) for p in parts]
    path.write_text("".join(cut))


def check(command: Command, folder: Path) -> None:
    rule = RULES.get(_kind(command))
    if rule is None:
        pytest.fail(f"{command.page}: no rule of tests/helpers/doc_commands.py covers `{command.text}`; add one.")
    rule(command, folder)


def _kind(command: Command) -> str:
    words = command.words
    if words[0] == "python" and len(words) > 1:
        return f"python {words[1] if words[1].startswith('-') else Path(words[1]).parts[0] + '/'}"
    return words[0]


# -- warp-articulated


def run_ours(command: Command, folder: Path) -> None:
    """Run it through main() with smaller numbers; it must return 0 and write its output files."""
    words = list(command.words[1:])
    if words[0] == "train" and words[1] in TASKS:  # a smaller task with other options is trained instead
        wa.rl.make(words[1], 1, **dict(loader_option(pair) for pair in without_options(words)))
    arguments = quick([STANDS_FOR.get(word, word) for word in words])
    if any(word in ("--help", "--version") for word in arguments):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        return
    fill(folder)
    one_toed(folder / "robot.urdf")
    if arguments[0] == "play" or not {"--resume", "--begin-with", "--torchscript", "--onnx"}.isdisjoint(arguments):
        fill_run(arguments, folder)
    outputs = named_outputs(arguments)
    for name in outputs:
        if arguments.count(name) == 1:  # not an input as well, so any file found afterwards is new
            (folder / name).unlink(missing_ok=True)
    assert main(arguments) == 0, f"{command.page}: `{command.text}` failed."
    for name in outputs:
        assert (folder / name).stat().st_size > 0, f"{command.page}: `{command.text}` did not write {name}."


def quick(arguments: list[str]) -> list[str]:
    """The same command with smaller numbers and pictures."""
    name = arguments[0]
    if len(arguments) == 1 and name not in ("doctor", "bench"):
        return [name, "--help"] if not name.startswith("-") else arguments  # a mention, not a command
    if "--help" in arguments:
        return arguments
    result: list[str] = []
    option = ""
    for word in arguments:
        option = word if word.startswith("--") else option
        capped = option in MOST and word.isdigit()
        result.append(str(min(int(word), MOST[option])) if capped else SMALL if _is_size(word) else word)
    if name == "view":
        result = without(result, "--host", "--port", "--seconds") + ["--port", "0", "--seconds", "0.5"]
    if (
        name == "simulate"
        and "--steps" not in result
        and not any(w.endswith(".npz") for w in after(result, "--control"))
    ):
        result += ["--steps", "20"]
    if name == "train":
        result = without(result, "--minutes", "--envs", "--set", "--steps")
        result += ["--steps", "32", "--envs", "4", "--option", "episode_length=20", "--threads", "1"]
        if not {"sac", "sql", "mbpo"} & set(after(result, "--algo")):
            result += ["--set", "horizon=4"]
    pictures = any(word.endswith((".png", ".gif")) for word in result)
    if name in ("simulate", "render", "play") and pictures and "--size" not in result:
        result += ["--size", SMALL]
    if name == "bench":
        result = without(result, "--envs") + ["--envs", "2"]
        result += [w for o, n in (("--steps", "5"), ("--repeat", "1")) if o not in result for w in (o, n)]
    return result


def without_options(arguments: list[str]) -> list[str]:
    """Remove every --option; returns the values."""
    values = []
    while "--option" in arguments:
        values += after(arguments, "--option")[:1]
        del arguments[(at := arguments.index("--option")) : at + 2]
    return values


def _is_size(word: str) -> bool:
    return re.fullmatch(r"\d+x\d+", word) is not None


def after(arguments: list[str], option: str) -> list[str]:
    """The values that follow an option."""
    if option not in arguments:
        return []
    rest = arguments[arguments.index(option) + 1 :]
    return rest[: next((k for k, word in enumerate(rest) if word.startswith("--")), len(rest))]


def without(arguments: list[str], *options: str) -> list[str]:
    for option in options:
        if option in arguments:
            start = arguments.index(option)
            del arguments[start : start + 1 + len(after(arguments, option))]
    return arguments


def named_outputs(arguments: list[str]) -> list[str]:
    found = [value for option in OUTPUT_OPTIONS for value in after(arguments, option)[:1]]
    plain = arguments[0] in ("render", "export") and not arguments[2].startswith("--")
    return found + (arguments[2:3] if plain else [])


# -- the others


def check_make(command: Command, folder: Path) -> None:
    """Targets and variables exist; test_docs.py runs `make run`. Comments may name more targets."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):.*##", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) *[:?]?=", makefile, re.MULTILINE))
    named = [word for word in command.words[1:] if "=" not in word]
    named += re.findall(r"\bmake ([a-z][a-z-]*)", command.text.partition("#")[2])
    assert named and set(named) <= targets, f"{command.page}: `{command.text}`: the Makefile's targets are {targets}."
    given = {word.partition("=")[0] for word in command.words[1:] if "=" in word}
    assert given <= variables, f"{command.page}: `{command.text}`: the Makefile's variables are {variables}."


def check_pip(command: Command, folder: Path) -> None:
    """It installs this package with existing extras and existing constraints."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    words = list(command.words[1:])
    assert words.pop(0) == "install"
    for file in after(words, "-c")[:1]:
        assert (ROOT / file).is_file()
        words.remove(file)
    wanted = [word for word in words if word not in ("-e", "-c")]
    for word in wanted:
        match = re.fullmatch(r"(?:\.|warp-articulated)(?:\[([\w,-]+)\])?", word)
        assert match, f"{command.page}: `{command.text}` installs {word}, which is not this package."
        asked = set((match[1] or "").split(",")) - {""}
        assert asked <= extras, f"{command.page}: `{command.text}` names extras {asked - extras}, which do not exist."


def check_example(command: Command, folder: Path) -> None:
    """tests/docs/test_examples.py runs it."""
    path = ROOT / command.words[1]
    assert path.is_file(), f"{command.page} names {command.words[1]}, which does not exist."
    tests = (ROOT / "tests/docs/test_examples.py").read_text()
    assert path.name in tests or f"import {path.stem}\n" in tests, f"test_examples.py does not run {path.name}."


def check_script(command: Command, folder: Path) -> None:
    """Its --help must work. Parts of the benchmarks are run by tests/benchmarks, the recorder by tests/gradients."""
    path = ROOT / command.words[1]
    assert path.is_file(), f"{command.page} names {command.words[1]}, which does not exist."
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(sys, "argv", [path.name, "--help"])
        patch.syspath_prepend(path.parent)
        runpy.run_path(str(path), run_name="__main__")
    assert stop.value.code == 0, f"{path.name} --help failed."


def run_statement(command: Command, folder: Path) -> None:
    exec(command.words[2], {})


def run_module(command: Command, folder: Path) -> None:
    assert command.words[2] == "warp_articulated", f"{command.page}: `{command.text}` runs another module."
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(sys, "argv", ["warp_articulated", *(command.words[3:] or ["--help"])])
        runpy.run_module("warp_articulated", run_name="__main__")
    assert stop.value.code == 0


def check_torchrun(command: Command, folder: Path) -> None:
    """It starts this package with a valid command line; tests/rl/test_rl_distributed.py runs torchrun."""
    start = command.words.index("-m")
    assert command.words[start + 1] == "warp_articulated", f"{command.page}: `{command.text}` runs another module."
    _parser().parse_args(command.words[start + 2 :])


RULES: dict[str, Callable[[Command, Path], None]] = {
    "warp-articulated": run_ours,
    "make": check_make,
    "pip": check_pip,
    "torchrun": check_torchrun,
    "python examples/": check_example,
    "python benchmarks/": check_script,
    "python docs/": check_script,
    "python tests/": check_script,
    "python -c": run_statement,
    "python -m": run_module,
}
