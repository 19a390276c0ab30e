"""Nimble (DART with gradients): one world after the other, backpropState of each step. Its world is Y-up."""

from __future__ import annotations

import re
from typing import ClassVar

import nimblephysics as nimble
import numpy as np

from engines import scoreboard, standing
from gradients.cases import MASS, RADIUS, REACH, ROD, SPIN_INERTIA, SPIN_RATE, Case, matrix, turned_start

UP = np.array([0.0, 1.0, 0.0])
# z up to y up: a turn of -90 degrees about x
TURN = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
# where an input of a case is in the state: index, and 0 for positions, 1 for velocities
INPUTS = {"v0": (0, 1), "y0": (0, 0), "angle": (0, 0), "q1": (0, 0), "q2": (1, 0), "w1": (0, 1), "w2": (1, 1)}


def quaternion(R):
    """xyzw of a small turn: w is not near zero."""
    w = np.sqrt(max(1 + np.trace(R), 1e-12)) / 2
    return np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], 4 * w * w]) / (4 * w)


def make_world(dt: float, gravity):
    world = nimble.simulation.World()
    world.setTimeStep(dt)
    world.setGravity(list(gravity))
    return world


def add_floor(world):
    """A box whose top is at height 0; returns its body."""
    floor = nimble.dynamics.Skeleton()
    _, body = floor.createWeldJointAndBodyNodePair()
    shape = body.createShapeNode(nimble.dynamics.BoxShape([20.0, 1.0, 20.0]))
    shape.createCollisionAspect()
    shape.setRelativeTranslation([0.0, -0.5, 0.0])
    world.addSkeleton(floor)
    return body


class Nimble:
    name, package, dtype = "Nimble", "nimblephysics", "float64"


class Standing(Nimble, standing.Standing):
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives in Python, one world per robot in turn"
    contact = "LCP, Coulomb friction"
    method = "backpropState of each step"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.world = None

    def mass(self):
        return self.robot.getMass()

    def build(self, batch):
        if self.world is not None:
            return
        self.world = make_world(self.dt, TURN @ self.scene.gravity)
        self.robot = self.world.loadSkeleton(str(self.scene.urdf))
        add_floor(self.world).setFrictionCoeff(self.scene.friction)
        for k in range(self.robot.getNumBodyNodes()):
            self.robot.getBodyNode(k).setFrictionCoeff(self.scene.friction)
        names = [self.robot.getDofByIndex(k).getName() for k in range(self.robot.getNumDofs())]
        self.dofs = np.array(
            [next(k for k, n in enumerate(names) if re.match(f"{j}($|_)", n)) for j in self.scene.joints]
        )
        self.n = self.robot.getNumDofs()

    def _theirs(self, q, qd):
        """DART's free joint has a rotation vector, then a position; its velocity is in the body's axes."""
        R = TURN @ matrix(q[3:7])
        x, v = np.zeros(self.n), np.zeros(self.n)
        x[:3], x[3:6], x[self.dofs] = nimble.math.logMap(R), TURN @ q[:3], q[7:]
        v[:3], v[3:6], v[self.dofs] = R.T @ TURN @ qd[3:6], R.T @ TURN @ qd[:3], qd[6:]
        return np.concatenate([x, v])

    def _ours(self, state):
        x, v = state[: self.n], state[self.n :]
        R = nimble.math.expMapRot(x[:3])
        q = np.concatenate([TURN.T @ x[3:6], quaternion(TURN.T @ R), x[self.dofs]])
        return q, np.concatenate([TURN.T @ R @ v[3:6], TURN.T @ R @ v[:3], v[self.dofs]])

    def reset(self, q, qd, targets):
        self.states = [self._theirs(a, b) for a, b in zip(q, qd)]
        self.targets = np.array(targets)

    def _torques(self, state, target):
        tau = np.zeros(self.n)
        tau[self.dofs] = self.scene.drives(target, state[: self.n][self.dofs], state[self.n :][self.dofs])
        return tau

    def run(self, steps):
        for e, state in enumerate(self.states):
            for _ in range(steps):
                self.world.setState(state)
                self.world.setControlForces(self._torques(state, self.targets[e]))
                self.world.step()
                state = self.world.getState()
            self.states[e] = state

    def state(self):
        q, qd = zip(*(self._ours(state) for state in self.states))
        return np.array(q), np.array(qd)

    def gradient(self, steps):
        return np.array([self._gradient(state, u, steps) for state, u in zip(self.states, self.targets)])

    def _gradient(self, state, target, steps):
        n, s, snapshots = self.n, self.scene, []
        start = nimble.math.expMapRot(state[:3])
        for _ in range(steps):
            self.world.setState(state)
            self.world.setControlForces(self._torques(state, target))
            snapshots.append(nimble.neural.forwardPass(self.world))
            state = self.world.getState()
        bar, u_bar = np.zeros(2 * n), np.zeros(s.nu)
        bar[3:6] = TURN @ np.array([1.0, 0.0, 1.0])
        for snapshot in reversed(snapshots):
            found = snapshot.backpropState(self.world, bar)
            bar = np.array(found.lossWrtState).ravel()
            tau_bar = np.array(found.lossWrtAction).ravel()[self.dofs]
            # the drives are computed here, and so is their derivative
            bar[self.dofs] -= s.kp * tau_bar
            bar[n + self.dofs] -= s.kd * tau_bar
            u_bar += s.kp * tau_bar
        return np.concatenate([TURN.T @ start @ bar[n + 3 : n + 6], u_bar])


class Scoreboard(Nimble, scoreboard.Scoreboard):
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
        a = x.get("a", 0.0)
        world = make_world(self.dt(case), case.gravity * np.array([np.sin(a), -np.cos(a), 0.0]))
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
        for each, e in ((body, x.get("e", 0.0)), (add_floor(world), 1.0)):  # it multiplies restitutions
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
        known = {name: float(bar[k + n * v]) for name, (k, v) in INPUTS.items() if name in case.inputs}
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
