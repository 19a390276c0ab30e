"""Throughput on a GPU: 1024 to 65536 Laikagos with random actions, with and without self collision, and their gradient.

    python benchmarks/gpu/gpu.py                          the first CUDA device; writes benchmarks/results/gpu.json
    python benchmarks/gpu/gpu.py --device cuda:1 --dtype float32 float64
    python benchmarks/gpu/gpu.py --device cpu --quick     whether it works, where there is no GPU; written to out/bench
    python benchmarks/gpu/gpu.py --registers 128          with a cap; registers.py says what it costs
    python benchmarks/gpu/gpu.py --scenes humanoid.xml g1.xml    MJCF files of your own instead, see scenes.py

Each control is new and random, and held for 10 steps of 1 ms. A step is one of these milliseconds of one environment.
Times are the fastest of some repetitions and include waiting for the GPU. A row has no figures if a state or a gradient
is not finite, a robot diverged, or the first robots do not move as they do on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch
import warp as wp
from warp_articulated.kernels.rollout import KERNEL

import warp_articulated as wa
from gpu import scenes
from lib import machine, reporting
from warp_articulated.device import launch
from warp_articulated.model import WORLD, Model

DT, SUBSTEPS = 1e-3, 10
AMPLITUDE = 0.2  # rad, of the random targets about the stand
HEIGHTS = (0.1, 0.6)  # m, of the base: neither through the floor nor thrown up
CHECKED = 8  # robots that are simulated on the CPU too
AGREEMENT = 1e-2  # m or rad: float32 rounds differently on a GPU, and contacts amplify it
TOES = ("FR_toe", "FL_toe", "RR_toe", "RL_toe")


@dataclass(frozen=True)
class Plan:
    """What is run; of a quick one only toes collide, whose kernels compile in seconds."""

    ladder: tuple[int, ...] = (1024, 4096, 16384, 65536)
    controls: int = 10
    repetitions: int = 5
    only_toes: bool = False


BLOCK_HELP = """threads of a CUDA block (%(default)s); 32 spread a small batch over twice as many multiprocessors as 64,
and hold as many environments at once"""
REGISTERS_HELP = """cap of a thread's registers (default: as shipped, 168 for the rollout in float32; 0: none); 128 hold
twice as many environments of the gradient's kernel at once, and spill more"""
QUICK = Plan(ladder=(16, 64), controls=2, repetitions=1, only_toes=True)


def laikago(self_collision: bool, only_toes: bool) -> Model:
    """The scene, in which no link touches another; or the same with every pair of links that are not neighbours."""
    scene = wa.load("laikago_feet" if only_toes else "laikago")
    if not self_collision:
        return scene
    urdf = Path(str(resources.files("warp_articulated.scenes"))) / "laikago.urdf"
    model = wa.load(urdf, floating=True, ground=True, drive="position", kp=300, kd=8, effort=100, friction=1.0)
    model = replace(model, q0=scene.q0, u0=scene.u0)
    bodies = {s.body for s in model.shapes if s.link != WORLD}.difference(TOES) if only_toes else ()
    keep = np.array([not {model.shapes[a].body, model.shapes[b].body}.intersection(bodies) for a, b in model.pairs])
    return replace(model, **{key: getattr(model, key)[keep] for key in ("pairs", "pair_friction", "pair_restitution")})


def actions(model: Model, envs: int, controls: int) -> np.ndarray:
    """(controls, envs, nu); an environment's do not depend on how many there are."""
    noise = np.random.default_rng(0).uniform(-AMPLITUDE, AMPLITUDE, (envs, controls, model.nu))
    return model.u0 + noise.swapaxes(0, 1)


