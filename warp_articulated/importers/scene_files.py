"""Scenes by name: JSON files that combine robots, read from the folder scenes/ (format: docs/scenes.md).

In an installed package that folder is warp_articulated.scenes; in a checkout it is next to this package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..model import WORLD, Model, ModelError, Shape, ShapeType
from ..model.validate import LARGEST, name_pairs, names_in
from .combine import combine
from .urdf import load_urdf

SCENE_KEYS = ("description", "robots", "ground", "friction", "restitution", "gravity", "q0", "u0", "exclude")
LOADER_KEYS = (
    "floating", "drive", "kp", "kd", "effort", "passive", "self_collision", "exclude", "friction", "restitution",
    "meshes", "mimic",
)  # fmt: skip
JOINT_KEYS = ("armature", "damping", "stiffness", "spring_ref", "frictionloss", "limit_restitution")
ROBOT_KEYS = ("file", "name", "pose", "collide", "gear", *LOADER_KEYS, *JOINT_KEYS)


def scene_names() -> list[str]:
    """Names that load() and load_scene() know, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("*.json"))


def scene_description(name: str) -> str:
    """One sentence about a scene."""
    return json.loads((_folder() / f"{name}.json").read_text("utf-8")).get("description", "")


def load_scene(name: str) -> Model:
    """The scene `name` of scene_names()."""
    if name not in scene_names():
        raise ModelError(f"There is no scene called {name!r}; the scenes are {', '.join(scene_names())}.")
    return load_scene_file(_folder() / f"{name}.json")


def load_scene_file(path: str | Path) -> Model:
    """The scene of a JSON file; paths of its robots' files are relative to its folder."""
    path = Path(path)
    try:
        # as a float a long number becomes infinite and is refused below; as an int it would be an OverflowError there
        scene = json.loads(path.read_text("utf-8"), parse_int=lambda text: int(text) if len(text) < 19 else float(text))
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise ModelError(f"{path}: the file is not JSON: {error}.") from None
    except RecursionError:
        raise ModelError(f"{path}: its brackets are nested too deeply.") from None
    _check_keys(f"{path}", scene, SCENE_KEYS, "a scene")
    robots = scene.get("robots")
    if not isinstance(robots, list) or not robots:
        raise ModelError(f"{path}: 'robots' must be a list of one robot or more.")
    ground = scene.get("ground", False)
    if not (isinstance(ground, bool) or (isinstance(ground, Mapping) and set(ground) == {"z"})):
        raise ModelError(f"{path}: 'ground' is {ground!r}; it must be true, false or {{\"z\": height}}.")
    if isinstance(ground, Mapping) and not _is_number(ground["z"]):
        raise ModelError(f"{path}: the ground's 'z' is {ground['z']!r}; it must be a number up to {LARGEST:g}.")
    if not isinstance(scene.get("q0", {}), Mapping):
        raise ModelError(f"{path}: 'q0' is {scene['q0']!r}; it must be a JSON object of positions by joint name.")
    # the first robot gets the ground; combine() lets the others touch it
    has_ground = ground is not False
    models = [_load_robot(path, robot, scene, has_ground and k == 0) for k, robot in enumerate(robots)]
    try:
        return _placed(models, robots, scene, path)
    except ModelError as error:  # combine() and with_pose() do not know the file
        raise error if str(error).startswith(f"{path}") else ModelError(f"{path}: {error}") from None


def _placed(models: list[Model], robots: list[Mapping], scene: Mapping, path: Path) -> Model:
    """All robots in one environment, in their default pose, without the pairs that must not touch."""
    poses = [robot.get("pose") for robot in robots]
    model = models[0]
    if len(models) > 1 or poses[0] is not None:
        names = [robot.get("name", "") for robot in robots]
        model = combine(models, poses=poses, names=names if all(names) else None)
    model = replace(model, name=path.stem)
    ground, u0 = scene.get("ground"), scene.get("u0")
    if isinstance(ground, Mapping):
        model = replace(model, shapes=tuple(_lifted(shape, ground["z"]) for shape in model.shapes))
    model = _without_pairs(model, scene.get("exclude", ()), path)
    return model.with_pose(scene.get("q0", {}), u0) if "q0" in scene or u0 is not None else model


def _folder() -> Path:
    try:
        return Path(str(resources.files("warp_articulated.scenes")))
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[2] / "scenes"


