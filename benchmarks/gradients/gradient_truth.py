"""Gradients against known answers: closed forms, a reference integrator, differences of the program itself.

Two questions, never mixed: "self-consistent" asks whether a gradient is the derivative of the program as it runs (fixed
steps of semi-implicit Euler), "true" whether it is the derivative of the continuous motion. After an impact a program
with fixed steps is right in the first sense and can be wrong in the second, even in sign: cases W and D.

All bodies except the robot of case F are in one model, so that one pair of kernels is enough. The puck and the block
start at their resting depth, with the com at the height of the contacts: then friction has no lever, every step carries
the weight exactly, and the closed forms of the sliding cases hold to rounding. gradient_report.py prints the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from scipy.integrate import solve_ivp

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, JointType, Model, Shape, ShapeType, assemble

H, G = 1e-3, 9.81  # s, m/s^2
MASS, MU = 2.0, 0.3  # kg and friction of puck and block
E = 0.5  # restitution of ball and cart
HEADING = np.array([np.cos(0.5), np.sin(0.5)])  # along no tangent and no side of the block
# a rod of 1 kg: kg m^2 about its com, N m s of its hinge, m from hinge to com
ROD = {"inertia": 0.02, "damping": 0.05, "length": 0.5}
SELF, TRUE = "self-consistent", "true"
LATE = "wrong: the step of the hit does not move with the start"
SMALLER = "smaller dt does not help"
FIRST = "first order in dt"


@dataclass(frozen=True)
class Record:
    """One line of the table, SI units."""

    case: str
    quantity: str
    kind: str  # SELF or TRUE
    ours: float
    expected: float
    remark: str = ""
    scale: float | None = None  # what errors are relative to, if not `expected`
    deviation: float | None = None  # norm of the difference of matrices, whose norms are `ours` and `expected`
    error32: float | None = None  # relative error in float32

    @property
    def error(self) -> float:
        difference = abs(self.ours - self.expected) if self.deviation is None else self.deviation
        return difference / (abs(self.expected) if self.scale is None else self.scale)


@cache
def room() -> Model:
    """Floor and wall, puck and block high above the floor, ball and cart on rails, two pendulums, a spinning top."""
    x, y, z = np.eye(3)
    hinge = {"joint_type": JointType.REVOLUTE, "axis": y, "mass": 1.0, "inertia": ROD["inertia"] * np.eye(3)}
    bodies = [
        Body("puck", WORLD, "puck", JointType.FREE, 90 * z, mass=MASS, inertia=np.eye(3) * 0.01),
        Body("block", WORLD, "block", JointType.FREE, 90 * z + y, mass=MASS, inertia=np.eye(3) * 0.01),
        Body("ball", WORLD, "ball", JointType.PRISMATIC, axis=z, mass=1.0, q0=np.array([90.0])),
        Body("cart", WORLD, "cart", JointType.PRISMATIC, axis=x, mass=1.0),
        Body("rod", WORLD, "rod", com=-ROD["length"] * z, damping=ROD["damping"], **hinge),
        Body("arm", WORLD, "arm", com=-0.5 * z, **hinge),
        Body("fore", 5, "fore", pos=-1.0 * z, com=-0.5 * z, **hinge),
        Body("top", WORLD, "top", JointType.FREE, mass=1.0, inertia=np.diag([0.01, 0.02, 0.028])),
    ]
    turned = np.array([0.0, -np.sqrt(0.5), 0.0, np.sqrt(0.5)])  # the wall faces -x and stops the cart at 1 m
    shapes = [
        Shape(ShapeType.SPHERE, 0, np.array([0.1]), 0.1 * z, name="puck"),
        Shape(ShapeType.BOX, 1, np.array([0.1, 0.1, 0.05]), 0.05 * z, name="block"),
        Shape(ShapeType.SPHERE, 2, np.array([0.1]), 0.1 * z, name="ball"),
        Shape(ShapeType.SPHERE, 3, np.array([0.1]), name="cart"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), name="floor"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), 1.1 * x, turned, name="wall"),
    ]
    pairs = [(0, 4, MU, 0.0), (1, 4, MU, 0.0), (2, 4, 0.0, E), (3, 5, 0.0, E)]
    return assemble("gradient truth", bodies, shapes, pairs=pairs)


class Bench:
    """The room in one precision. Cases give states and parameters by body; the rest has its default values."""

    def __init__(self, dtype: str = "float64", contact_time: str = "step"):
        self.name, self.dtype, self.model = dtype, getattr(torch, dtype), room()
        self.contact_time = contact_time

    def numbers(self, *values: float) -> list[torch.Tensor]:
        """Inputs to differentiate by."""
        return [torch.tensor(float(x), dtype=self.dtype, requires_grad=True) for x in values]

    def sim(self, num_envs: int = 1, dt: float = H) -> wa.Simulator:
        options = {"max_push_speed": 1e3, "validate": False, "contact_time": self.contact_time}
        return wa.Simulator(self.model, num_envs, device="cpu", dtype=self.name, dt=dt, **options)

    def state(self, sim, places: dict, rates: dict):
        """q, qd: the default state with entries {joint: {place in it: value}} put into it."""
        q, qd = sim.initial_state()
        for x, entries, where in ((q, places, self.model.joint_q), (qd, rates, self.model.joint_v)):
            for joint, values in entries.items():
                for k, value in values.items():
                    x[:, where(joint).start + k] = value
        return q, qd

    def param(self, sim, name: str, index, value) -> torch.Tensor:
        """The parameter of one environment with one entry replaced."""
        x = sim.params[name][0].clone()
        x[index] = value
        return x

    def run(self, sim, q, qd, steps: int, **params):
        """The state after `steps` steps."""
        u = sim.initial_control().expand(steps, -1, -1)
        qs, qds = sim.rollout(q, qd, u, params=params, checkpoint_every="sqrt")
        return qs[-1], qds[-1]


def derivatives(y: torch.Tensor, *inputs: torch.Tensor) -> list[float]:
    return [float(g) for g in torch.autograd.grad(y, inputs)]


def slide(bench: Bench, body: str, v0, mass, mu, angle, steps: int) -> torch.Tensor:
    """Path (m) along HEADING, down a slope of that angle (made by turning gravity), from the resting depth."""
    sim, start = bench.sim(), bench.model.joint_q(body).start
    k, corners = {"puck": (0, 1), "block": (1, 4)}[body]
    weight, pull = G * torch.cos(angle), G * torch.sin(angle)
    depth = 1e-2 * (mass * weight / corners) * H * H / 0.2  # where erp depth / H = cfm impulse
    q, qd = bench.state(sim, {body: {0: 0, 1: 0, 2: -depth}}, {body: {0: v0 * HEADING[0], 1: v0 * HEADING[1]}})
    gravity = torch.stack([pull * HEADING[0], pull * HEADING[1], -weight])
    params = {"mass": bench.param(sim, "mass", k, mass), "friction": bench.param(sim, "friction", k, mu)}
    end, _ = bench.run(sim, q, qd, steps, gravity=gravity, **params)
    return end[0, start : start + 2] @ torch.as_tensor(HEADING, dtype=bench.dtype)


def sliding(bench: Bench) -> list[Record]:
    """S: a block that still slides after N steps, and one that stopped at step n."""
    records = []
    for body in ("puck", "block"):
        for case, speed, steps in (("S1", 1.0, 200), ("S2", 0.5, 300)):
            v0, mass, mu, angle = bench.numbers(speed, MASS, MU, 0)
            found = derivatives(slide(bench, body, v0, mass, mu, angle, steps), mu, v0, mass)
            t, stop = steps * H, int(np.ceil(speed / (MU * G * H)))
            exact, motion = (-G * H * H * steps * (steps + 1) / 2, t, 0.0), (-G * t * t / 2, t)
            if case == "S2":
                exact = (-G * H * H * stop * (stop - 1) / 2, H * (stop - 1), 0.0)
                motion = (-(speed**2) / (2 * MU**2 * G), speed / (MU * G))
            for name, ours, expected in zip(("mu", "v0", "m"), found, exact, strict=True):
                zero = {"remark": "error over v0 T/m", "scale": speed * t / MASS} if name == "m" else {}
                records.append(Record(case, f"{body}: dx/d{name}", SELF, ours, expected, **zero))
            if body == "puck":
                records.append(Record(case, "puck: dx/dmu", TRUE, found[0], motion[0], FIRST))
                records.append(Record(case, "puck: dx/dv0", TRUE, found[1], motion[1], FIRST * (case == "S2")))
    return records


def inclines(bench: Bench) -> list[Record]:
    """I: a block that slips down a slope (I1), and one that sticks to it (I2)."""
    records, steps = [], 500
    t = steps * H
    for body in ("puck", "block"):
        v0, mass, mu, steep, gentle = bench.numbers(0, MASS, MU, np.arctan(2 * MU), np.arctan(MU / 2))
        by_mu, by_a = derivatives(slide(bench, body, v0, mass, mu, steep, steps), mu, steep)
        a = np.arctan(2 * MU)
        for name, ours, slope in (("mu", by_mu, -np.cos(a)), ("a", by_a, np.cos(a) + MU * np.sin(a))):
            records.append(Record("I1", f"{body}: dx/d{name}", SELF, ours, G * slope * H * H * steps * (steps + 1) / 2))
            if body == "puck":
                records.append(Record("I1", f"puck: dx/d{name}", TRUE, ours, G * slope * t * t / 2, FIRST))
        path = slide(bench, body, v0, mass, mu, gentle, steps)
        for name, ours in zip(("dx/dmu", "dx/da", "creep"), [*derivatives(path, mu, gentle), path.item()], strict=True):
            records.append(Record("I2", f"{body}: {name}", TRUE, ours, 0.0, "error over g T^2/2", scale=G * t * t / 2))
    return records


def bounce(bench: Bench, joint: str, place, speed, span: float, dt: float, **params):
    """Coordinate (m) and speed of the ball or the cart after `span` seconds."""
    sim = bench.sim(dt=dt)
    if "e" in params:
        params["restitution"] = bench.param(sim, "restitution", {"ball": 2, "cart": 3}[joint], params.pop("e"))
    q, qd = bench.run(sim, *bench.state(sim, {joint: {0: place}}, {joint: {0: speed}}), round(span / dt), **params)
    return q[0, bench.model.joint_q(joint).start], float(qd[0, bench.model.joint_v(joint).start].detach())


def wide_difference(bench: Bench, case: str, name: str, joint: str, place, speed, span, true: float) -> Record:
    """Differences over many steps see the hit move; a gradient, of however many samples, does not."""
    ends = [bounce(bench, joint, place + side, speed, span, H)[0].item() for side in (0.1, -0.1)]
    remark = "what helps: a difference quotient over +-0.1 m, which is many steps"
    return Record(case, f"{name}, by differences", TRUE, (ends[0] - ends[1]) / 0.2, true, remark)


def wall(bench: Bench) -> list[Record]:
    """W: a cart hits a wall after 1 m."""
    v, span, records = 1.3, 1.5, []
    for dt in (H, H / 10):
        x0, v0, e = bench.numbers(0, v, E)
        found = derivatives(bounce(bench, "cart", x0, v0, span, dt, e=e)[0], x0, v0, e)
        hit = int(np.floor(1.0 / (v * dt))) + 1  # the step that ends in the wall
        after = round(span / dt) - hit
        program, motion = (1.0, dt * (hit - E * after), -v * dt * after), (-E, -E * span, 1.0 - v * span)
        for name, ours, exact, true in zip(("q0", "v0", "e"), found, program, motion, strict=True):
            if dt == H:
                records.append(Record("W", f"dq/d{name}", SELF, ours, exact))
            remark = FIRST if name == "e" else LATE if dt == H else SMALLER
            records.append(Record("W", f"dq/d{name}", TRUE, ours, true, f"{remark} (dt {dt:g})"))
    for dt in (H, H / 10):
        # erp 1 and no restitution is a spring of stiffness 1 / (cfm dt^2): here it touches for 50 ms
        (x0,), cfm = bench.numbers(0), (0.05 / np.pi / dt) ** 2
        end, speed = bounce(bench, "cart", x0, v, span, dt, restitution=0.0, erp=1.0, cfm=cfm)
        remark = f"what helps: a spring that touches for 50 ms (erp 1, cfm {cfm:.3g}, dt {dt:g}); {FIRST}"
        records.append(Record("W", "dq/dq0, soft wall", TRUE, *derivatives(end, x0), speed / v, remark))
    return [*records, wide_difference(bench, "W", "dq/dq0", "cart", 0.0, v, span, -E)]


def drop(bench: Bench) -> list[Record]:
    """D: a ball falls from 1 m and bounces."""
    fall, speed, records = np.sqrt(2 / G), np.sqrt(2 * G), []
    for span in (0.5, 0.8):
        motion = ((1 + E) * G * (span - fall) / speed - E, speed * (span - fall))
        for dt in (H, H / 10):
            y0, e = bench.numbers(1, E)
            found = derivatives(bounce(bench, "ball", y0, 0.0, span, dt, e=e)[0], y0, e)
            if dt == H:
                records.append(Record("D", f"dy/dy0, T = {span}", SELF, found[0], 1.0))
            for name, ours, true in zip(("y0", "e"), found, motion, strict=True):
                remark = FIRST if name == "e" else LATE if dt == H else SMALLER
                records.append(Record("D", f"dy/d{name}, T = {span}", TRUE, ours, true, f"{remark} (dt {dt:g})"))
        records.append(wide_difference(bench, "D", f"dy/dy0, T = {span}", "ball", 1.0, 0.0, span, motion[0]))
    return records


def pendulum(bench: Bench, dt: float, span: float) -> list[float]:
    """d angle / d (inertia, damping, length) of the rod after `span` seconds, from 1 rad."""
    sim, link, dof = bench.sim(dt=dt), bench.model.link_names.index("rod"), bench.model.joint_v("rod").start
    inertia, damping, length = bench.numbers(*ROD.values())
    params = {
        "inertia": bench.param(sim, "inertia", (link, 1, 1), inertia),
        "damping": bench.param(sim, "damping", dof, damping),
        "com": bench.param(sim, "com", (link, 2), -length),
    }
    q, _ = bench.run(sim, *bench.state(sim, {"rod": {0: 1.0}}, {}), round(span / dt), **params)
    return derivatives(q[0, bench.model.joint_q("rod").start], inertia, damping, length)


def pendulum_slopes(angle: float, rate: float, h: float):
    """Angular acceleration, and its derivatives by angle, rate and (inertia, damping, length).

    The damping acts on the rate at the end of a step of h, which adds h damping to the inertia.
    """
    inertia, c, length = ROD.values()
    total, torque = inertia + length**2 + h * c, G * np.sin(angle)
    a = -(length * torque + c * rate) / total
    by_parameters = -np.array([a, rate + h * a, torque + 2 * length * a]) / total
    return a, -G * length * np.cos(angle) / total, -c / total, by_parameters


def pendulum_true(span: float) -> np.ndarray:
    """The derivatives of the continuous motion, by its variational equation at 1e-12."""

    def slope(_, y):
        a, by_angle, by_rate, by_parameters = pendulum_slopes(y[0], y[1], 0.0)
        return np.concatenate([[y[1], a], y[5:], by_angle * y[2:5] + by_rate * y[5:] + by_parameters])

    start = np.array([1.0, 0, 0, 0, 0, 0, 0, 0])
    return solve_ivp(slope, (0, span), start, method="DOP853", rtol=1e-12, atol=1e-13).y[2:5, -1]


def pendulum_discrete(span: float, dt: float) -> np.ndarray:
    """The derivatives of semi-implicit Euler, differentiated analytically."""
    angle, rate, d_angle, d_rate = 1.0, 0.0, np.zeros(3), np.zeros(3)
    for _ in range(round(span / dt)):
        a, by_angle, by_rate, by_parameters = pendulum_slopes(angle, rate, dt)
        d_rate = d_rate + dt * (by_angle * d_angle + by_rate * d_rate + by_parameters)
        rate += dt * a
        angle, d_angle = angle + dt * rate, d_angle + dt * d_rate
    return d_angle


def swings(bench: Bench, span: float = 10.0) -> list[Record]:
    """P: a damped pendulum over 10 s."""
    dts = (4 * H, 2 * H, H)
    found = np.array([pendulum(bench, dt, span) for dt in dts])
    true, discrete = pendulum_true(span), pendulum_discrete(span, H)
    limit = (8 * found[2] - 6 * found[1] + found[0]) / 3  # dt -> 0, without the terms in dt and dt^2
    records = []
    for k, name in enumerate(ROD):
        quantity, errors = f"d angle/d {name}", np.abs(found[:, k] / true[k] - 1)
        remark = "error at " + ", ".join(f"{1e3 * dt:g} ms: {e:.1e}" for dt, e in zip(dts, errors, strict=True))
        records += [
            Record("P", quantity, SELF, found[2, k], discrete[k], f"{round(span / H)} steps"),
            Record("P", quantity, TRUE, found[2, k], true[k], remark),
            Record("P", f"{quantity}, dt -> 0", TRUE, limit[k], true[k], "Richardson, from these three"),
        ]
    return records


def jacobians(bench: Bench, run: Callable, x: torch.Tensor, along: torch.Tensor, step: float):
    """d run / dx times the columns of `along` (k, d): by gradients, and by central differences in float64.

    run: (bench, (n, k)) -> (n, m), n environments; every row of the Jacobian is the gradient of one of them. Returns
    (m, d) arrays, and the gradients (m, k) themselves. The differences are of fourth order.
    """
    with torch.no_grad():
        y = run(Bench(), torch.cat([x + c * step * along.T for c in (1, -1, 2, -2)])).unflatten(0, (4, -1))
        quotient = ((8 * (y[0] - y[1]) - (y[2] - y[3])) / (12 * step)).T
    copies = x.to(bench.dtype).repeat(len(quotient), 1).requires_grad_()
    rows = torch.autograd.grad(run(bench, copies).diagonal().sum(), copies)[0].double()
    return (rows @ along).numpy(), quotient.numpy(), rows


def compare(case: str, quantity: str, ours: np.ndarray, reference: np.ndarray, remark: str) -> Record:
    norms = [float(np.linalg.norm(x, 2)) for x in (ours, reference)]
    return Record(case, quantity, SELF, *norms, remark, deviation=float(np.linalg.norm(ours - reference, 2)))


def chaos(bench: Bench, spans: Sequence[float] = (1.0, 2.0, 5.0, 10.0, 20.0)) -> list[Record]:
    """C: the Jacobian of a double pendulum's state over growing horizons."""
    where = [(bench.model.joint_q(name).start, bench.model.joint_v(name).start) for name in ("arm", "fore")]
    (places, rates), records = np.array(where).T, []
    start = torch.tensor([2.0, 1.0, 0.0, 0.0]).double()

    def run(steps, bench, x):
        sim = bench.sim(len(x))
        q, qd = bench.state(sim, {}, {})
        q[:, places], qd[:, rates] = x[:, :2], x[:, 2:]
        q, qd = bench.run(sim, q, qd, steps)
        return torch.cat([q[:, places], qd[:, rates]], 1)

    for span in spans:
        step = 10.0 ** -(4 + 0.6 * span)  # shrinks as the norm grows
        ours, quotient, _ = jacobians(bench, partial(run, round(span / H)), start, torch.eye(4).double(), step)
        remark = "the norm grows: chaos" + " beyond what differences can see" * (span > 15)
        records.append(compare("C", f"d state/d state0, {span:g} s", ours, quotient, remark))
    return records


