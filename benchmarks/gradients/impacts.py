"""Gradients through impacts against event-driven truth, with contacts resolved per step and at the time of impact.

    python benchmarks/gradients/impacts.py                 all cases; some minutes
    python benchmarks/gradients/impacts.py --quick         closed forms and pendulums, three step sizes
    python benchmarks/gradients/impacts.py --cases rod,box only cases whose names contain one of these words

For every case the Jacobian of the last state (places and rates, rotations in the tangent space) by the start, the
contact's parameters, gravity and masses is compared with that of the continuous motion. The error is the largest one
over the largest entry of the true Jacobian. Its order is the slope of its logarithm over that of the step
size, over 41 sizes. impact_cases.py has the cases, event_truth.py the truth, cube_toss.py the comparison with DiffMJX.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

from gradients import cube_toss, impact_cases
from gradients.impact_cases import Case
from lib import reporting
from lib.machine import progress, table

MODES = ("step", "impact")
EXACT = 1e-8  # smaller errors have no order: rounding, and the error of the truth itself
SINGLE = 8  # float32 is measured with this many times the coarsest number of steps
QUICK = ("wall", "drop", "line", "limit", "pendulum, wall", "PD")


# -- measuring


def dense(case: Case) -> list[int]:
    """Numbers of steps for the order, in eighths of an octave.

    The error also depends on where in a step an impact falls, so a few sizes would not show the order.
    """
    low, high = case.steps[0], case.steps[-1]
    return [round(low * 2 ** (k / 8)) for k in range(round(8 * np.log2(high / low)) + 1)]


def order(steps: list[int], errors: list[float]) -> float | None:
    """Exponent of error ~ step^exponent; None if the error is rounding or not finite."""
    if not np.isfinite(errors).all() or max(errors) < EXACT or min(errors) == 0:
        return None
    return -reporting.exponent(steps, errors)


def measure(case: Case, mode: str, counts: list[int], fit: list[int], single: bool) -> dict:
    """Errors of gradients and of the motion by the number of steps, and their order over the steps `fit`."""
    errors, values = {}, {}
    true = impact_cases.flat(case, impact_cases.answer(case).end)
    for steps in sorted({*counts, *fit}):
        value, found = impact_cases.jacobian(case, mode, steps)
        errors[steps] = impact_cases.error(case, found)
        values[steps] = float(np.abs(impact_cases.flat(case, value) - true).max())
    row = {name: [x[n] for n in counts] for name, x in (("errors", errors), ("values", values))}
    for name, part in (("order", fit), ("finer", fit[len(fit) // 2 :])):
        row[name] = order(part, [errors[n] for n in part]) if case.order else None
    if single:
        _, found = impact_cases.jacobian(case, mode, SINGLE * case.steps[0], "float32")
        row["float32"] = impact_cases.error(case, found)
    return row


def measured(case: Case, quick: bool) -> dict:
    truth = impact_cases.answer(case)
    counts = list(case.steps[:3] if quick else case.steps)
    fits = {"step": counts, "impact": counts if quick else dense(case)}
    found = {
        "closed": not case.integrated, "sizes": len(fits["impact"]),
        "inputs": list(case.by), "outputs": len(truth.jacobian), "seconds": case.span, "steps": list(counts),
        "largest": float(np.abs(truth.jacobian).max()), "doubt": truth.doubt,
        "impacts": [[hit.time, hit.contact, hit.speed, hit.kind] for hit in truth.hits],
    }  # fmt: skip
    found["modes"] = {mode: measure(case, mode, counts, fits[mode], mode == "impact" and not quick) for mode in MODES}
    return found


def tosses(quick: bool) -> dict:
    steps = cube_toss.STEPS[:3] if quick else cube_toss.STEPS
    rows = [
        {"mode": mode, **cube_toss.toss(mode, dt, e)} for e in cube_toss.RESTITUTION for mode in MODES for dt in steps
    ]
    rigid = {str(e): cube_toss.rigid(e) for e in cube_toss.RESTITUTION}
    spring = cube_toss.spring_restitution()
    return {"rows": rows, "rigid": rigid, "spring": spring, "published": cube_toss.PUBLISHED}


# -- reporting


def shown(x: float | None) -> str:
    return "-" if x is None else f"{x:.1e}"


def slope(row: dict, name: str = "order") -> str:
    if max(row["errors"]) < EXACT:
        return "exact"
    return "-" if row[name] is None else f"{row[name]:.2f}"


def overview(results: dict) -> str:
    """One line per case: the coarsest and the finest step in both modes."""
    lines = []
    for name, case in results["cases"].items():
        old, new = (case["modes"][mode] for mode in MODES)
        impacts = "closed form" if case["closed"] else str(len(case["impacts"]))
        lines.append([
            name, impacts, *(shown(row["errors"][k]) for row in (old, new) for k in (0, -1)),
            slope(new), slope(new, "finer"), shown(new.get("float32")),
        ])  # fmt: skip
    ends = ("coarsest", "finest")
    header = ["case", "impacts", *(f'"{mode}", {end}' for mode in MODES for end in ends)]
    header += ["order", "finer half", "float32"]
    return table(header, lines)


def errors(results: dict) -> str:
    """All errors. Columns are multiples of the coarsest number of steps."""
    lines, longest = [], 0
    for name, case in results["cases"].items():
        longest = max(longest, len(case["steps"]))
        for mode, row in case["modes"].items():
            lines.append([name, mode, str(case["steps"][0]), *map(shown, row["errors"]), slope(row)])
    return table(["case", "mode", "steps N", *(f"{2**k} N" for k in range(longest)), "order"], lines)


def toss(results: dict) -> str:
    """Ours and the published figures of the cube toss."""
    found, lines = results["toss"], []

    def line(name: str, y: float, gradient: float, wide: float, narrow: float | None) -> None:
        figures = [f"{y:.4f}", f"{gradient:.3f}", f"{wide:.3f}", "-" if narrow is None else f"{narrow:.3f}"]
        lines.append([name, *figures, f"{abs(gradient - wide):.3f}"])

    for e, rigid in found["rigid"].items():
        if rigid is not None:
            line(f"rigid motion, e = {e}", rigid["y"], rigid["gradient"], rigid["wide"], rigid["narrow"])
        for row in found["rows"]:
            if str(row["e"]) == e:
                name = f'ours, "{row["mode"]}", e = {e}, {1e3 * row["dt"]:g} ms'
                line(name, row["y"], row["gradient"], row["wide"], row["narrow"])
    for name, figures in found["published"].items():
        line(f"{name} (published)", *figures, None)
    wide, narrow = cube_toss.DIFFERENCES
    header = ["program", "y m", "gradient s", f"differences, +-{wide:g} m/s", f"+-{narrow:g} m/s", "apart by"]
    return table(header, lines)


def notes(results: dict) -> str:
    lines = [
        "Errors are those of the whole Jacobian over its largest entry. The coarsest run has 50 steps (150 for the "
        f"eight bounces), the finest 32 times as many. float32: at {SINGLE} times as many.",
        "Order: slope of the error over the step size, both logarithmic, by least squares over "
        f"{max(case['sizes'] for case in results['cases'].values())} sizes between these, and over the finer half of "
        f"them; exact: below {EXACT:g}. "
        "The error also depends on where in a step an impact falls, which scatters these slopes.",
    ]
    if "toss" in results:
        lines += [
            "The cube toss has the set-up of DiffMJX's repository: a cube of 0.1 m and 0.1 kg, turned by 60 degrees "
            "about x, friction 1, gravity 2 m/s^2, 0.2 m high, thrown with (0, -0.1, -2) m/s; dy/dvz after 1 s, "
            "differences over +-0.01 m/s.",
            "Its contact law differs: MuJoCo's is a damped spring, whose first impact has a restitution of "
            f"{results['toss']['spring']:.2f}; ours is rigid. So values differ. What can be compared is how far the "
            "gradient and the differences of one program are apart.",
            "Rigid motion: event-driven, continuous in time; none for e = 0.15, where the cube comes to rest on its "
            "edges. Apart by: gradient and differences over +-0.01 m/s, which are also apart where the motion bends.",
        ]
    return "\n".join(f"- {line}" for line in lines)


def report(results: dict) -> dict[str, str]:
    found = {"overview": overview(results), "errors": errors(results)}
    return found | ({"toss": toss(results)} if "toss" in results else {}) | {"notes": notes(results)}


def figures(results: dict) -> dict[str, str]:
    """Single figures for use inside a sentence."""
    rows = [case["modes"]["impact"] for case in results["cases"].values()]
    orders = [row["order"] for row in rows if row["order"] is not None]
    return {
        "cases": str(len(rows)),
        "worst": f"{max(row['errors'][-1] for row in rows):.1e}",
        "orders": f"{min(orders):.2f} to {max(orders):.2f}" if orders else "-",
    }


def plot(results: dict, figure) -> None:
    figure.set_size_inches(13, 5.5)
    for axes, mode in zip(figure.subplots(1, 2, sharey=True), MODES):
        for k, (name, case) in enumerate(results["cases"].items()):
            steps = case["seconds"] / np.array(case["steps"])
            style = {"color": f"C{k % 10}", "linestyle": ("-", "--")[k // 10 % 2], "marker": "o", "markersize": 3}
            axes.loglog(1e3 * steps, np.maximum(case["modes"][mode]["errors"], 1e-16), label=name, **style)
        axes.set(xlabel="step, ms", title=f'contact_time="{mode}"')
    figure.axes[0].set_ylabel("largest error over largest entry")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--cases", help="words, of which a case's name must contain one")
    options = parser.parse_args(arguments)
    words = options.cases.split(",") if options.cases else QUICK if options.quick else ("",)
    chosen = [case for case in impact_cases.cases() if any(word in case.name for word in words)]
    results = reporting.begin(options) | {"cases": {}}
    with reporting.quiet():
        for case in chosen:
            progress(case.name)
            results["cases"][case.name] = measured(case, options.quick)
        if not options.cases:
            progress("cube toss")
            results["toss"] = tosses(options.quick)
    return reporting.finish("impacts", options, results, report, plot)


if __name__ == "__main__":
    main()
