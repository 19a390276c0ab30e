"""Dense Jacobians of one step in the tangent space, one environment per thread.

The step is evaluated once; then the new rates are differentiated row by row with the adjoint of `evaluate`. The rows
of the new positions follow from those, because q_next = q (+) dt qd_next. A step that impacts interrupt is reversed as
a whole for each row of both. Rotations are measured from the left: in
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
    def turn(q_bar: wp.array(dtype=real), k: int, axis: int, r: quat):
        """Gradient by the unit quaternion r at q[k] of its rotation from the left about an axis."""
        phi = vec3()
        phi[axis] = real(2.0)
        x = quat(phi[0], phi[1], phi[2], real(0.0)) * r
        for j in range(4):
            q_bar[k + j] = x[j]

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

    @wp.func
    def start_row(e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], row: int, q_next: wp.array(dtype=real)):
        """Begin the step again, to differentiate entry `row` of the next state."""
        nv = e.model.num_dofs
        for j in range(e_bar.q.shape[0]):
            e_bar.q[j] = real(0.0)
        for j in range(nv):
            e_bar.qd[j] = real(0.0)
        if row >= nv:
            e_bar.qd[row - nv] = real(1.0)
        else:
            i = e.model.dof_link[row]
            k = e.model.q_start[i]
            n = row - e.model.v_start[i]
            if e.model.joint_type[i] == FREE and n >= 3:
                k += 3
                n -= 3
                turn(e_bar.q, k, n, read_quat(q_next, k))
            elif e.model.joint_type[i] == SPHERICAL:
                turn(e_bar.q, k, n, read_quat(q_next, k))
            else:
                e_bar.q[k + n] = real(1.0)
        s.begin(e)

    @wp.func
    def end_row(e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], row: wp.array(dtype=real)):
        to_tangent(e, e_bar, row)
        for j in range(e.model.num_dofs):
            row[e.model.num_dofs + j] = e_bar.qd[j]

    @wp.kernel(**KERNEL, module_options=module_options())
    def jacobians(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), wrench: wp.array3d(dtype=real), wrench_bar: wp.array3d(dtype=real),
        q_bar: wp.array2d(dtype=real), qd_bar: wp.array2d(dtype=real),
        q_next: wp.array2d(dtype=real), qd_next: wp.array2d(dtype=real),
        A: wp.array3d(dtype=real), B: wp.array3d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """A (2 nv, 2 nv) and B (2 nv, nu) per environment come in as zeros; wrench_bar, ... qd_next are scratch."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see env.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        if wp.static(sizes.wrenches):
            e.wrench = wrench[env]
            e_bar.wrench = wrench_bar[env]
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        nv = model.num_dofs
        row = int(-1)  # of an interrupted step; before the first the step is evaluated to its end
        s.begin(e)
        while row < 2 * nv:
            s.evaluate(e)
            if row >= 0:
                if s.reverse(e, e_bar):
                    end_row(e, e_bar, A[env, row])
                    row += 1
                    if row < 2 * nv:
                        e_bar.u = B[env, row]
                        start_row(e, e_bar, row, q_next[env])
            elif s.integrate.diverges(e):
                for j in range(2 * nv):
                    A[env, j, j] = real(1.0)  # the step leaves such a state alone
                row = 2 * nv
            elif s.last(e):
                if e.stage == 0:
                    for r in range(nv):
                        start_row(e, e_bar, nv + r, q_next[env])
                        e_bar.u = B[env, nv + r]
                        s.rows.clear_contacts(e, e_bar)
                        s.evaluate_adjoint(e, e_bar)
                        end_row(e, e_bar, A[env, nv + r])
                    position_rows(e, A[env], B[env])
                    row = 2 * nv
                else:
                    s.finish(e, q_next[env], qd_next[env])
                    e.q = q[env]
                    e.qd = qd[env]
                    row = 0
                    e_bar.u = B[env, 0]
                    start_row(e, e_bar, 0, q_next[env])

    return jacobians