def spin(bench: Bench, steps: int = 500) -> list[Record]:
    """Q: the state of a tumbling body by its first orientation, of length 1 and not."""
    places, rates, records = bench.model.joint_q("top"), bench.model.joint_v("top"), []

    def run(bench, x):
        sim = bench.sim(len(x))
        q, qd = bench.state(sim, {}, {"top": {3: 3.0, 4: -5.0, 5: 7.0}})
        q[:, places.start + 3 : places.stop] = x
        q, qd = bench.run(sim, q, qd, steps)
        return torch.cat([q[:, places], qd[:, rates]], 1)

    for length in (1.0, 1.7):
        x = torch.tensor([0.1, -0.5, 0.3, 0.8]).double()
        x = x * (length / x.norm())
        tangents = torch.linalg.qr(torch.cat([x[:, None], torch.eye(4)[:, :3].double()], 1))[0][:, 1:]
        ours, quotient, rows = jacobians(bench, run, x, tangents, 1e-3)
        along, size, name = float((rows @ x / length).norm()), float(rows.norm()), f"length {length}: "
        records.append(compare("Q", name + "d state/d q0, tangents", ours, quotient, f"{steps} steps"))
        records.append(Record("Q", name + "d state/d q0, along q0", TRUE, along, 0.0, "over the norm", scale=size))
    return records


