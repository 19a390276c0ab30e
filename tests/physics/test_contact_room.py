"""The default room for contacts: robots that fall limp and lie need less, so that no contact is left out."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import warp_articulated as wa
from warp_articulated.device.topology import default_contacts

ENVS, STEPS, EVERY = 64, 3000, 10


def limp(model: wa.Model) -> wa.Model:
    """Drives without stiffness and damping; torque drives get no control. Effort limits stay: 0 x infinity is NaN."""
    return replace(model, kp=0 * model.kp, kd=0 * model.kd)


def laikago() -> wa.Model:
    return wa.load("laikago")


def humanoid() -> wa.Model:
    assets = pytest.importorskip("gymnasium.envs.mujoco")
    pytest.importorskip("mujoco")
    return wa.load(Path(assets.__file__).parent / "assets" / "humanoid.xml")


def thrown(model: wa.Model, sim: wa.Simulator, seed: int):
    """q and qd: turned at random, joints anywhere within their limits."""
    rng = np.random.default_rng(seed)
    q, qd = sim.initial_state()
    turn = rng.normal(size=(ENVS, 4))
    lower, upper = (np.clip(x[-(model.nv - 6) :], -3.0, 3.0) for x in (model.lower, model.upper))
    q[:, 2] = 1.2
    q[:, 3:7] = torch.from_numpy(turn / np.linalg.norm(turn, axis=1, keepdims=True))
    q[:, 7:] = torch.from_numpy(rng.uniform(lower, upper, (ENVS, model.nv - 6)))
    qd[:] = torch.from_numpy(rng.normal(size=qd.shape))
    return q, qd


@pytest.mark.slow
@pytest.mark.parametrize("make", [laikago, humanoid])
def test_robots_that_lie_have_room_for_their_contacts(make, capsys):
    model = limp(make())
    sim = wa.Simulator(model, ENVS, device="cpu", dtype="float32")
    q, qd = thrown(model, sim, seed=1)
    u = torch.zeros(EVERY, ENVS, model.nu)
    largest = 0
    for _ in range(STEPS // EVERY):
        qs, qds = sim.rollout(q, qd, u)
        q, qd = qs[-1], qds[-1]
        assert not sim.dropped_contacts.any()  # in any of the steps
        largest = max(largest, int(sim.contacts(q, qd, u[0]).active.sum(1).max()))
    with capsys.disabled():
        print(f"\n{model.name}: at most {largest} contacts, room for {default_contacts(model)}")
    assert torch.isfinite(q).all() and qd.abs().max() < 20.0
    assert 8 <= largest <= default_contacts(model)
