"""Policy files: the same actions to the last bit, and nothing but a ValueError for what a stranger may put into one."""

import io
import json
import pickle
import random
import warnings
import zipfile

import numpy as np
import pytest
import torch

from warp_articulated import rl
from warp_articulated.rl.learning.policies import policy_names, policy_path
from warp_articulated.rl.learning.policy_export import export_onnx, export_torchscript
from warp_articulated.rl.learning.policy_file import MOST_BYTES, load_policy, save_policy
from warp_articulated.rl.learning.policy_network import Architecture, PolicyNetwork
from warp_articulated.rl.learning.ppo import Ppo
from warp_articulated.rl.learning.sac import Sac
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac
from warp_articulated.rl.learning.sql import Sql

REFUSED = r"p\.pt was not written by save_policy, or is damaged"


@pytest.fixture(scope="module")
def env():
    return rl.make("Cartpole", 4, device="cpu", threads=1)


@pytest.fixture
def file(tmp_path, env):
    """A small policy file, whose bytes can all be tried."""
    policy = Shac(env, make_settings(Shac, {"num_envs": 4, "actor_hidden": (3,)}), 0).policy
    save_policy(tmp_path / "p.pt", policy, env, {"swing_up": True}, algorithm="shac")
    return tmp_path / "p.pt"


def rewrite(path, change) -> None:
    """Apply `change` to the contents of a policy file: a dict, whose description is parsed for it."""
    content = torch.load(path, weights_only=True)
    content["description"] = json.loads(content["description"])
    change(content)
    content["description"] = json.dumps(content["description"])
    torch.save(content, path)


LEARNERS = [
    (Shac, {}),
    (Ppo, {"horizon": 4}),
    (Sac, {}),
    (Sac, {"norm": True, "normalise": False}),
    (Sql, {"norm": True}),
]


@pytest.mark.parametrize(("learner", "settings"), LEARNERS)
def test_policy_of_every_learner_acts_the_same_to_the_last_bit(learner, settings, tmp_path, env):
    policy = learner(env, make_settings(learner, {"num_envs": 4, **settings}), 3).policy
    seen = 2.0 * torch.randn(1000, 5) + 1.0
    if hasattr(policy.normaliser, "see"):
        policy.normaliser.see(seen)
    elif hasattr(policy.normaliser, "update"):
        policy.normaliser.update(seen)
    before = torch.random.get_rng_state()
    save_policy(tmp_path / "p.pt", policy, env, {"swing_up": True}, note="of a test")
    found = load_policy(tmp_path / "p.pt")
    assert torch.equal(torch.random.get_rng_state(), before), "a resumed PPO would go on with other noise"
    for scale in (1.0, 100.0):
        assert torch.equal(found.policy(scale * seen), policy(scale * seen))
    assert found.policy(100.0 * seen).abs().max() <= 1
    assert (found.task, found.options, found.info["note"]) == ("Cartpole", {"swing_up": True}, "of a test")
    assert found.make(2, device="cpu").swing_up and found.make(2, device="cpu").num_envs == 2
    save_policy(tmp_path / "again.pt", found.policy, env)  # what was read can be written
    assert torch.equal(load_policy(tmp_path / "again.pt").policy(seen), policy(seen))


def test_policies_in_double_precision_keep_it(tmp_path):
    env = rl.make("Cartpole", 2, device="cpu", threads=1, dtype="float64")
    policy = Shac(env, make_settings(Shac, {"num_envs": 2}), 0).policy
    save_policy(tmp_path / "p.pt", policy, env, {"dtype": "float64"})
    seen = env.reset(0)
    assert seen.dtype == torch.float64 and torch.equal(load_policy(tmp_path / "p.pt").policy(seen), policy(seen))


def test_only_networks_that_can_be_described_are_saved(tmp_path, env):
    with pytest.raises(ValueError, match=r"a Linear cannot be stored as a policy: it must be the policy of a learner"):
        save_policy(tmp_path / "p.pt", torch.nn.Linear(5, 1), env)
    policy = Shac(env, make_settings(Shac, {"num_envs": 4}), 0).policy
    policy.net[2] = torch.nn.ReLU()
    with pytest.raises(ValueError, match="Actor has layers that a policy file cannot describe"):
        save_policy(tmp_path / "p.pt", policy, env)
    assert not list(tmp_path.iterdir())


def test_policy_files_contain_no_code_and_no_paths_of_the_machine(file):
    shipped = [policy_path(name) for name in policy_names()]
    assert len(shipped) == 3
    for path in (file, *shipped):
        assert set(torch.load(path, weights_only=True)) == {"format", "description", "weights"}
        content = path.read_bytes()
        assert not any(word in content for word in (b"__torch__", b"/learning/", b"/home", b"/tmp", b".best")), path


