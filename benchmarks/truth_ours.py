"""warp_articulated itself on the truth cases, with the bodies and runs of gradient_truth.py."""

from __future__ import annotations

import gradient_truth as gt
import numpy as np
import torch
from truth_common import SPIN_RATE, SPIN_START, Case, Engine, main, matrix, spin_chain, turned_start


class Ours(Engine):
    name, package = "warp_articulated", "warp-articulated"
    contact = "velocity-level impulses, Coulomb friction, restitution at a fixed step"
    method = "adjoint kernels, reverse"

    def bench(self) -> gt.Bench:
        return gt.Bench(self.dtype)

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


if __name__ == "__main__":
    main(Ours)
