"""MuJoCo C on the truth cases: the products of mjd_transitionFD's matrices. Those are differences, not gradients."""

from __future__ import annotations

import mujoco
import numpy as np
from truth_common import SPIN_START, Case, Engine, main, matrix
from truth_mjcf import DTS, mjcf, output, output_gradient, start

ONLY = "mjd_transitionFD differentiates by state and control only."
STATE = {
    "v0": (0, "v"),
    "y0": (0, "q"),
    "angle": (0, "q"),
    "q1": (0, "q"),
    "q2": (1, "q"),
    "w1": (0, "v"),
    "w2": (1, "v"),
}


class MuJoCo(Engine):
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
        n = m.nv
        A, found = np.zeros((2 * n, 2 * n)), np.eye(2 * n)
        for _ in range(self.steps(case)):
            mujoco.mjd_transitionFD(m, d, 1e-6, True, A, None, None, None)
            mujoco.mj_step(m, d)
            found = A @ found
        bar = output_gradient(case, d.qpos, n) @ found[:n]
        if case.model == "spin":
            # a turn r of the world is a turn R^T r of the body
            return dict(zip(("rx", "ry", "rz"), map(float, matrix(SPIN_START) @ bar[3:6])))
        return {x: float(bar[STATE[x][0] + n * (STATE[x][1] == "v")]) for x in case.inputs if x in STATE}


if __name__ == "__main__":
    main(MuJoCo)
