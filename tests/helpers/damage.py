"""Damaged files, made from good ones: seeded changes of URDF, mesh, MJCF, scene, model and trajectory files.

`Damage(folder).write(kind, seed)` writes the same file for the same kind and seed: a seed names an input.
"""

from __future__ import annotations

import copy
import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

import warp_articulated as wa
from warp_articulated.importers import scene_files
from warp_articulated.model.file import model_arrays

SUFFIX = {"urdf": ".urdf", "mesh": ".urdf", "mjcf": ".xml", "scene": ".json", "model": ".npz", "trajectory": ".npz"}
NUMBERS = (
    "nan inf -inf 1e400 1e308 -1e200 1e30 1e16 1e15 1e8 -1 0 -0.0 0.5 3 1e-9 1e-30 1e-200 1e-320 2147483648 "
    "9223372036854775808 1_0 0x10"
).split()
WORDS = [
    *NUMBERS, "", " ", "abc", "1 2", "0 0 0", "0 0 0 0", "1 2 3 4 5 6 7", "x" * 5000, "\u200bü", "world", "true",
    "../..", "package://a/b.stl", "ball.obj", "revolute", "free", "mesh", "box",
]  # fmt: skip
VALUES = [
    None, True, False, 0, -1, 1, 3.5, 1e200, 10**400, float("nan"), float("inf"), "", "abc", "\ud800", "x" * 5000, [],
    {}, [[]], [1], [1, 2, 3], [0] * 7, ["a", "b"], [["a", "b"]], [["ball", "ground"]], {"z": 1}, {"a": 1},
]  # fmt: skip
ENTRIES = [0, 1, -1, -2, 2, 3, 7, 255, 10**6, 2**31, 2**62, -(2**63), 0.5, np.nan, np.inf, -np.inf, 1e200, 1e-200, 1e15]
DTYPES = ["<i8", "<i4", "<u8", ">f8", "<f4", "<f2", "<c16", "?", "<U5", "S3", "M8[s]"]

MASS = '<origin xyz="0 0 0.01"/><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0.01"/>'
ROBOT = """<robot name="zoo">
<material name="red"><color rgba="1 0 0 1"/></material>
<link name="base"/>
<link name="ball">MASS<collision><geometry><sphere radius="0.1"/></geometry></collision></link>
<link name="box">MASS<visual><geometry><box size="1 1 1"/></geometry><material name="red"/></visual>
<collision><origin xyz="0 0 0.1" rpy="0 0.1 0"/><geometry><box size="0.1 0.2 0.3"/></geometry></collision>
<contact><lateral_friction value="0.5"/><restitution value="0.2"/></contact></link>
<link name="can">MASS<collision><geometry><cylinder radius="0.1" length="0.2"/></geometry></collision></link>
<link name="hull">MASS<collision><geometry><mesh filename="ball.obj" scale="1 1 1"/></geometry></collision></link>
<link name="floor"><collision><geometry><plane normal="0 0 1"/></geometry></collision></link>
<joint name="set" type="fixed"><parent link="base"/><child link="floor"/><origin xyz="0 0 -1"/></joint>
<joint name="turn" type="revolute"><parent link="base"/><child link="ball"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="5" velocity="1"/><dynamics damping="0.1" friction="0.01"/></joint>
<joint name="slide" type="prismatic"><parent link="ball"/><child link="box"/><origin xyz="0.3 0 0" rpy="0.1 0.2 0.3"/>
<axis xyz="1 0 0"/><limit lower="-0.1" upper="0.1" effort="5" velocity="1"/></joint>
<joint name="socket" type="spherical"><parent link="box"/><child link="can"/><origin xyz="0.3 0 0"/></joint>
<joint name="flight" type="floating"><parent link="base"/><child link="hull"/><origin xyz="0 1 1"/></joint>
</robot>
""".replace("MASS", f"<inertial>{MASS}</inertial>")

