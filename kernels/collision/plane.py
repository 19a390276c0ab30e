"""Contacts of a sphere, capsule, box, cylinder or mesh vertex (shape a) with a plane (shape b).

Every candidate is a sphere, often of radius zero, at a point c of shape a: p lies on the surface of a, n is the
plane's normal nb, z = nb.(c - xb) - radius. Nothing has to be searched: the feature is the candidate's number.
An adjoint returns, for each shape, the force at its centre x, the couple phi (R -> exp(phi) R) and the size gradient.
"""

from types import SimpleNamespace

import warp as wp

UPRIGHT = 0.2  # sine of the tilt below which a cylinder stands on its three support points
SMOOTH = 1.0e-3  # sine of the tilt below which the lowest rim point moves to the middle of the cap


def make_collision_plane(t):
    real, vec3, mat33 = t.real, t.vec3, t.mat33

    @wp.func
    def sphere_plane_point(c: vec3, r: real, xb: vec3, nb: vec3):
        return c - nb * r, nb, wp.dot(nb, c - xb) - r

    @wp.func
    def sphere_plane_point_adjoint(c: vec3, r: real, xb: vec3, nb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real):
        """Returns c_bar, r_bar, xb_bar, phib."""
        turn = n_bar - p_bar * r + (c - xb) * z_bar
        return p_bar + nb * z_bar, -z_bar - wp.dot(nb, p_bar), nb * (-z_bar), wp.cross(nb, turn)

    @wp.func
    def mesh_plane_point(xa: vec3, Ra: mat33, vertex: vec3, xb: vec3, nb: vec3):
        """vertex: hull vertex in the frame of shape a."""
        return sphere_plane_point(xa + Ra @ vertex, real(0.0), xb, nb)

    @wp.func
    def mesh_plane_point_adjoint(
        xa: vec3, Ra: mat33, vertex: vec3, xb: vec3, nb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns xa_bar, phia, vertex_bar, xb_bar, phib."""
        arm = Ra @ vertex
        c_bar, _r_bar, xb_bar, phib = sphere_plane_point_adjoint(xa + arm, real(0.0), xb, nb, p_bar, n_bar, z_bar)
        return c_bar, wp.cross(arm, c_bar), c_bar @ Ra, xb_bar, phib

    @wp.func
    def corner_signs(feature: int):
        """Corner of a box: bit i set means the positive side of axis i."""
        one = real(1.0)
        return vec3(
            wp.where((feature & 1) != 0, one, -one),
            wp.where((feature & 2) != 0, one, -one),
            wp.where((feature & 4) != 0, one, -one),
        )

    @wp.func
    def box_plane_point(feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3):
        """feature: corner 0..7."""
        return mesh_plane_point(xa, Ra, wp.cw_mul(corner_signs(feature), sa), xb, nb)

    @wp.func
    def box_plane_point_adjoint(
        feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns xa_bar, phia, sa_bar, xb_bar, phib."""
        signs = corner_signs(feature)
        xa_bar, phia, corner_bar, xb_bar, phib = mesh_plane_point_adjoint(
            xa, Ra, wp.cw_mul(signs, sa), xb, nb, p_bar, n_bar, z_bar
        )
        return xa_bar, phia, wp.cw_mul(signs, corner_bar), xb_bar, phib

    @wp.func
    def capsule_plane_point(feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3):
        """feature: 0 end at local -z, 1 end at local +z."""
        half = wp.where(feature == 0, -sa[1], sa[1])
        return sphere_plane_point(xa + Ra[:, 2] * half, sa[0], xb, nb)

    @wp.func
    def capsule_plane_point_adjoint(
        feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns xa_bar, phia, sa_bar, xb_bar, phib."""
        sign = wp.where(feature == 0, real(-1.0), real(1.0))
        u = Ra[:, 2]
        arm = u * (sign * sa[1])
        c_bar, r_bar, xb_bar, phib = sphere_plane_point_adjoint(xa + arm, sa[0], xb, nb, p_bar, n_bar, z_bar)
        return c_bar, wp.cross(arm, c_bar), vec3(r_bar, sign * wp.dot(u, c_bar), real(0.0)), xb_bar, phib

    @wp.func
    def support_point(feature: int, Ra: mat33, sa: vec3, nb: vec3):
        """Point 2..4 of the lower cap's rim, 120 degrees apart, in the frame of the cylinder."""
        half = wp.where(wp.dot(Ra[:, 2], nb) > real(0.0), -sa[1], sa[1])
        point = vec3(sa[0], real(0.0), half)
        if feature > 2:
            side = wp.where(feature == 3, real(0.8660254037844386), real(-0.8660254037844386))
            point = vec3(real(-0.5) * sa[0], side * sa[0], half)
        return point

    @wp.func
    def descent(u: vec3, nb: vec3):
        """Direction of steepest descent in the cap's plane; shrinks to zero, smoothly, as u becomes parallel to nb.

        A unit vector would spin at the slightest tilt of a standing cylinder, with gradients to match.
        Also returns the length that it was divided by.
        """
        m = nb - u * wp.dot(u, nb)
        length = wp.sqrt(wp.dot(m, m) + real(SMOOTH * SMOOTH))
        return m / (-length), length

    @wp.func
    def cylinder_plane_point(feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3):
        """feature: 0, 1 lowest point of the rim at local -z, +z; 2..4 support points of the lower cap if upright."""
        u = Ra[:, 2]
        w, _length = descent(u, nb)
        arm = u * wp.where(feature == 0, -sa[1], sa[1]) + w * sa[0]
        if feature > 1:
            arm = Ra @ support_point(feature, Ra, sa, nb)
        p = xa + arm
        z = wp.dot(nb, p - xb)
        if feature > 1 and wp.dot(w, w) > real(UPRIGHT * UPRIGHT / (UPRIGHT * UPRIGHT + SMOOTH * SMOOTH)):
            z = real(1.0)  # else rolling would bump over the support points
        return p, nb, z

    @wp.func
    def cylinder_plane_point_adjoint(
        feature: int, xa: vec3, Ra: mat33, sa: vec3, xb: vec3, nb: vec3, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        """Returns xa_bar, phia, sa_bar, xb_bar, phib."""
        o = real(0.0)
        u = Ra[:, 2]
        w, length = descent(u, nb)
        sign = wp.where(feature == 0, real(-1.0), real(1.0))
        arm = u * (sign * sa[1]) + w * sa[0]
        local = support_point(feature, Ra, sa, nb)
        if feature > 1:
            arm = Ra @ local
        c_bar, _r_bar, xb_bar, phib = sphere_plane_point_adjoint(xa + arm, o, xb, nb, p_bar, n_bar, z_bar)
        phia = wp.cross(arm, c_bar)
        sa_bar = vec3(wp.dot(w, c_bar), sign * wp.dot(u, c_bar), o)
        if feature > 1:
            local_bar = c_bar @ Ra
            radial = local[0] * local_bar[0] + local[1] * local_bar[1]
            sa_bar = vec3(radial / wp.max(sa[0], real(1.0e-12)), wp.sign(local[2]) * local_bar[2], o)
        else:
            # w turns with the cylinder (already in phia) and with the normal seen from it
            m_bar = (c_bar - w * wp.dot(w, c_bar)) * (-sa[0] / length)
            turn = wp.cross(nb, m_bar - u * wp.dot(u, m_bar))
            phia -= turn
            phib += turn
        return c_bar, phia, sa_bar, xb_bar, phib

    return SimpleNamespace(**locals())
