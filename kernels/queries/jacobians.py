"""Dense Jacobians of one step in the tangent space, one environment per thread.

The step is evaluated once; then the new rates are differentiated row by row with the adjoint of `evaluate`. The rows
of the new positions follow from those, because q_next = q (+) dt qd_next. Rotations are measured from the left: in
world axes for a free joint, in the axes of the joint's frame on the parent for a ball joint, like the rates.
"""

from functools import cache

import warp as wp

from ..rollout import make_stages, module_options
from ..types import FREE, SPHERICAL, Sizes


@cache
def make_jacobians(real, sizes: Sizes):
    stages = make_stages(real, sizes)
    t, step, adjoint, kinematics = stages.t, stages.step, stages.step.adjoint, stages.kinematics
    vec3, quat = t.vec3, t.quat
    Model, Params, ParamsBar, Memory, MemoryBar, Dof = (
        t.Model, t.Params, t.ParamsBar, step.Memory, adjoint.MemoryBar, t.Dof
    )  # fmt: skip

    @wp.func
    def turn_jacobians(w: vec3, h: real):
        """d(next rotation)/d(rotation) = exp(h w), and d(next rotation)/dw = h times its left Jacobian."""
        f2 = wp.dot(w, w) * h * h
        # (1 - cos f) / f^2 = sinc(f / 2)^2 / 2 and (f - sin f) / f^3, without the cancellation near zero
        half = stages.integrate.sinc(f2 * real(0.25))
        b = real(0.5) * half * half
        a = stages.integrate.sinc(f2)
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
    def rotation_part(q: wp.array(dtype=real), k: int, q_bar: wp.array(dtype=real)):
        """Gradient for a rotation from the left of the quaternion at q[k]."""
        e = kinematics.read_quat(q, k)
        x = kinematics.read_quat(q_bar, k) * quat(-e[0], -e[1], -e[2], e[3])
        return vec3(x[0], x[1], x[2]) * real(0.5)

    @wp.func
    def to_tangent(model: Model, q: wp.array(dtype=real), q_bar: wp.array(dtype=real), row: wp.array(dtype=real)):
        """The first nv entries of a row of A from the gradient of q."""
        for i in range(1, model.num_links):
            j = model.v_start[i]
            k = model.q_start[i]
            if model.joint_type[i] == FREE:
                for n in range(3):
                    row[j + n] = q_bar[k + n]
                k += 3
                j += 3
            if model.joint_type[i] == FREE or model.joint_type[i] == SPHERICAL:
                phi = rotation_part(q, k, q_bar)
                for n in range(3):
                    row[j + n] = phi[n]
            else:
                row[j] = q_bar[k]

    @wp.func
    def turned_rows(j: int, nv: int, h: real, w: vec3, A: wp.array2d(dtype=real), B: wp.array2d(dtype=real)):
        """Rows j, j + 1, j + 2 of the positions: a rotation that turns at rate w."""
        R, J = turn_jacobians(w, h)
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
    def straight_row(j: int, nv: int, h: real, A: wp.array2d(dtype=real), B: wp.array2d(dtype=real)):
        for c in range(2 * nv):
            A[j, c] = h * A[nv + j, c]
        A[j, j] = A[j, j] + real(1.0)
        for c in range(B.shape[1]):
            B[j, c] = h * B[nv + j, c]

    @wp.func
    def position_rows(
        model: Model, qd: wp.array(dtype=real), dofs: wp.array(dtype=Dof), A: wp.array2d(dtype=real),
        B: wp.array2d(dtype=real),
    ):  # fmt: skip
        h = model.dt
        nv = model.num_dofs
        for i in range(1, model.num_links):
            j = model.v_start[i]
            if model.joint_type[i] == FREE:
                for n in range(3):
                    straight_row(j + n, nv, h, A, B)
                j += 3
            if model.joint_type[i] == FREE or model.joint_type[i] == SPHERICAL:
                w = vec3(qd[j] + dofs[j].dqd, qd[j + 1] + dofs[j + 1].dqd, qd[j + 2] + dofs[j + 2].dqd)
                turned_rows(j, nv, h, w, A, B)
            else:
                straight_row(j, nv, h, A, B)

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def jacobians(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real), qd_bar: wp.array2d(dtype=real),
        A: wp.array3d(dtype=real), B: wp.array3d(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """A (2 nv, 2 nv) and B (2 nv, nu) per environment come in as zeros; q_bar and qd_bar are scratch."""
        env = first + wp.tid()
        memory = Memory()
        memory_bar = MemoryBar()
        work = step.view(memory)
        bar = adjoint.view_bar(memory_bar)
        work.history = bar.history
        nv = model.num_dofs
        counts = step.evaluate(model, params, env, q[env], qd[env], u[env], work)
        if stages.integrate.runaway(model, qd[env], work.dofs):
            for j in range(2 * nv):
                A[env, j, j] = real(1.0)  # the step leaves such a state alone
        else:
            for r in range(nv):
                for j in range(q.shape[1]):
                    q_bar[env, j] = real(0.0)
                for j in range(nv):
                    qd_bar[env, j] = real(0.0)
                qd_bar[env, r] = real(1.0)
                adjoint.clear_contacts(counts.contacts, bar.contacts)
                adjoint.evaluate_adjoint(
                    model, params, env, q[env], qd[env], u[env], work, counts, bar, q_bar[env], qd_bar[env],
                    B[env, nv + r], params_bar,
                )  # fmt: skip
                to_tangent(model, q[env], q_bar[env], A[env, nv + r])
                for j in range(nv):
                    A[env, nv + r, nv + j] = qd_bar[env, j]
            position_rows(model, qd[env], work.dofs, A[env], B[env])

    return jacobians
