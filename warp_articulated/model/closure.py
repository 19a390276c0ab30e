"""What loops and couplings need of the pose: directions that are held, compliance, and a pose that fulfils them.

A loop of hinges with parallel axes moves in a plane. Across the plane its links hold themselves; rows that would hold
them once more lock the loop as soon as an axis is off by a rounded digit. So such loops are held in the plane only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ..geometry.rotations import quat_multiply, quat_to_matrix, unit_quat
from .description import POSE_NOTES, WORLD, JointType, Model, ModelError, frozen

PARALLEL = 0.02  # rad; axes that differ by less count as parallel
COMPLIANCE = 1e-6  # of a constraint's own inverse inertia: float32 can factorise what several of them share
CLOSED = 1e-9  # m or rad; poses that fulfil the constraints so well are not touched
OPEN = 1e-3  # those that cannot be brought to fulfil them better are refused
TRIALS = 100  # Gauss-Newton steps
LONGEST = 0.3  # m or rad, of a step


class Posture:
    """Places of all links at one q, and how they move with qd."""

    def __init__(self, model: Model, q: np.ndarray):
        from ..geometry.kinematics import link_transforms

        self.model = model
        self.R, self.origin = link_transforms(model, q)

    def path(self, link: int) -> list[int]:
        """Links from a root to the link."""
        links = []
        while link != WORLD:
            links.append(link)
            link = int(self.model.parent[link])
        return links[::-1]

    def point(self, link: int, local: np.ndarray) -> np.ndarray:
        return np.array(local) if link == WORLD else self.origin[link] + self.R[link] @ local

    def rotation(self, link: int) -> np.ndarray:
        return np.eye(3) if link == WORLD else self.R[link]

    def axes(self, link: int) -> tuple[np.ndarray, np.ndarray]:
        """(3, n) angular and linear velocity of the link's own joint, per unit qd, at the link's origin."""
        model, kind, above = self.model, self.model.joint_type[link], int(self.model.parent[link])
        if kind == JointType.FREE:
            return np.eye(3, 6, 3), np.eye(3, 6)
        frame = self.rotation(above) @ quat_to_matrix(model.joint_quat[link])
        if kind == JointType.SPHERICAL:
            return frame, np.zeros((3, 3))
        axis, none = (frame @ model.axis[link])[:, None], np.zeros((3, 1))
        return (axis, none) if kind == JointType.REVOLUTE else (none, axis)

    def jacobian(self, link: int, point: np.ndarray) -> np.ndarray:
        """(6, nv) angular and linear velocity of a point fixed to the link, per unit qd, world axes."""
        J = np.zeros((6, self.model.nv))
        for i in self.path(link):
            turn, shift = self.axes(i)
            columns = slice(self.model.v_start[i], self.model.v_start[i] + turn.shape[1])
            J[:3, columns] = turn
            J[3:, columns] = shift + np.cross(turn, point - self.origin[i], axisa=0, axisc=0)
        return J

    def mass_matrix(self, links: Collection[int]) -> np.ndarray:
        """(nv, nv), of some links only, with the armature of all joints."""
        model = self.model
        M = np.diag(model.armature).astype(float)
        for i in links:
            J = self.jacobian(i, self.origin[i] + self.R[i] @ model.com[i])
            M += model.mass[i] * J[3:].T @ J[3:] + J[:3].T @ self.R[i] @ model.inertia[i] @ self.R[i].T @ J[:3]
        return M


def complete(model: Model) -> Model:
    """The model with held directions and compliance of its ties, and a default pose that fulfils them."""
    if not model.ties:
        return model
    axes = np.array([held_directions(model, k) for k in range(len(model.ties.loop_names))]).reshape(-1, 2, 3, 3)
    model = replace(model, ties=replace(model.ties, loop_axes=frozen(axes)))
    model = close(model)
    loops, couplings = compliance(model)
    return replace(model, ties=replace(model.ties, loop_cfm=frozen(loops), coupling_cfm=frozen(couplings)))


def held_directions(model: Model, k: int) -> np.ndarray:
    """(2, 3, 3) directions in the first link in which loop k holds shifts and turns, as rows; zero: not held."""
    weld = model.ties.loop_axes[k, 1].any()
    everything = np.stack([np.eye(3), np.eye(3) * weld])
    posture = Posture(model, model.q0)
    a, b = (int(link) for link in model.ties.loop_links[k])
    cycle = set(posture.path(a)) ^ set(posture.path(b))
    kinds = {int(model.joint_type[i]) for i in cycle}
    if not cycle or kinds - {JointType.REVOLUTE, JointType.PRISMATIC}:
        return everything
    turns, shifts = (np.concatenate([posture.axes(i)[n] for i in sorted(cycle)], 1).T for n in range(2))
    turns, shifts = (x[np.linalg.norm(x, axis=1) > 0.5] for x in (turns, shifts))
    inwards = posture.rotation(a).T
    if not len(turns):
        _, sizes, rows = np.linalg.svd(shifts)
        rows[sum(sizes > PARALLEL) :] = 0.0
        return np.stack([rows @ inwards.T, np.zeros((3, 3))])
    normal = turns[0]
    if np.linalg.norm(np.cross(turns, normal), axis=1).max() > PARALLEL:
        return everything
    if len(shifts) and abs(shifts @ normal).max() > PARALLEL:
        return everything
    across = np.linalg.svd(normal[None])[2][1:]
    held = np.zeros((2, 3, 3))
    held[0, :2] = across @ inwards.T
    if weld:
        held[1, 0] = inwards @ normal
    return held


def residuals(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Errors (n,) of all equality constraints, their Jacobian (n, nv), their names in messages, and where they are.

    The last array has (kind, index, block) of every row: loops are kind 0, with the blocks 0 (shift) and 1 (turn).
    """
    ties, posture = model.ties, Posture(model, q)
    errors, rows, names, where = [], [], [], []
    for k, (a, b) in enumerate(ties.loop_links.tolist()):
        pa, pb = posture.point(a, ties.loop_pos[k, 0]), posture.point(b, ties.loop_pos[k, 1])
        Ra, Rb = posture.rotation(a), posture.rotation(b) @ quat_to_matrix(ties.loop_quat[k])
        J = posture.jacobian(a, pa) - posture.jacobian(b, pb)
        turn = 0.5 * np.cross(Rb, Ra, axisa=0, axisb=0, axisc=0).sum(1)
        for block, (error, motion) in enumerate(((pa - pb, J[3:]), (turn, J[:3]))):
            for axis in ties.loop_axes[k, block] @ Ra.T:
                if axis.any():
                    errors.append(axis @ error)
                    rows.append(axis @ motion)
                    names.append(f"loop {ties.loop_names[k]!r}")
                    where.append((0, k, block))
    q_of_dof = scalar_positions(model)
    for k in np.flatnonzero(ties.coupling_held).tolist():
        value, slopes = coupling_value(model, k, q, q_of_dof)
        errors.append(value)
        rows.append(slopes)
        names.append(f"coupling {ties.coupling_names[k]!r}")
        where.append((1, k, 0))
    return np.array(errors), np.array(rows).reshape(-1, model.nv), names, np.array(where, int).reshape(-1, 3)


