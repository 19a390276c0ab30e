"""A USD stage that grows frame by frame: temporary file, chunks, and the move into place at the end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from pxr import Sdf, Tf, Usd

from ...files import USD_SUFFIXES, check_output_path, temporary_beside
from ...geometry.kinematics import as_positions, batch_body_poses, check_finite
from ...model import Model
from ...progress import Progress
from ..layout import automatic_spacing, environment_offsets
from .hierarchy import Hierarchy
from .instancer import Instancer
from .scene import add_camera_and_light, add_grounds, set_metadata

LAYOUTS = ("auto", "hierarchy", "instancer")
HIERARCHY_ENVS = 64  # "auto" takes the hierarchy up to here
CHUNK_BYTES = 32 * 2**20  # of poses that are processed at a time


class UsdWriter:
    """Writes frames of joint positions as an animated stage, in memory that does not grow with their number.

        with UsdWriter("run.usdc", model, num_envs=4096) as writer:
            for qs in chunks:
                writer.write(qs)

    The file appears under its name only when the block ends without an exception. Otherwise nothing is left behind,
    and an older file of that name is unchanged.

    Args:
        path: ends in .usd, .usda or .usdc.
        num_envs: environments in every frame.
        fps: frames per second of the stage.
        env_ids: numbers of the environments, for their names; None: counted from 0.
        spacing: distance in m between neighbouring environments on a grid; None: as close as they fit in the first
            frame.
        layout: "hierarchy" (one Xform per link, with physics), "instancer" (one PointInstancer, for thousands), or
            "auto": a hierarchy for up to 64 environments.
        physics: write UsdPhysics schemas; an instancer never has them.
        progress: called as progress(done, total) while the end of the block completes the file.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        model: Model,
        num_envs: int,
        *,
        fps: float = 60.0,
        env_ids: Sequence[int] | None = None,
        spacing: float | None = None,
        layout: str = "auto",
        physics: bool = True,
        progress: Progress | None = None,
    ):
        self.path = check_output_path(path, USD_SUFFIXES)
        self.model, self.num_envs = model, int(num_envs)
        self.fps, self.spacing, self.physics = fps, spacing, physics
        self.env_ids = list(range(self.num_envs)) if env_ids is None else [int(e) for e in env_ids]
        self.layout = ("hierarchy" if self.num_envs <= HIERARCHY_ENVS else "instancer") if layout == "auto" else layout
        self.progress: Progress = progress or (lambda done, total: None)
        self.frames = 0
        self._check_arguments(layout)
        self._layer: Sdf.Layer | None = None
        self._body: Hierarchy | Instancer | None = None
        self._last: np.ndarray | None = None  # quaternions of the last frame
        self._reach = 0.0  # m, from the origin to the farthest link
        self._open = self._broken = False
        # Samples can be added only to a binary file; it is converted to a text file at the end. Absolute, because
        # USD resolves relative names differently, and the working folder may change.
        self._target = Path(os.path.realpath(self.path))  # a link is followed, not replaced
        self._temporary = temporary_beside(self._target, ".usdc")

    def _check_arguments(self, layout: str) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}.")
        if self.num_envs < 1:
            raise ValueError(f"num_envs is {self.num_envs}; it must be at least 1.")
        if not self.fps > 0.0 or not np.isfinite(self.fps):
            raise ValueError(f"fps is {self.fps}; it must be a positive number of frames per second.")
        if self.spacing is not None and not (self.spacing >= 0.0 and np.isfinite(self.spacing)):
            raise ValueError(f"spacing is {self.spacing}; it must be a distance in m, or None to choose one.")
        wrong = len(self.env_ids) != self.num_envs or len(set(self.env_ids)) != len(self.env_ids)
        if wrong or min(self.env_ids) < 0:
            raise ValueError(
                f"env_ids has the {len(self.env_ids)} entries {self.env_ids[:8]}...; "
                f"it must be {self.num_envs} different numbers that are not negative."
            )

    def __enter__(self) -> UsdWriter:
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._discard()

    def write(self, qs: Any) -> None:
        """Add frames: joint positions (n, num_envs, nq), numpy, torch or Warp."""
        if not self._open:
            raise RuntimeError("a UsdWriter writes only inside its `with` block, whose end completes the file.")
        qs = as_positions(self.model, qs, "qs", (2,))
        if qs.shape[1] != self.num_envs:
            raise ValueError(f"qs has {qs.shape[1]} environments; this file was opened for {self.num_envs}.")
        if not np.isfinite(qs).all():
            env = int(np.argmin(np.isfinite(qs).all(axis=(0, 2))))
            check_finite(qs[:, env], f"qs of environment {self.env_ids[env]}, ")
        step = max(1, CHUNK_BYTES // (self.num_envs * self.model.num_links * 7 * 8))
        for start in range(0, len(qs), step):
            self._broken = True  # until the chunk is complete, even if the caller continues after an error
            with self._disk_errors():
                self._write_chunk(qs[start : start + step])
            self._broken = False

    def _write_chunk(self, qs: np.ndarray) -> None:
        positions, quats = batch_body_poses(self.model, qs)
        quats = self._continuous(quats)
        body = self._body or self._begin(qs[0], positions[0])
        body.write(self.frames, positions, quats)
        self.frames += len(qs)
        self._reach = max(self._reach, float(np.abs(positions[..., :2]).max()))

    def _begin(self, q: np.ndarray, positions: np.ndarray) -> Hierarchy | Instancer:
        """Everything that does not move, placed by the first frame: q (envs, nq), positions (envs, nl, 3)."""
        if self.spacing is None:
            self.spacing = automatic_spacing(self.model, q)
        offsets = environment_offsets(self.model, self.num_envs, self.spacing)
        self._layer = layer = Sdf.Layer.CreateNew(str(self._temporary))
        if self.layout == "hierarchy":
            self._body = Hierarchy(layer, self.model, self.env_ids, self._target.parent, self.physics)
        else:
            self._body = Instancer(layer, self.model, self.num_envs)
        stage = Usd.Stage.Open(layer)
        set_metadata(stage, self.fps)
        add_camera_and_light(stage, self.model, positions + offsets[:, None])
        self._reach = float(np.abs(offsets).max())
        # a slope is infinite, but must not cut through the neighbours
        plane_half = self.spacing / 2 if self.num_envs > 1 and self.spacing > 0 else 5.0
        self._body.begin(stage, offsets, plane_half)
        return self._body

    def _continuous(self, quats: np.ndarray) -> np.ndarray:
        """The same rotations (n, envs, nl, 4) with signs such that readers that blend them see no jump."""
        before = quats[:1] if self._last is None else self._last[None]
        dots = np.einsum("...i,...i", quats, np.concatenate([before, quats[:-1]]))
        quats = quats * np.cumprod(np.where(dots < 0.0, -1.0, 1.0), axis=0)[..., None]
        self._last = quats[-1].copy()
        return quats

    def _finish(self) -> None:
        if self._layer is None or self._body is None:
            raise ValueError(f"cannot write {self.path}: no frame was given.")
        if self._broken:
            raise OSError(f"cannot write {self.path}: some of its frames are incomplete.")
        with self._disk_errors():
            self._body.finish(self.progress)
            stage = Usd.Stage.Open(self._layer)
            add_grounds(stage, self.model, self._reach)
            stage.SetEndTimeCode(self.frames - 1)
            del stage
            self._layer.Save()
            done = self._temporary
            if self.path.suffix.lower() == ".usda":
                done = self._temporary.with_suffix(".usda")
                self._layer.Export(str(done))
            os.replace(done, self._target)
        _reload(str(self._target))

    def _discard(self) -> None:
        """Remove everything temporary."""
        if self._body is not None:
            self._body.close()
        self._layer = self._body = self._last = None
        self._open = False
        for suffix in (".usdc", ".usda"):
            self._temporary.with_suffix(suffix).unlink(missing_ok=True)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except Tf.ErrorException as error:
            raise OSError(f"cannot write {self.path}: {_reason(str(error))}.") from error
        except OSError as error:
            raise OSError(f"cannot write {self.path}: {error.strerror or error}.") from error


def _reason(report: str) -> str:
    """The operating system's message from USD's report of many lines, or the report's first message."""
    found = re.search(r"Error occurred writing file: ([^'\n]*)", report) or re.search(r": '([^'\n]*)'", report)
    return found.group(1) if found else report.strip().replace("\n", " ")


def _reload(path: str) -> None:
    cached = Sdf.Layer.Find(path)
    if cached:  # an earlier version is open in this process: reload it
        cached.Reload(force=True)
