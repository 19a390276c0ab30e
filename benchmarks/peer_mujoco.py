"""MuJoCo C: rollouts over all cores; its gradients are its own finite differences of a step (mjd_transitionFD)."""

import os

import mujoco
import mujoco.rollout
import numpy as np
from peer_common import Engine, main

STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, qpos, qvel


class MuJoCo(Engine):
    package, dtype = "mujoco", "float64"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"
    gradient_method = "mjd_transitionFD, central differences of each step"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        solver = options.variant or "CG"
        self.name = f"MuJoCo C, {solver}"
        self.contact = f"soft, MuJoCo's defaults, {solver}, warm-started"
        self.m = mujoco.MjModel.from_xml_path(str(scene.mjcf))
        self.m.opt.solver = getattr(mujoco.mjtSolver, f"mjSOL_{solver.upper()}")
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

    def mass(self):
        return self.m.body_mass.sum()

    def build(self, batch):
        self.threads = min(self.cores, batch)
        self.data = [mujoco.MjData(self.m) for _ in range(self.threads)]
        self.rollout = mujoco.rollout.Rollout(nthread=self.threads if self.threads > 1 else 0)

    def reset(self, q, qd, targets):
        # a stand: the angular velocity is small enough for the body's axes and the world's to be the same
        qpos = np.concatenate([q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:]], axis=1)
        self.states = np.concatenate([np.zeros((len(q), 1)), qpos, qd], axis=1)
        self.targets = np.array(targets, float)

    def run(self, steps):
        controls = np.ascontiguousarray(np.broadcast_to(self.targets[:, None], (len(self.states), steps, self.m.nu)))
        data = self.data if self.threads > 1 else self.data[0]
        states, _ = self.rollout.rollout(self.m, data, self.states, controls)
        self.states = states[:, -1].copy()

    def state(self):
        q = self.states[:, 1 : 1 + self.m.nq].copy()
        q[:, 3:7] = np.roll(q[:, 3:7], -1, axis=1)
        return q, self.states[:, 1 + self.m.nq :]

    def gradient(self, steps):
        """The chain rule over A and B of each step, last to first."""
        nv, nu, m = self.m.nv, self.m.nu, self.m
        data = self.data[0]
        A, B = np.zeros((steps, 2 * nv, 2 * nv)), np.zeros((steps, 2 * nv, nu))
        found = np.zeros((len(self.states), 3 + nu))
        for e, state in enumerate(self.states):
            mujoco.mj_setState(m, data, state, STATE)
            data.ctrl[:], data.qacc_warmstart[:] = self.targets[e], 0.0
            for t in range(steps):
                mujoco.mjd_transitionFD(m, data, 1e-6, True, A[t], B[t], None, None)
                mujoco.mj_step(m, data)
            bar, u_bar = np.zeros(2 * nv), np.zeros(nu)
            bar[[0, 2]] = 1.0
            for t in reversed(range(steps)):
                u_bar += bar @ B[t]
                bar = bar @ A[t]
            found[e] = np.concatenate([bar[nv : nv + 3], u_bar])
        return found


if __name__ == "__main__":
    main(MuJoCo)
