"""USD exports: seconds, size and memory, and whether Newton reads the physics. Results: results/usd_export.json.

    python benchmarks/output/usd_export.py [--quick] [--newton-python PYTHON]

Every export runs in a new process, which reports its own peak memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

from lib import machine, reporting
from lib.machine import table
from output import usd_newton

CASES = {  # name: (environments, frames, layout)
    "4096 x 200": (4096, 200, "instancer"),
    "4096 x 2000": (4096, 2000, "instancer"),
    "16 x 600": (16, 600, "hierarchy"),
    "16 x 5000": (16, 5000, "hierarchy"),
    "16 x 20000": (16, 20000, "hierarchy"),
}
QUICK = {"100 x 3": (100, 3, "instancer"), "4 x 30": (4, 30, "hierarchy")}

# A stream of Laikagos around their default pose; making them is timed apart. Poses are read back from the last frame.
PROBE = """
import json, os, sys, time
import numpy as np
import warp_articulated as wa
from pxr import Usd, UsdGeom
from warp_articulated.geometry.kinematics import batch_body_poses
from warp_articulated.show.layout import grid_offsets
from warp_articulated.usd import UsdWriter

path, envs, frames, layout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model, spacing = wa.load("laikago_feet"), 1.5
rng = np.random.default_rng(0)
step = max(1, 100_000 // envs)
status = lambda key: int(open("/proc/self/status").read().split(key + ":")[1].split()[0]) / 1024

def chunk(start):
    q = np.broadcast_to(model.q0, (min(step, frames - start), envs, model.nq)).astype(np.float32)
    return q + np.float32(0.05) * rng.standard_normal(q.shape, np.float32)

making, before, began, cpu = 0.0, status("VmHWM"), time.perf_counter(), time.process_time()
making_cpu = 0.0
with UsdWriter(path, model, envs, layout=layout, spacing=spacing) as writer:
    for start in range(0, frames, step):
        now, now_cpu = time.perf_counter(), time.process_time()
        q = chunk(start)
        making, making_cpu = making + time.perf_counter() - now, making_cpu + time.process_time() - now_cpu
        writer.write(q)
seconds, cpu = time.perf_counter() - began - making, time.process_time() - cpu - making_cpu
peak = status("VmHWM")
positions, _ = batch_body_poses(model, q[-1])
stage = Usd.Stage.Open(path)
if layout == "instancer":
    read = np.array(UsdGeom.PointInstancer(stage.GetPrimAtPath("/World/robots")).GetPositionsAttr().Get(frames - 1))
    read = read.reshape(envs, -1, 3) - grid_offsets(envs, spacing)[:, None]
else:
    links = [[stage.GetPrimAtPath(f"/World/env_{e}/{name}") for name in model.link_names] for e in range(envs)]
    read = np.array([[p.GetAttribute("xformOp:translate").Get(frames - 1) for p in row] for row in links])
print(json.dumps({
    "seconds": seconds, "cpu_seconds": cpu, "megabytes": os.path.getsize(path) / 1e6,
    "memory_before_mb": before, "memory_peak_mb": peak, "error": float(np.abs(read - positions).max()),
}))
"""


def measure(envs: int, frames: int, layout: str, folder: Path) -> dict:
    """Time and peak memory of one export; refuses a file that does not hold the poses."""
    path = folder / "run.usdc"
    command = [sys.executable, "-c", PROBE, str(path), str(envs), str(frames), layout]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path.unlink(missing_ok=True)
    if done.returncode:
        raise SystemExit(f"The export of {envs} x {frames} failed:\n{done.stderr}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if not result["error"] < 1e-4:  # single precision, 50 m from the origin
        raise SystemExit(f"The export of {envs} x {frames} holds wrong poses: they differ by {result['error']} m.")
    return {"envs": envs, "frames": frames, "layout": layout, **result}


def export_table(results: dict) -> str:
    header = ["environments x frames", "layout", "s", "CPU s", "MB", "peak memory MB", "before MB"]
    lines = [
        [name, r["layout"], r["seconds"], r["cpu_seconds"], r["megabytes"], r["memory_peak_mb"], r["memory_before_mb"]]
        for name, r in results.items()
    ]
    return table(header, lines)


def newton_table(results: dict) -> str:
    robots = [name for name in results if name != "version"]
    keys = list(results["every joint"])
    return table(["largest difference", *keys], [[name, *(results[name].get(k, 0.0) for k in keys)] for name in robots])


def report(results: dict) -> dict[str, str]:
    newton = results["newton"]
    text = "Newton was not asked: no Python with newton and newton-usd-schemas was given (--newton-python)."
    if newton is not None:
        text = f"Newton {newton['version']} reads the same physics:\n\n{newton_table(newton)}"
    return {"table": export_table(results["exports"]), "newton": text}


def plot(results: dict, figure) -> None:
    """Time and peak of memory against the poses that are written."""
    panels = figure.subplots(1, 2)
    exports = results["exports"].values()
    for layout in dict.fromkeys(r["layout"] for r in exports):
        found = [r for r in exports if r["layout"] == layout]
        poses = [r["envs"] * r["frames"] for r in found]
        for axes, key in zip(panels, ("seconds", "memory_peak_mb")):
            axes.plot(poses, [r[key] for r in found], "o-", label=layout)
    for axes, label in zip(panels, ("s", "peak memory, MB")):
        axes.set(xscale="log", yscale="log", xlabel="environments x frames", ylabel=label)


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--newton-python", default=sys.executable, help="a Python that has Newton")
    options = parser.parse_args(arguments)
    results = reporting.begin(options)
    place = options.out.parent if options.out else machine.RESULTS  # gigabytes: more than some systems have in /tmp
    place.mkdir(parents=True, exist_ok=True)
    with reporting.quiet(), tempfile.TemporaryDirectory(dir=place) as folder:
        results["newton"] = usd_newton.check(options.newton_python, Path(folder))
        results["exports"] = {}
        for name, case in (QUICK if options.quick else CASES).items():
            machine.progress(f"exporting {name}")
            results["exports"][name] = measure(*case, Path(folder))
    return reporting.finish("usd_export", options, results, report, plot)


if __name__ == "__main__":
    main()
