"""The same robot in MuJoCo: an MjModel made from our Model, refused unless it has the same mass matrix."""

from __future__ import annotations

import mujoco
import mujoco.rollout
import numpy as np

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import WORLD, JointType, Model, ShapeType

SOLVERS = {
    "PGS": mujoco.mjtSolver.mjSOL_PGS,
    "CG": mujoco.mjtSolver.mjSOL_CG,
    "Newton": mujoco.mjtSolver.mjSOL_NEWTON,
}
GEOMS = {ShapeType.SPHERE: mujoco.mjtGeom.mjGEOM_SPHERE, ShapeType.PLANE: mujoco.mjtGeom.mjGEOM_PLANE}
STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS  # time, qpos, qvel


def twin(model: Model, *, solver: str, dt: float, iterations: int, tolerance: float | None = None) -> mujoco.MjModel:
    """MuJoCo's model with its default contact softness; spheres touch the plane and nothing else.

    tolerance: of MuJoCo's early exit; by default MuJoCo's own (1e-8).
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.option.timestep, spec.option.iterations = dt, iterations
    spec.option.solver = SOLVERS[solver]
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.gravity = model.gravity
    if tolerance is not None:
        spec.option.tolerance = tolerance
    bodies: list = []
    for i in range(model.num_links):
        _add_body(spec, model, i, bodies)
    for shape, friction in _colliding(model):
        body = spec.worldbody if shape.link == WORLD else bodies[shape.link]
        plane = shape.type == ShapeType.PLANE
        size = [1.0, 1.0, 1.0] if plane else [*shape.size, 0.0, 0.0][:3]
        body.add_geom(
            type=GEOMS[shape.type], size=size, pos=shape.pos, quat=np.roll(shape.quat, 1), condim=3,
            friction=[friction, 0.005, 0.0001], contype=int(plane), conaffinity=int(not plane), mass=0.0,
        )  # fmt: skip
    for k in range(model.nu):
        link = int(np.flatnonzero(model.v_start == model.drive_dof[k])[0])
        spec.add_actuator(
            name=model.drive_names[k], target=_joint_name(model, link), trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED, gainprm=[model.kp[k]] + [0.0] * 9,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE, biasprm=[0.0, -model.kp[k], -model.kd[k]] + [0.0] * 7,
            forcelimited=True, forcerange=[-model.effort[k], model.effort[k]],
        )  # fmt: skip
    m = spec.compile()
    _check_same(model, m)
    return m


def _add_body(spec, model: Model, i: int, bodies: list):
    parent = spec.worldbody if model.parent[i] == WORLD else bodies[model.parent[i]]
    inertia = model.inertia[i]
    full = [inertia[0, 0], inertia[1, 1], inertia[2, 2], inertia[0, 1], inertia[0, 2], inertia[1, 2]]
    body = parent.add_body(
        name=model.link_names[i], pos=model.joint_pos[i], quat=np.roll(model.joint_quat[i], 1),
        mass=model.mass[i], ipos=model.com[i], fullinertia=full, explicitinertial=True,
    )  # fmt: skip
    bodies.append(body)
    name = _joint_name(model, i)
    if model.joint_type[i] == JointType.FREE:
        body.add_freejoint(name=name)
        return body
    if model.joint_type[i] != JointType.REVOLUTE:
        raise SystemExit(f"The MuJoCo twin supports free and revolute joints only; {name} is neither.")
    v = model.v_start[i]
    limits = (model.lower[v], model.upper[v])
    limited = bool(np.isfinite(limits).all())
    body.add_joint(
        name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=model.axis[i], armature=model.armature[v],
        damping=np.ravel([model.damping[v], 0.0, 0.0]), limited=limited, range=limits if limited else (0.0, 0.0),
    )  # fmt: skip
    return body


def _joint_name(model: Model, link: int) -> str:
    return model.joint_names[model.joint_of_link[link]]


def _colliding(model: Model):
    """Shapes that occur in a pair, and the friction of the first one."""
    found = {}
    for (a, b), friction in zip(model.pairs, model.pair_friction):
        for s in (a, b):
            found.setdefault(int(s), (model.shapes[s], float(friction)))
    return found.values()


def to_mujoco(model: Model, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """(n, nstate) states of a robot on a free joint; MuJoCo has wxyz, and angular velocity in the body's axes."""
    qpos, qvel = np.array(q, float), np.array(qd, float)
    qpos[:, 3:7] = np.roll(qpos[:, 3:7], 1, axis=1)
    for row in range(len(qpos)):
        qvel[row, 3:6] = quat_to_matrix(q[row, 3:7]).T @ qvel[row, 3:6]
    return np.concatenate([np.zeros((len(qpos), 1)), qpos, qvel], axis=1)


