"""What equality rows cost: standing Laikagos with some of their joints coupled, in us of CPU time per step, float32.

    python benchmarks/speed/tie_cost.py          writes benchmarks/results/tie_cost.json

Couplings tie joints of one leg to those of another, so every row acts on two paths. All variants run in turns in one
process; the minimum counts. "rows" is what one more row costs: finding it, its entries of A, and its elimination.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import torch

import warp_articulated as wa
from lib import machine
from warp_articulated.importers.combine import disassemble
from warp_articulated.model import Coupling, Model, Term, assemble

RESULT = Path(__file__).resolve().parents[1] / "results" / "tie_cost.json"
COUNTS, ENVS, STEPS, RUNS = (0, 1, 2, 4), 256, 50, 15


def coupled(count: int) -> Model:
    """laikago_feet with `count` joints of the right legs that follow those of the left ones."""
    parts = disassemble(wa.load("laikago_feet"))
    pairs = [(f"{a}_{joint}", f"{b}_{joint}") for joint in ("upper", "lower") for a, b in (("FR", "FL"), ("RR", "RL"))]
    couplings = [Coupling(a, (Term(a, (0.0, 1.0)), Term(b, (0.0, -1.0))), held=True) for a, b in pairs[:count]]
    return assemble(
        "coupled", parts.bodies, parts.shapes, parts.drives, pairs=parts.pairs, frames=parts.frames, couplings=couplings
    )


def main() -> None:
    sims = {n: wa.Simulator(coupled(n), ENVS, device="cpu", threads=1) for n in COUNTS}
    times: dict[int, dict[str, list[float]]] = {n: {"forward": [], "backward": []} for n in COUNTS}
    for run in range(RUNS + 1):
        for n, sim in sims.items():
            q, qd = (x.requires_grad_() for x in sim.initial_state())
            u = sim.initial_control().repeat(STEPS, 1, 1)
            start = time.perf_counter()
            qs, qds = sim.rollout(q, qd, u)
            middle = time.perf_counter()
            (qs[-1].sum() + qds[-1].sum()).backward()
            end = time.perf_counter()
            assert torch.isfinite(qs).all() and not len(sim.diverged)
            if run:  # the first one compiles
                times[n]["forward"].append(middle - start)
                times[n]["backward"].append(end - middle)
    unit = 1e6 / (ENVS * STEPS)
    rows = [{"rows": n, **{key: round(min(x) * unit, 3) for key, x in times[n].items()}} for n in COUNTS]
    last = COUNTS[-1]
    per_row = {key: round((rows[-1][key] - rows[1][key]) / (last - 1), 3) for key in ("forward", "backward")}
    RESULT.write_text(
        json.dumps({"machine": machine.describe(), "us_per_step": rows, "per_row": per_row}, indent=1) + "\n"
    )
    print(json.dumps(rows, indent=1), per_row)


if __name__ == "__main__":
    main()
