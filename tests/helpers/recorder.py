"""Records what the simulator computes for every scene, so that a refactoring can be compared bit by bit.

    python tests/helpers/recorder.py before.npz                      states and gradients of all scenes
    python tests/helpers/recorder.py after.npz --compare before.npz  record, and print the largest differences

Only public names are used, so an old checkout can be recorded with the same file. The committed digest in
tests/data/recorded.json is a few numbers per array; test_recorded.py compares with it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch

import warp_articulated as wa

DIGEST = Path(__file__).resolve().parent.parent / "data" / "recorded.json"
QUERIED = ("laikago_feet", "panda_throw")  # scenes that the other kernels are recorded with, too
STEPS, ENVS, DT = 100, 2, 1e-3
DROP = {"ant": 0.195}  # m; its default pose is above the ground


def inputs(scene: str, model: wa.Model, dtype: torch.dtype):
    """Start near the default pose, every environment a little different.

    A robot on a free root is lowered a little into the ground, so that its contacts act from the first step.
    """
    rng = np.random.default_rng(0)
    q = np.tile(model.q0, (ENVS, 1)) + rng.normal(scale=1e-3, size=(ENVS, model.nq))
    qd = rng.normal(scale=0.05, size=(ENVS, model.nv))
    if model.joint_type[0] == 0:
        start = int(model.q_start[0])
        q[:, start + 2] -= DROP.get(scene, 1e-3)
    u = model.u0 + rng.normal(scale=0.02, size=(STEPS, ENVS, model.nu)) / model.gear
    return [torch.tensor(x, dtype=dtype) for x in (q, qd, u)]


def weights(x: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=tuple(x.shape)), dtype=x.dtype)


def gradients(arrays: dict[str, np.ndarray], key: str, loss: torch.Tensor, leaves: dict[str, torch.Tensor]) -> None:
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    for name, grad in zip(leaves, found, strict=True):
        if grad is not None:
            arrays[f"{key}/d_{name}"] = grad.numpy()


def record(scene: str, precision: str, with_queries: bool = True) -> dict[str, np.ndarray]:
    """Arrays by name: states of a rollout, gradients by the start, the controls and every parameter."""
    model = wa.load(scene)
    sim = wa.Simulator(model, ENVS, device="cpu", dtype=precision, dt=DT)
    q, qd, u = inputs(scene, model, sim.dtype)
    # gravcomp is newer than the record; no scene has it, and passing it takes another kernel
    params = {name: value.clone().requires_grad_() for name, value in sim.params.items() if name != "gravcomp"}
    leaves = {"q": q.requires_grad_(), "qd": qd.requires_grad_(), "u": u.requires_grad_(), **params}
    qs, qds = sim.rollout(q, qd, u, params=params)
    key = f"{scene}/{precision}"
    arrays = {f"{key}/qs": qs.detach().numpy(), f"{key}/qds": qds.detach().numpy()}
    gradients(arrays, f"{key}/rollout", (qs * weights(qs, 1)).sum() + (qds * weights(qds, 2)).sum() * DT, leaves)
    if with_queries and scene in QUERIED:
        arrays |= queries(sim, leaves, params, key)
    return arrays


def queries(sim: wa.Simulator, leaves: dict[str, torch.Tensor], params: dict, key: str) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    q, qd, u = leaves["q"], leaves["qd"], leaves["u"][0].detach().requires_grad_()
    states = {"q": q, "qd": qd, "u": u, **params}
    found = sim.contacts(q, qd, u, params=params)
    outputs = {name: getattr(found, name) for name in ("points", "normals", "depths", "impulses")}
    loss = sum((x * weights(x, 3) * found.active.reshape(x.shape[:2] + (1,) * (x.ndim - 2))).sum()
               for x in outputs.values())  # fmt: skip
    gradients(arrays, f"{key}/contacts", loss, states)
    arrays |= {f"{key}/contacts/{name}": x.detach().numpy() for name, x in outputs.items()}
    poses = sim.link_poses(q, params=params)
    gradients(arrays, f"{key}/link_poses", (poses * weights(poses, 4)).sum(), states)
    qdd = sim.forward_dynamics(q, qd, weights(qd, 5), params=params)
    gradients(arrays, f"{key}/forward_dynamics", (qdd * weights(qdd, 6)).sum(), states)
    with torch.no_grad():
        A, B = sim.jacobians(q, qd, u)
        diagnosis = sim.diagnose(q[None], qd[None], u[None])
        plain = {
            "link_poses": poses, "forward_dynamics": qdd, "mass_matrix": sim.mass_matrix(q), "A": A, "B": B,
            "margin": diagnosis.margin, "gap": diagnosis.gap, "residual": diagnosis.residual,
            "contacts_found": diagnosis.contacts, "joint_rows": diagnosis.joint_rows,
        }  # fmt: skip
    return arrays | {f"{key}/{name}": x.detach().numpy() for name, x in plain.items()}


def digest(x: np.ndarray) -> list[float]:
    """A random projection, which changes when any entry does, and the largest entry's size."""
    flat = np.asarray(x, float).ravel()
    flat = np.where(np.isfinite(flat), flat, 0.0)
    signs = np.random.default_rng(7).choice([-1.0, 1.0], flat.size)
    return [float(f"{value:.13g}") for value in (signs @ flat, np.abs(flat).max(initial=0.0))]


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference over the largest entry."""
    a, b = (np.asarray(x, float) for x in (a, b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.abs(np.where(same, 0.0, a - b)).max() / max(np.abs(b[np.isfinite(b)]).max(initial=0.0), 1e-300))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="an .npz file with all arrays")
    parser.add_argument("--scenes", nargs="*", default=list(wa.scene_names()))
    parser.add_argument("--precisions", nargs="*", default=["float64", "float32"])
    parser.add_argument("--compare", type=Path, help="an .npz file of an earlier run")
    parser.add_argument("--digest", action="store_true", help=f"also write {DIGEST.name}, the committed reference")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before = dict(np.load(options.compare)) if options.compare else {}
    arrays: dict[str, np.ndarray] = {}
    for scene in options.scenes:
        for precision in options.precisions:
            found = record(scene, precision)
            arrays |= found
            errors = {name: difference(x, before[name]) for name, x in found.items() if name in before}
            worst = max(errors, key=errors.__getitem__, default="")
            equal = sum(error == 0.0 for error in errors.values())
            result = f"{equal} of {len(errors)} equal, worst {errors[worst]:.1e} {worst}" if errors else "recorded"
            print(f"{scene:16} {precision}  {len(found)} arrays, {result}", flush=True)
    np.savez_compressed(options.output, **arrays)
    if options.digest:
        DIGEST.parent.mkdir(exist_ok=True)
        lines = (f"{json.dumps(name)}: {json.dumps(digest(x))}" for name, x in arrays.items())
        DIGEST.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
