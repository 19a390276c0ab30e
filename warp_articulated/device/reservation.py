"""Memory that CUDA reserves for the stacks of kernels, and whether a GPU has it.

The working memory of an environment is the stack of its thread. At a kernel's first launch CUDA reserves a stack for
every thread that the GPU could hold at once, however small the batch is: multiprocessors x threads x stack. There is
one reservation per context, which grows to that of the largest kernel.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import warp as wp

from ..kernels.env import make_types
from ..kernels.rollout import make_rollout, make_rollout_adjoint
from ..kernels.types import Sizes
from .cubin import stack_of
from .gpus import GB, Gpu, described, free_memory
from .topology import default_contacts, sizes_of

if TYPE_CHECKING:
    from ..model import Model

MAX_STACK = 512 * 1024  # bytes per thread; CUDA programming guide, local memory per thread
SPILLS = 4096  # bytes, allowed for spilled registers and small local variables; at most 2.9 KB were seen
SHARE = 0.9  # of a GPU's memory may be stacks: CUDA, torch and the batch need some, too

enabled = True
"""False: kernels are launched whatever they reserve, and CUDA decides. The rule was never tried on a real GPU."""


class StackError(MemoryError):
    """A kernel's stack is larger than CUDA allows, or its reservation than the memory that is free."""


def reservation(gpu: Gpu, stack: int) -> int:
    """Bytes of the GPU's memory that a kernel with this stack (bytes per thread) reserves."""
    return gpu.resident * stack


def fits(gpu: Gpu, stack: int) -> bool:
    """Whether we expect that a GPU with nothing else to do can run a kernel with this stack."""
    return stack <= MAX_STACK and reservation(gpu, stack) <= SHARE * gpu.memory


# -- stacks of a model's kernels, with and without compiling


def working_memory(real, sizes: Sizes) -> int:
    """Bytes of the local vector that a kernel works in; sizes of adjoint kernels have sweeps."""
    types = make_types(real, sizes)
    vector = types.MemoryBar if sizes.sweeps and hasattr(types, "MemoryBar") else types.Memory
    return ctypes.sizeof(vector)


def estimated_stack(real, sizes: Sizes) -> int:
    """Bytes of stack per thread, without compiling: not less than the compiler's, and at most 4 KB more."""
    return working_memory(real, sizes) + SPILLS


def compiled_stack(kernel: wp.Kernel, arch: int) -> int:
    """The exact bytes of stack per thread, by compiling for an architecture such as 90; needs no GPU."""
    if arch not in wp.get_cuda_supported_archs():
        raise ValueError(f"Warp's compiler knows no sm_{arch}; it knows {wp.get_cuda_supported_archs()}.")
    (path,) = wp.compile_aot_module(kernel.module, arch=[arch], use_ptx=False)
    return stack_of(path)


@dataclass(frozen=True)
class Stacks:
    """Bytes of stack per thread that steps of a model need, and their gradients."""

    forward: int
    adjoint: int


def stacks_of_model(
    model: Model,
    *,
    max_contacts: int | None = None,
    dtype: str = "float32",
    iterations: int = 50,
    arch: int | None = None,
) -> Stacks:
    """Stacks of the kernels that a Simulator with these options launches on CUDA.

    arch: compile for this architecture, which takes a minute and more; None: estimate.
    """
    real = {"float32": wp.float32, "float64": wp.float64}[dtype]
    # as in simulator.py and engine.py
    sizes = sizes_of(model, default_contacts(model) if max_contacts is None else max_contacts, exact=True)
    recording = replace(sizes, sweeps=max(iterations, 1))
    if arch is None:
        return Stacks(estimated_stack(real, sizes), estimated_stack(real, recording))
    return Stacks(
        compiled_stack(make_rollout(real, sizes), arch), compiled_stack(make_rollout_adjoint(real, recording), arch)
    )


# -- before a launch


class Reservations:
    """What this process has reserved for stacks, by device."""

    def __init__(self) -> None:
        self._stacks: dict[str, int] = {}  # the largest of the kernels that were launched
        self._lock = threading.Lock()

    def admit(self, kernel: str, stack: int, gpu: Gpu, device: str, free: Callable[[], int]) -> None:
        """Note that a kernel is going to be launched; raises StackError if CUDA could not do it.

        free: returns the bytes that are free now; only asked if the reservation grows.
        """
        if stack > MAX_STACK:
            raise StackError(
                f"The kernel {kernel} needs a stack of {stack:,} bytes per thread, but CUDA allows {MAX_STACK:,}. "
                f"{_help(kernel)}"
            )
        with self._lock:
            before = self._stacks.get(device, 0)
            if stack <= before:
                return
            needed, held = reservation(gpu, stack), reservation(gpu, before)
            available = free() + held
            if needed > available:
                already = f", {held / GB:.1f} GB already reserved for stacks included" if held else ""
                raise StackError(
                    f"The kernel {kernel} needs a stack of {stack:,} bytes per thread, for which CUDA reserves "
                    f"{needed / GB:.1f} GB ({gpu.resident:,} threads) of {device}, {gpu.name}; "
                    f"{available / GB:.1f} GB are free{already}. {_help(kernel)}"
                )
            self._stacks[device] = stack


def _help(kernel: str) -> str:
    text = "A smaller max_contacts, dtype='float32' and fewer pairs of shapes that may collide need less"
    if kernel.endswith(("_adjoint", "jacobians")):
        text += ", and so do fewer iterations, which the adjoint records"
    return text + "; see docs/gpu.md."


RESERVATIONS = Reservations()


def check_launch(kernel: wp.Kernel, device: wp.Device, block_dim: int) -> None:
    """Raise StackError before the first launch of a loaded kernel that the GPU has no memory for."""
    if not (enabled and device.is_cuda):
        return
    loaded = kernel.module.load(device, block_dim)  # it is loaded: this only looks it up
    try:
        stack = stack_of(loaded.binary_path or "") if loaded else 0
    except OSError:  # the kernel cache was emptied meanwhile; CUDA has the kernel, and decides
        return
    name = kernel.key.split("__")[-1]
    RESERVATIONS.admit(name, stack, described(device), device.alias, lambda: _free(device))


def _free(device: wp.Device) -> int:
    """After torch has returned what it keeps for tensors to come; a reservation grows a few times in a process."""
    import torch

    torch.cuda.empty_cache()
    return free_memory(device)
