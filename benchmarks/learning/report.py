"""Tables and curves of learning.py, from its JSON only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from learning.experiments import (
    EXPERIMENTS,
    HORIZONS,
    LINKS,
    METHODS,
    PENDULUM_SECONDS,
    SAMPLES,
    SECONDS,
    STEADY_SECONDS,
)
from lib.machine import table

PAPER = {
    "paper: enhanced": (0.49, 1.93, 4.28, 7.81, 12.31, 17.78, 24.34),
    "paper: MBPO": (0.49, 1.90, 4.28, 7.50, 11.13, 15.02, 19.97),
}
LABELS = {
    "shac": "SHAC",
    "enhanced": "SAC, enhanced (exact)",
    "paper form": "SAC, enhanced (paper's form)",
    "mbpo": "MBPO",
    "mbpo reviewed": "MBPO, with reviews",
    "sac": "SAC",
    "sac reviewed": "SAC, with reviews",
    "sql": "SQL",
    "ppo": "PPO",
}
GRADIENTS = ("shac", "enhanced", "paper form")  # methods that have those of the simulation
SHOWN = (5, 7)  # chains, of which there are curves
COLOURS = {name: f"C{k}" for k, name in enumerate(LABELS)}
GOOD = 0.95  # of the most that a pendulum can earn
MISSING = "-"


def report(results: dict) -> dict[str, str]:
    """By name: tables of the runs' results."""
    runs = _by_name(results)
    made = {
        "pendulum": _pendulum(runs, _share, PAPER),
        "pendulum_best": _pendulum(runs, _best_share, {}),
        "pendulum_time": _pendulum_time(runs),
        "ant": _walk(runs, "ant", {"return": 0, "speed": 2, "length": 0}, 1500.0),
        "careful_ant": _walk(runs, "careful ant", {"return": 0, "speed": 2, "length": 0}, 1500.0),
        "laikago": _walk(runs, "laikago", {"return": 0, "velocity error": 2, "turning error": 2, "length": 0}, None),
        "horizon": _horizons(runs),
        "samples": _samples(runs),
    }
    return {name: text for name, text in made.items() if text}


def _by_name(results: dict) -> dict[str, list[dict]]:
    runs: dict[str, list[dict]] = {}
    for run in results["runs"]:
        if run["name"] in EXPERIMENTS and run["rows"]:
            runs.setdefault(run["name"], []).append(run)
    return runs


def _spread(values: Iterable[float], digits: int = 2) -> str:
    """The mean, and the least and the most in brackets if there are several."""
    values = list(values)
    if not values:
        return MISSING
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def _most(n: int) -> float:
    return n**2 / 2


def _share(run: dict, n: int) -> float:
    """Of the maximum that a pendulum can earn: what the run came to."""
    return _at_the_end(run) / _most(n)


