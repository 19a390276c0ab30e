"""What the kernels of a model reserve of a GPU's memory: for `info --gpu` and `doctor --gpu`; no GPU is needed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .console import CONTACTS_HELP, count

if TYPE_CHECKING:
    from ..device.gpus import Gpu
    from ..model import Model

HEADS = ("model", "kernel", "stack, bytes", "reserved, GB", "of memory", "fits")
DEFAULTS = {"max_contacts": None, "dtype": "float32", "iterations": 50}  # as those of wa.Simulator
GPU_HELP = 'what the kernels reserve of a GPU, such as "RTX 4090"; an unknown name lists those that are known'


def add_gpu(command: argparse.ArgumentParser) -> None:
    """Add --gpu and the options that it depends on."""
    add = command.add_argument_group("GPU memory").add_argument
    add("--gpu", metavar="NAME", help=GPU_HELP + "; nothing has to be there")
    add("--max-contacts", type=count, help=CONTACTS_HELP)
    add("--dtype", choices=("float32", "float64"), help="precision (float32)")
    add("--iterations", type=count, help="maximum sweeps of the contact solver, which adjoints record (50)")
    add("--compile", action="store_true", help="the exact stacks, by compiling, which takes minutes; else estimates")


def rows_for(model: Model, gpu: Gpu, *, exact: bool = False, **settings) -> list[dict]:
    """One row for the forward and one for the adjoint kernel; settings: those of DEFAULTS."""
    from ..device.reservation import fits, reservation, stacks_of_model

    stacks = stacks_of_model(model, arch=gpu.arch if exact else None, **settings)
    return [
        {
            "model": model.name,
            "kernel": kernel,
            "stack_bytes": stack,
            "reserved_bytes": reservation(gpu, stack),
            "share": reservation(gpu, stack) / gpu.memory,
            "fits": fits(gpu, stack),
        }
        for kernel, stack in (("forward", stacks.forward), ("adjoint", stacks.adjoint))
    ]


def cells(row: dict) -> list[str]:
    """The row of a table with the heads HEADS."""
    reserved, share = f"{row['reserved_bytes'] / 1e9:.2f}", f"{100 * row['share']:.0f} %"
    return [row["model"], row["kernel"], f"{row['stack_bytes']:,}", reserved, share, "yes" if row["fits"] else "NO"]


def line(texts) -> str:
    """Names to the left, figures to the right."""
    model, kernel, *figures = texts
    return f"{model:16} {kernel:8}" + "".join(f"{text:>15}" for text in figures)


def about(gpu: Gpu) -> str:
    return (
        f"{gpu.name}: {gpu.multiprocessors} multiprocessors x {gpu.threads:,} threads, {gpu.memory / 1e9:.0f} GB, "
        f"sm_{gpu.arch}"
    )
