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


@dataclass(frozen=True)
class Agreement:
    """Of gradients with difference quotients, per environment and direction: (num_envs, directions) each."""

    error: torch.Tensor  # relative to the largest of an environment's directional derivatives
    doubt: torch.Tensor  # of the quotients themselves, on the same scale: rounding, curvature, and kinks
    slope: torch.Tensor  # the directional derivatives

    def kept(self, doubt):
        """Samples whose quotients are worth comparing with."""
        return self.doubt < doubt


def directional_errors(sim, q, qd, u, steps=1, names=None, directions=2, seed=0, **options):
    """Agreement of gradients with central differences of the same program, per input: {name: Agreement}.

    The loss weighs the last state at random, one loss per environment; `names` are parameters, by default all of them.
    There may be fewer states than environments in `sim`: then that many points are evaluated at once.
    """
    gen = torch.Generator().manual_seed(seed)
    num_envs, copies = len(q), sim.num_envs // len(q)
    assert num_envs * copies == sim.num_envs
    names = list(sim.params) if names is None else names
    inputs = {"q": q, "qd": qd, "u": u[:, None].expand(-1, steps, -1)}
    inputs |= {name: sim.params[name][:num_envs] for name in names}
    weights = torch.randn((num_envs, q.shape[1] + qd.shape[1]), generator=gen, dtype=q.dtype)
    weights = tiled(weights, copies)

    def last_state(inputs):
        params = {name: x for name, x in inputs.items() if name in sim.params}
        controls = inputs["u"].transpose(0, 1).contiguous()
        with warnings.catch_warnings():  # coarse steps may run away; their quotients are then not used
            warnings.simplefilter("ignore", RuntimeWarning)
            qs, qds = sim.rollout(inputs["q"], inputs["qd"], controls, params=params, **options)
        return torch.cat([qs[-1], qds[-1]], -1)

    wide = {name: tiled(x, copies).requires_grad_() for name, x in inputs.items()}
    start = last_state(wide)
    gradients = torch.autograd.grad((weights * start).sum(), list(wide.values()))
    wide = {name: x.detach() for name, x in wide.items()}
    agreement = {}
    for (name, x), gradient in zip(inputs.items(), gradients, strict=True):
        if x.numel() == 0:
            continue
        ways = [allowed(name, x, torch.randn(x.shape, generator=gen, dtype=x.dtype)) for _ in range(directions)]
        points = [x + h * sign * d for d in ways for h in STEPS for sign in (1, -1)]
        points += [x] * (-len(points) % copies)
        losses = []
        for k in range(0, len(points), copies):
            end = last_state({**wide, name: torch.cat(points[k : k + copies])})
            losses.append((weights * (end - start.detach())).sum(-1).view(copies, num_envs))
        losses = torch.cat(losses)[: 2 * directions * len(STEPS)].view(directions, len(STEPS), 2, num_envs)
        slope, doubt = map(torch.stack, zip(*map(quotients, losses)))
        product = torch.stack([(gradient[:num_envs] * d).flatten(1).sum(-1) for d in ways])
        size = slope.abs().amax(0).clamp(min=1e-9)
        agreement[name] = Agreement(((slope - product).abs() / size).T, (doubt / size).T, slope.T)
    return agreement


def quotients(losses):
    """Derivative of a loss from its change (steps, 2, num_envs) by steps forth and back, and how doubtful that is.

    Long steps suffer from curvature, short ones from rounding: the best of all pairs of neighbouring steps is the one
    that agrees best with itself. A kink nearby, or right here, makes quotients to the right and to the left differ
    however short the steps are.
    """
    h = torch.tensor(STEPS, dtype=losses.dtype)[:, None]
    right, left = losses[:, 0] / h, -losses[:, 1] / h
    central = (right + left) / 2
    ratio = STEPS[0] / STEPS[1]
    right, left = ((ratio * side[1:] - side[:-1]) / (ratio - 1) for side in (right, left))
    doubt = torch.maximum((central[1:] - central[:-1]).abs(), (right - left).abs())
    doubt, best = doubt.nan_to_num(nan=torch.inf).min(0)
    slope = (ratio**2 * central[1:] - central[:-1]) / (ratio**2 - 1)
    return slope.gather(0, best[None])[0], doubt


def tiled(x, copies):
    return x.repeat(copies, *[1] * (x.ndim - 1))


def allowed(name, x, d):
    """A direction in which the input may go, as large as the input: inertia stays symmetric, what is absent, absent."""
    finite = torch.where(torch.isfinite(x), x, 0.0).abs()
    d = torch.where(torch.isfinite(x), d, 0.0) * (finite + max(0.1 * float(finite.max()), 1e-3))
    if name == "inertia":
        return (d + d.mT) / 2
    if name == "frictionloss":
        return torch.where(x > 0, d, 0.0)
    return d


def zoo_simulator(num_envs=8, **options):
    return wa.Simulator(
        zoo_model(), num_envs, device="cpu", dtype="float64", **{"dt": 2e-3, "max_contacts": 32, "validate": False, **options}
    )
