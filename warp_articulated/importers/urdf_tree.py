"""The links and joints of a URDF as in the file, checked to be one tree: the first half of the importer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..model import JointType
from .urdf_shapes import read_origin
from .xmlfile import Element

TYPES = {
    "revolute": JointType.REVOLUTE,
    "continuous": JointType.REVOLUTE,
    "prismatic": JointType.PRISMATIC,
    "floating": JointType.FREE,
    "spherical": JointType.SPHERICAL,
    "ball": JointType.SPHERICAL,
    "fixed": None,
}


@dataclass(eq=False)
class JointElement:
    """One <joint>: R, pos are its <origin> in the parent link; type None is a fixed joint."""

    element: Element
    name: str
    type: JointType | None
    parent: str
    child: str
    R: np.ndarray
    pos: np.ndarray
    axis: np.ndarray
    lower: float = -math.inf
    upper: float = math.inf
    effort: float = math.inf
    damping: float = 0.0
    frictionloss: float = 0.0


def read_tree(robot: Element, notes: list[str]) -> tuple[dict[str, Element], list[JointElement], str]:
    """Links by name, joints in the file's order, and the root link's name, after checking that they are one tree."""
    if robot.tag != "robot":
        raise robot.error("a URDF file must start with <robot>.")
    macro = next((e for e in robot.children if e.tag.startswith("xacro:")), None)
    if macro is not None:
        raise macro.error("this is a xacro file; expand it first (xacro file.xacro > file.urdf).")
    links: dict[str, Element] = {}
    for link in robot.all("link"):
        name = link.text("name")
        if name in links:
            raise link.error(f"another link of this name is in line {links[name].line}; names must be unique.")
        links[name] = link
    if not links:
        raise robot.error("there is no <link> in it.")

    joints: dict[str, JointElement] = {}
    limitless: list[str] = []
    joint_above: dict[str, JointElement] = {}  # by child link
    for element in robot.all("joint"):
        joint = _read_joint(element, links, limitless, notes)
        if joint.name in joints:
            line = joints[joint.name].element.line
            raise element.error(f"another joint of this name is in line {line}; names must be unique.")
        if joint.child in joint_above:
            other = joint_above[joint.child].name
            raise element.error(
                f"link {joint.child!r} is already the child of joint {other!r}; closed loops are not supported."
            )
        joints[joint.name] = joint_above[joint.child] = joint
    if limitless:
        notes.append(f"The file gives no limits for {', '.join(limitless)}, so these joints move freely.")
    return links, list(joints.values()), _find_root(robot, links, joint_above)


def _find_root(robot: Element, links: dict[str, Element], joint_above: dict[str, JointElement]) -> str:
    roots = [name for name in links if name not in joint_above]
    if not roots:
        raise robot.error(
            "every link is the child of another one, in a circle, so there is no root; one link must not be a child."
        )
    if len(roots) > 1:
        listed = ", ".join(f"{name!r} (line {links[name].line})" for name in roots)
        raise robot.error(f"there are {len(roots)} root links: {listed}; joints must connect them to one tree.")
    fine = set(roots)  # they have no circle above them
    for name in links:
        seen: set[str] = set()
        while name not in fine:
            if name in seen:
                raise joint_above[name].element.error(f"link {name!r} is its own ancestor through a circle of joints.")
            seen.add(name)
            name = joint_above[name].parent
        fine |= seen
    return roots[0]


def _read_joint(element: Element, links: dict[str, Element], limitless: list[str], notes: list[str]) -> JointElement:
    name, kind = element.text("name"), element.text("type")
    if kind not in TYPES:
        more = " Make it two prismatic joints and a revolute one." if kind == "planar" else ""
        raise element.error(f"joints of type {kind!r} are not supported; {', '.join(TYPES)} are.{more}")
    ends = []
    for tag in ("parent", "child"):
        end = element.need(tag)
        link = end.text("link")
        if link not in links:
            raise end.error(f"there is no link called {link!r}; the links are {_listed(links)}.")
        ends.append(link)
    if ends[0] == ends[1]:
        raise element.error(f"it joins link {ends[0]!r} to itself.")
    R, pos = read_origin(element)
    axis = element.child("axis")
    direction = axis.vector("xyz", 3) if axis else np.array([1.0, 0.0, 0.0])
    joint = JointElement(element, name, TYPES[kind], ends[0], ends[1], R, pos, direction)
    if joint.type in (JointType.REVOLUTE, JointType.PRISMATIC):
        if axis is not None and np.linalg.norm(direction) < 1e-9:
            raise axis.error('xyz="0 0 0" has no direction; the axis must not be zero.')
        _read_limits(joint, limitless, notes, limited=kind != "continuous")
    dynamics = element.child("dynamics")
    if dynamics is not None and joint.type not in (None, JointType.FREE):
        joint.damping = dynamics.number("damping", 0.0, minimum=0.0)
        joint.frictionloss = dynamics.number("friction", 0.0, minimum=0.0)
    return joint


def _read_limits(joint: JointElement, limitless: list[str], notes: list[str], limited: bool) -> None:
    limit = joint.element.child("limit")
    if limit is not None:
        joint.effort = limit.number("effort", 0.0, minimum=0.0, largest=math.inf) or math.inf
    if not limited:
        return
    if limit is None or not {"lower", "upper"} & set(limit.attributes):
        limitless.append(joint.name)
        return
    # some files write the largest number that there is for "no limit"
    joint.lower, joint.upper = (limit.number(key, 0.0, largest=math.inf) for key in ("lower", "upper"))
    if joint.lower > joint.upper:
        raise limit.error(
            f"lower={joint.lower:g} is above upper={joint.upper:g}; swap them, or use type continuous for no limits."
        )
    if joint.lower == joint.upper:
        notes.append(f"Both limits of joint {joint.name} are {joint.lower:g}, so it cannot move.")


def _listed(names) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
