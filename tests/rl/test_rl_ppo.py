"""PPO: our part of it, which combines rsl_rl's components."""

import subprocess
import sys

import torch

from warp_articulated import rl
from warp_articulated.rl.learning.ppo import Ppo, PpoSettings

SMALL = PpoSettings(num_envs=8, horizon=6, actor_hidden=(16,), critic_hidden=(16,), epochs=2, minibatches=2)


def learner(seed=0):
    return Ppo(rl.make("Cartpole", 8, device="cpu", threads=1, episode_length=9), SMALL, seed)


def test_iterations_learn_and_count_steps(capfd):
    ppo = learner()
    before = [p.detach().clone() for p in (*ppo.actor.parameters(), *ppo.critic.parameters())]
    numbers = [ppo.advance() for _ in range(3)]
    after = [*ppo.actor.parameters(), *ppo.critic.parameters()]
    assert all(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert ppo.steps == 144 and ppo.iterations == 3
    # episodes that end earlier were not observed from their start
    assert "return" not in numbers[0] and numbers[2]["length"] == 9
    assert numbers[1]["learning rate"] > 0 and 0.1 < numbers[1]["noise"] < 1
    assert "Model" not in capfd.readouterr().out  # rsl_rl's output


def test_policy_is_the_mean_of_the_actor():
    ppo = learner()
    ppo.advance()  # the normaliser has seen something
    observation = torch.randn(32, 5)
    grouped = {"policy": observation}
    mean = ppo.actor(grouped)
    assert torch.equal(ppo.policy(observation), mean.clamp(-1, 1))
    assert ppo.policy(1e6 * observation).abs().max() == 1
    torch.manual_seed(0)
    samples = torch.stack([ppo.actor(grouped, stochastic_output=True) for _ in range(400)])
    # 400 samples with standard deviation about 0.5: that of their mean is 0.025
    assert (samples.mean(0) - mean).abs().max() < 0.12


def test_truncated_episodes_are_reported_as_time_outs(monkeypatch):
    ppo = learner()
    begun, seen = ppo.env.state.frame, []
    plain = ppo.algorithm.process_env_step
    monkeypatch.setattr(ppo.algorithm, "process_env_step", lambda *args: (seen.append(args), plain(*args)))
    for _ in range(2):
        ppo.advance()
    ended = torch.stack([args[2] for args in seen])
    cut = torch.stack([args[3]["time_outs"] for args in seen])
    due = (torch.arange(12)[:, None] + 1 + begun) % 9 == 0  # nothing falls within 9 steps
    assert torch.equal(ended, due) and torch.equal(cut, due) and due.any(0).all() and not due.all(1).any()


def test_learning_rate_is_resumed():
    ppo, other = learner(), learner(1)
    ppo.algorithm.optimizer.param_groups[0]["lr"] = 3e-4
    other.load_state_dict(ppo.state_dict())
    assert other.algorithm.learning_rate == 3e-4


def test_missing_rsl_rl_names_the_extra():
    code = (
        "import sys; sys.modules['rsl_rl'] = None\n"
        "from warp_articulated.rl.learning.training import train\n"
        "try:\n"
        "    train('Cartpole', 'ppo')\n"
        "except ModuleNotFoundError as error:\n"
        "    assert str(error) == \"the algorithm ppo needs rsl-rl-lib: pip install 'warp-articulated[rl]'.\", error\n"
        "else:\n"
        "    raise SystemExit('it was trained')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
