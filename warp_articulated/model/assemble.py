"""From the lists of bodies, shapes and drives that an importer found to a checked `Model`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..geometry.rotations import IDENTITY, unit_quat
from .closure import complete, tendon_lengths
from .consistency import check_model
from .description import (
    NQ,
    NV,
    WORLD,
    Body,
    Drive,
    DriveType,
    Frame,
    JointType,
    Keyframe,
    Model,
    ModelError,
    Shape,
    Thrust,
    frozen,
    moved_inside,
)
from .pairs import PairTable, order_pairs, shape_pairs
from .tie_tables import pack
from .ties import Coupling, Loop
from .validate import check_bodies, check_drives, check_frames, check_shapes

PER_DOF = (  # of Body and Model
    "armature", "damping", "stiffness", "spring_ref", "frictionloss", "lower", "upper", "limit_restitution",
)  # fmt: skip


def assemble(
    name: str,
    bodies: Sequence[Body],
    shapes: Sequence[Shape] = (),
    drives: Sequence[Drive] = (),
    *,
    exclude: Iterable[Collection[str]] = (),
    pairs: PairTable | Sequence[tuple[int, int, float, float]] | None = None,
    gravity=(0.0, 0.0, -9.81),
    inside_limits: bool = True,
    frames: Sequence[Frame] = (),
    keyframes: Mapping[str, Keyframe] | None = None,
    loops: Sequence[Loop] = (),
    couplings: Sequence[Coupling] = (),
    merged: Iterable[tuple[str, str]] = (),
    notes: Iterable[str] = (),
) -> Model:
    """Pack bodies (parents first), shapes and drives into a Model, after checking that it can be simulated.

    exclude: pairs, or larger groups, of body names that never collide with each other.
    pairs: (shape, shape, friction, restitution) if the file itself says what collides; otherwise every supported
        pair of shapes on different, not adjacent links, with geometric means of friction and larger restitution.
    inside_limits: move a default position that is outside its joint's limits to the nearer one, with a note.
    frames: merged bodies and sites; links are frames without being listed.
    drives: their order is that of u.
    keyframes: by name.
    loops, couplings: equality constraints and tendons. The default pose is moved to where it fulfils them, with a note.
    """
    if not bodies:
        raise ModelError(f"{name}: there is no moving link, so there is nothing to simulate.")
    notes = [*notes, *check_bodies(name, bodies)]
    check_frames(name, bodies, frames)
    order = sorted(range(len(bodies)), key=lambda i: (bodies[i].order if bodies[i].order >= 0 else i, i))
    kinds = [bodies[i].joint_type for i in order]
    joint_of_link, q_start, v_start = (np.zeros(len(bodies), int) for _ in range(3))
    joint_of_link[order] = np.arange(len(bodies))
    q_start[order] = np.cumsum([0, *(NQ[kind] for kind in kinds)])[:-1]
    v_start[order] = np.cumsum([0, *(NV[kind] for kind in kinds)])[:-1]
    positions = [_default_position(bodies[i]) for i in order]
    if inside_limits:
        notes += _move_inside([bodies[i] for i in order], positions)
    q0 = np.concatenate(positions)
    counts = [NV[kind] for kind in kinds]
    per_dof: dict[str, Any] = {
        key: frozen(np.repeat([getattr(bodies[i], key) for i in order], counts)) for key in PER_DOF
    }

    link_of = {bodies[i].joint_name: i for i in order}
    tendons = {c.name: k for k, c in enumerate(couplings) if not c.held}
    for drive in drives:
        if drive.thrust is None:
            _check_drive(name, drive, bodies, link_of, tendons)
    check_drives(name, drives, len(bodies))
    check_shapes(name, shapes, len(bodies))
    dof_of = {b.joint_name: int(v_start[i]) for i, b in enumerate(bodies) if NV[b.joint_type] == 1}
    ties = pack(name, bodies, dof_of, loops, couplings)
    driven = [link_of[drive.joint] if drive.joint else WORLD for drive in drives]

    keys = keyframes or {}
    if pairs is None:
        table = shape_pairs(bodies, shapes, exclude)
    else:
        table = order_pairs(shapes, pairs if isinstance(pairs, PairTable) else PairTable.of(pairs))
    model = Model(
        name=name,
        link_names=tuple(b.name for b in bodies),
        joint_names=tuple(link_of),
        parent=frozen([b.parent for b in bodies], int),
        joint_of_link=frozen(joint_of_link, int),
        joint_type=frozen([int(b.joint_type) for b in bodies], int),
        joint_pos=frozen([b.pos for b in bodies]),
        joint_quat=frozen([b.quat / np.linalg.norm(b.quat) for b in bodies]),
        axis=frozen([b.axis / np.linalg.norm(b.axis) for b in bodies]),
        frame_pos=frozen([b.frame_pos for b in bodies]),
        mass=frozen([b.mass for b in bodies]),
        com=frozen([b.com for b in bodies]),
        inertia=frozen([b.inertia for b in bodies]),
        gravcomp=frozen([b.gravcomp for b in bodies]),
        q_start=frozen(q_start, int),
        v_start=frozen(v_start, int),
        **per_dof,
        drive_dof=frozen([v_start[i] if i != WORLD else -1 for i in driven], int),
        drive_coupling=frozen([tendons[d.tendon] if d.tendon else -1 for d in drives], int),
        drive_type=frozen([int(d.type) for d in drives], int),
        gear=frozen([d.gear for d in drives]),
        kp=frozen([d.kp for d in drives]),
        kd=frozen([d.kd for d in drives]),
        effort=frozen([d.effort for d in drives]),
        effort_center=frozen([d.effort_center for d in drives]),
        control_range=frozen([d.control_range for d in drives]).reshape(-1, 2),
        drive_names=tuple(d.name or d.joint for d in drives),
        **thrust_arrays([d.thrust for d in drives]),
        shapes=tuple(shapes),
        pairs=frozen(table.shapes, int),
        pair_friction=frozen(table.friction),
        pair_restitution=frozen(table.restitution),
        gravity=frozen(gravity),
        q0=frozen(q0),
        u0=frozen(np.zeros(len(drives))),
        key_names=tuple(keys),
        key_q=frozen([key.q for key in keys.values()]).reshape(len(keys), len(q0)),
        key_qd=frozen([key.qd for key in keys.values()]).reshape(len(keys), sum(counts)),
        key_u=frozen([key.u for key in keys.values()]).reshape(len(keys), len(drives)),
        **frame_arrays([b.name for b in bodies], [b.frame_pos for b in bodies], frames),
        merged=tuple(merged),
        notes=tuple(notes),
        ties=ties,
    )
    model = _with_default_control(complete(model), drives)
    check_model(model)
    return model


def frame_arrays(link_names: Sequence[str], frame_pos: Any, frames: Sequence[Frame] = ()) -> dict[str, Any]:
    """The fields of a Model about its frames: those of the links, and `frames` after them."""
    count = len(link_names)
    return {
        "frames": (*link_names, *(f.name for f in frames)),
        "frame_link": frozen([*range(count), *(f.link for f in frames)], int),
        "frame_offset": frozen([*frame_pos, *(f.pos for f in frames)]),
        "frame_quat": frozen([*([IDENTITY] * count), *(unit_quat(f.quat) for f in frames)]),
    }


def thrust_arrays(thrusts: Sequence[Thrust | None]) -> dict[str, Any]:
    """The fields of a Model about drives that push links, from the thrust of each drive."""
    found = [(k, thrust) for k, thrust in enumerate(thrusts) if thrust is not None]
    return {
        "thrust_drive": frozen([k for k, _ in found], int),
        "thrust_link": frozen([thrust.link for _, thrust in found], int),
        "thrust_pos": frozen([thrust.pos for _, thrust in found]).reshape(-1, 3),
        "thrust_wrench": frozen([thrust.wrench for _, thrust in found]).reshape(-1, 6),
    }


def _check_drive(
    name: str, drive: Drive, bodies: Sequence[Body], link_of: dict[str, int], tendons: Collection[str]
) -> None:
    if drive.tendon:
        if drive.joint or drive.tendon not in tendons:
            raise ModelError(f"{name}: drive {drive.name!r} acts on {drive.tendon!r}, which is not a tendon.")
        return
    if drive.joint not in link_of:
        raise ModelError(f"{name}: drive {drive.name!r} acts on joint {drive.joint!r}, which is not a moving joint.")
    if NV[bodies[link_of[drive.joint]].joint_type] != 1:
        raise ModelError(
            f"{name}: drive {drive.name!r} acts on joint {drive.joint!r}, "
            "but only revolute and prismatic joints can be driven."
        )


def _default_position(body: Body) -> np.ndarray:
    if body.q0 is not None:
        return np.asarray(body.q0, float)
    if body.joint_type == JointType.FREE:
        return np.concatenate([body.pos, body.quat / np.linalg.norm(body.quat)])
    if body.joint_type == JointType.SPHERICAL:
        return np.array([0.0, 0.0, 0.0, 1.0])
    return np.zeros(1)


def _move_inside(bodies: Sequence[Body], positions: list[np.ndarray]) -> list[str]:
    """Clip positions of revolute and prismatic joints to their limits; returns a note for each that was outside."""
    notes = []
    for k, (body, position) in enumerate(zip(bodies, positions)):
        if NV[body.joint_type] == 1 and not body.lower <= position[0] <= body.upper:
            positions[k] = np.clip(position, body.lower, body.upper)
            change = f"from {position[0]:.4g} to {positions[k][0]:.4g}"
            notes.append(f"{moved_inside(body.joint_name)} {change}, the nearer of its limits.")
    return notes


def _with_default_control(model: Model, drives: Sequence[Drive]) -> Model:
    """The model with the controls of its drives, or those that hold the default pose; in their ranges."""
    lengths, q_of_dof = tendon_lengths(model, model.q0), dict(zip(model.v_start.tolist(), model.q_start.tolist()))

    def control(k: int, drive: Drive) -> float:
        if drive.u0 is not None:
            return drive.u0
        if drive.type != DriveType.POSITION:
            return 0.0
        if drive.tendon:
            return float(lengths[model.drive_coupling[k]]) / drive.gear
        return float(model.q0[q_of_dof[int(model.drive_dof[k])]]) / drive.gear

    u0 = np.array([control(k, drive) for k, drive in enumerate(drives)])
    bounds = model.control_range.T
    outside = [drive for drive, u, low, high in zip(model.drive_names, u0, *bounds) if not low <= u <= high]
    notes = model.notes
    if outside:
        note = f"The default control of {', '.join(outside)} is outside its control range and moved to its end."
        notes = (*notes, note)
    return replace(model, u0=frozen(np.clip(u0, *bounds)), notes=notes)
