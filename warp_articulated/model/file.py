"""A Model as one .npz file: plain arrays and strings, no pickle, restored to the last bit.

`model.save(path)` writes it and `load(path)` reads it; a trajectory file (trajectory.py) holds its model too.
Fields of the Model are stored as "model.<field>"; those of its shapes as columns "model.shape.<field>".
A file may come from anyone: what it says is checked as an importer's bodies, shapes and drives are.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..files import check_output_path, replace_when_done
from ..importers.combine import disassemble
from .assemble import PER_DOF, frame_arrays, thrust_arrays
from .consistency import check_model, check_tables
from .description import NV, Model, ModelError, Shape, ShapeType
from .tie_tables import pack
from .ties import Ties
from .validate import check_bodies, check_dof, check_drives, check_frames, check_shapes

VERSION = 1
_PREFIX = "model."
_MOST_BYTES = 1 << 30  # of a model: a small file can pretend to be huge

# Symbolic lengths: l links, j joints, v velocities, q positions, u controls, p pairs; they must agree in a file.
_SHAPES = {
    "link_names": "l", "joint_names": "j", "drive_names": "u", "notes": "n", "merged": "m2",
    "parent": "l", "joint_of_link": "l", "joint_type": "l", "q_start": "l", "v_start": "l",
    "joint_pos": "l3", "joint_quat": "l4", "axis": "l3", "frame_pos": "l3",
    "mass": "l", "com": "l3", "inertia": "l33", "gravcomp": "l",
    "armature": "v", "damping": "v", "stiffness": "v", "spring_ref": "v", "frictionloss": "v",
    "lower": "v", "upper": "v", "limit_restitution": "v",
    "drive_dof": "u", "drive_type": "u", "gear": "u", "kp": "u", "kd": "u", "effort": "u", "u0": "u",
    "effort_center": "u",
    "control_range": "u2", "thrust_drive": "h", "thrust_link": "h", "thrust_pos": "h3", "thrust_wrench": "h6",
    "pairs": "p2", "pair_friction": "p", "pair_restitution": "p", "gravity": "3", "q0": "q",
    "key_names": "k", "key_q": "kq", "key_qd": "kv", "key_u": "ku",
    "frames": "f", "frame_link": "f", "frame_offset": "f3", "frame_quat": "f4",
    "drive_coupling": "u",
}  # fmt: skip
_TIES = {  # fields of Ties: o loops, g couplings, t terms
    "ties.loop_names": "o", "ties.loop_links": "o2", "ties.loop_pos": "o23", "ties.loop_quat": "o4",
    "ties.loop_axes": "o233", "ties.loop_cfm": "o2",
    "ties.coupling_names": "g", "ties.coupling_held": "g", "ties.coupling_cfm": "g", "ties.coupling_rest": "g2",
    "ties.coupling_range": "g2", "ties.tendon_stiffness": "g", "ties.tendon_damping": "g",
    "ties.term_coupling": "t", "ties.term_dof": "t", "ties.term_ref": "t", "ties.coupling_coef": "t5",
}  # fmt: skip
# Columns of the shapes, one letter more each: s shapes; sizes, colours, vertices and faces of all of them.
_COLUMNS = {
    "shape.type": "s", "shape.link": "s", "shape.pos": "s3", "shape.quat": "s4", "shape.name": "s", "shape.body": "s",
    "shape.friction": "s", "shape.restitution": "s", "shape.collide": "s",
    "shape.size_count": "s", "shape.color_count": "s", "shape.vertices_count": "s", "shape.faces_count": "s",
    "shape.size": "a", "shape.color": "b", "shape.vertices": "c3", "shape.faces": "d3",
    "shape.heights_count": "s", "shape.heights": "e", "shape.columns": "s", "shape.spacing": "s2",
}  # fmt: skip
_PIECES = (("size", 0, float), ("color", 0, float), ("vertices", 3, float), ("faces", 3, int))
_STRINGS = (
    "link_names", "joint_names", "drive_names", "notes", "merged", "frames", "key_names", "ties.loop_names",
    "ties.coupling_names",
)  # fmt: skip
_INTEGERS = (
    "parent", "joint_of_link", "joint_type", "q_start", "v_start", "drive_dof", "drive_type", "pairs", "frame_link",
    "drive_coupling", "ties.loop_links", "ties.term_coupling", "ties.term_dof",
    "thrust_drive", "thrust_link",
)  # fmt: skip
_KINDS = {  # what is not a number with a fraction; numpy's kinds that are accepted, and what they become
    **dict.fromkeys(("name", *_STRINGS, "shape.name", "shape.body"), ("U", str)),
    **dict.fromkeys(("version", *_INTEGERS, "shape.type", "shape.link", "shape.faces", "shape.columns"), ("iu", int)),
    **{name: ("iu", int) for name in _COLUMNS if name.endswith("_count")},
    "shape.collide": ("b", bool),
    "ties.coupling_held": ("b", bool),
}


def save_model(path: str | os.PathLike, model: Model) -> None:
    """Write the model as one .npz file; it appears under its name only when it is complete."""
    path = check_output_path(path, (".npz",))
    with replace_when_done(path) as temporary:
        np.savez_compressed(temporary, **model_arrays(model))


def load_model(path: str | os.PathLike) -> Model:
    """The model of a file that save_model or Trajectory.save wrote."""
    path = Path(path)
    return model_from_arrays(read_arrays(path, _PREFIX), str(path))


def read_arrays(path: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of an .npz file whose names start with `prefix`, or an error that says what is wrong with the file."""
    try:
        with zipfile.ZipFile(path) as file:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in file.infolist()}
            size = sum(entry.file_size for name, entry in entries.items() if name.startswith(_PREFIX))
            if size > _MOST_BYTES:
                raise ModelError(f"{path}: its model would take {size} bytes; at most {_MOST_BYTES} are read.")
            return {name: _read_array(file, entry) for name, entry in entries.items() if name.startswith(prefix)}
    except ModelError:
        raise
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror or error}).") from None
    except MemoryError:
        raise ModelError(f"{path}: the file needs more memory than there is, or it is damaged.") from None
    except Exception:  # zipfile, zlib, lzma, tokenize and numpy have some twenty kinds of errors for damaged bytes
        raise ModelError(f"{path}: this is not an .npz file of plain numbers and strings, or it is damaged.") from None