class Batch:
    """Environments on a device, with their actions."""

    def __init__(self, model: Model, envs: int, plan: Plan, device: str, dtype: str):
        self.sim = wa.Simulator(model, envs, device=device, dtype=dtype, dt=DT, substeps=SUBSTEPS)
        self.steps = envs * plan.controls * SUBSTEPS
        self.state = self.sim.initial_state()
        self.u = torch.from_numpy(actions(model, envs, plan.controls)).to(self.state[0])

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.sim.rollout(*self.state, u)[0]

    def wait(self) -> None:
        if self.sim.device.is_cuda:  # a launch returns before it is done
            wp.synchronize_device(self.sim.device)
            torch.cuda.synchronize(self.sim.device.ordinal)

    def timed(self, run) -> tuple[float, torch.Tensor]:
        self.wait()
        start = time.perf_counter()
        answer = run()
        self.wait()
        return time.perf_counter() - start, answer

    def once(self) -> tuple[float, float, torch.Tensor, torch.Tensor]:
        """Seconds forward without and backward with a gradient; states and gradient of the controls."""
        forward, qs = self.timed(lambda: self.forward(self.u))
        u = self.u.clone().requires_grad_()
        height = self.forward(u)[-1, :, 2].sum()
        backward, (gradient,) = self.timed(lambda: torch.autograd.grad(height, u))
        return forward, backward, qs, gradient

    def wrong(self, qs: torch.Tensor, gradient: torch.Tensor, cpu: torch.Tensor) -> str:
        """Empty, or why the figures do not count."""
        if not bool(qs.isfinite().all()):
            return "a state is not finite"
        if len(self.sim.diverged):
            return f"{len(self.sim.diverged)} robots diverged"
        if not bool(gradient.isfinite().all()) or not bool(gradient.any()):
            return "the gradient is zero or not finite"
        low, high = float(qs[..., 2].min()), float(qs[..., 2].max())
        if low < HEIGHTS[0] or high > HEIGHTS[1]:
            return f"heights are between {low:.3f} and {high:.3f} m"
        here = qs[:, : cpu.shape[1]].cpu().double()
        if (difference := float((here - cpu).abs().max())) > AGREEMENT:
            return f"robots move differently from the CPU, by up to {difference:.1e}"
        return ""


@contextmanager
def block_of(threads: int) -> Iterator[None]:
    """Kernels that are first launched within have blocks of that size."""
    before, launch.BLOCK_DIM = launch.BLOCK_DIM, threads
    try:
        yield
    finally:
        launch.BLOCK_DIM = before


@contextmanager
def registers_of(cap: int | None) -> Iterator[None]:
    """Kernels that are first made within have at most so many registers on CUDA; 0: no cap; None: as they are."""
    before = dict(KERNEL)
    if cap is not None:
        KERNEL["cuda_max_registers"] = cap or None
    try:
        yield
    finally:
        KERNEL.clear()
        KERNEL.update(before)


def used_mb(device: wp.Device) -> float | None:
    """Memory of a GPU that is in use, including the stacks of the kernels; None for a CPU."""
    if not device.is_cuda:
        return None
    free, total = torch.cuda.mem_get_info(device.ordinal)
    return (total - free) / 1e6


def measure(
    model: Model, envs: int, plan: Plan, device: str, dtype: str, cpu: torch.Tensor, before: float | None
) -> dict:
    """The figures of a row, or {"refused": why}; before: memory in use before the first row."""
    try:
        batch = Batch(model, envs, plan, device, dtype)
        began = time.perf_counter()
        batch.once()
        batch.wait()
        compiled = time.perf_counter() - began
        runs = [batch.once() for _ in range(plan.repetitions)]
    except (RuntimeError, MemoryError) as error:  # a GPU out of memory, for arrays or for the stacks of the kernels
        return {"refused": str(error).strip().splitlines()[0]}
    _, _, qs, gradient = runs[-1]
    if why := batch.wrong(qs, gradient, cpu):
        return {"refused": why}
    forward, backward = (min(column) for column in list(zip(*runs))[:2])
    after = used_mb(batch.sim.device)
    return {
        "first_s": compiled,
        "forward_s": forward,
        "backward_s": backward,
        "forward_rate": batch.steps / forward,
        "gradient_rate": batch.steps / (forward + backward),
        "dropped_contacts": int(batch.sim.dropped_contacts.sum()),
        "memory_mb": after - before if after is not None and before is not None else None,
    }


def rows(plan: Plan, device: str, dtypes: list[str], kinds: list[bool]) -> Iterator[dict]:
    # one baseline: stacks of kernels stay reserved, so later ones would show them in a kernel's first row only
    before = used_mb(wp.get_device(device))
    for collision in kinds:
        model = laikago(collision, plan.only_toes)
        for dtype in dtypes:
            machine.progress(f"{CHECKED} robots on the CPU, {dtype}, self collision {'on' if collision else 'off'}")
            on_cpu = Batch(model, CHECKED, plan, "cpu", dtype)
            cpu = on_cpu.forward(on_cpu.u).double()
            for envs in plan.ladder:
                machine.progress(f"{envs} robots on {device}")
                what = {"self_collision": collision, "dtype": dtype, "environments": envs}
                yield what | measure(model, envs, plan, device, dtype, cpu, before)
                if device != "cpu":
                    torch.cuda.empty_cache()


def describe(name: str) -> dict:
    device = wp.get_device(name)
    if device.is_cpu:
        return {"name": machine.describe()["cpu"], "cuda": False}
    facts = {"name": device.name, "cuda": True, "arch": device.arch, "sms": device.sm_count}
    return facts | {"memory_gb": round(device.total_memory / 1e9, 1), "driver": str(wp.get_cuda_driver_version())}


