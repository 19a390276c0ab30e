"""The description of one environment: a forest of links, their joints, shapes and drives, as plain numpy.

Importers (urdf.py, mjcf.py) make a list of `Body` and `Shape` records and pass them to `assemble`, which orders, checks
and packs them into an immutable `Model`. Everything on a device is made from a `Model` by the Simulator.

Conventions: SI units, z up, quaternions xyzw. One joint connects link i to link `parent[i]` (-1: the world). The
joint's frame is at `joint_pos`, `joint_quat` in the parent link; at q = 0 the link's frame coincides with it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from .ties import Ties

WORLD = -1
PLURALS = {"link": "links", "joint": "joints", "drive": "drives", "frame": "frames", "body": "bodies",
           "keyframe": "keyframes"}  # fmt: skip


class ModelError(ValueError):
    """A robot or scene that cannot be simulated; the message names the file, link or joint and says why."""


class JointType(IntEnum):
    """How a link moves relative to its parent."""

    FREE = 0  # q: position, quaternion; qd: linear velocity of the link's origin, angular velocity; world axes
    REVOLUTE = 1
    PRISMATIC = 2
    SPHERICAL = 3  # q: quaternion; qd: angular velocity in the joint's frame on the parent


NQ = {JointType.FREE: 7, JointType.REVOLUTE: 1, JointType.PRISMATIC: 1, JointType.SPHERICAL: 4}
NV = {JointType.FREE: 6, JointType.REVOLUTE: 1, JointType.PRISMATIC: 1, JointType.SPHERICAL: 3}


class ShapeType(IntEnum):
    """In a collision pair the lower type comes first."""

    SPHERE = 0  # size: radius
    CAPSULE = 1  # size: radius, half length of the cylindrical part; along its z axis
    BOX = 2  # size: half extents
    CYLINDER = 3  # size: radius, half length; along its z axis
    MESH = 4  # convex hull of `vertices`
    PLANE = 5  # infinite, normal along its z axis
    HEIGHTFIELD = 6  # surface of two triangles a cell; see `Shape.heights`
    BLOCKFIELD = 7  # columns with flat tops


FIELDS = (ShapeType.HEIGHTFIELD, ShapeType.BLOCKFIELD)


class DriveType(IntEnum):
    """How a drive turns its control u into a force tau."""

    TORQUE = 0  # tau = gear u, clipped to the effort limit
    POSITION = 1  # tau = kp (gear u - q) - kd qd
    VELOCITY = 2  # tau = kd (gear u - qd)


@dataclass
class Body:
    """One link and the joint to its parent, as an importer found them. Per-joint numbers apply to each of its dofs."""

    name: str
    parent: int
    joint_name: str
    joint_type: JointType
    pos: np.ndarray = field(default_factory=lambda: np.zeros(3))
    quat: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 1.0]))
    axis: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    mass: float = 0.0
    com: np.ndarray = field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))  # about the com, link axes
    armature: float = 0.0
    damping: float = 0.0
    stiffness: float = 0.0
    spring_ref: float = 0.0
    frictionloss: float = 0.0  # dry friction torque or force of the joint
    lower: float = -np.inf
    upper: float = np.inf
    limit_restitution: float = 0.0  # share of the approach speed that the joint's limits give back
    gravcomp: float = 0.0  # share of the link's weight that a force at its com holds
    order: int = -1  # place of the joint in q; -1: the place of the body in the list
    q0: np.ndarray | None = None  # default joint position; None: zero, or the joint's frame for a free joint
    frame_pos: np.ndarray = field(
        default_factory=lambda: np.zeros(3)
    )  # origin of the file's body frame in the link's frame


@dataclass(frozen=True)
class Frame:
    """A named place on a link, or on the world (link -1), that is not the link itself."""

    name: str
    link: int
    pos: np.ndarray  # in the link's frame
    quat: np.ndarray


@dataclass(frozen=True, eq=False)
class Keyframe:
    """A named state and control of the robot's file, as read-only arrays."""

    q: np.ndarray  # (nq,)
    qd: np.ndarray  # (nv,)
    u: np.ndarray  # (nu,)


