"""What learning.py trains: tasks, algorithms, settings and time limits.

SHAC was tuned on seed 0 of the walkers and of the pendulums, enhanced SAC on seed 0 of the pendulums; the other
learners with a replay got its numbers, PPO its own defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GROUPS = ("ant", "laikago", "pendulum", "samples")


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
    Experiment(f"{group} {algorithm}", group, task, algorithm, seconds, options)
    for task, group, seconds, options in (
        ("Ant", "ant", 300.0, {"care": 1.0, "randomise": True}),
        ("LaikagoWalk", "laikago", 420.0, {}),
    )
    for algorithm in ("shac", "ppo")
]

LINKS = range(1, 8)
PENDULUM_SECONDS = {1: 60.0, 2: 60.0, 3: 150.0, 4: 90.0, 5: 90.0, 6: 120.0, 7: 180.0}
REPLAYED: dict[str, Any] = {
    "gamma": 0.97, "num_envs": 64, "updates": 8, "rate": 1e-3, "target_rate": 0.02, "average_rate": 0.05,
    "hidden": (128, 128),
}  # fmt: skip
SOFT: dict[str, Any] = {**REPLAYED, "temperature": 0.003}
METHODS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "shac": ("shac", 1.8, {}),
    "enhanced": ("sac", 12.0, {**SOFT, "enhancement": "exact", "enhanced_batch": 128}),
    "paper form": ("sac", 12.0, {**SOFT, "enhancement": "paper"}),
    "mbpo": ("mbpo", 7.0, {**SOFT, "num_envs": 16}),
    "sac": ("sac", 16.0, SOFT),
    "sql": ("sql", 6.5, {**REPLAYED, "temperature": 0.01}),
    "ppo": ("ppo", 0.0, {}),
}
"""Algorithm, iterations per second by which its learning rate falls (PPO has its own rule), settings."""


def _chain(n: int, method: str) -> Experiment:
    algorithm, pace, settings = METHODS[method]
    seconds = PENDULUM_SECONDS[n]
    scale = {"reward_scale": 10.0 / n**2} if algorithm in ("sac", "sql", "mbpo") else {}  # a return of 5 at most
    fall = {"iterations": int(pace * seconds)} if pace else {}
    options = {"n": n, "torque": "paper"}
    name = f"pendulum {n} {method}"
    return Experiment(name, "pendulum", "PendulumReach", algorithm, seconds, options, {**settings, **scale, **fall})


PENDULUM = [_chain(n, method) for method in METHODS for n in LINKS]

SAMPLES = [
    Experiment(f"samples {algorithm} {samples}", "samples", "Ant", algorithm, 300.0, {}, {"samples": samples})
    for algorithm in ("sac", "mbpo")
    for samples in ("none", "first-order", "one-row", "true")
]

EXPERIMENTS = {e.name: e for e in [*WALKS, *PENDULUM, *SAMPLES]}
