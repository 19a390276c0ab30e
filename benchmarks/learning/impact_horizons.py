"""SHAC on the ant with short and long horizons, with steps that impacts interrupt and without.

    python benchmarks/learning/impact_horizons.py          # under an hour; writes results/impact_horizons.json and .png
    python benchmarks/learning/impact_horizons.py --quick  # one seed, ten seconds each

Every run has the same CPU time on one thread, so that other work on the machine does not shorten it. Only the horizon
and contact_time differ from the recipe that ships. A policy is judged by the mean return of 16 episodes without noise,
in the simulation that it learnt in and in the other one.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

from lib import reporting
from lib.machine import progress, table

TASK, MODES = "Ant", {"step": "C1", "impact": "C0"}
HORIZONS, SEEDS, SECONDS = (4, 8, 16), (0, 1), 150.0
EPISODES = 16


def learn(folder: Path, horizon: int, mode: str, seed: int, seconds: float) -> dict:
    """One run: its curve, and what its last policy reaches in both modes."""
    from warp_articulated.rl.learning.evaluation import evaluate
    from warp_articulated.rl.learning.policy_file import load_policy
    from warp_articulated.rl.learning.training import train
    from warp_articulated.rl.tasks import make

    train(
        TASK, "shac", folder, options={"contact_time": mode}, settings={"horizon": horizon}, seed=seed, seconds=seconds,
        cpu_time=True, evaluate_every=seconds / 5, evaluation_episodes=EPISODES, threads=1, device="cpu",
    )  # fmt: skip
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    curve = [
        [float(row["seconds"]), int(row["steps"]), float(row["evaluated return"])]
        for row in rows
        if row.get("evaluated return")
    ]
    policy = load_policy(folder / "policy.pt").policy
    judged = {
        other: float(
            evaluate(make(TASK, EPISODES, contact_time=other, threads=1, device="cpu"), policy, 1).returns.mean()
        )
        for other in MODES
    }
    return {"horizon": horizon, "mode": mode, "seed": seed, "curve": curve, "steps": curve[-1][1], "judged": judged}


def report(results: dict) -> dict[str, str]:
    lines = []
    for horizon in sorted({row["horizon"] for row in results["rows"]}):
        for mode in MODES:
            rows = [row for row in results["rows"] if (row["horizon"], row["mode"]) == (horizon, mode)]
            own, other = (
                ", ".join(f"{row['judged'][m]:.0f}" for row in rows)
                for m in (mode, next(m for m in MODES if m != mode))
            )
            steps = np.mean([row["steps"] for row in rows])
            lines.append([horizon, mode, own, other, f"{steps:,.0f}"])
    header = ["horizon", "contact_time", "return, per seed", "in the other simulation", "control steps"]
    return {"table": table(header, lines)}


def plot(results: dict, figure) -> None:
    horizons = sorted({row["horizon"] for row in results["rows"]})
    for axes, horizon in zip(figure.subplots(1, len(horizons), sharey=True, squeeze=False)[0], horizons):
        for row in results["rows"]:
            if row["horizon"] == horizon:
                seconds, _, returns = zip(*row["curve"])
                label = row["mode"] if row["seed"] == min(r["seed"] for r in results["rows"]) else None
                axes.plot(seconds, returns, color=MODES[row["mode"]], label=label)
        axes.set(title=f"horizon {horizon}", xlabel="CPU seconds")
    figure.axes[0].set_ylabel("return")


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    seeds, seconds = (SEEDS[:1], 10.0) if options.quick else (SEEDS, SECONDS)
    results = reporting.begin(options) | {"seconds": seconds, "rows": []}
    with reporting.quiet(), tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for horizon in HORIZONS:
                for mode in MODES:
                    results["rows"].append(
                        learn(Path(folder, f"{horizon}-{mode}-{seed}"), horizon, mode, seed, seconds)
                    )
                    progress(str(results["rows"][-1]))
    return reporting.finish("impact_horizons", options, results, report, plot)


if __name__ == "__main__":
    main()
