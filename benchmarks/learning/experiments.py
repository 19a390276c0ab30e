"""What learning.py trains: tasks, algorithms, settings and time limits.

SHAC was tuned on seeds 0 to 2 of the ant and on seed 0 of the rest, enhanced SAC on seeds 0 and 1 and MBPO on seed 0 of
some pendulums. With reviews, SAC and MBPO have the settings of enhanced SAC; the other learners with a replay have what
it had at first, PPO its own defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GROUPS = ("ant", "laikago", "horizon", "pendulum", "samples")


@dataclass(frozen=True)
class Experiment:
    """Some runs that differ in their seeds only."""

    name: str
    group: str
    task: str
    algorithm: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


WALKS = [
    Experiment(f"{name} {algorithm}", group, task, algorithm, seconds, options)
    for name, group, task, seconds, options in (
        ("ant", "ant", "Ant", 300.0, {"randomise": True}),
        ("careful ant", "ant", "Ant", 300.0, {"care": 1.0, "randomise": True}),
        ("laikago", "laikago", "LaikagoWalk", 420.0, {}),
    )
    for algorithm in ("shac", "ppo")
]

STEPS = 256  # of all environments in an iteration, whatever the horizon
HORIZONS = [
    Experiment(
        f"horizon {horizon}", "horizon", "Ant", "shac", 150.0, {"randomise": True},
        {"horizon": horizon, "num_envs": STEPS // horizon, "iterations": 1600},
    )
    for horizon in (1, 2, 4, 8, 16)
]  # fmt: skip

LINKS = range(1, 8)
PENDULUM_SECONDS = {1: 60.0, 2: 60.0, 3: 150.0, 4: 90.0, 5: 90.0, 6: 120.0, 7: 180.0}
STEADY_SECONDS = {1: 60.0, 2: 150.0, 3: 180.0, 4: 480.0, 5: 480.0, 6: 300.0, 7: 180.0}
SECONDS = dict.fromkeys(("enhanced", "mbpo reviewed", "sac reviewed"), STEADY_SECONDS)
"""By method, of those that have more time."""
REPLAYED: dict[str, Any] = {
    "gamma": 0.97, "num_envs": 64, "updates": 8, "rate": 1e-3, "target_rate": 0.02, "average_rate": 0.05,
    "hidden": (128, 128),
}  # fmt: skip
SOFT: dict[str, Any] = {**REPLAYED, "temperature": 0.003}
# what keeps more of the swings that are found, in trials with two to six links
STEADY: dict[str, Any] = {
    **SOFT, "gamma": 1.0, "norm": True, "actor_betas": (0.7, 0.95), "actor_every": 2, "last_rate": 0.3,
    "average_rate": 0.02, "review_every": 10, "review_episodes": 1,  # which are all the same
}  # fmt: skip
IMAGINED: dict[str, Any] = {
    "num_envs": 16, "updates": 16, "retrain_every": 1000, "branches": 10_000, "imagined": 20_000,
}  # fmt: skip
METHODS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "shac": ("shac", 1.8, {}),
    "enhanced": ("sac", 10.5, {**STEADY, "enhancement": "exact", "enhanced_batch": 128}),
    "paper form": ("sac", 12.0, {**SOFT, "enhancement": "paper"}),
    "mbpo": ("mbpo", 9.0, {**SOFT, **IMAGINED}),
    "mbpo reviewed": ("mbpo", 7.0, {**STEADY, **IMAGINED, "gamma": 0.97}),
    "sac": ("sac", 16.0, SOFT),
    "sac reviewed": ("sac", 12.0, STEADY),
    "sql": ("sql", 6.5, {**REPLAYED, "temperature": 0.01}),
    "ppo": ("ppo", 0.0, {}),
}
"""Algorithm, iterations per second by which its learning rate falls (PPO has its own rule), settings."""


def _chain(n: int, method: str) -> Experiment:
    algorithm, pace, settings = METHODS[method]
    seconds = SECONDS.get(method, PENDULUM_SECONDS)[n]
    scale = {"reward_scale": 10.0 / n**2} if algorithm in ("sac", "sql", "mbpo") else {}  # a return of 5 at most
    fall = {"iterations": int(pace * seconds)} if pace else {}
    options = {"n": n, "torque": "paper"}
    name = f"pendulum {n} {method}"
    return Experiment(name, "pendulum", "PendulumReach", algorithm, seconds, options, {**settings, **scale, **fall})


PENDULUM = [_chain(n, method) for method in METHODS for n in LINKS]

HALF_AN_UPDATE_PER_STEP: dict[str, Any] = {
    "num_envs": 16, "updates": 8, "rate": 1e-3, "hidden": (128, 128), "warm_up": 2000, "temperature": 0.01,
    "target_rate": 0.01,
}  # fmt: skip
SAMPLES = [
    Experiment(
        f"samples {algorithm} {samples}", "samples", "Ant", algorithm, 240.0, {},
        {**HALF_AN_UPDATE_PER_STEP, **more, "samples": samples},
    )
    for algorithm, more in (("sac", {}), ("mbpo", {"retrain_every": 1000, "branches": 10_000, "imagined": 40_000}))
    for samples in ("none", "first-order", "one-row", "true")
]  # fmt: skip

EXPERIMENTS = {e.name: e for e in [*WALKS, *HORIZONS, *PENDULUM, *SAMPLES]}
