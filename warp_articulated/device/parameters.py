"""The physical parameters that may differ between environments, their shapes and their default values."""

from __future__ import annotations

import numpy as np

from ..model import Model

# name: shape per environment in terms of the model's counts
SHAPES: dict[str, tuple[int | str, ...]] = {
    "gravity": (3,),  # m/s^2
    "mass": ("links",),  # kg
    "com": ("links", 3),  # m, in the link's frame
    "inertia": ("links", 3, 3),  # kg m^2, about the com, link axes
    "joint_pos": ("links", 3),  # m, in the parent link's frame
    "joint_quat": ("links", 4),  # xyzw
    "armature": ("nv",),  # kg m^2 or kg
    "damping": ("nv",),  # N m s or N s/m
    "stiffness": ("nv",),  # N m/rad or N/m
    "frictionloss": ("nv",),  # N m or N
    "lower": ("nv",),  # rad or m
    "upper": ("nv",),
    "kp": ("nu",),  # N m/rad or N/m
    "kd": ("nu",),  # N m s or N s/m
    "effort_limit": ("nu",),  # N m or N
    "friction": ("pairs",),  # of the two shapes of a collision pair together
    "restitution": ("pairs",),
    "shape_pos": ("shapes", 3),  # m, in the link's frame
    "shape_size": ("shapes", 3),  # m, see model.ShapeType
    "erp": (1,),  # share of the penetration removed per step
    "cfm": (1,),  # 1/kg, compliance of contact normals and joint limits
}

# what the adjoint kernels compute together
GROUPS: dict[str, tuple[str, ...]] = {
    "bodies": ("mass", "com", "inertia"),
    "placements": ("joint_pos", "joint_quat"),
    "joints": (
        "gravity", "armature", "damping", "stiffness", "frictionloss", "lower", "upper", "kp", "kd", "effort_limit",
    ),
    "touch": ("friction", "restitution", "shape_pos", "shape_size", "erp", "cfm"),
}  # fmt: skip


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of one environment."""
    counts = {
        "links": model.num_links,
        "nv": model.nv,
        "nu": model.nu,
        "pairs": len(model.pairs),
        "shapes": len(model.shapes),
    }
    return {name: tuple(counts[n] if isinstance(n, str) else n for n in shape) for name, shape in SHAPES.items()}


def defaults(model: Model, erp: float, cfm: float) -> dict[str, np.ndarray]:
    """The model's own values, in the shapes of one environment."""
    values = {
        "effort_limit": model.effort,
        "friction": model.pair_friction,
        "restitution": model.pair_restitution,
        "shape_pos": [shape.pos for shape in model.shapes],
        "shape_size": [_padded(shape.size) for shape in model.shapes],
        "erp": [erp],
        "cfm": [cfm],
    }
    return {
        name: np.asarray(values[name] if name in values else getattr(model, name), float).reshape(shape)
        for name, shape in shapes(model).items()
    }


def _padded(size) -> np.ndarray:
    size = np.ravel(size)
    return np.concatenate([size, np.zeros(3 - len(size))])
