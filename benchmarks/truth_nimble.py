"""Nimble (DART with gradients) on the truth cases: backpropState of each step. Its world is Y-up."""

from __future__ import annotations

from typing import ClassVar

import nimblephysics as nimble
import numpy as np
from truth_common import MASS, RADIUS, REACH, ROD, SPIN_INERTIA, SPIN_RATE, Case, Engine, main, matrix, turned_start

UP = np.array([0.0, 1.0, 0.0])
STATE = {"v0": (0, 1), "y0": (0, 0), "angle": (0, 0), "q1": (0, 0), "q2": (1, 0), "w1": (0, 1), "w2": (1, 1)}


class Nimble(Engine):
    name, package = "Nimble", "nimblephysics"
    contact = "LCP, Coulomb friction, restitution at a fixed step"
    method = "backpropState of each step, analytical"
    missing: ClassVar = {
        "mu": "It does not differentiate by friction.",
        "a": "It does not differentiate by gravity.",
        "e": "It does not differentiate by restitution.",
        "damping": "It does not differentiate by the damping of a joint.",
        "length_q": "Orientations are rotation vectors; there is no quaternion.",
    }

    def build(self, case: Case, x: dict[str, float]):
        """World and the first state; positions, then velocities."""
        world, a = nimble.simulation.World(), x.get("a", 0.0)
        world.setTimeStep(self.dt(case))
        world.setGravity(list(case.gravity * np.array([np.sin(a), -np.cos(a), 0.0])))
        skeleton = nimble.dynamics.Skeleton()
        if case.model in ("slide", "bounce"):
            if case.model == "slide":
                _, body = skeleton.createTranslationalJointAndBodyNodePair()
                state = [0.0, RADIUS, 0.0, x["v0"], 0.0, 0.0]
            else:
                joint, body = skeleton.createPrismaticJointAndBodyNodePair()
                joint.setAxis(UP)
                state = [x["y0"] + RADIUS, x["v0"]]
            mass = x.get("m", MASS) if case.model == "slide" else 1.0
            body.setInertia(nimble.dynamics.Inertia(mass, np.zeros(3), 0.01 * np.eye(3)))
            body.createShapeNode(nimble.dynamics.SphereShape(RADIUS)).createCollisionAspect()
            self.touch(world, body, x)
        elif case.model == "spin":
            _, body = skeleton.createFreeJointAndBodyNodePair()
            body.setInertia(nimble.dynamics.Inertia(1.0, np.zeros(3), np.diag(SPIN_INERTIA)))
            turn = nimble.math.logMap(matrix(turned_start(x)))
            state = [*turn, 0.0, 0.0, 0.0, *SPIN_RATE, 0.0, 0.0, 0.0]
        else:
            body = self.rod(skeleton, None, x)
            state = [x.get("angle", 0.0), 0.0]
            if case.model == "double":
                self.rod(skeleton, body, x)
                state = [x["q1"], x["q2"], x["w1"], x["w2"]]
        world.addSkeleton(skeleton)
        self.body = skeleton.getBodyNode(0)
        world.setState(np.array(state))
        return world

    @staticmethod
    def touch(world, body, x: dict[str, float]) -> None:
        """A floor, whose friction and restitution are those of the pair."""
        floor = nimble.dynamics.Skeleton()
        _, ground = floor.createWeldJointAndBodyNodePair()
        shape = ground.createShapeNode(nimble.dynamics.BoxShape([20.0, 1.0, 20.0]))
        shape.createCollisionAspect()
        shape.setRelativeTranslation([0.0, -0.5, 0.0])
        world.addSkeleton(floor)
        for each, e in ((body, x.get("e", 0.0)), (ground, 1.0)):  # it multiplies restitutions
            each.setFrictionCoeff(x.get("mu", 0.0))
            each.setRestitutionCoeff(e)

    @staticmethod
    def rod(skeleton, parent, x: dict[str, float]):
        if parent is None:
            joint, body = skeleton.createRevoluteJointAndBodyNodePair()
        else:
            joint, body = skeleton.createRevoluteJointAndBodyNodePair(parent)
            place = nimble.math.Isometry3()
            place.set_translation(-REACH * UP)
            joint.setTransformFromParentBodyNode(place)
        joint.setAxis([0.0, 0.0, 1.0])
        joint.setDampingCoefficient(0, x.get("damping", 0.0))
        inertia = x.get("inertia", ROD["inertia"])
        com = -x.get("length", ROD["length"]) * UP
        body.setInertia(nimble.dynamics.Inertia(1.0, com, inertia * np.eye(3)))
        return body

    @staticmethod
    def output(case: Case, place: np.ndarray) -> float:
        if case.model == "spin":
            return nimble.math.expMapRot(place[:3])[2, 0]
        return place[-1 if case.model == "double" else 0] - RADIUS * (case.model == "bounce")

    def value(self, case, x):
        world = self.build(case, x)
        for _ in range(self.steps(case)):
            world.step()
        return self.output(case, np.array(world.getPositions()))

    def gradient(self, case):
        world, kinds = self.build(case, case.inputs), nimble.neural.WrtMassBodyNodeEntryType
        n = world.getNumDofs()
        if "m" in case.inputs:
            world.tuneMass(self.body, kinds.MASS, np.array([10.0]), np.array([0.1]))
        if case.model == "swing":
            world.tuneMass(self.body, kinds.INERTIA_FULL, np.full(10, 10.0), np.full(10, -10.0))
        snapshots = [nimble.neural.forwardPass(world) for _ in range(self.steps(case))]
        end = np.array(world.getPositions())
        bar = np.concatenate([self.slopes(lambda r: self.output(case, r), end), np.zeros(n)])
        by_mass = 0.0
        for snapshot in reversed(snapshots):
            found = snapshot.backpropState(world, bar)
            bar = np.array(found.lossWrtState).ravel()
            by_mass = by_mass + np.array(found.lossWrtMass).ravel()
        if case.model == "spin":
            names = ("rx", "ry", "rz")

            def first(r):
                return nimble.math.logMap(matrix(turned_start({**case.inputs, **dict(zip(names, r))})))

            return {name: float(bar[:3] @ self.slopes(first, np.zeros(3))[k]) for k, name in enumerate(names)}
        known = {name: float(bar[k + n * v]) for name, (k, v) in STATE.items() if name in case.inputs}
        if "m" in case.inputs:
            known["m"] = float(by_mass[0])
        if case.model == "swing":
            # in the order of mass, com (3), xx, yy, zz
            known |= {"inertia": float(by_mass[6]), "length": -float(by_mass[2])}
        return known

    @staticmethod
    def slopes(f, x: np.ndarray) -> np.ndarray:
        """Of plain arithmetic, by central differences."""
        return np.array([(f(x + d) - f(x - d)) / 2e-5 for d in 1e-5 * np.eye(len(x))])


if __name__ == "__main__":
    main(Nimble)
