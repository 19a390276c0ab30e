"""Memory that CUDA reserves for stacks: computed, read from compiled kernels, and refused before a launch. No GPU."""

import struct
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import warp as wp
from warp_articulated.kernels.queries.poses import make_link_poses
from warp_articulated.kernels.rollout import make_rollout, make_rollout_adjoint
from warp_articulated.kernels.types import Sizes

import warp_articulated as wa
from gpu import occupancy
from gpu.gpu_resources import cubin_resources, laikago_feet, recording
from warp_articulated.device import cubin, cuda, launch, reservation
from warp_articulated.device.gpus import GB, GPUS, THREADS, Gpu, described, free_memory, named
from warp_articulated.device.reservation import MAX_STACK, SPILLS, Reservations, StackError

SMALL = Gpu("small", 10, 1000, 2 * GB, 90)
# CUDA cores of NVIDIA's data sheets, from which the multiprocessors were not taken
CORES = {
    "A100 40 GB": 6912, "A100 80 GB": 6912, "H100 SXM": 16896, "H100 PCIe": 14592, "L4": 7424, "L40S": 18176,
    "RTX 3060": 3584, "RTX 3090": 10496, "RTX 4070": 5888, "RTX 4090": 16384, "RTX 6000 Ada": 18176, "RTX 5090": 21760,
    "Jetson AGX Orin 64 GB": 2048, "T4": 2560,
}  # fmt: skip


# -- GPUs


def test_multiprocessors_follow_from_the_published_cores():
    assert {gpu.name: gpu.multiprocessors * (64 if gpu.arch in (75, 80) else 128) for gpu in GPUS} == CORES
    assert all(gpu.threads == THREADS[gpu.arch] for gpu in GPUS)


def test_the_benchmark_has_the_same_figures():
    for arch, other in occupancy.GPUS.items():
        gpu = named(other.name.replace("A100 SXM", "A100"))  # both A100 of 80 GB are alike here
        assert (gpu.arch, gpu.multiprocessors, gpu.memory) == (arch, other.sms, other.memory * GB)
        assert gpu.threads == occupancy.WARP * occupancy.LIMITS[arch].warps
        assert reservation.reservation(gpu, 50_000) / GB == pytest.approx(occupancy.reserved_gb(arch, 50_000))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", "H100 SXM"),  # of two the one with less memory per thread
        ("a100", "A100 40 GB"),
        ("A100 80GB", "A100 80 GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("6000 ada", "RTX 6000 Ada"),
        ("L4", "L4"),
        ("orin", "Jetson AGX Orin 64 GB"),
    ],
)
def test_a_gpu_is_found_by_words_of_its_name(name, found):
    assert named(name).name == found


@pytest.mark.parametrize("name", ["RTX 9", "", "4090 H100"])
def test_an_unknown_gpu_lists_the_known(name):
    with pytest.raises(ValueError, match=r"is not known\. Known are: A100 40 GB, .*, T4\."):
        named(name)


def test_a_real_device_is_described_by_torch(monkeypatch):
    found = SimpleNamespace(
        name="NVIDIA L4", multi_processor_count=58, max_threads_per_multi_processor=1536, total_memory=23 * GB,
        major=8, minor=9,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda ordinal: found if ordinal == 1 else None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda ordinal: (ordinal * GB, 23 * GB))
    device = SimpleNamespace(ordinal=1)
    assert described(device) == Gpu("NVIDIA L4", 58, 1536, 23 * GB, 89)
    assert free_memory(device) == GB


# -- stacks


@pytest.fixture(scope="module")
def supported() -> None:
    if 90 not in wp.get_cuda_supported_archs():
        pytest.fail("this build of Warp cannot compile for sm_90")


def local_vector(length: int):
    Big = wp.types.vector(length=length, dtype=float)

    @wp.kernel(module="unique", enable_backward=False, module_options={"max_unroll": 1})
    def local_vector(order: wp.array(dtype=int), out: wp.array(dtype=float)):
        values = Big()
        for i in range(length):
            values[order[i]] = float(i)
        for i in range(length):
            out[i] = values[order[length - 1 - i]]

    return local_vector


def compiled(kernel, folder, **options):
    return wp.compile_aot_module(kernel.module, arch=[90], module_dir=folder, **options)[0]


