"""Launching a kernel over all environments: one launch on CUDA, one per core on the CPU.

Environments share nothing, so how they are split between threads cannot change a bit of any result.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import warp as wp


class Launcher:
    """Runs kernels whose arguments are (model, params, first environment, the rest) on one device."""

    def __init__(self, device: wp.Device, num_envs: int, threads: int | None):
        self.device = device
        threads = threads or len(os.sched_getaffinity(0))
        self.threads = max(1, min(threads, num_envs)) if device.is_cpu else 1
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def run(self, kernel, num_envs: int, before: list, after: list) -> None:
        if self._pool is None:
            wp.launch(kernel, num_envs, inputs=[*before, 0, *after], device=self.device)
            return
        bounds = [num_envs * k // self.threads for k in range(self.threads + 1)]
        wp.load_module(kernel.module, device=self.device)
        jobs = []
        for first, end in zip(bounds, bounds[1:], strict=False):
            jobs.append(self._pool.submit(wp.launch, kernel, end - first, inputs=[*before, first, *after], device=self.device))
        for job in jobs:
            job.result()
