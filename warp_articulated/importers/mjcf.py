"""MJCF files (.xml) into a Model, through MuJoCo's own compiler: it handles defaults, includes, units and inertias.

Here bodies and joints become links; mjcf_geoms.py makes shapes and collision pairs, mjcf_drives.py the drives,
mjcf_keyframes.py the keyframes,
mjcf_ties.py loops, coupled joints and tendons.
docs/mjcf.md lists what is read, what is not, and where the conventions differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..geometry.rotations import matrix_to_quat, quat_about, quat_multiply, quat_to_matrix
from ..model import WORLD, Body, Frame, JointType, Model, ModelError, assemble
from ..model.validate import check_flags
from .xmlfile import parse_xml

if TYPE_CHECKING:
    from mujoco import MjModel

FREE, BALL, SLIDE, HINGE = range(4)  # mujoco.mjtJoint
JOINT_TYPES = {
    FREE: JointType.FREE,
    BALL: JointType.SPHERICAL,
    SLIDE: JointType.PRISMATIC,
    HINGE: JointType.REVOLUTE,
}
CONSTRAINTS = ("CONTACT", "LIMIT", "FRICTIONLOSS", "EQUALITY")  # flags that "constraint" disables together


class Placement(NamedTuple):
    """Where a body of the file is: its link, and its frame in that link's frame."""

    link: int
    rotation: np.ndarray  # (3, 3)
    origin: np.ndarray  # (3,) m


@dataclass
class Source:
    """The compiled file and the data that all parts of the importer share."""

    m: MjModel
    path: Path
    body_names: list[str]
    joint_names: list[str]
    geom_names: list[str]
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)  # notes on features that make the motion differ from MuJoCo's
    placements: list[Placement] = field(default_factory=list)  # one for each body of the file

    @property
    def name(self) -> str:
        """The model's name in the file, or the name of the file."""
        given = self.m.names[: self.m.names.index(b"\0")].decode()
        return self.path.stem if given in ("", "MuJoCo Model") else given

    def disabled(self, flag: str) -> bool:
        """Whether <option><flag .../></option> switches off the feature of mjDSBL_<flag>."""
        import mujoco

        bits = 0
        for name in (flag, "CONSTRAINT") if flag in CONSTRAINTS else (flag,):
            bits |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0))
        return bool(self.m.opt.disableflags & bits)


def load_mjcf(
    path: str | Path,
    *,
    ground: bool | None = None,
    self_collision: bool = True,
    exclude: Iterable[tuple[str, str]] = (),
    meshes: bool = True,
    keyframe: str | None = None,
) -> Model:
    """Read an MJCF file with MuJoCo's compiler (needs the `mujoco` package).

    ground: True adds a plane at z = 0 that touches everything; otherwise there is only the floor of the file.
    self_collision: False drops the pairs of shapes on two links of the same tree.
    exclude: pairs of body names ("world" and "ground" too) that never collide, in addition to the file's <exclude>.
    meshes: False leaves mesh geoms out.
    keyframe: the keyframe whose pose and control are the model's q0 and u0.

    Otherwise the default pose q0 is the file's reference pose (qpos0), moved into the joints' limits, also when the
    file has keyframes; those are in `model.keyframes`, with "key0", "key1", ... for the names that are missing.
    q is MuJoCo's qpos with quaternions as xyzw. Unsupported features of the file are listed in `model.notes`; those
    that make the motion differ from MuJoCo's are also reported as a Python warning.
    """
    from .mjcf_drives import add_motor_inertia, read_drives
    from .mjcf_geoms import read_pairs, read_shapes
    from .mjcf_keyframes import posed_by_key, read_keyframes
    from .mjcf_ties import read_ties

    check_flags(path, ground=ground, self_collision=self_collision, meshes=meshes)
    source = compile_mjcf(Path(path))
    bodies, merged = read_bodies(source)
    shapes, index = read_shapes(source, meshes=meshes)
    pairs = read_pairs(source, shapes, index, ground=bool(ground), self_collision=self_collision, exclude=exclude)
    ties = read_ties(source, bodies)
    drives, controls = read_drives(source, ties.tendons)
    add_motor_inertia(source, bodies)
    frames = read_frames(source, bodies)
    keyframes = read_keyframes(source, controls)
    list_leftovers(source)
    if source.differences:
        warnings.warn(f"{source.path}: " + " ".join(source.differences), stacklevel=2)
    try:
        model = assemble(
            source.name,
            bodies,
            shapes,
            drives,
            pairs=pairs,
            gravity=np.zeros(3) if source.disabled("GRAVITY") else source.m.opt.gravity,
            frames=frames,
            keyframes=keyframes,
            loops=ties.loops,
            couplings=ties.couplings,
            merged=merged,
            notes=[*source.differences, *source.notes],
        )
        return model if keyframe is None else posed_by_key(model, keyframe)
    except ModelError as error:
        raise ModelError(f"{source.path}: {error}") from None


