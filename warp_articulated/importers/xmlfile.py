"""XML files as a tree of elements that know their line, so that every error message can name it.

Used by the URDF importer; based on the standard library's expat parser.
"""

from __future__ import annotations

import codecs
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np

from ..model import ModelError
from ..model.validate import LARGEST

_REQUIRED = object()
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, "<".encode("utf-16-le"), "<".encode("utf-16-be"))


@dataclass(eq=False)
class Element:
    """One XML element: its attributes, children and place in the file."""

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    parent: Element | None = None
    children: list[Element] = field(default_factory=list)
    body: str = ""  # the text between its tags

    @property
    def label(self) -> str:
        """The element as a reader would look for it: <origin> in <joint name="hip">."""
        own = f'<{self.tag} name="{self.attributes["name"]}">' if "name" in self.attributes else f"<{self.tag}>"
        if "name" in self.attributes or self.parent is None or self.parent.parent is None:
            return own
        return f"{own} in {self.parent.label}"

    def error(self, text: str) -> ModelError:
        """The error to raise about this element."""
        return ModelError(f"{self.file}:{self.line}: {self.label}: {text}")

    def child(self, tag: str) -> Element | None:
        """The first child called `tag`, or None."""
        return next((c for c in self.children if c.tag == tag), None)

    def all(self, tag: str) -> list[Element]:
        """Every child called `tag`, in the file's order."""
        return [c for c in self.children if c.tag == tag]

    def need(self, tag: str) -> Element:
        """The first child called `tag`; an error if there is none."""
        found = self.child(tag)
        if found is None:
            raise self.error(f"the element <{tag}> is missing.")
        return found

    def text(self, name: str) -> str:
        """Attribute `name`, which must be there and not be empty."""
        value = self.attributes.get(name, "").strip()
        if not value:
            raise self.error(f"the attribute {name!r} is missing or empty.")
        return value

    def vector(self, name: str, count: int, default=_REQUIRED, *, largest: float = LARGEST) -> np.ndarray:
        """Attribute `name` as `count` finite numbers between -largest and largest."""
        if name not in self.attributes and default is not _REQUIRED:
            return np.array(default, float)
        text = self.text(name)
        try:
            # Python would read 1_0 as ten; no other reader of these files does
            numbers = [float(word) if "_" not in word else math.nan for word in text.split()]
        except ValueError:
            numbers = []
        if len(numbers) != count or not all(map(math.isfinite, numbers)):
            wanted = "a finite number" if count == 1 else f"{count} finite numbers separated by spaces"
            raise self.error(f'{name}="{text}" is not {wanted}.')
        if max(map(abs, numbers), default=0.0) > largest:
            raise self.error(f'{name}="{text}" is too large; numbers up to {largest:g} are accepted.')
        return np.array(numbers)

    def number(
        self, name: str, default=_REQUIRED, *, minimum: float = -math.inf, above: float = -math.inf,
        largest: float = LARGEST,
    ) -> float:  # fmt: skip
        """Attribute `name` as one finite number, not below `minimum` and larger than `above`."""
        given = [default] if default is not _REQUIRED else _REQUIRED
        value = float(self.vector(name, 1, given, largest=largest)[0])
        if value < minimum or value <= above:
            wanted = f"larger than {above:g}" if above > -math.inf else f"at least {minimum:g}"
            raise self.error(f'{name}="{self.attributes[name]}" must be {wanted}.')
        return value


def parse_xml(path: Path) -> Element:
    """The root element of a file; an error with the line if it is not well-formed XML."""
    data, skipped = _content(path)
    root: list[Element] = []
    stack: list[Element] = []
    pieces: dict[Element, list[str]] = {}
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def start(tag, attributes):
        parent = stack[-1] if stack else None
        element = Element(tag, attributes, str(path), parser.CurrentLineNumber + skipped, parent)
        (parent.children if parent else root).append(element)
        stack.append(element)

    def end(tag):
        element = stack.pop()
        element.body = "".join(pieces.pop(element, ()))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = lambda text: pieces.setdefault(stack[-1], []).append(text)
    with _model_errors(path, skipped):
        parser.Parse(data, True)
    return root[0]


def root_tag(path: Path) -> str:
    """The tag of a file's root element. Reads no further, so errors behind it are not found."""
    data, skipped = _content(path)
    tags: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, attributes: tags.append(tag)
    with _model_errors(path, skipped):
        for line in data.splitlines(keepends=True):
            parser.Parse(line)
            if tags:
                return tags[0]
        parser.Parse(b"", True)  # raises: there is no element
    raise AssertionError


def _content(path: Path) -> tuple[bytes, int]:
    """What expat can read of a file, and the number of lines left out before it."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ModelError(f"{path}: this is a device or a pipe; it must be a file.")  # some of them never end
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise ModelError(f"{str(path)!r}: this is not the name of a file ({error}).") from None
    if not data.strip():
        raise ModelError(f"{path}: the file is empty.")
    if data.startswith(_UTF16):  # here zeros and line ends are halves of characters
        return data, 0
    # blank lines before the XML declaration and zeros at the end: wrong, but found in popular robots
    skipped = data[: len(data) - len(data.lstrip())].count(b"\n")
    return data.strip().rstrip(b"\0"), skipped


@contextmanager
def _model_errors(path: Path, skipped: int) -> Iterator[None]:
    try:
        yield
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise ModelError(f"{path}:{error.lineno + skipped}: the file is not well-formed XML: {what}.") from None
    except (ValueError, LookupError) as error:  # an encoding that Python does not know
        raise ModelError(f"{path}:1: the file cannot be decoded: {error}.") from None
