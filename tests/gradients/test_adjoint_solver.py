"""Adjoint of the contact solver alone, on random dense problems, against central differences; and of contacts' bias.

A_bar is b_bar x^T + E. A is changed symmetrically, with its diagonal, on which the lengths of the steps depend.
"""

from functools import cache

import numpy as np
import pytest
import torch
import warp as wp
from test_adjoint_stages import OPTIONS, SIZES, Stage, array2, array3, normal, real, zoo
from warp_articulated.kernels.step import make_step
from warp_articulated.kernels.types import DRY_FRICTION, LIMIT


@cache
def pgs_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar
    vec3, mat33 = t.vec3, t.mat33

    @wp.func
    def way(pyramid: int, history: array2, sweep: int, row: int, mu: real, low: real, high: real):
        """Which way the projection of a row goes; mu < 0: of a joint's row, which has bounds."""
        y = history[sweep, row]
        if mu >= real(0.0):
            n = row - row % 3
            low = real(0.0)
            high = real(wp.inf)
            if row > n:
                high = mu * history[sweep, n]
                low = -high
                if pyramid == 0:
                    y = wp.length(wp.vector(history[sweep, n + 1], history[sweep, n + 2]))
        return wp.where(y >= high, real(2.0), wp.where(y <= low, real(1.0), real(0.0)))

    @wp.kernel(**OPTIONS)
    def pgs(
        model: Model, params: Params, reverse: int, A: array3, b: array2, mu: array2, bound: array2, x: array2,
        target: array2, scale: array2, sweeps: array2, switches: array2,
        x_bar: array2, b_bar: array2, mu_bar: array2, bound_bar: array2, E: array3, E_diagonal: array2,
        params_bar: ParamsBar,
    ):  # fmt: skip
        """x and, before the projection, the targets of the last sweep. Joint rows: a limit, then rows within bounds.

        switches: a number per row that tells when its projection changed its way.
        """
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        nc = mu.shape[1]
        nj = bound.shape[1]
        count = 3 * nc + nj
        for i in range(count):
            e.y[i] = b[env, i]
            for j in range(count):
                e.A[i, j] = real(0.5) * (A[env, i, j] + A[env, j, i])
        for k in range(nc):
            G = mat33()
            for i in range(3):
                for j in range(3):
                    G[i, j] = e.A[3 * k + i, 3 * k + j]
                    e.A[3 * k + i, 3 * k + j] = real(0.0)
            e.contacts[k].G = G
            e.contacts[k].mu = mu[env, k]
        for k in range(nj):
            e.joint_rows[k].kind = wp.where(k == 0, LIMIT, DRY_FRICTION)
            e.joint_rows[k].low = wp.where(k == 0, real(0.0), -bound[env, k])
            e.joint_rows[k].high = wp.where(k == 0, real(wp.inf), bound[env, k])
        e.num_contacts = nc
        e.num_joint_rows = nj
        s.pgs.solve(e)
        done = e.sweeps
        sweeps[env, 0] = real(done)
        for i in range(count):
            target[env, i] = e.history[done - 1, i]
            scale[env, i] = e.scale[i]
            m = real(-1.0)
            low = real(0.0)
            high = real(0.0)
            if i < 3 * nc:
                x[env, i] = e.contacts[i / 3].x[i % 3]
                m = mu[env, i / 3]
            else:
                x[env, i] = e.joint_rows[i - 3 * nc].x
                low = e.joint_rows[i - 3 * nc].low
                high = e.joint_rows[i - 3 * nc].high
            code = real(0.0)
            last = real(0.0)
            for sweep in range(done):
                now = way(model.pyramid, e.history, sweep, i, m, low, high)
                if now != last:
                    code = real(1.7) * code + real(3 * sweep) + now
                last = now
            switches[env, i] = code
        if reverse != 0:
            for i in range(count):
                e_bar.x[i] = x_bar[env, i] * e.scale[i]
            for k in range(nc):
                e_bar.contacts[k].b = vec3()
                e_bar.contacts[k].mu = real(0.0)
            for k in range(nj):
                e_bar.joint_rows[k].b = real(0.0)
                e_bar.joint_rows[k].bound = real(0.0)
            s.pgs.solve_adjoint(e, e_bar)
            for k in range(nc):
                mu_bar[env, k] = e_bar.contacts[k].mu
                E_diagonal[env, 3 * k] = e_bar.contacts[k].E
                for i in range(3):
                    b_bar[env, 3 * k + i] = e_bar.contacts[k].b[i]
            for k in range(nj):
                bound_bar[env, k] = e_bar.joint_rows[k].bound
                E_diagonal[env, 3 * nc + k] = e_bar.joint_rows[k].E
                b_bar[env, 3 * nc + k] = e_bar.joint_rows[k].b
            for i in range(count):
                for j in range(count):
                    E[env, i, j] = wp.where(e_bar.with_E, e_bar.E[i, j], real(0.0))

    return pgs


