"""Shapes as USD prims: spheres, capsules, boxes, cylinders, hulls, fields and planes, with colours and extents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pxr import Gf, Sdf, Tf, Usd, UsdGeom, UsdShade, Vt

from ...geometry.rotations import unit_quat
from ...model import FIELDS, WORLD, Model, Shape, ShapeType
from ..layout import field_mesh, hull_of, is_visible, shape_color, srgb_to_linear

LOOKS = "/World/looks"


def display_shapes(model: Model) -> tuple[Shape, ...]:
    """The model's shapes; if no link has a visible one, a small sphere for each link is appended."""
    if any(s.link != WORLD and is_visible(s) for s in model.shapes):
        return model.shapes
    spheres = (Shape(ShapeType.SPHERE, i, np.array([0.02]), model.frame_pos[i], collide=False)
               for i in range(model.num_links))  # fmt: skip
    return (*model.shapes, *spheres)


def prim_names(names: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """Valid and different prim names: two links may differ only in characters that USD does not allow."""
    taken, result = set(reserved), []
    for name in names:
        valid = stem = Tf.MakeValidIdentifier(name)
        suffix = 1
        while valid in taken:
            valid, suffix = f"{stem}_{suffix}", suffix + 1
        taken.add(valid)
        result.append(valid)
    return result


def quat_to_usd(quat: np.ndarray) -> Gf.Quatf:
    """A unit quaternion in USD's order, w first."""
    x, y, z, w = unit_quat(quat).tolist()
    return Gf.Quatf(w, x, y, z)


def vec3(vector: np.ndarray) -> Gf.Vec3f:
    return Gf.Vec3f(*np.asarray(vector, float).tolist())


def frame_of(model: Model, link: int) -> np.ndarray:
    """Origin (3,) of a link's prim in the link's frame: a prim has the pose of the file's body."""
    return np.zeros(3) if link == WORLD else model.frame_pos[link]


def add_shape(stage: Usd.Stage, path: str, model: Model, shape: Shape, *, plane_half: float = 0.5) -> Usd.Prim:
    """One shape below the prim of its link.

    A plane becomes an Xform with a visible square (`surface`). An invisible shape becomes a guide, which viewers hide:
    it may still be a collider.

    Args:
        plane_half: half the width in m of a plane's square.
    """
    color = shape_color(model, shape)
    if shape.type == ShapeType.PLANE:
        prim = UsdGeom.Xform.Define(stage, path)
        add_square(stage, f"{path}/surface", plane_half, color, shape)
    else:
        prim = _add_gprim(stage, path, shape)
        _finish_gprim(prim, color, shape)
    xform = UsdGeom.Xformable(prim)
    xform.AddTranslateOp().Set(Gf.Vec3d(*(np.asarray(shape.pos, float) - frame_of(model, shape.link)).tolist()))
    xform.AddOrientOp().Set(quat_to_usd(shape.quat))
    if shape.type == ShapeType.BOX:
        xform.AddScaleOp().Set(vec3(np.asarray(shape.size)[:3]))
    if not is_visible(shape):
        UsdGeom.Imageable(prim).CreatePurposeAttr(UsdGeom.Tokens.guide)
    if shape.name:
        prim.GetPrim().SetDisplayName(shape.name)
    return prim.GetPrim()


def add_square(stage: Usd.Stage, path: str, half: float, color: Sequence[float], shape: Shape) -> None:
    """The visible part of a plane: a square of half width `half` m."""
    corners = half * np.array([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]])
    _finish_gprim(_add_mesh(stage, path, corners, np.array([[0, 1, 2, 3]])), color, shape)


def _add_gprim(stage: Usd.Stage, path: str, shape: Shape) -> UsdGeom.Gprim:
    size = [float(s) for s in np.atleast_1d(shape.size)]
    match shape.type:
        case ShapeType.MESH:
            return _add_mesh(stage, path, *hull_of(shape))
        case kind if kind in FIELDS:
            return _add_mesh(stage, path, *field_mesh(shape))
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
    return prim


def _finish_gprim(prim: UsdGeom.Gprim, color: Sequence[float], shape: Shape) -> None:
    """Colour, twice: usdview takes displayColor, Blender and other renderers only a material."""
    prim.CreateDisplayColorAttr(Vt.Vec3fArray([vec3(srgb_to_linear(color))]))  # USD's colours are linear
    opacity = 1.0
    if shape.color is not None and len(shape.color) > 3 and 0.0 < shape.color[3] < 1.0:
        opacity = float(shape.color[3])
        prim.CreateDisplayOpacityAttr(Vt.FloatArray([opacity]))
    prim.CreateExtentAttr(UsdGeom.Boundable.ComputeExtentFromPlugins(prim, Usd.TimeCode.Default()))
    UsdShade.MaterialBindingAPI.Apply(prim.GetPrim()).Bind(_look(prim.GetPrim().GetStage(), color, opacity))


def _look(stage: Usd.Stage, color: Sequence[float], opacity: float) -> UsdShade.Material:
    """The material of a colour (sRGB) and opacity, made at its first use."""
    digits = "".join(f"{round(255 * c):02x}" for c in (*color, opacity))
    path = f"{LOOKS}/rgba_{digits}"
    if stage.GetPrimAtPath(path):
        return UsdShade.Material.Get(stage, path)
    UsdGeom.Scope.Define(stage, LOOKS)
    material = UsdShade.Material.Define(stage, path)
    shader = UsdShade.Shader.Define(stage, f"{path}/surface")
    shader.CreateIdAttr("UsdPreviewSurface")
    shader.CreateInput("diffuseColor", Sdf.ValueTypeNames.Color3f).Set(vec3(srgb_to_linear(color)))
    shader.CreateInput("roughness", Sdf.ValueTypeNames.Float).Set(0.5)
    shader.CreateInput("opacity", Sdf.ValueTypeNames.Float).Set(opacity)
    material.CreateSurfaceOutput().ConnectToSource(shader.ConnectableAPI(), "surface")
    return material


def _add_mesh(stage: Usd.Stage, path: str, points: np.ndarray, faces: np.ndarray) -> UsdGeom.Mesh:
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(np.ascontiguousarray(points, np.float32)))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray([faces.shape[1]] * len(faces)))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray(faces.ravel().tolist()))
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateDoubleSidedAttr(True)
    return mesh