def _load_robot(path: Path, robot: Mapping, scene: Mapping, ground: bool) -> Model:
    _check_keys(f"{path}", robot, ROBOT_KEYS, "a robot")
    if "file" not in robot:
        raise ModelError(f"{path}: a robot has no 'file'; it must name a URDF file in the scene's folder.")
    for key in ("file", "name"):
        if not isinstance(robot.get(key, ""), str) or not robot.get(key, "").isprintable():
            raise ModelError(f"{path}: a robot's {key!r} is {robot[key]!r}; it must be text.")
    options = {key: scene[key] for key in ("friction", "restitution", "gravity") if key in scene}
    options |= {key: robot[key] for key in LOADER_KEYS if key in robot}
    model = load_urdf(path.parent / robot["file"], ground=ground, **options)
    if "collide" in robot:
        model = _only_colliding(model, robot["collide"], path)
    changes: dict[str, Any] = {key: _per_dof(model, key, robot[key], path) for key in JOINT_KEYS if key in robot}
    if "gear" in robot:
        changes["gear"] = _per_drive(model, robot["gear"], path)
    for values in changes.values():
        values.setflags(write=False)
    return replace(model, **changes)


def _only_colliding(model: Model, bodies: list[str], path: Path) -> Model:
    """Keep the collisions of some bodies of the file; other shapes are only visible."""
    known = {s.body for s in model.shapes}
    for body in names_in(path, "collide", bodies):
        if body not in known:
            raise ModelError(f"{path}: 'collide' names {body!r}, which has no shape; {', '.join(sorted(known))} have.")
    keep = [s.collide and (s.body in bodies or s.link == WORLD) for s in model.shapes]
    shapes = tuple(replace(s, collide=kept) for s, kept in zip(model.shapes, keep, strict=True))
    return _filter_pairs(replace(model, shapes=shapes), [keep[a] and keep[b] for a, b in model.pairs])


def _without_pairs(model: Model, exclude, path: Path) -> Model:
    known = {s.body for s in model.shapes}
    exclude = name_pairs(path, "exclude", exclude, "body")
    for name in (name for pair in exclude for name in pair):
        if name not in known:
            raise ModelError(f"{path}: 'exclude' names {name!r}, which has no shape; {', '.join(sorted(known))} have.")
    if not exclude:
        return model
    excluded = {frozenset(pair) for pair in exclude}
    bodies = [s.body for s in model.shapes]
    return _filter_pairs(model, [frozenset((bodies[a], bodies[b])) not in excluded for a, b in model.pairs])


def _filter_pairs(model: Model, keep: list[bool]) -> Model:
    mask = np.array(keep, bool)
    chosen = {key: getattr(model, key)[mask] for key in ("pairs", "pair_friction", "pair_restitution")}
    for values in chosen.values():
        values.setflags(write=False)
    return replace(model, **chosen)


def _per_dof(model: Model, key: str, value, path: Path) -> np.ndarray:
    """The model's values, replaced for all revolute and prismatic joints, or for some by joint name."""
    values = getattr(model, key).copy()
    hinges = [model.joint_v(name) for name in model.joint_names]
    if isinstance(value, Mapping):
        for name, number in value.items():
            values[model.joint_v(name)] = _positive(number, key, path)
    else:
        for place in hinges:
            if place.stop - place.start == 1:
                values[place] = _positive(value, key, path)
    return values


def _per_drive(model: Model, value, path: Path) -> np.ndarray:
    gear = model.gear.copy()
    if not isinstance(value, Mapping):
        gear[:] = _positive(value, "gear", path)
        return gear
    for name, number in value.items():
        if name not in model.drive_names:
            raise ModelError(f"{path}: 'gear' names {name!r}, which is no drive; {', '.join(model.drive_names)} are.")
        gear[model.drive_names.index(name)] = _positive(number, "gear", path)
    return gear


def _positive(value, key: str, path: Path) -> float:
    signed = key == "spring_ref"
    if not _is_number(value) or (value < 0 and not signed) or (value == 0 and key == "gear"):
        allowed = {"spring_ref": "a number", "gear": "a positive number"}.get(key, "a number that is not negative")
        raise ModelError(f"{path}: {key!r} is {value!r}; it must be {allowed}, up to {LARGEST:g}.")
    return float(value)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _lifted(shape: Shape, height: float) -> Shape:
    if shape.type == ShapeType.PLANE and shape.link == WORLD and shape.name == "ground":
        return replace(shape, pos=np.array([0.0, 0.0, height]))
    return shape


def _check_keys(where: str, entry, accepted: tuple[str, ...], what: str) -> None:
    if not isinstance(entry, Mapping):
        raise ModelError(f"{where}: {what} must be a JSON object, not {entry!r}.")
    for key in entry:
        if key not in accepted:
            raise ModelError(f"{where}: {what} has no entry {key!r}; the entries are {', '.join(accepted)}.")
