"""A Model as one .npz file: plain arrays and strings, no pickle, restored to the last bit.

`model.save(path)` writes it and `load(path)` reads it; a trajectory file (trajectory.py) holds its model too.
Fields of the Model are stored as "model.<field>"; those of its shapes as columns "model.shape.<field>".
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..files import check_output_path, replace_when_done
from .assemble import frame_arrays
from .description import Model, ModelError, Shape, ShapeType

VERSION = 1
_PREFIX = "model."

# Symbolic lengths: l links, j joints, v velocities, q positions, u controls, p pairs; they must agree in a file.
_SHAPES = {
    "link_names": "l", "joint_names": "j", "drive_names": "u", "notes": "n", "merged": "m2",
    "parent": "l", "joint_of_link": "l", "joint_type": "l", "q_start": "l", "v_start": "l",
    "joint_pos": "l3", "joint_quat": "l4", "axis": "l3", "frame_pos": "l3",
    "mass": "l", "com": "l3", "inertia": "l33",
    "armature": "v", "damping": "v", "stiffness": "v", "spring_ref": "v", "frictionloss": "v",
    "lower": "v", "upper": "v", "limit_restitution": "v",
    "drive_dof": "u", "drive_type": "u", "gear": "u", "kp": "u", "kd": "u", "effort": "u", "u0": "u",
    "control_range": "u2",
    "pairs": "p2", "pair_friction": "p", "pair_restitution": "p", "gravity": "3", "q0": "q",
    "key_names": "k", "key_q": "kq", "key_qd": "kv", "key_u": "ku",
    "frames": "f", "frame_link": "f", "frame_offset": "f3", "frame_quat": "f4",
}  # fmt: skip
_STRINGS = ("link_names", "joint_names", "drive_names", "notes", "merged", "frames", "key_names")


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
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if name.startswith(prefix)}
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror or error}).") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, AttributeError):
        raise ModelError(f"{path}: this is not an .npz file of plain numbers and strings, or it is damaged.") from None


def model_arrays(model: Model) -> dict[str, Any]:
    """Everything of a model, by the names that a file gives it."""
    arrays = {"version": np.array(VERSION), "name": np.array(model.name)}
    for name in _SHAPES:
        value = getattr(model, name)
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
    if int(values["version"]) != VERSION:
        raise ModelError(f"{where}: the model has format {int(values['version'])}; this version reads {VERSION}.")
    _add_newer(values)
    wanted = ["name", *_SHAPES, *(f"shape.{name}" for name in _shape_columns(()))]
    missing = [name for name in wanted if name not in values]
    if missing:
        raise ModelError(f"{where}: the model lacks {', '.join(missing)}.")
    _check_shapes(values, where)
    given: dict = {}
    for name in _SHAPES:
        value = values[name]
        if name == "merged":
            given[name] = tuple((str(a), str(b)) for a, b in value)
        elif name in _STRINGS:
            given[name] = tuple(str(text) for text in value)
        else:
            value.setflags(write=False)
            given[name] = value
    columns = {name.removeprefix("shape."): array for name, array in values.items() if name.startswith("shape.")}
    return Model(name=str(values["name"]), shapes=_shapes_of(columns, where), **given)


def _add_newer(values: dict[str, np.ndarray]) -> None:
    """Give files from before a field was added what they had without it."""
    if "upper" in values:
        values.setdefault("limit_restitution", np.zeros_like(values["upper"]))
    if "effort" in values:
        values.setdefault("control_range", np.tile([-np.inf, np.inf], (values["effort"].size, 1)))
    values.setdefault("key_names", np.array([], str))
    for name, like in (("key_q", "q0"), ("key_qd", "armature"), ("key_u", "u0")):
        if like in values:
            values.setdefault(name, np.zeros((0, values[like].size)))
    names, origins = values.get("link_names", np.zeros(())), values.get("frame_pos", np.zeros(()))
    if "frames" not in values and origins.shape == (names.size, 3):  # frames of links only
        values |= {name: np.asarray(array) for name, array in frame_arrays(names.tolist(), origins).items()}


def _check_shapes(values: Mapping[str, np.ndarray], where: str) -> None:
    lengths: dict[str, int] = {}
    for name, letters in _SHAPES.items():
        array = values[name]
        expected = tuple(int(c) if c.isdigit() else lengths.get(c) for c in letters)
        same = len(expected) == array.ndim and all(m in (None, n) for m, n in zip(expected, array.shape))
        if not same or (name not in _STRINGS and array.dtype.kind not in "if"):
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
    for name, width, kind in (("size", 0, float), ("color", 0, float), ("vertices", 3, float), ("faces", 3, int)):
        rows = [getattr(s, name) for s in shapes]
        columns[f"{name}_count"] = np.array([-1 if row is None else len(row) for row in rows], int)
        parts = [np.asarray(row, kind).reshape(-1, width or 1) for row in rows if row is not None]
        joined = np.concatenate(parts) if parts else np.zeros((0, width or 1), kind)
        columns[name] = joined if width else joined[:, 0]
    return columns


def _shapes_of(columns: Mapping[str, np.ndarray], where: str) -> tuple[Shape, ...]:
    count = len(columns["type"])
    pieces: dict[str, list[Any]] = {}
    for name in ("size", "color", "vertices", "faces"):
        counts = columns[f"{name}_count"]
        ends = np.cumsum(np.maximum(counts, 0))
        if len(counts) != count or (ends[-1] if count else 0) != len(columns[name]):
            raise ModelError(f"{where}: the shapes' {name} have the wrong length.")
        pieces[name] = [None if n < 0 else columns[name][end - n : end] for n, end in zip(counts, ends)]
    plain = [f.name for f in fields(Shape) if f.name not in (*pieces, "type", "link", "pos", "quat")]
    if any(len(columns[name]) != count for name in ("link", "pos", "quat", *plain)):
        raise ModelError(f"{where}: the shapes' columns differ in length.")
    return tuple(
        Shape(
            type=ShapeType(int(columns["type"][k])),
            link=int(columns["link"][k]),
            pos=columns["pos"][k],
            quat=columns["quat"][k],
            size=np.zeros(0) if pieces["size"][k] is None else pieces["size"][k],
            color=None if pieces["color"][k] is None else tuple(pieces["color"][k].tolist()),
            vertices=pieces["vertices"][k],
            faces=pieces["faces"][k],
            **{name: columns[name][k].item() for name in plain},
        )
        for k in range(count)
    )
