"""System identification of a Laikago: 179 parameters from 64 short recordings, with standard deviations.

    python examples/identify.py            # a few minutes; tables, plots, film and USD stage in out/identify
    python examples/identify.py --quick    # 8 recordings, one iteration

MuJoCo generates the recordings, with noise, from the same URDF file with different masses, centres of mass, inertias,
damping, armature, friction and gains; the robot is also weighed. All these parameters are estimated by Gauss-Newton on
the exact Jacobian of our simulation; inertias use log-Cholesky coordinates, in which every value is physically valid.
The initial state of each recording is also unknown. The Hessian gives the standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import mujoco
import mujoco.rollout
import numpy as np
import torch
from toolbox import options, write_motion, write_summary

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.progress import Bar

ROBOT = Path(wa.__file__).parents[1] / "scenes" / "laikago.urdf"
DT, HOLD, CONTROLS = 5e-4, 20, 20  # s per step, steps per control and sample, samples per recording
SUB = 5  # MuJoCo steps per step of ours, so that recordings are close to continuous motion
KINDS = ("standing", "sliding", "flying", "limp")
# noise of a sample: m and rad; noise of the initial velocities: m/s and rad/s
NOISE_POSE, NOISE_ANGLE, NOISE_SPEED = 1e-3, 1e-3, 2e-2
NOISE_WEIGHT = 0.05  # kg; the robot is weighed, as motion determines masses and gains only up to a common factor
torch.set_default_dtype(torch.float64)


# -- parameters


class Parameters:
    """The estimated quantities as one vector theta of deviations from the URDF file; maps theta to parameters."""

    def __init__(self, model: wa.Model):
        self.model = model
        nl, nu = model.num_links, model.nu
        guess = {"damping": 0.2, "armature": 0.02, "kp": 300.0, "kd": 8.0, "friction": 0.6}
        self.guess = {name: torch.full((1 if name == "friction" else nu,), value) for name, value in guess.items()}
        spread = {"damping": 0.4, "armature": 0.4, "kp": 0.15, "kd": 0.15, "friction": 0.3}  # sd of the logarithms
        self.nominal = wa.log_cholesky(*(torch.tensor(x) for x in (model.mass, model.com, model.inertia)))
        # mass and three radii of gyration: relative; shear and centre of mass: relative to the size of the link
        size = self.nominal[:, 1:4].exp().mean(1, keepdim=True)
        inertial = torch.cat([0.05 * torch.ones(nl, 1), 0.1 * torch.ones(nl, 3), 0.1 * size.expand(-1, 3),
                              0.2 * size.expand(-1, 3)], 1)  # fmt: skip
        self.slices, self.prior = {}, []
        for name, values in {"inertia": inertial.flatten(), **{
            name: spread[name] * torch.ones_like(value) for name, value in self.guess.items()
        }}.items():  # fmt: skip
            at = sum(len(x) for x in self.prior)
            self.slices[name] = slice(at, at + len(values))
            self.prior.append(values)
        self.prior = torch.cat(self.prior)
        self.count = len(self.prior)

    def __call__(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """The simulator's parameters; shared by all environments."""
        mass, com, inertia = wa.from_log_cholesky(self.nominal + theta[self.slices["inertia"]].reshape(-1, 10))
        other = {name: value * torch.exp(theta[self.slices[name]]) for name, value in self.guess.items()}
        free = torch.zeros(self.model.nv - self.model.nu)
        return {
            "mass": mass, "com": com, "inertia": inertia,
            "damping": torch.cat([free, other["damping"]]), "armature": torch.cat([free, other["armature"]]),
            "kp": other["kp"], "kd": other["kd"], "friction": other["friction"].expand(len(self.model.pairs)),
        }  # fmt: skip


# -- recordings


@dataclass
class Recordings:
    """n short motions: measured positions (CONTROLS + 1, n, nq), initial velocities, controls, drives on/off."""

    q: torch.Tensor
    qd: torch.Tensor  # (n, nv)
    u: torch.Tensor  # (CONTROLS, n, nu)
    on: torch.Tensor  # (n, 1) 1 or 0
    weight: float  # mass of the whole robot, kg


