"""Registers and stack of the CUDA kernels, read from cubins that are compiled here: needs neither a GPU nor a driver.

    python benchmarks/gpu_resources.py --arch 80 86 90 120 --dtype float32 float64

Warp compiles with the NVRTC it carries; what ptxas decided stands in the `.nv.info` sections of the cubin, an ELF file.
Spills are not listed there: they are part of the stack, beside the kernel's own working memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import warp as wp
from elftools.elf.elffile import ELFFile
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint
from warp_articulated.kernels.types import Sizes

import warp_articulated as wa
from warp_articulated.pairs import SLOTS
from warp_articulated.topology import sizes_of

ARCHS = (80, 86, 90, 120)  # A100, RTX 30, H100, RTX 50
REALS = {"float32": wp.float32, "float64": wp.float64}

# Attributes of .nv.info whose value is (symbol, number); cuobjdump calls them EIATTR_...
FRAME_SIZE, REGCOUNT = 0x11, 0x2F
HAS_VALUE = 0x04  # format of an entry that is followed by as many bytes as its size field says


@dataclass(frozen=True)
class Job:
    """One kernel to compile: a factory such as make_rollout, for one model size, precision and architecture."""

    name: str
    factory: Callable
    sizes: Sizes
    dtype: str = "float32"
    arch: int = 90


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a streaming multiprocessor."""

    name: str
    kernel: str
    dtype: str
    arch: int
    registers: int  # per thread, at most 255
    stack: int  # bytes per thread of local memory: working memory, call frames and spills
    code: int  # bytes of machine code


def laikago_feet() -> Sizes:
    """Capacities of the profiling robot's kernel."""
    return sizes_of(wa.load("laikago_feet"), max_contacts=32)


def all_kinds() -> Sizes:
    """The profiling robot's, with every kind of collision pair compiled in, between links too."""
    kinds = tuple(sorted((int(a), int(b)) for a, b in SLOTS))
    return replace(laikago_feet(), contacts=32, sides=2, kinds=kinds)


def recording(sizes: Sizes, sweeps: int = 50) -> Sizes:
    """The same for kernels of the adjoint, with room for so many sweeps of the solver."""
    return replace(sizes, sweeps=sweeps)


def measure(
    jobs: Sequence[Job], module_dir: str | os.PathLike | None = None, threads: int | None = None
) -> list[Resources]:
    """Compile all jobs, one per core at a time, and read what they need; in the order of the jobs.

    module_dir: where cubins go and are looked for before compiling; by default Warp's kernel cache.
    """
    wp.init()  # before there are threads that would do it twice
    kernels = [job.factory(REALS[job.dtype], job.sizes) for job in jobs]
    # longest first, so that no core is idle while the other compiles the slowest
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].sizes.sweeps, -len(jobs[k].sizes.kinds)))
    found: dict[int, Resources] = {}

    def run(k: int) -> None:
        job = jobs[k]
        paths = wp.compile_aot_module(kernels[k].module, arch=[job.arch], module_dir=module_dir, use_ptx=False)
        (numbers,) = cubin_resources(paths[0]).values()  # module="unique": one kernel per cubin
        found[k] = Resources(job.name, kernels[k].key.split("__")[-1], job.dtype, job.arch, *numbers)

    # Warp tells of its start on stdout
    with contextlib.redirect_stdout(sys.stderr), ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        list(pool.map(run, order))
    return [found[k] for k in range(len(jobs))]


def cubin_resources(path: str | os.PathLike) -> dict[str, tuple[int, int, int]]:
    """Registers, stack bytes and code bytes of every kernel in a cubin, by its symbol."""
    with Path(path).open("rb") as file:
        elf = ELFFile(file)
        symbols = [symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()]
        code = {s.name.removeprefix(".text."): s["sh_size"] for s in elf.iter_sections() if s.name.startswith(".text.")}
        values: dict[int, dict[str, int]] = {REGCOUNT: {}, FRAME_SIZE: {}}
        for section in elf.iter_sections():
            if section.name.startswith(".nv.info"):
                for attribute, symbol, value in _pairs(section.data()):
                    if attribute in values:
                        values[attribute][symbols[symbol]] = value
    return {
        name: (values[REGCOUNT][name], values[FRAME_SIZE].get(name, 0), size)
        for name, size in code.items()
        if name in values[REGCOUNT]
    }


def _pairs(data: bytes) -> Iterable[tuple[int, int, int]]:
    """(attribute, symbol, value) of all entries of a .nv.info section that have this form."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != HAS_VALUE:  # the size field is the value itself
            continue
        if size == 8:
            yield attribute, *struct.unpack_from("<II", data, at)
        at += size


def table(results: Iterable[Resources]) -> str:
    """Markdown."""
    lines = [
        "| kernel | model | precision | arch | registers | stack bytes | code bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        lines.append(f"| {r.kernel} | {r.name} | {r.dtype} | sm_{r.arch} | {r.registers} | {r.stack} | {r.code} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Registers and stack of the CUDA kernels, without a GPU.")
    parser.add_argument("--arch", type=int, nargs="+", default=ARCHS)
    parser.add_argument("--dtype", nargs="+", choices=REALS, default=tuple(REALS))
    options = parser.parse_args()
    models = {"laikago_feet": laikago_feet(), "all kinds of pairs": all_kinds()}
    jobs = [
        Job(name, factory, recording(sizes) if factory is make_rollout_adjoint else sizes, dtype, arch)
        for name, sizes in models.items()
        for factory in (make_rollout, make_rollout_adjoint)
        for dtype in options.dtype
        for arch in options.arch
    ]
    print(table(measure(jobs)))


if __name__ == "__main__":
    main()
