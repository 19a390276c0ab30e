"""One step of the simulator in array code, for PyTorch's autograd and for JAX: what their users would write.

The same mathematics as kernels/ and cpp/step.hpp: articulated-body algorithm in world axes, implicit PD drives, spheres
on the plane z = 0, projected Gauss-Seidel with Coulomb's cone, semi-implicit Euler; without what the benchmark's robot
does not use. Spatial vectors are (angular, linear), about the world's origin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import Model

ERP, CFM, MAX_PUSH = 0.2, 1e-2, 5.0  # the Simulator's defaults


class Torch:
    """The few functions that differ between the libraries."""

    def __init__(self):
        import torch

        self.stack, self.cat, self.where, self.zeros_like = torch.stack, torch.cat, torch.where, torch.zeros_like
        self.sin, self.cos, self.sqrt, self.cross = torch.sin, torch.cos, torch.sqrt, torch.linalg.cross
        self.cholesky = torch.linalg.cholesky
        self._solve, self._tensor, self._double = torch.linalg.solve_triangular, torch.as_tensor, torch.float64

    def array(self, values) -> Any:
        return self._tensor(np.array(values), dtype=self._double)

    def solve_lower(self, L, b):
        return self._solve(L, b, upper=False)

    def solve_upper(self, U, b):
        return self._solve(U, b, upper=True)

    def repeat(self, body: Callable, carry, times: int):
        for _ in range(times):
            carry = body(carry)
        return carry


class Jax:
    """The same of JAX."""

    def __init__(self):
        import jax
        import jax.numpy as jnp
        from jax.scipy.linalg import solve_triangular

        jax.config.update("jax_enable_x64", True)
        self.stack, self.cat, self.where, self.zeros_like = jnp.stack, jnp.concatenate, jnp.where, jnp.zeros_like
        self.sin, self.cos, self.sqrt, self.cross, self.array = jnp.sin, jnp.cos, jnp.sqrt, jnp.cross, jnp.array
        self.cholesky, self._solve, self._scan = jnp.linalg.cholesky, solve_triangular, jax.lax.scan

    def solve_lower(self, L, b):
        return self._solve(L, b, lower=True)

    def solve_upper(self, U, b):
        return self._solve(U, b, lower=False)

    def repeat(self, body: Callable, carry, times: int):
        return self._scan(lambda c, _: (body(c), None), carry, None, length=times)[0]


class ArrayStep:
    """step(q, qd, u) -> next q, qd of one robot: a free root, hinges, position drives, spheres that touch z = 0."""

    def __init__(self, model: Model, xp: Torch | Jax, *, dt: float = 1e-3, iterations: int = 50):
        self.m, self.xp, self.dt, self.iterations = model, xp, dt, iterations
        array = xp.array
        self.rot = [array(quat_to_matrix(q)) for q in model.joint_quat]
        self.pos, self.axis, self.com = ([array(v) for v in a] for a in (model.joint_pos, model.axis, model.com))
        self.inertia = [array(matrix) for matrix in model.inertia]
        self.gravity, self.damping = array(model.gravity), array(model.damping)
        self.kp, self.resist = array(model.kp), array(dt * model.kp + model.kd)
        diagonal = np.array(model.armature + dt * model.damping)
        diagonal[model.drive_dof] += dt * (dt * model.kp + model.kd)
        self.diagonal = array(diagonal)
        links = [int(np.flatnonzero(model.v_start == d)[0]) for d in model.drive_dof]
        self.drive_q = [int(k) for k in model.q_start[links]]
        self.spheres = [model.shapes[a] for a, _ in model.pairs]
        self.centre = [array(s.pos) for s in self.spheres]
        self.mu = array(model.pair_friction)[:, None]
        self.eye3, self.eye6 = array(np.eye(3)), array(np.eye(6))
        # the skew matrix of a vector, as a product with this
        self.skew_basis = array([[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
                                 [[0, -1, 0], [1, 0, 0], [0, 0, 0]]]).reshape(3, 9) * 1.0  # fmt: skip

    def skew(self, v):
        return (v @ self.skew_basis).reshape(3, 3)

    def rotation(self, v, w):
        """Of the quaternion (v, w), of any length."""
        s = 2.0 / (v @ v + w * w)
        K = self.skew(v)
        return self.eye3 + s * (w * K + K @ K)

    def block(self, a, b, c, d):
        return self.xp.cat([self.xp.cat([a, b], 1), self.xp.cat([c, d], 1)], 0)

    def cross_motion(self, v, m):
        cross = self.xp.cross
        return self.xp.cat([cross(v[:3], m[:3]), cross(v[:3], m[3:]) + cross(v[3:], m[:3])], 0)

    def cross_force(self, v, f):
        cross = self.xp.cross
        return self.xp.cat([cross(v[:3], f[:3]) + cross(v[3:], f[3:]), cross(v[:3], f[3:])], 0)

    def __call__(self, q, qd, u):
        xp, m, dt = self.xp, self.m, self.dt
        R, p, S, v, I, f = self.kinematics(q, qd)
        Z = xp.zeros_like(self.eye3)
        root = self.block(Z, self.eye3, self.eye3, self.skew(p[0]))  # columns: velocity, rate of turn
        target = self.kp * (u - xp.stack([q[k] for k in self.drive_q])) - self.resist * qd[m.drive_dof[0] :]
        tau = -self.damping * qd + xp.cat([xp.zeros_like(qd[: m.drive_dof[0]]), target], 0)
        U, D, force, L, root_force = self.factorise(tau, S, I, f, root)

        gap, W, rows, b = self.contact_rows(R, p, S, v, U, D, force, L, root_force, root)
        A = rows @ rows.T + (W / D) @ W.T
        x = self.solve(A, b, gap < 0.0) if len(self.spheres) else b
        force, root_force = force + x @ W / dt, root_force + x @ rows / dt

        rate = xp.solve_upper(L.T, root_force[:, None])[:, 0]
        qdd, a = [*rate], [root @ rate] + [None] * (m.num_links - 1)
        for i in range(1, m.num_links):
            r = (force[i - 1] - U[i - 1] @ a[m.parent[i]]) / D[i - 1]
            a[i] = a[m.parent[i]] + S[i] * r
            qdd.append(r)
        return self.integrate(q, qd + dt * xp.stack(qdd))

    def kinematics(self, q, qd):
        xp, m = self.xp, self.m
        p, R = [q[:3]], [self.rotation(q[3:6], q[6])]
        v = [xp.cat([qd[3:6], qd[:3] + xp.cross(q[:3], qd[3:6])], 0)]
        a = [xp.cat([xp.zeros_like(q[:3]), xp.cross(qd[:3], qd[3:6])], 0)]  # at qdd = 0
        S = [None]
        for i in range(1, m.num_links):
            up = int(m.parent[i])
            angle = q[int(m.q_start[i])] * 0.5
            p.append(p[up] + R[up] @ self.pos[i])
            R.append(R[up] @ self.rot[i] @ self.rotation(self.axis[i] * xp.sin(angle), xp.cos(angle)))
            e = R[i] @ self.axis[i]
            S.append(xp.cat([e, xp.cross(p[i], e)], 0))
            joint = S[i] * qd[int(m.v_start[i])]
            v.append(v[up] + joint)
            a.append(a[up] + self.cross_motion(v[up], joint))
        I, f = [], []
        for i in range(m.num_links):
            c, mass = p[i] + R[i] @ self.com[i], float(m.mass[i])
            K = self.skew(c)
            I.append(self.block(R[i] @ self.inertia[i] @ R[i].T - mass * K @ K, mass * K, -mass * K, mass * self.eye3))
            weight = mass * self.gravity
            pull = xp.cat([xp.cross(c, weight), weight], 0)
            f.append(I[i] @ a[i] + self.cross_force(v[i], I[i] @ v[i]) - pull)
        return R, p, S, v, I, f

    def factorise(self, tau, S, I, f, root):
        """Featherstone 7.3: U, D of the hinges, the up pass of the forces, the root's Cholesky factor."""
        xp, m = self.xp, self.m
        n = m.num_links
        I, f = list(I), list(f)
        pa = [xp.zeros_like(f[0]) for _ in range(n)]
        U, D, force = [None] * n, [None] * n, [None] * n
        for i in range(n - 1, 0, -1):
            up, j = int(m.parent[i]), int(m.v_start[i])
            U[i] = I[i] @ S[i]
            D[i] = S[i] @ U[i] + self.diagonal[j]
            force[i] = tau[j] - S[i] @ f[i] - S[i] @ pa[i]
            I[up] = I[up] + I[i] - U[i][:, None] * U[i] / D[i]
            pa[up] = pa[up] + pa[i] + U[i] * (force[i] / D[i])
            f[up] = f[up] + f[i]
        L = xp.cholesky(root.T @ I[0] @ root + self.eye6 * self.diagonal[:6])
        root_force = xp.solve_lower(L, (tau[:6] - root.T @ (f[0] + pa[0]))[:, None])[:, 0]
        return xp.stack(U[1:]), xp.stack(D[1:]), xp.stack(force[1:]), L, root_force

    def contact_rows(self, R, p, S, v, U, D, force, L, root_force, root):
        """Gaps (k,), rows at the hinges (3 k, links - 1) and at the root (3 k, 6), right-hand side (3 k,)."""
        xp, m = self.xp, self.m
        order = self.xp.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]) * 1.0  # normal z, tangents x and y
        gaps, hinges, roots, right = [], [], [], []
        zero = xp.zeros_like(p[0])
        for sphere, centre in zip(self.spheres, self.centre):
            link, radius = sphere.link, float(sphere.size[0])
            c = p[link] + R[link] @ centre
            gap = c[2] - radius
            point = c - radius * order[0]
            F = xp.cat([order @ self.skew(point).T, order], 1)  # rows: moment and force of a unit push
            speed = F @ v[link]
            columns = [zero] * (m.num_links - 1)
            i = link
            while i > 0:
                u = F @ S[i]
                columns[i - 1] = u
                F = F - (u / D[i - 1])[:, None] * U[i - 1]
                i = int(m.parent[i])
            push = ERP / self.dt * gap
            bias = xp.where(push > -MAX_PUSH, push, -MAX_PUSH + 0.0 * push)
            gaps.append(gap)
            hinges.append(xp.stack(columns, 1))
            roots.append(xp.solve_lower(L, (F @ root).T).T)
            right.append(speed + self.xp.cat([bias[None], zero[:2]], 0))
        W, rows = xp.cat(hinges, 0), xp.cat(roots, 0)
        b = xp.cat(right, 0) + self.dt * ((W / D) @ force + rows @ root_force)
        return xp.stack(gaps), W, rows, b

    def solve(self, A, b, active):
        xp, count = self.xp, len(self.spheres)
        blocks = A.reshape(count, 3, count, 3)
        own = xp.stack([blocks[k, :, k, :] for k in range(count)])
        an = own[:, 0, 0] + CFM
        jam = self.mu[:, 0] * xp.sqrt(own[:, 0, 1] ** 2 + own[:, 0, 2] ** 2) + an
        if not isinstance(xp, Jax) and bool((jam > 1.75 * an).any()):
            raise ValueError("a contact jams: its shorter steps are not part of this benchmark.")
        at = 0.6 * (own[:, 1, 1] + own[:, 2, 2])

        def sweep(x):
            x = [x[k] for k in range(count)]
            for k in range(count):
                flat = xp.cat(x, 0)
                residual = b[3 * k : 3 * k + 3] + A[3 * k : 3 * k + 3] @ flat
                normal = x[k][0] - (residual[0] + CFM * x[k][0]) / an[k]
                normal = xp.where((normal > 0.0) & active[k], normal, 0.0 * normal)
                residual = residual[1:] + own[k][1:, 0] * (normal - x[k][0])
                slip = x[k][1:] - residual / at[k]
                limit, length2 = self.mu[k, 0] * normal, slip @ slip
                outside = length2 > limit * limit
                safe = xp.where(outside, length2, 0.0 * length2 + 1.0)  # not the root of zero, whose slope is infinite
                slip = xp.where(outside, slip * (limit / xp.sqrt(safe)), slip)
                x[k] = xp.cat([normal[None], slip], 0)
            return xp.stack(x)

        return xp.repeat(sweep, xp.zeros_like(b).reshape(count, 3), self.iterations).reshape(-1)

    def integrate(self, q, qd):
        xp, dt = self.xp, self.dt
        e = q[3:7] / xp.sqrt(q[3:7] @ q[3:7])
        half = 0.5 * dt * qd[3:6]
        f2 = half @ half  # small: the series is exact to rounding, and has a slope at zero
        w = half * (1.0 - f2 / 6.0 * (1.0 - f2 / 20.0 * (1.0 - f2 / 42.0)))
        c = 1.0 - f2 / 2.0 * (1.0 - f2 / 12.0 * (1.0 - f2 / 30.0))
        turned = xp.cat([c * e[:3] + e[3] * w + xp.cross(w, e[:3]), (c * e[3] - w @ e[:3])[None]], 0)
        return xp.cat([q[:3] + dt * qd[:3], turned, q[7:] + dt * qd[6:]], 0), qd
