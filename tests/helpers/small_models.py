"""A hinge of known inertia, and simulators with the tests' defaults."""

import numpy as np

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, assemble

INERTIA, DT = 0.5, 0.01


def simulator(model, num_envs=1, dtype="float64", dt=DT, **options):
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, dt=dt, **options)


def hinge(drive=None, gravity=(0.0, 0.0, 0.0), com=(0.0, 0.0, 0.0), **joint):
    """One link of 1 kg that turns about y, with INERTIA about its com."""
    body = Body("rod", WORLD, "hinge", JointType.REVOLUTE, axis=np.array([0.0, 1.0, 0.0]), mass=1.0,
                com=np.array(com), inertia=INERTIA * np.eye(3), **joint)  # fmt: skip
    return assemble("hinge", [body], drives=[] if drive is None else [drive], gravity=gravity)
