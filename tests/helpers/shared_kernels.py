"""Simulators of the tests share a few compiled kernels: compiling takes most of the time of a first run.

A kernel has room for links, dofs, contacts and kinds of shape pairs, and serves every model that fits. In a test a
simulator takes the first of the size classes below that has room for its model, where a user's takes the smallest
possible one. tests/physics/test_size_classes.py compares both. Programs that tests start have their own sizes, and
so have tests with the fixture `own_kernels`.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from warp_articulated.kernels.types import Sizes

from warp_articulated.device import engine, topology
from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import CONVEX, SLOTS

GROUND = tuple((int(kind), int(ShapeType.PLANE)) for kind in (ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX))
ALL_KINDS = tuple(sorted((int(a), int(b)) for a, b in SLOTS if (a, b) not in CONVEX))
SPHERE, BOX = int(ShapeType.SPHERE), int(ShapeType.BOX)
TIED = ((SPHERE, SPHERE), (SPHERE, BOX), *GROUND)
CLASSES = (
    # robots on the ground: Laikago with and without its other shapes, Ant, Hopper, and everything smaller
    Sizes(links=16, dofs=24, depth=8, contacts=32, joint_rows=24, sides=1, kinds=GROUND),
    # bodies that touch each other: the zoo of the gradients, the room of the contacts, boxes, arms with grippers
    Sizes(links=16, dofs=64, depth=8, contacts=32, joint_rows=12, sides=2, kinds=ALL_KINDS),
    # robots with loops, coupled joints and tendons
    Sizes(
        links=16, dofs=32, depth=8, contacts=16, joint_rows=12, sides=2, kinds=TIED, ties=12, tie_rows=24, tie_sides=24
    ),
)
# for tests that simulate what they have not chosen
EVERYTHING = replace(CLASSES[-1], dofs=64, contacts=32, kinds=tuple(sorted((int(a), int(b)) for a, b in SLOTS)))
SWEEPS = tuple(steps for steps in topology.SWEEP_STEPS if steps >= 50)


def fits(own: Sizes, room: Sizes) -> bool:
    counts = ("links", "dofs", "depth", "contacts", "joint_rows", "sides", "ties", "tie_rows", "tie_sides")
    return all(getattr(own, name) <= getattr(room, name) for name in counts) and set(own.kinds) <= set(room.kinds)


def shared_sizes(model, max_contacts: int, exact: bool = False) -> Sizes:
    """The first size class with room for a model, or the model's own sizes.

    A list of contacts that may overflow keeps its length, because its length decides which contacts are dropped.
    """
    own = topology.sizes_of(model, max_contacts)
    overflows = topology.sizes_of(model, max_contacts=10**6).contacts > own.contacts
    rooms = (room for room in CLASSES if fits(own, room) and not (overflows and room.contacts > own.contacts))
    return replace(next(rooms, own), gravcomp=own.gravcomp, thrusts=own.thrusts, lopsided=own.lopsided)


@contextmanager
def shared_kernels():
    """Simulators made within share kernels."""
    with patch.object(engine, "sizes_of", shared_sizes), patch.object(engine, "SWEEP_STEPS", SWEEPS):
        yield


@contextmanager
def own_kernels():
    """Simulators made within have the sizes that a user's have."""
    with (
        patch.object(engine, "sizes_of", topology.sizes_of),
        patch.object(engine, "SWEEP_STEPS", topology.SWEEP_STEPS),
    ):
        yield
