"""The kernels compile for CUDA, and how much of a GPU they take; needs neither a GPU nor a driver."""

import json
from ctypes import sizeof
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest
import warp as wp
from tied_models import tied_model
from warp_articulated.kernels.env import make_types
from warp_articulated.kernels.queries.contacts import make_contacts_adjoint
from warp_articulated.kernels.queries.diagnostics import make_diagnostics
from warp_articulated.kernels.queries.jacobians import make_jacobians
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint

import warp_articulated as wa
from gpu.gpu_resources import (
    ALL_KINDS,
    ARCHS,
    FEET,
    LAIKAGO,
    REALS,
    Job,
    Resources,
    all_kinds,
    cubin_resources,
    laikago_feet,
    measure,
    recording,
    scene_sizes,
    table,
)
from warp_articulated.device.topology import sizes_of

KILO = 1024
# Bytes of stack per thread, which CUDA reserves for every thread that can be resident.
STACK = {
    ("rollout", FEET, "float32"): 10 * KILO,
    ("rollout", FEET, "float64"): 20 * KILO,
    ("rollout", LAIKAGO, "float32"): 30 * KILO,
    ("rollout", ALL_KINDS, "float32"): 35 * KILO,
    ("rollout_adjoint", FEET, "float32"): 18 * KILO,
    ("rollout_adjoint", FEET, "float64"): 36 * KILO,
    ("rollout_adjoint", LAIKAGO, "float32"): 60 * KILO,
    ("rollout_adjoint", ALL_KINDS, "float32"): 65 * KILO,
}
LIMIT = 512 * KILO  # CUDA's own; NVRTC compiles kernels beyond it without a word, and they do not launch
COMMITTED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "gpu_resources.json"
# Times what is committed: a compiler's release changes so much. More is a change of ours: to be looked at and, if it is
# meant, committed with a new run of benchmarks/gpu/gpu_resources.py.
MORE_REGISTERS, MORE_STACK = 1.10, 1.15


@pytest.fixture(scope="module")
def compiled() -> list[Resources]:
    """All at once, so that every core compiles; Warp's cache keeps the results until the kernels change."""
    missing = set(ARCHS) - set(wp.get_cuda_supported_archs())
    if missing:
        pytest.fail(f"this build of Warp cannot compile for {sorted(missing)}")
    jobs = [Job(FEET, make_rollout, laikago_feet(), "float32", arch) for arch in ARCHS]
    jobs.append(Job(FEET, make_rollout, laikago_feet(), "float64", 90))
    jobs.append(Job(LAIKAGO, make_rollout, scene_sizes(LAIKAGO), "float32", 90))
    jobs.append(Job(ALL_KINDS, make_rollout, all_kinds(), "float32", 90))
    jobs.append(Job(FEET, make_rollout_adjoint, recording(laikago_feet()), "float32", 90))
    return measure(jobs)


def growth(found: Resources, committed: list[dict]) -> str:
    """Empty, or what a kernel takes more of than it did when its figures were committed."""
    key = ("kernel", "name", "dtype", "arch")
    row = next((r for r in committed if all(r[k] == getattr(found, k) for k in key)), None)
    if row is None:
        return f"gpu_resources.json has no {found.kernel} of {found.name}, {found.dtype}, sm_{found.arch}"
    if found.registers > MORE_REGISTERS * row["registers"]:
        return f"{found.registers} registers instead of {row['registers']}: {found}"
    if found.stack > MORE_STACK * row["stack"]:
        return f"{found.stack} bytes of stack instead of {row['stack']}: {found}"
    return ""


def test_rollout_compiles_for_every_architecture_and_its_adjoint_for_one(compiled, capsys):
    with capsys.disabled():
        print("\n" + table(map(asdict, compiled)))
    assert [(r.kernel, r.name, r.dtype, r.arch) for r in compiled] == [
        *(("rollout", FEET, "float32", arch) for arch in ARCHS),
        ("rollout", FEET, "float64", 90),
        ("rollout", LAIKAGO, "float32", 90),
        ("rollout", ALL_KINDS, "float32", 90),
        ("rollout_adjoint", FEET, "float32", 90),
    ]


