"""`warp-articulated train`: trains a policy for a task, in one process or in several started by torchrun."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from ..progress import Bar
from .console import (
    DEVICE_HELP,
    FAILED,
    NAME_VALUE,
    OK,
    STOPPED,
    THREADS_HELP,
    Console,
    add_command,
    as_dict,
    count,
    number,
    positive,
    seed,
)

TASKS = "Ant, Cartpole, Hopper, LaikagoStand, LaikagoWalk or PendulumReach"
ALGORITHMS = ("shac", "sac", "sql", "mbpo", "ppo")
REPORTED = ".lost"  # file in the run folder: some process has already reported the failure of this run

EXAMPLES = """
warp-articulated train Cartpole --minutes 1
warp-articulated train Ant --option randomise=true --folder runs/ant
warp-articulated train task.py:MyEnv --minutes 5
warp-articulated train PendulumReach --option n=3 --option 'torque="paper"'
warp-articulated train Ant --option randomise=true --folder runs/ant --minutes 10 --resume
warp-articulated train Ant --option care=1 --option randomise=true --begin-with runs/ant --folder runs/careful
torchrun --nproc-per-node 2 -m warp_articulated train Ant
"""


def add(commands) -> None:
    command = add_command(commands, "train", "train a policy for a task", EXAMPLES, run)
    option = command.add_argument
    option("task", nargs="?", help=f"{TASKS}, or a class in a file of yours: task.py:MyEnv")
    option("--task", dest="named_task", metavar="TASK", help="the same as an option")
    option("--algo", choices=ALGORITHMS, default="shac", help="algorithm (%(default)s)")
    option("--folder", type=Path, help="folder for all files (runs/TASK-ALGO-SEED)")
    option("--minutes", type=positive, help="training time without evaluations; default: depends on the task")
    option("--steps", type=count, help="stop after this many control steps of all environments, if that comes first")
    option("--until", type=float, metavar="RETURN", help="stop when the mean return of an evaluation reaches this")
    option("--envs", type=count, help="number of environments; same as --set num_envs=")
    option("--seed", type=seed, default=0, help="seed of all random numbers (%(default)s)")
    option("--option", **NAME_VALUE, help="task option, with a JSON value: n=3, push=0.2")
    option("--set", **NAME_VALUE, help="algorithm setting, with a JSON value: gamma=0.95, actor_hidden='[64, 64]'")
    option("--evaluate-every", type=number, default=30.0, help="s between evaluations without noise (%(default)s)")
    option("--checkpoint-every", type=number, default=60.0, help="s between checkpoints (%(default)s)")
    option("--resume", action="store_true", help="continue from the checkpoint in the folder")
    option("--begin-with", type=Path, metavar="FOLDER", help="start from the networks of a run of the same algorithm")
    option("--threads", type=count, help=f"{THREADS_HELP}, shared by torchrun's processes")
    option("--device", help=DEVICE_HELP)


def run(options: argparse.Namespace) -> int:
    task = _task(options)
    options.folder = options.folder or Path("runs") / f"{task.rpartition(':')[2]}-{options.algo}-{options.seed}"
    first, alone = _environment("RANK", 0) == 0, _environment("WORLD_SIZE", 1) == 1
    options.quiet = options.quiet or not first
    if first:
        with contextlib.suppress(NotADirectoryError):  # train has a better error message for it
            (options.folder / REPORTED).unlink(missing_ok=True)
    console = Console(options)
    from ..rl.learning.distributed import LostProcess

    stopping = _Stopping(console)
    try:
        if alone and threading.current_thread() is threading.main_thread():
            with stopping:
                _train(options, task, console, stopping)
        else:
            _train(options, task, console, None)
    except (LostProcess, SystemExit, KeyboardInterrupt) as stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it to all remaining processes
        if alone or _first_to_report(options.folder):
            what = "stopped" if alone else "stopped: a process of the run was lost, or torchrun was stopped"
            print(f"warp-articulated: {what}. {_how_to_resume(options.folder)}", file=sys.stderr, flush=True)
        if isinstance(stop, LostProcess):
            return FAILED
        return STOPPED + (signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
    except (ValueError, FileExistsError, FileNotFoundError):
        if alone or _first_to_report(options.folder):
            raise
        return FAILED  # all processes have the same arguments, and another one has reported the error
    if stopping.sent is not None:
        print(f"warp-articulated: stopped. {_how_to_resume(options.folder)}", file=sys.stderr, flush=True)
        return STOPPED + stopping.sent
    if first:
        _print_result(options, console)
    return OK


def _task(options: argparse.Namespace) -> str:
    given = [task for task in (options.task, options.named_task) if task is not None]
    if len(given) != 1:
        raise ValueError(f"the task is {'given twice' if given else 'missing'}; give one: {TASKS}, or task.py:MyEnv.")
    return given[0]


class _Stopping:
    """The first Ctrl-C or SIGTERM stops after the current iteration and saves the run; the second stops at once."""

    def __init__(self, console: Console):
        self.quiet = console.quiet
        self.sent: int | None = None
        """Number of the first signal received."""

    def __enter__(self) -> _Stopping:
        self.before = {which: signal.signal(which, self._note) for which in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_) -> None:
        for which, handler in self.before.items():
            signal.signal(which, handler)

    def _note(self, which: int, _) -> None:
        if self.sent is not None:
            raise KeyboardInterrupt if which == signal.SIGINT else SystemExit
        self.sent = which
        if not self.quiet:  # os.write, because the signal may have interrupted a print
            os.write(2, b"\nstopping after this iteration; repeat to stop at once, without saving\n")

    def __call__(self) -> bool:
        return self.sent is not None


def _environment(name: str, otherwise: int) -> int:
    """A number that torchrun passes to its processes."""
    return int(os.environ.get(name, otherwise))


def _train(options: argparse.Namespace, task: str, console: Console, stop: _Stopping | None) -> None:
    from ..rl.learning.training import train

    settings = as_dict(options.set + [("num_envs", options.envs)] * (options.envs is not None), "of the algorithm")
    threads = options.threads
    if threads is None and _environment("LOCAL_WORLD_SIZE", 1) > 1:
        threads = max(1, (os.cpu_count() or 1) // _environment("LOCAL_WORLD_SIZE", 1))
    with _Progress(console) as progress:
        train(
            task,
            options.algo,
            options.folder,
            options=as_dict(options.option, "of the task"),
            settings=settings,
            seed=options.seed,
            minutes=options.minutes,
            steps=options.steps,
            until=options.until,
            evaluate_every=options.evaluate_every,
            checkpoint_every=options.checkpoint_every,
            resume=options.resume,
            begin_with=options.begin_with,
            threads=threads,
            device=options.device,
            report=progress,
            stop=stop,
        )


class _Progress:
    """A progress bar, and a line for every evaluation."""

    def __init__(self, console: Console):
        self.console, self.note = console, ""
        self.busy = console.busy("compiling kernels (cached for the next time)")
        self.bar: Bar | None = None

    def __enter__(self) -> _Progress:
        self.busy.__enter__()
        return self

    def __call__(self, row: dict[str, float], done: float) -> None:
        if self.bar is None:  # the first iteration has compiled all kernels
            self.busy.__exit__()
            self.bar = self.console.bar("training")
        if "return" in row:
            self.note = f"return {row['return']:.4g}  "
        self.bar(round(1000 * done), 1000, f"{self.note}{row['steps']:,.0f} steps  {row['steps/s']:,.0f} steps/s")
        if "evaluated return" in row:
            self.bar.close()
            self.console.say(
                f"{row['seconds']:6.0f} s {row['steps']:12,.0f} steps   return {row['evaluated return']:.4g}"
            )

    def __exit__(self, *_) -> None:
        if self.bar is None:
            self.busy.__exit__()
        else:
            self.bar.close()


def _print_result(options: argparse.Namespace, console: Console) -> None:
    """Print the final evaluation and the output files."""
    from ..rl.learning.runlog import read_log

    folder = options.folder
    row = read_log(folder)[-1]
    print(
        f"return {row['evaluated return']:.4g} +- {row['evaluated return sd']:.2g} without noise, "
        f"after {row['steps']:,.0f} steps in {row['seconds']:,.0f} s"
    )
    files = [folder / name for name in ("policy.pt", "log.csv", "curve.png") if (folder / name).exists()]
    console.say(f"wrote {', '.join(map(str, files))}")
    console.say(f"watch it: warp-articulated play {folder} --gif film.gif")


def _first_to_report(folder: Path) -> bool:
    """Whether no other process has reported the failure yet. Any process may be the lost one, so any may report it."""
    try:
        open(folder / REPORTED, "x").close()
    except FileExistsError:
        return False
    except OSError:
        return _environment("RANK", 0) == 0
    return True


def _how_to_resume(folder: Path) -> str:
    import torch

    from ..rl.learning.training import CHECKPOINT

    path = folder / CHECKPOINT
    if not path.exists():
        return "There is no checkpoint yet; the same command starts again."
    steps = torch.load(path, weights_only=True, mmap=True)["learner"]["steps"]
    return f"{path} was written at step {steps:,}; the same command with --resume continues from there."
