"""The contract of speed/peers.py: what an engine offers for the standing robot, and how it is timed and checked.

An engine's module has a class `Standing` with the methods of the one below. The scene is a folder that
standing_scene.py wrote. Needs numpy only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import time
import traceback
from importlib import metadata
from pathlib import Path

import numpy as np

from engines.common import Wrapper, message
from lib import machine

HEIGHT_TOLERANCE = 5e-3  # m; soft contacts sink by up to 2.5 mm, a robot that has fallen differs by 100 mm
DRIFT_TOLERANCE = 20e-3  # m; drive targets that differ by 0.02 rad move the base by some millimetres
MASS_TOLERANCE = 1e-4  # relative; single precision and a file's digits
INPUTS = 3  # the base's linear velocity; the drives' targets follow


class Scene:
    """What standing_scene.py wrote: q is base position, quaternion xyzw, joint angles; qd has world axes."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        for name, value in json.loads((self.folder / "scene.json").read_text("utf-8")).items():
            setattr(self, name, np.array(value) if isinstance(value, list) and name != "joints" else value)
        self.nq, self.nu = len(self.q0), len(self.u0)
        self.nv = self.nq - 1
        self.mjcf, self.urdf = self.folder / "laikago.xml", self.folder / "laikago.urdf"

    def targets(self, batch: int) -> np.ndarray:
        """(batch, nu) drive targets; the first are the scene's own."""
        return self.variants[np.arange(batch) % len(self.variants)]

    def drives(self, target: np.ndarray, angle: np.ndarray, speed: np.ndarray) -> np.ndarray:
        """(nu,) torques, N m, for engines whose drives are computed outside."""
        return np.clip(self.kp * (target - angle) - self.kd * speed, -self.effort, self.effort)


class Standing(Wrapper):
    """A gradient is with respect to the base's initial linear velocity and the drives' targets."""

    simulated = ""
    dtype = "float32"
    dt = 1e-3
    threads = 1
    stands = True  # False: it has no contacts, and is marked so in the tables

    def __init__(self, scene: Scene, options: argparse.Namespace):
        self.scene, self.options = scene, options

    def mass(self) -> float:
        """Total, kg."""
        raise NotImplementedError

    def build(self, batch: int) -> None:
        """Makes a simulation of so many robots; called more than once."""
        raise NotImplementedError

    def reset(self, q: np.ndarray, qd: np.ndarray, targets: np.ndarray) -> None:
        """Sets states (batch, nq), (batch, nv) and drive targets (batch, nu)."""
        raise NotImplementedError

    def run(self, steps: int) -> None:
        """Simulates so many steps, and returns when they are done."""
        raise NotImplementedError

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """(batch, nq), (batch, nv)"""
        raise NotImplementedError

    def gradient(self, steps: int) -> np.ndarray:
        """(batch, 3 + nu): of x + z of the base after so many steps from the state of the last `reset`."""
        raise NotImplementedError


def version(engine: Standing) -> str:
    """Of its package, and of the one it is built on."""
    under = f" ({engine.built_on} {metadata.version(engine.built_on)})" if engine.built_on else ""
    return metadata.version(engine.package) + under


def fallen(scene: Scene, q: np.ndarray, height: float, tolerance: float) -> str:
    """Empty, or what is wrong with poses (n, nq)."""
    if not np.isfinite(q).all():
        return "A state is not finite."
    tilt = 1 - 2 * (q[:, 3] ** 2 + q[:, 4] ** 2)  # z of the chassis' z axis
    if (np.abs(q[:, 2] - height) > tolerance).any() or (tilt < 0.98).any():
        low, high = q[:, 2].min(), q[:, 2].max()
        return f"It does not stand as ours does: base heights are {low:.4f} to {high:.4f} m, not {height:.4f} m."
    return ""


