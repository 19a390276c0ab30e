"""The report of speed/peers.py: tables, sentences, a plot."""

from __future__ import annotations

import itertools

from lib.machine import table

UNRESOLVED = 0.1  # differences that are this noisy say nothing about a gradient


def steps_table(peers: dict) -> str:
    """Engines that stand; one line each, steps per second by batch."""
    batches = sorted({run["batch"] for peer in peers.values() for run in peer["runs"]})
    lines = []
    for peer in peers.values():
        runs = {run["batch"]: run for run in peer["runs"]}
        good = [run for run in runs.values() if "refused" not in run]
        if not runs or not good:
            continue
        first = good[0]
        rates = [_rate(runs.get(batch)) for batch in batches]
        deep = f"{first['penetration_mm']:.3g}" if "penetration_mm" in first else "no contacts"
        lines.append([
            first["name"], first["version"], first["dtype"], f"{first['dt']:g}", max(r["threads"] for r in good),
            *rates,
            f"{max(r['realtime_factor'] for r in good):,.3g}", deep, f"{first['compile_seconds']:.3g}",
        ])  # fmt: skip
    header = ["engine", "version", "precision", "dt s", "threads", *(f"steps/s, batch {b}" for b in batches)]
    return table([*header, "simulated s per s, best", "penetration mm", "compile s"], lines)


def _rate(run: dict | None) -> str:
    if run is None:
        return ""
    if "refused" in run:
        late = run["refused"].startswith("It took ")
        return run["refused"].removeprefix("It took ").rstrip(".") if late else "refused"
    return f"{run['steps_per_second']:,.0f}"


def gradient_table(peers: dict) -> str:
    lines = []
    for peer in peers.values():
        for run in peer["gradients"]:
            g = run.get("gradient")
            if not g or "refused" in run or not g["supported"]:
                continue
            lines.append([
                run["name"], g["method"], g["dtype"], g["batch"], g["us_per_robot_step"],
                f"{g['ratio_to_forward']:.3g}", f"{g['peak_mb']:.3g}", f"{g['first_seconds']:.3g}", _error(g),
                f"{g['difference_noise']:.0e}",
            ])  # fmt: skip
    header = ["engine", "method", "precision", "batch", "us per robot step, forward and backward", "ratio to forward"]
    return table([*header, "peak MB", "first gradient s", "relative error", "error of the differences"], lines)


def sentences(peers: dict) -> list[str]:
    """Why figures are missing."""
    found = []
    for peer in peers.values():
        label = peer["label"]
        if "refused" in peer:
            found.append(f"{label}: {peer['refused']}")
        for kind in ("runs", "gradients"):
            for run in peer[kind]:
                what = f"{label}, {'gradient, ' * (kind == 'gradients')}batch {run['batch']}"
                if "refused" in run:
                    found.append(f"{what}: {run['refused']}")
                elif not run.get("gradient", {"supported": True})["supported"]:
                    found.append(f"{label}, gradient: {run['gradient']['why']}")
    return found


def short_table(peers: dict) -> str:
    """One line per engine: speed at every batch, and the gradient of one robot."""
    batches = sorted({run["batch"] for peer in peers.values() for run in peer["runs"]})
    lines = []
    for peer in peers.values():
        runs = {run["batch"]: run for run in peer["runs"] if "refused" not in run}
        if not runs:
            continue
        first = next(iter(runs.values()))
        found = [r["gradient"] for r in peer["gradients"] if "refused" not in r and r["batch"] == 1]
        g = found[0] if found else {"supported": False}
        cost, error = ("-", "-")
        if g["supported"]:
            cost, error = f"{g['us_per_robot_step']:,.3g} ({g['dtype']})", _error(g)
        speeds = [f"{runs[b]['realtime_factor']:,.3g}" if b in runs else "" for b in batches]
        name = first["name"] if "penetration_mm" in first else f"{first['name']}, no contacts"
        lines.append([name, first["dtype"], *speeds, cost, error])
    header = ["engine", "precision", *(f"simulated s per s, {b} robot{'s' * (b > 1)}" for b in batches)]
    return table([*header, "gradient, us per step (precision)", "its error"], lines)


def _error(g: dict) -> str:
    if not g["finite"]:
        return "not finite"
    noise = 2 * g["difference_noise"]
    if noise > 2 * UNRESOLVED:
        return "not resolved"
    # closer than the error of the differences: they cannot resolve more
    return f"below {noise:.0e}" if g["relative_error"] <= noise else f"{g['relative_error']:.0e}"


def headline(peers: dict) -> str:
    """Ours against the fastest other engine that stands, at every batch."""
    lines = []
    for batch in sorted({run["batch"] for run in peers.get("ours", {}).get("runs", [])}):
        rates = {}
        for name, peer in peers.items():
            for run in peer["runs"]:
                if run["batch"] == batch and "refused" not in run and run["stands"]:
                    rates[name] = run
        others = {name: run for name, run in rates.items() if not name.startswith("ours")}
        if "ours" not in rates or not others:
            continue
        best = max(others.values(), key=lambda run: run["realtime_factor"])
        ratio = rates["ours"]["realtime_factor"] / best["realtime_factor"]
        lines.append(f"{ratio:.3g} times {best['name']} at batch {batch}")
    return f"Simulated time per second, ours against the fastest other engine that stands: {'; '.join(lines)}."


def report(results: dict) -> dict[str, str]:
    peers = results["peers"]
    return {
        "steps": steps_table(peers),
        "headline": headline(peers),
        "short": short_table(peers),
        "gradients": gradient_table(peers),
        "sentences": "\n".join(f"- {sentence}" for sentence in sentences(peers)),
    }


def plot(results: dict, figure) -> None:
    """Simulated seconds per second against the batch; the cost of a gradient against its error."""
    left, right = figure.subplots(1, 2)
    marks = itertools.cycle("osv^Dph*X")
    for peer in results["peers"].values():
        good = [run for run in peer["runs"] if "refused" not in run and run["stands"]]
        if good:
            x, y = [run["batch"] for run in good], [run["realtime_factor"] for run in good]
            left.plot(x, y, f"{next(marks)}-", label=f"{good[0]['name']}, {good[0]['dtype']}")
        for run in peer["gradients"]:
            g = run.get("gradient", {})
            if "refused" in run or not g.get("supported") or not g["finite"] or run["batch"] != 1:
                continue
            resolved = max(g["relative_error"], 1e-16)
            right.plot(g["us_per_robot_step"], resolved, next(marks), label=f"{run['name']}, {g['dtype']}")
    left.set(
        xscale="log", yscale="log", xlabel="robots", ylabel="simulated seconds per second", title="Standing Laikago"
    )
    right.set(xscale="log", yscale="log", xlabel="us per step, forward and backward, one robot")
    right.set(ylabel="relative error against its own differences", title="Gradients")
