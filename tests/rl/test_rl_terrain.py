"""LaikagoWalk on uneven ground: places, height scans, and that nothing waits for a GPU."""

import pytest
import torch
from no_waiting import NoWaiting

from warp_articulated import rl, terrain
from warp_articulated.rl.env import Env
from warp_articulated.rl.terrains import FIELDS, Ground
from warp_articulated.simulator import Simulator

NAMES = tuple(FIELDS)


def make(name, num_envs, **options):
    return rl.make("LaikagoWalk", num_envs, device="cpu", threads=1, terrain=name, push=0.0, **options)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_start_on_different_places_above_the_ground(name):
    env = make(name, 16)
    observation = env.reset(seed=1)
    origin = env.state.params["terrain_origin"]
    assert observation.shape == (16, 95) == (16, env.observation_size)
    assert len(torch.unique(origin, dim=0)) == 16
    gap = env.clearance(env.state) - env._height
    assert (gap > -0.01).all() and (gap < 0.6).all()
    toes = env.sim.link_poses(env.state.q)[:, [env.model.link(f"{leg}_lower_leg") for leg in ("FR", "FL", "RR", "RL")]]
    ground = env.field.height(toes[..., 0] + origin[:, None, 0], toes[..., 1] + origin[:, None, 1])
    assert (toes[..., 2] + origin[:, None, 2] - ground > 0.0).all()
    for _ in range(10):
        step = env.step(torch.zeros(16, 12))
    assert torch.isfinite(step.observation).all() and torch.isfinite(step.reward).all()
    assert step.terminated.sum() < 4


def test_the_height_scan_is_the_ground_around_the_robot():
    field = terrain.slope(45.0, (8, 8))
    ground = Ground(field, torch.zeros(0, dtype=torch.float64))
    q = torch.zeros(2, 19, dtype=torch.float64)
    q[:, :3], q[0, 6], q[1, 5] = torch.tensor([0.2, 0.1, 0.4], dtype=q.dtype), 2.0, 1.0  # ahead is +x; -x
    origin = torch.tensor([[1.0, 0.0, 0.9], [1.0, 0.0, 0.9]], dtype=torch.float64)
    scan = ground.scan(q, origin).reshape(2, 9, 5)
    ahead = torch.tensor([-0.4 + 0.15 * k for k in range(9)], dtype=torch.float64)
    expected = torch.stack([0.1 - ahead, 0.1 + ahead])[..., None].expand(2, 9, 5)
    torch.testing.assert_close(scan, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ground.level(q, origin), torch.full((2,), 0.4, dtype=torch.float64))


def test_the_scan_and_the_ground_are_differentiable_in_a_step():
    env = make("rough", 3)
    env.reset(seed=2)
    action = torch.zeros(3, 12, requires_grad=True)
    step = env.step(action)
    (step.observation[:, -45:].sum() + step.reward.sum()).backward()
    assert torch.isfinite(action.grad).all() and (action.grad.abs().amax(1) > 0).all()


def test_nothing_waits_in_a_step_on_terrain(monkeypatch):
    monkeypatch.setattr(Simulator, "_report", lambda self, counts: setattr(self, "_diverged", counts[0]))
    monkeypatch.setattr(Env, "_restarted", Env._restarted_unseen)
    env = make("stairs", 4, validate=False, episode_length=2)
    env.reset(seed=0)
    action = torch.zeros(4, 12)
    env.step(action)  # compiles
    with NoWaiting():
        for _ in range(3):
            env.step(action)


def test_randomisation_is_as_before_and_flat_ground_has_no_scan():
    flat, rough = make(None, 4), make("rough", 4)
    assert flat.reset(seed=3).shape == (4, 50)
    rough.reset(seed=3)
    assert set(rough.state.params) == {*flat.state.params, "terrain_origin"}
    assert torch.equal(flat.state.q, rough.state.q)
    assert set(make("rough", 2, randomise=False).fresh(2, 0).params) == {"terrain_origin"}


def test_a_wrong_terrain_is_refused():
    with pytest.raises(ValueError, match="terrain is 'lava'; it must be a Field, None, or one of rough, slopes"):
        make("lava", 1)


def test_mujoco_has_no_terrain():
    from warp_articulated.rl import transfer

    with pytest.raises(ValueError, match="terrain is given; it must be None in MuJoCo"):
        transfer.in_mujoco("LaikagoWalk", terrain="rough")
