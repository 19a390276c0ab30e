"""What all engines' wrappers share. Needs numpy only, so that it can be imported in any engine's environment."""

from __future__ import annotations

import numpy as np


class Wrapper:
    """What both tables say about an engine."""

    name = package = contact = dtype = ""
    built_on = ""  # a package whose version matters, too
    method = ""  # of its gradients; empty: it has none, and `no_gradient` says why
    no_gradient = "The engine has no gradients."


def to_wxyz(q: np.ndarray) -> np.ndarray:
    """(n, nq) states of a floating robot with MuJoCo's quaternions; ours are xyzw."""
    return np.concatenate([q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:]], axis=1)


def from_wxyz(qpos: np.ndarray) -> np.ndarray:
    return np.concatenate([qpos[:, :3], np.roll(qpos[:, 3:7], -1, axis=1), qpos[:, 7:]], axis=1)


def message(problem: Exception) -> str:
    """The first line of an error message, short enough for a table's notes."""
    first = (str(problem).strip().splitlines() or [""])[0]
    return f"{type(problem).__name__}: {first}"[:300]
