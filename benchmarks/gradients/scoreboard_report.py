"""The report of gradients/scoreboard.py, from its results only: verdicts, tables, notes and picture."""

from __future__ import annotations

import textwrap

import numpy as np

from gradients.cases import CASES
from lib.machine import table

SELF_LIMIT = {"float64": 1e-5, "float32": 1e-3}
TRUE_LIMIT = 0.02
UNRESOLVED = 0.1  # differences that are this noisy, relative to the gradient, prove nothing
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


# -- verdicts


def verdict(gradient: float | None, expected: float | None, size: float, limit: float, noise: float = 0.0):
    """(verdict, relative error). `noise` is the error of `expected`, relative to `size`."""
    if gradient is None or not np.isfinite(gradient):
        return NAN, None
    if expected is None or not np.isfinite(expected):
        return UNCLEAR, None
    error = abs(gradient - expected) / size
    if noise > UNRESOLVED:
        return UNCLEAR, error
    return (RIGHT if error <= max(limit, 2 * noise) else WRONG), error


def judge(name: str, found: dict, dtype: str) -> dict:
    """An engine's answers for a case, with verdicts, and how far its motion is from the exact one."""
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
        # components of one vector are relative to all of it; where the exact answer is 0, to the other regime's
        size = norm if case.model in ("double", "spin") else truth.sizes[x] if exact == 0 else abs(seen or 1.0)
        size = max(size, 1e-12)
        noise = (entry["noise"] or 0.0) / size
        entry["self"], entry["self_error"] = verdict(entry["gradient"], seen, size, SELF_LIMIT[dtype], noise)
        if case.column not in SELF_ONLY:
            entry["true_value"], size = float(exact), truth.sizes[x]
            entry["true"], entry["true_error"] = verdict(entry["gradient"], exact, size, TRUE_LIMIT)
    return found | {"inputs": inputs, "true_path": float(truth.value), "forward_error": off}


def judged(row: dict) -> dict:
    """A row with verdicts; also one of an earlier run, whose verdicts may have followed other rules."""
    return row | {"cases": {n: said if n == "F" else judge(n, said, row["dtype"]) for n, said in row["cases"].items()}}


def standing(found: dict) -> dict:
    """Case F from what speed/peers.py says of the standing robot."""
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
        if row.get("remark"):
            lines.append(f"{label}: {row['remark']}")
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
            if "inputs" in said and said["value"] is None and case != "F":
                lines.append(f"{label}, {case}: the motion itself is not finite.")
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
            counts.append(", ".join(f"{said.count(v)} {v}" for v in (RIGHT, WRONG, NAN, UNCLEAR) if v in said))
        lines.append([row["label"], *(count or (FAILED if row["cases"] else without(row)) for count in counts)])
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
                    said, text = "not asked", "no exact answer"
                else:
                    judged, _, word = entries(row, column, kind)
                    said, text = worst(judged, word), cell(row, column, kind)
                colour = COLOURS.get(said, "white")
                axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], colour, edgecolor="white", zorder=2)
                text = "\n".join(textwrap.wrap(text, 24)[:4])
                ink = "white" if said == NAN else "black"
                axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=7, color=ink, zorder=3)
        axes.set_xticks(np.arange(len(COLUMNS)) + 0.5, [f"{c}\n{TITLES[c]}" for c in COLUMNS], fontsize=8)
        axes.set_yticks(np.arange(len(rows)) + 0.5, [row["label"] for row in rows], fontsize=8)
        axes.set(xlim=(0, len(COLUMNS)), ylim=(len(rows), 0), title=title)
        axes.tick_params(length=0)
