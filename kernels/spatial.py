"""Spatial algebra on world-aligned 6-vectors (angular part first) and packed symmetric matrices."""

from types import SimpleNamespace

import warp as wp


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
        """v x* f, the rate of change of a force vector f that moves with velocity v."""
        w = angular(v)
        return spatial(wp.cross(w, angular(f)) + wp.cross(linear(v), linear(f)), wp.cross(w, linear(f)))

    @wp.func
    def wrench(p: vec3, f: vec3):
        """The force f applied at p."""
        return spatial(wp.cross(p, f), f)

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
    def rigid_mul(m: real, c: vec3, Ic: vec6, v: vec6):
        """Momentum of a rigid body with velocity v."""
        w = angular(v)
        f = (linear(v) + wp.cross(w, c)) * m
        return spatial(sym3_mul(Ic, w) + wp.cross(c, f), f)

    @wp.func
    def rigid_inertia(m: real, c: vec3, Ic: vec6):
        """The 6x6 matrix of rigid_mul, packed."""
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

    # Symmetric 6x6 packed as its upper triangle, row by row

    @wp.func
    def sym6_mul(I: sym6, v: vec6):
        return vec6(
            I[0] * v[0] + I[1] * v[1] + I[2] * v[2] + I[3] * v[3] + I[4] * v[4] + I[5] * v[5],
            I[1] * v[0] + I[6] * v[1] + I[7] * v[2] + I[8] * v[3] + I[9] * v[4] + I[10] * v[5],
            I[2] * v[0] + I[7] * v[1] + I[11] * v[2] + I[12] * v[3] + I[13] * v[4] + I[14] * v[5],
            I[3] * v[0] + I[8] * v[1] + I[12] * v[2] + I[15] * v[3] + I[16] * v[4] + I[17] * v[5],
            I[4] * v[0] + I[9] * v[1] + I[13] * v[2] + I[16] * v[3] + I[18] * v[4] + I[19] * v[5],
            I[5] * v[0] + I[10] * v[1] + I[14] * v[2] + I[17] * v[3] + I[19] * v[4] + I[20] * v[5],
        )

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

    return SimpleNamespace(**locals())
