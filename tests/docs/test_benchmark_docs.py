"""No figure in README and docs without the JSON that it came from, and no JSON from a quick or busy run."""

import json
import re

import make_benchmarks
import pytest
from doc_pages import CODE, FENCE, INDENTED

ROOT = make_benchmarks.ROOT

RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
# What a measurement looks like in a sentence. Settings, such as a time step or a length of film, have other units.
MEASURED = re.compile(r"\d[\d.,]*\s?(us|MB|GB|steps/s|times (?:faster|as|the|real|MuJoCo))\b")
# whatever else runs does not change what they find; learning counts CPU time
NO_TIMES = (
    "gradient_report", "scoreboard", "gpu_resources", "registers", "executed", "solver_exit", "transfer", "learning",
    "impacts", "impact_landscape", "impact_horizons", "survey",
)  # fmt: skip
# files from before "load" was that of the moment: it was that of the last minute, in which another benchmark ran
MINUTES = ("throughput", "render", "usd_export")
MEASURED_PAGES = (
    "README.md",
    "docs/applications.md",
    "docs/benchmarks.md",
    "docs/concepts.md",
    "docs/faq.md",
    "docs/gradients.md",
)


@pytest.mark.parametrize(
    "page", [p for p in make_benchmarks.PAGES if make_benchmarks.FRAGMENT.search(p.read_text("utf-8"))]
)
def test_pages_show_what_was_measured(page):
    text = page.read_text("utf-8")
    assert make_benchmarks.fill(text) == text, f"{page.name} shows other figures than its JSON: run `make docs`."


@pytest.mark.parametrize("page", MEASURED_PAGES)
def test_no_figure_was_written_by_hand(page):
    text = make_benchmarks.FRAGMENT.sub("", (ROOT / page).read_text("utf-8"))
    text = CODE.sub("", INDENTED.sub("", FENCE.sub("", text)))
    found = [line for line in text.splitlines() if MEASURED.search(line) and "goal" not in line.lower()]
    assert not found, f"{page} has figures that come from no JSON: {found}"


def test_a_changed_figure_is_noticed():
    page = "We take <!-- throughput.ratios -->3 us<!-- end --> per step."
    filled = make_benchmarks.fill(page)
    assert filled != page and make_benchmarks.fill(filled) == filled
    with pytest.raises(SystemExit, match=r"has no fragment nothing; it has "):
        make_benchmarks.fill("<!-- throughput.nothing -->1<!-- end -->")
    with pytest.raises(SystemExit, match=r"startup.json is missing: run `python benchmarks/speed/startup.py` first"):
        make_benchmarks.fill("<!-- startup.table -->1<!-- end -->")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_are_of_full_runs_on_a_known_machine(path):
    results = json.loads(path.read_text("utf-8"))
    assert results["machine"]["cpu"] and results["machine"]["cores"] and results["machine"]["commit"]
    assert not results.get("quick")
    if path.stem not in (*NO_TIMES, *MINUTES):
        load = results.get("load", results.get("load_before", 0.0))
        assert load < 0.5, f"measured while other programs kept {load} cores busy"
    assert not re.search(r'"/|[\s=(]/(home|tmp|root|work|usr|opt)/', path.read_text("utf-8")), (
        "it names a path of a machine"
    )
