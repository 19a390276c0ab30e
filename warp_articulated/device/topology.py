"""Integer tables of a model that the kernels walk along: who hangs on whom, which dofs lie on a path, what may touch.

In the kernels link 0 is the world and link i + 1 is link i of the Model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..kernels.collision.pairs import kind_of
from ..kernels.types import COUPLING, POINT, PULL, SPRING, THRUST, TURN, Sizes
from ..model import NV, WORLD, DriveType, JointType, Model
from ..model.pairs import FIELD_SLOTS, SLOTS

# Capacities grow in steps, so that robots of similar size share one compiled kernel.
LINK_STEPS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
QUERY_STEPS = (32, 128, 512)
CONTACT_STEPS = (0, 4, 8, 16, 32, 64, 128)
SWEEP_STEPS = (10, 50, 100, 200, 500, 1000)


@lru_cache(maxsize=8)  # a Simulator asks twice, for its sizes and for its struct
def tables(model: Model) -> dict[str, np.ndarray | int]:
    """The integer part of the kernels' Model struct, by the names of its fields."""
    nl = model.num_links
    parent = np.concatenate([[0], model.parent + 1])
    root = np.zeros(nl + 1, int)
    free_dof = np.full(nl + 1, -1)
    paths: list[list[int]] = [[]]
    counts = [0]
    for i in range(1, nl + 1):
        kind = JointType(model.joint_type[i - 1])
        start = int(model.v_start[i - 1])
        counts.append(NV[kind])
        root[i] = i if parent[i] == 0 else root[parent[i]]
        if kind == JointType.FREE:
            free_dof[i] = start
            paths.append([])
        else:
            free_dof[i] = free_dof[parent[i]]
            paths.append(paths[parent[i]] + list(range(start, start + NV[kind])))
    chain = np.zeros((nl + 1, max(1, *map(len, paths))), int)
    for i, path in enumerate(paths):
        chain[i, : len(path)] = path
    dof_link, dof_q = np.zeros(model.nv, int), np.full(model.nv, -1)
    for i in range(nl):
        start = model.v_start[i]
        dof_link[start : start + counts[i + 1]] = i + 1
        if counts[i + 1] == 1:
            dof_q[start] = model.q_start[i]
    one_dof = dof_q >= 0
    limited = np.flatnonzero(one_dof & (np.isfinite(model.lower) | np.isfinite(model.upper)))
    rubbing = np.flatnonzero(one_dof & (model.frictionloss > 0))
    # also without a limit: params may bring one
    saturable = np.count_nonzero((model.drive_type != DriveType.TORQUE) & (model.drive_coupling < 0))
    pushes = np.isin(np.arange(model.nu), model.thrust_drive)
    kinds = [kind_of(model.shapes[a].type, model.shapes[b].type) for a, b in model.pairs]
    return {
        "num_links": nl + 1,
        "num_dofs": model.nv,
        "parent": parent,
        "root": root,
        "joint_type": np.concatenate([[0], model.joint_type]),
        "num_joint_dofs": np.array(counts),
        "q_start": np.concatenate([[0], model.q_start]),
        "v_start": np.concatenate([[0], model.v_start]),
        "free_dof": free_dof,
        "depth": np.array([len(path) for path in paths]),
        "chain": chain,
        "common": _common(parent, [len(path) for path in paths]),
        "limited": limited,
        "num_limited": len(limited),
        "rubbing": rubbing,
        "num_rubbing": len(rubbing),
        "max_joint_rows": max(len(limited), int(saturable)) + len(rubbing),
        "dof_link": dof_link,
        "dof_q": dof_q,
        "num_drives": model.nu,
        "drive_dof": np.where(pushes, 0, model.drive_dof),
        "drive_type": np.where(pushes, int(THRUST), model.drive_type),
        "num_thrusts": len(model.thrust_drive),
        "thrust_drive": model.thrust_drive,
        "thrust_link": model.thrust_link + 1,
        "num_pairs": len(model.pairs),
        "pair_kind": np.array(kinds, int),
        "pair_a": model.pairs[:, 0],
        "pair_b": model.pairs[:, 1],
        "shape_link": np.array([shape.link + 1 for shape in model.shapes], int),
        "shape_type": np.array([shape.type for shape in model.shapes], int),
        **_tie_tables(model),
    }


