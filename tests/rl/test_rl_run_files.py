"""Logs of a run, which any JSON parser can read. test_rl_policy_files.py has its policies."""

import json
import math

from warp_articulated.rl.learning.runlog import RunLog, read_log


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
