"""A crowded model with every kind of equality constraint and tendon, and states near those that fulfil them."""

from functools import cache

import numpy as np
import torch
from gradient_zoo import BALL, FREE, HINGE, SLIDER, random_inertia, unit

from warp_articulated.geometry.rotations import unit_quat
from warp_articulated.model import WORLD, Body, Coupling, Drive, DriveType, Loop, Shape, ShapeType, Term, assemble

TREES = {  # body: parent, joint
    "trunk": (None, FREE),
    "hip": ("trunk", HINGE),
    "knee": ("hip", HINGE),
    "foot": ("knee", BALL),
    "slide": ("trunk", SLIDER),
    "rod": ("slide", HINGE),
    "tip": ("rod", HINGE),
    "base": (None, HINGE),
    "elbow": ("base", HINGE),
    "hand": ("elbow", BALL),
    "box": (None, FREE),
}


@cache
def tied_model(seed=0, loops=True, tendons=True):
    """Free, fixed and branched trees in contact with a plane, tied to each other, to themselves and to the world."""
    rng = np.random.default_rng(seed)
    names = list(TREES)
    bodies = []
    for name, (parent, kind) in TREES.items():
        mass = rng.uniform(0.5, 2.0)
        bodies.append(
            Body(
                name, WORLD if parent is None else names.index(parent), name, kind, pos=rng.normal(size=3) * 0.2,
                quat=unit(rng, 4), axis=unit(rng, 3), mass=mass, com=rng.normal(size=3) * 0.05,
                inertia=random_inertia(rng, mass), armature=rng.uniform(0.01, 0.1), damping=rng.uniform(0.05, 0.5),
                stiffness=1.0 if kind == HINGE else 0.0, frictionloss=0.2 if name == "tip" else 0.0,
                limit_restitution=0.4 if name == "elbow" else 0.0,
                lower=-0.2 if name in ("hip", "elbow") else -np.inf, upper=0.3 if name in ("hip", "elbow") else np.inf,
            )
        )  # fmt: skip
    shapes = [
        Shape(ShapeType.SPHERE, names.index(name), np.array([0.25]), rng.normal(size=3) * 0.05, name=name)
        for name in ("foot", "tip", "hand", "box")
    ]
    shapes.append(Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.zeros(3), np.array([0.05, 0.1, 0.0, 1.0])))
    pairs = [(k, len(shapes) - 1, 0.5, 0.3) for k in range(4)] + [(0, 1, 0.4, 0.0)]

    def loop(name, a, b, weld=False):
        return Loop(
            name, names.index(a), WORLD if b is None else names.index(b), rng.normal(size=3) * 0.1,
            rng.normal(size=3) * 0.1, weld, unit(rng, 4),
        )  # fmt: skip

    couplings, drives = [], [Drive("hip", DriveType.POSITION, kp=50.0, kd=2.0, effort=10.0)]
    if tendons:
        couplings = [
            Coupling("mimic", (Term("knee", (0.1, 1.0), 0.2), Term("slide", (0.0, -0.7, 0.3, 0.4, -0.2), -0.1)), True),
            Coupling(
                "spring", (Term("tip", (0.0, 0.6)), Term("rod", (0.0, -0.8))), stiffness=30.0, damping=0.5,
                rest=(-0.05, 0.02), range=(-0.1, 0.15),
            ),
            Coupling("wire", (Term("base", (0.0, 0.5)), Term("elbow", (0.0, 0.9))), damping=0.3),
        ]  # fmt: skip
        drives += [
            Drive("", DriveType.POSITION, gear=0.7, kp=40.0, kd=1.5, effort=6.0, tendon="wire", name="pull"),
            Drive("", DriveType.VELOCITY, kd=2.0, effort=0.5, tendon="spring", name="reel"),
            Drive("", DriveType.TORQUE, gear=1.2, effort=1.0, tendon="wire", name="tug"),
        ]
    ties = [loop("arms", "rod", "hand"), loop("hold", "box", "foot", weld=True), loop("peg", "tip", None)]
    return assemble("tied", bodies, shapes, drives, pairs=pairs, loops=ties if loops else (), couplings=couplings)


def tied_states(sim, seed=0):
    """Near poses that fulfil all constraints, with rates of about 1 and controls that saturate some drives."""
    rng = np.random.default_rng(seed)
    model = sim.model
    q = np.tile(model.q0, (sim.num_envs, 1))
    for i, kind in enumerate(model.joint_type):
        k = model.q_start[i]
        for env in range(sim.num_envs):
            if kind == FREE:
                q[env, k : k + 3] += rng.normal(size=3) * 2e-3
                k += 3
            if kind in (FREE, BALL):
                q[env, k : k + 4] = unit_quat(q[env, k : k + 4] + rng.normal(size=4) * 2e-3)
            else:
                q[env, k] += rng.normal() * 2e-3
            k = model.q_start[i]
    qd = rng.normal(size=(sim.num_envs, model.nv))
    u = rng.normal(size=(sim.num_envs, model.nu))
    return [torch.as_tensor(x, dtype=sim.dtype) for x in (q, qd, u)]


def near_the_pose(sim, states):
    """Parameters that let everything act: compliance that shows, and limits of hip and elbow that the states exceed.

    States exceed the lower and the upper limit in turns.
    """
    compliance = {name: torch.full_like(sim.params[name][:states], 0.05) for name in ("loop_cfm", "coupling_cfm")}
    limits = {name: sim.params[name][:states].clone() for name in ("lower", "upper")}
    for joint in ("hip", "elbow"):
        dof, at = sim.model.joint_v(joint), float(sim.model.q0[sim.model.joint_q(joint)][0])
        for name, sign, odd in (("lower", 1.0, 0), ("upper", -1.0, 1)):
            limits[name][:, dof] = -sign * torch.inf
            limits[name][odd::2, dof] = at + sign * 3e-3
    return limits | compliance
