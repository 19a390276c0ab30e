"""What tests of USD exports share: poses and arrays read back from a stage, and USD's own validators."""

from __future__ import annotations

import numpy as np
from pxr import Usd, UsdGeom, UsdValidation


def open_stage(path) -> Usd.Stage:
    return Usd.Stage.Open(str(path))


def pose_in_stage(prim, frame, space):
    """Rotation and translation of a prim in the frame of `space`, as column-vector matrices."""
    matrix = np.array(UsdGeom.XformCache(frame).ComputeRelativeTransform(prim, space)[0]).T
    return matrix[:3, :3], matrix[:3, 3]


def instances(stage, frame) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n, 3) and quaternions xyzw (n, 4) of the PointInstancer at a frame."""
    prim = UsdGeom.PointInstancer(stage.GetPrimAtPath("/World/robots"))
    quats = prim.GetOrientationsfAttr().Get(frame)
    # component by component: the order of the arrays' memory is what is tested
    return np.array(prim.GetPositionsAttr().Get(frame)), np.array([[*q.GetImaginary(), q.GetReal()] for q in quats])


def complaints(stage) -> list[str]:
    """What any of USD's validators has to say, errors and warnings."""
    context = UsdValidation.ValidationContext(UsdValidation.ValidationRegistry().GetOrLoadAllValidators())
    return [f"{e.GetName()}: {e.GetMessage()}" for e in context.Validate(stage)]
