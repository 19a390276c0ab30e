"""Checks that the arrays of a Model agree with each other; what they say is checked in validate.py.

Kernels read these indices without looking: one that is out of range would end the process.
"""

from __future__ import annotations

import numpy as np

from .description import NQ, NV, DriveType, JointType, Model, ModelError, Shape, ShapeType
from .pairs import CONVEX, FIELD_SLOTS, SLOTS
from .validate import check_resistance, check_vector, usable

MOST_CODES = 1 << 25  # corners of a mesh times heights of a field: a 32-bit number names 64 features of each


def check_tables(model: Model) -> None:
    """Refuse tables of joints and drives that Body and Drive records could not have given."""
    links = model.num_links
    if links == 0:
        raise ModelError(f"{model.name}: there is no moving link, so there is nothing to simulate.")
    if len(model.joint_names) != links or not np.array_equal(np.sort(model.joint_of_link), np.arange(links)):
        raise ModelError(f"{model.name}: joint_of_link must name each of the {len(model.joint_names)} joints once.")
    _check_kinds(model, "joint_type", JointType)
    _check_kinds(model, "drive_type", DriveType)
    order = np.argsort(model.joint_of_link)
    kinds = [JointType(kind) for kind in model.joint_type[order]]
    for key, sizes, total in (("q_start", NQ, model.nq), ("v_start", NV, model.nv)):
        places = np.cumsum([0, *(sizes[kind] for kind in kinds)])
        if total != places[-1] or not np.array_equal(getattr(model, key)[order], places[:-1]):
            raise ModelError(f"{model.name}: {key} does not fit the types and the order of the joints.")
    driven = model.v_start[np.isin(model.joint_type, [kind for kind in JointType if NV[kind] == 1])]
    _check_ties(model, driven)
    pushes = np.isin(np.arange(model.nu), model.thrust_drive)
    pulls = model.drive_coupling >= 0
    if not np.array_equal(np.flatnonzero(pushes), model.thrust_drive) or (model.drive_dof[pushes | pulls] != -1).any():
        raise ModelError(f"{model.name}: thrust_drive must name the drives with drive_dof -1, once and in their order.")
    if (pushes & pulls).any():
        raise ModelError(f"{model.name}: a drive can act on a tendon or push a link, but not both.")
    for k in np.flatnonzero(~(np.isin(model.drive_dof, driven) | pushes | pulls)):
        raise ModelError(
            f"{model.name}: drive_dof[{k}] is {model.drive_dof[k]}, which is not a revolute or prismatic joint's dof."
        )
    for key in ("axis", "joint_quat"):  # assemble() has normalised them
        lengths = np.linalg.norm(getattr(model, key), axis=-1)
        for i in np.flatnonzero(~(abs(lengths - 1) < 1e-6)):
            raise ModelError(f"{model.name}: link {model.link_names[i]!r}: {key} has length {lengths[i]:g}, not 1.")


def _check_ties(model: Model, driven: np.ndarray) -> None:
    ties = model.ties
    if len(ties.term_coupling) and not (
        np.isin(ties.term_dof, driven).all()
        and (np.diff(ties.term_coupling) >= 0).all()
        and np.array_equal(np.unique(ties.term_coupling), np.arange(len(ties.coupling_names)))
    ):
        raise ModelError(f"{model.name}: the terms of its couplings name joints or couplings that it does not have.")
    for key in ("loop_axes", "loop_cfm", "coupling_cfm"):
        if not usable(getattr(ties, key)) or (key != "loop_axes" and (getattr(ties, key) < 0).any()):
            raise ModelError(f"{model.name}: ties.{key} must hold finite numbers, compliances not below zero.")
    tendons = np.flatnonzero(~ties.coupling_held)
    for k in np.flatnonzero(~np.isin(model.drive_coupling, [-1, *tendons])):
        raise ModelError(
            f"{model.name}: drive_coupling[{k}] is {model.drive_coupling[k]}, which is not the number of a tendon."
        )


def _check_kinds(model: Model, key: str, known: type[JointType] | type[DriveType]) -> None:
    values = getattr(model, key)
    for k in np.flatnonzero(~np.isin(values, list(known))):
        raise ModelError(f"{model.name}: {key}[{k}] is {values[k]}, which is not the number of any type.")


