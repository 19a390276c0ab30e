"""Motions with impacts and their derivatives, event-driven: the truth that gradients through impacts are compared with.

Needs numpy and scipy only and nothing of the simulator: mass matrices and forces follow from Newton, Euler and
Lagrange. Between impacts the equations of motion are integrated to 1e-12, or are closed forms. At an impact, found as
a root of the gap, the velocity jumps. Derivatives are those of the closed forms (complex step), or extrapolated
central differences. A difference is refused if the order of the impacts, or stick and slip, change within it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

ACCURACY = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13, "max_step": 0.02}
Inputs = dict[str, float]


@dataclass(frozen=True)
class Hit:
    """One impact: its time (s), which contact, its speed (m/s) and whether it sticks, slips or has no friction."""

    time: float
    contact: int
    speed: float
    kind: str
    margin: float = np.inf  # |tangential| / (mu normal) impulse of sticking: 1 is the edge of the cone


# -- closed forms


def bounces(x: Inputs, span: float) -> np.ndarray:
    """Height and speed of a ball above a floor; without bounce it stays there. Works with complex numbers."""
    y, v, e, g, left = x["y0"], x["v0"], x["e"], x["g"], span
    while True:
        down = np.sqrt(v * v + 2 * g * y)
        time = (v + down) / g
        if np.real(time) > np.real(left):
            return np.array([y + v * left - g * left**2 / 2, v - g * left])
        if np.real(e) == 0:
            return np.zeros(2)  # at rest, and soon at rest after small bounces: the last state has no derivatives
        y, v, left = 0 * y, e * down, left - time


def wall(x: Inputs, span: float) -> np.ndarray:
    """Place and speed of a cart that meets a wall at 1 m on its way, without forces."""
    time = (1 - x["q0"]) / x["v0"]
    return np.array([1 - x["e"] * x["v0"] * (span - time), -x["e"] * x["v0"]])


def line(x: Inputs, span: float) -> np.ndarray:
    """Places and speeds of two balls of radius 0.1 m that meet on a line."""
    m, n, v, w = x["m1"], x["m2"], x["v1"], x["v2"]
    time = (x["x2"] - x["x1"] - 0.2) / (v - w)
    impulse = (1 + x["e"]) * (v - w) * m * n / (m + n)
    after = np.array([v - impulse / m, w + impulse / n])
    meet = np.array([x["x1"] + v * time, x["x2"] + w * time])
    return np.concatenate([meet + after * (span - time), after])


def complex_step(
    motion: Callable[[Inputs, float], np.ndarray], x: Inputs, span: float, names: Sequence[str]
) -> np.ndarray:
    """(outputs, names): derivatives of a closed form by some of its inputs, exact to rounding."""
    return np.stack([np.imag(motion(x | {name: x[name] + 1e-30j}, span)) / 1e-30 for name in names], 1)


# -- impacts


def impact(mass: np.ndarray, rows: np.ndarray, v: np.ndarray, e: float, mu: float) -> tuple[np.ndarray, str, float]:
    """Velocity after the impact of one contact, its kind, and how far it is from the edge of the cone.

    rows: (1, 2 or 3, nv), the normal first. The normal velocity is reversed times e. Friction stops the point, or
    its impulse is mu times the normal one, against the slip that is left after the impact.
    """
    spread = np.linalg.solve(mass, rows.T)
    A, b = rows @ spread, rows @ v
    bounce = -(1 + e) * b[0]
    if len(rows) == 1 or mu == 0:
        return v + spread[:, 0] * bounce / A[0, 0], "smooth", np.inf
    x = np.linalg.solve(A, np.concatenate([[bounce], -b[1:]]))
    share = float(np.linalg.norm(x[1:]) / (mu * x[0]))
    if x[0] > 0 and share <= 1:
        return v + spread @ x, "stick", share

    def slipping(angle: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Impulses if the slip after the impact has this direction, the direction, and the slip that they leave."""
        d = np.array([np.cos(angle), np.sin(angle)])[: len(rows) - 1]
        normal = bounce / (A[0, 0] - mu * A[0, 1:] @ d)
        x = np.concatenate([[normal], -mu * normal * d])
        return x, d, (A @ x + b)[1:]

    if len(rows) == 2:
        found = [slipping(angle) for angle in (0.0, np.pi)]
    else:

        def across(angle: float) -> float:
            _, d, slip = slipping(angle)
            return d[0] * slip[1] - d[1] * slip[0]

        angles = 0.1 + np.linspace(0, 2 * np.pi, 73)  # no motion in a plane has its root on the grid
        sides = [across(angle) for angle in angles]
        pairs = [k for k in range(72) if sides[k] * sides[k + 1] < 0]
        found = [slipping(brentq(across, angles[k], angles[k + 1], xtol=1e-15, rtol=1e-15)) for k in pairs]
    right = [x for x, d, slip in found if x[0] > 0 and d @ slip > 0]
    if len(right) != 1:
        raise ValueError(f"this impact has {len(right)} solutions; choose another start.")
    return v + spread @ right[0], "slip", share


