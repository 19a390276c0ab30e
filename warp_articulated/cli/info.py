"""`warp-articulated info`: prints a model as a tree, the list of scenes, or what a model reserves of a GPU."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from . import gpu_memory
from .console import OK, Console, add_command, add_model, check_outputs, given_options, load_model, refuse

EXAMPLES = """
warp-articulated info laikago
warp-articulated info robot.urdf --floating
warp-articulated info scenes
warp-articulated info laikago --gpu "RTX 4090" --max-contacts 8
warp-articulated info scenes --gpu H100 --json memory.json
"""


def add(commands) -> None:
    command = add_command(
        commands, "info", "print the links, joints, masses, shapes and drives of a model as a tree", EXAMPLES, run
    )
    add_model(command, what="; `scenes` lists the scenes")
    gpu_memory.add_gpu(command)
    command.add_argument("--json", type=Path, help="write the figures of --gpu to this file")


def run(options: argparse.Namespace) -> int:
    if options.gpu is None:
        refuse(options, "there is no --gpu", "compile", "json", *gpu_memory.DEFAULTS)
    if options.model == "scenes" and given_options(options):
        raise ValueError(f"`info scenes` does not accept {given_options(options)[0]}.")
    if options.gpu is not None:
        return _show_memory(options)
    if options.model == "scenes":
        import warp_articulated as wa

        from ..importers.scene_files import scene_description

        for name in wa.scene_names():
            print(f"{name:16} {scene_description(name)}")
        return OK
    print(load_model(options))
    return OK


def _show_memory(options: argparse.Namespace) -> int:
    """Print a row for each kernel, of one model or of all scenes."""
    from ..device.gpus import named
    from ..files import replace_when_done

    check_outputs(options, {"json": (".json",)})
    gpu = named(options.gpu)
    console = Console(options)
    settings = {name: getattr(options, name) or value for name, value in gpu_memory.DEFAULTS.items()}
    console.say(gpu_memory.about(gpu))
    print(gpu_memory.line(gpu_memory.HEADS), flush=True)
    rows = []
    for model in _models(options):
        with console.busy(f"compiling {model.name}" if options.compile else model.name):
            found = gpu_memory.rows_for(model, gpu, exact=options.compile, **settings)
        rows += found
        for row in found:
            print(gpu_memory.line(gpu_memory.cells(row)), flush=True)
    console.say(
        f"Stacks are {'those of the compiler' if options.compile else 'estimates; --compile gives the exact ones'}. "
        "Whether it fits is computed, not tried."
    )
    if options.json is not None:
        with replace_when_done(options.json) as temporary:
            content = {"gpu": vars(gpu), "exact": options.compile, **settings, "rows": rows}
            temporary.write_text(json.dumps(content, indent=1) + "\n")
        console.say(f"wrote {options.json}")
    return OK


def _models(options: argparse.Namespace):
    import warp_articulated as wa

    return map(wa.load, wa.scene_names()) if options.model == "scenes" else [load_model(options)]
