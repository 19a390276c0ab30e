"""The room of the impacts, its cases and their Jacobians by gradients of the simulator. event_truth.py has the truth.

All bodies are in one model, so that one pair of kernels is enough; those that a case does not use fall from 90 m or are
at rest. An input of a case is one number. It is put into the state, the control or a parameter, in as many places
as it has; the outputs are all places and rates of the case's joints, rotations in the tangent space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.spatial.transform import Rotation

import warp_articulated as wa
from gradients import event_truth
from gradients.event_truth import DoublePendulum, FreeBody, Hit, Inputs, LimitedPendulum, Motion, Slider, Spheres
from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, Model, Shape, ShapeType, assemble

G = 9.81  # m/s^2
STEPS = (50, 100, 200, 400, 800, 1600)
SLOPE = 0.3  # rad, of the incline: its normal leans to -x
TILT = np.array([0.0, -np.sin(SLOPE / 2), 0.0, np.cos(SLOPE / 2)])
LEAN = (Rotation.from_rotvec([0, 0, 0.3]) * Rotation.from_rotvec([0.7, 0, 0])).as_quat()  # the rod's first orientation
CORNER = (Rotation.from_rotvec([0.6, 0, 0]) * Rotation.from_rotvec([0, 0.3, 0])).as_quat()  # the box's
CORNERS = (Rotation.from_rotvec([0.8, 0, 0]) * Rotation.from_rotvec([0, 0.5, 0])).as_quat()  # for two impacts
ENDS = np.array([[0.03, 0.0, 0.25], [0.0, 0.02, -0.25]])  # m, of the rod
BOX = np.array([0.1, 0.08, 0.06])  # m, half extents
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
INERTIA = {
    "ball": 0.004 * np.ones(3),
    "rod": np.array([0.02, 0.03, 0.005]),
    "box": np.array([100, 136, 164]) * 1e-4 / 3,
}
POINT = 1e-3  # kg m^2 of pendulums that are almost point masses
CUBE = {"half": 0.05, "mass": 0.1, "inertia": 0.1 * 0.1**2 / 6}  # that of DiffMJX
LINKS = (
    "ball",
    "cart",
    "left",
    "right",
    "near",
    "far",
    "thrown",
    "box",
    "arm",
    "fore",
    "knee",
    "rod",
    "slider",
    "cube",
)
PAIRS = ("ball", "cart", "line", "spheres", "thrown", "tip", "slider", "end", "other end", "box", "cube")


@cache
def room() -> Model:
    """Everything that bounces; see LINKS and PAIRS for the order."""
    x, y, z = np.eye(3)
    high, rail = 90 * z, {"joint_type": JointType.PRISMATIC, "axis": x, "mass": 1.0}
    hinge = {"joint_type": JointType.REVOLUTE, "axis": -y, "mass": 1.0, "inertia": POINT * np.eye(3)}

    def free(name: str, mass: float, inertia: np.ndarray, pos: np.ndarray = high) -> Body:
        return Body(name, WORLD, name, JointType.FREE, pos, mass=mass, inertia=np.diag(inertia))

    bodies = [
        Body("ball", WORLD, "ball", JointType.PRISMATIC, axis=z, mass=1.0, q0=np.array([90.0])),
        Body("cart", WORLD, "cart", **rail),
        Body("left", WORLD, "left", **rail),
        Body("right", WORLD, "right", q0=np.array([0.5]), **rail),
        free("near", 1.0, INERTIA["ball"]),
        free("far", 2.0, INERTIA["ball"], high + 2 * x),
        free("thrown", 1.0, INERTIA["ball"]),
        free("box", 1.0, INERTIA["box"]),
        Body("arm", WORLD, "arm", com=-z, **hinge),
        Body("fore", 8, "fore", pos=-z, com=-0.8 * z, **hinge),
        Body("knee", WORLD, "knee", com=-z, lower=-0.2, upper=2.0, **hinge),
        free("rod", 1.0, INERTIA["rod"]),
        Body("slider", WORLD, "slider", q0=np.array([1.0]), **rail),
        free("cube", CUBE["mass"], CUBE["inertia"] * np.ones(3)),
    ]
    left, right = np.array([0, -1, 0, 1]) / np.sqrt(2), np.array([0, 1, 0, 1]) / np.sqrt(2)  # planes facing -x and x

    def sphere(link: str, radius: float, pos: np.ndarray = 0 * x) -> Shape:
        return Shape(ShapeType.SPHERE, LINKS.index(link), np.array([radius]), pos)

    shapes = [
        sphere("ball", 0.1, 0.1 * z),
        sphere("cart", 0.1),
        sphere("left", 0.1),
        sphere("right", 0.1),
        sphere("near", 0.25),
        sphere("far", 0.25),
        sphere("thrown", 0.1),
        sphere("fore", 0.05, -0.8 * z),
        sphere("slider", 0.1),
        sphere("rod", 0.05, ENDS[0]),
        sphere("rod", 0.05, ENDS[1]),
        Shape(ShapeType.BOX, LINKS.index("box"), BOX),
        Shape(ShapeType.BOX, LINKS.index("cube"), CUBE["half"] * np.ones(3)),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), name="floor"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), 1.1 * x, left, name="wall"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), quat=TILT, name="incline"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), 0.35 * x, left, name="wall of the pendulum"),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), -0.1 * x, right, name="wall of the slider"),
    ]
    pairs = [
        (0, 13, 0.0, 0.5), (1, 14, 0.0, 0.5), (2, 3, 0.0, 1.0), (4, 5, 0.0, 0.8), (6, 15, 0.15, 0.5), (7, 16, 0.0, 0.6),
        (8, 17, 0.0, 0.5), (9, 13, 0.25, 0.5), (10, 13, 0.25, 0.5), (11, 13, 0.2, 0.5), (12, 13, 1.0, 0.15),
    ]  # fmt: skip
    drives = [Drive("slider", DriveType.POSITION, kp=100.0, kd=5.0)]
    return assemble("impacts", bodies, shapes, drives, pairs=pairs)


# -- inputs


@dataclass(frozen=True)
class Place:
    """Where an input goes: kind "q", "qd" or "turn" (world axes) of a joint, "u" of the drive, or a parameter."""

    kind: str
    joint: str = ""
    index: int | tuple[int, ...] = 0
    factor: float = 1.0
    offset: float = 0.0


def param(name: str, *indices, factor: float = 1.0, offset: float = 0.0) -> tuple[Place, ...]:
    return tuple(Place(name, index=index, factor=factor, offset=offset) for index in indices)


def state(joint: str, position: str, speed: str) -> dict[str, tuple[Place, ...]]:
    """Inputs of a joint with one dof."""
    return {position: (Place("q", joint),), speed: (Place("qd", joint),)}


def contact(*pairs: str) -> dict[str, tuple[Place, ...]]:
    where = [PAIRS.index(pair) for pair in pairs]
    return {"e": param("restitution", *where), "mu": param("friction", *where)}


def free_state(joint: str) -> dict[str, tuple[Place, ...]]:
    """Inputs of a free body: see event_truth.FreeBody."""
    places = {}
    for kind, start, names in (("q", 0, "x y z"), ("turn", 0, "rx ry rz"), ("qd", 0, "vx vy vz wx wy wz")):
        places |= {name: (Place(kind, joint, start + k),) for k, name in enumerate(names.split())}
    return places


def body_scales(link: str, mass: float, inertia: np.ndarray) -> dict[str, tuple[Place, ...]]:
    k = LINKS.index(link)
    moments = tuple(Place("inertia", index=(k, i, i), factor=float(x)) for i, x in enumerate(inertia))
    return {"m": param("mass", k, factor=mass), "I": moments}


GRAVITY = {"g": param("gravity", 2, factor=-1.0)}


# -- cases


@dataclass(frozen=True)
class Answer:
    """Of the continuous motion: the last state, its Jacobian (outputs, inputs), the impacts, the Jacobian's error."""

    end: np.ndarray
    jacobian: np.ndarray
    hits: tuple[Hit, ...] = ()
    doubt: float = 0.0


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    joints: tuple[str, ...]
    span: float  # s
    inputs: Inputs
    places: dict[str, tuple[Place, ...]]
    motion: Motion | Callable[[Inputs, float], np.ndarray]
    steps: tuple[int, ...] = STEPS
    order: bool = True  # False: exact to rounding, or no order is expected
    some: tuple[str, ...] = ()  # inputs to differentiate by; all, if none is named

    @property
    def by(self) -> tuple[str, ...]:
        return self.some or tuple(self.inputs)

    @property
    def integrated(self) -> bool:
        """False: the truth is a closed form."""
        return isinstance(self.motion, Motion)

    @property
    def quaternions(self) -> tuple[int, ...]:
        """Where quaternions begin in the state of the joints."""
        model, starts, k = room(), [], 0
        for joint in self.joints:
            size = model.joint_q(joint).stop - model.joint_q(joint).start
            starts += [k + 3] if size == 7 else []
            k += size
        return tuple(starts)


