"""The description of one environment: a forest of links with joints, shapes and drives."""

from .assemble import assemble
from .description import (
    NQ,
    NV,
    WORLD,
    Body,
    Drive,
    DriveType,
    Frame,
    JointType,
    Keyframe,
    Model,
    ModelError,
    Shape,
    ShapeType,
    Thrust,
)

__all__ = [
    "NQ",
    "NV",
    "WORLD",
    "Body",
    "Drive",
    "DriveType",
    "Frame",
    "JointType",
    "Keyframe",
    "Model",
    "ModelError",
    "Shape",
    "ShapeType",
    "Thrust",
    "assemble",
]