def compile_mjcf(path: Path) -> Source:
    """Run MuJoCo's compiler and give every body, joint and geom a unique name."""
    try:
        import mujoco
    except ImportError as error:
        raise ModelError(
            f"{path}: reading MJCF needs the mujoco package, which is not installed; run `pip install mujoco`."
        ) from error
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file.")
    reported: list[str] = []
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(reported.append)  # the default handler would write a log to the working directory
    try:
        m = mujoco.MjModel.from_xml_path(str(path))
    except Exception as error:  # ValueError, FatalError, RuntimeError, MemoryError, UnicodeDecodeError
        parse_xml(path)  # its error is clearer if the file is no XML
        raise ModelError(f"{path}: MuJoCo cannot compile this file: {' '.join(str(error).split())}") from error
    finally:
        mujoco.set_mju_user_warning(handler)
    try:
        m.names.decode()
    except UnicodeDecodeError:
        raise ModelError(f"{path}: the file has a name that is not UTF-8 text.") from None
    bodies = unique(["world"] + [m.body(b).name or f"body{b}" for b in range(1, m.nbody)])
    joints = [m.joint(j).name or f"{bodies[m.jnt_bodyid[j]]}_joint" for j in range(m.njnt)]
    geoms = [m.geom(g).name or f"{bodies[m.geom_bodyid[g]]}_geom" for g in range(m.ngeom)]
    notes = [f"MuJoCo says: {warning}" for warning in reported]
    return Source(m, path, bodies, unique(joints), unique(geoms), notes)


def unique(names: list[str]) -> list[str]:
    """Number repeated names. Only names that were made up here can repeat."""
    taken = set(names)
    result: dict[str, None] = {}  # a set that keeps its order
    last: dict[str, int] = {}  # number of a repeated name
    for name in names:
        trial = name
        while trial in result or (trial != name and trial in taken):
            last[name] = last.get(name, 1) + 1
            trial = f"{name}{last[name]}"
        result[trial] = None
    return list(result)


def read_bodies(source: Source) -> tuple[list[Body], list[tuple[str, str]]]:
    """One link per joint, parents first, in MuJoCo's joint order; bodies without a joint join their parent's link.

    Fills source.placements. Returns the links and (body, link it was merged into) for every body without a joint.
    """
    m = source.m
    links: list[Body] = []
    merged = []
    held: dict[int, list[tuple[float, np.ndarray]]] = {}  # by link: the part of each body's mass that gravcomp holds
    source.placements.append(Placement(WORLD, np.eye(3), np.zeros(3)))
    for b in range(1, m.nbody):
        parent = source.placements[m.body_parentid[b]]
        rotation = parent.rotation @ quat_to_matrix(xyzw(m.body_quat[b]))
        origin = parent.origin + parent.rotation @ m.body_pos[b]
        joints = range(m.body_jntadr[b], m.body_jntadr[b] + m.body_jntnum[b])
        if joints:
            links += _joint_chain(source, b, joints, Placement(parent.link, rotation, origin), len(links))
            here = Placement(len(links) - 1, np.eye(3), links[-1].frame_pos)
        else:
            here = Placement(parent.link, rotation, origin)
            merged.append((source.body_names[b], "world" if here.link == WORLD else links[here.link].name))
        source.placements.append(here)
        if here.link != WORLD:
            turn = here.rotation @ quat_to_matrix(xyzw(m.body_iquat[b]))
            inertia = turn @ np.diag(m.body_inertia[b]) @ turn.T
            com = here.origin + here.rotation @ m.body_ipos[b]
            add_mass(links[here.link], m.body_mass[b], com, inertia)
            held.setdefault(here.link, []).append((float(m.body_gravcomp[b] * m.body_mass[b]), com))
    for i, parts in held.items():
        _compensate(source, links[i], parts)
    return links, merged


