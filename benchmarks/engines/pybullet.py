"""PyBullet: all robots of a batch in one world, PD torques computed in numpy as its Laikago examples do.

Not on the scoreboard: it has no gradients.
"""

import numpy as np
import pybullet
from pybullet_utils import bullet_client

from engines import standing

SPACING = 3.0  # m; robots of one world must not touch


class Standing(standing.Standing):
    name, package, dtype = "PyBullet", "pybullet", "float64"
    simulated = "reduced coordinates (btMultiBody), explicit drives in Python, all robots in one world"
    contact = "sequential impulses, at most 50 iterations"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.p = None

    def mass(self):
        count = self.p.getNumJoints(self.robots[0])
        return sum(self.p.getDynamicsInfo(self.robots[0], k)[0] for k in range(-1, count))

    def build(self, batch):
        if self.p is not None:
            self.p.disconnect()
        self.p = p = bullet_client.BulletClient(connection_mode=pybullet.DIRECT)
        p.setGravity(*self.scene.gravity)
        p.setTimeStep(self.dt)
        p.setPhysicsEngineParameter(numSolverIterations=self.scene.iterations)
        plane = p.createMultiBody(0, p.createCollisionShape(p.GEOM_PLANE))
        p.changeDynamics(plane, -1, lateralFriction=1.0, restitution=0.0)
        side = int(np.ceil(np.sqrt(batch)))
        cells = np.stack([np.arange(batch) // side, np.arange(batch) % side, np.zeros(batch)], axis=1)
        self.offsets = SPACING * cells
        self.robots = [p.loadURDF(str(self.scene.urdf), self.scene.q0[:3] + o) for o in self.offsets]
        names = [p.getJointInfo(self.robots[0], k)[1].decode() for k in range(p.getNumJoints(self.robots[0]))]
        self.joints = [names.index(name) for name in self.scene.joints]
        for robot in self.robots:
            p.setJointMotorControlArray(robot, self.joints, p.VELOCITY_CONTROL, forces=[0.0] * self.scene.nu)
            for link in range(-1, len(names)):
                p.changeDynamics(
                    robot, link, lateralFriction=self.scene.friction, restitution=0.0, linearDamping=0.0,
                    angularDamping=0.0, jointDamping=0.0,
                )  # fmt: skip

    def reset(self, q, qd, targets):
        p = self.p
        self.targets = np.array(targets)
        for robot, offset, a, b in zip(self.robots, self.offsets, q, qd):
            p.resetBasePositionAndOrientation(robot, a[:3] + offset, a[3:7])
            p.resetBaseVelocity(robot, b[:3], b[3:6])
            p.resetJointStatesMultiDof(robot, self.joints, [[x] for x in a[7:]], [[x] for x in b[6:]])

    def run(self, steps):
        p = self.p
        for _ in range(steps):
            for robot, target in zip(self.robots, self.targets):
                states = p.getJointStates(robot, self.joints)
                angle, speed = np.array([x[0] for x in states]), np.array([x[1] for x in states])
                tau = self.scene.drives(target, angle, speed)
                p.setJointMotorControlArray(robot, self.joints, p.TORQUE_CONTROL, forces=tau)
            p.stepSimulation()

    def state(self):
        q, qd = [], []
        for robot, offset in zip(self.robots, self.offsets):
            position, turn = self.p.getBasePositionAndOrientation(robot)
            joints = self.p.getJointStates(robot, self.joints)
            q.append([*(np.array(position) - offset), *turn, *(x[0] for x in joints)])
            qd.append([*np.ravel(self.p.getBaseVelocity(robot)), *(x[1] for x in joints)])
        return np.array(q), np.array(qd)
