"""Adjoints of single stages against central differences of their own forward: joints, dynamics, integration.

Every kernel here runs a stage and, on request, its adjoint, in working memory that starts as NaN: what a stage reads,
a stage before it must have set. The stages of contacts are in test_adjoint_contact_stages.py.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pinocchio as pin
import torch
import warp as wp
from gradient_zoo import zoo_model, zoo_states
from robots import PinocchioRobot, pybullet_robot
from warp_articulated.kernels.rollout import module_options
from warp_articulated.kernels.step import make_step
from warp_articulated.kernels.types import DRIVE, DRY_FRICTION, LIMIT, Sizes

import warp_articulated as wa
from warp_articulated.autograd import ParameterBars
from warp_articulated.device.parameters import GROUPS
from warp_articulated.device.structs import params_struct
from warp_articulated.model import DriveType, JointType

real = wp.float64
OPTIONS = {"module": "unique", "enable_backward": False, "module_options": module_options()}
SIZES = Sizes(links=16, dofs=32, depth=8, contacts=8, joint_rows=16, sides=2, sweeps=100)
array2, array3 = wp.array2d(dtype=real), wp.array3d(dtype=real)
# Four-point differences over a share h of an input: h^4 of truncation and 1e-16 / h of rounding, which is more where
# the weighed sum is large beside what the input does to it. Measured: 4e-9 (bounds of rows), most below 1e-10.
TOLERANCE = 1e-8


@dataclass
class Stage:
    """A kernel(model, params, reverse, *reads, *writes, *bars, params_bar), one environment of sim's forest per thread.

    reads: names of arrays, writes: name -> shape of one environment, bars: name -> array that comes in.
    """

    sim: wa.Simulator
    kernel: wp.Kernel
    reads: list[str]
    writes: dict[str, tuple[int, ...]]
    bars: dict[str, torch.Tensor]
    step: float = 1e-4  # of differences, relative to the largest number of an input
    switches: tuple[str, ...] = ()  # what it writes that must stay the same within a difference

    def run(self, values, reverse, bars, params_bar):
        count = len(values[self.reads[0]])
        params = {name: x[:1].expand(count, *x.shape[1:]) for name, x in self.sim.params.items()}
        params |= {name: values[name] for name in params if name in values}
        params["inertia"] = 0.5 * (params["inertia"] + params["inertia"].mT)  # the kernels read one half of it
        struct, _held = params_struct(self.sim._engine.types, params)
        written = {
            name: torch.full((count, *shape), torch.nan, dtype=torch.float64) for name, shape in self.writes.items()
        }
        arrays = [*(values[name] for name in self.reads), *written.values(), *bars.values()]
        arguments = [self.sim._engine.device_model, struct, int(reverse), *arrays, params_bar.struct]
        wp.launch(self.kernel, count, arguments, device="cpu")
        return written

    def forward(self, values):
        return self.run(values, False, self.bars, ParameterBars(self.sim._engine, []))

    def reverse(self, values, wanted=()):
        """What has become of the bars, and the gradients of the parameters that are wanted."""
        bars = {name: x.clone() for name, x in self.bars.items()}
        params_bar = ParameterBars(self.sim._engine, list(wanted))
        self.run(values, True, bars, params_bar)
        default = self.sim.params
        return bars, {name: params_bar.gradient(name, values.get(name, default[name])) for name in wanted}

    def errors(self, values, weights, gradients):
        """Errors of gradients of the weighted sum of what the stage writes, by name.

        Relative to the largest entry in the batch; zero gradients must be zero.
        """
        errors = {}
        for name, gradient in gradients.items():
            expected, steady = self.differences(values, weights, name)
            assert steady.double().mean() > 0.9
            size = expected[steady].abs().max().item()
            error = (gradient - expected)[steady].abs().max().item()
            errors[name] = error / size if size > 0.0 else error
        return errors

    def differences(self, values, weights, name):
        """Four-point differences for every entry of values[name], and for which of them no switch was met."""
        x = values.get(name, self.sim.params.get(name))
        n = x[0].numel()
        finite = x[torch.isfinite(x)].abs()
        h = self.step * max(finite.max().item() if len(finite) else 0.0, 0.01)
        moves = h * torch.eye(n, dtype=torch.float64)
        copies = {**values, **{("weight", key): weight for key, weight in weights.items()}, name: x}
        copies = {key: y.repeat_interleave(4 * n, 0) for key, y in copies.items()}
        moved = copies[name].reshape(len(x), 4 * n, n) + torch.cat([moves, -moves, 2 * moves, -2 * moves])
        copies[name] = moved.reshape(-1, *x.shape[1:])
        written = self.forward(copies)
        f = sum(weigh(written[key], copies["weight", key]) for key in weights).reshape(len(x), 4, n)
        steady = torch.ones(len(x), n, dtype=bool)
        for key in self.switches:
            now = written[key].nan_to_num(-1.0).reshape(len(x), 4, n, -1)
            steady &= (now == self.forward(values)[key].nan_to_num(-1.0).reshape(len(x), 1, 1, -1)).all(-1).all(1)
        slope = (8 * (f[:, 0] - f[:, 1]) - (f[:, 2] - f[:, 3])) / (12 * h)
        return slope.reshape(x.shape), steady.reshape(x.shape)

    def check(self, values, weights, gradients, tolerance=TOLERANCE):
        errors = self.errors(values, weights, gradients)
        wrong = {name: error for name, error in errors.items() if not error < tolerance}
        assert not wrong, wrong


def weigh(written, weight):
    """Weighted sum per environment; what has no weight may be NaN."""
    return torch.where(weight != 0, written * weight, 0.0).flatten(1).sum(1)


def normal(seed, *shape):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def simulator(model, num_envs, dt=0.02, **options):
    return wa.Simulator(model, num_envs, device="cpu", dtype="float64", dt=dt, validate=False, **options)


def zoo(num_envs=6, **options):
    return simulator(zoo_model(), num_envs, **options)


# -- dynamics


@cache
def dynamics_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar

    @wp.kernel(**OPTIONS)
    def rates(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, tau: array2, next_qd: array2, q_bar: array2,
        qd_bar: array2, tau_bar: array2, armature_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """Next rates under the joint forces tau and armature, without contacts."""
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        for j in range(model.num_dofs):
            e.dofs[j].u = tau[env, j]
            e.dofs[j].diagonal = params.armature[env, j]
        s.dynamics.factorise(e)
        s.rows.apply_impulses(e)
        s.dynamics.solve_down(e)
        for j in range(model.num_dofs):
            next_qd[env, j] = qd[env, j] + e.dofs[j].dqd
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = qd_bar[env]
            s.dynamics.solve_up_adjoint(e, e_bar)
            s.dynamics.solve_down_adjoint(e, e_bar)
            s.motion.clear(e, e_bar)
            s.motion.motion_adjoint(e, e_bar)
            for j in range(model.num_dofs):
                tau_bar[env, j] = e_bar.dofs[j].s
                armature_bar[env, j] = s.actuation.diagonal_bar(e, e_bar, j)

    return rates


def dynamics_stage(sim, next_bar):
    """Starts the adjoint of q at random, since the stage adds to it."""
    n, nq, nv = sim.num_envs, sim.model.nq, sim.model.nv
    nan = torch.full((n, nv), torch.nan, dtype=torch.float64)
    bars = {"q": normal(9, n, nq), "qd": next_bar, "tau": nan, "armature": nan}
    return Stage(sim, dynamics_kernel(), ["q", "qd", "tau"], {"next_qd": (nv,)}, bars)


def test_dynamics_adjoint_matches_differences_for_state_forces_bodies_and_placements():
    sim = zoo()
    q, qd, _ = zoo_states(sim)
    values = {"q": q, "qd": qd, "tau": normal(1, *qd.shape)}
    next_bar = normal(2, *qd.shape)
    stage = dynamics_stage(sim, next_bar)
    bars, gradients = stage.reverse(values, ["gravity", "mass", "com", "inertia", "joint_pos", "joint_quat"])
    gradients |= {**bars, "q": bars["q"] - stage.bars["q"]}
    stage.check(values, {"next_qd": next_bar}, gradients)


def test_dynamics_adjoint_gives_the_derivatives_of_pinocchios_aba():
    path = pybullet_robot("franka_panda/panda.urdf")
    model = wa.load(path, meshes=False, mimic="ignore")
    sim = simulator(model, model.nv, dt=1.0)  # rates change by qdd
    robot = PinocchioRobot(model, path, floating=False)
    eye = torch.eye(model.nv, dtype=torch.float64)
    stage = dynamics_stage(sim, eye)  # environment i differentiates rate i
    rng = np.random.default_rng(3)
    for _ in range(5):
        q, qd, tau = rng.normal(size=(3, model.nv)) * np.array([[1.0], [1.0], [10.0]])
        values = {name: torch.as_tensor(x).repeat(model.nv, 1) for name, x in (("q", q), ("qd", qd), ("tau", tau))}
        bars, _ = stage.reverse(values)
        ours = [bars["q"] - stage.bars["q"], bars["qd"] - eye, bars["tau"]]
        robot.set_armature(model.armature)
        state = robot.state(q, qd)
        pin.computeABADerivatives(robot.pin, robot.data, state.q, state.v, state.T @ tau)
        data = robot.data
        minv = np.triu(data.Minv) + np.triu(data.Minv, 1).T
        for name, mine, theirs in zip(("q", "qd", "tau"), ours, (data.ddq_dq, data.ddq_dv, minv)):
            theirs = state.T.T @ theirs @ state.T
            error = np.abs(mine.numpy() - theirs).max() / np.abs(theirs).max()
            assert error < 1e-12, (name, error)  # rounding: 4e-15 measured


# -- integration


@cache
def integration_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar

    @wp.kernel(**OPTIONS)
    def integrate(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, dqd: array2, next_q: array2,
        next_qd: array2, q_bar: array2, qd_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        for j in range(model.num_dofs):
            e.dofs[j].dqd = dqd[env, j]
        s.integrate.integrate(e, next_q[env], next_qd[env])
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = qd_bar[env]
            s.integrate.integrate_adjoint(e, e_bar)

    return integrate


# half the angle of a step's rotation: series and closed forms change places at 0.0316 (sine) and 0.316 (its slope)
HALF_ANGLES = torch.tensor([0.0, 1e-12, 1e-6, 1e-3, 0.0315, 0.0317, 0.315, 0.317, 1.0, 3.0, 10.0], dtype=torch.float64)


def test_integration_adjoint_matches_differences_for_rotations_of_every_size():
    sim = zoo(len(HALF_ANGLES), dt=1.0)
    q, qd, _ = zoo_states(sim)
    start = dict(zip((JointType.FREE, JointType.SPHERICAL), (3, 0)))
    for i, kind in enumerate(sim.model.joint_type):
        if kind in start:
            w = qd[:, sim.model.v_start[i] + start[kind] :][:, :3]
            w *= (2.0 / sim.dt * HALF_ANGLES / w.norm(dim=1))[:, None]
    dqd = 0.3 * qd
    bars = {"q": normal(1, *q.shape), "qd": normal(2, *qd.shape)}
    nq, nv = sim.model.nq, sim.model.nv
    stage = Stage(sim, integration_kernel(), ["q", "qd", "dqd"], {"next_q": (nq,), "next_qd": (nv,)}, bars)
    values = {"q": q, "qd": qd - dqd, "dqd": dqd}
    out, _ = stage.reverse(values)
    gradients = {"q": out["q"], "qd": out["qd"], "dqd": out["qd"]}
    stage.check(values, {"next_q": bars["q"], "next_qd": bars["qd"]}, gradients)


# -- joints: forces and rows


@cache
def joints_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar

    @wp.kernel(**OPTIONS)
    def joints(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, u: array2, dqd: array2, x: array2,
        force: array2, diagonal: array2, b: array2, cfm: array2, bound: array2, rows: array3, q_bar: array2,
        qd_bar: array2, u_bar: array2, force_bar: array2, diagonal_bar: array2, b_bar: array2, cfm_bar: array2,
        bound_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """Forces, what they add to the diagonal; of every row cfm, bound, and b as far as it is the joint's own."""
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        s.actuation.actuation(e)
        s.rows.joint.list_rows(e)
        for j in range(model.num_dofs):
            force[env, j] = e.dofs[j].u
            diagonal[env, j] = e.dofs[j].diagonal
        for k in range(e.num_joint_rows):
            bias, softness = s.rows.joint.row_terms(e, e.joint_rows[k])
            b[env, k] = e.joint_rows[k].sign * qd[env, e.joint_rows[k].dof] + bias
            cfm[env, k] = softness
            bound[env, k] = e.joint_rows[k].high
            rows[env, k, 0] = real(e.joint_rows[k].kind)
            rows[env, k, 1] = real(e.joint_rows[k].index)
            rows[env, k, 2] = e.joint_rows[k].sign
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = qd_bar[env]
            e_bar.u = u_bar[env]
            for j in range(model.num_dofs):
                # the adjoint of the diagonal is -(s dqd / dt + kappa / 2): kappa makes it what is asked for
                e.dofs[j].dqd = dqd[env, j]
                e_bar.dofs[j].s = force_bar[env, j]
                e_bar.dofs[j].kappa = real(-2.0) * (diagonal_bar[env, j] + force_bar[env, j] * dqd[env, j] / model.dt)
            s.actuation.actuation_adjoint(e, e_bar)
            for k in range(e.num_joint_rows):
                # and that of cfm is b_bar x + E
                e.joint_rows[k].x = x[env, k]
                e_bar.joint_rows[k].b = b_bar[env, k]
                e_bar.joint_rows[k].E = cfm_bar[env, k] - b_bar[env, k] * x[env, k]
                e_bar.joint_rows[k].bound = bound_bar[env, k]
                s.rows.joint.joint_row_adjoint(e, e_bar, e.joint_rows[k], e_bar.joint_rows[k])

    return joints