@pytest.mark.slow
def test_adjoints_compile_for_every_architecture(capsys):
    """Each takes up to a minute to compile, so only `make test-all` does all of them."""
    feet = recording(laikago_feet())
    jobs = [Job(FEET, make_rollout_adjoint, feet, "float32", arch) for arch in ARCHS]
    jobs.append(Job(FEET, make_rollout_adjoint, feet, "float64", 90))
    jobs.append(Job(ALL_KINDS, make_rollout_adjoint, recording(all_kinds()), "float32", 90))
    jobs.append(Job(LAIKAGO, make_rollout_adjoint, recording(scene_sizes(LAIKAGO)), "float32", 90))
    jobs += [Job(FEET, factory, feet, "float32", 90) for factory in (make_jacobians, make_contacts_adjoint)]
    jobs.append(Job(FEET, make_diagnostics, laikago_feet(), "float32", 90))
    found = measure(jobs)
    with capsys.disabled():
        print("\n" + table(map(asdict, found)))
    assert all(32 <= r.registers <= 255 and r.stack < LIMIT for r in found)
    assert not [r for r in found if r.stack > STACK.get((r.kernel, r.name, r.dtype), LIMIT)]
    committed = json.loads(COMMITTED.read_text("utf-8"))["rows"]
    assert not [text for r in found if (text := growth(r, committed))]


def test_registers_and_stack_stay_within_bounds(compiled):
    for r in compiled:
        assert 32 <= r.registers <= 255, r  # fewer than 32: not the number of this kernel
        assert KILO <= r.stack <= STACK[r.kernel, r.name, r.dtype], r


def test_no_scene_needs_more_stack_than_cuda_allows():
    """By the working memory alone, which is all of the stack except spills and a few variables."""
    for name, real in product(wa.scene_names(), (wp.float32, wp.float64)):
        sizes = recording(scene_sizes(name))
        again = replace(sizes, again=True)  # jacobians, the largest of all kernels
        for types in (make_types(real, sizes), make_types(real, again)):
            assert sizeof(types.Memory) < sizeof(types.MemoryBar) < LIMIT - 16 * KILO, (name, real)


def test_working_memory_with_loops_stays_within_bounds():
    """Of a crowded model with every kind of tie: three loops, one of them a weld, a coupling and two tendons."""
    sizes = recording(sizes_of(tied_model(), 16, exact=True))
    for real, forward, backward in ((wp.float32, 17 * KILO, 36 * KILO), (wp.float64, 33 * KILO, 70 * KILO)):
        types = make_types(real, sizes)
        assert sizeof(types.Memory) <= forward and sizeof(types.MemoryBar) <= backward, real


def test_working_memory_is_what_the_stack_consists_of(compiled):
    """So the test above means the stack; and no temporary copy of the memory is on it."""
    for r in compiled:
        sizes = {FEET: laikago_feet, LAIKAGO: lambda: scene_sizes(LAIKAGO), ALL_KINDS: all_kinds}[r.name]()
        t = make_types(REALS[r.dtype], recording(sizes))
        memory = sizeof(t.Memory if r.kernel == "rollout" else t.MemoryBar)
        assert memory <= r.stack <= memory + KILO, r


def test_registers_and_stack_have_not_grown(compiled):
    committed = json.loads(COMMITTED.read_text("utf-8"))["rows"]
    assert not [text for r in compiled if (text := growth(r, committed))]


def test_growth_is_noticed():
    row = {"name": FEET, "kernel": "rollout", "dtype": "float32", "arch": 90, "registers": 160, "stack": 40000}
    same = Resources(**row, code=1)
    assert growth(same, [row]) == "" and growth(Resources(**row | {"registers": 176}, code=1), [row]) == ""
    assert "177 registers instead of 160" in growth(Resources(**row | {"registers": 177}, code=1), [row])
    assert "46001 bytes of stack" in growth(Resources(**row | {"stack": 46001}, code=1), [row])
    assert "has no rollout" in growth(Resources(**row | {"arch": 80}, code=1), [row])


def test_resources_are_those_that_warp_was_told_to_use(tmp_path):
    """A kernel with a local array of known size: what is read from the cubin must be at least that."""
    if 90 not in wp.get_cuda_supported_archs():
        pytest.fail("this build of Warp cannot compile for CUDA")
    Big = wp.types.vector(length=1000, dtype=wp.float32)

    @wp.kernel(module="unique", enable_backward=False, module_options={"max_unroll": 1})
    def local_array(order: wp.array(dtype=int), out: wp.array(dtype=float)):
        values = Big()
        for i in range(1000):
            values[order[i]] = float(i)
        for i in range(1000):
            out[i] = values[order[999 - i]]

    (path,) = wp.compile_aot_module(local_array.module, arch=[90], module_dir=tmp_path / "module", use_ptx=False)
    ((registers, stack, code),) = cubin_resources(path).values()
    assert 4000 <= stack <= 9000  # 1000 floats, once or (with a temporary) twice
    assert 8 <= registers <= 64 and code > 0
