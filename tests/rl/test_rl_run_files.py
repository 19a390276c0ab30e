"""Files of a run: policies with their description, and logs that any JSON parser can read."""

import json
import math
import warnings
import zipfile

import pytest
import torch

from warp_articulated import rl
from warp_articulated.rl.learning.policies import policy_names, policy_path
from warp_articulated.rl.learning.policy_file import load_policy, save_policy
from warp_articulated.rl.learning.runlog import RunLog, read_log
from warp_articulated.rl.learning.settings import make_settings
from warp_articulated.rl.learning.shac import Shac

SHORT = {"num_envs": 4, "horizon": 4}


def test_policy_file_acts_like_the_policy(tmp_path):
    env = rl.make("Cartpole", 8, device="cpu")
    policy = Shac(env, make_settings(Shac, SHORT), 3).policy
    policy.normaliser.see(torch.randn(100, 5) * 2 + 1)
    save_policy(tmp_path / "p.pt", policy, env, {"swing_up": True}, note="of a test")
    found = load_policy(tmp_path / "p.pt")
    observation = torch.randn(64, 5)
    torch.testing.assert_close(found.policy(observation), policy(observation), rtol=0, atol=1e-6)
    assert found.policy(100 * observation).abs().max() <= 1
    assert (found.task, found.options, found.info["note"]) == ("Cartpole", {"swing_up": True}, "of a test")
    assert found.make(2).swing_up and found.make(2).num_envs == 2


def test_policy_file_contains_no_paths_of_the_machine(tmp_path):
    env = rl.make("Cartpole", 2, device="cpu")
    policy = Shac(env, make_settings(Shac, SHORT), 0).policy
    save_policy(tmp_path / "p.pt", policy, env)
    shipped = [policy_path(name) for name in policy_names()]
    assert shipped
    for path in (tmp_path / "p.pt", *shipped):
        with zipfile.ZipFile(path) as archive:
            assert not any(b"/learning/" in archive.read(entry) for entry in archive.infolist()), path


def test_log_with_non_finite_numbers_is_valid_json(tmp_path):
    log = RunLog(tmp_path)
    log.add({"steps": 1, "seconds": 1.0, "return": math.nan, "critic loss": math.inf})
    log.add({"steps": 2, "seconds": 2.0, "return": 3.0})
    log.flush()

    def refuse(word):
        raise AssertionError(word)

    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=refuse)["steps"] for line in lines] == [1, 2]
    assert read_log(tmp_path) == [{"steps": 1, "seconds": 1.0}, {"steps": 2, "seconds": 2.0, "return": 3.0}]
    assert (tmp_path / "log.csv").read_text().splitlines()[0] == "steps,seconds,return,critic loss"


def test_errors_for_files_that_are_not_policies(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .* has no policy\.pt"):
        policy_path(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file, run or policy walker"):
        policy_path("walker")
    (tmp_path / "p.pt").write_text("nothing")
    with pytest.raises(ValueError, match=r"p\.pt was not written by save_policy"):
        load_policy(tmp_path / "p.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(torch.nn.Linear(2, 1))
    for description in ("[]", "{}", '{"task": "Ant", "options": {}, "info": {}}'):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.save(scripted, str(tmp_path / "p.pt"), _extra_files={"policy.json": description})
        with pytest.raises(ValueError, match=r"p\.pt was not written by save_policy"):
            load_policy(tmp_path / "p.pt")