MUJOCO = """<mujoco model="zoo">
<compiler angle="degree" autolimits="true"/>
<option gravity="0 0 -9.81" timestep="0.001"><flag contact="enable"/></option>
<default><joint damping="0.1" armature="0.01"/><geom friction="0.8 0.1 0.1" density="500"/></default>
<asset><mesh name="tetra" vertex="0 0 0 0.1 0 0 0 0.1 0 0 0 0.1"/><material name="red" rgba="1 0 0 1"/></asset>
<worldbody>
<geom name="floor" type="plane" size="1 1 0.1"/>
<body name="trunk" pos="0 0 1" quat="1 0 0 0"><freejoint name="root"/><geom type="sphere" size="0.1" material="red"/>
<site name="tip" pos="0 0 0.1"/>
<body name="arm" pos="0.2 0 0" euler="0 10 0"><joint name="hip" type="hinge" axis="0 1 0" range="-60 60" stiffness="1"
springref="5" frictionloss="0.1"/><geom name="upper" type="capsule" fromto="0 0 0 0.2 0 0" size="0.03"/>
<body name="hand" pos="0.3 0 0"><joint name="slider" type="slide" axis="1 0 0" range="-0.1 0.1" ref="0.01"/>
<joint name="wrist" type="hinge" axis="0 0 1"/><geom type="box" size="0.05 0.04 0.03"/>
<inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/></body></body></body>
<body name="stone" pos="1 0 1"><joint name="socket" type="ball"/><geom type="mesh" mesh="tetra"/>
<geom type="ellipsoid" size="0.1 0.2 0.1" pos="0 0.2 0" contype="0" conaffinity="0"/>
<geom type="cylinder" size="0.1 0.1" pos="0 0 0.3"/></body>
</worldbody>
<contact><pair geom1="floor" geom2="upper" friction="0.5 0.5 0.1 0.1 0.1" condim="3"/>
<exclude body1="trunk" body2="stone"/></contact>
<actuator><motor joint="hip" gear="3" ctrlrange="-1 1"/><position joint="slider" kp="10" kv="1" forcerange="-5 5"/>
<velocity joint="wrist" kv="2"/></actuator>
<equality><joint joint1="hip" joint2="wrist"/></equality>
<keyframe><key name="home" qpos="0 0 1 1 0 0 0 0 0.01 0 1 0 0 0"/></keyframe>
</mujoco>
"""