@dataclass(frozen=True)
class Shape:
    """A collision (or only visible) shape on a link, or on the world (link -1)."""

    type: ShapeType
    link: int
    size: np.ndarray
    pos: np.ndarray = field(default_factory=lambda: np.zeros(3))
    quat: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 1.0]))
    name: str = ""
    body: str = ""  # the body of the file that it belonged to, before fixed joints were merged
    friction: float = 1.0
    restitution: float = 0.0
    color: tuple[float, float, float, float] | None = None
    collide: bool = True  # False: only visible
    vertices: np.ndarray | None = None  # (n, 3) hull corners of a mesh, in the shape's frame
    faces: np.ndarray | None = None  # (m, 3) hull triangles of a mesh, counter-clockwise seen from outside
    # of a field, m: node or column [i, j] is at x = (i - (rows - 1) / 2) spacing[0], likewise y, in the shape's frame
    heights: np.ndarray | None = None
    spacing: tuple[float, float] | None = None  # m, between rows and between columns


@dataclass(frozen=True)
class Thrust:
    """Where a drive pushes a link, and the force and torque per unit of its own force, in the link's frame."""

    link: int
    pos: np.ndarray  # (3,) m
    wrench: np.ndarray  # (6,) force, then torque


@dataclass(frozen=True)
class Drive:
    """Turns one entry of the control u into a force on one joint, on all joints of a tendon, or on a link."""

    joint: str  # "" if it acts on a tendon or has a thrust
    type: DriveType = DriveType.TORQUE
    gear: float = 1.0
    kp: float = 0.0
    kd: float = 0.0
    effort: float = np.inf  # limit of the force, N m or N
    effort_center: float = 0.0  # middle of the force's range: it is within `effort` of that
    name: str = ""
    u0: float | None = None  # None: the default pose for a position drive, zero for others
    control_range: tuple[float, float] = (-np.inf, np.inf)  # bounds of u
    thrust: Thrust | None = None  # of torque drives only
    tendon: str = ""  # name of a Coupling, in place of a joint


class _Keyframes(dict):
    """By name; a wrong name lists the nearest ones."""

    def __init__(self, model: Model, keyframes: dict[str, Keyframe]):
        super().__init__(keyframes)
        self._model = model

    def __missing__(self, name: str):
        self._model._index("keyframe", name)


