"""Robots, ground, contact forces and the camera, as nodes of a viser server.

    /stage             moves all of the below, so that the camera can follow a robot
        group_0, ...   instanced meshes: the copies of one mesh in all robots and environments
        ground         endless grid
        picked         ring around the picked environment
        contacts/...   points and arrows

Used by the live viewer and by recordings, so that both look the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import viser

from ...geometry.kinematics import batch_link_poses
from ...geometry.rotations import IDENTITY, quat_multiply, rotate
from ...model import FIELDS, WORLD, Model, Shape, ShapeType
from ..layout import (
    Camera,
    automatic_spacing,
    bounding_radius,
    environment_offsets,
    frame_camera,
    is_ground,
    is_visible,
    is_wide,
    lowest_height,
    shape_color,
)
from .geometry import SEGMENTS, Group, Mesh, group_shapes, round_mesh, slab

ASPECT = 1.2  # of the part of a browser window that the panel leaves free
CROWD = 36  # beyond this many robots the camera looks at the front rows only
FORCE_COLOR = (0.88, 0.08, 0.12)
POINT_COLOR = (1.0, 0.85, 0.10)
PICKED_COLOR = (0.13, 0.54, 0.90)
GROUND_TINT = (0.93, 0.94, 0.95)


@dataclass(frozen=True)
class Forces:
    """Contact forces of all shown environments: points (n, 3) m, in their environment's frame; forces (n, 3) N."""

    env: np.ndarray  # (n,) int
    points: np.ndarray
    forces: np.ndarray


class Stage:
    """Robots of one model on a viser server.

    Args:
        q: (n, nq) first positions, by which the camera is placed.
        spacing: distance in m between neighbouring environments; None: as close as they fit.
        shadows: see `light`.
        rounding: m, to which places (and, likewise, turns) are rounded, for smaller recordings. 0: not rounded.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        model: Model,
        q: np.ndarray,
        *,
        spacing: float | None = None,
        shadows: bool = True,
        rounding: float = 0.0,
    ):
        self.server, self.model, self.rounding = server, model, rounding
        self.spacing = automatic_spacing(model, q) if spacing is None else spacing
        self.offsets = environment_offsets(model, len(q), self.spacing)
        self.camera = _camera(model, q, self.offsets)
        _place_camera(server, self.camera)
        self._root = server.scene.add_frame("/stage", show_axes=False)
        self._groups = [_Instances(self, k, group) for k, group in enumerate(group_shapes(model, self._shapes()))]
        self._height = _ground_height(model)
        self._add_ground()
        self._picked = server.scene.add_mesh_simple(
            "/stage/picked", *_ring(0.42 * self.spacing, 0.012 * self.spacing), color=_rgb(PICKED_COLOR),
            side="double", cast_shadow=False, receive_shadow=False, visible=False,
        )  # fmt: skip
        self._contacts = _Arrows(server, 0.02 * self.spacing)
        self._even = server.scene.add_light_ambient("/even_light", intensity=2.0, visible=False)
        if not shadows:  # a browser starts with them
            self.light(shadows)
        self.show(q)

    def _shapes(self) -> list[Shape]:
        shapes = [s for s in self.model.shapes if is_visible(s) and not is_ground(s)]
        if not shapes:  # nothing to see: show at least where the links are
            shapes = [Shape(ShapeType.SPHERE, i, np.array([0.02])) for i in range(self.model.num_links)]
        return [slab(s, self.spacing / 2) if s.type == ShapeType.PLANE else s for s in shapes]

    def _add_ground(self) -> None:
        planes = [s for s in self.model.shapes if is_ground(s) and is_visible(s)]
        own = [s for s in planes if s.color is not None]
        self.server.scene.add_grid(
            "/stage/ground",
            infinite_grid=True,
            cell_size=self.spacing / 4,
            section_size=self.spacing,
            cell_color=(214, 218, 222),
            section_color=(184, 190, 197),
            fade_distance=12.0 * self.spacing + 3.0 * float(np.linalg.norm(np.subtract(*_line_of(self.camera)))),
            plane_color=_rgb(shape_color(self.model, own[0]) if own else GROUND_TINT),
            plane_opacity=1.0 if planes else 0.0,
            shadow_opacity=0.25 if planes else 0.0,
            position=(0.0, 0.0, self._height - 1e-3 * self.spacing),  # a little lower: flat shapes lie on it
        )

    def light(self, shadows: bool) -> None:
        """Light with shadows and reflections, or plain light, which a browser draws much faster without a GPU."""
        scene = self.server.scene
        scene.configure_default_lights(True, cast_shadow=shadows)
        scene.configure_environment_map("city" if shadows else None)
        self._even.visible = not shadows

    def show(self, q: np.ndarray) -> None:
        """Move the robots to positions q (n, nq)."""
        origins, quats = batch_link_poses(self.model, q)
        self.bases = origins[:, 0] + self.offsets  # (n, 3) m, where the robots' first links are shown
        # the world comes after the last link, where index -1 finds it
        origins = np.concatenate([origins, np.zeros_like(origins[:, :1])], 1)
        quats = np.concatenate([quats, np.broadcast_to(IDENTITY, (len(q), 1, 4))], 1)
        with self.server.atomic():
            for group in self._groups:
                group.show(origins, quats)

    def mark(self, env: int | None) -> None:
        """Draw a ring around an environment's robot, where it was shown last; None: around none."""
        self._picked.visible = env is not None
        if env is not None:
            self._picked.position = (*self.bases[env, :2], self._height + 2e-3 * self.spacing)

    def follow(self, env: int | None) -> None:
        """Bring an environment's robot to the middle of the view; None: put the stage back.

        The stage moves, not the camera, which the user's mouse controls.
        """
        shift = np.zeros(3)
        if env is not None:
            shift[:2] = np.asarray(self.camera.target)[:2] - self.bases[env, :2]
        self._root.position = shift

    def show_forces(self, forces: Forces | None, metres_per_newton: float) -> None:
        """Draw contact points and the forces in them as arrows; None: draw none."""
        if forces is None or len(forces.points) == 0:
            self._contacts.hide()
        else:
            points = forces.points + self.offsets[forces.env]
            self._contacts.show(points, points + metres_per_newton * forces.forces)

    def round(self, values: np.ndarray) -> np.ndarray:
        if self.rounding > 0.0:
            # a power of two, so that the last bits are zeros, which compress well
            unit = 2.0 ** np.floor(np.log2(self.rounding))
            values = np.round(values / unit) * unit
        return values.astype(np.float32)


