"""Trajectories as USD stages: one Xform per environment and link, moved by time samples, with the shapes below it.

    /World                 default prim
        ground, sun, sky, camera
        env_0              Xform at its place in the grid
            base           Xform with translate and orient samples, one per frame
                shape_0    Capsule, Cube, Sphere, Cylinder or Mesh

Links stand side by side below their environment with world poses, not nested, so that errors do not add up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from pxr import Gf, Sdf, Tf, Usd, UsdGeom, UsdLux, Vt

from .files import check_output_path, replace_when_done
from .layout import (
    GROUND_COLOR,
    bounding_radius,
    frame_camera,
    grid_offsets,
    hull_of,
    is_ground,
    is_visible,
    shape_color,
)
from .model import WORLD, Model, Shape, ShapeType
from .poses import as_positions, batch_link_poses, check_finite

CAMERA_ASPECT = 16 / 9


def export_usd(
    path: str | os.PathLike,
    model: Model,
    qs: Any,
    *,
    fps: float = 60.0,
    dt: float | None = None,
    env_ids: Sequence[int] | None = None,
    spacing: float = 1.0,
) -> None:
    """Write a trajectory as an animated USD stage (.usd, .usda or .usdc).

    Args:
        qs: joint positions, (T, nq) or (T, num_envs, nq), numpy or torch.
        fps: frames per second of the stage.
        dt: time between rows of qs in s; frames then take the nearest rows. None: every row is a frame.
        env_ids: which environments to write; None: all.
        spacing: distance in m between neighbouring environments, which stand on a grid.

    The file appears under its name only when it is complete.
    """
    path = check_output_path(path, (".usd", ".usda", ".usdc"))
    if not fps > 0.0 or not np.isfinite(fps):
        raise ValueError(f"fps is {fps}; it must be a positive number of frames per second.")
    qs = as_positions(model, qs, "qs", (1, 2))
    qs = qs[:, None] if qs.ndim == 2 else qs
    envs = _chosen_environments(env_ids, qs.shape[1])
    for env in envs:  # those that are left out may have diverged
        check_finite(qs[:, env], f"qs of environment {env}, ")
    rows = np.arange(len(qs)) if dt is None else frame_rows(len(qs), dt, fps)
    origins, quats = batch_link_poses(model, qs[rows][:, envs])
    offsets = grid_offsets(len(envs), spacing)

    stage = Usd.Stage.CreateInMemory()
    _set_metadata(stage, len(rows), fps)
    _add_surroundings(stage, model, origins, offsets)
    names = _prim_names(model.link_names)
    for k, env in enumerate(envs):
        env_path = f"/World/env_{env}"
        xform = UsdGeom.Xform.Define(stage, env_path)
        xform.AddTranslateOp().Set(Gf.Vec3d(*offsets[k].tolist()))
        _add_world_shapes(stage, model, env_path, spacing)
        for i, name in enumerate(names):
            link_path = f"{env_path}/{name}"
            _add_moving_frame(stage, link_path, origins[:, k, i], _continuous(quats[:, k, i]))
            for j, shape in enumerate(s for s in model.shapes if s.link == i and is_visible(s)):
                _add_shape(stage, f"{link_path}/shape_{j}", model, shape)
    _write(stage, path)


def frame_rows(num_rows: int, dt: float, fps: float) -> np.ndarray:
    """Which rows of a trajectory with time step dt (s) are nearest to the frames of a film, (frames,) int."""
    if not dt > 0.0 or not np.isfinite(dt):
        raise ValueError(f"dt is {dt}; it must be a positive number of seconds.")
    frames = int(np.floor((num_rows - 1) * dt * fps + 1e-9)) + 1
    rows = np.floor(np.arange(frames) / (fps * dt) + 0.5).astype(int)
    return np.minimum(rows, num_rows - 1)


def _chosen_environments(env_ids: Sequence[int] | None, count: int) -> list[int]:
    envs = list(range(count)) if env_ids is None else [int(e) for e in env_ids]
    wrong = [e for e in envs if not 0 <= e < count]
    if wrong or not envs or len(set(envs)) != len(envs):
        raise ValueError(f"env_ids is {envs}; it must name different environments between 0 and {count - 1}.")
    return envs


def _set_metadata(stage: Usd.Stage, frames: int, fps: float) -> None:
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    # kilogramsPerUnit belongs to UsdPhysics; written directly, so that the physics schemas need not be loaded
    stage.SetMetadata("kilogramsPerUnit", 1.0)
    stage.SetStartTimeCode(0)
    stage.SetEndTimeCode(frames - 1)
    stage.SetTimeCodesPerSecond(fps)
    stage.SetFramesPerSecond(fps)
    world = UsdGeom.Xform.Define(stage, "/World")
    Usd.ModelAPI(world).SetKind("component")
    stage.SetDefaultPrim(world.GetPrim())


def _add_surroundings(stage: Usd.Stage, model: Model, origins: np.ndarray, offsets: np.ndarray) -> None:
    """Ground, camera and light. origins: (frames, envs, nl, 3)."""
    reach = max((bounding_radius(s) + float(np.linalg.norm(s.pos)) for s in model.shapes), default=0.1)
    # the camera frames the first pose: a robot that runs away should not make the others tiny
    first = (origins[0] + offsets[:, None]).reshape(-1, 3)
    corners = first[:, None] + reach * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    points = corners.reshape(-1, 3)

    for k, shape in enumerate(s for s in model.shapes if is_ground(s) and is_visible(s)):
        half = 10.0 + 2.0 * float(np.abs(origins[..., :2]).max() + np.abs(offsets).max())
        color = shape_color(model, shape) if shape.color else GROUND_COLOR
        ground = _add_quad(stage, "/World/ground" if k == 0 else f"/World/ground_{k}", half, color)
        UsdGeom.Xformable(ground).AddTranslateOp().Set(Gf.Vec3d(0.0, 0.0, float(shape.pos[2])))

    view = frame_camera(points, CAMERA_ASPECT)
    camera = UsdGeom.Camera.Define(stage, "/World/camera")
    right, up, forward = view.axes()
    matrix = np.eye(4)  # USD's row vectors: a camera looks along its -z with y up
    matrix[0, :3], matrix[1, :3], matrix[2, :3], matrix[3, :3] = right, up, -forward, view.eye
    camera.AddTransformOp().Set(Gf.Matrix4d(matrix.tolist()))
    aperture = 20.955  # mm, the width of 35 mm film
    height = aperture / CAMERA_ASPECT
    camera.CreateHorizontalApertureAttr(aperture)
    camera.CreateVerticalApertureAttr(height)
    camera.CreateFocalLengthAttr(float(height / 2 / np.tan(np.radians(view.fov) / 2)))
    camera.CreateClippingRangeAttr(Gf.Vec2f(0.01, 10000.0))

    sun = UsdLux.DistantLight.Define(stage, "/World/sun")
    sun.CreateIntensityAttr(2000.0)
    sun.CreateAngleAttr(3.0)
    UsdGeom.Xformable(sun).AddRotateXYZOp().Set(Gf.Vec3f(35.0, 20.0, 0.0))
    UsdLux.DomeLight.Define(stage, "/World/sky").CreateIntensityAttr(500.0)


def _add_world_shapes(stage: Usd.Stage, model: Model, env_path: str, spacing: float) -> None:
    fixed = [s for s in model.shapes if s.link == WORLD and is_visible(s) and not is_ground(s)]
    if fixed:
        UsdGeom.Xform.Define(stage, f"{env_path}/world")
    for j, shape in enumerate(fixed):
        # a slope is infinite, but must not cut through the neighbours
        _add_shape(stage, f"{env_path}/world/shape_{j}", model, shape, plane_half=spacing / 2)


def _add_moving_frame(stage: Usd.Stage, path: str, origins: np.ndarray, quats: np.ndarray) -> None:
    """An Xform with one sample per frame (a single value if it never moves). origins (T, 3), quats (T, 4) xyzw."""
    xform = UsdGeom.Xform.Define(stage, path)
    translate = xform.AddTranslateOp(UsdGeom.XformOp.PrecisionDouble).GetAttr()
    orient = xform.AddOrientOp(UsdGeom.XformOp.PrecisionFloat).GetAttr()
    translations = [Gf.Vec3d(*p) for p in origins.tolist()]
    orientations = [Gf.Quatf(w, x, y, z) for x, y, z, w in quats.tolist()]
    if len(origins) == 1:
        translate.Set(translations[0])
        orient.Set(orientations[0])
        return
    layer = stage.GetRootLayer()  # Sdf writes samples several times faster than Usd attributes
    translate_path, orient_path = translate.GetPath(), orient.GetPath()
    with Sdf.ChangeBlock():
        for frame, (p, r) in enumerate(zip(translations, orientations)):
            layer.SetTimeSample(translate_path, frame, p)
            layer.SetTimeSample(orient_path, frame, r)


def _continuous(quats: np.ndarray) -> np.ndarray:
    """The same rotations (T, 4) with signs chosen so that readers that blend components see no jump."""
    if len(quats) < 2:
        return quats
    signs = np.where(np.sum(quats[1:] * quats[:-1], -1) < 0.0, -1.0, 1.0)
    return quats * np.concatenate([[1.0], np.cumprod(signs)])[:, None]


def _add_shape(stage: Usd.Stage, path: str, model: Model, shape: Shape, *, plane_half: float = 0.5) -> None:
    color = shape_color(model, shape)
    size = [float(s) for s in np.atleast_1d(shape.size)]
    match shape.type:
        case ShapeType.PLANE:
            prim = _add_quad(stage, path, plane_half, color)
        case ShapeType.MESH:
            prim = _add_mesh(stage, path, *hull_of(shape), color)
        case ShapeType.SPHERE:
            prim = UsdGeom.Sphere.Define(stage, path)
            prim.CreateRadiusAttr(size[0])
        case ShapeType.CAPSULE | ShapeType.CYLINDER:
            kind = UsdGeom.Capsule if shape.type == ShapeType.CAPSULE else UsdGeom.Cylinder
            prim = kind.Define(stage, path)
            prim.CreateRadiusAttr(size[0])
            prim.CreateHeightAttr(2.0 * size[1])
            prim.CreateAxisAttr(UsdGeom.Tokens.z)
        case ShapeType.BOX:
            prim = UsdGeom.Cube.Define(stage, path)
            prim.CreateSizeAttr(2.0)  # half extents become the scale
        case _:
            raise ValueError(f"shape {shape.name!r} of type {shape.type!r} cannot be written to USD.")
    prim.CreateDisplayColorAttr(Vt.Vec3fArray([Gf.Vec3f(*color)]))
    if shape.color is not None and len(shape.color) > 3 and shape.color[3] < 1.0:
        prim.CreateDisplayOpacityAttr(Vt.FloatArray([float(shape.color[3])]))
    prim.CreateExtentAttr(UsdGeom.Boundable.ComputeExtentFromPlugins(prim, Usd.TimeCode.Default()))

    x, y, z, w = (np.asarray(shape.quat, float) / np.linalg.norm(shape.quat)).tolist()
    xform = UsdGeom.Xformable(prim)
    xform.AddTranslateOp().Set(Gf.Vec3d(*np.asarray(shape.pos, float).tolist()))
    xform.AddOrientOp().Set(Gf.Quatf(w, x, y, z))
    if shape.type == ShapeType.BOX:
        xform.AddScaleOp().Set(Gf.Vec3f(*size[:3]))
    if shape.name:
        prim.GetPrim().SetDisplayName(shape.name)


def _add_quad(stage: Usd.Stage, path: str, half: float, color: Sequence[float]) -> UsdGeom.Mesh:
    corners = half * np.array([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]])
    return _add_mesh(stage, path, corners, np.array([[0, 1, 2, 3]]), color)


def _add_mesh(
    stage: Usd.Stage, path: str, points: np.ndarray, faces: np.ndarray, color: Sequence[float]
) -> UsdGeom.Mesh:
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(np.ascontiguousarray(points, np.float32)))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray([faces.shape[1]] * len(faces)))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray(faces.ravel().tolist()))
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateDoubleSidedAttr(True)
    mesh.CreateDisplayColorAttr(Vt.Vec3fArray([Gf.Vec3f(*color)]))
    mesh.CreateExtentAttr(UsdGeom.Boundable.ComputeExtentFromPlugins(mesh, Usd.TimeCode.Default()))
    return mesh


def _prim_names(names: Sequence[str]) -> list[str]:
    """Valid and different prim names: two links may differ only in characters that USD does not allow."""
    taken, result = {"world"}, []
    for name in names:
        valid = stem = Tf.MakeValidIdentifier(name)
        suffix = 1
        while valid in taken:
            valid, suffix = f"{stem}_{suffix}", suffix + 1
        taken.add(valid)
        result.append(valid)
    return result


def _write(stage: Usd.Stage, path) -> None:
    with replace_when_done(path) as temporary:
        try:
            written = stage.GetRootLayer().Export(str(temporary))
        except Tf.ErrorException as error:
            raise OSError(str(error).strip().splitlines()[-1]) from error
        if not written:
            raise OSError("USD could not export the stage")
    cached = Sdf.Layer.Find(str(path))
    if cached:  # an earlier version is open in this process: show its owners the new file
        cached.Reload(force=True)
