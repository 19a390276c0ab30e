"""One step, and its adjoint, as sequences of stages; and the working memory they share."""

from types import SimpleNamespace

import warp as wp

from .types import PACK, memory_layout


def make_step(t, kinematics, actuation, dynamics, detection, joint_rows, contact, delassus, pgs, integrate, motion):
    real, vec3, pack = t.real, t.vec3, t.pack
    Model, Params, Link, Dof, JointRoot = t.Model, t.Params, t.Link, t.Dof, t.JointRoot
    Contact, JointRow, Root = t.Contact, t.JointRow, t.Root

    NL, NV, ND, NC = t.sizes.links + 1, t.sizes.dofs, t.sizes.depth, max(t.sizes.contacts, 1)
    NJ, NS, NR = max(t.sizes.joint_rows, 1), t.sizes.sides, t.sizes.rows
    # All working memory is one local vector, seen as arrays. One vector, because a struct of vectors would be made as a
    # temporary and copied, which doubles the stack on CUDA.
    Memory, at = memory_layout(
        t,
        links=(Link, NL),
        dofs=(Dof, NV),
        contacts=(Contact, NC),
        joint_rows=(JointRow, NJ),
        paths=(vec3, 2 * NC * NS * ND),
        roots=(Root, NC * NS),
        joint_paths=(real, NJ * ND),
        joint_roots=(JointRoot, NJ),
        A=(real, NR * NR),
        y=(real, NR),
        scale=(real, NR),
    )
    LINKS, DOFS, CONTACTS, JOINT_ROWS = (
        wp.constant(wp.uint64(at[k])) for k in ("links", "dofs", "contacts", "joint_rows")
    )
    PATHS, ROOTS, JOINT_PATHS = (wp.constant(wp.uint64(at[k])) for k in ("paths", "roots", "joint_paths"))
    JOINT_ROOTS, MATRIX, Y, SCALE = (wp.constant(wp.uint64(at[k])) for k in ("joint_roots", "A", "y", "scale"))

    @wp.struct
    class Work:
        """Memory, seen as arrays."""

        links: wp.array(dtype=Link)
        dofs: wp.array(dtype=Dof)
        contacts: wp.array(dtype=Contact)
        joint_rows: wp.array(dtype=JointRow)
        paths: wp.array2d(dtype=vec3)  # [2 * side of a contact (+ 1: times Dinv), depth]
        roots: wp.array(dtype=Root)  # [side of a contact]
        joint_paths: wp.array2d(dtype=real)  # [joint row, depth]
        joint_roots: wp.array(dtype=JointRoot)
        A: wp.array2d(dtype=real)
        rows: wp.array2d(dtype=pack)  # A, each row by packs
        blocks: wp.array2d(dtype=vec3)  # A, each row by contacts
        y: wp.array(dtype=real)  # right-hand side of the rows
        y_packs: wp.array(dtype=pack)
        scale: wp.array(dtype=real)
        scale_packs: wp.array(dtype=pack)
        history: wp.array2d(dtype=real)  # [sweep, row], see pgs.py; only for the adjoint

    @wp.struct
    class Counts:
        """What a step found and did besides the new state."""

        contacts: int
        joint_rows: int
        dropped: int  # contacts beyond the capacity
        sweeps: int
        moving: int  # sweeps before the impulses came to rest
        change: real  # largest change of an impulse in the last sweep

    @wp.func
    def view(memory: wp.ref[Memory]):
        start = wp.address_of(memory)
        work = Work()
        work.links = wp.array(ptr=start + LINKS, shape=(NL,), dtype=Link)
        work.dofs = wp.array(ptr=start + DOFS, shape=(NV,), dtype=Dof)
        work.contacts = wp.array(ptr=start + CONTACTS, shape=(NC,), dtype=Contact)
        work.joint_rows = wp.array(ptr=start + JOINT_ROWS, shape=(NJ,), dtype=JointRow)
        work.paths = wp.array(ptr=start + PATHS, shape=(2 * NC * NS, ND), dtype=vec3)
        work.roots = wp.array(ptr=start + ROOTS, shape=(NC * NS,), dtype=Root)
        work.joint_paths = wp.array(ptr=start + JOINT_PATHS, shape=(NJ, ND), dtype=real)
        work.joint_roots = wp.array(ptr=start + JOINT_ROOTS, shape=(NJ,), dtype=JointRoot)
        work.A = wp.array(ptr=start + MATRIX, shape=(NR, NR), dtype=real)
        work.rows = wp.array(ptr=start + MATRIX, shape=(NR, NR // PACK), dtype=pack)
        work.blocks = wp.array(ptr=start + MATRIX, shape=(NR, NR // 3), dtype=vec3)
        work.y = wp.array(ptr=start + Y, shape=(NR,), dtype=real)
        work.y_packs = wp.array(ptr=start + Y, shape=(NR // PACK,), dtype=pack)
        work.scale = wp.array(ptr=start + SCALE, shape=(NR,), dtype=real)
        work.scale_packs = wp.array(ptr=start + SCALE, shape=(NR // PACK,), dtype=pack)
        return work

    @wp.func
    def evaluate(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), work: Work,
    ):  # fmt: skip
        """All of a step but the integration: leaves the rate changes in work.dofs."""
        kinematics.kinematics(model, params, env, q, qd, work.links, work.dofs)
        nj = actuation.actuation(model, params, env, q, qd, u, work.dofs, work.joint_rows)
        dynamics.factorise(model, params, env, work.links, work.dofs)

        nc, dropped = detection.detect(model, params, env, q, work.links, work.contacts)
        nj = joint_rows.find_rows(model, params, env, q, work.joint_rows, nj)
        for k in range(nc):
            b = contact.contact_rows(
                model, params, env, k, work.contacts[k], work.links, work.dofs, work.paths, work.roots
            )
            for r in range(3):
                work.y[3 * k + r] = b[r]
        for k in range(nj):
            row = 3 * nc + k
            work.y[row] = joint_rows.propagate_row(
                model, params, env, q, qd, u, k, work.joint_rows[k], work.dofs, work.joint_paths,
                work.joint_roots[k],
            )  # fmt: skip
        delassus.delassus(
            model, nc, nj, work.dofs, work.contacts, work.paths, work.roots, work.joint_rows,
            work.joint_paths, work.joint_roots, work.A, work.blocks,
        )  # fmt: skip
        pgs.prepare(
            model, nc, nj, work.contacts, work.joint_rows, work.A, work.rows, work.scale, work.scale_packs, work.y_packs
        )
        sweeps, moving, change = pgs.solve(
            model, nc, nj, work.rows, work.contacts, work.joint_rows, work.y, work.y_packs, work.history
        )
        contact.apply_impulses(
            model, nc, nj, work.contacts, work.paths, work.roots, work.joint_rows, work.joint_paths, work.joint_roots,
            work.dofs,
        )  # fmt: skip
        dynamics.solve_down(model, work.links, work.dofs)
        counts = Counts()
        counts.contacts = nc
        counts.joint_rows = nj
        counts.dropped = dropped
        counts.sweeps = sweeps
        counts.moving = moving
        counts.change = change
        return counts

    @wp.func
    def step(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), work: Work, q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real),
    ):  # fmt: skip
        """q_next may be q, and qd_next qd. Returns the counts and False if the state has run away: it is left alone."""
        counts = evaluate(model, params, env, q, qd, u, work)
        fine = not integrate.runaway(model, qd, work.dofs)
        if fine:
            integrate.integrate(model, q, qd, work.dofs, q_next, qd_next)
        return counts, fine

    @wp.func
    def hold(
        q: wp.array(dtype=real), qd: wp.array(dtype=real), q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real)
    ):
        """The next state is the present one."""
        for j in range(q.shape[0]):
            q_next[j] = q[j]
        for j in range(qd.shape[0]):
            qd_next[j] = qd[j]

    if t.sizes.sweeps > 0:
        adjoint = make_step_adjoint(
            t, actuation, dynamics, joint_rows, contact, delassus, pgs, integrate, motion, Work, Counts
        )
    return SimpleNamespace(**locals())


def make_step_adjoint(t, actuation, dynamics, joint_rows, contact, delassus, pgs, integrate, motion, Work, Counts):
    """For kernels whose sizes leave room for the history of the solver."""
    real, vec3, pack = t.real, t.vec3, t.pack
    Model, Params, ParamsBar, Half = t.Model, t.Params, t.ParamsBar, t.Half
    LinkBar, DofBar, ContactBar, JointRowBar = t.LinkBar, t.DofBar, t.ContactBar, t.JointRowBar

    NL, NV, NC = t.sizes.links + 1, t.sizes.dofs, max(t.sizes.contacts, 1)
    NJ, NR, NI = max(t.sizes.joint_rows, 1), t.sizes.rows, t.sizes.sweeps
    NH = NC * t.sizes.sides + NJ
    MemoryBar, at = memory_layout(
        t,
        links=(LinkBar, NL),
        dofs=(DofBar, NV),
        contacts=(ContactBar, NC),
        joint_rows=(JointRowBar, NJ),
        halves=(Half, NH),
        E=(real, NR * NR),
        x=(real, NR),
        dx=(real, NR),
        history=(real, NI * NR),
    )
    LINKS, DOFS, CONTACTS, JOINT_ROWS, HALVES = (
        wp.constant(wp.uint64(at[k])) for k in ("links", "dofs", "contacts", "joint_rows", "halves")
    )
    MATRIX, X, DX, HISTORY = (wp.constant(wp.uint64(at[k])) for k in ("E", "x", "dx", "history"))

    @wp.struct
    class WorkBar:
        """MemoryBar, seen as arrays."""

        links: wp.array(dtype=LinkBar)
        dofs: wp.array(dtype=DofBar)
        contacts: wp.array(dtype=ContactBar)
        joint_rows: wp.array(dtype=JointRowBar)
        halves: wp.array(dtype=Half)
        E: wp.array2d(dtype=real)
        E_packs: wp.array2d(dtype=pack)
        x: wp.array(dtype=real)  # adjoint of the impulses
        x_packs: wp.array(dtype=pack)
        dx: wp.array(dtype=real)
        dx_packs: wp.array(dtype=pack)
        history: wp.array2d(dtype=real)

    @wp.func
    def view_bar(memory: wp.ref[MemoryBar]):
        start = wp.address_of(memory)
        bar = WorkBar()
        bar.links = wp.array(ptr=start + LINKS, shape=(NL,), dtype=LinkBar)
        bar.dofs = wp.array(ptr=start + DOFS, shape=(NV,), dtype=DofBar)
        bar.contacts = wp.array(ptr=start + CONTACTS, shape=(NC,), dtype=ContactBar)
        bar.joint_rows = wp.array(ptr=start + JOINT_ROWS, shape=(NJ,), dtype=JointRowBar)
        bar.halves = wp.array(ptr=start + HALVES, shape=(NH,), dtype=Half)
        bar.E = wp.array(ptr=start + MATRIX, shape=(NR, NR), dtype=real)
        bar.E_packs = wp.array(ptr=start + MATRIX, shape=(NR, NR // PACK), dtype=pack)
        bar.x = wp.array(ptr=start + X, shape=(NR,), dtype=real)
        bar.x_packs = wp.array(ptr=start + X, shape=(NR // PACK,), dtype=pack)
        bar.dx = wp.array(ptr=start + DX, shape=(NR,), dtype=real)
        bar.dx_packs = wp.array(ptr=start + DX, shape=(NR // PACK,), dtype=pack)
        bar.history = wp.array(ptr=start + HISTORY, shape=(NI, NR), dtype=real)
        return bar

    @wp.func
    def clear_contacts(count: int, bars: wp.array(dtype=ContactBar)):
        """The loss asks nothing of the contacts themselves."""
        for k in range(count):
            bars[k].x = vec3()
            bars[k].p = vec3()
            bars[k].n = vec3()
            bars[k].z = real(0.0)

    @wp.func
    def evaluate_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), work: Work, counts: Counts, bar: WorkBar, q_bar: wp.array(dtype=real),
        qd_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """Reverse `evaluate`, which has filled `work`; may be called again for another qd_bar.

        qd_bar comes in as the adjoint of the next rates, and leaves as that of qd; q_bar, u_bar and params_bar are
        added to. bar.contacts holds what the loss asks of the contacts.
        """
        nc = counts.contacts
        nj = counts.joint_rows
        # the solve for the rates, and the impulses in it
        dynamics.solve_up_adjoint(model, work.links, work.dofs, bar.links, qd_bar)
        contact.impulses_adjoint(
            model, nc, nj, work.contacts, work.paths, work.roots, work.joint_rows, work.joint_paths, work.joint_roots,
            work.dofs, work.scale, bar.contacts, bar.joint_rows, bar.x,
        )  # fmt: skip
        pgs.solve_adjoint(
            model, nc, nj, counts.sweeps, counts.moving, work.rows, work.scale, work.contacts, work.joint_rows,
            bar.history, bar.x, bar.x_packs, bar.dx, bar.dx_packs, bar.E, bar.E_packs, bar.contacts, bar.joint_rows,
        )  # fmt: skip
        with_E = pgs.matters(nc, nj, bar.contacts, bar.joint_rows, bar.E)
        contact.apply_b_bar(
            model, nc, nj, work.contacts, work.paths, work.roots, work.joint_rows, work.joint_paths, work.joint_roots,
            bar.contacts, bar.joint_rows, work.dofs,
        )  # fmt: skip
        dynamics.solve_down_adjoint(model, work.dofs, bar.links, bar.dofs)
        # all that the equations depend on
        motion.clear(model, bar.links, bar.dofs)
        halves = int(0)
        if with_E:
            halves = delassus.delassus_adjoint(
                model, nc, nj, params_bar.placements, work.links, work.dofs, work.contacts, work.paths, work.roots,
                work.joint_rows, work.joint_paths, work.joint_roots, bar.E, bar.halves, bar.links, bar.dofs,
            )  # fmt: skip
        contact.contacts_adjoint(
            model, params, env, nc, halves, work.links, work.contacts, bar.contacts, bar.halves, q, bar.links,
            params_bar,
        )  # fmt: skip
        joint_rows.joint_rows_adjoint(
            model, params, env, q, u, nj, work.joint_rows, bar.joint_rows, q_bar, qd_bar, u_bar, params_bar
        )
        actuation.actuation_adjoint(model, params, env, q, qd, u, work.dofs, bar.dofs, q_bar, qd_bar, u_bar, params_bar)
        motion.motion_adjoint(
            model, params, env, q, with_E, work.links, work.dofs, bar.links, bar.dofs, q_bar, qd_bar, params_bar
        )

    @wp.func
    def step_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        u: wp.array(dtype=real), work: Work, counts: Counts, bar: WorkBar, q_bar: wp.array(dtype=real),
        qd_bar: wp.array(dtype=real), u_bar: wp.array(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """q_bar and qd_bar come in as adjoints of the next state and leave as those of q and qd."""
        clear_contacts(counts.contacts, bar.contacts)
        integrate.integrate_adjoint(model, q, qd, work.dofs, q_bar, qd_bar)
        evaluate_adjoint(model, params, env, q, qd, u, work, counts, bar, q_bar, qd_bar, u_bar, params_bar)

    return SimpleNamespace(**locals())
