"""All benchmarks, one after the other: `make bench` runs it with --quick, `make bench-full` without.

    python benchmarks/run_all.py --quick          # small sizes, written to out/bench
    python benchmarks/run_all.py                  # hours; replaces benchmarks/results
    python benchmarks/run_all.py --only growth crowd

Close other programs first: most figures are times. A benchmark that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from lib.machine import progress, script, table

BENCHMARKS = (
    "throughput", "solver_exit", "gradient", "impact_cost", "autodiff", "crowd", "checkpoints", "growth", "peers",
    "scoreboard", "impacts", "gpu_resources", "registers", "executed", "gpu", "render", "usd_export",
    "applications", "impact_landscape", "impact_horizons", "transfer", "learning",
)  # fmt: skip
ARGUMENTS = {
    "gpu": {True: ["--device", "cpu"], False: []}
}  # a quick run shows whether it works; a full one needs a GPU


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, a first look")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    options = parser.parse_args(arguments)
    lines, failed = [], 0
    for name in options.only:
        progress(f"== {name}")
        command = [sys.executable, str(script(name)), *["--quick"] * options.quick]
        command += ARGUMENTS.get(name, {}).get(options.quick, [])
        start = time.perf_counter()
        code = subprocess.run(command).returncode
        print(flush=True)
        lines.append([name, time.perf_counter() - start, "done" if code == 0 else f"ended with code {code}"])
        failed += code != 0
    print(table(["benchmark", "s", ""], lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
