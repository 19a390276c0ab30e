"""URDF files as Models: parse, merge links that fixed joints connect, keep the file's order of joints.

Joint limits follow PyBullet where the standard would make files unloadable: a revolute or prismatic joint without
<limit>, or with a <limit> that gives neither `lower` nor `upper`, moves without limits (and the model gets a note). If
one of the two is given the other is 0, as the standard says. Effort 0 or no effort means no effort limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path

import numpy as np

from ..geometry.kinematics import lowest_point
from ..geometry.rotations import matrix_to_quat
from ..model import WORLD, Body, Coupling, Frame, JointType, Model, ModelError, Shape, ShapeType, Term, assemble
from ..model.validate import LARGEST, as_numbers, check_flags, inertia_problem, name_pairs, usable
from .meshes import simplified
from .overlaps import without_overlaps
from .urdf_drives import PerJoint, make_drives
from .urdf_shapes import ShapeReader, read_origin
from .urdf_tree import JointElement, read_tree
from .xmlfile import Element, parse_xml


def load_urdf(
    path: str | Path,
    *,
    floating: bool = False,
    ground: bool | None = None,
    drive: str | Mapping[str, str] = "torque",
    kp: PerJoint = None,
    kd: PerJoint = None,
    effort: PerJoint = None,
    passive: Iterable[str] = (),
    self_collision: bool = True,
    exclude: Iterable[tuple[str, str]] = (),
    meshes: bool = True,
    mimic: str = "follow",
    friction: float = 1.0,
    restitution: float = 0.0,
    gravity: Sequence[float] = (0.0, 0.0, -9.81),
) -> Model:
    """The robot of a URDF file.

    Args:
        path: the file; meshes are searched in its folder, in the folders above it and on ROS_PACKAGE_PATH.
        floating: put the root link on a free joint called "root", first in q; otherwise it belongs to the world.
        ground: add the plane z = 0; None: if the model has a free joint.
        drive: "torque", "position" or "velocity": the drive of every revolute and prismatic joint, or a dict of
            them by joint name (others: torque).
        kp, kd: gains of position and velocity drives, N m/rad and N m s/rad (N/m and N s/m for prismatic joints), a
            number or a dict by joint name.
        effort: limit of the drives' force, N m or N, a number or a dict by joint name; None: the file's limits.
        passive: names of joints without a drive.
        self_collision: let links of the robot collide with each other. Neighbours, also across links without
            collision shapes, never do, nor do a fixed base and its children.
        exclude: pairs of link names of the file (or "ground") that never collide.
        meshes: take the convex hulls of collision meshes; False leaves them out.
        mimic: "follow" couples a joint with <mimic> to the one that it follows, and gives it no drive; "ignore" lets it
            move independently, with a drive.
        friction, restitution: of shapes whose link has no PyBullet <contact> element, and of the ground.
        gravity: (3,) m/s^2.

    Raises:
        ModelError: with the file, the line and the element, or the argument, that is wrong.
    """
    path = Path(path)
    check_flags(path, floating=floating, ground=ground, self_collision=self_collision, meshes=meshes)
    _check_options(path, mimic, friction, restitution, gravity)
    friction, restitution = float(friction), float(restitution)  # products of large ints are no numbers to numpy
    robot = parse_xml(path)
    notes: list[str] = []
    links, joints, root = read_tree(robot, notes)
    couplings = read_mimic(joints, notes) if mimic == "follow" else _ignore_mimic(joints, notes)

    build = _Build(joints, ShapeReader(robot, path.absolute().parent, meshes, friction, restitution), notes)
    build.place(links, root, floating)
    if build.reader.skipped_meshes:
        notes.append(f"{build.reader.skipped_meshes} collision mesh(es) were left out, as meshes=False asks.")
    notes += simplified(build.reader.deviations)
    bodies = build.bodies()
    if not bodies:
        raise robot.error(
            "no link can move, so there is nothing to simulate; load it with floating=True to set it free."
        )
    floor = "ground" if "ground" not in links else "ground_plane"
    if ground or (ground is None and any(b.joint_type == JointType.FREE for b in bodies)):
        build.shapes.append(
            Shape(
                ShapeType.PLANE, WORLD, np.zeros(3), name=floor, body=floor, friction=friction, restitution=restitution
            )
        )
    pairs = [*_check_exclude(path, exclude, {*links, floor}), *build.neighbours(everything=not self_collision)]
    drives = make_drives(path, joints, drive, kp, kd, effort, passive, {c.terms[0].joint for c in couplings})
    try:
        model = assemble(
            robot.attributes.get("name") or path.stem, bodies, build.shapes, drives,
            exclude=pairs, gravity=gravity, frames=build.frames, couplings=couplings, merged=build.merged, notes=notes,
        )  # fmt: skip
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    model = without_overlaps(model)
    planes = [k for k, shape in enumerate(model.shapes) if shape.name == floor]
    if planes and not np.isin(model.pairs, planes).any():
        note = "no collision shape can touch the ground, so free bodies fall through it."
        model = replace(model, notes=(*model.notes, note))
    if bodies[0].joint_name == "root" and planes:
        # a URDF has no initial pose: place the robot on the added ground, not in it
        low = lowest_point(model, model.q0)
        if low < 0:
            model = model.with_pose({"root": [0.0, 0.0, -low, 0.0, 0.0, 0.0, 1.0]})
    return model


@dataclass
class _Group:
    """A link of the model: all links of the file that fixed joints connect, in the frame of the first of them."""

    name: str
    joint: JointElement | None = None
    joint_name: str = ""
    type: JointType = JointType.FREE
    parent: int = WORLD
    R: np.ndarray = field(default_factory=lambda: np.eye(3))  # joint frame in the parent
    pos: np.ndarray = field(default_factory=lambda: np.zeros(3))
    zero_R: np.ndarray = field(default_factory=lambda: np.eye(3))  # the link in the world when all joints are at zero
    zero_pos: np.ndarray = field(default_factory=lambda: np.zeros(3))
    order: int = 0
    links: list[str] = field(default_factory=list)
    suspects: list[Element] = field(default_factory=list)  # links whose inertia is impossible by itself
    mass: float = 0.0
    moment: np.ndarray = field(default_factory=lambda: np.zeros(3))  # mass times com
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))  # about the frame's origin

    def add(self, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
        """Add a mass with its inertia about its com, in this frame's axes."""
        self.mass += mass
        self.moment = self.moment + mass * com
        self.inertia = self.inertia + inertia + mass * _steiner(com)

    def body(self) -> Body:
        com = self.moment / self.mass if self.mass > 0 else np.zeros(3)
        body = Body(
            self.name, self.parent, self.joint_name, self.type, pos=self.pos, quat=matrix_to_quat(self.R),
            mass=self.mass, com=com, inertia=self.inertia - self.mass * _steiner(com), order=self.order,
        )  # fmt: skip
        if self.joint is not None and self.type != JointType.FREE:
            body.damping, body.frictionloss = self.joint.damping, self.joint.frictionloss
            body.lower, body.upper = self.joint.lower, self.joint.upper
            if self.type != JointType.SPHERICAL:
                body.axis = self.joint.axis
        return body


