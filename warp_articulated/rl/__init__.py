"""Reinforcement learning: tasks, and batches of environments as differentiable functions of torch tensors.

`rl.gym` and `rl.rsl` are adapters to Gymnasium and rsl_rl; they need the extra `rl`.
"""

from .cartpole import Cartpole
from .env import Env
from .laikago import LaikagoStand, LaikagoWalk
from .pendulum import PendulumReach
from .random import Random
from .runners import Ant, Hopper
from .state import State, Step
from .tasks import TASKS, make

__all__ = [
    "TASKS",
    "Ant",
    "Cartpole",
    "Env",
    "Hopper",
    "LaikagoStand",
    "LaikagoWalk",
    "PendulumReach",
    "Random",
    "State",
    "Step",
    "make",
]
