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
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import machine
import numpy as np
import peer_scene
import peers
import reporting
import warp as wp
from machine import progress, table
from truth_common import CASES

SELF_LIMIT = {"float64": 1e-5, "float32": 1e-3}
TRUE_LIMIT = 0.02
UNRESOLVED = 0.1  # differences that are this noisy, relative to the gradient, prove nothing right
COLUMNS = ("S1", "S2", "I1", "I2", "W", "D", "P", "F", "C", "Q")
SELF_ONLY = ("C", "F")  # chaos makes the error of any step grow; of the robot no exact answer is known
RIGHT, WRONG, NAN, NOT, FAILED, UNCLEAR = "right", "wrong", "NaN", "not supported", "failed", "not resolved"
LATER = "not measured"
COLOURS = {
    RIGHT: "#7bc67b",
    WRONG: "#e57373",
    NAN: "#202020",
    NOT: "#d0d0d0",
    LATER: "#e8e8e8",
    FAILED: "#b0a0c0",
    UNCLEAR: "#f0d890",
}
TITLES = {
    "S1": "sliding block", "S2": "block that stopped", "I1": "slipping on a slope", "I2": "sticking on a slope",
    "W": "wall", "D": "drop", "P": "pendulum", "F": "four feet", "C": "chaos", "Q": "quaternion",
}  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """A script and its environment, and the peer that stands for it in case F; or why there is neither."""

    label: str
    script: str = ""
    environment: str | None = None
    variant: str = ""
    standing: str = ""
    why: str = ""  # no gradients, or no case F


ENGINES = {
    "ours": Contender("warp_articulated", "truth_ours.py", standing="ours64"),
    "mujoco": Contender("MuJoCo C", "truth_mujoco.py", standing="mujoco_newton"),
    "mjx": Contender("MJX, forward mode", "truth_mjx.py", "jax", standing="mjx_forward"),
    "mjx_pyramid": Contender(
        "MJX, forward mode, pyramid", "truth_mjx.py", "jax", "pyramid", why="Not measured: as MJX, forward mode."
    ),
    "mjx_reverse": Contender("MJX, reverse, 1 iteration", "truth_mjx.py", "jax", "reverse", "mjx"),
    "brax": Contender("Brax generalized", "truth_brax.py", "jax", standing="brax"),
    "newton": Contender("Newton featherstone", "truth_newton.py", "newton", "featherstone", "newton"),
    "newton_each": Contender(
        "Newton featherstone, a solver per step",
        "truth_newton.py",
        "newton",
        "each",
        why="Not measured: the robot has one solver here.",
    ),
    "newton_semi": Contender("Newton semi-implicit", "truth_newton.py", "newton", "semi-implicit", "newton_semi"),
    "pinocchio": Contender("Pinocchio", "truth_pinocchio.py", "pinocchio", why="The engine has no contacts."),
    "nimble": Contender("Nimble", "truth_nimble.py", "nimble", standing="nimble"),
    "mujoco_warp": Contender(
        "mujoco_warp", why="Its README says that differentiability is not yet available; its kernels have no backward."
    ),
    "pybullet": Contender("PyBullet", why="It has no gradients."),
    "genesis": Contender(
        "Genesis",
        why="Not measured: its rigid bodies have gradients by the pose and velocity that they start with and by "
        "forces, but by no parameter of a model.",
    ),
}
QUICK = ("ours", "mujoco")


# -- verdicts


def verdict(gradient: float | None, expected: float | None, size: float, limit: float, noise: float = 0.0):
    """(verdict, relative error). `noise` is the error of `expected`, relative to `size`."""
    if gradient is None or not np.isfinite(gradient):
        return NAN, None
    if expected is None or not np.isfinite(expected):
        return UNCLEAR, None
    error = abs(gradient - expected) / size
    if noise > UNRESOLVED:
        return (WRONG if error > 10 * noise else UNCLEAR), error
    return (RIGHT if error <= max(limit, 2 * noise) else WRONG), error


def judge(name: str, found: dict, dtype: str) -> dict:
    """What an engine said of a case, with verdicts, and how far its motion is from the exact one."""
    if "inputs" not in found:
        return found
    case = CASES[name]
    truth = case.truth(case)
    value, inputs = found["value"], found["inputs"]
    off = None if value is None else abs(value - truth.value) / truth.scale
    asked = [x for x in inputs.values() if x.get("differences") is not None]
    norm = float(np.linalg.norm([x["differences"] for x in asked])) if asked else 1.0
    for x, entry in inputs.items():
        if "unsupported" in entry:
            continue
        exact, seen = truth.gradient[x], entry["differences"]
        # components of one vector are relative to all of it; where the exact answer is 0, to what it would be else
        size = norm if case.model in ("double", "spin") else truth.sizes[x] if exact == 0 else abs(seen or 1.0)
        size = max(size, 1e-12)
        noise = (entry["noise"] or 0.0) / size
        entry["self"], entry["self_error"] = verdict(entry["gradient"], seen, size, SELF_LIMIT[dtype], noise)
        entry["true_value"] = float(exact)
        if case.column not in SELF_ONLY:
            size = truth.sizes[x]
            entry["true"], entry["true_error"] = verdict(entry["gradient"], exact, size, TRUE_LIMIT)
    return found | {"inputs": inputs, "true_path": float(truth.value), "forward_error": off}