def random_problems(count, contacts, joint_rows, jamming=False, seed=0):
    """A of less rank than rows, softened on the normals. Jamming: normals move little, and with a tangent."""
    n = 3 * contacts + joint_rows
    J = normal(seed, count, n, n - 2)
    if jamming:
        J[:, : 3 * contacts : 3] = 0.3 * J[:, : 3 * contacts : 3] + 0.4 * J[:, 1 : 3 * contacts : 3]
    A = J @ J.mT / n
    normals = torch.arange(0, 3 * contacts, 3)
    A[:, normals, normals] += 0.05
    b = normal(seed + 1, count, n)
    b[:, normals] -= 0.5
    share = torch.as_tensor(np.random.default_rng(seed + 2).uniform(size=(count, contacts + joint_rows)))
    return {"A": A, "b": b, "mu": 0.2 + share[:, :contacts], "bound": 0.1 + 0.5 * share[:, contacts:]}


class Solver:
    """The solver on a batch of problems, for random x_bar: what it found, and its adjoint."""

    def __init__(self, problems, friction, tolerance=0.0, **options):
        self.problems, self.pyramid = problems, friction == "pyramid"
        n, rows = problems["b"].shape
        self.x_bar = normal(7, n, rows)
        bars = {
            "x": self.x_bar,
            **{key: torch.full_like(problems[key], torch.nan) for key in ("b", "mu", "bound", "A")},
        }
        bars["diagonal"] = torch.full_like(self.x_bar, torch.nan)
        writes = {"x": (rows,), "target": (rows,), "scale": (rows,), "sweeps": (1,), "switches": (rows,)}
        sim = zoo(n, friction=friction, tolerance=tolerance, **options)
        # without a tolerance, only sweeps that change nothing are left out
        switches = ("sweeps", "switches") if tolerance else ("switches",)
        self.stage = Stage(sim, pgs_kernel(), list(problems), writes, bars, step=1e-5, switches=switches)
        self.written = self.stage.forward(problems)
        bars, _ = self.stage.reverse(problems)
        self.E, self.E_diagonal = bars["A"], bars["diagonal"]
        A_bar = bars["b"][:, :, None] * self.written["x"][:, None, :] + self.E
        self.gradients = {"A": 0.5 * (A_bar + A_bar.mT), **{name: bars[name] for name in ("b", "mu", "bound")}}

    def check(self, names=("A", "b", "mu", "bound")):
        gradients = {name: self.gradients[name] for name in names}
        self.stage.check(self.problems, {"x": self.x_bar}, gradients)

    def modes(self):
        """What the rows did in the last sweep: names, with how often."""
        mu, bound = self.problems["mu"], self.problems["bound"]
        x, y = (self.written[name][:, : 3 * mu.shape[1]].unflatten(1, (-1, 3)) for name in ("x", "target"))
        row = self.written["x"][:, 3 * mu.shape[1] :]
        closed, limit = x[..., 0] > 0, (mu * x[..., 0])[..., None]
        beyond = y[..., 1:].abs() > limit if self.pyramid else y[..., 1:].norm(dim=-1, keepdim=True) > limit
        found = {
            "open": ~closed,
            "stick": closed & ~beyond.any(-1),
            "slide": closed & beyond.all(-1),
            "slide along one axis": closed & beyond.any(-1) & ~beyond.all(-1),
            "limit open": row[:, 0] == 0,
            "limit closed": row[:, 0] > 0,
            "at the low bound": row[:, 1:] == -bound[:, 1:],
            "within bounds": row[:, 1:].abs() < bound[:, 1:],
            "at the high bound": row[:, 1:] == bound[:, 1:],
        }
        if not self.pyramid:
            del found["slide along one axis"]
        return {name: int(some.sum()) for name, some in found.items()}


