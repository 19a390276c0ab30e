"""Learning with and without the simulator's gradients: curves of many runs, all made by this command.

    python benchmarks/learning/learning.py                        # hours: all that is not yet in results/learning.json
    python benchmarks/learning/learning.py --only ant --seeds 3
    python benchmarks/learning/learning.py --quick                # a few seconds each, to see that it works

Every run has one thread, and its time is the CPU time of its process: `--jobs` of them share the machine. Runs that
are in the results already are skipped, so that the work can be spread over several calls; `--again` forgets them first.
The experiments are in experiments.py, the tables and curves in report.py.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

from learning.experiments import EXPERIMENTS, GROUPS, Experiment
from learning.report import PICTURES, SHOWS, report
from lib import machine, reporting

RUNS = machine.ROOT / "out" / "learning"
QUICK_SECONDS = 4.0
LOGGED = 20  # evaluations of a run, about


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="groups of experiments")
    parser.add_argument("--names", nargs="+", help="only experiments whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each experiment (%(default)s)")
    parser.add_argument("--jobs", type=int, default=machine.cores(), help="runs at a time (all cores)")
    parser.add_argument("--again", action="store_true", help="forget these experiments' earlier runs first")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SEED"), help="a single run, without writing results")
    options = parser.parse_args(arguments)
    if options.one:
        run(EXPERIMENTS[options.one[0]], int(options.one[1]), options.quick)
        return {}
    results = {**reporting.begin(options), "runs": _earlier(options)}
    chosen = [e for e in EXPERIMENTS.values() if e.group in options.only]
    if options.names:
        chosen = [e for e in chosen if any(name in e.name for name in options.names)]
    if options.quick:  # one of each group, once
        chosen = list({e.group: e for e in reversed(chosen)}.values())
        options.seeds = 1
    if options.again:
        results["runs"] = [r for r in results["runs"] if r["name"] not in {e.name for e in chosen}]
        machine.write_json(reporting.path("learning", options), results)
    done = {(r["name"], r["seed"]) for r in results["runs"]}
    # the first seed of everything, then the second: if it is stopped early, every experiment has some runs
    wanted = [(e, seed) for seed in range(options.seeds) for e in chosen if (e.name, seed) not in done]
    _work(wanted, options, results)
    results["runs"] = _earlier(options) or results["runs"]
    reporting.finish("learning", options, results, report)
    there = {EXPERIMENTS[run["name"]].group for run in results["runs"]}
    for name, plot in PICTURES.items():
        if there.isdisjoint(SHOWS[name]):
            continue
        reporting.draw(results, plot, reporting.path("learning", options).with_name(f"learning_{name}.png"))
    return results


def run(experiment: Experiment, seed: int, quick: bool) -> None:
    """One run in this process; its log stays in RUNS."""
    from warp_articulated.rl.learning.training import train

    seconds = QUICK_SECONDS if quick else experiment.seconds
    train(
        experiment.task,
        experiment.algorithm,
        _folder(experiment.name, seed, quick),
        options=experiment.options,
        settings=experiment.settings,
        seed=seed,
        seconds=seconds,
        cpu_time=True,
        evaluate_every=seconds / LOGGED,
        checkpoint_every=seconds / 4,
        threads=1,
        device="cpu",
    )


def _work(wanted: list[tuple[Experiment, int]], options, results: dict) -> None:
    """Run all of these, some at a time, and keep what each one logged as soon as it ends."""
    running: dict[subprocess.Popen, tuple[Experiment, int]] = {}
    waiting, total = list(wanted), len(wanted)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            experiment, seed = waiting.pop(0)
            command = [sys.executable, __file__, "--one", experiment.name, str(seed), *["--quick"] * options.quick]
            _clear(_folder(experiment.name, seed, options.quick))
            running[subprocess.Popen(command, stdout=subprocess.DEVNULL)] = (experiment, seed)
        time.sleep(0.2)
        for process in [p for p in running if p.poll() is not None]:
            experiment, seed = running.pop(process)
            name = f"{experiment.name}, seed {seed}"
            machine.progress(f"{total - len(waiting) - len(running)} of {total}: {name}: code {process.returncode}")
            if process.returncode == 0:
                _keep(_logged(experiment, seed, options.quick), options, results)


def _keep(run: dict, options, results: dict) -> None:
    """Add a run to the file; another call of this command may have added its own meanwhile."""
    path = reporting.path("learning", options)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [r for r in _earlier(options) if (r["name"], r["seed"]) != (run["name"], run["seed"])]
        results["runs"] = [*others, run]
        machine.write_json(path, results)


def _logged(experiment: Experiment, seed: int, quick: bool) -> dict:
    """What the results store of a run: its settings and its evaluations."""
    from warp_articulated.rl.learning.runlog import read_log

    folder = _folder(experiment.name, seed, quick)
    rows = [row for row in read_log(folder) if "evaluated return" in row]
    kept = [
        {
            "steps": row["steps"],
            "seconds": round(row["seconds"], 2),
            **{name.removeprefix("evaluated "): _short(x) for name, x in row.items() if name.startswith("evaluated ")},
        }
        for row in rows
    ]
    described = json.loads((folder / "run.json").read_text("utf-8"))
    return {
        "name": experiment.name,
        "seed": seed,
        "settings": described["settings"],
        "machine": machine.describe(),
        "rows": kept,
    }


def _short(x: float) -> float:
    return float(f"{x:.4g}")


def _earlier(options) -> list[dict]:
    path = reporting.path("learning", options)
    return json.loads(path.read_text("utf-8"))["runs"] if path.exists() else []


def _folder(name: str, seed: int, quick: bool) -> Path:
    return RUNS / f"{'quick-' * quick}{name.replace(' ', '-')}-{seed}"


def _clear(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()
