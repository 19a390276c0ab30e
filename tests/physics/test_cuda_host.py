"""The host's side of CUDA, with fakes on the CPU: streams, devices, memory, waiting. Nothing here needs a GPU."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import warp as wp
from no_waiting import NoWaiting, check_it_refuses

import warp_articulated as wa
from warp_articulated.device import checks, cuda, launch, structs
from warp_articulated.simulator import Simulator


@pytest.fixture(scope="module")
def model():
    return wa.load("laikago_feet")


@pytest.fixture(scope="module")
def sim(model):
    return wa.Simulator(model, num_envs=2, validate=False)


def gpu(stream=7, ordinal=0):
    """What our code reads of a CUDA device of Warp."""
    own = SimpleNamespace(cuda_stream=stream)
    return SimpleNamespace(is_cuda=True, is_cpu=False, ordinal=ordinal, alias=f"cuda:{ordinal}", stream=own)


@pytest.fixture
def torch_stream(monkeypatch):
    """Makes torch's current stream the given one."""

    def set_stream(handle):
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=handle))

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    set_stream(7)
    return set_stream


class Command:
    """A recorded launch that fails with each of some errors before it succeeds."""

    kernel = SimpleNamespace(key="rollout_kernel")

    def __init__(self, *errors):
        self.errors, self.streams = list(errors), []

    def launch(self, stream=None):
        self.streams.append(stream)
        if self.errors:
            raise self.errors.pop(0)


# -- streams


@pytest.mark.parametrize("handle", [7, 8, 0])
def test_a_launch_makes_no_stream_of_warp(monkeypatch, torch_stream, handle):
    def refuse(*_, **__):
        raise AssertionError("a temporary wp.Stream erases the handle in Warp when it is collected")

    monkeypatch.setattr(wp, "stream_from_torch", refuse)
    monkeypatch.setattr(wp, "Stream", refuse)
    torch_stream(handle)
    device, command = gpu(stream=7), Command()
    cuda.launch(command, device)
    (used,) = command.streams
    assert used.cuda_stream == handle
    assert (used is device.stream) == (handle == 7)


def test_the_default_stream_of_both_is_the_same(torch_stream):
    torch_stream(0)
    device = gpu(stream=None)  # Warp's word for it
    assert cuda.stream(device) is device.stream


def test_steps_on_warp_arrays_run_on_one_stream(monkeypatch, sim):
    """Copies, counts and kernel of step_warp, and all of its adjoint."""
    inside, seen = [], []

    @contextmanager
    def on_warp_stream(device):
        inside.append(device)
        yield
        inside.pop()

    def watch(function):
        def call(*args, **options):
            seen.append(len(inside))
            return function(*args, **options)

        return call

    state = [wp.from_torch(x) for x in sim.initial_state()]
    after, u = [wp.clone(x) for x in state], wp.from_torch(sim.initial_control())
    u_bar = wp.zeros_like(u)
    monkeypatch.setattr(cuda, "on_warp_stream", on_warp_stream)
    monkeypatch.setattr(wp, "copy", watch(wp.copy))
    monkeypatch.setattr(sim._engine, "counts", watch(sim._engine.counts))
    monkeypatch.setattr(sim._engine.launcher, "run", watch(sim._engine.launcher.run))
    sim.step_warp(state, u, after)
    sim.step_adjoint_warp(state, u, after, u_bar)
    assert seen == [1] * 5


def test_warps_stream_is_made_torchs(monkeypatch):
    entered = []
    monkeypatch.setattr(wp, "stream_to_torch", lambda device: ("stream of", device.alias))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: entered.append(stream))
    cuda.on_warp_stream(gpu())
    assert entered == [("stream of", "cuda:0")]


# -- devices


