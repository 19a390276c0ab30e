"""Genesis on its CPU backend; the first start compiles for minutes. Its rigid steps are nodes of torch's graph.

On the scoreboard, it differentiates by what four methods are given: set_pos and set_quat of the first link,
set_dofs_velocity and control_dofs_force. So the ball is free and not on a rail, and pendulums hang from a fixed link
that is turned: a turn of it is a change of the first hinge's angle.

Values need the same differentiable scenes, which find contacts in another way than other scenes. Nothing runs below
torch.no_grad: kernels compiled there stay in Genesis' cache, and later runs that do ask for gradients crash in them.
"""

from __future__ import annotations

import genesis as gs
import numpy as np
import torch

from engines import scoreboard, standing
from engines.common import from_wxyz, to_wxyz
from engines.mjcf import DTS, SOFT, SPRINGS
from gradients.cases import (
    MASS,
    MU,
    RADIUS,
    REACH,
    ROD,
    SPIN_INERTIA,
    SPIN_RATE,
    Case,
    spin_chain,
    turned_start,
)

PARAMETER = "It does not differentiate by parameters of a model."
# As stiff as steps of 1 ms allow. At a quarter of both, I2 creeps by 4.9 mm, not 6.2 mm, but v0 of S1 is 3 % off;
# with an impedance that grows over 0.1 mm, or starts at 0.9, the puck hops, and gradients go to 1e4 and 1e13
SLIDE = f'friction="{MU} 0 0" solref="0.002 1" {SOFT}'
SETTLE = 1000  # steps
ROUND = (0.01, 0.01, 0.01)


def inertial(mass: float, moments, height: float = 0.0) -> str:
    return '<inertial pos="0 0 {}" mass="{}" diaginertia="{} {} {}"/>'.format(height, mass, *moments)


def bounce(case: Case) -> str:
    """The springs of mjcf.py. A head-on hit of a pyramid with friction 1 is one without friction."""
    stiffness, damping, width = SPRINGS[case.name]
    ratio = damping / (2 * np.sqrt(stiffness))
    return f'friction="1 0 0" solref="{2 / damping} {ratio}" solimp="0 0.9999 {width}"'


def bodies(case: Case) -> list[str]:
    """What is in the world, as MJCF; one entity each. The last one moves."""
    rod = inertial(1.0, [ROD["inertia"]] * 3, -ROD["length"])
    hinge = '<joint type="hinge" axis="0 1 0" damping="{}"/>'
    if case.model in ("slide", "bounce"):
        touch = SLIDE if case.model == "slide" else bounce(case)
        floor, ball = f'<geom type="plane" size="10 10 1" {touch}/>', f'<geom type="sphere" size="{RADIUS}" {touch}/>'
        if case.model == "bounce":
            return [floor, f"<body><freejoint/>{inertial(1.0, ROUND)}{ball}</body>"]
        rails = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>'
        return [floor, f'<body pos="0 0 {RADIUS}">{rails}{inertial(MASS, ROUND)}{ball}</body>']
    if case.model == "swing":
        return [f"<body><body>{hinge.format(ROD['damping'])}{rod}</body></body>"]
    if case.model == "double":
        arm = hinge.format(0) + rod
        return [f'<body><body>{arm}<body pos="0 0 {-REACH}">{arm}</body></body></body>']
    return [f"<body><freejoint/>{inertial(1.0, SPIN_INERTIA)}</body>"]


def leaf(*columns) -> torch.Tensor:
    """(environments, columns) to differentiate by."""
    return torch.tensor(np.stack(np.broadcast_arrays(*columns), axis=1), dtype=torch.float64, requires_grad=True)


