"""The problem of autodiff.py and crowd.py, and the methods in Python that solve it, each in its own process:

    python benchmarks/autodiff/methods.py METHOD STEPS OUTPUT ROBOTS

OUTPUT gets the last states and the gradient, in the order of cpp/driver.hpp; the figures are printed as JSON. The first
gradient counts for memory; short ones are repeated, and the least time of each pass counts.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np

import warp_articulated as wa
from autodiff.array_step import CFM, ERP, MAX_PUSH, ArrayStep, Jax, Torch
from lib import machine
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import Model

SCENE, DT, ITERATIONS = "laikago_feet", 1e-3, 50
TIMES, SHORT = 5, 5.0  # repetitions at most, and the seconds after which there are no more; as in cpp/driver.hpp


class Problem:
    """What all methods compute; written to files that the C++ programs read."""

    def __init__(self, robots: int = 1, seed: int = 0):
        self.model, self.robots = wa.load(SCENE), robots
        rng = np.random.default_rng(seed)
        self.state = np.concatenate([self.model.q0, np.zeros(self.model.nv)])  # of every robot
        control = self.model.u0 + 0.1 * rng.normal(size=self.model.nu)
        self.weight = rng.normal(size=len(self.state))
        self.control = np.tile(control, (robots, 1))
        self.control[1:] += 0.01 * rng.normal(size=(robots - 1, self.model.nu))  # every robot moves differently

    @property
    def q(self) -> np.ndarray:
        return self.state[: self.model.nq]

    @property
    def qd(self) -> np.ndarray:
        return self.state[self.model.nq :]

    def write(self, path: Path) -> None:
        """The model at `path`, the rest at `path`.state, as numbers in text."""
        path.write_text("\n".join(_model_lines(self.model)) + "\n")
        rows = (self.state, self.control, self.weight)
        path.with_name(path.name + ".state").write_text("\n".join(_numbers(row) for row in rows) + "\n")


def _numbers(values) -> str:
    array = np.ravel(values)
    return " ".join(repr(float(x)) if array.dtype.kind == "f" else str(int(x)) for x in array)


def _model_lines(model: Model) -> list[str]:
    """In the order in which cpp/step.hpp reads them."""
    spheres = [model.shapes[a] for a, _ in model.pairs]
    links = [int(np.flatnonzero(model.v_start == d)[0]) for d in model.drive_dof]
    counts = (model.num_links, model.nv, model.nq, model.nu, len(spheres), ITERATIONS)
    rows = [
        counts, (DT, ERP, CFM, MAX_PUSH), model.gravity, model.parent, model.q_start, model.v_start, model.axis,
        model.joint_pos, [quat_to_matrix(q) for q in model.joint_quat], model.mass, model.com, model.inertia,
        model.armature, model.damping, model.drive_dof, model.q_start[links], model.kp, model.kd,
        [s.link for s in spheres], [s.pos for s in spheres], [float(s.size[0]) for s in spheres], model.pair_friction,
    ]  # fmt: skip
    return [_numbers(row) for row in rows]


Answer = tuple[dict, np.ndarray, np.ndarray]  # figures, last states, gradient


def measured(gradient: Callable[[machine.Watch], tuple], compile_s: float = 0.0) -> Answer:
    """Of a function that gives last states, the parts of the gradient and the seconds of its two passes."""
    watch, began = machine.Watch(), time.perf_counter()
    last, parts, *passes = gradient(watch)
    figures = watch.figures(*passes, compile_s)  # before the parts are joined, which is not part of the method
    times = [passes]
    while len(times) < TIMES and time.perf_counter() - began < SHORT:
        times.append(gradient(machine.Watch())[2:])
    figures["forward_s"], figures["backward_s"] = (min(column) for column in zip(*times))
    return figures, np.ravel(last).astype(float), np.concatenate([np.ravel(x) for x in parts]).astype(float)


def run_ours(problem: Problem, steps: int, method: str) -> Answer:
    import torch

    sim = wa.Simulator(
        problem.model, problem.robots, dtype="float32" if "float32" in method else "float64", dt=DT,
        iterations=ITERATIONS, threads=1 if "one thread" in method else None, device="cpu",
    )  # fmt: skip
    # all sweeps, as the others make them: at 0 it would stop where nothing changes any more
    sim._engine.device_model.tolerance = sim._engine.device_model.rounding = -1.0
    every = "sqrt" if "sqrt" in method else 1
    weight, control = (torch.tensor(x, dtype=sim.dtype) for x in (problem.weight, problem.control))

    def gradient(watch: machine.Watch, steps: int = steps):
        start = (torch.tensor(x, dtype=sim.dtype).repeat(problem.robots, 1) for x in (problem.q, problem.qd))
        q, qd = (x.requires_grad_() for x in start)
        u = control.repeat(steps, 1, 1).requires_grad_()
        watch.lap()
        qs, qds = sim.rollout(q, qd, u, checkpoint_every=every)
        last = torch.cat([qs[-1], qds[-1]], 1)
        forward = watch.lap()
        (last @ weight).sum().backward()
        backward = watch.lap()
        return last.detach(), [torch.cat([q.grad, qd.grad], 1), u.grad], forward, backward

    began = time.perf_counter()
    gradient(machine.Watch(), 1)
    return measured(gradient, time.perf_counter() - began)


def run_tape(problem: Problem, steps: int) -> Answer:
    from autodiff.taped_step import TapedRollout

    robots = problem.robots
    q, qd, *weights = (
        np.tile(x, (robots, 1)) for x in (problem.q, problem.qd, *np.split(problem.weight, [problem.model.nq]))
    )
    rollouts: list[TapedRollout] = []  # made once: its arrays serve all repetitions

    def gradient(watch: machine.Watch, steps: int = steps):
        if not rollouts:
            rollouts.append(TapedRollout(problem.model, robots, steps, dt=DT, iterations=ITERATIONS))
        u = np.broadcast_to(problem.control, (steps, *problem.control.shape))
        watch.lap()
        qs, qds = rollouts[0].forward(q, qd, u)
        forward = watch.lap()
        q_bar, qd_bar, u_bar = rollouts[0].backward(*weights)
        backward = watch.lap()
        return np.hstack([qs[-1], qds[-1]]), [np.hstack([q_bar, qd_bar]), u_bar], forward, backward

    began = time.perf_counter()
    gradient(machine.Watch(), 1)
    rollouts.clear()
    answer = measured(gradient, time.perf_counter() - began)
    rollouts[0].check()
    return answer


def run_torch(problem: Problem, steps: int) -> Answer:
    import torch

    torch.set_num_threads(1)
    step = ArrayStep(problem.model, Torch(), dt=DT, iterations=ITERATIONS)

    def gradient(watch: machine.Watch):
        q, qd = (torch.tensor(x, requires_grad=True) for x in (problem.q, problem.qd))
        u = torch.tensor(problem.control).repeat(steps, 1).requires_grad_()
        watch.lap()
        state = (q, qd)
        for k in range(steps):
            state = step(*state, u[k])
        last = torch.cat(state)
        forward = watch.lap()
        (last @ torch.tensor(problem.weight)).backward()
        return last.detach(), [q.grad, qd.grad, u.grad], forward, watch.lap()

    return measured(gradient)


def run_jax(problem: Problem, steps: int, checkpoint: bool) -> Answer:
    import jax
    import jax.numpy as jnp

    step = ArrayStep(problem.model, Jax(), dt=DT, iterations=ITERATIONS)

    def body(state, u):
        return step(*state, u), None

    body = jax.checkpoint(body) if checkpoint else body

    def rollout(q, qd, u):
        return jnp.concatenate(jax.lax.scan(body, (q, qd), u)[0])

    inputs = (jnp.array(problem.q), jnp.array(problem.qd), jnp.tile(jnp.array(problem.control[0]), (steps, 1)))
    loss_gradient = jax.grad(lambda *a: rollout(*a) @ jnp.array(problem.weight), argnums=(0, 1, 2))
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:  # each takes half a minute
        forward, whole = pool.map(lambda f: jax.jit(f).lower(*inputs).compile(), (rollout, loss_gradient))
    compiled = time.perf_counter() - began

    def gradient(watch: machine.Watch):
        watch.lap()
        last = forward(*inputs).block_until_ready()
        forward_s = watch.lap()
        return last, jax.block_until_ready(whole(*inputs)), forward_s, watch.lap()

    ctypes.CDLL(None).malloc_trim(0)  # memory freed after compiling would hide what running allocates
    figures, last, found = measured(gradient, compiled)
    # JAX runs both passes in one program; the backward pass is the difference to a forward run
    figures["backward_s"] = max(figures["backward_s"] - figures["forward_s"], 0.0)
    return figures, last, found


def main() -> None:
    method, steps, output, robots = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    problem = Problem(robots)
    if method.startswith("ours"):
        figures, last, gradient = run_ours(problem, steps, method)
    elif method == "Warp tape":
        figures, last, gradient = run_tape(problem, steps)
    elif method == "torch":
        figures, last, gradient = run_torch(problem, steps)
    else:
        figures, last, gradient = run_jax(problem, steps, "checkpoint" in method)
    np.concatenate([last, gradient]).tofile(output)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
