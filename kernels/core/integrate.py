"""Semi-implicit Euler step of positions with the new velocities; rotations by the exponential map."""

from types import SimpleNamespace

import warp as wp

from ..types import FREE, SPHERICAL


def make_integrate(t, kinematics):
    real, vec3, quat = t.real, t.vec3, t.quat
    Model, Dof = t.Model, t.Dof
    RUNAWAY = wp.constant(real(1e6))  # rad/s or m/s: no robot moves that fast, so the simulation has diverged
    read_vec3, read_quat = kinematics.read_vec3, kinematics.read_quat

    @wp.func
    def sinc(f2: real):
        """sin(f) / f from f^2: a series near zero, where the quotient loses its meaning."""
        k = real(1.0) - f2 / real(6.0) * (real(1.0) - f2 / real(20.0) * (real(1.0) - f2 / real(42.0)))
        if f2 > real(1e-3):
            f = wp.sqrt(f2)
            k = wp.sin(f) / f
        return k

    @wp.func
    def turn(e: quat, w: vec3, h: real):
        """The unit quaternion e after turning at rate w (in the frame that e leads to) for a time h."""
        f2 = wp.dot(w, w) * (h * h * real(0.25))
        k = sinc(f2) * h * real(0.5)
        return quat(k * w[0], k * w[1], k * w[2], wp.cos(wp.sqrt(f2))) * e

    @wp.func
    def sinc_slope(f2: real):
        """(f cos(f) - sin(f)) / f^3 from f^2: sinc's derivative over f. The closed form cancels near zero."""
        o = real(1.0)
        k = (
            f2
            / real(10.0)
            * (o - f2 / real(28.0) * (o - f2 / real(54.0) * (o - f2 / real(88.0) * (o - f2 / real(130.0)))))
        )
        k = (k - o) / real(3.0)
        if f2 > real(0.1):
            f = wp.sqrt(f2)
            k = (f * wp.cos(f) - wp.sin(f)) / (f2 * f)
        return k

    @wp.func
    def turn_adjoint(e: quat, w: vec3, h: real, next_bar: quat):
        """Returns e_bar and w_bar."""
        half = h * real(0.5)
        f2 = wp.dot(w, w) * (half * half)
        k = sinc(f2)
        r_bar = next_bar * wp.quat_inverse(e)  # of the rotation that e is multiplied with
        v_bar = vec3(r_bar[0], r_bar[1], r_bar[2])
        along = half * half * (half * sinc_slope(f2) * wp.dot(v_bar, w) - k * r_bar[3])
        c = -k * half
        e_bar = quat(c * w[0], c * w[1], c * w[2], wp.cos(wp.sqrt(f2))) * next_bar
        return e_bar, v_bar * (k * half) + w * along

    @wp.func
    def write_quat(q: wp.array(dtype=real), start: int, e: quat):
        for j in range(4):
            q[start + j] = e[j]

    @wp.func
    def runaway(model: Model, qd: wp.array(dtype=real), dofs: wp.array(dtype=Dof)):
        """True if some new rate is not a number or beyond all bounds."""
        bad = bool(False)
        for j in range(model.num_dofs):
            if not (wp.abs(qd[j] + dofs[j].dqd) < RUNAWAY):
                bad = True
        return bad

    @wp.func
    def integrate(
        model: Model, q: wp.array(dtype=real), qd: wp.array(dtype=real), dofs: wp.array(dtype=Dof),
        q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real),
    ):  # fmt: skip
        """q_next may be q, and qd_next qd."""
        h = model.dt
        for j in range(model.num_dofs):
            qd_next[j] = qd[j] + dofs[j].dqd
        for i in range(1, model.num_links):
            j = model.v_start[i]
            k = model.q_start[i]
            kind = model.joint_type[i]
            if kind == FREE:
                for n in range(3):
                    q_next[k + n] = q[k + n] + h * qd_next[j + n]
                write_quat(q_next, k + 3, turn(wp.normalize(read_quat(q, k + 3)), read_vec3(qd_next, j + 3), h))
            elif kind == SPHERICAL:
                write_quat(q_next, k, turn(wp.normalize(read_quat(q, k)), read_vec3(qd_next, j), h))
            else:
                q_next[k] = q[k] + h * qd_next[j]

    @wp.func
    def joint_turn_adjoint(
        h: real, k: int, j: int, q: wp.array(dtype=real), dofs: wp.array(dtype=Dof), qd: wp.array(dtype=real),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real),
    ):  # fmt: skip
        """The quaternion at q[k] that the rates from dof j on turn."""
        e = read_quat(q, k)
        length = wp.length(e)
        e = e / length
        w = vec3(qd[j] + dofs[j].dqd, qd[j + 1] + dofs[j + 1].dqd, qd[j + 2] + dofs[j + 2].dqd)
        e_bar, w_bar = turn_adjoint(e, w, h, read_quat(q_bar, k))
        # only the direction of the quaternion counts
        write_quat(q_bar, k, (e_bar - e * wp.dot(e, e_bar)) / length)
        for n in range(3):
            qd_bar[j + n] = qd_bar[j + n] + w_bar[n]

    @wp.func
    def integrate_adjoint(
        model: Model, q: wp.array(dtype=real), qd: wp.array(dtype=real), dofs: wp.array(dtype=Dof),
        q_bar: wp.array(dtype=real), qd_bar: wp.array(dtype=real),
    ):  # fmt: skip
        """q_bar and qd_bar come in as adjoints of the next state, and leave as those of q and of the next rates."""
        h = model.dt
        for i in range(1, model.num_links):
            j = model.v_start[i]
            k = model.q_start[i]
            kind = model.joint_type[i]
            if kind == FREE:
                for n in range(3):
                    qd_bar[j + n] = qd_bar[j + n] + h * q_bar[k + n]
                joint_turn_adjoint(h, k + 3, j + 3, q, dofs, qd, q_bar, qd_bar)
            elif kind == SPHERICAL:
                joint_turn_adjoint(h, k, j, q, dofs, qd, q_bar, qd_bar)
            else:
                qd_bar[j] = qd_bar[j] + h * q_bar[k]

    @wp.func
    def rotation_adjoint(q: wp.array(dtype=real), k: int, phi: vec3, q_bar: wp.array(dtype=real)):
        """Add to q_bar what a rotation phi from the left of the quaternion at q[k] is worth."""
        e = read_quat(q, k)
        step = quat(phi[0], phi[1], phi[2], real(0.0)) * e * (real(2.0) / wp.dot(e, e))
        write_quat(q_bar, k, read_quat(q_bar, k) + step)

    return SimpleNamespace(**locals())
