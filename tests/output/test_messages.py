"""What programs print unasked: nothing of Warp's, and one line while a kernel compiles."""

import os
import subprocess
import sys

import pytest

STEP = """
import sys
import warp_articulated as wa
sim = wa.Simulator(wa.load("pendulum1"), device="cpu", threads=1)
sim.step(*sim.initial_state(), sim.initial_control())
"""
AT_ONCE = "from warp_articulated.device import messages\nmessages.PATIENCE = 0.0\n"
COMMAND = """
import sys
from warp_articulated.cli import main
sys.exit(main(["simulate", "pendulum1", "--steps", "2", "--device", "cpu", "--quiet", "--dtype", "float64"]))
"""
LINE = "compiling the step for this robot, once; about 15 s\n"


def run(code, cache, **environment):
    """(stdout, stderr) of a program whose kernels are in the folder `cache`."""
    variables = {**os.environ, "WARP_CACHE_PATH": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_a_compiling_program_says_so_once_and_a_cached_one_nothing(cache):
    assert run(AT_ONCE + STEP, cache) == ("", LINE)
    assert run(AT_ONCE + STEP, cache) == ("", "")


def test_the_command_line_has_its_own_progress(cache):
    """In another precision, so that it compiles."""
    said, errors = run(AT_ONCE + COMMAND, cache)
    assert "compiling" not in said + errors and "Warp" not in said + errors
    assert any("rollout" in entry.name for entry in cache.rglob("*.cpp"))


def test_warps_messages_come_back(cache):
    said, _ = run(STEP, cache, WA_VERBOSE="1")
    assert "Warp 1." in said and "load on device 'cpu'" in said
    assert run(STEP, cache, WA_VERBOSE="0") == ("", "")


@pytest.mark.parametrize(
    ("before", "level"),
    [("wp.config.log_level = wp.LOG_DEBUG", 10), ("wp.init()", 20)],
)
def test_a_users_settings_of_warp_stay(before, level, cache):
    said, _ = run(f"import warp as wp\n{before}\n{STEP}\nprint('level', wp.config.log_level)", cache)
    assert said.splitlines()[-1] == f"level {level}"


def test_lines_that_are_not_about_a_missing_driver_are_kept(cache):
    code = """
import os
from warp_articulated.device.messages import _without_driver_warning
with _without_driver_warning():
    os.write(2, b"Warp CUDA warning: Could not find or load the NVIDIA CUDA driver.\\n")
    os.write(2, b"Warp warning: the driver is too old.\\n")
"""
    assert run(code, cache) == ("", "Warp warning: the driver is too old.\n")
