"""Write what the benchmarks measured into README and docs: `python docs/make_benchmarks.py`.

A page says where: between `<!-- throughput.table -->` and `<!-- end -->` is the fragment "table" that
benchmarks/speed/throughput.py makes of benchmarks/results/throughput.json. The pages then show what the JSON says;
tests/docs/test_benchmark_docs.py checks that they do.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from lib import machine

ROOT = machine.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FRAGMENT = re.compile(r"<!-- (\w+)\.(\w+) -->(.*?)<!-- end -->", re.DOTALL)


@cache
def fragments(benchmark: str) -> dict[str, str]:
    """By name: the tables and sentences that the benchmark prints, and single figures for use inside a sentence."""
    path, script = machine.RESULTS / f"{benchmark}.json", machine.script(benchmark)
    if not path.exists():
        raise SystemExit(f"{path.relative_to(ROOT)} is missing: run `python {script.relative_to(ROOT)}` first.")
    module = importlib.import_module(f"{script.parent.name}.{benchmark}")
    results = json.loads(path.read_text("utf-8"))
    figures = getattr(module, "figures", lambda _: {})
    return {**module.report(results), **figures(results)}


def fill(text: str) -> str:
    """A page with all its fragments as they are to be."""

    def fragment(match: re.Match) -> str:
        benchmark, name, old = match.groups()
        found = fragments(benchmark)
        if name not in found:
            raise SystemExit(f"The benchmark {benchmark} has no fragment {name}; it has {', '.join(found)}.")
        # a table has lines of its own, a figure stands inside a sentence
        space = "\n\n" if old.startswith("\n") or "\n" in found[name] else ""
        return f"<!-- {benchmark}.{name} -->{space}{found[name]}{space}<!-- end -->"

    return FRAGMENT.sub(fragment, text)


def main() -> None:
    for page in PAGES:
        old = page.read_text("utf-8")
        if (new := fill(old)) != old:
            page.write_text(new, "utf-8")
            print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
