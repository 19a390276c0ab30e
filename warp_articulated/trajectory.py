"""Recorded motion as one .npz file with names, units and the model, so that it can be shown and analysed anywhere.

    numpy.load("run.npz")["q"]         (rows, num_envs, nq), with q_names and q_units
    wa.Trajectory.load("run.npz")      the same with its Model

`TrajectoryWriter` writes long runs in constant memory: rows are written to disk as they arrive.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .files import check_output_path, replace_when_done
from .geometry.kinematics import as_numpy, check_finite
from .model import Model, ModelError
from .model.file import model_arrays, model_from_arrays, read_arrays
from .model.naming import q_entries, qd_entries, u_entries

ENTRIES = {"q": q_entries, "qd": qd_entries, "u": u_entries}


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Motion of some environments. Row k of q and qd is the state at time k dt; row k of u acts from then on.

    Args:
        model: what moves.
        q: (rows, num_envs, nq) positions; (rows, nq) is taken as one environment. numpy, torch or Warp.
        dt: s between rows.
        qd: (rows, num_envs, nv) velocities, if recorded.
        u: (rows - 1 or rows, num_envs, nu) controls, if recorded.
        env_ids: which environments of the batch these are; by default 0, 1, ...
    """

    model: Model
    q: np.ndarray
    dt: float
    qd: np.ndarray | None = None
    u: np.ndarray | None = None
    env_ids: Any = None  # (num_envs,) int

    def __post_init__(self):
        if not self.dt > 0.0 or not np.isfinite(self.dt):
            raise ValueError(f"dt is {self.dt}; it must be a positive number of seconds.")
        q = _rows("q", self.q, self.model.nq)
        rows, envs = q.shape[:2]
        if rows == 0:
            raise ValueError("q has no rows; a trajectory needs at least one state.")
        object.__setattr__(self, "q", q)
        for name, size, lengths in (("qd", self.model.nv, (rows,)), ("u", self.model.nu, (rows, rows - 1))):
            value = getattr(self, name)
            if value is not None:
                value = _rows(name, value, size)
                if value.shape[1] != envs or len(value) not in lengths:
                    raise ValueError(f"{name} has shape {value.shape}, which does not fit q's {q.shape}.")
                object.__setattr__(self, name, value)
        ids = np.arange(envs) if self.env_ids is None else as_numpy(self.env_ids)
        if ids.shape != (envs,) or (envs and ids.dtype.kind not in "iu"):
            raise ValueError(f"env_ids has shape {ids.shape}; it must be the numbers of the {envs} environments of q.")
        object.__setattr__(self, "env_ids", ids.astype(int))
        object.__setattr__(self, "dt", float(self.dt))

    @property
    def time(self) -> np.ndarray:
        """(rows,) s."""
        return np.arange(len(self.q)) * self.dt

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.q.shape[1]

    def save(self, path: str | os.PathLike) -> None:
        """Write everything as one .npz file; it appears under its name only when it is complete."""
        path = check_output_path(path, (".npz",))
        recorded: dict[str, Any] = {name: getattr(self, name) for name in ENTRIES if getattr(self, name) is not None}
        with replace_when_done(path) as temporary:
            np.savez(temporary, **recorded, **_description(self.model, self.dt, len(self.q), self.env_ids, recorded))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Trajectory:
        """Read what `save` or `warp-articulated simulate --npz` wrote."""
        path = Path(path)
        arrays = read_arrays(path)
        if "q" not in arrays or "dt" not in arrays:
            raise ModelError(f"{path}: there is no trajectory in this file; Trajectory.save writes such files.")
        model = model_from_arrays(arrays, str(path))
        try:
            return cls(
                model, arrays["q"], float(arrays["dt"]), arrays.get("qd"), arrays.get("u"), arrays.get("env_ids")
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(f"{path}: {error}") from None


def is_trajectory(path: str | os.PathLike) -> bool:
    """True for an .npz file with a trajectory in it, without reading it."""
    if Path(path).suffix.lower() != ".npz":
        return False
    try:
        with zipfile.ZipFile(path) as file:
            return {"q.npy", "dt.npy"} <= set(file.namelist())
    except Exception:  # zipfile has many kinds of errors; whoever reads the file says what is wrong with it
        return False


class TrajectoryWriter:
    """Writes a trajectory file row by row in constant memory. It appears when the `with` block ends well.

    Args:
        path: ends in .npz.
        model: what moves; the file holds it too.
        num_envs: environments of the rows that `write` gets.
        dt: s between rows.
        dtype: precision of the file, "float32" or "float64".
        env_ids: which environments of the batch these are; None: counted from 0.
    """

    def __init__(
        self, path: str | os.PathLike, model: Model, num_envs: int, *, dt: float, dtype: str = "float32",
        env_ids: Sequence[int] | None = None,
    ):  # fmt: skip
        self.path = check_output_path(path, (".npz",))
        if str(dtype) not in ("float32", "float64"):
            raise ValueError(f"dtype is {dtype!r}; it must be 'float32' or 'float64'.")
        self.model, self.num_envs, self.dt, self.dtype = model, num_envs, dt, np.dtype(dtype)
        self.env_ids = np.arange(num_envs) if env_ids is None else np.asarray(env_ids, int)
        self._sizes = {"q": model.nq, "qd": model.nv, "u": model.nu}
        self._rows = dict.fromkeys(ENTRIES, 0)
        self._recorded: tuple[str, ...] = ()
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> TrajectoryWriter:
        # in the folder of the result, which needs the room anyway; a zip cannot hold several growing entries at once
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.stem}-", dir=self.path.parent))
        except OSError as error:
            raise OSError(f"cannot write {self.path}: {error.strerror or error}.") from error
        self._files = {name: open(self._folder / name, "wb") for name in ENTRIES}
        return self

    def write(self, *, q: Any, qd: Any = None, u: Any = None) -> None:
        """Append rows (n, num_envs, ...), or one row (num_envs, ...).

        qd and u may be left out, but then in every call; the last call may give one more state than controls.
        """
        if not self._files:
            raise RuntimeError("a TrajectoryWriter writes only inside its `with` block, whose end completes the file.")
        given = {name: value for name, value in (("q", q), ("qd", qd), ("u", u)) if value is not None}
        self._recorded = self._recorded or tuple(given)
        if tuple(given) != self._recorded:
            raise ValueError(f"write got {', '.join(given)}; its first call got {', '.join(self._recorded)}.")
        arrays = {name: self._as_rows(name, value) for name, value in given.items()}
        for name, array in arrays.items():
            try:
                self._files[name].write(array.data if array.size else b"")
            except OSError as error:
                raise OSError(f"cannot write {self.path}: {error.strerror or error}.") from error
            self._rows[name] += len(array)

    def _as_rows(self, name: str, value: Any) -> np.ndarray:
        array = as_numpy(value)
        array = array[None] if array.ndim == 2 else array
        if array.shape[1:] != (self.num_envs, self._sizes[name]) or array.dtype.kind not in "fiu":
            raise ValueError(
                f"{name} has shape {array.shape}; it must be (rows, {self.num_envs}, {self._sizes[name]}), or one row."
            )
        check_finite(array, name)
        return np.ascontiguousarray(array, self.dtype)

    def __exit__(self, kind, *_) -> None:
        try:
            for file in self._files.values():
                file.close()
            if kind is None:
                self._check()
                with replace_when_done(self.path) as temporary:
                    self._zip(temporary)
        except OSError as error:
            raise error if str(self.path) in str(error) else OSError(f"cannot write {self.path}: {error}.") from error
        finally:
            self._files = {}
            shutil.rmtree(self._folder, ignore_errors=True)

    def _check(self) -> None:
        rows = self._rows
        if rows["q"] == 0:
            raise ValueError(f"cannot write {self.path}: no row was given.")
        if "qd" in self._recorded and rows["qd"] != rows["q"]:
            raise ValueError(f"cannot write {self.path}: it got {rows['q']} rows of q, but {rows['qd']} of qd.")
        if "u" in self._recorded and rows["u"] not in (rows["q"], rows["q"] - 1):
            raise ValueError(f"cannot write {self.path}: it got {rows['q']} rows of q, but {rows['u']} of u.")

    def _zip(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as target:
            for name in self._recorded:
                size = self._sizes[name]
                header = {
                    "descr": np.lib.format.dtype_to_descr(self.dtype),
                    "fortran_order": False,
                    "shape": (self._rows[name], self.num_envs, size),
                }
                with target.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_2_0(entry, header)
                    with open(self._folder / name, "rb") as rows:
                        shutil.copyfileobj(rows, entry, 1 << 22)
                (self._folder / name).unlink()  # so that at most one array is on the disk twice
            described = _description(self.model, self.dt, self._rows["q"], self.env_ids, self._recorded)
            for name, array in described.items():
                with target.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


def _description(model: Model, dt: float, rows: int, env_ids, recorded) -> dict[str, Any]:
    """Everything in a file except the motion itself."""
    described = {"dt": np.array(float(dt)), "time": np.arange(rows) * float(dt), "env_ids": np.asarray(env_ids)}
    for name in recorded:
        entries = ENTRIES[name](model)
        described[f"{name}_names"] = np.array([entry for entry, _ in entries], str)
        described[f"{name}_units"] = np.array([unit for _, unit in entries], str)
    return described | model_arrays(model)


def _rows(name: str, value: Any, size: int) -> np.ndarray:
    """As (rows, envs, size); numpy, torch or Warp on any device."""
    array = as_numpy(value)
    array = array[:, None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] != size or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} has shape {array.shape}; it must be (rows, num_envs, {size}) or (rows, {size}).")
    check_finite(array, name)
    return array if array.dtype.kind == "f" else array.astype(float)
