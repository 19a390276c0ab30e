"""One engine, in the Python that has its packages; prints one line of JSON, the last one on stdout.

    cd benchmarks
    python -m engines mujoco standing --scene FOLDER --batch 256               # steps per second
    python -m engines mujoco standing --scene FOLDER --batch 256 --gradient    # cost and error of the gradient
    python -m engines mujoco scoreboard --cases S1,W                           # values and gradients of the cases

Started from benchmarks/ and as a package: a script in this folder would find mujoco.py here instead of MuJoCo.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys

from engines import scoreboard, standing

ROLES = {"standing": ("Standing", standing.run), "scoreboard": ("Scoreboard", scoreboard.run)}


def main(text: list[str]) -> None:
    engine, role, *rest = text
    name, run = ROLES[role]
    module = importlib.import_module(f"engines.{engine}")
    if not hasattr(module, name):
        raise SystemExit(f"engines/{engine}.py has no class {name}; its first lines say why.")
    out = os.dup(1)
    os.dup2(2, 1)  # engines written in C++ write messages to stdout
    with contextlib.redirect_stdout(sys.stderr):
        found = run(getattr(module, name), rest)
    sys.stdout.flush()
    os.write(out, (json.dumps(found) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1:])