@pytest.fixture
def cuda_of_warp(monkeypatch):
    """Warp has a GPU, torch has as many as the returned function is told."""
    monkeypatch.delenv(checks.DEVICE_VARIABLE, raising=False)
    find = wp.get_device
    monkeypatch.setattr(wp, "is_cuda_available", lambda: True)
    monkeypatch.setattr(wp, "get_device", lambda name: gpu(ordinal=int(name[5:])) if "cuda" in name else find(name))

    def of_torch(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return of_torch


def test_the_default_device_asks_torch_too(cuda_of_warp, monkeypatch):
    cuda_of_warp(0)
    assert checks.device(None).is_cpu
    cuda_of_warp(1)
    assert checks.device(None).alias == "cuda:0"
    monkeypatch.setenv(checks.DEVICE_VARIABLE, "cpu")
    assert checks.device(None).is_cpu


@pytest.mark.parametrize(("name", "count"), [("cuda:0", 0), ("cuda:1", 1)])
def test_a_device_that_torch_cannot_use_is_refused(cuda_of_warp, name, count):
    cuda_of_warp(count)
    with pytest.raises(ValueError, match=rf"Warp has the device {name}, but this PyTorch .* cannot use it"):
        checks.device(name)


def test_torchs_current_device_is_restored(monkeypatch, model):
    """Launches and constructors are within torch.cuda.device, for Warp leaves its own context current."""
    entered = []

    @contextmanager
    def device(ordinal):
        entered.append(ordinal)
        yield
        entered.append("left")

    monkeypatch.setattr(torch.cuda, "device", device)
    with cuda.current(gpu(ordinal=1)):
        assert entered == [1]
    assert entered == [1, "left"]
    entered.clear()
    monkeypatch.setattr(cuda, "current", lambda _: device("guarded"))
    sim = wa.Simulator(model)
    assert entered == ["guarded", "left"]
    sim.step(*sim.initial_state())
    assert entered == ["guarded", "left"] * 2


@pytest.mark.parametrize("device", [None, "cpu", "warp", "torch"])
def test_a_simulator_of_any_kind_of_device_is_pickled(model, device):
    device = {"warp": wp.get_device("cpu"), "torch": torch.device("cpu")}.get(device, device)
    sim = wa.Simulator(model, device=device)
    copy = pickle.loads(pickle.dumps(sim))
    assert copy.device == sim.device
    assert (copy._options["device"] is None) == (device is None)


def test_the_suite_and_its_programs_use_the_cpu():
    """Also where there is a GPU: see conftest.py."""
    if os.environ.get(checks.DEVICE_VARIABLE) != "cpu":
        pytest.skip("another default device was asked for")
    assert wa.Simulator(wa.load("pendulum1")).device.is_cpu
    assert wp.get_device().is_cpu  # that casts rays
    program = "from warp_articulated.device import checks; print(checks.device(None))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "cpu"


# -- memory


def test_a_launch_without_memory_is_tried_again(monkeypatch, torch_stream):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    command = Command(RuntimeError("Error launching kernel: k on device cuda:0: out of memory"))
    cuda.launch(command, gpu())
    assert len(command.streams) == 2 and emptied == [True]


def test_a_launch_that_never_finds_memory_names_kernel_and_remedy(monkeypatch, torch_stream):
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    command = Command(*[RuntimeError("CUDA error 2: out of memory")] * 2)
    with pytest.raises(RuntimeError, match=r"not enough memory on cuda:0 to launch rollout_kernel.*max_contacts"):
        cuda.launch(command, gpu())


def test_a_launch_within_a_capture_is_not_tried_again(monkeypatch, torch_stream):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    command = Command(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="not enough memory"):
        cuda.launch(command, gpu())
    assert len(command.streams) == 1


def test_other_errors_of_a_launch_stay_as_they_are(torch_stream):
    command = Command(RuntimeError("CUDA error 700: an illegal memory access"))
    with pytest.raises(RuntimeError, match=r"^CUDA error 700"):
        cuda.launch(command, gpu())
    assert len(command.streams) == 1


def test_running_out_of_memory_is_not_a_wrong_parameter(monkeypatch, sim):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(torch.Tensor, "to", full)
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        structs.broadcast("mass", torch.ones(13), (13,), 2, torch.empty(0))


def test_tensors_of_parameters_live_no_longer_than_the_call(sim):
    """The recorded launch would hold them until the kernel's next call."""
    sim.step(*sim.initial_state())  # records
    memory = sim.params["mass"].numpy().copy()  # owned by numpy, whose array dies with the last tensor that sees it
    alive, mass = weakref.ref(memory), torch.from_numpy(memory)
    sim.step(*sim.initial_state(), params={"mass": mass})
    del mass, memory
    gc.collect()
    assert alive() is None


def test_changing_parameters_between_calls(sim):
    """Default, own, other own and default again: each call sees its own."""
    q, qd = sim.initial_state()
    first = sim.step(q, qd)[1]
    light, heavy = (sim.step(q, qd, params={"mass": s * sim.params["mass"]})[1] for s in (0.5, 2.0))
    assert torch.equal(first, sim.step(q, qd)[1])
    assert not torch.equal(first, light) and not torch.equal(light, heavy)


def test_rows_beyond_32_bits_are_refused(model):
    with pytest.raises(ValueError, match=r"must take less than 2\.1 GB"):
        wa.Simulator(model, num_envs=2**31 // (4 * model.nq) + 1)
    checks.batch((2**31 - 1) // (4 * model.nq), model, "float32")


# -- waiting


def without_reports(monkeypatch):
    """As on CUDA, where counts are not read after a step."""
    monkeypatch.setattr(Simulator, "_report", lambda self, counts: setattr(self, "_diverged", counts[0]))


def test_what_waits_is_refused():
    check_it_refuses()


def some_params(sim):
    names = ("mass", "lower", "upper", "frictionloss", "joint_quat", "inertia", "friction", "erp")
    return {name: sim.params[name].clone() for name in names}


@pytest.mark.parametrize("with_params", [False, True])
def test_nothing_waits_in_steps_and_rollouts(monkeypatch, sim, with_params):
    q, qd = sim.initial_state()
    params = some_params(sim) if with_params else None
    us = sim.initial_control().repeat(3, 1, 1)
    for _ in range(2):  # the first call compiles
        with NoWaiting() if _ else torch.no_grad():
            without_reports(monkeypatch)
            sim.step(q, qd, params=params)
            sim.rollout(q, qd, us, params=params)
            sim.link_poses(q, params=params)
            sim.contacts(q, qd, params=params)
            sim.jacobians(q, qd, params=params)
            sim.initial_state(), sim.initial_control()


def test_nothing_waits_in_a_backward_pass(monkeypatch, sim):
    without_reports(monkeypatch)
    params = {name: value.requires_grad_() for name, value in some_params(sim).items()}
    q, qd = (x.requires_grad_() for x in sim.initial_state())
    with NoWaiting():
        qs, _ = sim.rollout(q, qd, sim.initial_control().repeat(3, 1, 1), params=params)
        torch.autograd.grad(qs[-1].sum(), [q, qd, *params.values()])


def test_frames_of_joints_are_turned_on_the_device(sim):
    quat = torch.tensor([[[0.0, 0.0, 0.0, 1.0], [0.0, 0.6, 0.0, 0.8]], [[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0]]])
    turned = structs.turned_joints(quat)
    assert isinstance(turned, torch.Tensor) and turned.dtype == torch.int32 and turned.tolist() == [0, 0, 1]
    params = {"joint_quat": sim.params["joint_quat"]}
    struct, held = structs.params_struct(sim._engine.types, params, base=sim._engine.device_params)
    assert struct.turned.ptr in {x.data_ptr() for x in held}  # torch's memory, in the order of torch's stream


def test_the_default_control_is_no_ones_to_change(sim):
    q, qd = sim.initial_state()
    meant = sim.step(q, qd)[1]
    sim.initial_control().zero_()
    assert torch.equal(meant, sim.step(q, qd)[1])
    assert torch.equal(meant, sim.step(q, qd, sim.initial_control())[1])


def test_a_simulator_made_in_inference_mode_steps(model):
    with torch.inference_mode():
        sim = wa.Simulator(model)
        sim.step(*sim.initial_state())
    q, qd = sim.initial_state()
    q.requires_grad_()
    assert torch.autograd.grad(sim.step(q, qd)[0].sum(), q)[0].isfinite().all()


# -- loading


def test_threads_that_load_kernels_leave_warps_settings(monkeypatch):
    """One would otherwise restore what another has set."""
    both = threading.Barrier(2, timeout=0.2)

    def load(*_, **__):
        assert wp.config.enable_tiles_in_stack_memory is False
        try:
            both.wait()  # until the other is here too, which the lock does not allow
        except threading.BrokenBarrierError:
            return
        raise AssertionError("two threads load at once")

    monkeypatch.setattr(wp, "load_module", load)
    before, failed = wp.config.enable_tiles_in_stack_memory, []

    def run():
        try:
            launch._load(SimpleNamespace(module=None, key="make_step__step"), wp.get_device("cpu"))
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and wp.config.enable_tiles_in_stack_memory == before


def test_numbers_are_as_before_on_the_cpu(sim):
    q, _ = sim.initial_state()
    assert np.array_equal(q[0].numpy(), sim.model.q0.astype(np.float32))


# -- commands, pages and examples


@pytest.mark.parametrize("command", ["simulate", "play"])
def test_pictures_are_drawn_on_the_device_of_the_command(monkeypatch, tmp_path, command):
    """Warp's current device, the default of pictures, is a GPU where there is one."""
    from warp_articulated.cli import main
    from warp_articulated.show.pictures import gif, render

    devices = []
    for module in (gif, render):
        scene = module.RayScene

        def watched(*args, scene=scene, **options):
            devices.append(options["device"] if "device" in options else args[3])
            return scene(*args, **options)

        monkeypatch.setattr(module, "RayScene", watched)
    what = ["laikago_feet", "--steps", "40"] if command == "simulate" else ["ant_shac", "--episodes", "1"]
    if command == "play":
        what += ["--option", "episode_length=5"]
    files = ["--png", str(tmp_path / "a.png"), "--gif", str(tmp_path / "a.gif"), "--size", "32x32"]
    assert main([command, *what, "--device", "cpu", *files]) == 0
    assert devices == ["cpu", "cpu"]


def test_simulate_reads_the_diverged_at_once():
    from warp_articulated.cli import simulate

    reads = []

    class Indices:
        def tolist(self):
            reads.append(True)
            return [1, 5]

    sim = SimpleNamespace(
        num_envs=8, model=None, diverged=Indices(), rollout=lambda *_: (torch.zeros(1), torch.zeros(1))
    )
    options = SimpleNamespace(env_ids=None, fps=None)
    run = simulate._Run(sim, None, 1, options, None)
    run._rollout(None, None, None)
    assert run.diverged == {1, 5} and reads == [True]


ROOT = Path(__file__).parents[2]


def test_pages_move_tensors_to_the_host_before_numpy():
    """Their simulators are on the default device."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in page.read_text("utf-8").splitlines():
            assert ".numpy()" not in line or ".cpu().numpy()" in line, f"{page.name}: {line}"


def test_examples_name_their_device():
    """They mix states with tensors of torch's default device, which is the CPU."""
    for example in (ROOT / "examples").glob("*.py"):
        text = example.read_text("utf-8")
        for call in text.split("wa.Simulator(")[1:]:
            assert 'device="cpu"' in call[:150], example.name