def standing(found: dict) -> dict:
    """Case F from what peers.py says of the standing robot."""
    if "refused" in found:
        return {"failed": found["refused"]}
    g = found["gradient"]
    if not g["supported"]:
        return {"unsupported": g["why"]}
    inputs, limit, noise = {}, SELF_LIMIT[g["dtype"]], g["difference_noise"]
    parts = {"velocity": slice(0, 3), "targets": slice(3, None)}
    for name, part in parts.items():
        seen = float(np.linalg.norm(g["differences"][part]))
        ours = float(np.linalg.norm(g["gradient"][part])) if g["finite"] else None
        error = g["relative_errors"][name] if g["finite"] else None
        said = verdict(error, 0.0, 1.0, limit, noise)[0]
        inputs[name] = {"gradient": ours, "differences": seen, "noise": noise * seen, "self": said, "self_error": error}
    return {"inputs": inputs, "value": None, "dt": found["dt"], "forward_error": None}


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
    row["cases"] = {case: judge(case, said, row["dtype"]) for case, said in found["cases"].items()}
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


# -- reporting


def entries(row: dict, column: str, kind: str) -> tuple[list, list[str], str]:
    """Of a cell: [(input, verdict, error)], inputs that are not supported, and a word for all of it if there is one."""
    if not row["cases"]:
        return [], [], without(row)
    judged, lacking, word = [], [], ""
    for name, said in row["cases"].items():
        if name.split()[0] != column:
            continue
        if "inputs" not in said:
            word = without(said)
            continue
        for x, entry in said["inputs"].items():
            label = x + name.removeprefix(column)
            if "unsupported" in entry:
                lacking.append(label)
            elif kind in entry:
                judged.append((label, entry[kind], entry[f"{kind}_error"]))
    return judged, lacking, word if not judged else ""


def without(said: dict) -> str:
    """The word for something that has no figures."""
    if "failed" in said:
        return FAILED
    return LATER if said["unsupported"].startswith("Not measured") else NOT


def worst(judged: list, word: str) -> str:
    """The verdict of a cell: one wrong number makes it wrong."""
    for said in (NAN, WRONG, UNCLEAR, RIGHT):
        if any(v == said for _, v, _ in judged):
            return said
    return word or "not asked"


def cell(row: dict, column: str, kind: str) -> str:
    judged, lacking, word = entries(row, column, kind)
    if not judged:
        return word or "-"
    groups: dict[str, list[str]] = {}
    for label, said, error in judged:
        if said in (WRONG, UNCLEAR) and error is not None:
            label += f" ({error:.1g})" if error < 100 else f" ({error:.0e})"
        groups.setdefault(said, []).append(label)
    if set(groups) == {RIGHT}:
        text = RIGHT
    else:
        text = "; ".join(
            f"{said}: {', '.join(groups[said])}" for said in (RIGHT, WRONG, NAN, UNCLEAR) if said in groups
        )
    return text + (f"; no {', '.join(lacking)}" if lacking else "")


def grid(results: dict, kind: str) -> str:
    columns = [c for c in COLUMNS if kind == "self" or c not in SELF_ONLY]
    rows = [[row["label"], *(cell(row, c, kind) for c in columns)] for row in results["engines"].values()]
    return table(["engine", *(f"{c} {TITLES[c]}" for c in columns)], rows)


def numbers(results: dict) -> str:
    lines = []
    for row in results["engines"].values():
        for case, said in row["cases"].items():
            for x, entry in said.get("inputs", {}).items():
                if "unsupported" in entry:
                    continue
                found = [entry["gradient"], entry["differences"], entry.get("true_value")]
                errors = [entry.get("self_error"), entry.get("true_error")]
                lines.append([
                    row["label"], case, x, *("" if v is None else f"{v:.6g}" for v in found), entry["self"],
                    *(("" if e is None else f"{e:.1e}") for e in errors[:1]), entry.get("true", ""),
                    *(("" if e is None else f"{e:.1e}") for e in errors[1:]), f"{said['dt']:g}",
                ])  # fmt: skip
    header = ["engine", "case", "by", "gradient", "differences", "exact", "self", "error", "true", "error", "dt s"]
    return table(header, lines)


