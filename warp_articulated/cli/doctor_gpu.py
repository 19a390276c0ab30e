"""Checks of a GPU for `warp-articulated doctor --device cuda:0`: every kernel against the CPU, and what only CUDA has.

Each check is a function of the device that returns what it found and whether that is good (None: for information). Most
run on the CPU too, so that tests can try them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import warp as wp

import warp_articulated as wa

from ..device import cuda, launch

SCENE = "laikago_feet"  # a robot on four feet; its kernels compile quickly
ENVS, STEPS = 64, 20
AGREEMENT = 1e-6  # relative, in float64: rounding differs by 1e-16, and contacts amplify it
BLOCKS = (32, 128)  # beside the usual size
MOST_ARGUMENTS = {"rollout": 3300, "its adjoint": 4732}  # bytes; drivers before CUDA 12.1 take 4096
WARM_UPS, REPLAYS = 3, 5
ON_CPU = "nothing to check on the CPU"

Answer = tuple[str, bool | None]


class Scene:
    """Robots that stand and move by random controls: the same numbers on every device."""

    def __init__(self, device: str, dtype: str, envs: int | None = None):
        model, envs = wa.load(SCENE), envs or ENVS
        self.sim = wa.Simulator(model, envs, device=device, dtype=dtype, validate=False)
        self.q, self.qd = self.sim.initial_state()
        self.u0 = self.sim.initial_control()
        noise = np.random.default_rng(0).uniform(-0.2, 0.2, (envs, STEPS, model.nu)).swapaxes(0, 1)
        self.u = self.u0 + torch.from_numpy(noise).to(self.u0)
        self.tau = torch.nn.functional.pad(self.u[0] - self.u0, (model.nv - model.nu, 0))  # none on the free joint

    def rollout(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self.sim.rollout(self.q, self.qd, self.u)

    def gradient(self) -> dict[str, torch.Tensor]:
        """Of the distances walked, with respect to state, controls and some parameters of every group."""
        names = ("mass", "joint_pos", "joint_quat", "kp", "friction")
        leaves = {"q": self.q, "qd": self.qd, "u": self.u, **{name: self.sim.params[name] for name in names}}
        leaves = {name: value.clone().requires_grad_() for name, value in leaves.items()}
        params = {name: leaves[name] for name in names}
        qs, _ = self.sim.rollout(leaves["q"], leaves["qd"], leaves["u"], params=params)
        return dict(zip(leaves, torch.autograd.grad(qs[-1, :, :3].sum(), list(leaves.values())), strict=True))

    def queries(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Results of every other kernel; contacts in which the order of the list does not matter."""
        sim = self.sim
        with torch.no_grad():
            qs, qds = self.rollout()
            q, qd = qs[-1], qds[-1]
            yield "rollout", torch.cat([qs, qds], -1)
            found = sim.contacts(q, qd, self.u[0])
            yield "contacts", torch.cat([found.impulses.sum(1), found.depths.sum(1, keepdim=True)], -1)
            for name, matrix in zip("AB", sim.jacobians(q, qd, self.u[0]), strict=True):
                yield f"jacobians {name}", matrix
            told = sim.diagnose(qs, qds, self.u)
            # not the sweeps: the last of them change impulses by a rounding, or not at all
            yield "diagnose", torch.stack([told.contacts.to(q), told.joint_rows.to(q)])
            yield "gaps", torch.nan_to_num(told.gap, posinf=0.0)
            yield "link poses", sim.link_poses(q)
            yield "mass matrix", sim.mass_matrix(q)
            yield "forward dynamics", sim.forward_dynamics(q, qd, self.tau)
            yield "inverse dynamics", sim.inverse_dynamics(q, qd, self.tau)
            yield "frame velocities", sim.frame_velocities(q, qd)
            yield "frame jacobians", sim.frame_jacobians(q)
            push = q.new_ones(sim.num_envs, sim.model.num_links, 6)
            yield "wrench", torch.cat(sim.step(q, qd, self.u[0], wrench=push), -1)


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference, relative to the largest number; infinite if a number is not finite."""
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    if not bool(a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-12))


def kernels(device: str) -> Answer:
    """Every kernel without gradients, in float64, against the CPU."""
    here, cpu = (dict(Scene(name, "float64").queries()) for name in (device, "cpu"))
    return _compared({name: difference(here[name], cpu[name]) for name in here})


def gradients(device: str) -> Answer:
    """The adjoint kernel, in float64, against the CPU."""
    here, cpu = (Scene(name, "float64").gradient() for name in (device, "cpu"))
    return _compared({f"d/d{name}": difference(here[name], cpu[name]) for name in here})


def query_gradients(device: str) -> Answer:
    """Adjoints of the queries, in float64, against the CPU."""
    return _compared(_differences(_query_gradients(device), _query_gradients("cpu")))


def _query_gradients(device: str) -> dict[str, torch.Tensor]:
    scene, found = Scene(device, "float64"), {}
    sim, (q, qd) = scene.sim, (x.clone().requires_grad_() for x in (scene.q, scene.qd))
    (found["link poses"],) = torch.autograd.grad(sim.link_poses(q).sum(), q)
    (found["forward dynamics"],) = torch.autograd.grad(sim.forward_dynamics(q, qd, scene.tau).sum(), q)
    (found["inverse dynamics"],) = torch.autograd.grad(sim.inverse_dynamics(q, qd, scene.tau).sum(), q)
    (found["mass matrix"],) = torch.autograd.grad(sim.mass_matrix(q).sum(), q)
    (found["frame velocities"],) = torch.autograd.grad(sim.frame_velocities(q, qd).sum(), q)
    wrench = q.new_ones(sim.num_envs, sim.model.num_links, 6).requires_grad_()
    (found["wrench"],) = torch.autograd.grad(sim.step(q, qd, scene.u[0], wrench=wrench)[1].sum(), wrench)
    (found["contacts"],) = torch.autograd.grad(sim.contacts(q, qd, scene.u[0]).impulses.sum(), qd)
    return found


def _differences(here: dict[str, torch.Tensor], there: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: difference(here[name], there[name]) for name in here}


def _compared(differences: dict[str, float]) -> Answer:
    """A line that names the worst, and all that are too large."""
    bad = [f"{name} {value:.1e}" for name, value in differences.items() if not value < AGREEMENT]
    if bad:
        return f"differs from the CPU: {', '.join(bad)}", False
    worst = max(differences, key=lambda name: differences[name])
    return f"{len(differences)} agree with the CPU to {max(differences.values()):.1e} ({worst})", True


def determinism(device: str) -> Answer:
    """Bits of states and gradients: run again, in a smaller batch, and with other sizes of blocks."""
    scene = Scene(device, "float32")
    states, gradient = scene.rollout(), scene.gradient()["u"]
    bad = []
    if not _same(states, scene.rollout()) or not torch.equal(gradient, scene.gradient()["u"]):
        bad.append("a second run")
    few = Scene(device, "float32", envs=ENVS // 8)
    if not _same([x[:, : ENVS // 8] for x in states], few.rollout()):
        bad.append("a smaller batch")
    for block in BLOCKS:
        with block_size(block):
            other = Scene(device, "float32")
            if not _same(states, other.rollout()) or not torch.equal(gradient, other.gradient()["u"]):
                bad.append(f"blocks of {block}")
    if bad:
        return f"not the same to the last bit: {', '.join(bad)}", False
    return f"the same bits in two runs, two batch sizes and blocks of {', '.join(map(str, (64, *BLOCKS)))}", True


def _same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@contextmanager
def block_size(threads: int) -> Iterator[None]:
    """Simulators that are made and used within launch blocks of that size."""
    before, launch.BLOCK_DIM = launch.BLOCK_DIM, threads
    try:
        yield
    finally:
        launch.BLOCK_DIM = before


def streams(device: str) -> Answer:
    """Steps between operations of torch, on a stream of torch; and on Warp's arrays."""
    scene = Scene(device, "float32")
    meant = _steps(scene)
    if not scene.sim.device.is_cuda:
        return ON_CPU, None
    side = torch.cuda.Stream(scene.q.device)
    side.wait_stream(torch.cuda.current_stream(scene.q.device))
    with torch.cuda.stream(side):
        found = _steps(scene)
    torch.cuda.synchronize(scene.q.device)
    bad = [] if _same(meant, found) else ["a stream of torch"]
    before: list[Any] = [wp.from_torch(x.clone()) for x in (scene.q, scene.qd)]
    after = [wp.empty_like(x) for x in before]
    torch.cuda.synchronize(scene.q.device)
    scene.sim.step_warp(before, wp.from_torch(scene.u[0].contiguous()), after)
    wp.synchronize_device(scene.sim.device)
    if not _same(scene.sim.step(scene.q, scene.qd, scene.u[0]), [wp.to_torch(x) for x in after]):
        bad.append("step_warp")
    try:  # Warp must still know its own stream
        with wp.ScopedCapture(device=scene.sim.device) as capture:
            wp.copy(after[0], before[0])
        wp.capture_launch(capture.graph)
    except RuntimeError as error:
        bad.append(f"a capture of Warp ({error})")
    return (f"wrong on {', '.join(bad)}", False) if bad else ("the same bits on torch's and on Warp's streams", True)


