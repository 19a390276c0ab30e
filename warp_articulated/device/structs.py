"""A model's constants and parameters as the structs that the kernels take, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import warp as wp

from ..geometry.rotations import quat_to_matrix
from ..model import Model, ModelError, ShapeType
from ..model.pairs import CONVEX
from ..model.polytopes import Polytope, polytope_of
from .checks import plain_numpy
from .parameters import GROUPS, PARAMETERS
from .topology import tables


def model_struct(types, model: Model, device: wp.Device, solver: Mapping[str, float | int]):
    """The kernels' Model: tables of the forest, shapes, and the solver's settings."""

    def array(values, dtype):
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=device)

    struct = types.Model()
    for name, value in tables(model).items():
        setattr(struct, name, value if isinstance(value, int) else array(value, int))
    rotations = np.array([quat_to_matrix(shape.quat) for shape in model.shapes]).reshape(-1, 3, 3)
    corners = [shape.vertices if shape.vertices is not None else np.zeros((0, 3)) for shape in model.shapes]
    counts = np.array([len(c) for c in corners], int)
    struct.axis = array(np.vstack([np.zeros(3), model.axis]), types.vec3)
    struct.spring_ref = array(model.spring_ref, types.real)
    struct.gear = array(model.gear, types.real)
    struct.effort_center = array(model.effort_center, types.real)
    struct.thrust_pos = array(model.thrust_pos, types.vec3)
    struct.thrust_force = array(model.thrust_wrench[:, :3], types.vec3)
    struct.thrust_torque = array(model.thrust_wrench[:, 3:], types.vec3)
    struct.shape_rot = array(rotations, types.mat33)
    struct.shape_normal = array(rotations[:, :, 2], types.vec3)
    struct.shape_bound = array([np.linalg.norm(c, axis=1).max() if len(c) else 0.0 for c in corners], types.real)
    struct.vertex_start = array(np.cumsum(counts) - counts, int)
    struct.vertex_count = array(counts, int)
    struct.field_dx, struct.field_dy = (model.field and model.field.spacing) or (1.0, 1.0)
    struct.vertices = array(np.concatenate([*corners, np.zeros((0, 3))]), types.vec3)
    struct.loop_axes = array(model.ties.loop_axes, types.mat33)
    struct.loop_rot = array(quat_to_matrix(model.ties.loop_quat), types.mat33)
    struct.term_ref = array(model.ties.term_ref, types.real)
    struct.coupling_rest = array(model.ties.coupling_rest, types.real)
    struct.coupling_range = array(model.ties.coupling_range, types.real)
    struct.hulls = hulls_struct(types, hulls_of(model), array)
    for name, setting in solver.items():
        setattr(struct, name, setting)
    return struct


def hulls_of(model: Model) -> list[Polytope]:
    """The polytope of each shape that collides in a general pair; others get an empty one."""
    kinds = np.array([shape.type for shape in model.shapes], int)
    general = np.zeros((len(ShapeType), len(ShapeType)), bool)
    general[tuple(np.array(list(CONVEX)).T)] = True
    first, second = kinds[model.pairs].reshape(-1, 2).T
    used = set(np.unique(model.pairs[general[first, second]]).tolist())
    known: dict[int, Polytope] = {}
    hulls = []
    for k, shape in enumerate(model.shapes):
        key = id(shape.vertices) if shape.type == ShapeType.MESH else -int(shape.type)  # copies of a mesh share them
        if k in used and key not in known:
            known[key] = polytope_of(shape)
        hulls.append(known[key] if k in used else Polytope(np.zeros((0, 3))))
    return hulls


def hulls_struct(types, hulls: Sequence[Polytope], array: Callable):
    """The kernels' Hulls."""
    struct = types.Hulls()
    faces = [face for hull in hulls for face in hull.faces]
    counts = {"vertex": [len(h.vertices) for h in hulls], "face": [len(h.faces) for h in hulls]}
    neighbours = [others for hull in hulls for others in hull.neighbours]
    counts |= {"corner": [len(face) for face in faces], "neighbour": [len(others) for others in neighbours]}
    for name, count in counts.items():
        ends = np.cumsum(np.array(count, int))
        setattr(struct, f"{name}_start", array(ends - np.array(count, int), int))
        setattr(struct, f"{name}_count", array(np.array(count, int), int))
    struct.bound = array([hull.bound for hull in hulls], types.real)
    struct.thickness = array([hull.thickness for hull in hulls], types.real)
    struct.centre = array(np.array([hull.centre for hull in hulls]).reshape(-1, 3), types.vec3)
    struct.room = array(np.concatenate([np.zeros(0), *(hull.rooms for hull in hulls)]), types.real)
    struct.neighbours = array(np.array([vertex for others in neighbours for vertex in others], int), int)
    struct.corners = array(np.array([vertex for face in faces for vertex in face], int), int)
    columns = {"vertices": "vertices", "normal": "normals", "middle": "middles", "area": "areas", "sides": "sides"}
    for name, source in columns.items():
        rows = [np.zeros((0, 3)), *(getattr(hull, source) for hull in hulls)]
        setattr(struct, name, array(np.concatenate(rows), types.vec3))
    return struct