@cache
def answer(case: Case) -> Answer:
    """The truth of a case."""
    if case.integrated:
        asked = case.motion, case.inputs, case.span, case.by, case.quaternions
        end, jacobian, hits, doubt = event_truth.differences(*asked)
        return Answer(end, jacobian, tuple(hits), doubt)
    jacobian = event_truth.complex_step(case.motion, case.inputs, case.span, case.by)
    return Answer(case.motion(case.inputs, case.span), jacobian)


def dropped(name: str, e: float, y0: float = 1.0, span: float = 0.83, steps=STEPS) -> Case:
    places = state("ball", "y0", "v0") | {"e": param("restitution", PAIRS.index("ball"))} | GRAVITY
    values = {"y0": y0, "v0": 0.0, "e": e, "g": G}
    return Case(name, ("ball",), span, values, places, event_truth.bounces, steps, order=e > 0)


def tumbling(name: str, link: str, pairs: tuple[str, ...], span: float, motion: FreeBody, **values: float) -> Case:
    """A free body: all inputs that are not given are zero, scales are one."""
    places = free_state(link) | contact(*pairs) | GRAVITY | body_scales(link, motion.weight, motion.inertia)
    inputs = dict.fromkeys(places, 0.0) | {"g": G, "m": 1.0, "I": 1.0} | values
    return Case(name, (link,), span, inputs, places, motion)


