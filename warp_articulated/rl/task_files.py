"""Tasks in a user's own file: "task.py:MyEnv" is the class MyEnv of task.py.

Loading such a task runs the file. Only a file that the user names is run, never one that a policy file names.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from .env import Env


def is_reference(task: str) -> bool:
    """Whether a task is named by its file."""
    return task.endswith(".py") or task.rpartition(":")[0].endswith(".py")


def class_in_file(reference: str) -> type[Env]:
    """The class of a reference such as "folder/task.py:MyEnv"."""
    file, _, name = (reference, "", "") if reference.endswith(".py") else reference.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, which should have the task {name or 'class'}.")
    module = _run(path)
    tasks = [
        key for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Env) and value.__module__ == module.__name__
    ]  # fmt: skip
    known = f"its tasks are {', '.join(tasks)}" if tasks else "it has no subclass of wa.rl.Env"
    if not name:
        raise ValueError(f"task is {reference!r}, without a class; {known}: {path}:{tasks[0] if tasks else 'MyEnv'}.")
    found = getattr(module, name, None)
    if found is None:
        near = difflib.get_close_matches(name, tasks, 1)
        raise ValueError(f"{path} has no class {name}; {f'did you mean {near[0]}?' if near else f'{known}.'}")
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise ValueError(f"{name} of {path} is not a task; it must be a subclass of wa.rl.Env.")
    return found


def reference_of(task: type[Env]) -> str:
    """How files name a class: "task.py:MyEnv", without the folder; "MyEnv" if it was not defined in a file."""
    try:
        return f"{Path(inspect.getfile(task)).name}:{task.__name__}"
    except (TypeError, OSError):  # a notebook, or code that was typed in
        return task.__name__


def _run(path: Path) -> ModuleType:
    """Runs a file and returns its module; every call runs it again, so a notebook sees the latest version."""
    name = f"task_file_{path.stem}"  # a task.py must not replace another module of that name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and inspect look it up
    sys.path.insert(0, str(path.resolve().parent))  # it may import its neighbours, like a script
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise ValueError(
            f"{path} cannot be run: {_where(path, error)}{type(error).__name__}: {_what(error)}."
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _where(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: "
    lines = [
        x.lineno for x in traceback.extract_tb(error.__traceback__) if Path(x.filename).resolve() == path.resolve()
    ]
    return f"line {lines[-1]}: " if lines else ""


def _what(error: Exception) -> str:
    return str(error.msg if isinstance(error, SyntaxError) else error).rstrip(".")