def notes(results: dict) -> str:
    """The rules, what each engine is, why cells are empty, and motions that are not those of the cases."""
    lines = [
        f"Self-consistent: right if the relative error against central differences of the same program is at most "
        f"{SELF_LIMIT['float64']:g} in float64 and {SELF_LIMIT['float32']:g} in float32, or twice the error of the "
        f"differences if that is larger. True: right if within {100 * TRUE_LIMIT:g} % of the continuous motion, which "
        "leaves room for steps of first order and for soft contacts. Where the exact answer is 0, errors are relative "
        "to what the derivative would be in the other regime.",
        "W and D in engines without restitution are damped springs tuned to e = 0.5; they touch for 20 to 60 ms.",
    ]
    for row in results["engines"].values():
        label = row["label"]
        if "method" in row:
            lines.append(f"{label} {row['version']}, {row['dtype']}: {row['method']}; contacts: {row['contact']}.")
        for key in ("unsupported", "failed"):
            if key in row:
                lines.append(f"{label}: {row[key]}")
        reasons: dict[str, list[str]] = {}
        for case, said in row["cases"].items():
            for key in ("unsupported", "failed"):
                if key in said:
                    reasons.setdefault(said[key], []).append(case)
            for x, entry in said.get("inputs", {}).items():
                if "unsupported" in entry:
                    reasons.setdefault(entry["unsupported"], []).append(f"{x} of {case}")
            off = said.get("forward_error")
            if case.split()[0] not in SELF_ONLY and off is not None and off > TRUE_LIMIT:
                path = f"{said['value']:.4g} instead of {said['true_path']:.4g}"
                lines.append(f"{label}, {case}: the forward motion differs by {100 * off:.2g} % of its scale ({path}).")
            if case == "I2" and said.get("value") is not None and abs(said["value"]) > 1e-6:
                lines.append(f"{label}, I2: the block creeps by {1e3 * said['value']:.3g} mm in 0.5 s.")
        lines += [f"{label}: {', '.join(where)}: {why}" for why, where in reasons.items()]
        norms = [growth(row, case) for case in ("C 1 s", "C 4 s")]
        if all(norms):
            lines.append(f"{label}, C: the gradient's norm grows from {norms[0]:.3g} at 1 s to {norms[1]:.3g} at 4 s.")
    return "\n".join(f"- {line}" for line in lines)


def growth(row: dict, case: str) -> float | None:
    found = [entry.get("gradient") for entry in row["cases"].get(case, {}).get("inputs", {}).values()]
    return None if not found or None in found else float(np.linalg.norm(found))


def summary(results: dict) -> str:
    """Quantities per verdict; the cases count, not the columns."""
    lines = []
    for row in results["engines"].values():
        counts = []
        for kind in ("self", "true"):
            said = [e[kind] for c in row["cases"].values() for e in c.get("inputs", {}).values() if kind in e]
            counts.append(", ".join(f"{said.count(v)} {v}" for v in (RIGHT, WRONG, NAN, UNCLEAR) if v in said) or NOT)
        lines.append([row["label"], *counts])
    return table(["engine", "self-consistent", "true"], lines)


def report(results: dict) -> dict[str, str]:
    parts = {"self": grid(results, "self"), "true": grid(results, "true"), "summary": summary(results)}
    return parts | {"numbers": numbers(results), "notes": notes(results)}


def plot(results: dict, figure) -> None:
    rows = list(results["engines"].values())
    figure.set_size_inches(17, 1.4 + 1.1 * len(rows))
    for axes, kind, title in zip(
        figure.subplots(2, 1), ("self", "true"), ("self-consistent: the derivative of its own program",
                                                  "true: the derivative of the continuous motion")
    ):  # fmt: skip
        for y, row in enumerate(rows):
            for x, column in enumerate(COLUMNS):
                if kind == "true" and column in SELF_ONLY:
                    said, text = "not asked", ""
                else:
                    judged, _, word = entries(row, column, kind)
                    said, text = worst(judged, word), cell(row, column, kind)
                colour = COLOURS.get(said, "white")
                axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], colour, edgecolor="white", zorder=2)
                text = "\n".join(textwrap.wrap(text, 24)[:4])
                ink = "white" if said == NAN else "black"
                axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=6, color=ink, zorder=3)
        axes.set_xticks(np.arange(len(COLUMNS)) + 0.5, [f"{c}\n{TITLES[c]}" for c in COLUMNS], fontsize=8)
        axes.set_yticks(np.arange(len(rows)) + 0.5, [row["label"] for row in rows], fontsize=8)
        axes.set(xlim=(0, len(COLUMNS)), ylim=(len(rows), 0), title=title)
        axes.tick_params(length=0)


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
    results["engines"] = {name: (kept | found)[name] for name in ENGINES if name in kept | found}
    return reporting.finish("scoreboard", options, results, report, plot)


if __name__ == "__main__":
    main()
