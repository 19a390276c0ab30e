"""Gradients of robots in every contact regime: flight, sticking, sliding, impact, joint limit, effort limit."""

from functools import cache

import numpy as np
import pytest
import torch
from gradient_zoo import POINTS, assert_agreement, directional_errors, small_simulator

import warp_articulated as wa
from warp_articulated.geometry.kinematics import lowest_point

REGIMES = ("flight", "sticking", "sliding", "impact", "limit", "effort")
EACH = 2  # environments per regime
STATES = EACH * len(REGIMES)
HORIZON = 20
SCENES = ("laikago_feet", "ant", "panda_throw", "racecar")
BEYOND = {  # the joint and the limit that it exceeds
    "laikago_feet": ("FR_lower", "upper"),
    "ant": ("ankle_1", "upper"),
    "panda_throw": ("joint4", "upper"),
    "racecar": ("left_steering", "lower"),
}


@cache
def simulator(scene, num_envs):
    """erp is small enough that feet 2 mm in the ground are still there after 20 steps, and that impacts bounce."""
    return small_simulator(wa.load(scene), num_envs, erp=0.02)


def robot(model, regime, rng):
    """q, qd, u, friction of a robot on the ground or above it."""
    q, qd = model.q0.copy(), rng.normal(scale=2e-4 if regime == "sticking" else 0.02, size=model.nv)
    u = model.u0 + rng.normal(scale=0.01, size=model.nu) / model.gear
    q[7:] += rng.normal(scale=3e-4, size=model.nq - 7)  # feet at different heights
    grounded = regime in ("sticking", "sliding", "impact")
    q[3:7] += rng.normal(scale=3e-4 if grounded else 0.3, size=4)
    q[2] += (-2e-3 if grounded else 0.3) - lowest_point(model, q)
    if regime == "sliding":
        qd[:2] = [np.cos(rng.uniform(0, 6)), np.sin(rng.uniform(0, 6))]
    if regime == "impact":
        qd[:3] = [0.3, 0.2, -1.5]
    return q, qd, u, {"sticking": 3.0, "sliding": 0.2}.get(regime, 0.5)


def thrower(model, regime, rng):
    """The same for the arm, whose ball is between its fingers, on the ground or in the air."""
    q, qd, u = model.q0.copy(), rng.normal(scale=0.02, size=model.nv), model.u0 + rng.normal(scale=0.1, size=model.nu)
    ball, speed = model.joint_q("root").start, model.joint_v("root").start
    q[model.joint_q("left_finger")] -= 4e-4
    q[model.joint_q("right_finger")] -= 5e-4
    if regime == "sliding":
        qd[speed + 2] = 0.5
    elif regime == "impact":
        q[ball : ball + 3] = [0.5, 0.1, 0.0095]
        qd[speed : speed + 3] = [0.3, 0.2, -1.5]
    elif regime != "sticking":
        q[ball : ball + 3] = [0.5, 0.1, 0.3]
    return q, qd, u, {"sticking": 3.0, "sliding": 0.005}.get(regime, 0.5)


@cache
def situations(scene):
    """q, qd, u, parameters of EACH environments per regime."""
    model, rng = wa.load(scene), np.random.default_rng(0)
    rows = []
    for regime in np.repeat(REGIMES, EACH):
        q, qd, u, friction = (thrower if scene == "panda_throw" else robot)(model, regime, rng)
        effort = model.effort.copy()
        if regime == "limit":
            joint, limit = BEYOND[scene]
            outward = 1 if limit == "upper" else -1
            q[model.joint_q(joint)] = getattr(model, limit)[model.joint_v(joint)] + 0.02 * outward
            qd[model.joint_v(joint)] = 0.5 * outward
            if scene == "laikago_feet":  # otherwise its drive would pull it back faster than the limit
                u[model.joint_names.index(joint) - 1] = q[model.joint_q(joint)].item() + 0.1
        if regime == "effort":  # half of the drives saturate
            u[::2] += 0.3 if scene == "laikago_feet" else 10.0
            effort = np.full(model.nu, 5.0)
        rows.append((q, qd, u, friction * np.ones(len(model.pairs)), 0.5 * np.ones(len(model.pairs)), effort))
    q, qd, u, friction, restitution, effort = (torch.tensor(np.array(x)) for x in zip(*rows, strict=True))
    damping = torch.tensor(model.damping)
    if (
        scene == "panda_throw"
    ):  # the ball's inertia is so small that difference quotients at zero damping would be mostly curvature
        damping[model.joint_v("root")] = torch.tensor([0.1] * 3 + [1e-3] * 3)
    return q, qd, u, {"friction": friction, "restitution": restitution, "effort_limit": effort,
                      "damping": damping.expand(len(q), -1)}  # fmt: skip


def environments(regime):
    return slice(EACH * REGIMES.index(regime), EACH * REGIMES.index(regime) + EACH)


@pytest.mark.parametrize("scene", SCENES)
def test_situations_stay_in_their_regime(scene):
    """Checks the premise of the tests below, which check impacts, limits and efforts by their sensitivities."""
    sim = simulator(scene, STATES)
    q, qd, u, params = situations(scene)
    qs, qds = sim.rollout(q, qd, u.repeat(HORIZON, 1, 1), params=params)
    assert not len(sim.diverged)
    for q, qd in zip(qs[:-1], qds[:-1], strict=True):
        found = sim.contacts(q, qd, u, params=params)
        normal = (found.impulses * found.normals).sum(-1)
        tangent = (found.impulses - normal[..., None] * found.normals).norm(dim=-1)
        edge = normal * params["friction"].gather(1, found.pairs.long())
        assert not found.active[environments("flight")].any()
        for regime in ("sticking", "sliding"):
            envs = environments(regime)
            loaded = normal[envs] > 0.0
            assert loaded.sum(1).min() >= 2
            if regime == "sticking":
                assert (tangent < 0.95 * edge)[envs][loaded].all()
            else:
                torch.testing.assert_close(tangent[envs][loaded], edge[envs][loaded], rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("steps", [1, HORIZON])
@pytest.mark.parametrize("scene", SCENES)
def test_gradient_matches_differences_in_every_regime(scene, steps):
    sim = simulator(scene, STATES * POINTS)
    q, qd, u, params = situations(scene)
    found = directional_errors(sim, q, qd, u, steps, directions=1, params=params)
    assert_agreement(found, ["q", "qd", "u", "gravity", "mass", "com", "inertia"])
    matters = {"sticking": "erp", "sliding": "friction", "impact": "restitution", "effort": "effort_limit"}
    for regime, name in {**matters, "limit": BEYOND[scene][1]}.items():
        assert found[name].slope[environments(regime)].abs().min() > 1e-4, (regime, name)
    assert found["friction"].slope[environments("flight")].abs().max() == 0.0
    assert found["effort_limit"].slope[environments("flight")].abs().max() == 0.0
