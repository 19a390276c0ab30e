"""Seconds until the first step is done, with no compiled kernel on disk and with all of them. Part of throughput.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from lib.machine import progress, table

PROBE = """
import json, sys, time
started = time.perf_counter()
import warp_articulated as wa
wa.Simulator  # names are imported when they are used: this one brings torch and Warp
imported = time.perf_counter()
model = wa.load("laikago_feet")
loaded = time.perf_counter()
sim = wa.Simulator(model, 4096, device="cpu")
q, qd = sim.step(*sim.initial_state())
done = time.perf_counter()
if not bool(q.isfinite().all()):
    sys.exit("The first step is not finite.")
print(json.dumps({"import": imported - started, "load": loaded - imported, "first_step": done - loaded}))
"""


def measure() -> dict:
    """Seconds to import, to load the scene, and from Simulator(...) to its first finished step, in new processes."""
    with tempfile.TemporaryDirectory() as cache:
        results = {}
        for name in ("cold", "warm"):
            progress(f"start-up with a {name} kernel cache")
            compiled = set(os.listdir(cache))
            results[name] = _probe(cache)
        if set(os.listdir(cache)) != compiled:
            raise SystemExit("No start-up times: the warm start compiled too; were kernels edited meanwhile?")
    return results


def _probe(cache: str) -> dict:
    environment = {**os.environ, "WARP_CACHE_PATH": cache}
    done = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"The start-up probe failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def startup_table(results: dict) -> str:
    lines = [[name, r["import"], r["load"], r["first_step"]] for name, r in results.items()]
    return table(["kernel cache", "import s", "load scene s", "Simulator(...) to first step s"], lines)
