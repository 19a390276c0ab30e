"""The checks of `doctor --device cuda:0`, on the CPU as far as they mean something there."""

from types import SimpleNamespace

import pytest
import torch

from warp_articulated.cli import doctor, doctor_gpu, main
from warp_articulated.device import checks, cuda, launch
from warp_articulated.rl.env import Env


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(doctor_gpu, "ENVS", 8)
    monkeypatch.setattr(doctor_gpu, "STEPS", 6)


@pytest.mark.parametrize("check", [doctor_gpu.kernels, doctor_gpu.gradients, doctor_gpu.query_gradients])
def test_the_cpu_agrees_with_itself(check):
    text, good = check("cpu")
    assert good and "agree with the CPU to 0.0e+00" in text


def test_every_kernel_is_compared(monkeypatch):
    """A kernel that no check runs would never be seen on a GPU."""
    from warp_articulated.device.engine import Engine

    ran, run = set(), Engine._run
    monkeypatch.setattr(Engine, "_run", lambda self, factory, *a, **k: (ran.add(factory), run(self, factory, *a, **k)))
    for check in (doctor_gpu.kernels, doctor_gpu.gradients, doctor_gpu.query_gradients):
        check("cpu")
    assert ran == set(doctor_gpu.Scene("cpu", "float32", 1).sim._engine._kernel_sizes)


def test_bits_are_the_same(monkeypatch):
    assert doctor_gpu.determinism("cpu")[1]
    monkeypatch.setattr(doctor_gpu, "_same", lambda a, b: False)
    text, good = doctor_gpu.determinism("cpu")
    assert good is False and "a second run, a smaller batch, blocks of 32, blocks of 128" in text


def test_blocks_are_of_the_usual_size_afterwards():
    usual = launch.BLOCK_DIM
    with pytest.raises(KeyError), doctor_gpu.block_size(32):
        assert launch.BLOCK_DIM == 32
        raise KeyError
    assert usual == launch.BLOCK_DIM


def test_differences_are_named():
    assert doctor_gpu._compared({"rollout": 1e-9, "contacts": 1e-12}) == (
        "2 agree with the CPU to 1.0e-09 (rollout)",
        True,
    )
    text, good = doctor_gpu._compared({"rollout": 1e-9, "contacts": float("nan"), "diagnose": 0.5})
    assert good is False and text == "differs from the CPU: contacts nan, diagnose 5.0e-01"
    assert doctor_gpu.difference(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")


@pytest.mark.parametrize("name", ["streams", "graphs", "memory", "driver"])
def test_the_rest_has_no_meaning_on_the_cpu(name):
    assert doctor_gpu.CHECKS[name]("cpu") == (doctor_gpu.ON_CPU, None)


def test_graphs_are_compared_with_calls(monkeypatch):
    def capture(device, body, warm_ups):
        for _ in range(warm_ups + 1):
            body()
        return body

    monkeypatch.setattr(cuda, "capture", capture)
    monkeypatch.setattr(cuda, "require", lambda *_: None)
    monkeypatch.setattr(Env, "_restarted", Env._restarted_unseen)
    assert doctor_gpu._graph_of_step("cpu") and doctor_gpu._graph_of_env("cpu")
    monkeypatch.setattr(cuda, "capture", lambda device, body, warm_ups: (body(), lambda: None)[1])  # replays nothing
    assert not doctor_gpu._graph_of_step("cpu") and not doctor_gpu._graph_of_env("cpu")


def test_old_drivers_are_named():
    text, good = doctor_gpu.judge_driver((12, 0), "12.6", (13, 4))
    assert good is False and "4,096 bytes" in text and "4,732" in text and "update the driver" in text
    text, good = doctor_gpu.judge_driver((12, 1), "12.6", (13, 4))
    assert good and "driver for CUDA 12.1, torch for 12.6, Warp with 13.4" in text


def test_a_gpu_that_is_named_is_checked(monkeypatch, capsys):
    found = SimpleNamespace(is_cuda=True, alias="cuda:0", name="a GPU", arch=90)
    monkeypatch.setattr(checks, "device", lambda name: found)
    monkeypatch.setattr(doctor, "CHECKS", {})
    monkeypatch.setattr(doctor_gpu, "CHECKS", {"kernels": lambda device: (f"on {device}", device == "cuda:0")})
    assert main(["doctor", "--device", "cuda:0"]) == 0
    said = capsys.readouterr().out
    assert "cuda:0 against the CPU, a GPU, sm_90" in said and "ok  kernels          on cuda:0" in said
    assert main(["doctor"]) == 0  # by default only the short checks
    assert "kernels  " not in capsys.readouterr().out


def test_without_a_gpu_there_is_an_error(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["doctor", "--device", "cuda:0"]) == 1
    assert "There is no device 'cuda:0' on this machine; the devices are cpu." in capsys.readouterr().out


@pytest.mark.cuda
@pytest.mark.parametrize("name", doctor_gpu.CHECKS)
def test_on_a_gpu(name):
    text, good = doctor_gpu.CHECKS[name]("cuda:0")
    assert good is not False, text