def _tie_tables(model: Model) -> dict[str, np.ndarray | int]:
    """Loops, couplings, and the ties that they may make (kernels/core/ties.py)."""
    ties = model.ties
    loops = [
        (kind, k) for k in range(len(ties.loop_names)) for kind in (POINT, TURN) if ties.loop_axes[k, int(kind)].any()
    ]
    held, tendons = np.flatnonzero(ties.coupling_held), np.flatnonzero(~ties.coupling_held)
    limited = tendons[np.isfinite(ties.coupling_range[tendons]).any(1)]
    pulled = tendon_drives(model)
    listed = [*loops, *((COUPLING, k) for k in held), *((SPRING, k) for k in tendons), *((PULL, k) for k in pulled)]
    kinds, index = np.array([(int(kind), k) for kind, k in listed], int).reshape(-1, 2).T
    return {
        "num_ties": len(listed),
        "tie_kind": kinds,
        "tie_index": index,
        "loop_a": ties.loop_links[:, 0] + 1,
        "loop_b": ties.loop_links[:, 1] + 1,
        "term_start": ties.term_start,
        "term_dof": ties.term_dof,
        "limited_couplings": limited,
        "num_limited_couplings": len(limited),
        "drive_coupling": model.drive_coupling,
    }


def tendon_drives(model: Model) -> np.ndarray:
    """Position and velocity drives of tendons."""
    return np.flatnonzero((model.drive_coupling >= 0) & (model.drive_type != DriveType.TORQUE))


def _tie_sizes(model: Model) -> dict[str, int]:
    """Room for all ties, and for tendons at a limit, at once."""
    table, ties = tables(model), model.ties
    terms = np.diff(ties.term_start)
    kinds, index, limited = (np.asarray(table[key]) for key in ("tie_kind", "tie_index", "limited_couplings"))
    rows = len(limited)
    sides = int(terms[limited].sum())
    for kind, k in zip(kinds.tolist(), index.tolist()):
        if kind <= TURN:
            rows += 3
            sides += int(np.count_nonzero(ties.loop_links[k] != WORLD))
        else:
            rows += 1
            sides += int(terms[model.drive_coupling[k] if kind == PULL else k])
    return {"ties": len(kinds), "tie_rows": rows, "tie_sides": sides}


def _common(parent: np.ndarray, depth: list[int]) -> np.ndarray:
    """[link, link]: number of dofs that the paths from the root to both links share."""
    count = len(parent)
    common = np.zeros((count, count), int)
    for i in range(1, count):
        # a link shares with the links before it what its parent shares with them
        common[i, :i] = common[parent[i], :i]
        common[:i, i] = common[i, :i]
        common[i, i] = depth[i]
    return common


def default_contacts(model: Model) -> int:
    """Contacts at once for which there is room if nobody says otherwise: a robot that lies, and more for every body."""
    trees = int(np.count_nonzero(model.parent == WORLD))
    return 16 + 8 * max(trees - 1, 0)


def sizes_of(model: Model, max_contacts: int, exact: bool = False) -> Sizes:
    """Capacities of the kernel that can simulate the model.

    exact: no larger than the model needs, for CUDA, which reserves the working memory of every environment that a
    device can hold at once. Otherwise rounded up, so that robots share kernels.
    """
    table = tables(model)
    room = SLOTS | FIELD_SLOTS
    slots = [room[(model.shapes[a].type, model.shapes[b].type)] for a, b in model.pairs]
    # only the second shapes of pairs can be second sides; if all of them belong to the world, there are none
    sides = 2 if any(model.shapes[b].link != WORLD for _, b in model.pairs) else 1
    kinds = sorted({(int(model.shapes[a].type), int(model.shapes[b].type)) for a, b in model.pairs})
    contacts, joint_rows = min(sum(slots), max_contacts), int(table["max_joint_rows"])
    ties = _tie_sizes(model)
    joint_rows += int(table["num_limited_couplings"]) + len(tendon_drives(model))

    def size(count: int) -> int:
        return count if exact else round_up(count, LINK_STEPS)

    return Sizes(
        links=size(model.num_links),
        dofs=size(model.nv),
        depth=size(np.shape(table["chain"])[1]),
        # a list that may overflow has the same length on every device: it decides which contacts are dropped
        contacts=sum(slots) if exact and sum(slots) <= max_contacts else round_up(contacts, CONTACT_STEPS),
        joint_rows=joint_rows if exact else -(-joint_rows // 4) * 4,
        sides=sides,
        kinds=tuple(kinds),
        **ties,
        gravcomp=bool(model.gravcomp.any()),
        thrusts=len(model.thrust_drive) > 0,
        lopsided=bool(model.effort_center.any()),
    )


def round_up(count: int, steps: tuple[int, ...]) -> int:
    for step in steps:
        if count <= step:
            return step
    return -(-count // steps[-1]) * steps[-1]
