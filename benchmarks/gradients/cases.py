"""The cases of the gradient scoreboard and their exact answers. Needs numpy only: engines read it in any environment.

Five small models serve the cases; their inputs are plain numbers, and so is their one output:

    slide   puck on a floor, the slope made by turning gravity   path x along the slope
    bounce  ball on a rail above a floor                         height y; without gravity (W) the floor is a wall
    swing   rod on a damped hinge                                its angle
    double  two rods, no damping                                 the second joint's angle
    spin    free body, w fixed in its own axes                   z of its turned x axis
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

G = 9.81  # m/s^2
MASS, MU, E = 2.0, 0.3, 0.5
RADIUS = 0.1  # m, of puck and ball
ROD = {"inertia": 0.02, "damping": 0.05, "length": 0.5}  # kg m^2 about its com, N m s, m from hinge to com; 1 kg
REACH = 1.0  # m between the joints of the double pendulum; otherwise its rods are like the other one
SPIN_INERTIA = np.array([0.01, 0.02, 0.028])
SPIN_RATE = np.array([3.0, -5.0, 7.0])  # rad/s in the body's axes
SPIN_START = np.array([0.1, -0.5, 0.3, 0.8]) / np.sqrt(0.99)  # quaternion xyzw


@dataclass(frozen=True)
class Truth:
    """Of the continuous motion: output, its derivatives, what their errors are relative to, and the output's scale."""

    value: float
    gradient: dict[str, float]
    sizes: dict[str, float]
    scale: float


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    span: float  # s
    inputs: dict[str, float]
    truth: Callable[[Case], Truth]

    @property
    def column(self) -> str:
        """Cases that differ in the horizon only share a column."""
        return self.name.split()[0]

    @property
    def gravity(self) -> float:
        return 0.0 if self.name == "W" or self.model == "spin" else G


# typical sizes of changes of inputs, where that is not 1
UNITS = {"mu": 0.3, "m": 2.0, "a": 0.3, "e": 0.5, **ROD}


# -- the exact answers


def sliding(case: Case) -> Truth:
    """Still sliding, or stopped. The mass does not matter."""
    v, mu, t = case.inputs["v0"], case.inputs["mu"], case.span
    if v > mu * G * t:
        value, gradient = v * t - mu * G * t * t / 2, {"v0": t, "mu": -G * t * t / 2}
    else:
        value, gradient = v * v / (2 * mu * G), {"v0": v / (mu * G), "mu": -v * v / (2 * mu * mu * G)}
    sizes = {name: abs(x) for name, x in gradient.items()} | {"m": v * t / MASS}
    return Truth(value, gradient | {"m": 0.0}, sizes, v * t)


def incline(case: Case) -> Truth:
    mu, a, t = case.inputs["mu"], case.inputs["a"], case.span
    fall = G * t * t / 2
    sizes = {"v0": t, "mu": fall, "a": fall}
    if np.tan(a) < mu:
        return Truth(0.0, dict.fromkeys(case.inputs, 0.0), sizes, fall)
    gradient = {"v0": t, "mu": -fall * np.cos(a), "a": fall * (np.cos(a) + mu * np.sin(a))}
    return Truth(fall * (np.sin(a) - mu * np.cos(a)), gradient, {k: abs(x) for k, x in gradient.items()}, fall)


def bounced(case: Case) -> Truth:
    """One hit on the way, at a speed of `down`; W is the case without gravity."""
    y, v, e, g = *case.inputs.values(), case.gravity
    down = np.sqrt(v * v + 2 * g * y)
    hit = (v + down) / g if g else -y / v
    left = case.span - hit
    # down and hit, by y and v
    down_y, down_v = g / down, v / down
    hit_y, hit_v = 1 / down, (1 + down_v) / g if g else y / v**2
    up = e * down - g * left  # speed at the end
    gradient = {
        "y0": e * left * down_y - up * hit_y,
        "v0": e * left * down_v - up * hit_v,
        "e": down * left,
    }
    return Truth(e * down * left - g * left**2 / 2, gradient, {k: abs(x) for k, x in gradient.items()}, y)


def integrate(slope: Callable, y: np.ndarray, span: float, steps: int) -> np.ndarray:
    """Fourth-order Runge-Kutta; all columns of y at once."""
    h = span / steps
    for _ in range(steps):
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
    return y


def reference(case: Case, slope: Callable, start: Callable, output: Callable) -> tuple[float, dict[str, float]]:
    """Output and its derivatives: central differences, of fourth order, of a motion that is exact to 1e-9.

    slope(y, inputs), start(inputs) and output(y, inputs) work on columns, one per set of inputs.
    """
    names, delta = list(case.inputs), 1e-3
    columns = [dict(case.inputs)]
    for name in names:
        for c in (1, -1, 2, -2):
            columns.append(case.inputs | {name: case.inputs[name] + c * delta * UNITS.get(name, 1.0)})
    inputs = {name: np.array([column[name] for column in columns]) for name in names}
    end = integrate(lambda y: slope(y, inputs), start(inputs), case.span, round(2000 * case.span))
    found = output(end, inputs)
    quotients = {}
    for k, name in enumerate(names):
        up, down, up2, down2 = found[1 + 4 * k : 5 + 4 * k]
        quotients[name] = float((8 * (up - down) - (up2 - down2)) / (12 * delta * UNITS.get(name, 1.0)))
    return float(found[0]), quotients


def rod_slope(y: np.ndarray, x: dict) -> np.ndarray:
    angle, rate = y
    total = x["inertia"] + x["length"] ** 2
    return np.stack([rate, -(x["length"] * G * np.sin(angle) + x["damping"] * rate) / total])


