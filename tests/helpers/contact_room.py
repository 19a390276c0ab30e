"""What the contact tests share: a room with one body of each kind, on a floor or a slope, in float64.

All bodies live in one model, so that one compiled kernel serves every test; each test looks at its own bodies. Only
the pairs below can touch, so bodies that a test does not use cannot disturb it.
"""

import numpy as np
import torch

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, Shape, ShapeType, assemble

G = 9.81
UP = np.array([0.0, 0.0, 0.0, 1.0])
HULL = np.array(
    [[x * (0.12 - 0.3 * z), y * (0.12 - 0.3 * z), z] for x in (-1, 1) for y in (-1, 1) for z in (-0.1, 0.1)]
)
FREE = {  # body: mass, inertia (diagonal), place at rest
    "block": (2.0, (0.01, 0.01, 0.02), (0, 0, 0.05)),  # its com is in its base, so that friction has no lever
    "brick": (2.0, (0.01, 0.01, 0.02), (2, 0, 0.05)),  # the same with its com in the middle
    "ball": (1.0, (0.004, 0.004, 0.004), (4, 0, 0.1)),
    "heavy ball": (3.0, (0.012, 0.012, 0.012), (6, 0, 0.1)),
    "capsule": (1.0, (0.006, 0.006, 0.002), (8, 0, 0.15)),
    "cylinder": (1.0, (0.01, 0.01, 0.005), (10, 0, 0.15)),
    "hull": (1.0, (0.004, 0.004, 0.004), (12, 0, 0.1)),
}
SHAPES = {
    "block": (ShapeType.BOX, (0.1, 0.1, 0.05)),
    "brick": (ShapeType.BOX, (0.1, 0.1, 0.05)),
    "ball": (ShapeType.SPHERE, (0.1, 0, 0)),
    "heavy ball": (ShapeType.SPHERE, (0.1, 0, 0)),
    "capsule": (ShapeType.CAPSULE, (0.05, 0.1, 0)),
    "cylinder": (ShapeType.CYLINDER, (0.1, 0.15, 0)),
    "hull": (ShapeType.MESH, (0, 0, 0)),
    "floor": (ShapeType.PLANE, (0, 0, 0)),
    "table": (ShapeType.BOX, (0.5, 0.5, 0.5)),  # part of the world, like the next one
    "knob": (ShapeType.SPHERE, (0.5, 0, 0)),
    "cart1": (ShapeType.SPHERE, (0.1, 0, 0)),  # two carts on one free rail: a collision inside a tree
    "cart2": (ShapeType.SPHERE, (0.1, 0, 0)),
}
PAIRS = [(name, "floor") for name in FREE]
PAIRS += [("ball", "heavy ball"), ("cart1", "cart2"), ("ball", "table"), ("knob", "brick")]


def room_model(floor_quat=UP):
    """The room; the floor goes through the origin, turned by floor_quat."""
    bodies, shapes = [], []
    for name, (mass, inertia, place) in FREE.items():
        com = np.array([0, 0, -0.05 if name == "block" else 0.0])
        pos = np.array(place, float)
        bodies.append(Body(name, WORLD, name, JointType.FREE, pos=pos, mass=mass, com=com, inertia=np.diag(inertia)))
    bodies.append(Body("rail", WORLD, "rail", JointType.FREE, pos=np.array([0, 5, 1.0]), mass=1.0, inertia=np.eye(3)))
    for k, mass in ((1, 1.0), (2, 2.5)):
        pos, axis = np.array([0.5 * k, 0.2 + 0.1 * k, 0]), np.array([1.0, 0, 0])
        inertia = np.eye(3) * 0.004
        cart = Body(f"cart{k}", len(FREE), f"cart{k}", JointType.PRISMATIC, pos, axis=axis, mass=mass, inertia=inertia)
        bodies.append(cart)
    for name, kind, axis in (("arm", JointType.REVOLUTE, (0, 0, 1.0)), ("piston", JointType.PRISMATIC, (1.0, 0, 0))):
        bodies.append(
            Body(name, WORLD, name, kind, axis=np.array(axis), mass=2.0, inertia=np.eye(3), lower=-0.5, upper=0.3)
        )
    names = [body.name for body in bodies]
    for name, (kind, size) in SHAPES.items():
        place = {"table": (0, 0, 20.0), "knob": (0, 0, 30.0)}.get(name, (0, 0, 0))
        link = names.index(name) if name in names else WORLD
        quat = floor_quat if name == "floor" else UP
        corners = HULL if name == "hull" else None
        shapes.append(Shape(kind, link, np.array(size), np.array(place), quat, name, name, vertices=corners))
    drives = [
        Drive("arm", DriveType.POSITION, kp=200.0, kd=20.0, effort=80.0, u0=0.0),
        Drive("piston", DriveType.TORQUE, effort=50.0),
    ]
    order = list(SHAPES)
    pairs = [(order.index(a), order.index(b), 0.5, 0.0) for a, b in PAIRS]
    return assemble("room", bodies, shapes, drives, pairs=pairs)


def rest_depth(force, dt=1e-3, erp=0.2, cfm=1e-2):
    """How deep a contact that carries `force` rests: there erp depth / dt = cfm force dt."""
    return cfm * force * dt * dt / erp


class Room:
    """Some environments of the room and their starting state."""

    def __init__(self, num_envs=1, floor_quat=UP, **options):
        self.model = room_model(floor_quat)
        self.sim = wa.Simulator(self.model, num_envs, device="cpu", dtype="float64", **options)
        self.q, self.qd = self.sim.initial_state()
        self.u = self.sim.initial_control()

    def place(self, body, pos=None, quat=None, velocity=None, spin=None):
        """Starting state of a free body, (3,) or (num_envs, 3) each, quaternion (4,) or (num_envs, 4)."""
        q, v = self.model.joint_q(body).start, self.model.joint_v(body).start
        for target, at, value in (
            (self.q, q, pos),
            (self.q, q + 3, quat),
            (self.qd, v, velocity),
            (self.qd, v + 3, spin),
        ):
            if value is not None:
                value = torch.as_tensor(np.asarray(value, float))
                target[:, at : at + value.shape[-1]] = value

    def run(self, steps, **params):
        """Simulate from the starting state; then `at` and `speed` know the trajectories."""
        params = {name: torch.as_tensor(np.asarray(value, float)) for name, value in params.items()}
        u = self.u.expand(steps, *self.u.shape).contiguous()
        self.qs, self.qds = self.sim.rollout(self.q, self.qd, u, params=params)
        assert len(self.sim.diverged) == 0 and int(self.sim.dropped_contacts.sum()) == 0
        return self

    def at(self, joint):
        """(T + 1, num_envs, n) positions of a joint."""
        return self.qs[..., self.model.joint_q(joint)].numpy()

    def speed(self, joint):
        """(T + 1, num_envs, n) rates of a joint."""
        return self.qds[..., self.model.joint_v(joint)].numpy()


def turn(axis, angle):
    """Quaternion xyzw."""
    return np.append(np.asarray(axis, float) / np.linalg.norm(axis) * np.sin(angle / 2), np.cos(angle / 2))


def rotate(quat, v):
    """v turned by quaternions (..., 4)."""
    x, w = quat[..., :3], quat[..., 3:]
    t = 2 * np.cross(x, np.broadcast_to(v, x.shape))
    return v + w * t + np.cross(x, t)