def pendulum(name: str, k: float, c: float) -> Case:
    model = room()
    dofs = [model.joint_v(joint).start for joint in ("arm", "fore")]
    wall = next(i for i, shape in enumerate(model.shapes) if shape.name == "wall of the pendulum")
    places = {
        **state("arm", "a1", "w1"), **state("fore", "a2", "w2"),
        "e": param("restitution", PAIRS.index("tip")), "wall": param("shape_pos", (wall, 0), offset=0.05), **GRAVITY,
        "m2": param("mass", LINKS.index("fore")), "k": param("stiffness", *dofs), "c": param("damping", *dofs),
    }  # fmt: skip
    values = {"a1": -0.5, "w1": 1.0, "a2": 0.3, "w2": 0.5, "e": 0.6, "wall": 0.3, "g": G, "m2": 1.0, "k": k, "c": c}
    motion = DoublePendulum((1.0, 0.8), (1.0, 0.8), (POINT, POINT))
    return Case(name, ("arm", "fore"), 1.0, values, places, motion)


def limited(name: str, e: float) -> Case:
    dof = room().joint_v("knee").start
    places = {
        **state("knee", "a0", "w0"), "e": param("limit_restitution", dof), "low": param("lower", dof), **GRAVITY,
    }  # fmt: skip
    values = {"a0": 0.5003, "w0": 0.0, "e": e, "low": -0.2, "g": G}
    return Case(name, ("knee",), 0.9, values, places, LimitedPendulum(1.0, POINT))


