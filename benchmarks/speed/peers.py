"""Other engines on the same standing Laikago: steps per second, cost and error of gradients, time to compile.

    python benchmarks/speed/peers.py                      # all; half an hour; writes benchmarks/results/peers.json
    python benchmarks/speed/peers.py --peers ours,mujoco  # some
    python benchmarks/speed/peers.py --quick              # ours and MuJoCo, small batches: whether it works

The engines are in engines/: registry.py lists them, standing.py is their contract. One whose packages would clash with
others runs in a virtual environment, which is made on first use below --environments. An engine that cannot be
installed, fails, takes too long or does not stand as ours does has the reason in place of figures.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import warp_articulated as wa
from engines.environments import ask, python_of
from engines.registry import GRADIENT_BATCHES, STANDING, StandingRow
from engines.standing import HEIGHT_TOLERANCE
from lib import machine, reporting
from lib.machine import progress
from speed import standing_scene
from speed.peers_report import plot, report

BATCHES = (1, 256, 4096)


@dataclass
class Plan:
    batches: tuple[int, ...]
    gradient_batches: tuple[int, ...]
    limit: float  # s, of one run
    arguments: list[str]


def judge(model, found: dict) -> dict:
    """Adds how deep the settled feet are, and refuses a robot whose feet are not on the ground."""
    if found.get("settled_q") and "refused" not in found:
        depths = standing_scene.depths(model, found["settled_q"])
        found["penetration_mm"] = float(1e3 * depths.mean())
        if abs(depths).max() > HEIGHT_TOLERANCE:
            worst = 1e3 * depths[abs(depths).argmax()]
            found["refused"] = f"It does not stand as ours does: a foot is {worst:.1f} mm below the ground."
    return found


def measure(name: str, row: StandingRow, plan: Plan, scene: Path, folder: Path) -> dict:
    """All runs of one row. The first one starts with an empty kernel cache, so that it includes compiling."""
    results: dict = {"label": row.label, "runs": [], "gradients": []}
    try:
        python, results["environment"] = python_of(row.environment, folder, limit=1800)
    except (OSError, subprocess.CalledProcessError) as problem:
        return results | {"refused": str(problem)}
    model = wa.load(str(scene / "model.npz"))
    with tempfile.TemporaryDirectory() as cache:

        def run(kind: str, batch: int, *arguments: str) -> dict:
            progress(f"{name}: {kind}, batch {batch}")
            options = ["--scene", str(scene), "--batch", str(batch), *plan.arguments, *arguments]
            found = judge(model, ask(python, row, Path(cache), plan.limit * row.patience, options))
            if "refused" in found:
                progress(f"{name}: {found['refused']}")
            return {"batch": batch} | found

        for batch in plan.batches if row.throughput else ():
            results["runs"].append(run("steps", batch))
        wanted = [b for b in plan.gradient_batches if b in row.gradient_batches] if row.gradient else ()
        for batch in wanted:
            results["gradients"].append(run("gradient", batch, "--gradient"))
            if not results["gradients"][-1].get("gradient", {}).get("supported"):
                break
    return results


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--peers", help=f"some of {', '.join(STANDING)}; with --quick: those that need no environment")
    parser.add_argument("--environments", type=Path, default=machine.ROOT / ".peers", help="virtual environments")
    parser.add_argument("--limit", type=float, default=240, help="seconds that one run may take")
    options = parser.parse_args(arguments)
    here = [name for name, row in STANDING.items() if row.environment is None]
    names = options.peers.split(",") if options.peers else here if options.quick else list(STANDING)
    if unknown := set(names) - set(STANDING):
        raise SystemExit(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(STANDING)}.")
    if options.quick:
        few = ["--seconds", "0.05", "--repetitions", "1", "--gradient-steps", "8"]
        plan = Plan((1, 4), (1,), options.limit, few)
    else:
        plan = Plan(BATCHES, GRADIENT_BATCHES, options.limit, [])
    results = reporting.begin(options) | {"peers": {}}
    with tempfile.TemporaryDirectory() as folder, reporting.quiet():
        scene = Path(folder)
        results["scene"] = standing_scene.write(scene)
        for name in names:
            results["peers"][name] = measure(name, STANDING[name], plan, scene, options.environments.resolve())
            # an interrupted run leaves what it has measured
            machine.write_json(reporting.path("peers", options).with_suffix(".unfinished.json"), results)
    reporting.path("peers", options).with_suffix(".unfinished.json").unlink()
    return reporting.finish("peers", options, results, report, plot)


if __name__ == "__main__":
    main()
