"""Launching a kernel over all environments: one launch on CUDA, one per core on the CPU.

Environments share nothing, so splitting them between threads does not change a bit of any result. Launches are recorded
once per kernel; later calls only replace the arguments that changed.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import warp as wp

from . import checks, cuda, reservation
from .messages import compiling

SUBNORMAL, ONE = np.float32(1e-39), np.float32(1.0)
BLOCK_DIM = 64  # threads of a CUDA block: no other size holds more environments at once (benchmarks/gpu)


@dataclass
class Loading:
    """Seconds that this process has spent on compiling and loading kernels: wall time and CPU time."""

    wall: float = 0.0
    cpu: float = 0.0


LOADING = Loading()
_LOADING_LOCK = threading.Lock()  # loading changes settings of Warp, which are global


class Launcher:
    """Runs kernels whose arguments are (model, params, first environment, the rest) on one device."""

    def __init__(self, device: wp.Device, num_envs: int, threads: int | None):
        self.device = device
        threads = checks.whole("threads", threads, 1) if threads is not None else cores()
        self.threads = min(threads, num_envs) if device.is_cpu else 1
        bounds = [num_envs * k // self.threads for k in range(self.threads + 1)]
        self._shares = list(pairwise(bounds))
        self._recorded: dict[wp.Kernel, tuple[list[wp.Launch], list[weakref.ref]]] = {}
        self._start_pool()

    def _start_pool(self) -> None:
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None
        self._lock = threading.Lock()  # recorded launches hold the arguments of one call at a time

    def run(self, kernel: wp.Kernel, model, params, arguments: list) -> None:
        """Launch over all environments; returns when the CPU has done it, or CUDA has queued it.

        arguments: torch tensors, Warp arrays or numbers.
        """
        if self._process != os.getpid():  # a forked process has no threads, and its copy of the lock may be held
            self._start_pool()
        with self._lock, cuda.current(self.device):
            commands = self._commands(kernel, [model, params], arguments)
            if self.device.is_cuda:
                cuda.launch(commands[0], self.device)
                return
            jobs = [self._pool.submit(_launch_on_cpu, command) for command in commands[1:]] if self._pool else []
            try:
                _launch_on_cpu(commands[0])
            finally:
                wait_for(jobs)

    def _commands(self, kernel: wp.Kernel, structs: list, arguments: list) -> list[wp.Launch]:
        if kernel not in self._recorded:
            _load(kernel, self.device)
            reservation.check_launch(kernel, self.device, BLOCK_DIM)
            values = [wp.from_torch(a, requires_grad=False) if isinstance(a, torch.Tensor) else a for a in arguments]
            commands = [
                wp.launch(
                    kernel, end - first, inputs=[*structs, first, *values], device=self.device, record_cmd=True,
                    block_dim=BLOCK_DIM,
                )
                for first, end in self._shares
            ]  # fmt: skip
            for command in commands:
                command.fwd_args = None  # or the first call's tensors would live as long as the simulator
            self._recorded[kernel] = (commands, [weakref.ref(s) for s in structs])
            return commands
        commands, last = self._recorded[kernel]
        for place, (new, old) in enumerate(zip(structs, last, strict=True)):
            if new is not old():
                for command in commands:
                    command.set_param_at_index(place, new)
        last[:] = [weakref.ref(s) for s in structs]  # or their tensors would live until the kernel's next call
        for place, value in enumerate(arguments, start=3):
            if isinstance(value, torch.Tensor):
                value = wp.from_torch(value, requires_grad=False, return_ctype=True)
                value._ref = None  # or the last call's tensors would live until the next one; the caller holds them
            for command in commands:
                if isinstance(value, ctypes.Structure | int | float):
                    command.set_param_at_index_from_ctype(place, value)
                else:
                    command.set_param_at_index(place, value)
        return commands


def wait_for(jobs: list[Future]) -> None:
    """Returns when all have ended, also after Ctrl-C: a running kernel writes to memory that would be freed."""
    interrupted: BaseException | None = None
    while any(not job.done() for job in jobs):
        try:
            wait(jobs)
        except BaseException as error:
            interrupted = error
            for job in jobs:
                job.cancel()  # those that have not started
    if interrupted is not None:
        raise interrupted
    for job in jobs:
        job.result()


def _launch_on_cpu(command: wp.Launch) -> None:
    """Launch in this thread with subnormal numbers flushed to zero: CPUs are ten times slower with them.

    Impulses of a solver at rest, and adjoints, decay to such numbers.
    """
    if SUBNORMAL * ONE == 0.0:  # the caller has already set it
        command.launch()
        return
    torch.set_flush_denormal(True)
    try:
        command.launch()
    finally:
        torch.set_flush_denormal(False)


def _load(kernel: wp.Kernel, device: wp.Device) -> None:
    """Compile without tiles in static memory: Warp allocates one buffer per module, which threads would share."""
    with _LOADING_LOCK:
        tiles = wp.config.enable_tiles_in_stack_memory
        wp.config.enable_tiles_in_stack_memory = False
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            # with the block that it is launched with, or Warp would compile it a second time; the CPU's is always 1
            with compiling(*_in_words(kernel, device)):
                wp.load_module(kernel.module, device=device, block_dim=1 if device.is_cpu else BLOCK_DIM)
        finally:
            wp.config.enable_tiles_in_stack_memory = tiles
            LOADING.wall += time.perf_counter() - wall
            LOADING.cpu += time.process_time() - cpu


def _in_words(kernel: wp.Kernel, device: wp.Device) -> tuple[str, str]:
    """What a kernel is to users, and a note on how long it takes to compile on two slow cores."""
    name = kernel.key.split("__")[-1]
    words = {"rollout": ("the step", 15), "rollout_adjoint": ("the gradient of the step", 30)}
    what, seconds = words.get(name, (name.replace("_", " "), None))
    return f"{what} for this robot", f"; about {seconds} s" if seconds and device.is_cpu else ""


def cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