def missing(device: str | None) -> str:
    """Empty, or why nothing can be measured."""
    if device == "cpu":
        return ""
    if wp.get_cuda_device_count() == 0:
        return "Nothing was measured: there is no CUDA device here. --device cpu --quick tries the program on the CPU."
    if not torch.cuda.is_available():
        return "Nothing was measured: this PyTorch was built without CUDA; install one that has it."
    if device not in (None, *(d.alias for d in wp.get_cuda_devices())):
        return f"Nothing was measured: there is no device {device!r}; there are {wp.get_cuda_devices()}."
    return ""


def report(results: dict) -> dict[str, str]:
    lines = []
    for r in results["rows"]:
        what = ["on" if r["self_collision"] else "off", r["dtype"], r["environments"]]
        if "refused" in r:
            lines.append([*what, f"refused: {r['refused']}", "", "", ""])
            continue
        memory = "-" if r["memory_mb"] is None else f"{r['memory_mb']:,.0f}"
        ratio = r["backward_s"] / r["forward_s"]
        lines.append([*what, r["forward_rate"], r["gradient_rate"], f"{ratio:.2f}", memory])
    header = ["self collision", "precision", "environments", "steps/s forward", "steps/s forward and backward"]
    table = machine.table([*header, "backward / forward", "GPU memory, MB"], lines)
    return {"table": table, "summary": summary(results)}


def summary(results: dict) -> str:
    fine = [r for r in results["rows"] if "refused" not in r]
    if not fine:
        return f"{results['device']['name']}: no row has figures."
    best = max(fine, key=lambda r: r["forward_rate"])
    gradient = max(fine, key=lambda r: r["gradient_rate"])
    return (
        f"{results['device']['name']}: up to {best['forward_rate']:,.0f} steps/s forward "
        f"({best['environments']} environments), {gradient['gradient_rate']:,.0f} steps/s forward and backward "
        f"({gradient['environments']} environments); {len(results['rows']) - len(fine)} rows refused."
    )


def plot(results: dict, figure) -> None:
    for axes, key, title in zip(figure.subplots(1, 2), ("forward_rate", "gradient_rate"), ("forward", "gradient")):
        for collision in (False, True):
            for dtype in sorted({r["dtype"] for r in results["rows"]}):
                kind = (collision, dtype)
                found = [r for r in results["rows"] if (r["self_collision"], r["dtype"]) == kind and key in r]
                label = f"{dtype}, self collision {'on' if collision else 'off'}"
                axes.plot([r["environments"] for r in found], [r[key] for r in found], "o-", label=label)
        axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="steps/s")
        axes.set_title(f"{title}, {results['device']['name']}")


def of_scenes(options: argparse.Namespace) -> scenes.Plan:
    plan = scenes.QUICK if options.quick else scenes.Plan()
    return replace(plan, envs=options.envs[0]) if options.envs else plan


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("--device", help="such as cuda:0 (default: the first CUDA device) or cpu")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "float64"), default=["float32"])
    parser.add_argument("--envs", nargs="+", type=int, help="instead of the ladder")
    parser.add_argument("--block", type=int, choices=(32, 64, 128, 256), default=launch.BLOCK_DIM, help=BLOCK_HELP)
    parser.add_argument("--registers", type=int, metavar="N", help=REGISTERS_HELP)
    parser.add_argument("--self-collision", choices=("off", "on", "both"), default="both")
    parser.add_argument("--scenes", nargs="+", type=Path, metavar="XML", help="MJCF files to simulate instead")
    options = parser.parse_args(arguments)
    with reporting.quiet():
        if why := missing(options.device):
            machine.progress(why)
            return {}
        device = options.device or wp.get_cuda_devices()[0].alias
        if device == "cpu":
            name = "gpu_scenes.json" if options.scenes else "gpu.json"
            options.out = options.out or reporting.QUICK / name  # benchmarks/results are of a GPU
        plan = QUICK if options.quick else Plan()
        plan = replace(plan, ladder=tuple(options.envs)) if options.envs else plan
        kinds = {"off": [False], "on": [True], "both": [False, True]}[options.self_collision]
        results = reporting.begin(options) | {"device": describe(device), "dt": DT, "plan": asdict(plan)}
        results |= {"block": options.block, "registers": options.registers}
        with block_of(options.block), registers_of(options.registers):
            if options.scenes:
                results["rows"] = list(scenes.rows(options.scenes, of_scenes(options), device, used_mb))
            else:
                results["rows"] = list(rows(plan, device, options.dtype, kinds))
    if options.scenes:
        return reporting.finish("gpu_scenes", options, results, scenes.report)
    return reporting.finish("gpu", options, results, report, plot)


if __name__ == "__main__":
    main()
