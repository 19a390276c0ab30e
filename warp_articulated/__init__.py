"""Batch simulation of articulated robots with contacts, one robot per thread, in NVIDIA Warp."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import rl as rl
    from . import sensors as sensors
    from . import terrain as terrain
    from .device.results import Contacts, Diagnostics
    from .geometry.inertia import from_log_cholesky, log_cholesky
    from .geometry.tangent import difference, retract
    from .importers.combine import combine
    from .importers.loading import load
    from .importers.scene_files import scene_names
    from .model import Model, ModelError
    from .show.layout import Camera
    from .show.pictures.gif import render_gif
    from .show.pictures.render import render, render_png
    from .show.usd import UsdWriter, export_usd
    from .simulator import Simulator
    from .trajectory import Trajectory, TrajectoryWriter

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
    "UsdWriter",
    "combine",
    "difference",
    "export_usd",
    "from_log_cholesky",
    "load",
    "log_cholesky",
    "render",
    "render_gif",
    "render_png",
    "retract",
    "scene_names",
]

# Names are imported when they are first used: `warp-articulated --help` should not wait for torch, Warp and USD.
_HOMES = {
    "importers.combine": "combine",
    "show.pictures.gif": "render_gif",
    "geometry.inertia": "from_log_cholesky log_cholesky",
    "show.layout": "Camera",
    "importers.loading": "load",
    "model": "Model ModelError",
    "device.results": "Contacts Diagnostics",
    "show.pictures.render": "render render_png",
    "importers.scene_files": "scene_names",
    "simulator": "Simulator",
    "geometry.tangent": "difference retract",
    "trajectory": "Trajectory TrajectoryWriter",
    "show.usd": "UsdWriter export_usd",
}
_MODULES = ("rl", "sensors", "terrain")  # subpackages, also imported when first used


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    for home, names in _HOMES.items():
        if name in names.split():
            value = getattr(import_module(f".{home}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