@pytest.mark.parametrize("contacts, joint_rows", [(2, 3), (4, 3)])
@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("sweeps", [1, 2, 5, 30])
def test_solver_adjoint_matches_differences_after_any_number_of_sweeps(sweeps, friction, contacts, joint_rows):
    solver = Solver(random_problems(12, contacts, joint_rows), friction, iterations=sweeps)
    assert all(solver.modes().values()), solver.modes()
    solver.check()
    # the compliances of normals and joints take the diagonal of E from the bars
    soft = [*range(0, 3 * contacts, 3), *range(3 * contacts, 3 * contacts + joint_rows)]
    diagonal = solver.E.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(solver.E_diagonal[:, soft], diagonal[:, soft], rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_solver_adjoint_matches_differences_after_an_early_exit(friction):
    solver = Solver(random_problems(12, 3, 3), friction, iterations=100, tolerance=1e-4)
    sweeps = solver.written["sweeps"]
    assert len(sweeps[sweeps < 100].unique()) > 3, sweeps
    solver.check()


def test_solver_adjoint_matches_differences_when_friction_jams_the_normals():
    problems = random_problems(12, 3, 3, jamming=True)
    problems["mu"] *= 2.0
    solver = Solver(problems, "cone", iterations=8)
    normals = torch.arange(0, 9, 3)
    steps = solver.written["scale"][:, normals] * problems["A"][:, normals, normals]
    assert {1.0, 0.5, 0.25} <= set(steps.numpy().round(12).ravel()), steps  # of the full ones
    solver.check()


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_matrix_counts_through_b_alone_once_the_solver_has_converged(friction):
    problems = random_problems(12, 2, 3)
    problems["A"] += 0.2 * torch.eye(9)
    solver = Solver(problems, friction, iterations=100)
    assert all(solver.modes().values()), solver.modes()
    assert (solver.written["sweeps"] < 100).any()  # some impulses came to rest to the last bit
    solver.check()
    # 100 sweeps leave 2e-13 of E in the slowest of these problems
    assert solver.E.abs().max() < 1e-11 * solver.gradients["A"].abs().max()


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_rows_that_nothing_can_move_have_no_gradient(friction):
    problems = random_problems(12, 3, 3)
    fixed = [2, 3, 4, 5, 10]  # a tangent, a contact, a row of a joint
    problems["A"][:, fixed] = 0.0
    problems["A"][:, :, fixed] = 0.0
    problems["b"][:, [2, 4, 5, 10]] = 0.0
    solver = Solver(problems, friction, iterations=5)
    own = [3, 10] if friction == "cone" else fixed  # tangents in the cone share their steps
    assert not solver.written["x"][:, [3, 4, 5, 10]].any()
    assert not solver.gradients["b"][:, own].any()
    assert solver.gradients["A"].isfinite().all()
    solver.check(["b", "mu", "bound"])


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_without_friction_its_gradient_is_the_one_sided_one(friction):
    problems = random_problems(12, 1, 3)
    problems["mu"].zero_()
    solver = Solver(problems, friction, iterations=5)
    h = 1e-5
    x = [solver.stage.forward({**problems, "mu": problems["mu"] + k * h})["x"] for k in range(3)]
    expected = ((4.0 * x[1] - 3.0 * x[0] - x[2]) / (2.0 * h) * solver.x_bar).sum(1, keepdim=True)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(solver.gradients["mu"], expected, rtol=1e-7, atol=1e-8)  # h^2 and 1e-16 / h


# -- bias of the right-hand side


@cache
def bias_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar
    vec3, Contact, ContactBar = t.vec3, t.Contact, t.ContactBar

    @wp.kernel(**OPTIONS)
    def contact_bias(
        model: Model, params: Params, reverse: int, z: array2, approach: array2, x: array2, bias: array2, cfm: array2,
        z_bar: array2, approach_bar: array2, bias_bar: array2, cfm_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """Of one contact of each pair."""
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        for k in range(z.shape[1]):
            contact = Contact()
            contact.pair = k
            contact.z = z[env, k]
            bias[env, k] = s.rows.contact.contact_bias(e, contact, approach[env, k])
            cfm[env, k] = contact.cfm
            if reverse != 0:
                contact.x = vec3(x[env, k], real(wp.nan), real(wp.nan))
                bar = ContactBar()
                bar.z = z_bar[env, k]
                bar.b = vec3(bias_bar[env, k], real(wp.nan), real(wp.nan))
                bar.E = cfm_bar[env, k] - bias_bar[env, k] * x[env, k]  # the adjoint of cfm is b_bar x + E
                approach_bar[env, k] = s.rows.contact.contact_bias_adjoint(e, e_bar, contact, bar)
                z_bar[env, k] = bar.z

    return contact_bias


def test_bias_adjoint_matches_differences_for_penetration_capped_push_and_bounce():
    sim = zoo(max_push_speed=2.0, restitution_threshold=0.3)
    n, pairs = sim.num_envs, len(sim.model.pairs)
    z, approach, x = -0.2 * normal(1, n, pairs).abs() - 1e-3, normal(2, n, pairs), normal(3, n, pairs)
    values = {"z": z, "approach": approach, "x": x}
    weights = {"bias": normal(4, n, pairs), "cfm": normal(5, n, pairs)}
    bars = {"z": normal(6, n, pairs), "approach": torch.full_like(z, torch.nan), **weights}
    stage = Stage(sim, bias_kernel(), list(values), {"bias": (pairs,), "cfm": (pairs,)}, bars)
    push = sim.params["erp"] * z / sim.dt
    bounce = sim.params["restitution"] * approach
    gaps = torch.stack([push + 2.0, approach + 0.3, bounce - push.clamp(min=-2.0)])
    weights["bias"][(gaps.abs() < 1e-2).any(0)] = 0.0  # within a difference of a switch
    weights["cfm"][(gaps.abs() < 1e-2).any(0)] = 0.0
    for branch in (
        (push > -2.0) & (approach > -0.3),
        (push > -2.0) & (approach < -0.3) & (bounce > push),
        (push < -2.0) & (bounce > -2.0),
        (approach < -0.3) & (bounce < push.clamp(min=-2.0)),
    ):
        assert (branch & (weights["bias"] != 0)).sum() > 5
    out, gradients = stage.reverse(values, ["erp", "cfm", "restitution"])
    gradients |= {"z": out["z"] - bars["z"], "approach": out["approach"]}
    stage.check(values, weights, gradients)
