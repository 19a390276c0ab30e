"""What is computed about GPUs without one, and the benchmark that measures where there is one, tried on the CPU."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import warp as wp
from warp_articulated.kernels.queries.poses import make_link_poses
from warp_articulated.kernels.rollout import KERNEL

from gpu import executed, gpu, gpu_resources, occupancy, registers, roofline, scenes
from gpu.occupancy import GPUS, best_block, resident_threads, resident_warps
from lib import machine

# As CUDA's occupancy calculator (cuda_occupancy.h of the toolkit 13.4) says, for kernels without shared memory
WARPS = [
    (80, 32, 256, 64),
    (80, 255, 256, 8),
    (80, 160, 256, 8),
    (80, 160, 64, 12),
    (80, 168, 128, 12),
    (80, 169, 64, 8),
    (80, 32, 32, 32),  # 32 blocks at most
    (86, 32, 32, 16),  # 16 blocks at most
    (86, 40, 256, 48),
    (86, 32, 1024, 32),  # two of them would be 64 warps
    (90, 128, 64, 16),
    (120, 32, 32, 24),  # 24 blocks at most
    (120, 148, 64, 12),
    (120, 255, 64, 8),
]


@pytest.mark.parametrize(("arch", "registers", "block", "warps"), WARPS)
def test_resident_warps_are_those_of_the_occupancy_calculator(arch, registers, block, warps):
    assert resident_warps(arch, registers, block) == warps


def test_occupancy_is_the_share_of_the_warps_that_fit():
    assert occupancy.occupancy(80, 255, 256) == 0.125 and occupancy.occupancy(80, 32, 256) == 1.0
    assert occupancy.occupancy(86, 255, 64) == 8 / 48
    assert resident_threads(80, 160, 64) == 108 * 12 * 32
    assert best_block(80, 160) == 32  # as good as 64 and 128, and smaller; 256 loses a third
    assert best_block(86, 32) == 128  # blocks of 32 and 64 meet the limit of 16 blocks


def test_peaks_are_the_published_ones():
    """TFLOPS of NVIDIA's data sheets, from which units and clock were not taken."""
    published = {80: (19.5, 9.7), 86: (35.6, 0.556), 90: (67, 34), 120: (104.8, 1.64)}
    for arch, peaks in published.items():
        found = [GPUS[arch].peak(dtype) / 1e12 for dtype in ("float32", "float64")]
        np.testing.assert_allclose(found, peaks, rtol=0.02)


def test_stack_is_reserved_for_all_threads_that_could_be_resident():
    assert occupancy.reserved_gb(86, 100_000) == pytest.approx(82 * 1536 * 1e5 / 1e9)
    row = {"kernel": "rollout", "name": "n", "dtype": "float32", "arch": 86, "registers": 255, "stack": 400_000}
    assert "do not expect to launch there" in occupancy.summary([row])
    assert "fits into the memory" in occupancy.summary([row | {"stack": 40_000}])


# -- roofline


ROW = {
    "case": "standing", "direction": "forward", "instructions": 30_000.0, "divergence": 1.5, "local loads, bytes": 20e3,
    "local stores, bytes": 10e3, "global loads, bytes": 4e3, "global stores, bytes": 1e3,
}  # fmt: skip


def test_bounds_follow_from_what_was_counted_and_from_the_hardware():
    for arch, gpu_ in GPUS.items():
        low, high = roofline.bounds(arch, ROW)
        assert low == pytest.approx(1e9 * gpu_.bandwidth / 35e3) and low < high
        assert high == pytest.approx(1e9 * gpu_.clock * gpu_.sms * gpu_.cores / 45_000)
        _, less = roofline.bounds(arch, ROW | {"divergence": 3.0})
        assert less == pytest.approx(high / 2)


def test_bounds_are_marked_as_modelled():
    assert roofline.report([ROW]).startswith(roofline.MARK) and "not measured" in roofline.HEADER[-1]
    committed = json.loads((machine.RESULTS / "executed.json").read_text("utf-8"))
    assert {(r["case"], r["direction"]) for r in committed["rows"]} == {
        (case, direction) for case in executed.CASES for direction in ("forward", "adjoint")
    }


def results(spills: int | None) -> dict:
    row = {"name": "laikago_feet", "kernel": "rollout", "dtype": "float32", "registers": 160, "stack": 41000, "code": 9}
    rows = [row | {"arch": arch, "spill_stores": spills, "spill_loads": spills} for arch in GPUS]
    twin = {"kernel": "rollout", "name": "laikago_feet", "dtype": "float32", "arch": 80, "same": True}
    both = {"both_ways": twin, "ptxas": "13.4.92"} if spills is not None else {"both_ways": None, "ptxas": None}
    facts = {
        "machine": {"warp-lang": "1"},
        "nvrtc": "13.4",
        "ptxas_missing": "Spills are not known: why.",
    }
    return json.loads(json.dumps({"rows": rows, **both, **facts}))


