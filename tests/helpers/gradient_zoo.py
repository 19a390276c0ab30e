"""What the gradient tests share: a crowded forest in which everything occurs at once, and difference quotients.

The zoo has free, fixed and branched trees with all joint types, limits, dry friction, springs and drives of all types,
and shapes of all types that overlap at random poses: contacts within a tree, between trees and with the world.
"""

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

import warp_articulated as wa
from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, Shape, ShapeType, assemble

STEPS = [0.03 * 8.0**-k for k in range(7)]  # of differences, relative to the size of the input
POINTS = 2 * len(STEPS)  # that a derivative takes

ABSENT = {"armature": 1e-3}  # size of an input that is zero everywhere, if not 1

# Gradients are exact up to rounding; what limits the comparison is the difference quotient. One that agrees with
# itself to DOUBT is compared, to TOLERANCE; measured errors are about a third of the doubt.
TOLERANCE, DOUBT = 1e-6, 5e-7

FREE, HINGE, SLIDER, BALL = JointType.FREE, JointType.REVOLUTE, JointType.PRISMATIC, JointType.SPHERICAL
TREES = {  # body: parent, joint
    "trunk": (None, FREE),
    "hip": ("trunk", HINGE),
    "leg": ("hip", SLIDER),
    "foot": ("leg", BALL),
    "arm": ("trunk", BALL),
    "hand": ("arm", HINGE),
    "pebble": (None, FREE),
    "base": (None, HINGE),
    "elbow": ("base", BALL),
    "wrist": ("elbow", HINGE),
    "tip": ("wrist", SLIDER),
    "lamp": (None, BALL),
}
SHAPES = [  # body, type, size
    ("trunk", ShapeType.BOX, (0.2, 0.15, 0.1)),
    ("leg", ShapeType.CAPSULE, (0.06, 0.12, 0)),
    ("foot", ShapeType.SPHERE, (0.09, 0, 0)),
    ("hand", ShapeType.BOX, (0.08, 0.1, 0.06)),
    ("pebble", ShapeType.SPHERE, (0.15, 0, 0)),
    ("elbow", ShapeType.CAPSULE, (0.05, 0.15, 0)),
    ("tip", ShapeType.MESH, (0, 0, 0)),
    ("tip", ShapeType.SPHERE, (0.07, 0, 0)),
    ("lamp", ShapeType.CYLINDER, (0.1, 0.12, 0)),
    ("lamp", ShapeType.BOX, (0.07, 0.07, 0.07)),
    (None, ShapeType.PLANE, (0, 0, 0)),
    (None, ShapeType.BOX, (0.3, 0.2, 0.25)),
]


def unit(rng, n):
    v = rng.normal(size=n)
    return v / np.linalg.norm(v)


def random_inertia(rng, mass):
    """Of points scattered around the com: valid, with no axis of symmetry."""
    points = rng.normal(size=(12, 3)) * 0.12
    points -= points.mean(0)
    return mass / 12 * sum(np.eye(3) * (p @ p) - np.outer(p, p) for p in points)


@cache
def zoo_model(seed=0):
    rng = np.random.default_rng(seed)
    names = list(TREES)
    bodies = []
    for name, (parent, kind) in TREES.items():
        mass = rng.uniform(0.5, 2.0)
        one_dof = kind in (HINGE, SLIDER)
        bodies.append(
            Body(
                name, WORLD if parent is None else names.index(parent), name, kind,
                pos=rng.normal(size=3) * 0.25, quat=unit(rng, 4), axis=unit(rng, 3), mass=mass,
                com=rng.normal(size=3) * 0.05, inertia=random_inertia(rng, mass), armature=rng.uniform(0.01, 0.1),
                damping=rng.uniform(0.05, 0.5), stiffness=rng.uniform(1, 10) if one_dof else 0.0,
                spring_ref=rng.normal() * 0.2, frictionloss=0.3 if name in ("hip", "tip") else 0.0,
                lower=-0.2 if one_dof else -np.inf, upper=0.25 if one_dof else np.inf,
                limit_restitution=0.6 if one_dof else 0.0,
                gravcomp=0.7 if name in ("trunk", "arm", "elbow", "wrist") else 0.0,
            )
        )  # fmt: skip
    shapes = []
    for k, (body, kind, size) in enumerate(SHAPES):
        corners = rng.normal(size=(9, 3)) * 0.08 if kind == ShapeType.MESH else None
        pos = rng.normal(size=3) * (0.0 if body is None else 0.04)
        quat = np.array([0.05, 0.1, 0.0, 1.0]) if kind == ShapeType.PLANE else unit(rng, 4)
        shapes.append(
            Shape(
                kind, WORLD if body is None else names.index(body), np.array(size), pos, quat, f"shape{k}",
                body or "world", friction=rng.uniform(0.3, 1.0), restitution=rng.uniform(0.2, 0.8), vertices=corners,
            )
        )  # fmt: skip
    drives = [
        Drive("hip", DriveType.POSITION, kp=60.0, kd=3.0, effort=8.0, gear=0.8),
        Drive("leg", DriveType.VELOCITY, kd=5.0, effort=3.0),
        Drive("hand", DriveType.TORQUE, effort=1.5, gear=1.3),
        Drive("base", DriveType.POSITION, kp=40.0, kd=2.0, effort=30.0),
        Drive("wrist", DriveType.POSITION, kp=30.0, kd=2.0, effort=1.0),
        Drive("tip", DriveType.TORQUE, effort=5.0),
    ]
    return assemble("zoo", bodies, shapes, drives)


