"""Loops, coupled joints and fixed tendons of a compiled MJCF file."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..geometry.rotations import matrix_to_quat, quat_to_matrix
from ..model import Body, Coupling, Loop, Term
from .mjcf import HINGE, SLIDE, Source, unique, xyzw

CONNECT, WELD, JOINT, TENDON = range(4)  # mujoco.mjtEq
SITE = 6  # mujoco.mjtObj
WRAP_JOINT = 1  # mujoco.mjtWrap
UNUSED = {  # fields of tendons
    "frictionloss": "dry friction", "armature": "armature", "stiffnesspoly": "nonlinear spring",
    "dampingpoly": "nonlinear damper", "actfrclimited": "actuatorfrcrange",
}  # fmt: skip
LEFT_OUT = "is left out: the simulation will differ."


@dataclass
class MjcfTies:
    """What `assemble` needs, and the names of the tendons that became couplings, by their number in the file."""

    loops: list[Loop] = field(default_factory=list)
    couplings: list[Coupling] = field(default_factory=list)
    tendons: dict[int, Coupling] = field(default_factory=dict)


def read_ties(source: Source, bodies: list[Body]) -> MjcfTies:
    """Every active equality constraint and fixed tendon that is supported; the others become notes."""
    ties = MjcfTies(tendons=read_tendons(source))
    m = source.m
    if not source.disabled("EQUALITY"):
        names = unique([m.equality(k).name or f"equality{k}" for k in range(m.neq)])
        for k in np.flatnonzero(m.eq_active0).tolist():
            kind = int(m.eq_type[k])
            if kind in (CONNECT, WELD):
                _add_loop(source, ties, k, names[k], bodies)
            elif kind == JOINT:
                _add_joint_coupling(source, ties, k, names[k])
            elif kind == TENDON:
                _add_tendon_coupling(source, ties, k, names[k])
            else:
                source.differences.append(f"Equality constraint {names[k]!r}, between flexible objects, {LEFT_OUT}")
    taken = {coupling.name for coupling in ties.couplings}
    for k, tendon in ties.tendons.items():
        acts = tendon.stiffness or tendon.damping or np.isfinite(tendon.range).any()
        if tendon.name in taken:
            ties.tendons[k] = tendon = Coupling(f"tendon:{tendon.name}", *list(vars(tendon).values())[1:])
        if acts or _driven(source, k):
            ties.couplings.append(tendon)
    return ties


def read_tendons(source: Source) -> dict[int, Coupling]:
    """Fixed tendons over hinge and slide joints, by their number."""
    m = source.m
    names = unique([m.tendon(k).name or f"tendon{k}" for k in range(m.ntendon)])
    found = {}
    for k, name in enumerate(names):
        part = slice(m.tendon_adr[k], m.tendon_adr[k] + m.tendon_num[k])
        joints = m.wrap_objid[part]
        if (m.wrap_type[part] != WRAP_JOINT).any():
            source.differences.append(f"Tendon {name!r}, which runs through sites, {LEFT_OUT}")
            continue
        if not np.isin(m.jnt_type[joints], (HINGE, SLIDE)).all():
            source.differences.append(f"Tendon {name!r}, which has ball or free joints, {LEFT_OUT}")
            continue
        coefs: dict[str, float] = {}
        for j, coef in zip(joints, m.wrap_prm[part]):
            coefs[source.joint_names[j]] = coefs.get(source.joint_names[j], 0.0) + float(coef)
        limited = bool(m.tendon_limited[k]) and not source.disabled("LIMIT")
        found[k] = Coupling(
            name,
            tuple(Term(joint, (0.0, coef)) for joint, coef in coefs.items()),
            stiffness=0.0 if source.disabled("SPRING") else float(m.tendon_stiffness[k]),
            damping=0.0 if source.disabled("DAMPER") else float(m.tendon_damping[k]),
            rest=tuple(m.tendon_lengthspring[k].tolist()),
            range=tuple(m.tendon_range[k].tolist()) if limited else (-np.inf, np.inf),
        )
        for key, what in UNUSED.items():
            if np.any(getattr(m, f"tendon_{key}", np.zeros(len(names)))[k]):
                source.differences.append(f"The {what} of tendon {name!r} {LEFT_OUT}")
    return found


def _driven(source: Source, k: int) -> bool:
    m = source.m
    return bool(((m.actuator_trntype == 3) & (m.actuator_trnid[:, 0] == k)).any())


def _add_loop(source: Source, ties: MjcfTies, k: int, name: str, bodies: list[Body]) -> None:
    """A connect or weld. MuJoCo has the points of both bodies, and of a weld the second body's turn in the first."""
    m = source.m
    ends = int(m.eq_obj1id[k]), int(m.eq_obj2id[k])
    data = m.eq_data[k]
    weld = m.eq_type[k] == WELD
    if m.eq_objtype[k] == SITE:
        owners = [int(m.site_bodyid[s]) for s in ends]
        points = [m.site_pos[s] for s in ends]
        turns = [quat_to_matrix(xyzw(m.site_quat[s])) for s in ends]
        turn = turns[0] @ turns[1].T  # of body 2 in body 1
    else:
        owners = list(ends)
        points = [data[3:6], data[:3]] if weld else [data[:3], data[3:6]]
        turn = quat_to_matrix(xyzw(data[6:10])) if weld else np.eye(3)
    places = [source.placements[b] for b in owners]
    if places[0].link == places[1].link:
        source.notes.append(f"Equality constraint {name!r} joins bodies that do not move against each other.")
        return
    if weld and not m.eq_objtype[k] == SITE and m.body_mocapid[owners].max() >= 0:
        source.notes.append(f"Weld {name!r} holds a body at a mocap body, which does not move.")
    a, b = places
    pos_a, pos_b = (place.origin + place.rotation @ p for place, p in zip(places, points))
    quat = matrix_to_quat((a.rotation @ turn @ b.rotation.T).T)
    ties.loops.append(Loop(name, a.link, b.link, pos_a, pos_b, bool(weld), quat))


