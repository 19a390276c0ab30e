"""Device code of the step on Warp's own tape: six kernels, which taped_step.py launches and differentiates.

The same mathematics as kernels/ and array_step.py. One thread per environment, six kernels per step. A tape keeps no
values: its backward kernels read the forward pass's arrays again, and repeat neither stores nor additions to them. So
all arrays have a row for each step and environment (step t's begin at `first`), and an element is only read once it has
its last value. Nothing local is carried around a dynamic loop, of which Warp would know only the last value: there are
slots per link, per hinge between foot and root, and per sweep. Loops over a constant number of turns are unrolled.
"""

from __future__ import annotations

import warp as wp

real, Vec, Mat = wp.float64, wp.vec3d, wp.mat33d
Vec6, Mat6, Mat36 = wp.spatial_vectord, wp.spatial_matrixd, wp.types.matrix((3, 6), wp.float64)
FEET, HINGES = wp.constant(4), wp.constant(3)  # feet of the robot, and hinges between a foot and the root
ERP, CFM, MAX_PUSH = wp.constant(real(0.2)), wp.constant(real(1e-2)), wp.constant(real(5.0))  # Simulator's defaults
ZERO, ONE = wp.constant(real(0.0)), wp.constant(real(1.0))
wp.set_module_options({"max_unroll": 16, "enable_backward": True})  # 16: also where a program has set another default


@wp.struct
class Link:
    """Constants of a body and of the hinge that it hangs on; of the root only those of the body."""

    parent: int
    q: int
    dof: int
    drive: int
    pos: Vec
    rot: Mat
    axis: Vec
    com: Vec
    mass: real
    inertia: Mat
    damping: real
    diagonal: real  # armature and implicit drive
    kp: real
    resist: real


@wp.struct
class Foot:
    """Constants of a sphere; `way`: its link and the ones above, without the root."""

    way: wp.vec3i
    pos: Vec
    radius: real
    mu: real


Links, Feet, RootVec6, RootMat6 = (wp.array(dtype=kind) for kind in (Link, Foot, Vec6, Mat6))
Reals, Vecs, Mats, Vec6s, Mat6s, Mat36s = (wp.array2d(dtype=kind) for kind in (real, Vec, Mat, Vec6, Mat6, Mat36))
Vecs2, Mats2, Mat36s2 = (wp.array3d(dtype=kind) for kind in (Vec, Mat, Mat36))

# What a step keeps per environment: shape and type.
LAYOUT = {
    "R": (("links",), Mat), "p": (("links",), Vec), "S": (("links",), Vec6), "v": (("links",), Vec6),
    "a0": (("links",), Vec6), "inertia": (("links",), Mat6), "f": (("links",), Vec6),
    "I_below": (("links",), Mat6), "f_below": (("links",), Vec6), "U": (("links",), Vec6), "D": (("links",), real),
    "force": (("links",), real), "L": ((), Mat6), "root_force": ((), Vec6),
    "gap": (("feet",), real), "F": (("feet", "slots"), Mat36), "W": (("feet", "links"), Vec),
    "rows": (("feet",), Mat36), "b": (("feet",), Vec), "A": (("feet", "feet"), Mat), "x": (("sweeps", "feet"), Vec),
    "a": (("links",), Vec6),
}  # fmt: skip


@wp.func
def spatial(angular: Vec, linear: Vec):
    return Vec6(angular[0], angular[1], angular[2], linear[0], linear[1], linear[2])


@wp.func
def block(a: Mat, b: Mat, c: Mat, d: Mat):
    out = Mat6()
    for i in range(3):
        for j in range(3):
            out[i, j] = a[i, j]
            out[i, j + 3] = b[i, j]
            out[i + 3, j] = c[i, j]
            out[i + 3, j + 3] = d[i, j]
    return out


@wp.func
def root_columns(p: Vec):
    """Motion of the root for a unit of each of its dofs: three velocities of its origin, three rates of turn."""
    one = wp.identity(3, dtype=real)
    return block(Mat(), one, one, wp.skew(p))


