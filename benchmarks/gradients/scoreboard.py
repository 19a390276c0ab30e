"""Gradient scoreboard: the truth cases on every engine that can run them: right, wrong, NaN or not supported.

    python benchmarks/gradients/scoreboard.py                     all engines; ten minutes once they are installed
    python benchmarks/gradients/scoreboard.py --engines ours,mjx  some of them; the others keep their earlier results
    python benchmarks/gradients/scoreboard.py --quick             ours and MuJoCo C

Two questions, never mixed. "Self-consistent": is the gradient the derivative of the engine's own program, as central
differences of that program see it? "True": is it the derivative of the continuous motion, whose closed forms are in
cases.py? The engines are in engines/: registry.py lists them, scoreboard.py is their contract. Case F is the standing
Laikago of speed/peers.py over 32 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import warp as wp

from engines.environments import ask, python_of
from engines.registry import SCOREBOARD, STANDING
from gradients.cases import CASES
from gradients.scoreboard_report import judged, plot, report, standing
from lib import machine, reporting
from lib.machine import progress
from speed import standing_scene

QUICK = ("ours", "mujoco")


def measure(name: str, scene: Path, folder: Path, limit: float, cases: list[str]) -> dict:
    """One engine on all cases."""
    row = SCOREBOARD[name]
    results: dict = {"label": row.label, "cases": {}}
    if row.unsupported:
        return results | {"unsupported": row.unsupported}
    try:
        python, _ = python_of(row.environment, folder, limit=1800)
    except (OSError, subprocess.CalledProcessError) as problem:
        return results | {"failed": str(problem)}
    cache = Path(wp.config.kernel_cache_dir or tempfile.gettempdir()).parent
    progress(f"{name}: {', '.join(cases)}")
    found = ask(python, row, cache, limit, ["--cases", ",".join(case for case in cases if case != "F")])
    if "refused" in found:
        return results | {"failed": found["refused"]}
    results |= {key: found[key] for key in ("version", "dtype", "method", "contact")}
    results["cases"] = found["cases"]
    if "F" in cases and row.standing:
        progress(f"{name}: F")
        few = ["--scene", str(scene), "--batch", "1", "--gradient", "--seconds", "0.05", "--repetitions", "1"]
        results["cases"]["F"] = standing(ask(python, STANDING[row.standing], cache, limit, few))
    elif "F" in cases:
        results["cases"]["F"] = {"unsupported": row.no_standing}
    for case, said in results["cases"].items():
        if "failed" in said:
            progress(f"{name}, {case}: {said['failed']}")
    return results


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--engines", help=f"some of {', '.join(SCOREBOARD)}")
    parser.add_argument("--cases", default=",".join([*CASES, "F"]), help="some of them; others are left out")
    parser.add_argument("--environments", type=Path, default=machine.ROOT / ".peers", help="virtual environments")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one engine may take")
    options = parser.parse_args(arguments)
    names = options.engines.split(",") if options.engines else list(QUICK if options.quick else SCOREBOARD)
    cases = [case for case in options.cases.split(",") if case != "F" or not options.quick]  # F compiles a robot
    for kind, asked, known in (("engine", names, SCOREBOARD), ("case", cases, [*CASES, "F"])):
        if unknown := set(asked) - set(known):
            raise SystemExit(f"There is no {kind} {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    results = reporting.begin(options)
    before = options.out or machine.RESULTS / "scoreboard.json"
    kept = {}
    if options.engines and not options.quick and before.exists():
        kept = json.loads(before.read_text("utf-8"))["engines"]
    with tempfile.TemporaryDirectory() as folder, reporting.quiet():
        wp.init()  # sets the folder of its kernel cache
        standing_scene.write(Path(folder))
        # two at a time: nothing here is timed
        with ThreadPoolExecutor(2) as pool:
            place = options.environments.resolve()
            rows = pool.map(lambda name: measure(name, Path(folder), place, options.limit, cases), names)
            found = dict(zip(names, rows))
    found = {name: judged(row) | {"remark": SCOREBOARD[name].remark} for name, row in (kept | found).items()}
    results["engines"] = {name: found[name] for name in SCOREBOARD if name in found}
    return reporting.finish("scoreboard", options, results, report, plot)


if __name__ == "__main__":
    main()
