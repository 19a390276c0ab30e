"""Adjoints of the stages that steps with impacts add, against central differences of their own forward.

Whole steps, and rollouts with impacts, are in test_impact_gradients.py.
"""

from dataclasses import replace
from functools import cache

import torch
import warp as wp
from gradient_zoo import zoo_states
from test_adjoint_contact_stages import GEOMETRY, touching_zoo
from test_adjoint_stages import OPTIONS, SIZES, Stage, array2, normal, real, simulator, zoo
from warp_articulated.kernels.step import make_step

TIME, SHARE = 0.7, 0.4  # of the step's path, s and share of the change of the rates


@cache
def moving_kernel():
    s = make_step(real, replace(SIZES, impacts=1))
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar

    @wp.kernel(**OPTIONS)
    def move(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, dqd: array2, next_q: array2, q_bar: array2,
        d_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        for j in range(model.num_dofs):
            e.dofs[j].dqd = dqd[env, j]
        s.integrate.move(e, next_q[env], real(TIME), real(SHARE))
        if reverse != 0:
            e_bar.q = q_bar[env]
            s.integrate.move_adjoint(e, e_bar, real(TIME), real(SHARE))
            for j in range(model.num_dofs):
                d_bar[env, j] = e_bar.extra[j]

    return move


def test_adjoint_of_a_path_to_an_impact_matches_differences():
    sim = zoo()
    q, qd, _ = zoo_states(sim)
    values = {"q": q, "qd": qd, "dqd": normal(1, *qd.shape)}
    bars = {"q": normal(2, *q.shape), "d": torch.full_like(qd, torch.nan)}
    stage = Stage(sim, moving_kernel(), ["q", "qd", "dqd"], {"next_q": (sim.model.nq,)}, bars)
    out, _ = stage.reverse(values)
    gradients = {"q": out["q"], "qd": TIME * out["d"], "dqd": TIME * SHARE * out["d"]}
    stage.check(values, {"next_q": bars["q"]}, gradients)


@cache
def impact_kernel(sizes):
    s = make_step(real, sizes)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar

    @wp.kernel(**OPTIONS)
    def impact(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, next_qd: array2, branch: array2,
        q_bar: array2, qd_bar: array2, u_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """Rates after an impact of all that touches."""
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e.stage = 1
        e.model.dt = real(1.0)
        e.stages[0].press = real(0.0)
        s.evaluate(e)
        for j in range(model.num_dofs):
            next_qd[env, j] = qd[env, j] + e.dofs[j].dqd
        branch[env, 0] = real(e.num_contacts)
        branch[env, 1] = real(e.num_joint_rows)
        branch[env, 2] = real(e.sweeps)
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = qd_bar[env]
            e_bar.u = u_bar[env]
            s.rows.clear_contacts(e, e_bar)
            s.step_adjoint(e, e_bar)

    return impact


def test_adjoint_of_an_impact_matches_differences_for_state_bodies_and_contacts():
    """Few sweeps of the solver: its projections switch less often within a difference, and E is not zero."""
    sim = simulator(touching_zoo().model, 8, iterations=6, tolerance=0.0, restitution_threshold=0.1)
    q, qd, u = zoo_states(sim, seed=3)
    params = {"limit_restitution": torch.full((sim.num_envs, sim.model.nv), 0.3, dtype=torch.float64)}
    sizes = replace(sim._engine.sizes, impacts=1, sweeps=6)
    next_bar = normal(2, *qd.shape)
    bars = {"q": torch.zeros_like(q), "qd": next_bar, "u": torch.zeros_like(u)}
    stage = Stage(
        sim, impact_kernel(sizes), ["q", "qd"], {"next_qd": (sim.model.nv,), "branch": (3,)}, bars, step=1e-6,
        switches=("branch",),
    )  # fmt: skip
    values = {"q": q, "qd": qd, **params}
    contacts, limits, _ = stage.forward(values)["branch"].sum(0).tolist()
    assert contacts > 20 and limits > 3
    names = ["mass", "com", "inertia", *GEOMETRY, "armature", "friction", "restitution", "limit_restitution", "gravity"]
    out, gradients = stage.reverse(values, [*names, "damping", "kp", "erp", "cfm"])
    for name in ("gravity", "damping", "kp", "erp", "cfm"):  # no forces act in an instant, and nothing is soft
        assert not gradients.pop(name).any()
    # rounding of a difference over 1e-6 of an input: 1e-16 / 1e-6, times what the contact problem amplifies it
    stage.check(values, {"next_qd": next_bar}, gradients | {"q": out["q"], "qd": out["qd"]}, tolerance=1e-6)
