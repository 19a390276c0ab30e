"""Tables 1 to 3 of the paper: time and memory of a gradient through one robot, ours against automatic differentiation.

    python benchmarks/autodiff.py                 all methods and horizons, half an hour and more
    python benchmarks/autodiff.py --quick         short horizons
    python benchmarks/autodiff.py --methods ours adolc --steps 100 1000

One Laikago on four feet (laikago_feet), dt 1 ms, 50 sweeps of projected Gauss-Seidel, double precision, controls off
their rest by random numbers. The loss is a weighted sum of the last state; its gradient with respect to the first state
and to the control of every step is asked for. Every method runs in a process of its own. It is timed only if its last
state agrees with ours to 1e-6 and its gradient to 1e-4.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cpp_drivers
import machine
import numpy as np
from array_step import CFM, ERP, MAX_PUSH, ArrayStep, Jax, Torch

import warp_articulated as wa
from warp_articulated.model import Model
from warp_articulated.rotations import quat_to_matrix

SCENE, DT, ITERATIONS = "laikago_feet", 1e-3, 50
STEPS, QUICK_STEPS = (50, 100, 500, 1000, 5000), (50, 500)
CPP = ("C++ doubles", "CppAD", "ADOL-C", "Ceres jets")
METHODS = ("ours", "ours float32", "Warp tape", *CPP, "jax", "jax checkpoint", "torch")
PAPER = "ADF (autodiff), which the paper also lists, is in no registry that we can install from."


class Problem:
    """What all methods compute; written to files that the C++ programs read."""

    def __init__(self, seed: int = 0):
        self.model = wa.load(SCENE)
        rng = np.random.default_rng(seed)
        self.state = np.concatenate([self.model.q0, np.zeros(self.model.nv)])
        self.control = self.model.u0 + 0.1 * rng.normal(size=self.model.nu)
        self.weight = rng.normal(size=len(self.state))

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


# -- methods in Python, each in a process of its own: python autodiff.py --child METHOD STEPS OUTPUT


def run_ours(problem: Problem, steps: int, dtype: str) -> tuple[dict, np.ndarray, np.ndarray]:
    import torch

    sim = wa.Simulator(problem.model, 1, dtype=dtype, dt=DT, iterations=ITERATIONS, device="cpu")
    tensor = {"dtype": sim.dtype}
    weight = torch.tensor(problem.weight, **tensor)

    def gradient(steps: int, watch: machine.Watch):
        inputs = [torch.tensor(x, **tensor)[None].requires_grad_() for x in (problem.q, problem.qd)]
        u = torch.tensor(problem.control, **tensor).repeat(steps, 1, 1).requires_grad_()
        watch.lap()
        qs, qds = sim.rollout(*inputs, u)
        last = torch.cat([qs[-1, 0], qds[-1, 0]])
        forward = watch.lap()
        (last @ weight).backward()
        return last.detach(), torch.cat([x.grad.flatten() for x in (*inputs, u)]), forward, watch.lap()

    began = time.perf_counter()
    gradient(1, machine.Watch())
    compiled = time.perf_counter() - began
    watch = machine.Watch()
    last, found, forward, backward = gradient(steps, watch)
    figures = watch.figures(forward, backward, compiled)
    for _ in range(4):  # so short that a stranger's process could be all that is measured
        _, _, f, b = gradient(steps, machine.Watch())
        figures |= {"forward_s": min(f, figures["forward_s"]), "backward_s": min(b, figures["backward_s"])}
    return figures, last.numpy().astype(float), found.numpy().astype(float)


def run_tape(problem: Problem, steps: int) -> tuple[dict, np.ndarray, np.ndarray]:
    from taped_step import TapedRollout

    weights = [w[None] for w in np.split(problem.weight, [problem.model.nq])]

    def gradient(rollout: TapedRollout, watch: machine.Watch):
        u = np.tile(problem.control, (rollout.steps, 1, 1))
        watch.lap()
        qs, qds = rollout.forward(problem.q[None], problem.qd[None], u)
        forward = watch.lap()
        found = rollout.backward(*weights)
        last = np.concatenate([qs[-1, 0], qds[-1, 0]])
        return last, np.concatenate([x.ravel() for x in found]), forward, watch.lap()

    began = time.perf_counter()
    gradient(TapedRollout(problem.model, 1, 1, dt=DT, iterations=ITERATIONS), machine.Watch())
    compiled = time.perf_counter() - began
    watch = machine.Watch()
    rollout = TapedRollout(problem.model, 1, steps, dt=DT, iterations=ITERATIONS)
    last, found, forward, backward = gradient(rollout, watch)
    rollout.check()
    return watch.figures(forward, backward, compiled), last, found


def run_torch(problem: Problem, steps: int) -> tuple[dict, np.ndarray, np.ndarray]:
    import torch

    torch.set_num_threads(1)
    step = ArrayStep(problem.model, Torch(), dt=DT, iterations=ITERATIONS)
    q, qd = (torch.tensor(x, requires_grad=True) for x in (problem.q, problem.qd))
    u = torch.tensor(problem.control).repeat(steps, 1).requires_grad_()
    watch = machine.Watch()
    state = (q, qd)
    for k in range(steps):
        state = step(*state, u[k])
    last = torch.cat(state)
    forward = watch.lap()
    (last @ torch.tensor(problem.weight)).backward()
    figures = watch.figures(forward, watch.lap())
    return figures, last.detach().numpy(), torch.cat([x.grad.flatten() for x in (q, qd, u)]).numpy()


def run_jax(problem: Problem, steps: int, checkpoint: bool) -> tuple[dict, np.ndarray, np.ndarray]:
    import jax
    import jax.numpy as jnp

    xp = Jax()
    step = ArrayStep(problem.model, xp, dt=DT, iterations=ITERATIONS)

    def body(state, u):
        return step(*state, u), None

    body = jax.checkpoint(body) if checkpoint else body

    def rollout(q, qd, u):
        return jnp.concatenate(jax.lax.scan(body, (q, qd), u)[0])

    inputs = (jnp.array(problem.q), jnp.array(problem.qd), jnp.tile(jnp.array(problem.control), (steps, 1)))
    began = time.perf_counter()
    forward = jax.jit(rollout).lower(*inputs).compile()
    gradient = jax.jit(jax.grad(lambda *a: rollout(*a) @ jnp.array(problem.weight), argnums=(0, 1, 2)))
    gradient = gradient.lower(*inputs).compile()
    compiled = time.perf_counter() - began
    watch = machine.Watch()
    last = forward(*inputs).block_until_ready()
    forward_s = watch.lap()
    found = jax.block_until_ready(gradient(*inputs))
    # JAX runs forward and backward in one; what is beyond a forward run is the backward's
    figures = watch.figures(forward_s, max(watch.lap() - forward_s, 0.0), compiled)
    return figures, np.array(last), np.concatenate([np.ravel(x) for x in found])


def child(method: str, steps: int, output: Path) -> None:
    problem = Problem()
    if method.startswith("ours"):
        figures, last, gradient = run_ours(problem, steps, "float32" if "float32" in method else "float64")
    elif method == "Warp tape":
        figures, last, gradient = run_tape(problem, steps)
    elif method == "torch":
        figures, last, gradient = run_torch(problem, steps)
    else:
        figures, last, gradient = run_jax(problem, steps, "checkpoint" in method)
    np.concatenate([last, gradient]).tofile(output)
    print(json.dumps(figures))


# -- the comparison


def run(method: str, steps: int, folder: Path, seconds: float) -> tuple[dict, np.ndarray | None]:
    """Figures of one method, and its last state and gradient; instead a sentence that says why there are none."""
    output = folder / "gradient.bin"
    output.unlink(missing_ok=True)
    if method in CPP:
        try:
            cpp_drivers.program(method, folder)
        except cpp_drivers.Missing as error:
            return {"refused": str(error)}, None
        command = [cpp_drivers.program(method, folder), folder / "model", steps, output]
    else:
        command = [sys.executable, __file__, "--child", method, steps, output]
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=seconds, cwd=folder)
    except subprocess.TimeoutExpired:
        return {"refused": f"more than {seconds:.0f} s"}, None
    if done.returncode != 0 or not done.stdout.strip():
        return {"refused": (done.stderr.strip().splitlines() or ["killed, as when memory ends"])[-1]}, None
    return json.loads(done.stdout.strip().splitlines()[-1]), np.fromfile(output)


def compare(method: str, steps: int, figures: dict, found: np.ndarray, ours: np.ndarray, state: int) -> dict:
    """The row of a table, if the method computes what ours does."""
    row = {"method": method, "steps": steps, **figures}
    single = "float32" in method
    error = float(np.abs(found[:state] - ours[:state]).max())
    gradient = found[state:]
    row["state_error"] = error
    if not np.isfinite(found).all() or error > (1e-3 if single else 1e-6):
        return row | {"refused": f"its last state differs from ours by {error:.1e}"}
    if len(gradient):
        row["gradient_error"] = float(np.abs(gradient - ours[state:]).max() / np.abs(ours[state:]).max())
        if row["gradient_error"] > (1e-2 if single else 1e-4):
            return row | {"refused": f"its gradient differs from ours by {row['gradient_error']:.1e}"}
    row["forward_ms"], row["backward_ms"] = (1e3 * row.pop(key) / steps for key in ("forward_s", "backward_s"))
    row["memory_mb"] = row["peak_mb"] - row["before_mb"] + row.get("disk_mb", 0.0)
    return row


def measure(methods: list[str], horizons: list[int], seconds: float) -> list[dict]:
    problem = Problem()
    state = len(problem.state)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem.write(folder / "model")
        for method in {"ours", "ours float32", "Warp tape"}.intersection(methods):
            run(
                method, 1, folder, 600
            )  # a process that compiles leaves free memory behind, which hides what it takes later
        for steps in horizons:
            _, ours = run("ours", steps, folder, 600)
            if ours is None:
                raise SystemExit("our own simulator did not run.")
            for method in methods:
                machine.progress(f"{method}, {steps} steps")
                late = [r for r in rows if r["method"] == method and "refused" in r and "more than" in r["refused"]]
                figures, found = (
                    ({"refused": late[-1]["refused"]}, None) if late else run(method, steps, folder, seconds)
                )
                if found is None:
                    rows.append({"method": method, "steps": steps, **figures})
                else:
                    rows.append(compare(method, steps, figures, found, ours, state))
    return rows


def tables(rows: list[dict]) -> str:
    horizons = sorted({r["steps"] for r in rows})
    parts = []
    kinds = {
        "forward_ms": "Forward, ms per step",
        "backward_ms": "Backward, ms per step",
        "memory_mb": "Memory beyond the process, MB (ADOL-C: with the files that its tape goes to)",
    }
    for key, title in kinds.items():
        lines = []
        for method in dict.fromkeys(r["method"] for r in rows):
            if method == "C++ doubles" and key == "backward_ms":
                continue
            cells = {r["steps"]: r.get(key, "-") for r in rows if r["method"] == method}
            lines.append([method, *(cells.get(n, "-") for n in horizons)])
        parts.append(f"{title}\n\n" + machine.table(["method", *map(str, horizons)], lines))
    reasons = dict.fromkeys(f"{r['method']}, {r['steps']} steps: {r['refused']}." for r in rows if "refused" in r)
    return "\n\n".join([*parts, "\n".join([*reasons, PAPER])])


def goals(rows: list[dict]) -> dict:
    """How many times faster backward, and smaller, ours is than the best autodiff, at the longest horizon."""
    steps = max(r["steps"] for r in rows)
    here = [r for r in rows if r["steps"] == steps and "refused" not in r and r["method"] != "C++ doubles"]
    ours = next((r for r in here if r["method"] == "ours"), None)
    others = [r for r in here if not r["method"].startswith("ours")]
    if ours is None or not others:
        return {"steps": steps}
    # jets do all their work forward: the whole gradient is what can be compared
    whole = min(others, key=lambda r: r["forward_ms"] + r["backward_ms"])
    back = min((r for r in others if r["method"] != "Ceres jets"), key=lambda r: r["backward_ms"], default=None)
    small = min(others, key=lambda r: r["memory_mb"])
    answer = {
        "steps": steps,
        "whole_gradient": (whole["forward_ms"] + whole["backward_ms"]) / (ours["forward_ms"] + ours["backward_ms"]),
        "whole_gradient_against": whole["method"],
        "memory": small["memory_mb"] / max(ours["memory_mb"], 1e-3),
        "memory_against": small["method"],
    }
    if back:
        answer |= {"backward": back["backward_ms"] / ours["backward_ms"], "backward_against": back["method"]}
    return answer


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=3, metavar=("METHOD", "STEPS", "OUTPUT"), help=argparse.SUPPRESS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--steps", nargs="+", type=int)
    parser.add_argument("--seconds", type=float, default=600.0, help="for each run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="short horizons, and no PyTorch or JAX")
    parser.add_argument("--output", type=Path, default=machine.RESULTS / "autodiff.json")
    options = parser.parse_args(arguments)
    if options.child:
        child(options.child[0], int(options.child[1]), Path(options.child[2]))
        return {}
    methods = [m for m in options.methods if not options.quick or m not in ("torch", "jax", "jax checkpoint")]
    rows = measure(methods, options.steps or list(QUICK_STEPS if options.quick else STEPS), options.seconds)
    results = {"machine": machine.describe(), "scene": SCENE, "dt": DT, "iterations": ITERATIONS, "rows": rows}
    results["goals"] = goals(rows)
    machine.write_json(options.output, results)
    print(tables(rows))
    print(json.dumps(results["goals"], indent=1))
    return results


if __name__ == "__main__":
    main()
