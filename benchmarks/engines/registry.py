"""Every engine of the benchmarks: where it runs, and its rows of the standing robot and of the gradient scoreboard.

A new engine is one file in this folder (`Standing`, `Scoreboard` or both; see standing.py and scoreboard.py) and one
entry in ENGINES, with its packages in environments.py if it needs its own environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

GRADIENT_BATCHES = (1, 256)


@dataclass(frozen=True)
class StandingRow:
    """What speed/peers.py measures of an engine in one of its variants."""

    role: ClassVar = "standing"
    variant: str = ""
    throughput: bool = True
    gradient: bool = True
    gradient_batches: tuple[int, ...] = GRADIENT_BATCHES
    label: str = ""  # where it is not the engine's; shown where no run gave a name
    patience: float = 1.0  # times the limit, where compiling takes minutes
    engine: str = ""  # these two are filled in by `_rows`
    environment: str | None = None


@dataclass(frozen=True)
class ScoreboardRow:
    """What gradients/scoreboard.py asks an engine in one of its variants, or why it asks nothing."""

    role: ClassVar = "scoreboard"
    variant: str = ""
    standing: str = ""  # the row of the standing robot that is its case F
    no_standing: str = ""  # why there is no case F
    unsupported: str = ""  # why it is not asked at all
    label: str = ""
    remark: str = ""  # what the figures mean
    engine: str = ""
    environment: str | None = None


@dataclass(frozen=True)
class Engine:
    """Named after its module in this folder. Environment: one of environments.py; None is the Python that runs this."""

    label: str
    environment: str | None = None
    standing: Mapping[str, StandingRow] = field(default_factory=dict)
    scoreboard: Mapping[str, ScoreboardRow] = field(default_factory=dict)


LATE = "In W and D the step of the hit does not move with the start: right about the program, wrong about the motion."
IMPACT = 'contact_time="impact": a step is interrupted at the time of an impact, which moves with the start.'
HOPS = (
    "These are differences of steps, multiplied. Contacts set in softly here; with MuJoCo's default impedance the puck "
    "hops, and such products grow without bound."
)
SLIP = "I1 and I2 start at zero slip: NaN with the elliptic cone, none with the pyramid, next row."
ROUGH = "Its verdicts in S2, I1, I2 and W change with the number of iterations of its solver."
BRANCH = "I1 and I2 start at zero slip, where its friction is switched off: the gradient by v0 is that of this branch."
SHARED = (
    "It keeps one mass matrix for all steps, and the way back reads the last one: wrong where that matrix changes. "
    f"A solver per step, next row, mends it. {BRANCH}"
)
MOVED = (
    "At a bounce its gradient is that of a hit that moves with the start, without gravity: true in W, not in D, and in "
    "neither the derivative of its own steps."
)
HINGES = (
    "It differentiates by the pose of a first link, velocities and forces. Pendulums hang from a fixed link that is "
    "turned in place of their first hinge. I1 starts at zero slip, where its pyramid creeps."
)
NO_BACKWARD = "Its README says that differentiability is not yet available; its kernels have no backward."

ENGINES = {
    "ours": Engine(
        "warp_articulated",
        standing={"ours": StandingRow(), "ours64": StandingRow("float64")},
        scoreboard={
            "ours": ScoreboardRow(standing="ours64", remark=LATE),
            "ours_impact": ScoreboardRow(
                "impact",
                no_standing="Not measured: feet that stand have no impacts.",
                label="warp_articulated, time of impact",
                remark=IMPACT,
            ),
        },
    ),
    "mujoco": Engine(
        "MuJoCo C",
        standing={
            "mujoco": StandingRow("CG", gradient=False, label="MuJoCo C, CG"),
            "mujoco_newton": StandingRow("Newton", gradient_batches=(1,), label="MuJoCo C, Newton"),
        },
        scoreboard={"mujoco": ScoreboardRow(standing="mujoco_newton", remark=HOPS)},
    ),
    "mjx": Engine(
        "MJX",
        "jax",
        standing={
            "mjx": StandingRow(),
            "mjx_forward": StandingRow("forward", throughput=False, label="MJX, forward mode"),
        },
        scoreboard={
            "mjx": ScoreboardRow(standing="mjx_forward", label="MJX, forward mode", remark=SLIP),
            "mjx_pyramid": ScoreboardRow(
                "pyramid", no_standing="Not measured: as MJX, forward mode.", label="MJX, forward mode, pyramid"
            ),
            "mjx_reverse": ScoreboardRow("reverse", "mjx", label="MJX, reverse, 1 iteration"),
        },
    ),
    "brax": Engine(
        "Brax generalized",
        "jax",
        standing={"brax": StandingRow()},
        scoreboard={"brax": ScoreboardRow(standing="brax", remark=ROUGH)},
    ),
    "newton": Engine(
        "Newton featherstone",
        "newton",
        standing={
            "newton": StandingRow("featherstone"),
            "newton_semi": StandingRow("semi-implicit", label="Newton semi-implicit"),
        },
        scoreboard={
            "newton": ScoreboardRow("featherstone", "newton", remark=SHARED),
            "newton_each": ScoreboardRow(
                "each",
                no_standing="Not measured: the robot has one solver here.",
                label="Newton featherstone, a solver per step",
            ),
            "newton_semi": ScoreboardRow("semi-implicit", "newton_semi", label="Newton semi-implicit", remark=BRANCH),
        },
    ),
    "pinocchio": Engine(
        "Pinocchio",
        "pinocchio",
        standing={"pinocchio": StandingRow(gradient_batches=(1,), label="Pinocchio ABA")},
        scoreboard={"pinocchio": ScoreboardRow(no_standing="The engine has no contacts.")},
    ),
    "nimble": Engine(
        "Nimble",
        "nimble",
        standing={"nimble": StandingRow(gradient_batches=(1,))},
        scoreboard={"nimble": ScoreboardRow(standing="nimble", remark=MOVED)},
    ),
    "mujoco_warp": Engine(
        "mujoco_warp",
        "mujoco_warp",
        standing={"mujoco_warp": StandingRow(gradient_batches=(1,))},
        scoreboard={"mujoco_warp": ScoreboardRow(unsupported=NO_BACKWARD)},
    ),
    "pybullet": Engine(
        "PyBullet",
        "pybullet",
        standing={"pybullet": StandingRow(gradient_batches=(1,))},
        scoreboard={"pybullet": ScoreboardRow(unsupported="It has no gradients.")},
    ),
    "genesis": Engine(
        "Genesis",
        "genesis",
        standing={"genesis": StandingRow(gradient_batches=(1,), patience=2.5)},
        scoreboard={"genesis": ScoreboardRow(standing="genesis", remark=HINGES)},
    ),
}


def _rows(table: str) -> dict:
    return {
        name: replace(row, engine=module, environment=engine.environment, label=row.label or engine.label)
        for module, engine in ENGINES.items()
        for name, row in getattr(engine, table).items()
    }


STANDING: dict[str, StandingRow] = _rows("standing")
SCOREBOARD: dict[str, ScoreboardRow] = _rows("scoreboard")