def _check_same(model: Model, m: mujoco.MjModel) -> None:
    """Total mass and mass matrix agree with ours, at poses far from the default one."""
    if (m.nq, m.nv, m.nu) != (model.nq, model.nv, model.nu):
        raise SystemExit(f"MuJoCo's twin has nq, nv, nu = {m.nq, m.nv, m.nu}; ours are {model.nq, model.nv, model.nu}.")
    if abs(m.body_mass.sum() - model.mass.sum()) > 1e-9 * model.mass.sum():
        raise SystemExit(f"MuJoCo's twin weighs {m.body_mass.sum()} kg, our robot {model.mass.sum()} kg.")
    import torch

    sim = wa.Simulator(model, 3, device="cpu", dtype="float64", threads=1)
    rng = np.random.default_rng(0)
    q = sim.initial_state()[0].numpy()
    q[:, 7:] += rng.normal(scale=0.3, size=q[:, 7:].shape)
    q[:, 3:7] = rng.normal(size=(3, 4))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    ours = sim.mass_matrix(torch.from_numpy(q)).numpy()
    data = mujoco.MjData(m)
    for k, state in enumerate(to_mujoco(model, q, np.zeros((3, model.nv)))):
        mujoco.mj_setState(m, data, state, STATE)
        mujoco.mj_forward(m, data)
        turn = np.eye(m.nv)
        turn[3:6, 3:6] = quat_to_matrix(q[k, 3:7]).T
        M = np.zeros((m.nv, m.nv))
        try:
            mujoco.mj_fullM(m, data, M)
        except TypeError:  # before 3.4
            mujoco.mj_fullM(m, M, data.qM)
        error = np.abs(turn.T @ M @ turn - ours[k]).max()
        # both are float64 sums over 13 links; entries are at most the total mass
        if error > 1e-10 * model.mass.sum():
            raise SystemExit(f"MuJoCo's mass matrix differs from ours by {error:.1e} kg m^2: not the same robot.")


class Batch:
    """Rollouts of many copies on `threads` threads; all states are stored, as in ours."""

    def __init__(self, m: mujoco.MjModel, states: np.ndarray, controls: np.ndarray, steps: int, threads: int):
        self.m, self.states, self.steps, self.threads = m, states, steps, threads
        self.controls = np.ascontiguousarray(np.broadcast_to(controls[:, None], (len(states), steps, m.nu)))
        self.data = [mujoco.MjData(m) for _ in range(threads)]
        # without a pool the calling thread does the work
        self.rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self.out = np.empty((len(states), steps, states.shape[1]))
        self.sensors = np.empty((len(states), steps, 0))

    def run(self) -> np.ndarray:
        """Final states (n, nstate)."""
        data = self.data if self.threads > 1 else self.data[0]
        self.rollout.rollout(self.m, data, self.states, self.controls, state=self.out, sensordata=self.sensors)
        return self.out[:, -1]


def rest(m: mujoco.MjModel, states: np.ndarray, controls: np.ndarray) -> dict:
    """Contact counts, mean penetration (m) and mean solver iterations of one step from these states."""
    data = mujoco.MjData(m)
    counts, depths, iterations = [], [], []
    for state, control in zip(states, controls):
        mujoco.mj_setState(m, data, state, STATE)
        data.ctrl[:] = control
        mujoco.mj_step(m, data)  # a step first, so that the solver starts warm as it does in a rollout
        mujoco.mj_step(m, data)
        counts.append(int(data.ncon))
        depths += [-float(contact.dist) for contact in data.contact]
        iterations.append(int(data.solver_niter[: max(data.nisland, 1)].sum()))
    return {
        "contacts": sorted(set(counts)),
        "penetration": float(np.mean(depths)),
        "iterations": float(np.mean(iterations)),
    }
