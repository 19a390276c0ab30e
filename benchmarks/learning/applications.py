"""The examples in full: motion control, parameter estimation and planning, three seeds each.

    python benchmarks/learning/applications.py                    # half an hour; writes results/applications.json
    python benchmarks/learning/applications.py --quick            # small versions: whether they work
    python benchmarks/learning/applications.py --only throw golf  # some; the others keep their earlier results

The results are what the examples return; of a full run, films and plots are copied to docs/images.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

from lib import machine, reporting
from lib.machine import progress, table

EXAMPLES = machine.ROOT / "examples"
IMAGES = machine.ROOT / "docs" / "images"
# options of a full run: the comparisons of the paper, and three seeds
FULL = {
    "throw": ["--more", "25"],
    "golf": ["--more", "30"],
    "racecar_friction": [],
    "identify": ["--seeds", "3"],
    "mpc": ["--seeds", "3"],
}
PICTURES = ("motion.gif", "curves.png", "landscape.png", "parameters.png")
# Figures 6 and 7 of the paper, and its text
PAPER = {
    "throw": "20 iterations of gradient descent; CMA-ES not as good after 500",
    "golf": "50 iterations of gradient descent; CMA-ES not as good after 1500",
    "racecar_friction": "10 iterations, friction 0.21",
    "identify": "-",
    "mpc": "-",
}


def spread(values, unit: str = "", digits: int = 2) -> str:
    """The smallest and the largest of some seeds."""
    low, high = (f"{value:.{digits}g}" for value in (min(values), max(values)))
    return (low if low == high else f"{low} to {high}") + (f" {unit}" if unit else "")


def _reached(runs: list[dict]) -> str:
    found = [run["reached"] for run in runs if run["reached"] is not None]
    missed = len(runs) - len(found)
    parts = [spread(found, "iterations", 4)] * bool(found) + [f"never in {missed} of {len(runs)}"] * bool(missed)
    return ", ".join(parts)


def _contest_row(name: str, it: dict) -> list[str]:
    ours, theirs = it["runs"]["Gauss-Newton"], it["runs"]["CMA-ES"]
    return [
        name, PAPER[name],
        f"within {1e3 * it['goal']:g} mm after {_reached(ours)}; at last {_last_mm(ours)}",
        f"CMA-ES: {_reached(theirs)}; at last {_last_mm(theirs)} after {len(theirs[0]['losses']) - 1} iterations",
    ]  # fmt: skip


def _last_mm(runs: list[dict]) -> str:
    return spread([1e3 * run["losses"][-1] for run in runs], "mm")


def _contest_lines(name: str, it: dict) -> list[str]:
    ours, theirs = it["runs"]["Gauss-Newton"], it["runs"]["CMA-ES"]
    quick, slow = (np.mean([run["seconds"][-1] for run in runs]) for runs in (ours, theirs))
    lines = [
        f"{name}: {1e3 * ours[0]['losses'][0]:.0f} mm from the target at first. Gauss-Newton is within "
        f"{1e3 * it['goal']:g} mm after {_reached(ours)} ({_seconds(ours)}), and ends at {_last_mm(ours)} after "
        f"{len(ours[0]['losses']) - 1} iterations, {quick:.2g} s. CMA-ES is there after {_reached(theirs)} "
        f"({_seconds(theirs)}), and ends at {_last_mm(theirs)} after {len(theirs[0]['losses']) - 1} iterations, "
        f"{slow:.2g} s."
    ]
    if "cma_same_time" in it:
        lines.append(
            f"{name}: in the time that Gauss-Newton took for all its iterations, CMA-ES came to "
            f"{spread([1e3 * x for x in it['cma_same_time']], 'mm')}."
        )
    return lines


def _seconds(runs: list[dict]) -> str:
    found = [run["reached_seconds"] for run in runs if run["reached_seconds"] is not None]
    return spread(found, "s") if found else "never"


def _identified(it: dict) -> tuple[list[str], str]:
    """Sentences and the table of errors, over all seeds."""
    seeds = it["seeds"]
    lines = []
    for what, unit in (("base_mm", "mm"), ("joints_mrad", "mrad")):
        before, after, truth = (
            spread([run["prediction"][which][what] for run in seeds], unit) for which in ("before", "after", "truth")
        )
        label = {"base_mm": "the base's position", "joints_mrad": "the joints' angles"}[what]
        lines.append(
            f"identify: held-out motion, {label}: predicted to {before} before, {after} after; with MuJoCo's own "
            f"parameters in our simulator {truth}."
        )
    groups = list(seeds[0]["within_two_sd"])
    inside = [f"{name} {spread([100 * run['within_two_sd'][name] for run in seeds], '%', 3)}" for name in groups]
    known = [f"{name} {spread([100 * run['determined'][name] for run in seeds], '%', 3)}" for name in groups]
    lines += [
        f"identify: true values within two standard deviations: {', '.join(inside)}.",
        f"identify: parameters whose standard deviation is below half of the one assumed at first: {', '.join(known)}.",
    ]
    rows = [
        [name, *(spread([run["table"][name][which] for run in seeds]) for which in ("before", "after"))]
        for name in seeds[0]["table"]
    ]
    return lines, table(["root mean square error of", "before", "after"], rows)


def report(results: dict) -> dict[str, str]:
    rows, lines, made = [], [], {}
    for name in ("throw", "golf"):
        if name in results:
            rows.append(_contest_row(name, results[name]))
            lines += _contest_lines(name, results[name])
    if it := results.get("racecar_friction"):
        rows.append([*_contest_row("racecar_friction", it)[:2], f"{_contest_row('racecar_friction', it)[2]}; friction "
                     f"{it['friction']:.4f}", _contest_row("racecar_friction", it)[3]])  # fmt: skip
        lines += _contest_lines("racecar_friction", it)
        simplex = it["runs"]["Nelder-Mead"]
        lines.append(
            f"racecar_friction: Nelder-Mead is within {1e3 * it['goal']:g} mm after {_reached(simplex)} "
            f"({_seconds(simplex)}), each one simulation."
        )
    if it := results.get("identify"):
        said, made["identify"] = _identified(it)
        lines += said
        error = [run["prediction"]["before"]["base_mm"] / run["prediction"]["after"]["base_mm"] for run in it["seeds"]]
        rows.append(["identify", "-", f"{it['recordings']} recordings by MuJoCo, {it['iterations']} iterations: base "
                     f"of held-out motion predicted {spread(error)} times better", ""])  # fmt: skip
    if it := results.get("mpc"):
        stand = f"{spread(it['stand'], digits=3)} of {it['robots']} fallen robots stand, {spread(it['ms'], 'ms')} per "
        stand += "iteration and robot"
        other = f"by the first guess alone {spread(it['guess'], digits=3)}; told to stand at once "
        other += spread(it["at_once"], digits=3)
        rows.append(["mpc", "-", stand, other])
        lines.append(f"mpc: {stand}; {other}.")
    facts = results["machine"]
    made["machine"] = f"The machine: {facts['cpu']}, {facts['cores']} cores."
    made["table"] = table(["example", "paper", "ours", "beside it"], rows)
    made["sentences"] = "\n".join(f"- {line}" for line in lines)
    return made


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=FULL, default=list(FULL))
    options = parser.parse_args(arguments)
    path = reporting.path("applications", options)
    results = reporting.begin(options)
    if path.exists():
        kept = json.loads(path.read_text("utf-8"))
        results |= {name: kept[name] for name in FULL if name in kept}
    sys.path.insert(0, str(EXAMPLES))
    with reporting.quiet():
        for name in options.only:
            progress(f"== {name}")
            folder = machine.ROOT / "out" / name
            size = ["--quick", "--seeds", "1"] if options.quick else FULL[name]
            results[name] = importlib.import_module(name).main(["--out", str(folder), *size])
            machine.write_json(path, results)  # the next one may fail
            if not options.quick:
                for picture in PICTURES:
                    if (folder / picture).exists():
                        shutil.copyfile(folder / picture, IMAGES / f"{name}_{picture}")
    return reporting.finish("applications", options, results, report)


if __name__ == "__main__":
    main()