def test_a_changed_file_is_refused_with_the_reason(file):
    whole = file.read_bytes()
    nested = "[" * 100_000 + "]" * 100_000

    def architecture(**values):
        return lambda x: x["description"]["architecture"].update(values)

    def weights(name, tensor):
        return lambda x: x["weights"].update({name: tensor})

    changes = [
        (lambda x: x.update(format="another"), "its format is not"),
        (lambda x: x.pop("format"), "its format is not"),
        (lambda x: x.update(description=[]), "it has no description"),
        (lambda x: x["description"].pop("task"), "lacks the task, options or info"),
        (lambda x: x["description"].update(task="Ant\x1b[2J"), "lacks the task, options or info"),
        (lambda x: x["description"].update(options=[1]), "lacks the task, options or info"),
        (lambda x: x["description"]["options"].update(num_envs=10**9), "num_envs cannot be an option"),
        (lambda x: x["description"]["info"].update(control_dt=float("nan")), "has the number NaN"),
        (lambda x: x["description"]["info"].update(action_size=2), "contradict each other"),
        (lambda x: x["description"].pop("architecture"), "must be of the kind mlp"),
        (architecture(kind="transformer"), "must be of the kind mlp"),
        (architecture(heads=4), "should not have, heads"),
        (architecture(activation="eval"), "the activation must be elu"),
        (architecture(squash="none"), "squash one of tanh, clip"),
        (architecture(sizes=7), "sizes must be a list"),
        (architecture(sizes=[5]), "there must be 2 to 64 sizes"),
        (architecture(sizes=[5, 3.5, 1]), "sizes must be whole numbers"),
        (architecture(sizes=[5, True, 1]), "sizes must be whole numbers"),
        (architecture(sizes=[5, 10**30, 1]), "sizes must be whole numbers"),
        (architecture(sizes=[5, *[60_000] * 50, 1]), "more than 67108864 weights"),
        (architecture(sizes=[4, 3, 1]), "at least observation_size"),
        (architecture(sizes=[5, 4, 1]), r"net.0.weight must be a tensor of shape \(4, 5\)"),
        (architecture(clip=float("inf")), "has the number Infinity"),
        (architecture(clip=-1), "clip must be a positive number"),
        (architecture(layer_norm=1), "must be true or false"),
        (architecture(normalise=False), "its weights are not those of its architecture"),
        (lambda x: x.pop("weights"), "its weights are not those"),
        (lambda x: x["weights"].pop("mean"), "its weights are not those"),
        (weights("more", torch.zeros(1)), "its weights are not those"),
        (weights("mean", [0.0] * 5), "mean must be a tensor"),
        (weights("mean", torch.zeros(1).expand(5)), "mean must be a tensor"),
        (weights("net.0.weight", torch.zeros(1).expand(1 << 20, 1 << 20)), "net.0.weight must be a tensor"),
        (weights("mean", torch.zeros(5, dtype=torch.float64)), "differ in precision"),
        (weights("mean", torch.zeros(5, dtype=torch.int64)), "it names 'torch LongStorage'"),
        (weights("mean", torch.full((5,), float("nan"))), "mean has numbers that are not finite"),
        (weights("mean", torch.full((5,), 1e30)), "mean has numbers that are not finite, or beyond"),
        (weights("scale", torch.zeros(5)), "scale must be at least"),
        (weights("mean", bytearray(5)), "it names"),
        (weights("mean", torch.zeros(5).to_sparse()), "it names"),
        (weights("mean", torch.zeros(5, device="meta")), "it names"),
    ]
    for change, reason in changes:
        file.write_bytes(whole)
        rewrite(file, change)
        with pytest.raises(ValueError, match=f"{REFUSED}.*{reason}"):
            load_policy(file)
    torch.save({"format": "warp_articulated policy 1", "description": nested, "weights": {}}, file)
    with pytest.raises(ValueError, match=f"{REFUSED}.*RecursionError"):
        load_policy(file)


