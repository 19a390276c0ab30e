"""Sums and means over all processes of a run. With a single process, these functions do nothing.

`torchrun` starts the processes. Each simulates its share of the environments; they communicate only through these
functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class LostProcess(RuntimeError):
    """Another process of the run has died."""


def begin(device: str | None = None) -> tuple[int, int, str | None]:
    """Join the other processes started by torchrun.

    Returns rank, world size and device; with several processes on a machine with GPUs, each gets one GPU.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1, device
    if device is None and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if device is not None and device.startswith("cuda"):
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device is not None and device.startswith("cuda") else "gloo")
    return dist.get_rank(), dist.get_world_size(), device


def meet() -> None:
    """Wait for all processes."""
    gather(None)


def end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Sum each tensor over all processes, with one message for all tensors."""
    if world_size() == 1:
        return tensors
    flat = torch.cat([x.detach().reshape(-1) for x in tensors])
    with _together():
        dist.all_reduce(flat)
    pieces = flat.split([x.numel() for x in tensors])
    return tuple(piece.view_as(x) for piece, x in zip(pieces, tensors))


def gather(value: Any) -> list[Any]:
    """The values of all processes, by rank."""
    values = [value] * world_size()
    if world_size() > 1:
        with _together():
            dist.all_gather_object(values, value)
    return values


def slowest(seconds: float) -> float:
    """The longest time of any process, so that all have the same clock."""
    return max(gather(seconds))


def any_of(value: bool) -> bool:
    """Whether value is true in any process."""
    return any(gather(value))


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace the gradients by their mean over all processes."""
    if world_size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    for gradient, total in zip(gradients, sum_over_processes(*gradients)):
        gradient.copy_(total / world_size())


@contextmanager
def _together() -> Iterator[None]:
    """Wraps a collective operation: an error in it means that another process has died."""
    try:
        yield
    except RuntimeError as error:  # gloo and nccl have no specific error type
        text = str(error).splitlines()[0]
        raise LostProcess(f"process {rank()} of {world_size()} lost contact with another process ({text})") from error