def settle(engine: Standing, scene: Scene) -> tuple[np.ndarray, np.ndarray, dict, str]:
    """One robot stands for half a second: q, qd, facts, and what is wrong."""
    start = time.perf_counter()
    engine.build(1)
    engine.reset(scene.q0[None], np.zeros((1, scene.nv)), scene.u0[None])
    engine.run(1)
    facts = {"compile_seconds": time.perf_counter() - start, "mass": float(engine.mass())}
    if abs(facts["mass"] / scene.mass - 1) > MASS_TOLERANCE:
        return scene.q0, np.zeros(scene.nv), facts, f"It weighs {facts['mass']:.3f} kg, not {scene.mass:.3f} kg."
    if not engine.stands:
        return scene.settled_q, np.zeros(scene.nv), facts, ""
    engine.reset(scene.q0[None], np.zeros((1, scene.nv)), scene.u0[None])
    engine.run(round(scene.settle_seconds / engine.dt))
    q, qd = (x[0].astype(float) for x in engine.state())
    bad = fallen(scene, q[None], scene.settled_q[2], HEIGHT_TOLERANCE)
    facts |= {"settled_q": [round(float(x), 7) for x in q] if np.isfinite(q).all() else None}
    return q, qd, facts, bad


def affordable(engine: Standing, seconds: float, most: int) -> int:
    """Steps that take about so long. The first ones are not typical: a solver that starts warm has little to do."""
    steps, took = 1, 0.0
    while took < 0.2 * seconds and steps < most:
        start = time.perf_counter()
        engine.run(steps)
        took = time.perf_counter() - start
        if took < 0.2 * seconds:
            steps *= 2
    return int(np.clip(steps * seconds / max(took, 1e-9), 1, most))


def throughput(engine: Standing, scene: Scene, q: np.ndarray, qd: np.ndarray, options) -> tuple[dict, str]:
    """Steps per second of a batch of robots that stand already, fastest of some repetitions."""
    batch = options.batch
    start = time.perf_counter()
    engine.build(batch)
    state = [np.repeat(x[None], batch, axis=0) for x in (q, qd)]
    engine.reset(*state, scene.targets(batch))
    engine.run(1)
    built = time.perf_counter() - start
    steps = affordable(engine, options.seconds, options.steps)
    seconds = []
    for _ in range(options.repetitions):
        engine.reset(*state, scene.targets(batch))
        start = time.perf_counter()
        engine.run(steps)
        seconds.append(time.perf_counter() - start)
    last = engine.state()[0]
    rate = batch * steps / min(seconds)
    facts = {
        "steps": steps, "seconds": seconds, "first_step_seconds": built, "steps_per_second": rate,
        "ms_per_step": 1e3 * min(seconds) / steps, "us_per_robot_step": 1e6 / rate,
        "realtime_factor": rate * engine.dt,
        "heights": [float(last[:, 2].min()), float(last[:, 2].max())],
        "finite": bool(all(np.isfinite(x).all() for x in engine.state())),
    }  # fmt: skip
    return facts, fallen(scene, last, q[2], DRIFT_TOLERANCE)


def differences(engine: Standing, scene: Scene, q, qd, steps: int, delta: float) -> np.ndarray:
    """(3 + nu,): central differences of the engine's own simulation, all inputs in one batch."""
    count = INPUTS + scene.nu
    qs, qds = np.repeat(q[None], 2 * count, axis=0), np.repeat(qd[None], 2 * count, axis=0)
    targets = np.repeat(scene.u0[None], 2 * count, axis=0)
    for k in range(count):
        for row, sign in ((2 * k, 1), (2 * k + 1, -1)):
            if k < INPUTS:
                qds[row, k] += sign * delta
            else:
                targets[row, k - INPUTS] += sign * delta
    engine.reset(qs, qds, targets)
    engine.run(steps)
    end = engine.state()[0].astype(float)
    # the two positions are subtracted before they are added up: in single precision that keeps a digit
    moved = (end[0::2] - end[1::2])[:, [0, 2]]
    return moved.sum(1) / (2 * delta)


