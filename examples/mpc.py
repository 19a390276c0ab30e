"""Fallen Laikagos stand up: model predictive control by iLQR through contacts, with batched Jacobians.

    python examples/mpc.py              # about a minute; cost, film and USD stage in out/mpc
    python examples/mpc.py --quick      # a few seconds

Sixteen robots with random tilts and joint angles are dropped with limp legs. Then, ten times per simulated second, all
of them plan the joint targets of the next 0.8 s. The Jacobians of all controls of all plans come from one launch per
step of a control, the Riccati recursion runs as a batch in torch, and the line search tries all step lengths as a
batch. For comparison, the same robots are commanded to the standing pose at once, and follow the initial guess.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from toolbox import options, write_motion, write_summary

import warp_articulated as wa
from warp_articulated.progress import Bar

DT, HOLD = 5e-3, 4  # s per step, steps per control
HORIZON = 40  # controls per plan
EVERY = 5  # controls between two plans
FIRST, AGAIN = 10, 2  # iterations of the first plan, and of later plans, which start from the previous one
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)  # step lengths of the line search; the last one keeps the plan
STANDING = 0.28  # m, height of the base
UPRIGHT = 0.25  # rad


@dataclass
class Plan:
    """Plans of all robots: states (HORIZON + 1, n, ...), controls (HORIZON, n, nu), feedback (HORIZON, n, nu, 2 nv)."""

    q: torch.Tensor
    qd: torch.Tensor
    u: torch.Tensor
    K: torch.Tensor
    cost: torch.Tensor  # (n,)


class Planner:
    """iLQR for n robots. The cost is the weighted squared distance of the state from `goal`."""

    def __init__(self, model: wa.Model, n: int, goal: torch.Tensor):
        self.model, self.n, self.goal = model, n, goal
        self.sim = wa.Simulator(model, n * len(LENGTHS), dt=DT, substeps=HOLD, dtype="float64", device="cpu")
        self.linear = wa.Simulator(model, n * HORIZON, dt=DT, dtype="float64", device="cpu")
        nv = model.nv
        weights = torch.ones(2 * nv, dtype=torch.float64)
        weights[:2], weights[2], weights[3:6], weights[6:nv] = 1.0, 200.0, 20.0, 2.0
        weights[nv : nv + 6], weights[nv + 6 :] = 0.5, 0.01
        self.stage, self.last, self.effort = weights, 10.0 * weights, 0.5
        self.u0 = self.sim.initial_control()[0]
        self.crouch = self.u0.clone()
        for k, name in enumerate(model.drive_names):  # feet below the hips, knees fully bent
            self.crouch[k] = {"hip": 0.0, "upper": 1.2, "lower": -2.1}[name.split("_")[1]]
        self.damping = torch.full((n, 1, 1), 1e-3, dtype=torch.float64)

    def error(self, q, qd, goal):
        return torch.cat([wa.difference(self.model, goal, q), qd], -1)

    def costs(self, q, qd, u, goal) -> torch.Tensor:
        """Costs (n,) of whole trajectories."""
        e = self.error(q, qd, goal)
        states = (self.stage * e[:-1] ** 2).sum((0, -1)) + (self.last * e[-1] ** 2).sum(-1)
        return 0.5 * (states + self.effort * ((u - self.u0) ** 2).sum((0, -1)))

    def roll(self, plan: Plan, k: torch.Tensor, q, qd) -> Plan:
        """The best plan of all step lengths along the change k (HORIZON, n, nu), from the states q and qd."""
        tries = len(LENGTHS)
        length = torch.tensor(LENGTHS, dtype=q.dtype)[:, None, None]
        q, qd = q.repeat(tries, 1), qd.repeat(tries, 1)
        goal = self.goal.repeat(tries, 1)
        qs, qds, us = [q], [qd], []
        for t in range(HORIZON):
            dq = wa.difference(self.model, plan.q[t].repeat(tries, 1), q)
            dx = torch.cat([dq, qd - plan.qd[t].repeat(tries, 1)], -1).reshape(tries, self.n, -1, 1)
            u = plan.u[t] + length * k[t] + (plan.K[t] @ dx)[..., 0]
            q, qd = self.sim.step(q, qd, u.reshape(tries * self.n, -1))
            qs.append(q), qds.append(qd), us.append(u.reshape(tries * self.n, -1))
        qs, qds, us = torch.stack(qs), torch.stack(qds), torch.stack(us)
        costs = torch.nan_to_num(self.costs(qs, qds, us, goal), nan=torch.inf).reshape(tries, self.n)
        best = costs.argmin(0)
        rows = best * self.n + torch.arange(self.n)
        self.damping = torch.where(best[:, None, None] == tries - 1, 10.0 * self.damping, 0.3 * self.damping).clamp(
            1e-4, 1e3
        )
        return Plan(qs[:, rows], qds[:, rows], us[:, rows], plan.K, costs.min(0).values)

    def linearise(self, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        """Jacobians (HORIZON, n, 2 nv, 2 nv) and (HORIZON, n, 2 nv, nu) of all controls, as one batch."""
        q, qd, u = (x[:HORIZON].reshape(HORIZON * self.n, -1) for x in (plan.q, plan.qd, plan.u))
        A, B = self.linear.jacobians(q, qd, u)
        for _ in range(HOLD - 1):
            q, qd = self.linear.step(q, qd, u)
            A_next, B_next = self.linear.jacobians(q, qd, u)
            A, B = A_next @ A, A_next @ B + B_next
        return A.reshape(HORIZON, self.n, *A.shape[1:]), B.reshape(HORIZON, self.n, *B.shape[1:])

    def improve(self, plan: Plan) -> Plan:
        """One iteration of iLQR."""
        A, B = self.linearise(plan)
        e = self.error(plan.q, plan.qd, self.goal)
        Vx, Vxx = self.last * e[-1], torch.diag(self.last).expand(self.n, -1, -1)
        k, K = torch.empty_like(plan.u), torch.empty_like(plan.K)
        eye = torch.eye(self.model.nu, dtype=e.dtype)
        for t in reversed(range(HORIZON)):
            At, Bt = A[t].mT, B[t].mT
            Qx = self.stage * e[t] + (At @ Vx[..., None])[..., 0]
            Qu = self.effort * (plan.u[t] - self.u0) + (Bt @ Vx[..., None])[..., 0]
            VA, VB = Vxx @ A[t], Vxx @ B[t]
            Qxx, Qux, Quu = torch.diag(self.stage) + At @ VA, Bt @ VA, self.effort * eye + Bt @ VB
            # damping: shorter steps for a robot whose last step did not help
            damped = Quu + self.damping * Quu.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * eye
            solved = torch.linalg.solve(damped, torch.cat([Qu[..., None], Qux], -1))
            k[t], K[t] = -solved[..., 0], -solved[..., 1:]
            Kt = K[t].mT
            Vx = Qx + ((Kt @ Quu @ k[t][..., None]) + Kt @ Qu[..., None] + Qux.mT @ k[t][..., None])[..., 0]
            Vxx = Qxx + Kt @ Quu @ K[t] + Kt @ Qux + Qux.mT @ K[t]
            Vxx = 0.5 * (Vxx + Vxx.mT)
        return self.roll(Plan(plan.q, plan.qd, plan.u, K, plan.cost), k, plan.q[0], plan.qd[0])

    def shift(self, plan: Plan, q, qd) -> Plan:
        """The plan without its first EVERY controls, from the robots' current states; the last control is held."""
        later = [min(t + EVERY, HORIZON - 1) for t in range(HORIZON)]
        states = [min(t + EVERY, HORIZON) for t in range(HORIZON + 1)]
        moved = Plan(plan.q[states], plan.qd[states], plan.u[later], 0.0 * plan.K, plan.cost)
        return self.roll(moved, torch.zeros_like(plan.u), q, qd)

    def start(self, q, qd) -> Plan:
        """The better of two initial plans: directly to the standing pose, or with the feet drawn in first."""
        nv, nu = self.model.nv, self.model.nu
        held = q[:, 7:].expand(HORIZON, -1, -1)
        still = q.new_zeros(HORIZON, self.n, nu, 2 * nv)
        rest = Plan(q.expand(HORIZON + 1, -1, -1), qd.expand(HORIZON + 1, -1, -1), held, still, q.new_zeros(self.n))
        time = torch.arange(1, HORIZON + 1, dtype=q.dtype)[:, None, None] / HORIZON
        at_once = held + (2.0 * time).clamp_max(1.0) * (self.u0 - held)
        drawn_in = held + (4.0 * time).clamp_max(1.0) * (self.crouch - held)
        drawn_in = drawn_in + (4.0 * time - 1.5).clamp(0.0, 1.0) * (self.u0 - drawn_in)
        return better(*(self.roll(rest, target - held, q, qd) for target in (at_once, drawn_in)))


