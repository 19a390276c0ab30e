"""What all benchmark commands share: options, JSON, printed fragments, plot.

A benchmark x.py has `report(results) -> {name: Markdown}` and, with a plot, `plot(results, figure)`. Both use only
results/x.json, so that docs/make_benchmarks.py can write the same text into the pages, and a test can check that the
pages say the same.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lib import machine

QUICK = machine.ROOT / "out" / "bench"  # quick runs do not replace the results that the pages show


def parser(doc: str) -> argparse.ArgumentParser:
    """With the options that all benchmarks have; `doc` is the module's docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small sizes, a first look; written to out/bench")
    made.add_argument(
        "--out", type=Path, help="raw results (default: benchmarks/results); the plot goes to the same folder"
    )
    return made


def begin(options: argparse.Namespace) -> dict:
    """The start of a benchmark's results."""
    return {"machine": machine.describe(), "quick": options.quick, "load": machine.load()}


def path(name: str, options: argparse.Namespace) -> Path:
    """Where the raw results of the benchmark `name`.py go."""
    return options.out or (QUICK if options.quick else machine.RESULTS) / f"{name}.json"


def finish(
    name: str,
    options: argparse.Namespace,
    results: dict,
    report: Callable[[dict], dict[str, str]],
    plot: Callable | None = None,
) -> dict:
    """Write, print and draw the results of the benchmark `name`.py."""
    file = path(name, options)
    machine.write_json(file, results)
    if options.quick:
        print("Quick run: small sizes, a few repetitions.\n")
    if results["load"] > 0.5:
        print(f"Other programs were running (load {results['load']:.1f} at the start): these figures are noisy.\n")
    print(f"{results['machine']}\n")
    print("\n\n".join(report(results).values()))
    if plot:
        draw(results, plot, file.with_suffix(".png"))
    return results


def draw(results: dict, plot: Callable, path: Path) -> None:
    """`plot(results, figure)` fills a matplotlib figure, which is saved; without matplotlib nothing is drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        machine.progress("matplotlib is not installed: no plot is drawn.")
        return
    figure = Figure(figsize=(11, 4), layout="constrained")  # without pyplot: no window system, nothing to close
    plot(results, figure)
    legends = [axes.get_legend_handles_labels() for axes in figure.axes]
    fullest = max(legends, key=lambda legend: len(legend[1]))
    same = len(legends) > 1 and all(labels and set(labels) <= set(fullest[1]) for _, labels in legends)
    if same:  # one legend for all, to the right
        figure.legend(*fullest, loc="outside right center", fontsize=8)
    for axes, (handles, _) in zip(figure.axes, legends):
        axes.grid(True, which="major", alpha=0.3)
        if handles and not same:
            axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)


def exponent(x, y) -> float:
    """The exponent of y ~ x^exponent, by least squares of the logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def quiet() -> contextlib.redirect_stdout:
    """For the measurements: Warp writes messages about its kernels to stdout, which is for the report."""
    return contextlib.redirect_stdout(sys.stderr)