# -- motions


class Motion:
    """Coordinates q (of any kind) and velocities v, with contacts. Rows of a contact: normal first, then tangents."""

    def start(self, x: Inputs) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def mass(self, q, x: Inputs) -> np.ndarray:
        raise NotImplementedError

    def force(self, q, v, x: Inputs) -> np.ndarray:
        """Everything but the mass times the acceleration and the contacts."""
        raise NotImplementedError

    def rate(self, q, v) -> np.ndarray:
        """Time derivative of q."""
        return v

    def gaps(self, q, x: Inputs) -> np.ndarray:
        raise NotImplementedError

    def rows(self, q, contact: int, x: Inputs) -> np.ndarray:
        raise NotImplementedError

    def end(self, q, v) -> np.ndarray:
        """The last state as the simulator has it: places of all joints, then rates."""
        return np.concatenate([q, v])

    def run(self, x: Inputs, span: float) -> tuple[np.ndarray, list[Hit]]:
        """The state after `span` seconds and the impacts on the way."""
        q, v = self.start(x)
        size, y, now, hits = len(q), np.concatenate([q, v]), 0.0, []

        def slope(_, y):
            q, v = y[:size], y[size:]
            return np.concatenate([self.rate(q, v), np.linalg.solve(self.mass(q, x), self.force(q, v, x))])

        def event(k):
            def gap(_, y):
                return self.gaps(y[:size], x)[k]

            gap.terminal, gap.direction = True, -1
            return gap

        def approach(y, k):
            return float(self.rows(y[:size], k, x)[0] @ y[size:])

        events = [event(k) for k in range(len(self.gaps(q, x)))]
        while True:
            run = solve_ivp(slope, (now, span), y, events=events, **ACCURACY)
            if run.status != 1:
                return self.end(run.y[:size, -1], run.y[size:, -1]), hits
            k = int(np.argmin([times[0] if len(times) else np.inf for times in run.t_events]))
            # the event is a root of an interpolant: integrate up to it, and correct by Newton's rule
            time = float(run.t_events[k][0])
            y = solve_ivp(slope, (now, time), y, **ACCURACY).y[:, -1]
            for _ in range(3):
                late = -float(self.gaps(y[:size], x)[k]) / approach(y, k)
                middle = y + late / 2 * slope(0, y)
                y, time = y + late * slope(0, middle), time + late
            now, speed = time, -approach(y, k)
            rows, mass = self.rows(y[:size], k, x), self.mass(y[:size], x)
            e, mu = self.contact(k, x)
            v, kind, margin = impact(mass, rows, y[size:], e, mu)
            y = np.concatenate([y[:size], v])
            hits.append(Hit(now, k, speed, kind, margin))

    def contact(self, k: int, x: Inputs) -> tuple[float, float]:
        """Restitution and friction."""
        return x["e"], x.get("mu", 0.0)


