"""Accuracy of gradients: per input, regime and horizon, and in cases with a known answer.

    python benchmarks/gradients/gradient_report.py            # minutes; writes docs/gradient_report.md and the JSON
    python benchmarks/gradients/gradient_report.py --quick    # one sample per regime, two minutes
    python benchmarks/gradients/gradient_report.py --out DIR  # both files there instead

What is differentiated: a random weighting of the last state of a rollout of laikago_feet, by its first state, its
controls and all parameters. Of the difference quotients with the steps STEPS, the one that agrees best with the next
smaller step counts; `judge` decides how far that agreement can be trusted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch

import warp_articulated as wa
from gradients import gradient_truth
from gradients.gradient_truth import Bench, Record
from lib import machine
from lib.machine import progress, table
from warp_articulated.device.parameters import PARAMETERS
from warp_articulated.model import Model

DT = 1e-3
STEPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)  # times UNITS
KINK, ZERO = 1e-3, 1e-9
# typical sizes of changes; those in RELATIVE are times the value
RELATIVE = ("mass", "inertia", "kp", "kd", "effort_limit", "friction", "restitution", "frictionloss", "erp", "cfm")
UNITS = {"qd": 0.1, "u": 0.1, "gravity": 1.0, "armature": 0.01, "damping": 0.1, "stiffness": 1.0}  # others: 0.01
INPUTS = ("q", "qd", "u", *PARAMETERS)


@dataclass
class Plan:
    """How much to run."""

    samples: int = 6  # environments
    directions: int = 3
    horizons: tuple[int, ...] = (1, 10, 100, 1000)
    regimes: tuple[str, ...] = ("flight", "sticking", "sliding", "impact", "joint limit", "effort limit")
    single: bool = True  # float32 as well
    cases: tuple[Callable[[Bench], list[Record]], ...] = gradient_truth.CASES


QUICK = Plan(samples=1)


def robot() -> Model:
    """laikago_feet with every kind of parameter in use; its abductions have dry friction instead of limits."""
    model = wa.load("laikago_feet")
    legs, rubbing = np.arange(model.nv) >= 6, np.isin(np.arange(model.nv), (6, 9, 12, 15))
    return replace(
        model, damping=0.1 * legs, armature=0.01 * legs, stiffness=1.0 * legs, frictionloss=0.2 * rubbing,
        lower=np.where(rubbing, -np.inf, model.lower), upper=np.where(rubbing, np.inf, model.upper),
        pair_friction=np.ones(len(model.pairs)), pair_restitution=np.full(len(model.pairs), 0.3),
    )  # fmt: skip


def simulator(model: Model, num_envs: int, dtype: str = "float64") -> wa.Simulator:
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, dt=DT, validate=False)


def starts(model: Model, samples: int) -> dict[str, dict[str, torch.Tensor]]:
    """Inputs of all regimes, {input: (samples, ...)}, as numbers that float32 has too; controls (samples, nu)."""
    sim, gen = simulator(model, samples), torch.Generator().manual_seed(0)

    def about(x: torch.Tensor, size: float, move=(0.0, 0.0, 0.0)) -> torch.Tensor:
        """x with noise, and its first three entries moved."""
        x = x + size * torch.randn(x.shape, generator=gen, dtype=x.dtype)
        x[:, :3] += torch.tensor(move).double()
        return x

    u = sim.initial_control()
    qs, qds = sim.rollout(*sim.initial_state(), u.expand(1000, -1, -1), checkpoint_every=1000)
    q, qd = qs[-1], qds[-1]
    bent, bend = q.clone(), u.clone()  # beyond limits, and drives that press on
    # the joints called ..._lower, the knees, at their lower limits; those called ..._upper at their upper ones
    for end, limit, beyond in (("_lower", model.lower, -1), ("_upper", model.upper, 1)):
        for joint in (name for name in model.joint_names if name.endswith(end)):
            value = float(limit[model.joint_v(joint)][0])
            bent[:, model.joint_q(joint).start] = value + 0.01 * beyond
            bend[:, model.drive_names.index(joint)] = value + 0.2 * beyond
    far = u + 0.5 * about(0 * u, 1.0).sign()
    high = (0.0, 0.0, 10.0)
    states = {
        "flight": (about(q, 0.1, high), about(qd, 0.5), about(u, 0.05)),
        "sticking": (q, about(qd, 0.002), about(u, 0.005)),
        "sliding": (q, about(qd, 0.02, (0.8, 0.6, 0.0)), about(u, 0.02)),
        "impact": (about(q, 0.0, (0.0, 0.0, -5e-4)), about(qd, 0.1, (0.0, 0.0, -1.0)), about(u, 0.02)),
        "joint limit": (about(bent, 0.003, high), about(qd, 0.5), about(bend, 0.05)),
        "effort limit": (about(q, 0.1, high), about(qd, 0.5), far),
    }
    special = {"sliding": ("friction", 0.05), "effort limit": ("effort_limit", 3.0)}
    found = {}
    for regime, state in states.items():
        inputs = {name: x.clone() for name, x in sim.params.items()}
        if regime in special:
            inputs[special[regime][0]].fill_(special[regime][1])
        inputs |= dict(zip(("q", "qd", "u"), state, strict=True))
        found[regime] = {name: x.float().double() for name, x in inputs.items()}
    return found


def units(name: str, x: torch.Tensor) -> torch.Tensor:
    """Sizes of changes of an input that are comparable; 0 where it must not change."""
    if name == "inertia":
        return x.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].expand(x.shape)
    size = x.abs() if name in RELATIVE else torch.full_like(x, UNITS.get(name, 0.01))
    return torch.where(torch.isfinite(x), size, 0.0)


def run(sim: wa.Simulator, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Last q (n, nq) and qd (n, nv); the controls in `inputs` are (n, T, nu)."""
    params = {name: x for name, x in inputs.items() if name in PARAMETERS}
    u = inputs["u"].transpose(0, 1)
    return [x[-1] for x in sim.rollout(inputs["q"], inputs["qd"], u, params=params, checkpoint_every="sqrt")]