def spheres() -> Case:
    places = {}
    for k, joint in ((1, "near"), (2, "far")):
        for i, axis in enumerate("xyz"):
            places |= {f"{axis}{k}": (Place("q", joint, i),), f"v{axis}{k}": (Place("qd", joint, i),)}
        places[f"m{k}"] = param("mass", LINKS.index(joint))
    places |= GRAVITY | {"e": param("restitution", PAIRS.index("spheres"))}
    values = {
        "x1": 0.0, "y1": 0.0, "z1": 0.0, "vx1": 1.0, "vy1": 0.2, "vz1": 0.05, "m1": 1.0,
        "x2": 1.0003, "y2": 0.31, "z2": 0.1, "vx2": -0.3, "vy2": -0.05, "vz2": 0.0, "m2": 2.0, "g": 0.0, "e": 0.8,
    }  # fmt: skip
    return Case("spheres, oblique", ("near", "far"), 1.1, values, places, Spheres())


@cache
def cases() -> tuple[Case, ...]:
    normal = Rotation.from_quat(TILT).as_matrix()[:, 2]
    thrown = FreeBody(np.zeros((1, 3)), 0.1, INERTIA["ball"], normal=normal)
    rod = FreeBody(ENDS, 0.05, INERTIA["rod"], LEAN)
    box, boxes = (FreeBody(SIGNS * BOX, 0.0, INERTIA["box"], turn) for turn in (CORNER, CORNERS))
    wall = Case(
        "wall", ("cart",), 1.507, {"q0": 0.0, "v0": 1.0, "e": 0.5},
        state("cart", "q0", "v0") | {"e": param("restitution", PAIRS.index("cart"))}, event_truth.wall, order=False,
    )  # fmt: skip
    line = Case(
        "balls in line, e = 1", ("left", "right"), 0.9,
        {"x1": 0.0, "v1": 1.0, "x2": 0.5003, "v2": -0.2, "e": 1.0, "m1": 1.0, "m2": 1.0},
        {**state("left", "x1", "v1"), **state("right", "x2", "v2"), "e": param("restitution", PAIRS.index("line")),
         "m1": param("mass", LINKS.index("left")), "m2": param("mass", LINKS.index("right"))},
        event_truth.line, order=False,
    )  # fmt: skip
    slider = Case(
        "PD drive, e = 0.5", ("slider",), 0.25,
        {"q0": 0.2003, "v0": 0.0, "e": 0.5, "kp": 100.0, "kd": 5.0, "target": -0.02, "m": 1.0},
        {**state("slider", "q0", "v0"), "e": param("restitution", PAIRS.index("slider")), "kp": param("kp", 0),
         "kd": param("kd", 0), "target": (Place("u"),), "m": param("mass", LINKS.index("slider"))},
        Slider(),
    )  # fmt: skip
    return (
        wall,
        dropped("drop, e = 0", 0.0),
        dropped("drop, e = 0.5", 0.5),
        dropped("drop, e = 1", 1.0),
        dropped("eight bounces", 0.8, 0.2, 1.5, tuple(3 * n for n in STEPS)),
        line,
        spheres(),
        tumbling(
            "incline, slips", "thrown", ("thrown",), 0.6, thrown,
            z=0.5007, vx=-2.0, vy=0.4, wx=3.0, wy=2.0, e=0.5, mu=0.15,
        ),
        tumbling(
            "incline, sticks", "thrown", ("thrown",), 0.6, thrown, z=0.5007, vx=0.3, vy=0.2, wz=4.0, e=0.5, mu=0.9,
        ),
        tumbling(
            "box on its corner", "box", ("box",), 0.4, box, z=0.5003, vx=0.2, wx=0.5, wy=1.1, wz=0.5, e=0.6, mu=0.5,
        ),
        tumbling(
            "box on two corners", "box", ("box",), 0.4, boxes, z=0.5003, vx=0.2, wx=0.4, wy=-1.9, wz=0.7, e=0.6, mu=0.3,
        ),
        pendulum("double pendulum, wall", 0.0, 0.1),
        pendulum("double pendulum, driven", 20.0, 0.5),
        limited("joint limit, e = 0", 0.0),
        limited("joint limit, e = 0.4", 0.4),
        tumbling(
            "rod in space", "rod", ("end", "other end"), 0.45, rod,
            z=0.6003, vx=0.3, vy=-0.2, wx=1.0, wy=2.0, wz=0.5, e=0.5, mu=0.25,
        ),
        slider,
    )  # fmt: skip


def case(name: str) -> Case:
    return next(c for c in cases() if c.name == name)


