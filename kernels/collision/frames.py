"""Tangent frame of a contact normal, and its adjoint."""

import warp as wp

from ..types import exports


def make_frames(t):
    real, vec3 = t.real, t.vec3

    @wp.func
    def tangents(n: vec3):
        """Unit t, s with (n, t, s) right-handed; n = z gives x, y. Duff et al. 2017, with the seam at nz = -1/2.

        Their own seam, nz = 0, is where side-by-side contacts live.
        """
        sg = wp.where(n[2] > real(-0.5), real(1.0), real(-1.0))
        a = real(-1.0) / (sg + n[2])
        b = n[0] * n[1] * a
        first = vec3(real(1.0) + sg * n[0] * n[0] * a, sg * b, -sg * n[0])
        second = vec3(b, sg + n[1] * n[1] * a, -n[1])
        return first, second

    @wp.func
    def tangents_adjoint(n: vec3, t_bar: vec3, s_bar: vec3):
        """Returns n_bar; only its part perpendicular to n means something."""
        sg = wp.where(n[2] > real(-0.5), real(1.0), real(-1.0))
        a = real(-1.0) / (sg + n[2])
        x = n[0]
        y = n[1]
        mixed = sg * t_bar[1] + s_bar[0]
        a_bar = sg * x * x * t_bar[0] + x * y * mixed + y * y * s_bar[1]
        return vec3(
            real(2.0) * sg * x * a * t_bar[0] + y * a * mixed - sg * t_bar[2],
            x * a * mixed + real(2.0) * y * a * s_bar[1] - s_bar[2],
            a * a * a_bar,
        )

    return exports(tangents, tangents_adjoint)
