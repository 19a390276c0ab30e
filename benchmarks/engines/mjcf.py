"""The models of the scoreboard's cases as MJCF, for MuJoCo, MJX and Brax. Needs numpy only."""

from __future__ import annotations

import numpy as np

from gradients.cases import MASS, MU, RADIUS, REACH, ROD, SPIN_INERTIA, SPIN_RATE, Case, matrix, turned_start

DTS = {"bounce": 2.5e-4}
# There is no restitution; damped springs replace it: 1/s^2 and 1/s, touching for 60 and 25 ms, their damping found by
# bisection so that the ball leaves with half of its speed. The impedance grows from 0 over so many metres: a force that
# sets in with a jump makes the speed after the hit depend on where in a step the hit falls (dq/dq0 = -113 in case W).
SPRINGS = {"W": (2949.0, 37.43, 0.013), "D": (18432.0, 93.55, 0.01772)}
# of sliding, likewise from 0: with MuJoCo's default of 0.9 the puck hops, and products of derivatives go to 1e10
SOFT = 'solimp="0 0.95 0.001"'


def mjcf(case: Case, dt: float, cone: str = "elliptic", soft: str = SOFT) -> str:
    """One moving body, or two, for this case's model; gravity is the case's, turned by its slope."""
    a, ball = case.inputs.get("a", 0.0), f'<geom name="ball" type="sphere" size="{RADIUS}"'
    gravity = f"{float(case.gravity * np.sin(a))} 0 {float(-case.gravity * np.cos(a))}"
    moments = " ".join([str(ROD["inertia"])] * 3)
    rod = f'<inertial pos="0 0 {-ROD["length"]}" mass="1" diaginertia="{moments}"/>'
    round_ = '<inertial pos="0 0 0" mass="{}" diaginertia="0.01 0.01 0.01"/>'
    stiffness, damping, width = SPRINGS.get(case.name, (1.0, 1.0, 1.0))
    rub = f'friction="{MU} 0 0" condim="3" {soft}'
    bounce = f'condim="1" solref="{-stiffness} {-damping}" solimp="0 0.9999 {width}"'
    plane = '<geom name="floor" type="plane" size="10 10 1" {}/>'
    inside = {
        "slide": f'{plane.format(rub)}<body pos="0 0 {RADIUS}"><joint type="slide" axis="1 0 0"/>'
        f'<joint type="slide" axis="0 0 1"/>{round_.format(MASS)}{ball} {rub}/></body>',
        "bounce": f'{plane.format(bounce)}<body pos="0 0 {RADIUS}"><joint type="slide" axis="0 0 1"/>'
        f"{round_.format(1)}{ball} {bounce}/></body>",
        "swing": f'<body><joint type="hinge" axis="0 1 0" damping="{ROD["damping"]}"/>{rod}</body>',
        "double": f'<body><joint type="hinge" axis="0 1 0"/>{rod}<body pos="0 0 {-REACH}">'
        f'<joint type="hinge" axis="0 1 0"/>{rod}</body></body>',
        "spin": '<body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="{} {} {}"/></body>'.format(
            *SPIN_INERTIA
        ),
    }[case.model]
    return (
        f'<mujoco><option timestep="{dt}" gravity="{gravity}" cone="{cone}" tolerance="1e-14" iterations="100"/>'
        f"<worldbody>{inside}</worldbody></mujoco>"
    )


def start(case: Case, x: dict, depth: float = 0.0, xp=np):
    """qpos (quaternions wxyz) and qvel (angular velocity in the body's axes) of these inputs; xp may be jax.numpy."""
    if case.model == "slide":
        return xp.stack([0.0 * x["v0"], 0.0 * x["v0"] - depth]), xp.stack([x["v0"], 0.0 * x["v0"]])
    if case.model == "bounce":
        return xp.stack([x["y0"]]), xp.stack([x["v0"]])
    if case.model == "swing":
        return xp.stack([x["angle"]]), xp.zeros(1)
    if case.model == "double":
        return xp.stack([x["q1"], x["q2"]]), xp.stack([x["w1"], x["w2"]])
    quaternion = xp.roll(turned_start(x, xp), 1)
    return xp.concatenate([xp.zeros(3), quaternion]), xp.concatenate([xp.zeros(3), xp.asarray(SPIN_RATE)])


def output(case: Case, qpos) -> float:
    """The case's output, by plain arithmetic, so that JAX can differentiate it too."""
    if case.model == "spin":
        w, x, y, z = qpos[3], qpos[4], qpos[5], qpos[6]
        return 2 * (x * z - w * y) / (w * w + x * x + y * y + z * z)
    return qpos[{"slide": 0, "bounce": 0, "swing": 0, "double": 1}[case.model]]


def output_gradient(case: Case, qpos: np.ndarray, nv: int) -> np.ndarray:
    """(nv,) of the output, on the tangent space; for the spin by turns in the body's axes."""
    bar = np.zeros(nv)
    if case.model == "spin":
        turn = matrix(np.roll(qpos[3:7], -1))
        bar[3:6] = turn.T @ np.cross(turn[:, 0], [0.0, 0.0, 1.0])
    else:
        bar[{"slide": 0, "bounce": 0, "swing": 0, "double": 1}[case.model]] = 1.0
    return bar