def _compensate(source: Source, link: Body, parts: list[tuple[float, np.ndarray]]) -> None:
    """Gravity compensation of a link from (held mass, com) of its bodies."""
    total = sum(mass for mass, _ in parts)
    if link.mass > 0.0:
        link.gravcomp = total / link.mass
    moment = sum(mass * (com - link.com) for mass, com in parts)
    if np.linalg.norm(moment) > 1e-9 * max(link.mass, 1e-9):
        source.differences.append(
            f"Bodies that are one link, {link.name!r}, have different gravcomp; the sum acts at their common centre of "
            "mass: the simulation will differ."
        )


def read_frames(source: Source, links: list[Body]) -> list[Frame]:
    """Every body without a joint and every named site; a site with the name of a body is called "site:NAME"."""
    m = source.m

    def frame(name: str, body: int, pos: np.ndarray, quat: np.ndarray) -> Frame:
        place = source.placements[body]
        turn = place.rotation @ quat_to_matrix(xyzw(quat))
        return Frame(name, place.link, place.origin + place.rotation @ pos, matrix_to_quat(turn))

    still = [b for b in range(1, m.nbody) if not m.body_jntnum[b]]
    frames = [frame(source.body_names[b], b, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])) for b in still]
    sites = [m.site(s).name for s in range(m.nsite)]
    bodies = {*source.body_names, *(link.name for link in links)}
    for s, name in enumerate(sites):
        if not name:
            continue
        free = name
        while free in bodies or (free != name and free in sites):
            free = f"site:{free}"
        if free != name:
            source.notes.append(f"Site {name!r} has the name of a body; its frame is called {free!r}.")
        frames.append(frame(free, m.site_bodyid[s], m.site_pos[s], m.site_quat[s]))
    return frames


def _joint_chain(source: Source, b: int, joints: range, at: Placement, count: int) -> list[Body]:
    """The links of body b, one per joint, without mass; `at` is the body's frame before its joints move it.

    Every link has the axes of the body and its origin at its joint's anchor, so the next joint of the same body is a
    plain shift from anchor to anchor. MuJoCo applies the joints of a body in the order of the file.
    """
    m = source.m
    chain: list[Body] = []
    rotation, shift = at.rotation, at.origin  # of the body's frame, in the previous link's frame
    for j in joints:
        kind, dof, q_at = int(m.jnt_type[j]), m.jnt_dofadr[j], m.jnt_qposadr[j]
        turns = kind in (HINGE, BALL)
        anchor = m.jnt_pos[j].copy() if turns else np.zeros(3)
        axis = m.jnt_axis[j].copy()
        pos, quat = shift + rotation @ anchor, matrix_to_quat(rotation)
        # MuJoCo moves the joint by qpos - ref: start -ref away, so that q is qpos itself
        reference = float(m.qpos0[q_at])
        if kind == HINGE and reference:
            quat = quat_multiply(quat, quat_about(-axis, reference))
        elif kind == SLIDE:
            pos = pos - rotation @ axis * reference
        last = j == joints[-1]
        single = kind in (HINGE, SLIDE)
        limited = bool(m.jnt_limited[j]) and single and not source.disabled("LIMIT")
        chain.append(
            Body(
                name=source.body_names[b] if last else f"{source.body_names[b]}:{source.joint_names[j]}",
                parent=count + len(chain) - 1 if chain else at.link,
                joint_name=source.joint_names[j],
                joint_type=JOINT_TYPES[kind],
                pos=pos,
                quat=quat,
                axis=axis,
                armature=float(m.dof_armature[dof]),
                damping=0.0 if source.disabled("DAMPER") else float(m.dof_damping[dof]),
                stiffness=0.0 if source.disabled("SPRING") or not single else float(m.jnt_stiffness[j]),
                spring_ref=float(m.qpos_spring[q_at]) if single else 0.0,
                frictionloss=0.0 if source.disabled("FRICTIONLOSS") or not single else float(m.dof_frictionloss[dof]),
                lower=float(m.jnt_range[j, 0]) if limited else -np.inf,
                upper=float(m.jnt_range[j, 1]) if limited else np.inf,
                q0=_reference_position(m, j),
                frame_pos=-anchor,
            )
        )
        rotation, shift = np.eye(3), -anchor
    return chain


