"""mujoco_warp on Warp's CPU device, which runs one thread. Not on the scoreboard: it has no gradients."""

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from engines import standing
from engines.common import from_wxyz, to_wxyz


class Standing(standing.Standing):
    name, package, built_on = "mujoco_warp", "mujoco-warp", "warp-lang"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"
    contact = "soft, MuJoCo's defaults, Newton, warm-started"
    no_gradient = "Its README says that differentiability is not yet available; its kernels have no backward pass."

    def __init__(self, scene, options):
        super().__init__(scene, options)
        wp.set_device("cpu")
        self.mj = mujoco.MjModel.from_xml_path(str(scene.mjcf))
        self.m = mjw.put_model(self.mj)

    def mass(self):
        return self.mj.body_mass.sum()

    def build(self, batch):
        self.d = mjw.make_data(self.mj, nworld=batch, nconmax=8, njmax=64)

    def reset(self, q, qd, targets):
        for array, values in ((self.d.qpos, to_wxyz(q)), (self.d.qvel, qd), (self.d.ctrl, targets)):
            array.assign(values.astype(np.float32))
        self.d.qacc_warmstart.zero_()

    def run(self, steps):
        for _ in range(steps):
            mjw.step(self.m, self.d)
        wp.synchronize()

    def state(self):
        return from_wxyz(self.d.qpos.numpy()), self.d.qvel.numpy()
