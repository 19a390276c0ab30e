"""Initial states and controls: the options --perturb, --seed and --control."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from ..model import Model
    from ..simulator import Simulator

HOLD = 0.1  # s between new random targets
REACH = 0.5  # rad or m, range of random targets around the default pose

Control = Callable[[int, int], "torch.Tensor"]
"""control(first, count) -> (count, num_envs, nu); called for consecutive ranges of steps."""


def joint_offsets(model: Model, num_envs: int, size: float, seed: int) -> np.ndarray:
    """Random offsets (num_envs, nq) of joints with one degree of freedom; q0 plus offset stays within the limits."""
    from ..model import JointType

    links = np.flatnonzero(np.isin(model.joint_type, (JointType.REVOLUTE, JointType.PRISMATIC)))
    at, dof = model.q_start[links], model.v_start[links]
    start = model.q0[at]
    wished = start + np.random.default_rng(seed).uniform(-size, size, (num_envs, len(links)))
    # a default position outside its limits is not moved
    lower, upper = np.minimum(model.lower[dof], start), np.maximum(model.upper[dof], start)
    offsets = np.zeros((num_envs, model.nq))
    offsets[:, at] = np.clip(wished, lower, upper) - start
    return offsets


def initial_state(sim: Simulator, options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    q, qd = sim.initial_state()
    return q + torch.as_tensor(joint_offsets(sim.model, sim.num_envs, options.perturb, options.seed)).to(q), qd


def make_control(sim: Simulator, options: argparse.Namespace, steps: int | None) -> tuple[Control, int | None]:
    """The control selected by --control, and the number of steps; if steps is None, the file's number of rows."""
    if options.control == "hold":
        return _constant(sim, sim.model.u0), steps
    if options.control == "zero":
        return _constant(sim, np.zeros(sim.model.nu)), steps
    if options.control == "random":
        return _random(sim, options.seed), steps
    rows = read_controls(options.control, sim.model, sim.num_envs)
    if steps is not None and steps > len(rows):
        raise ValueError(f"{options.control} has controls for {len(rows)} steps, but --steps asks for {steps}.")
    return _recorded(sim, rows), steps or len(rows)


def _constant(sim: Simulator, u: np.ndarray) -> Control:
    row = sim.initial_state()[0].new_tensor(np.array(u)).expand(sim.num_envs, sim.model.nu)
    return lambda first, count: row.expand(count, *row.shape).contiguous()


def random_range(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bound (nu,) of random controls.

    Position drives: around the default pose. Torque drives: the effort limits. Otherwise +-1.
    """
    from ..model import DriveType

    low, high = -np.ones(model.nu), np.ones(model.nu)
    for k, kind in enumerate(model.drive_type):
        dof, gear = model.drive_dof[k], model.gear[k]
        if kind == DriveType.POSITION:
            target = gear * model.u0[k]
            ends = np.clip([target - REACH, target + REACH], model.lower[dof], model.upper[dof]) / gear
            low[k], high[k] = sorted(ends)
        elif kind == DriveType.TORQUE and np.isfinite(model.effort[k]):
            ends = (model.effort_center[k] + np.array([-1.0, 1.0]) * model.effort[k]) / gear
            low[k], high[k] = sorted(ends)
    return low, high


def _random(sim: Simulator, seed: int) -> Control:
    import torch

    low, high = random_range(sim.model)
    generator = np.random.default_rng([seed, 1])  # independent of the initial offsets
    like = sim.initial_state()[0]
    hold = max(1, round(HOLD / (sim.dt * sim.substeps)))
    now, stretch = like, -1

    def control(first: int, count: int) -> torch.Tensor:
        nonlocal now, stretch
        rows = []
        for step in range(first, first + count):
            if step // hold != stretch:
                stretch = step // hold
                now = torch.as_tensor(generator.uniform(low, high, (sim.num_envs, sim.model.nu))).to(like)
            rows.append(now)
        return torch.stack(rows)

    return control


def _recorded(sim: Simulator, rows: np.ndarray) -> Control:
    import torch

    like = sim.initial_state()[0]

    def control(first: int, count: int) -> torch.Tensor:
        part = torch.as_tensor(np.array(rows[first : first + count])).to(like)
        return part.expand(-1, sim.num_envs, -1).contiguous()

    return control


def read_controls(path: str, model: Model, num_envs: int) -> np.ndarray:
    """Read the array u of an .npz file, (steps, num_envs or 1, nu)."""
    from ..model.file import read_arrays

    if Path(path).suffix.lower() != ".npz":
        raise ValueError(f"--control is {path!r}; it must be hold, zero, random or an .npz file.")
    arrays = read_arrays(Path(path), "u")
    if "u" not in arrays:
        raise ValueError(f"{path}: array u is missing; it must be (steps, nu) or (steps, envs, nu).")
    u = arrays["u"]
    u = u[:, None] if u.ndim == 2 else u
    if u.ndim != 3 or u.shape[0] == 0 or u.shape[1] not in (1, num_envs) or u.shape[2] != model.nu:
        raise ValueError(
            f"{path}: u has shape {arrays['u'].shape}; for {num_envs} environments of {model.name!r} it must be "
            f"(steps, {model.nu}) or (steps, {num_envs}, {model.nu})."
        )
    if u.dtype.kind not in "fiu":
        raise ValueError(f"{path}: u has dtype {u.dtype}; it must hold real numbers.")
    if not np.isfinite(u).all():
        raise ValueError(f"{path}: u has non-finite entries.")
    return u
