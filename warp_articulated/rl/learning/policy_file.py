"""Trained policies as files: weights and a description from which the library rebuilds the network; never a program.

A file is what torch.save makes of {"format", "description" (JSON), "weights"}. It may come from a stranger, so it is
read with weights_only, and everything in it is checked before memory is allocated for it.
"""

from __future__ import annotations

import io
import json
import os
import pickletools
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...files import check_output_path, replace_when_done
from ..env import Env
from ..task_files import is_reference
from ..tasks import TASKS, make, task_name
from .policy_network import MOST_WEIGHTS, Architecture, PolicyNetwork, plain

FORMAT = "warp_articulated policy 1"
MOST_BYTES = 8 * MOST_WEIGHTS + (1 << 20)
LARGEST = 1e6  # weight; trained ones are far smaller, and actions of much larger ones overflow
OWN = {"task", "num_envs", "first_env", "seed", "threads", "device"}  # of a program that makes the task, no options
GLOBALS = {f"torch {name}Storage" for name in ("Float", "Double")} | {
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
}
"""What a file may name: torch's own list for weights_only has more, such as bytearrays of any size."""
TORCHSCRIPT = (
    "is a TorchScript program, which is not run, because a program can do anything. If `export` wrote it, use the "
    "policy that it was made from; if an earlier version wrote it, resume its run for a moment (warp-articulated train "
    "... --resume), which writes policy.pt in the present format, or train again"
)


@dataclass(frozen=True)
class PolicyFile:
    """A policy and what it was trained for."""

    policy: PolicyNetwork
    """Maps observations (n, observation_size) to actions (n, action_size) in [-1, 1]."""
    task: str
    """Name in wa.rl.TASKS, or file and class of the author's own task, such as "task.py:MyEnv"."""
    options: dict[str, Any]
    """Options of the task's class, such as n of PendulumReach."""
    info: dict[str, Any]
    """observation_size, action_size, control_dt, and other entries: algorithm, steps, return."""

    def make(self, num_envs: int = 1, *, task: str | type[Env] | None = None, **options) -> Env:
        """Make environments of the policy's task; options override those of the file.

        task: the task as for `rl.make`. Needed if it is not in TASKS: to run a file because the policy names it would
        be to run a stranger's program.
        """
        if task is None and self.task not in TASKS:
            raise ValueError(
                f"the policy was trained for {self.task}, which is not a task of this library; name it: --task "
                f"{_example(self.task)}, in Python make(task=...). Only a file that you name is run."
            )
        return make(self.task if task is None else task, num_envs, **{**self.options, **options})

    def describe(self) -> dict[str, Any]:
        """Task, options, info and architecture as JSON values."""
        architecture = self.policy.architecture.describe()
        return {"task": self.task, "options": self.options, "info": self.info, "architecture": architecture}


def _example(task: str) -> str:
    return task if is_reference(task) else f"FILE.py:{task}"


def save_policy(path: str | os.PathLike, policy: nn.Module, env: Env, options: dict[str, Any] | None = None, **info):
    """Write a policy as a file (.pt) for `load_policy` and `warp-articulated play`.

    policy: the policy of a learner, or a PolicyNetwork.
    options: options of the task with which the environments were made; JSON values.
    info: any other JSON values.
    """
    path = check_output_path(path, (".pt",))
    sizes = {"observation_size": env.observation_size, "action_size": env.action_size}
    network = plain(policy, **sizes)
    info = {**sizes, "control_dt": env.control_dt, **info}
    written = PolicyFile(network, task_name(type(env)), options or {}, info)
    weights = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    content = {"format": FORMAT, "description": json.dumps(written.describe()), "weights": weights}
    with replace_when_done(path) as temporary, open(temporary, "wb") as file:
        torch.save(content, file)  # given a name, torch would store it


