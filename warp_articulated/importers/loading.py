"""load(): reads every kind of robot and scene."""

from __future__ import annotations

import difflib
import inspect
import os
from pathlib import Path

from ..model import Model, ModelError
from ..model.file import load_model
from .scene_files import load_scene, load_scene_file, scene_names
from .urdf import load_urdf
from .xmlfile import root_tag

_OTHERS = {
    ".xacro": "expand it first (xacro file.xacro > file.urdf)",
    ".sdf": "convert it to URDF or MJCF",
    ".usd": "USD is written, not read; load the URDF or MJCF that it came from",
    ".usda": "USD is written, not read; load the URDF or MJCF that it came from",
    ".usdc": "USD is written, not read; load the URDF or MJCF that it came from",
    ".usdz": "USD is written, not read; load the URDF or MJCF that it came from",
}


def load(name_or_path: str | Path, **options) -> Model:
    """The model of a scene's name ("laikago"), or of a file.

    Files: URDF (.urdf), MJCF (.xml, .mjcf), models from Model.save (.npz), your own scenes (.json, docs/scenes.md).

    options: keyword arguments of load_urdf or load_mjcf, whichever reads the file; other kinds take none.
    """
    if not isinstance(name_or_path, (str, Path)):
        raise ModelError(f"load: {name_or_path!r} is neither a scene's name nor a path.")
    if str(name_or_path) in scene_names():
        _check_options(options, (), f"the scene {str(name_or_path)!r}")
        return load_scene(str(name_or_path))
    path = Path(name_or_path)
    if os.path.isdir(path):  # Path.is_dir() raises an error for names that no file can have
        raise ModelError(f"{path}: this is a directory; give the .urdf or .xml file in it.")
    if not os.path.exists(path):
        raise ModelError(f"{path}: there is no such file, and no scene of this name.{_similar(str(name_or_path))}")
    suffix = path.suffix.lower()
    if suffix == ".urdf" or (suffix == ".xml" and root_tag(path) == "robot"):
        return _call(load_urdf, path, options)
    if suffix in (".xml", ".mjcf"):
        from .mjcf import load_mjcf

        return _call(load_mjcf, path, options)
    if suffix in (".npz", ".json"):
        _check_options(options, (), str(path))
        return load_model(path) if suffix == ".npz" else load_scene_file(path)
    more = f": {_OTHERS[suffix]}" if suffix in _OTHERS else ""
    raise ModelError(
        f"{path}: files of kind {suffix or 'without a suffix'} are not read{more}; .urdf, .xml, .mjcf, .npz, .json are."
    )


def _call(reader, path: Path, options: dict) -> Model:
    accepted = [p.name for p in inspect.signature(reader).parameters.values() if p.kind == p.KEYWORD_ONLY]
    _check_options(options, accepted, str(path))
    return reader(path, **options)


def _check_options(options: dict, accepted, what: str) -> None:
    for name in options:
        if name not in accepted:
            listed = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise ModelError(f"load: the option {name!r} does not apply to {what}; {listed}.")


def _similar(name: str) -> str:
    if Path(name).suffix or len(Path(name).parts) > 1:  # a file was meant
        return ""
    scenes = scene_names()
    close = difflib.get_close_matches(Path(name).stem.lower(), scenes, n=3, cutoff=0.5)
    if close:
        return f" Did you mean the scene {' or '.join(map(repr, close))}?"
    return f" The scenes are {', '.join(scenes)}."
