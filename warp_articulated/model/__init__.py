"""The description of one environment: a forest of links with joints, shapes and drives."""

from .assemble import assemble
from .description import (
    FIELDS,
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
)

__all__ = [
    "FIELDS",
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
    "assemble",
]