def scalar_positions(model: Model) -> np.ndarray:
    """(nv,) entry of q that the dof of a revolute or prismatic joint moves; -1 for others."""
    places = np.full(model.nv, -1)
    single = np.isin(model.joint_type, (JointType.REVOLUTE, JointType.PRISMATIC))
    places[model.v_start[single]] = model.q_start[single]
    return places


def coupling_value(model: Model, k: int, q: np.ndarray, q_of_dof: np.ndarray) -> tuple[float, np.ndarray]:
    """Value of coupling k and its gradient (nv,) by the joints' positions."""
    ties, slopes, value = model.ties, np.zeros(model.nv), 0.0
    for m in np.flatnonzero(ties.term_coupling == k):
        dof = int(ties.term_dof[m])
        polynomial = np.polynomial.Polynomial(ties.coupling_coef[m])
        t = q[q_of_dof[dof]] - ties.term_ref[m]
        value += float(polynomial(t))
        slopes[dof] += float(polynomial.deriv()(t))
    return value, slopes


def tendon_lengths(model: Model, q: np.ndarray) -> np.ndarray:
    """(couplings,) value of every coupling at q."""
    q_of_dof = scalar_positions(model)
    return np.array([coupling_value(model, k, q, q_of_dof)[0] for k in range(len(model.ties.coupling_names))])


def close(model: Model, hold: Collection[str] = ()) -> Model:
    """The model with a default pose that fulfils its equality constraints, with a note if that moved joints.

    hold: joints that stay where they are. If the rest cannot follow, the pose is left as it is, with a note; without
    such joints, constraints that no pose fulfils are refused.
    """
    q = model.q0.copy()
    error, _, names, _ = residuals(model, q)
    if not error.size or abs(error).max() <= CLOSED:
        return model
    free = np.ones(model.nv, bool)
    for name in hold:
        free[model.joint_v(name)] = False
    q = _gauss_newton(model, q, free, limits=True)
    error = residuals(model, q)[0]
    if abs(error).max() > OPEN and not hold:
        wide = _gauss_newton(model, q, free, limits=False)
        beyond = residuals(model, wide)[0]
        worst = int(abs(beyond).argmax())
        if abs(beyond[worst]) > OPEN:
            raise ModelError(
                f"{model.name}: {names[worst]} cannot be fulfilled together with the others: {abs(beyond[worst]):.3g} "
                "m or rad remain wherever the joints are; check its anchors and coefficients."
            )
    if abs(error).max() > OPEN:
        worst = int(abs(error).argmax())
        note = (
            f"{POSE_NOTES[0]} {names[worst]}, and no pose near it within the limits of the joints does: the first "
            "steps will move the robot."
        )
        return replace(model, notes=(*model.notes, note))
    note = f"{POSE_NOTES[1]} loops and couplings are fulfilled."
    return replace(model, q0=frozen(q), notes=model.notes if hold else (*model.notes, note))


