"""`warp-articulated doctor`: versions, devices, kernel cache, and a self-check of physics and gradients."""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from . import gpu_memory
from .console import DEVICE_HELP, FAILED, OK, Console, add_command

if TYPE_CHECKING:
    from ..device.gpus import Gpu

EXAMPLES = """
warp-articulated doctor
warp-articulated doctor --device cuda:0
warp-articulated doctor --gpu H100
"""
NEEDED = ("warp-lang", "torch", "numpy", "scipy", "usd-core", "pillow")
Check = Callable[..., tuple[str, bool | None]]  # of the device; what was found, and whether it is good
OPTIONAL = {
    "mujoco": "reads MJCF files",
    "viser": "shows batches in a browser",
    "gymnasium": "reinforcement learning",
    "rsl-rl-lib": "PPO",
    "matplotlib": "plots of benchmarks",
}
ROBOTS = ("laikago_feet", "laikago")  # contacts at its toes only, and everywhere


def add(commands) -> None:
    does = "check this installation: versions, devices, kernel cache, and a short test of physics and gradients"
    command = add_command(commands, "doctor", does, EXAMPLES, run)
    command.add_argument("--device", help=DEVICE_HELP)
    command.add_argument("--gpu", metavar="NAME", help=gpu_memory.GPU_HELP)


def run(options: argparse.Namespace) -> int:
    from ..device.gpus import named

    wanted = named(options.gpu) if options.gpu is not None else None
    console = Console(options)
    report = _Report()
    print("versions")
    _versions(report)
    print("devices")
    _devices(report)
    _gpu_memory(report, wanted)
    print("kernel cache")
    _cache(report)
    print("self check")
    _self_check(report, options.device, console)
    print("all checks passed" if not report.failed else f"{report.failed} checks failed")
    return FAILED if report.failed else OK


class _Report:
    failed = 0

    def line(self, name: str, text: str, good: bool | None = True) -> None:
        """Print one line of the report; good=None: for information only."""
        mark = {True: "ok", False: "FAIL", None: "-"}[good]
        self.failed += good is False
        print(f"  {mark:>4}  {name:16} {text}", flush=True)


def _versions(report: _Report) -> None:
    from warp_articulated import __version__

    report.line("warp-articulated", __version__)
    report.line("python", platform.python_version())
    for package in NEEDED:
        version = _version(package)
        report.line(package, version or "is not installed", version is not None)
    for package, purpose in OPTIONAL.items():
        version = _version(package)
        report.line(package, version or f"is not installed ({purpose})", True if version else None)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices(report: _Report) -> None:
    import torch
    import warp as wp

    from ..device.launch import cores

    report.line("cpu", f"{cores()} cores available to this process")
    cuda = [device for device in wp.get_devices() if device.is_cuda]
    for device in cuda:
        report.line(device.alias, f"{device.name}, sm_{device.arch}, {device.total_memory / 2**30:.0f} GiB")
    if cuda:
        sees = torch.cuda.is_available()
        report.line("torch", f"sees CUDA, built for {torch.version.cuda}" if sees else "cannot use CUDA", sees)
    if not cuda:
        report.line("cuda", "no GPU with a driver found by Warp; everything runs on the CPU", None)


def _gpu_memory(report: _Report, wanted: Gpu | None) -> None:
    """What robots would reserve of the named GPU, or of those that are here. Too much of it is no fault of theirs."""
    import torch
    import warp as wp

    import warp_articulated as wa

    from ..device.gpus import described

    here = [device for device in wp.get_devices() if device.is_cuda] if torch.cuda.is_available() else []
    for gpu in [wanted] if wanted is not None else map(described, here):
        print(f"GPU memory of {gpu_memory.about(gpu)}")
        for name in ROBOTS:
            for row in gpu_memory.rows_for(wa.load(name), gpu):
                _, kernel, stack, reserved, share, _ = gpu_memory.cells(row)
                text = f"{kernel}: stack {stack} bytes, reserves {reserved} GB, {share}"
                report.line(name, text + ("" if row["fits"] else ": does not fit"), True if row["fits"] else None)


def _cache(report: _Report) -> None:
    import warp as wp

    folder = Path(str(wp.config.kernel_cache_dir))
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.exists() else []
    size = sum(f.stat().st_size for f in files) / 1e6
    report.line("folder", f"{folder} (set by WARP_CACHE_PATH)", os.access(folder, os.W_OK))
    free = shutil.disk_usage(folder).free / 1e9
    report.line("size", f"{size:.0f} MB in {len(files)} files, {free:.1f} GB free", free > 0.5)


def _self_check(report: _Report, device: str | None, console: Console) -> None:
    from ..device import checks

    try:
        found = checks.device(device)
    except ValueError as error:
        report.line("device", str(error), False)
        return
    _run_checks(report, CHECKS, device, console)
    if found.is_cuda and device is not None:  # asked for by name: this compiles for minutes
        from .doctor_gpu import CHECKS as OF_GPU

        print(f"{found.alias} against the CPU, {found.name}, sm_{found.arch}")
        _run_checks(report, OF_GPU, device, console)


def _run_checks(report: _Report, some: Mapping[str, Check], device: str | None, console: Console) -> None:
    for name, check in some.items():
        began = time.perf_counter()
        try:
            with console.busy(f"        {name}"):
                text, good = check(device)
        except Exception as error:
            text, good = f"{type(error).__name__}: {error}", False
        report.line(name, f"{text} ({time.perf_counter() - began:.1f} s)", good)


def _pendulum(device: str | None) -> tuple[str, bool]:
    """Acceleration of a link at 0.7 rad from the horizontal: -m g l cos(q) / (I + m l^2)."""
    import torch

    import warp_articulated as wa

    model = wa.load("pendulum1")
    sim = wa.Simulator(model, dtype="float64", device=device)
    q, qd = sim.initial_state()
    q[:] = 0.7
    found = float(sim.forward_dynamics(q, qd, torch.zeros_like(qd)))
    m, lever = float(model.mass[0]), float(model.com[0, 1])
    meant = -m * 9.81 * lever * math.cos(0.7) / (float(model.inertia[0, 0, 0]) + m * lever**2)
    return f"{found:.6f} rad/s^2, closed form {meant:.6f}", abs(found - meant) < 1e-9 * abs(meant)


def _sliding_block(device: str | None) -> tuple[str, bool]:
    """A block slides for 0.1 s with friction mu: x = v n dt - mu g dt^2 n (n + 1) / 2 after n steps, and dx/dmu."""
    import torch

    import warp_articulated as wa

    sim = wa.Simulator(wa.load("box"), dtype="float64", device=device)
    q, qd = sim.initial_state()
    qd[:, 0] = 1.0
    mu, steps = qd.new_tensor(0.3).requires_grad_(), 100
    qs, _ = sim.rollout(q, qd, qd.new_zeros(steps, 1, 0), params={"friction": mu})
    (mu_bar,) = torch.autograd.grad(qs[-1, 0, 0], mu)
    x, slope = qs[-1, 0, 0].item(), mu_bar.item()
    meant_slope = -9.81 * sim.dt**2 * steps * (steps + 1) / 2
    meant = steps * sim.dt + 0.3 * meant_slope
    good = abs(x - meant) < 1e-5 * meant and abs(slope - meant_slope) < 1e-5 * abs(meant_slope)
    return f"x {x:.6f} m, closed form {meant:.6f}; dx/dmu {slope:.6f}, {meant_slope:.6f}", good


# both compile small kernels, a few seconds with an empty cache
CHECKS: dict[str, Check] = {
    "pendulum": _pendulum,
    "sliding block": _sliding_block,
}
