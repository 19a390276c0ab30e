"""Tasks by name, by class, or by a file of the user's."""

from __future__ import annotations

import inspect
from typing import Any

from ..simulator import Simulator
from .cartpole import Cartpole
from .env import Env
from .laikago import LaikagoStand, LaikagoWalk
from .pendulum import PendulumReach
from .runners import Ant, Hopper
from .task_files import class_in_file, is_reference, reference_of

TASKS: dict[str, type[Env]] = {
    task.__name__: task for task in (Ant, Cartpole, Hopper, LaikagoStand, LaikagoWalk, PendulumReach)
}


def make(task: str | type[Env], num_envs: int = 1, **options) -> Env:
    """Make the environments of a task; options are passed to its class.

    task: a name in TASKS, a subclass of Env, or a file and a class, such as "task.py:MyEnv"; the file is run.
    """
    found = task_class(task)
    check_options(found, options)
    return found(num_envs=num_envs, **options)


def task_class(task: str | type[Env]) -> type[Env]:
    """The class of a task, given as for `make`."""
    if isinstance(task, type) and issubclass(task, Env):
        return task
    if isinstance(task, str) and task in TASKS:
        return TASKS[task]
    if isinstance(task, str) and is_reference(task):
        return class_in_file(task)
    raise ValueError(
        f"task is {task!r}; it must be one of {', '.join(TASKS)}, or a subclass of wa.rl.Env, also as a file and a "
        "class: task.py:MyEnv."
    )


def task_name(task: type[Env]) -> str:
    """How run.json and policy files name a task: the name in TASKS, or a file and a class."""
    return next((name for name, known in TASKS.items() if known is task), None) or reference_of(task)


def check_options(task: type[Env], options: dict[str, Any]) -> None:
    """Raise an error for missing or unknown options; Python's error would name an internal function instead."""
    own = inspect.signature(task).parameters
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values())
    if "num_envs" not in own and not passes_on:
        raise ValueError(f"{task.__name__}.__init__ must have the argument num_envs.")
    for name, parameter in own.items():
        needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if needed and name not in ("num_envs", *options):
            raise ValueError(f"{task.__name__} needs the option {name}.")
    takers = (task, Env, Simulator) if passes_on else (task,)
    known = dict.fromkeys(x for taker in takers for x in inspect.signature(taker).parameters)
    names = [name for name in known if name not in ("model", "num_envs", "options")]
    for name in options:
        if name not in names:
            hint = "" if passes_on else f"; let {task.__name__}.__init__ take **options and pass them on to Env"
            raise ValueError(f"{task.__name__} has no option {name!r}; it has {', '.join(names) or 'none'}{hint}.")
