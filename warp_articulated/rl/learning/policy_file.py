"""Trained policies as files: TorchScript, which only needs torch to run, with an embedded description."""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...files import check_output_path, replace_when_done
from ..env import Env
from ..tasks import make

DESCRIPTION = "policy.json"


@dataclass(frozen=True)
class PolicyFile:
    """A policy and what it was trained for."""

    policy: torch.nn.Module
    """Maps observations (n, observation_size) to actions (n, action_size) in [-1, 1]."""
    task: str
    """Name in wa.rl.TASKS."""
    options: dict[str, Any]
    """Options of the task's class, such as n of PendulumReach."""
    info: dict[str, Any]
    """observation_size, action_size, control_dt, and other entries: algorithm, steps, return."""

    def make(self, num_envs: int = 1, **options) -> Env:
        """Make environments of the policy's task; options override those of the file."""
        return make(self.task, num_envs, **{**self.options, **options})


def save_policy(path: str | os.PathLike, policy: nn.Module, env: Env, options: dict[str, Any] | None = None, **info):
    """Write a policy as a TorchScript file (.pt), which `load_policy`, torch.jit.load and C++ can read.

    options: options of the task with which the environments were made; JSON values.
    info: any other JSON values.
    """
    path = check_output_path(path, (".pt",))
    description = {
        "task": type(env).__name__,
        "options": options or {},
        "info": {
            "observation_size": env.observation_size,
            "action_size": env.action_size,
            "control_dt": env.control_dt,
            **info,
        },
    }
    example = torch.zeros(2, env.observation_size, dtype=env.dtype, device=env.device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.export, its successor, needs Python to run
        traced = torch.jit.trace(policy.eval(), example)
        policy.train()
        whole = io.BytesIO()
        torch.jit.save(traced, whole, _extra_files={DESCRIPTION: json.dumps(description)})
    with replace_when_done(path) as temporary:
        _write_without_paths(whole, temporary)


def _write_without_paths(whole: io.BytesIO, path: Path) -> None:
    """Write the archive without debug records, which contain paths of the machine that traced the policy."""
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry.filename, source.read(entry))


def load_policy(path: str | os.PathLike, device: torch.device | str = "cpu") -> PolicyFile:
    """Read a file written by `save_policy`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no policy {path}.")
    extra = {DESCRIPTION: ""}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            policy = torch.jit.load(str(path), map_location=device, _extra_files=extra)
        description = json.loads(extra[DESCRIPTION])
        found = PolicyFile(policy, *(description[name] for name in ("task", "options", "info")))
        complete = all(isinstance(found.info[name], int) for name in ("observation_size", "action_size"))
    except (RuntimeError, ValueError, KeyError, TypeError):
        complete = False
    if not complete:
        raise ValueError(f"{path} was not written by save_policy; it must be a policy such as policy.pt of a run.")
    return found
