"""Metadata, ground, camera and light: the same in every layout."""

from __future__ import annotations

import numpy as np
from pxr import Gf, Usd, UsdGeom, UsdLux, UsdPhysics

from ...model import WORLD, Model
from ..layout import GROUND_COLOR, bounding_radius, frame_camera, is_ground, is_visible, shape_color
from .shapes import add_square, display_shapes, frame_of

CAMERA_ASPECT = 16 / 9
FILM_WIDTH = 0.20955  # tenths of the stage's unit, which is 1 m: the 20.955 mm of 35 mm film


def set_metadata(stage: Usd.Stage, fps: float) -> None:
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    UsdPhysics.SetStageKilogramsPerUnit(stage, 1.0)
    stage.SetStartTimeCode(0)
    stage.SetEndTimeCode(0)
    stage.SetTimeCodesPerSecond(fps)
    stage.SetFramesPerSecond(fps)
    world = UsdGeom.Xform.Define(stage, "/World")
    Usd.ModelAPI(world).SetKind("component")
    stage.SetDefaultPrim(world.GetPrim())


def ground_paths(model: Model) -> dict[int, str]:
    """Prims of the planes that all environments share, by their index in model.shapes."""
    grounds = [k for k, shape in enumerate(model.shapes) if is_ground(shape)]
    return {k: "/World/ground" if n == 0 else f"/World/ground_{n}" for n, k in enumerate(grounds)}


def add_grounds(stage: Usd.Stage, model: Model, reach: float) -> None:
    """Squares for the model's horizontal planes, wide enough for everything up to `reach` m from the origin.

    An invisible ground has no square, but its place still matters if there is a collider.
    """
    for k, path in ground_paths(model).items():
        shape = model.shapes[k]
        if is_visible(shape) or stage.GetPrimAtPath(path):
            frame = UsdGeom.Xform.Define(stage, path)
            frame.AddTranslateOp().Set(Gf.Vec3d(0.0, 0.0, float(shape.pos[2])))
        if is_visible(shape):
            color = shape_color(model, shape) if shape.color else GROUND_COLOR
            add_square(stage, f"{path}/surface", 10.0 + 2.0 * reach, color, shape)


def link_reach(model: Model) -> np.ndarray:
    """Radius (nl,) in m of a sphere around each link's prim that holds its visible shapes."""
    reach = np.zeros(model.num_links)
    for shape in (s for s in display_shapes(model) if s.link != WORLD and is_visible(s)):
        far = float(np.linalg.norm(np.asarray(shape.pos) - frame_of(model, shape.link))) + bounding_radius(shape)
        reach[shape.link] = max(reach[shape.link], far)
    return reach


def add_camera_and_light(stage: Usd.Stage, model: Model, origins: np.ndarray) -> None:
    """A camera that sees all links at origins (envs, nl, 3) m, a sun and a sky.

    The camera frames the first pose: a robot that goes far away later should not make the others tiny.
    """
    reach = max(float(link_reach(model).max()), 0.1)
    cube = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    points = (origins.reshape(-1, 1, 3) + reach * cube).reshape(-1, 3)
    view = frame_camera(points, CAMERA_ASPECT)
    camera = UsdGeom.Camera.Define(stage, "/World/camera")
    right, up, forward = view.axes()
    matrix = np.eye(4)  # USD's row vectors: a camera looks along its -z with y up
    matrix[0, :3], matrix[1, :3], matrix[2, :3], matrix[3, :3] = right, up, -forward, view.eye
    camera.AddTransformOp().Set(Gf.Matrix4d(matrix.tolist()))
    height = FILM_WIDTH / CAMERA_ASPECT
    camera.CreateHorizontalApertureAttr(FILM_WIDTH)
    camera.CreateVerticalApertureAttr(height)
    camera.CreateFocalLengthAttr(float(height / 2 / np.tan(np.radians(view.fov) / 2)))
    camera.CreateClippingRangeAttr(Gf.Vec2f(0.01, 10000.0))

    sun = UsdLux.DistantLight.Define(stage, "/World/sun")
    sun.CreateIntensityAttr(1.0)  # normalised: light on a surface, independent of the size of the sun
    sun.CreateNormalizeAttr(True)
    sun.CreateAngleAttr(3.0)
    UsdGeom.Xformable(sun).AddRotateXYZOp().Set(Gf.Vec3f(35.0, 20.0, 0.0))
    UsdLux.DomeLight.Define(stage, "/World/sky").CreateIntensityAttr(0.6)