@cache
def standing() -> tuple[Model, torch.Tensor, torch.Tensor]:
    """laikago_feet on a floor of friction 1, and its q (nq,) and qd (nv,) at rest in float64."""
    model = wa.load("laikago_feet")
    model = replace(model, pair_friction=np.ones(len(model.pairs)))
    sim = wa.Simulator(model, device="cpu", dtype="float64")
    u = sim.initial_control().expand(2000, -1, -1)
    qs, qds = sim.rollout(*sim.initial_state(), u, checkpoint_every=2000)
    return model, qs[-1, 0], qds[-1, 0]


def reordered(model: Model, order: Sequence[int]) -> Model:
    """The same model with its pairs, which are its contacts, in another order, and its shapes backwards."""
    pairs = len(model.shapes) - 1 - model.pairs[list(order)]
    values = {name: getattr(model, name)[list(order)] for name in ("pair_friction", "pair_restitution")}
    return replace(model, shapes=model.shapes[::-1], pairs=pairs, **values)


def feet(bench: Bench) -> list[Record]:
    """F: a robot stands on four feet, so that its impulses are not unique."""
    model, q, qd = standing()

    def run(other, bench, tau):  # moving a drive's target by tau / kp adds the torque tau
        sim = wa.Simulator(other, len(tau), device="cpu", dtype=bench.name)
        state = (x.to(bench.dtype).repeat(len(tau), 1) for x in (q, qd))
        return sim.step(*state, sim.initial_control() + tau / sim.params["kp"])[1]

    zero, along = torch.zeros(model.nu).double(), torch.eye(model.nu).double()
    ours, quotient, _ = jacobians(bench, partial(run, model), zero, along, 0.1)
    records = [compare("F", "d qd+/d tau", ours, quotient, f"{ours.shape[0]} x {ours.shape[1]}, one step")]
    for order in ((3, 2, 1, 0), (2, 0, 3, 1)):
        again = jacobians(bench, partial(run, reordered(model, order)), zero, along, 0.1)[0]
        records.append(compare("F", f"d qd+/d tau, feet {order}", again, ours, "feet in another order"))
    return records


CASES: tuple[Callable[[Bench], list[Record]], ...] = (sliding, inclines, wall, drop, swings, feet, chaos, spin)
