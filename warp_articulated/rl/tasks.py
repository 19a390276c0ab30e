"""The tasks by name."""

from __future__ import annotations

from .cartpole import Cartpole
from .env import Env
from .laikago import LaikagoStand, LaikagoWalk
from .pendulum import PendulumReach
from .runners import Ant, Hopper

TASKS: dict[str, type[Env]] = {
    task.__name__: task for task in (Ant, Cartpole, Hopper, LaikagoStand, LaikagoWalk, PendulumReach)
}


def make(task: str, num_envs: int = 1, **options) -> Env:
    """The environments of a task of TASKS, by its name; options are those of its class."""
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; it must be one of {', '.join(TASKS)}.")
    return TASKS[task](num_envs=num_envs, **options)
