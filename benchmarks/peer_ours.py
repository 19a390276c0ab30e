"""warp_articulated itself, through the same contract as its peers (peer_common.py)."""

import machine
import numpy as np
import torch
from peer_common import Engine, main

import warp_articulated as wa


class Ours(Engine):
    name, package = "warp_articulated", "warp-articulated"
    simulated = "reduced coordinates, semi-implicit Euler, implicit drives"
    contact = "PGS, at most 50 sweeps, early exit at 1e-5 N s"
    gradient_method = "adjoint kernels, reverse"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.model = wa.load(str(scene.folder / "model.npz"))
        # differences need float64; what is timed is float32, unless --variant float64
        self.dtype = options.variant or "float32"
        self.threads = machine.cores()

    def mass(self):
        return self.model.mass.sum()

    def build(self, batch):
        s = self.scene
        self.sim = wa.Simulator(
            self.model, batch, device="cpu", dtype=self.dtype, dt=s.dt, iterations=s.iterations, tolerance=s.tolerance
        )

    def reset(self, q, qd, targets):
        self.q, self.qd, self.u = (torch.tensor(x, dtype=self.sim.dtype) for x in (q, qd, targets))

    def run(self, steps):
        u = self.u.expand(steps, -1, -1)
        qs, qds = self.sim.rollout(self.q, self.qd, u, checkpoint_every=steps)
        self.q, self.qd = qs[-1], qds[-1]

    def state(self):
        return self.q.numpy(), self.qd.numpy()

    def gradient(self, steps):
        qd, u = self.qd.clone().requires_grad_(), self.u.clone().requires_grad_()
        qs, _ = self.sim.rollout(self.q, qd, u.expand(steps, -1, -1))
        (qs[-1, :, 0] + qs[-1, :, 2]).sum().backward()
        return np.concatenate([qd.grad[:, :3].numpy(), u.grad.numpy()], axis=1)


if __name__ == "__main__":
    main(Ours)
