"""warp_articulated itself, through the same contracts as other engines; its cases are those of gradient_truth.py."""

from __future__ import annotations

import numpy as np
import torch

import warp_articulated as wa
from engines import scoreboard, standing
from gradients import gradient_truth as gt
from gradients.cases import SPIN_RATE, SPIN_START, Case, matrix, spin_chain, turned_start
from lib import machine


class Ours:
    name, package = "warp_articulated", "warp-articulated"
    method = "adjoint kernels, reverse"


class Standing(Ours, standing.Standing):
    simulated = "reduced coordinates, semi-implicit Euler, implicit drives"
    contact = "PGS, at most 50 sweeps, early exit at 1e-5 N s"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.model = wa.load(str(scene.folder / "model.npz"))
        # differences need float64; the timed runs are float32, unless --variant float64
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


class Scoreboard(Ours, scoreboard.Scoreboard):
    def __init__(self, variant=""):
        super().__init__(variant or "step")
        where = {"step": "at a fixed step", "impact": "at the time of impact"}[self.variant]
        self.contact = f"velocity-level impulses, Coulomb friction, restitution {where}"

    def bench(self) -> gt.Bench:
        return gt.Bench(self.dtype, self.variant)

    def value(self, case, x):
        with torch.no_grad():
            return float(self.run(case, {name: torch.tensor(value, dtype=torch.float64) for name, value in x.items()}))

    def gradient(self, case):
        x = dict(zip(case.inputs, self.bench().numbers(*case.inputs.values())))
        if case.model == "spin":
            return self.spin_gradient(case)
        return dict(zip(x, gt.derivatives(self.run(case, x), *x.values())))

    def run(self, case: Case, x: dict) -> torch.Tensor:
        bench, steps = self.bench(), self.steps(case)
        if case.model == "slide":
            mass, angle = (
                torch.as_tensor(x.get(name, other), dtype=torch.float64) for name, other in (("m", gt.MASS), ("a", 0.0))
            )
            return gt.slide(bench, "puck", x["v0"], mass, x["mu"], angle, steps)
        if case.model == "bounce":
            gravity = torch.tensor([0.0, 0.0, -case.gravity], dtype=torch.float64)
            return gt.bounce(bench, "ball", x["y0"], x["v0"], case.span, self.dt(case), e=x["e"], gravity=gravity)[0]
        if case.model == "swing":
            return self.swing(x, steps)
        if case.model == "double":
            places = {"arm": {0: x["q1"]}, "fore": {0: x["q2"]}}
            return self.last("fore", places, {"arm": {0: x["w1"]}, "fore": {0: x["w2"]}}, steps)
        return self.spin(*self.spin_start({name: float(value) for name, value in x.items()}), steps)

    def last(self, joint: str, places: dict, rates: dict, steps: int, **params) -> torch.Tensor:
        bench = self.bench()
        sim = bench.sim()
        q, qd = bench.state(sim, places, rates)
        q, _ = bench.run(sim, q, qd, steps, **params)
        return q[0, bench.model.joint_q(joint).start]

    def swing(self, x: dict, steps: int) -> torch.Tensor:
        bench = self.bench()
        sim, link = bench.sim(), bench.model.link_names.index("rod")
        params = {
            "inertia": bench.param(sim, "inertia", (link, 1, 1), x["inertia"]),
            "damping": bench.param(sim, "damping", bench.model.joint_v("rod").start, x["damping"]),
            "com": bench.param(sim, "com", (link, 2), -x["length"]),
        }
        return self.last("rod", {"rod": {0: x["angle"]}}, {}, steps, **params)

    @staticmethod
    def spin_start(x: dict[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
        """Quaternion, of any length, and the angular velocity in the world."""
        q = turned_start(x)
        return torch.tensor(q), torch.tensor(matrix(q / np.linalg.norm(q)) @ SPIN_RATE)

    def spin(self, quaternion: torch.Tensor, rate: torch.Tensor, steps: int) -> torch.Tensor:
        bench = self.bench()
        sim, start = bench.sim(), bench.model.joint_q("top").start
        q, qd = bench.state(
            sim, {"top": {3 + k: quaternion[k] for k in range(4)}}, {"top": {3 + k: rate[k] for k in range(3)}}
        )
        q, _ = bench.run(sim, q, qd, steps)
        x, y, z, w = q[0, start + 3 : start + 7]
        return 2 * (x * z - w * y) / (x * x + y * y + z * z + w * w)

    def spin_gradient(self, case: Case) -> dict[str, float]:
        quaternion, rate = (part.requires_grad_() for part in self.spin_start(case.inputs))
        bars = torch.autograd.grad(self.spin(quaternion, rate, self.steps(case)), (quaternion, rate))
        assert np.allclose(quaternion.detach(), SPIN_START)
        return spin_chain(*(bar.numpy() for bar in bars))