@cache
def toy_model():
    """A trunk with a driven leg, whose foot is in the ground, and an arm on a ball joint."""
    rng = np.random.default_rng(5)
    joints = {"trunk": (WORLD, FREE), "leg": (0, HINGE), "arm": (0, BALL)}
    bodies = [
        Body(
            name, parent, name, kind, pos=rng.normal(size=3) * 0.1, quat=unit(rng, 4), axis=unit(rng, 3), mass=1.0,
            com=rng.normal(size=3) * 0.05, inertia=random_inertia(rng, 1.0), damping=0.1,
        )
        for name, (parent, kind) in joints.items()
    ]  # fmt: skip
    foot = Shape(ShapeType.SPHERE, 1, np.array([0.3]), np.array([0.05, 0.0, -0.1]), name="foot")
    plane = Shape(ShapeType.PLANE, WORLD, np.zeros(0), name="plane")
    drive = Drive("leg", DriveType.POSITION, kp=50.0, kd=2.0)
    return assemble("toy", bodies, [foot, plane], [drive], pairs=[(0, 1, 0.4, 0.2)])


def zoo_states(sim, seed=0):
    """States that overlap in many ways, rates of about 1, controls that bring some drives to their limits."""
    rng = np.random.default_rng(seed)
    model = sim.model
    q = np.zeros((sim.num_envs, model.nq))
    for i, kind in enumerate(model.joint_type):
        k = model.q_start[i]
        for env in range(sim.num_envs):
            if kind == FREE:
                q[env, k : k + 3] = rng.normal(size=3) * 0.5 + np.array([0, 0, 0.3])
                k += 3
            if kind in (FREE, BALL):
                q[env, k : k + 4] = rng.normal(size=4)  # of any length: the simulation normalises
            else:
                q[env, k] = rng.normal() * 0.3
            k = model.q_start[i]
    qd = rng.normal(size=(sim.num_envs, model.nv))
    u = rng.normal(size=(sim.num_envs, model.nu))
    return [torch.as_tensor(x, dtype=sim.dtype) for x in (q, qd, u)]


# -- gradients against difference quotients


@dataclass(frozen=True)
class Agreement:
    """Of gradients with difference quotients, (num_envs, directions) each."""

    error: torch.Tensor  # relative to the largest of an environment's directional derivatives
    doubt: torch.Tensor  # of the quotients themselves, on the same scale: rounding, curvature, kinks
    slope: torch.Tensor  # the directional derivatives, by differences

    @property
    def kept(self):
        """Samples whose quotients are worth comparing with. Decided without a look at the gradient."""
        return self.doubt < DOUBT


def assert_agreement(agreement, nonzero=(), least=0.5):
    """All kept samples match; most are kept (of a single input a share of `least`), and `nonzero` inputs matter."""
    for name, found in agreement.items():
        kept = found.kept
        assert kept.double().mean() > least, (name, found.doubt)
        assert found.error[kept].max() < TOLERANCE, (name, found.error, found.doubt)
    assert torch.cat([found.kept.flatten() for found in agreement.values()]).double().mean() > 0.8
    for name in nonzero:
        assert (agreement[name].kept & (agreement[name].slope.abs() > 1e-6)).any(), f"{name} does nothing here"