@wp.func
def cholesky(A: Mat6):
    L = Mat6()
    for j in range(6):
        pivot = A[j, j]
        for k in range(j):
            pivot = pivot - L[j, k] * L[j, k]
        L[j, j] = wp.sqrt(pivot)
        for i in range(5, j, -1):  # range(j + 1, 6) would be a dynamic loop, with wrong gradients
            entry = A[i, j]
            for k in range(j):
                entry = entry - L[i, k] * L[j, k]
            L[i, j] = entry / L[j, j]
    return L


@wp.func
def solve_lower(L: Mat6, b: Vec6):
    x = Vec6()
    for i in range(6):
        entry = b[i]
        for k in range(i):
            entry = entry - L[i, k] * x[k]
        x[i] = entry / L[i, i]
    return x


@wp.func
def solve_upper(L: Mat6, b: Vec6):
    """x of L^T x = b."""
    x = Vec6()
    for i in range(5, -1, -1):
        entry = b[i]
        for k in range(5, i, -1):
            entry = entry - L[k, i] * x[k]
        x[i] = entry / L[i, i]
    return x


@wp.kernel
def kinematics(
    first: int, links: Links, q: Reals, qd: Reals, gravity: Vec,
    R: Mats, p: Vecs, S: Vec6s, v: Vec6s, a0: Vec6s, inertia: Mat6s, f: Vec6s,
):  # fmt: skip
    """Places, motions, inertias and bias forces of the links; a0 is the acceleration at qdd = 0."""
    e = first + wp.tid()
    at = Vec(q[e, 0], q[e, 1], q[e, 2])
    axis = Vec(q[e, 3], q[e, 4], q[e, 5])
    w = q[e, 6]
    K = wp.skew(axis)
    linear = Vec(qd[e, 0], qd[e, 1], qd[e, 2])
    turn = Vec(qd[e, 3], qd[e, 4], qd[e, 5])
    p[e, 0] = at
    R[e, 0] = wp.identity(3, dtype=real) + real(2.0) / (wp.dot(axis, axis) + w * w) * (w * K + K * K)
    v[e, 0] = spatial(turn, linear + wp.cross(at, turn))
    a0[e, 0] = spatial(Vec(), wp.cross(linear, turn))
    for i in range(1, links.shape[0]):
        up = links[i].parent
        angle = q[e, links[i].q]
        hinge = wp.skew(links[i].axis)
        local = wp.identity(3, dtype=real) + wp.sin(angle) * hinge + (ONE - wp.cos(angle)) * (hinge * hinge)
        Ri = R[e, up] * links[i].rot * local
        pi = p[e, up] + R[e, up] * links[i].pos
        direction = Ri * links[i].axis
        Si = spatial(direction, wp.cross(pi, direction))
        joint = Si * qd[e, links[i].dof]
        R[e, i] = Ri
        p[e, i] = pi
        S[e, i] = Si
        v[e, i] = v[e, up] + joint
        a0[e, i] = a0[e, up] + wp.spatial_cross(v[e, up], joint)
    for i in range(links.shape[0]):
        mass = links[i].mass
        c = p[e, i] + R[e, i] * links[i].com
        C = wp.skew(c)
        turned = R[e, i] * links[i].inertia * wp.transpose(R[e, i])
        own = block(turned - mass * (C * C), mass * C, -mass * C, mass * wp.identity(3, dtype=real))
        weight = mass * gravity
        inertia[e, i] = own
        f[e, i] = own * a0[e, i] + wp.spatial_cross_dual(v[e, i], own * v[e, i]) - spatial(wp.cross(c, weight), weight)


