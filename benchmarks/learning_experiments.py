"""What learning.py trains: tasks, algorithms, settings and time limits. SHAC was tuned on seed 0 of the walkers."""

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
    until: float | None = None
    """Evaluated return at which a run is over."""


WALKS = [
    Experiment(f"{group} {algorithm}", group, task, algorithm, seconds, options)
    for task, group, seconds, options in (("Ant", "ant", 420.0, {"care": 0.5}), ("LaikagoWalk", "laikago", 300.0, {}))
    for algorithm in ("shac", "ppo")
]

LINKS = range(1, 8)
PENDULUM_SECONDS = {1: 60.0, 2: 60.0, 3: 60.0, 4: 120.0, 5: 120.0, 6: 240.0, 7: 240.0}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "enhanced": ("sac", {"enhancement": "exact"}),
    "paper form": ("sac", {"enhancement": "paper"}),
    "mbpo": ("mbpo", {}),
    "sac": ("sac", {}),
    "sql": ("sql", {}),
    "ppo": ("ppo", {}),
}
PENDULUM = [
    Experiment(
        f"pendulum {n} {method}",
        "pendulum",
        "PendulumReach",
        algorithm,
        PENDULUM_SECONDS[n],
        {"n": n},
        settings,
        until=0.99 * n**2 / 2,
    )
    for method, (algorithm, settings) in METHODS.items()
    for n in LINKS
]

SAMPLES = [
    Experiment(f"samples {algorithm} {samples}", "samples", "Ant", algorithm, 300.0, {}, {"samples": samples})
    for algorithm in ("sac", "mbpo")
    for samples in ("none", "first-order", "one-row", "true")
]

EXPERIMENTS = {e.name: e for e in [*WALKS, *PENDULUM, *SAMPLES]}