def turned_joints(joint_quat: torch.Tensor) -> torch.Tensor:
    """(links + 1,) flags: joints whose frame is turned against the parent's, in any environment."""
    one = joint_quat[:1] if joint_quat.stride(0) == 0 else joint_quat
    turned = (one[..., :3] != 0).any(-1).any(0)
    return torch.nn.functional.pad(turned.to(torch.int32), (1, 0))  # computed where it is used: CUDA need not wait


class Shared(torch.autograd.Function):
    """One value seen by all environments: (...) -> (num_envs, ...), stride 0.

    The gradient is summed pairwise, in an order that depends on nothing but the number of environments.
    """

    @staticmethod
    def forward(ctx, value: torch.Tensor, num_envs: int) -> torch.Tensor:
        return value.expand(num_envs, *value.shape)

    @staticmethod
    def backward(ctx, grad):
        return ordered_sum(grad), None


def ordered_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum over the first axis by halves."""
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        rest = x[2 * half :]
        x = x[:half] + x[half : 2 * half]
        if len(rest):
            x = torch.cat([x, rest])
    return x[0]


def broadcast(name: str, value, shape: tuple[int, ...], num_envs: int, like: torch.Tensor) -> torch.Tensor:
    """A parameter as (num_envs, *shape), without a copy where it is shared; accepts anything that can mean that."""
    try:
        tensor = torch.as_tensor(plain_numpy(value) if isinstance(value, np.ndarray) else value)
        if not isinstance(value, torch.Tensor):
            tensor = tensor.clone()  # numpy's memory may change before the backward pass
        if tensor.is_complex():
            raise TypeError
        tensor = tensor.to(dtype=like.dtype, device=like.device)
    except torch.OutOfMemoryError:  # a RuntimeError too, and not the value's fault
        raise
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"params[{name!r}] is a {type(value).__name__}; it must be a tensor or numbers.") from None
    inner = len(PARAMETERS[name].value_shape)
    if inner and tuple(tensor.shape[-inner:]) != tuple(shape[-inner:]):
        raise ValueError(f"params[{name!r}] has shape {tuple(tensor.shape)}; its last axes must be {shape[-inner:]}.")
    if tensor.ndim == 1 and len(shape) == 1 and not inner and tensor.shape[0] == num_envs != shape[0]:
        tensor = tensor[:, None]  # one number per environment
    try:
        if tensor.ndim == len(shape) + 1 and tensor.shape[0] == num_envs > 1:
            return tensor.expand(num_envs, *shape)
        if tensor.ndim == len(shape) + 1 and tensor.shape[0] == 1:
            tensor = tensor[0]
        return Shared.apply(tensor.expand(shape), num_envs)
    except RuntimeError:
        raise ValueError(
            f"params[{name!r}] has shape {tuple(tensor.shape)}; it must be {shape} (shared by all environments), "
            f"{(num_envs, *shape)} (one per environment), or broadcast to that."
        ) from None


def params_struct(types, values: Mapping[str, torch.Tensor], base=None):
    """The kernels' Params from tensors of shape (num_envs, ...), the rest of `base`. The tensors must outlive it."""
    struct = types.Params()
    held = []
    if base is not None:  # sixty times faster than making arrays of them again
        for name in PARAMETERS.keys() - values.keys():
            field = PARAMETERS[name].device or name
            setattr(struct, field, getattr(base, field))
        if "joint_quat" not in values:
            struct.turned = base.turned
    for name, value in values.items():
        value = value.detach()
        if name == "joint_quat":
            held.append(turned_joints(value))
            struct.turned = wp.from_torch(held[-1], requires_grad=False)
            value = rotation_matrices(value)
        array, value = parameter_array(types, name, value)
        held.append(value)
        setattr(struct, PARAMETERS[name].device or name, array)
    return struct, held


def params_bar_struct(types, groups: Iterable[str], arrays: Mapping[str, torch.Tensor]):
    """The kernels' ParamsBar: memory for the groups of parameters whose gradients are wanted."""
    struct = types.ParamsBar()
    for group in GROUPS:
        setattr(struct, group, int(group in groups))
    for name, value in arrays.items():
        setattr(struct, PARAMETERS[name].device_bar or name, parameter_array(types, name, value)[0])
    return struct