JOINT_PARAMETERS = [name for name in GROUPS["joints"] if name != "gravity"] + ["erp", "cfm"]


def check_joints(sim, forces: bool, rows: bool):
    """Returns what the stage wrote."""
    q, qd, u = zoo_states(sim)
    n, nv, nj = sim.num_envs, sim.model.nv, SIZES.joint_rows
    writes = {"force": (nv,), "diagonal": (nv,), "b": (nj,), "cfm": (nj,), "bound": (nj,), "rows": (nj, 3)}
    values = {"q": q, "qd": qd, "u": u, "dqd": normal(1, n, nv), "x": normal(2, n, nj)}
    bars = {name: normal(k, *values[name].shape) for k, name in enumerate(("q", "qd", "u"))}
    weights = {name: normal(k, n, *writes[name]) for k, name in enumerate(("force", "diagonal", "b", "cfm", "bound"))}
    stage = Stage(sim, joints_kernel(), list(values), writes, {**bars, **weights}, switches=("rows",))
    written = stage.forward(values)
    for name in weights:
        if not (forces if name in ("force", "diagonal") else rows):
            weights[name].zero_()
    weights["bound"][written["bound"].isinf()] = 0.0  # of a limit
    for name in ("b", "cfm", "bound"):
        weights[name][written[name].isnan()] = 0.0  # beyond the last row
    out, gradients = stage.reverse(values, JOINT_PARAMETERS)
    gradients |= {name: out[name] - bars[name] for name in bars}
    stage.check(values, weights, gradients)
    return written


