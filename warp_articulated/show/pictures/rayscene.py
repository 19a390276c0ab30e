"""A batch of robots on a device, for the ray caster: built once, posed for every frame, seen by cameras.

rayshapes.py and raycast.py hold the device code; render.py and gif.py place environments and the camera.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp

from ...device.launch import wait_for
from ...device.messages import compiling, start_warp
from ...geometry.kinematics import batch_link_poses
from ...geometry.rotations import rotate, unit_quat
from ...model import FIELDS, Model, Shape, ShapeType
from ..layout import (
    Camera,
    environment_offsets,
    field_mesh,
    hull_of,
    is_ground,
    is_visible,
    shape_color,
    srgb_to_linear,
)
from . import raycast, rayshapes

SUN = np.array([-0.35, -0.55, 0.95])
REBUILD_EVERY = 32  # frames; in between the tree's boxes are only fitted to the moved shapes
# rows per launch: few, so that all cores finish at the same time
BAND = {raycast.render_pixels: 8, raycast.place_shapes: 256, raycast.choose_colors: 32}


@dataclass(frozen=True)
class Quality:
    """Rays per pixel: samples per axis, and rays to the sun and to the sky for each of them."""

    samples: int = 2
    shadow_rays: int = 3
    sky_rays: int = 2


class RayScene:
    """Copies of a model on a grid.

    Args:
        count: number of environments.
        spacing: distance in m between neighbours.
        device: Warp device that casts the rays; None: Warp's current device.
    """

    def __init__(self, model: Model, count: int, spacing: float, device: str | None = None):
        self.model, self.count, self.spacing = model, count, spacing
        start_warp()
        self.device = wp.get_device(device)
        self.offsets = environment_offsets(model, count, spacing)
        shapes = [s for s in model.shapes if is_visible(s) and not is_ground(s)]
        if not shapes:  # nothing to see: show at least where the links are
            shapes = [Shape(ShapeType.SPHERE, i, np.array([0.02])) for i in range(model.num_links)]
        with compiling("what draws pictures"):
            wp.load_module(raycast, device=self.device)
        # on the CPU a launch uses one core, so bands of rows go to threads
        self._pool = ThreadPoolExecutor(os.cpu_count()) if self.device.is_cpu else None

        copies = count * len(shapes)
        self._scene = rayshapes.Scene()
        packed, planes = _pack(model, shapes, spacing)
        self._meshes = self._add_meshes(shapes, packed)
        self._framed = [s for s, shape in enumerate(shapes) if shape.type not in FIELDS]
        self._scene.shapes = wp.array(packed, dtype=rayshapes.Shape, device=self.device)
        self._scene.planes = wp.array(planes.astype(np.float32), dtype=wp.vec4, device=self.device)
        self._scene.num_shapes = len(shapes)
        self._scene.pos = wp.empty(copies, dtype=wp.vec3, device=self.device)
        self._scene.rot = wp.empty(copies, dtype=wp.quat, device=self.device)
        self._air = raycast.Air()
        self._air.cell = _grid_cell(spacing)
        self._air.sky_reach = 0.6 * spacing
        self._air.sun = wp.vec3(*(SUN / np.linalg.norm(SUN)).tolist())
        self._air.sun_radius = 0.05
        self._offsets: wp.array = wp.array(self.offsets.astype(np.float32), dtype=wp.vec3, device=self.device)
        self._lower = wp.empty(copies, dtype=wp.vec3, device=self.device)
        self._upper = wp.empty(copies, dtype=wp.vec3, device=self.device)
        self._link_pos = wp.empty((count, model.num_links), dtype=wp.vec3, device=self.device)
        self._link_rot = wp.empty((count, model.num_links), dtype=wp.quat, device=self.device)
        self.image = wp.empty((0, 0, 3), dtype=wp.uint8, device=self.device)
        self._bvh: wp.Bvh | None = None
        self._fitted = 0

    def _add_meshes(self, shapes: list[Shape], packed: list[rayshapes.Shape]) -> list[wp.Mesh]:
        """Meshes of fields, which must stay alive; their numbers go to the packed shapes."""
        meshes = []
        for shape, entry in zip(shapes, packed):
            if shape.type in FIELDS:
                corners, faces = field_mesh(shape)
                points: wp.array = wp.array(corners.astype(np.float32), dtype=wp.vec3, device=self.device)
                meshes.append(wp.Mesh(points, wp.array(faces.ravel(), dtype=int, device=self.device)))
                entry.mesh = meshes[-1].id
        return meshes

    def pose(self, q: np.ndarray) -> None:
        """Move the robots to joint positions q (count, nq)."""
        origins, quats = batch_link_poses(self.model, q)
        self._link_pos.assign(origins.astype(np.float32))
        self._link_rot.assign(quats.astype(np.float32))
        poses = [self._scene, self._link_pos, self._link_rot, self._offsets]
        self.run(raycast.place_shapes, (self.count, self._scene.num_shapes), poses, outputs=[self._lower, self._upper])
        low, high = self._lower.numpy().min(0), self._upper.numpy().max(0)
        self._scene.middle, self._scene.half = wp.vec3(*(high + low) / 2), wp.vec3(*(high - low) / 2 + 1e-3)
        if self._bvh is None:
            self._bvh = wp.Bvh(self._lower, self._upper)
            self._scene.bvh = self._bvh.id
            return
        self._fitted += 1
        if self._fitted % REBUILD_EVERY:
            self._bvh.refit()
        else:
            self._bvh.rebuild()

    def boxes(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corners (count, shapes, 3) m in the world of all shapes but fields, where `pose` put them."""
        shape = (self.count, self._scene.num_shapes, 3)
        lower, upper = self._lower.numpy().reshape(shape), self._upper.numpy().reshape(shape)
        return lower[:, self._framed], upper[:, self._framed]

    def surround(self, ground: float, haze: float) -> None:
        """Set the ground's height in m, and the distance in m at which it fades into the sky."""
        self._air.ground, self._air.haze = ground, haze

    def picture(self, camera: Camera, size: tuple[int, int], quality: Quality) -> np.ndarray:
        """What the camera sees, (height, width, 3) uint8 sRGB. On the CPU the next picture overwrites it."""
        width, height = size
        if self.image.shape[:2] != (height, width):
            self.image = wp.empty((height, width, 3), dtype=wp.uint8, device=self.device)
        view = _view(camera, width, height, quality)
        self.run(raycast.render_pixels, (height, width), [self._scene, self._air, view], outputs=[self.image])
        return self.image.numpy()

    def run(self, kernel: Any, dim: tuple[int, int], inputs: list, outputs: list) -> None:
        """Launch a kernel whose first argument is the first row of a band, on all cores."""
        band = BAND[kernel] if self._pool else dim[0]
        launches: list[Callable[[], None]] = [
            wp.launch(
                kernel,
                dim=(min(band, dim[0] - first), dim[1]),
                inputs=[first, *inputs],
                outputs=outputs,
                device=self.device,
                record_cmd=True,
            ).launch
            for first in range(0, dim[0], band)
        ]
        if self._pool:
            wait_for([self._pool.submit(launch) for launch in launches])
            return
        for launch in launches:
            launch()