@wp.kernel
def up_pass(
    first: int, links: Links, q: Reals, qd: Reals, u: Reals, p: Vecs, S: Vec6s, inertia: Mat6s, f: Vec6s,
    I_below: Mat6s, f_below: Vec6s, U: Vec6s, D: Reals, force: Reals, L: RootMat6, root_force: RootVec6,
):  # fmt: skip
    """Featherstone 7.3, tips to root: articulated inertias and forces; I_below and f_below are the children's sums."""
    e = first + wp.tid()
    for j in range(links.shape[0] - 1):
        i = links.shape[0] - 1 - j
        up = links[i].parent
        rate = qd[e, links[i].dof]
        drive = links[i].kp * (u[e, links[i].drive] - q[e, links[i].q]) - links[i].resist * rate
        IA = inertia[e, i] + I_below[e, i]
        fA = f[e, i] + f_below[e, i]
        Ui = IA * S[e, i]
        Di = wp.dot(S[e, i], Ui) + links[i].diagonal
        push = drive - links[i].damping * rate - wp.dot(S[e, i], fA)
        U[e, i] = Ui
        D[e, i] = Di
        force[e, i] = push
        I_below[e, up] += IA - wp.outer(Ui, Ui / Di)
        f_below[e, up] += fA + Ui * (push / Di)
    root = root_columns(p[e, 0])
    factor = cholesky(wp.transpose(root) * (inertia[e, 0] + I_below[e, 0]) * root)
    L[e] = factor
    root_force[e] = solve_lower(factor, -(wp.transpose(root) * (f[e, 0] + f_below[e, 0])))


@wp.kernel
def contact_rows(
    first: int, feet: Feet, dt: real, R: Mats, p: Vecs, S: Vec6s, v: Vec6s, U: Vec6s, D: Reals, force: Reals,
    L: RootMat6, root_force: RootVec6, gap: Reals, F: Mat36s2, W: Vecs2, rows: Mat36s, b: Vecs,
):  # fmt: skip
    """Unit pushes at each foot (normal z, tangents x and y) on their way to the root, and the velocity without any."""
    e = first + wp.tid()
    for k in range(feet.shape[0]):
        link = feet[k].way[0]
        c = p[e, link] + R[e, link] * feet[k].pos
        depth = c[2] - feet[k].radius
        point = Vec(c[0], c[1], depth)
        z = Vec(ZERO, ZERO, ONE)
        x = Vec(ONE, ZERO, ZERO)
        y = Vec(ZERO, ONE, ZERO)
        pushes = wp.matrix_from_rows(
            spatial(wp.cross(point, z), z), spatial(wp.cross(point, x), x), spatial(wp.cross(point, y), y)
        )
        gap[e, k] = depth
        F[e, k, 0] = pushes
        b[e, k] = pushes * v[e, link]
        for d in range(HINGES):
            i = feet[k].way[d]
            s = F[e, k, d] * S[e, i]
            W[e, k, i] = s
            F[e, k, d + 1] = F[e, k, d] - wp.outer(s / D[e, i], U[e, i])
            b[e, k] += s * (dt * force[e, i] / D[e, i])
        G = F[e, k, HINGES] * root_columns(p[e, 0])
        row = wp.matrix_from_rows(solve_lower(L[e], G[0]), solve_lower(L[e], G[1]), solve_lower(L[e], G[2]))
        rows[e, k] = row
        b[e, k] += dt * (row * root_force[e])
        push = ERP / dt * depth
        if push > -MAX_PUSH:
            b[e, k] += Vec(push, ZERO, ZERO)
        else:
            b[e, k] += Vec(-MAX_PUSH, ZERO, ZERO)


@wp.kernel
def delassus(first: int, feet: Feet, D: Reals, W: Vecs2, rows: Mat36s, A: Mats2):
    """Velocity of each foot for unit pushes at each; the links that two feet share add to what the root gives."""
    e = first + wp.tid()
    for k in range(feet.shape[0]):
        for j in range(feet.shape[0]):
            A[e, k, j] = rows[e, k] * wp.transpose(rows[e, j])
            for d in range(HINGES):
                i = feet[k].way[d]
                A[e, k, j] += wp.outer(W[e, k, i], W[e, j, i] / D[e, i])


