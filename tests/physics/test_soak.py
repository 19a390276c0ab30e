"""Ten million steps of five robots under random torques: nothing diverges, sinks into the ground, or leaks memory."""

import gc
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from robots import SCENES

import warp_articulated as wa
from warp_articulated.geometry.kinematics import lowest_point
from warp_articulated.model import ShapeType

STEPS, ENVS, CALL = 10_000_000 // 5, 100, 200  # steps of a robot, its environments, steps of a rollout
HELD = 20  # steps for which a torque is held
# deepest point in m: at 10 m/s, as fast as these feet get, a point moves 5 cm in the longest step
DEEPEST = 0.05
# The same 10 s after the last torque: an ant takes 6 s to settle. This is no claim that all robots rest by then: the
# limp Laikago's joints are undamped, and legs that random torques have pushed through each other stay wedged and move.
LATER, DEEPEST_LATER = 10.0, 1e-3
GROWTH = 8.0  # MB; a rollout's states that stay somewhere are 2 MB a call, 160 MB in all

# source, options, share of the drives' limits (1 where they have none), time step in s
ROBOTS = {
    "ant": ("ant", {}, 1.0, 5e-3),
    "hopper": ("hopper", {}, 1.0, 2e-3),
    "laikago": (SCENES / "laikago.urdf", {"floating": True, "drive": "torque"}, 0.5, 2e-3),
    "racecar": ("racecar", {}, 1.0, 2e-3),
    "panda_throw": ("panda_throw", {}, 1.0, 2e-3),
}


def resident() -> float:
    """Memory of this process, MB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Soak:
    """A batch that goes on from call to call."""

    def __init__(self, source, options, dt):
        self.model = model = wa.load(source, **options)
        self.sim = wa.Simulator(model, ENVS, dt=dt, device="cpu")
        kinds = [{model.shapes[shape].type for shape in pair} for pair in model.pairs]
        self.on_ground = torch.tensor([ShapeType.PLANE in kind for kind in kinds])
        meets = {int(shape) for shape in model.pairs[self.on_ground.numpy()].flatten()}
        shapes = [replace(shape, collide=k in meets) for k, shape in enumerate(model.shapes)]
        self.above = replace(model, shapes=tuple(shapes))  # only shapes that the ground carries count
        self.q, self.qd = self.sim.initial_state()

    def go(self, u) -> float:
        """Simulate; returns by how much the lowest point of all robots is below the ground, m.

        It comes from geometry, not from contacts: a contact that the step misses is missed by `sim.contacts` as well.
        """
        qs, qds = self.sim.rollout(self.q, self.qd, u)
        assert len(self.sim.diverged) == 0
        assert bool(qs.isfinite().all()) and bool(qds.isfinite().all())
        self.q, self.qd = qs[-1].clone(), qds[-1].clone()
        return -min(lowest_point(self.above, q) for q in self.q.double().numpy())

    def wedged(self) -> float:
        """Depth of the deepest contact of shapes with each other, m."""
        found = self.sim.contacts(self.q, self.qd)
        depths = found.depths[found.active & ~self.on_ground[found.pairs.clamp(min=0).long()]]
        return float(depths.max()) if len(depths) else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_two_million_steps_of_random_torques(robot):
    source, options, share, dt = ROBOTS[robot]
    soak = Soak(source, options, dt)
    model = soak.model
    limit = share * torch.tensor(np.where(np.isfinite(model.effort), model.effort, 1.0), dtype=torch.float32)
    draw = torch.Generator().manual_seed(0)
    deepest, calls = 0.0, STEPS // (ENVS * CALL)
    for call in range(calls):
        held = limit * (2.0 * torch.rand(CALL // HELD, ENVS, model.nu, generator=draw) - 1.0)
        deepest = max(deepest, soak.go(held.repeat_interleave(HELD, 0)))
        if call == calls // 5:
            before = resident()
    growth = resident() - before
    later = soak.go(torch.zeros(round(LATER / dt), ENVS, model.nu))
    print(
        f"{robot}: in the ground at most {1e3 * deepest:.3g} mm, {LATER:g} s later {1e3 * later:.3g} mm; in each other "
        f"{1e3 * soak.wedged():.3g} mm; memory {growth:+.1f} MB"
    )
    assert deepest < DEEPEST and later < DEEPEST_LATER and growth < GROWTH
