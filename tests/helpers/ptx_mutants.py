"""Small mistakes in PTX, one at a time: a comparison is only useful if it notices them."""

from __future__ import annotations

import random
import re

from ptx_parse import SIZES, parse

OPPOSITE = {"lt": "ge", "le": "gt", "eq": "ne", "ltu": "geu", "leu": "gtu", "equ": "neu"}
OPPOSITE |= {b: a for a, b in OPPOSITE.items()}


def mutate(statement: str) -> tuple[str, str] | None:
    """A kind of mistake and the statement with it; None: not with this statement."""
    if guarded := re.match(r"@(!?)(%\w+)\s+(bra.*)", statement):
        return "branch", f"@{'' if guarded[1] else '!'}{guarded[2]} {guarded[3]}"
    name, rest = re.fullmatch(r"(\S+)\s*(.*)", statement).groups()
    parts, operands = name.split("."), [o.strip() for o in rest.split(",")]
    if parts[0] in ("add", "sub") and "cc" not in parts:
        swapped = {"add": "sub", "sub": "add"}[parts[0]]
        return f"{parts[0]} as {swapped}", f"{'.'.join([swapped, *parts[1:]])} {rest}"
    if parts[0] == "fma":
        return "fma without addend", f"mul.{parts[-1]} {', '.join(operands[:3])}"
    if parts[0] == "mul" and parts[-1] in ("f32", "f64"):
        return "mul as add", f"add.{parts[-1]} {rest}"
    if parts[0] == "setp" and parts[1] in OPPOSITE:
        return "opposite comparison", f"{'.'.join([parts[0], OPPOSITE[parts[1]], *parts[2:]])} {rest}"
    if parts[0] == "selp":
        return "select swapped", f"{name} {operands[0]}, {operands[2]}, {operands[1]}, {operands[3]}"
    if parts[0] in ("ld", "st") and not {"param", "shared"} & set(parts):
        place = re.search(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]", rest)
        moved = int(place[2] or 0) + SIZES[parts[-1]]
        kind = "load of the next number" if parts[0] == "ld" else "store to the next number"
        return kind, f"{name} {rest.replace(place[0], f'[{place[1]}+{moved}]')}"
    return None


def sample(text: str, number: int, seed: int = 0) -> dict[int, tuple[str, str]]:
    """Mistakes at random statements of a PTX file, by the statement's number."""
    found = {k: made for k, s in enumerate(parse(text).statements) if (made := mutate(s))}
    return {k: found[k] for k in sorted(random.Random(seed).sample(sorted(found), number))}
