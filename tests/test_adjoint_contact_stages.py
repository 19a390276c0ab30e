"""Adjoints of the stages of contacts against central differences of their own forward: solver, Delassus matrix, rows."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import warp as wp
from gradient_zoo import zoo_model, zoo_states
from test_adjoint_stages import OPTIONS, SIZES, Stage, array2, array3, normal, real, zoo

from warp_articulated.kernels.rollout import make_stages
from warp_articulated.kernels.types import DRY_FRICTION, LIMIT
from warp_articulated.model import ShapeType, link_transforms

# -- the solver


@cache
def pgs_kernel():
    s = make_stages(real, SIZES)
    step, adjoint, vec3, mat33 = s.step, s.step.adjoint, s.t.vec3, s.t.mat33
    Model, Params, ParamsBar, Memory, MemoryBar = s.t.Model, s.t.Params, s.t.ParamsBar, step.Memory, adjoint.MemoryBar

    @wp.kernel(**OPTIONS)
    def pgs(
        model: Model, params: Params, reverse: int, A: array3, b: array2, mu: array2, bound: array2, x: array2,
        target: array2, scale: array2, sweeps: array2, x_bar: array2, b_bar: array2, mu_bar: array2, bound_bar: array2,
        E: array3, E_diagonal: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """x and, before the projection, the targets of the last sweep. Joint rows: a limit, then rows within bounds."""
        env = wp.tid()
        memory = Memory(real(wp.nan))
        memory_bar = MemoryBar(real(wp.nan))
        work = step.view(memory)
        bar = adjoint.view_bar(memory_bar)
        nc = mu.shape[1]
        nj = bound.shape[1]
        count = 3 * nc + nj
        for i in range(count):
            work.y[i] = b[env, i]
            for j in range(count):
                work.A[i, j] = real(0.5) * (A[env, i, j] + A[env, j, i])
        for k in range(nc):
            G = mat33()
            for i in range(3):
                for j in range(3):
                    G[i, j] = work.A[3 * k + i, 3 * k + j]
                    work.A[3 * k + i, 3 * k + j] = real(0.0)
            work.contacts[k].G = G
            work.contacts[k].mu = mu[env, k]
        for k in range(nj):
            work.joint_rows[k].kind = wp.where(k == 0, LIMIT, DRY_FRICTION)
            work.joint_rows[k].low = wp.where(k == 0, real(0.0), -bound[env, k])
            work.joint_rows[k].high = wp.where(k == 0, real(wp.inf), bound[env, k])
        s.pgs.prepare(
            model, nc, nj, work.contacts, work.joint_rows, work.A, work.rows, work.scale, work.scale_packs, work.y_packs
        )
        done, _change = s.pgs.solve(
            model, nc, nj, work.rows, work.contacts, work.joint_rows, work.y, work.y_packs, bar.history
        )
        sweeps[env, 0] = real(done)
        for i in range(count):
            target[env, i] = bar.history[done - 1, i]
            scale[env, i] = work.scale[i]
            if i < 3 * nc:
                x[env, i] = work.contacts[i / 3].x[i % 3]
            else:
                x[env, i] = work.joint_rows[i - 3 * nc].x
        if reverse != 0:
            for i in range(count):
                bar.x[i] = x_bar[env, i] * work.scale[i]
            for k in range(nc):
                bar.contacts[k].b = vec3()
                bar.contacts[k].mu = real(0.0)
            for k in range(nj):
                bar.joint_rows[k].b = real(0.0)
                bar.joint_rows[k].bound = real(0.0)
            weight = s.pgs.solve_adjoint(
                model, nc, nj, done, work.rows, work.scale, work.contacts, work.joint_rows, bar.history, bar.x,
                bar.x_packs, bar.dx, bar.dx_packs, bar.E, bar.E_packs, bar.contacts, bar.joint_rows,
            )  # fmt: skip
            with_E = s.pgs.symmetrise(
                nc, nj, weight, work.contacts, work.joint_rows, bar.contacts, bar.joint_rows, bar.E
            )
            for k in range(nc):
                mu_bar[env, k] = bar.contacts[k].mu
                E_diagonal[env, 3 * k] = bar.contacts[k].E
                for i in range(3):
                    b_bar[env, 3 * k + i] = bar.contacts[k].b[i]
            for k in range(nj):
                bound_bar[env, k] = bar.joint_rows[k].bound
                E_diagonal[env, 3 * nc + k] = bar.joint_rows[k].E
                b_bar[env, 3 * nc + k] = bar.joint_rows[k].b
            for i in range(count):
                for j in range(count):
                    E[env, i, j] = wp.where(with_E, bar.E[i, j], real(0.0))

    return pgs


def random_problems(count, contacts, joint_rows, seed=0, jam=0.0):
    """Of less rank than rows, softened on the normals; `jam` mixes tangents into the normals."""
    n = 3 * contacts + joint_rows
    J = normal(seed, count, n, n - 2)
    J[:, : 3 * contacts : 3] += jam * J[:, 1 : 3 * contacts : 3]
    A = J @ J.mT / n
    normals = torch.arange(0, 3 * contacts, 3)
    A[:, normals, normals] += 0.05
    b = normal(seed + 1, count, n)
    b[:, : 3 * contacts : 3] -= 0.5
    spread = torch.as_tensor(np.random.default_rng(seed + 2).uniform(size=(count, contacts + joint_rows)))
    return {"A": A, "b": b, "mu": 0.2 + spread[:, :contacts], "bound": 0.1 + 0.5 * spread[:, contacts:]}


def solver_stage(sim, problems, x_bar):
    n, rows = x_bar.shape
    bars = {"x": x_bar, **{name: torch.full_like(problems[name], torch.nan) for name in ("b", "mu", "bound", "A")}}
    bars["E_diagonal"] = torch.zeros_like(x_bar)
    writes = dict.fromkeys(("x", "target", "scale"), (rows,)) | {"sweeps": (1,)}
    return Stage(sim, pgs_kernel(), list(problems), writes, bars, step=1e-5)


def solver_gradients(stage, problems, x):
    """Gradients of the problem, and E."""
    bars, _ = stage.reverse(problems)
    b, E = bars["b"], bars["A"]
    rank_one = b[:, :, None] * x[:, None, :]
    A = 0.5 * (rank_one + rank_one.mT + E)
    return {"b": b, "mu": bars["mu"], "bound": bars["bound"], "A": A}, E, bars["E_diagonal"]


def modes(problems, written, pyramid):
    """Names of what rows did in the last sweep."""
    contacts = problems["mu"].shape[1]
    x, y = written["x"][:, : 3 * contacts].unflatten(1, (-1, 3)), written["target"][:, : 3 * contacts].unflatten(1, (-1, 3))
    closed = x[..., 0] > 0
    limit = (problems["mu"] * x[..., 0])[..., None]
    beyond = (y[..., 1:].abs() > limit) if pyramid else (y[..., 1:].norm(dim=-1, keepdim=True) > limit)
    row, bound = written["x"][:, 3 * contacts :], problems["bound"]
    found = {
        "open": ~closed,
        "stick": closed & ~beyond.any(-1),
        "slide": closed & beyond.all(-1),
        "limit open": row[:, 0] == 0,
        "limit closed": row[:, 0] > 0,
        "low": row[:, 1:] == -bound[:, 1:],
        "within": row[:, 1:].abs() < bound[:, 1:],
        "high": row[:, 1:] == bound[:, 1:],
    }
    if pyramid:
        found["slide along one axis"] = closed & beyond.any(-1) & ~beyond.all(-1)
    return {name: bool(some.any()) for name, some in found.items()}


@pytest.mark.parametrize("contacts, joint_rows", [(2, 3), (4, 3)])
@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("sweeps", [1, 2, 5, 30])
def test_solver_adjoint_matches_differences_after_any_number_of_sweeps(sweeps, friction, contacts, joint_rows):
    problems = random_problems(12, contacts, joint_rows)
    check_solver(problems, friction, iterations=sweeps)


def check_solver(problems, friction, **options):
    n, rows = problems["b"].shape
    sim = zoo(n, friction=friction, **options)
    x_bar = normal(7, n, rows)
    stage = solver_stage(sim, problems, x_bar)
    written = stage.forward(problems)
    gradients, E, diagonal = solver_gradients(stage, problems, written["x"])
    print(friction, options, stage.errors(problems, {"x": x_bar}, gradients), E.abs().max().item())
    stage.check(problems, {"x": x_bar}, gradients)
    print(modes(problems, written, friction == "pyramid"))
    return written, E