def mujoco_robot(model: wa.Model, params: dict[str, torch.Tensor], on: bool) -> mujoco.MjModel:
    """The URDF file loaded by MuJoCo, on a free joint and a plane, with the given parameters."""
    spec = mujoco.MjSpec.from_file(str(ROBOT))
    spec.option.timestep = DT / SUB
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
    base = spec.worldbody.first_body()
    base.add_freejoint()
    mu = float(params["friction"][0])
    firm = {
        "solref": [2.5 * DT / SUB, 1.0],
        "solimp": [0.95, 0.99, 1e-3, 0.5, 2.0],
        "friction": [mu, 0.0, 0.0],
        "condim": 3,
    }
    for geom in spec.geoms:
        touches = geom.type == mujoco.mjtGeom.mjGEOM_SPHERE  # the toes
        geom.contype, geom.conaffinity = 0, int(touches)
        for name, value in firm.items():
            setattr(geom, name, value)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], contype=1, conaffinity=0, **firm)
    for k, name in enumerate(model.drive_names):
        kp, kd = (float(params[gain][k]) * on for gain in ("kp", "kd"))
        spec.add_actuator(
            name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED, gainprm=[kp] + [0.0] * 9,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE, biasprm=[0.0, -kp, -kd] + [0.0] * 7,
        )  # fmt: skip
    m = spec.compile()
    m.dof_damping[:], m.dof_armature[:] = params["damping"].numpy(), params["armature"].numpy()
    for i, name in enumerate(model.link_names):
        b = m.body(name).id
        moments, axes = np.linalg.eigh(params["inertia"][i].numpy())
        axes[:, 0] *= np.sign(np.linalg.det(axes))
        m.body_mass[b], m.body_ipos[b], m.body_inertia[b] = float(params["mass"][i]), params["com"][i].numpy(), moments
        mujoco.mju_mat2Quat(m.body_iquat[b], axes.flatten())
    mujoco.mj_setConst(m, mujoco.MjData(m))
    return m


def record(model: wa.Model, params: dict[str, torch.Tensor], n: int, seed: int) -> Recordings:
    """n motions of the robot in MuJoCo, cycling through KINDS, as measured by motion capture and joint encoders."""
    chance = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=chance)

    kind = torch.arange(n) % len(KINDS)
    air = kind[:, None] >= KINDS.index("flying")
    on = (kind[:, None] != KINDS.index("limp")).to(torch.float64)
    q, qd = torch.tensor(model.q0).repeat(n, 1), torch.zeros(n, model.nv)
    shift = torch.zeros(n, model.nv)
    shift[:, 2:3] = torch.where(air, 1.0, -0.005)
    shift[:, 3:6] = torch.where(air, 0.5, 0.02) * normal(n, 3)
    shift[:, 6:] = torch.where(air, 0.2, 0.03) * normal(n, model.nu)
    q = wa.retract(model, q, shift)
    qd[:, :2] = torch.where(kind[:, None] == KINDS.index("sliding"), 1.0, 0.0) * normal(n, 2)
    qd[:, 3:6] = torch.where(air, 1.0, 0.0) * normal(n, 3)
    qd[:, 6:] = torch.where(on == 0, 1.5, 0.0) * normal(n, model.nu)

    # drive targets: three sines per joint around the standing pose
    warm = 10  # controls before the recording, in which the robot settles on its feet
    time = torch.arange(warm + CONTROLS)[:, None, None] * (DT * HOLD)
    swing = torch.where(air, 0.25, 0.08)
    u = torch.tensor(model.u0).expand(warm + CONTROLS, n, -1).clone()
    for _ in range(3):
        rate, phase = 2 * np.pi * (1.0 + 5.0 * torch.rand(n, model.nu, generator=chance)), 3.0 * normal(n, model.nu)
        u += swing * torch.sin(rate * time + phase)
    states = torch.zeros(CONTROLS + 1, n, model.nq + model.nv)
    for drives in (True, False):
        rows = (on[:, 0] == drives).nonzero()[:, 0]
        if len(rows):
            states[:, rows] = run_mujoco(mujoco_robot(model, params, drives), q[rows], qd[rows], u[:, rows])[warm:]
    exact, speeds = states[..., : model.nq], states[0, :, model.nq :]
    sigma = noise(model)
    measured = wa.retract(model, exact, sigma * normal(CONTROLS + 1, n, model.nv))
    weight = float(params["mass"].sum() + NOISE_WEIGHT * normal(1))
    return Recordings(measured, speeds + NOISE_SPEED * normal(n, model.nv), u[warm:], on, weight)


