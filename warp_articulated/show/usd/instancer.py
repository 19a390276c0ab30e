"""The layout for thousands of environments: one PointInstancer whose instances are the links of all of them.

    /World/robots              PointInstancer; instance env * nl + link, positions with the grid's offsets
        prototypes
            base               the shapes of one link
            world              obstacles: one instance per environment after the links; they never move

Rotations are written twice: in float, which a reader takes if it knows orientationsf, and in half precision for those
that do not, such as Blender 5.0.

A saved layer keeps arrays of samples on disk only, so it is saved after every chunk. There are no physics schemas:
joints cannot connect point instances.
"""

from __future__ import annotations

import numpy as np
from pxr import Sdf, Usd, UsdGeom, Vt

from ...model import WORLD, Model, ShapeType
from ...progress import Progress
from ..layout import bounding_radius, is_ground, is_visible
from .scene import link_reach
from .shapes import add_shape, display_shapes, prim_names

PATH = "/World/robots"


class Instancer:
    """Writes the links of all environments into a layer; frames come in order, first frame first."""

    def __init__(self, layer: Sdf.Layer, model: Model, num_envs: int):
        self.layer, self.model, self.num_envs = layer, model, num_envs
        self.offsets = np.zeros((num_envs, 3))
        self.still = np.zeros((0, 3), np.float32)  # places of the obstacles' instances
        self.reach = link_reach(model)
        self.still_reach = 0.0

    def begin(self, stage: Usd.Stage, offsets: np.ndarray, plane_half: float) -> None:
        """Prototypes and indices. offsets: (envs, 3) m, places of the environments."""
        self.offsets = offsets
        links = self.model.num_links
        instancer = UsdGeom.PointInstancer.Define(stage, PATH)
        UsdGeom.Scope.Define(stage, f"{PATH}/prototypes")
        names = prim_names(self.model.link_names, ("world",))
        for link, name in enumerate(names):
            self._add_prototype(stage, name, link, plane_half)
        indices = np.tile(np.arange(links, dtype=np.int32), self.num_envs)
        if self._add_prototype(stage, "world", WORLD, plane_half):
            names.append("world")
            # environments that share a field are in one place, and so is all that stands there
            self.still = offsets[: 1 if self.model.field is not None else None].astype(np.float32)
            indices = np.concatenate([indices, np.full(len(self.still), links, np.int32)])
        instancer.CreatePrototypesRel().SetTargets([f"{PATH}/prototypes/{name}" for name in names])
        instancer.CreateProtoIndicesAttr(Vt.IntArray.FromNumpy(indices))
        instancer.CreateIdsAttr(Vt.Int64Array.FromNumpy(np.arange(len(indices), dtype=np.int64)))
        instancer.CreatePositionsAttr()
        instancer.CreateOrientationsfAttr()
        instancer.CreateOrientationsAttr()
        instancer.CreateExtentAttr()

    def _add_prototype(self, stage: Usd.Stage, name: str, link: int, plane_half: float) -> bool:
        """One Xform with the visible shapes of a link; False for a world without visible shapes."""
        own = [s for s in display_shapes(self.model) if s.link == link and is_visible(s) and not is_ground(s)]
        if link == WORLD and not own:
            return False
        path = f"{PATH}/prototypes/{name}"
        UsdGeom.Xform.Define(stage, path)
        for j, shape in enumerate(own):
            add_shape(stage, f"{path}/shape_{j}", self.model, shape, plane_half=plane_half)
        if link == WORLD:
            radius = {ShapeType.PLANE: float(np.sqrt(2.0)) * plane_half}
            self.still_reach = max(float(np.linalg.norm(s.pos)) + radius.get(s.type, bounding_radius(s)) for s in own)
        return True

    def write(self, start: int, positions: np.ndarray, quats: np.ndarray) -> None:
        """Frames from `start` on: positions (n, envs, nl, 3) m without the grid, quaternions (n, envs, nl, 4)."""
        placed = (positions + self.offsets[:, None]).astype(np.float32)
        extents = self._extents(placed)
        points = _with_rows(placed.reshape(len(placed), -1, 3), self.still)
        turns = _with_rows(
            quats.astype(np.float32).reshape(len(quats), -1, 4), np.tile([0.0, 0.0, 0.0, 1.0], (len(self.still), 1))
        )
        arrays = {
            "positions": [Vt.Vec3fArray.FromNumpy(p) for p in points],
            "orientationsf": [Vt.QuatfArray.FromNumpy(r) for r in turns],  # numpy's xyzw
            "orientations": [Vt.QuathArray.FromNumpy(r) for r in turns.astype(np.float16)],
            "extent": [Vt.Vec3fArray.FromNumpy(e) for e in extents],
        }
        for name, values in arrays.items():
            path = Sdf.Path(f"{PATH}.{name}")
            if start == 0:
                self.layer.GetAttributeAtPath(path).default = values[0]
            for k, value in enumerate(values):
                self.layer.SetTimeSample(path, start + k, value)
        self.layer.Save()

    def _extents(self, placed: np.ndarray) -> np.ndarray:
        """Bounds (n, 2, 3) of everything, from positions (n, envs, nl, 3)."""
        low = (placed.min(axis=1) - self.reach[:, None]).min(axis=1)
        high = (placed.max(axis=1) + self.reach[:, None]).max(axis=1)
        if len(self.still):
            low = np.minimum(low, self.still.min(axis=0) - self.still_reach)
            high = np.maximum(high, self.still.max(axis=0) + self.still_reach)
        return np.stack([low, high], axis=1).astype(np.float32)

    def finish(self, progress: Progress) -> None:
        progress(1, 1)

    def close(self) -> None:
        pass


def _with_rows(frames: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Every frame (n, k, d) with the same rows (m, d) appended, float32."""
    behind = np.broadcast_to(rows.astype(np.float32), (len(frames), *rows.shape))
    return np.concatenate([frames.astype(np.float32, copy=False), behind], axis=1) if len(rows) else frames