def _at_the_end(run: dict, column: str = "return") -> float:
    """The mean of the last quarter of the evaluations."""
    rows = run["rows"][-max(1, len(run["rows"]) // 4) :]
    return float(np.mean([row[column] for row in rows]))


def _up_to(run: dict, steps: float) -> float:
    """The mean of the last quarter of the evaluations up to so many steps."""
    return _at_the_end({"rows": [row for row in run["rows"] if row["steps"] <= steps] or run["rows"][:1]})


def _best_share(run: dict, n: int) -> float:
    """The same of the best evaluation, whose policy the run keeps as best.pt."""
    return max(row["return"] for row in run["rows"]) / _most(n)


def _pendulum(runs: dict, share: Callable[[dict, int], float], others: dict[str, tuple[float, ...]]) -> str:
    """Shares of the maximal return by method and links."""
    lines = []
    for method in METHODS:
        found = [[share(run, n) for run in runs.get(f"pendulum {n} {method}", [])] for n in LINKS]
        if any(found):
            lines.append([LABELS[method], *map(_spread, found)])
    if not lines:
        return ""
    lines += [[name, *(f"{x / _most(n):.2f}" for x, n in zip(values, LINKS))] for name, values in others.items()]
    return table(["", *(f"n = {n}" for n in LINKS)], lines)


def _reached(run: dict, level: float) -> float | None:
    """Minutes until an evaluation's return was at least `level`."""
    return next((row["seconds"] / 60 for row in run["rows"] if row["return"] >= level), None)


def _stayed(run: dict, level: float) -> float | None:
    """Minutes after which no evaluation's return was below `level`."""
    low = [row["seconds"] / 60 for row in run["rows"] if row["return"] < level]
    return next((row["seconds"] / 60 for row in run["rows"] if not low or row["seconds"] / 60 > low[-1]), None)


def _times(found: list[dict], level: float, when=_reached) -> str:
    times = [when(run, level) for run in found]
    reached = [t for t in times if t is not None]
    if not times:
        return MISSING
    note = "" if len(reached) == len(times) else f" ({len(reached)} of {len(times)} runs)"
    return f"{_spread(reached, 1)}{note}" if reached else "never"


def _pendulum_time(runs: dict) -> str:
    """CPU minutes after which no evaluation was below 0.95 of the maximum."""
    lines = []
    for method in METHODS:
        found = [runs.get(f"pendulum {n} {method}", []) for n in LINKS]
        if any(found):
            lines.append([LABELS[method], *(_times(f, GOOD * _most(n), _stayed) for f, n in zip(found, LINKS))])
    limits = [["limit", *(f"{PENDULUM_SECONDS[n] / 60:g}" for n in LINKS)]]
    for method, seconds in SECONDS.items():
        if any(f"pendulum {n} {method}" in runs for n in LINKS):
            limits.append([f"limit of {LABELS[method]}", *(f"{seconds[n] / 60:g}" for n in LINKS)])
    return table(["", *(f"n = {n}" for n in LINKS)], [*lines, *limits]) if lines else ""


def _walk(runs: dict, group: str, columns: dict[str, int], level: float | None) -> str:
    lines = []
    for algorithm in ("shac", "ppo"):
        found = runs.get(f"{group} {algorithm}", [])
        if found:
            last = [run["rows"][-1] for run in found]
            cells = [_spread((row[c] for row in last), digits) for c, digits in columns.items()]
            minutes = _spread((row["seconds"] / 60 for row in last), 0)
            steps = _spread((row["steps"] / 1e6 for row in last), 1)
            more = [] if level is None else [_times(found, level)]
            lines.append([LABELS[algorithm], len(found), minutes, steps, *cells, *more])
    head = ["", "runs", "CPU minutes", "million steps", *columns]
    return table(head + ([] if level is None else [f"minutes to {level:.0f}"]), lines) if lines else ""


def _horizons(runs: dict) -> str:
    lines = []
    for experiment in HORIZONS:
        found = runs.get(experiment.name, [])
        if found:
            settings = experiment.settings
            steps = _spread((run["rows"][-1]["steps"] / 1e3 for run in found), 0)
            cells = [_spread([_at_the_end(run, c) for run in found], d) for c, d in (("return", 0), ("speed", 2))]
            lines.append([settings["horizon"], settings["num_envs"], len(found), steps, *cells])
    head = ["horizon", "environments", "runs", "thousand steps", "return in the last quarter", "speed"]
    return table(head, lines) if lines else ""


def _samples(runs: dict) -> str:
    lines = []
    reached: dict[str, float] = {}  # true steps that every run of an algorithm made
    for experiment in SAMPLES:
        ends = [run["rows"][-1]["steps"] for run in runs.get(experiment.name, [])]
        reached[experiment.algorithm] = min([reached.get(experiment.algorithm, np.inf), *ends])
    for experiment in SAMPLES:
        found = runs.get(experiment.name, [])
        if found:
            last = [run["rows"][-1] for run in found]
            best = [max(row["return"] for row in run["rows"]) for run in found]
            steps = _spread((row["steps"] / 1e3 for row in last), 1)
            kind = experiment.settings["samples"]
            common = reached[experiment.algorithm]
            equal = f"{_spread([_up_to(run, common) for run in found], 0)} at {common / 1e3:.0f} thousand"
            cells = [equal, _spread(map(_at_the_end, found), 0), _spread(best, 0)]
            lines.append([LABELS[experiment.algorithm], kind, len(found), steps, *cells])
    head = ["", "samples", "runs", "thousand true steps", "return at equal true steps", "return in the last quarter",
            "best evaluation"]  # fmt: skip
    return table(head, lines) if lines else ""


# -- pictures


def plot_pendulum(results: dict, figure) -> None:
    """Share of the maximum over links, and curves of two chains; above with gradients, below without."""
    runs = _by_name(results)
    figure.set_size_inches(11, 7)
    rows = figure.subplots(2, 3, sharey="row")
    for row, methods, paper in zip(rows, (GRADIENTS, [m for m in METHODS if m not in GRADIENTS]), PAPER.items()):
        for method in methods:
            points = [(n, [_share(run, n) for run in runs.get(f"pendulum {n} {method}", [])]) for n in LINKS]
            points = [(n, values) for n, values in points if values]
            if points:
                means = [np.mean(values) for _, values in points]
                spread = [[m - min(v), max(v) - m] for m, (_, v) in zip(means, points)]
                row[0].errorbar([n for n, _ in points], means, np.array(spread).T, marker="o", capsize=3,
                                color=COLOURS[method], label=LABELS[method])  # fmt: skip
            for n, panel in zip(SHOWN, row[1:]):
                _curve(panel, runs.get(f"pendulum {n} {method}", []), method, "seconds", 60.0, _most(n), label="")
        name, values = paper
        row[0].plot(LINKS, [x / _most(n) for x, n in zip(values, LINKS)], ":", color="0.4", label=name)
        row[0].set(ylabel="share of the maximal return", ylim=(-0.6, 1.05))
        for n, panel in zip(SHOWN, row[1:]):
            panel.set(title=f"n = {n}", xlim=(0.0, STEADY_SECONDS[n] / 60))
    for panel, label in zip(rows[1], ("links", *["CPU minutes"] * len(SHOWN))):
        panel.set(xlabel=label)


def plot_walk(results: dict, figure) -> None:
    """Returns of the walkers over time."""
    runs = _by_name(results)
    titles = {"ant": "Ant", "careful ant": "Ant, careful", "laikago": "LaikagoWalk"}
    for panel, group in zip(figure.subplots(1, 3), titles):
        for algorithm in ("shac", "ppo"):
            _curve(panel, runs.get(f"{group} {algorithm}", []), algorithm, "seconds", 60.0)
        panel.set(title=titles[group], xlabel="CPU minutes", ylabel="return")


def plot_samples(results: dict, figure) -> None:
    """Returns of the ant over true samples and over time: above of SAC, below of MBPO."""
    runs = _by_name(results)
    figure.set_size_inches(11, 7)
    rows = dict(zip(("sac", "mbpo"), figure.subplots(2, 2, sharex="col")))
    kinds = list(dict.fromkeys(e.settings["samples"] for e in SAMPLES))
    for experiment in SAMPLES:
        kind, found = experiment.settings["samples"], runs.get(experiment.name, [])
        for panel, x, unit in zip(rows[experiment.algorithm], ("steps", "seconds"), (1e3, 60.0)):
            _curve(panel, found, "", x, unit, colour=f"C{kinds.index(kind)}", label=f"samples: {kind}")
    for algorithm, (left, _) in rows.items():
        left.set(ylabel=f"return of the ant, {LABELS[algorithm]}")
    for panel, label in zip(rows["mbpo"], ("thousand true steps", "CPU minutes")):
        panel.set(xlabel=label)


def _curve(
    panel, runs: list[dict], method: str, x: str, unit: float, most: float = 1.0, colour=None, label=None
) -> None:
    """The mean of the runs and the range that they span, on a common grid."""
    if not runs:
        return
    ends = [run["rows"][-1][x] / unit for run in runs]
    grid = np.linspace(0.0, max(ends), 60)
    curves = []
    for run in runs:  # a run that ended early keeps what it had
        values = [row["return"] / most for row in run["rows"]]
        curves.append(np.interp(grid, [row[x] / unit for row in run["rows"]], values, left=np.nan))
    colour = colour or COLOURS[method]
    with np.errstate(all="ignore"):
        panel.plot(grid, np.mean(curves, 0), color=colour, label=LABELS[method] if label is None else label)
        panel.fill_between(grid, np.min(curves, 0), np.max(curves, 0), color=colour, alpha=0.2, lw=0)


PICTURES = {"pendulum": plot_pendulum, "walk": plot_walk, "samples": plot_samples}
SHOWS = {"pendulum": ["pendulum"], "walk": ["ant", "laikago"], "samples": ["samples"]}  # groups of experiments
