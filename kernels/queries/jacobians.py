"""Dense Jacobians of one step in the tangent space, one environment per thread.

The step is evaluated once; then the new rates are differentiated row by row with the adjoint of `evaluate`. The rows
of the new positions follow from those, because q_next = q (+) dt qd_next. Rotations are measured from the left: in
world axes for a free joint, in the axes of the joint's frame on the parent for a ball joint, like the rates.
"""

from dataclasses import replace
from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import FREE, SPHERICAL, Sizes


@cache
def make_jacobians(real, sizes: Sizes):
    s = make_step(real, replace(sizes, again=True))
    t, sinc, read_quat = s.t, s.integrate.sinc, s.kinematics.read_quat
    vec3, quat = t.vec3, t.quat

    @wp.func
    def turn_jacobians(w: vec3, h: real):
        """d(next rotation)/d(rotation) = exp(h w), and d(next rotation)/dw = h times its left Jacobian."""
        f2 = wp.dot(w, w) * h * h
        # (1 - cos f) / f^2 = sinc(f / 2)^2 / 2 and (f - sin f) / f^3, without the cancellation near zero
        half = sinc(f2 * real(0.25))
        b = real(0.5) * half * half
        a = sinc(f2)
        c = (
            real(1.0)
            / real(6.0)
            * (real(1.0) - f2 / real(20.0) * (real(1.0) - f2 / real(42.0) * (real(1.0) - f2 / real(72.0))))
        )
        if f2 > real(1e-2):
            c = (real(1.0) - a) / f2
        X = wp.skew(w * h)
        XX = X @ X
        I = wp.identity(n=3, dtype=real)
        return I + X * a + XX * b, (I + X * b + XX * c) * h

    @wp.func
    def rotation_part(e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], k: int):
        """Gradient for a rotation from the left of the quaternion at q[k]."""
        r = read_quat(e.q, k)
        x = read_quat(e_bar.q, k) * quat(-r[0], -r[1], -r[2], r[3])
        return vec3(x[0], x[1], x[2]) * real(0.5)

    @wp.func
    def to_tangent(e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], row: wp.array(dtype=real)):
        """The first nv entries of a row of A from the gradient by q."""
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            k = e.model.q_start[i]
            if e.model.joint_type[i] == FREE:
                for n in range(3):
                    row[j + n] = e_bar.q[k + n]
                k += 3
                j += 3
            if e.model.joint_type[i] == FREE or e.model.joint_type[i] == SPHERICAL:
                phi = rotation_part(e, e_bar, k)
                for n in range(3):
                    row[j + n] = phi[n]
            else:
                row[j] = e_bar.q[k]

    @wp.func
    def turned_rows(e: wp.ref[t.Env], j: int, A: wp.array2d(dtype=real), B: wp.array2d(dtype=real)):
        """Rows j, j + 1, j + 2 of the positions: a rotation that turns at the new rates."""
        nv = e.model.num_dofs
        R, J = turn_jacobians(s.integrate.rates(e, j, real(1.0)), e.model.dt)
        for c in range(2 * nv):
            x = J @ vec3(A[nv + j, c], A[nv + j + 1, c], A[nv + j + 2, c])
            if c >= j and c < j + 3:
                for n in range(3):
                    x[n] = x[n] + R[n, c - j]
            for n in range(3):
                A[j + n, c] = x[n]
        for c in range(B.shape[1]):
            x = J @ vec3(B[nv + j, c], B[nv + j + 1, c], B[nv + j + 2, c])
            for n in range(3):
                B[j + n, c] = x[n]

    @wp.func
    def straight_row(e: wp.ref[t.Env], j: int, A: wp.array2d(dtype=real), B: wp.array2d(dtype=real)):
        h = e.model.dt
        nv = e.model.num_dofs
        for c in range(2 * nv):
            A[j, c] = h * A[nv + j, c]
        A[j, j] = A[j, j] + real(1.0)
        for c in range(B.shape[1]):
            B[j, c] = h * B[nv + j, c]

    @wp.func
    def position_rows(e: wp.ref[t.Env], A: wp.array2d(dtype=real), B: wp.array2d(dtype=real)):
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            if e.model.joint_type[i] == FREE:
                for n in range(3):
                    straight_row(e, j + n, A, B)
                j += 3
            if e.model.joint_type[i] == FREE or e.model.joint_type[i] == SPHERICAL:
                turned_rows(e, j, A, B)
            else:
                straight_row(e, j, A, B)

    @wp.kernel(**KERNEL, module_options=module_options())
    def jacobians(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real), qd_bar: wp.array2d(dtype=real),
        A: wp.array3d(dtype=real), B: wp.array3d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """A (2 nv, 2 nv) and B (2 nv, nu) per environment come in as zeros; q_bar and qd_bar are scratch."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see types.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        nv = model.num_dofs
        s.evaluate(e)
        if s.integrate.diverges(e):
            for j in range(2 * nv):
                A[env, j, j] = real(1.0)  # the step leaves such a state alone
        else:
            for r in range(nv):
                for j in range(q.shape[1]):
                    q_bar[env, j] = real(0.0)
                for j in range(nv):
                    qd_bar[env, j] = real(0.0)
                qd_bar[env, r] = real(1.0)
                e_bar.u = B[env, nv + r]
                s.rows.clear_contacts(e, e_bar)
                s.evaluate_adjoint(e, e_bar)
                to_tangent(e, e_bar, A[env, nv + r])
                for j in range(nv):
                    A[env, nv + r, nv + j] = qd_bar[env, j]
            position_rows(e, A[env], B[env])

    return jacobians