@dataclass(frozen=True)
class FreeBody(Motion):
    """A rigid body with balls (radius 0: corners) fixed to it, above a plane through the origin.

    q: position of its com, quaternion xyzw; v: velocity, angular velocity in world axes. Inputs: x y z, rx ry rz (turns
    the first orientation, in world axes), vx vy vz, wx wy wz, e, mu, g, and the scales m and I of mass and inertia.
    """

    points: np.ndarray  # (n, 3), in the body's axes
    radius: float
    inertia: np.ndarray  # (3,) kg m^2 in the body's axes; the mass is 1 kg unless `weight` says otherwise
    turn: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 1.0]))
    normal: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    weight: float = 1.0  # kg

    def start(self, x):
        turn = Rotation.from_rotvec([x["rx"], x["ry"], x["rz"]]) * Rotation.from_quat(self.turn)
        q = np.concatenate([[x["x"], x["y"], x["z"]], turn.as_quat()])
        return q, np.array([x[name] for name in ("vx", "vy", "vz", "wx", "wy", "wz")])

    def mass(self, q, x):
        R = matrix(q[3:])
        M = np.zeros((6, 6))
        M[:3, :3] = self.weight * x["m"] * np.eye(3)
        M[3:, 3:] = (R * (self.inertia * x["I"])) @ R.T
        return M

    def force(self, q, v, x):
        R, w = matrix(q[3:]), v[3:]
        spin = (R * (self.inertia * x["I"])) @ R.T @ w
        return np.concatenate([[0, 0, -self.weight * x["m"] * x["g"]], -np.cross(w, spin)])

    def rate(self, q, v):
        b, s, w = q[3:6], q[6], v[3:]
        return np.concatenate([v[:3], (s * w + np.cross(w, b)) / 2, [-w @ b / 2]])

    def gaps(self, q, x):
        return (q[:3] + self.points @ matrix(q[3:]).T) @ self.normal - self.radius

    def rows(self, q, contact, x):
        arm = matrix(q[3:]) @ self.points[contact] - self.radius * self.normal
        side = np.cross(self.normal, [0.36, 0.48, 0.8])  # any
        side = side / np.linalg.norm(side)
        axes = np.stack([self.normal, side, np.cross(self.normal, side)])
        return np.concatenate([axes, np.cross(arm, axes)], 1)


@dataclass(frozen=True)
class Spheres(Motion):
    """Two smooth spheres of radius 0.25 m in space: they do not turn. Inputs: x1 ... z2, their speeds, e, m1, m2, g."""

    names = tuple(f"{axis}{k}" for k in (1, 2) for axis in "xyz")

    def start(self, x):
        return np.array([x[n] for n in self.names]), np.array([x["v" + n] for n in self.names])

    def mass(self, q, x):
        return np.diag(np.repeat([x["m1"], x["m2"]], 3))

    def force(self, q, v, x):
        return np.array([0, 0, -x["m1"] * x["g"], 0, 0, -x["m2"] * x["g"]])

    def gaps(self, q, x):
        return np.array([np.linalg.norm(q[3:] - q[:3]) - 0.5])

    def rows(self, q, contact, x):
        n = (q[3:] - q[:3]) / np.linalg.norm(q[3:] - q[:3])
        return np.concatenate([-n, n])[None]

    def end(self, q, v):
        still, zero = np.array([0.0, 0.0, 0.0, 1.0]), np.zeros(3)
        return np.concatenate([q[:3], still, q[3:], still, v[:3], zero, v[3:], zero])


@dataclass(frozen=True)
class DoublePendulum(Motion):
    """Two links in a plane, hinged at the origin; the end of the second meets a wall at x = w.

    Joint angles from hanging; absolute angles are a = q1 and b = q1 + q2. Inputs: a1 a2 w1 w2, e, wall, g, m2 (mass of
    the second link), and stiffness k and damping c of both hinges.
    """

    lengths: tuple[float, float]  # m, to the second hinge and to the tip
    coms: tuple[float, float]  # m, from each link's hinge
    inertia: tuple[float, float]  # kg m^2 about each com; the first link has 1 kg

    def start(self, x):
        return np.array([x["a1"], x["a2"]]), np.array([x["w1"], x["w2"]])

    TO_ABSOLUTE = np.array([[1.0, 0.0], [1.0, 1.0]])

    def mass(self, q, x):
        (l1, _), (c1, c2), (i1, i2), m = self.lengths, self.coms, self.inertia, x["m2"]
        off = m * l1 * c2 * np.cos(q[1])
        return self.TO_ABSOLUTE.T @ np.array([[i1 + c1**2 + m * l1**2, off], [off, i2 + m * c2**2]]) @ self.TO_ABSOLUTE

    def force(self, q, v, x):
        (l1, _), (c1, c2), m, g = self.lengths, self.coms, x["m2"], x["g"]
        a, b, va, vb = q[0], q[0] + q[1], v[0], v[0] + v[1]
        bend = m * l1 * c2 * np.sin(a - b)
        pull = np.array([
            -bend * vb**2 - (c1 + m * l1) * g * np.sin(a),
            bend * va**2 - m * c2 * g * np.sin(b),
        ])  # fmt: skip
        return self.TO_ABSOLUTE.T @ pull - x["k"] * q - x["c"] * v

    def gaps(self, q, x):
        return np.array([x["wall"] - self.lengths[0] * np.sin(q[0]) - self.lengths[1] * np.sin(q[0] + q[1])])

    def rows(self, q, contact, x):
        first, second = self.lengths[0] * np.cos(q[0]), self.lengths[1] * np.cos(q[0] + q[1])
        return np.array([[-first - second, -second]])