@dataclass(frozen=True, eq=False)
class Model:
    """One environment, immutable. nl links, nq positions, nv velocities, nu controls, np collision pairs, nf frames.

    Frames are named places whose pose can be asked for: first every link, then every body of the file that a fixed
    joint merged into a link or into the world, then every named MJCF site. A link's frame is the one that the file gave
    its body, as Simulator.link_poses returns it. A frame's origin in the world is p + R frame_offset and its
    rotation R frame_quat, with p and R the link's frame, which joint_pos, joint_quat and q place.
    """

    name: str
    link_names: tuple[str, ...]
    joint_names: tuple[str, ...]  # in the order of q
    parent: np.ndarray  # (nl,) int, -1 for the world; parent[i] < i
    joint_of_link: np.ndarray  # (nl,) int, index into joint_names
    joint_type: np.ndarray  # (nl,) int, JointType
    joint_pos: np.ndarray  # (nl, 3) m, in the parent link
    joint_quat: np.ndarray  # (nl, 4)
    axis: np.ndarray  # (nl, 3) unit, in the joint's frame
    frame_pos: np.ndarray  # (nl, 3) m, origin of the file's body frame in the link's frame
    mass: np.ndarray  # (nl,) kg
    com: np.ndarray  # (nl, 3) m
    inertia: np.ndarray  # (nl, 3, 3) kg m^2 about the com, link axes
    gravcomp: np.ndarray  # (nl,) share of the weight that a force at the com holds
    q_start: np.ndarray  # (nl,) int, first entry of link i's joint in q
    v_start: np.ndarray  # (nl,) int, first entry of link i's joint in qd
    armature: np.ndarray  # (nv,) kg m^2 or kg
    damping: np.ndarray  # (nv,) N m s or N s/m
    stiffness: np.ndarray  # (nv,) N m/rad or N/m
    spring_ref: np.ndarray  # (nv,) rad or m
    frictionloss: np.ndarray  # (nv,) N m or N
    lower: np.ndarray  # (nv,) rad or m, -inf: no limit
    upper: np.ndarray  # (nv,) rad or m, inf: no limit
    limit_restitution: np.ndarray  # (nv,) share of the approach speed that a limit gives back
    drive_dof: np.ndarray  # (nu,) int, index into qd; -1: it acts on a tendon or pushes a link
    drive_type: np.ndarray  # (nu,) int, DriveType
    gear: np.ndarray  # (nu,)
    kp: np.ndarray  # (nu,) N m/rad or N/m
    kd: np.ndarray  # (nu,) N m s or N s/m
    effort: np.ndarray  # (nu,) N m or N, inf: no limit
    effort_center: np.ndarray  # (nu,) N m or N: the force is within `effort` of it; 0 unless the limits differ
    control_range: np.ndarray  # (nu, 2) lower and upper bound of u, in its own unit; -inf, inf: none
    drive_names: tuple[str, ...]
    thrust_drive: np.ndarray  # (nt,) int, the drives that push links
    thrust_link: np.ndarray  # (nt,) int
    thrust_pos: np.ndarray  # (nt, 3) m, in the link's frame
    thrust_wrench: np.ndarray  # (nt, 6) force and torque per unit of the drive's force, in the link's axes
    drive_coupling: np.ndarray  # (nu,) int, the tendon that a drive acts on, as a coupling of `ties`; -1: a joint
    shapes: tuple[Shape, ...]
    pairs: np.ndarray  # (np, 2) int, shapes that may touch; the lower ShapeType first
    pair_friction: np.ndarray  # (np,)
    pair_restitution: np.ndarray  # (np,)
    gravity: np.ndarray  # (3,) m/s^2
    q0: np.ndarray  # (nq,)
    u0: np.ndarray  # (nu,)
    key_names: tuple[str, ...]  # of the nk keyframes; `keyframes` has them by name
    key_q: np.ndarray  # (nk, nq)
    key_qd: np.ndarray  # (nk, nv)
    key_u: np.ndarray  # (nk, nu)
    frames: tuple[str, ...]  # the first nl are link_names
    frame_link: np.ndarray  # (nf,) int, -1: fixed to the world
    frame_offset: np.ndarray  # (nf, 3) m, in the link's frame; frame_pos for the first nl
    frame_quat: np.ndarray  # (nf, 4), relative to the link; the identity for the first nl
    merged: tuple[tuple[str, str], ...] = ()  # (body, link it was merged into) for every fixed joint
    notes: tuple[str, ...] = ()  # what the importer left out or changed, one sentence each
    ties: Ties = field(default_factory=Ties)  # loops that are closed, coupled joints and tendons

    @property
    def nq(self) -> int:
        """Length of q."""
        return len(self.q0)

    @property
    def nv(self) -> int:
        """Length of qd."""
        return len(self.armature)

    @property
    def field(self) -> Shape | None:
        """The height field or block field of the model, if it has one."""
        return next((s for s in self.shapes if s.type in FIELDS), None)

    @property
    def nu(self) -> int:
        """Length of the control u."""
        return len(self.u0)

    @property
    def num_links(self) -> int:
        """Number of moving links, nl."""
        return len(self.link_names)

    @property
    def keyframes(self) -> dict[str, Keyframe]:
        """Named states of the file (MJCF's <key>): keyframes["home"] has q, qd and u. They do not change q0 and u0.

        In a combined model a keyframe has every robot that knows its name in that state, and the others at q0 and u0.
        """
        rows = zip(self.key_names, self.key_q, self.key_qd, self.key_u)
        return _Keyframes(self, {name: Keyframe(*row) for name, *row in rows})

    def link(self, name: str) -> int:
        """Index of link `name` in link_names; a wrong name gives a ModelError with the nearest ones."""
        return self._index("link", name)

    def joint(self, name: str) -> int:
        """Index of joint `name` in joint_names."""
        return self._index("joint", name)

    def drive(self, name: str) -> int:
        """Index of drive `name` in drive_names and in u."""
        return self._index("drive", name)

    def frame(self, name: str) -> int:
        """Index of frame `name` in frames."""
        return self._index("frame", name)

    def shapes_of(self, body: str) -> frozenset[int]:
        """Indices of the shapes of a link, with all that is fixed to it, or of a body that was merged, alone."""
        self._index("body", body)
        if body in self._indices["link"]:
            link = self.link(body)
            return frozenset(k for k, shape in enumerate(self.shapes) if shape.link == link)
        return frozenset(k for k, shape in enumerate(self.shapes) if shape.body == body)

    def joint_q(self, name: str) -> slice:
        """Entries of joint `name` in q."""
        link = self._link_of_joint(name)
        start = int(self.q_start[link])
        return slice(start, start + NQ[JointType(self.joint_type[link])])

    def joint_v(self, name: str) -> slice:
        """Entries of joint `name` in qd."""
        link = self._link_of_joint(name)
        start = int(self.v_start[link])
        return slice(start, start + NV[JointType(self.joint_type[link])])

    def _link_of_joint(self, name: str) -> int:
        return int(self._joint_links[self.joint(name)])

    @cached_property
    def _joint_links(self) -> np.ndarray:
        """(nl,) int, the link of each joint."""
        return np.argsort(self.joint_of_link)

    @cached_property
    def _indices(self) -> dict[str, dict[str, int]]:
        """Index of each name; of two equal names, which only drives can have, the first."""
        bodies = (*self.link_names, *(body for body, _ in self.merged), *(shape.body for shape in self.shapes))
        lists = {
            "link": self.link_names, "joint": self.joint_names, "drive": self.drive_names, "frame": self.frames,
            "body": tuple(dict.fromkeys(bodies)), "keyframe": self.key_names,
        }  # fmt: skip
        return {kind: {names[k]: k for k in reversed(range(len(names)))} for kind, names in lists.items()}

    def _index(self, kind: str, name: str) -> int:
        known = self._indices[kind]
        if isinstance(name, str) and name in known:
            return known[name]
        merged = dict(self.merged)
        if kind == "link" and isinstance(name, str) and name in merged:
            raise ModelError(f"{self.name}: {name!r} is not a link; a fixed joint merged it into {merged[name]!r}.")
        near = difflib.get_close_matches(str(name), known, n=5, cutoff=0.0)
        listed = f"the nearest names are {', '.join(map(repr, near))}" if near else f"it has no {PLURALS[kind]}"
        raise ModelError(f"{self.name}: no {kind} is called {name!r}; {listed}.")

    def with_pose(self, q0: dict[str, float | Sequence[float]], u0: Sequence[float] | None = None) -> Model:
        """The same model with another default pose, given by joint name; position drives hold it unless u0 is given.

        A pose outside the limits of a joint is kept as given, and the limits push the joint back. Joints that are not
        named follow where loops and couplings ask for it.
        """
        from .closure import close, tendon_lengths
        from .validate import as_numbers, check_resistance, position_problem, usable

        q = self.q0.copy()
        for name, value in q0.items():
            place = self.joint_q(name)
            numbers = np.ravel(as_numbers(value))
            problem = position_problem(JointType(self.joint_type[self._link_of_joint(name)]), numbers)
            if problem:
                raise ModelError(f"{self.name}: the pose of joint {name!r} is {value!r}; {problem}.")
            q[place] = numbers
        outdated = [moved_inside(name) for name in q0] + list(POSE_NOTES)
        notes = tuple(note for note in self.notes if not any(beginning in note for beginning in outdated))
        posed = replace(self, q0=frozen(q), notes=notes)
        if self.ties:
            posed = close(posed, hold=q0)
        q = posed.q0
        u = self.u0.copy() if u0 is None else as_numbers(u0)
        if u0 is None:
            held = np.flatnonzero(self.drive_type == DriveType.POSITION)
            q_of_dof = np.zeros(self.nv, int)
            q_of_dof[self.v_start] = self.q_start
            at = q[q_of_dof[self.drive_dof[held]]]
            on_tendon = self.drive_coupling[held] >= 0
            at[on_tendon] = tendon_lengths(self, q)[self.drive_coupling[held][on_tendon]]
            u[held] = np.clip(at / self.gear[held], *self.control_range[held].T)
        if u.shape != self.u0.shape:
            raise ModelError(f"{self.name}: u0 has {u.size} entries, the model has {self.nu} drives.")
        if not usable(u):
            raise ModelError(f"{self.name}: u0 is {u.tolist()}; it must be finite numbers.")
        posed = replace(posed, u0=frozen(u))
        check_resistance(posed)
        return posed

    def save(self, path: str | os.PathLike) -> None:
        """Write the model as one .npz file, meshes included; `load` reads it back to the last bit."""
        from .file import save_model

        save_model(path, self)

    @staticmethod
    def load(path: str | os.PathLike) -> Model:
        """The model of a file that `save` wrote; wa.load reads such files and many other kinds."""
        from .file import load_model

        return load_model(path)

    def __str__(self) -> str:
        from .printing import tree

        return tree(self)

    def __repr__(self) -> str:
        return (
            f"Model({self.name!r}: {self.num_links} links, nq={self.nq}, nv={self.nv}, nu={self.nu}, "
            f"{len(self.shapes)} shapes, {len(self.pairs)} pairs)"
        )


POSE_NOTES = ("The default pose does not fulfil", "The default pose was moved to where")
"""How the notes of closure.py on the default pose begin; `with_pose` removes them."""


def moved_inside(joint: str) -> str:
    """How the note on a default position outside its limits begins; `with_pose` removes the note."""
    return f"The default position of joint {joint!r} was moved"


def frozen(a, dtype=float) -> np.ndarray:
    """A copy that cannot be written to."""
    a = np.array(a, dtype=dtype)
    a.setflags(write=False)
    return a