class _Instances:
    """The copies of one mesh in all environments; those of one environment are adjacent."""

    def __init__(self, stage: Stage, index: int, group: Group):
        self._stage = stage
        self._links = np.array([s.link for s in group.shapes])
        self._places = np.array([s.pos for s in group.shapes], float)
        quats = np.array([s.quat for s in group.shapes], float)
        self._quats = quats / np.linalg.norm(quats, axis=-1, keepdims=True)
        envs = len(stage.offsets)
        count = envs * len(group.shapes)
        scales = np.tile(group.scales, (envs, 1))
        if group.shapes[0].type in FIELDS:
            scales[1:] = 0.0  # shared: all copies would be in one place
        self._handle = stage.server.scene.add_batched_meshes_simple(
            f"/stage/group_{index}",
            group.mesh.vertices,
            group.mesh.faces,
            batched_wxyzs=np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)),
            batched_positions=np.zeros((count, 3)),
            batched_scales=scales,
            batched_colors=_rgb(np.tile(group.colors, (envs, 1))),
            opacity=group.opacity if group.opacity < 1.0 else None,
            flat_shading=group.faceted,
            lod="off",
        )

    def show(self, origins: np.ndarray, quats: np.ndarray) -> None:
        links = quats[:, self._links]
        pos = origins[:, self._links] + rotate(links, self._places) + self._stage.offsets[:, None]
        turns = quat_multiply(links, self._quats)[..., [3, 0, 1, 2]]
        self._handle.batched_positions = self._stage.round(pos.reshape(-1, 3))
        self._handle.batched_wxyzs = self._stage.round(turns.reshape(-1, 4))


