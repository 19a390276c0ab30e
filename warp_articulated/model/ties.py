"""Equality constraints: loops that are closed, coupled joints and fixed tendons. Their records, and their arrays.

Importers make `Loop` and `Coupling` records. tie_tables.py turns them into the `Ties` of a Model, and closure.py adds
what depends on the pose: held directions, compliance, and a default pose that fulfils them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np

from ..geometry.rotations import IDENTITY

POWERS = 5  # coefficients of a polynomial


@dataclass(frozen=True)
class Loop:
    """Two links joined beyond the tree: two of their points coincide, and in a weld they do not turn either."""

    name: str
    link_a: int
    link_b: int  # -1: the world
    pos_a: np.ndarray  # m, in the link's frame
    pos_b: np.ndarray
    weld: bool = False
    quat: np.ndarray = field(default_factory=lambda: IDENTITY)  # orientation of link a in link b, of a weld


@dataclass(frozen=True)
class Term:
    """c0 + c1 t + ... + c4 t^4, with t the position of a revolute or prismatic joint minus `ref`."""

    joint: str
    coef: tuple[float, ...]
    ref: float = 0.0


@dataclass(frozen=True)
class Coupling:
    """A sum of terms: zero if it is held, as of a joint that mimics another one; otherwise the length of a tendon."""

    name: str
    terms: tuple[Term, ...]
    held: bool = False
    stiffness: float = 0.0
    damping: float = 0.0
    rest: tuple[float, float] = (0.0, 0.0)  # lengths between which the spring is slack
    range: tuple[float, float] = (-np.inf, np.inf)  # limits of the length


def _empty(*shape: int, kind: type = float) -> Callable[[], np.ndarray]:
    """Makes a read-only array of length 0."""

    def make() -> np.ndarray:
        nothing: np.ndarray = np.zeros((0, *shape), kind)
        nothing.setflags(write=False)
        return nothing

    return make


@dataclass(frozen=True, eq=False)
class Ties:
    """Loops and couplings of a model, as read-only arrays."""

    loop_names: tuple[str, ...] = ()
    loop_links: np.ndarray = field(default_factory=_empty(2, kind=int))  # (loops, 2), -1 for the world
    loop_pos: np.ndarray = field(default_factory=_empty(2, 3))  # (loops, 2, 3) m, the two points in their links' frames
    loop_quat: np.ndarray = field(default_factory=_empty(4))  # (loops, 4) orientation of the first link in the second
    loop_axes: np.ndarray = field(default_factory=_empty(2, 3, 3))  # (loops, 2, 3, 3) held shifts and turns
    loop_cfm: np.ndarray = field(default_factory=_empty(2))  # (loops, 2) compliance of both
    coupling_names: tuple[str, ...] = ()
    coupling_held: np.ndarray = field(default_factory=_empty(kind=bool))
    coupling_cfm: np.ndarray = field(default_factory=_empty())
    coupling_rest: np.ndarray = field(default_factory=_empty(2))
    coupling_range: np.ndarray = field(default_factory=_empty(2))
    tendon_stiffness: np.ndarray = field(default_factory=_empty())
    tendon_damping: np.ndarray = field(default_factory=_empty())
    term_coupling: np.ndarray = field(default_factory=_empty(kind=int))  # (terms,) never decreasing
    term_dof: np.ndarray = field(default_factory=_empty(kind=int))  # index into qd
    term_ref: np.ndarray = field(default_factory=_empty())
    coupling_coef: np.ndarray = field(default_factory=_empty(POWERS))

    @property
    def term_start(self) -> np.ndarray:
        """(couplings + 1,) first term of each coupling, and their number."""
        return np.searchsorted(self.term_coupling, np.arange(len(self.coupling_names) + 1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ties):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __bool__(self) -> bool:
        return bool(self.loop_names or self.coupling_names)
