"""The stack of a compiled CUDA kernel, read from what NVRTC wrote: a cubin, which is an ELF file, or PTX."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

# Attributes of the section .nv.info whose value is (symbol, bytes); cuobjdump calls them EIATTR_...
FRAME_SIZE, MIN_STACK_SIZE = 0x11, 0x12  # of a function itself; of a kernel with all that it calls
HAS_VALUE = 0x04  # form of an entry that is followed by as many bytes as its size says
SYMBOLS = 2  # type of the section with the symbol table
HEADER, SECTION, SYMBOL = 64, struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
LOCAL = re.compile(rb"\.local [^;\[]*\.b8\s+__local_depot\d+\[(\d+)\]")


def stack_of(path: str | os.PathLike) -> int:
    """Bytes of stack per thread, the most of the kernels in a compiled file.

    Exact for a .cubin. A .ptx, which the driver compiles further, has the local variables, but not the spills.
    """
    data = Path(path).read_bytes()
    if data[:4] == b"\x7fELF":
        return max(stacks(data).values(), default=0)
    if b".version" in data:
        return max((int(size) for size in LOCAL.findall(data)), default=0)
    raise ValueError(f"{path} is neither a cubin nor PTX.")


def stacks(cubin: bytes) -> dict[str, int]:
    """Bytes of stack per thread by the symbols of the kernels in a cubin."""
    sections = list(_sections(cubin))
    table, strings = next(
        ((body, sections[link][2]) for _, kind, body, link in sections if kind == SYMBOLS), (b"", b"")
    )
    symbols = [_text(strings, entry[0]) for entry in SYMBOL.iter_unpack(table)]
    code = {name.removeprefix(".text.") for name, *_ in sections if name.startswith(".text.")}
    found: dict[str, int] = {}
    for name, _, body, _ in sections:
        if name == ".nv.info":
            for attribute, symbol, size in _pairs(body):
                if attribute in (FRAME_SIZE, MIN_STACK_SIZE) and symbols[symbol] in code:
                    found[symbols[symbol]] = max(size, found.get(symbols[symbol], 0))
    return found


def _sections(data: bytes) -> Iterator[tuple[str, int, bytes, int]]:
    """Name, type, contents and the number of the linked section of all sections."""
    if len(data) < HEADER or data[4:6] != b"\x02\x01":
        raise ValueError("This is not a cubin: an ELF file of 64 bits, little endian.")
    (start,) = struct.unpack_from("<Q", data, 40)
    _, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [SECTION.unpack_from(data, start + k * SECTION.size) for k in range(count)]
    bodies = [data[h[4] : h[4] + h[5]] if h[1] != 8 else b"" for h in headers]  # 8: has no bytes in the file
    for header, body in zip(headers, bodies, strict=True):
        yield _text(bodies[names], header[0]), header[1], body, header[6]


def _text(strings: bytes, start: int) -> str:
    return strings[start : strings.index(b"\0", start)].decode()


def _pairs(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(attribute, symbol, value) of all entries of a .nv.info section that have this form."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != HAS_VALUE:  # the size field is the value itself
            continue
        if size == 8:
            yield (attribute, *struct.unpack_from("<II", data, at))
        at += size