def test_report_marks_what_is_computed():
    fragments = gpu_resources.report(results(48))
    assert set(fragments) == {"resources", "occupancy", "notes"}
    assert "48 / 48" in fragments["resources"] and "48 bytes, are spilled by rollout" in fragments["notes"]
    assert "Computed, not measured" in fragments["notes"]


def test_report_says_what_is_not_known():
    fragments = gpu_resources.report(results(None))
    assert "not known without ptxas" in fragments["resources"] and "Spills are not known: why." in fragments["notes"]


# -- ptxas


def script(path: Path, version: str) -> Path:
    """A ptxas that refuses what the real one refuses, and reports spills."""
    path.write_text(
        f"""#!{sys.executable}
import sys
if "--version" in sys.argv:
    sys.exit(print("Cuda compilation tools, release, V{version}"))
if open(sys.argv[3], "rb").read() != b"ptx":
    sys.exit("Unexpected EOF")
print("0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads", file=sys.stderr)
print("0 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads", file=sys.stderr)
"""
    )
    path.chmod(0o755)
    return path


def test_ptxas_is_used_if_it_is_of_the_release_of_nvrtc(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_resources, "nvrtc_version", lambda: "13.4")
    monkeypatch.setattr(gpu_resources, "_packaged_ptxas", lambda: [])
    old, new = script(tmp_path / "old", "13.0.88"), script(tmp_path / "new", "13.4.92")
    monkeypatch.setattr(shutil, "which", lambda name: str(old))
    assert gpu_resources.find_ptxas() == (
        None,
        "Spills are not known: ptxas is 13.0.88, Warp's NVRTC is 13.4; pip install nvidia-cuda-nvcc==13.4.*",
    )
    monkeypatch.setattr(gpu_resources, "_packaged_ptxas", lambda: [str(new)])
    ptxas, sentence = gpu_resources.find_ptxas()
    assert ptxas == gpu_resources.Ptxas(str(new), "13.4.92") and sentence == ""
    ptx = tmp_path / "kernel.ptx"
    ptx.write_bytes(b"ptx\0")  # as Warp writes it
    assert ptxas.assemble(ptx, tmp_path / "kernel.cubin", 90) == (9, 14)
    ptx.write_bytes(b"other")
    with pytest.raises(RuntimeError, match="Unexpected EOF"):
        ptxas.assemble(ptx, tmp_path / "kernel.cubin", 90)


# -- the benchmark that measures


def test_benchmark_runs_on_the_cpu(tmp_path, capsys):
    out = tmp_path / "gpu.json"
    arguments = ["--device", "cpu", "--quick", "--self-collision", "off", "--envs", "8", "12", "--out", str(out)]
    gpu.main(arguments)
    found = json.loads(out.read_text("utf-8"))
    assert found["block"] == 64 and found["registers"] is None
    assert [r["environments"] for r in found["rows"]] == [8, 12] and not found["device"]["cuda"]
    assert all("refused" not in r and r["forward_rate"] > 0 and r["memory_mb"] is None for r in found["rows"])
    assert "0 rows refused" in gpu.report(found)["summary"] and out.with_suffix(".png").exists()
    assert "| off | float32 | 12 |" in capsys.readouterr().out


def test_without_a_gpu_no_file_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu.wp, "get_cuda_device_count", lambda: 0)
    out = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(out)]) == {} and not out.exists()
    assert "there is no CUDA device here" in capsys.readouterr().err


def test_figures_of_wrong_states_are_refused():
    batch = gpu.Batch.__new__(gpu.Batch)
    batch.sim = SimpleNamespace(diverged=torch.empty(0))
    qs, gradient = torch.full((2, 4, 19), 0.35), torch.ones(2, 4, 12)
    cpu = qs[:, :2].double()
    assert batch.wrong(qs, gradient, cpu) == ""
    assert "not finite" in batch.wrong(qs * float("nan"), gradient, cpu)
    assert "gradient is zero" in batch.wrong(qs, 0 * gradient, cpu)
    assert "heights" in batch.wrong(qs + 1.0, gradient, cpu)
    assert "differently from the CPU" in batch.wrong(qs + 0.02, gradient, cpu)
    batch.sim.diverged = torch.tensor([3])
    assert batch.wrong(qs, gradient, cpu) == "1 robots diverged"


