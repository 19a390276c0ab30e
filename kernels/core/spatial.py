"""Spatial algebra on world-aligned 6-vectors (angular part first) and packed symmetric matrices."""

import warp as wp

from ..types import exports


def make_spatial(t):
    real, vec3, vec6, sym6, mat33 = t.real, t.vec3, t.vec6, t.sym6, t.mat33

    # wp.max, wp.min and wp.clamp order NaN on the CPU, at several times the cost of one instruction

    @wp.func
    def larger(a: real, b: real):
        return wp.where(a > b, a, b)

    @wp.func
    def clip(x: real, limit: real):
        """x within [-limit, limit]; beyond it, exactly the limit."""
        x = wp.where(x > -limit, x, -limit)
        return wp.where(x < limit, x, limit)

    @wp.func
    def spatial(w: vec3, v: vec3):
        return vec6(w[0], w[1], w[2], v[0], v[1], v[2])

    @wp.func
    def angular(m: vec6):
        return vec3(m[0], m[1], m[2])

    @wp.func
    def linear(m: vec6):
        return vec3(m[3], m[4], m[5])

    @wp.func
    def cross_motion(v: vec6, m: vec6):
        """v x m, the rate of change of a motion vector m that moves with velocity v."""
        w = angular(v)
        return spatial(wp.cross(w, angular(m)), wp.cross(w, linear(m)) + wp.cross(linear(v), angular(m)))

    @wp.func
    def cross_force(v: vec6, f: vec6):
        """v x* f, the rate of change of a wrench f that moves with velocity v."""
        w = angular(v)
        return spatial(wp.cross(w, angular(f)) + wp.cross(linear(v), linear(f)), wp.cross(w, linear(f)))

    @wp.func
    def wrench(p: vec3, f: vec3):
        """Of a force f at p."""
        return spatial(wp.cross(p, f), f)

    @wp.func
    def velocity_at(m: vec6, p: vec3):
        return linear(m) + wp.cross(angular(m), p)

    @wp.func
    def shift_force(f: vec6, d: vec3):
        """The same wrench about a point that lies -d from the one it is given about."""
        return spatial(angular(f) + wp.cross(d, linear(f)), linear(f))

    # Symmetric 3x3 packed as xx, xy, xz, yy, yz, zz

    @wp.func
    def rotate_inertia(R: mat33, I: mat33):
        """R I R^T, packed."""
        X = R @ I
        return vec6(
            wp.dot(X[0], R[0]), wp.dot(X[0], R[1]), wp.dot(X[0], R[2]),
            wp.dot(X[1], R[1]), wp.dot(X[1], R[2]), wp.dot(X[2], R[2]),
        )  # fmt: skip

    @wp.func
    def sym3_mul(I: vec6, v: vec3):
        return vec3(
            I[0] * v[0] + I[1] * v[1] + I[2] * v[2],
            I[1] * v[0] + I[3] * v[1] + I[4] * v[2],
            I[2] * v[0] + I[4] * v[1] + I[5] * v[2],
        )

    # Rigid-body inertia: mass m, com c, rotational inertia Ic about the com

    @wp.func
    def rigid_inertia(m: real, c: vec3, Ic: vec6):
        """The 6x6 inertia of a rigid body, packed."""
        o = real(0.0)
        x = m * c[0]
        y = m * c[1]
        z = m * c[2]
        xx = x * c[0]
        yy = y * c[1]
        zz = z * c[2]
        return sym6(
            Ic[0] + yy + zz, Ic[1] - x * c[1], Ic[2] - x * c[2], o, -z, y,
            Ic[3] + xx + zz, Ic[4] - y * c[2], z, o, -x,
            Ic[5] + xx + yy, -y, x, o,
            m, o, o,
            m, o,
            m,
        )  # fmt: skip

    @wp.func
    def rigid_mul(m: real, c: vec3, Ic: vec6, v: vec6):
        """Rigid-body inertia times a motion."""
        w = angular(v)
        f = velocity_at(v, c) * m
        return spatial(sym3_mul(Ic, w) + wp.cross(c, f), f)

    # Symmetric 6x6 packed as its upper triangle, row by row

    @wp.func
    def sym6_angular(I: sym6, n: vec3):
        """I times (n; 0)"""
        return vec6(
            I[0] * n[0] + I[1] * n[1] + I[2] * n[2],
            I[1] * n[0] + I[6] * n[1] + I[7] * n[2],
            I[2] * n[0] + I[7] * n[1] + I[11] * n[2],
            I[3] * n[0] + I[8] * n[1] + I[12] * n[2],
            I[4] * n[0] + I[9] * n[1] + I[13] * n[2],
            I[5] * n[0] + I[10] * n[1] + I[14] * n[2],
        )

    @wp.func
    def sym6_linear(I: sym6, n: vec3):
        """I times (0; n)"""
        return vec6(
            I[3] * n[0] + I[4] * n[1] + I[5] * n[2],
            I[8] * n[0] + I[9] * n[1] + I[10] * n[2],
            I[12] * n[0] + I[13] * n[1] + I[14] * n[2],
            I[15] * n[0] + I[16] * n[1] + I[17] * n[2],
            I[16] * n[0] + I[18] * n[1] + I[19] * n[2],
            I[17] * n[0] + I[19] * n[1] + I[20] * n[2],
        )

    @wp.func
    def sym6_mul(I: sym6, v: vec6):
        return sym6_angular(I, angular(v)) + sym6_linear(I, linear(v))

    @wp.func
    def shift_inertia(I: sym6, d: vec3):
        """The same inertia about a point that lies -d from the one it is given about.

        With blocks [J H; H^T M]: H' = H + dx M, J' = J + K + K^T where K = dx (H + dx M / 2)^T.
        """
        g0 = wp.cross(d, vec3(I[15], I[16], I[17]))  # columns of dx M
        g1 = wp.cross(d, vec3(I[16], I[18], I[19]))
        g2 = wp.cross(d, vec3(I[17], I[19], I[20]))
        half = real(0.5)
        # rows of H + dx M / 2, that is columns of its transpose
        k0 = wp.cross(d, vec3(I[3] + half * g0[0], I[4] + half * g1[0], I[5] + half * g2[0]))
        k1 = wp.cross(d, vec3(I[8] + half * g0[1], I[9] + half * g1[1], I[10] + half * g2[1]))
        k2 = wp.cross(d, vec3(I[12] + half * g0[2], I[13] + half * g1[2], I[14] + half * g2[2]))
        return sym6(
            I[0] + k0[0] + k0[0], I[1] + k1[0] + k0[1], I[2] + k2[0] + k0[2],
            I[3] + g0[0], I[4] + g1[0], I[5] + g2[0],
            I[6] + k1[1] + k1[1], I[7] + k2[1] + k1[2],
            I[8] + g0[1], I[9] + g1[1], I[10] + g2[1],
            I[11] + k2[2] + k2[2],
            I[12] + g0[2], I[13] + g1[2], I[14] + g2[2],
            I[15], I[16], I[17],
            I[18], I[19],
            I[20],
        )  # fmt: skip

    @wp.func
    def sym6_outer(a: vec6, b: vec6):
        """a b^T for parallel a and b."""
        return sym6(
            a[0] * b[0], a[0] * b[1], a[0] * b[2], a[0] * b[3], a[0] * b[4], a[0] * b[5],
            a[1] * b[1], a[1] * b[2], a[1] * b[3], a[1] * b[4], a[1] * b[5],
            a[2] * b[2], a[2] * b[3], a[2] * b[4], a[2] * b[5],
            a[3] * b[3], a[3] * b[4], a[3] * b[5],
            a[4] * b[4], a[4] * b[5],
            a[5] * b[5],
        )  # fmt: skip

    @wp.func
    def sym6_outers(a: vec6, b: vec6):
        """a b^T + b a^T"""
        return sym6(
            a[0] * b[0] + b[0] * a[0], a[0] * b[1] + b[0] * a[1], a[0] * b[2] + b[0] * a[2],
            a[0] * b[3] + b[0] * a[3], a[0] * b[4] + b[0] * a[4], a[0] * b[5] + b[0] * a[5],
            a[1] * b[1] + b[1] * a[1], a[1] * b[2] + b[1] * a[2], a[1] * b[3] + b[1] * a[3],
            a[1] * b[4] + b[1] * a[4], a[1] * b[5] + b[1] * a[5],
            a[2] * b[2] + b[2] * a[2], a[2] * b[3] + b[2] * a[3], a[2] * b[4] + b[2] * a[4],
            a[2] * b[5] + b[2] * a[5],
            a[3] * b[3] + b[3] * a[3], a[3] * b[4] + b[3] * a[4], a[3] * b[5] + b[3] * a[5],
            a[4] * b[4] + b[4] * a[4], a[4] * b[5] + b[4] * a[5],
            a[5] * b[5] + b[5] * a[5],
        )  # fmt: skip

    @wp.func
    def sym6_cross(K: sym6, I: sym6):
        """Sum of v x* f over K I = sum of v f^T: half of it for symmetric K and I is what their product turns."""
        # rows of K and of I, which are their columns too
        k0 = vec6(K[0], K[1], K[2], K[3], K[4], K[5])
        k1 = vec6(K[1], K[6], K[7], K[8], K[9], K[10])
        k2 = vec6(K[2], K[7], K[11], K[12], K[13], K[14])
        k3 = vec6(K[3], K[8], K[12], K[15], K[16], K[17])
        k4 = vec6(K[4], K[9], K[13], K[16], K[18], K[19])
        k5 = vec6(K[5], K[10], K[14], K[17], K[19], K[20])
        i0 = vec6(I[0], I[1], I[2], I[3], I[4], I[5])
        i1 = vec6(I[1], I[6], I[7], I[8], I[9], I[10])
        i2 = vec6(I[2], I[7], I[11], I[12], I[13], I[14])
        i3 = vec6(I[3], I[8], I[12], I[15], I[16], I[17])
        i4 = vec6(I[4], I[9], I[13], I[16], I[18], I[19])
        i5 = vec6(I[5], I[10], I[14], I[17], I[19], I[20])
        return vec6(
            wp.dot(k1, i2) - wp.dot(k2, i1) + wp.dot(k4, i5) - wp.dot(k5, i4),
            wp.dot(k2, i0) - wp.dot(k0, i2) + wp.dot(k5, i3) - wp.dot(k3, i5),
            wp.dot(k0, i1) - wp.dot(k1, i0) + wp.dot(k3, i4) - wp.dot(k4, i3),
            wp.dot(k1, i5) - wp.dot(k2, i4),
            wp.dot(k2, i3) - wp.dot(k0, i5),
            wp.dot(k0, i4) - wp.dot(k1, i3),
        )

    return exports(
        larger, clip, spatial, angular, linear, cross_motion, cross_force, wrench, velocity_at, shift_force,
        rotate_inertia, sym3_mul, rigid_inertia, rigid_mul, sym6_angular, sym6_linear, sym6_mul, shift_inertia,
        sym6_outer, sym6_outers, sym6_cross,
    )  # fmt: skip
