"""How a robot moves here and in MuJoCo, from the same state with the same controls, for 0.2 s.

What MuJoCo models softly is switched off on both sides: contacts, joint limits and dry friction. What is left are the
equations of motion, springs, dampers, drives, gravity compensation and thrusts. MuJoCo's integrator is implicitfast
with the same step of 0.2 ms: both methods are of first order and treat PD drives differently, which such a short step
makes small. A robot that is off by more than 1 % is compared again with 0.02 ms. The error is the largest distance of
qpos, divided by the largest distance from the start.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import numpy as np
import torch
from warp_articulated.kernels.types import Sizes

import warp_articulated as wa
from warp_articulated.device import engine
from warp_articulated.device.topology import sizes_of
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import Model

SECONDS, STEPS = 0.2, (2e-4, 2e-5)  # s; the shorter step is for robots that the longer one does not resolve
WORST = 0.01  # of its motion: a robot moves as in MuJoCo if it is off by less
SPREAD = 0.1  # of the first joint positions and of controls without a range; rates are five times that
ROOMS: tuple[dict[str, int], ...] = (
    dict(links=16, dofs=24, depth=16, joint_rows=16),
    dict(links=48, dofs=64, depth=32, joint_rows=64),
    dict(links=128, dofs=128, depth=64, joint_rows=128),
)
TIES = dict(ties=16, tie_rows=16, tie_sides=48)  # in addition, for robots that have any
FREE, BALL = 0, 1  # mujoco.mjtJoint


def compare(path: Path, model: Model) -> dict:
    """{"error": ..., "dt": ...}, or {"skipped": why}."""
    import mujoco

    mujoco.set_mju_user_warning(lambda text: None)
    try:
        if is_urdf(path):
            m = mujoco.MjModel.from_xml_string(without_shapes(path))
        else:
            m = mujoco.MjModel.from_xml_path(str(path))
    except (ValueError, ElementTree.ParseError) as error:  # such as an inertia that breaks the triangle inequality
        return {"skipped": f"MuJoCo: {' '.join(str(error).split())}"}
    if m.neq or (is_urdf(path) and model.ties):
        return {"skipped": "equality constraints are soft in MuJoCo"}
    bits = mujoco.mjtDisableBit
    m.opt.disableflags |= bits.mjDSBL_CONTACT | bits.mjDSBL_LIMIT | bits.mjDSBL_FRICTIONLOSS
    m.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    found: dict = {}
    for dt in STEPS:
        error = apart(m, model, dt, is_urdf(path))
        if not np.isfinite(error):
            return {"skipped": "MuJoCo diverges"}
        found = {"error": error, "dt": dt}
        if error < WORST:
            break
    return found


def apart(m, model: Model, dt: float, urdf: bool) -> float:
    """Largest distance of our motion from MuJoCo's, relative to the motion."""
    import mujoco

    m.opt.timestep, count = dt, round(SECONDS / dt)
    rng, data = np.random.default_rng(0), mujoco.MjData(m)
    mujoco.mj_integratePos(m, data.qpos, SPREAD * rng.normal(size=m.nv), 1.0)
    data.qvel[:] = 5 * SPREAD * rng.normal(size=m.nv)
    places, rates = order(m, model)
    if urdf:  # without actuators there
        u = np.clip(SPREAD * rng.normal(size=model.nu), -model.effort, model.effort)
        data.qfrc_applied[rates[model.drive_dof]] = u
    else:
        u = rng.uniform(np.clip(-SPREAD, *model.control_range.T), np.clip(SPREAD, *model.control_range.T))
        limited = np.isfinite(model.control_range).all(1)
        low, high = np.clip(model.control_range[limited], -1.0, 1.0).T
        u[limited] = rng.uniform(low, high)
        data.ctrl[:] = u
    q, qd = from_mujoco(m, data.qpos, data.qvel)
    ours = rollout(bare(model), q[places], qd[rates], u, dt, count)
    theirs = [q]
    for _ in range(count):
        mujoco.mj_step(m, data)
        theirs.append(from_mujoco(m, data.qpos, data.qvel)[0])
    theirs = np.array(theirs)[:, places]
    moved = np.linalg.norm(theirs - theirs[0], axis=1).max()
    return float(np.linalg.norm(ours - theirs, axis=1).max() / moved)


def is_urdf(path: Path) -> bool:
    return "<robot" in path.read_text("utf-8", "replace")


def without_shapes(path: Path) -> str:
    """A URDF for MuJoCo, which reads other kinds of meshes than we do, and refuses names that two links share."""
    root = ElementTree.parse(path).getroot()
    for link in root.findall("link"):
        for kind in ("visual", "collision"):
            for shape in link.findall(kind):
                link.remove(shape)
    for extra in root.findall("mujoco"):
        root.remove(extra)
    return ElementTree.tostring(root, "unicode")


def order(m, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Where MuJoCo has each entry of our q and qd. Of an MJCF file it is the same place."""
    names = [m.joint(j).name for j in range(m.njnt)]
    if not set(model.joint_names) <= set(names):
        return np.arange(m.nq), np.arange(m.nv)
    places, rates = np.zeros(model.nq, int), np.zeros(model.nv, int)
    for name in model.joint_names:
        j = names.index(name)
        for to, own, first in (
            (places, model.joint_q(name), m.jnt_qposadr),
            (rates, model.joint_v(name), m.jnt_dofadr),
        ):
            to[own] = first[j] + np.arange(own.stop - own.start)
    return places, rates


def bare(model: Model) -> Model:
    """The model without contacts, limits of joints and tendons, and dry friction."""
    nothing, infinite = np.zeros(0), np.full(model.nv, np.inf)
    endless = np.tile([-np.inf, np.inf], (len(model.ties.coupling_names), 1))
    return replace(
        model, pairs=np.zeros((0, 2), int), pair_friction=nothing, pair_restitution=nothing,
        lower=-infinite, upper=infinite, frictionloss=np.zeros(model.nv),
        ties=replace(model.ties, coupling_range=endless),
    )  # fmt: skip


def roomy(model: Model, max_contacts: int, exact: bool = False) -> Sizes:
    """Sizes that many robots share, so that few kernels are compiled."""
    own = sizes_of(model, max_contacts, exact)
    for room in ROOMS:
        full = room | (TIES if own.ties else {})
        if all(getattr(own, name) <= most for name, most in full.items()):
            return replace(own, **full)
    return own


def rollout(model: Model, q: np.ndarray, qd: np.ndarray, u: np.ndarray, dt: float, count: int) -> np.ndarray:
    """(count + 1, nq)"""
    with patch.object(engine, "sizes_of", roomy):
        sim = wa.Simulator(model, 1, device="cpu", dtype="float64", dt=dt, threads=1)
    controls = torch.tensor(u).expand(count, 1, -1)
    qs, _ = sim.rollout(torch.tensor(q)[None], torch.tensor(qd)[None], controls)
    return qs[:, 0].numpy()


def from_mujoco(m, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Our q and qd: quaternions xyzw, angular velocities not in the axes of the moving body."""
    q, qd = qpos.copy(), qvel.copy()
    for j in np.flatnonzero(m.jnt_type <= BALL):
        first = 3 * (m.jnt_type[j] == FREE)  # after the position or linear velocity of a free joint
        k, v = m.jnt_qposadr[j] + first, m.jnt_dofadr[j] + first
        q[k : k + 4] = np.roll(qpos[k : k + 4], -1)
        qd[v : v + 3] = quat_to_matrix(q[k : k + 4]) @ qvel[v : v + 3]
    return q, qd
