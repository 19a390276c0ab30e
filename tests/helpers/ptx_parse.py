"""Reads PTX, the text that NVRTC compiles CUDA code to: its functions, their statements, its variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4}
SIZES |= {"b64": 8, "u64": 8, "s64": 8, "f64": 8, "pred": 1}
LINKAGE = r"(?:\.visible |\.weak |\.extern )?"
HEAD = re.compile(r".*\.(?:entry|func)\s*(?:\((?P<returns>[^)]*)\))?\s*(?P<name>[$\w]+)\s*(?:\((?P<params>[^)]*)\))?")


def is_float(kind: str) -> bool:
    return kind in ("f32", "f64")


@dataclass
class Variable:
    """A named piece of memory: a parameter, the local frame, a shared or global variable."""

    name: str
    align: int
    size: int  # bytes
    data: bytes = b""  # initial value; empty: none


@dataclass
class Function:
    """One function; its statements are instructions, labels, declarations and braces, without semicolons."""

    name: str
    is_kernel: bool
    params: list[Variable]
    returns: list[Variable]
    statements: list[str]
    first_statement: int = 0  # its number in the whole program


@dataclass
class Module:
    functions: list[Function] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)

    @property
    def kernel(self) -> Function:
        kernels = [f for f in self.functions if f.is_kernel]
        if len(kernels) != 1:
            raise ValueError(f"this PTX has {len(kernels)} kernels; it must have one")
        return kernels[0]

    @property
    def statements(self) -> list[str]:
        """Of all functions; their numbers are what faults and mutants refer to."""
        return [s for f in self.functions for s in f.statements]


def parse(text: str) -> Module:
    lines = re.sub(r"//[^\n]*", "", text).splitlines()
    module, at = Module(), 0
    while at < len(lines):
        line = lines[at].strip()
        if re.match(LINKAGE + r"\.(entry|func)", line):
            begin = at
            while not (lines[at].strip().startswith("{") or lines[at].rstrip().endswith(";")):
                at += 1
            if lines[at].strip().startswith("{"):  # otherwise it is only declared
                body, at = _body(lines, at)
                module.functions.append(_function(" ".join(lines[begin:at]), body, len(module.statements)))
        elif re.match(LINKAGE + r"\.(global|const|shared)", line):
            while ";" not in line:
                at += 1
                line += " " + lines[at]
            module.variables.append(declaration(line.rstrip("; ")))
        at += 1
    return module


def _body(lines: list[str], at: int) -> tuple[list[str], int]:
    """The lines between the brace at line `at` and the one that closes it, and the number of the latter."""
    depth, body = 1, []
    while depth:
        at += 1
        line = lines[at].strip()
        depth += (line == "{") - (line == "}")
        body.append(line)
    return body[:-1], at


def _function(head: str, body: list[str], first: int) -> Function:
    found = HEAD.match(head.partition("{")[0])
    params, returns = (
        [declaration(part) for part in (found[key] or "").split(",") if part.strip()] for key in ("params", "returns")
    )
    statements, unfinished = [], ""
    for line in filter(None, body):
        if not unfinished and (line in "{}" or re.fullmatch(r"[$\w]+:", line)):
            statements.append(line)
            continue
        unfinished = f"{unfinished} {line}".strip()
        if unfinished.endswith(";"):
            statements += [s.strip() for s in unfinished.split(";") if s.strip()]
            unfinished = ""
    return Function(found["name"], ".entry" in head, params, returns, statements, first)


def declaration(text: str) -> Variable:
    """Such as '.param .align 8 .b8 name[16]' or '.global .u32 name = 3'."""
    text, _, value = text.partition("=")
    align = re.search(r"\.align\s+(\d+)", text)
    kind = re.search(r"\.([bus]\d+|f\d+)\b", text)[1]
    name, length = re.search(r"([$\w]+)(?:\[(\d*)\])?\s*$", text.strip()).groups()
    numbers = re.findall(r"0[fd][0-9A-Fa-f]+|-?\d+", value)
    data = b"".join(immediate_bits(n, kind).to_bytes(SIZES[kind], "little") for n in numbers)
    return Variable(name, int(align[1]) if align else SIZES[kind], SIZES[kind] * int(length or 1), data)


def immediate_bits(text: str, kind: str) -> int:
    """The bits of a number in the text: 12, -1, 0x1F, 0f3F800000 or 0d3FF0000000000000."""
    if text[:2] not in ("0f", "0F", "0d", "0D"):
        return int(text.rstrip("U"), 0) & (1 << 8 * SIZES[kind]) - 1
    bits, is_double = int(text[2:], 16), text[1] in "dD"
    if not is_float(kind) or is_double == (kind == "f64"):
        return bits
    value = np.array([bits], "<u8").view("<f8") if is_double else np.array([bits], "<u4").view("<f4")
    return int(value.astype("<f4").view("<u4")[0] if is_double else value.astype("<f8").view("<u8")[0])
