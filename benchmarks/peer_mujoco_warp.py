"""mujoco_warp on Warp's CPU device, which runs one thread."""

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from peer_common import Engine, main


class MuJoCoWarp(Engine):
    name, package = "mujoco_warp", "mujoco-warp"
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
        qpos = np.concatenate([q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:]], axis=1)
        for array, values in ((self.d.qpos, qpos), (self.d.qvel, qd), (self.d.ctrl, targets)):
            array.assign(values.astype(np.float32))
        self.d.qacc_warmstart.zero_()

    def run(self, steps):
        for _ in range(steps):
            mjw.step(self.m, self.d)
        wp.synchronize()

    def state(self):
        q = self.d.qpos.numpy().copy()
        q[:, 3:7] = np.roll(q[:, 3:7], -1, axis=1)
        return q, self.d.qvel.numpy()


if __name__ == "__main__":
    main(MuJoCoWarp)
