"""Write docs/api.md, the reference of all public names, from their signatures and docstrings.

    python docs/make_api.py            # write docs/api.md
    python docs/make_api.py --check    # exit code 1 if docs/api.md is out of date or something has no docstring

api_source.py reads the source, this file makes the page.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator

from api_source import (
    ROOT,
    Definition,
    Members,
    call,
    decorators,
    define,
    members,
    parameters_of,
    public_names,
    signature,
)

from warp_articulated.device.parameters import PARAMETERS

PAGE = ROOT / "docs" / "api.md"

# Sections in the order of use. Names of wa.__all__ that none of them lists go to an extra section, so that none is
# missing. A name with a dot is not in wa.__all__, but part of the interface.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Robots and scenes": ("load", "importers.load_urdf", "importers.load_mjcf", "combine", "scene_names", "ModelError"),
    "Simulation": ("Simulator", "Contacts", "Diagnostics"),
    "Coordinates": ("retract", "difference", "log_cholesky", "from_log_cholesky"),
    "The model": ("Model", "model.Keyframe", "model.Shape", "model.JointType", "model.ShapeType", "model.DriveType"),
    "Uneven ground": (
        "terrain.Field",
        "terrain.height_at",
        "terrain.scan_points",
        "terrain.rough",
        "terrain.slope",
        "terrain.pyramids",
        "terrain.waves",
        "terrain.stairs",
        "terrain.stepping_stones",
    ),
    "Sensors": ("sensors.Imu", "sensors.ImuReading", "sensors.Touch"),
    "Recording": ("Trajectory", "TrajectoryWriter"),
    "Pictures and films": ("render", "render_png", "render_gif", "Camera"),
    "USD": ("export_usd", "UsdWriter"),
    "Browser": ("viewer.Viewer", "viewer.record_html"),
    "Reinforcement learning": (
        "rl.Env",
        "rl.State",
        "rl.Step",
        "rl.Random",
        "rl.make",
        "rl.gym.VectorEnv",
        "rl.gym.SingleEnv",
        "rl.rsl.RslEnv",
    ),
}
LATER = "More"


def sections() -> Iterator[tuple[str, list[Definition]]]:
    public = public_names()
    listed = {name for names in SECTIONS.values() for name in names}
    groups = {**SECTIONS, LATER: tuple(name for name in public if name not in listed)}
    for title, names in groups.items():
        found = [define(name) for name in names if name in public or "." in name]
        if found:
            yield title, found


def markdown(doc: str, names: list[str]) -> str:
    """A docstring as Markdown: arguments as a list, indented examples as code. names: of the arguments."""
    out: list[str] = []
    heading = re.compile(r"^(Args|Returns|Yields|Raises|Attributes|Note|Notes|Example|Examples):$")
    entry = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)$")
    inside = ""
    for line in doc.splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if found := heading.match(line):
            inside = found[1]
            out += ["", {"Args": "Arguments:", "Example": "For example:"}.get(inside, f"{inside}:"), ""]
            continue
        if text and indent == 0:
            inside = ""
        match = entry.match(text)
        known = match and all(n.lstrip("*") in names for n in match[1].split(", "))
        if match and ((inside and indent == 4) or (indent == 0 and known)):
            if out and out[-1] and not out[-1].startswith("- ") and not out[-1].startswith("  "):
                out.append("")
            shown = ", ".join(f"`{n}`" for n in match[1].split(", "))
            out.append(f"- {shown}: {escaped(match[2])}")
        elif text and indent and out and out[-1].startswith(("- ", "  ")) and not out[-1].startswith("    "):
            out.append(f"  {escaped(text)}")
        elif text and indent and inside in ("Returns", "Yields", "Raises", "Note", "Notes"):
            out.append(escaped(text))
        else:
            out.append(f"    {line.removeprefix('    ')}" if indent >= 4 else escaped(text))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def escaped(text: str) -> str:
    """Prose with stars and angle brackets escaped, except in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<])", r"\\\1", p) for p in parts)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def describe(definition: Definition) -> str:
    node = definition.node
    doc = ast.get_docstring(node) or ""
    title = f"### {definition.shown}"
    if isinstance(node, ast.FunctionDef):
        return "\n\n".join([title, code(signature(definition.shown, node)), markdown(doc, parameters_of(node))])
    return "\n\n".join([title, *describe_class(definition, node, doc)])


