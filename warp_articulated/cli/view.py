"""`warp-articulated view`: shows a running batch in a browser."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .console import (
    OK,
    Console,
    add_command,
    add_model,
    add_simulator,
    add_start,
    count,
    load_model,
    make_simulator,
    port,
    positive,
)
from .control import initial_state, make_control

if TYPE_CHECKING:
    from ..simulator import Simulator

EXAMPLES = """
warp-articulated view laikago
warp-articulated view ant --envs 64 --control random
warp-articulated view robot.urdf --floating --drive position --kp 100 --kd 2
"""


def add(commands) -> None:
    does = "show a running batch in a browser, with joint sliders and contact forces"
    command = add_command(commands, "view", does, EXAMPLES, run)
    add_model(command)
    command.add_argument("--envs", type=count, default=4, help="number of copies (%(default)s)")
    command.add_argument("--contacts", action="store_true", help="show contact points and forces from the start")
    command.add_argument("--no-shadows", action="store_true", help="no shadows, for browsers without a GPU")
    command.add_argument(
        "--host", default="127.0.0.1", help="address to serve on; 0.0.0.0: all interfaces (%(default)s)"
    )
    command.add_argument("--port", type=port, default=8080, help="port to serve on; 0: any free port (%(default)s)")
    command.add_argument("--seconds", type=positive, help="stop after this many seconds; default: run until Ctrl-C")
    add_start(command)
    add_simulator(command)


def run(options: argparse.Namespace) -> int:
    from ..show.viewer import Viewer

    console = Console(options)
    model = load_model(options)
    console.say(f"loaded {model!r}")
    sim = make_simulator(options, model)
    control = None if options.control == "hold" else _at_time(sim, options)
    with Viewer(
        sim, control=control, state=initial_state(sim, options), host=options.host, port=options.port,
        contacts=options.contacts, shadows=not options.no_shadows,
    ) as viewer:  # fmt: skip
        print(f"open {viewer.url} in a browser; stop with Ctrl-C", flush=True)
        viewer.run(options.seconds)
    return OK


def _at_time(sim: Simulator, options: argparse.Namespace):
    """--control as a function of time; after the last row of a file, that row is held."""
    control, rows = make_control(sim, options, None)

    def at(seconds: float, q, qd):
        step = round(seconds / (sim.dt * sim.substeps))
        return control(min(step, rows - 1) if rows else step, 1)[0]

    return at
