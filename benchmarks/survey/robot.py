"""What becomes of one robot's file: whether it is a robot, loads, and with which notes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import warp_articulated as wa

DIFFERS = "the simulation will differ"
LISTS = (  # words before and after the names of joints, links or files in notes
    ("inertia of", "breaks"), ("no limits for", "so these"), (r"joint\(s\)", "is ignored"), ("limits of joint", "are"),
    ("was ignored:", "move"),
)  # fmt: skip
STILL = ("fixed", "floating")  # joints of a URDF that do not make a robot


def examine(path: Path, motion: bool) -> dict | None:
    """What became of a file; None: it is no robot, or not a file of its own."""
    if not (is_robot_urdf(path) if _root(path) == "robot" else is_robot_mjcf(path)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = wa.load(path)
    except wa.ModelError as error:
        return {"status": "refused", "error": plain(str(error), path)}
    notes = [plain(note, path) for note in model.notes]
    complete = not incomplete(notes)
    found = {"status": "complete" if complete else "incomplete", "notes": sorted(set(notes)), "nv": model.nv}
    if motion and complete:
        from survey.motion import compare

        found["motion"] = compare(path, model)
    return found


def incomplete(notes: Iterable[str]) -> list[str]:
    """Those of a model's notes that say that something is missing that matters to the motion."""
    return [note for note in notes if DIFFERS in note]


def _root(path: Path) -> str:
    match = re.search(r"<(mujoco|robot)\b", path.read_text("utf-8", "replace"))
    return match[1] if match else ""


def is_robot_urdf(path: Path) -> bool:
    """Whether it has a joint that moves; a file that is no XML is left to the importer."""
    try:
        joints = ElementTree.parse(path).getroot().findall("joint")
    except ElementTree.ParseError:
        return True
    return any(joint.get("type") not in STILL for joint in joints)


def is_robot_mjcf(path: Path) -> bool:
    """Whether MuJoCo compiles it, and it has a joint that is not free."""
    import mujoco

    mujoco.set_mju_user_warning(lambda text: None)
    try:
        m = mujoco.MjModel.from_xml_path(str(path))
    except Exception:  # ValueError, FatalError and others: a part of a robot, or made for another version
        return False
    finally:
        mujoco.set_mju_user_warning(None)
    return bool(np.any(m.jnt_type != mujoco.mjtJoint.mjJNT_FREE))


def plain(text: str, path: Path) -> str:
    """A note or error without what differs between robots: names, numbers, the file."""
    text = re.sub(r"^:?\d*:? ", "", text.replace(str(path), "").replace(str(path.parent), ""))
    for before, after in LISTS:
        text = re.sub(rf"{before} .*? {after}", f"{before} ... {after}", text)
    text = re.sub(r"(never collide|follow each other): .*", r"\1: ...", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "...", text)
    text = re.sub(r"\(mesh [^)]*\)|/\S*\.(?=\w+:)", "...", text)
    return re.sub(r"(?<![\w.])-?\d[\d.]*(e[+-]?\d+)?(?![\w])", "n", text)
