"""Gradient scoreboard: the truth cases on every engine that can run them: right, wrong, NaN or not supported.

    python benchmarks/scoreboard.py                       all engines; about ten minutes when they are installed
    python benchmarks/scoreboard.py --engines ours,mjx    some of them; the others keep their earlier results
    python benchmarks/scoreboard.py --quick               ours and MuJoCo C

Two questions, never mixed. "Self-consistent": is the gradient the derivative of the engine's own program, as central
differences of that program see it? "True": is it the derivative of the continuous motion, whose closed forms are in
truth_common.py? Each engine runs in its own environment (those of peers.py) by a script truth_x.py; case F is the
standing Laikago of peers.py over 32 ms.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import machine
import peer_scene
import peers
import reporting
import warp as wp
from machine import progress
from truth_common import CASES
from truth_report import judged, plot, report, standing

LATE = "In W and D the step of the hit does not move with the start: right about the program, wrong about the motion."
HOPS = (
    "These are differences of steps, multiplied. Contacts set in softly here; with MuJoCo's default impedance the puck "
    "hops, and such products grow without bound."
)
SLIP = "I1 and I2 start at zero slip: NaN with the elliptic cone, none with the pyramid, next row."
ROUGH = "Its verdicts in S2, I1, I2 and W change with the number of iterations of its solver."
BRANCH = "I1 and I2 start at zero slip, where its friction is switched off: the gradient by v0 is that of this branch."
SHARED = (
    "It keeps one mass matrix for all steps, and the way back reads the last one: wrong where that matrix changes. "
    f"A solver per step, next row, mends it. {BRANCH}"
)
MOVED = (
    "At a bounce its gradient is that of a hit that moves with the start, without gravity: true in W, not in D, and in "
    "neither the derivative of its own steps."
)
HINGES = (
    "It differentiates by the pose of a first link, velocities and forces. Pendulums hang from a fixed link that is "
    "turned in place of their first hinge. I1 starts at zero slip, where its pyramid creeps."
)


@dataclass(frozen=True)
class Contender:
    """A script and its environment, and the peer that stands for it in case F; or why there is neither."""

    label: str
    script: str = ""
    environment: str | None = None
    variant: str = ""
    standing: str = ""
    why: str = ""  # no gradients, or no case F
    remark: str = ""  # what the figures mean


ENGINES = {
    "ours": Contender("warp_articulated", "truth_ours.py", standing="ours64", remark=LATE),
    "mujoco": Contender("MuJoCo C", "truth_mujoco.py", standing="mujoco_newton", remark=HOPS),
    "mjx": Contender("MJX, forward mode", "truth_mjx.py", "jax", standing="mjx_forward", remark=SLIP),
    "mjx_pyramid": Contender(
        "MJX, forward mode, pyramid", "truth_mjx.py", "jax", "pyramid", why="Not measured: as MJX, forward mode."
    ),
    "mjx_reverse": Contender("MJX, reverse, 1 iteration", "truth_mjx.py", "jax", "reverse", "mjx"),
    "brax": Contender("Brax generalized", "truth_brax.py", "jax", standing="brax", remark=ROUGH),
    "newton": Contender("Newton featherstone", "truth_newton.py", "newton", "featherstone", "newton", remark=SHARED),
    "newton_each": Contender(
        "Newton featherstone, a solver per step",
        "truth_newton.py",
        "newton",
        "each",
        why="Not measured: the robot has one solver here.",
    ),
    "newton_semi": Contender(
        "Newton semi-implicit", "truth_newton.py", "newton", "semi-implicit", "newton_semi", remark=BRANCH
    ),
    "pinocchio": Contender("Pinocchio", "truth_pinocchio.py", "pinocchio", why="The engine has no contacts."),
    "nimble": Contender("Nimble", "truth_nimble.py", "nimble", standing="nimble", remark=MOVED),
    "mujoco_warp": Contender(
        "mujoco_warp", why="Its README says that differentiability is not yet available; its kernels have no backward."
    ),
    "pybullet": Contender("PyBullet", why="It has no gradients."),
    "genesis": Contender("Genesis", "truth_genesis.py", "genesis", standing="genesis", remark=HINGES),
}
QUICK = ("ours", "mujoco")


# -- running


def measure(name: str, scene: Path, folder: Path, limit: float, cases: list[str]) -> dict:
    """One engine on all cases."""
    it = ENGINES[name]
    row: dict = {"label": it.label, "cases": {}}
    if not it.script:
        return row | {"unsupported": it.why}
    try:
        python, _ = peers.python_of(it.environment, folder, limit=1800)
    except (OSError, subprocess.CalledProcessError) as problem:
        return row | {"failed": str(problem)}
    cache = Path(wp.config.kernel_cache_dir or tempfile.gettempdir()).parent
    progress(f"{name}: {', '.join(cases)}")
    own = [case for case in cases if case != "F"]
    found = peers.ask(
        python, peers.Peer(it.script, variant=it.variant), scene, cache, limit, ["--cases", ",".join(own)]
    )
    if "refused" in found:
        return row | {"failed": found["refused"]}
    row |= {key: found[key] for key in ("version", "dtype", "method", "contact")}
    row["cases"] = found["cases"]
    if "F" in cases:
        if it.standing:
            progress(f"{name}: F")
            few = ["--batch", "1", "--gradient", "--seconds", "0.05", "--repetitions", "1"]
            row["cases"]["F"] = standing(peers.ask(python, peers.PEERS[it.standing], scene, cache, limit, few))
        else:
            row["cases"]["F"] = {"unsupported": it.why}
    for case, said in row["cases"].items():
        if "failed" in said:
            progress(f"{name}, {case}: {said['failed']}")
    return row


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--engines", help=f"some of {', '.join(ENGINES)}")
    parser.add_argument("--cases", default=",".join([*CASES, "F"]), help="some of them; others are left out")
    parser.add_argument("--environments", type=Path, default=machine.ROOT / ".peers", help="virtual environments")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one engine may take")
    options = parser.parse_args(arguments)
    names = options.engines.split(",") if options.engines else list(QUICK if options.quick else ENGINES)
    cases = [case for case in options.cases.split(",") if case != "F" or not options.quick]  # F compiles a robot
    for kind, asked, known in (("engine", names, ENGINES), ("case", cases, [*CASES, "F"])):
        if unknown := set(asked) - set(known):
            raise SystemExit(f"There is no {kind} {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    results = reporting.begin(options)
    before = options.out or machine.RESULTS / "scoreboard.json"
    kept = {}
    if options.engines and not options.quick and before.exists():
        kept = json.loads(before.read_text("utf-8"))["engines"]
    with tempfile.TemporaryDirectory() as folder, reporting.quiet():
        wp.init()  # tells where its kernels are kept
        peer_scene.write(Path(folder))
        # two at a time: this is about right and wrong, not about speed
        with ThreadPoolExecutor(2) as pool:
            place = options.environments.resolve()
            rows = pool.map(lambda name: measure(name, Path(folder), place, options.limit, cases), names)
            found = dict(zip(names, rows))
    found = {name: judged(row) | {"remark": ENGINES[name].remark} for name, row in (kept | found).items()}
    results["engines"] = {name: found[name] for name in ENGINES if name in found}
    return reporting.finish("scoreboard", options, results, report, plot)


if __name__ == "__main__":
    main()
