"""The table of physical parameters. Structs of the kernels, checks, default values and documentation come from it.

To add a parameter: one row here and its use in a stage of kernels/; docs/architecture.md has the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model import Model
from ..model.ties import POWERS

COUNTS = (  # of a model, that axes may have
    "links", "nv", "nu", "pairs", "shapes", "loops", "couplings", "terms", "rows", "columns",
)  # fmt: skip
FIXED = {"ends": 2, "powers": POWERS}  # of a loop; of a polynomial
# gradients of one group are computed together
GROUPED = ("bodies", "placements", "joints", "touch", "ties", "terrain")
VALUES = ((), (3,), (3, 3), (4,))  # a number, a vector, a matrix; a quaternion, which the kernels see as a matrix


@dataclass(frozen=True)
class Parameter:
    """One row of the table: a quantity that may differ between environments and that gradients can be asked for."""

    name: str
    shape: tuple[int | str, ...]  # of one environment: COUNTS, then one of VALUES; (1,): one number
    unit: str
    group: str  # one of GROUPED
    meaning: str
    signed: bool = False  # False: negative values are refused
    infinite: bool = False  # True: inf means that there is no limit
    # what it starts from: Model's attribute, if not of the same name, or a function of the model; None: an option
    source: str | Callable[[Model], object] | None = ""
    device: str = ""  # name in the kernels' Params, if another
    device_bar: str = ""  # name in the kernels' ParamsBar, if another

    def __post_init__(self):
        if self.group not in GROUPED:
            raise ValueError(f"parameter {self.name}: group is {self.group!r}; it must be one of {', '.join(GROUPED)}.")
        if not set(self.counts) <= {*COUNTS, *FIXED} or self.value_shape not in VALUES:
            raise ValueError(
                f"parameter {self.name}: shape is {self.shape}; it must be some of {', '.join(COUNTS)}, then nothing, "
                "3, (3, 3) or 4; or (1,)."
            )

    @property
    def counts(self) -> tuple[str, ...]:
        """Axes whose length depends on the model."""
        return tuple(n for n in self.shape if isinstance(n, str))

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Axes of one value: () for a number, (3,) for a vector, (3, 3) for a matrix."""
        inner = tuple(n for n in self.shape if isinstance(n, int))
        return () if inner == (1,) else inner


def _heights(model: Model) -> np.ndarray:
    """(rows, columns) of the model's field, (0, 0) without one."""
    field = model.field
    return np.zeros((0, 0)) if field is None else np.asarray(field.heights, float)


def _shape_sizes(model: Model) -> list[np.ndarray]:
    """Sizes of the shapes as three numbers each."""
    return [np.pad(np.ravel(shape.size), (0, 3 - np.size(shape.size))) for shape in model.shapes]


