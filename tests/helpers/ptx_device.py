"""Lets a Simulator on the CPU run the PTX of its CUDA kernels instead of its CPU kernels; see ptx_host.py.

    with emulated(Device()) as device:
        sim.rollout(q, qd, u)

The launcher prepares launches as always; only what runs them is replaced. Argument lists are the launcher's.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from unittest.mock import patch

import warp as wp
from ptx_host import Binary, Fault, Options, Program
from warp._src.codegen import Struct
from warp._src.types import is_array, type_size_in_bytes

from warp_articulated.device import launch


class Device:
    """What runs launches, with kernels that it has compiled.

    count: basic blocks and accesses. make_program: from the text of the PTX, to change it. options: of every launch.
    """

    def __init__(self, *, arch: int = 80, count: bool = False, make_program=Program, **options):
        self.arch, self.count, self.make_program = arch, count, make_program
        self.options = Options(**{"block": launch.BLOCK_DIM} | options)
        self.binaries: dict[str, Binary] = {}  # by the kernel's name, such as rollout_adjoint
        self._made: dict[wp.Kernel, Binary] = {}

    def binary(self, kernel: wp.Kernel) -> Binary:
        if kernel not in self._made:
            path = ptx_of(kernel, self.arch)
            program = self.make_program(path.read_bytes().rstrip(b"\0").decode())  # Warp writes the end of a C string
            self._made[kernel] = program.build(path.parent, self.count)
        return self._made[kernel]

    def run(self, command: wp.Launch) -> None:
        """As launch._launch_on_cpu."""
        kernel = command.kernel
        if command.params[0].size != command.bounds.size or len(command.params) != len(kernel.adj.args) + 1:
            raise ValueError(f"{kernel.key}: Warp records launches in another way than this expects")
        binary = self.binaries[kernel.key.split("__")[-1]] = self.binary(kernel)
        packed = command.params
        for value, declared in zip(packed, binary.program.module.kernel.params, strict=True):
            if ctypes.sizeof(value) != declared.size:
                raise Fault(f"{kernel.key}: {declared.name} has {declared.size} bytes, not {ctypes.sizeof(value)}")
        ranges = [r for value, arg in zip(packed[1:], kernel.adj.args) for r in ranges_of(value, arg.type)]
        addresses = [ctypes.addressof(value) for value in packed]
        binary.launch(addresses, threads=command.bounds.size, ranges=ranges, options=self.options)


@contextlib.contextmanager
def emulated(device: Device):
    """Simulators launch on this device; they must have threads=1, since it runs one launch at a time."""
    with patch.object(launch, "_launch_on_cpu", device.run):
        yield device


def ptx_of(kernel: wp.Kernel, arch: int) -> Path:
    """Compiled as launch._load does for CUDA; Warp's cache keeps it."""
    module = kernel.module
    before = module.options["block_dim"], wp.config.enable_tiles_in_stack_memory
    module.options["block_dim"], wp.config.enable_tiles_in_stack_memory = launch.BLOCK_DIM, False
    try:
        (path,) = wp.compile_aot_module(module, arch=[arch], use_ptx=True)
    finally:
        module.options["block_dim"], wp.config.enable_tiles_in_stack_memory = before
    return path


def ranges_of(value, kind) -> list[tuple[int, int]]:
    """Memory that an argument gives access to: of arrays, also in structs."""
    if is_array(kind):
        shape, strides = value.shape[: kind.ndim], value.strides[: kind.ndim]
        if not value.data or 0 in shape:
            return []
        size = sum((n - 1) * s for n, s in zip(shape, strides)) + type_size_in_bytes(kind.dtype)
        return [(value.data, value.data + size)]
    if isinstance(kind, Struct):
        return [r for name, var in kind.vars.items() for r in ranges_of(getattr(value, name), var.type)]
    return []
