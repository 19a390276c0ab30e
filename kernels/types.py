"""Scalar, vector and struct types of the kernels, made once per precision and size.

Conventions (Featherstone, Rigid Body Dynamics Algorithms):
  - spatial vectors are world-aligned, angular part first, about O, the origin of the link's tree: the position of a
    free root, or of the joint that a fixed-base tree hangs on
  - link 0 is the world; link i > 0 hangs on joint i from link parent[i] < i
  - a joint of n dofs is n one-dof motion axes S on the same link: a chain of dofs, eliminated one by one
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import warp as wp

FREE = wp.constant(0)
REVOLUTE = wp.constant(1)
PRISMATIC = wp.constant(2)
SPHERICAL = wp.constant(3)

TORQUE = wp.constant(0)
POSITION = wp.constant(1)
VELOCITY = wp.constant(2)

LIMIT = wp.constant(0)
DRIVE = wp.constant(1)
DRY_FRICTION = wp.constant(2)

PACK = 8  # rows of the contact problem are handled in packs, so that only active ones cost time


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

    @property
    def rows(self) -> int:
        """Rows of the contact problem, rounded up so that a row is whole packs and whole contacts."""
        return max(-(-(3 * self.contacts + self.joint_rows) // (3 * PACK)), 1) * 3 * PACK


@cache
def make_arguments(real):
    """What kernels of every size take: vector types, Model and Params of one precision."""
    vec3 = wp.types.vector(length=3, dtype=real)
    vec6 = wp.types.vector(length=6, dtype=real)  # spatial vector, or a packed symmetric 3x3
    sym6 = wp.types.vector(length=21, dtype=real)  # upper triangle of a symmetric 6x6, row by row
    mat33 = wp.types.matrix(shape=(3, 3), dtype=real)
    mat36 = wp.types.matrix(shape=(3, 6), dtype=real)
    mat64 = wp.types.matrix(shape=(6, 4), dtype=real)
    quat = wp.types.quaternion(dtype=real)
    pack = wp.types.vector(length=PACK, dtype=real)

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
        limited: wp.array(dtype=int)  # dofs with a limit; and how many: num_limited
        num_limited: int
        rubbing: wp.array(dtype=int)  # dofs with dry friction
        num_rubbing: int
        dof_link: wp.array(dtype=int)
        dof_q: wp.array(dtype=int)  # entry of q that a one-dof joint's dof moves, -1 for others
        spring_ref: wp.array(dtype=real)
        num_drives: int
        drive_dof: wp.array(dtype=int)
        drive_type: wp.array(dtype=int)
        gear: wp.array(dtype=real)
        num_pairs: int
        pair_kind: wp.array(dtype=int)  # detection.kind_of
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
        dt: real
        iterations: int
        tolerance: real  # PGS stops when no impulse changes by more than this
        pyramid: int  # 1: friction limited per axis; 0: Coulomb's cone
        restitution_threshold: real  # m/s; slower impacts do not bounce
        max_push_speed: real  # m/s, at which penetrating shapes are pushed apart at most

    @wp.struct
    class Params:
        """What may differ between environments: [environment, ...], stride 0 where it is shared."""

        gravity: wp.array(dtype=vec3)
        mass: wp.array2d(dtype=real)  # [env, link - 1]
        com: wp.array2d(dtype=vec3)
        inertia: wp.array2d(dtype=mat33)  # about the com, link axes
        joint_pos: wp.array2d(dtype=vec3)
        joint_rot: wp.array2d(dtype=mat33)
        turned: wp.array(dtype=int)  # [link]: 0 if joint_rot is the identity everywhere and need not be multiplied
        armature: wp.array2d(dtype=real)  # [env, dof]
        damping: wp.array2d(dtype=real)
        stiffness: wp.array2d(dtype=real)
        frictionloss: wp.array2d(dtype=real)
        lower: wp.array2d(dtype=real)
        upper: wp.array2d(dtype=real)
        kp: wp.array2d(dtype=real)  # [env, drive]
        kd: wp.array2d(dtype=real)
        effort_limit: wp.array2d(dtype=real)
        friction: wp.array2d(dtype=real)  # [env, pair]
        restitution: wp.array2d(dtype=real)
        shape_pos: wp.array2d(dtype=vec3)  # [env, shape]
        shape_size: wp.array2d(dtype=vec3)
        erp: wp.array(dtype=real)  # share of the penetration removed per step
        cfm: wp.array(dtype=real)  # 1/kg, compliance of normal and limit rows

    @wp.struct
    class ParamsBar:
        """Adjoints of Params, summed over the steps. Groups that nobody asked for have no memory and the flag 0."""

        bodies: int
        mass: wp.array2d(dtype=real)
        com: wp.array2d(dtype=vec3)
        inertia: wp.array2d(dtype=mat33)
        placements: int
        joint_pos: wp.array2d(dtype=vec3)
        joint_turn: wp.array2d(dtype=vec3)  # for joint_rot -> exp(turn) joint_rot, in the parent's axes
        joints: int
        gravity: wp.array(dtype=vec3)
        armature: wp.array2d(dtype=real)
        damping: wp.array2d(dtype=real)
        stiffness: wp.array2d(dtype=real)
        frictionloss: wp.array2d(dtype=real)
        lower: wp.array2d(dtype=real)
        upper: wp.array2d(dtype=real)
        kp: wp.array2d(dtype=real)
        kd: wp.array2d(dtype=real)
        effort_limit: wp.array2d(dtype=real)
        touch: int
        friction: wp.array2d(dtype=real)
        restitution: wp.array2d(dtype=real)
        shape_pos: wp.array2d(dtype=vec3)
        shape_size: wp.array2d(dtype=vec3)
        erp: wp.array(dtype=real)
        cfm: wp.array(dtype=real)

    return SimpleNamespace(**locals())


@cache
def make_types(real, sizes: Sizes):
    """The types of one precision, with the working memory of a step."""
    a = make_arguments(real)
    vec3, vec6, sym6, mat33, mat36, mat64 = a.vec3, a.vec6, a.sym6, a.mat33, a.mat36, a.mat64

    @wp.struct
    class Link:
        """Working memory of one link during a step."""

        R: mat33  # link axes to world
        r: vec3  # frame origin relative to O
        v: vec6  # velocity
        a: vec6  # acceleration when all joint accelerations are zero, gravity included
        c: vec3  # com relative to O
        Ic: vec6  # rotational inertia about the com, world axes, packed
        IA: sym6  # articulated-body inertia, about the link's own origin
        pA: vec6  # articulated bias force, likewise
        dv: vec6  # velocity change over the step

    @wp.struct
    class Dof:
        """Working memory of one degree of freedom during a step."""

        S: vec6  # motion axis
        U: vec6  # IA S
        diagonal: real  # added to S.U: armature and what acts implicitly
        Dinv: real  # 1 / (S.U + diagonal)
        u: real  # joint force, then what is left of it after the bias, then joint impulse
        dqd: real  # rate change over the step

    @wp.struct
    class Root:
        """What three rows leave on the six dofs of a free root."""

        u: mat36
        uD: mat64  # times Dinv, one row per dof; the last column is zero, so that products use whole registers

    @wp.struct
    class JointRoot:
        """The same for one row."""

        u: vec6
        uD: vec6

    @wp.struct
    class Contact:
        """Two shapes that touch, and the three rows (normal, two tangents) that hold them apart."""

        pair: int
        feature: int  # which of the pair's possible points
        link_a: int
        link_b: int
        p: vec3  # relative to the origin of link_a's tree (of link_b's, if link_a is the world)
        shift: vec3  # p + shift is relative to the origin of link_b's tree
        n: vec3  # from b to a
        t: vec3
        s: vec3
        z: real  # gap, negative
        mu: real
        cfm: real
        Ainv: vec3  # steps of the rows, at most 1 / diagonal of A
        G: mat33  # block of A between the contact's own rows; then times Ainv, minus the identity
        slip: real  # factor that last brought friction back to its limit
        approach: real  # normal velocity before the step
        x: vec3  # impulse

    @wp.struct
    class JointRow:
        """One bounded row on one dof: a limit, a saturated drive or dry friction."""

        kind: int
        index: int  # drive, for drives
        dof: int
        link: int
        sign: real
        low: real  # bounds of the impulse
        high: real
        cfm: real
        x: real

    @wp.struct
    class LinkBar:
        """Adjoints of one link's vectors, summed over its subtree; W is the motion that the adjoint solve gives."""

        W: vec6
        Wbar: vec6
        vbar: vec6
        abar: vec6
        dvbar: vec6
        direct: vec6  # wrench on what is fixed to the link
        origin: vec3  # of roots: adjoint of O
        K: sym6  # delassus.py
        turn: vec6  # what moving the joint's frame does to A, as a wrench

    @wp.struct
    class DofBar:
        """Adjoints of one dof."""

        s: real  # of the joint force
        turn: real  # what moving the dof does to A
        kappa: real  # -2 times what the diagonal does to A

    @wp.struct
    class ContactBar:
        """Adjoints of one contact. x, p, n and z come in with what the loss itself asks of them."""

        x: vec3
        p: vec3
        n: vec3
        z: real
        b: vec3
        weight: real  # how much of A_bar is not b_bar x^T
        E: real  # entry of the normal row on the diagonal of E
        mu: real

    @wp.struct
    class JointRowBar:
        b: real
        weight: real
        E: real
        bound: real  # of the bound that it reached, low or high

    @wp.struct
    class Half:
        """One side of a contact with its three rows, or a joint's row (the first of three), between root and link.

        See delassus.py.
        """

        link: int
        row: int  # of A, the first
        rows: int  # 3, or 1 for a joint's row
        second: int  # 1: the second side of a contact
        pick: int  # entry of a list of halves, kept here: those that pass through the joint at hand
        u: vec3
        F: mat36  # wrenches that have arrived
        H: mat36  # motions of the root under the rows
        Z: mat36  # motions of the link under all rows, weighted with E

    return SimpleNamespace(**{**vars(a), **locals()})


def memory_layout(t, **parts):
    """A local vector type with room for all parts (name=(type, count)), and the byte at which each starts."""
    scalar = ctypes.sizeof(t.real._type_)
    at, end = {}, 0
    for name, (dtype, count) in parts.items():
        at[name] = end
        size = scalar if dtype is t.real else ctypes.sizeof(getattr(dtype, "ctype", dtype))
        end += -(-count * size // (4 * scalar)) * 4 * scalar
    return wp.types.vector(length=end // scalar, dtype=t.real), at