class Genesis:
    name, package = "Genesis", "genesis-world"

    @staticmethod
    def begin(precision: str) -> None:
        gs.init(backend=gs.cpu, precision=precision, logging_level="error")

    @staticmethod
    def make_scene(dt: float, gravity, *, requires_grad: bool = False, **rigid) -> gs.Scene:
        """Without bodies; `rigid` are options of its rigid solver."""
        return gs.Scene(
            sim_options=gs.options.SimOptions(dt=dt, gravity=tuple(gravity), requires_grad=requires_grad),
            rigid_options=gs.options.RigidOptions(**rigid),
            show_viewer=False,
        )


class Standing(Genesis, standing.Standing):
    simulated = "reduced coordinates, its approximate implicit integrator, implicit drives"
    contact = "soft, MuJoCo's model, Newton, at most 50 iterations"
    no_gradient = (
        "It refuses the gradient with respect to position targets ('not supported yet'); that with respect to forces "
        "and the initial velocity, which it has, is not measured here."
    )

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.begin("32")

    def mass(self):
        return self.robot.get_mass()

    def build(self, batch):
        s = self.scene
        self.world = self.make_scene(
            self.dt, s.gravity, iterations=int(s.iterations), enable_self_collision=False, enable_joint_limit=True
        )
        self.world.add_entity(gs.morphs.Plane())
        self.robot = self.world.add_entity(
            gs.morphs.URDF(file=str(s.urdf), pos=tuple(s.q0[:3]), merge_fixed_links=True)
        )
        self.world.build(n_envs=batch)
        self.robot.set_friction(s.friction)
        joints = [self.robot.get_joint(name) for name in s.joints]
        self.iv = [joint.dofs_idx_local[0] for joint in joints]
        self.iq = [joint.qs_idx_local[0] for joint in joints]
        n = self.robot.n_dofs
        self.robot.set_dofs_armature(np.zeros(n))
        self.robot.set_dofs_damping(np.zeros(n))
        self.robot.set_dofs_kp(np.full(s.nu, s.kp), self.iv)
        self.robot.set_dofs_kv(np.full(s.nu, s.kd), self.iv)
        self.robot.set_dofs_force_range(np.full(s.nu, -s.effort), np.full(s.nu, s.effort), self.iv)

    def reset(self, q, qd, targets):
        qs, qds = to_wxyz(q), np.array(qd)
        qs[:, self.iq], qds[:, self.iv] = q[:, 7:], qd[:, 6:]
        self.robot.set_qpos(torch.tensor(qs, dtype=torch.float32))
        self.robot.set_dofs_velocity(torch.tensor(qds, dtype=torch.float32))
        self.robot.control_dofs_position(torch.tensor(targets, dtype=torch.float32), self.iv)

    def run(self, steps):
        for _ in range(steps):
            self.world.step()

    def state(self):
        q, qd = self.robot.get_qpos().numpy(), self.robot.get_dofs_velocity().numpy()
        q = from_wxyz(np.concatenate([q[:, :7], q[:, self.iq]], axis=1))
        return q, np.concatenate([qd[:, :6], qd[:, self.iv]], axis=1)


