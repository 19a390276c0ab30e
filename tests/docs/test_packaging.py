"""Contents of the installed package: metadata, device code, scenes, the command."""

import importlib
import importlib.metadata as metadata
import importlib.resources as resources
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def test_device_code_is_part_of_the_package():
    assert importlib.import_module("warp_articulated.kernels")


def test_scenes_are_readable_as_resources():
    scenes = resources.files("warp_articulated.scenes")
    assert [entry.name for entry in scenes.iterdir() if entry.name.endswith((".urdf", ".json"))]


def test_every_pinned_package_is_a_requirement():
    """A pin without a requirement is a leftover. Every dependency needs a pin: an unpinned torch may pull gigabytes."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    wanted = {re.match(r"[\w-]+", r)[0].lower() for group in groups for r in group}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {line.partition("==")[0].lower() for line in lines if "==" in line}
    assert pins <= wanted
    assert {re.match(r"[\w-]+", r)[0].lower() for r in PROJECT["dependencies"]} <= pins


def test_licence_is_complete():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_public_names_are_not_shadowed_by_modules():
    """Importing a module with the same name as a public function would replace the function."""
    code = (
        "import importlib, pkgutil, sys, warp_articulated as wa;"
        "assert 'torch' not in sys.modules and 'warp' not in sys.modules;"  # they would slow down `--help`
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(wa.__path__, 'warp_articulated.')"
        " if not m.name.endswith('__main__')];"
        "assert not [n for n in wa.__all__ if type(getattr(wa, n)).__name__ == 'module']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_has_a_home():
    package = importlib.import_module("warp_articulated")
    homes = [name for names in package._HOMES.values() for name in names.split()]
    assert sorted(homes) == sorted(package.__all__) == package.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_all_folders_of_the_package_are_installed():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "warp_articulated").rglob("__init__.py")}
    assert {".".join(folder.parts) for folder in folders} <= set(packages)


def test_wheel_has_types_kernels_scenes_and_policies(tmp_path):
    """py.typed tells type checkers that the package has types; data files are easily forgotten."""
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in ("warp_articulated", "kernels", "scenes", "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(source / done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
    needed = ("py.typed", "kernels/step.py", "scenes/laikago.urdf", "policies/ant_shac.pt")
    assert {f"warp_articulated/{name}" for name in needed} <= names
