"""Which settings train which task, and for how long: what `train` uses unless it is told otherwise."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .learner import Learner

ALGORITHMS = {"shac": "Shac", "sac": "Sac", "sql": "Sql", "mbpo": "Mbpo", "ppo": "Ppo"}
"""Names of the algorithms; the module of each has its name, and the class this one."""

# An episode is worth its end: in windows as long as an episode, gradients get there without a critic from many of the
# frames. Little noise keeps a chaotic chain where the gradient means something.
WHOLE_EPISODES = {
    "gamma": 1.0, "horizon": 100, "num_envs": 64, "actor_rate": 1e-3, "average_rate": 0.1, "log_std": -2.0,
    "env_clip": 100.0, "iterations": 220,
}  # fmt: skip

# More noise at first and a firmer bound on gradients: with the usual ones some ants stood still. Two steps: with 16
# they learned to walk at best. An entropy that keeps noise from vanishing.
RUNNING = {
    "horizon": 2, "env_clip": 3.0, "log_std": -0.5, "entropy": 0.03, "actor_rate": 5e-3, "iterations": 3000,
    "average_rate": 0.01,
}  # fmt: skip

# A robot that already stands needs little noise to begin with. Four steps: with 2, 8 and 16 returns were lower.
TROTTING = {
    "horizon": 4, "log_std": -1.5, "critic_hidden": (128, 128), "iterations": 2500, "average_rate": 0.01,
}  # fmt: skip

RECIPES: dict[str, dict[str, tuple[float, dict[str, Any]]]] = {
    "shac": {
        "Ant": (300.0, RUNNING),
        "LaikagoStand": (300.0, {"log_std": -1.5}),
        "LaikagoWalk": (900.0, TROTTING),
        "PendulumReach": (120.0, WHOLE_EPISODES),
    },
}
"""Seconds and settings by algorithm and task."""

USUAL_SECONDS = 300.0


def learner_class(algorithm: str) -> type[Learner]:
    """The class of an algorithm; only its own module is imported."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}.")
    return getattr(import_module(f".{algorithm}", __package__), ALGORITHMS[algorithm])


def recipe(task: str, algorithm: str) -> tuple[float, dict[str, Any]]:
    """Seconds and settings of a task; those of the Settings' own defaults if nobody has tuned it."""
    return RECIPES.get(algorithm, {}).get(task, (USUAL_SECONDS, {}))
