"""When the contact solver stops: sweeps, accuracy and gradients with tolerance=0 and with the default.

    python benchmarks/speed/solver_exit.py            512 Laikagos, standing, pushed and thrown; half a minute
    python benchmarks/speed/solver_exit.py --quick    64 of them

A warp of a GPU runs until the slowest of its 32 robots has stopped; its sweeps are counted from the robots', on the
CPU. Errors are differences from float64 with 500 sweeps, relative to the largest value of each robot. No times.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import torch

import warp_articulated as wa
from lib import reporting
from lib.machine import table

WARP = 32
SITUATIONS = {"standing": (0.0, 0.0), "pushed": (0.01, 0.1), "thrown": (0.1, 1.0)}  # noise: joint angles, rates
EXITS = {"tolerance=0": 0.0, "default": None}


def start(sim: wa.Simulator, angles: float, rates: float):
    """Robots on their feet, 20 steps after a disturbance."""
    q, qd = sim.initial_state()
    u = sim.initial_control()
    q, qd = (x[-1] for x in sim.rollout(q, qd, u.expand(1500, -1, -1), checkpoint_every=1500))
    noise = torch.Generator().manual_seed(0)
    q[:, 7:] += angles * torch.randn(q[:, 7:].shape, generator=noise)
    qd += rates * torch.randn(qd.shape, generator=noise)
    q, qd = (x[-1] for x in sim.rollout(q, qd, u.expand(20, -1, -1), checkpoint_every=20))
    return q, qd, u


def gradients(sim: wa.Simulator, state) -> list[torch.Tensor]:
    """Of a weighted sum of the next rates, by q, qd and u."""
    leaves = [x.to(sim.dtype).requires_grad_() for x in state]
    _, rates = sim.step(*leaves)
    return list(torch.autograd.grad((rates * torch.linspace(0.3, 1.0, rates.shape[1])).sum(), leaves))


def errors(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Per robot, relative to its largest value."""
    difference = (found.double() - exact).abs().flatten(1).amax(1)
    return difference / exact.abs().flatten(1).amax(1).clamp_min(1e-12)


def measure(envs: int) -> list[dict]:
    model, rows = wa.load("laikago_feet"), []
    common = {"device": "cpu", "validate": False}
    exact = wa.Simulator(model, envs, dtype="float64", iterations=500, tolerance=0.0, **common)
    for situation, noise in SITUATIONS.items():
        state = start(wa.Simulator(model, envs, **common), *noise)
        wanted = exact.contacts(*(x.double() for x in state)).impulses
        slopes = gradients(exact, [x.double() for x in state])
        for name, tolerance in EXITS.items():
            sim = wa.Simulator(model, envs, tolerance=tolerance, **common)
            found = sim.contacts(*state)
            wrong = torch.stack([errors(a, b) for a, b in zip(gradients(sim, state), slopes)]).amax(0)
            sweeps = found.sweeps.float()
            rows.append(
                {
                    "situation": situation,
                    "exit": name,
                    "sweeps": sweeps.mean().item(),
                    "warp_sweeps": sweeps.reshape(-1, WARP).amax(1).mean().item(),
                    "never": (found.sweeps >= 50).float().mean().item(),
                    "impulse_error": errors(found.impulses, wanted).median().item(),
                    "gradient_error": wrong.median().item(),
                }
            )
    return rows


def report(results: dict) -> dict[str, str]:
    lines = [
        [
            r["situation"], r["exit"], f"{r['sweeps']:.1f}", f"{r['warp_sweeps']:.1f}", f"{100 * r['never']:.1f} %",
            f"{r['impulse_error']:.1e}", f"{r['gradient_error']:.1e}",
        ]
        for r in results["rows"]
    ]  # fmt: skip
    header = ["robots", "exit", "sweeps of a robot", "sweeps of a warp", "robots that make all 50"]
    return {"table": table([*header, "impulse error", "gradient error"], lines)}


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    results = reporting.begin(options)
    with reporting.quiet():
        results["rows"] = measure(64 if options.quick else 512)
    return reporting.finish("solver_exit", options, results, report)


if __name__ == "__main__":
    main()