@pytest.mark.parametrize("kernel", [local_vector(1000), make_link_poses(wp.float32, Sizes(32, 32, depth=1))])
def test_the_stack_of_a_cubin_is_what_pyelftools_finds(kernel, tmp_path, supported):
    path = compiled(kernel, tmp_path, use_ptx=False)
    ((name, (_, stack, _)),) = cubin_resources(path).items()
    assert cubin.stacks(path.read_bytes()) == {name: stack}
    assert cubin.stack_of(path) == stack >= 4000


def test_the_stack_of_ptx_is_without_spills(tmp_path, supported):
    kernel = local_vector(1000)
    exact = cubin.stack_of(compiled(kernel, tmp_path / "cubin", use_ptx=False))
    assert exact - SPILLS <= cubin.stack_of(compiled(kernel, tmp_path / "ptx", use_ptx=True)) <= exact


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "kernel.cubin"
    for wrong, says in ((b"something", "neither a cubin nor PTX"), (b"\x7fELF\x01\x01", "not a cubin")):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=says):
            cubin.stack_of(path)


def test_a_call_chain_counts():
    """A kernel that calls functions has a small frame, but needs the stack of all of them."""

    def section(name, kind, offset, size, link=0):
        return cubin.SECTION.pack(name, kind, 0, 0, offset, size, link, 0, 1, 0)

    names = b"\0.symtab\0.nv.info\0.text.k\0k\0"
    symbols = cubin.SYMBOL.pack(0, 0, 0, 0, 0, 0) + cubin.SYMBOL.pack(names.index(b"k\0", 25), 0, 0, 0, 0, 0)
    notes = b"".join(struct.pack("<BBHII", 4, attribute, 8, 1, size) for attribute, size in ((0x11, 16), (0x12, 96)))
    parts, start, headers = names + symbols + notes, 64, [section(0, 0, 0, 0)]
    headers.append(section(0, 3, start, len(names)))
    headers.append(section(1, 2, start + len(names), len(symbols), link=1))
    headers.append(section(9, 1, start + len(names) + len(symbols), len(notes)))
    headers.append(section(18, 1, 0, 0))
    head = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", 64 + len(parts)).ljust(18, b"\0")
    assert cubin.stacks(head + struct.pack("<HHH", 64, 5, 1) + parts + b"".join(headers)) == {"k": 96}


def assert_close(real, sizes, factory):
    exact = reservation.compiled_stack(factory(real, sizes), 90)
    assert exact <= reservation.estimated_stack(real, sizes) <= exact + SPILLS


@pytest.mark.parametrize("name", ["pendulum1", "boxes3"])  # above 8 KB the compiler might keep a temporary
def test_the_estimate_is_that_of_the_compiler_and_an_allowance(name, supported):
    assert_close(wp.float32, reservation.sizes_of(wa.load(name), 32, exact=True), make_rollout)


@pytest.mark.slow
def test_the_estimate_of_a_robot_is_that_of_the_compiler_and_an_allowance(supported):
    for real in (wp.float32, wp.float64):
        assert_close(real, laikago_feet(), make_rollout)
    assert_close(wp.float32, recording(laikago_feet()), make_rollout_adjoint)


def test_options_that_the_error_names_do_help():
    model = wa.load("laikago")
    usual = reservation.stacks_of_model(model, max_contacts=32)
    fewer = reservation.stacks_of_model(model, max_contacts=8)
    double = reservation.stacks_of_model(model, max_contacts=32, dtype="float64")
    quick = reservation.stacks_of_model(model, max_contacts=32, iterations=10)
    assert fewer.forward < 0.5 * usual.forward and fewer.adjoint < 0.5 * usual.adjoint
    assert double.forward > 1.9 * usual.forward and double.adjoint > 1.9 * usual.adjoint
    assert quick.forward == usual.forward and quick.adjoint < usual.adjoint
    assert reservation.stacks_of_model(model) == reservation.stacks_of_model(model, max_contacts=16)  # the default


# -- before a launch


def test_a_reservation_is_for_all_threads_that_could_be_resident():
    assert reservation.reservation(SMALL, 100_000) == GB
    assert reservation.fits(SMALL, 180_000) and not reservation.fits(SMALL, 180_001)
    roomy = Gpu("roomy", 1, 1, GB, 90)
    assert reservation.fits(roomy, MAX_STACK) and not reservation.fits(roomy, MAX_STACK + 1)


