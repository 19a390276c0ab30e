"""A four-legged robot with every joint and shape type, built without files: for tests of pictures and exports."""

from __future__ import annotations

import numpy as np

from warp_articulated.model import WORLD, Body, JointType, Model, Shape, ShapeType, assemble

X, Y, Z = np.eye(3)
QUARTER_Y = np.array([0.0, np.sqrt(0.5), 0.0, np.sqrt(0.5)])  # turns z to x
QUARTER_X = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])  # turns z to -y
DOWN = np.array([0.0, 0.0, -1.0])


def display_model() -> Model:
    bodies, shapes = [], []

    def link(name, parent, kind, pos=(0, 0, 0), axis=Y, **more) -> int:
        bodies.append(
            Body(name, parent, f"{name}_joint", kind, pos=np.array(pos, float), axis=axis,
                 mass=1.0, inertia=0.01 * np.eye(3), **more)
        )  # fmt: skip
        return len(bodies) - 1

    def shape(kind, on, size, pos=(0, 0, 0), **more) -> None:
        shapes.append(Shape(kind, on, np.array(size, float), np.array(pos, float), **more))

    base = link("base", WORLD, JointType.FREE, pos=(0, 0, 0.46))
    shape(ShapeType.BOX, base, (0.26, 0.10, 0.07))
    for side, y in (("left", 0.14), ("right", -0.14)):
        for end, x in (("front", 0.22), ("rear", -0.22)):
            bend = np.array([0.6])
            hip = link(f"{end} {side} hip", base, JointType.REVOLUTE, (x, y, 0.0), axis=X)
            shape(ShapeType.CYLINDER, hip, (0.055, 0.045), quat=QUARTER_X)
            thigh = link(f"{end} {side} thigh", hip, JointType.REVOLUTE, (0, 0.3 * y, 0), q0=bend)
            shape(ShapeType.CAPSULE, thigh, (0.030, 0.11), 0.12 * DOWN)
            calf = link(f"{end} {side} calf", thigh, JointType.REVOLUTE, 0.25 * DOWN, q0=-2 * bend)
            shape(ShapeType.CAPSULE, calf, (0.020, 0.11), 0.12 * DOWN)
            shape(ShapeType.SPHERE, calf, (0.032,), 0.25 * DOWN, color=(0.12, 0.12, 0.13, 1.0))
    neck = link("neck", base, JointType.PRISMATIC, (0.26, 0, 0.05), axis=Z, q0=np.array([0.03]))
    wedge = np.array([[x, y * (1 - x * 3), z * (1 - x * 3)] for x in (0.0, 0.17) for y in (-0.08, 0.08)
                      for z in (-0.06, 0.06)])  # fmt: skip
    shape(ShapeType.MESH, neck, (), vertices=wedge, name="head")
    tail = link("tail", base, JointType.SPHERICAL, (-0.26, 0, 0.05), quat=QUARTER_Y)
    shape(ShapeType.CAPSULE, tail, (0.012, 0.08), 0.09 * DOWN)
    shape(ShapeType.PLANE, WORLD, ())
    return assemble("display", bodies, shapes)


def moving_positions(model: Model, frames: int, envs: int, seed: int = 0) -> np.ndarray:
    """Random joint positions (frames, envs, nq), with quaternions that are not normalised: importers see such too."""
    q = model.q0 + 0.2 * np.random.default_rng(seed).normal(size=(frames, envs, model.nq))
    return q.astype(float)