def _steps(scene: Scene) -> tuple[torch.Tensor, torch.Tensor]:
    """Steps whose states torch changes in between: a launch on another stream would read them too early."""
    q, qd = scene.q, scene.qd
    with torch.no_grad():
        for u in scene.u:
            q, qd = scene.sim.step(q, 0.999 * qd, u)
    return q, qd


def graphs(device: str) -> Answer:
    """torch.cuda.graph of `step`, replayed, and env.capture()."""
    scene = Scene(device, "float32")
    if not scene.sim.device.is_cuda:
        return ON_CPU, None
    bad = [name for name, check in (("step", _graph_of_step), ("env.capture", _graph_of_env)) if not check(device)]
    if bad:
        return f"replayed graphs of {' and '.join(bad)} have other results", False
    return f"step and env.capture: {REPLAYS} replays have the bits of {REPLAYS} calls", True


def _graph_of_step(device: str) -> bool:
    scene = Scene(device, "float32")
    q, qd = scene.q.clone(), scene.qd.clone()

    def body() -> None:
        for old, new in zip((q, qd), scene.sim.step(q, qd, params={"friction": friction}), strict=True):
            old.copy_(new)

    friction = 0.5 * scene.sim.params["friction"]
    with torch.no_grad():
        replay = cuda.capture(scene.q.device, body, WARM_UPS)
        q.copy_(scene.q), qd.copy_(scene.qd)
        for _ in range(REPLAYS):
            replay()
        meant = scene.q, scene.qd
        for _ in range(REPLAYS):
            meant = scene.sim.step(*meant, params={"friction": friction})
        return _same(meant, (q, qd))


