"""Other engines on the same standing Laikago: steps per second, cost and error of gradients, time to compile.

    python benchmarks/peers.py                        # all; about half an hour; writes benchmarks/results/peers.json
    python benchmarks/peers.py --peers ours,mujoco    # some
    python benchmarks/peers.py --quick                # ours and MuJoCo, small batches: whether it works

Each engine has a script peer_x.py (its contract is in peer_common.py) and, where its packages would clash with others,
a virtual environment that is made on first use below --environments. An engine that cannot be installed, fails, takes
too long or does not stand as ours does has a sentence in place of figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import machine
import peer_scene
import reporting
from machine import progress
from peer_report import plot, report

import warp_articulated as wa

HERE = Path(__file__).resolve().parent
BATCHES = (1, 256, 4096)
GRADIENT_BATCHES = (1, 256)
DEPTH = 5e-3  # m; as HEIGHT_TOLERANCE of peer_common.py

# What each environment holds, installed in this order; None is the Python that runs this file.
# torch comes before what depends on it.
ENVIRONMENTS: dict[str | None, list[list[str]]] = {
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


@dataclass(frozen=True)
class Peer:
    """A script, the environment that it runs in, and what it is asked for."""

    script: str
    environment: str | None = None
    variant: str = ""
    throughput: bool = True
    gradient: bool = True
    gradient_batches: tuple[int, ...] = GRADIENT_BATCHES
    label: str = ""  # where no run gave a name
    patience: float = 1.0  # times the limit, where compiling takes minutes


PEERS = {
    "ours": Peer("peer_ours.py", label="warp_articulated"),
    "ours64": Peer("peer_ours.py", variant="float64", label="warp_articulated"),
    "mujoco": Peer("peer_mujoco.py", variant="CG", gradient=False, label="MuJoCo C, CG"),
    "mujoco_newton": Peer("peer_mujoco.py", variant="Newton", gradient_batches=(1,), label="MuJoCo C, Newton"),
    "pinocchio": Peer("peer_pinocchio.py", "pinocchio", gradient_batches=(1,), label="Pinocchio ABA"),
    "pybullet": Peer("peer_pybullet.py", "pybullet", gradient_batches=(1,), label="PyBullet"),
    "mujoco_warp": Peer("peer_mujoco_warp.py", "mujoco_warp", gradient_batches=(1,), label="mujoco_warp"),
    "mjx": Peer("peer_mjx.py", "jax", label="MJX"),
    "mjx_forward": Peer("peer_mjx.py", "jax", "forward", throughput=False, label="MJX, forward mode"),
    "brax": Peer("peer_brax.py", "jax", label="Brax generalized"),
    "newton": Peer("peer_newton.py", "newton", "featherstone", label="Newton featherstone"),
    "newton_semi": Peer("peer_newton.py", "newton", "semi-implicit", label="Newton semi-implicit"),
    "genesis": Peer("peer_genesis.py", "genesis", gradient_batches=(1,), label="Genesis", patience=2.5),
    "nimble": Peer("peer_nimble.py", "nimble", gradient_batches=(1,), label="Nimble"),
}


@dataclass
class Plan:
    batches: tuple[int, ...]
    gradient_batches: tuple[int, ...]
    limit: float  # s, of one run
    arguments: list[str]


# -- environments


def python_of(environment: str | None, folder: Path, limit: float) -> tuple[str, dict]:
    """The Python to run a peer with, made and filled if it is missing. Raises OSError with a sentence."""
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


def _run(command: list[str], limit: float, environ: dict | None = None) -> tuple[int | None, str, str]:
    """Exit code (None: over the limit), stdout and stderr. What it started ends with it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, start_new_session=True
    )
    try:
        out, problem = process.communicate(timeout=limit)
        return process.returncode, out, problem
    except subprocess.TimeoutExpired:
        # a session of its own: nothing else is in that group
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, "", ""


def _without_paths(text: str) -> str:
    """Files that are committed name no folders of this machine."""
    return " ".join("(a path)" if "/" in word and not word.startswith("http") else word for word in text.split())


# -- running


