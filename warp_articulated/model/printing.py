"""A model as text: what print(model) shows."""

from __future__ import annotations

import numpy as np

from .description import DriveType, JointType, Model, Shape, ShapeType

_SIZES = {  # how a size is printed, and by which factors: half lengths become lengths
    ShapeType.SPHERE: ("r {0:g}", (1, 1, 1)),
    ShapeType.CAPSULE: ("r {0:g}, length {1:g}", (1, 2, 1)),
    ShapeType.BOX: ("{0:g} x {1:g} x {2:g}", (2, 2, 2)),
    ShapeType.CYLINDER: ("r {0:g}, length {1:g}", (1, 2, 1)),
}


def tree(model: Model) -> str:
    """The model as an indented tree: for each link its joint, mass, shapes and drives; notes at the end."""
    shapes: dict[int, list[Shape]] = {}
    for shape in model.shapes:
        shapes.setdefault(shape.link, []).append(shape)
    lines = [
        f"{model.name}: nq {model.nq}, nv {model.nv}, nu {model.nu}, {model.num_links} links, "
        f"{model.mass.sum():.4g} kg, {len(model.shapes)} shapes, {len(model.pairs)} collision pairs",
        "world" + _shape_list(shapes.get(-1, [])),
    ]
    children: dict[int, list[int]] = {}
    for i, parent in enumerate(model.parent):
        children.setdefault(int(parent), []).append(i)
    # an explicit stack, because chains may be longer than Python's recursion limit
    stack = [(i, "", k == 0) for k, i in enumerate(reversed(children.get(-1, [])))]
    while stack:
        i, indent, last = stack.pop()
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{_link(model, i)}{_shape_list(shapes.get(i, []))}")
        below = indent + ("   " if last else "│  ")
        stack += [(c, below, k == 0) for k, c in enumerate(reversed(children.get(i, [])))]
    if model.merged:
        lines.append("merged by fixed joints: " + ", ".join(f"{a} into {b}" for a, b in model.merged))
    merged = {body for body, _ in model.merged}
    sites = [name for name in model.frames[model.num_links :] if name not in merged]
    if sites:
        lines.append("sites: " + ", ".join(sites))
    if model.key_names:
        lines.append("keyframes: " + ", ".join(model.key_names))
    lines += _ties(model)
    lines += [f"note: {note}" for note in model.notes]
    return "\n".join(lines)


def _ties(model: Model) -> list[str]:
    """Loops, coupled joints and tendons with their drives, a line each."""
    ties, lines, names = model.ties, [], ("world", *model.link_names)
    for k, name in enumerate(ties.loop_names):
        a, b = ties.loop_links[k] + 1
        kind, held = ("weld", 6) if ties.loop_axes[k, 1].any() else ("point", 3)
        rows = int(np.any(ties.loop_axes[k], axis=-1).sum())
        lines.append(f"loop {name}: {kind} of {names[a]} and {names[b]}" + (", planar" if rows < held else ""))
    joints = {int(v): model.joint_names[j] for v, j in zip(model.v_start, model.joint_of_link)}
    for k, name in enumerate(ties.coupling_names):
        terms = [joints[int(ties.term_dof[m])] for m in np.flatnonzero(ties.term_coupling == k)]
        text = f"{'coupling' if ties.coupling_held[k] else 'tendon'} {name}: {', '.join(terms)}"
        for drive in np.flatnonzero(model.drive_coupling == k):
            text += "; " + _drive(model, int(drive), name)
        lines.append(text)
    return lines


def _link(model: Model, i: int) -> str:
    kind = JointType(model.joint_type[i])
    name = model.joint_names[model.joint_of_link[i]]
    joint = f"{name}: {kind.name.lower()}"
    if kind in (JointType.REVOLUTE, JointType.PRISMATIC):
        v = model.v_start[i]
        joint += " about " if kind == JointType.REVOLUTE else " along "
        joint += " ".join(f"{x:.4g}" for x in model.axis[i] + 0.0)  # + 0.0 prints -0 as 0
        if np.isfinite(model.lower[v]) or np.isfinite(model.upper[v]):
            joint += f" in [{model.lower[v]:.4g}, {model.upper[v]:.4g}]"
        for key in ("armature", "damping", "stiffness", "frictionloss", "limit_restitution"):
            if getattr(model, key)[v]:
                joint += f", {key} {getattr(model, key)[v]:.4g}"
        for k in np.flatnonzero(model.drive_dof == v):
            joint += "; " + _drive(model, int(k), name)
    for k in model.thrust_drive[model.thrust_link == i]:
        joint += "; pushed by " + _drive(model, int(k), "")
    if model.gravcomp[i]:
        joint += f"; gravcomp {model.gravcomp[i]:.4g}"
    return f"{model.link_names[i]} ({joint}) {model.mass[i]:.4g} kg"


def _drive(model: Model, k: int, joint: str) -> str:
    kind = DriveType(model.drive_type[k])
    text = f"u[{k}] {kind.name.lower()} drive"
    if model.drive_names[k] != joint:
        text += f" {model.drive_names[k]}"
    if model.gear[k] != 1:
        text += f", gear {model.gear[k]:g}"
    if kind == DriveType.POSITION:
        text += f", kp {model.kp[k]:g}"
    if kind != DriveType.TORQUE:
        text += f", kd {model.kd[k]:g}"
    if np.isfinite(model.effort[k]):
        text += f", effort {model.effort[k]:g}"
        if model.effort_center[k]:
            low, high = model.effort_center[k] + np.array([-1, 1]) * model.effort[k]
            text += f" about {model.effort_center[k]:g} ({low:g} to {high:g})"
    low, high = model.control_range[k]
    if np.isfinite(low) or np.isfinite(high):
        text += f", u in [{low:.4g}, {high:.4g}]"
    return text


def _shape_list(shapes: list[Shape]) -> str:
    return f" [{'; '.join(map(_shape, shapes))}]" if shapes else ""


def _shape(shape: Shape) -> str:
    kind = ShapeType(shape.type)
    text = kind.name.lower()
    if kind == ShapeType.MESH:
        text += f" of {0 if shape.vertices is None else len(shape.vertices)} vertices"
    elif shape.heights is not None and shape.spacing is not None:
        rows, columns = np.shape(shape.heights)
        text += f" of {rows} x {columns} heights, {shape.spacing[0]:g} x {shape.spacing[1]:g} m apart"
    elif kind in _SIZES:
        form, factors = _SIZES[kind]
        text += " " + form.format(*(size * factor for size, factor in zip(np.ravel(shape.size), factors)))
    return text if shape.collide else text + " (only visible)"
