"""Pinocchio: ABA and its analytical derivatives. It has no contacts, so the ground's forces are given to it."""

import numpy as np
import pinocchio as pin
from peer_common import Engine, main

REST = 0.5  # m/s^2, rad/s^2: our feet's forces keep it at rest; gravity alone would give 9.81


class Pinocchio(Engine):
    name, package, dtype, stands = "Pinocchio ABA", "pin", "float64", False
    simulated = "reduced coordinates, ABA and semi-implicit Euler in a Python loop, explicit drives"
    contact = "none: our feet's forces, held constant"
    gradient_method = "computeABADerivatives, analytical, reverse over the steps"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.model = pin.buildModelFromUrdf(str(scene.urdf), pin.JointModelFreeFlyer())
        order = [self.model.getJointId(name) for name in scene.joints]  # Pinocchio sorts joints by name
        self.iq = np.array([self.model.joints[j].idx_q for j in order])
        self.iv = np.array([self.model.joints[j].idx_v for j in order])
        self.data = self.model.createData()

    def mass(self):
        return pin.computeTotalMass(self.model)

    def build(self, batch):
        self.forces = self._foot_forces()
        q, v = self._theirs(self.scene.settled_q, np.zeros(self.scene.nv))
        a = pin.aba(self.model, self.data, q, v, self._drives(q, v, self.scene.u0), self.forces)
        if np.abs(a[:3]).max() > REST:
            raise ValueError(f"our feet's forces accelerate its base by {np.abs(a[:3]).max():.2f} m/s^2: another robot")

    def _foot_forces(self):
        """In the frames of the lower legs, where they stay."""
        q, _ = self._theirs(self.scene.settled_q, np.zeros(self.scene.nv))
        pin.forwardKinematics(self.model, self.data, q)
        forces = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for leg, (point, force) in enumerate(zip(self.scene.foot_points, self.scene.foot_forces)):
            joint = self.model.getJointId(self.scene.joints[3 * leg + 2])
            forces[joint] = self.data.oMi[joint].actInv(pin.Force(force, np.cross(point, force)))
        # Pinocchio wants its own kind of list
        found = pin.StdVec_Force()
        found.extend(forces)
        return found

    def _theirs(self, q, qd):
        """Joints in their order, velocity of the base in its own axes."""
        q2, v2 = np.zeros(self.model.nq), np.zeros(self.model.nv)
        turn = pin.Quaternion(np.array(q[3:7])).matrix()
        q2[:7], v2[:3], v2[3:6] = q[:7], turn.T @ qd[:3], turn.T @ qd[3:6]
        q2[self.iq], v2[self.iv] = q[7:], qd[6:]
        return q2, v2

    def _drives(self, q, v, target):
        tau = np.zeros(self.model.nv)
        tau[self.iv] = np.clip(
            self.scene.kp * (target - q[self.iq]) - self.scene.kd * v[self.iv], -self.scene.effort, self.scene.effort
        )
        return tau

    def reset(self, q, qd, targets):
        self.states = [self._theirs(a, b) for a, b in zip(q, qd)]
        self.targets = np.array(targets)

    def _step(self, q, v, target):
        a = pin.aba(self.model, self.data, q, v, self._drives(q, v, target), self.forces)
        v = v + self.dt * a
        return pin.integrate(self.model, q, self.dt * v), v

    def run(self, steps):
        for e, (q, v) in enumerate(self.states):
            for _ in range(steps):
                q, v = self._step(q, v, self.targets[e])
            self.states[e] = q, v

    def state(self):
        qs = np.array([np.concatenate([q[:7], q[self.iq]]) for q, _ in self.states])
        qds = []
        for q, v in self.states:
            turn = pin.Quaternion(q[3:7]).matrix()
            qds.append(np.concatenate([turn @ v[:3], turn @ v[3:6], v[self.iv]]))
        return qs, np.array(qds)

    def gradient(self, steps):
        return np.array([self._gradient(q, v, u, steps) for (q, v), u in zip(self.states, self.targets)])

    def _gradient(self, q, v, target, steps):
        m, data, h, nv = self.model, self.data, self.dt, self.model.nv
        start = pin.Quaternion(q[3:7]).matrix()
        jacobians = []
        for _ in range(steps):
            pin.computeABADerivatives(m, data, q, v, self._drives(q, v, target), self.forces)
            inverse = np.triu(data.Minv) + np.triu(data.Minv, 1).T
            drive = inverse[:, self.iv]
            dq, dv = data.ddq_dq.copy(), data.ddq_dv.copy()
            dq[:, self.iv] -= self.scene.kp * drive
            dv[:, self.iv] -= self.scene.kd * drive
            v_next = v + h * data.ddq
            by_q, by_v = pin.dIntegrate(m, q, h * v_next)
            jacobians.append((dq, dv, self.scene.kp * drive, by_q, by_v))
            q, v = pin.integrate(m, q, h * v_next), v_next
        # the base's tangent is in its own axes, the loss in the world's
        q_bar, v_bar, u_bar = np.zeros(nv), np.zeros(nv), np.zeros(self.scene.nu)
        q_bar[:3] = pin.Quaternion(q[3:7]).matrix().T @ np.array([1.0, 0.0, 1.0])
        for dq, dv, du, by_q, by_v in reversed(jacobians):
            next_bar = v_bar + h * (q_bar @ by_v)
            u_bar += h * (next_bar @ du)
            q_bar, v_bar = q_bar @ by_q + h * (next_bar @ dq), next_bar + h * (next_bar @ dv)
        return np.concatenate([start @ v_bar[:3], u_bar])


if __name__ == "__main__":
    main(Pinocchio)