def test_files_that_are_no_policies(file, tmp_path):
    whole = file.read_bytes()
    with pytest.raises(FileNotFoundError, match=r"the folder .* has no policy\.pt"):
        policy_path(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file, run or policy walker"):
        policy_path("walker")
    with pytest.raises(FileNotFoundError, match="there is no policy"):
        load_policy(tmp_path / "nothing.pt")
    for content in (b"", b"nothing", pickle.dumps({"format": 1}), whole[:100]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=REFUSED):
            load_policy(file)
    torch.save({"a": torch.zeros(3)}, file, _use_new_zipfile_serialization=False)  # it would allocate before it reads
    with pytest.raises(ValueError, match=f"{REFUSED}.*BadZipFile"):
        load_policy(file)
    with open(file, "wb") as sparse:
        sparse.truncate(MOST_BYTES + 1)
    with pytest.raises(ValueError, match=r"p\.pt is too large for a policy"):
        load_policy(file)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target, zipfile.ZipFile(io.BytesIO(whole)) as source:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    file.write_bytes(packed.getvalue())
    with pytest.raises(ValueError, match=f"{REFUSED}.*it is compressed"):
        load_policy(file)


class _Program:
    """What a stranger would like to have run."""

    def __reduce__(self):
        return (print, ("owned",))


def test_no_program_is_run(file, capfd):
    rewrite(file, lambda x: x.update(more=_Program()))
    with pytest.raises(ValueError, match=f"{REFUSED}.*it names '.* print'"):
        load_policy(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(torch.nn.Linear(5, 1)), str(file))
    with pytest.raises(ValueError, match=r"p\.pt is a TorchScript program, which is not run.*train \.\.\. --resume"):
        load_policy(file)
    assert "owned" not in capfd.readouterr().out


def acts(path) -> bool:
    """Whether a file is a policy that works; False: it was refused with a ValueError that names the file."""
    try:
        found = load_policy(path)
    except ValueError as error:
        assert str(path) in str(error)
        return False
    size = found.policy.architecture
    action = found.policy(torch.randn(3, size.observation_size))
    assert action.shape == (3, size.action_size) and bool((action.abs() <= 1).all())
    return True


def test_damaged_files_are_refused_or_work(file):
    whole = file.read_bytes()
    draw = random.Random(0)
    worked = refused = 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        file.write_bytes(damaged)
        worked, refused = (worked + 1, refused) if acts(file) else (worked, refused + 1)
    assert refused > 100 and worked > 10  # most bytes are zeros that align the tensors, which nobody reads
    for length in range(0, len(whole), 37):
        file.write_bytes(whole[:length])
        assert not acts(file)


def test_damaged_contents_with_right_checksums_are_refused_or_work(file):
    """As a stranger would write it: the pickle and the numbers are changed, the archive around them is right."""
    with zipfile.ZipFile(file) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    chosen = [name for name in entries if name.endswith("data.pkl") or "/data/" in name]
    draw = random.Random(1)
    worked = refused = 0
    for _ in range(1500):
        changed = dict(entries)
        name = draw.choice(chosen) if draw.random() < 0.5 else chosen[0]
        damaged = bytearray(entries[name])
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        changed[name] = bytes(damaged)
        with zipfile.ZipFile(file, "w") as target:
            for entry, content in changed.items():
                target.writestr(entry, content)
        worked, refused = (worked + 1, refused) if acts(file) else (worked, refused + 1)
    assert refused > 100 and worked > 100


def test_exported_torchscript_acts_the_same(file, tmp_path):
    found = load_policy(file)
    export_torchscript(tmp_path / "program.pt", found)
    extra = {"policy.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        program = torch.jit.load(str(tmp_path / "program.pt"), _extra_files=extra)
    seen = torch.randn(7, 5)
    torch.testing.assert_close(program(seen), found.policy(seen), rtol=0, atol=1e-6)
    assert json.loads(extra["policy.json"])["task"] == "Cartpole"
    with zipfile.ZipFile(tmp_path / "program.pt") as archive:
        assert not any(b"/learning/" in archive.read(entry) for entry in archive.infolist())


@pytest.mark.parametrize("squash", ["tanh", "clip"])
def test_exported_onnx_acts_the_same(squash, file, tmp_path):
    from onnx.reference import ReferenceEvaluator

    described = Architecture(5, 1, (6, 3, 2), layer_norm=True, clip=2.0, squash=squash)
    torch.manual_seed(0)
    weights = {name: torch.rand(shape) + 0.1 for name, shape in PolicyNetwork.shapes(described).items()}
    save_policy(file, PolicyNetwork(described, weights), rl.make("Cartpole", 1, device="cpu"))
    found = load_policy(file)
    export_onnx(tmp_path / "p.onnx", found)
    for number in (1, 9):
        seen = 3.0 * torch.randn(number, 5)
        (action,) = ReferenceEvaluator(str(tmp_path / "p.onnx")).run(None, {"observation": seen.numpy()})
        np.testing.assert_allclose(action, found.policy(seen).detach().numpy(), atol=1e-6)
    assert str(tmp_path).encode() not in (content := (tmp_path / "p.onnx").read_bytes()) and b".py" not in content
