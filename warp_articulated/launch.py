"""Launching a kernel over all environments: one launch on CUDA, one per core on the CPU.

Environments share nothing, so how they are split between threads cannot change a bit of any result.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import warp as wp

from . import checks


class Launcher:
    """Runs kernels whose arguments are (model, params, first environment, the rest) on one device."""

    def __init__(self, device: wp.Device, num_envs: int, threads: int | None):
        self.device, self.num_envs = device, num_envs
        threads = checks.whole("threads", threads, 1) if threads is not None else _cores()
        self.threads = min(threads, num_envs) if device.is_cpu else 1
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def run(self, kernel: wp.Kernel, before: list, after: list) -> None:
        """Launch over all environments; returns when the CPU has done it, or CUDA has queued it."""
        if self._pool is None:
            if self.device.is_cuda:
                with wp.ScopedStream(wp.stream_from_torch(torch.cuda.current_stream(self.device.ordinal))):
                    wp.launch(kernel, self.num_envs, inputs=[*before, 0, *after], device=self.device, block_dim=64)
            else:
                self._load(kernel)
                wp.launch(kernel, self.num_envs, inputs=[*before, 0, *after], device=self.device)
            return
        self._load(kernel)
        bounds = [self.num_envs * k // self.threads for k in range(self.threads + 1)]
        commands = [
            wp.launch(kernel, end - first, inputs=[*before, first, *after], device=self.device, record_cmd=True)
            for first, end in zip(bounds, bounds[1:], strict=False)
        ]
        jobs = [self._pool.submit(command.launch) for command in commands[1:]]
        commands[0].launch()
        for job in jobs:
            job.result()

    def _load(self, kernel: wp.Kernel) -> None:
        """Compile with tiles off the stack's static memory: Warp's default is one static per module, a race here."""
        tiles = wp.config.enable_tiles_in_stack_memory
        wp.config.enable_tiles_in_stack_memory = False
        try:
            wp.load_module(kernel.module, device=self.device)
        finally:
            wp.config.enable_tiles_in_stack_memory = tiles


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
