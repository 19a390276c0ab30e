"""The kernels compile for CUDA, and how much of a GPU they take; needs neither a GPU nor a driver."""

import sys
from pathlib import Path

import pytest
import warp as wp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from gpu_resources import ARCHS, Job, Resources, all_kinds, cubin_resources, laikago_feet, measure, recording, table
from warp_articulated.kernels.diagnostics import make_diagnostics
from warp_articulated.kernels.jacobians import make_jacobians
from warp_articulated.kernels.queries import make_contacts_adjoint
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint

KILO = 1024
# Bytes of stack per thread: 1.5 times what was measured (38, 76, 192 and 104 KB), so that only a blunder fails. CUDA
# allows 512 KB, but reserves it for every thread that can be resident.
STACK = {
    ("rollout", "feet", "float32"): 57 * KILO,
    ("rollout", "feet", "float64"): 114 * KILO,
    ("rollout", "all kinds", "float32"): 290 * KILO,
    ("rollout_adjoint", "feet", "float32"): 156 * KILO,
}


@pytest.fixture(scope="module")
def compiled() -> list[Resources]:
    """All at once, so that every core compiles; Warp's cache keeps the results until the kernels change."""
    missing = set(ARCHS) - set(wp.get_cuda_supported_archs())
    if missing:
        pytest.fail(f"this build of Warp cannot compile for {sorted(missing)}")
    jobs = [Job("feet", make_rollout, laikago_feet(), "float32", arch) for arch in ARCHS]
    jobs.append(Job("feet", make_rollout, laikago_feet(), "float64", 90))
    jobs.append(Job("all kinds", make_rollout, all_kinds(), "float32", 90))
    jobs.append(Job("feet", make_rollout_adjoint, recording(laikago_feet()), "float32", 90))
    return measure(jobs)


def test_rollout_compiles_for_every_architecture_and_its_adjoint_for_one(compiled, capsys):
    with capsys.disabled():
        print("\n" + table(compiled))
    assert [(r.kernel, r.name, r.dtype, r.arch) for r in compiled] == [
        *(("rollout", "feet", "float32", arch) for arch in ARCHS),
        ("rollout", "feet", "float64", 90),
        ("rollout", "all kinds", "float32", 90),
        ("rollout_adjoint", "feet", "float32", 90),
    ]


@pytest.mark.slow
def test_adjoints_compile_for_every_architecture(capsys):
    """Each takes up to a minute to compile, so only `make test-all` does all of them."""
    feet = recording(laikago_feet())
    jobs = [Job("feet", make_rollout_adjoint, feet, "float32", arch) for arch in ARCHS]
    jobs.append(Job("feet", make_rollout_adjoint, feet, "float64", 90))
    jobs.append(Job("all kinds", make_rollout_adjoint, recording(all_kinds()), "float32", 90))
    jobs += [Job("feet", factory, feet, "float32", 90) for factory in (make_jacobians, make_contacts_adjoint)]
    jobs.append(Job("feet", make_diagnostics, laikago_feet(), "float32", 90))
    found = measure(jobs)
    with capsys.disabled():
        print("\n" + table(found))
    assert all(32 <= r.registers <= 255 and r.stack < 512 * KILO for r in found)


def test_registers_and_stack_stay_within_bounds(compiled):
    for r in compiled:
        assert 32 <= r.registers <= 255, r  # fewer than 32: not the number of this kernel
        assert KILO <= r.stack <= STACK[r.kernel, r.name, r.dtype], r


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
