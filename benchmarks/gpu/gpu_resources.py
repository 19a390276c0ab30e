"""GPU evidence without a GPU: registers, stack and spills of the CUDA kernels, and what follows from them.

    python benchmarks/gpu/gpu_resources.py            28 kernels; a quarter of an hour on two cores
    python benchmarks/gpu/gpu_resources.py --quick    one kernel
    python benchmarks/gpu/gpu_resources.py --all      72: all precisions and architectures

Warp's NVRTC compiles without a driver; the resources are in the `.nv.info` sections of the cubin, an ELF file.
Spills are not: ptxas reports them (`pip install nvidia-cuda-nvcc`, or CUDA's toolkit). It is used only if it is of
NVRTC's release, and thus the same compiler. Occupancy is computed, not measured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import warp as wp
from elftools.elf.elffile import ELFFile
from warp_articulated.kernels.queries.contacts import make_contacts_adjoint
from warp_articulated.kernels.queries.diagnostics import make_diagnostics
from warp_articulated.kernels.queries.jacobians import make_jacobians
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint
from warp_articulated.kernels.types import Sizes

import warp_articulated as wa
from gpu import occupancy
from lib import machine, reporting
from warp_articulated.device.topology import default_contacts, sizes_of
from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import CONVEX, PLANE, SLOTS

ARCHS = (80, 86, 90, 120)  # A100, RTX 30, H100, RTX 50
REALS = {"float32": wp.float32, "float64": wp.float64}
FEET, LAIKAGO, ALL_KINDS, HULLS = "laikago_feet", "laikago", "all kinds of pairs", "hulls"
FORWARD = (make_rollout, make_diagnostics)  # the others are adjoints, which record the solver's sweeps
KERNELS = {
    FEET: (make_rollout, make_rollout_adjoint, make_jacobians, make_contacts_adjoint, make_diagnostics),
    LAIKAGO: (make_rollout, make_rollout_adjoint),
    ALL_KINDS: (make_rollout, make_rollout_adjoint),
    HULLS: (make_rollout, make_rollout_adjoint),
}

# Attributes of .nv.info whose value is (symbol, number); cuobjdump calls them EIATTR_...
FRAME_SIZE, REGCOUNT = 0x11, 0x2F
HAS_VALUE = 0x04  # format of an entry that is followed by as many bytes as its size field says
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
PTXAS_PACKAGES = ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu13", "nvidia-cuda-nvcc-cu12")


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
    """What one kernel needs of a streaming multiprocessor."""

    name: str  # of the model
    kernel: str
    dtype: str
    arch: int
    registers: int  # per thread, at most 255
    stack: int  # bytes per thread of local memory: working memory, call frames and spills
    code: int  # bytes of machine code
    spill_stores: int | None = None  # bytes per thread; None: there was no ptxas to ask
    spill_loads: int | None = None


@dataclass(frozen=True)
class Ptxas:
    path: str
    version: str  # such as 13.4.92

    def assemble(self, ptx: Path, cubin: Path, arch: int, cap: int | None = None) -> tuple[int, int]:
        """Writes the cubin; returns bytes of spill stores and loads. cap: of the registers."""
        text = ptx.with_suffix(".stripped")
        text.write_bytes(ptx.read_bytes().rstrip(b"\0"))  # Warp writes the end of a C string, which ptxas refuses
        command = [self.path, "-v", f"-arch=sm_{arch}", str(text), "-o", str(cubin)]
        command += [f"-maxrregcount={cap}"] if cap is not None else []
        done = subprocess.run(command, capture_output=True, text=True)
        text.unlink()
        if done.returncode != 0:
            raise RuntimeError(f"ptxas does not take what NVRTC wrote: {done.stderr.strip()}")
        stores, loads = zip(*SPILLS.findall(done.stderr))
        return sum(map(int, stores)), sum(map(int, loads))


def find_ptxas() -> tuple[Ptxas | None, str]:
    """The ptxas of NVRTC's release, from a pip package or the PATH; or None, and the reason."""
    wanted, seen = nvrtc_version(), []
    for path in filter(None, [*_packaged_ptxas(), shutil.which("ptxas")]):
        text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"V(\d+\.\d+\.\d+)", text)
        if version and version[1].startswith(wanted + "."):
            return Ptxas(str(path), version[1]), ""
        seen.append(version[1] if version else "an unknown version")
    found = f"ptxas is {' and '.join(seen)}" if seen else "there is no ptxas"
    return None, f"Spills are not known: {found}, Warp's NVRTC is {wanted}; pip install nvidia-cuda-nvcc=={wanted}.*"


