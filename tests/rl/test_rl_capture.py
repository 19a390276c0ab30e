"""Captured steps: their logic with a graph that runs its body again, on the CPU; steps that wait for nothing."""

import copy

import pytest
import torch
from no_waiting import NoWaiting

from warp_articulated import rl
from warp_articulated.device import cuda
from warp_articulated.rl.env import Env
from warp_articulated.rl.learning.learner import Learner, counts_on_host
from warp_articulated.simulator import Simulator

TASKS = ("Cartpole", "Ant", "LaikagoWalk")


@pytest.fixture
def graphs(monkeypatch):
    """CUDA graphs that are none: replaying runs the body. As on CUDA, resets do not read the mask."""
    made = []

    def capture(device, body, warm_ups):
        for _ in range(warm_ups + 1):
            body()
        made.append(warm_ups)
        return body

    monkeypatch.setattr(cuda, "require", lambda device, what: None)
    monkeypatch.setattr(cuda, "capture", capture)
    monkeypatch.setattr(Env, "_restarted", Env._restarted_unseen)
    return made


def batch(task="Cartpole", **options):
    env = rl.make(task, num_envs=3, validate=False, **options)
    env.reset(seed=1)
    return env


def actions(env, count):
    noise = torch.rand(count, env.num_envs, env.action_size, generator=torch.Generator().manual_seed(0))
    return 2.0 * noise - 1.0


@pytest.mark.parametrize("task", TASKS)
def test_captured_steps_are_steps(graphs, task):
    """Over the ends of episodes, whose states are replaced."""
    plain, captured = batch(task, episode_length=4), batch(task, episode_length=4)
    step = captured.capture(warm_ups=2)
    assert graphs == [2]
    for action in actions(plain, 10):
        with torch.no_grad():
            meant = plain.step(action)
        found = step(action)
        assert all(torch.equal(a, b) for a, b in zip(meant, found, strict=True))
        plain.state.map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), captured.state)


def test_capturing_leaves_the_state(graphs):
    env = batch()
    before, same = copy.deepcopy(env.state), env.state
    env.capture()
    assert env.state is same
    before.map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0), env.state)


def test_a_state_that_was_set_is_taken_over(graphs):
    env, other = batch(), batch()
    step = env.capture()
    action = torch.zeros(3, env.action_size)
    first = step(action)
    env.reset(seed=1)
    assert torch.equal(step(action).observation, first.observation)
    assert torch.equal(other.step(action).observation, first.observation)


def test_results_are_copies_unless_asked(graphs):
    env = batch()
    step = env.capture(copy=False)
    assert step(torch.zeros(3, env.action_size)) is step._step
    step = env.capture()
    found = step(torch.zeros(3, env.action_size))
    assert not {x.data_ptr() for x in found} & {x.data_ptr() for x in step._step}


def test_what_a_graph_cannot_do_is_refused(graphs):
    env = batch()
    step = env.capture()
    with pytest.raises(RuntimeError, match=r"no gradients; call env\.step"):
        step(torch.zeros(3, env.action_size, requires_grad=True))
    with pytest.raises(ValueError, match="action has shape"):
        step(torch.zeros(2, env.action_size))
    with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
        rl.make("Cartpole", num_envs=3, validate=False).capture()
    checking = rl.make("Cartpole", num_envs=3, validate=True)
    checking.reset()
    with pytest.raises(ValueError, match="validate=False"):
        checking.capture()


def test_there_are_no_graphs_on_the_cpu():
    with pytest.raises(RuntimeError, match=r"env\.capture\(\) needs a CUDA device, but this simulator is on cpu"):
        batch().capture()


def test_a_capture_warms_up_on_a_stream_of_its_own(monkeypatch):
    """In the order that torch asks for."""
    did = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            did.append(f"{self.name} waits for {other.name}")

    class Within:
        def __init__(self, what):
            self.what = what

        def __enter__(self):
            did.append(f"in {self.what}")

        def __exit__(self, *_):
            did.append(f"out {self.what}")

    class Graph:
        def replay(self):
            did.append("replay")

    monkeypatch.setattr(torch.cuda, "device", lambda device: Within("device"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: Within(stream.name))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: Within("graph"))
    cuda.capture(torch.device("cuda:0"), lambda: did.append("body"), 2)()
    assert did == [
        "in device", "side waits for main", "in side", "body", "body", "out side", "main waits for side", "in graph",
        "body", "out graph", "out device", "replay",
    ]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_nothing_waits_in_a_step_of_environments(monkeypatch, task):
    monkeypatch.setattr(Simulator, "_report", lambda self, counts: setattr(self, "_diverged", counts[0]))
    monkeypatch.setattr(Env, "_restarted", Env._restarted_unseen)
    env = batch(task, episode_length=2)
    action = torch.zeros(3, env.action_size)
    env.step(action)  # compiles
    with NoWaiting():
        for _ in range(3):
            env.step(action)


class Remembering(rl.Cartpole):
    """Observes its memory and nothing else: the results are the state's own memory."""

    def memory(self, random):
        return {"goal": random.uniform(0.0, 1.0, 2)}

    def observe(self, state):
        return state.memory["goal"]


def test_results_are_not_overwritten_by_the_next_episode(graphs):
    env = Remembering(num_envs=3, validate=False, episode_length=1)
    before = env.reset(seed=0).clone()
    found = env.capture(copy=False)(torch.zeros(3, env.action_size))
    assert torch.equal(found.final_observation, before)
    assert not torch.equal(found.observation, before)


# -- resumed training


class OnGpu(torch.Tensor):
    """A tensor that says it was on a GPU, until it is moved."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_a_resumed_optimiser_counts_on_the_host():
    weight = torch.nn.Parameter(torch.ones(2))
    optimiser = torch.optim.Adam([weight])
    weight.sum().backward()
    optimiser.step()
    saved = optimiser.state_dict()
    average = saved["state"][0]["exp_avg"]
    saved["state"][0]["step"] = saved["state"][0]["step"].as_subclass(OnGpu)
    found = counts_on_host(saved)
    assert type(found["state"][0]["step"]) is torch.Tensor and float(found["state"][0]["step"]) == 1.0
    assert found["state"][0]["exp_avg"] is average and found["param_groups"] is saved["param_groups"]


def test_resuming_hands_optimisers_such_counts(monkeypatch):
    class Small(Learner):
        def __init__(self, env):
            super().__init__(env, None)
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.optimiser = torch.optim.Adam([self.weight])

        def parts(self):
            return {"optimiser": self.optimiser}

    learner = Small(batch())
    learner.weight.sum().backward()
    learner.optimiser.step()
    saved = learner.state_dict()
    state = saved["part optimiser"]["state"]
    state[0] = {**state[0], "step": state[0]["step"].as_subclass(OnGpu)}
    learner.load_state_dict(saved)
    assert type(learner.optimiser.state[learner.weight]["step"]) is torch.Tensor
