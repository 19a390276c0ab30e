"""Runs CUDA kernels without a GPU: translates their PTX to C and calls it thread by thread.

    program = Program(text_of_the_ptx)
    binary = program.build(folder)                  # gcc; the folder keeps the result
    binary.launch(addresses_of_parameters, ranges=[(begin, end)], threads=37)

Every access to memory is checked: that it is aligned to its size (a vector's to the whole vector, as the hardware
demands), and within the thread's local frame, one of `ranges` (the arrays of the launch) or shared memory.

Not modelled: warps, the contraction of mul and add by ptxas, timing.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ptx_parse import parse
from ptx_translate import translate

RUNTIME = Path(__file__).with_name("ptx_host.c")
# As PTX says, and no more: nothing is contracted, signed numbers wrap, memory has no types.
FLAGS = ["-O0", "-std=gnu11", "-ffp-contract=off", "-mfma", "-fno-strict-aliasing", "-fwrapv", "-shared", "-fPIC", "-w"]
FAULTS = {
    1: "misaligned",
    2: "outside the local frame",
    3: "outside the arrays of the launch",
    4: "outside shared memory",
    5: "a thread does not end",
}
ACCESSES = ("local loads", "local stores", "global loads", "global stores", "shared accesses")
NO_MUTANT = 2**32 - 1


class Fault(RuntimeError):
    """A thread did what a GPU would not allow, or what nobody wants."""


@dataclass(frozen=True)
class Options:
    """Of a launch; results must not depend on any of them, except on the mutant."""

    block: int = 64  # threads
    grid: int | None = None  # blocks; None: as many as there are threads to run. Fewer: each thread takes several
    surplus_blocks: int = 0  # beyond those
    fill: int = 0xFF  # byte that local and shared memory, and registers, hold before a thread starts
    shift: int = 1  # of the local frame, in multiples of its alignment; 0: it is aligned to 16 bytes
    budget: int = 10**9  # basic blocks that a thread may run through
    mutant: int = NO_MUTANT  # statement that is replaced, see Program
    trace: int = 0  # room for so many numbers of basic blocks, in the order in which they were run


class Thread(ctypes.Structure):
    """As struct thread in ptx_host.c."""

    SHORT = [f"{n}_{axis}" for n in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"] + ["undefined", "mutant"]
    LONG = "shared stack top num_frames ranges num_ranges last_range budget shift"
    LONG += " fault fault_statement fault_address fault_size blocks accesses touched trace trace_size trace_used"
    _fields_ = [(n, ctypes.c_uint32) for n in SHORT] + [(n, ctypes.c_uint64) for n in LONG.split()]


class Program:
    """PTX with one kernel, and its translation.

    mutants: statements that replace others, by their number; `Options.mutant` chooses one of them.
    """

    def __init__(self, text: str, mutants: dict[int, str] | None = None):
        self.module = parse(text)
        self.translation = translate(self.module, mutants)

    def build(self, folder: Path, count: bool = False) -> Binary:
        """count: basic blocks and accesses, which takes more time."""
        flags = [*FLAGS, f"-DCOUNT={int(count)}", f"-I{RUNTIME.parent}"]
        text = self.translation.source + RUNTIME.read_text() + " ".join(FLAGS) + str(count)
        library = folder / f"ptx_{hashlib.sha1(text.encode()).hexdigest()[:16]}.so"
        if not library.exists():
            source, part = library.with_suffix(".c"), library.with_suffix(f".{os.getpid()}")
            source.write_text(self.translation.source)
            subprocess.run(["gcc", *flags, str(source), "-o", str(part), "-lm"], check=True)
            part.replace(library)  # another process may be at the same
        return Binary(self, library)


class Binary:
    """A compiled translation and its counters, which launches add to."""

    def __init__(self, program: Program, library: Path):
        self.program = program
        self._launch = ctypes.CDLL(str(library)).launch
        self._launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
        self._launch.restype = None
        self.blocks = np.zeros(len(program.translation.blocks), np.uint64)  # times that each was run
        self.accesses = np.zeros((len(ACCESSES), 2), np.uint64)  # instructions, bytes
        self.touched = np.zeros(program.translation.stack_bytes + 4096, np.uint32)  # times, of every byte of the stack
        self.trace = np.zeros(0, np.uint32)

    def launch(
        self,
        parameters: Sequence[int],
        *,
        threads: int,
        ranges: Sequence[tuple[int, int]] = (),
        options: Options = Options(),  # noqa: B008, it cannot be changed
    ) -> None:
        """Runs all threads of all blocks.

        parameters: address of every parameter. ranges: memory that the launch may use.
        """
        declared = self.program.module.kernel.params
        if len(parameters) != len(declared):
            raise ValueError(f"{len(parameters)} parameters for a kernel that has {len(declared)}")
        limits = np.array(sorted(ranges), np.uint64).reshape(-1, 2)
        self.trace = np.zeros(options.trace, np.uint32)
        blocks = (options.grid or -(-threads // options.block)) + options.surplus_blocks
        thread = Thread(
            ntid_x=options.block, ntid_y=1, ntid_z=1, nctaid_x=blocks, nctaid_y=1, nctaid_z=1,
            undefined=options.fill * 0x01010101, mutant=options.mutant, shift=options.shift, budget=options.budget,
            ranges=limits.ctypes.data, num_ranges=len(limits), blocks=self.blocks.ctypes.data,
            accesses=self.accesses.ctypes.data, touched=self.touched.ctypes.data, trace=self.trace.ctypes.data,
            trace_size=len(self.trace),
        )  # fmt: skip
        addresses = (ctypes.c_uint64 * len(parameters))(*parameters)
        self._launch(ctypes.byref(thread), addresses, options.fill)
        if thread.fault:
            raise Fault(self._describe(thread))
        if thread.trace_used > thread.trace_size:
            raise ValueError(f"the trace needs room for {thread.trace_used} blocks, and has {thread.trace_size}")
        self.trace = self.trace[: thread.trace_used]

    def _describe(self, thread: Thread) -> str:
        text = f"{FAULTS[thread.fault]}: block {thread.ctaid_x}, thread {thread.tid_x}"
        if thread.fault_size:
            statement = self.program.module.statements[thread.fault_statement]
            text += (
                f", {thread.fault_size} bytes at {thread.fault_address:#x} (stack at {thread.stack:#x}): {statement}"
            )
        return text

    def reset(self) -> None:
        """Counters start again."""
        for counter in (self.blocks, self.accesses, self.touched):
            counter[...] = 0

    def instructions(self) -> Counter:
        """Instructions that were run, by category."""
        total: Counter = Counter()
        for times, block in zip(self.blocks.tolist(), self.program.translation.blocks):
            for category, n in block.items():
                total[category] += times * n
        return total
