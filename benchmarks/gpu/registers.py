"""What a cap of registers costs and gives: spills, stack and environments at once, computed without a GPU.

    python benchmarks/gpu/registers.py            rollout and its adjoint, two architectures; some minutes
    python benchmarks/gpu/registers.py --quick    the rollout on one

Needs ptxas of NVRTC's release, see gpu_resources.py. `gpu.py --registers N` measures with a cap where there is a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import warp as wp
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint

from gpu import gpu_resources, occupancy
from gpu.gpu import registers_of
from gpu.gpu_resources import FEET, REALS, Job, Ptxas
from lib import machine, reporting

ARCHS = (80, 90)
CAPS = (None, 168, 128, 96, 64)  # the largest with which 12, 16, 20 and 32 warps are resident
CHECKED = 128  # this cap is also given to NVRTC, as gpu.py does


def rows_of(job: Job, ptxas: Ptxas) -> list[dict]:
    """One kernel with every cap."""
    with registers_of(0):  # a cap in the PTX would hold whatever ptxas is told
        kernel = job.factory.__wrapped__(REALS[job.dtype], job.sizes)
    (ptx,) = wp.compile_aot_module(kernel.module, arch=[job.arch], use_ptx=True)
    rows = []
    for cap in CAPS:
        cubin = ptx.with_suffix(f".{cap}.ptxas")
        stores, loads = ptxas.assemble(ptx, cubin, job.arch, cap)
        ((registers, stack, code),) = gpu_resources.cubin_resources(cubin).values()
        cubin.unlink()
        rows.append({
            "kernel": kernel.key.split("__")[-1], "arch": job.arch, "cap": cap, "registers": registers, "stack": stack,
            "code": code, "spill_stores": stores, "spill_loads": loads,
        })  # fmt: skip
        machine.progress(str(rows[-1]))
    return rows


def by_nvrtc(job: Job) -> tuple[int, int, int]:
    """Registers, stack and code of a kernel that is made with a cap."""
    with registers_of(CHECKED):
        kernel = job.factory.__wrapped__(REALS[job.dtype], job.sizes)  # a new one: the factory keeps the others
    (cubin,) = wp.compile_aot_module(kernel.module, arch=[job.arch], use_ptx=False)
    (found,) = gpu_resources.cubin_resources(cubin).values()
    return found


def report(results: dict) -> dict[str, str]:
    lines = []
    for r in results["rows"]:
        arch, gpu = r["arch"], occupancy.GPUS[r["arch"]]
        at_once = occupancy.resident_threads(arch, r["registers"])
        lines.append([
            r["kernel"], f"sm_{arch}", r["cap"] or "none", r["registers"], f"{r['spill_stores']} / {r['spill_loads']}",
            r["stack"], at_once // gpu.sms, gpu.name, at_once,
        ])  # fmt: skip
    header = ["kernel", "arch", "cap", "registers", "spill bytes stored / loaded", "stack bytes", "environments per SM"]
    table = machine.table([*header, "GPU", "environments that fill it"], lines)
    return {"table": table, "notes": notes(results)}


def notes(results: dict) -> str:
    same = "the same registers and stack" if results["nvrtc_agrees"] else "**other figures**"
    return (
        f"laikago_feet, float32, blocks of {occupancy.LAUNCHED}. Computed, not measured. ptxas {results['ptxas']} "
        f"assembled the same PTX with each cap; the rollout for sm_{ARCHS[-1]} that NVRTC compiles with the cap of "
        f"{CHECKED}, as `gpu.py --registers {CHECKED}` does, has {same}."
    )


def main(arguments: list[str] | None = None) -> dict:
    options = reporting.parser(__doc__).parse_args(arguments)
    results = reporting.begin(options)
    archs = ARCHS[-1:] if options.quick else ARCHS
    factories = (make_rollout,) if options.quick else (make_rollout, make_rollout_adjoint)
    with reporting.quiet():
        ptxas, missing = gpu_resources.find_ptxas()
        if ptxas is None:
            machine.progress(missing)
            return {}
        jobs = [job for arch in archs for job in gpu_resources.jobs_for([arch], ["float32"], {FEET: factories})]
        results |= {"ptxas": ptxas.version, "rows": [row for job in jobs for row in rows_of(job, ptxas)]}
        job = next(job for job in jobs if job.arch == ARCHS[-1])
        twin = next(r for r in results["rows"] if (r["kernel"], r["arch"], r["cap"]) == ("rollout", job.arch, CHECKED))
        results["nvrtc_agrees"] = by_nvrtc(job)[:2] == (twin["registers"], twin["stack"])
    return reporting.finish("registers", options, results, report)


if __name__ == "__main__":
    main()