class _Build:
    """Walks the tree from the root and collects the model's links, shapes and merged names."""

    def __init__(self, joints: list[JointElement], reader: ShapeReader, notes: list[str]):
        self.joints, self.reader, self.notes = joints, reader, notes
        self.groups: dict[int, _Group] = {WORLD: _Group("world")}
        self.shapes: list[Shape] = []
        self.merged: list[tuple[str, str]] = []
        self.frames: list[Frame] = []  # of the merged links
        self._places: dict[
            str, tuple[int, np.ndarray, np.ndarray]
        ] = {}  # link: its group, and its pose in the group's frame

    def place(self, links: dict[str, Element], root: str, floating: bool) -> None:
        """Put every link into a group, parents first and otherwise in the file's order."""
        if floating and not self._already_floats(links, root):
            name, taken = "root", {j.name for j in self.joints}
            while name in taken:
                name += "_free"
            self.groups[0] = _Group(root, joint_name=name)
            self._put(links[root], 0, np.eye(3), np.zeros(3))
        else:
            self._put(links[root], WORLD, np.eye(3), np.zeros(3))
        below: dict[str, list[int]] = {}
        for k, joint in enumerate(self.joints):
            below.setdefault(joint.parent, []).append(k)
        ready = below.get(root, [])
        heapq.heapify(ready)
        while ready:
            k = heapq.heappop(ready)
            joint = self.joints[k]
            group, R, p = self._places[joint.parent]
            R, p = R @ joint.R, p + R @ joint.pos
            if joint.type is None:
                self._put(links[joint.child], group, R, p)
            else:
                self._put(links[joint.child], self._new_group(joint, k, group, R, p), np.eye(3), np.zeros(3))
            for child in below.get(joint.child, []):
                heapq.heappush(ready, child)

    def bodies(self) -> list[Body]:
        groups = [self.groups[i] for i in range(len(self.groups) - 1)]
        bodies = [group.body() for group in groups]
        for group, body in zip(groups, bodies, strict=True):
            # many real files have a wrong small part; only the inertia of all merged parts together must be possible
            if group.suspects and inertia_problem(body.inertia):
                raise group.suspects[0].error(inertia_problem(_inertial(group.suspects[0])[2]))
            for link in group.suspects:
                self.notes.append(
                    f"The inertia of {link.text('name')} has a negative principal moment; it was merged into "
                    f"{group.name}, whose inertia is possible."
                )
        return bodies

    def neighbours(self, everything: bool) -> list[Collection[str]]:
        """File links that never collide: pairs of neighbours across shapeless links, or all links of the robot."""
        names: dict[int, set[str]] = {i: set() for i in self.groups}
        for shape in self.shapes:
            if shape.collide:
                names[shape.link].add(shape.body)
        names[WORLD] &= set(self.groups[WORLD].links)  # not the ground
        if everything:
            return [set().union(*names.values())]
        pairs: list[Collection[str]] = []
        solid = {WORLD: WORLD}  # the nearest group with shapes, from a group towards the root
        for i, group in sorted(self.groups.items()):  # parents first
            if i == WORLD:
                continue
            if group.type != JointType.FREE:
                pairs += [(a, b) for a in names[i] for b in names[solid[group.parent]]]
            solid[i] = i if names[i] or group.type == JointType.FREE else solid[group.parent]
        return pairs

    def _already_floats(self, links: dict[str, Element], root: str) -> bool:
        """Whether the root is a massless frame and the parent of a floating joint in the file."""
        fixed: dict[str, list[str]] = {}
        for joint in self.joints:
            if joint.type is None:
                fixed.setdefault(joint.parent, []).append(joint.child)
        base = {root}
        ready = [root]
        while ready:
            children = fixed.get(ready.pop(), [])
            base.update(children)
            ready += children
        starts = any(j.type == JointType.FREE and j.parent in base for j in self.joints)
        return starts and all(_inertial(links[name])[0] == 0 for name in base)

    def _new_group(self, joint: JointElement, k: int, parent: int, R: np.ndarray, p: np.ndarray) -> int:
        assert joint.type is not None  # a fixed joint's child goes into its parent's group
        above = self.groups[parent]
        zero_R, zero_pos = above.zero_R @ R, above.zero_pos + above.zero_R @ p
        group = _Group(joint.child, joint, joint.name, joint.type, parent, R, p, zero_R, zero_pos, order=k + 1)
        if joint.type == JointType.FREE:
            if parent != WORLD:
                self.notes.append(
                    f"The parent of the floating joint {joint.name} is the moving link {above.name}; the joint "
                    f"transmits no force, so {joint.child} is a separate tree that starts at its zero pose."
                )
            group.parent, group.R, group.pos = WORLD, zero_R, zero_pos
        index = len(self.groups) - 1
        self.groups[index] = group
        return index

    def _put(self, link: Element, index: int, R: np.ndarray, p: np.ndarray) -> None:
        group, name = self.groups[index], link.text("name")
        self._places[name] = (index, R, p)
        group.links.append(name)
        if name != group.name:
            self.merged.append((name, group.name))
            self.frames.append(Frame(name, index, p, matrix_to_quat(R)))
        mass, com, inertia = _inertial(link)
        group.add(mass, p + R @ com, R @ inertia @ R.T)
        if inertia_problem(inertia):
            group.suspects.append(link)
        self.shapes += self.reader.read(link, index, R, p)


