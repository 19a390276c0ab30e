"""Tasks by name."""

from __future__ import annotations

import inspect
from typing import Any

from ..simulator import Simulator
from .cartpole import Cartpole
from .env import Env
from .laikago import LaikagoStand, LaikagoWalk
from .pendulum import PendulumReach
from .runners import Ant, Hopper

TASKS: dict[str, type[Env]] = {
    task.__name__: task for task in (Ant, Cartpole, Hopper, LaikagoStand, LaikagoWalk, PendulumReach)
}


def make(task: str, num_envs: int = 1, **options) -> Env:
    """Make the environments of a task in TASKS; options are passed to its class."""
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; it must be one of {', '.join(TASKS)}.")
    check_options(task, options)
    return TASKS[task](num_envs=num_envs, **options)


def check_options(task: str, options: dict[str, Any]) -> None:
    """Raise an error for missing or unknown options; Python's error would name an internal function instead."""
    own = inspect.signature(TASKS[task]).parameters
    for name, parameter in own.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD and name not in options:
            raise ValueError(f"{task} needs the option {name}.")
    known = dict.fromkeys(x for taker in (TASKS[task], Env, Simulator) for x in inspect.signature(taker).parameters)
    names = [name for name in known if name not in ("model", "num_envs", "options")]
    for name in options:
        if name not in names:
            raise ValueError(f"{task} has no option {name!r}; it has {', '.join(names)}.")
