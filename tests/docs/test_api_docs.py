"""docs/api.md: up to date, complete, and the same whoever makes it."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import api_source
import make_api
import pytest

import warp_articulated as wa

DOCS = Path(make_api.__file__).parent


@pytest.fixture(scope="module")
def page():
    return make_api.page()


def test_page_is_up_to_date(page):
    assert (DOCS / "api.md").read_text("utf-8") == page, "docs/api.md is out of date: run `make docs`."


def test_everything_public_has_a_docstring():
    assert make_api.undocumented() == []


def test_all_public_names_are_on_the_page(page):
    for name in wa.__all__:
        assert f"\n### wa.{name}\n" in page


@pytest.mark.parametrize("name", ["Simulator", "Model", "Contacts", "Diagnostics"])
def test_page_has_what_python_finds_in_a_class(page, name):
    """The page is made from the source; Python's own view of the class, inherited members included, is the oracle."""
    section = page.split(f"\n### wa.{name}\n")[1].split("\n### ")[0]
    for member, value in inspect.getmembers(getattr(wa, name)):
        if not member.startswith("_") and (callable(value) or isinstance(value, property)):
            assert f".{member}" in section, f"wa.{name}.{member} is missing"


@pytest.mark.parametrize("name", ["load", "combine", "render", "export_usd", "Simulator"])
def test_signatures_name_all_arguments_and_defaults(page, name):
    block = re.search(rf"```python\n(wa\.{name}\(.*?)```", page, re.DOTALL)[1]
    for argument in inspect.signature(getattr(wa, name)).parameters.values():
        assert re.search(rf"\b{argument.name}\b", block)
        if isinstance(argument.default, (bool, int, type(None))):
            assert re.search(rf"\b{argument.name}\b[^,]* ?= ?{argument.default}\b", block.replace(", ", "; "))


def test_every_parameter_is_explained(page):
    from warp_articulated.device.parameters import PARAMETERS

    for name in PARAMETERS:
        assert re.search(rf"^\| `{name}` \| \(num_envs, .+\) \| .+ \| .+ \|$", page, re.MULTILINE)


def test_contents_lead_to_headings(page):
    headings = {make_api.anchor(h) for h in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert links and set(links) <= headings


def test_page_is_made_without_importing_the_package():
    probe = "import sys, make_api; make_api.page(); print([m for m in sys.modules if m in ('warp', 'torch', 'viser')])"
    run = subprocess.run([sys.executable, "-c", probe], cwd=DOCS, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_docstrings_become_readable_markdown():
    doc = "Does *it*.\n\nArgs:\n    a, b: two\n        lines.\n    c: one.\n\n    code()\n\nd: by itself, a < b."
    assert make_api.markdown(doc, ["a", "b", "c", "d"]) == (
        "Does \\*it\\*.\n\nArguments:\n\n- `a`, `b`: two\n  lines.\n- `c`: one.\n\n    code()\n\n"
        "- `d`: by itself, a \\< b."
    )


def test_a_public_name_that_does_not_exist_is_told():
    with pytest.raises(LookupError, match=r"nothing is public, but warp_articulated/__init__\.py"):
        api_source.define("nothing")
