"""`train`: the training loop for any learner; writes log, checkpoints and policies to one folder."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ... import __version__
from ...device import checks
from ...device.launch import LOADING
from ...files import replace_when_done
from ..env import Env
from ..tasks import make, task_class, task_name
from . import distributed
from .evaluation import evaluate
from .learner import Learner
from .policy_file import OWN, load_policy, save_policy
from .recipes import ALGORITHMS, learner_class, recipe
from .runlog import RunLog
from .settings import make_settings

EVALUATION_SEED = 1_000_003  # differs from the seeds of training
CHECKPOINT = "checkpoint.pt"

Report = Callable[[dict[str, float], float], None]
"""Called with the latest row of the log and the completed share of the run."""


def train(
    task: str | type[Env],
    algorithm: str = "shac",
    folder: str | os.PathLike | None = None,
    *,
    options: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    seconds: float | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    until: float | None = None,
    cpu_time: bool = False,
    evaluate_every: float = 30.0,
    evaluation_episodes: int = 16,
    checkpoint_every: float = 60.0,
    resume: bool = False,
    begin_with: str | os.PathLike | None = None,
    threads: int | None = None,
    device: str | None = None,
    report: Report | None = None,
    stop: Callable[[], bool] | None = None,
) -> Path:
    """Train a policy; returns the folder with checkpoint.pt, log.csv, log.jsonl, run.json, curve.png and the policies.

    policy.pt is the last policy, best.pt the one with the best evaluation.

    Under torchrun every process simulates its share of the environments, and the first one writes the files.

    Args:
        task: name in TASKS, a subclass of Env, or a file and a class, such as "task.py:MyEnv"; the file is run.
        algorithm: "shac", "sac", "sql", "mbpo" or "ppo".
        folder: folder of the run. Default: runs/<task>-<algorithm>-<seed>.
        options: options of the task's class, such as {"n": 3}.
        settings: settings of the algorithm that override the recipe.
        seed: seed of all random numbers.
        seconds: training time, without evaluations and without compiling kernels. Default: set by the recipe.
        minutes: the same in minutes, instead of seconds.
        steps: stop after this many control steps of all environments, if that comes first.
        until: stop as soon as the mean return of an evaluation reaches this.
        cpu_time: count CPU time instead of wall time, so that other work on the machine does not shorten the run. CPU
            time is summed over all threads, so use it with threads=1.
        evaluate_every: s between evaluations without noise.
        evaluation_episodes: episodes per evaluation.
        checkpoint_every: s between checkpoints; another one is written at the end.
        resume: continue from the checkpoint in the folder as if the run had never stopped.
        begin_with: folder of another run of the same algorithm; training starts from its networks, including noise or
            temperature. Its task must have the same observations and actions; its options may differ: for example,
            first a task without costs that discourage moving, then with them. A learner with a replay still takes its
            warm_up steps at random.
        threads: CPU threads for simulation and networks. Default: all cores.
        device: device of the simulation and the networks. Default: CUDA if available.
        report: called after every iteration.
        stop: called after every iteration; if it returns True, a checkpoint is written and the run ends.
    """
    for name, value in (
        ("seconds", seconds),
        ("minutes", minutes),
        ("evaluate_every", evaluate_every),
        ("checkpoint_every", checkpoint_every),
    ):
        if value is not None:
            checks.positive(name, value, zero=name not in ("seconds", "minutes"))
    if minutes is not None:
        if seconds is not None:
            raise ValueError("seconds and minutes are both given; they are the same time, so give one of them.")
        seconds = 60.0 * minutes
    if steps is not None:
        checks.whole("steps", steps, 1)
    if until is not None and math.isnan(until):
        raise ValueError("until is nan; it must be a number.")
    for name in (options or {}).keys() & OWN:
        raise ValueError(f"{name} is not a task option here; it is an argument of train, or train chooses it.")
    found = task_class(task)
    called = task_name(found)
    rank, world, device = distributed.begin(device)
    learner_type = learner_class(algorithm)
    if world > 1 and not learner_type.parallel:
        raise ValueError(
            f"{algorithm!r} supports one process only; of {', '.join(ALGORITHMS)}, only 'shac' supports several."
        )
    budget, values = recipe(called, algorithm)
    numbers = make_settings(learner_type, {**values, **(settings or {})})
    seconds = budget if seconds is None else seconds
    folder = Path(folder or Path("runs") / f"{called.rpartition(':')[2]}-{algorithm}-{seed}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder is {folder}, which is a file; it must be a folder.")
    described = {
        "task": called,
        "algorithm": algorithm,
        "options": options or {},
        "settings": asdict(numbers),
        "seed": seed,
        "processes": world,
    }
    if begin_with is not None:
        described["begin_with"] = os.fspath(begin_with)
    if threads is not None:
        torch.set_num_threads(threads)
    extra = {**(options or {}), "threads": threads, **({} if device is None else {"device": device})}
    env = make(found, _share(numbers.num_envs, world), first_env=rank * (numbers.num_envs // world), **extra)
    learner = learner_type(env, numbers, seed)
    if begin_with is not None and not resume:
        _take_over(learner, Path(begin_with), algorithm)
    # after everything that can fail, so that an error leaves no folder behind
    saved = _prepare(folder, described, resume, rank, env.device, asdict(learner_type.Settings()))
    clock = 0.0
    if saved is not None:
        learner.load_state_dict(saved["learner"])
        clock, described = saved["clock"], saved["run"]  # has the begin_with of the original run
        if clock >= seconds:
            raise ValueError(f"{folder} has already trained for {clock:.0f} s; give a longer time to continue.")
        if steps is not None and learner.steps >= steps:
            raise ValueError(f"{folder} already has {learner.steps:,} steps; give more steps to continue.")
    run = _Run(folder, described, learner, saved)
    judge = make(found, evaluation_episodes, **extra) if rank == 0 else None
    evaluated, checkpointed = 0.0 if saved is None else saved.get("evaluated", clock), clock
    good = ended = False

    def now() -> float:  # training time only, without compiling
        return time.process_time() - LOADING.cpu if cpu_time else time.perf_counter() - LOADING.wall

    try:
        while not ended and clock < seconds and (steps is None or learner.steps < steps):
            began = now()
            row = learner.advance()
            clock += distributed.slowest(now() - began)
            row = {"steps": learner.steps, "seconds": clock, "steps/s": learner.steps / clock, **row}
            last = clock >= seconds or (steps is not None and learner.steps >= steps)
            if judge and (last or clock - evaluated >= evaluate_every):
                evaluated = clock
                measured = evaluate(judge, learner.policy, EVALUATION_SEED).summary()
                row |= {f"evaluated {name}": value for name, value in measured.items()}
                good = until is not None and measured["return"] >= until
                run.keep_best(measured["return"])
            ended = distributed.any_of(good or (stop is not None and stop()))
            run.add(row)
            if last or ended or clock - checkpointed >= checkpoint_every:
                checkpointed = clock
                run.save(clock, evaluated)
            if report:
                done = clock / seconds if steps is None else max(clock / seconds, learner.steps / steps)
                report(row, 1.0 if good else min(done, 1.0))
        distributed.meet()  # a process that leaves while another still saves can be aborted by gloo's threads
    finally:
        run.close()
        distributed.end()
    return folder


def _share(num_envs: int, world: int) -> int:
    if num_envs % world:
        raise ValueError(f"num_envs is {num_envs}; it must be a multiple of the {world} processes.")
    return num_envs // world


def _prepare(
    folder: Path, described: dict[str, Any], resume: bool, rank: int, device: torch.device, usual: dict[str, Any]
) -> dict[str, Any] | None:
    """When resuming, the checkpoint in the folder; otherwise prepares the folder for a new run and returns None.

    device: where to load the tensors. usual: defaults for settings that are missing in older runs.
    """
    path = folder / CHECKPOINT
    if not resume:
        if path.exists():
            raise FileExistsError(f"{folder} already contains a run; resume it, or choose another folder.")
        if rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            with replace_when_done(folder / "run.json") as temporary:
                temporary.write_text(json.dumps({**described, "version": __version__}, indent=2) + "\n", "utf-8")
        return None
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {CHECKPOINT}; there is nothing to resume.")
    saved = _read_checkpoint(path, device)
    begun, wanted = ({**run, **usual, **run["settings"]} for run in (saved["run"], described))
    for name, value in wanted.items():
        if name not in ("settings", "begin_with") and begun.get(name) != value:  # name the single setting that differs
            raise ValueError(f"{folder} has {name} {begun.get(name)}, not {value}; it must be the same to resume.")
    return {**saved, "learner": {**saved["learner"], **saved["own"][rank]}}


def _read_checkpoint(path: Path, device: torch.device | str) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about other file types
            saved = torch.load(path, map_location=device, weights_only=True)
        if saved.keys() >= {"run", "learner", "own", "clock", "rows"}:
            return saved
    except Exception as error:  # torch and pickle raise many types of errors for other file types
        raise ValueError(f"{path} is damaged or was not written by train.") from error
    raise ValueError(f"{path} was not written by train.")


def _take_over(learner: Learner, folder: Path, algorithm: str) -> None:
    """Load the networks of the run in the folder into a learner."""
    path = folder / CHECKPOINT
    if not path.exists():
        raise FileNotFoundError(f"begin_with is {folder}, which has no {CHECKPOINT}; it must be the folder of a run.")
    saved = _read_checkpoint(path, "cpu")
    run = saved["run"]
    if run["algorithm"] != algorithm:
        raise ValueError(f"begin_with is {folder}, a run of {run['algorithm']!r}; it must be a run of {algorithm!r}.")
    try:
        learner.begin_with(saved["learner"])
    except (KeyError, RuntimeError) as error:  # torch's message has a line for every weight
        raise ValueError(
            f"begin_with is {folder}, a run of {run['task']} with different networks; its task must have the same "
            "observations and actions, and its networks the same widths and layer norms."
        ) from error


class _Run:
    """Files of a run; only the first process writes them."""

    def __init__(self, folder: Path, described: dict[str, Any], learner: Learner, saved: dict[str, Any] | None):
        self.folder, self.described, self.learner = folder, described, learner
        self.log = RunLog(folder, 0 if saved is None else saved["rows"]) if distributed.rank() == 0 else None
        self.best = -math.inf if saved is None else self._best_before()
        """Return of best.pt."""

    def add(self, row: dict[str, float]) -> None:
        if self.log:
            self.log.add(row)

    def save(self, clock: float, evaluated: float) -> None:
        """Write a checkpoint and the current policy; evaluated: the clock at the last evaluation."""
        everything = self.learner.state_dict()
        # the state of each process, gathered into one file
        own = distributed.gather({name: everything.pop(name) for name in ("environments", "episodes")})
        if self.log is None:
            return
        clocks = {"clock": clock, "evaluated": evaluated, "rows": len(self.log.rows)}
        saved = {"run": self.described, "learner": everything, "own": own, **clocks}
        with replace_when_done(self.folder / CHECKPOINT) as temporary:
            torch.save(saved, temporary)
        self._save_policy("policy.pt", self.log.rows[-1])
        self.log.flush()

    def keep_best(self, value: float) -> None:
        """Write the policy to best.pt if this is the best evaluation so far; the last policy may be worse."""
        if value > self.best:
            self.best = value
            self._save_policy("best.pt", {"evaluated return": value})

    def _best_before(self) -> float:
        """Return of best.pt, from the file: it may be newer than the checkpoint, and then the log does not have it."""
        try:
            return load_policy(self.folder / "best.pt").info["log"]["evaluated return"]
        except (FileNotFoundError, ValueError, KeyError):  # no such file, or without a return
            return -math.inf

    def _save_policy(self, file: str, row: dict[str, float]) -> None:
        learner, described = self.learner, self.described
        finite = {name: value for name, value in row.items() if math.isfinite(value)}
        run = {name: described[name] for name in ("algorithm", "seed")}
        save_policy(self.folder / file, learner.policy, learner.env, described["options"], **run, log=finite)

    def close(self) -> None:
        if self.log:
            self.log.close()