def drives_as_rows(sim, written):
    """(num_envs, nu) bool"""
    kind, index = written["rows"][..., 0], written["rows"][..., 1]
    return torch.stack([((kind == DRIVE) & (index == k)).any(1) for k in range(sim.model.nu)], 1)


def test_actuation_adjoint_matches_differences_within_and_beyond_the_effort_limits():
    sim = zoo(12)
    written = check_joints(sim, forces=True, rows=False)
    beyond = drives_as_rows(sim, written)
    torque = torch.as_tensor(sim.model.drive_type == DriveType.TORQUE)
    force = zoo_states(sim)[2] * torch.as_tensor(sim.model.gear.copy())
    beyond[:, torque] = (force.abs() > sim.params["effort_limit"])[:, torque]
    for kind in DriveType:
        some = beyond[:, torch.as_tensor(sim.model.drive_type == kind)]
        assert some.any() and not some.all(), kind


def test_joint_row_adjoint_matches_differences_for_limits_drives_and_dry_friction():
    sim = zoo(12)
    written = check_joints(sim, forces=False, rows=True)
    kind, _, sign = written["rows"].unbind(-1)
    assert set(kind[~kind.isnan()].tolist()) == {LIMIT, DRIVE, DRY_FRICTION}
    assert set(sign[kind == LIMIT].tolist()) == {-1.0, 1.0}
    assert drives_as_rows(sim, written)[:, torch.as_tensor(sim.model.drive_type == DriveType.VELOCITY)].any()