def _read_array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One entry; its header must agree with its length, or numpy would reserve any memory that the header asks for."""
    with file.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != entry.file_size - stream.tell():
            raise ValueError("the header does not fit the length")
    with file.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def model_arrays(model: Model) -> dict[str, Any]:
    """Everything of a model, by the names that a file gives it."""
    arrays = {"version": np.array(VERSION), "name": np.array(model.name)}
    for name in (*_SHAPES, *_TIES):
        value = getattr(model.ties if name in _TIES else model, name.removeprefix("ties."))
        if name in _STRINGS:
            value = np.array(value, dtype=str).reshape((-1, 2) if name == "merged" else -1)
        arrays[name] = np.asarray(value)
    arrays |= {f"shape.{name}": column for name, column in _shape_columns(model.shapes).items()}
    return {_PREFIX + name: array for name, array in arrays.items()}


def model_from_arrays(arrays: Mapping[str, np.ndarray], where: str) -> Model:
    """The model of the arrays that model_arrays returned; `where` names the file in errors."""
    values = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    if "version" not in values:
        raise ModelError(f"{where}: there is no model in this file; Model.save and Trajectory.save write such files.")
    version = _converted("version", values["version"], where)
    if version.ndim or version != VERSION:
        raise ModelError(f"{where}: the model has format {version}; this version reads {VERSION}.")
    _add_newer(values)
    missing = [name for name in ("name", *_SHAPES, *_COLUMNS, *_TIES) if name not in values]
    if missing:
        raise ModelError(f"{where}: the model lacks {', '.join(missing)}.")
    _check_shapes(values, where)
    values = {name: _converted(name, values[name], where) for name in ("name", *_SHAPES, *_COLUMNS, *_TIES)}
    given: dict = {}
    for name in (*_SHAPES, *_TIES):
        value = values[name]
        if name == "merged":
            given[name] = tuple((str(a), str(b)) for a, b in value)
        elif name in _STRINGS:
            given[name] = tuple(str(text) for text in value)
        else:
            value.setflags(write=False)
            given[name] = value
    ties = Ties(**{name.removeprefix("ties."): given.pop(name) for name in _TIES})
    model = Model(name=str(values["name"]), shapes=_shapes_of(values, where), ties=ties, **given)
    try:
        _check(model)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    return model


def _check(model: Model) -> None:
    """All that assemble() checks; and that indices agree, on which the simulator relies."""
    check_tables(model)
    parts = disassemble(model)
    check_bodies(model.name, parts.bodies)
    for i, body in enumerate(parts.bodies):
        for v in range(int(model.v_start[i]) + 1, int(model.v_start[i]) + NV[body.joint_type]):
            own: dict[str, Any] = {key: float(getattr(model, key)[v]) for key in PER_DOF}
            check_dof(f"{model.name}: link {body.name!r}", replace(body, **own))
    check_drives(model.name, parts.drives, model.num_links)
    check_frames(model.name, parts.bodies, parts.frames)
    pack(model.name, parts.bodies, parts.dof_of, parts.loops, parts.couplings)
    check_shapes(model.name, model.shapes, model.num_links)
    check_model(model)


def _converted(name: str, array: np.ndarray, where: str) -> np.ndarray:
    """The array in the type that a Model has it in; it is itself where it has that type."""
    kinds, wanted = _KINDS.get(name, ("fiu", float))
    if array.dtype.kind not in kinds:
        raise ModelError(f"{where}: the model's {name} is of type {array.dtype}; it must be {wanted.__name__}.")
    if wanted is not str:
        return np.asarray(array, wanted)
    try:
        "".join(array.ravel().tolist()).encode()
    except ValueError:
        raise ModelError(f"{where}: the model's {name} has characters that are no text.") from None
    return array


def _add_newer(values: dict[str, np.ndarray]) -> None:
    """Give files from before a field was added what they had without it."""
    if "upper" in values:
        values.setdefault("limit_restitution", np.zeros_like(values["upper"]))
    if "effort" in values:
        values.setdefault("effort_center", np.zeros(values["effort"].size))
        values.setdefault("control_range", np.tile([-np.inf, np.inf], (values["effort"].size, 1)))
        values.setdefault("drive_coupling", np.full(values["effort"].size, -1))
    for field in fields(Ties):
        empty = getattr(Ties(), field.name)
        values.setdefault(f"ties.{field.name}", np.array([], str) if isinstance(empty, tuple) else empty)
    if "mass" in values:
        values.setdefault("gravcomp", np.zeros_like(values["mass"], dtype=float))
    for name, array in thrust_arrays([]).items():
        values.setdefault(name, array)
    values.setdefault("key_names", np.array([], str))
    for name, like in (("key_q", "q0"), ("key_qd", "armature"), ("key_u", "u0")):
        if like in values:
            values.setdefault(name, np.zeros((0, values[like].size)))
    if "shape.type" in values:
        count = values["shape.type"].size
        values.setdefault("shape.heights_count", np.full(count, -1))
        values.setdefault("shape.heights", np.zeros(0))
        values.setdefault("shape.columns", np.zeros(count, int))
        values.setdefault("shape.spacing", np.zeros((count, 2)))
    names, origins = values.get("link_names", np.zeros(())), values.get("frame_pos", np.zeros(()))
    if "frames" not in values and origins.shape == (names.size, 3):  # frames of links only
        values |= {name: np.asarray(array) for name, array in frame_arrays(names.tolist(), origins).items()}


def _check_shapes(values: Mapping[str, np.ndarray], where: str) -> None:
    lengths: dict[str, int] = {}
    for name, letters in {"name": "", **_SHAPES, **_COLUMNS, **_TIES}.items():
        array = values[name]
        expected = tuple(int(c) if c.isdigit() else lengths.get(c) for c in letters)
        if len(expected) != array.ndim or not all(m in (None, n) for m, n in zip(expected, array.shape)):
            raise ModelError(f"{where}: the model's {name} has shape {array.shape}, which does not fit the rest of it.")
        lengths |= {c: n for c, n in zip(letters, array.shape) if not c.isdigit()}


def _shape_columns(shapes: tuple[Shape, ...]) -> dict[str, np.ndarray]:
    """One array per field; arrays of varying length are joined, with their lengths in another array (-1: None)."""
    columns = {
        "type": np.array([int(s.type) for s in shapes], int),
        "link": np.array([s.link for s in shapes], int),
        "pos": np.array([s.pos for s in shapes], float).reshape(-1, 3),
        "quat": np.array([s.quat for s in shapes], float).reshape(-1, 4),
        "name": np.array([s.name for s in shapes], str),
        "body": np.array([s.body for s in shapes], str),
        "friction": np.array([s.friction for s in shapes], float),
        "restitution": np.array([s.restitution for s in shapes], float),
        "collide": np.array([s.collide for s in shapes], bool),
    }
    columns["columns"] = np.array([0 if s.heights is None else np.shape(s.heights)[1] for s in shapes], int)
    columns["spacing"] = np.array([s.spacing or (0.0, 0.0) for s in shapes], float).reshape(-1, 2)
    for name, width, kind in (*_PIECES, ("heights", 0, float)):
        rows = [getattr(s, name) for s in shapes]
        if name == "heights":
            rows = [None if row is None else np.ravel(row) for row in rows]
        columns[f"{name}_count"] = np.array([-1 if row is None else len(row) for row in rows], int)
        parts = [np.asarray(row, kind).reshape(-1, width or 1) for row in rows if row is not None]
        joined = np.concatenate(parts) if parts else np.zeros((0, width or 1), kind)
        columns[name] = joined if width else joined[:, 0]
    return columns


def _shapes_of(values: Mapping[str, np.ndarray], where: str) -> tuple[Shape, ...]:
    columns = {name.removeprefix("shape."): values[name] for name in _COLUMNS}
    pieces: dict[str, list[Any]] = {}
    for name in ("size", "color", "vertices", "faces", "heights"):
        joined, counts = columns.pop(name), columns.pop(f"{name}_count")
        ends = np.cumsum(np.clip(counts, 0, len(joined)))
        if (ends[-1] if len(ends) else 0) != len(joined):
            raise ModelError(f"{where}: the shapes' {name} have the wrong length.")
        pieces[name] = [None if n < 0 else joined[end - n : end] for n, end in zip(counts, ends)]
    for k in np.flatnonzero(~np.isin(columns["type"], list(ShapeType))):
        raise ModelError(f"{where}: shape {k} is of type {columns['type'][k]}, which is not the number of any type.")
    spacing, widths = columns.pop("spacing"), columns.pop("columns")
    for n, (piece, width) in enumerate(zip(pieces["heights"], widths)):
        if piece is not None:
            if width < 1 or len(piece) % width:
                raise ModelError(f"{where}: the heights of shape {n} have no {width} columns.")
            pieces["heights"][n] = piece.reshape(-1, width)
    kinds, places, turns = columns.pop("type"), columns.pop("pos"), columns.pop("quat")
    return tuple(
        Shape(
            type=ShapeType(int(kinds[k])),
            pos=places[k],
            quat=turns[k],
            size=np.zeros(0) if pieces["size"][k] is None else pieces["size"][k],
            color=None if pieces["color"][k] is None else tuple(pieces["color"][k].tolist()),
            vertices=pieces["vertices"][k],
            faces=pieces["faces"][k],
            heights=pieces["heights"][k],
            spacing=None if pieces["heights"][k] is None else tuple(spacing[k].tolist()),
            **{name: column[k].item() for name, column in columns.items()},
        )
        for k in range(len(kinds))
    )