def check_model(model: Model) -> None:
    """Refuse pairs, gravity and default controls without a meaning, and joints that nothing resists."""
    _check_pairs(model)
    check_vector(model.name, "gravity", model.gravity, 3)
    check_vector(model.name, "u0", model.u0, model.nu)
    _check_frames(model)
    _check_keyframes(model)
    check_resistance(model)


def _check_frames(model: Model) -> None:
    links = model.num_links
    if model.frames[:links] != model.link_names or not np.array_equal(model.frame_link[:links], np.arange(links)):
        raise ModelError(f"{model.name}: the first frames must be those of the links, in their order.")
    lengths = np.linalg.norm(model.frame_quat, axis=-1)
    for k in np.flatnonzero(~(np.isfinite(model.frame_offset).all(-1) & (abs(lengths - 1) < 1e-6))):
        raise ModelError(f"{model.name}: frame {model.frames[k]!r} needs a finite place and a quaternion of length 1.")


def _check_keyframes(model: Model) -> None:
    if len(set(model.key_names)) != len(model.key_names):
        raise ModelError(f"{model.name}: two keyframes have the same name.")
    for k, name in enumerate(model.key_names):
        for key, length in (("key_q", model.nq), ("key_qd", model.nv), ("key_u", model.nu)):
            check_vector(f"{model.name}: keyframe {name!r}", key, getattr(model, key)[k], length)


def _check_volume(name: str, shape: Shape) -> None:
    """Refuse a mesh whose corners lie in a plane, on a line or in a point: nothing tells its inside."""
    if shape.type == ShapeType.MESH:
        corners = np.asarray(shape.vertices, float)
        extents = np.linalg.svd(corners - corners.mean(0), compute_uv=False)
        if len(extents) < 3 or extents[2] <= 1e-9 * extents[0]:
            raise ModelError(
                f"{name}: shape {shape.name!r}: the mesh has no volume (its corners lie in a plane, on a line or in a "
                "point), so it can touch planes only; use a box or another primitive shape instead."
            )


def _check_pairs(model: Model) -> None:
    pairs, shapes = model.pairs, model.shapes
    outside = ((pairs < 0) | (pairs >= len(shapes))).any(-1)
    if outside.any():
        raise ModelError(
            f"{model.name}: a pair is of the shapes {pairs[outside][0].tolist()}; there are {len(shapes)}."
        )
    link, kind = (np.array([getattr(shape, key) for shape in shapes], int)[pairs] for key in ("link", "type"))
    for a, b in np.unique(kind, axis=0).tolist():
        if (a, b) not in SLOTS | FIELD_SLOTS:
            raise ModelError(f"{model.name}: a pair is of the shape types {a} and {b}, which cannot collide.")
    field = model.field
    if field is not None and field.heights is not None:
        for shape in (shapes[a] for a, b in pairs if shapes[b] is field and shapes[a].vertices is not None):
            corners, heights = np.shape(shape.vertices)[0], np.size(field.heights)
            if corners * heights > MOST_CODES:
                raise ModelError(
                    f"{model.name}: mesh {shape.name!r} has {corners} corners and its ground {heights} heights; their "
                    f"product must be at most {MOST_CODES}: use a coarser field or a simpler mesh."
                )
    general = [tuple(row) in CONVEX for row in np.unique(kind, axis=0).tolist()]
    if any(general):
        rows = np.isin(kind, [ShapeType.CYLINDER, ShapeType.MESH]).any(1) & (kind[:, 1] < ShapeType.PLANE)
        for k in np.unique(pairs[rows]):
            _check_volume(model.name, shapes[k])
    for k in np.flatnonzero(link[:, 0] == link[:, 1]):
        raise ModelError(f"{model.name}: both shapes {pairs[k].tolist()} of a pair are on the same link.")
    for key in ("pair_friction", "pair_restitution"):
        values = getattr(model, key)
        if not usable(values) or (values < 0).any():
            raise ModelError(f"{model.name}: {key} must hold finite numbers that are not negative.")
