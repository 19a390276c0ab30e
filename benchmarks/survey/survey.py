"""Which robots of well-known PyPI packages load, with which notes, and whether they move as in MuJoCo.

    python benchmarks/survey/survey.py --folder ROBOTS --fetch   download the packages first, alone; 2 GB
    python benchmarks/survey/survey.py --folder ROBOTS           load every robot in the folder; an hour
    python benchmarks/survey/survey.py --folder ROBOTS --quick   without comparing motions; five minutes

ROBOTS has one folder for each package, as --fetch makes them. The packages are only read, never installed or imported.
A robot is a URDF or MJCF file with a joint that is not free. MJCF files that another file of their package includes are
not counted by themselves, nor are those that MuJoCo cannot compile. A robot loads completely if none of its notes says
that the simulation will differ. motion.py says how motions are compared.
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
from survey.motion import WORST
from survey.worker import Worker

PACKAGES = {  # by their names on PyPI: where the robots are in the wheel
    "dm_control": "dm_control",
    "example-robot-data": "cmeel.prefix/share/example-robot-data/robots",
    "gymnasium": "gymnasium",
    "gymnasium-robotics": "gymnasium_robotics",
    "mani_skill": "mani_skill/assets",
    "mjlab": "mjlab",
    "playground": "mujoco_playground",
    "pybullet": "pybullet_data",
    "robosuite": "robosuite/models/assets",
}
SKIPPED = ("random_urdfs", "test_assets", "testing")  # folders: a thousand objects, and files that test a parser
LISTED = 15  # most frequent notes in the table


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
    """Of the package that was unpacked into the folder."""
    infos = sorted(folder.glob("*.dist-info"))
    if not infos:
        raise SystemExit(f"{folder} has no package: run `{Path(sys.argv[0]).name} --folder {folder.parent} --fetch`.")
    return infos[0].name.removesuffix(".dist-info").split("-")[1]


def candidates(folder: Path) -> list[Path]:
    """URDF and MJCF files that no other file includes."""
    files = sorted(p for ending in ("urdf", "xml", "mjcf") for p in folder.rglob(f"*.{ending}"))
    texts = {p: p.read_text("utf-8", "replace") for p in files if not set(SKIPPED) & set(p.relative_to(folder).parts)}
    included = set()
    for path, text in texts.items():
        for name in re.findall(r"<include\s+file\s*=\s*[\"']([^\"']+)", text):
            included.add((path.parent / name).resolve())
    robots = (p for p, text in texts.items() if re.search(r"<(mujoco|robot)\b", text))
    return [p for p in robots if p.resolve() not in included]


def measure(folder: Path, motion: bool) -> dict:
    """Every robot by package and file, and the versions of the packages."""
    worker, robots, versions = Worker(), {}, {}
    for name, inside in PACKAGES.items():
        versions[name] = version(folder / name)
        root = folder / name / inside
        for path in candidates(root):
            found = worker.examine(path, motion)
            if found is not None:
                robots[f"{name}: {path.relative_to(root)}"] = found
        progress(f"{name}: {sum(key.startswith(f'{name}: ') for key in robots)} robots")
    return {"versions": versions, "robots": robots}


def report(results: dict) -> dict[str, str]:
    robots = results["robots"]
    rows = [_row(f"{name} {version}", _of(robots, name)) for name, version in results["versions"].items()]
    head = ["package", "robots", "complete", "the simulation will differ", "refused", "compared", "within 1 %"]
    counts = Counter(note for found in robots.values() for note in found.get("notes", ()))
    notes = [[str(n), note] for note, n in counts.most_common(LISTED)]
    refusals = Counter(found["error"] for found in robots.values() if found["status"] == "refused")
    return {
        "table": table(head, [*rows, _row("all", list(robots.values()))]),
        "notes": table(["robots", "note"], notes),
        "refusals": table(["robots", "refused because"], [[str(n), text] for text, n in refusals.most_common()]),
    }


def figures(results: dict) -> dict[str, str]:
    found = list(results["robots"].values())
    complete = sum(robot["status"] == "complete" for robot in found)
    errors = [robot["motion"]["error"] for robot in found if "error" in robot.get("motion", {})]
    return {
        "packages": str(len(results["versions"])),
        "robots": str(len(found)),
        "complete": str(complete),
        "share": f"{100 * complete / len(found):.0f} %",
        "compared": str(len(errors)),
        "worst": f"{100 * max(errors, default=0.0):.2g} %",
    }


def _of(robots: dict, package: str) -> list[dict]:
    return [found for key, found in robots.items() if key.startswith(f"{package}: ")]


def _row(name: str, found: list[dict]) -> list[str]:
    status = Counter(robot["status"] for robot in found)
    errors = [robot["motion"]["error"] for robot in found if "error" in robot.get("motion", {})]
    share = f"{status['complete']} ({100 * status['complete'] / max(len(found), 1):.0f} %)"
    within = str(sum(error < WORST for error in errors))
    return [name, str(len(found)), share, str(status["incomplete"]), str(status["refused"]), str(len(errors)), within]


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the packages are, or are unpacked to")
    parser.add_argument("--fetch", action="store_true", help="download and unpack the packages")
    options = parser.parse_args(arguments)
    if options.fetch:
        fetch(options.folder)
    results = reporting.begin(options)
    with reporting.quiet():
        results |= measure(options.folder, motion=not options.quick)
    return reporting.finish("survey", options, results, report)


if __name__ == "__main__":
    main()
