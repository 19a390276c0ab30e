"""Env and EnvBar, which all stages work on, and their working memory; made once per precision and size.

Conventions are in types.py.
"""

from functools import cache
from types import SimpleNamespace

import warp as wp

from ..model.pairs import CONVEX
from .collision.convex import make_convex
from .layout import layout
from .types import NOTHING, PACK, Sizes, make_arguments


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
        IA: sym6  # articulated-body inertia, about the link's own origin
        pA: vec6  # articulated bias force, likewise; then wrenches of the adjoint's up pass
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
    class Tie:
        """An equality constraint: one or three rows that are never given up (ties.py)."""

        kind: int
        index: int  # loop, coupling or drive
        row: int  # its first
        rows: int
        link_a: int
        link_b: int
        pa: vec3  # the two points, each relative to the origin of its link's tree
        pb: vec3
        axes: mat33  # directions of the rows, as rows, world axes
        error: vec3  # from the one point to the other, or the turn between the links; of a coupling, its value

    @wp.struct
    class Mark:
        """A contact, by pair and feature, or a joint's limit, by pair -1 and limit_code (joint_rows.py)."""

        pair: int
        feature: int

    @wp.struct
    class Stage:
        """One evaluation of a step that impacts interrupt (core/impacts.py)."""

        rest: real  # time that was left of the step at its start
        press: real  # three times what the step adds to the rate of the gap that ends it, if that closes it
        pair: int  # what ended it, as in Mark
        feature: int
        num_marks: int

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
        second: int  # 1: the second side of a contact or tie
        pick: int  # entry of a list that is kept here: halves whose path contains the current joint
        u: vec3
        F: mat36  # wrenches that have arrived
        H: mat36  # motions of the root under the rows
        Z: mat36  # motions of the link under all rows, weighted with E

    NL, NV, ND, NC = sizes.links + 1, sizes.dofs, sizes.depth, sizes.contacts
    NJ, NS, NR, NP, NI = sizes.joint_rows, sizes.sides, sizes.rows, sizes.columns, sizes.sweeps
    NT, NE, NTS = sizes.ties, sizes.tie_rows, sizes.tie_sides
    NH = NC * NS + NJ + NTS
    NRE = NR + NE  # rows of E
    NPE = -(-NRE // PACK) * PACK
    impacts, NQ, NM = sizes.impacts, sizes.dofs + sizes.links, NC + NJ  # a quaternion has one number more than rates
    # All working memory is one local vector, seen as arrays; in kernels of the adjoint it is longer. What the solver
    # and its adjoint need is overwritten by what comes after them.
    step = dict(
        links=(Link, NL), dofs=(Dof, NV), contacts=(Contact, NC), joint_rows=(JointRow, NJ), u=(vec3, NC * NS * ND),
        uD=(vec3, NC * NS * ND), roots=(Root, NC * NS), joint_u=(vec1, NJ * ND), joint_roots=(JointRoot, NJ),
    )  # fmt: skip
    if impacts:
        step |= dict(
            roles=(wp.int32, NC), marks=(Mark, impacts * NM), stages=(Stage, 2 * impacts + 1),
            stage_q=(real, impacts * NQ), stage_qd=(real, 2 * impacts * NV),
        )  # fmt: skip
    # of general collision pairs: what they search with is dead before the solver's rows are made
    search, spots, c = {}, {}, make_convex(real)
    Search, Corner, Facet, Spot = c.Search, c.Corner, c.Facet, c.Spot
    MOST_CORNERS, MOST_FACETS, MOST_SPOTS = c.CORNERS, c.FACETS, c.SPOTS
    if any(kind in CONVEX for kind in sizes.kinds):
        search = dict(
            points=(wp.int32, 4),
            corners=(c.Corner, c.CORNERS),
            facets=(c.Facet, c.FACETS),
            rim=(wp.int32, 2 * c.FACETS),
        )
        spots = dict(found=(wp.int32, 4), spots=(c.Spot, c.SPOTS))
    solver = dict(A=(real, NR * NP), y=(real, NP), scale=(real, NP))
    if NT:
        step |= dict(ties=(Tie, NT), tie_u=(real, NE * NV), tie_x=(real, NE), tie_cfm=(real, NE))
        solver |= dict(tie_L=(real, NE * NE), tie_Y=(real, NE * NP), tie_y=(real, NE))
    solver_bar = dict(x_bar=(real, NP), dx=(real, NP), history=(real, NI * NR))
    after = dict(link_bars=(LinkBar, NL), halves=(Half, NH))
    if NT:
        solver_bar |= dict(tie_G=(real, NE * NP), tie_x_bar=(real, NE))
        after |= dict(tie_side_u=(vec3, NTS * ND), tie_side_uD=(vec3, NTS * ND), tie_roots=(Root, NTS))
    bars = dict(
        dof_bars=(DofBar, NV), contact_bars=(ContactBar, NC), joint_row_bars=(JointRowBar, NJ), E=(real, NRE * NPE)
    )
    if NT:
        bars |= dict(tie_b=(real, NE), tie_E=(real, NE))
    if impacts:
        bars |= dict(extra=(real, NV))
    Memory, _ = layout(real, step, solver, search, spots)
    turns = [solver | solver_bar | after] if sizes.again else [solver | solver_bar, after]
    MemoryBar, at = layout(real, step, *turns, search, spots, last=bars)
    LINKS, DOFS, CONTACTS, JOINT_ROWS = (at[name] for name in ("links", "dofs", "contacts", "joint_rows"))
    U, UD, ROOTS, JOINT_U, JOINT_ROOTS = (at[name] for name in ("u", "uD", "roots", "joint_u", "joint_roots"))
    MATRIX, Y, SCALE, X, DX, HISTORY = (at[name] for name in ("A", "y", "scale", "x_bar", "dx", "history"))
    LINK_BARS, DOF_BARS, CONTACT_BARS = (at[name] for name in ("link_bars", "dof_bars", "contact_bars"))
    JOINT_ROW_BARS, HALVES, MATRIX_BAR = (at[name] for name in ("joint_row_bars", "halves", "E"))
    none = wp.constant(wp.uint64(0))
    ROLES, MARKS, STAGES, STAGE_Q, STAGE_QD, EXTRA = (
        at.get(name, none) for name in ("roles", "marks", "stages", "stage_q", "stage_qd", "extra")
    )
    TIES, TIE_U, TIE_X, TIE_CFM, TIE_L, TIE_Y, TIE_RIGHT, TIE_G, TIE_X_BAR, TIE_B, TIE_E = (
        at.get(f"tie{name}", none) for name in ("s", "_u", "_x", "_cfm", "_L", "_Y", "_y", "_G", "_x_bar", "_b", "_E")
    )
    TIE_SIDE_U, TIE_SIDE_UD, TIE_ROOTS = (at.get(name, none) for name in ("tie_side_u", "tie_side_uD", "tie_roots"))
    POINTS, CORNERS, FACETS, RIM, SPOTS = (at.get(k, none) for k in ("points", "corners", "facets", "rim", "spots"))

    @wp.struct
    class Env:
        """One environment during a step: every stage reads and writes it."""

        model: Model
        params: Params
        index: int  # of the environment
        q: wp.array(dtype=real)
        qd: wp.array(dtype=real)
        u: wp.array(dtype=real)
        wrench: wp.array2d(dtype=real)  # [link - 1]: the caller's force and torque on it, if Sizes.wrenches
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
        y: wp.array(dtype=real)  # right-hand side of the rows
        y_packs: wp.array(dtype=pack)
        scale: wp.array(dtype=real)
        scale_packs: wp.array(dtype=pack)
        history: wp.array2d(dtype=real)  # [sweep, row], see pgs.py; only kernels of the adjoint have it
        sweeps: int
        moving: int  # sweeps before the impulses came to rest
        change: real  # largest change of an impulse in the last sweep
        # equality constraints, if Sizes.ties (core/ties.py and core/elimination.py)
        ties: wp.array(dtype=Tie)
        num_ties: int
        num_tie_rows: int  # those that are eliminated; rows of tendons at a limit come behind them in tie_u
        num_bounded: int  # rows of tendons at a limit
        tie_u: wp.array2d(dtype=real)  # [row, dof]: what a row's up pass leaves on the dofs
        tie_x: wp.array(dtype=real)  # impulses
        tie_cfm: wp.array(dtype=real)
        tie_L: wp.array2d(dtype=real)
        tie_Y: wp.array2d(dtype=real)
        tie_y: wp.array(dtype=real)
        # the rest is for steps that impacts interrupt (core/impacts.py)
        h: real  # length of the step; model.dt is 1 at an impact
        stage: int  # evaluation of the step: even ones are motion, odd ones impacts
        stages: wp.array(dtype=Stage)
        rest: real  # time that is left of the step
        tau: real  # when the interval ends
        hit: int  # what ends it: number of a contact that is not a row, NOTHING or HIT_LIMIT
        hit_pair: int  # the same as in Mark
        hit_feature: int
        num_near: int  # contacts[num_contacts:num_near] are near, but not rows
        roles: wp.array(dtype=int)  # of the contacts: ASIDE, ROW or SURE
        marks: wp.array2d(dtype=Mark)  # [impact, k]: its rows, which stay rows in the interval after it
        num_marks: int  # that count now
        stage_q: wp.array2d(dtype=real)  # [impact]: where it happened
        stage_qd: wp.array2d(dtype=real)  # [stage - 1]: rates at its start
        start_q: wp.array(dtype=real)  # of the step
        start_qd: wp.array(dtype=real)
        memory: wp.uint64  # where its working memory starts

    @wp.func
    def enter(e: wp.ref[Env], start: wp.uint64, model: Model, params: Params, index: int):
        """Set up an environment with the working memory at `start`; q, qd and u are left to the caller."""
        e.model = model
        e.params = params
        e.index = index
        e.memory = start
        e.links = wp.array(ptr=start + LINKS, shape=(NL,), dtype=Link)
        e.dofs = wp.array(ptr=start + DOFS, shape=(NV,), dtype=Dof)
        e.contacts = wp.array(ptr=start + CONTACTS, shape=(NC,), dtype=Contact)
        e.joint_rows = wp.array(ptr=start + JOINT_ROWS, shape=(NJ,), dtype=JointRow)
        e.paths.u = wp.array(ptr=start + U, shape=(NC * NS, ND), dtype=vec3)
        e.paths.uD = wp.array(ptr=start + UD, shape=(NC * NS, ND), dtype=vec3)
        e.paths.root = wp.array(ptr=start + ROOTS, shape=(NC * NS,), dtype=Root)
        e.joint_paths.u = wp.array(ptr=start + JOINT_U, shape=(NJ, ND), dtype=vec1)
        e.joint_paths.root = wp.array(ptr=start + JOINT_ROOTS, shape=(NJ,), dtype=JointRoot)
        e.A = wp.array(ptr=start + MATRIX, shape=(NR, NP), dtype=real)
        e.rows = wp.array(ptr=start + MATRIX, shape=(NR, NP // PACK), dtype=pack)
        e.y = wp.array(ptr=start + Y, shape=(NP,), dtype=real)
        e.y_packs = wp.array(ptr=start + Y, shape=(NP // PACK,), dtype=pack)
        e.scale = wp.array(ptr=start + SCALE, shape=(NP,), dtype=real)
        e.scale_packs = wp.array(ptr=start + SCALE, shape=(NP // PACK,), dtype=pack)
        e.h = model.dt
        e.stage = 0
        e.hit = NOTHING
        e.num_marks = 0
        if wp.static(NT > 0):
            e.ties = wp.array(ptr=start + TIES, shape=(NT,), dtype=Tie)
            e.tie_u = wp.array(ptr=start + TIE_U, shape=(NE, NV), dtype=real)
            e.tie_x = wp.array(ptr=start + TIE_X, shape=(NE,), dtype=real)
            e.tie_cfm = wp.array(ptr=start + TIE_CFM, shape=(NE,), dtype=real)
            e.tie_L = wp.array(ptr=start + TIE_L, shape=(NE, NE), dtype=real)
            e.tie_Y = wp.array(ptr=start + TIE_Y, shape=(NE, NP), dtype=real)
            e.tie_y = wp.array(ptr=start + TIE_RIGHT, shape=(NE,), dtype=real)
        if wp.static(impacts > 0):
            e.roles = wp.array(ptr=start + ROLES, shape=(NC,), dtype=int)
            e.marks = wp.array(ptr=start + MARKS, shape=(impacts, NM), dtype=Mark)
            e.stages = wp.array(ptr=start + STAGES, shape=(2 * impacts + 1,), dtype=Stage)
            e.stage_q = wp.array(ptr=start + STAGE_Q, shape=(impacts, NQ), dtype=real)
            e.stage_qd = wp.array(ptr=start + STAGE_QD, shape=(2 * impacts, NV), dtype=real)

    @wp.func
    def search_memory(e: wp.ref[Env]):
        """For the search of a general collision pair, in the place of the solver's rows."""
        search = Search()
        start = e.memory
        search.features = wp.array(ptr=start + POINTS, shape=(4,), dtype=int)
        search.corners = wp.array(ptr=start + CORNERS, shape=(MOST_CORNERS,), dtype=Corner)
        search.facets = wp.array(ptr=start + FACETS, shape=(MOST_FACETS,), dtype=Facet)
        search.rim = wp.array(ptr=start + RIM, shape=(2 * MOST_FACETS,), dtype=int)
        search.spots = wp.array(ptr=start + SPOTS, shape=(MOST_SPOTS,), dtype=Spot)
        return search

    @wp.func
    def at_impact(e: wp.ref[Env]):
        """True while an impact is solved: an instant, in which only impulses act, so there model.dt is 1."""
        if wp.static(impacts > 0):
            return e.stage % 2 == 1
        return False

    @wp.struct
    class EnvBar:
        """Adjoints of an Env, and what their computation needs."""

        params: ParamsBar
        q: wp.array(dtype=real)
        qd: wp.array(dtype=real)
        u: wp.array(dtype=real)
        wrench: wp.array2d(dtype=real)
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
        # of equality constraints
        tie_G: wp.array2d(dtype=real)
        tie_x: wp.array(dtype=real)
        tie_b: wp.array(dtype=real)
        tie_E: wp.array(dtype=real)  # diagonal of E
        tie_paths: Paths
        first_tie: int  # the first half that belongs to a tie
        # the rest is for steps that impacts interrupt
        backwards: int  # 1: the last evaluation of the step has been reached
        rest: real  # of the time that is left of the step
        duration: real  # of the length of the interval, as far as the loss itself depends on it
        approach: real  # of the velocity of approach of the contact that ends an interval
        extra: wp.array(dtype=real)  # adjoint of the displacement, then what evaluate_adjoint leaves to add to qd

    @wp.func
    def enter_bar(e: wp.ref[Env], e_bar: wp.ref[EnvBar], start: wp.uint64, params: ParamsBar):
        """Set up the adjoint in the same memory, which is a MemoryBar, and the solver's history in the environment."""
        e_bar.params = params
        e_bar.links = wp.array(ptr=start + LINK_BARS, shape=(NL,), dtype=LinkBar)
        e_bar.dofs = wp.array(ptr=start + DOF_BARS, shape=(NV,), dtype=DofBar)
        e_bar.contacts = wp.array(ptr=start + CONTACT_BARS, shape=(NC,), dtype=ContactBar)
        e_bar.joint_rows = wp.array(ptr=start + JOINT_ROW_BARS, shape=(NJ,), dtype=JointRowBar)
        e_bar.halves = wp.array(ptr=start + HALVES, shape=(NH,), dtype=Half)
        e_bar.E = wp.array(ptr=start + MATRIX_BAR, shape=(NRE, NPE), dtype=real)
        e_bar.E_packs = wp.array(ptr=start + MATRIX_BAR, shape=(NRE, NPE // PACK), dtype=pack)
        e_bar.x = wp.array(ptr=start + X, shape=(NP,), dtype=real)
        e_bar.x_packs = wp.array(ptr=start + X, shape=(NP // PACK,), dtype=pack)
        e_bar.dx = wp.array(ptr=start + DX, shape=(NP,), dtype=real)
        e_bar.dx_packs = wp.array(ptr=start + DX, shape=(NP // PACK,), dtype=pack)
        e.history = wp.array(ptr=start + HISTORY, shape=(NI, NR), dtype=real)
        e_bar.backwards = 0
        e_bar.duration = real(0.0)
        if wp.static(NT > 0):
            e_bar.tie_G = wp.array(ptr=start + TIE_G, shape=(NE, NP), dtype=real)
            e_bar.tie_x = wp.array(ptr=start + TIE_X_BAR, shape=(NE,), dtype=real)
            e_bar.tie_b = wp.array(ptr=start + TIE_B, shape=(NE,), dtype=real)
            e_bar.tie_E = wp.array(ptr=start + TIE_E, shape=(NE,), dtype=real)
            e_bar.tie_paths.u = wp.array(ptr=start + TIE_SIDE_U, shape=(NTS, ND), dtype=vec3)
            e_bar.tie_paths.uD = wp.array(ptr=start + TIE_SIDE_UD, shape=(NTS, ND), dtype=vec3)
            e_bar.tie_paths.root = wp.array(ptr=start + TIE_ROOTS, shape=(NTS,), dtype=Root)
        if wp.static(impacts > 0):
            e_bar.extra = wp.array(ptr=start + EXTRA, shape=(NV,), dtype=real)

    structs = (
        Link, Dof, Root, JointRoot, Paths, JointPaths, Contact, JointRow, Tie, Mark, Stage, LinkBar, DofBar, ContactBar,
        JointRowBar, Half, Env, EnvBar,
    )  # fmt: skip
    return SimpleNamespace(
        **vars(a), sizes=sizes, Memory=Memory, MemoryBar=MemoryBar, enter=enter, enter_bar=enter_bar,
        at_impact=at_impact, search_memory=search_memory,
        **{struct.cls.__name__: struct for struct in structs},
    )  # fmt: skip