def check_gradient(engine: Standing, scene: Scene, q, qd, options) -> dict:
    """Cost at this batch, and error of the first robot's gradient against differences of the same simulation."""
    # as much simulated time for all: over 32 steps of 0.1 ms a drive moves the base by less than single precision shows
    batch, steps = options.batch, round(options.gradient_steps * scene.dt / engine.dt)
    engine.build(batch)
    targets = np.repeat(scene.u0[None], batch, axis=0)
    state = [np.repeat(x[None], batch, axis=0) for x in (q, qd)]
    engine.reset(*state, targets)
    start = time.perf_counter()
    found = np.asarray(engine.gradient(steps), float)
    first = time.perf_counter() - start
    seconds, peaks = [], []
    for _ in range(options.repetitions):
        engine.reset(*state, targets)
        reset_peak()
        before = machine.memory_mb("VmRSS")
        start = time.perf_counter()
        engine.gradient(steps)
        seconds.append(time.perf_counter() - start)
        peaks.append(machine.memory_mb("VmHWM") - before)
    forward = []
    for _ in range(options.repetitions):
        engine.reset(*state, targets)
        start = time.perf_counter()
        engine.run(steps)
        forward.append(time.perf_counter() - start)
    facts = {
        "supported": True, "method": engine.method, "dtype": engine.dtype, "steps": steps, "batch": batch,
        "seconds": seconds, "us_per_robot_step": 1e6 * min(seconds) / (batch * steps),
        "ratio_to_forward": min(seconds) / min(forward), "peak_mb": max(peaks), "first_seconds": first,
        "finite": bool(np.isfinite(found).all()),
    }  # fmt: skip
    return facts | error(engine, scene, q, qd, steps, found[0])


def error(engine: Standing, scene: Scene, q, qd, steps: int, found: np.ndarray) -> dict:
    """Relative error of a gradient, and how far differences with another step are from those: the error of the oracle.

    Velocity and targets have different units, so each has its own error, and the larger one is reported.
    """
    engine.build(2 * (INPUTS + scene.nu))
    deltas = (1e-5, 2e-5) if engine.dtype == "float64" else (1e-3, 2e-3)
    fine, coarse = (differences(engine, scene, q, qd, steps, delta) for delta in deltas)
    parts = {"velocity": slice(0, INPUTS), "targets": slice(INPUTS, None)}
    size = {name: max(float(np.linalg.norm(fine[part])), 1e-12) for name, part in parts.items()}
    apart = {name: float(np.linalg.norm(found[part] - fine[part])) / size[name] for name, part in parts.items()}
    noise = {name: float(np.linalg.norm(coarse[part] - fine[part])) / size[name] for name, part in parts.items()}
    finite = np.isfinite(found).all()
    return {
        "relative_error": max(apart.values()) if finite else None,
        "relative_errors": apart if finite else None,
        "difference_noise": max(noise.values()),
        "gradient": found.tolist() if finite else None,
        "differences": fine.tolist(),
    }


def reset_peak() -> None:
    """The peak starts again from what is resident now, without what the allocator keeps of earlier calls."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    machine.reset_peak()


def report(cls: type[Standing], options: argparse.Namespace) -> dict:
    """All results of a run; `refused` says why where no figure may be used."""
    scene = Scene(options.scene)
    engine = cls(scene, options)
    facts = {"name": engine.name, "version": version(engine), "batch": options.batch}
    q, qd, found, bad = settle(engine, scene)
    # read at the end: some engines set these only when they are built
    names = ("simulated", "contact", "dtype", "dt", "threads", "stands")
    facts |= found
    if not bad and not options.gradient:
        found, bad = throughput(engine, scene, q, qd, options)
        facts |= found
    elif not bad and engine.method:
        facts["gradient"] = check_gradient(engine, scene, q, qd, options)
    elif not bad:
        facts["gradient"] = {"supported": False, "why": engine.no_gradient}
    return facts | {name: getattr(engine, name) for name in names} | ({"refused": bad} if bad else {})


def arguments(text: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engines ENGINE standing", description="One engine on the standing Laikago.")
    parser.add_argument("--scene", type=Path, required=True, help="folder that standing_scene.py wrote")
    parser.add_argument("--variant", default="", help="solver, where the engine has several")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000, help="at most, of one repetition")
    parser.add_argument("--seconds", type=float, default=1.0, help="about, of one repetition")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--gradient", action="store_true", help="the gradient in place of steps per second")
    parser.add_argument("--gradient-steps", type=int, default=32, help="of 1 ms; more where the engine's are shorter")
    return parser.parse_args(text)


def run(cls: type[Standing], text: list[str]) -> dict:
    """The report of one engine, as `python -m engines` asks for it."""
    options = arguments(text)
    try:
        return report(cls, options)
    except Exception as problem:
        traceback.print_exc()
        return {"name": cls.name, "batch": options.batch, "refused": message(problem)}
