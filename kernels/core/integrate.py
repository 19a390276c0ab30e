"""Semi-implicit Euler step of positions with the new velocities; rotations by the exponential map."""

import warp as wp

from ..types import FREE, SPHERICAL, exports, stage


def make_integrate(t, kinematics):
    real, vec3, quat = t.real, t.vec3, t.quat
    Env, EnvBar = t.Env, t.EnvBar
    TOO_FAST = wp.constant(real(1e6))  # rad/s or m/s: no robot moves that fast
    read_quat = kinematics.read_quat

    @wp.func
    def sinc(f2: real):
        """sin(f) / f from f^2: a series near zero, where the quotient loses its meaning."""
        k = real(1.0) - f2 / real(6.0) * (real(1.0) - f2 / real(20.0) * (real(1.0) - f2 / real(42.0)))
        if f2 > real(1e-3):
            f = wp.sqrt(f2)
            k = wp.sin(f) / f
        return k

    @wp.func
    def turn(r: quat, w: vec3, h: real):
        """The unit quaternion r after turning at rate w (in the frame that r leads to) for a time h."""
        f2 = wp.dot(w, w) * (h * h * real(0.25))
        k = sinc(f2) * h * real(0.5)
        return quat(k * w[0], k * w[1], k * w[2], wp.cos(wp.sqrt(f2))) * r

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
    def turn_adjoint(r: quat, w: vec3, h: real, next_bar: quat):
        """Returns r_bar and w_bar."""
        half = h * real(0.5)
        f2 = wp.dot(w, w) * (half * half)
        k = sinc(f2)
        step_bar = next_bar * wp.quat_inverse(r)  # of the rotation that r is multiplied with
        v_bar = vec3(step_bar[0], step_bar[1], step_bar[2])
        along = half * half * (half * sinc_slope(f2) * wp.dot(v_bar, w) - k * step_bar[3])
        c = -k * half
        r_bar = quat(c * w[0], c * w[1], c * w[2], wp.cos(wp.sqrt(f2))) * next_bar
        return r_bar, v_bar * (k * half) + w * along

    @wp.func
    def write_quat(q: wp.array(dtype=real), start: int, r: quat):
        for j in range(4):
            q[start + j] = r[j]

    @wp.func
    def diverges(e: wp.ref[Env]):
        """True if some new rate is not a number or beyond all bounds."""
        bad = bool(False)
        for j in range(e.model.num_dofs):
            if not (wp.abs(e.qd[j] + e.dofs[j].dqd) < TOO_FAST):
                bad = True
        return bad

    @wp.func
    def rate(e: wp.ref[Env], j: int, share: real):
        """Of dof j, after a share of its change over the step."""
        return e.qd[j] + share * e.dofs[j].dqd

    @wp.func
    def rates(e: wp.ref[Env], j: int, share: real):
        """The same for three dofs from j on."""
        return vec3(rate(e, j, share), rate(e, j + 1, share), rate(e, j + 2, share))

    @stage
    def move(e: wp.ref[Env], q_next: wp.array(dtype=real), t: real, share: real):
        """Positions after a time t at the rates `rate(e, j, share)`; q_next may be q."""
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            k = e.model.q_start[i]
            kind = e.model.joint_type[i]
            if kind == FREE:
                for n in range(3):
                    q_next[k + n] = e.q[k + n] + t * rate(e, j + n, share)
                write_quat(q_next, k + 3, turn(wp.normalize(read_quat(e.q, k + 3)), rates(e, j + 3, share), t))
            elif kind == SPHERICAL:
                write_quat(q_next, k, turn(wp.normalize(read_quat(e.q, k)), rates(e, j, share), t))
            else:
                q_next[k] = e.q[k] + t * rate(e, j, share)

    @stage
    def integrate(e: wp.ref[Env], q_next: wp.array(dtype=real), qd_next: wp.array(dtype=real)):
        """q_next may be q, and qd_next qd."""
        move(e, q_next, e.model.dt, real(1.0))
        for j in range(e.model.num_dofs):
            qd_next[j] = rate(e, j, real(1.0))

    @wp.func
    def quat_move_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, j: int, d: vec3):
        """The quaternion at q[k] that the displacement d of the dofs from j on turns; adjoint of d to e_bar.extra."""
        r = read_quat(e.q, k)
        length = wp.length(r)
        r = r / length
        r_bar, d_bar = turn_adjoint(r, d, real(1.0), read_quat(e_bar.q, k))
        write_quat(e_bar.q, k, (r_bar - r * wp.dot(r, r_bar)) / length)
        for n in range(3):
            e_bar.extra[j + n] = d_bar[n]

    @stage
    def move_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], t: real, share: real):
        """Of `move`: e_bar.q comes in as adjoint of q_next and leaves as that of q; extra: that of the displacement."""
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            k = e.model.q_start[i]
            kind = e.model.joint_type[i]
            if kind == FREE:
                for n in range(3):
                    e_bar.extra[j + n] = e_bar.q[k + n]
                quat_move_adjoint(e, e_bar, k + 3, j + 3, rates(e, j + 3, share) * t)
            elif kind == SPHERICAL:
                quat_move_adjoint(e, e_bar, k, j, rates(e, j, share) * t)
            else:
                e_bar.extra[j] = e_bar.q[k]

    @wp.func
    def joint_turn_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, j: int):
        """The quaternion at q[k] that the rates from dof j on turn."""
        r = read_quat(e.q, k)
        length = wp.length(r)
        r = r / length
        r_bar, w_bar = turn_adjoint(r, rates(e, j, real(1.0)), e.model.dt, read_quat(e_bar.q, k))
        # only the direction of the quaternion counts
        write_quat(e_bar.q, k, (r_bar - r * wp.dot(r, r_bar)) / length)
        for n in range(3):
            e_bar.qd[j + n] = e_bar.qd[j + n] + w_bar[n]

    @stage
    def integrate_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """e_bar.q and qd come in as adjoints of the next state, and leave as those of q and of the next rates."""
        h = e.model.dt
        for i in range(1, e.model.num_links):
            j = e.model.v_start[i]
            k = e.model.q_start[i]
            kind = e.model.joint_type[i]
            if kind == FREE:
                for n in range(3):
                    e_bar.qd[j + n] = e_bar.qd[j + n] + h * e_bar.q[k + n]
                joint_turn_adjoint(e, e_bar, k + 3, j + 3)
            elif kind == SPHERICAL:
                joint_turn_adjoint(e, e_bar, k, j)
            else:
                e_bar.qd[j] = e_bar.qd[j] + h * e_bar.q[k]

    @wp.func
    def rotation_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], k: int, phi: vec3):
        """Add the gradient phi by a rotation from the left of the quaternion at q[k] to e_bar.q."""
        r = read_quat(e.q, k)
        step = quat(phi[0], phi[1], phi[2], real(0.0)) * r * (real(2.0) / wp.dot(r, r))
        write_quat(e_bar.q, k, read_quat(e_bar.q, k) + step)

    return exports(integrate, integrate_adjoint, move, move_adjoint, rate, rates, rotation_adjoint, diverges, sinc)
