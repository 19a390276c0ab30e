"""Semi-implicit Euler step of positions with the new velocities; rotations by the exponential map."""

from types import SimpleNamespace

import warp as wp

from .types import FREE, SPHERICAL


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

    return SimpleNamespace(**locals())
