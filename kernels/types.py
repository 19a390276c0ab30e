"""Types of the kernels, made once per precision and size: Env and EnvBar, which all stages work on, and their parts.

Conventions (Featherstone, Rigid Body Dynamics Algorithms):
  - spatial vectors are world-aligned, angular part first, about O, the origin of the link's tree: the position of a
    free root, or of the root joint of a fixed-base tree
  - link 0 is the world; link i > 0 hangs on joint i from link parent[i] < i
  - a joint of n dofs is n one-dof motion axes S on the same link: a chain of dofs, eliminated one by one
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import warp as wp

from ..device.parameters import GROUPS, PARAMETERS
from ..model import DriveType, JointType

FREE = wp.constant(int(JointType.FREE))
REVOLUTE = wp.constant(int(JointType.REVOLUTE))
PRISMATIC = wp.constant(int(JointType.PRISMATIC))
SPHERICAL = wp.constant(int(JointType.SPHERICAL))

TORQUE = wp.constant(int(DriveType.TORQUE))
VELOCITY = wp.constant(int(DriveType.VELOCITY))

LIMIT = wp.constant(0)  # kinds of JointRow
DRIVE = wp.constant(1)
DRY_FRICTION = wp.constant(2)

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

    @property
    def rows(self) -> int:
        """Rows of the contact problem, rounded up so that a row is whole packs and whole contacts."""
        return -(-(3 * self.contacts + self.joint_rows) // (3 * PACK)) * 3 * PACK


@cache
def make_arguments(real):
    """What kernels of every size take: vector types, Model, Params and ParamsBar of one precision."""
    vec3 = wp.types.vector(length=3, dtype=real)
    mat33 = wp.types.matrix(shape=(3, 3), dtype=real)

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
        dof_link: wp.array(dtype=int)
        dof_q: wp.array(dtype=int)  # entry of q that a one-dof joint's dof moves, -1 for others
        spring_ref: wp.array(dtype=real)
        num_drives: int
        drive_dof: wp.array(dtype=int)
        drive_type: wp.array(dtype=int)
        gear: wp.array(dtype=real)
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
        dt: real
        iterations: int
        tolerance: real  # PGS stops when no impulse changes by more than this
        pyramid: int  # 1: friction limited per axis; 0: Coulomb's cone
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
        Model=Model,
        Params=_struct("Params", "What may differ between environments; see device/parameters.py.", params),
        ParamsBar=_struct("ParamsBar", "Adjoints of Params, summed over the steps.", bars),
    )


def _struct(name: str, doc: str, fields: dict):
    return wp.struct(type(name, (), {"__doc__": doc, "__annotations__": fields, "__module__": __name__}))


@cache
def make_types(real, sizes: Sizes):
    """The types of one precision and size: Env and EnvBar with their working memory."""
    a = make_arguments(real)
    vec3, vec6, sym6, mat33, mat36, mat64, pack = a.vec3, a.vec6, a.sym6, a.mat33, a.mat36, a.mat64, a.pack
    Model, Params, ParamsBar = a.Model, a.Params, a.ParamsBar
    vec1 = wp.types.vector(length=1, dtype=real)
    mat16, mat61 = wp.types.matrix(shape=(1, 6), dtype=real), wp.types.matrix(shape=(6, 1), dtype=real)

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
        u: real  # joint force, then minus the bias force, then joint impulse
        dqd: real  # rate change over the step

    @wp.struct
    class Root:
        """What three rows leave on the six dofs of a free root."""

        u: mat36
        uD: mat64  # times Dinv, one row per dof; the last column is zero, so that products use whole registers

    @wp.struct
    class JointRoot:
        """The same for one row."""

        u: mat16
        uD: mat61

    @wp.struct
    class Paths:
        """What the rows of contacts leave on the dofs of their paths (paths.py), [side of a contact, depth]."""

        u: wp.array2d(dtype=vec3)
        uD: wp.array2d(dtype=vec3)  # times Dinv
        root: wp.array(dtype=Root)  # [side of a contact]

    @wp.struct
    class JointPaths:
        """The same for joint rows, [row, depth]."""

        u: wp.array2d(dtype=vec1)
        root: wp.array(dtype=JointRoot)  # [row]

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
        """Adjoints of one contact. x, p, n and z start with the gradient of the loss itself."""

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
        pick: int  # entry of a list that is kept here: halves whose path contains the current joint
        u: vec3
        F: mat36  # wrenches that have arrived
        H: mat36  # motions of the root under the rows
        Z: mat36  # motions of the link under all rows, weighted with E

    NL, NV, ND, NC = sizes.links + 1, sizes.dofs, sizes.depth, sizes.contacts
    NJ, NS, NR, NI = sizes.joint_rows, sizes.sides, sizes.rows, sizes.sweeps
    # All working memory is one local vector, seen as arrays. A struct of vectors would be made as a temporary and
    # copied, which doubles the stack on CUDA.
    Memory, at = _layout(
        real, links=(Link, NL), dofs=(Dof, NV), contacts=(Contact, NC), joint_rows=(JointRow, NJ),
        u=(vec3, NC * NS * ND), uD=(vec3, NC * NS * ND), roots=(Root, NC * NS), joint_u=(vec1, NJ * ND),
        joint_roots=(JointRoot, NJ), A=(real, NR * NR), y=(real, NR), scale=(real, NR),
    )  # fmt: skip
    LINKS, DOFS, CONTACTS, JOINT_ROWS, U, UD, ROOTS, JOINT_U, JOINT_ROOTS, MATRIX, Y, SCALE = at

    @wp.struct
    class Env:
        """One environment during a step: every stage reads and writes it."""

        model: Model
        params: Params
        index: int  # of the environment
        q: wp.array(dtype=real)
        qd: wp.array(dtype=real)
        u: wp.array(dtype=real)
        links: wp.array(dtype=Link)
        dofs: wp.array(dtype=Dof)
        contacts: wp.array(dtype=Contact)
        num_contacts: int
        dropped: int  # contacts beyond the capacity
        joint_rows: wp.array(dtype=JointRow)
        num_joint_rows: int
        paths: Paths
        joint_paths: JointPaths
        A: wp.array2d(dtype=real)
        rows: wp.array2d(dtype=pack)  # A, each row by packs
        blocks: wp.array2d(dtype=vec3)  # A, each row by contacts
        y: wp.array(dtype=real)  # right-hand side of the rows
        y_packs: wp.array(dtype=pack)
        scale: wp.array(dtype=real)
        scale_packs: wp.array(dtype=pack)
        history: wp.array2d(dtype=real)  # [sweep, row], see pgs.py; only kernels of the adjoint have it
        sweeps: int
        moving: int  # sweeps before the impulses came to rest
        change: real  # largest change of an impulse in the last sweep

    @wp.func
    def enter(e: wp.ref[Env], memory: wp.ref[Memory], model: Model, params: Params, index: int):
        """Set up an environment with its working memory; q, qd and u are left to the caller."""
        start = wp.address_of(memory)
        e.model = model
        e.params = params
        e.index = index
        e.links = wp.array(ptr=start + LINKS, shape=(NL,), dtype=Link)
        e.dofs = wp.array(ptr=start + DOFS, shape=(NV,), dtype=Dof)
        e.contacts = wp.array(ptr=start + CONTACTS, shape=(NC,), dtype=Contact)
        e.joint_rows = wp.array(ptr=start + JOINT_ROWS, shape=(NJ,), dtype=JointRow)
        e.paths.u = wp.array(ptr=start + U, shape=(NC * NS, ND), dtype=vec3)
        e.paths.uD = wp.array(ptr=start + UD, shape=(NC * NS, ND), dtype=vec3)
        e.paths.root = wp.array(ptr=start + ROOTS, shape=(NC * NS,), dtype=Root)
        e.joint_paths.u = wp.array(ptr=start + JOINT_U, shape=(NJ, ND), dtype=vec1)
        e.joint_paths.root = wp.array(ptr=start + JOINT_ROOTS, shape=(NJ,), dtype=JointRoot)
        e.A = wp.array(ptr=start + MATRIX, shape=(NR, NR), dtype=real)
        e.rows = wp.array(ptr=start + MATRIX, shape=(NR, NR // PACK), dtype=pack)
        e.blocks = wp.array(ptr=start + MATRIX, shape=(NR, NR // 3), dtype=vec3)
        e.y = wp.array(ptr=start + Y, shape=(NR,), dtype=real)
        e.y_packs = wp.array(ptr=start + Y, shape=(NR // PACK,), dtype=pack)
        e.scale = wp.array(ptr=start + SCALE, shape=(NR,), dtype=real)
        e.scale_packs = wp.array(ptr=start + SCALE, shape=(NR // PACK,), dtype=pack)

    NH = NC * NS + NJ
    MemoryBar, at_bar = _layout(
        real, links=(LinkBar, NL), dofs=(DofBar, NV), contacts=(ContactBar, NC), joint_rows=(JointRowBar, NJ),
        halves=(Half, NH), E=(real, NR * NR), x=(real, NR), dx=(real, NR), history=(real, NI * NR),
    )  # fmt: skip
    LINKS_BAR, DOFS_BAR, CONTACTS_BAR, JOINT_ROWS_BAR, HALVES, MATRIX_BAR, X, DX, HISTORY = at_bar

    @wp.struct
    class EnvBar:
        """Adjoints of an Env, and what their computation needs."""

        params: ParamsBar
        q: wp.array(dtype=real)
        qd: wp.array(dtype=real)
        u: wp.array(dtype=real)
        links: wp.array(dtype=LinkBar)
        dofs: wp.array(dtype=DofBar)
        contacts: wp.array(dtype=ContactBar)
        joint_rows: wp.array(dtype=JointRowBar)
        halves: wp.array(dtype=Half)
        num_halves: int
        E: wp.array2d(dtype=real)  # see pgs.py
        E_packs: wp.array2d(dtype=pack)
        with_E: bool  # False: E is below rounding and is left out
        x: wp.array(dtype=real)  # of the impulses, scaled
        x_packs: wp.array(dtype=pack)
        dx: wp.array(dtype=real)
        dx_packs: wp.array(dtype=pack)

    @wp.func
    def enter_bar(e: wp.ref[Env], e_bar: wp.ref[EnvBar], memory: wp.ref[MemoryBar], params: ParamsBar):
        """Set up the adjoint of an environment, and the solver's history in the environment itself."""
        start = wp.address_of(memory)
        e_bar.params = params
        e_bar.links = wp.array(ptr=start + LINKS_BAR, shape=(NL,), dtype=LinkBar)
        e_bar.dofs = wp.array(ptr=start + DOFS_BAR, shape=(NV,), dtype=DofBar)
        e_bar.contacts = wp.array(ptr=start + CONTACTS_BAR, shape=(NC,), dtype=ContactBar)
        e_bar.joint_rows = wp.array(ptr=start + JOINT_ROWS_BAR, shape=(NJ,), dtype=JointRowBar)
        e_bar.halves = wp.array(ptr=start + HALVES, shape=(NH,), dtype=Half)
        e_bar.E = wp.array(ptr=start + MATRIX_BAR, shape=(NR, NR), dtype=real)
        e_bar.E_packs = wp.array(ptr=start + MATRIX_BAR, shape=(NR, NR // PACK), dtype=pack)
        e_bar.x = wp.array(ptr=start + X, shape=(NR,), dtype=real)
        e_bar.x_packs = wp.array(ptr=start + X, shape=(NR // PACK,), dtype=pack)
        e_bar.dx = wp.array(ptr=start + DX, shape=(NR,), dtype=real)
        e_bar.dx_packs = wp.array(ptr=start + DX, shape=(NR // PACK,), dtype=pack)
        e.history = wp.array(ptr=start + HISTORY, shape=(NI, NR), dtype=real)

    structs = (
        Link, Dof, Root, JointRoot, Paths, JointPaths, Contact, JointRow, LinkBar, DofBar, ContactBar, JointRowBar,
        Half, Env, EnvBar,
    )  # fmt: skip
    return SimpleNamespace(
        **vars(a), sizes=sizes, Memory=Memory, MemoryBar=MemoryBar, enter=enter, enter_bar=enter_bar,
        **{struct.cls.__name__: struct for struct in structs},
    )  # fmt: skip


def _layout(real, **parts):
    """A local vector type with room for all parts (name=(type, count)), and the byte at which each starts."""
    scalar = ctypes.sizeof(real._type_)
    starts, end = [], 0
    for dtype, count in parts.values():
        starts.append(wp.constant(wp.uint64(end)))
        size = scalar if dtype is real else ctypes.sizeof(getattr(dtype, "ctype", dtype))
        end += -(-count * size // (4 * scalar)) * 4 * scalar
    return wp.types.vector(length=end // scalar, dtype=real), starts
