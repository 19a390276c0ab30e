"""The contract of gradients/scoreboard.py: what an engine offers for its cases, and how its answers are measured.

An engine's module has a class `Scoreboard` with the methods of the one below. Needs numpy only.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib import metadata
from typing import ClassVar

import numpy as np

from engines.common import Wrapper, message
from gradients.cases import CASES, UNITS, Case


class Scoreboard(Wrapper):
    dtype = "float64"
    models = ("slide", "bounce", "swing", "double", "spin")
    no_model = "The engine has no contacts."  # why other models are not in `models`
    missing: ClassVar[dict[str, str]] = {}  # why there is no derivative by this input
    dts: ClassVar[dict[str, float]] = {}  # seconds per step by model, where it is not 1 ms

    def __init__(self, variant: str = ""):
        self.variant = variant
        self.worlds: dict = {}

    def dt(self, case: Case) -> float:
        return self.dts.get(case.model, 1e-3)

    def steps(self, case: Case) -> int:
        return round(case.span / self.dt(case))

    def make(self, case: Case, count: int):
        """For engines that simulate copies side by side: so many of the case's model."""
        raise NotImplementedError

    def world(self, case: Case, count: int):
        """What `make` made, kept for the next call."""
        if (case.name, count) not in self.worlds:
            self.worlds[case.name, count] = self.make(case, count)
        return self.worlds[case.name, count]

    def value(self, case: Case, x: dict[str, float]) -> float:
        """The output for these inputs."""
        raise NotImplementedError

    def values(self, case: Case, xs: list[dict[str, float]]) -> np.ndarray:
        return np.array([float(self.value(case, x)) for x in xs])

    def gradient(self, case: Case) -> dict[str, float]:
        """Its derivatives at the case's inputs, without inputs that it cannot differentiate by."""
        raise NotImplementedError


LADDERS = {
    "float64": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8),
    "float32": (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 2e-5, 1e-5),
}


def differences(engine: Scoreboard, case: Case, names: list[str]) -> dict[str, tuple[float, float]]:
    """Central differences of the engine's own program by each input, and how far neighbouring steps are from them.

    Of the ladder's steps, the one that agrees best with both of its neighbours counts.
    """
    ladder, xs = LADDERS[engine.dtype], []
    deltas = {name: [d * UNITS.get(name, 1.0) for d in ladder] for name in names}
    for name in names:
        for delta in deltas[name]:
            xs += [case.inputs | {name: case.inputs[name] + side * delta} for side in (1, -1)]
    ends = engine.values(case, xs).reshape(len(names), len(ladder), 2)
    found = {}
    for name, pair in zip(names, ends):
        quotients = (pair[:, 0] - pair[:, 1]) / (2 * np.array(deltas[name]))
        spread = np.maximum(abs(quotients[1:-1] - quotients[:-2]), abs(quotients[1:-1] - quotients[2:]))
        # relative: where a program is a sawtooth finer than a step, only small steps see its derivative
        relative = spread / np.maximum(abs(quotients[1:-1]), 1e-12)
        best = int(np.argmin(np.where(np.isfinite(relative), relative, np.inf)))
        found[name] = float(quotients[1 + best]), float(spread[best])
    return found


def measure(engine: Scoreboard, case: Case) -> dict:
    """The engine's answers for one case; numbers that are not finite become None, which JSON supports."""
    if case.model not in engine.models:
        return {"unsupported": engine.no_model}
    start = time.perf_counter()
    value = engine.values(case, [case.inputs])[0]
    if not engine.method:
        return {"unsupported": engine.no_gradient, "value": _number(value), "dt": engine.dt(case)}
    gradient = engine.gradient(case)
    quotients = differences(engine, case, list(gradient))
    inputs: dict[str, dict] = {}
    for name in case.inputs:
        if name in gradient:
            of, noise = quotients[name]
            inputs[name] = {"gradient": _number(gradient[name]), "differences": _number(of), "noise": _number(noise)}
        else:
            inputs[name] = {"unsupported": engine.missing.get(name, "It has no derivative by this input.")}
    seconds = round(time.perf_counter() - start, 2)
    return {"value": _number(value), "dt": engine.dt(case), "inputs": inputs, "seconds": seconds}


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def report(engine: Scoreboard, names: list[str]) -> dict:
    found: dict = {"name": engine.name, "version": metadata.version(engine.package), "cases": {}}
    for name in names:
        try:
            found["cases"][name] = measure(engine, CASES[name])
        except Exception as problem:
            traceback.print_exc()
            found["cases"][name] = {"failed": message(problem)}
        print(name, found["cases"][name], file=sys.stderr, flush=True)
    return found | {name: getattr(engine, name) for name in ("dtype", "method", "contact")}


def run(cls: type[Scoreboard], text: list[str]) -> dict:
    """The report of one engine, as `python -m engines` asks for it."""
    parser = argparse.ArgumentParser(prog="engines ENGINE scoreboard", description="One engine on the truth cases.")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--variant", default="", help="solver or mode, where the engine has several")
    options = parser.parse_args(text)
    return report(cls(options.variant), options.cases.split(","))
