"""Gravity compensation: a force against a share of each link's weight, at its centre of mass. Compiled if
Sizes.gravcomp.

It enters with the bias forces (dynamics.py) and is zero at an impact, which is an instant.
"""

import warp as wp

from ..types import exports


def make_gravcomp(t, s):
    vec3, Env, EnvBar, Link, LinkBar = t.vec3, t.Env, t.EnvBar, t.Link, t.LinkBar
    spatial, angular, velocity_at = s.spatial, s.angular, s.velocity_at

    @wp.func
    def lift(e: wp.ref[Env], i: int):
        """Force on link i, world axes."""
        return e.params.gravity[e.index] * (-e.params.gravcomp[e.index, i - 1] * e.params.mass[e.index, i - 1])

    @wp.func
    def lift_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        """Adjoint of W.w, which the wrench w of the force adds to -s.(M a + C) (motion.py).

        As that of the caller's wrenches (wrenches.py): the force does not turn with the link.
        """
        f = lift(e, i)
        c = link.r + link.R @ e.params.com[e.index, i - 1]
        u = velocity_at(bar.W, c)
        bar.Wbar = bar.Wbar - spatial(wp.cross(c, f), f)
        bar.direct = bar.direct + spatial(wp.cross(u, f), vec3())
        share = e.params.gravcomp[e.index, i - 1]
        m = e.params.mass[e.index, i - 1]
        if e_bar.params.bodies != 0:
            work = -wp.dot(e.params.gravity[e.index], u)
            pull = wp.cross(f, angular(bar.W)) @ link.R
            e_bar.params.com[e.index, i - 1] = e_bar.params.com[e.index, i - 1] + pull
            e_bar.params.mass[e.index, i - 1] = e_bar.params.mass[e.index, i - 1] + share * work
            e_bar.params.gravcomp[e.index, i - 1] = e_bar.params.gravcomp[e.index, i - 1] + m * work
        if e_bar.params.joints != 0:
            e_bar.params.gravity[e.index] = e_bar.params.gravity[e.index] - u * (share * m)

    return exports(lift, lift_adjoint)
