"""Genesis on its CPU backend, with the robot as URDF. Its first start compiles for minutes."""

import genesis as gs
import numpy as np
import torch
from peer_common import Engine, main


class Genesis(Engine):
    name, package = "Genesis", "genesis-world"
    simulated = "reduced coordinates, its approximate implicit integrator, implicit drives"
    contact = "soft, MuJoCo's model, Newton, at most 50 iterations"
    no_gradient = (
        "It refuses the gradient with respect to position targets ('not supported yet'); that with respect to forces "
        "and the initial velocity, which it has, is not measured here."
    )
    threads = 1

    def __init__(self, scene, options):
        super().__init__(scene, options)
        gs.init(backend=gs.cpu, precision="32", logging_level="error")

    def mass(self):
        return self.robot.get_mass()

    def build(self, batch):
        s = self.scene
        self.world = gs.Scene(
            sim_options=gs.options.SimOptions(dt=self.dt, gravity=tuple(s.gravity)),
            rigid_options=gs.options.RigidOptions(
                iterations=int(s.iterations), enable_self_collision=False, enable_joint_limit=True
            ),
            show_viewer=False,
        )
        self.world.add_entity(gs.morphs.Plane())
        self.robot = self.world.add_entity(
            gs.morphs.URDF(file=str(s.urdf), pos=tuple(s.q0[:3]), merge_fixed_links=True)
        )
        self.world.build(n_envs=batch)
        self.robot.set_friction(s.friction)
        joints = [self.robot.get_joint(name) for name in s.joints]
        self.iv = [joint.dofs_idx_local[0] for joint in joints]
        self.iq = [joint.qs_idx_local[0] for joint in joints]
        n = self.robot.n_dofs
        self.robot.set_dofs_armature(np.zeros(n))
        self.robot.set_dofs_damping(np.zeros(n))
        self.robot.set_dofs_kp(np.full(s.nu, s.kp), self.iv)
        self.robot.set_dofs_kv(np.full(s.nu, s.kd), self.iv)
        self.robot.set_dofs_force_range(np.full(s.nu, -s.effort), np.full(s.nu, s.effort), self.iv)

    def reset(self, q, qd, targets):
        qs, qds = np.zeros(q.shape), np.zeros(qd.shape)
        qs[:, :3], qs[:, 3:7], qs[:, self.iq] = q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:]
        qds[:, :6], qds[:, self.iv] = qd[:, :6], qd[:, 6:]
        self.robot.set_qpos(torch.tensor(qs, dtype=torch.float32))
        self.robot.set_dofs_velocity(torch.tensor(qds, dtype=torch.float32))
        self.robot.control_dofs_position(torch.tensor(targets, dtype=torch.float32), self.iv)

    def run(self, steps):
        for _ in range(steps):
            self.world.step()

    def state(self):
        q, qd = self.robot.get_qpos().numpy(), self.robot.get_dofs_velocity().numpy()
        q = np.concatenate([q[:, :3], np.roll(q[:, 3:7], -1, axis=1), q[:, self.iq]], axis=1)
        return q, np.concatenate([qd[:, :6], qd[:, self.iv]], axis=1)


if __name__ == "__main__":
    main(Genesis)
