"""Engines in their own processes: the virtual environments they need, and asking an engine for its JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from engines.registry import ScoreboardRow, StandingRow
from lib import machine
from lib.machine import progress

# What each environment holds, installed in this order; torch comes before what depends on it.
ENVIRONMENTS: dict[str, list[list[str]]] = {
    "mujoco_warp": [["mujoco-warp==4.0.0", "mujoco==4.0.0", "warp-lang==1.19.0", "numpy==2.4.6"]],
    "newton": [["newton==1.7.0", "warp-lang==1.19.0", "numpy==2.4.6"]],
    "jax": [["mujoco-mjx==3.17.0", "brax==0.14.2", "jax==0.10.2", "mujoco==4.0.0", "numpy==2.4.6"]],
    "pinocchio": [["pin==4.1.0", "numpy==2.4.6"]],
    "pybullet": [["pybullet==3.2.7", "numpy==2.4.6"]],
    "genesis": [["torch==2.13.0", "numpy==2.4.6"], ["genesis-world==1.4.5"]],
    "nimble": [["torch==2.13.0", "numpy==1.26.4"], ["nimblephysics==0.10.52.1", "numpy==1.26.4"]],
}
# For every environment: a package that asks for torch without a version would fetch the newest, with gigabytes of CUDA.
CONSTRAINTS = "torch==2.13.0\n"


def python_of(environment: str | None, folder: Path, limit: float) -> tuple[str, dict]:
    """The Python to run an engine with, installed if it is missing. Raises OSError with the reason."""
    if environment is None:
        return sys.executable, {}
    home = folder / environment
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted = ENVIRONMENTS[environment]
    mark = home / "installed.json"
    if mark.exists() and json.loads(mark.read_text())["packages"] == wanted:
        return str(python), json.loads(mark.read_text())
    progress(f"installing {environment}: {', '.join(package for packages in wanted for package in packages)}")
    start, fresh = time.perf_counter(), not home.exists()
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, stdout=sys.stderr)
    (home / "constraints.txt").write_text(CONSTRAINTS)
    environ = os.environ | {"PIP_CONSTRAINT": str(home / "constraints.txt")}
    for packages in wanted:
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
        code, out, problem = _run(command, limit, environ)
        if code is None:
            raise OSError(f"It was not installed within {limit:.0f} s.")
        if code:
            lines = [line for line in (out + problem).splitlines() if line.startswith("ERROR")] or ["no reason given"]
            raise OSError(f"It does not install: {_without_paths(lines[-1])}")
    size = sum(f.stat().st_size for f in home.rglob("*") if f.is_file() and not f.is_symlink())
    facts = {
        "packages": wanted, "megabytes": round(size / 2**20),
        "install_seconds": round(time.perf_counter() - start, 1) if fresh else None,
    }  # fmt: skip
    mark.write_text(json.dumps(facts))
    return str(python), facts


def _run(command: list[str], limit: float, environ: dict, cwd: Path | None = None) -> tuple[int | None, str, str]:
    """Exit code (None: over the limit), stdout and stderr. Its child processes end with it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=cwd,
        start_new_session=True,
    )
    try:
        out, problem = process.communicate(timeout=limit)
        return process.returncode, out, problem
    except subprocess.TimeoutExpired:
        # it has its own session, so nothing else is in that group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "", ""


def _without_paths(text: str) -> str:
    """Files that are committed name no folders of this machine."""
    return " ".join("(a path)" if "/" in word and not word.startswith("http") else word for word in text.split())


def ask(python: str, row: StandingRow | ScoreboardRow, cache: Path, limit: float, arguments: list[str]) -> dict:
    """The JSON of one run of `python -m engines`, or {"refused": why}."""
    caches = {name: str(cache) for name in ("WARP_CACHE_PATH", "QD_OFFLINE_CACHE_FILE_PATH")}  # Warp's, Genesis'
    # with as many threads as two cores have, a batched MJX waits for itself forever: seen with jax 0.10.2
    jax = {"JAX_PLATFORMS": "cpu", "NPROC": str(max(8, machine.cores()))}
    environ = os.environ | caches | jax | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-m", "engines", row.engine, row.role, *arguments]
    if row.variant:
        command += ["--variant", row.variant]
    code, out, problem = _run(command, limit, environ, machine.BENCHMARKS)
    if code is None:
        return {"refused": f"It took over {limit:.0f} s."}
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(out.strip().splitlines()[-1])
        if "refused" in found:
            found["refused"] = _without_paths(found["refused"])
        return found
    last = (problem.strip().splitlines() or ["it said nothing"])[-1]
    return {"refused": _without_paths(f"It ended with code {code}: {last}")[:300]}
