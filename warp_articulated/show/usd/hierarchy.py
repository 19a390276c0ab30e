"""The layout for few environments: one Xform per link with its own samples, ready to be simulated by other tools.

    /World/prototypes/env      class: all links, shapes, joints, written once
    /World/env_0               Xform at its place in the grid, refers to the prototype
        base                   Xform with translate and orient samples, one per frame
            shape_0            Capsule, Cube, Sphere, Cylinder or Mesh
        world                  obstacles
        joints

Links are children of their environment with world poses, not nested, so that errors do not add up.

USD keeps all samples of an attribute together, and a scalar sample costs some 70 bytes of memory until the layer is
saved. So poses are spooled as they arrive, and the samples are written link by link at the end. The layer is saved in
between, which frees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pxr import Gf, Sdf, Usd, UsdGeom, Vt

from ...model import FIELDS, WORLD, Model
from ...progress import Progress
from ..layout import is_ground, is_visible
from .collision import keep_environments_apart
from .physics import add_physics
from .scene import ground_paths
from .shapes import add_shape, display_shapes, prim_names
from .spool import Spool

PROTOTYPE = "/World/prototypes/env"
RESERVED = ("world", "joints")  # children of an environment that are not links
SAMPLES_PER_SAVE = 400_000  # about 30 MB of memory


class Hierarchy:
    """Writes the links of all environments into a layer; frames come in order, first frame first."""

    def __init__(self, layer: Sdf.Layer, model: Model, env_ids: Sequence[int], folder: Path, with_physics: bool):
        self.layer, self.model, self.env_ids, self.with_physics = layer, model, env_ids, with_physics
        self.names = prim_names(model.link_names, RESERVED)
        columns = len(env_ids) * model.num_links
        self.positions = Spool(folder, columns, 3, np.float64)
        self.quats = Spool(folder, columns, 4, np.float64)

    def begin(self, stage: Usd.Stage, offsets: np.ndarray, plane_half: float) -> None:
        """Everything that does not move. offsets: (envs, 3) m, places of the environments."""
        stage.CreateClassPrim("/World/prototypes")
        UsdGeom.Xform.Define(stage, PROTOTYPE)
        shape_paths = self._add_links(stage, plane_half)
        field = next((k for k, shape in enumerate(self.model.shapes) if shape.type in FIELDS), -1)
        if self.with_physics:
            add_physics(stage, self.model, PROTOTYPE, self.names, shape_paths)
        for env, offset in zip(self.env_ids, offsets):
            prim = UsdGeom.Xform.Define(stage, f"/World/env_{env}")
            prim.GetPrim().GetReferences().AddInternalReference(PROTOTYPE)
            prim.AddTranslateOp().Set(Gf.Vec3d(*offset.tolist()))
            if field in shape_paths and env != self.env_ids[0]:  # in one place for all: one copy is seen
                copy = shape_paths[field].replace(PROTOTYPE, f"/World/env_{env}", 1)
                UsdGeom.Imageable(stage.GetPrimAtPath(copy)).MakeInvisible()
        if self.with_physics and len(self.env_ids) > 1:
            grounds = [path for k, path in ground_paths(self.model).items() if self.model.shapes[k].collide]
            keep_environments_apart(stage, [f"env_{env}" for env in self.env_ids], grounds)

    def _add_links(self, stage: Usd.Stage, plane_half: float) -> dict[int, str]:
        """Prims of all links and shapes; returns the prims of the shapes by their index in model.shapes."""
        paths: dict[int, str] = {}
        for link, name in [*enumerate(self.names), (WORLD, "world")]:
            own = [(k, s) for k, s in enumerate(display_shapes(self.model)) if s.link == link and self._is_shown(s)]
            if link == WORLD and not own:
                continue
            frame = UsdGeom.Xform.Define(stage, f"{PROTOTYPE}/{name}")
            if link != WORLD:
                frame.AddTranslateOp(UsdGeom.XformOp.PrecisionDouble)
                # double: USD takes the angle from w, which floats round to 1 below 3e-4 rad
                frame.AddOrientOp(UsdGeom.XformOp.PrecisionDouble)
                if self.model.link_names[link] != name:
                    frame.GetPrim().SetDisplayName(self.model.link_names[link])
            for j, (k, shape) in enumerate(own):
                paths[k] = f"{PROTOTYPE}/{name}/shape_{j}"
                add_shape(stage, paths[k], self.model, shape, plane_half=plane_half)
        return paths

    def _is_shown(self, shape) -> bool:
        return not is_ground(shape) and (is_visible(shape) or (self.with_physics and shape.collide))

    def write(self, start: int, positions: np.ndarray, quats: np.ndarray) -> None:
        """Frames from `start` on: positions (n, envs, nl, 3) m without the grid, quaternions (n, envs, nl, 4)."""
        self.positions.append(positions.reshape(len(positions), -1, 3))
        self.quats.append(quats.reshape(len(quats), -1, 4))

    def finish(self, progress: Progress) -> None:
        """Turn the spooled poses into samples."""
        frames = sum(self.positions.frames)
        paths = [f"/World/env_{env}/{name}" for env in self.env_ids for name in self.names]
        group = max(1, SAMPLES_PER_SAVE // (2 * frames))
        for first in range(0, len(paths), group):
            last = min(first + group, len(paths))
            positions, quats = self.positions.read(first, last), self.quats.read(first, last)
            with Sdf.ChangeBlock():
                for path, p, r in zip(paths[first:last], positions, quats):
                    self._add_samples(path, p, r)
            self.layer.Save()
            progress(last, len(paths))

    def _add_samples(self, path: str, positions: np.ndarray, quats: np.ndarray) -> None:
        """positions (frames, 3), quats (frames, 4). Tools that simulate read the default value, the first frame."""
        prim = Sdf.CreatePrimInLayer(self.layer, path)
        translate = Sdf.AttributeSpec(prim, "xformOp:translate", Sdf.ValueTypeNames.Double3)
        orient = Sdf.AttributeSpec(prim, "xformOp:orient", Sdf.ValueTypeNames.Quatd)
        translations = Vt.Vec3dArray.FromNumpy(np.ascontiguousarray(positions))
        orientations = Vt.QuatdArray.FromNumpy(np.ascontiguousarray(quats))  # numpy's xyzw
        translate.default, orient.default = translations[0], orientations[0]
        if len(positions) == 1:
            return
        set_sample, translate_path, orient_path = self.layer.SetTimeSample, translate.path, orient.path
        for frame, (p, r) in enumerate(zip(translations, orientations)):
            set_sample(translate_path, frame, p)
            set_sample(orient_path, frame, r)

    def close(self) -> None:
        self.positions.close()
        self.quats.close()
