"""Tables, fitted exponents and plots of growth.py's results."""

from __future__ import annotations

from dataclasses import dataclass

from lib import reporting
from lib.machine import table

SCENES = {
    "feet": "one body on k spheres",
    "balls": "k free balls",
    "snake": "chain of k balls, lying",
    "chain": "hanging chain",
    "laikago": "Laikago",
}
# what grows: name of its size, what the plot's axis shows (environments and steps: the cost of all of them together)
FAMILIES = {
    "environments": ("environments", "us per step of all"),
    "links": ("links", "us per step"),
    "contacts": ("contacts", "us per step"),
    "iterations": ("sweeps", "us per step"),
    "steps": ("steps", "us per rollout and environment"),
}


@dataclass
class Curve:
    family: str
    series: str
    kind: str  # forward, backward or memory
    x: list[float]
    y: list[float]

    @property
    def exponent(self) -> float:
        return reporting.exponent(self.x, self.y)

    @property
    def tail(self) -> float:
        """Of the larger half of the sizes: where a curve bends, this is where it leads."""
        start = len(self.x) // 2 if len(self.x) > 3 else len(self.x) - 2
        return reporting.exponent(self.x[start:], self.y[start:])


def curves(results: dict) -> list[Curve]:
    found = []
    rows = results["rows"]
    for family, series in dict.fromkeys((r["family"], r["series"]) for r in rows):
        line = sorted((r for r in rows if (r["family"], r["series"]) == (family, series)), key=lambda r: r["size"])
        for kind in ("forward", "backward"):
            costs = [r[f"{kind}_us"] * _together(r) for r in line]
            found.append(Curve(family, series, kind, [r["size"] for r in line], costs))
    for family in dict.fromkeys(r["family"] for r in results["memory"]):
        line = sorted((r for r in results["memory"] if r["family"] == family), key=lambda r: r["size"])
        found.append(Curve(family, "laikago", "memory", [r["size"] for r in line], [r["memory_mb"] for r in line]))
    return [curve for curve in found if len(curve.x) > 1]


def _together(row: dict) -> int:
    """Times are per environment step; what grows in these two families is how many of them there are."""
    return row["size"] if row["family"] in ("environments", "steps") else 1


def report(results: dict) -> dict[str, str]:
    fragments = {
        "environments": _environments(results),
        "links": _plain(results, "links"),
        "contacts": _contacts(results),
        "iterations": _plain(results, "iterations"),
        "steps": _steps(results),
    }
    found = curves(results)
    return fragments | {"summary": _summary(found), "headline": _headline(found)}


def _rows(results: dict, family: str) -> list[dict]:
    return [r for r in results["rows"] if r["family"] == family]


def _memory(results: dict, family: str) -> dict[int, dict]:
    return {r["size"]: r for r in results["memory"] if r["family"] == family}


def _environments(results: dict) -> str:
    rows, memory = _rows(results, "environments"), _memory(results, "environments")
    threads = list(dict.fromkeys(r["series"] for r in rows))
    cost = {(r["size"], r["series"]): r for r in rows}
    lines = []
    for n in sorted({r["size"] for r in rows}):
        line: list = [n]
        for name in threads:
            row = cost.get((n, name))
            line += [row["forward_us"], row["backward_us"]] if row else ["", ""]
        lines.append([*line, memory[n]["memory_mb"] if n in memory else ""])
    header = ["environments", *(f"{kind}, {name}, us" for name in threads for kind in ("forward", "backward"))]
    steps = next((r["steps"] for r in memory.values()), 0)
    text = "Laikagos on four feet, us per environment step by the clock, 50 sweeps:"
    return f"{text}\n\n{table([*header, f'MB of a gradient of {steps} steps'], lines)}"


def _plain(results: dict, family: str) -> str:
    rows = sorted(_rows(results, family), key=lambda r: r["size"])
    name = FAMILIES[family][0]
    text = {
        "links": "Hanging chains of hinges, no contacts, one thread, us per environment step:",
        "iterations": "Laikagos on four feet that make all sweeps of the solver, one thread, us per environment step:",
    }[family]
    lines = [[r["size"], r["forward_us"], r["backward_us"], r["backward_us"] / r["forward_us"]] for r in rows]
    header = [name, "forward", "backward", "backward / forward"]
    if family == "links":
        header += ["forward per link", "backward per link"]
        lines = [[*line, line[1] / line[0], line[2] / line[0]] for line in lines]
    return f"{text}\n\n{table(header, lines)}"


