"""Pinocchio on the truth cases without contacts: computeABADerivatives and the torque regressor, over the steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pinocchio as pin
from truth_common import REACH, ROD, SPIN_INERTIA, SPIN_RATE, SPIN_START, Case, Engine, main, matrix, turned_start


class Pinocchio(Engine):
    name, package = "Pinocchio", "pin"
    contact = "none"
    method = "computeABADerivatives and computeJointTorqueRegressor of each step, multiplied"
    models = ("swing", "double", "spin")
    missing: ClassVar = {
        "length_q": "Its derivatives live on the tangent space, which has no direction along the quaternion."
    }

    def build(self, case: Case, x: dict[str, float]):
        """Model, data, q, v, and the hinge's damping, which is a torque that we give to it."""
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
        h = self.dt(case)
        for _ in range(self.steps(case)):
            v = v + h * pin.aba(model, data, q, v, -damping * v)
            q = pin.integrate(model, q, h * v)
        return self.output(case, q)[0]

    def gradient(self, case):
        model, data, q, v, damping = self.build(case, case.inputs)
        h, n = self.dt(case), model.nv
        own = ["inertia", "damping", "length"] if case.model == "swing" else []
        dq, dv = (np.eye(n, 2 * n + len(own), k) for k in (0, n))
        for _ in range(self.steps(case)):
            pin.computeABADerivatives(model, data, q, v, -damping * v)
            inverse = np.triu(data.Minv) + np.triu(data.Minv, 1).T
            a, by_q, by_v = data.ddq.copy(), data.ddq_dq.copy(), data.ddq_dv.copy() - damping * inverse
            da = by_q @ dq + by_v @ dv
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


if __name__ == "__main__":
    main(Pinocchio)
