"""The <collision> and <visual> elements of a URDF as Shapes: geometry, colours, contact properties, mesh files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..geometry.rotations import matrix_to_quat, rpy_to_matrix
from ..model import ModelError, Shape, ShapeType
from .meshes import load_hull
from .xmlfile import Element

Hull = tuple[np.ndarray, np.ndarray]  # vertices, faces
Geometry = tuple[ShapeType, Sequence[float] | np.ndarray, np.ndarray, Hull | None]
GEOMETRIES = "sphere, box, cylinder, capsule, mesh, plane"


def read_origin(parent: Element) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (3, 3) and position (3,) of an element's <origin>, the identity if it has none."""
    origin = parent.child("origin")
    if origin is None:
        return np.eye(3), np.zeros(3)
    return rpy_to_matrix(origin.vector("rpy", 3, (0, 0, 0))), origin.vector("xyz", 3, (0, 0, 0))


@dataclass
class ShapeReader:
    """Turns one link's elements into shapes; holds the options, colours and hulls that all links of a file share."""

    robot: Element
    folder: Path
    meshes: bool
    friction: float
    restitution: float
    skipped_meshes: int = 0
    deviations: dict[str, float] = field(default_factory=dict)  # of simplified hulls, m
    _colors: dict[str, tuple] = field(default_factory=dict)
    _hulls: dict[tuple, Hull] = field(default_factory=dict)

    def __post_init__(self):
        # materials may be defined once, anywhere, and then referred to by name
        visuals = [v for link in self.robot.all("link") for v in link.all("visual")]
        for material in self.robot.all("material") + [m for v in visuals for m in v.all("material")]:
            if material.child("color") is not None:
                color = tuple(float(x) for x in material.need("color").vector("rgba", 4))
                self._colors.setdefault(material.attributes.get("name", ""), color)

    def read(self, link: Element, index: int, R: np.ndarray, p: np.ndarray) -> list[Shape]:
        """Shapes of a <link> that is merged into link `index` of the model, at R, p in its frame.

        A link without collision shapes keeps its primitive visual shapes, so that pictures show it.
        """
        shapes = self._shapes(link, "collision", index, R, p)
        return shapes or self._shapes(link, "visual", index, R, p)

    def _shapes(self, link: Element, tag: str, index: int, R: np.ndarray, p: np.ndarray) -> list[Shape]:
        friction, restitution = self._contact(link)
        color = next((c for c in map(self._color, link.all("visual")) if c is not None), None)
        elements, shapes = link.all(tag), []
        for k, element in enumerate(elements):
            geometry = self._geometry(element, visual=tag == "visual")
            if geometry is None:
                continue
            kind, size, turn, hull = geometry
            if kind == ShapeType.PLANE and index >= 0:
                raise element.error("a plane must be fixed to the world, not to a moving link; use a box.")
            local_R, local_p = read_origin(element)
            name = element.attributes.get("name") or link.text("name") + (f"_{k}" if len(elements) > 1 else "")
            shape = Shape(
                type=kind,
                link=index,
                size=np.asarray(size, float),
                pos=p + R @ local_p,
                quat=matrix_to_quat(R @ local_R @ turn),
                name=name,
                body=link.text("name"),
                friction=friction,
                restitution=restitution,
                color=(self._color(element) or color) if tag == "visual" else color,
                collide=tag == "collision",
                vertices=hull[0] if hull else None,
                faces=hull[1] if hull else None,
            )
            shapes.append(shape)
        return shapes

    def _contact(self, link: Element) -> tuple[float, float]:
        """PyBullet's <contact> element, otherwise the values for the whole file."""
        values = {"lateral_friction": self.friction, "restitution": self.restitution}
        for element in [c for contact in link.all("contact") for c in contact.children]:
            if element.tag in values:
                values[element.tag] = element.number("value", minimum=0.0)
        return values["lateral_friction"], values["restitution"]

    def _color(self, visual: Element) -> tuple | None:
        material = visual.child("material")
        if material is None:
            return None
        if material.child("color") is not None:
            return tuple(float(x) for x in material.need("color").vector("rgba", 4))
        return self._colors.get(material.attributes.get("name", ""))

    def _geometry(self, element: Element, visual: bool) -> Geometry | None:
        """(type, size, rotation of the shape in its own frame, hull); None for a mesh that is left out."""
        shape = next((c for c in element.need("geometry").children), None)
        if shape is None:
            raise element.need("geometry").error(f"it is empty; one of {GEOMETRIES} is needed.")
        eye = np.eye(3)
        if shape.tag == "sphere":
            return ShapeType.SPHERE, [shape.number("radius", above=0.0)], eye, None
        if shape.tag == "box":
            lengths = shape.vector("size", 3)
            if lengths.min() <= 0:
                raise shape.error(f'size="{shape.text("size")}" must be three positive numbers.')
            return ShapeType.BOX, lengths / 2, eye, None
        if shape.tag in ("cylinder", "capsule"):
            size = [shape.number("radius", above=0.0), shape.number("length", above=0.0) / 2]
            return (ShapeType.CYLINDER if shape.tag == "cylinder" else ShapeType.CAPSULE), size, eye, None
        if shape.tag == "plane":
            return ShapeType.PLANE, np.zeros(3), _frame_along(shape), None
        if shape.tag != "mesh":
            raise shape.error(f"this kind of shape is not known; the known ones are {GEOMETRIES}.")
        if visual:
            return None
        if not self.meshes:
            self.skipped_meshes += 1
            return None
        return ShapeType.MESH, np.zeros(3), eye, self._hull(shape)

    def _hull(self, mesh: Element) -> Hull:
        filename = mesh.text("filename")
        scale = mesh.vector("scale", 3, (1, 1, 1))
        path = find_mesh(filename, self.folder)
        if path is None:
            raise mesh.error(
                f"the mesh file {filename!r} was not found in the URDF's folder, in a folder above it or on "
                "ROS_PACKAGE_PATH; put it there, or load with meshes=False to leave collision meshes out."
            )
        key = (path, *scale)
        if key not in self._hulls:
            try:
                *hull, deviation = load_hull(path, scale)
            except ModelError as error:
                raise mesh.error(f"{error} Load with meshes=False to leave collision meshes out.") from None
            self._hulls[key] = hull[0], hull[1]
            self.deviations[path.name] = deviation
        return self._hulls[key]


