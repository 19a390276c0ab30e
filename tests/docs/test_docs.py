"""README and docs are correct: Python blocks and shell commands run, links have targets.

Python blocks run unchanged except for the robot: a robot with fewer shapes compiles faster. Commands run with smaller
numbers.
"""

import re
import subprocess
import sys
from pathlib import Path

import doc_commands
import pytest
from doc_pages import GENERATED, PAGES, ROOT, Command, anchors, commands, links, python_blocks, read

from warp_articulated.cli import _parser

# each command once, even if several pages have it; comments after `make` name further targets
COMMANDS = list({c.text if c.words[0] == "make" else c.words: c for page in PAGES for c in commands(page)}.values())


@pytest.fixture(autouse=True)
def in_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the commands write files


def _has_gradient(names):
    assert names["u"].grad.isfinite().all() and names["u"].grad.abs().max() > 0


def _converged(names):
    assert names["loss"].item() < 1e-20 and abs(names["mu"].item() - 4 / (2 * 9.81 * 0.501)) < 1e-4


SHOWS = {"README.md": _has_gradient, "docs/gradients.md": _has_gradient, "docs/quickstart.md": _converged}


@pytest.mark.parametrize("page", [p for p in PAGES if p != GENERATED and python_blocks(p)])
def test_python_blocks_run(page, tmp_path):
    doc_commands.fill(tmp_path)
    names: dict = {}
    for block in python_blocks(page):
        exec(block.replace('"laikago"', '"laikago_feet"'), names)  # in order, as a reader would run them
    SHOWS.get(page, lambda names: None)(names)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{Path(c.page).stem}: {' '.join(c.words)}")
def test_command_is_correct(command, tmp_path):
    doc_commands.check(command, tmp_path)


@pytest.mark.slow
def test_make_run_runs(tmp_path):
    """As in the README, but without installing anything and with fewer robots."""
    assert (Path(sys.prefix) / "bin" / "warp-articulated").exists(), "run the tests in an environment with the package"
    stamp = f"{sys.prefix}/.installed-base"
    settings = {"VENV": sys.prefix, "OUT": tmp_path / "out", **doc_commands.VARIABLES}
    done = subprocess.run(
        ["make", "-o", stamp, "run", *(f"{name}={value}" for name, value in settings.items())],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1,920 environment steps" in done.stdout and "installing" not in done.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["laikago.png", "laikago.usdc"]


def test_commands_are_found():
    """The tests above would check nothing if the pages were parsed wrongly."""
    texts = {" ".join(c.words) for c in COMMANDS}
    assert {"make run", "warp-articulated info robot.urdf", "pip install -e .", "make test"} <= texts
    assert len(commands("docs/commands.md")) > 15
    assert not any(text.startswith("loaded") for text in texts)


def test_commands_page_lists_every_command_and_only_existing_options():
    page = read("docs/commands.md")
    parsers = _parser()._subparsers._group_actions[0].choices
    assert sorted(re.findall(r"^## ([a-z]+)$", page, re.MULTILINE)) == sorted(parsers)
    known = {option for parser in parsers.values() for option in parser._option_string_actions} | {"--version"}
    known.add("--nproc-per-node")  # of torchrun
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)) <= known


@pytest.mark.parametrize("text", ["git clone somewhere", "python setup.py install", "cd out"])
def test_an_unknown_command_fails(text, tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"no rule of tests/helpers/doc_commands\.py covers"):
        doc_commands.check(Command("README.md", text, tuple(text.split())), tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_links_have_targets(page):
    for target in links(page):
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), f"{page}: the target of the link {target} does not exist."
        if anchor:
            known = anchors(path.resolve().relative_to(ROOT).as_posix())
            assert anchor in known, f"{page}: {target} is not a heading; the headings are {sorted(known)}."