def describe_class(definition: Definition, node: ast.ClassDef, doc: str) -> Iterator[str]:
    found = members(definition.path, node)
    listed = "Args:" in doc  # a dataclass that users create: a table would only repeat the list
    if found.init is not None:
        yield code(signature(definition.shown, found.init))
    elif listed:
        yield code(call(definition.shown, [f"{name}: {kind}" for name, (kind, _) in found.fields.items()]))
    yield markdown(doc, parameters_of(found.init) if found.init else list(found.fields))
    if found.fields and not listed:
        is_enum = any("Enum" in ast.unparse(base) for base in node.bases)
        header = ("name", "value" if is_enum else "type", "meaning")
        yield table(header, [(f"`{n}`", f"`{kind}`", escaped(text)) for n, (kind, text) in found.fields.items()])
    owner = "sim" if definition.name == "Simulator" else re.findall(r"[A-Z][a-z]+", definition.name)[-1].lower()
    yield from describe_attributes(found, owner)
    for name, item in found.methods.items():
        on_class = decorators(item) & {"classmethod", "staticmethod"}
        shown = f"{definition.shown if on_class else owner}.{name}"
        text = markdown(ast.get_docstring(item) or "", parameters_of(item))
        yield f"#### {shown}\n\n{code(signature(shown, item))}\n\n{text}"


def describe_attributes(found: Members, owner: str) -> Iterator[str]:
    lines = [f"- `{owner}.{name}`: {escaped(text)}" for name, text in found.attributes.items()]
    for name, item in found.properties.items():
        kind = f" (`{ast.unparse(item.returns)}`)" if item.returns is not None else ""
        lines.append(f"- `{owner}.{name}`{kind}: {escaped(' '.join((ast.get_docstring(item) or '').split()))}")
    if found.kept:
        lines.append(f"- {', '.join(f'`{owner}.{name}`' for name in found.kept)}: the arguments of these names")
    if lines:
        yield "Attributes:\n\n" + "\n".join(lines)


def describe_parameters() -> str:
    rows = [
        (f"`{name}`", f"(num_envs, {', '.join(map(str, row.shape))})", row.unit, row.meaning)
        for name, row in PARAMETERS.items()
    ]
    return "\n\n".join(
        [
            "### Physical parameters",
            "What `params={...}` of `step`, `rollout` and the queries may hold, and `sim.params` has by default. A "
            "tensor may have one row per environment, or leave `num_envs` out if all share it. All of them have "
            "gradients. `links`, `shapes` and `pairs` are in the model's order, `nv` and `nu` in that of qd and u.",
            table(("name", "shape", "unit", "meaning"), rows),
        ]
    )


def anchor(heading: str) -> str:
    """The id that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page() -> str:
    contents, body = [], []
    for title, found in sections():
        contents.append(f"- [{title}](#{anchor(title)})")
        contents += [
            f"  - [`{d.shown}`](#{anchor(d.shown)}): {escaped(first_sentence(ast.get_docstring(d.node) or ''))}"
            for d in found
        ]
        body += [f"## {title}", *(describe(d) for d in found)]
        if title == "Simulation":
            contents.append("  - [Physical parameters](#physical-parameters)")
            body.append(describe_parameters())
    intro = (
        "# API reference\n\nWritten by `make docs` from the docstrings; do not edit. `wa` is `import warp_articulated "
        "as wa`. Lengths are in m, angles in rad, masses in kg, times in s; quaternions are xyzw; z is up."
    )
    return "\n\n".join([intro, "\n".join(contents), *body]) + "\n"


def undocumented() -> list[str]:
    """Public names, methods and properties without a docstring."""
    missing = []
    for _, found in sections():
        for d in found:
            if not ast.get_docstring(d.node):
                missing.append(d.shown)
            if isinstance(d.node, ast.ClassDef):
                of_class = members(d.path, d.node)
                items = {**of_class.properties, **of_class.methods}
                missing += [f"{d.shown}.{name}" for name, item in items.items() if not ast.get_docstring(item)]
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/api.md from the docstrings.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if docs/api.md is out of date")
    check = parser.parse_args().check
    text, missing = page(), undocumented()
    for name in missing:
        print(f"{name} has no docstring.", file=sys.stderr)
    if not check:
        PAGE.write_text(text, "utf-8")
        return 0
    current = PAGE.exists() and PAGE.read_text("utf-8") == text
    if not current:
        print("docs/api.md is out of date: run `make docs`.", file=sys.stderr)
    return int(bool(missing) or not current)


if __name__ == "__main__":
    sys.exit(main())
