"""Forces and torques of the caller on the links: world axes, at the centre of mass. Compiled if Sizes.wrenches.

They enter with the bias forces (dynamics.py) and are zero at an impact, which is an instant.
"""

import warp as wp

from ..types import exports


def make_wrenches(t, s):
    vec3, Env, EnvBar, Link, LinkBar = t.vec3, t.Env, t.EnvBar, t.Link, t.LinkBar
    angular, velocity_at = s.angular, s.velocity_at

    @wp.func
    def force(e: wp.ref[Env], i: int):
        return vec3(e.wrench[i - 1, 0], e.wrench[i - 1, 1], e.wrench[i - 1, 2])

    @wp.func
    def torque(e: wp.ref[Env], i: int):
        return vec3(e.wrench[i - 1, 3], e.wrench[i - 1, 4], e.wrench[i - 1, 5])

    @wp.func
    def wrench_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], i: int, link: wp.ref[Link], bar: wp.ref[LinkBar]):
        """Adjoint of W.w, which the wrench w adds to -s.(M a + C) (motion.py).

        The sums of motion.py take it that w turns with the link. It does not: `direct` takes that back.
        """
        f = force(e, i)
        n = torque(e, i)
        c = link.r + link.R @ e.params.com[e.index, i - 1]
        w = angular(bar.W)
        u = velocity_at(bar.W, c)
        for k in range(3):
            e_bar.wrench[i - 1, k] = e_bar.wrench[i - 1, k] + u[k]
            e_bar.wrench[i - 1, 3 + k] = e_bar.wrench[i - 1, 3 + k] + w[k]
        bar.Wbar = bar.Wbar - s.spatial(n + wp.cross(c, f), f)
        bar.direct = bar.direct + s.spatial(wp.cross(w, n) + wp.cross(u, f), vec3())
        if e_bar.params.bodies != 0:
            pull = wp.cross(f, w) @ link.R
            e_bar.params.com[e.index, i - 1] = e_bar.params.com[e.index, i - 1] + pull

    return exports(force, torque, wrench_adjoint)