CORNERS = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]], "<f4")
TRIANGLES = CORNERS[[[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]]
RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
COLLADA = """<COLLADA><asset><unit meter="0.5"/></asset><library_geometries><geometry id="g"><mesh><source id="s">
<float_array id="f" count="12">0 0 0 0.1 0 0 0 0.1 0 0 0 0.1</float_array></source>
<vertices id="v"><input semantic="POSITION" source="#s"/></vertices></mesh></geometry></library_geometries>
<library_nodes><node id="n"><instance_geometry url="#g"/></node></library_nodes>
<library_visual_scenes><visual_scene><node><translate>0 0 1</translate><rotate>0 0 1 30</rotate><scale>1 1 2</scale>
<matrix>1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1</matrix><instance_geometry url="#g"/><instance_node url="#n"/></node>
</visual_scene></library_visual_scenes></COLLADA>
"""


def meshes() -> dict[str, list[bytes]]:
    """The same tetrahedron in every format, by suffix."""
    binary = np.zeros(4, RECORD)
    binary["corners"] = TRIANGLES
    points = [[" ".join(map(str, corner)) for corner in triangle] for triangle in TRIANGLES.tolist()]
    text = "\n".join(f"facet\nouter loop\n{''.join(f'vertex {p}' + chr(10) for p in t)}endloop" for t in points)
    obj = "\n".join(f"v {' '.join(map(str, corner))}" for corner in CORNERS.tolist())
    stl = [bytes(80) + np.array(4, "<u4").tobytes() + binary.tobytes(), f"solid a\n{text}\nendsolid".encode()]
    return {".stl": stl, ".obj": [obj.encode()], ".dae": [COLLADA.encode()]}


class Damage:
    """Writes damaged files into a folder, beside the good ones that they refer to."""

    def __init__(self, folder: Path):
        self.folder = folder
        scenes = scene_files._folder()
        for path in scenes.glob("*.urdf"):
            shutil.copy(path, folder)
        (folder / "ball.obj").write_text("v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\n")
        (folder / "zoo.urdf").write_text(ROBOT)
        (folder / "zoo.xml").write_text(MUJOCO)
        robots = ["cartpole.urdf", "hopper.urdf", "laikago.urdf", "racecar.urdf"]
        self.texts = {
            "urdf": [ROBOT] * 4 + [(scenes / name).read_text() for name in robots],
            "mjcf": [MUJOCO],
            "scene": [
                (scenes / f"{name}.json").read_text() for name in ("golf", "ant", "hopper", "panda_throw", "laikago")
            ],
        }
        self.arrays = {"model": [], "trajectory": []}
        zoo = wa.load(folder / "zoo.urdf")
        for model in (zoo, wa.load("laikago"), wa.load("panda_throw")):
            arrays = model_arrays(model)
            motion = {"q": np.tile(model.q0, (3, 2, 1)), "dt": np.array(0.01), "env_ids": np.arange(2)}
            motion |= {"qd": np.zeros((3, 2, model.nv)), "u": np.zeros((2, 2, model.nu))}
            self.arrays["model"].append(arrays)
            self.arrays["trajectory"].append(motion | arrays)

    def write(self, kind: str, seed: int) -> Path:
        """The damaged file of that kind and seed."""
        rng = random.Random(f"{kind} {seed}")
        path = self.folder / f"damaged-{kind}-{seed}{SUFFIX[kind]}"
        if kind == "mesh":
            suffix, contents = rng.choice(list(meshes().items()))
            path.with_suffix(suffix).write_bytes(change_mesh(rng, rng.choice(contents)))
            path.write_text(ROBOT.replace("ball.obj", path.with_suffix(suffix).name))
        else:
            path.write_bytes(self._content(kind, rng))
        return path

    def _content(self, kind: str, rng: random.Random) -> bytes:
        as_bytes = rng.random() < 0.3
        if kind in self.arrays:
            arrays = dict(rng.choice(self.arrays[kind]))
            for _ in range(0 if as_bytes else rng.randint(1, 2)):
                change_arrays(rng, arrays)
            file = io.BytesIO()
            (np.savez_compressed if rng.random() < 0.5 else np.savez)(file, **arrays)
            data = file.getvalue()
        else:
            data = rng.choice(self.texts[kind]).encode()
            if not as_bytes:
                changed = change_json if kind == "scene" else change_xml
                data = changed(rng, data.decode(), rng.randint(1, 2))
        return change_bytes(rng, data) if as_bytes else data


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flips, overwrites, cuts, repeats or inserts some bytes, up to three times."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        to = min(at + rng.choice([1, 1, 2, 8, 100]), len(data))
        noise = bytes(rng.randrange(256) for _ in range(rng.choice([1, 2, 8])))
        flipped = bytes(x ^ (1 << rng.randrange(8)) for x in data[at : at + 1])
        data = rng.choice(
            [
                data[:at] + flipped + data[at + 1 :],
                data[:at] + flipped + data[at + 1 :],
                data[:at] + noise + data[at + len(noise) :],
                data[:at] + noise + data[at:],
                data[:at] + data[to:],
                data[:to] + data[at:],
                data[:at] if rng.random() < 0.3 else data,
                data[:at] + rng.choice(NUMBERS).encode() + data[to:],
            ]
        )
    return data


def change_mesh(rng: random.Random, data: bytes) -> bytes:
    """Changes elements and attributes of Collada, bytes of all formats."""
    if data.startswith(b"<") and rng.random() < 0.5:
        return change_xml(rng, data.decode(), rng.randint(1, 2))
    return change_bytes(rng, data)


def change_xml(rng: random.Random, text: str, times: int) -> bytes:
    """Deletes, repeats, moves and renames elements and attributes, and changes values."""
    root = ElementTree.fromstring(text)
    for _ in range(times):
        elements = list(root.iter())
        parents = {child: parent for parent in elements for child in parent}
        element, other = rng.choice(elements), rng.choice(elements)
        attributes = list(element.attrib)
        action = rng.choice(["delete", "repeat", "move", "tag", "unset", "set", "number", "number", "number", "take"])
        if action == "delete" and element in parents:
            parents[element].remove(element)
        elif action == "repeat" and element in parents:
            parents[element].append(copy.deepcopy(element))
        elif action == "move":
            other.append(copy.deepcopy(element))
        elif action == "tag":
            element.tag = other.tag
        elif action == "take":
            element.attrib.update(other.attrib)
        elif attributes:
            name = rng.choice(attributes)
            words = element.attrib[name].split() or [""]
            words[rng.randrange(len(words))] = rng.choice(NUMBERS)
            values = {"unset": None, "set": rng.choice(WORDS), "number": " ".join(words)}
            element.attrib.pop(name)
            if values.get(action) is not None:
                element.attrib[name] = values[action]
    return ElementTree.tostring(root, "utf-8")


def change_json(rng: random.Random, text: str, times: int) -> bytes:
    """Replaces, deletes, repeats and renames entries."""
    root = json.loads(text)
    for _ in range(times):
        places = [(root, key) for key in root] if isinstance(root, dict) else []
        for holder, key in places:  # grows
            inner = holder[key]
            places += (
                [(inner, k) for k in (inner if isinstance(inner, dict) else range(len(inner)))]
                if isinstance(inner, (dict, list))
                else []
            )
        if not places:
            break
        holder, key = rng.choice(places)
        known = [*scene_files.SCENE_KEYS, *scene_files.ROBOT_KEYS, "hinge"]
        action = rng.choice(["replace", "number", "number", "delete", "add", "wrap"])
        if isinstance(holder[key], (int, float)) and action == "number":
            holder[key] = rng.choice([0, 1, -0.5, 0.3, 40, 1e4, 1e9, 1e15, 1e16, -3])
        elif action in ("replace", "number"):
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif action == "wrap":
            holder[key] = rng.choice([[holder[key]], {"z": holder[key]}, [holder[key]] * 2])
        elif action == "delete":
            del holder[key]
        elif isinstance(holder, dict):
            holder[rng.choice(known)] = copy.deepcopy(rng.choice([*VALUES, holder[key]]))
        else:
            holder.append(copy.deepcopy(rng.choice([*VALUES, holder[key]])))
    return json.dumps(root).encode()


def change_arrays(rng: random.Random, arrays: dict[str, Any]) -> None:
    """Changes numbers, types, lengths and names of one array."""
    name = rng.choice(list(arrays))
    array = np.array(arrays[name])

    def entry() -> np.ndarray:
        flat = array.ravel()
        if flat.size:
            with np.errstate(all="ignore"):
                value = np.array(rng.choice(ENTRIES))
                flat[rng.randrange(flat.size)] = value.astype(flat.dtype) if flat.dtype.kind != "U" else str(value)
        return flat.reshape(array.shape)

    def retyped() -> np.ndarray:
        try:
            with np.errstate(all="ignore"):
                return array.astype(rng.choice(DTYPES))
        except (ValueError, TypeError, UnicodeError):
            return np.zeros(array.shape, "S3")

    changes: list[Callable[[], np.ndarray]] = [
        entry, entry, entry, entry,
        retyped,
        lambda: array[:-1] if array.ndim else array[None],
        lambda: np.concatenate([array, array[-1:]]) if array.ndim else np.array([array] * 2),
        lambda: array.T.copy(),
        lambda: array[::-1].copy() if array.ndim else array,
        lambda: array.reshape(-1),
        lambda: np.array(arrays[rng.choice(list(arrays))]),
        lambda: np.zeros_like(array),
    ]  # fmt: skip
    if rng.random() < 0.05:
        del arrays[name]
    else:
        arrays[name] = rng.choice(changes)()
