"""Policies for other programs: TorchScript for torch in Python and C++, ONNX for any runtime.

Such a file is a program. This library writes them when asked to, and never reads them.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ...files import check_output_path, replace_when_done
from .policy_file import PolicyFile

DESCRIPTION = "policy.json"


def export_torchscript(path: str | os.PathLike, found: PolicyFile) -> None:
    """Write the policy as TorchScript (.pt), for torch.jit.load and C++; its extra file policy.json describes it."""
    path = check_output_path(path, (".pt",))
    whole = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.export, its successor, needs Python to run
        traced = torch.jit.trace(found.policy, _example(found))
        torch.jit.save(traced, whole, _extra_files={DESCRIPTION: json.dumps(found.describe())})
    with replace_when_done(path) as temporary:
        _write_without_paths(whole, temporary)


def export_onnx(path: str | os.PathLike, found: PolicyFile) -> None:
    """Write the policy as ONNX (.onnx): "observation" (n, observation_size) to "action" (n, action_size)."""
    path = check_output_path(path, (".onnx",))
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ModuleNotFoundError:
        raise ModuleNotFoundError("ONNX needs onnx and onnxscript: pip install 'warp-articulated[rl]'.") from None
    with torch.no_grad(), _silence():
        program = torch.onnx.export(
            found.policy, (_example(found),), input_names=["observation"], output_names=["action"],
            dynamic_shapes=({0: torch.export.Dim("n")},), dynamo=True, verbose=False,
        )  # fmt: skip
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:  # torch notes which line of which file made a node
        del node.metadata_props[:]
        node.doc_string = ""
    entry = model.metadata_props.add()
    entry.key, entry.value = DESCRIPTION, json.dumps(found.describe())
    with replace_when_done(path) as temporary:
        onnx.save(model, str(temporary))


@contextmanager
def _silence() -> Iterator[None]:
    """torch's exporter warns about packages that a policy does not need, and about functions that it uses itself."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _example(found: PolicyFile) -> torch.Tensor:
    like = next(found.policy.parameters())
    return torch.zeros(2, found.info["observation_size"], dtype=like.dtype, device=like.device)


def _write_without_paths(whole: io.BytesIO, path: Path) -> None:
    """Write the archive without debug records, which contain paths of the machine that traced the policy."""
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            if not entry.filename.endswith(".debug_pkl"):
                target.writestr(entry.filename, source.read(entry))
