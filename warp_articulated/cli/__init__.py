"""The command line: one module per command, each with `add` (declares the options) and `run` (executes it).

Exit codes: 0 done; 1 wrong file, option value or output path, with an error message; 2 wrong usage;
3 simulated, but some environments diverged; 130 stopped with Ctrl-C.

torch, Warp and USD are imported where they are used, so that `--help` and usage errors are fast.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from . import bench, doctor, export, info, play, render, simulate, train, view
from .console import FAILED, STOPPED

EXAMPLES = """\
examples:
  warp-articulated simulate laikago --envs 1024 --png robots.png
  warp-articulated simulate robot.urdf --floating --drive position --kp 100 --kd 2 --usd run.usdc
  warp-articulated info robot.urdf
  warp-articulated view laikago
  warp-articulated train Cartpole --minutes 1
  warp-articulated doctor

`warp-articulated COMMAND --help` shows the options of a command.
Exit codes: 0 done, 1 failed with an error message, 2 wrong usage, 3 some environments diverged.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        # like Ctrl-C: incomplete output files are removed before the process exits
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED + signal.SIGTERM))
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED + signal.SIGINT
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        sys.stdout = open(os.devnull, "w")
        return FAILED
    except Exception as error:
        if options.debug:
            raise
        text = str(error) or type(error).__name__
        # our own errors are full sentences; any other error needs its type to make sense
        known = isinstance(error, (ValueError, OSError, ModuleNotFoundError))
        print(f"warp-articulated: {'' if known else f'{type(error).__name__}: '}{text}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="warp-articulated",
        description="Simulate batches of articulated robots with contacts, and visualise them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands")
    for module in (simulate, view, train, play, info, render, export, bench, doctor):
        module.add(commands)
    return parser


def _version() -> str:
    from warp_articulated import __version__

    return __version__
