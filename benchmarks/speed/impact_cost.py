"""What contact_time="impact" costs: forward and backward, for robots that stand, trot and are thrown.

    python benchmarks/speed/impact_cost.py            256 Laikagos, 400 steps of 1 ms, one thread; two minutes
    python benchmarks/speed/impact_cost.py --quick    64 of them

Both modes in turn, the minimum of several runs; a comparison within one run. Refused if a state is not finite.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import torch

import warp_articulated as wa
from lib import reporting
from lib.machine import table

MODES = ("step", "impact")
STEPS = 400
NOISE = {"standing": 0.0, "trotting": 0.0, "thrown": 1.0}  # of the rates at the start


def start(model, envs: int, situation: str):
    """State and controls of a situation, made with contact_time="step"."""
    sim = wa.Simulator(model, envs, device="cpu", validate=False)
    q, qd = sim.initial_state()
    u = sim.initial_control()
    q, qd = (x[-1] for x in sim.rollout(q, qd, u.expand(1500, -1, -1), checkpoint_every=1500))
    controls = u.expand(STEPS, -1, -1).clone()
    noise = torch.Generator().manual_seed(0)
    if situation == "trotting":
        controls = trot(model, controls, torch.rand(envs, generator=noise))
        q, qd = (x[-1] for x in sim.rollout(q, qd, controls.repeat(2, 1, 1), checkpoint_every=2 * STEPS))
    qd += NOISE[situation] * torch.randn(qd.shape, generator=noise)
    if situation == "thrown":
        q[:, 2] += 0.05
    return q, qd, controls


def trot(model, controls: torch.Tensor, phase: torch.Tensor) -> torch.Tensor:
    """Diagonal legs swing in turn at 2.5 Hz: their knees bend, each robot with its own phase."""
    steps = torch.arange(len(controls))[:, None] * 1e-3
    wave = torch.sin(2 * torch.pi * (2.5 * steps + phase))  # (T, envs)
    knees = [k for k, name in enumerate(model.drive_names) if "lower" in name]
    for n, k in enumerate(knees):
        sign = 1.0 if n in (0, 3) else -1.0
        controls[..., k] -= 0.4 * torch.clamp(sign * wave, min=0.0)
    return controls


def seconds(sim: wa.Simulator, state, repetitions: int, other: wa.Simulator) -> list[dict[str, float]]:
    """Of a rollout and of its backward pass per step and robot, of both simulators, in turn."""
    best = [{"forward": float("inf"), "backward": float("inf")} for _ in MODES]
    for n in range(2 * repetitions + 2):
        k = n % 2
        this = (sim, other)[k]
        q, qd, u = state[0], state[1], state[2].requires_grad_()
        begin = time.perf_counter()
        qs, qds = this.rollout(q, qd, u)
        middle = time.perf_counter()
        torch.autograd.grad(qs[-1].sum() + qds[-1].sum(), u)
        end = time.perf_counter()
        if not bool(torch.isfinite(qs).all()):
            raise SystemExit("A state is not finite, so its time means nothing.")
        count = STEPS * this.num_envs
        if n > 1:  # the first ones compile
            best[k]["forward"] = min(best[k]["forward"], (middle - begin) / count)
            best[k]["backward"] = min(best[k]["backward"], (end - middle) / count)
    return best


def measure(envs: int, repetitions: int) -> list[dict]:
    model, rows = wa.load("laikago_feet"), []
    step, impact = (
        wa.Simulator(model, envs, device="cpu", threads=1, contact_time=mode, validate=False) for mode in MODES
    )
    for situation in NOISE:
        state = start(model, envs, situation)
        found = seconds(step, state, repetitions, impact)
        qs, qds = impact.rollout(*(x.detach() for x in state))
        impacts = impact.diagnose(qs, qds, state[2].detach()).impacts
        rows.append(
            {
                "situation": situation,
                "impacts_per_second": impacts.sum().item() / (envs * STEPS * impact.dt),
                "interrupted": (impacts > 0).float().mean().item(),
                **{f"{mode}_{way}": best[way] for mode, best in zip(MODES, found) for way in best},
            }
        )
    return rows


def report(results: dict) -> dict[str, str]:
    head = ["robots", "impacts per second of one", "interrupted steps", "forward, us per step", '"impact"', "ratio",
            "backward, us per step", '"impact"', "ratio"]  # fmt: skip
    body = []
    for row in results["rows"]:
        times = []
        for way in ("forward", "backward"):
            one, two = row[f"step_{way}"] * 1e6, row[f"impact_{way}"] * 1e6
            times += [f"{one:.2f}", f"{two:.2f}", f"{two / one:.2f}"]
        body.append([row["situation"], f"{row['impacts_per_second']:.1f}", f"{100 * row['interrupted']:.1f} %", *times])
    return {"table": table(head, body)}


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    results = reporting.begin(options)
    with reporting.quiet():
        results["rows"] = measure(*((64, 1) if options.quick else (256, 6)))
    return reporting.finish("impact_cost", options, results, report)


if __name__ == "__main__":
    main()
