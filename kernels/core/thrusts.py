"""Drives that push a link instead of a joint: MJCF actuators at sites. Compiled if Sizes.thrusts.

A thrust is a force and a torque in the link's axes, at a place that is fixed to it, times the drive's force. It enters
with the bias forces (dynamics.py) and is zero at an impact, which is an instant.
"""

import warp as wp

from ..types import exports, stage


def make_thrusts(t, s, actuation):
    vec3, Env, EnvBar, Link = t.vec3, t.Env, t.EnvBar, t.Link

    @wp.func
    def demand(e: wp.ref[Env], n: int):
        """Force of the drive before its effort limit."""
        k = e.model.thrust_drive[n]
        return e.model.gear[k] * e.u[k]

    @wp.func
    def unit_wrench(e: wp.ref[Env], n: int, link: wp.ref[Link], origin: vec3):
        """Wrench per unit of the drive's force, about O, if `origin` is the link's r, or about the link's own, if 0."""
        f = link.R @ e.model.thrust_force[n]
        c = origin + link.R @ e.model.thrust_pos[n]
        return s.spatial(link.R @ e.model.thrust_torque[n] + wp.cross(c, f), f)

    @wp.func
    def push(e: wp.ref[Env]):
        """Add all thrusts to the bias forces pA, which are about the links' own origins."""
        if not t.at_impact(e):
            for n in range(e.model.num_thrusts):
                i = e.model.thrust_link[n]
                x = actuation.within_effort(e, e.model.thrust_drive[n], demand(e, n))
                e.links[i].pA = e.links[i].pA - unit_wrench(e, n, e.links[i], vec3()) * x

    @stage
    def push_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Adjoint of W.w, which the wrenches w add to -s.(M a + C) (motion.py). They turn with their links."""
        if not t.at_impact(e):
            for n in range(e.model.num_thrusts):
                i = e.model.thrust_link[n]
                k = e.model.thrust_drive[n]
                w = unit_wrench(e, n, e.links[i], e.links[i].r)
                force = actuation.excess(e, k, demand(e, n))
                limit = e.params.effort_limit[e.index, k]
                e_bar.links[i].Wbar = e_bar.links[i].Wbar - w * actuation.within_effort(e, k, demand(e, n))
                force_bar = wp.dot(e_bar.links[i].W, w)
                if wp.abs(force) < limit:
                    e_bar.u[k] = e_bar.u[k] + e.model.gear[k] * force_bar
                elif e_bar.params.joints != 0:
                    e_bar.params.effort_limit[e.index, k] = (
                        e_bar.params.effort_limit[e.index, k] + wp.sign(force) * force_bar
                    )

    return exports(push, push_adjoint)