def _add_joint_coupling(source: Source, ties: MjcfTies, k: int, name: str) -> None:
    """q1 - ref1 = polynomial of q2 - ref2."""
    m = source.m
    joints = [int(j) for j in (m.eq_obj1id[k], m.eq_obj2id[k]) if j >= 0]
    if not np.isin(m.jnt_type[joints], (HINGE, SLIDE)).all():
        source.differences.append(f"Equality constraint {name!r}, which has ball or free joints, {LEFT_OUT}")
        return
    polynomial = tuple(m.eq_data[k, :5].tolist())
    reference = [float(m.qpos0[m.jnt_qposadr[j]]) for j in joints]
    first = Term(source.joint_names[joints[0]], (0.0, 1.0), reference[0])
    if len(joints) == 1:
        first = Term(first.joint, (-polynomial[0], 1.0), first.ref)
        terms = [first]
    else:
        terms = [first, Term(source.joint_names[joints[1]], tuple(-c for c in polynomial), reference[1])]
    ties.couplings.append(Coupling(name, tuple(terms), held=True))


def _add_tendon_coupling(source: Source, ties: MjcfTies, k: int, name: str) -> None:
    """L1 - L1(qpos0) = polynomial of L2 - L2(qpos0); only linear ones of two tendons are a sum over joints."""
    m = source.m
    tendons = [int(t) for t in (m.eq_obj1id[k], m.eq_obj2id[k]) if t >= 0]
    polynomial = m.eq_data[k, :5]
    if any(t not in ties.tendons for t in tendons):
        source.differences.append(f"Equality constraint {name!r}, whose tendon is left out, {LEFT_OUT}")
        return
    if len(tendons) == 2 and polynomial[2:].any():
        source.differences.append(f"Equality constraint {name!r}, a nonlinear one of two tendons, {LEFT_OUT}")
        return
    coefs: dict[str, float] = {}
    for t, factor in zip(tendons, (1.0, -float(polynomial[1]))):
        for term in ties.tendons[t].terms:
            coefs[term.joint] = coefs.get(term.joint, 0.0) + factor * term.coef[1]
    constant = -float(polynomial[0]) - sum(
        coef * float(m.qpos0[m.jnt_qposadr[source.joint_names.index(joint)]]) for joint, coef in coefs.items()
    )
    terms = [Term(joint, (constant if n == 0 else 0.0, coef)) for n, (joint, coef) in enumerate(coefs.items())]
    ties.couplings.append(Coupling(name, tuple(terms), held=True))