_ROWS = (
    Parameter("gravity", (3,), "m/s²", "joints", "acceleration of free fall, world axes", signed=True),
    Parameter("mass", ("links",), "kg", "bodies", "of each link"),
    Parameter("com", ("links", 3), "m", "bodies", "centre of mass in the link's frame", signed=True),
    Parameter(
        "inertia", ("links", 3, 3), "kg m²", "bodies", "about the centre of mass, in the link's axes; symmetric",
        signed=True,
    ),
    Parameter("gravcomp", ("links",), "1", "bodies", "share of a link's weight that a force holds", signed=True),
    Parameter(
        "joint_pos", ("links", 3), "m", "placements", "origin of the joint in the parent link's frame", signed=True
    ),
    Parameter(
        "joint_quat", ("links", 4), "1", "placements",
        "orientation of the joint in the parent link's frame, xyzw, of unit length", signed=True, device="joint_rot",
        device_bar="joint_turn",
    ),
    Parameter("armature", ("nv",), "kg m² or kg", "joints", "rotor inertia seen at the joint"),
    Parameter("damping", ("nv",), "N m s/rad or N s/m", "joints", "viscous friction of the joint"),
    Parameter("stiffness", ("nv",), "N m/rad or N/m", "joints", "spring of the joint, about `model.spring_ref`"),
    Parameter("frictionloss", ("nv",), "N m or N", "joints", "dry friction of the joint"),
    Parameter("lower", ("nv",), "rad or m", "joints", "joint limit; -inf: none", signed=True, infinite=True),
    Parameter("upper", ("nv",), "rad or m", "joints", "joint limit; inf: none", signed=True, infinite=True),
    Parameter(
        "limit_restitution", ("nv",), "1", "touch", "share of the approach speed that a joint limit gives back"
    ),
    Parameter("kp", ("nu",), "N m/rad or N/m", "joints", "position gain of a drive"),
    Parameter("kd", ("nu",), "N m s/rad or N s/m", "joints", "velocity gain of a drive"),
    Parameter(
        "effort_limit", ("nu",), "N m or N", "joints",
        "largest force of a drive, about `model.effort_center`; inf: none",
        infinite=True, source="effort",
    ),
    Parameter(
        "friction", ("pairs",), "1", "touch", "Coulomb coefficient of a collision pair, of both shapes together",
        source="pair_friction",
    ),
    Parameter(
        "restitution", ("pairs",), "1", "touch", "share of the approach speed that a collision pair gives back",
        source="pair_restitution",
    ),
    Parameter(
        "shape_pos", ("shapes", 3), "m", "touch", "origin of a shape in its link's frame", signed=True,
        source=lambda model: [shape.pos for shape in model.shapes],
    ),
    Parameter(
        "shape_size", ("shapes", 3), "m", "touch", "see `ShapeType`; unused entries are zero", source=_shape_sizes
    ),
    Parameter(
        "erp", (1,), "1", "touch", "share of a penetration or limit violation that is removed per step", source=None
    ),
    Parameter("cfm", (1,), "1/kg", "touch", "compliance of contact normals and joint limits", source=None),
    Parameter(
        "heights", ("rows", "columns"), "m", "terrain",
        "of the model's height field or block field; a gradient takes as many numbers for every environment",
        signed=True, source=_heights,
    ),
    Parameter(
        "terrain_origin", (3,), "m", "touch",
        "place in the world to which an environment's field is moved back: the field is shifted by minus this",
        signed=True, source=lambda model: np.zeros(3),
    ),
    Parameter(
        "loop_pos", ("loops", "ends", 3), "m", "ties", "the two points that a loop joins, in their links' frames",
        signed=True, source=lambda model: model.ties.loop_pos,
    ),
    Parameter(
        "loop_cfm", ("loops", "ends"), "1/kg or 1/(kg m²)", "ties", "compliance of a loop against shifts and turns",
        source=lambda model: model.ties.loop_cfm,
    ),
    Parameter(
        "coupling_coef", ("terms", "powers"), "1", "ties",
        "polynomial of a coupled joint's position, from the constant to t⁴", signed=True,
        source=lambda model: model.ties.coupling_coef,
    ),
    Parameter(
        "coupling_cfm", ("couplings",), "1/kg", "ties", "compliance of a coupling that is held",
        source=lambda model: model.ties.coupling_cfm,
    ),
    Parameter(
        "tendon_stiffness", ("couplings",), "N/m", "ties", "spring of a tendon, beyond its rest lengths",
        source=lambda model: model.ties.tendon_stiffness,
    ),
    Parameter(
        "tendon_damping", ("couplings",), "N s/m", "ties", "viscous friction of a tendon",
        source=lambda model: model.ties.tendon_damping,
    ),
)  # fmt: skip
PARAMETERS: dict[str, Parameter] = {row.name: row for row in _ROWS}
GROUPS = {group: tuple(row.name for row in _ROWS if row.group == group) for group in GROUPED}


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter of one environment."""
    counts = {
        "links": model.num_links,
        "nv": model.nv,
        "nu": model.nu,
        "pairs": len(model.pairs),
        "shapes": len(model.shapes),
        "loops": len(model.ties.loop_names),
        "couplings": len(model.ties.coupling_names),
        "terms": len(model.ties.term_dof),
        **FIXED,
        **dict(zip(("rows", "columns"), _heights(model).shape)),
    }
    return {name: tuple(counts[n] if isinstance(n, str) else n for n in row.shape) for name, row in PARAMETERS.items()}


def defaults(model: Model, **options: float) -> dict[str, np.ndarray]:
    """The model's own values, in the shapes of one environment; options: what the Simulator was given."""
    values = {}
    for name, shape in shapes(model).items():
        source = PARAMETERS[name].source
        if source is None:
            value: object = options[name]
        else:
            value = source(model) if callable(source) else getattr(model, source or name)
        values[name] = np.asarray(value, float).reshape(shape)
    return values
