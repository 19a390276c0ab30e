"""Shared by the commands: common options, option types, and console output."""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import Bar, Busy

if TYPE_CHECKING:
    import torch

    from ..model import Model
    from ..simulator import Simulator

OK, FAILED, DIVERGED = 0, 1, 3
STOPPED = 128  # plus the signal's number, the shell convention
DEVICE_HELP = "cpu or cuda:0; default: CUDA if available"
THREADS_HELP = "CPU threads; default: all cores"
CONTACTS_HELP = "contacts at once per environment (16, and 8 more for every robot or body after the first)"


class Console:
    """Messages on stdout and progress on stderr; neither with --quiet. Results are printed with print()."""

    def __init__(self, options: argparse.Namespace):
        from ..device import messages

        self.quiet = options.quiet
        messages.announced = False  # commands show their own progress
        messages.start_warp()

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    def bar(self, label: str) -> Bar:
        return Bar(label, enabled=False if self.quiet else None)

    def busy(self, label: str) -> Busy:
        return Busy(label, enabled=False if self.quiet else None)


def add_command(commands, name: str, does: str, examples: str, run) -> argparse.ArgumentParser:
    """A subcommand with its help text; `examples` are command lines, one per line."""
    command = commands.add_parser(
        name,
        help=does,
        description=does[0].upper() + does[1:] + ".",
        epilog="examples:\n" + "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    command.add_argument("--quiet", action="store_true", help="print results and errors only")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def add_model(command: argparse.ArgumentParser, *, what: str = "", default: str | None = None) -> None:
    """Add the model argument and the options for reading it."""
    text = "scene name, or path to a .urdf, .xml or .mjcf, .json (scene) or .npz file" + what
    command.add_argument(
        "model", nargs="?" if default else None, default=default, help=text + (" (%(default)s)" if default else "")
    )
    group = command.add_argument_group("URDF options")
    group.add_argument("--floating", action="store_true", help="put the root on a free joint above a ground plane")
    group.add_argument("--drive", choices=("torque", "position", "velocity"), help="drive type of all joints (torque)")
    group.add_argument("--kp", type=number, help="position drive gain, N m/rad")
    group.add_argument("--kd", type=number, help="position or velocity drive damping gain, N m s/rad")
    group.add_argument(
        "--option",
        **NAME_VALUE,
        help="any other option of wa.load, with a JSON value or a word: self_collision=false, friction=0.8, "
        "mimic=ignore, gravity='[0, 0, -1.6]'",
    )


def add_simulator(command: argparse.ArgumentParser) -> None:
    """Add the options of the simulator."""
    group = command.add_argument_group("simulation")
    add = group.add_argument
    add("--dt", type=positive, default=1e-3, help="time step in s (%(default)s)")
    add("--device", default=None, help=DEVICE_HELP)
    add("--dtype", choices=("float32", "float64"), default="float32", help="precision (%(default)s)")
    add("--iterations", type=count, default=50, help="maximum sweeps of the contact solver (%(default)s)")
    times = ("step", "impact")
    add("--contact-time", choices=times, default="step", help="whether impacts interrupt a step (%(default)s)")
    add("--tolerance", type=number, help="impulse change in N s at which the solver stops (default: rounding)")
    add("--max-contacts", type=count, help=CONTACTS_HELP)
    add("--threads", type=count, default=None, help=THREADS_HELP)


def add_start(command: argparse.ArgumentParser) -> None:
    """Add the options for the initial state and the control."""
    group = command.add_argument_group("motion")
    add = group.add_argument
    add(
        "--control",
        default="hold",
        help="hold: keep the default pose; zero; random: new targets every 0.1 s; or an .npz file with an array u, "
        "(steps, nu) or (steps, envs, nu) (%(default)s)",
    )
    add(
        "--perturb",
        type=number,
        default=0.0,
        help="largest random offset of the initial joint positions, rad or m (%(default)s)",
    )
    add("--seed", type=seed, default=0, help="seed of random offsets and controls (%(default)s)")


def load_model(options: argparse.Namespace) -> Model:
    import warp_articulated as wa

    names = ("drive", "kp", "kd")
    given = [(name, getattr(options, name)) for name in names if getattr(options, name) is not None]
    given += [("floating", True)] * options.floating + options.option
    named = as_dict(given, "of the model")
    if not options.model:
        raise ValueError("the model name is empty; give a scene name or a file.")
    return wa.load(options.model, **named)


def given_options(options: argparse.Namespace) -> list[str]:
    """The options of add_model that were given, as written on the command line."""
    return [f"--{name}" for name in ("floating", "drive", "kp", "kd", "option") if getattr(options, name)]


def make_simulator(options: argparse.Namespace, model: Model) -> Simulator:
    import warp_articulated as wa

    return wa.Simulator(
        model,
        num_envs=options.envs,
        device=options.device,
        dtype=options.dtype,
        dt=options.dt,
        iterations=options.iterations,
        contact_time=options.contact_time,
        tolerance=options.tolerance,
        max_contacts=options.max_contacts,
        threads=options.threads,
    )


# -- option types


def _whole(text: str, least: int) -> int:
    if not re.fullmatch(r"-?\d+", text.strip()) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= {least}")
    return int(text)


def count(text: str) -> int:
    return _whole(text, 1)


def seed(text: str) -> int:
    return _whole(text, 0)


def port(text: str) -> int:
    if _whole(text, 0) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; the highest is 65535")
    return int(text)


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")
    return value


def positive(text: str) -> float:
    try:
        good = number(text) > 0
    except argparse.ArgumentTypeError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number > 0")
    return float(text)


def loader_option(text: str) -> tuple[str, object]:
    """Parse "friction=0.8" into name and value: JSON, Python's True, False and None, or a plain word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} does not have the form NAME=VALUE")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), {"True": True, "False": False, "None": None}.get(value, value)


NAME_VALUE: dict[str, Any] = {"type": loader_option, "action": "append", "default": [], "metavar": "NAME=VALUE"}
"""Arguments of add_argument for an option that may be repeated."""


def as_dict(given: list[tuple[str, Any]], whose: str) -> dict[str, Any]:
    """Values by name; a repeated name is an error. whose: for the error message, such as "of the model"."""
    for k, (name, _) in enumerate(given):
        if name in dict(given[:k]):
            raise ValueError(f"the option {name!r} {whose} is given twice.")
    return dict(given)


def refuse(options: argparse.Namespace, why: str, *names: str) -> None:
    """Raise an error for options that would have no effect."""
    for name in names:
        if getattr(options, name) not in (None, False, "auto", 0.0):
            raise ValueError(f"--{name.replace('_', '-')} would have no effect: {why}.")


def check_outputs(options: argparse.Namespace, suffixes: dict[str, tuple[str, ...]]) -> None:
    """Raise an error for output paths that cannot be written; suffixes: accepted suffixes by option name."""
    from ..files import check_output_path

    for name, accepted in suffixes.items():
        if getattr(options, name) is not None:
            check_output_path(getattr(options, name), accepted)


def picture_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text.strip())
    if not match or not all(0 < int(n) <= 16384 for n in match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 960x540, at most 16384x16384")
    return int(match[1]), int(match[2])


def id_list(text: str) -> list[int]:
    """Parse "0,5,8-11" into numbers."""
    ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of environments like 0,5,8-11")
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(ids)) != len(ids):
        raise argparse.ArgumentTypeError(f"{text!r} names an environment twice")
    return ids


def synchronize(tensor: torch.Tensor) -> None:
    """Wait until a tensor is computed: launches on CUDA are asynchronous."""
    import torch

    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def free_memory() -> int | None:
    """Available memory in bytes, or None if the system does not report it."""
    try:
        line = next(x for x in Path("/proc/meminfo").read_text().splitlines() if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    return 1024 * int(line.split()[1])
