"""The Python in README and docs runs as it stands, but for the robot: the one with fewer shapes compiles faster."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/gradients.md"])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # they write files
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(block.replace('"laikago"', '"laikago_feet"'), names)  # one after the other, like a reader
    assert names["u"].grad.isfinite().all() and names["u"].grad.abs().max() > 0