@wp.kernel
def gauss_seidel(first: int, feet: Feet, gap: Reals, A: Mats2, b: Vecs, x: Vecs2):
    """Sweep t takes x[t] to x[t + 1], with Coulomb's cone."""
    e = first + wp.tid()
    for t in range(x.shape[1] - 1):
        for k in range(feet.shape[0]):
            own = A[e, k, k]
            old = x[e, t, k]
            residual = b[e, k]
            for j in range(FEET):
                newest = t
                if j < k:
                    newest = t + 1
                residual = residual + A[e, k, j] * x[e, newest, j]
            normal = old[0] - (residual[0] + CFM * old[0]) / (own[0, 0] + CFM)
            if normal > ZERO and gap[e, k] < ZERO:
                change = normal - old[0]
                at = real(0.6) * (own[1, 1] + own[2, 2])
                s = old[1] - (residual[1] + own[1, 0] * change) / at
                r = old[2] - (residual[2] + own[2, 0] * change) / at
                limit = feet[k].mu * normal
                length2 = s * s + r * r
                if length2 > limit * limit:
                    scale = limit / wp.sqrt(length2)
                    x[e, t + 1, k] = Vec(normal, s * scale, r * scale)
                else:
                    x[e, t + 1, k] = Vec(normal, s, r)
            else:
                x[e, t + 1, k] = Vec()


@wp.kernel
def down_pass(
    first: int, num_envs: int, links: Links, dt: real, p: Vecs, S: Vec6s, U: Vec6s, D: Reals, force: Reals,
    L: RootMat6, root_force: RootVec6, W: Vecs2, rows: Mat36s, x: Vecs2, a: Vec6s, q: Reals, qd: Reals,
):  # fmt: skip
    """Accelerations from root to tips, with the contacts' impulses, and the next state (semi-implicit Euler)."""
    e = first + wp.tid()
    after = e + num_envs
    last = x.shape[1] - 1
    total = root_force[e]
    for k in range(FEET):
        total = total + wp.transpose(rows[e, k]) * (x[e, last, k] / dt)
    qdd = solve_upper(L[e], total)
    a[e, 0] = root_columns(p[e, 0]) * qdd
    linear = Vec(qd[e, 0] + dt * qdd[0], qd[e, 1] + dt * qdd[1], qd[e, 2] + dt * qdd[2])
    turn = Vec(qd[e, 3] + dt * qdd[3], qd[e, 4] + dt * qdd[4], qd[e, 5] + dt * qdd[5])
    quat = wp.vec4d(q[e, 3], q[e, 4], q[e, 5], q[e, 6])
    unit = quat / wp.sqrt(wp.dot(quat, quat))
    axis = Vec(unit[0], unit[1], unit[2])
    half = real(0.5) * dt * turn
    f2 = wp.dot(half, half)  # small: the series is exact to rounding, and has a slope at zero
    w = half * (ONE - f2 / real(6.0) * (ONE - f2 / real(20.0) * (ONE - f2 / real(42.0))))
    c = ONE - f2 / real(2.0) * (ONE - f2 / real(12.0) * (ONE - f2 / real(30.0)))
    turned = c * axis + unit[3] * w + wp.cross(w, axis)
    for j in range(3):
        q[after, j] = q[e, j] + dt * linear[j]
        q[after, 3 + j] = turned[j]
        qd[after, j] = linear[j]
        qd[after, 3 + j] = turn[j]
    q[after, 6] = c * unit[3] - wp.dot(w, axis)
    for i in range(1, links.shape[0]):
        up = links[i].parent
        pushed = force[e, i]
        for k in range(FEET):
            pushed = pushed + wp.dot(W[e, k, i], x[e, last, k]) / dt
        rate = (pushed - wp.dot(U[e, i], a[e, up])) / D[e, i]
        a[e, i] = a[e, up] + S[e, i] * rate
        speed = qd[e, links[i].dof] + dt * rate
        qd[after, links[i].dof] = speed
        q[after, links[i].q] = q[e, links[i].q] + dt * speed


STAGES = (kinematics, up_pass, contact_rows, delassus, gauss_seidel, down_pass)