@dataclass(frozen=True)
class LimitedPendulum(Motion):
    """A pendulum of 1 kg with a joint limit below. Inputs: a0, w0, e, low, g."""

    com: float
    inertia: float  # kg m^2 about the com

    def start(self, x):
        return np.array([x["a0"]]), np.array([x["w0"]])

    def mass(self, q, x):
        return np.array([[self.inertia + self.com**2]])

    def force(self, q, v, x):
        return -self.com * x["g"] * np.sin(q)

    def gaps(self, q, x):
        return q - x["low"]

    def rows(self, q, contact, x):
        return np.ones((1, 1))


class Slider(Motion):
    """A slider whose PD drive pulls it against a wall at 0. Inputs: q0, v0, e, kp, kd, target, m."""

    def start(self, x):
        return np.array([x["q0"]]), np.array([x["v0"]])

    def mass(self, q, x):
        return np.array([[x["m"]]])

    def force(self, q, v, x):
        return x["kp"] * (x["target"] - q) - x["kd"] * v

    def gaps(self, q, x):
        return q

    def rows(self, q, contact, x):
        return np.ones((1, 1))


# -- derivatives


def matrix(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrix of a quaternion xyzw of nearly unit length."""
    x, y, z, w = quaternion / np.linalg.norm(quaternion)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * w * cross + 2 * cross @ cross


def tangent(end: np.ndarray, reference: np.ndarray, quaternions: tuple[int, ...]) -> np.ndarray:
    """The state with every quaternion (they start at these places) replaced by the turn from the reference, rad."""
    parts, last = [], 0
    for k in quaternions:
        turn = Rotation.from_quat(end[k : k + 4]) * Rotation.from_quat(reference[k : k + 4]).inv()
        parts += [end[last:k], turn.as_rotvec()]
        last = k + 4
    return np.concatenate([*parts, end[last:]])


def differences(
    motion: Motion, x: Inputs, span: float, names: Sequence[str], quaternions: tuple[int, ...] = (), delta: float = 4e-4
) -> tuple[np.ndarray, np.ndarray, list[Hit], float]:
    """Last state, its derivatives (outputs, names), the impacts, and an estimate of the derivatives' error.

    Central differences with three steps, extrapolated. Raises ValueError if a difference crosses a switch.
    """
    end, hits = motion.run(x, span)
    order = [(hit.contact, hit.kind) for hit in hits]
    columns, doubts = [], [0.0]
    for name in names:

        def moved(step, name=name):
            other, others = motion.run(x | {name: x[name] + step}, span)
            if [(hit.contact, hit.kind) for hit in others] != order:
                raise ValueError(f"the impacts change within the differences by {name}: {hits} and {others}.")
            return tangent(other, end, quaternions)

        d1, d2, d4 = ((moved(delta / k) - moved(-delta / k)) * k / (2 * delta) for k in (1, 2, 4))
        coarse, fine = (4 * d2 - d1) / 3, (4 * d4 - d2) / 3
        columns.append((16 * fine - coarse) / 15)
        doubts.append(float(np.abs(columns[-1] - fine).max()))
    return end, np.stack(columns, 1), hits, max(doubts)
