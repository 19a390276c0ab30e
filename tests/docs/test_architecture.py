"""The structure that docs/architecture.md describes: files that it names exist, and what keeps the code readable."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOMES = [ROOT, ROOT / "warp_articulated", ROOT / "kernels", ROOT / "kernels" / "core", ROOT / "kernels" / "collision"]
HOMES += [folder for folder in (ROOT / "warp_articulated").rglob("*") if folder.is_dir()]


def test_every_file_that_the_page_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = set(re.findall(r"[\w/]+\.py\b", page))
    assert len(names) > 40
    missing = [name for name in names if not any((home / name).is_file() for home in HOMES)]
    assert not missing, missing


def device_functions(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
            if decorators & {"wp.func", "stage"}:
                yield node


def test_device_functions_have_at_most_six_arguments():
    found = [(path, node) for path in (ROOT / "kernels").rglob("*.py") for node in device_functions(path)]
    assert len(found) > 200
    long = [f"{path.relative_to(ROOT)}:{node.lineno} {node.name}" for path, node in found if len(node.args.args) > 6]
    assert not long, long


def test_few_modules_are_at_the_top_of_the_package():
    assert len(list((ROOT / "warp_articulated").glob("*.py"))) <= 9


def test_factories_name_what_they_export():
    assert not [path for path in (ROOT / "kernels").rglob("*.py") if "**locals()" in path.read_text("utf-8")]
