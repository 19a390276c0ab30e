"""One step and its adjoint as sequences of stages: read this first. All stages work on one Env (types.py)."""

from functools import cache

import warp as wp

from .collision.detection import make_detection
from .core.actuation import make_actuation
from .core.delassus import make_delassus
from .core.dynamics import make_dynamics
from .core.integrate import make_integrate
from .core.kinematics import make_kinematics
from .core.motion import make_motion
from .core.pgs import make_pgs
from .core.rows import make_rows
from .core.spatial import make_spatial
from .types import Sizes, exports, make_types, stage


@cache
def make_step(real, sizes: Sizes):
    """The device functions of all stages, for one precision and size."""
    t = make_types(real, sizes)
    Env, EnvBar = t.Env, t.EnvBar
    spatial = make_spatial(t)
    kinematics = make_kinematics(t, spatial)
    actuation = make_actuation(t, spatial)
    dynamics = make_dynamics(t, spatial)
    detection = make_detection(t, spatial, kinematics)
    rows = make_rows(t, spatial, actuation, dynamics, detection)
    delassus = make_delassus(t, spatial, dynamics)
    pgs = make_pgs(t, spatial)
    integrate = make_integrate(t, kinematics)
    motion = make_motion(t, spatial, integrate)

    @stage
    def evaluate(e: wp.ref[Env]):
        """All of a step except the integration: leaves the rate changes in e.dofs."""
        kinematics.kinematics(e)
        actuation.actuation(e)
        dynamics.factorise(e)
        detection.detect(e)
        rows.find_rows(e)
        delassus.delassus(e)
        pgs.solve(e)
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
        pgs.solve_adjoint(e, e_bar)
        rows.apply_b_bar(e, e_bar)
        dynamics.solve_down_adjoint(e, e_bar)
        # everything that the equations depend on
        motion.clear(e, e_bar)
        delassus.delassus_adjoint(e, e_bar)
        rows.rows_adjoint(e, e_bar)
        actuation.actuation_adjoint(e, e_bar)
        motion.motion_adjoint(e, e_bar)

    @stage
    def step_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """e_bar.q and e_bar.qd come in as adjoints of the next state and leave as those of q and qd."""
        rows.clear_contacts(e, e_bar)
        integrate.integrate_adjoint(e, e_bar)
        evaluate_adjoint(e, e_bar)

    return exports(
        evaluate, evaluate_adjoint, step_adjoint, t=t, spatial=spatial, kinematics=kinematics, actuation=actuation,
        dynamics=dynamics, detection=detection, rows=rows, delassus=delassus, pgs=pgs, integrate=integrate,
        motion=motion,
    )  # fmt: skip
