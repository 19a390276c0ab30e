"""`warp-articulated info`: prints a model as a tree, or the list of scenes."""

from __future__ import annotations

import argparse

from .console import OK, add_command, add_model, given_options, load_model

EXAMPLES = """
warp-articulated info laikago
warp-articulated info robot.urdf --floating
warp-articulated info scenes
"""


def add(commands) -> None:
    command = add_command(
        commands, "info", "print the links, joints, masses, shapes and drives of a model as a tree", EXAMPLES, run
    )
    add_model(command, what="; `scenes` lists the scenes")


def run(options: argparse.Namespace) -> int:
    if options.model == "scenes":
        import warp_articulated as wa

        from ..importers.scene_files import scene_description

        if given_options(options):
            raise ValueError(f"`info scenes` does not accept {given_options(options)[0]}.")
        for name in wa.scene_names():
            print(f"{name:16} {scene_description(name)}")
        return OK
    print(load_model(options))
    return OK