def find_mesh(filename: str, folder: Path) -> Path | None:
    """The file behind a mesh's file name or package://, model:// or file:// address; None if there is none.

    os.path, because Path.is_file() raises an error for names that no file can have, such as very long ones.
    """
    filename = filename.replace("\\", "/")
    scheme, _, rest = filename.partition("://")
    if not rest:
        path = folder / filename
        return path if os.path.isfile(path) else None
    if scheme == "file":
        path = Path(rest) if rest.startswith("/") else folder / rest
        return path if os.path.isfile(path) else None
    package, _, inner = rest.partition("/")
    roots = [folder, *folder.parents]
    roots += [Path(entry) for entry in os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep) if entry]
    for root in roots:
        for place in (root / package / inner, root / inner if root.name == package else None):
            if place is not None and os.path.isfile(place):
                return place
    return None


def _frame_along(plane: Element) -> np.ndarray:
    """A rotation that turns z into the plane's normal."""
    normal = plane.vector("normal", 3, (0, 0, 1))
    length = np.linalg.norm(normal)
    if length < 1e-9:
        raise plane.error("the normal is zero; it must point out of the ground.")
    z = normal / length
    x = np.cross([0.0, 1.0, 0.0] if abs(z[1]) < 0.9 else [1.0, 0.0, 0.0], z)
    x /= np.linalg.norm(x)
    return np.column_stack([x, np.cross(z, x), z])
