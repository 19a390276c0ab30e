"""What an installed package must bring: metadata, device code, scenes, the command."""

import importlib
import importlib.metadata as metadata
import importlib.resources as resources
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed():
    try:
        return metadata.metadata("warp-articulated")
    except metadata.PackageNotFoundError:
        pytest.fail("the package is not installed; `make test` installs it")


def test_metadata_of_the_installed_package():
    data = installed()
    assert data["Version"] == PROJECT["version"]
    assert data["License-Expression"] == "Apache-2.0"
    assert data["Requires-Python"] == PROJECT["requires-python"]


def test_command_is_installed():
    installed()
    (command,) = metadata.entry_points(group="console_scripts", name="warp-articulated")
    assert command.value == "warp_articulated.cli:main"


def test_device_code_is_below_the_package():
    assert importlib.import_module("warp_articulated.kernels")


def test_scenes_are_readable_as_resources():
    scenes = resources.files("warp_articulated.scenes")
    assert [entry.name for entry in scenes.iterdir() if entry.name.endswith((".urdf", ".json"))]


def test_every_pinned_package_is_asked_for_by_the_project():
    """A pin without a requirement is a leftover; torch needs one, because an open one may pull gigabytes."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    wanted = {re.match(r"[\w-]+", r)[0].lower() for group in groups for r in group}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.partition("==")[0].lower() for line in lines if "==" in line}
    assert pins <= wanted
    assert {re.match(r"[\w-]+", r)[0].lower() for r in PROJECT["dependencies"]} <= pins


def test_licence_is_the_whole_text():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
