"""Time of the ray caster: a whole picture, and one more frame of a film.

    python benchmarks/output/render.py            # two minutes; writes benchmarks/results/render.json
    python benchmarks/output/render.py --quick    # seconds; small pictures, to out/bench

`picture` is wa.render: kinematics, scene, tree, camera and rays. `frame` is what every frame of a GIF costs: new poses,
fewer rays, the choice of colours, and the compression. Each is the fastest of its repetitions, in ms on all cores; the
CPU time, summed over the cores, is more reliable on a busy machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

import warp_articulated as wa
from lib import reporting
from lib.machine import progress, table
from warp_articulated.show.layout import automatic_spacing
from warp_articulated.show.pictures import gif
from warp_articulated.show.pictures.palette import FrameCoder, film_palette
from warp_articulated.show.pictures.rayscene import RayScene

ROBOTS = (1, 64, 1024, 4096)
SIZES = ((480, 270), (960, 540))


def fastest(run: Callable[[int], object], repetitions: int) -> tuple[float, float]:
    """Milliseconds by the clock and of CPU time; run gets the number of the repetition."""
    walls, cpus = [], []
    for k in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        run(k)
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
    return min(walls), min(cpus)


def poses(model: wa.Model, frames: int, robots: int) -> np.ndarray:
    """(frames, robots, nq): standing, with every joint a little elsewhere in every frame."""
    q = np.tile(model.q0, (frames, robots, 1))
    q[..., 7:] += np.random.default_rng(0).uniform(-0.05, 0.05, (frames, robots, model.nq - 7))
    return q


def measure(model: wa.Model, robots: int, size: tuple[int, int], repetitions: int) -> dict:
    progress(f"{robots} robots at {size[0]} x {size[1]}")
    qs = poses(model, repetitions, robots)
    picture = fastest(lambda k: wa.render(model, qs[k], size=size), repetitions)
    frame = film_frame(model, qs, size)
    names = ("picture_ms", "picture_cpu_ms", "frame_ms", "frame_cpu_ms")
    return {"robots": robots, "size": size, **dict(zip(names, (*picture, *frame)))}


def film_frame(model: wa.Model, qs: np.ndarray, size: tuple[int, int]) -> tuple[float, float]:
    scene = RayScene(model, qs.shape[1], automatic_spacing(model, qs[0]))
    cameras = gif._cameras(scene, qs, np.zeros((len(qs), 3)), size, None)
    coder = FrameCoder(scene, film_palette([scene.picture(cameras[0], size, gif.QUALITY)]), size)

    def frame(k: int) -> None:
        scene.pose(qs[k])
        scene.picture(cameras[k], size, gif.QUALITY)
        gif._write_frame(BytesIO(), 4, *coder.changes())

    return fastest(frame, len(qs))


def report(results: dict) -> dict[str, str]:
    cases = results["cases"]
    rows = [
        [
            c["robots"],
            "{} x {}".format(*c["size"]),
            c["picture_ms"],
            c["picture_cpu_ms"],
            c["frame_ms"],
            c["frame_cpu_ms"],
        ]
        for c in cases
    ]
    return {"table": table(("robots", "pixels", "picture, ms", "CPU ms", "frame of a GIF, ms", "CPU ms"), rows)}


def plot(results: dict, figure) -> None:
    axes = figure.subplots()
    cases = results["cases"]
    for k, size in enumerate(dict.fromkeys(tuple(c["size"]) for c in cases)):
        found = [c for c in cases if tuple(c["size"]) == size]
        for key, name, style in (("picture_ms", "picture", "o-"), ("frame_ms", "frame of a GIF", "s--")):
            label = f"{name}, {size[0]} x {size[1]}"
            axes.plot([c["robots"] for c in found], [c[key] for c in found], style, color=f"C{k}", label=label)
    axes.set(xscale="log", yscale="log", xlabel="Laikagos", ylabel="ms")


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    results = reporting.begin(options)
    model = wa.load("laikago")
    with reporting.quiet():
        wa.render(model, model.q0, size=(16, 9))  # compiles
        if options.quick:
            results["cases"] = [measure(model, robots, (96, 54), 2) for robots in (4, 64)]
        else:
            results["cases"] = [measure(model, robots, size, 6) for robots in ROBOTS for size in SIZES]
    return reporting.finish("render", options, results, report, plot)


if __name__ == "__main__":
    main()