def _graph_of_env(device: str) -> bool:
    plain, captured = (wa.rl.make("Cartpole", num_envs=ENVS, device=device, validate=False) for _ in range(2))
    for env in (plain, captured):
        env.reset(seed=0)
    action = torch.ones(ENVS, plain.action_size, dtype=plain.dtype, device=plain.device)
    step = captured.capture(warm_ups=WARM_UPS)
    with torch.no_grad():
        return all(_same(plain.step(action), step(action)) for _ in range(REPLAYS))


def memory(device: str) -> Answer:
    """What the first rollout and gradient take: mostly stacks, for all threads that the GPU can hold."""
    found = wp.get_device(device)
    if not found.is_cuda:
        return ON_CPU, None
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(found.ordinal)
    scene = Scene(device, "float32")
    scene.rollout(), scene.gradient()
    torch.cuda.synchronize(found.ordinal)
    left = torch.cuda.mem_get_info(found.ordinal)[0]
    held = torch.cuda.memory_reserved(found.ordinal)
    return (
        f"{(free - left) / 1e6:,.0f} MB more in use after these kernels, {held / 1e6:,.0f} MB of it kept by torch; "
        f"{left / 1e9:.1f} of {total / 1e9:.1f} GB free. Stacks stay reserved from the first launch on"
    ), None


def driver(device: str) -> Answer:
    """Whether the driver takes the arguments of the kernels."""
    if not wp.get_device(device).is_cuda:
        return ON_CPU, None
    return judge_driver(wp.get_cuda_driver_version(), torch.version.cuda, wp.get_cuda_toolkit_version())


def judge_driver(version: tuple[int, int] | None, of_torch: str | None, of_warp) -> Answer:
    sizes = ", ".join(f"{name} {size:,}" for name, size in MOST_ARGUMENTS.items())
    what = f"driver for CUDA {_dotted(version)}, torch for {of_torch}, Warp with {_dotted(of_warp)}"
    if version is not None and tuple(version) < (12, 1):
        return f"{what}: it takes 4,096 bytes of arguments, the kernels have {sizes}; update the driver to 12.1", False
    return f"{what}; takes the arguments of the kernels ({sizes} bytes)", True


def _dotted(version: tuple[int, int] | None) -> str:
    return "unknown" if version is None else ".".join(map(str, version))


CHECKS: dict[str, Callable[[str], Answer]] = {
    "driver": driver,
    "memory": memory,  # before others have reserved stacks
    "kernels": kernels,
    "gradients": gradients,
    "query gradients": query_gradients,
    "determinism": determinism,
    "streams": streams,
    "graphs": graphs,
}
