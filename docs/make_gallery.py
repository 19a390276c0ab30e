"""Make docs/images/robots.png, the gallery of docs/robots.md: robots of PyPI packages that load completely.

python docs/make_gallery.py ROBOTS [output.png]

ROBOTS is the folder that benchmarks/survey/survey.py --fetch fills. A robot that does not load completely is an error.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import warp_articulated as wa
from warp_articulated.show.pictures.render import render

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from survey.robot import incomplete
from survey.survey import PACKAGES

SIZE, COLUMNS, BAR = (320, 280), 4, 20  # pixels of a picture, pictures of a row, pixels of a caption
ROBOTS = (  # caption, package, file
    ("Unitree G1 (mjlab)", "mjlab", "asset_zoo/robots/unitree_g1/xmls/g1.xml"),
    ("Unitree Go1 (mjlab)", "mjlab", "asset_zoo/robots/unitree_go1/xmls/go1.xml"),
    ("Fourier GR1 (robosuite)", "robosuite", "robots/gr1/robot.xml"),
    ("Kinova Gen3 (robosuite)", "robosuite", "robots/kinova3/robot.xml"),
    ("KUKA iiwa (robosuite)", "robosuite", "robots/iiwa/robot.xml"),
    ("Allegro hand (example-robot-data)", "example-robot-data",
     "allegro_hand_description/urdf/allegro_right_hand.urdf"),
    ("Simple humanoid (example-robot-data)", "example-robot-data",
     "simple_humanoid_description/urdf/simple_humanoid.urdf"),
    ("Boxhead (dm_control)", "dm_control", "locomotion/soccer/assets/boxhead/boxhead.xml"),
    ("Cheetah (dm_control)", "dm_control", "suite/cheetah.xml"),
    ("Ant (gymnasium)", "gymnasium", "envs/mujoco/assets/ant.xml"),
    ("Humanoid (playground)", "playground", "_src/dm_control_suite/xmls/humanoid.xml"),
    ("Thrower (pybullet)", "pybullet", "mjcf/thrower.xml"),
)  # fmt: skip


def picture(caption: str, path: Path) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = wa.load(path)
    if notes := incomplete(model.notes):
        raise SystemExit(f"{path} does not load completely: {' '.join(notes)}")
    width, height = SIZE
    tile = Image.new("RGB", (width, height + BAR), "white")
    tile.paste(Image.fromarray(render(model, model.q0, size=SIZE)), (0, 0))
    ImageDraw.Draw(tile).text((6, height + 2), caption, fill="black", font=ImageFont.load_default(13))
    return tile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robots", type=Path, help="the folder that benchmarks/survey/survey.py --fetch fills")
    parser.add_argument("output", type=Path, nargs="?", default=Path(__file__).parent / "images" / "robots.png")
    options = parser.parse_args()
    tiles = [picture(caption, options.robots / package / PACKAGES[package] / file) for caption, package, file in ROBOTS]
    width, height = tiles[0].size
    sheet = Image.new("RGB", (COLUMNS * width, -(-len(tiles) // COLUMNS) * height), "white")
    for k, tile in enumerate(tiles):
        sheet.paste(tile, (k % COLUMNS * width, k // COLUMNS * height))
    sheet.save(options.output, optimize=True)


if __name__ == "__main__":
    main()
