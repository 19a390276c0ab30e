"""Contacts of a sphere, capsule, box, cylinder or mesh corner (shape a) with a plane (shape b).

Every candidate is a ball, often of radius zero, at a point c of shape a: p lies on the surface of a, n is the plane's
normal nb, z = nb.(c - xb) - radius. Nothing has to be searched: the feature is the candidate's number.
"""

from types import SimpleNamespace

import warp as wp

UPRIGHT = 0.2  # sine of the tilt below which a cylinder stands on its three support points
SMOOTH = 1.0e-3  # sine of the tilt below which the lowest rim point moves to the middle of the cap


def make_plane(g):
    real, vec3, Pose, PointBar, pose_bar, radius_bar = g.real, g.vec3, g.Pose, g.PointBar, g.pose_bar, g.radius_bar

    @wp.func
    def ball_point(c: vec3, r: real, b: Pose):
        nb = b.R[:, 2]
        return c - nb * r, nb, wp.dot(nb, c - b.x) - r

    @wp.func
    def ball_adjoint(c: vec3, r: real, b: Pose, bar: PointBar):
        """Returns c_bar, r_bar and the plane's adjoint."""
        nb = b.R[:, 2]
        turn = bar.n - bar.p * r + (c - b.x) * bar.z
        B = pose_bar(nb * (-bar.z), wp.cross(nb, turn), vec3())
        return bar.p + nb * bar.z, -bar.z - wp.dot(nb, bar.p), B

    @wp.func
    def sphere_point(feature: int, a: Pose, b: Pose):
        return ball_point(a.x, a.size[0], b)

    @wp.func
    def sphere_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        c_bar, r_bar, B = ball_adjoint(a.x, a.size[0], b, bar)
        return pose_bar(c_bar, vec3(), radius_bar(r_bar)), B

    @wp.func
    def corner_point(corner: vec3, a: Pose, b: Pose):
        return ball_point(a.x + a.R @ corner, real(0.0), b)

    @wp.func
    def corner_adjoint(corner: vec3, a: Pose, b: Pose, bar: PointBar):
        """The size gradient is that of the corner."""
        arm = a.R @ corner
        c_bar, _r_bar, B = ball_adjoint(a.x + arm, real(0.0), b, bar)
        return pose_bar(c_bar, wp.cross(arm, c_bar), c_bar @ a.R), B

    @wp.func
    def mesh_point(feature: int, a: Pose, b: Pose):
        return corner_point(a.size, a, b)

    @wp.func
    def mesh_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        return corner_adjoint(a.size, a, b, bar)

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
    def box_point(feature: int, a: Pose, b: Pose):
        """feature: corner 0..7."""
        return corner_point(wp.cw_mul(corner_signs(feature), a.size), a, b)

    @wp.func
    def box_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        signs = corner_signs(feature)
        A, B = corner_adjoint(wp.cw_mul(signs, a.size), a, b, bar)
        return pose_bar(A.x, A.phi, wp.cw_mul(signs, A.size)), B

    @wp.func
    def capsule_point(feature: int, a: Pose, b: Pose):
        """feature: 0 end at local -z, 1 end at local +z."""
        half = wp.where(feature == 0, -a.size[1], a.size[1])
        return ball_point(a.x + a.R[:, 2] * half, a.size[0], b)

    @wp.func
    def capsule_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        sign = wp.where(feature == 0, real(-1.0), real(1.0))
        u = a.R[:, 2]
        arm = u * (sign * a.size[1])
        c_bar, r_bar, B = ball_adjoint(a.x + arm, a.size[0], b, bar)
        return pose_bar(c_bar, wp.cross(arm, c_bar), vec3(r_bar, sign * wp.dot(u, c_bar), real(0.0))), B

    @wp.func
    def support_point(feature: int, a: Pose, nb: vec3):
        """Point 2..4 of the lower cap's rim, 120 degrees apart, in the frame of the cylinder."""
        r = a.size[0]
        half = wp.where(wp.dot(a.R[:, 2], nb) > real(0.0), -a.size[1], a.size[1])
        point = vec3(r, real(0.0), half)
        if feature > 2:
            side = wp.where(feature == 3, real(0.8660254037844386), real(-0.8660254037844386))
            point = vec3(real(-0.5) * r, side * r, half)
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
    def cylinder_point(feature: int, a: Pose, b: Pose):
        """feature: 0, 1 lowest point of the rim at local -z, +z; 2..4 support points of the lower cap if upright."""
        nb = b.R[:, 2]
        u = a.R[:, 2]
        w, _length = descent(u, nb)
        arm = u * wp.where(feature == 0, -a.size[1], a.size[1]) + w * a.size[0]
        if feature > 1:
            arm = a.R @ support_point(feature, a, nb)
        p = a.x + arm
        z = wp.dot(nb, p - b.x)
        if feature > 1 and wp.dot(w, w) > real(UPRIGHT * UPRIGHT / (UPRIGHT * UPRIGHT + SMOOTH * SMOOTH)):
            z = real(1.0)  # else rolling would bump over the support points
        return p, nb, z

    @wp.func
    def cylinder_adjoint(feature: int, a: Pose, b: Pose, bar: PointBar):
        o = real(0.0)
        nb = b.R[:, 2]
        u = a.R[:, 2]
        w, length = descent(u, nb)
        sign = wp.where(feature == 0, real(-1.0), real(1.0))
        arm = u * (sign * a.size[1]) + w * a.size[0]
        local = support_point(feature, a, nb)
        if feature > 1:
            arm = a.R @ local
        c_bar, _r_bar, B = ball_adjoint(a.x + arm, o, b, bar)
        phi = wp.cross(arm, c_bar)
        size = vec3(wp.dot(w, c_bar), sign * wp.dot(u, c_bar), o)
        if feature > 1:
            local_bar = c_bar @ a.R
            radial = local[0] * local_bar[0] + local[1] * local_bar[1]
            size = vec3(radial / wp.max(a.size[0], real(1.0e-12)), wp.sign(local[2]) * local_bar[2], o)
        else:
            # w turns with the cylinder (already in phi) and with the normal seen from it
            m_bar = (c_bar - w * wp.dot(w, c_bar)) * (-a.size[0] / length)
            turn = wp.cross(nb, m_bar - u * wp.dot(u, m_bar))
            phi -= turn
            B.phi = B.phi + turn
        return pose_bar(c_bar, phi, size), B

    return SimpleNamespace(
        sphere_plane=SimpleNamespace(point=sphere_point, adjoint=sphere_adjoint),
        capsule_plane=SimpleNamespace(point=capsule_point, adjoint=capsule_adjoint),
        box_plane=SimpleNamespace(point=box_point, adjoint=box_adjoint),
        cylinder_plane=SimpleNamespace(point=cylinder_point, adjoint=cylinder_adjoint),
        mesh_plane=SimpleNamespace(point=mesh_point, adjoint=mesh_adjoint),
    )
