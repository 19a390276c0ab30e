"""docs/gpu.md shows what `info --gpu` says now."""

import make_gpu

from warp_articulated.device.gpus import GPUS


def test_page_is_up_to_date():
    text = make_gpu.PAGE.read_text("utf-8")
    assert make_gpu.fill(text) == text, "docs/gpu.md shows other figures than `info --gpu`: run `make docs`."


def test_tables_have_all_scenes_and_gpus():
    text = make_gpu.PAGE.read_text("utf-8")
    assert all(f"\n| {gpu.name} |" in text for gpu in GPUS)
    assert "\n| laikago | 8 |" in text and "\n| pendulum1 | 16 |" in text and "\n| pendulum2 |" not in text