def ask(python: str, peer: Peer, scene: Path, cache: Path, limit: float, arguments: list[str]) -> dict:
    """The JSON of one run, or {"refused": sentence}."""
    caches = {name: str(cache) for name in ("WARP_CACHE_PATH", "QD_OFFLINE_CACHE_FILE_PATH")}  # Warp's, Genesis'
    # with as many threads as two cores have, a batched MJX waits for itself forever: seen with jax 0.10.2
    jax = {"JAX_PLATFORMS": "cpu", "NPROC": str(max(8, machine.cores()))}
    environ = os.environ | caches | jax | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, str(HERE / peer.script), "--scene", str(scene), *arguments]
    if peer.variant:
        command += ["--variant", peer.variant]
    code, out, problem = _run(command, limit, environ)
    if code is None:
        return {"refused": f"It took over {limit:.0f} s."}
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(out.strip().splitlines()[-1])
        if "refused" in found:
            found["refused"] = _without_paths(found["refused"])
        return found
    last = (problem.strip().splitlines() or ["it said nothing"])[-1]
    return {"refused": _without_paths(f"It ended with code {code}: {last}")[:300]}


def judge(model, found: dict) -> dict:
    """Adds how deep the settled feet are, and refuses a robot whose feet are not on the ground."""
    if found.get("settled_q") and "refused" not in found:
        depths = peer_scene.depths(model, found["settled_q"])
        found["penetration_mm"] = float(1e3 * depths.mean())
        if abs(depths).max() > DEPTH:
            worst = 1e3 * depths[abs(depths).argmax()]
            found["refused"] = f"It does not stand as ours does: a foot is {worst:.1f} mm below the ground."
    return found


def measure(name: str, peer: Peer, plan: Plan, scene: Path, folder: Path) -> dict:
    """All runs of one peer. Its first one starts with an empty kernel cache, so that it pays for compiling."""
    results: dict = {"label": peer.label, "runs": [], "gradients": []}
    try:
        python, results["environment"] = python_of(peer.environment, folder, limit=1800)
    except (OSError, subprocess.CalledProcessError) as problem:
        return results | {"refused": str(problem)}
    model = wa.load(str(scene / "model.npz"))
    with tempfile.TemporaryDirectory() as cache:

        def run(kind: str, batch: int, *arguments: str) -> dict:
            progress(f"{name}: {kind}, batch {batch}")
            options = ["--batch", str(batch), *plan.arguments, *arguments]
            found = judge(model, ask(python, peer, scene, Path(cache), plan.limit * peer.patience, options))
            if "refused" in found:
                progress(f"{name}: {found['refused']}")
            return {"batch": batch} | found

        for batch in plan.batches if peer.throughput else ():
            results["runs"].append(run("steps", batch))
        wanted = [b for b in plan.gradient_batches if b in peer.gradient_batches] if peer.gradient else ()
        for batch in wanted:
            results["gradients"].append(run("gradient", batch, "--gradient"))
            if not results["gradients"][-1].get("gradient", {}).get("supported"):
                break
    return results


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--peers", help=f"some of {', '.join(PEERS)}; with --quick: those that need no environment")
    parser.add_argument("--environments", type=Path, default=machine.ROOT / ".peers", help="virtual environments")
    parser.add_argument("--limit", type=float, default=240, help="seconds that one run may take")
    options = parser.parse_args(arguments)
    here = [name for name, peer in PEERS.items() if peer.environment is None]
    names = options.peers.split(",") if options.peers else here if options.quick else list(PEERS)
    if unknown := set(names) - set(PEERS):
        raise SystemExit(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}.")
    if options.quick:
        few = ["--seconds", "0.05", "--repetitions", "1", "--gradient-steps", "8"]
        plan = Plan((1, 4), (1,), options.limit, few)
    else:
        plan = Plan(BATCHES, GRADIENT_BATCHES, options.limit, [])
    results = reporting.begin(options) | {"peers": {}}
    with tempfile.TemporaryDirectory() as folder, reporting.quiet():
        scene = Path(folder)
        results["scene"] = peer_scene.write(scene)
        for name in names:
            results["peers"][name] = measure(name, PEERS[name], plan, scene, options.environments.resolve())
            # a run that is broken off leaves what it has
            machine.write_json(reporting.path("peers", options).with_suffix(".unfinished.json"), results)
    reporting.path("peers", options).with_suffix(".unfinished.json").unlink()
    return reporting.finish("peers", options, results, report, plot)


if __name__ == "__main__":
    main()