class _Arrows:
    """Contact points as balls and forces as arrows. The nodes are created when the first contact is shown."""

    def __init__(self, server: viser.ViserServer, radius: float):
        self._server, self._radius = server, radius
        self._nodes: tuple[viser.BatchedMeshHandle, viser.ArrowsHandle] | None = None

    def hide(self) -> None:
        for node in self._nodes or ():
            node.visible = False

    def show(self, starts: np.ndarray, ends: np.ndarray) -> None:
        lines = np.stack([starts, ends], 1)
        turns = np.tile([1.0, 0.0, 0.0, 0.0], (len(starts), 1))
        if self._nodes is None:
            self._nodes = self._make(lines, turns)
            return
        balls, arrows = self._nodes
        balls.batched_wxyzs, balls.batched_positions = turns, starts
        arrows.points = lines
        balls.visible = arrows.visible = True

    def _make(self, lines: np.ndarray, turns: np.ndarray) -> tuple[viser.BatchedMeshHandle, viser.ArrowsHandle]:
        ball, scene = round_mesh(0.0), self._server.scene
        balls = scene.add_batched_meshes_simple(
            "/stage/contacts/points", 0.8 * self._radius * ball.vertices, ball.faces, turns, lines[:, 0],
            batched_colors=_rgb(POINT_COLOR), lod="off", cast_shadow=False, receive_shadow=False,
        )  # fmt: skip
        arrows = scene.add_arrows(
            "/stage/contacts/forces", lines, _rgb(FORCE_COLOR),
            shaft_radius=0.4 * self._radius, head_radius=self._radius, head_length=2.5 * self._radius,
        )  # fmt: skip
        return balls, arrows


def _rgb(color) -> np.ndarray:
    return np.round(255.0 * np.asarray(color)).astype(np.uint8)


def _line_of(camera: Camera) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(camera.eye), np.asarray(camera.target)


def _place_camera(server: viser.ViserServer, camera: Camera) -> None:
    start = server.initial_camera
    start.position, start.look_at = _line_of(camera)
    start.fov = float(np.radians(camera.fov))


def _camera(model: Model, q: np.ndarray, offsets: np.ndarray) -> Camera:
    """Sees all robots, or the front rows of a crowd."""
    origins, quats = batch_link_poses(model, q)
    near = np.arange(len(q))
    if len(q) > CROWD:
        near = np.argsort(offsets @ np.array([-0.62, 0.70, 0.0]), kind="stable")[:CROWD]
    places, reaches = [origins[near] + offsets[near, None]], [np.full(model.num_links, 0.02)]
    for shape in (s for s in model.shapes if is_visible(s) and not is_wide(s)):
        pos = np.broadcast_to(shape.pos, (len(near), 3))
        if shape.link != WORLD:
            pos = origins[near, shape.link] + rotate(quats[near, shape.link], shape.pos)
        places.append((pos + offsets[near])[:, None])
        reaches.append(np.array([bounding_radius(shape)]))
    centre, reach = np.concatenate(places, 1), np.concatenate(reaches)
    sides = np.concatenate([np.eye(3), -np.eye(3)])
    points = centre[:, :, None] + reach[:, None, None] * sides
    return frame_camera(points.reshape(-1, 3), ASPECT, margin=1.25 if len(q) == 1 else 1.1)


def _ground_height(model: Model) -> float:
    field = model.field
    if field is not None:  # the grid is under all of it
        return lowest_height(field) - 0.01
    return max((float(s.pos[2]) for s in model.shapes if is_ground(s)), default=0.0)


def _ring(radius: float, half_width: float) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a flat ring in the plane z = 0."""
    count = 3 * SEGMENTS
    angle = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], -1)
    here = np.arange(count)
    following = (here + 1) % count
    faces = np.concatenate(
        [
            np.stack([here, count + here, count + following], -1),
            np.stack([here, count + following, following], -1),
        ]
    )
    mesh = Mesh(np.concatenate([(radius - half_width) * circle, (radius + half_width) * circle]), faces)
    return mesh.vertices, mesh.faces
