"""Parses README and docs: Python blocks, shell commands, links and headings."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "docs/api.md"  # generated from docstrings, checked by test_api_docs.py: nothing to run, only links
PAGES = ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))]

# An indented block with a line that starts with one of these holds commands; other blocks are outputs or formulas.
PROGRAMS = (
    "warp-articulated", "make", "pip", "python", "python3", "git", "cd", "export", "sudo", "apt", "brew", "uv", "conda",
    "docker", "curl", "wget", "torchrun", "pytest", "ruff", "mypy", "usdview", "source", ".", "$",
)  # fmt: skip
INLINE = ("make ", "pip install", "warp-articulated ", "python ")

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:(?:^|(?<=\n))    [^\n]*\n)+")
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Command:
    page: str
    text: str  # the line as written, comments included
    words: tuple[str, ...]  # without comments


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def python_blocks(page: str) -> list[str]:
    return [body for language, body in FENCE.findall(read(page)) if language == "python"]


def commands(page: str) -> list[Command]:
    """All shell command lines in the order of the page, blocks before inline code."""
    if page == GENERATED:
        return []
    text = read(page)
    lines = []
    for language, body in FENCE.findall(text):
        if language in ("bash", "sh", "console", "shell"):
            lines += [line.removeprefix("$ ") for line in body.splitlines()]
    prose = FENCE.sub("", text)
    for match in INDENTED.finditer(prose):
        block = [line.strip() for line in match[0].splitlines()]
        if any(line.split(" ")[0] in PROGRAMS for line in block):
            lines += block
    inline = [" ".join(code.split()) for code in CODE.findall(INDENTED.sub("", prose))]
    lines += [code for code in inline if code.startswith(INLINE)]
    lines = [line for line in lines if line and not line.startswith("#")]
    return [Command(page, line, tuple(shlex.split(line, comments=True))) for line in dict.fromkeys(lines)]


def links(page: str) -> list[str]:
    """Targets of all local links and pictures."""
    text = CODE.sub("", FENCE.sub("", read(page)))
    return [target for target in LINK.findall(text) if "://" not in target and not target.startswith("mailto:")]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub generates for a page's headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", read(page)), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = found.get(slug, -1) + 1
        found[slug] = count
        if count:
            found[f"{slug}-{count}"] = 0
    return set(found) | set(re.findall(r'<a (?:id|name)="([^"]+)"', read(page)))