def gradients(sim: wa.Simulator, inputs: dict[str, torch.Tensor], weights: Sequence[torch.Tensor]):
    """{input: gradient in float64} of the weighted last state, and that state."""
    inputs = {name: x.to(sim.dtype, copy=True).requires_grad_() for name, x in inputs.items()}
    last = run(sim, inputs)
    loss = sum((w.to(sim.dtype) * x).sum() for w, x in zip(weights, last, strict=True))
    bars = torch.autograd.grad(loss, list(inputs.values()))
    return {name: bar.double() for name, bar in zip(inputs, bars, strict=True)}, [x.detach() for x in last]


class Differences:
    """Difference quotients of many environments, directions and steps at once."""

    def __init__(self, model: Model, plan: Plan):
        self.shape = (2, len(STEPS), plan.directions, plan.samples)
        self.sim = simulator(model, int(np.prod(self.shape)))
        self.gen = torch.Generator().manual_seed(1)

    def direction(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """(directions, samples, ...)"""
        d = torch.randn((self.shape[2], *x.shape), generator=self.gen, dtype=x.dtype) * units(name, x)
        return 0.5 * (d + d.mT) if name == "inertia" else d

    def quotients(self, inputs, name: str, d: torch.Tensor, weights, last) -> torch.Tensor:
        """(2, steps, directions, samples): difference quotients of the loss forwards and backwards."""
        h = torch.tensor(STEPS).double()[:, None, None]
        wide = {key: x.expand(*self.shape, *x.shape[1:]) for key, x in inputs.items()}
        sides = torch.stack([h, -h])
        wide[name] = wide[name] + sides.reshape(*sides.shape, *[1] * (d.ndim - 2)) * d
        with torch.no_grad():
            ends = run(self.sim, {key: x.flatten(0, 3) for key, x in wide.items()})
        # relative to the undisturbed end: its digits would be lost in the loss
        moved = [(x.unflatten(0, self.shape) - end) * w for x, end, w in zip(ends, last, weights, strict=True)]
        return sum(x.sum(-1) for x in moved) / sides


def judge(quotients: torch.Tensor, product: torch.Tensor) -> dict[str, np.ndarray]:
    """Relative errors of the products gradient . direction (directions, samples), those at kinks apart.

    doubt: what the difference quotients themselves leave open. Those of a smooth function agree from step to step, and
    the difference between the two sides falls with the step; what does not is noise or a kink. Where more than KINK is
    left open at all steps, the sample is at a kink (a neighbour takes another branch), or its effect is lost in
    noise; it is then held against the closest of all quotients to one side.
    """
    middle, bend = quotients.mean(0), quotients[0] - quotients[1]
    scale = middle.abs().median(0).values.amax(0)
    none = (scale <= ZERO) & (product.abs().amax(0) <= ZERO)
    scale = scale.clamp(min=ZERO)
    ratio = torch.tensor([a / b for a, b in pairwise(STEPS)])[:, None, None]
    doubt = ((middle[:-1] - middle[1:]).abs() + 0.5 * (bend[:-1] - ratio * bend[1:]).abs()) / scale
    doubt[:-1] = torch.maximum(doubt[:-1], doubt[1:] / ratio[1:])  # so rarely do noisy quotients agree by chance
    best = doubt.argmin(0, keepdim=True)
    doubt = doubt.gather(0, best)[0]
    error = torch.nan_to_num((middle.gather(0, best)[0] - product).abs() / scale, nan=torch.inf)
    kink = ~(doubt <= KINK) & ~none
    smooth = ~kink & ~none
    one_sided = torch.nan_to_num((quotients - product).abs().amin((0, 1)) / scale, nan=torch.inf)
    return {"error": error[smooth].numpy(), "doubt": doubt[smooth].numpy(), "kink": one_sided[kink].numpy()}


def rows_of(regime: str, horizon: int, inputs: dict, model: Model, plan: Plan, differences: Differences) -> list[dict]:
    """One row per input. `differences` brings its own simulator."""
    gen = torch.Generator().manual_seed(horizon)
    weights = [torch.randn(inputs[name].shape, generator=gen).double() for name in ("q", "qd")]
    # drives that keep moving: at rest, dry friction ends at the very edge of sticking
    seconds, joint = torch.arange(horizon)[:, None] * DT, torch.arange(model.nu)
    swing = (0.01 if regime == "sticking" else 0.05) * torch.sin(4 * torch.pi * seconds + joint)
    inputs = inputs | {"u": inputs["u"][:, None] + swing.float().double()}
    exact, last = gradients(simulator(model, plan.samples), inputs, weights)
    rows, single = [], None
    if plan.single:
        single, end = gradients(simulator(model, plan.samples, "float32"), inputs, weights)
        path = (end[0] - last[0]).abs().amax(1).numpy()  # m or rad
    for name in INPUTS:
        d = differences.direction(name, inputs[name])
        found = judge(differences.quotients(inputs, name, d, weights, last), (exact[name] * d).flatten(2).sum(-1))
        error, doubt, kink = found["error"], found["doubt"], found["kink"]
        size = units(name, inputs[name])
        norm, length = ((exact[name] * unit).flatten(1).norm(dim=1) for unit in (size, 1.0))
        row = {
            "regime": regime, "horizon": horizon, "input": name, "samples": len(error),
            "worst": top(error), "median": mid(error), "doubt_worst": top(doubt), "doubt_median": mid(doubt),
            "beyond_doubt": int((error > doubt).sum()), "worst_beyond_doubt": top(error[error > doubt]),
            "kinks": len(kink), "kinks_worst": top(kink), "gradient_norm": mid(length.numpy()),
        }  # fmt: skip
        if single:
            off = ((single[name] - exact[name]) * size).flatten(1).norm(dim=1)
            off = (off / norm.clamp(min=ZERO))[(norm > ZERO) | (off > ZERO)].numpy()
            row |= {"float32_worst": top(off), "float32_median": mid(off), "float32_path": top(path)}
        rows.append(row)
    return rows


def top(x: np.ndarray) -> float | None:
    return float(f"{x.max():.4g}") if x.size else None


def mid(x: np.ndarray) -> float | None:
    return float(f"{np.median(x):.4g}") if x.size else None


def truth(cases: Iterable[Callable], single: bool) -> list[Record]:
    """Records of all cases in float64, with the errors of float32."""
    records = []
    for case in cases:
        progress(f"truth, {case.__doc__}")
        found = case(Bench())
        if single:
            pairs = zip(found, case(Bench("float32")), strict=True)
            found = [replace(a, error32=b.error) for a, b in pairs]
        records += found
    return records


def measure(plan: Plan) -> dict:
    """All numbers of the report."""
    results: dict = {"machine": machine.describe(), "plan": asdict(plan) | {"cases": len(plan.cases)}}
    model = robot()
    inputs, differences = starts(model, plan.samples), Differences(model, plan)
    results["errors"] = []
    for horizon in plan.horizons:
        for regime in plan.regimes:
            progress(f"{regime}, {horizon} steps")
            results["errors"] += rows_of(regime, horizon, inputs[regime], model, plan, differences)
    results["truth"] = [asdict(r) | {"error": r.error} for r in truth(plan.cases, plan.single)]
    return results


# -- Markdown


def digits(x: float | None) -> str:
    return "" if x is None else f"{x:.1e}"


def summary_table(rows: Sequence[dict]) -> str:
    header = ["regime", "steps", "samples", "median", "worst", "of", "beyond", "worst beyond", "at kinks"]
    header += ["worst there", "float32 median", "float32 worst", "float32 path", "gradient by q"]
    lines = []
    for key in dict.fromkeys((r["regime"], r["horizon"]) for r in rows):
        here = [r for r in rows if (r["regime"], r["horizon"]) == key]
        seen = [r for r in here if r["samples"]]
        worst = max(seen, key=lambda r: r["worst"])
        off = [r for r in here if r.get("float32_worst") is not None]
        lines.append([
            *key, sum(r["samples"] for r in here), digits(float(np.median([r["median"] for r in seen]))),
            digits(worst["worst"]), worst["input"], sum(r["beyond_doubt"] for r in here),
            digits(max((r["worst_beyond_doubt"] for r in here if r["beyond_doubt"]), default=None)),
            sum(r["kinks"] for r in here), digits(max((r["kinks_worst"] for r in here if r["kinks"]), default=None)),
            digits(float(np.median([r["float32_median"] for r in off])) if off else None),
            digits(max((r["float32_worst"] for r in off), default=None)), digits(here[0].get("float32_path")),
            digits(here[0]["gradient_norm"]),
        ])  # fmt: skip
    return table(header, lines)


def regime_table(rows: Sequence[dict], regime: str, kind: str) -> str:
    """Worst / median per input and horizon; kind: "" or "float32_"."""
    here = [r for r in rows if r["regime"] == regime]
    horizons = list(dict.fromkeys(r["horizon"] for r in here))
    lines = []
    for name in dict.fromkeys(r["input"] for r in here):
        cells = []
        for r in (r for r in here if r["input"] == name):
            kinks = f" ({r['kinks']} k)" if r["kinks"] and not kind else ""
            worst, median = r.get(kind + "worst"), r.get(kind + "median")
            cells.append(kinks or "0" if worst is None else f"{worst:.1e} / {median:.1e}{kinks}")
        lines.append([name, *cells])
    return table(["input", *(f"{n} step" + "s" * (n > 1) for n in horizons)], lines)


def truth_table(records: Sequence[dict]) -> str:
    header = ["case", "quantity", "kind", "ours", "expected", "relative error", "float32", "remark"]
    names = ("case", "quantity", "kind", "ours", "expected", "error", "error32", "remark")
    lines = []
    for r in records:
        values = [f"{r[name]:.9g}" if name in ("ours", "expected") else r[name] for name in names]
        lines.append([digits(v) if v is None or isinstance(v, float) else v for v in values])
    return table(header, lines)


INTRODUCTION = """# Gradient report

Two different questions. *Self-consistent*: is a gradient the derivative of the program as it runs? *True*: is it the
derivative of the continuous motion? A simulator with fixed steps can be right in the first sense and wrong in the
second, even in sign: after an impact (cases W and D below) the step at which two bodies meet does not move with the
start, so derivatives by positions and velocities from before the impact are wrong, however small dt is. Derivatives by
the restitution are right.

## Cases with a known answer

S sliding block (S1 still sliding, S2 stopped), I incline (I1 slipping, I2 sticking), W wall, D drop, P pendulum, F four
feet, C chaos, Q quaternion. SI units. Errors are in float64, and beside it in float32. For Jacobians (F, C, Q) "ours"
and "expected" are their largest singular values, and the error is that of their difference.
"""

METHOD = """## Errors by regime and horizon

A random weighting of the last state of a rollout of `laikago_feet` (dt 1 ms; dry friction instead of limits in the
abductions, some damping, springs, armature and restitution) is differentiated by the first state, the controls and
all parameters. The reference are central differences of the same program in float64, along random directions; errors
are relative to the largest derivative of the {directions} directions. A sample is a state ({samples} per regime), an
input and a direction. Differences with seven steps say by themselves how much they leave open; "beyond" counts the
samples whose error is larger than that. Where they leave open more than {kink:g}, the sample is at a kink (or its
effect is lost in rounding) and counted apart: the gradient takes the branch that the program took, so it is held
against the closest difference quotient to one side.

float32 gradients are compared with the float64 ones of the same inputs, as vectors. Three things make the worst of
them: `erp` and `cfm` act through the depth of contacts, some micrometres, of which float32 has two digits; what acts
through accelerations (`armature`, `damping`, `kd`) finds them, in a robot that stands, as small differences of large
impulses; and after many contacts the two precisions may be on different paths ("float32 path": by how many m or rad
they have come apart), whose gradients differ, be they exact or not.
"""


def markdown(results: dict, command: str) -> str:
    plan, rows = results["plan"], results["errors"]
    parts = [f"*Generated by `{command}`: edits are lost.*", INTRODUCTION]
    parts += [truth_table(results["truth"])] if results["truth"] else []
    parts += [METHOD.format(**plan, kink=KINK), summary_table(rows)]
    parts += [
        "## Errors by input",
        "Worst / median. 0: no effect above 1e-9, and no gradient. k: samples at a kink, counted apart.",
    ]
    for regime in plan["regimes"]:
        parts += [f"### {regime.capitalize()}", regime_table(rows, regime, "")]
    for regime in plan["regimes"] if plan["single"] else ():
        parts += [f"### {regime.capitalize()}, float32 against float64", regime_table(rows, regime, "float32_")]
    facts = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    parts += [f"Measured in {results['seconds']:.0f} s on: {facts}."]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def main(arguments: list[str] | None = None, plan: Plan | None = None) -> dict:
    parser = argparse.ArgumentParser(description="Errors of gradients, and cases with a known answer.")
    parser.add_argument("--quick", action="store_true", help="one sample per regime")
    parser.add_argument("--out", type=Path, help="folder of both files; by default docs/ and benchmarks/results/")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # Warp writes messages about its kernels to stdout
        results = measure(plan or (QUICK if options.quick else Plan()))
    results["seconds"] = time.perf_counter() - start
    text = markdown(results, "python benchmarks/gradients/gradient_report.py" + " --quick" * options.quick)
    machine.write_json((options.out or machine.RESULTS) / "gradient_report.json", results)
    (options.out or machine.ROOT / "docs").joinpath("gradient_report.md").write_text(text, "utf-8")
    print(text)
    return results


if __name__ == "__main__":
    main()
