"""From Loop and Coupling records to the arrays of a Model and back, with their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..geometry.rotations import unit_quat
from .description import NV, WORLD, Body, ModelError, frozen
from .ties import POWERS, Coupling, Loop, Term, Ties
from .validate import check_amount, check_vector, usable


def pack(
    name: str, bodies: Sequence[Body], dof_of: Mapping[str, int], loops: Sequence[Loop], couplings: Sequence[Coupling]
) -> Ties:
    """The arrays of loops and couplings, after checking them; dof_of: index in qd of every joint of one dof."""
    for loop in loops:
        _check_loop(name, loop, bodies)
    for coupling in couplings:
        _check_coupling(name, coupling, dof_of, bodies)
    for kind, names in (("loops", [o.name for o in loops]), ("couplings", [c.name for c in couplings])):
        if len(set(names)) != len(names) or "" in names:
            raise ModelError(f"{name}: two {kind} have the same name, or an empty one; names must be unique.")
    terms = [(k, term) for k, coupling in enumerate(couplings) for term in coupling.terms]
    turns = np.eye(3) * np.array([o.weld for o in loops], float).reshape(-1, 1, 1)
    shifts = np.tile(np.eye(3), (len(loops), 1, 1))
    return Ties(
        loop_names=tuple(o.name for o in loops),
        loop_links=frozen([(o.link_a, o.link_b) for o in loops], int).reshape(-1, 2),
        loop_pos=frozen([(o.pos_a, o.pos_b) for o in loops]).reshape(-1, 2, 3),
        loop_quat=frozen([unit_quat(o.quat) for o in loops]).reshape(-1, 4),
        loop_axes=frozen(np.stack([shifts, turns], 1)),
        loop_cfm=frozen(np.zeros((len(loops), 2))),
        coupling_names=tuple(c.name for c in couplings),
        coupling_held=frozen([c.held for c in couplings], bool),
        coupling_cfm=frozen(np.zeros(len(couplings))),
        coupling_rest=frozen([c.rest for c in couplings]).reshape(-1, 2),
        coupling_range=frozen([c.range for c in couplings]).reshape(-1, 2),
        tendon_stiffness=frozen([c.stiffness for c in couplings]),
        tendon_damping=frozen([c.damping for c in couplings]),
        term_coupling=frozen([k for k, _ in terms], int),
        term_dof=frozen([dof_of[term.joint] for _, term in terms], int),
        term_ref=frozen([term.ref for _, term in terms]),
        coupling_coef=frozen([(*term.coef, *[0.0] * (POWERS - len(term.coef))) for _, term in terms]).reshape(
            -1, POWERS
        ),
    )


def unpack(ties: Ties, joint_of: Mapping[int, str]) -> tuple[list[Loop], list[Coupling]]:
    """The records that `pack` was given; joint_of: the joint of every dof."""
    loops = []
    for k, name in enumerate(ties.loop_names):
        (a, b), (pos_a, pos_b) = ties.loop_links[k].tolist(), ties.loop_pos[k]
        loops.append(Loop(name, a, b, pos_a, pos_b, bool(ties.loop_axes[k, 1].any()), ties.loop_quat[k]))
    couplings = []
    for k, name in enumerate(ties.coupling_names):
        terms = tuple(
            Term(joint_of[int(ties.term_dof[m])], tuple(ties.coupling_coef[m].tolist()), float(ties.term_ref[m]))
            for m in np.flatnonzero(ties.term_coupling == k)
        )
        stiffness, damping = float(ties.tendon_stiffness[k]), float(ties.tendon_damping[k])
        rest, bounds = (tuple(x[k].tolist()) for x in (ties.coupling_rest, ties.coupling_range))
        couplings.append(Coupling(name, terms, bool(ties.coupling_held[k]), stiffness, damping, rest, bounds))
    return loops, couplings


def _check_loop(name: str, loop: Loop, bodies: Sequence[Body]) -> None:
    where = f"{name}: loop {loop.name!r}"
    for link in (loop.link_a, loop.link_b):
        if not WORLD <= link < len(bodies):
            raise ModelError(f"{where} is on link {link}; it must be one of the {len(bodies)} links, or -1.")
    if loop.link_a == loop.link_b:
        owner = "the world" if loop.link_a == WORLD else f"link {bodies[loop.link_a].name!r}"
        raise ModelError(f"{where} joins {owner} with itself, perhaps through fixed joints; leave it out.")
    check_vector(where, "its first point", loop.pos_a, 3)
    check_vector(where, "its second point", loop.pos_b, 3)
    check_vector(where, "its quaternion", loop.quat, 4)
    if np.linalg.norm(loop.quat) < 1e-9:
        raise ModelError(f"{where}: its quaternion is zero.")


def _check_coupling(name: str, coupling: Coupling, dof_of: Mapping[str, int], bodies: Sequence[Body]) -> None:
    where = f"{name}: {'coupling' if coupling.held else 'tendon'} {coupling.name!r}"
    if not coupling.terms:
        raise ModelError(f"{where} has no joints.")
    joints = [term.joint for term in coupling.terms]
    kinds = {body.joint_name: body.joint_type for body in bodies}
    for joint in joints:
        if joint not in kinds:
            raise ModelError(f"{where} names joint {joint!r}, which is not a moving joint.")
        if NV[kinds[joint]] != 1:
            raise ModelError(f"{where} names joint {joint!r}; only revolute and prismatic joints can be coupled.")
    if len(set(joints)) != len(joints):
        raise ModelError(f"{where} names a joint twice; a joint cannot follow itself.")
    for term in coupling.terms:
        if len(term.coef) > POWERS or not usable(term.coef) or not usable(term.ref):
            raise ModelError(f"{where}: the coefficients of joint {term.joint!r} must be {POWERS} finite numbers.")
    check_amount(where, "stiffness", coupling.stiffness)
    check_amount(where, "damping", coupling.damping)
    check_vector(where, "its rest length", coupling.rest, 2)
    low, high = coupling.range
    if not (low <= high and low < np.inf and high > -np.inf and coupling.rest[0] <= coupling.rest[1]):
        raise ModelError(f"{where}: its range or rest length has the larger number first; swap them.")