def test_robots_of_a_larger_batch_get_the_same_actions():
    model = gpu.laikago(False, True)
    few, many = (gpu.actions(model, n, 3) for n in (4, 9))
    assert few.shape == (3, 4, 12) and np.array_equal(few, many[:, :4]) and few.std() > 0.05


def test_self_collision_adds_pairs_between_links():
    for toes in (False, True):
        off, on = (gpu.laikago(kind, toes) for kind in (False, True))
        between = [(a, b) for a, b in on.pairs if gpu.WORLD not in (on.shapes[a].link, on.shapes[b].link)]
        assert len(on.pairs) == len(off.pairs) + len(between) and len(between) == (6 if toes else 116)
        assert np.array_equal(on.q0, off.q0) and on.joint_names == off.joint_names


def test_memory_is_compared_with_the_time_before_the_first_row(monkeypatch):
    """Stacks of kernels stay reserved after the first row that has them."""
    in_use = iter([100.0])
    monkeypatch.setattr(gpu, "used_mb", lambda device: next(in_use))
    monkeypatch.setattr(gpu, "measure", lambda *arguments: {"before": arguments[-1]})
    plan = gpu.replace(gpu.QUICK, ladder=(1, 2))
    found = list(gpu.rows(plan, "cpu", ["float32"], [False]))
    assert [r["before"] for r in found] == [100.0, 100.0]


def test_blocks_of_another_size(monkeypatch):
    """Kernels are compiled and launched with the same one."""
    from warp_articulated.device import launch

    usual, loaded = launch.BLOCK_DIM, []
    monkeypatch.setattr(gpu.wp, "load_module", lambda module, device, block_dim: loaded.append(block_dim))
    with gpu.block_of(32):
        launch._load(SimpleNamespace(module=None, key="make_step__step"), SimpleNamespace(is_cpu=False, is_cuda=True))
    assert loaded == [32] and usual == launch.BLOCK_DIM


@pytest.mark.parametrize("cap", [None, 32])
def test_kernels_with_a_cap_of_registers(cap, tmp_path):
    usual = dict(KERNEL)
    with gpu.registers_of(cap):
        # a new one: the factory keeps those that it has made
        kernel = make_link_poses.__wrapped__(wp.float32, gpu_resources.scene_sizes("pendulum1"))
    assert usual == KERNEL
    (cubin,) = wp.compile_aot_module(kernel.module, arch=[90], module_dir=tmp_path, use_ptx=False)
    ((registers, _, _),) = gpu_resources.cubin_resources(cubin).values()
    assert registers <= 32 if cap else registers > 32


def test_report_of_caps_says_how_many_environments_fill_a_gpu():
    row = {"kernel": "rollout", "arch": 90, "stack": 9000, "code": 9, "spill_stores": 4, "spill_loads": 8}
    rows = [row | {"cap": None, "registers": 255}, row | {"cap": 128, "registers": 128}]
    made = registers.report({"rows": rows, "ptxas": "13.4.92", "nvrtc_agrees": True})
    assert "| rollout | sm_90 | none | 255 | 4 / 8 | 9,000 | 256 | H100 SXM | 33,792 |" in made["table"]
    assert "| 128 | 128 | 4 / 8 | 9,000 | 512 | H100 SXM | 67,584 |" in made["table"]
    assert "Computed, not measured" in made["notes"] and "the same registers" in made["notes"]


BALL = """<mujoco><worldbody>
<geom type="plane" size="5 5 1"/>
<body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" mass="1"/></body>
</worldbody></mujoco>"""


def test_scenes_of_mjcf_files(tmp_path, capsys):
    """The settings that a rate depends on are in its row."""
    pytest.importorskip("mujoco")
    (tmp_path / "a_humanoid.xml").write_text(BALL, "utf-8")
    out = tmp_path / "scenes.json"
    files = [str(tmp_path / name) for name in ("a_humanoid.xml", "absent.xml")]
    gpu.main(["--device", "cpu", "--quick", "--scenes", *files, "--out", str(out)])
    row, absent = json.loads(out.read_text("utf-8"))["rows"]
    assert row["published"] == 5.67e6 and row["rate"] > 0 and row["contacts"] == 1.0 and row["dropped"] == 0
    assert row["dt"] == 5e-3 and row["iterations"] == 50 and row["memory_mb"] is None and row["compile_s"] >= 0
    assert "absent.xml" in absent["refused"] and absent["published"] is None
    said = capsys.readouterr().out
    assert "| a_humanoid | 8 | 5 ms |" in said and "5.67 million" in said and "another solver" in said


def test_published_rates_are_found_by_name():
    assert scenes.published("unitree_G1_flat") == 2.52e6 and scenes.published("ant") is None
