"""Models of any size, whose cost growth.py measures: a hanging chain, and three ways to rest on k spheres."""

from __future__ import annotations

import numpy as np

from warp_articulated.model import WORLD, Body, JointType, Model, Shape, ShapeType, assemble

LENGTH, MASS = 0.1, 0.2  # m, kg of one link of a chain
RADIUS, LOAD = 0.05, 20.0  # m; kg on every sphere, heavy enough to rest at a depth that float32 resolves
GAP = 0.15  # m between the centres of neighbours
CFM, ERP, DT = 1e-2, 0.2, 1e-3  # the simulator's defaults
DEPTH = CFM * LOAD * 9.81 * DT**2 / ERP  # m, at which a sphere rests


def chain(links: int) -> Model:
    """Rods on hinges about x and y in turn, hanging down, lightly damped."""
    rod = MASS * LENGTH**2 / 12
    bodies = [
        Body(
            name=f"link{i}", parent=i - 1 if i else WORLD, joint_name=f"joint{i}", joint_type=JointType.REVOLUTE,
            pos=np.array([0.0, 0.0, -LENGTH if i else 0.0]), axis=np.eye(3)[i % 2], mass=MASS,
            com=np.array([0.0, 0.0, -LENGTH / 2]), inertia=np.diag([rod, rod, rod / 10]), damping=0.01,
        )
        for i in range(links)
    ]  # fmt: skip
    return assemble(f"chain{links}", bodies)


def feet(count: int) -> Model:
    """One free body on `count` spheres in a ring, its com in their plane: every contact acts on every other."""
    angles = 2 * np.pi * np.arange(count) / count
    ring = 0.0 if count == 1 else 0.3
    places = ring * np.stack([np.cos(angles), np.sin(angles), np.zeros(count)], 1)
    size = ring**2 + RADIUS**2
    inertia = count * LOAD * np.diag([0.5 * size, 0.5 * size, size])
    body = Body("body", WORLD, "root", JointType.FREE, pos=_resting(0.0, 0.0), mass=count * LOAD, inertia=inertia)
    return _on_floor(f"feet{count}", [body], [(0, place) for place in places])


def balls(count: int) -> Model:
    """Free balls side by side: independent contacts, and as many links."""
    side = int(np.ceil(np.sqrt(count)))
    bodies = [
        Body(f"ball{i}", WORLD, f"root{i}", JointType.FREE, pos=_resting(GAP * (i % side), GAP * (i // side)),
             mass=LOAD, inertia=0.4 * LOAD * RADIUS**2 * np.eye(3))
        for i in range(count)
    ]  # fmt: skip
    return _on_floor(f"balls{count}", bodies, [(i, np.zeros(3)) for i in range(count)])


def snake(count: int) -> Model:
    """A free chain of balls that lies on the floor, on hinges about y and z in turn: paths as long as contacts many."""
    bodies = [
        Body(f"ball{i}", i - 1, f"joint{i}", JointType.REVOLUTE if i else JointType.FREE,
             pos=np.array([GAP, 0.0, 0.0]) if i else _resting(0.0, 0.0), axis=np.eye(3)[1 + i % 2], mass=LOAD,
             inertia=0.4 * LOAD * RADIUS**2 * np.eye(3), damping=0.1 if i else 0.0)
        for i in range(count)
    ]  # fmt: skip
    return _on_floor(f"snake{count}", bodies, [(i, np.zeros(3)) for i in range(count)])


def _resting(x: float, y: float) -> np.ndarray:
    return np.array([x, y, RADIUS - DEPTH])


def _on_floor(name: str, bodies: list[Body], spheres: list[tuple[int, np.ndarray]]) -> Model:
    """Spheres (link, place) that touch only the floor."""
    shapes = [Shape(ShapeType.SPHERE, link, np.array([RADIUS, 0, 0]), place) for link, place in spheres]
    pairs = [(i, len(shapes), 1.0, 0.0) for i in range(len(shapes))]
    return assemble(name, bodies, [*shapes, Shape(ShapeType.PLANE, WORLD, np.zeros(3))], pairs=pairs)
