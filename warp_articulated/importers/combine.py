"""Several models in one environment: a forest whose trees are placed by `poses` and can touch each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..geometry.rotations import IDENTITY, conjugate, matrix_to_quat, quat_multiply, quat_to_matrix, rotate, unit_quat
from ..model import (
    NQ,
    NV,
    WORLD,
    Body,
    Coupling,
    Drive,
    DriveType,
    Frame,
    JointType,
    Keyframe,
    Loop,
    Model,
    ModelError,
    Shape,
    ShapeType,
    Thrust,
    assemble,
)
from ..model.assemble import PER_DOF
from ..model.pairs import PairTable, mixed_pairs
from ..model.tie_tables import unpack
from ..model.validate import as_numbers

GROUND = "ground"


@dataclass
class Parts:
    """The arguments of `assemble` that give a Model, restored from the Model."""

    bodies: list[Body]
    shapes: list[Shape]
    drives: list[Drive]
    pairs: PairTable
    frames: list[Frame]  # those that are not links
    dof_of: dict[str, int]  # index in qd of every joint of one dof
    loops: list[Loop]
    couplings: list[Coupling]


def combine(
    models: Sequence[Model],
    poses: Sequence[np.ndarray | Sequence[float] | None] | None = None,
    names: Sequence[str] | None = None,
    ground: bool | None = None,
) -> Model:
    """One environment that holds all `models`.

    poses: for each model None, a position (3,) m, a position and quaternion xyzw (7,), or a transform (4, 4). It moves
        everything that is fixed to the world: fixed-base roots, the default pose of free roots, frames and shapes
        of the world, but not a plane that is called "ground".
    names: a prefix for each model; default: its name, with a number if several have it. A link, joint, drive, frame or
        shape is called `prefix/name` if another model has the same name, and keeps its name otherwise.
    ground: True adds a plane at z = 0 called "ground", unless there is a plane already; False removes planes of that
        name; None changes nothing.

    Each model keeps its own collision pairs. All shapes of different models can touch, with the geometric mean of
    their frictions and the larger restitution. World planes that coincide become one, so that nothing touches two.
    q, qd and u are those of the models, one after the other. A keyframe of the result has every model that knows its
    name in that state, and the others at q0 and u0.
    """
    models = [models] if isinstance(models, Model) else list(models)
    for model in models:
        if not isinstance(model, Model):
            raise TypeError(
                f"combine: {model!r} is a {type(model).__name__}; it must be a Model, as wa.load(...) returns."
            )
    if not models:
        raise ModelError("combine: the list of models is empty; it must hold one model or more.")
    count = len(models)
    for what, given in (("poses", poses), ("names", names)):
        if given is not None and len(given) != count:
            raise ModelError(f"combine: {what} has {len(given)} entries; it must have one for each of {count} models.")
    for model in models[1:]:
        if not np.allclose(model.gravity, models[0].gravity, rtol=0.0, atol=1e-12):
            raise ModelError(
                f"combine: gravity is {models[0].gravity.tolist()} in {models[0].name!r} but {model.gravity.tolist()} "
                f"in {model.name!r}; all models of one environment must have the same."
            )
    prefixes = _prefixes(models, names)
    renamed = _Names(models, prefixes)

    total = Parts([], [], [], PairTable.of(()), [], {}, [], [])
    tables: list[PairTable] = []
    states: list[tuple[Keyframe, dict[str, Keyframe]]] = []  # default state and keyframes of each model
    owners: list[set[int]] = []  # which models each shape came from
    for k, model in enumerate(models):
        parts = disassemble(model)
        pose = None if poses is None else poses[k]
        transform = None if pose is None else _as_transform(pose, f"combine: poses[{k}]")
        if transform is not None:
            _move(parts, *transform)
        states.append(_states(model, transform))
        renamed.apply(parts, k)
        links, shapes = len(total.bodies), len(total.shapes)
        for body in parts.bodies:
            body.parent += links if body.parent != WORLD else 0
            body.order += links  # there are as many joints as links
        total.bodies += parts.bodies
        total.shapes += [s if s.link == WORLD else replace(s, link=s.link + links) for s in parts.shapes]
        total.frames += [f if f.link == WORLD else replace(f, link=f.link + links) for f in parts.frames]
        total.drives += [
            replace(d, thrust=replace(d.thrust, link=d.thrust.link + links)) if d.thrust else d for d in parts.drives
        ]
        total.loops += [
            replace(o, **{end: getattr(o, end) + links for end in ("link_a", "link_b") if getattr(o, end) != WORLD})
            for o in parts.loops
        ]
        total.couplings += parts.couplings
        tables.append(replace(parts.pairs, shapes=parts.pairs.shapes + shapes))
        owners += [{k} for _ in parts.shapes]
    total.pairs = PairTable.joined(tables)
    _merge_planes(total, owners, ground)
    total.pairs = PairTable.joined([total.pairs, _cross_pairs(total.shapes, owners, count)])
    return assemble(
        "+".join(f"{name}_x{n}" if n > 1 else name for name, n in Counter(m.name for m in models).items()),
        total.bodies,
        total.shapes,
        total.drives,
        pairs=total.pairs,
        gravity=models[0].gravity,
        inside_limits=False,  # the poses of the models are kept
        frames=total.frames,
        keyframes=_join_keyframes(states),
        loops=total.loops,
        couplings=total.couplings,
        merged=[renamed.merged(pair, k) for k, model in enumerate(models) for pair in model.merged],
        notes=list(dict.fromkeys(f"{m.name}: {note}" for m in models for note in m.notes)),
    )


def disassemble(model: Model) -> Parts:
    """Body, Shape and Drive records that assemble to the same model; they may be changed freely."""
    bodies = []
    for i, name in enumerate(model.link_names):
        kind = JointType(model.joint_type[i])
        q, v = int(model.q_start[i]), int(model.v_start[i])
        bodies.append(
            Body(
                name=name,
                parent=int(model.parent[i]),
                joint_name=model.joint_names[model.joint_of_link[i]],
                joint_type=kind,
                pos=model.joint_pos[i].copy(),
                quat=model.joint_quat[i].copy(),
                axis=model.axis[i].copy(),
                mass=float(model.mass[i]),
                com=model.com[i].copy(),
                inertia=model.inertia[i].copy(),
                order=int(model.joint_of_link[i]),
                q0=model.q0[q : q + NQ[kind]].copy(),
                frame_pos=model.frame_pos[i].copy(),
                gravcomp=float(model.gravcomp[i]),
                **{key: float(getattr(model, key)[v]) for key in PER_DOF},
            )
        )
    joint_of_dof = {int(model.v_start[i]): body.joint_name for i, body in enumerate(bodies) if NV[body.joint_type] == 1}
    loops, couplings = unpack(model.ties, joint_of_dof)
    thrusts = {
        int(k): Thrust(int(link), pos.copy(), wrench.copy())
        for k, link, pos, wrench in zip(
            model.thrust_drive, model.thrust_link, model.thrust_pos, model.thrust_wrench, strict=True
        )
    }
    drives = [
        Drive(
            joint=joint_of_dof.get(int(model.drive_dof[k]), ""),
            type=DriveType(model.drive_type[k]),
            gear=float(model.gear[k]),
            kp=float(model.kp[k]),
            kd=float(model.kd[k]),
            effort=float(model.effort[k]),
            effort_center=float(model.effort_center[k]),
            name=model.drive_names[k],
            u0=float(model.u0[k]),
            control_range=(float(model.control_range[k, 0]), float(model.control_range[k, 1])),
            thrust=thrusts.get(k),
            tendon=couplings[int(model.drive_coupling[k])].name if model.drive_coupling[k] >= 0 else "",
        )
        for k in range(model.nu)
    ]
    pairs = PairTable(model.pairs.copy(), model.pair_friction.copy(), model.pair_restitution.copy())
    frames = [
        Frame(model.frames[k], int(model.frame_link[k]), model.frame_offset[k], model.frame_quat[k])
        for k in range(model.num_links, len(model.frames))
    ]
    dof_of = {joint: dof for dof, joint in joint_of_dof.items()}
    return Parts(bodies, list(model.shapes), drives, pairs, frames, dof_of, loops, couplings)


def _prefixes(models: Sequence[Model], names: Sequence[str] | None) -> list[str]:
    if names is not None:
        doubled = [name for name, n in Counter(names).items() if n > 1 or not name]
        if doubled:
            raise ModelError(f"combine: names has {doubled[0]!r} twice or empty; each model needs a different name.")
        return list(names)
    shared = Counter(model.name for model in models)
    taken = {name for name, n in shared.items() if n == 1}
    prefixes: list[str] = []
    number: Counter[str] = Counter()
    for model in models:
        trial = model.name
        while shared[model.name] > 1 and (trial == model.name or trial in taken):
            number[model.name] += 1
            trial = f"{model.name}{number[model.name]}"
        taken.add(trial)
        prefixes.append(trial)
    return prefixes


class _Names:
    """Gives a prefix to every name that two models share, separately for bodies, joints, drives and shapes."""

    def __init__(self, models: Sequence[Model], prefixes: list[str]) -> None:
        self.prefixes = prefixes
        self.shared = {
            "body": _shared([_body_names(m) for m in models], prefixes),
            "joint": _shared([set(m.joint_names) for m in models], prefixes),
            "drive": _shared([set(m.drive_names) for m in models], prefixes),
            "shape": _shared([{s.name for s in m.shapes} for m in models], prefixes),
            "loop": _shared([set(m.ties.loop_names) for m in models], prefixes),
            "coupling": _shared([set(m.ties.coupling_names) for m in models], prefixes),
        }

    def __call__(self, kind: str, name: str, k: int) -> str:
        return f"{self.prefixes[k]}/{name}" if name in self.shared[kind] else name

    def apply(self, parts: Parts, k: int) -> None:
        for body in parts.bodies:
            body.name, body.joint_name = self("body", body.name, k), self("joint", body.joint_name, k)
        parts.drives = [
            replace(
                d, joint=self("joint", d.joint, k), name=self("drive", d.name, k), tendon=self("coupling", d.tendon, k)
            )
            for d in parts.drives
        ]
        parts.loops = [replace(o, name=self("loop", o.name, k)) for o in parts.loops]
        parts.couplings = [
            replace(
                c, name=self("coupling", c.name, k),
                terms=tuple(replace(term, joint=self("joint", term.joint, k)) for term in c.terms),
            )
            for c in parts.couplings
        ]  # fmt: skip
        parts.shapes = [
            s if _is_ground(s) else replace(s, name=self("shape", s.name, k), body=self("body", s.body, k))
            for s in parts.shapes
        ]
        parts.frames = [replace(f, name=self("body", f.name, k)) for f in parts.frames]

    def merged(self, pair: tuple[str, str], k: int) -> tuple[str, str]:
        return self("body", pair[0], k), self("body", pair[1], k)


def _body_names(model: Model) -> set[str]:
    return {*model.frames, *(s.body for s in model.shapes), *(body for body, _ in model.merged)}


def _shared(groups: list[set[str]], prefixes: list[str]) -> set[str]:
    """The names that need a prefix. It grows, because `prefix/name` may itself be a name of an earlier combination."""
    shared: set[str] = set()
    while True:
        full = [
            (f"{prefix}/{name}" if name in shared else name, name)
            for group, prefix in zip(groups, prefixes)
            for name in group
            if name not in ("", "world")
        ]
        counts = Counter(result for result, _ in full)
        clashing = {name for result, name in full if counts[result] > 1} - shared
        if not clashing:
            return shared
        shared |= clashing


def _as_transform(pose: np.ndarray | Sequence[float], what: str) -> tuple[np.ndarray, np.ndarray]:
    """Position (3,) and unit quaternion (4,) of a pose in any of the accepted forms."""
    pose = as_numbers(pose)
    accepted = "a position (3,), a position and quaternion xyzw (7,), or a transform (4, 4)"
    if pose.shape not in ((3,), (7,), (4, 4)) or not np.isfinite(pose).all():
        raise ModelError(f"{what} has shape {pose.shape}; accepted are None, or, in finite numbers, {accepted}.")
    if pose.shape == (3,):
        return pose, IDENTITY
    if pose.shape == (7,):
        if np.linalg.norm(pose[3:]) < 1e-9:
            raise ModelError(f"{what} has a quaternion of length zero; accepted is {accepted}.")
        return pose[:3], unit_quat(pose[3:])
    rotation = pose[:3, :3]
    rigid = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-6) and np.linalg.det(rotation) > 0.0
    if not rigid or not np.allclose(pose[3], [0.0, 0.0, 0.0, 1.0]):
        raise ModelError(f"{what} is not a rigid transform: a rotation and a shift above the row 0, 0, 0, 1.")
    return pose[:3, 3], matrix_to_quat(rotation)


def _move(parts: Parts, shift: np.ndarray, turn: np.ndarray) -> None:
    """Move everything that is fixed to the world, except a plane called "ground", which the whole scene shares."""

    def moved(pos: np.ndarray, quat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return shift + quat_to_matrix(turn) @ pos, quat_multiply(turn, quat)

    for body in parts.bodies:
        if body.parent == WORLD:
            body.pos, body.quat = moved(body.pos, body.quat)
            if body.joint_type == JointType.FREE:
                assert body.q0 is not None  # disassemble() sets it for every body
                body.q0 = np.concatenate(moved(body.q0[:3], body.q0[3:]))
    for k, shape in enumerate(parts.shapes):
        if shape.link == WORLD and not _is_ground(shape):
            pos, quat = moved(shape.pos, shape.quat)
            parts.shapes[k] = replace(shape, pos=pos, quat=quat)
    for k, loop in enumerate(parts.loops):
        if loop.link_a == WORLD:
            pos, quat = moved(loop.pos_a, conjugate(loop.quat))
            parts.loops[k] = replace(loop, pos_a=pos, quat=conjugate(quat))
        elif loop.link_b == WORLD:
            pos, quat = moved(loop.pos_b, loop.quat)
            parts.loops[k] = replace(loop, pos_b=pos, quat=quat)
    for k, frame in enumerate(parts.frames):
        if frame.link == WORLD:
            pos, quat = moved(frame.pos, frame.quat)
            parts.frames[k] = replace(frame, pos=pos, quat=quat)


def _states(model: Model, transform: tuple[np.ndarray, np.ndarray] | None) -> tuple[Keyframe, dict[str, Keyframe]]:
    """The default state and the keyframes of a model, with its free roots moved."""
    roots = np.flatnonzero(model.joint_type == JointType.FREE)

    def moved(key: Keyframe) -> Keyframe:
        if transform is None:
            return key
        shift, turn = transform
        q, qd = key.q.copy(), key.qd.copy()
        for at, v in zip(model.q_start[roots], model.v_start[roots]):
            q[at : at + 3] = shift + rotate(turn, q[at : at + 3])
            q[at + 3 : at + 7] = quat_multiply(turn, q[at + 3 : at + 7])
            qd[v : v + 3], qd[v + 3 : v + 6] = rotate(turn, qd[v : v + 3]), rotate(turn, qd[v + 3 : v + 6])
        return Keyframe(q, qd, key.u)

    default = Keyframe(model.q0, np.zeros(model.nv), model.u0)
    return moved(default), {name: moved(key) for name, key in model.keyframes.items()}


def _join_keyframes(states: list[tuple[Keyframe, dict[str, Keyframe]]]) -> dict[str, Keyframe]:
    """By name: each model in its keyframe of that name, or in its default state."""
    joined = {}
    for name in dict.fromkeys(name for _, keys in states for name in keys):
        parts = [keys.get(name, default) for default, keys in states]
        joined[name] = Keyframe(*(np.concatenate([getattr(p, key) for p in parts]) for key in ("q", "qd", "u")))
    return joined


def _is_ground(shape: Shape) -> bool:
    return shape.link == WORLD and shape.type == ShapeType.PLANE and shape.name == GROUND


def _merge_planes(total: Parts, owners: list[set[int]], ground: bool | None) -> None:
    """Make coinciding world planes one, and do what `ground` asks for; pairs and `owners` follow."""
    target: list[int] = []  # where each shape goes in the new list; -1: it is removed
    shapes: list[Shape] = []
    origin: list[set[int]] = []
    planes: list[int] = []  # those in `shapes`
    for shape, owner in zip(total.shapes, owners):
        plane = shape.type == ShapeType.PLANE and shape.link == WORLD
        twin = next((k for k in planes if _same_plane(shape, shapes[k])), None) if plane else None
        if ground is False and _is_ground(shape):
            target.append(-1)
        elif twin is not None:
            target.append(twin)
            origin[twin] |= owner
        else:
            target.append(len(shapes))
            planes += [len(shapes)] if plane else []
            shapes.append(shape)
            origin.append(set(owner))
    ends = np.array(target, int)[total.pairs.shapes]
    total.pairs = replace(total.pairs, shapes=ends).take((ends >= 0).all(1))
    total.shapes, owners[:] = shapes, origin
    floor = Shape(ShapeType.PLANE, WORLD, np.zeros(3), name=GROUND, body=GROUND)
    if ground and not any(_same_plane(floor, s) for s in shapes):
        total.shapes.append(floor)
        owners.append(set())


def _same_plane(one: Shape, two: Shape) -> bool:
    if not (one.type == two.type == ShapeType.PLANE and one.link == two.link == WORLD and one.collide == two.collide):
        return False
    normal, other = quat_to_matrix(one.quat)[:, 2], quat_to_matrix(two.quat)[:, 2]
    return bool(np.allclose(normal, other, atol=1e-9) and abs(normal @ (one.pos - two.pos)) < 1e-9)


def _cross_pairs(shapes: list[Shape], owners: list[set[int]], count: int) -> PairTable:
    """All pairs of shapes without one of the `count` models in common, unless both belong to the world."""
    fixed = np.array([s.link == WORLD for s in shapes], bool)
    owned = np.zeros((count, len(shapes)), bool)  # by which model
    for k, models in enumerate(owners):
        owned[list(models), k] = True

    def allowed(b: int) -> np.ndarray:
        return ~(owned[list(owners[b]), :b].any(0) | (fixed[:b] & fixed[b]))

    return mixed_pairs(shapes, allowed)
