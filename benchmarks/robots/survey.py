"""Which robots of well-known PyPI packages load, with which notes, and whether they move as in MuJoCo.

    python benchmarks/robots/survey.py --fetch ROBOTS     download the packages, without what they depend on; 2 GB
    python benchmarks/robots/survey.py ROBOTS             load every robot in the folder; an hour
    python benchmarks/robots/survey.py --quick ROBOTS     without comparing motions; ten minutes

ROBOTS has one folder for each package, as --fetch makes them. The packages are only read, never installed or imported.
A robot is a URDF or MJCF file with a joint that is not free. MJCF files that another file of their package includes are
not counted by themselves, nor are those that MuJoCo cannot compile. A robot loads completely if none of its notes says
that the simulation will differ, and every kind of pair of its shapes collides.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

from lib import reporting
from lib.machine import progress, table

PACKAGES = {  # on PyPI: folder of the robots in the wheel
    "dm_control": "dm_control",
    "example-robot-data": "cmeel.prefix/share/example-robot-data/robots",
    "gymnasium": "gymnasium",
    "gymnasium-robotics": "gymnasium_robotics",
    "mani_skill": "mani_skill/assets",
    "mjlab": "mjlab",
    "myosuite": "myosuite",
    "playground": "mujoco_playground",
    "pybullet": "pybullet_data",
    "robosuite": "robosuite/models/assets",
}
SKIPPED = ("random_urdfs", "test_assets", "testing")  # folders: a thousand single objects; files that test a parser
PATIENCE = 300  # s for one robot
MISSING = ("the simulation will differ", "never collide")  # what notes on an incomplete robot say
WORST = 0.01  # a robot moves as in MuJoCo if it is off by less than this share of its motion
LISTED = 12  # most frequent notes in the table


def fetch(folder: Path) -> None:
    """Unpack the newest wheel of every package into the folder."""
    for name in PACKAGES:
        wheels = folder / "wheels" / name
        if not list(wheels.glob("*.whl")):
            progress(f"downloading {name}")
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(wheels), name]
            subprocess.run(command, check=True)
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder / name)


def version(folder: Path) -> str:
    """Of the package that is in the folder."""
    (info,) = folder.glob("*.dist-info")
    return info.name.removesuffix(".dist-info").split("-")[1]


def candidates(folder: Path) -> list[Path]:
    """URDF and MJCF files that no other file includes."""
    files = sorted(p for ending in ("urdf", "xml", "mjcf") for p in folder.rglob(f"*.{ending}"))
    files = [p for p in files if not set(SKIPPED) & set(p.relative_to(folder).parts)]
    included = set()
    for path in files:
        for name in re.findall(r"<include\s+file\s*=\s*[\"']([^\"']+)", path.read_text("utf-8", "replace")):
            included.add((path.parent / name).resolve())
    return [
        p
        for p in files
        if p.resolve() not in included and re.search(r"<(mujoco|robot)\b", p.read_text("utf-8", "replace"))
    ]


def look_at(path: Path, motion: bool) -> dict | None:
    """What became of one file, in a process of its own: files can crash MuJoCo. None: it is no robot."""
    command = [sys.executable, str(Path(__file__).with_name("one_robot.py")), str(path), *["--motion"] * motion]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"status": "refused", "error": f"it took more than {PATIENCE} s"}
    if done.returncode:
        return {"status": "refused", "error": f"the process ended with {done.returncode}"}
    import json

    return json.loads(done.stdout.splitlines()[-1])
