"""`warp-articulated view`: the live batch in a browser."""

from __future__ import annotations

import argparse

from .console import OK, Console, add_command, add_model, add_simulator, add_start, count, load_model, make_simulator
from .control import initial_state, make_control

EXAMPLES = """
warp-articulated view laikago
warp-articulated view ant --envs 64 --control random
warp-articulated view robot.urdf --floating --drive position --kp 100 --kd 2
"""


def add(commands) -> None:
    command = add_command(
        commands, "view", "show a running batch in a browser, with sliders and contact forces", EXAMPLES, run
    )
    add_model(command)
    command.add_argument("--envs", type=count, default=4, help="number of copies (%(default)s)")
    command.add_argument("--host", default="127.0.0.1", help="address to serve at; 0.0.0.0: all (%(default)s)")
    command.add_argument("--port", type=count, default=8080, help="(%(default)s)")
    command.add_argument("--seconds", type=count, help="stop after so many seconds; by default with Ctrl-C")
    add_start(command)
    add_simulator(command)


def run(options: argparse.Namespace) -> int:
    from ..viewer import Viewer

    console = Console(options)
    model = load_model(options)
    console.say(f"loaded {model!r}")
    sim = make_simulator(options, model)
    control, _ = make_control(sim, options, None)
    return OK