# -- the simulator


def simulator(mode: str, num_envs: int, dt: float, dtype: str = "float64") -> wa.Simulator:
    options = {"max_push_speed": 1e3, "validate": False}
    return wa.Simulator(room(), num_envs, device="cpu", dtype=dtype, dt=dt, contact_time=mode, **options)


def start(case: Case, sim: wa.Simulator, x: torch.Tensor):
    """q, qd, u and params of environments with inputs x (num_envs, inputs)."""
    model = sim.model
    (q, qd), u, params = sim.initial_state(), sim.initial_control(), {}
    turns: dict[str, list] = {}
    if isinstance(case.motion, FreeBody):
        q[:, model.joint_q(case.joints[0])][:, 3:] = q.new_tensor(case.motion.turn)
    for k, name in enumerate(case.inputs):
        for place in case.places[name]:
            value = place.factor * x[:, k] + place.offset
            if place.kind == "q":
                q[:, model.joint_q(place.joint).start + place.index] = value
            elif place.kind == "qd":
                qd[:, model.joint_v(place.joint).start + place.index] = value
            elif place.kind == "u":
                u[:, place.index] = value
            elif place.kind == "turn":
                turns.setdefault(place.joint, []).append(value)
            else:
                index = place.index if isinstance(place.index, tuple) else (place.index,)
                params.setdefault(place.kind, sim.params[place.kind].clone())[(slice(None), *index)] = value
    for joint, turn in turns.items():
        first = model.joint_q(joint).start + 3
        q[:, first : first + 4] = turned(torch.stack(turn, 1), q[:, first : first + 4].clone())
    return q, qd, u, params


def turned(turn: torch.Tensor, quaternion: torch.Tensor) -> torch.Tensor:
    """The quaternion xyzw, turned by a vector in world axes that is zero: right in its first derivative."""
    a, b, s = turn / 2, quaternion[:, :3], quaternion[:, 3:]
    return torch.cat([b + s * a + torch.linalg.cross(a, b), s - (a * b).sum(1, keepdim=True)], 1)


def outputs(case: Case, sim: wa.Simulator, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
    """(num_envs, outputs): places, with the turn from their own last orientation (zero) for rotations, and rates."""
    parts = []
    for joint in case.joints:
        place = q[:, sim.model.joint_q(joint)]
        if place.shape[1] == 7:
            b, s = place[:, 3:6], place[:, 6:]
            c, r = b.detach(), s.detach()
            parts += [place[:, :3], 2 * (r * b - s * c - torch.linalg.cross(b, c))]
        else:
            parts.append(place)
    return torch.cat([*parts, *(qd[:, sim.model.joint_v(joint)] for joint in case.joints)], 1)


def jacobian(case: Case, mode: str, steps: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """Outputs (m,) and their derivatives (m, inputs) by gradients: one environment per output, one backward pass."""
    count = answer(case).jacobian.shape[0]
    sim = simulator(mode, count, case.span / steps, dtype)
    x = torch.tensor(list(case.inputs.values()), dtype=sim.dtype).repeat(count, 1).requires_grad_()
    q, qd, u, params = start(case, sim, x)
    qs, qds = sim.rollout(q, qd, u.expand(steps, -1, -1), params=params, checkpoint_every="sqrt")
    y = outputs(case, sim, qs[-1], qds[-1])
    rows = torch.autograd.grad(y.diagonal().sum(), x)[0][:, [list(case.inputs).index(name) for name in case.by]]
    return y[0].detach().double().numpy(), rows.double().numpy()


def flat(case: Case, end: np.ndarray) -> np.ndarray:
    """A state or outputs of a case without their rotations, which are compared in derivatives only."""
    width = 4 if len(end) > answer(case).jacobian.shape[0] else 3
    left = [k - (4 - width) * i + j for i, k in enumerate(case.quaternions) for j in range(width)]
    return np.delete(end, left)


def error(case: Case, found: np.ndarray) -> float:
    """Largest error of a Jacobian over the largest entry of the true one."""
    true = answer(case).jacobian
    return float(np.abs(found - true).max() / (np.abs(true).max() or 1.0))
