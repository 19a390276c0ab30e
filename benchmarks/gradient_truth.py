"""Gradients against what is known: closed forms, a reference integrator, differences of the program itself.

    python benchmarks/gradient_truth.py    # prints the table; gradient_report.py puts it into docs/gradient_report.md

Two questions, never mixed: "self-consistent" asks whether a gradient is the derivative of the program as it runs (fixed
steps of semi-implicit Euler), "true" whether it is the derivative of the continuous motion. After an impact a program
with fixed steps can be right in the first sense and wrong in the second, even in sign: cases W and D.

All bodies live in one model, so that one pair of kernels serves all cases. The puck and the block start at their
resting depth, with the com at the height of the contacts: then friction has no lever, every step carries the weight
exactly, and the closed forms of the sliding cases hold to rounding (the block's four corners: to what 50 sweeps leave).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import machine
import numpy as np
import torch
from scipy.integrate import solve_ivp

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Model, Shape, ShapeType, assemble

H, G = 1e-3, 9.81  # s, m/s^2
MASS = 2.0  # kg, puck and block
MU, E = 0.3, 0.5
HEADING = (np.cos(0.5), np.sin(0.5))  # along no tangent and no side of the block
ROD = {"mass": 1.0, "length": 0.5, "inertia": 0.02, "damping": 0.05}  # kg, m to the com, kg m^2 about it, N m s
SELF, TRUE = "self-consistent", "true"
LATE = "wrong: the step at which it hits does not move with the start"
FIRST = "right, first order in dt"


@dataclass(frozen=True)
class Record:
    """One line of the table. SI units; `error` is |ours - expected| over |expected|, or over `scale` where that is 0."""

    case: str
    quantity: str
    kind: str  # SELF or TRUE
    ours: float
    expected: float
    remark: str = ""
    scale: float | None = None
    deviation: float | None = None  # of vectors and matrices, whose `ours` and `expected` are norms
    ours32: float | None = None  # the same in float32
    error32: float | None = None

    @property
    def error(self) -> float:
        difference = abs(self.ours - self.expected) if self.deviation is None else self.deviation
        return difference / (abs(self.expected) if self.scale is None else self.scale)


# -- the model, and running it


@cache
def room() -> Model:
    """Floor and wall, puck and block on the floor, ball and cart on rails, two pendulums, a spinning top."""
    z, quarter = np.array([0.0, 0.0, 1.0]), np.array([0.0, -np.sqrt(0.5), 0.0, np.sqrt(0.5)])
    hinge = {"joint_type": JointType.REVOLUTE, "axis": np.array([0.0, 1.0, 0.0])}
    rod = {"mass": ROD["mass"], "com": -ROD["length"] * z, "inertia": ROD["inertia"] * np.eye(3)}
    bodies = [
        Body("puck", WORLD, "puck", JointType.FREE, mass=MASS, inertia=np.eye(3) * 0.01),
        Body("block", WORLD, "block", JointType.FREE, np.array([0, 2.0, 0]), mass=MASS, inertia=np.eye(3) * 0.01),
        Body("ball", WORLD, "ball", JointType.PRISMATIC, np.array([0, 4.0, 0]), axis=z, mass=1.0),
        Body("cart", WORLD, "cart", JointType.PRISMATIC, np.array([0, 6.0, 1]), axis=np.eye(3)[0], mass=1.0),
        Body("rod", WORLD, "rod", pos=np.array([0, 8.0, 1]), damping=ROD["damping"], **hinge, **rod),
        Body("arm", WORLD, "arm", pos=np.array([0, 9.0, 1]), **hinge, **rod),
        Body("fore", 5, "fore", pos=-1.0 * z, **hinge, **rod),
        Body("top", WORLD, "top", JointType.FREE, z, mass=1.0, inertia=np.diag([0.01, 0.02, 0.028])),
    ]
    shapes = [
        Shape(ShapeType.SPHERE, 0, np.array([0.1]), 0.1 * z, name="puck"),
        Shape(ShapeType.BOX, 1, np.array([0.1, 0.1, 0.05]), 0.05 * z, name="block"),
        Shape(ShapeType.SPHERE, 2, np.array([0.1]), 0.1 * z, name="ball"),
        Shape(ShapeType.SPHERE, 3, np.array([0.1]), name="cart"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), name="floor"),
        Shape(
            ShapeType.PLANE, WORLD, np.zeros(0), np.array([1.1, 0, 0]), quarter, "wall"
        ),  # faces -x, at the cart's 1 m
    ]
    pairs = [(0, 4, MU, 0.0), (1, 4, MU, 0.0), (2, 4, 0.0, E), (3, 5, 0.0, E)]
    return assemble("gradient truth", bodies, shapes, pairs=pairs)


def rest_depth(force, corners: int = 1, erp: float = 0.2, cfm: float = 1e-2):
    """How deep (m) contacts rest that carry `force` (N) together: there erp depth / H = cfm impulse."""
    return cfm * force / corners * H * H / erp


class Bench:
    """The room in one precision. States and parameters are given by body, the rest has its default values."""

    def __init__(self, dtype: str = "float64"):
        self.name, self.double, self.dtype, self.model = dtype, dtype == "float64", getattr(torch, dtype), room()

    def number(self, value: float) -> torch.Tensor:
        return torch.tensor(float(value), dtype=self.dtype, requires_grad=True)

    def vector(self, *entries) -> torch.Tensor:
        return torch.stack([torch.as_tensor(x, dtype=self.dtype) for x in entries])

    @cache  # noqa: B019 - a bench lives as long as the program
    def sim(self, num_envs: int = 1, dt: float = H, **options) -> wa.Simulator:
        return wa.Simulator(self.model, num_envs, device="cpu", dtype=self.name, dt=dt, validate=False, **options)

    def state(self, sim, places: dict | None = None, rates: dict | None = None):
        """q, qd: the default state, with {(joint, entry): number or (num_envs,)} put into it."""
        q, qd = sim.initial_state()
        for x, entries, where in ((q, places, self.model.joint_q), (qd, rates, self.model.joint_v)):
            for (joint, entry), value in (entries or {}).items():
                x[:, where(joint).start + entry] = torch.as_tensor(value, dtype=self.dtype)
        return q, qd

    def param(self, sim, name: str, index, value: torch.Tensor) -> torch.Tensor:
        """A parameter as one environment has it, with one entry replaced."""
        x = sim.params[name][0].clone()
        x[index] = value
        return x

    def run(self, sim, q, qd, steps: int, **params):
        """Last state after `steps` steps."""
        u = sim.initial_control().expand(steps, -1, -1)
        qs, qds = sim.rollout(q, qd, u, params=params, checkpoint_every="sqrt")
        return qs[-1], qds[-1]

    def at(self, x: torch.Tensor, joint: str, entry: int = 0) -> torch.Tensor:
        """Coordinate of a joint in the first environment."""
        return x[0, self.model.joint_q(joint).start + entry]


def derivatives(y: torch.Tensor, *inputs: torch.Tensor) -> list[float]:
    return [float(g) for g in torch.autograd.grad(y, inputs, retain_graph=True)]


# -- S, I: dry friction


BODIES = {"puck": (0, 1), "block": (1, 4)}  # link and pair, contacts


def slide(bench: Bench, body: str, v0, mass, mu, steps: int, angle=None):
    """Path (m) along HEADING on a floor, or down a slope that gravity makes, from the resting depth."""
    sim, (k, corners) = bench.sim(), BODIES[body]
    angle = torch.zeros((), dtype=bench.dtype) if angle is None else angle
    depth = rest_depth(mass * G * torch.cos(angle), corners)
    q, qd = bench.state(sim, {(body, 2): -depth}, {(body, 0): v0 * HEADING[0], (body, 1): v0 * HEADING[1]})
    down = G * torch.sin(angle)
    gravity = bench.vector(down * HEADING[0], down * HEADING[1], -G * torch.cos(angle))
    params = {"mass": bench.param(sim, "mass", k, mass), "friction": bench.param(sim, "friction", k, mu)}
    q_end, _ = bench.run(sim, q, qd, steps, gravity=gravity, **params)
    move = q_end - q.detach()
    return bench.at(move, body, 0) * HEADING[0] + bench.at(move, body, 1) * HEADING[1]


def sliding(bench: Bench) -> list[Record]:
    """S1: still sliding after N steps; S2: stopped by step n. The mass changes the resting depth, but not the path."""
    records = []
    for body in BODIES:
        for case, speed, steps in (("S1", 1.0, 200), ("S2", 0.5, 300)):
            v0, mass, mu = (bench.number(x) for x in (speed, MASS, MU))
            by_mu, by_v0, by_mass = derivatives(slide(bench, body, v0, mass, mu, steps), mu, v0, mass)
            n = steps if case == "S1" else int(np.ceil(speed / (MU * G * H)))
            count = n * (n + 1) / 2 if case == "S1" else n * (n - 1) / 2
            exact = H * (n if case == "S1" else n - 1)
            t = steps * H
            motion = (-G * t * t / 2, t) if case == "S1" else (-(speed**2) / (2 * MU**2 * G), speed / (MU * G))
            records += [
                Record(case, f"{body}: dx/dmu", SELF, by_mu, -G * H * H * count),
                Record(case, f"{body}: dx/dv0", SELF, by_v0, exact),
                Record(case, f"{body}: dx/dm", SELF, by_mass, 0.0, "error over x/m", scale=abs(speed * exact) / MASS),
            ]
            if body == "puck":
                remark = f"off by 1/n, n = {n}: first order in dt"
                records.append(Record(case, "puck: dx/dmu", TRUE, by_mu, motion[0], remark))
                records.append(Record(case, "puck: dx/dv0", TRUE, by_v0, motion[1], remark if case == "S2" else ""))
    return records


def inclines(bench: Bench) -> list[Record]:
    """I1: slipping at twice the angle of friction; I2: sticking at half of it. The angle is that of gravity."""
    records, steps = [], 500
    t = steps * H
    for body in BODIES:
        a, mass, mu = (bench.number(x) for x in (np.arctan(2 * MU), MASS, MU))
        by_mu, by_a = derivatives(slide(bench, body, bench.number(0), mass, mu, steps, a), mu, a)
        tilt = float(a.detach())
        slopes = (-G * np.cos(tilt), G * (np.cos(tilt) + MU * np.sin(tilt)))
        for name, ours, slope in (("dx/dmu", by_mu, slopes[0]), ("dx/da", by_a, slopes[1])):
            records.append(Record("I1", f"{body}: {name}", SELF, ours, slope * H * H * steps * (steps + 1) / 2))
            if body == "puck":
                remark = f"off by 1/N, N = {steps}: first order in dt"
                records.append(Record("I1", f"puck: {name}", TRUE, ours, slope * t * t / 2, remark))
        a = bench.number(np.arctan(MU / 2))
        path = slide(bench, body, bench.number(0), mass, mu, steps, a)
        by_mu, by_a = derivatives(path, mu, a)
        scale = G * t * t / 2
        for name, ours in (("dx/dmu", by_mu), ("dx/da", by_a), ("creep of x", float(path.detach()))):
            records.append(Record("I2", f"{body}: {name}", TRUE, ours, 0.0, "error over g T^2 / 2", scale=scale))
    return records


# -- W, D: impacts


def bounce(bench: Bench, joint: str, place, speed, e, span: float, dt: float = H, soft: tuple | None = None):
    """Coordinate (m) after `span` seconds, and the speed at the end; soft: (erp, cfm) instead of restitution."""
    sim = bench.sim(dt=dt, max_push_speed=1e3)
    q, qd = bench.state(sim, {(joint, 0): place}, {(joint, 0): speed})
    params = {"restitution": 0.0, "erp": soft[0], "cfm": soft[1]} if soft else {}
    if not soft:
        params["restitution"] = bench.param(sim, "restitution", {"ball": 2, "cart": 3}[joint], e)
    q, qd = bench.run(sim, q, qd, round(span / dt), **params)
    return bench.at(q, joint), float(qd[0, bench.model.joint_v(joint)].detach())


def soft_contact(dt: float, e: float, duration: float = 0.02, mass: float = 1.0) -> tuple[float, float]:
    """(erp, cfm) of a spring and damper that touch for about `duration` seconds and return with about e times the speed.

    A contact of restitution 0 has the stiffness erp / (dt^2 cfm) and the damping 1 / (dt cfm).
    """
    omega = np.pi / duration
    zeta = -np.log(e) / np.hypot(np.pi, np.log(e))
    erp = dt * omega / (2 * zeta)
    return erp, erp / (dt * dt * mass * omega**2)


def wall(bench: Bench) -> list[Record]:
    """W: a cart hits a wall after 1 m; the step at which it does so does not move with q0 and v0, so these are wrong."""
    v, span, records = 1.3, 1.5, []
    for dt in (H, H / 10):
        x0, v0, e = bench.number(0), bench.number(v), bench.number(E)
        ours = derivatives(bounce(bench, "cart", x0, v0, e, span, dt)[0], x0, v0, e)
        hit = int(np.floor(1.0 / (v * dt))) + 1  # the step that ends in the wall
        after = round(span / dt) - hit
        program, motion = (1.0, dt * (hit - E * after), -v * dt * after), (-E, -E * span, 1.0 - v * span)
        late = LATE if dt == H else f"dt {dt:g}: a smaller step does not help"
        for name, value, exact, true in zip("q0 v0 e".split(), ours, program, motion, strict=True):
            if dt == H:
                records.append(Record("W", f"dq/d{name}", SELF, value, exact))
            records.append(Record("W", f"dq/d{name}", TRUE, value, true, FIRST if name == "e" else late))
    for dt in (H, H / 10):
        x0, soft = bench.number(0), soft_contact(dt, E)
        end, speed = bounce(bench, "cart", x0, v, None, span, dt, soft)
        remark = f"what helps: contact of 20 ms (erp {soft[0]:.2g}, cfm {soft[1]:.2g}, dt {dt:g}); returns with {-speed / v:.2f} v0"
        records.append(Record("W", "dq/dq0, soft", TRUE, *derivatives(end, x0), speed / v, remark))
    return records + [wide_difference(bench, "W", "dq/dq0", "cart", 0.0, v, span, -E)]


def drop(bench: Bench) -> list[Record]:
    """D: a ball falls from 1 m; as W, with gravity."""
    fall, speed, records = np.sqrt(2 / G), np.sqrt(2 * G), []
    for span in (0.5, 0.8):
        true = (1 + E) * G * (span - fall) / speed - E
        name, by_e = f"dy/dy0, T = {span}", speed * (span - fall)
        for dt in (H, H / 10):
            y0, e = bench.number(1.0), bench.number(E)
            ours = derivatives(bounce(bench, "ball", y0, 0.0, e, span, dt)[0], y0, e)
            if dt == H:
                records.append(Record("D", name, SELF, ours[0], 1.0))
            late = LATE if dt == H else f"dt {dt:g}: a smaller step does not help"
            records.append(Record("D", name, TRUE, ours[0], true, late))
            records.append(Record("D", name.replace("y0", "e"), TRUE, ours[1], by_e, f"{FIRST} ({dt:g})"))
        records.append(wide_difference(bench, "D", name, "ball", 1.0, 0.0, span, true))
    return records


def wide_difference(bench: Bench, case: str, name: str, joint: str, place, speed, span, true: float) -> Record:
    """Differences over many steps see the hit move; a gradient, of however many samples, does not."""
    wide, e = 0.1, torch.tensor(E)
    ends = [float(bounce(bench, joint, place + s * wide, speed, e, span)[0]) for s in (1, -1)]
    remark = f"what helps: a difference quotient over +-{wide} m, which is many steps"
    return Record(case, f"{name}, wide", TRUE, (ends[0] - ends[1]) / (2 * wide), true, remark)


# -- P, C: pendulums


def pendulum(bench: Bench, dt: float, span: float) -> list[float]:
    """d angle / d (inertia, damping, length) of the rod after `span` seconds."""
    sim, link = bench.sim(dt=dt), bench.model.link_names.index("rod")
    dof = bench.model.joint_v("rod").start
    inertia, damping, length = (bench.number(ROD[name]) for name in ("inertia", "damping", "length"))
    q, qd = bench.state(sim, {("rod", 0): 1.0})
    params = {
        "inertia": bench.param(sim, "inertia", (link, 1, 1), inertia),
        "damping": bench.param(sim, "damping", dof, damping),
        "com": bench.param(sim, "com", (link, 2), -length),
    }
    q, _ = bench.run(sim, q, qd, round(span / dt), **params)
    return derivatives(bench.at(q, "rod"), inertia, damping, length)


def pendulum_slopes(angle: float, rate: float, extra: float):
    """Angular acceleration and its derivatives by (angle, rate, inertia, damping, length); extra: h times damping."""
    m, length, c = ROD["mass"], ROD["length"], ROD["damping"]
    total = ROD["inertia"] + m * length**2 + extra
    a = -(m * G * length * np.sin(angle) + c * rate) / total
    step = extra / c  # the damping acts on the rate at the end of the step
    by_length = -(m * G * np.sin(angle) + 2 * m * length * a) / total
    return (
        a,
        -m * G * length * np.cos(angle) / total,
        -c / total,
        np.array([-a, -rate - step * a, by_length * total]) / total,
    )


def pendulum_true(span: float) -> np.ndarray:
    """The same derivatives of the continuous motion, by its variational equation at 1e-12."""

    def slope(_, y):
        a, by_angle, by_rate, by_p = pendulum_slopes(y[0], y[1], 0.0)
        return np.concatenate([[y[1], a], y[5:], by_angle * y[2:5] + by_rate * y[5:] + by_p])

    start = np.concatenate([[1.0], np.zeros(7)])
    return solve_ivp(slope, (0, span), start, method="DOP853", rtol=1e-12, atol=1e-13).y[2:5, -1]


def pendulum_discrete(dt: float, span: float) -> np.ndarray:
    """The same derivatives of semi-implicit Euler, differentiated by hand."""
    angle, rate, d_angle, d_rate = 1.0, 0.0, np.zeros(3), np.zeros(3)
    for _ in range(round(span / dt)):
        a, by_angle, by_rate, by_p = pendulum_slopes(angle, rate, dt * ROD["damping"])
        d_rate = d_rate + dt * (by_angle * d_angle + by_rate * d_rate + by_p)
        rate += dt * a
        angle, d_angle = angle + dt * rate, d_angle + dt * d_rate
    return d_angle


def swings(bench: Bench, span: float = 10.0, dts: Sequence[float] = (4e-3, 2e-3, 1e-3)) -> list[Record]:
    """P: first order in dt, so halving it halves the error, and 2 D(dt) - D(2 dt) has a much smaller one."""
    found = np.array([pendulum(bench, dt, span) for dt in dts])
    true, discrete = pendulum_true(span), pendulum_discrete(dts[-1], span)
    errors = np.abs(found - true) / np.abs(true)
    records = []
    for k, name in enumerate(("inertia", "damping", "length")):
        quantity, ours = f"d angle/d {name}, {span:g} s", found[:, k]
        falling = "error at dt " + ", ".join(f"{1e3 * dt:g} ms: {e:.1e}" for dt, e in zip(dts, errors[:, k]))
        records += [
            Record("P", quantity, SELF, ours[-1], discrete[k], f"{round(span / dts[-1])} steps"),
            Record("P", quantity, TRUE, ours[-1], true[k], falling),
            Record("P", quantity, TRUE, 2 * ours[-1] - ours[-2], true[k], "extrapolated from the last two dt"),
        ]
    return records


# -- Jacobians against differences


def jacobians(run: Callable, x: torch.Tensor, along: torch.Tensor, step: float):
    """d run / dx times the columns of `along` (k, d): by gradients and by central differences of fourth order.

    run: (n, k) -> (n, m), one environment each. Every row of the Jacobian is the gradient of one environment.
    """
    with torch.no_grad():
        rows = run(x[None]).shape[1]
        points = [x + c * step * along.T for c in (1, -1, 2, -2)]
        y = run(torch.cat(points)).unflatten(0, (4, -1)).double()
        quotient = (8 * (y[0] - y[1]) - (y[2] - y[3])) / (12 * step)
    copies = x.repeat(rows, 1).requires_grad_()
    (bar,) = torch.autograd.grad(run(copies).diagonal().sum(), copies)
    return (bar @ along).double().numpy(), quotient.T.numpy(), bar


def compare(case: str, quantity: str, ours, reference, remark: str = "", kind: str = SELF) -> Record:
    norms = [float(np.linalg.norm(x, 2)) for x in (ours, reference)]
    return Record(case, quantity, kind, *norms, remark, deviation=float(np.linalg.norm(ours - reference, 2)))


def chaos(bench: Bench, spans: Sequence[float] = (1.0, 5.0, 10.0, 20.0)) -> list[Record]:
    """C: the product of the Jacobians of all steps of a double pendulum, q = (arm, fore)."""
    places = [bench.model.joint_q(name).start for name in ("arm", "fore")]
    rates = [bench.model.joint_v(name).start for name in ("arm", "fore")]
    records, start = [], torch.tensor([2.0, 1.0, 0.0, 0.0], dtype=bench.dtype)
    for span in spans:

        def run(x, steps=round(span / H)):
            sim = bench.sim(len(x))
            q, qd = bench.state(sim)
            q[:, places], qd[:, rates] = x[:, :2], x[:, 2:]
            q, qd = bench.run(sim, q, qd, steps)
            return torch.cat([q[:, places], qd[:, rates]], 1)

        ours, quotient, _ = jacobians(run, start, torch.eye(4, dtype=bench.dtype), 1e-5 if bench.double else 1e-2)
        remark = "chaos: the norm grows" if np.isfinite(ours).all() else "NOT FINITE"
        records.append(compare("C", f"d state/d state0, {span:g} s", ours, quotient, remark))
    return records


def spin(bench: Bench, steps: int = 500) -> list[Record]:
    """Q: the last state of a tumbling body by its first orientation, of length 1 and of another length."""
    at, records = bench.model.joint_q("top").start + 3, []
    for length in (1.0, 1.7):
        x = torch.tensor([0.1, -0.5, 0.3, 0.8], dtype=bench.dtype)
        x = x * (length / x.norm())

        def run(x):
            sim = bench.sim(len(x))
            q, qd = bench.state(sim, rates={("top", 3): 3.0, ("top", 4): -5.0, ("top", 5): 7.0})
            q[:, at : at + 4] = x
            q, qd = bench.run(sim, q, qd, steps)
            return torch.cat([q[:, bench.model.joint_q("top")], qd[:, bench.model.joint_v("top")]], 1)

        tangents = torch.linalg.qr(torch.cat([x[:, None], torch.eye(4, dtype=bench.dtype)[:, :3]], 1))[0][:, 1:]
        ours, quotient, bar = jacobians(run, x, tangents, 1e-3 if bench.double else 1e-2)
        name = f"|q0| = {length}: "
        records.append(compare("Q", name + "d state/d q0, tangents", ours, quotient, f"{steps} steps"))
        inner = float((bar @ x / length).norm())
        records.append(Record("Q", name + "q0 . q0_bar", TRUE, inner, 0.0, "over |q0_bar|", scale=float(bar.norm())))
    return records


@cache
def standing() -> tuple[Model, torch.Tensor]:
    """laikago_feet on a floor of friction 1, and its state (nq + nv,) at rest, float64."""
    model = wa.load("laikago_feet")
    model = replace(model, pair_friction=np.ones(len(model.pairs)))
    sim = wa.Simulator(model, device="cpu", dtype="float64")
    u = sim.initial_control().expand(2000, -1, -1)
    qs, qds = sim.rollout(*sim.initial_state(), u, checkpoint_every=2000)
    return model, torch.cat([qs[-1, 0], qds[-1, 0]])


def reordered(model: Model, order: Sequence[int]) -> Model:
    """The same model with its collision pairs in another order, which is the order of contacts; shapes reversed."""
    last = len(model.shapes) - 1
    fields = {name: getattr(model, name)[list(order)] for name in ("pair_friction", "pair_restitution")}
    return replace(model, shapes=model.shapes[::-1], pairs=last - model.pairs[list(order)], **fields)


def feet(bench: Bench) -> list[Record]:
    """F: four feet are statically indeterminate. A drive's torque moves by kp du, so d qd+/d tau = d qd+/du / kp."""
    model, state = standing()
    state = state.to(bench.dtype)
    kp = torch.as_tensor(model.kp, dtype=bench.dtype)
    torque = torch.zeros(model.nu, dtype=bench.dtype)
    along, results = torch.eye(model.nu, dtype=bench.dtype), {}
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)):
        other = reordered(model, order)

        def run(tau, other=other):
            sim = wa.Simulator(other, len(tau), device="cpu", dtype=bench.name)
            q, qd = (x.repeat(len(tau), 1) for x in (state[: model.nq], state[model.nq :]))
            return sim.step(q, qd, sim.initial_control() + tau / kp)[1]

        results[order] = jacobians(run, torque, along, 0.1)[:2]
    (ours, quotient), *others = results.values()
    records = [compare("F", "d qd+/d tau", ours, quotient, "four feet, 18 x 12; 1/(kg m^2) s")]
    for order, (again, _) in list(results.items())[1:]:
        records.append(compare("F", f"d qd+/d tau, order {order}", again, ours, "contacts in another order"))
    return records


CASES: tuple[Callable[[Bench], list[Record]], ...] = (sliding, inclines, wall, drop, swings, feet, chaos, spin)


def truth(cases: Sequence[Callable] = CASES, precisions: Sequence[str] = ("float64", "float32")) -> list[Record]:
    """All records in float64, with the float32 results beside them if asked for."""
    records = []
    for case in cases:
        machine.progress(f"truth: {(case.__doc__ or '').split('.')[0].split(';')[0]}")
        found, *single = (case(Bench(dtype)) for dtype in precisions)
        for other in single:
            found = [replace(a, ours32=b.ours, error32=b.error) for a, b in zip(found, other, strict=True)]
        records += found
    return records


def truth_table(records: Sequence[Record]) -> str:
    header = ["case", "quantity", "kind", "ours", "expected", "relative error", "in float32", "remark"]
    rows = []
    for r in records:
        single = "" if r.error32 is None else f"{r.error32:.1e}"
        rows.append(
            [r.case, r.quantity, r.kind, f"{r.ours:.9g}", f"{r.expected:.9g}", f"{r.error:.1e}", single, r.remark]
        )
    return machine.table(header, rows)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # Warp tells of its kernels on stdout
        table = truth_table(truth())
    print(table)
