"""A hinge of known inertia, simulators with the tests' defaults, and a varied batch of robots."""

import numpy as np
import torch

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

INERTIA, DT = 0.5, 0.01


def simulator(model, num_envs=1, dtype="float64", dt=DT, **options):
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, dt=dt, **options)


def hinge(drive=None, gravity=(0.0, 0.0, 0.0), com=(0.0, 0.0, 0.0), **joint):
    """One link of 1 kg that turns about y, with INERTIA about its com."""
    body = Body("rod", WORLD, "hinge", JointType.REVOLUTE, axis=np.array([0.0, 1.0, 0.0]), mass=1.0,
                com=np.array(com), inertia=INERTIA * np.eye(3), **joint)  # fmt: skip
    return assemble("hinge", [body], drives=[] if drive is None else [drive], gravity=gravity)


def varied(model, num_envs, steps=20):
    """q, qd, u (steps, num_envs, nu) and parameters of laikago_feet, different in every environment; float32."""
    rng = np.random.default_rng(3)
    q = np.tile(model.q0, (num_envs, 1))
    q[:, 2] += rng.uniform(-0.03, 0.0, size=num_envs)
    q[:, 7:] += rng.normal(scale=0.1, size=(num_envs, 12))
    qd = rng.normal(scale=0.5, size=(num_envs, model.nv))
    u = model.u0 + rng.normal(scale=0.2, size=(steps, num_envs, model.nu))
    params = {
        "friction": rng.uniform(0.1, 1.0, size=(num_envs, len(model.pairs))),
        "mass": model.mass * rng.uniform(0.8, 1.2, size=(num_envs, model.num_links)),
        "gravity": model.gravity + rng.normal(scale=0.3, size=(num_envs, 3)),
    }
    return [torch.tensor(x, dtype=torch.float32) for x in (q, qd, u)] + [
        {name: torch.tensor(value, dtype=torch.float32) for name, value in params.items()}
    ]


def one_body(*shapes, ground=False):
    """A free body of 1 kg with shapes on link 0 or the world; ground: also the plane z = 0."""
    body = Body("body", WORLD, "root", JointType.FREE, mass=1.0, inertia=0.01 * np.eye(3))
    if ground:
        shapes = (*shapes, Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="ground", body="ground"))
    return assemble("body", [body], shapes)
