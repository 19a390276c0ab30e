"""Default settings and training times of `train`, by task and algorithm."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .learner import Learner

ALGORITHMS = {"shac": "Shac", "sac": "Sac", "sql": "Sql", "mbpo": "Mbpo", "ppo": "Ppo"}
"""Class of each algorithm; its module has the name of the algorithm."""

# Only the end of an episode matters: in windows as long as an episode, gradients reach it without a critic from many of
# the frames. Little noise keeps a chaotic chain where the gradient is meaningful.
WHOLE_EPISODES = {
    "gamma": 1.0, "horizon": 100, "num_envs": 64, "actor_rate": 1e-3, "average_rate": 0.1, "log_std": -2.0,
    "env_clip": 100.0, "iterations": 220,
}  # fmt: skip

# More initial noise and a tighter gradient bound: with the defaults some ants stood still. Horizon 2: with 16 they
# learned to walk at best. The entropy keeps the noise from vanishing.
RUNNING = {
    "horizon": 2, "env_clip": 3.0, "log_std": -0.5, "entropy": 0.03, "actor_rate": 5e-3, "iterations": 3000,
    "average_rate": 0.01,
}  # fmt: skip

# A robot that already stands needs little initial noise. Horizon 4: with 2, 8 and 16 returns were lower.
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
"""Training time in s and settings, by algorithm and task."""

USUAL_SECONDS = 300.0


def learner_class(algorithm: str) -> type[Learner]:
    """The class of an algorithm; only the module of that algorithm is imported."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}.")
    return getattr(import_module(f".{algorithm}", __package__), ALGORITHMS[algorithm])


def recipe(task: str, algorithm: str) -> tuple[float, dict[str, Any]]:
    """Training time in s and settings for a task; the defaults if there is no recipe."""
    return RECIPES.get(algorithm, {}).get(task, (USUAL_SECONDS, {}))