def _inertial(link: Element) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, com in the link's frame, and inertia about the com in the link's axes."""
    inertial = link.child("inertial")
    if inertial is None:
        return 0.0, np.zeros(3), np.zeros((3, 3))
    R, com = read_origin(inertial)
    mass = inertial.need("mass").number("value", minimum=0.0)
    element = inertial.child("inertia")
    if element is None:
        return mass, com, np.zeros((3, 3))
    xx, yy, zz = (element.number(key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (element.number(key, 0.0) for key in ("ixy", "ixz", "iyz"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return mass, com, R @ inertia @ R.T


def _steiner(c: np.ndarray) -> np.ndarray:
    return c @ c * np.eye(3) - np.outer(c, c)


def _mimics(joints: list[JointElement]) -> list[tuple[JointElement, Element]]:
    return [(j, e) for j in joints if j.type is not None and (e := j.element.child("mimic")) is not None]


def read_mimic(joints: list[JointElement], notes: list[str]) -> list[Coupling]:
    """A coupling for every joint that follows another one: q = multiplier * (the other's q) + offset."""
    single = (JointType.REVOLUTE, JointType.PRISMATIC)
    kinds = {j.name: j.type for j in joints}
    couplings = []
    for joint, element in _mimics(joints):
        leader = element.text("joint")
        if leader not in kinds:
            notes.append(
                f"Joint {joint.name} should follow {leader!r}, which the file does not have; it moves independently."
            )
            continue
        if joint.type not in single or kinds[leader] not in (*single, None):
            raise element.error(
                f"joint {joint.name!r} cannot follow {leader!r}: both must be revolute or prismatic joints; load with "
                "mimic='ignore' to let it move independently."
            )
        if leader == joint.name:
            raise element.error(f"joint {joint.name!r} follows itself; load with mimic='ignore'.")
        factor, offset = element.number("multiplier", 1.0), element.number("offset", 0.0)
        terms = [Term(joint.name, (-offset, 1.0))]
        if kinds[leader] is not None:  # a fixed joint stays at 0
            terms.append(Term(leader, (0.0, -factor)))
        couplings.append(Coupling(joint.name, tuple(terms), held=True))
    return couplings


def _ignore_mimic(joints: list[JointElement], notes: list[str]) -> list[Coupling]:
    followers = [joint.name for joint, _ in _mimics(joints)]
    if followers:
        notes.append(f"<mimic> was ignored: {', '.join(followers)} move independently.")
    return []


def _check_options(path: Path, mimic: str, friction: float, restitution: float, gravity: Sequence[float]) -> None:
    if mimic not in ("follow", "ignore"):
        raise ModelError(f"{path}: mimic={mimic!r} is not known; 'follow' and 'ignore' are.")
    for name, value in (("friction", friction), ("restitution", restitution)):
        if not (isinstance(value, Real) and 0 <= value <= LARGEST):
            raise ModelError(f"{path}: {name}={value!r} must be a finite number that is not negative.")
    if as_numbers(gravity).shape != (3,) or not usable(as_numbers(gravity)):
        raise ModelError(f"{path}: gravity={gravity!r} must be three finite numbers.")


def _check_exclude(path: Path, exclude: Iterable[tuple[str, str]], known: set[str]) -> list[tuple[str, str]]:
    pairs = name_pairs(path, "exclude", exclude, "link")
    for name in (name for pair in pairs for name in pair):
        if name not in known:
            raise ModelError(f"{path}: exclude names {name!r}, which is not a link; {', '.join(sorted(known))} are.")
    return pairs