def test_a_reservation_that_is_not_free_is_refused():
    with pytest.raises(StackError) as refused:
        Reservations().admit("rollout", 120_000, SMALL, "cuda:0", lambda: GB)
    text = str(refused.value)
    assert "The kernel rollout needs a stack of 120,000 bytes per thread" in text
    assert "reserves 1.2 GB (10,000 threads) of cuda:0, small; 1.0 GB are free." in text
    assert "max_contacts" in text and "float32" in text and "iterations" not in text
    assert isinstance(refused.value, MemoryError)


def test_what_is_reserved_grows_and_does_not_add_up():
    held = Reservations()
    held.admit("rollout", 100_000, SMALL, "cuda:0", lambda: GB)
    held.admit("contacts", 90_000, SMALL, "cuda:0", lambda: 0)  # within what is there
    held.admit("rollout_adjoint", 150_000, SMALL, "cuda:0", lambda: GB // 2)  # 1 GB becomes 1.5 GB
    with pytest.raises(
        StackError, match=r"1\.9 GB are free, 1\.5 GB already reserved for stacks included\..*iterations"
    ):
        held.admit("jacobians", 200_000, SMALL, "cuda:0", lambda: int(0.4 * GB))
    held.admit("rollout", 150_000, SMALL, "cuda:0", lambda: 0)  # what was refused is not counted
    with pytest.raises(StackError, match="of cuda:1"):  # every device has its own
        held.admit("rollout", 100_000, SMALL, "cuda:1", lambda: 0)


def test_more_stack_than_cuda_allows_is_refused():
    with pytest.raises(StackError, match="524,289 bytes per thread, but CUDA allows 524,288"):
        Reservations().admit("rollout", MAX_STACK + 1, SMALL, "cuda:0", lambda: 10**15)


@pytest.fixture
def fake(monkeypatch, tmp_path, supported):
    """A CUDA device with 10,000 threads and a kernel of 4000 bytes of stack that is loaded there."""
    path = compiled(local_vector(1000), tmp_path, use_ptx=False)
    device = SimpleNamespace(is_cuda=True, is_cpu=False, alias="cuda:0", ordinal=0)
    module = SimpleNamespace(load=lambda device, block_dim: SimpleNamespace(binary_path=str(path)))
    kernel = type("Kernel", (), {"module": module, "key": "make_rollout__locals__rollout"})()
    state = SimpleNamespace(device=device, kernel=kernel, path=path, free=10**9, emptied=0)
    monkeypatch.setattr(reservation, "RESERVATIONS", Reservations())
    monkeypatch.setattr(reservation, "described", lambda device: SMALL)
    monkeypatch.setattr(reservation, "free_memory", lambda device: state.free)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: setattr(state, "emptied", state.emptied + 1))
    return state


def test_the_first_launch_is_checked(fake, monkeypatch):
    """With what a Launcher does on CUDA until it launches."""
    fake.free, loaded = 10**7, []
    monkeypatch.setattr(launch, "_load", lambda kernel, device: loaded.append(kernel))
    monkeypatch.setattr(cuda, "current", lambda device: nullcontext())  # torch may have no CUDA here
    launcher = launch.Launcher(fake.device, 4, None)
    with pytest.raises(StackError, match=r"The kernel rollout .* of cuda:0, small; 0\.0 GB are free"):
        launcher.run(fake.kernel, None, None, [])
    assert loaded == [fake.kernel] and fake.emptied == 1


def test_warp_says_which_file_it_loaded():
    kernel = local_vector(10)
    wp.load_module(kernel.module, device="cpu", block_dim=1)
    assert Path(kernel.module.load(wp.get_device("cpu"), 1).binary_path).stat().st_size > 0


def test_memory_is_asked_for_only_if_the_reservation_grows(fake):
    for _ in range(3):
        reservation.check_launch(fake.kernel, fake.device, 64)
    assert fake.emptied == 1


def test_the_check_can_be_left_out(fake, monkeypatch):
    fake.free = 0
    with pytest.raises(StackError):
        reservation.check_launch(fake.kernel, fake.device, 64)
    reservation.check_launch(fake.kernel, SimpleNamespace(is_cuda=False), 1)
    monkeypatch.setattr(reservation, "enabled", False)
    reservation.check_launch(fake.kernel, fake.device, 64)
    monkeypatch.setattr(reservation, "enabled", True)
    fake.path.unlink()  # the cache was emptied
    reservation.check_launch(fake.kernel, fake.device, 64)
