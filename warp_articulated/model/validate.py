"""Checks of importers' options, and that a list of bodies can be simulated, made once for every Model.

Input without a meaning or a solution is refused. Input that is only unlikely in a real robot, and that Pinocchio,
PyBullet and MuJoCo load as well, is used as given and becomes a note of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..geometry.rotations import IDENTITY, quat_multiply, quat_to_matrix, unit_quat
from .description import NQ, WORLD, Body, Frame, JointType, Model, ModelError

# Real files are rounded to a few digits: a thousandth of the largest moment is accepted without a note.
TRIANGLE_TOLERANCE = 1e-3
NEGATIVE_TOLERANCE = 1e-6


def check_flags(path: object, **flags: bool | None) -> None:
    """Refuse strings and numbers for options of an importer that are on or off: "false" would count as on."""
    for name, value in flags.items():
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ModelError(f"{path}: {name}={value!r} must be True or False.")


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


def _check_numbers(where: str, body: Body) -> None:
    shapes = {"pos": 3, "quat": 4, "axis": 3, "com": 3, "frame_pos": 3}
    for key, size in shapes.items():
        value = np.asarray(getattr(body, key), float)
        if value.shape != (size,) or not np.isfinite(value).all():
            raise ModelError(f"{where}: {key} is {value.tolist()}; it must be {size} finite numbers.")
    inertia = np.asarray(body.inertia, float)
    if inertia.shape != (3, 3) or not np.isfinite(inertia).all():
        raise ModelError(f"{where}: the inertia must be 3 x 3 finite numbers, not {inertia.tolist()}.")
    for key in ("mass", "armature", "damping", "stiffness", "frictionloss", "limit_restitution"):
        value = getattr(body, key)
        if not (math.isfinite(value) and value >= 0):
            raise ModelError(f"{where}: the {key} is {value}; it must be a finite number that is not negative.")
    if not math.isfinite(body.spring_ref):
        raise ModelError(f"{where}: the spring's reference is {body.spring_ref}; it must be a finite number.")
    if body.q0 is not None:
        q0 = np.asarray(body.q0, float)
        if q0.shape != (NQ[body.joint_type],) or not np.isfinite(q0).all():
            raise ModelError(f"{where}: q0 is {q0.tolist()}; it must be {NQ[body.joint_type]} finite numbers.")


def _check_joint(where: str, body: Body) -> None:
    if body.joint_type == JointType.FREE and body.parent != WORLD:
        raise ModelError(
            f"{where} is free but its parent is another link; the parent of a free joint must be the world."
        )
    if np.linalg.norm(body.quat) < 1e-9:
        raise ModelError(f"{where}: the quaternion of its frame is zero.")
    if body.joint_type in (JointType.REVOLUTE, JointType.PRISMATIC) and np.linalg.norm(body.axis) < 1e-9:
        raise ModelError(f"{where}: its axis is zero; it must have a direction.")
    if math.isnan(body.lower) or math.isnan(body.upper) or body.lower > body.upper:
        raise ModelError(
            f"{where}: the lower limit {body.lower:g} is above the upper limit {body.upper:g}; swap them, or leave "
            "them out if the joint has no limits."
        )


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
