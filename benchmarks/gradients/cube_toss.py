"""The cube toss of DiffMJX (Paulus et al., ICLR 2026): gradients by adjoints and by differences of the same program.

Set-up of github.com/martius-lab/diffmjx, experiments/04_time-toss: a cube with sides of 0.1 m and 0.1 kg, turned by 60
degrees about x, friction 1, gravity 2 m/s^2, starts 0.2 m above a floor with a velocity of (0, -0.1, -2) m/s. Asked is
the derivative of its y after 1 s by its first vertical speed. Differences are central, over +-0.01 m/s.

The contact law is not the same. MuJoCo has a damped spring, ours is rigid with a restitution; `spring_restitution`
measures that of the first impact in MuJoCo C. So values differ, and only the agreement of gradients with differences
can be compared. With e = 0.15 the cube comes to rest on its edges within the second, like MuJoCo's; with 0.3 and 0.5
it does not, and event_truth.py has the derivative of the rigid motion.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.spatial.transform import Rotation

import warp_articulated as wa
from gradients.event_truth import FreeBody
from gradients.impact_cases import CUBE, PAIRS, room

GRAVITY, SPEED, SPAN = 2.0, -2.0, 1.0  # m/s^2, m/s, s
DIFFERENCES = (1e-2, 1e-3)  # m/s: the published one, and one that sees less of the motion's curvature
RESTITUTION = (0.15, 0.3, 0.5)
STEPS = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)  # s
TURN = Rotation.from_euler("x", 60, degrees=True).as_quat()
# From cube_results.csv of that repository: y in m, gradient and differences in s.
PUBLISHED = {
    "MJX, Euler, 10 ms": (-1.5717, 4.336, 4.336),
    "MJX, Euler, 3 ms": (-0.4983, 1.276, -10.48),
    "MJX, Euler, 1 ms": (-0.2983, 3.240, 0.2329),
    "MJX, Euler, 0.3 ms": (-0.2957, -0.6012, 0.1295),
    "MJX, Euler, 0.1 ms": (-0.3000, 0.1325, 0.1676),
    "DiffMJX, Tsit5, tolerance 1e-7": (-0.3018, 0.1749, 0.1714),
    "DiffMJX, Tsit5, tolerance 1e-10": (-0.3018, 0.1724, 0.1715),
}


SPRING = """
<mujoco>
  <option gravity="0 0 -2" timestep="2e-5" cone="pyramidal"><flag refsafe="disable" eulerdamp="disable"/></option>
  <default><geom solimp="0 0.95 0.001 0.5 2" solref="0.005 1"/></default>
  <worldbody>
    <geom type="plane" size="20 20 0.1"/>
    <body><freejoint/><geom type="box" size="0.05 0.05 0.05" density="100" euler="60 0 0"/></body>
  </worldbody>
</mujoco>
"""


def spring_restitution() -> float:
    """Vertical speed of the edge after its first impact over that before, in MuJoCo C with the published contact."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(SPRING)
    data = mujoco.MjData(model)
    data.qpos[2], data.qvel[1:3] = 0.2, (-0.1, SPEED)

    def edge_speed(edge: np.ndarray) -> float:
        return data.qvel[2] + data.qvel[3] * (data.xmat[1].reshape(3, 3) @ edge)[1]

    edges = (
        CUBE["half"] * Rotation.from_quat(TURN).as_matrix() @ np.array([[0, a, b] for a in (-1, 1) for b in (-1, 1)]).T
    ).T
    lowest = edges[np.argmin(edges[:, 2])]
    for touching in (True, False):
        while (data.ncon > 0) != touching:
            before = edge_speed(lowest)
            mujoco.mj_step(model, data)
        if touching:
            first = before
    return float(-edge_speed(lowest) / first)


@cache
def rigid(e: float) -> dict[str, float] | None:
    """y after 1 s, its derivative, differences and the number of impacts; None if the cube comes to rest before.

    The motion stays in a plane, so an edge counts as one contact in its middle.
    """
    edges = CUBE["half"] * np.array([[0, a, b] for a in (-1, 1) for b in (-1, 1)])
    cube = FreeBody(edges, 0.0, CUBE["inertia"] * np.ones(3), TURN, weight=CUBE["mass"])
    x = dict.fromkeys("x y z rx ry rz vx vy vz wx wy wz".split(), 0.0)
    x |= {"z": 0.2, "vy": -0.1, "vz": SPEED, "e": e, "mu": 1.0, "g": GRAVITY, "m": 1.0, "I": 1.0}

    def end(speed: float) -> tuple[float, int]:
        last, hits = cube.run(x | {"vz": speed}, SPAN)
        return float(last[1]), len(hits)

    try:
        y, impacts = end(SPEED)
    except ValueError:  # contacts that persist have no impacts
        return None
    wide, narrow, far, near = ((end(SPEED + d)[0] - end(SPEED - d)[0]) / (2 * d) for d in (*DIFFERENCES, 2e-4, 1e-4))
    return {"y": y, "gradient": (4 * near - far) / 3, "wide": wide, "narrow": narrow, "impacts": impacts}


def toss(mode: str, dt: float, e: float) -> dict[str, float]:
    """y (m), its gradient by the vertical speed (s) and central differences, all of the same program in float64."""
    options = {"restitution_threshold": max(0.05, 3 * GRAVITY * dt), "iterations": 500}  # both corners of an edge alike
    sim = wa.Simulator(room(), 5, device="cpu", dtype="float64", dt=dt, contact_time=mode, **options)
    steps = round(SPAN / dt)
    q, qd = sim.initial_state()
    place, rates = sim.model.joint_q("cube").start, sim.model.joint_v("cube").start
    q[:, place : place + 7] = torch.tensor([0.0, 0.0, 0.2, *TURN])
    qd[:, rates + 1] = -0.1
    aside = [0.0, *(side * d for d in DIFFERENCES for side in (1, -1))]
    speeds = torch.tensor(aside, dtype=torch.float64).add(SPEED).requires_grad_()
    qd[:, rates + 2] = speeds
    restitution = sim.params["restitution"].clone()
    restitution[:, PAIRS.index("cube")] = e
    params = {"gravity": torch.tensor([0.0, 0.0, -GRAVITY], dtype=torch.float64), "restitution": restitution}
    u = sim.initial_control().expand(steps, -1, -1)
    qs, _ = sim.rollout(q, qd, u, params=params, checkpoint_every="sqrt")
    y = qs[-1, :, place + 1]
    gradient = torch.autograd.grad(y[0], speeds)[0][0]
    ends = y.detach().tolist()
    wide, narrow = ((ends[k] - ends[k + 1]) / (2 * d) for k, d in zip((1, 3), DIFFERENCES))
    return {"dt": dt, "e": e, "y": ends[0], "gradient": float(gradient), "wide": wide, "narrow": narrow}
