"""MuJoCo C. Its gradients are the products of mjd_transitionFD's matrices: finite differences of each step."""

from __future__ import annotations

import mujoco
import mujoco.rollout
import numpy as np

from engines import scoreboard, standing
from engines.common import from_wxyz, to_wxyz
from engines.mjcf import DTS, mjcf, output, output_gradient, start
from gradients.cases import SPIN_START, Case, matrix
from lib import machine

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, qpos, qvel
ONLY = "mjd_transitionFD differentiates by state and control only."
# where an input of a case is in the tangent of qpos or qvel
INPUTS = {
    "v0": (0, "v"),
    "y0": (0, "q"),
    "angle": (0, "q"),
    "q1": (0, "q"),
    "q2": (1, "q"),
    "w1": (0, "v"),
    "w2": (1, "v"),
}


def linearise(m: mujoco.MjModel, d: mujoco.MjData, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulates so many steps; derivatives of each by the state, (steps, 2 nv, 2 nv), and by the control."""
    A, B = np.zeros((steps, 2 * m.nv, 2 * m.nv)), np.zeros((steps, 2 * m.nv, m.nu))
    for t in range(steps):
        mujoco.mjd_transitionFD(m, d, 1e-6, True, A[t], B[t] if m.nu else None, None, None)
        mujoco.mj_step(m, d)
    return A, B


class Standing(standing.Standing):
    package, dtype = "mujoco", "float64"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"
    method = "mjd_transitionFD, central differences of each step"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        solver = options.variant or "CG"
        self.name = f"MuJoCo C, {solver}"
        self.contact = f"soft, MuJoCo's defaults, {solver}, warm-started"
        self.m = mujoco.MjModel.from_xml_path(str(scene.mjcf))
        self.m.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{solver.upper()}")

    def mass(self):
        return self.m.body_mass.sum()

    def build(self, batch):
        self.threads = min(machine.cores(), batch)
        self.data = [mujoco.MjData(self.m) for _ in range(self.threads)]
        self.rollout = mujoco.rollout.Rollout(nthread=self.threads if self.threads > 1 else 0)

    def reset(self, q, qd, targets):
        # the robot stands, so its angular velocity is small enough to be the same in the body's and the world's axes
        self.states = np.concatenate([np.zeros((len(q), 1)), to_wxyz(q), qd], axis=1)
        self.targets = np.array(targets, float)

    def run(self, steps):
        controls = np.ascontiguousarray(np.broadcast_to(self.targets[:, None], (len(self.states), steps, self.m.nu)))
        data = self.data if self.threads > 1 else self.data[0]
        states, _ = self.rollout.rollout(self.m, data, self.states, controls)
        self.states = states[:, -1].copy()

    def state(self):
        return from_wxyz(self.states[:, 1 : 1 + self.m.nq]), self.states[:, 1 + self.m.nq :]

    def gradient(self, steps):
        """The chain rule over A and B of each step, last to first."""
        nv, nu, data = self.m.nv, self.m.nu, self.data[0]
        found = np.zeros((len(self.states), 3 + nu))
        for e, state in enumerate(self.states):
            mujoco.mj_setState(self.m, data, state, STATE)
            data.ctrl[:], data.qacc_warmstart[:] = self.targets[e], 0.0
            A, B = linearise(self.m, data, steps)
            bar, u_bar = np.zeros(2 * nv), np.zeros(nu)
            bar[[0, 2]] = 1.0
            for t in reversed(range(steps)):
                u_bar += bar @ B[t]
                bar = bar @ A[t]
            found[e] = np.concatenate([bar[nv : nv + 3], u_bar])
        return found


class Scoreboard(scoreboard.Scoreboard):
    name, package = "MuJoCo C", "mujoco"
    contact = "soft, Newton, elliptic cone; a bounce is a damped spring"
    method = "differences of each step (mjd_transitionFD), multiplied"
    missing = dict.fromkeys(("mu", "m", "a", "inertia", "damping", "length"), ONLY) | {
        "e": "It has no coefficient of restitution.",
        "length_q": "Its derivatives live on the tangent space, which has no direction along the quaternion.",
    }
    dts = DTS
    cone = "elliptic"

    def begin(self, case: Case, x: dict[str, float]):
        # without friction the cones are the same, and MJX has no elliptic one of that kind
        cone = self.cone if case.model == "slide" else "pyramidal"
        m = mujoco.MjModel.from_xml_string(mjcf(case, self.dt(case), cone))
        d = mujoco.MjData(m)
        d.qpos[:], d.qvel[:] = start(case, x, self.depth(case, m))
        return m, d

    def depth(self, case: Case, m) -> float:
        """Where the puck rests on this slope without sliding."""
        if case.model != "slide":
            return 0.0
        d, pull = mujoco.MjData(m), m.opt.gravity[0]
        m.opt.gravity[0] = 0.0
        mujoco.mj_step(m, d, 1000)
        m.opt.gravity[0] = pull
        return -float(d.qpos[1])

    def value(self, case, x):
        m, d = self.begin(case, x)
        mujoco.mj_step(m, d, self.steps(case))
        return output(case, d.qpos)

    def gradient(self, case):
        m, d = self.begin(case, case.inputs)
        n, found = m.nv, np.eye(2 * m.nv)
        for A in linearise(m, d, self.steps(case))[0]:
            found = A @ found
        bar = output_gradient(case, d.qpos, n) @ found[:n]
        if case.model == "spin":
            # a turn r of the world is a turn R^T r of the body
            return dict(zip(("rx", "ry", "rz"), map(float, matrix(SPIN_START) @ bar[3:6])))
        return {x: float(bar[INPUTS[x][0] + n * (INPUTS[x][1] == "v")]) for x in case.inputs if x in INPUTS}
