"""Nimble (DART with gradients): one world after the other, drives as torques. Its world is Y-up."""

import re

import nimblephysics as nimble
import numpy as np
from peer_common import Engine, main

# z up to y up: turns of -90 degrees about x
TURN = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def matrix(q):
    """Of a quaternion xyzw."""
    x, y, z, w = q
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def quaternion(R):
    """xyzw of a small turn: w is not near zero."""
    w = np.sqrt(max(1 + np.trace(R), 1e-12)) / 2
    return np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1], 4 * w * w]) / (4 * w)


class Nimble(Engine):
    name, package, dtype = "Nimble", "nimblephysics", "float64"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives in Python, one world per robot in turn"
    contact = "LCP, Coulomb friction"
    gradient_method = "backpropState of each step"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.world = None

    def mass(self):
        return self.robot.getMass()

    def build(self, batch):
        if self.world is not None:
            return
        self.world = world = nimble.simulation.World()
        world.setGravity(list(TURN @ self.scene.gravity))
        world.setTimeStep(self.dt)
        self.robot = world.loadSkeleton(str(self.scene.urdf))
        ground = nimble.dynamics.Skeleton()
        _, body = ground.createWeldJointAndBodyNodePair()
        shape = body.createShapeNode(nimble.dynamics.BoxShape([20.0, 1.0, 20.0]))
        shape.createCollisionAspect()
        shape.setRelativeTranslation([0.0, -0.5, 0.0])
        body.setFrictionCoeff(self.scene.friction)
        world.addSkeleton(ground)
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
        s, tau = self.scene, np.zeros(self.n)
        angle, speed = state[: self.n][self.dofs], state[self.n :][self.dofs]
        tau[self.dofs] = np.clip(s.kp * (target - angle) - s.kd * speed, -s.effort, s.effort)
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
            # the drives are ours, so is their derivative
            bar[self.dofs] -= s.kp * tau_bar
            bar[n + self.dofs] -= s.kd * tau_bar
            u_bar += s.kp * tau_bar
        return np.concatenate([TURN.T @ start @ bar[n + 3 : n + 6], u_bar])


if __name__ == "__main__":
    main(Nimble)
