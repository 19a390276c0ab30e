"""One step and its adjoint as sequences of stages: read this first. All stages work on one Env (env.py)."""

from functools import cache

import warp as wp

from .collision.detection import make_detection
from .core.actuation import make_actuation
from .core.couplings import make_couplings
from .core.delassus import make_delassus
from .core.dynamics import make_dynamics
from .core.elimination import make_elimination
from .core.gaps import make_gaps
from .core.gravcomp import make_gravcomp
from .core.impacts import make_impacts
from .core.integrate import make_integrate
from .core.kinematics import make_kinematics
from .core.motion import make_motion
from .core.pgs import make_pgs
from .core.rows import make_rows
from .core.spatial import make_spatial
from .core.thrusts import make_thrusts
from .core.wrenches import make_wrenches
from .env import make_types
from .types import Sizes, exports, stage


@cache
def make_step(real, sizes: Sizes):
    """The device functions of all stages, for one precision and size."""
    t = make_types(real, sizes)
    Env, EnvBar = t.Env, t.EnvBar
    spatial = make_spatial(t)
    kinematics = make_kinematics(t, spatial)
    gaps = make_gaps(t, spatial)
    couplings = make_couplings(t, spatial)
    actuation = make_actuation(t, spatial, gaps, couplings)
    wrenches = make_wrenches(t, spatial)
    gravcomp = make_gravcomp(t, spatial)
    thrusts = make_thrusts(t, spatial, actuation)
    dynamics = make_dynamics(t, spatial, wrenches, gravcomp, thrusts)
    detection = make_detection(t, spatial, gaps, kinematics)
    rows = make_rows(t, spatial, gaps, couplings, actuation, dynamics, detection)
    delassus = make_delassus(t, spatial, dynamics, rows)
    elimination = make_elimination(t, spatial)
    pgs = make_pgs(t, spatial)
    integrate = make_integrate(t, kinematics)
    motion = make_motion(t, spatial, integrate, wrenches, gravcomp)
    impacts = make_impacts(t, spatial, gaps, integrate, rows)
    interrupts, tied = sizes.impacts > 0, sizes.ties > 0

    @stage
    def evaluate(e: wp.ref[Env]):
        """All of a step except the integration: leaves the rate changes in e.dofs."""
        kinematics.kinematics(e)
        actuation.actuation(e)
        dynamics.factorise(e)
        detection.detect(e)
        rows.find_rows(e)
        delassus.delassus(e)
        if wp.static(tied):
            elimination.eliminate(e)
        pgs.solve(e)
        if wp.static(tied):
            elimination.solve_ties(e)
        rows.apply_impulses(e)
        dynamics.solve_down(e)

    @stage
    def evaluate_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Reverse `evaluate`, which has filled e; may be called again for another e_bar.qd.

        e_bar.qd comes in as the adjoint of the next rates and leaves as that of qd; e_bar.q, u and params are added
        to. e_bar.contacts comes in with the loss's own gradient by the contacts.
        """
        # the solve for the rates, and the impulses in it
        dynamics.solve_up_adjoint(e, e_bar)
        rows.impulses_adjoint(e, e_bar)
        if wp.static(tied):
            elimination.solve_ties_adjoint(e, e_bar)
        pgs.solve_adjoint(e, e_bar)
        if wp.static(tied):
            elimination.eliminate_adjoint(e, e_bar)
        rows.apply_b_bar(e, e_bar)
        dynamics.solve_down_adjoint(e, e_bar)
        # everything that the equations depend on
        motion.clear(e, e_bar)
        delassus.delassus_adjoint(e, e_bar)
        rows.rows_adjoint(e, e_bar)
        actuation.actuation_adjoint(e, e_bar)
        if wp.static(sizes.thrusts):
            thrusts.push_adjoint(e, e_bar)
        motion.motion_adjoint(e, e_bar)

    @stage
    def begin(e: wp.ref[Env]):
        """Start a step from e.q, e.qd and e.u, to be followed by evaluations until one is the last."""
        if wp.static(interrupts):
            impacts.begin(e)

    @stage
    def last(e: wp.ref[Env]):
        """After an evaluation: True if it was the step's last, False if e is prepared for one more."""
        if wp.static(interrupts):
            return not impacts.interrupted(e)
        return True

    @stage
    def finish(e: wp.ref[Env], q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real)):
        """The next state, after the last evaluation; q_next may be q, and qd_next qd."""
        if wp.static(interrupts):
            impacts.finish(e, q_next, qd_next)
        else:
            integrate.integrate(e, q_next, qd_next)

    @stage
    def step_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Of the last evaluation and `finish`, or of an earlier evaluation and what interrupts it.

        e_bar.q and e_bar.qd come in as adjoints of the state that it leads to and leave as those of e.q and e.qd;
        e_bar.contacts comes in with the loss's own gradient by the contacts.
        """
        if wp.static(interrupts):
            impacts.finish_adjoint(e, e_bar)
            evaluate_adjoint(e, e_bar)
            impacts.start_adjoint(e, e_bar)
        else:
            integrate.integrate_adjoint(e, e_bar)
            evaluate_adjoint(e, e_bar)

    @stage
    def turns(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """After an evaluation: True if it is the step's last or before it, so that step_adjoint can reverse it."""
        if wp.static(interrupts):
            if e_bar.backwards == 0:
                e_bar.backwards = wp.where(impacts.interrupted(e), 0, 1)
            elif not t.at_impact(e):
                impacts.arrival(e)
            return e_bar.backwards != 0
        return True

    @stage
    def reversed(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """After step_adjoint: True if the whole step is reversed, False if e is prepared for an earlier evaluation."""
        done = bool(True)
        if wp.static(interrupts):
            if e.stage == 0:
                e_bar.backwards = 0
            else:
                impacts.previous(e)
                done = False
        return done

    @stage
    def reverse(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """After an evaluation: on to the step's last one, and from there backwards; True when the step is reversed.

        A step that diverges leaves the adjoints alone, as it leaves the state.
        """
        done = bool(True)
        if not integrate.diverges(e):
            done = turns(e, e_bar)
            if done:
                rows.clear_contacts(e, e_bar)
                step_adjoint(e, e_bar)
                done = reversed(e, e_bar)
        return done

    return exports(
        evaluate, evaluate_adjoint, begin, last, finish, step_adjoint, turns, reversed, reverse, t=t, spatial=spatial,
        kinematics=kinematics, actuation=actuation, dynamics=dynamics, detection=detection, rows=rows,
        delassus=delassus, pgs=pgs, integrate=integrate, motion=motion, gaps=gaps, impacts=impacts,
    )  # fmt: skip
