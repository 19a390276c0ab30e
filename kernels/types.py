"""What all kernels share: constants, capacities, and the arguments of kernels (Model, Params, ParamsBar).

Conventions (Featherstone, Rigid Body Dynamics Algorithms):
  - spatial vectors are world-aligned, angular part first, about O, the origin of the link's tree: the position of a
    free root, or of the root joint of a fixed-base tree
  - link 0 is the world; link i > 0 hangs on joint i from link parent[i] < i
  - a joint of n dofs is n one-dof motion axes S on the same link: a chain of dofs, eliminated one by one
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import warp as wp

from ..device.parameters import GROUPS, PARAMETERS
from ..model import DriveType, JointType
from ..model.ties import POWERS as TIE_POWERS

FREE = wp.constant(int(JointType.FREE))
REVOLUTE = wp.constant(int(JointType.REVOLUTE))
PRISMATIC = wp.constant(int(JointType.PRISMATIC))
SPHERICAL = wp.constant(int(JointType.SPHERICAL))

TORQUE = wp.constant(int(DriveType.TORQUE))
VELOCITY = wp.constant(int(DriveType.VELOCITY))
THRUST = wp.constant(-1)  # a drive that pushes a link, with the law of TORQUE (core/thrusts.py)

LIMIT = wp.constant(0)  # kinds of JointRow
DRIVE = wp.constant(1)
DRY_FRICTION = wp.constant(2)
TENDON_LIMIT = wp.constant(3)  # these two are of a coupling: JointRow.dof is a row of Env.tie_u
TENDON_DRIVE = wp.constant(4)

POINT = wp.constant(0)  # kinds of Tie: two points of a loop coincide,
TURN = wp.constant(1)  # two links have the same orientation,
COUPLING = wp.constant(2)  # a coupling is zero;
SPRING = wp.constant(3)  # spring and damper of a tendon,
PULL = wp.constant(4)  # a drive that acts on a tendon
POWERS = wp.constant(TIE_POWERS)  # coefficients of a coupling's polynomials

ASIDE = wp.constant(0)  # roles of contacts in steps that impacts interrupt: near, but not a row,
ROW = wp.constant(1)  # a row, unless the forces of the step make it an impact,
SURE = wp.constant(2)  # a row in any case
NOTHING = wp.constant(-1)  # what ends an interval, if not a contact
HIT_LIMIT = wp.constant(-2)

PACK = 8  # rows of the contact problem are handled in packs, so that only active ones cost time


def stage(function):
    """Decorator of the device functions that step.py calls: inlined, so that Env is never in memory.

    Otherwise NVRTC keeps the largest of them as functions, which costs 6 KB of stack and 25 to 43 % more code on CUDA.
    """
    return wp.func(function, inline=True)


def exports(*functions, **others) -> SimpleNamespace:
    """What a factory of device functions returns: these functions by their names."""
    return SimpleNamespace(**{f.func.__name__: f for f in functions}, **others)


@dataclass(frozen=True)
class Sizes:
    """Capacities of the working memory; the counts in a model may be smaller, the kinds of pairs may be fewer."""

    links: int  # without the world
    dofs: int
    depth: int  # dofs on the longest path from a root, without a free root's own
    contacts: int = 0
    joint_rows: int = 0  # limits, saturated drives and dry friction that can act at once
    sides: int = 1  # 2: some contact moves both of its links
    kinds: tuple[tuple[int, int], ...] = ()  # pairs of ShapeType that occur
    sweeps: int = 0  # of the contact solver, that kernels of the adjoint record
    again: bool = False  # a step's adjoint is computed more than once, so it must not overwrite the step's memory
    impacts: int = 0  # that may interrupt a step (core/impacts.py); 0: none do
    wrenches: bool = False  # forces and torques of the caller act on the links
    ties: int = 0  # equality constraints (core/ties.py): blocks of one or three rows that can act at once,
    tie_rows: int = 0  # their rows and those of tendons at a limit, and
    tie_sides: int = 0  # links and dofs that they act on
    gravcomp: bool = False  # links may be relieved of their weight (core/gravcomp.py)
    thrusts: bool = False  # some drives push links (core/thrusts.py)
    lopsided: bool = False  # some drives push harder in one direction than in the other

    @property
    def rows(self) -> int:
        """Rows of the contact problem."""
        return 3 * self.contacts + self.joint_rows

    @property
    def columns(self) -> int:
        """The same, rounded up to whole packs."""
        return -(-self.rows // PACK) * PACK


@cache
def make_arguments(real):
    """What kernels of every size take: vector types, Model, Params and ParamsBar of one precision."""
    vec3 = wp.types.vector(length=3, dtype=real)
    mat33 = wp.types.matrix(shape=(3, 3), dtype=real)

    @wp.struct
    class Hulls:
        """Convex polytopes of the shapes that collide in general pairs, before a shape's size scales them.

        Indices of vertices and faces count from the start of their shape.
        """

        vertex_start: wp.array(dtype=int)  # [shape], like the next ones
        vertex_count: wp.array(dtype=int)
        face_start: wp.array(dtype=int)
        face_count: wp.array(dtype=int)  # 0: a point or a segment
        centre: wp.array(dtype=vec3)  # a point inside
        bound: wp.array(dtype=real)  # of a mesh, radius around the centre
        thickness: wp.array(dtype=real)  # distance from the centre to the nearest face
        vertices: wp.array(dtype=vec3)
        neighbour_start: wp.array(dtype=int)  # [vertex]
        neighbour_count: wp.array(dtype=int)
        neighbours: wp.array(dtype=int)  # vertices that share an edge with a vertex
        normal: wp.array(dtype=vec3)  # [face], like the next ones; outward
        middle: wp.array(dtype=vec3)
        area: wp.array(dtype=vec3)  # along the normal
        corner_start: wp.array(dtype=int)
        corner_count: wp.array(dtype=int)
        corners: wp.array(dtype=int)  # [corner of a face]: the vertex; counter-clockwise seen from outside
        sides: wp.array(dtype=vec3)  # outward normal, in the face's plane, of the edge to the next corner
        room: wp.array(dtype=real)  # distance of that edge from the middle of the face

    @wp.struct
    class Model:
        """What all environments share."""

        num_links: int  # with the world
        num_dofs: int
        parent: wp.array(dtype=int)  # [link], like the next ones
        root: wp.array(dtype=int)  # the link of the same tree that hangs on the world
        joint_type: wp.array(dtype=int)
        num_joint_dofs: wp.array(dtype=int)
        q_start: wp.array(dtype=int)
        v_start: wp.array(dtype=int)
        axis: wp.array(dtype=vec3)
        free_dof: wp.array(dtype=int)  # first of the six dofs of a free root, -1 in trees on a fixed base
        depth: wp.array(dtype=int)  # other dofs from the root to the link, its own included
        chain: wp.array2d(dtype=int)  # [link, d]: number d of them
        common: wp.array2d(dtype=int)  # [link, link]: how many of them the two paths share
        limited: wp.array(dtype=int)  # dofs with a limit
        num_limited: int
        rubbing: wp.array(dtype=int)  # dofs with dry friction
        num_rubbing: int
        max_joint_rows: int  # room for limits, saturated drives and dry friction at once (actuation.py)
        dof_link: wp.array(dtype=int)
        dof_q: wp.array(dtype=int)  # entry of q that a one-dof joint's dof moves, -1 for others
        spring_ref: wp.array(dtype=real)
        num_drives: int
        drive_dof: wp.array(dtype=int)
        drive_type: wp.array(dtype=int)
        gear: wp.array(dtype=real)
        effort_center: wp.array(dtype=real)  # [drive]: middle of the range of its force
        num_thrusts: int
        thrust_drive: wp.array(dtype=int)  # [thrust], like the next ones
        thrust_link: wp.array(dtype=int)
        thrust_pos: wp.array(dtype=vec3)  # in the link's frame
        thrust_force: wp.array(dtype=vec3)  # per unit of the drive's force, in the link's axes
        thrust_torque: wp.array(dtype=vec3)
        num_pairs: int
        pair_kind: wp.array(dtype=int)  # collision/pairs.py: kind_of
        pair_a: wp.array(dtype=int)
        pair_b: wp.array(dtype=int)
        shape_link: wp.array(dtype=int)
        shape_type: wp.array(dtype=int)
        shape_rot: wp.array(dtype=mat33)
        shape_normal: wp.array(dtype=vec3)  # z axis of shape_rot
        shape_bound: wp.array(dtype=real)  # radius of a mesh
        vertex_start: wp.array(dtype=int)  # [shape]: hull corners of a mesh
        vertex_count: wp.array(dtype=int)
        vertices: wp.array(dtype=vec3)
        field_dx: real  # spacing of the height field or block field
        field_dy: real
        hulls: Hulls
        dt: real
        iterations: int
        tolerance: real  # PGS stops when no impulse changes by more than this,
        rounding: real  # or, when changes no longer shrink, by more than this share of the largest impulse
        pyramid: int  # 1: friction limited per axis; 0: Coulomb's cone
        num_ties: int  # that can act, see core/ties.py
        tie_kind: wp.array(dtype=int)
        tie_index: wp.array(dtype=int)  # loop, coupling or drive
        loop_a: wp.array(dtype=int)  # [loop]: its links
        loop_b: wp.array(dtype=int)
        loop_axes: wp.array2d(dtype=mat33)  # [loop, POINT or TURN]: directions that are held, as rows, in link a; or 0
        loop_rot: wp.array(dtype=mat33)  # orientation of link a in link b
        term_start: wp.array(dtype=int)  # [coupling], and the number of terms behind the last
        term_dof: wp.array(dtype=int)
        term_ref: wp.array(dtype=real)
        coupling_rest: wp.array2d(dtype=real)  # [coupling]: lengths between which a tendon's spring is slack
        coupling_range: wp.array2d(dtype=real)  # limits of a tendon's length
        limited_couplings: wp.array(dtype=int)
        num_limited_couplings: int
        drive_coupling: wp.array(dtype=int)  # [drive]: the coupling that it acts on, -1: a joint
        tie_erp: real  # share of the error of a loop or coupling that is removed per step
        restitution_threshold: real  # m/s; slower impacts do not bounce
        max_push_speed: real  # m/s, limit of the speed at which penetrating shapes are pushed apart

    # [environment, ...]; stride 0 where all environments share a value
    kinds = {(): real, (3,): vec3, (3, 3): mat33}
    params: dict = {"turned": wp.array(dtype=int)}  # [link]: 0 if joint_rot is the identity everywhere
    bars: dict = dict.fromkeys(GROUPS, int)  # 1: gradients of the group are wanted; 0: its arrays have no memory
    for name, row in PARAMETERS.items():
        kind = bar_kind = kinds.get(row.value_shape)
        if name == "joint_quat":
            kind, bar_kind = mat33, vec3  # the adjoint is for joint_rot -> exp(turn) joint_rot, in the parent's axes
        params[row.device or name] = wp.array(dtype=kind, ndim=1 + len(row.counts))
        bars[row.device_bar or name] = wp.array(dtype=bar_kind, ndim=1 + len(row.counts))
    return SimpleNamespace(
        real=real,
        vec3=vec3,
        vec6=wp.types.vector(length=6, dtype=real),  # spatial vector, or a packed symmetric 3x3
        sym6=wp.types.vector(length=21, dtype=real),  # upper triangle of a symmetric 6x6, row by row
        mat33=mat33,
        mat36=wp.types.matrix(shape=(3, 6), dtype=real),
        mat64=wp.types.matrix(shape=(6, 4), dtype=real),
        quat=wp.types.quaternion(dtype=real),
        pack=wp.types.vector(length=PACK, dtype=real),
        Hulls=Hulls,
        Model=Model,
        Params=_struct("Params", "What may differ between environments; see device/parameters.py.", params),
        ParamsBar=_struct("ParamsBar", "Adjoints of Params, summed over the steps.", bars),
    )


def _struct(name: str, doc: str, fields: dict):
    return wp.struct(type(name, (), {"__doc__": doc, "__annotations__": fields, "__module__": __name__}))