def _reference_position(m: MjModel, j: int) -> np.ndarray:
    """qpos0 of joint j, with its quaternion as xyzw."""
    at = m.jnt_qposadr[j]
    if m.jnt_type[j] == FREE:
        return np.concatenate([m.qpos0[at : at + 3], xyzw(m.qpos0[at + 3 : at + 7])])
    if m.jnt_type[j] == BALL:
        return xyzw(m.qpos0[at : at + 4])
    return m.qpos0[at : at + 1].copy()


def add_mass(link: Body, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
    """Add a mass with its inertia (3, 3) about its com, in the link's axes, to the link."""
    total = link.mass + mass
    middle = (link.mass * link.com + mass * com) / total if total > 0.0 else link.com
    # parallel axes: both parts about the common centre
    link.inertia = link.inertia + inertia + _offset_inertia(link.mass, link.com - middle)
    link.inertia = link.inertia + _offset_inertia(mass, com - middle)
    link.mass, link.com = float(total), middle


def _offset_inertia(mass: float, offset: np.ndarray) -> np.ndarray:
    return mass * (offset @ offset * np.eye(3) - np.outer(offset, offset))


def xyzw(quat: np.ndarray) -> np.ndarray:
    """MuJoCo's quaternion (wxyz), in our order."""
    return np.roll(quat, -1)


def list_leftovers(source: Source) -> None:
    """Add a note for every feature of the file that is not supported."""
    m, differ, note = source.m, source.differences, source.notes
    joint = source.joint_names

    def some(attribute: str) -> bool:
        """Whether a field that not every version of MuJoCo has is present and not zero."""
        return bool(np.any(getattr(m, attribute, 0)))

    if m.opt.density or m.opt.viscosity:
        differ.append("The fluid (density, viscosity, wind) is not supported: the simulation will differ.")
    if np.any(m.jnt_actgravcomp & m.jnt_actfrclimited):
        note.append("Gravity compensation does not count for actuatorfrcrange, as actgravcomp asks.")
    if m.nflex:
        differ.append(f"{m.nflex} flexible object(s) are not supported and left out: the simulation will differ.")
    if m.nplugin:
        differ.append(f"{m.nplugin} plugin(s) are not run: the simulation will differ.")
    balls = np.flatnonzero((m.jnt_type == BALL) & (m.jnt_limited != 0))
    if len(balls):
        names = ", ".join(joint[j] for j in balls)
        differ.append(f"The range of ball joint(s) {names} is ignored: the simulation will differ.")
    springs = np.flatnonzero((m.jnt_type <= BALL) & (m.jnt_stiffness != 0))
    if len(springs) and not source.disabled("SPRING"):
        names = ", ".join(joint[j] for j in springs)
        differ.append(f"The spring of ball or free joint(s) {names} is ignored: the simulation will differ.")
    rubbing = np.flatnonzero((m.jnt_type <= BALL) & (m.dof_frictionloss[m.jnt_dofadr] != 0))
    if len(rubbing) and not source.disabled("FRICTIONLOSS"):
        names = ", ".join(joint[j] for j in rubbing)
        differ.append(f"The frictionloss of ball or free joint(s) {names} is ignored: the simulation will differ.")
    if some("jnt_stiffnesspoly") or some("dof_dampingpoly") or some("jnt_springyield"):
        differ.append("Joint springs and dampers are linear here, without higher terms: the simulation will differ.")
    if some("geom_adhesion") or some("pair_adhesion") or some("geom_surfacevel"):
        differ.append("Adhesion and surface velocity of geoms are not supported: the simulation will differ.")
    if m.nmocap:
        note.append(f"{m.nmocap} mocap body(ies) do not move.")
    if np.any(m.geom_margin[(m.geom_contype | m.geom_conaffinity) != 0]) or np.any(m.pair_margin):
        note.append("Contact margins are ignored: MuJoCo keeps these geoms apart by their margin, here they touch.")