def run_mujoco(m: mujoco.MjModel, q: torch.Tensor, qd: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """States at the controls (controls + 1, n, nq + nv). MuJoCo uses wxyz and angular velocities in body axes."""
    n = len(q)
    start = np.concatenate([np.zeros((n, 1)), q.numpy(), qd.numpy()], 1)
    start[:, 4:8] = np.roll(start[:, 4:8], 1, axis=1)
    at = 1 + m.nq + 3
    for row in range(n):
        start[row, at : at + 3] = quat_to_matrix(q[row, 3:7].numpy()).T @ start[row, at : at + 3]
    control = np.repeat(u.transpose(0, 1).numpy(), HOLD * SUB, axis=1)
    states, _ = mujoco.rollout.rollout(m, mujoco.MjData(m), start, control)
    states = np.concatenate([start[:, None], states], 1)[:, :: HOLD * SUB, 1:].transpose(1, 0, 2).copy()
    states[..., 3:7] = np.roll(states[..., 3:7], -1, axis=-1)
    turn = quat_to_matrix(states[..., 3:7])
    at = m.nq + 3
    states[..., at : at + 3] = np.einsum("tnij,tnj->tni", turn, states[..., at : at + 3])
    return torch.tensor(states)


def noise(model: wa.Model) -> torch.Tensor:
    """Standard deviations (nv,) of a sample."""
    return torch.cat([torch.full((3,), NOISE_POSE), torch.full((model.nv - 3,), NOISE_ANGLE)])


# -- estimation


class Estimator:
    """Gauss-Newton for the parameters and the initial state of every recording."""

    def __init__(self, parameters: Parameters, data: Recordings):
        self.parameters, self.data, self.model = parameters, data, parameters.model
        self.n = data.q.shape[1]
        self.sim = wa.Simulator(self.model, self.n, dt=DT, dtype="float64", device="cpu")
        self.many = wa.Simulator(self.model, self.n * HOLD, dt=DT, dtype="float64", device="cpu")
        self.sigma = noise(self.model)
        self.theta = torch.zeros(parameters.count)
        self.q, self.qd = data.q[0], data.qd

    def params(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """Parameters per recording; in some the drives are off."""
        made = {name: value.expand(self.n, *value.shape) for name, value in self.parameters(theta).items()}
        return made | {gain: self.data.on * made[gain] for gain in ("kp", "kd")}

    def predict(self, theta, q, qd) -> torch.Tensor:
        """Positions (CONTROLS + 1, n, nq) at the samples."""
        return self.sim.rollout(q, qd, self.data.u, substeps=HOLD, params=self.params(theta))[0]

    def residuals(self, theta, q, qd) -> torch.Tensor:
        """Residuals (CONTROLS + 1, n, nv), in standard deviations of the noise."""
        return wa.difference(self.model, self.predict(theta, q, qd), self.data.q) / self.sigma

    def cost(self, theta, q, qd) -> float:
        off = (self.residuals(theta, q, qd) ** 2).sum()
        speeds, prior = (qd - self.data.qd) / NOISE_SPEED, theta / self.parameters.prior
        scales = (self.weight(theta) - self.data.weight) / NOISE_WEIGHT
        return float(off + (speeds**2).sum() + (prior**2).sum() + scales**2)

    def weight(self, theta: torch.Tensor) -> torch.Tensor:
        return self.parameters(theta)["mass"].sum()

    def step_jacobians(self, q, qd, u, params) -> tuple[torch.Tensor, torch.Tensor]:
        """Jacobians of single steps by the state (e, 2 nv, 2 nv) and by all simulator parameters (e, 2 nv, ...)."""
        params = {name: value.detach().requires_grad_() for name, value in params.items()}
        dx = torch.zeros(len(q), 2 * self.model.nv, requires_grad=True)
        dq, dqd = dx.chunk(2, 1)
        q_next, qd_next = self.many.step(wa.retract(self.model, q, dq), qd + dqd, u, params=params)
        out = torch.cat([wa.difference(self.model, q_next.detach(), q_next), qd_next], 1)
        rows = []
        for r in range(out.shape[1]):  # one adjoint of all steps per output
            slopes = torch.autograd.grad(out[:, r].sum(), [dx, *params.values()], retain_graph=True)
            rows.append(torch.cat([slope.flatten(1) for slope in slopes], 1))
        return torch.stack(rows, 1).split([out.shape[1], rows[0].shape[1] - out.shape[1]], 2)

    def jacobian(self, bar) -> tuple[torch.Tensor, torch.Tensor]:
        """Jacobians of the positions at all samples (CONTROLS + 1, n, nv, ...), by the initial states and by theta."""
        nv, n = self.model.nv, self.n
        params = {name: value.detach() for name, value in self.params(self.theta).items()}
        every = self.data.u.repeat_interleave(HOLD, 0)
        qs, qds = self.sim.rollout(self.q, self.qd, every, params=params)
        chain = torch.autograd.functional.jacobian(
            lambda theta: torch.cat([value.flatten(1) for value in self.params(theta).values()], 1), self.theta
        )  # (n, all parameters, count)
        tiled = {name: value.repeat(HOLD, *[1] * (value.dim() - 1)) for name, value in params.items()}
        X = torch.cat([torch.eye(2 * nv).expand(n, -1, -1), torch.zeros(n, 2 * nv, self.parameters.count)], 2)
        found = [X[:, :nv]]
        for c in range(CONTROLS):
            block = slice(c * HOLD, (c + 1) * HOLD)
            A, P = self.step_jacobians(*(x[block].flatten(0, 1) for x in (qs, qds, every)), tiled)
            A, P = A.unflatten(0, (HOLD, n)), P.unflatten(0, (HOLD, n))
            for k in range(HOLD):
                X = A[k] @ X
                X[:, :, 2 * nv :] += P[k] @ chain
            found.append(X[:, :nv])
            bar(c + 1)
        return torch.stack(found).split([2 * nv, self.parameters.count], 3)

    def improve(self, bar) -> float:
        """One iteration; returns the cost after it."""
        nv = self.model.nv
        r = self.residuals(self.theta, self.q, self.qd).transpose(0, 1).flatten(1)  # (n, samples nv)
        by_state, by_theta = ((j / self.sigma[:, None]).transpose(0, 1).flatten(1, 2) for j in self.jacobian(bar))
        speed = torch.cat([torch.zeros(nv), torch.full((nv,), NOISE_SPEED**-2)])
        Hxx = by_state.mT @ by_state + torch.diag(speed)
        Hxt, Htt = by_state.mT @ by_theta, (by_theta.mT @ by_theta).sum(0)
        gx = (by_state.mT @ r[..., None])[..., 0]
        gx[:, nv:] += (self.data.qd - self.qd) / NOISE_SPEED**2
        gt = (by_theta.mT @ r[..., None])[..., 0].sum(0) - self.theta / self.parameters.prior**2
        heavier = torch.autograd.functional.jacobian(self.weight, self.theta) / NOISE_WEIGHT
        Htt = Htt + torch.outer(heavier, heavier)
        gt = gt + heavier * (self.data.weight - self.weight(self.theta)) / NOISE_WEIGHT
        # eliminate the initial states (Schur complement): the Hessian of the parameters remains
        solved = torch.linalg.solve(Hxx, torch.cat([Hxt, gx[..., None]], 2))
        self.hessian = Htt + torch.diag(self.parameters.prior**-2) - (Hxt.mT @ solved[..., :-1]).sum(0)
        dtheta = torch.linalg.solve(self.hessian, gt - (Hxt.mT @ solved[..., -1:])[..., 0].sum(0))
        dx = solved[..., -1] - (solved[..., :-1] @ dtheta)
        before = self.cost(self.theta, self.q, self.qd)
        for length in (1.0, 0.5, 0.2, 0.05):
            theta = self.theta + length * dtheta
            q, qd = wa.retract(self.model, self.q, length * dx[:, :nv]), self.qd + length * dx[:, nv:]
            if (cost := self.cost(theta, q, qd)) < before:
                self.theta, self.q, self.qd = theta, q, qd
                return cost
        return before

    def deviations(self) -> torch.Tensor:
        """Standard deviations of theta, larger if the residuals are larger than the noise."""
        r = self.residuals(self.theta, self.q, self.qd)
        excess = max(1.0, float((r**2).mean()))
        return torch.linalg.inv(self.hessian).diagonal().sqrt() * excess**0.5


# -- report


def prediction_error(parameters: Parameters, theta: torch.Tensor, data: Recordings) -> dict[str, float]:
    """RMS errors over recordings predicted from their measured initial states: base in mm, joints in mrad."""
    judge = Estimator(parameters, data)
    off = judge.residuals(theta, judge.q, judge.qd)[1:] * judge.sigma
    return {"base_mm": 1e3 * float((off[..., :3] ** 2).mean().sqrt()),
            "joints_mrad": 1e3 * float((off[..., 6:] ** 2).mean().sqrt())}  # fmt: skip


def compare(parameters: Parameters, truth: torch.Tensor, found: torch.Tensor, sd: torch.Tensor) -> dict[str, dict]:
    """Errors of the main quantities before and after, and by group the share of values within two sd."""
    before, after, true = (parameters(theta) for theta in (torch.zeros_like(truth), found, truth))
    joints = slice(-parameters.model.nu, None)
    both = {
        name: (p["kd"] + p["damping"][joints]) for name, p in (("before", before), ("after", after), ("true", true))
    }
    rows = {
        "total mass, %": [100 * (p["mass"].sum() / true["mass"].sum() - 1).abs() for p in (before, after)],
        "link masses, %": [100 * (p["mass"] / true["mass"] - 1) for p in (before, after)],
        "base's centre of mass, mm": [1e3 * (p["com"][0] - true["com"][0]) for p in (before, after)],
        "base's inertia, %": [100 * torch.linalg.matrix_norm(p["inertia"][0] - true["inertia"][0])
                              / torch.linalg.matrix_norm(true["inertia"][0]) for p in (before, after)],
        "damping, %": [100 * (p["damping"][joints] / true["damping"][joints] - 1) for p in (before, after)],
        "armature, %": [100 * (p["armature"][joints] / true["armature"][joints] - 1) for p in (before, after)],
        "kp, %": [100 * (p["kp"] / true["kp"] - 1) for p in (before, after)],
        "kd, %": [100 * (p["kd"] / true["kd"] - 1) for p in (before, after)],
        "kd + damping, %": [100 * (both[name] / both["true"] - 1) for name in ("before", "after")],
        "friction, %": [100 * (p["friction"][0] / true["friction"][0] - 1) for p in (before, after)],
    }  # fmt: skip
    table = {name: {"before": rms(a), "after": rms(b)} for name, (a, b) in rows.items()}
    groups = {
        name: ((found - truth)[part].abs() < 2 * sd[part]).double().mean() for name, part in parameters.slices.items()
    }
    known = (sd < 0.5 * parameters.prior).double()
    return {"table": table, "within_two_sd": {name: float(share) for name, share in groups.items()},
            "determined": {name: float(known[part].mean()) for name, part in parameters.slices.items()}}  # fmt: skip


def rms(x: torch.Tensor) -> float:
    return float((x**2).mean().sqrt())


def draw(path: Path, parameters: Parameters, truth, found, sd, costs: list[float]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 2.5))
    left.semilogy(costs, "o-")
    left.set(xlabel="iteration", ylabel="cost per sample")
    at = torch.arange(len(truth))
    scale = parameters.prior
    right.errorbar(
        at, (found - truth) / scale, yerr=2 * sd / scale, fmt=".", markersize=3, elinewidth=0.7, label="after, 2 sd"
    )
    right.plot(at, -truth / scale, ".", markersize=3, color="grey", label="before")
    for name, part in parameters.slices.items():
        right.axvline(part.start, color="grey", linewidth=0.5)
        right.text(part.start, right.get_ylim()[1], f" {name}", fontsize=7, va="top")
    right.set(xlabel="parameter", ylabel="error, in sd of the prior")
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.grid(True, alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> dict:
    parser = options(__doc__, iterations=6, seeds=1)
    parser.add_argument(
        "--recordings", type=int, default=64, help="training recordings (%(default)s); a quarter as many for testing"
    )
    chosen = parser.parse_args(arguments)
    n, iterations, seeds = (8, 1, 1) if chosen.quick else (chosen.recordings, chosen.iterations, chosen.seeds)
    folder = chosen.out or Path("out/identify")
    folder.mkdir(parents=True, exist_ok=True)
    model = wa.load("laikago_feet")
    parameters = Parameters(model)
    results = []
    for seed in range(seeds):
        truth = parameters.prior * torch.randn(parameters.count, generator=torch.Generator().manual_seed(1000 + seed))
        data = record(model, parameters(truth), n, seed=2 * seed)
        judged_by = record(model, parameters(truth), max(4, n // 4), seed=2 * seed + 1)
        estimator = Estimator(parameters, data)
        samples = data.q[1:, :, 0].numel() * model.nv
        costs = [estimator.cost(estimator.theta, estimator.q, estimator.qd) / samples]
        with Bar(f"Gauss-Newton, seed {seed}") as bar:
            for i in range(iterations):
                costs.append(estimator.improve(lambda c, i=i: bar(i * CONTROLS + c, iterations * CONTROLS)) / samples)
        found, sd = estimator.theta, estimator.deviations()
        guesses = {"before": torch.zeros_like(found), "after": found, "truth": truth}
        errors = {name: prediction_error(parameters, theta, judged_by) for name, theta in guesses.items()}
        results.append({"costs": costs, "prediction": errors, **compare(parameters, truth, found, sd)})
        print(f"seed {seed}: cost per sample {costs[0]:.3g} -> {costs[-1]:.3g} in {iterations} iterations")
        for what in ("base_mm", "joints_mrad"):
            print(f"  held-out motion, {what}: " + ", ".join(f"{name} {e[what]:.3g}" for name, e in errors.items()))
        for name, row in results[-1]["table"].items():
            print(f"  {name:28} {row['before']:8.3g} -> {row['after']:.3g}")
        shares = [f"{name} {100 * share:.0f} %" for name, share in results[-1]["within_two_sd"].items()]
        print(f"  within two standard deviations: {', '.join(shares)}")
    draw(folder / "parameters.png", parameters, truth, found, sd, costs)
    # three robots: as recorded, as predicted before, as predicted after
    judge = Estimator(parameters, judged_by)
    motions = [judged_by.q] + [judge.predict(theta, judge.q, judge.qd) for theta in (torch.zeros_like(found), found)]
    write_motion(folder, model, torch.stack([qs[:, 1] for qs in motions], 1), DT * HOLD)
    return write_summary(folder, {"recordings": n, "iterations": iterations, "seeds": results})


if __name__ == "__main__":
    main()
