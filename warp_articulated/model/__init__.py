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
    Thrust,
)
from .ties import Coupling, Loop, Term, Ties

__all__ = [
    "FIELDS",
    "NQ",
    "NV",
    "WORLD",
    "Body",
    "Coupling",
    "Drive",
    "DriveType",
    "Frame",
    "JointType",
    "Keyframe",
    "Loop",
    "Model",
    "ModelError",
    "Shape",
    "ShapeType",
    "Term",
    "Thrust",
    "Ties",
    "assemble",
]