def directional_errors(sim, q, qd, u, steps=1, names=None, directions=2, seed=0, params=None, **options):
    """Agreement of gradients with central differences of the same program, per input: {name: Agreement}.

    The loss weighs the last state at random, one loss per environment; `names` are parameters, by default all of them,
    `params` values that differ from the simulator's. There may be fewer states than environments in `sim`: the others
    then evaluate further points at the same time.
    """
    gen = torch.Generator().manual_seed(seed)
    num_envs, copies = len(q), sim.num_envs // len(q)
    assert num_envs * copies == sim.num_envs
    params = {} if params is None else params
    inputs = {"q": q, "qd": qd, "u": u[:, None].expand(-1, steps, -1)}
    inputs |= {
        name: params.get(name, sim.params[name][:num_envs]) for name in {**dict.fromkeys(names or sim.params), **params}
    }
    weights = torch.randn((num_envs, q.shape[1] + qd.shape[1]), generator=gen, dtype=q.dtype)
    weights = repeated(weights, copies)

    def last_state(inputs):
        controls = inputs["u"].transpose(0, 1).contiguous()
        params = {name: x for name, x in inputs.items() if name in sim.params}
        with warnings.catch_warnings():  # long steps may make an environment diverge; they are then not used
            warnings.simplefilter("ignore", RuntimeWarning)
            qs, qds = sim.rollout(inputs["q"], inputs["qd"], controls, params=params, **options)
        return torch.cat([qs[-1], qds[-1]], -1)

    wide = {name: repeated(x, copies).requires_grad_() for name, x in inputs.items()}
    start = last_state(wide)
    gradients = torch.autograd.grad((weights * start).sum(), list(wide.values()))
    wide, start = {name: x.detach() for name, x in wide.items()}, start.detach()

    def loss_changes(name, points):
        changes = []
        for k in range(0, len(points), copies):
            some = points[k : k + copies]
            some += [inputs[name]] * (copies - len(some))
            change = weights * (last_state({**wide, name: torch.cat(some)}) - start)
            changes.append(change.sum(-1).view(copies, num_envs))
        return torch.cat(changes)[: len(points)]

    agreement = {}
    for (name, x), gradient in zip(inputs.items(), gradients, strict=True):
        if x.numel() == 0:
            continue
        ways = [allowed(name, x, torch.randn(x.shape, generator=gen, dtype=x.dtype)) for _ in range(directions)]
        points = [x + sign * h * d for d in ways for h in STEPS for sign in (1, -1)]
        changes = loss_changes(name, points).view(directions, len(STEPS), 2, num_envs)
        slope, doubt = map(torch.stack, zip(*map(quotients, changes), strict=True))
        product = torch.stack([(gradient[:num_envs] * d).flatten(1).sum(-1) for d in ways])
        size = slope.abs().amax(0).clamp(min=1e-5)  # less is rounding
        agreement[name] = Agreement(((slope - product).abs() / size).T, (doubt / size).T, slope.T)
    return agreement


def quotients(changes):
    """Derivative of a loss from its changes (steps, 2, num_envs) by STEPS forth and back, and how doubtful that is.

    Long steps suffer from curvature, short ones from rounding. Of all quotients, plain and extrapolated to steps of
    zero, the best is the one that agrees best with that from the next longer steps. A kink nearby, or right here, makes
    the slopes to the right and to the left differ however short the steps are.
    """
    h = torch.tensor(STEPS, dtype=changes.dtype)[:, None]
    right, left = changes[:, 0] / h, -changes[:, 1] / h
    kink = (extrapolated(right, 1) - extrapolated(left, 1)).abs()
    plain = (right + left) / 2
    slopes, doubts = [], []
    for slope in (plain, extrapolated(plain, 2)):
        slopes.append(slope[1:])
        doubts.append(torch.maximum((slope[1:] - slope[:-1]).abs(), kink[-len(slope) + 1 :]))
    doubt, best = torch.cat(doubts).nan_to_num(nan=torch.inf).min(0)
    return torch.cat(slopes).gather(0, best[None])[0], doubt


def extrapolated(slopes, order):
    """To steps of length zero, each from a slope and the one before; their errors grow like h^order."""
    ratio = (STEPS[0] / STEPS[1]) ** order
    return (ratio * slopes[1:] - slopes[:-1]) / (ratio - 1)


def repeated(x, copies):
    return x.detach().repeat(copies, *[1] * (x.ndim - 1))


def allowed(name, x, d):
    """A direction in which the input may go, as large as the input: inertia stays symmetric, what is absent, absent."""
    size = torch.where(torch.isfinite(x), x, 0.0).abs()
    d = torch.where(torch.isfinite(x), d, 0.0) * (size + (0.1 * float(size.max()) or ABSENT.get(name, 1.0)))
    if name == "inertia":
        return (d + d.mT) / 2
    if name == "frictionloss":
        return torch.where(x > 0, d, 0.0)
    return d


# -- simulators


def small_simulator(model, num_envs=1, dtype="float64", **options):
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, **{"validate": False, **options})


def zoo_simulator(num_envs=8, **options):
    return small_simulator(zoo_model(), num_envs, **{"dt": 2e-3, **options})


def toy_inputs(num_envs=2, steps=6, seed=0):
    """A simulator and q, qd, u (steps, num_envs, 1): the foot slides and is pressed into the ground."""
    gen = torch.Generator().manual_seed(seed)
    sim = small_simulator(toy_model(), num_envs, dt=2e-3, erp=0.02)
    q, qd = sim.initial_state()
    q += 0.1 * torch.randn(q.shape, generator=gen, dtype=q.dtype)
    q[:, 2] = 0.15
    qd += torch.randn(qd.shape, generator=gen, dtype=q.dtype)
    u = torch.randn(steps, num_envs, 1, generator=gen, dtype=q.dtype)
    assert sim.contacts(q, qd).active.any(1).all()
    return sim, q, qd, u