def swinging(case: Case) -> Truth:
    value, gradient = reference(
        case, rod_slope, lambda x: np.stack([x["angle"], 0 * x["angle"]]), lambda y, x: y[0]
    )  # fmt: skip
    return Truth(value, gradient, {name: abs(g) for name, g in gradient.items()}, case.inputs["angle"])


def double_slope(y: np.ndarray, _) -> np.ndarray:
    """Of the joints' angles and rates; the equations are those of absolute angles, masses of 1 kg."""
    first, second, rate, turn = y[0], y[0] + y[1], y[2], y[2] + y[3]
    own, c = ROD["inertia"] + ROD["length"] ** 2, ROD["length"] * REACH
    cos, sin = np.cos(first - second), np.sin(first - second)
    a, b, d = own + REACH**2, c * cos, own
    f = -c * sin * turn**2 - (ROD["length"] + REACH) * G * np.sin(first)
    k = c * sin * rate**2 - ROD["length"] * G * np.sin(second)
    det = a * d - b * b
    up, down = (d * f - b * k) / det, (a * k - b * f) / det
    return np.stack([y[2], y[3], up, down - up])


def chaotic(case: Case) -> Truth:
    value, gradient = reference(
        case, double_slope, lambda x: np.stack([x[name] for name in ("q1", "q2", "w1", "w2")]), lambda y, _: y[1]
    )
    size = float(np.linalg.norm(list(gradient.values())))
    return Truth(value, gradient, dict.fromkeys(gradient, size), case.inputs["q1"])


def matrix(q: np.ndarray) -> np.ndarray:
    """Of a unit quaternion xyzw."""
    (x, y, z), w = q[:3], q[3]
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def turned_start(x: dict, xp=np):
    """Quaternion xyzw of the spin's inputs: turned by the small vector (rx, ry, rz) in the world, then lengthened.

    xp may be jax.numpy.
    """
    a, b, s = xp.stack([x["rx"], x["ry"], x["rz"]]) / 2, SPIN_START[:3], SPIN_START[3]
    q = xp.concatenate([b + s * a + xp.cross(a, b), xp.stack([s - a @ b])])
    return x["length_q"] * q / xp.sqrt(1 + a @ a)


def spin_chain(q_bar: np.ndarray, w_bar: np.ndarray) -> dict[str, float]:
    """Derivatives by the spin's inputs from those by the quaternion xyzw and by the angular velocity in the world."""
    b, s = SPIN_START[:3], SPIN_START[3]
    # d q = (r, 0) q / 2 and d w = r x w for a small r
    by_turn = 0.5 * (s * q_bar[:3] - np.cross(q_bar[:3], b) - q_bar[3] * b)
    by_turn = by_turn + np.cross(matrix(SPIN_START) @ SPIN_RATE, w_bar)
    return {**dict(zip(("rx", "ry", "rz"), map(float, by_turn))), "length_q": float(SPIN_START @ q_bar)}


def spinning(case: Case) -> Truth:
    """The motion in the body's axes does not see its orientation, so the derivative is that of a turn."""

    def slope(y):
        w, turn = y[:3], y[3:].reshape(3, 3)
        cross = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([-np.cross(w, SPIN_INERTIA * w) / SPIN_INERTIA, (turn @ cross).ravel()])

    end = integrate(slope, np.concatenate([SPIN_RATE, matrix(SPIN_START).ravel()]), case.span, 4000)
    axis = end[3:].reshape(3, 3)[:, 0]
    by_turn = np.cross(axis, [0.0, 0.0, 1.0])
    gradient = {**dict(zip(("rx", "ry", "rz"), map(float, by_turn))), "length_q": 0.0}
    return Truth(float(axis[2]), gradient, dict.fromkeys(gradient, float(np.linalg.norm(by_turn))), 1.0)


START = {"q1": 2.0, "q2": 1.0, "w1": 0.0, "w2": 0.0}
CASES = {case.name: case for case in (
    Case("S1", "slide", 0.2, {"v0": 1.0, "mu": MU, "m": MASS}, sliding),
    Case("S2", "slide", 0.3, {"v0": 0.5, "mu": MU, "m": MASS}, sliding),
    Case("I1", "slide", 0.5, {"v0": 0.0, "mu": MU, "a": float(np.arctan(2 * MU))}, incline),
    Case("I2", "slide", 0.5, {"v0": 0.0, "mu": MU, "a": float(np.arctan(MU / 2))}, incline),
    Case("W", "bounce", 1.5, {"y0": 1.0, "v0": -1.3, "e": E}, bounced),
    Case("D", "bounce", 0.8, {"y0": 1.0, "v0": 0.0, "e": E}, bounced),
    Case("P", "swing", 5.0, {"angle": 1.0, **ROD}, swinging),
    Case("C 1 s", "double", 1.0, START, chaotic),
    Case("C 4 s", "double", 4.0, START, chaotic),
    Case("Q", "spin", 0.5, {"rx": 0.0, "ry": 0.0, "rz": 0.0, "length_q": 1.0}, spinning),
)}  # fmt: skip


# -- springs in place of a restitution


def spring(e: float, touch: float, releases: bool = True) -> tuple[float, float]:
    """Stiffness and damping per kg of a contact that only pushes, of restitution e, and touches for about `touch` s.

    With sin f for the damping ratio, a damped contact lets go after an angle of pi - 2 f at e = exp(-(pi - 2 f) tan f);
    one that damps the way in only (releases False) has half of that angle in the exponent.
    """
    low, high = 0.0, 1.5
    for _ in range(60):
        f = (low + high) / 2
        exponent = (np.pi - 2 * f) * np.tan(f) * (1.0 if releases else 0.5)
        low, high = (f, high) if np.exp(-exponent) > e else (low, f)
    rate = (np.pi - 2 * f) / (touch * np.cos(f))
    return float(rate**2), float(2 * np.sin(f) * rate)