def _pack(model: Model, shapes: list[Shape], spacing: float) -> tuple[list[rayshapes.Shape], np.ndarray]:
    """Shapes as structs for the device, and the planes (n, 4) of all hulls."""
    packed, planes = [], [np.zeros((0, 4))]
    for shape in shapes:
        entry, own_planes = _pack_one(shape, spacing)
        entry.color = wp.vec3(*srgb_to_linear(shape_color(model, shape)).tolist())
        entry.first_plane, entry.num_planes = sum(map(len, planes)), len(own_planes)
        packed.append(entry)
        planes.append(own_planes)
    return packed, np.concatenate(planes)


def _pack_one(shape: Shape, spacing: float) -> tuple[rayshapes.Shape, np.ndarray]:
    """One shape in its link with the bounding box in its own frame, and the planes (n, 4) of its hull."""
    kind, pos = shape.type, np.asarray(shape.pos, float)
    rot = unit_quat(shape.quat)
    size = np.append(np.ravel(shape.size), np.zeros(3))[:3]
    middle, planes = np.zeros(3), np.zeros((0, 4))
    if kind == ShapeType.PLANE:  # a slope: shown as a thin slab that does not cut through the neighbours
        kind, size = ShapeType.BOX, np.array([spacing / 2, spacing / 2, 0.005])
        pos = pos - rotate(rot, np.array([0.0, 0.0, 0.005]))
    halves = {
        ShapeType.SPHERE: np.full(3, size[0]),
        ShapeType.CAPSULE: np.array([size[0], size[0], size[0] + size[1]]),
        ShapeType.CYLINDER: np.array([size[0], size[0], size[1]]),
        ShapeType.BOX: size,
        **dict.fromkeys((ShapeType.MESH, *FIELDS), size),
    }
    if kind not in halves:
        raise ValueError(f"shape {shape.name!r} is a {ShapeType(kind).name.lower()}, which pictures cannot show.")
    half = halves[kind]
    if kind == ShapeType.MESH:
        vertices, faces = hull_of(shape)
        planes = _hull_planes(vertices, faces)
        middle, half = (vertices.max(0) + vertices.min(0)) / 2, (vertices.max(0) - vertices.min(0)) / 2
    elif kind in FIELDS:
        vertices, _ = field_mesh(shape)
        middle, half = (vertices.max(0) + vertices.min(0)) / 2, (vertices.max(0) - vertices.min(0)) / 2
    packed = rayshapes.Shape()
    packed.kind, packed.link = int(kind), int(shape.link)
    packed.pos, packed.rot, packed.size = wp.vec3(*pos.tolist()), wp.quat(*rot.tolist()), wp.vec3(*size.tolist())
    packed.middle, packed.half = wp.vec3(*middle.tolist()), wp.vec3(*half.tolist())
    return packed, planes


def _hull_planes(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Outward unit normals and offsets (n, 4) of a hull's faces, coplanar triangles merged."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    area = np.linalg.norm(normals, axis=-1, keepdims=True)
    solid = area[:, 0] > 1e-9 * area.max()  # a sliver's normal is noise
    normals = normals[solid] / area[solid]
    offsets = -np.sum(normals * a[solid], -1, keepdims=True)
    return np.unique(np.concatenate([normals, offsets], -1).round(6), axis=0)


def _grid_cell(spacing: float) -> float:
    """A round number of metres, some squares per robot."""
    wish = spacing / 3
    power = 10.0 ** np.floor(np.log10(max(wish, 1e-6)))
    return float(power * max(m for m in (1.0, 2.0, 5.0) if m * power <= wish * (1 + 1e-9)))


def _view(camera: Camera, width: int, height: int, quality: Quality) -> raycast.View:
    right, up, forward = camera.axes()
    tan = float(np.tan(np.radians(camera.fov) / 2))
    view = raycast.View()
    view.eye = wp.vec3(*camera.eye)
    view.right = wp.vec3(*(right * tan * width / height).tolist())
    view.up = wp.vec3(*(up * tan).tolist())
    view.forward = wp.vec3(*forward.tolist())
    view.width, view.height = width, height
    view.pixel = 2.0 * tan / height
    view.samples, view.shadow_rays, view.sky_rays = quality.samples, quality.shadow_rays, quality.sky_rays
    return view
