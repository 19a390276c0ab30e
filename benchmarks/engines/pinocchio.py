"""Pinocchio: ABA and its analytical derivatives, integrated in a Python loop.

It has no contacts: the standing robot is given our ground forces, and of the scoreboard it runs the free motions.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pinocchio as pin

from engines import scoreboard, standing
from gradients.cases import REACH, ROD, SPIN_INERTIA, SPIN_RATE, SPIN_START, Case, matrix, turned_start

REST = 0.5  # m/s^2, rad/s^2: our feet's forces keep it at rest; gravity alone would give 9.81


def step(model, data, q, v, h: float, *forces):
    """Semi-implicit Euler; `forces` are what pin.aba takes after v: torques, and forces on the joints' bodies."""
    v = v + h * pin.aba(model, data, q, v, *forces)
    return pin.integrate(model, q, h * v), v


def linearise(model, data, q, v, *forces):
    """Acceleration, its derivatives by q and v, and the inverse of the mass matrix (its derivative by torques)."""
    pin.computeABADerivatives(model, data, q, v, *forces)
    inverse = np.triu(data.Minv) + np.triu(data.Minv, 1).T
    return data.ddq.copy(), data.ddq_dq.copy(), data.ddq_dv.copy(), inverse


class Standing(standing.Standing):
    name, package, dtype, stands = "Pinocchio ABA", "pin", "float64", False
    simulated = "reduced coordinates, ABA and semi-implicit Euler in a Python loop, explicit drives"
    contact = "none: our feet's forces, held constant"
    method = "computeABADerivatives, analytical, reverse over the steps"

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
        """In the frames of the lower legs, and constant there."""
        q, _ = self._theirs(self.scene.settled_q, np.zeros(self.scene.nv))
        pin.forwardKinematics(self.model, self.data, q)
        forces = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for leg, (point, force) in enumerate(zip(self.scene.foot_points, self.scene.foot_forces)):
            joint = self.model.getJointId(self.scene.joints[3 * leg + 2])
            forces[joint] = self.data.oMi[joint].actInv(pin.Force(force, np.cross(point, force)))
        found = pin.StdVec_Force()  # a plain list is not accepted
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
        tau[self.iv] = self.scene.drives(target, q[self.iq], v[self.iv])
        return tau

    def reset(self, q, qd, targets):
        self.states = [self._theirs(a, b) for a, b in zip(q, qd)]
        self.targets = np.array(targets)

    def run(self, steps):
        for e, (q, v) in enumerate(self.states):
            for _ in range(steps):
                tau = self._drives(q, v, self.targets[e])
                q, v = step(self.model, self.data, q, v, self.dt, tau, self.forces)
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
            a, dq, dv, inverse = linearise(m, data, q, v, self._drives(q, v, target), self.forces)
            drive = inverse[:, self.iv]
            dq[:, self.iv] -= self.scene.kp * drive
            dv[:, self.iv] -= self.scene.kd * drive
            v_next = v + h * a
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


class Scoreboard(scoreboard.Scoreboard):
    name, package = "Pinocchio", "pin"
    contact = "none"
    method = "computeABADerivatives and computeJointTorqueRegressor of each step, multiplied"
    models = ("swing", "double", "spin")
    missing: ClassVar = {
        "length_q": "Its derivatives live on the tangent space, which has no direction along the quaternion."
    }

    def build(self, case: Case, x: dict[str, float]):
        """Model, data, q, v, and the hinge's damping, which is applied as a torque."""
        model = pin.Model()
        model.gravity.linear[:] = (0.0, 0.0, -case.gravity)
        if case.model == "spin":
            joint = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "top")
            model.appendBodyToJoint(joint, pin.Inertia(1.0, np.zeros(3), np.diag(SPIN_INERTIA)), pin.SE3.Identity())
            q = np.concatenate([np.zeros(3), turned_start(x)])
            return model, model.createData(), q, np.concatenate([np.zeros(3), SPIN_RATE]), 0.0
        parent, rods = 0, 1 if case.model == "swing" else 2
        for k in range(rods):
            place = pin.SE3(np.eye(3), np.array([0.0, 0.0, -REACH * k]))
            parent = model.addJoint(parent, pin.JointModelRY(), place, f"rod{k}")
            com = np.array([0.0, 0.0, -x.get("length", ROD["length"])])
            inertia = np.diag([ROD["inertia"], x.get("inertia", ROD["inertia"]), ROD["inertia"]])
            model.appendBodyToJoint(parent, pin.Inertia(1.0, com, inertia), pin.SE3.Identity())
        if case.model == "swing":
            return model, model.createData(), np.array([x["angle"]]), np.zeros(1), x["damping"]
        return model, model.createData(), np.array([x["q1"], x["q2"]]), np.array([x["w1"], x["w2"]]), 0.0

    @staticmethod
    def output(case: Case, q: np.ndarray) -> tuple[float, np.ndarray]:
        """And its derivative on the tangent space."""
        if case.model == "spin":
            turn = matrix(q[3:7])
            return turn[2, 0], np.concatenate([np.zeros(3), turn.T @ np.cross(turn[:, 0], [0.0, 0.0, 1.0])])
        return q[-1], np.eye(len(q))[-1]

    def value(self, case, x):
        model, data, q, v, damping = self.build(case, x)
        for _ in range(self.steps(case)):
            q, v = step(model, data, q, v, self.dt(case), -damping * v)
        return self.output(case, q)[0]

    def gradient(self, case):
        model, data, q, v, damping = self.build(case, case.inputs)
        h, n = self.dt(case), model.nv
        own = ["inertia", "damping", "length"] if case.model == "swing" else []
        dq, dv = (np.eye(n, 2 * n + len(own), k) for k in (0, n))
        for _ in range(self.steps(case)):
            a, by_q, by_v, inverse = linearise(model, data, q, v, -damping * v)
            da = by_q @ dq + (by_v - damping * inverse) @ dv
            if own:
                da[:, 2 * n :] += inverse @ self.parameters(model, data, q, v, a, case)
            v, dv = v + h * a, dv + h * da
            along, across = pin.dIntegrate(model, q, h * v)
            q, dq = pin.integrate(model, q, h * v), along @ dq + h * across @ dv
        bar = self.output(case, q)[1] @ dq
        if case.model == "spin":
            return dict(zip(("rx", "ry", "rz"), map(float, matrix(SPIN_START) @ bar[3:6])))
        names = ["angle", "", *own] if case.model == "swing" else ["q1", "q2", "w1", "w2"]
        return {name: float(g) for name, g in zip(names, bar) if name}

    @staticmethod
    def parameters(model, data, q, v, a, case: Case) -> np.ndarray:
        """Torque by inertia, damping, length. Columns of the regressor: m, m com, xx, xy, yy about the joint."""
        regressor = np.reshape(pin.computeJointTorqueRegressor(model, data, q, v, a), 10)
        by_length = -regressor[3] + 2 * case.inputs["length"] * (regressor[4] + regressor[6])
        return -np.array([[regressor[6], v[0], by_length]])