def parameter_array(types, name: str, value: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """A parameter or its gradient as the array that the kernels take, and the tensor that owns its memory."""
    outer = 1 + len(PARAMETERS[name].counts)
    if PARAMETERS[name].shape == (1,):
        value = value[:, 0]
    inner = value.ndim - outer
    dtype = (types.real, types.vec3, types.mat33)[inner]
    value = inner_contiguous(value, inner)
    if value.numel() == 0:  # from_torch cannot see that no element is contiguous with any other
        return wp.empty(tuple(value.shape)[:outer], dtype=dtype, device=str(value.device)), value
    return wp.from_torch(value, dtype=dtype, requires_grad=False), value


def inner_contiguous(value: torch.Tensor, inner: int) -> torch.Tensor:
    """Warp reads the last `inner` axes as one value, so they must lie together; the others may be stride 0."""
    expected = 1
    for axis in range(1, inner + 1):
        if value.stride(-axis) != expected:
            return value.contiguous()
        expected *= value.shape[-axis]
    return value


def rotation_matrices(quat: torch.Tensor) -> torch.Tensor:
    """(num_envs, ..., 4) quaternions xyzw to (num_envs, ..., 3, 3); what all environments share stays shared."""
    shared = quat.stride(0) == 0
    matrices = quat_to_matrix(quat[:1] if shared else quat)
    return matrices.expand(quat.shape[0], *matrices.shape[1:])


def check_values(values: Mapping[str, torch.Tensor], defaults: Mapping[str, torch.Tensor]) -> None:
    """Refuse parameters that no body can have. Looks at the numbers, so on CUDA it waits for them."""
    if "lower" in values or "upper" in values:
        lower, upper = (values.get(name, defaults[name]) for name in ("lower", "upper"))
        if bool((lower > upper).any()):
            place = torch.nonzero(lower > upper)[0].tolist()
            raise ValueError(f"params['lower'] is above params['upper'] at {place} (environment first).")
    for name, value in values.items():
        seen = value[:1] if value.stride(0) == 0 else value
        bad, kind = torch.isnan(seen), "is not a number"
        if not PARAMETERS[name].infinite:
            bad, kind = ~torch.isfinite(seen), "is not finite"
        if not bool(bad.any()) and not PARAMETERS[name].signed:
            bad, kind = seen < 0, "is negative"
        if name == "joint_quat" and not bool(bad.any()):
            bad, kind = seen.norm(dim=-1, keepdim=True) < 1e-3, "is a quaternion near zero"
        if name == "inertia" and not bool(bad.any()):
            bad, kind = indefinite(seen), "has a negative principal moment"
        if bool(bad.any()):
            place = torch.nonzero(bad)[0].tolist()
            raise ValueError(f"params[{name!r}] {kind} at {place} (environment first).")


def indefinite(inertia: torch.Tensor) -> torch.Tensor:
    """(...) bool: matrices (..., 3, 3) with a negative eigenvalue, beyond rounding; from the signs of their minors."""
    sym = 0.5 * (inertia + inertia.mT)
    a, b, c, d, e, f = (sym[..., i, j] for i in range(3) for j in range(i, 3))
    size = a.abs() + d.abs() + f.abs()
    slack = 1e-5 * size
    second = torch.stack([a * d - b * b, a * f - c * c, d * f - e * e]).amin(0)
    det = a * (d * f - e * e) - b * (b * f - c * e) + c * (b * e - c * d)
    least = torch.stack([a, d, f]).amin(0)
    return (least < -slack) | (second < -slack * size) | (det < -slack * size * size)


def check_names(values: Mapping) -> None:
    for name in values:
        if name not in PARAMETERS:
            raise ValueError(f"There is no parameter {name!r}; the parameters are {', '.join(PARAMETERS)}.")


def check_rows(model: Model, values: Mapping[str, torch.Tensor]) -> None:
    """Refuse limits and dry friction of joints for which the compiled tables have no row."""
    fixed = {
        "frictionloss": ("dry friction", model.frictionloss > 0, lambda v: v > 0),
        "lower": ("a limit", np.isfinite(model.lower) | np.isfinite(model.upper), torch.isfinite),
        "upper": ("a limit", np.isfinite(model.lower) | np.isfinite(model.upper), torch.isfinite),
    }
    for name, (what, has, test) in fixed.items():
        if name in values and bool(test(values[name][..., torch.as_tensor(~has)]).any()):
            raise ModelError(
                f"params[{name!r}] gives {what} to a joint that has none in the model; give it one there "
                "(any value), so that the solver makes room for its row."
            )
