"""A model with all that physics schemas can say, built without files: for tests and benchmarks of exports."""

from __future__ import annotations

import numpy as np

from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, Model, Shape, ShapeType, assemble


def random_inertia(rng) -> np.ndarray:
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return turn @ np.diag([0.011, 0.02, 0.03]) @ turn.T


def machine() -> Model:
    """A fixed tree and a floating one with every joint type, skew axes and frames, limits, drives and springs."""
    rng = np.random.default_rng(0)

    def link(name, parent, kind, **more):
        more = {"mass": rng.uniform(0.5, 2.0), "com": 0.1 * rng.normal(size=3), "inertia": random_inertia(rng)} | more
        pos, quat = rng.normal(size=3), rng.normal(size=4)
        return Body(name, parent, f"{name} joint", kind, pos=pos, quat=quat, frame_pos=rng.normal(size=3), **more)

    bodies = [
        link("tower", WORLD, JointType.REVOLUTE, axis=-np.eye(3)[1], lower=-0.5, upper=1.5),
        link("lift", 0, JointType.PRISMATIC, axis=np.array([0.6, 0.0, 0.8]), lower=-0.2, upper=0.3, damping=2.0),
        link("arm", 1, JointType.REVOLUTE, axis=rng.normal(size=3), stiffness=5.0, spring_ref=0.4, armature=0.02),
        link("hand", 2, JointType.SPHERICAL),
        link("float", WORLD, JointType.FREE),
        link("rod", 4, JointType.REVOLUTE, axis=np.eye(3)[0], upper=1.0, frictionloss=0.3),
        link("loose", WORLD, JointType.FREE),
    ]
    shapes = [Shape(ShapeType.SPHERE, i, np.array([0.05]), 0.1 * rng.normal(size=3), friction=0.7, restitution=0.1)
              for i in range(7)]  # fmt: skip
    shapes += [Shape(ShapeType.BOX, 3, np.full(3, 0.1), collide=False), Shape(ShapeType.PLANE, WORLD, np.zeros(0))]
    drives = [
        Drive("tower joint", DriveType.POSITION, gear=2.0, kp=80.0, kd=3.0, effort=50.0, u0=0.2),
        Drive("lift joint", DriveType.VELOCITY, kd=6.0, u0=0.5),
        Drive("rod joint", DriveType.TORQUE, gear=3.0),
    ]
    return assemble("machine", bodies, shapes, drives, exclude=[], gravity=(0.0, 3.0, -4.0))
