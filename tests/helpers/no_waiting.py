"""Runs on the CPU and refuses what would make CUDA wait for the host, or no CUDA graph could hold."""

from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = ("_local_scalar_dense", "nonzero", "lift_fresh", "equal", "masked_select")
MOVES = ("cpu", "numpy", "tolist")  # which torch does not dispatch on the CPU


class NoWaiting(TorchDispatchMode):
    """Refuses numbers read from tensors, masks as indices, tensors made from Python's numbers, and moves."""

    def __enter__(self):
        self.patches = [patch.object(torch.Tensor, name, _refuse(f"Tensor.{name} waits")) for name in MOVES]
        for each in self.patches:
            each.start()
        return super().__enter__()

    def __exit__(self, *error):
        for each in self.patches:
            each.stop()
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.__name__.split(".")[0]
        if name in WAITING:
            raise AssertionError(f"{name} reads numbers of the device, or copies some to it")
        if name == "_to_copy" and kwargs.get("device") is not None:
            raise AssertionError("_to_copy to a device waits for the copy")
        if name.startswith("index") and any(i.dtype == torch.bool for i in _tensors(args[1])):
            raise AssertionError("a mask as an index is turned into a list of indices, whose length the host must know")
        return function(*args, **kwargs)


def _tensors(indices) -> list[torch.Tensor]:
    return [i for i in indices if isinstance(i, torch.Tensor)] if isinstance(indices, list | tuple) else []


def _refuse(why: str):
    def call(*_, **__):
        raise AssertionError(why)

    return call


def check_it_refuses():
    """Whether the operations have the names that are looked for, in this version of torch."""
    x = torch.ones(3)
    waits = {
        "bool": lambda: bool(x.any()),
        "nonzero": lambda: torch.nonzero(x),
        "new_tensor": lambda: x.new_tensor([1.0]),
        "mask": lambda: x[x > 0],
        "cpu": lambda: x.cpu(),
        "item": lambda: x[0].item(),
    }
    for name, read in waits.items():
        try:
            with NoWaiting():
                read()
        except AssertionError:
            continue
        raise AssertionError(f"{name} waits and was not refused")