def _gauss_newton(model: Model, q: np.ndarray, free: np.ndarray, limits: bool) -> np.ndarray:
    """The nearest q that fulfils the constraints, by steps of least squares over the dofs that are free."""
    q_of_dof = scalar_positions(model)
    low, high = (np.full(model.nq, bound) for bound in (-np.inf, np.inf))
    if limits:
        single = q_of_dof >= 0
        low[q_of_dof[single]] = np.minimum(model.lower[single], q[q_of_dof[single]])
        high[q_of_dof[single]] = np.maximum(model.upper[single], q[q_of_dof[single]])
    for _ in range(TRIALS):
        error, J, *_ = residuals(model, q)
        if abs(error).max() <= 1e-3 * CLOSED:
            break
        step = np.zeros(model.nv)
        movable = free.copy()
        while movable.any():
            step[:] = 0.0
            step[movable] = np.linalg.lstsq(J[:, movable], -error, rcond=1e-6)[0]
            step *= min(1.0, LONGEST / max(abs(step).max(), 1e-300))
            trial = moved(model, q, step)
            stopped = np.zeros(model.nv, bool)
            single = q_of_dof >= 0
            at = trial[q_of_dof[single]]
            stopped[single] = (at < low[q_of_dof[single]]) | (at > high[q_of_dof[single]])
            stopped &= movable & (abs(step) > 0)
            q_next = np.clip(trial, low, high)
            if not stopped.any() or abs(q_next - q).max() > 1e-9:
                break
            movable &= ~stopped  # at their limits, and pushed further: the others must do it
        if not movable.any() or abs(q_next - q).max() < 1e-14:
            break
        q = q_next
    return q


def moved(model: Model, q: np.ndarray, d: np.ndarray) -> np.ndarray:
    """q after a small motion d (nv,), in the order of qd."""
    q = q.copy()
    for kind, k, j in zip(model.joint_type, model.q_start.tolist(), model.v_start.tolist()):
        if kind == JointType.FREE:
            q[k : k + 3] += d[j : j + 3]
            k, j = k + 3, j + 3
        if kind in (JointType.FREE, JointType.SPHERICAL):
            q[k : k + 4] = unit_quat(quat_multiply(np.append(d[j : j + 3] / 2, 1.0), q[k : k + 4]))
        else:
            q[k] += d[j]
    return q


def compliance(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """(loops, 2) and (couplings,): a share of the inverse inertia that the constraints feel at the default pose."""
    ties = model.ties
    loops, couplings = np.zeros((len(ties.loop_names), 2)), np.zeros(len(ties.coupling_names))
    _, J, names, where = residuals(model, model.q0)
    if not len(J):
        return loops, couplings
    touched = np.flatnonzero(J.any(0))
    posture = Posture(model, model.q0)
    roots = {posture.path(int(link))[0] for link in np.flatnonzero(_moved_by(model, touched))}
    links = [i for i in range(model.num_links) if posture.path(i)[0] in roots]
    dofs = np.unique(np.concatenate([np.flatnonzero(_dofs_of(model, i)) for i in links]))
    M = posture.mass_matrix(links)[np.ix_(dofs, dofs)]
    diagonal = np.einsum("ij,ji->i", J[:, dofs], np.linalg.solve(M, J[:, dofs].T))
    for n, name in enumerate(names):
        if not J[n].any() and not (where == where[n]).all(1)[J.any(1)].any():
            raise ModelError(f"{model.name}: nothing that {name} holds can move; leave it out.")
    for kind, k, block in np.unique(where, axis=0).tolist():
        share = COMPLIANCE * float(diagonal[(where == (kind, k, block)).all(1)].mean())
        if kind == 0:
            loops[k, block] = share
        else:
            couplings[k] = share
    return loops, couplings


def _dofs_of(model: Model, link: int) -> np.ndarray:
    """(nv,) bool: those of the link's own joint."""
    mask = np.zeros(model.nv, bool)
    mask[model.joint_v(model.joint_names[model.joint_of_link[link]])] = True
    return mask


def _moved_by(model: Model, dofs: np.ndarray) -> np.ndarray:
    """(nl,) bool: links whose own joint has one of the dofs."""
    return np.array([_dofs_of(model, i)[dofs].any() for i in range(model.num_links)])