def _contacts(results: dict) -> str:
    rows = _rows(results, "contacts")
    scenes = list(dict.fromkeys(r["series"] for r in rows))
    cost = {(r["size"], r["series"]): r for r in rows}
    lines = []
    for n in sorted({r["size"] for r in rows}):
        found = [cost.get((n, scene)) for scene in scenes]
        lines.append([n, *(r[f"{kind}_us"] if r else "" for r in found for kind in ("forward", "backward"))])
    header = ["contacts", *(f"{SCENES[scene]}: {kind}" for scene in scenes for kind in ("forward", "backward"))]
    text = "Bodies at rest on k spheres, 50 sweeps, one thread, us per environment step:"
    return f"{text}\n\n{table(header, lines)}"


def _steps(results: dict) -> str:
    rows, memory = sorted(_rows(results, "steps"), key=lambda r: r["size"]), _memory(results, "steps")
    lines = [
        [r["size"], r["forward_us"], r["backward_us"]]
        + ([memory[n]["memory_mb"], memory[n]["states_mb"]] if (n := r["size"]) in memory else ["", ""])
        for r in rows
    ]
    text = f"One rollout of {rows[0]['batch']} Laikagos, 50 sweeps, one thread, us per environment step:"
    header = ["steps", "forward", "backward", "MB of its gradient", "of which states, MB"]
    return f"{text}\n\n{table(header, lines)}"


def _summary(found: list[Curve]) -> str:
    lines = [
        [
            c.family,
            SCENES.get(c.series, c.series),
            c.kind,
            f"{c.x[0]:,} to {c.x[-1]:,}",
            f"{c.exponent:.2f}",
            f"{c.tail:.2f}",
        ]
        for c in found
    ]
    text = "Cost ~ size^exponent, least squares of the logarithms; over environments and steps it is the cost of all."
    header = ["grows with", "case", "what", "sizes", "exponent", "exponent of the larger half"]
    return f"{text}\n\n{table(header, lines)}"


def _headline(found: list[Curve]) -> str:
    """For the larger half of the sizes, where start-up costs no longer hide the trend."""

    def pair(family: str, series: str) -> str:
        by = {c.kind: c.tail for c in found if (c.family, c.series) == (family, series)}
        return f"{by['forward']:.2f} and {by['backward']:.2f}"

    contacts = [c.series for c in found if c.family == "contacts" and c.kind == "forward"]
    touch = ", ".join(f"{pair('contacts', scene)} ({SCENES[scene]})" for scene in contacts)
    memory = [f"with {c.family} {c.tail:.2f}" for c in found if c.kind == "memory"]
    text = (
        "Exponents of the cost, forward and backward, over the larger half of the sizes: environments "
        f"{pair('environments', '1 thread')}, links {pair('links', 'chain')}, contacts {touch}, sweeps of the solver "
        f"{pair('iterations', 'laikago')}, steps {pair('steps', 'laikago')}"
    )
    return text + (f"; memory of a gradient: {', '.join(memory)}." if memory else ".")


def plot(results: dict, figure) -> None:
    """One small panel for each of what grows, and one for memory."""
    figure.set_size_inches(12, 7)
    found = curves(results)
    panels = dict(zip([*FAMILIES, "memory"], figure.subplots(2, 3).flat))
    for family, axes in panels.items():
        name, label = FAMILIES.get(family, ("environments or steps", "MB of a gradient"))
        here = [c for c in found if (c.kind == "memory") == (family == "memory") and family in (c.family, "memory")]
        colors = {series: f"C{i}" for i, series in enumerate(dict.fromkeys((c.family, c.series) for c in here))}
        for c in here:
            what = f"with {c.family}" if family == "memory" else f"{SCENES.get(c.series, c.series)}, {c.kind}"
            style = "s--" if c.kind == "backward" else "o-"
            exponent = f"{c.exponent:.2f}" + (f", then {c.tail:.2f}" if abs(c.tail - c.exponent) > 0.1 else "")
            axes.plot(c.x, c.y, style, color=colors[c.family, c.series], markersize=4, label=f"{what}: {exponent}")
        axes.set(xscale="log", yscale="log", xlabel=name, ylabel=label)
        sizes = sorted({n for c in here for n in c.x})
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=7)
        axes.set_xticks([], minor=True)
        if not here:  # a quick run measures the memory of one size
            axes.set_axis_off()
