"""Small models whose shapes touch in general convex pairs."""

import numpy as np

from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble

SPHERE, CAPSULE, BOX = ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX
CYLINDER, MESH, PLANE = ShapeType.CYLINDER, ShapeType.MESH, ShapeType.PLANE
SIZES = {SPHERE: [0.1], CAPSULE: [0.05, 0.1], BOX: [0.1, 0.08, 0.1], CYLINDER: [0.1, 0.1], MESH: [0.0] * 3}
GROUND = Shape(PLANE, WORLD, np.zeros(3), name="ground", body="ground")


def box_corners(half):
    return np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * half


def shape(kind, link, half=None, **fields):
    """A shape of about 0.1 m; a mesh is a box of the half sizes."""
    vertices = box_corners(SIZES[BOX] if half is None else half) if kind == MESH else None
    body = f"body{link}" if link >= 0 else "table"
    return Shape(kind, link, np.array(SIZES[kind]), name=f"shape{link}", body=body, vertices=vertices, **fields)


def free_body(k, pos, mass=1.0):
    return Body(
        f"body{k}", WORLD, f"joint{k}", JointType.FREE, pos=np.array(pos), mass=mass, inertia=mass * 0.0067 * np.eye(3)
    )


def stack(kinds):
    """Bodies of 0.2 m height on each other, each turned a little about the vertical and pushed aside a little."""
    bodies = [free_body(k, [0.01 * k, 0.0, 0.1 + 0.2 * k]) for k in range(len(kinds))]
    for k, body in enumerate(bodies):
        body.quat = np.array([0.0, 0.0, np.sin(0.1 * k), np.cos(0.1 * k)])
    shapes = [shape(kind, k) for k, kind in enumerate(kinds)]
    return assemble("stack", bodies, [*shapes, GROUND])


def tray():
    """One body of each kind on a hull that belongs to the world."""
    kinds = (SPHERE, CAPSULE, BOX, CYLINDER, MESH)
    bodies = [free_body(k, [0.5 * k - 1.0, 0.0, 0.0]) for k in range(len(kinds))]
    table = shape(MESH, WORLD, half=[1.5, 0.3, 0.1])
    shapes = [*(shape(kind, k) for k, kind in enumerate(kinds)), table]
    return assemble("tray", bodies, shapes)