def better(a: Plan, b: Plan) -> Plan:
    """For each robot, the plan with the lower cost."""
    first = (a.cost <= b.cost)[:, None]
    states = [torch.where(first, x, y) for x, y in ((a.q, b.q), (a.qd, b.qd), (a.u, b.u))]
    return Plan(*states, torch.where(first[..., None], a.K, b.K), torch.minimum(a.cost, b.cost))


def fallen(model: wa.Model, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States of robots that were dropped with limp legs and have come to rest."""
    sim = wa.Simulator(model, n, dt=DT, dtype="float64", device="cpu")
    chance = torch.Generator().manual_seed(seed)
    q, qd = sim.initial_state()
    turn = torch.zeros(n, model.nv, dtype=q.dtype)
    turn[:, 3:5] = 0.3 * torch.randn(n, 2, generator=chance, dtype=torch.float32)
    bent = torch.tensor([0.1 if "hip" in name else 0.5 for name in model.drive_names])
    turn[:, 6:] = bent * torch.randn(n, model.nu, generator=chance, dtype=torch.float32)
    q = wa.retract(model, q, turn)
    q[:, 2] += 0.2
    limp = {"kp": torch.zeros(model.nu), "kd": torch.full((model.nu,), 1.0)}
    qs, qds = sim.rollout(q, qd, sim.initial_control().expand(400, -1, -1), params=limp)
    return qs[-1], qds[-1]


def tilt(q: torch.Tensor) -> torch.Tensor:
    """Angle (n,) between the base's z axis and the vertical, rad."""
    x, y = q[..., 3], q[..., 4]
    return torch.arccos((1.0 - 2.0 * (x * x + y * y)).clamp(-1.0, 1.0))


def stands(q: torch.Tensor) -> torch.Tensor:
    return (q[..., 2] > STANDING) & (tilt(q) < UPRIGHT)


def standing_goal(model: wa.Model, q: torch.Tensor) -> torch.Tensor:
    """The default pose at each robot's position and heading."""
    goal = torch.tensor(model.q0, dtype=q.dtype).repeat(len(q), 1)
    goal[:, :2] = q[:, :2]
    yaw = torch.atan2(2 * (q[:, 6] * q[:, 5] + q[:, 3] * q[:, 4]), 1 - 2 * (q[:, 4] ** 2 + q[:, 5] ** 2))
    goal[:, 5], goal[:, 6] = torch.sin(0.5 * yaw), torch.cos(0.5 * yaw)
    return goal


def stand_up(model: wa.Model, n: int, seed: int, controls: int, first: int = FIRST) -> dict:
    """n fallen robots plan and move for `controls` controls; first: iterations of the first plan.

    For comparison, the same robots are commanded to the standing pose at once, and follow the initial guess.
    """
    q, qd = fallen(model, n, seed)
    start = (q, qd)
    planner = Planner(model, n, standing_goal(model, q))
    world = wa.Simulator(model, n, dt=DT, substeps=HOLD, dtype="float64", device="cpu")
    plan = guessed = planner.start(q, qd)
    planner.improve(plan)  # compiles kernels before the timing
    costs, qs, seconds, iterations = [plan.cost], [q], 0.0, 0
    with Bar(f"planning, seed {seed}") as bar:
        for c in range(controls):
            if c % EVERY == 0:
                began = time.perf_counter()
                if c:  # from the previous plan, or from a new one if that costs less
                    plan = better(planner.shift(plan, q, qd), planner.start(q, qd))
                for _ in range(AGAIN if c else first):
                    plan = planner.improve(plan)
                    if c == 0:
                        costs.append(plan.cost)
                    iterations += 1
                seconds += time.perf_counter() - began
            t = c % EVERY
            dx = torch.cat([wa.difference(model, plan.q[t], q), qd - plan.qd[t]], -1)
            q, qd = world.step(q, qd, plan.u[t] + (plan.K[t] @ dx[..., None])[..., 0])
            qs.append(q)
            bar(c + 1, controls, f"{int(stands(q).sum())} of {n} stand")
    standing = world.initial_control().expand(controls, -1, -1)
    at_once = world.rollout(*start, standing)[0]
    guess = world.rollout(*start, torch.cat([guessed.u, standing])[:controls])[0]
    return {
        "qs": torch.stack(qs),
        "costs": torch.stack(costs),
        "ms": 1e3 * seconds / (iterations * n),
        "fell_on": tilt(start[0]),
        "stand": stands(qs[-1]),
        "at_once": stands(at_once[-1]),
        "guess": stands(guess[-1]),
    }


def draw(path: Path, runs: list[dict]) -> None:
    """Plot the cost over the iterations of the first plans, and the number of standing robots over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for seed, run in enumerate(runs):
        left.semilogy(run["costs"].median(1).values, "o-", label=f"seed {seed}, median robot")
        when = torch.arange(len(run["qs"])) * (DT * HOLD)
        right.plot(when, stands(run["qs"]).sum(1), label=f"seed {seed}")
    left.set(xlabel="iterations of the first plan", ylabel="cost")
    right.set(xlabel="s", ylabel="standing robots")
    for axes in (left, right):
        axes.grid(True, alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> dict:
    parser = options(__doc__, iterations=FIRST, seeds=1)
    parser.add_argument("--robots", type=int, default=16, help="number of robots (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to stand up (%(default)s)")
    chosen = parser.parse_args(arguments)
    n, seeds = (2, 1) if chosen.quick else (chosen.robots, chosen.seeds)
    controls = EVERY if chosen.quick else round(chosen.seconds / (DT * HOLD))
    folder = chosen.out or Path("out/mpc")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # many small matrices: torch's threads would only slow down the simulator
    model = wa.load("laikago")
    runs = [stand_up(model, n, seed, controls, chosen.iterations) for seed in range(seeds)]
    draw(folder / "curves.png", runs)
    write_motion(folder, model, runs[0]["qs"], DT * HOLD)
    for seed, run in enumerate(runs):
        print(f"seed {seed}: {int(run['stand'].sum())} of {n} stand after {controls * DT * HOLD:g} s, "
              f"{int(run['guess'].sum())} with the initial guess, {int(run['at_once'].sum())} if commanded at once; "
              f"{run['ms']:.1f} ms per iteration and robot")  # fmt: skip
    return write_summary(folder, {
        "robots": n, "stand": [int(r["stand"].sum()) for r in runs], "at_once": [int(r["at_once"].sum()) for r in runs],
        "guess": [int(r["guess"].sum()) for r in runs],
        "ms": [r["ms"] for r in runs], "costs": [r["costs"].median(1).values.tolist() for r in runs],
    })  # fmt: skip


if __name__ == "__main__":
    main()