class Scoreboard(Genesis, scoreboard.Scoreboard):
    contact = "soft, MuJoCo's model, Newton, pyramidal cone; a bounce is a damped spring"
    method = "reverse mode, torch's backward through scene.step"
    missing = dict.fromkeys(("mu", "m", "a", "inertia", "damping", "length"), PARAMETER) | {
        "e": "It has no coefficient of restitution.",
        "q2": "It does not differentiate by the positions of joints, only by the pose of the first link.",
    }
    dts = DTS

    def __init__(self, variant=""):
        super().__init__(variant)
        self.begin("64")

    def make(self, case: Case, count: int):
        """Scene, the body that moves, and its height at rest on the floor."""
        touching, a = case.model in ("slide", "bounce"), case.inputs.get("a", 0.0)
        down = case.gravity * np.array([np.sin(a), 0.0, -np.cos(a)])
        scene = self.make_scene(
            self.dt(case),
            down,
            requires_grad=True,
            enable_collision=touching,
            disable_constraint=not touching,
            enable_joint_limit=False,
            iterations=100,
            tolerance=1e-14,
        )
        for part in bodies(case):
            text = f'<mujoco><compiler angle="radian"/><worldbody>{part}</worldbody></mujoco>'
            body = scene.add_entity(gs.morphs.MJCF(file=text, default_armature=0.0))
        scene.build(n_envs=count)
        height = 0.0
        if case.model == "slide":
            scene.rigid_solver.set_gravity((0.0, 0.0, down[2]))
            for _ in range(SETTLE):
                scene.step()
            height = float(body.get_qpos()[0, 1])
            scene.rigid_solver.set_gravity(tuple(down))
        return scene, body, height

    def start(self, case: Case, xs: list[dict], body, height: float) -> dict[str, torch.Tensor]:
        """Sets the first state; returns what derivatives are by."""
        x = {name: np.array([x[name] for x in xs]) for name in case.inputs}
        given = {}
        if case.model == "slide":
            body.set_qpos(np.tile([0.0, height], (len(xs), 1)))
            given["velocity"] = leaf(x["v0"], 0.0)
        elif case.model == "bounce":
            given["place"] = leaf(0.0 * x["y0"], 0.0, x["y0"] + RADIUS)
            body.set_pos(given["place"])
            given["velocity"] = leaf(0.0, 0.0, x["v0"], 0.0, 0.0, 0.0)
        elif case.model == "spin":
            quaternions = np.array([turned_start(each) for each in xs])
            given["turn"] = leaf(*np.roll(quaternions, 1, axis=1).T)
            body.set_quat(given["turn"])
            # it is in the body's axes, as MuJoCo's
            given["velocity"] = leaf(0.0 * x["rx"], 0.0, 0.0, *SPIN_RATE)
        else:
            if case.model == "double":
                body.set_qpos(np.stack([0.0 * x["q2"], x["q2"]], axis=1))
            given["angle"] = leaf(x["angle" if case.model == "swing" else "q1"])
            half = given["angle"][:, 0] / 2
            body.set_quat(torch.stack([half.cos(), 0.0 * half, half.sin(), 0.0 * half], dim=1))
            given["velocity"] = leaf(0.0 * x["angle"]) if case.model == "swing" else leaf(x["w1"], x["w2"])
        body.set_dofs_velocity(given["velocity"])
        return given

    def run(self, case: Case, xs: list[dict]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """What derivatives are by, and the outputs."""
        scene, body, height = self.world(case, len(xs))
        scene.reset()
        given = self.start(case, xs, body, height)
        for _ in range(self.steps(case)):
            scene.step()
        q = scene.rigid_solver.get_state().qpos
        if case.model == "spin":
            w, x, y, z = q[:, 3:7].T
            return given, 2 * (x * z - w * y) / (w * w + x * x + y * y + z * z)
        if case.model == "bounce":
            return given, q[:, 2] - RADIUS
        if case.model == "swing":
            return given, q[:, 0] + given["angle"][:, 0]
        return given, q[:, 1 if case.model == "double" else 0]

    def values(self, case, xs):
        return self.run(case, xs)[1].detach().numpy()

    def gradient(self, case):
        given, out = self.run(case, [case.inputs])
        out.sum().backward()
        bar = {name: by.grad.numpy()[0] for name, by in given.items()}
        if case.model == "spin":
            return spin_chain(np.roll(bar["turn"], -1), np.zeros(3))
        velocity = bar["velocity"]
        if case.model == "slide":
            found = {"v0": velocity[0]}
        elif case.model == "bounce":
            found = {"y0": bar["place"][2], "v0": velocity[2]}
        elif case.model == "swing":
            found = {"angle": bar["angle"][0]}
        else:
            found = {"q1": bar["angle"][0], "w1": velocity[0], "w2": velocity[1]}
        return {name: float(x) for name, x in found.items()}
