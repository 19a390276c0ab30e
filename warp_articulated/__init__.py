"""Batch simulation of articulated robots with contacts, one robot per thread, in NVIDIA Warp."""

from .importers.combine import combine
from .importers.loading import load
from .importers.scene_files import scene_names
from .layout import Camera
from .model import Model, ModelError
from .queries import Contacts, Diagnostics
from .render import render, render_png
from .simulator import Simulator
from .trajectory import Trajectory, TrajectoryWriter
from .usd import export_usd

__version__ = "0.1.0"
__all__ = [
    "Camera",
    "Contacts",
    "Diagnostics",
    "Model",
    "ModelError",
    "Simulator",
    "Trajectory",
    "TrajectoryWriter",
    "combine",
    "export_usd",
    "load",
    "render",
    "render_png",
    "scene_names",
]
