"""From the lists of bodies, shapes and drives that an importer found to a checked `Model`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .consistency import check_model
from .description import NQ, NV, Body, Drive, DriveType, JointType, Model, ModelError, Shape, frozen
from .pairs import order_pairs, shape_pairs
from .validate import check_bodies, check_drives, check_shapes

PER_DOF = (  # of Body and Model
    "armature", "damping", "stiffness", "spring_ref", "frictionloss", "lower", "upper", "limit_restitution",
)  # fmt: skip


def assemble(
    name: str,
    bodies: Sequence[Body],
    shapes: Sequence[Shape] = (),
    drives: Sequence[Drive] = (),
    *,
    exclude: Iterable[tuple[str, str]] = (),
    pairs: Sequence[tuple[int, int, float, float]] | None = None,
    gravity=(0.0, 0.0, -9.81),
    merged: Iterable[tuple[str, str]] = (),
    notes: Iterable[str] = (),
) -> Model:
    """Pack bodies (parents first), shapes and drives into a Model, after checking that it can be simulated.

    exclude: pairs of body names that never collide.
    pairs: (shape, shape, friction, restitution) if the file itself says what collides; otherwise every supported
        pair of shapes on different, not adjacent links, with geometric means of friction and larger restitution.
    """
    if not bodies:
        raise ModelError(f"{name}: there is no moving link, so there is nothing to simulate.")
    notes = [*notes, *check_bodies(name, bodies)]
    order = sorted(range(len(bodies)), key=lambda i: (bodies[i].order if bodies[i].order >= 0 else i, i))
    kinds = [bodies[i].joint_type for i in order]
    joint_of_link, q_start, v_start = (np.zeros(len(bodies), int) for _ in range(3))
    joint_of_link[order] = np.arange(len(bodies))
    q_start[order] = np.cumsum([0, *(NQ[kind] for kind in kinds)])[:-1]
    v_start[order] = np.cumsum([0, *(NV[kind] for kind in kinds)])[:-1]
    q0 = np.concatenate([_default_position(bodies[i]) for i in order])
    per_dof = {key: np.repeat([getattr(bodies[i], key) for i in order], [NV[k] for k in kinds]) for key in PER_DOF}

    link_of = {bodies[i].joint_name: i for i in order}
    for drive in drives:
        _check_drive(name, drive, bodies, link_of)
    check_drives(name, drives)
    check_shapes(name, shapes, len(bodies))
    drives = sorted(drives, key=lambda drive: joint_of_link[link_of[drive.joint]])
    driven = [link_of[drive.joint] for drive in drives]
    u0 = [_default_control(drive, q0[q_start[i]]) for drive, i in zip(drives, driven)]

    if pairs is None:
        pairs = shape_pairs(bodies, shapes, exclude, notes)
    else:
        pairs = order_pairs(shapes, pairs, notes)
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
        q_start=frozen(q_start, int),
        v_start=frozen(v_start, int),
        **{key: frozen(values) for key, values in per_dof.items()},
        drive_dof=frozen([v_start[i] for i in driven], int),
        drive_type=frozen([int(d.type) for d in drives], int),
        gear=frozen([d.gear for d in drives]),
        kp=frozen([d.kp for d in drives]),
        kd=frozen([d.kd for d in drives]),
        effort=frozen([d.effort for d in drives]),
        drive_names=tuple(d.name or d.joint for d in drives),
        shapes=tuple(shapes),
        pairs=frozen([p[:2] for p in pairs], int).reshape(-1, 2),
        pair_friction=frozen([p[2] for p in pairs]),
        pair_restitution=frozen([p[3] for p in pairs]),
        gravity=frozen(gravity),
        q0=frozen(q0),
        u0=frozen(u0),
        merged=tuple(merged),
        notes=tuple(notes),
    )
    check_model(model)
    return model


def _check_drive(name: str, drive: Drive, bodies: Sequence[Body], link_of: dict[str, int]) -> None:
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


def _default_control(drive: Drive, position: float) -> float:
    if drive.u0 is not None:
        return drive.u0
    return position / drive.gear if drive.type == DriveType.POSITION else 0.0