def nvrtc_version() -> str:
    wp.init()
    version = wp.get_cuda_toolkit_version()  # Warp carries NVRTC of the toolkit that it was built with
    return ".".join(map(str, version)) if version else "none"


def _packaged_ptxas() -> Iterable[str]:
    for package in PTXAS_PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(file.locate()) for file in files if file.name == "ptxas")


def laikago_feet() -> Sizes:
    """Capacities of the profiling robot's kernel."""
    return scene_sizes("laikago_feet")


def scene_sizes(name: str) -> Sizes:
    """Capacities of a scene's kernel on CUDA."""
    model = wa.load(name)
    return sizes_of(model, default_contacts(model), exact=True)


def all_kinds() -> Sizes:
    """The profiling robot's, with every closed form of a collision pair compiled in, between links too."""
    kinds = tuple(sorted((int(a), int(b)) for a, b in SLOTS if (a, b) not in CONVEX))
    return replace(laikago_feet(), contacts=default_contacts(wa.load("laikago_feet")), sides=2, kinds=kinds)


def hulls() -> Sizes:
    """The same with hulls that touch each other and the ground: the general pairs, which are one piece of code."""
    return replace(all_kinds(), kinds=((int(ShapeType.MESH), int(ShapeType.MESH)), (int(ShapeType.MESH), int(PLANE))))


def recording(sizes: Sizes, sweeps: int = 50) -> Sizes:
    """The same for kernels of the adjoint, with room for so many sweeps of the solver."""
    return replace(sizes, sweeps=sweeps)


def jobs_for(archs: Sequence[int], dtypes: Sequence[str], kernels: dict[str, tuple] = KERNELS) -> list[Job]:
    sizes = {FEET: laikago_feet(), LAIKAGO: scene_sizes(LAIKAGO), ALL_KINDS: all_kinds(), HULLS: hulls()}
    return [
        Job(name, factory, sizes[name] if factory in FORWARD else recording(sizes[name]), dtype, arch)
        for name, factories in kernels.items()
        for factory in factories
        for dtype in dtypes
        for arch in archs
    ]


def usual_jobs() -> list[Job]:
    """Rollouts, forward and backward, on every architecture; the other kernels on one."""
    rest = tuple(f for f in KERNELS[FEET] if f not in (make_rollout, make_rollout_adjoint))
    return [
        *jobs_for(ARCHS, tuple(REALS), {FEET: (make_rollout, make_rollout_adjoint)}),
        *jobs_for(ARCHS, ["float32"], {ALL_KINDS: (make_rollout,)}),
        *jobs_for([90], ["float32"], {LAIKAGO: KERNELS[LAIKAGO], ALL_KINDS: (make_rollout_adjoint,), FEET: rest}),
        *jobs_for([90], ["float32"], {HULLS: KERNELS[HULLS]}),
    ]


def measure(
    jobs: Sequence[Job],
    module_dir: str | os.PathLike | None = None,
    threads: int | None = None,
    ptxas: Ptxas | None = None,
) -> list[Resources]:
    """Compile all jobs, one per core at a time, and read what they need; in the order of the jobs.

    module_dir: where cubins go and are looked for before compiling; by default Warp's kernel cache.
    ptxas: assembles what NVRTC compiled, and reports the spills; without it NVRTC assembles, too.
    """
    wp.init()  # before there are threads that would do it twice
    kernels = [job.factory(REALS[job.dtype], job.sizes) for job in jobs]
    # longest first, so that no core is idle while the other compiles the slowest
    order = sorted(range(len(jobs)), key=lambda k: (-jobs[k].sizes.sweeps, -len(jobs[k].sizes.kinds)))
    found: dict[int, Resources] = {}

    def run(k: int) -> None:
        job = jobs[k]
        spills: tuple[int | None, int | None] = (None, None)
        use_ptx = ptxas is not None
        (path,) = wp.compile_aot_module(kernels[k].module, arch=[job.arch], module_dir=module_dir, use_ptx=use_ptx)
        if ptxas is not None:
            cubin = path.with_suffix(".ptxas")  # not .cubin: that name is NVRTC's own
            spills = ptxas.assemble(path, cubin, job.arch)
            path = cubin
        (numbers,) = cubin_resources(path).values()  # module="unique": one kernel per cubin
        found[k] = Resources(job.name, kernels[k].key.split("__")[-1], job.dtype, job.arch, *numbers, *spills)
        machine.progress(f"{len(found)} of {len(jobs)}: {found[k]}")

    with reporting.quiet(), ThreadPoolExecutor(threads or machine.cores()) as pool:
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


