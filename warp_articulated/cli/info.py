"""`warp-articulated info`: the model as a tree, or the list of scenes."""

from __future__ import annotations

import argparse

from .console import OK, add_command, add_model, load_model

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

        for name in wa.scene_names():
            model = wa.load(name)
            print(f"{name:16} {model.num_links:3} links, {model.nu:3} drives, {model.mass.sum():8.4g} kg")
        return OK
    print(load_model(options))
    return OK