def load_policy(path: str | os.PathLike, device: torch.device | str = "cpu") -> PolicyFile:
    """Read a file written by `save_policy`; it may come from a stranger, since nothing in it is run."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no policy {path}.")
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} is too large for a policy: it has more than {MOST_BYTES >> 20} MB.")
    content = path.read_bytes()
    try:
        _check_archive(content)
        found = _read(content)
    except Exception as error:  # zipfile, pickle, torch and json raise many types of errors for damaged files
        if str(error) == TORCHSCRIPT:
            raise ValueError(f"{path} {TORCHSCRIPT}.") from None
        why = str(error) if type(error) is ValueError else type(error).__name__
        raise ValueError(
            f"{path} was not written by save_policy, or is damaged ({why}); it must be a policy such as policy.pt of "
            "a run."
        ) from error
    found.policy.to(device)
    return found


def _check_archive(content: bytes) -> None:
    """Raise an error for anything but a ZIP archive of bounded size whose pickle has plain tensors only."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        names = [entry.filename.partition("/")[2] for entry in entries]
        if "constants.pkl" in names:
            raise ValueError(TORCHSCRIPT)
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")  # it could be far larger unpacked
        if sum(entry.file_size for entry in entries) > MOST_BYTES or len(set(names)) < len(names):
            raise ValueError("its entries are too large, or have the same name")
        if archive.testzip() is not None:
            raise ValueError("a checksum is wrong")
        for operation, named, _ in pickletools.genops(archive.read(entries[names.index("data.pkl")])):
            if "GLOBAL" in operation.name and named not in GLOBALS:
                raise ValueError(f"it names {named!r}, which is no part of a policy")


def _read(content: bytes) -> PolicyFile:
    """The policy of a file's bytes; ValueError says what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about other formats
        saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    task, options, info, architecture = _described(saved.get("description"))
    return PolicyFile(PolicyNetwork(architecture, _weights(saved.get("weights"), architecture)), task, options, info)


def _described(text: Any) -> tuple[str, dict[str, Any], dict[str, Any], Architecture]:
    """Task, options, info and architecture of a description; ValueError says what is wrong with it."""
    described = json.loads(text, parse_constant=_refuse_constant) if isinstance(text, str) else None
    if not isinstance(described, dict):
        raise ValueError("it has no description")
    task, options, info = (described.get(name) for name in ("task", "options", "info"))
    if not (isinstance(task, str) and task.isprintable() and isinstance(options, dict) and isinstance(info, dict)):
        raise ValueError("its description lacks the task, options or info")
    if not options.keys().isdisjoint(OWN):
        raise ValueError(f"{', '.join(options.keys() & OWN)} cannot be an option of its task")
    architecture = Architecture.of(described.get("architecture"))
    if any(info.get(name) != getattr(architecture, name) for name in ("observation_size", "action_size")):
        raise ValueError("its sizes of observations and actions contradict each other")
    return task, options, info, architecture


def _refuse_constant(word: str) -> None:
    raise ValueError(f"its description has the number {word}")


def _weights(given: Any, architecture: Architecture) -> dict[str, torch.Tensor]:
    """The weights, if they are those of the architecture and finite."""
    shapes = PolicyNetwork.shapes(architecture)
    if not isinstance(given, dict) or given.keys() != shapes.keys():
        raise ValueError("its weights are not those of its architecture")
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor) or tensor.shape != shapes[name] or not tensor.is_contiguous():
            raise ValueError(f"{name} must be a tensor of shape {tuple(shapes[name])}")
        if tensor.dtype != given["net.0.weight"].dtype:
            raise ValueError("its weights differ in precision")
        if not bool((tensor.abs() <= LARGEST).all()):
            raise ValueError(f"{name} has numbers that are not finite, or beyond {LARGEST:g}")
    if architecture.normalise and not bool((given["scale"] >= 1.0 / LARGEST).all()):
        raise ValueError(f"scale must be at least {1.0 / LARGEST:g}")
    return given
