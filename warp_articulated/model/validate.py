"""Checks of importers' options, and that bodies, shapes and drives can be simulated, made once for every Model.

Input without a meaning or a solution is refused. Input that is only unlikely in a real robot, and that Pinocchio,
PyBullet and MuJoCo load as well, is used as given and becomes a note of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from ..geometry.rotations import IDENTITY, quat_multiply, quat_to_matrix, unit_quat
from .description import (
    FIELDS,
    NQ,
    WORLD,
    Body,
    Drive,
    DriveType,
    Frame,
    JointType,
    Model,
    ModelError,
    Shape,
    ShapeType,
)

# Real files are rounded to a few digits: a thousandth of the largest moment is accepted without a note.
TRIANGLE_TOLERANCE = 1e-3
NEGATIVE_TOLERANCE = 1e-6
MOST_HEIGHTS = 1 << 20  # a contact's feature, a 32-bit number, names the node
# Nothing real is larger in SI units, and products of a few such numbers would be infinite in single precision.
LARGEST = 1e15
SIZES = {  # how many numbers of its size a shape uses
    ShapeType.SPHERE: 1, ShapeType.CAPSULE: 2, ShapeType.BOX: 3, ShapeType.CYLINDER: 2, ShapeType.MESH: 0,
    ShapeType.PLANE: 0, ShapeType.HEIGHTFIELD: 0, ShapeType.BLOCKFIELD: 0,
}  # fmt: skip


def check_flags(path: object, **flags: bool | None) -> None:
    """Refuse strings and numbers for options of an importer that are on or off: "false" would count as on."""
    for name, value in flags.items():
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ModelError(f"{path}: {name}={value!r} must be True or False.")


def names_in(where: object, key: str, given: object) -> list[str]:
    """The list of names that option `key` must be."""
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise ModelError(f"{where}: {key}={given!r} must be a list of names.")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"{where}: {key} has {name!r}; it must be a list of names.")
    return names


def name_pairs(where: object, key: str, given: object, kind: str) -> list[tuple[str, str]]:
    """The pairs of names that option `key` must be."""
    pairs = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, Mapping)) else [given]
    for pair in pairs:
        if not isinstance(pair, (Sequence, Set)) or isinstance(pair, str) or len(pair) != 2:
            raise ModelError(f"{where}: {key}={pair!r} must be pairs of {kind} names, such as [('hip', 'shin')].")
    return [(a, b) for a, b in (names_in(where, key, pair) for pair in pairs)]


def check_bodies(name: str, bodies: Sequence[Body]) -> list[str]:
    """Raise ModelError for bodies that cannot be simulated; return notes on doubtful ones."""
    _check_names(name, bodies)
    notes: list[str] = []
    thin: list[str] = []
    for i, body in enumerate(bodies):
        where = f"{name}: link {body.name!r}"
        if body.parent >= i or body.parent < WORLD:
            raise ModelError(f"{where} has parent {body.parent}; a parent must come earlier, or be -1.")
        _check_numbers(where, body)
        check_dof(where, body)
        _check_joint(f"{name}: joint {body.joint_name!r}", body)
        if _check_inertia(where, body):
            thin.append(body.name)
    if thin:
        notes.append(
            f"The inertia of {', '.join(thin)} breaks the triangle inequality (one principal moment is larger than "
            "the sum of the others), which no real body does; it is used as given."
        )
    _check_massless_leaves(name, bodies)
    return notes


def _check_names(name: str, bodies: Sequence[Body]) -> None:
    for kind, names in (("links", [b.name for b in bodies]), ("joints", [b.joint_name for b in bodies])):
        seen: set[str] = set()
        for word in names:
            if not word:
                raise ModelError(f"{name}: one of the {kind} has no name.")
            if word in seen:
                raise ModelError(f"{name}: two {kind} are called {word!r}; names must be unique.")
            seen.add(word)


def check_frames(name: str, bodies: Sequence[Body], frames: Sequence[Frame]) -> None:
    """Raise ModelError for frames whose names, links or numbers cannot be used."""
    seen = {b.name for b in bodies}
    for frame in frames:
        if not frame.name or frame.name in seen:
            raise ModelError(f"{name}: two frames are called {frame.name!r}, or it is empty; names must be unique.")
        seen.add(frame.name)
        numbers = np.concatenate([frame.pos, frame.quat])
        if not (WORLD <= frame.link < len(bodies) and numbers.shape == (7,) and np.isfinite(numbers).all()):
            raise ModelError(
                f"{name}: frame {frame.name!r} is at {numbers.tolist()} on link {frame.link}; it needs a position, a "
                f"quaternion and a link below {len(bodies)}."
            )


def as_numbers(value: object) -> np.ndarray:
    """The value as an array; NaN if it is not made of numbers."""
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError, OverflowError):  # text, lists of different lengths, numbers beyond 1e308
        return np.array(np.nan)


def usable(numbers: object) -> bool:
    """Whether all numbers are finite and not larger than LARGEST."""
    return bool((np.abs(np.asarray(numbers, float)) <= LARGEST).all())  # false for NaN


def check_vector(where: str, key: str, value: object, size: int) -> None:
    """Refuse anything but `size` finite numbers."""
    numbers = np.asarray(value, float)
    if numbers.shape != (size,) or not usable(numbers):
        raise ModelError(f"{where}: {key} is {numbers.tolist()}; it must be {size} finite numbers up to {LARGEST:g}.")


def check_amount(where: str, key: str, value: float) -> None:
    """Refuse negative numbers and those that are not finite."""
    if not (usable(value) and value >= 0):
        raise ModelError(
            f"{where}: the {key} is {value}; it must be a finite number that is not negative, up to {LARGEST:g}."
        )


def position_problem(kind: JointType, q: np.ndarray) -> str:
    """Why a joint cannot be at q; empty if it can."""
    if q.shape != (NQ[kind],) or not usable(q):
        return f"it must be {NQ[kind]} finite numbers up to {LARGEST:g}"
    if kind in (JointType.FREE, JointType.SPHERICAL) and np.linalg.norm(q[-4:]) < 1e-3:
        return "its quaternion must not be zero"
    return ""


def _check_numbers(where: str, body: Body) -> None:
    for key, size in (("pos", 3), ("quat", 4), ("axis", 3), ("com", 3), ("frame_pos", 3)):
        check_vector(where, key, getattr(body, key), size)
    inertia = np.asarray(body.inertia, float)
    if inertia.shape != (3, 3) or not usable(inertia):
        raise ModelError(
            f"{where}: the inertia must be 3 x 3 finite numbers up to {LARGEST:g}, not {inertia.tolist()}."
        )
    check_amount(where, "mass", body.mass)
    if not usable(body.gravcomp):
        raise ModelError(f"{where}: gravcomp is {body.gravcomp}; it must be a finite number up to {LARGEST:g}.")
    if body.q0 is not None:
        q0 = np.asarray(body.q0, float)
        problem = position_problem(body.joint_type, q0)
        if problem:
            raise ModelError(f"{where}: q0 is {q0.tolist()}; {problem}.")


def check_dof(where: str, body: Body) -> None:
    """The numbers of a body that a Model has for every dof."""
    for key in ("armature", "damping", "stiffness", "frictionloss", "limit_restitution"):
        check_amount(where, key, getattr(body, key))
    if not usable(body.spring_ref):
        raise ModelError(f"{where}: the spring's reference is {body.spring_ref}; it must be a finite number.")
    if not (body.lower <= body.upper and body.lower < math.inf and body.upper > -math.inf):
        raise ModelError(
            f"{where}: the lower limit {body.lower:g} is above the upper limit {body.upper:g}; swap them, or leave "
            "them out if the joint has no limits."
        )


def _check_joint(where: str, body: Body) -> None:
    if body.joint_type == JointType.FREE and body.parent != WORLD:
        raise ModelError(
            f"{where} is free but its parent is another link; the parent of a free joint must be the world."
        )
    if np.linalg.norm(body.quat) < 1e-9:
        raise ModelError(f"{where}: the quaternion of its frame is zero.")
    if np.linalg.norm(body.axis) < 1e-9:
        raise ModelError(f"{where}: its axis is zero; it must have a direction.")


def check_shapes(name: str, shapes: Sequence[Shape], links: int) -> None:
    """Raise ModelError for shapes that cannot be on one of so many links."""
    for k, shape in enumerate(shapes):
        where = f"{name}: shape {shape.name!r}" if shape.name else f"{name}: shape {k}"
        if not WORLD <= shape.link < links:
            raise ModelError(f"{where} is on link {shape.link}; it must be one of the {links} links, or -1.")
        if shape.type == ShapeType.PLANE and shape.link != WORLD:
            raise ModelError(f"{where}: a plane must be fixed to the world, not to a moving link; use a box.")
        if shape.type in FIELDS:
            _check_field(where, shape)
        check_vector(where, "pos", shape.pos, 3)
        check_vector(where, "quat", shape.quat, 4)
        if np.linalg.norm(shape.quat) < 1e-9:
            raise ModelError(f"{where}: its quaternion is zero.")
        _check_size(where, shape)
        check_amount(where, "friction", shape.friction)
        check_amount(where, "restitution", shape.restitution)
        if shape.color is not None:
            check_vector(where, "color", shape.color, 4)
        if shape.type == ShapeType.MESH:
            _check_mesh(where, shape)
    fields = [shape.name or "without a name" for shape in shapes if shape.type in FIELDS]
    if len(fields) > 1:
        raise ModelError(f"{name}: {len(fields)} shapes are fields ({', '.join(fields)}); a model can have one.")


def _check_field(where: str, shape: Shape) -> None:
    kind = shape.type.name.lower()
    heights = np.zeros(0) if shape.heights is None else np.asarray(shape.heights, float)
    if heights.ndim != 2 or min(heights.shape) < 2 or not usable(heights):
        raise ModelError(
            f"{where}: the heights of this {kind} must be finite numbers up to {LARGEST:g} in at least 2 rows and 2 "
            f"columns; their shape is {heights.shape}."
        )
    if heights.size > MOST_HEIGHTS:
        raise ModelError(f"{where}: this {kind} has {heights.size} heights; at most {MOST_HEIGHTS} are supported.")
    spacing = np.zeros(0) if shape.spacing is None else np.asarray(shape.spacing, float)
    if spacing.shape != (2,) or not usable(spacing) or not (spacing > 0).all():
        raise ModelError(f"{where}: the spacing of this {kind} is {shape.spacing}; it must be two positive numbers.")
    if shape.link != WORLD:
        raise ModelError(f"{where}: a {kind} must be fixed to the world, not to a moving link; use boxes or meshes.")


def _check_size(where: str, shape: Shape) -> None:
    size, used = np.asarray(shape.size, float), SIZES[shape.type]
    if size.ndim != 1 or not used <= len(size) <= 3 or not usable(size) or not (size[:used] > 0).all():
        raise ModelError(
            f"{where}: the size of this {shape.type.name.lower()} is {size.tolist()}; it must be {used} positive "
            f"number(s) up to {LARGEST:g}."
        )


def _check_mesh(where: str, shape: Shape) -> None:
    corners = np.zeros(0) if shape.vertices is None else np.asarray(shape.vertices, float)
    if corners.ndim != 2 or corners.shape[1] != 3 or len(corners) == 0 or not usable(corners):
        raise ModelError(f"{where}: the vertices of a mesh must be (n, 3) finite numbers up to {LARGEST:g}.")
    if shape.faces is not None and len(shape.faces):
        faces = np.asarray(shape.faces)
        if faces.shape[1:] != (3,) or faces.dtype.kind not in "iu" or faces.min() < 0 or faces.max() >= len(corners):
            raise ModelError(f"{where}: the faces of a mesh must be (m, 3) indices of its {len(corners)} vertices.")


def check_drives(name: str, drives: Sequence[Drive], links: int) -> None:
    """Raise ModelError for drives without a meaning, or that push none of so many links."""
    for drive in drives:
        where = f"{name}: drive {drive.name or drive.joint!r}"
        if drive.thrust is not None:
            _check_thrust(where, drive, links)
        if not usable(drive.gear) or (drive.gear == 0 and drive.type == DriveType.POSITION):
            raise ModelError(f"{where}: its gear is {drive.gear}; it must be a finite number that is not zero.")
        check_amount(where, "kp", drive.kp)
        check_amount(where, "kd", drive.kd)
        if not drive.effort >= 0:
            raise ModelError(f"{where}: its effort limit is {drive.effort}; it must be zero or more, or infinite.")
        if not usable(drive.effort_center):
            raise ModelError(
                f"{where}: the middle of its efforts is {drive.effort_center}; it must be a finite number."
            )
        if drive.u0 is not None and not usable(drive.u0):
            raise ModelError(f"{where}: its default control u0 is {drive.u0}; it must be a finite number.")
        low, high = drive.control_range
        if not (low <= high and low < np.inf and high > -np.inf):
            raise ModelError(f"{where}: its control range is {low:g} to {high:g}; swap the bounds.")


def _check_thrust(where: str, drive: Drive, links: int) -> None:
    assert drive.thrust is not None
    if drive.joint:
        raise ModelError(f"{where} pushes a link, so it cannot act on joint {drive.joint!r} as well.")
    if drive.type != DriveType.TORQUE:
        raise ModelError(f"{where} pushes a link, so it must be a torque drive, not a {drive.type.name.lower()} drive.")
    if not 0 <= drive.thrust.link < links:
        raise ModelError(f"{where} pushes link {drive.thrust.link}; it must be one of the {links} links.")
    check_vector(where, "the place of its thrust", drive.thrust.pos, 3)
    check_vector(where, "the force and torque of its thrust", drive.thrust.wrench, 6)


def _check_inertia(where: str, body: Body) -> bool:
    """Refuse an impossible inertia; True if it breaks the triangle inequality by more than rounding."""
    problem = inertia_problem(body.inertia)
    if problem:
        raise ModelError(f"{where}: {problem}")
    low, middle, high = np.linalg.eigvalsh(body.inertia)
    return bool(low + middle < high * (1 - TRIANGLE_TOLERANCE))


def inertia_problem(inertia: np.ndarray) -> str:
    """Why this inertia (3, 3) cannot be simulated; empty if it can."""
    inertia = np.asarray(inertia, float)
    if not usable(inertia):
        return f"the inertia matrix must be finite numbers up to {LARGEST:g}, not {inertia.tolist()}."
    size = np.abs(inertia).max()
    if np.abs(inertia - inertia.T).max() > 1e-9 * size:
        return f"the inertia matrix is not symmetric: {inertia.tolist()}."
    low, middle, high = np.linalg.eigvalsh(inertia)
    if low < -max(NEGATIVE_TOLERANCE * size, 1e-15):
        return (
            f"the inertia has a negative principal moment, so it would turn against a torque; the principal moments "
            f"are {low:.4g}, {middle:.4g} and {high:.4g} kg m^2 and must not be negative."
        )
    return ""


def _check_massless_leaves(name: str, bodies: Sequence[Body]) -> None:
    inner = {b.parent for b in bodies}
    for i, body in enumerate(bodies):
        if i not in inner and body.mass == 0 and body.armature == 0 and not np.any(body.inertia):
            raise ModelError(
                f"{name}: link {body.name!r} has no mass and carries no other link, so nothing resists its joint "
                f"{body.joint_name!r}; give it an inertia, or make the joint fixed."
            )


def check_resistance(model: Model) -> None:
    """Articulated inertias at q0 (Featherstone, RBDA 7.3): each joint's D = S^T IA S + armature must be positive.

    Every link in its own axes; the 6 x 6 inertias [[I, m c], [-m c, m]] are about its origin.
    """
    inertia, motion = _spatial_inertias(model), _motion_transforms(model)
    for i in reversed(range(model.num_links)):
        IA, S = inertia[i], _subspace(model, i)
        U = IA @ S
        dofs = slice(model.v_start[i], model.v_start[i] + S.shape[1])
        D = S.T @ U + np.diag(model.armature[dofs])
        diagonal = np.diag(D)
        # below this it is rounding of the sums above, not inertia
        if diagonal.min() <= 1e-13 * max(np.abs(IA).max(), 1e-6):
            weakest = 0.0
        elif len(D) == 1:
            weakest = 1.0
        else:
            scale = 1 / np.sqrt(diagonal)
            weakest = np.linalg.eigvalsh(D * np.outer(scale, scale)).min()
        if weakest < 1e-10:
            raise ModelError(
                f"{model.name}: nothing resists joint {model.joint_names[model.joint_of_link[i]]!r}: link "
                f"{model.link_names[i]!r} and the links it carries have no inertia in one of its directions; give the "
                "link a mass and an inertia, or the joint an armature."
            )
        parent = model.parent[i]
        if parent != WORLD:
            rest = IA - U @ (U.T / D if len(D) == 1 else np.linalg.solve(D, U.T))
            inertia[parent] += motion[i].T @ rest @ motion[i]


def _spatial_inertias(model: Model) -> np.ndarray:
    """(nl, 6, 6)"""
    mass, c = model.mass[:, None, None], _cross(model.com)
    full = np.zeros((model.num_links, 6, 6))
    full[:, :3, :3] = model.inertia - mass * c @ c
    full[:, :3, 3:], full[:, 3:, :3] = mass * c, -mass * c
    full[:, 3:, 3:] = mass * np.eye(3)
    return full


def _motion_transforms(model: Model) -> np.ndarray:
    """(nl, 6, 6): the motion of a link's origin, in its axes, from that of its parent's, if the joint stands at q0."""
    turn = np.tile(IDENTITY, (model.num_links, 1))
    balls = np.flatnonzero(model.joint_type == JointType.SPHERICAL)
    turn[balls] = unit_quat(model.q0[model.q_start[balls, None] + np.arange(4)])
    position = model.q0[model.q_start][:, None]
    hinges, slides = (model.joint_type == kind for kind in (JointType.REVOLUTE, JointType.PRISMATIC))
    turn[hinges, :3] = (model.axis * np.sin(position / 2))[hinges]
    turn[hinges, 3:] = np.cos(position / 2)[hinges]
    R = quat_to_matrix(quat_multiply(model.joint_quat, turn))
    shift = model.joint_pos + np.where(slides[:, None], position * (R @ model.axis[:, :, None])[..., 0], 0.0)
    back = R.transpose(0, 2, 1)
    motion = np.zeros((model.num_links, 6, 6))
    motion[:, :3, :3] = motion[:, 3:, 3:] = back
    motion[:, 3:, :3] = -back @ _cross(shift)
    return motion


def _subspace(model: Model, i: int) -> np.ndarray:
    """(6, nv) motion of the link's origin per unit qd, in its axes: angular rows first."""
    kind = model.joint_type[i]
    if kind == JointType.FREE:
        return np.eye(6)
    if kind == JointType.SPHERICAL:
        return np.eye(6)[:, :3]
    column = np.zeros((6, 1))
    column[slice(3) if kind == JointType.REVOLUTE else slice(3, 6), 0] = model.axis[i]
    return column


def _cross(v: np.ndarray) -> np.ndarray:
    """Matrices (n, 3, 3) of the cross product with vectors (n, 3)."""
    full = np.zeros((len(v), 3, 3))
    full[:, 2, 1], full[:, 0, 2], full[:, 1, 0] = v.T
    return full - full.transpose(0, 2, 1)
