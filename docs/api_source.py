"""Public names in the package's source: definitions, members, comments. For make_api.py.

The source is parsed and not imported: the result is the same on every Python, and no optional package is needed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "warp_articulated"
WIDTH = 100  # of a signature on one line


@dataclass
class Definition:
    """A public name: its name in Python, where it is defined, and how users write it."""

    name: str
    shown: str
    path: Path
    node: ast.ClassDef | ast.FunctionDef


@cache
def parsed(path: Path) -> tuple[ast.Module, list[str]]:
    text = path.read_text("utf-8")
    return ast.parse(text), text.splitlines()


def module_path(dotted: tuple[str, ...]) -> Path:
    """File of a module of the package, given by the parts of its name below it."""
    folder = PACKAGE.joinpath(*dotted)
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def find(name: str, path: Path) -> tuple[Path, ast.ClassDef | ast.FunctionDef]:
    """The class or function that `name` means in a file of the package: defined there, or imported from a sibling."""
    tree, _ = parsed(path)
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return path, node
    for node in ast.walk(tree):  # also imports inside `if TYPE_CHECKING` and functions
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    folder = path.parent
                    for _ in range(node.level - 1):
                        folder = folder.parent
                    start = folder.relative_to(PACKAGE).parts
                    return find(alias.name, module_path((*start, *node.module.split("."))))
    raise LookupError(f"{name} is public, but {path.relative_to(ROOT)} neither defines nor imports it.")


def public_names() -> list[str]:
    """wa.__all__, as it is written."""
    tree, _ = parsed(PACKAGE / "__init__.py")
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    raise LookupError("warp_articulated/__init__.py has no __all__.")


def define(name: str) -> Definition:
    if "." not in name:
        return Definition(name, f"wa.{name}", *find(name, PACKAGE / "__init__.py"))
    module, _, last = name.rpartition(".")
    if module == "importers":  # readers that wa.load calls: found through it
        return Definition(last, last, *find(last, find("load", PACKAGE / "__init__.py")[0]))
    return Definition(last, f"warp_articulated.{name}", *find(last, module_path(tuple(module.split(".")))))


def lineage(path: Path, node: ast.ClassDef) -> list[tuple[Path, ast.ClassDef]]:
    """A class and its bases within the package, nearest first."""
    classes = [(path, node)]
    for base in node.bases:
        if isinstance(base, ast.Name):
            try:
                where, above = find(base.id, path)
            except LookupError:
                continue  # from elsewhere: Exception, IntEnum
            if isinstance(above, ast.ClassDef):
                classes += lineage(where, above)
    return classes


@dataclass
class Members:
    """Public members of a class, by name."""

    init: ast.FunctionDef | None = None
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)  # of a dataclass or an enum: type, comment
    attributes: dict[str, str] = field(default_factory=dict)  # docstring below `self.x = ...`
    kept: list[str] = field(default_factory=list)  # arguments that are attributes of the same name
    properties: dict[str, ast.FunctionDef] = field(default_factory=dict)
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)


def members(path: Path, node: ast.ClassDef) -> Members:
    result = Members()
    for where, cls in lineage(path, node):
        lines = parsed(where)[1]
        for item in cls.body:
            if isinstance(item, ast.FunctionDef):
                if f"{item.name}.setter" in decorators(item):
                    continue  # its property is listed already
                if item.name == "__init__" and result.init is None:
                    result.init = item
                    result.attributes |= attribute_docs(item)
                    result.kept = kept_arguments(item)
                elif not item.name.startswith("_"):
                    group = result.properties if "property" in decorators(item) else result.methods
                    group.setdefault(item.name, item)
            elif (entry := field_of(item, lines)) is not None:
                result.fields.setdefault(*entry)
    return result


def decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(d) for d in node.decorator_list}


def field_of(item: ast.stmt, lines: list[str]) -> tuple[str, tuple[str, str]] | None:
    """Name, type and comment of an entry of a dataclass or an enum."""
    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
        name, kind = item.target.id, ast.unparse(item.annotation)
        if item.value is not None and "field(" not in ast.unparse(item.value):
            kind += f" = {plain(item.value)}"
    elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
        name, kind = item.targets[0].id, ast.unparse(item.value)
    else:
        return None
    if name.startswith("_"):
        return None
    assert item.end_lineno is not None and item.end_col_offset is not None
    rest = lines[item.end_lineno - 1].encode()[item.end_col_offset :].decode()
    return name, (kind, rest.partition("#")[2].strip())


def attribute_docs(init: ast.FunctionDef) -> dict[str, str]:
    """Strings below assignments to public attributes."""
    docs = {}
    for above, below in zip(init.body, init.body[1:]):
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            target = above.target if isinstance(above, ast.AnnAssign) else getattr(above, "targets", [None])[0]
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                docs[target.attr] = " ".join(below.value.value.split())
    return docs


def kept_arguments(init: ast.FunctionDef) -> list[str]:
    """Arguments of __init__ that it stores under their own names."""
    stored = {
        node.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return [name for name in parameters_of(init) if name in stored]


def parameters_of(node: ast.FunctionDef) -> list[str]:
    a = node.args
    names = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x)]
    return [x.arg for x in names if x.arg not in ("self", "cls")]


def plain(node: ast.expr) -> str:
    """An expression as source, with strings in double quotes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return json.dumps(node.value, ensure_ascii=False)
    return ast.unparse(node)


def signature(name: str, node: ast.FunctionDef) -> str:
    """name(arguments) -> result, on one line or with a line for every argument; without self and cls."""
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    return call(name, list(arguments_of(node.args)), result)


def call(name: str, arguments: list[str], result: str = "") -> str:
    flat = f"{name}({', '.join(arguments)}){result}"
    if len(flat) <= WIDTH:
        return flat
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){result}"])


def arguments_of(a: ast.arguments) -> Iterator[str]:
    by_position = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(by_position) - len(a.defaults)) + list(a.defaults)
    for argument, default in zip(by_position, defaults):
        if argument.arg not in ("self", "cls"):
            yield with_default(argument, default)
    if a.vararg is not None:
        yield f"*{with_default(a.vararg, None)}"
    elif a.kwonlyargs:
        yield "*"
    for argument, default in zip(a.kwonlyargs, a.kw_defaults):
        yield with_default(argument, default)
    if a.kwarg is not None:
        yield f"**{with_default(a.kwarg, None)}"


def with_default(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg if argument.annotation is None else f"{argument.arg}: {ast.unparse(argument.annotation)}"
    if default is None:
        return text
    return f"{text} = {plain(default)}" if argument.annotation is not None else f"{text}={plain(default)}"