def table(rows: Iterable[dict]) -> str:
    """Markdown."""
    lines = []
    for r in rows:
        known = r["spill_stores"] is not None
        spills = f"{r['spill_stores']} / {r['spill_loads']}" if known else "not known without ptxas"
        arch = f"sm_{r['arch']}"
        lines.append([r["kernel"], r["name"], r["dtype"], arch, r["registers"], r["stack"], spills, r["code"]])
    header = ["kernel", "model", "precision", "arch", "registers", "stack bytes", "spill bytes stored / loaded"]
    return machine.table([*header, "code bytes"], lines)


def compilers(results: dict) -> str:
    rows = results["rows"]
    nvrtc = f"Warp {results['machine']['warp-lang']}'s NVRTC {results['nvrtc']}"
    if results["ptxas"]:
        text = f"{nvrtc} compiled to PTX, ptxas {results['ptxas']} of the same release to machine code. "
        twin = results["both_ways"]
        same = "the same registers, stack and code size" if twin["same"] else "**other figures**"
        text += f"NVRTC's own cubin of {twin['kernel']} ({twin['dtype']}, sm_{twin['arch']}) has {same}. "
        spilling = [r for r in rows if r["spill_stores"]]
        text += f"{len(rows) - len(spilling)} of {len(rows)} kernels spill no register"
        if spilling:
            worst = max(spilling, key=lambda r: r["spill_stores"])
            text += (
                f"; the most, {worst['spill_stores']} bytes, are spilled by {worst['kernel']} of {worst['name']} in "
                f"{worst['dtype']} on sm_{worst['arch']}, out of a stack of {worst['stack']} bytes"
            )
        text += "."
    else:
        text = f"{nvrtc} compiled to machine code. {results['ptxas_missing']}"
    return text + " The stack is mostly the working memory of one environment, which each thread has to itself."


def report(results: dict) -> dict[str, str]:
    texts = [compilers(results), occupancy.summary(results["rows"])]
    return {
        "resources": table(results["rows"]),
        "occupancy": occupancy.table(results["rows"]),
        "notes": "\n".join(f"- {text}" for text in texts),
    }


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--all", action="store_true", help="every kernel, precision and architecture: an hour and more")
    parser.add_argument("--kernel", help="only this one, such as rollout; others keep their earlier results")
    options = parser.parse_args(arguments)
    results = reporting.begin(options)
    if options.quick:
        jobs = jobs_for([90], ["float32"], {FEET: (make_rollout,)})
    else:
        jobs = jobs_for(ARCHS, tuple(REALS)) if options.all else usual_jobs()
    with reporting.quiet():
        ptxas, missing = find_ptxas()
        results |= {"nvrtc": nvrtc_version(), "ptxas": ptxas.version if ptxas else None, "ptxas_missing": missing}
        kept: list[dict] = []
        if options.kernel:
            jobs = [job for job in jobs if job.factory.__name__ == f"make_{options.kernel}"]
            kept = json.loads((machine.RESULTS / "gpu_resources.json").read_text("utf-8"))["rows"]
        results["rows"] = [asdict(r) for r in measure(jobs, ptxas=ptxas)]
        results["both_ways"] = _both_ways(jobs[0], results["rows"][0]) if ptxas else None
        if kept:
            new = {_key(row): row for row in results["rows"]}
            results["rows"] = [new.get(_key(row), row) for row in kept]
    return reporting.finish("gpu_resources", options, results, report, occupancy.plot)


def _key(row: dict) -> tuple:
    return tuple(row[key] for key in ("kernel", "name", "dtype", "arch"))


def _both_ways(job: Job, row: dict) -> dict:
    """Whether NVRTC alone gives the same figures."""
    (alone,) = measure([job])
    same = all(getattr(alone, key) == row[key] for key in ("registers", "stack", "code"))
    return {key: row[key] for key in ("kernel", "name", "dtype", "arch")} | {"same": same}


if __name__ == "__main__":
    main()
