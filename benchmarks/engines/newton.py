"""Newton: SolverFeatherstone (reduced coordinates) and SolverSemiImplicit (bodies held together by springs).

Both are variants (featherstone, semi-implicit); with the scoreboard's --variant each, every step has its own
SolverFeatherstone. Gradients are wp.Tape's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import ClassVar

import newton
import numpy as np
import warp as wp

from engines import scoreboard, standing
from gradients.cases import (
    MASS,
    RADIUS,
    REACH,
    ROD,
    SPIN_INERTIA,
    SPIN_RATE,
    Case,
    E,
    matrix,
    spin_chain,
    spring,
    turned_start,
)

# m/s; friction is proportional to speed below it. Newton divides the slip by its Huber norm, which is no length:
# smoothing * slip above the smoothing, slip^2 / 2 below. For the scoreboard's friction to be mu N at speed, the
# material's mu has to be mu * smoothing; kf makes the peak on the way there, 1.5 mu N, low enough for case I1's slope
SMOOTHING = 0.01
# Tuned so that the robot stands. Contacts are springs: the heavier feet (95 N) sink by 2 mm, as MuJoCo's do
FEET = {"ke": 5e4, "kd": 200.0, "kf": 200.0}
ATTACH = {"joint_attach_ke": 1e5, "joint_attach_kd": 1e2}  # at the default of 1e4 N/m, 95 N are 10 mm
# s; Featherstone takes the scene's step; semi-implicit ends in NaN at 2e-4
ROBOT_STEP = {"featherstone": 1e-3, "semi-implicit": 1e-4}
# per kg; damping acts on the way in only. Puck: 0.5 mm deep at rest, no rebound
TOUCH = {"W": 0.05, "D": 0.02}  # s
SLIDE = {"ke": 4e4, "kd": 600.0, "kf": 500.0}
HEAVY = 1e3  # kg m^2: rails of springs rattle at these steps, so there the puck is free, and too heavy to turn
X, Y, Z = newton.Axis.X, newton.Axis.Y, newton.Axis.Z


@wp.kernel
def add_position(body_q: wp.array(dtype=wp.transform), first: wp.array(dtype=int), loss: wp.array(dtype=float)):
    at = wp.transform_get_translation(body_q[first[wp.tid()]])
    wp.atomic_add(loss, 0, at[0] + at[2])


@wp.kernel
def read_joint(q: wp.array(dtype=float), width: int, k: int, out: wp.array(dtype=float)):
    out[wp.tid()] = q[wp.tid() * width + k]


@wp.kernel
def read_body(body_q: wp.array(dtype=wp.transform), mode: int, out: wp.array(dtype=float)):
    pose = body_q[wp.tid()]
    at = wp.transform_get_translation(pose)
    axis = wp.quat_rotate(wp.transform_get_rotation(pose), wp.vec3(1.0, 0.0, 0.0))
    if mode == 0:
        out[wp.tid()] = at[0]
    if mode == 1:
        out[wp.tid()] = at[2] - 0.1
    if mode == 2:
        out[wp.tid()] = axis[2]


class Newton:
    """Solver, stepping and tape; `reduced` chooses the solver. A pipeline of None: nothing collides."""

    package, built_on, dtype = "newton", "warp-lang", "float32"
    method = "wp.Tape"
    reduced = True

    def make_solver(self, model, **options):
        kind = newton.solvers.SolverFeatherstone if self.reduced else newton.solvers.SolverSemiImplicit
        return kind(model, angular_damping=0.0, friction_smoothing=SMOOTHING, **options)

    @staticmethod
    def make_pipeline(model, **options):
        return newton.CollisionPipeline(model, broad_phase="explicit", **options)

    @staticmethod
    def advance(a, b, steps: int, solver, control, pipeline, contacts, dt: float):
        """Steps from state a, with b for every other one; returns the last state, and the one before."""
        for _ in range(steps):
            a.clear_forces()
            if pipeline:
                pipeline.collide(a, contacts)
            solver.step(a, b, control, contacts, dt)
            a, b = b, a
        return a, b

    @staticmethod
    def record(model, steps: int, write: Callable, solver_of: Callable, control, pipeline, dt: float, read: Callable):
        """A tape of so many steps: `write(state)` before it, `read(state)` at its end. Returns tape and first state.

        Each step has its own state and contacts: a tape reads them again on its way back.
        """
        states = [model.state() for _ in range(steps + 1)]
        touching = [pipeline.contacts() if pipeline else None for _ in range(steps)]
        write(states[0])
        tape = wp.Tape()
        with tape:
            newton.eval_fk(model, states[0].joint_q, states[0].joint_qd, states[0])
            for (a, b), contacts in zip(itertools.pairwise(states), touching):
                if pipeline:
                    pipeline.collide(a, contacts)
                solver_of().step(a, b, control, contacts, dt)
            read(states[-1])
        return tape, states[0]


class Standing(Newton, standing.Standing):
    contact = "springs and dampers, regularised friction"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        wp.set_device("cpu")
        self.variant = options.variant or "featherstone"
        self.dt = ROBOT_STEP[self.variant]
        self.reduced = self.variant == "featherstone"
        self.name = f"Newton {self.variant}"
        kind = "reduced coordinates" if self.reduced else "maximal coordinates, joints are springs"
        self.simulated = f"{kind}, semi-implicit Euler, explicit drives"

    def mass(self):
        return self.model.body_mass.numpy().sum() / self.batch

    def build(self, batch):
        self.batch = batch
        robot = newton.ModelBuilder()
        robot.add_mjcf(str(self.scene.mjcf), ignore_names=["ground"], enable_self_collisions=False)
        for k in range(6, robot.joint_dof_count):
            robot.joint_target_ke[k], robot.joint_target_kd[k] = self.scene.kp, self.scene.kd
            robot.joint_effort_limit[k] = self.scene.effort
        for k in range(robot.joint_dof_count):
            robot.joint_armature[k] = 0.0
        for k in range(robot.shape_count):
            robot.shape_material_ke[k], robot.shape_material_kd[k] = FEET["ke"], FEET["kd"]
            robot.shape_material_kf[k], robot.shape_material_mu[k] = FEET["kf"], self.scene.friction
        world = newton.ModelBuilder()
        world.replicate(robot, batch)
        world.add_ground_plane(cfg=newton.ModelBuilder.ShapeConfig(mu=self.scene.friction, **FEET))
        self.model = world.finalize(requires_grad=self.options.gradient)
        self.bodies = self.model.body_count // batch
        self.first = wp.array(np.arange(batch) * self.bodies, dtype=int)
        self.solver = self.make_solver(self.model, **({} if self.reduced else ATTACH))
        self.control = self.model.control()
        self.pipeline = self.make_pipeline(self.model, requires_grad=self.options.gradient)
        self.contacts = self.pipeline.contacts()
        self.states = [self.model.state(), self.model.state()]

    def reset(self, q, qd, targets):
        self.start = [np.array(x, np.float32) for x in (q, qd, targets)]
        self._write(self.states[0])

    def _write(self, state):
        q, qd, targets = self.start
        state.joint_q.assign(q.ravel())
        state.joint_qd.assign(qd.ravel())
        newton.eval_fk(self.model, state.joint_q, state.joint_qd, state)
        width = self.control.joint_target_q.shape[0] // self.batch
        wanted = self.control.joint_target_q.numpy().reshape(self.batch, width)
        wanted[:, -targets.shape[1] :] = targets
        self.control.joint_target_q.assign(wanted.ravel())

    def run(self, steps):
        self.states = self.advance(
            *self.states, steps, self.solver, self.control, self.pipeline, self.contacts, self.dt
        )  # fmt: skip

    def state(self):
        state = self.states[0]
        if not self.reduced:
            newton.eval_ik(self.model, state, state.joint_q, state.joint_qd)
        q = state.joint_q.numpy().reshape(self.batch, -1)
        return q.copy(), state.joint_qd.numpy().reshape(self.batch, -1).copy()

    def gradient(self, steps):
        loss = wp.zeros(1, dtype=float, requires_grad=True)

        def read(state):
            wp.launch(add_position, dim=self.batch, inputs=[state.body_q, self.first, loss])

        tape, start = self.record(
            self.model, steps, self._write, lambda: self.solver, self.control, self.pipeline, self.dt, read
        )  # fmt: skip
        tape.backward(loss)
        by_velocity = start.joint_qd.grad.numpy().reshape(self.batch, -1)[:, :3]
        by_targets = self.control.joint_target_q.grad.numpy().reshape(self.batch, -1)[:, -self.scene.nu :]
        found = np.concatenate([by_velocity, by_targets], axis=1)
        tape.zero()
        return found


class Scoreboard(Newton, scoreboard.Scoreboard):
    contact = "springs damped on the way in, regularised friction"
    missing: ClassVar = {"e": "Its springs have no coefficient of restitution."}
    dts: ClassVar = {"slide": 5e-4, "bounce": 2.5e-4}

    def __init__(self, variant=""):
        super().__init__(variant or "featherstone")
        wp.set_device("cpu")
        self.reduced = self.variant != "semi-implicit"
        self.name = f"Newton {self.variant}"
        if not self.reduced:
            self.models = ("slide", "bounce", "spin")
            self.no_model = "Not measured: its hinges are springs, which need shorter steps."
        if self.variant == "each":
            self.models = ("swing", "double", "spin")
            self.no_model = "Not measured: as in the row above, for the mass matrix does not change."

    def make(self, case: Case, count: int):
        """`count` copies of the case's model, which differences need; on this device kernels of one cost as much."""
        builder, config = newton.ModelBuilder(), None
        builder.default_joint_cfg.armature = 0.0
        eye = np.eye(3)
        if case.model in ("slide", "bounce"):
            stiffness, damping = spring(E, TOUCH.get(case.name, 1.0), releases=False)
            material = SLIDE if case.model == "slide" else {"ke": stiffness, "kd": damping, "kf": 0.0}
            config = newton.ModelBuilder.ShapeConfig(mu=SMOOTHING * case.inputs.get("mu", 0.0), density=0.0, **material)
            mass = MASS if case.model == "slide" else 1.0
            body = builder.add_link(mass=mass, inertia=wp.mat33((0.01 if self.reduced else HEAVY) * eye))
            builder.add_shape_sphere(body, radius=RADIUS, cfg=config)
            dof = newton.ModelBuilder.JointDofConfig
            rails = [dof(axis=X, armature=0.0), dof(axis=Z, armature=0.0)]
            if self.reduced:
                place = wp.transform(wp.vec3(0.0, 0.0, RADIUS), wp.quat_identity())
                joint = builder.add_joint_d6(-1, body, linear_axes=rails[case.model == "bounce" :], parent_xform=place)
            else:
                joint = builder.add_joint_free(body)
            joints = [joint]
        elif case.model == "spin":
            body = builder.add_link(mass=1.0, inertia=wp.mat33(np.diag(SPIN_INERTIA)))
            joints = [builder.add_joint_free(body)]
        else:
            parent, joints = -1, []
            for k in range(1 if case.model == "swing" else 2):
                com = wp.vec3(0.0, 0.0, -ROD["length"])
                body = builder.add_link(mass=1.0, com=com, inertia=wp.mat33(ROD["inertia"] * eye))
                place = wp.transform(wp.vec3(0.0, 0.0, -REACH * k), wp.quat_identity())
                joints.append(builder.add_joint_revolute(parent, body, axis=Y, parent_xform=place, armature=0.0))
                parent = body
        builder.add_articulation(joints)
        room = newton.ModelBuilder()
        room.replicate(builder, count)
        if config:
            room.add_ground_plane(cfg=config)
        model = room.finalize(requires_grad=True)
        if not config:
            return model, None
        return model, self.make_pipeline(model, rigid_contact_max=2 * count, requires_grad=True)

    def up(self, case: Case) -> int:
        """The coordinate that is the height."""
        return 2 if not self.reduced else 1 if case.model == "slide" else 0

    def write(self, model, case: Case, xs: list[dict[str, float]], state) -> None:
        """The inputs, one set per copy, into the model and the first state."""
        count = len(xs)
        q, qd = (part.numpy().reshape(count, -1) for part in (state.joint_q, state.joint_qd))

        def column(name: str, other: float = 0.0) -> np.ndarray:
            return np.array([x.get(name, other) for x in xs])

        angle, pull = column("a"), model.gravity.numpy()
        down = np.stack([np.sin(angle), 0 * angle, -np.cos(angle)], axis=1)
        pull[:count] = case.gravity * down
        model.gravity.assign(pull)
        if case.model == "slide":
            mass = column("m", MASS)
            depth = MASS * case.gravity * np.cos(case.inputs.get("a", 0.0)) / SLIDE["ke"]
            q[:, self.up(case)] = -depth + (0.0 if self.reduced else RADIUS)
            qd[:, 0] = column("v0")
            # it takes the mean of the two, and the floor is everyone's: half of the change would be lost
            mu = SMOOTHING * np.concatenate([2 * column("mu") - case.inputs["mu"], [case.inputs["mu"]]])
            model.shape_material_mu.assign(mu.astype(np.float32))
            model.body_mass.assign(mass.astype(np.float32))
            model.body_inv_mass.assign((1 / mass).astype(np.float32))
        elif case.model == "bounce":
            q[:, self.up(case)] = column("y0") + (0.0 if self.reduced else RADIUS)
            qd[:, self.up(case)] = column("v0")
        elif case.model == "swing":
            q[:, 0], qd[:] = column("angle"), 0.0
            model.joint_damping.assign(column("damping").astype(np.float32))
            inertia, com = model.body_inertia.numpy(), model.body_com.numpy()
            inertia[:, 1, 1], com[:, 2] = column("inertia"), -column("length")
            model.body_inertia.assign(inertia)
            model.body_com.assign(com)
        elif case.model == "double":
            for k in (0, 1):
                q[:, k], qd[:, k] = column(f"q{k + 1}"), column(f"w{k + 1}")
        else:
            for k, x in enumerate(xs):
                quaternion = turned_start(x)
                q[k, 3:7] = quaternion
                qd[k, 3:6] = matrix(quaternion / np.linalg.norm(quaternion)) @ SPIN_RATE
        state.joint_q.assign(q.ravel())
        state.joint_qd.assign(qd.ravel())

    def read(self, case: Case, state, out) -> None:
        count = len(out)
        if self.reduced and case.model != "spin":
            width = len(state.joint_q) // count
            wp.launch(read_joint, count, inputs=[state.joint_q, width, 1 if case.model == "double" else 0, out])
        else:
            mode = {"slide": 0, "bounce": 1, "spin": 2}[case.model]
            wp.launch(read_body, count, inputs=[state.body_q, mode, out])

    def values(self, case, xs):
        model, pipeline = self.world(case, len(xs))
        a, b = model.state(requires_grad=False), model.state(requires_grad=False)
        self.write(model, case, xs, a)
        solver, control = self.make_solver(model), model.control()
        contacts = pipeline.contacts() if pipeline else None
        out = wp.zeros(len(xs), dtype=float)
        newton.eval_fk(model, a.joint_q, a.joint_qd, a)
        a, _ = self.advance(a, b, self.steps(case), solver, control, pipeline, contacts, self.dt(case))
        self.read(case, a, out)
        return out.numpy().astype(float)

    def gradient(self, case):
        model, pipeline = self.world(case, 1)
        control, out = model.control(), wp.zeros(1, dtype=float, requires_grad=True)
        solvers: list = []

        def solver_of():
            # Made on the tape, because it copies mass and inertia into its own arrays when it is made.
            # It has one mass matrix for all steps, and a tape reads the last one: hence the variant
            if not solvers or self.variant == "each":
                solvers.append(self.make_solver(model))
            return solvers[-1]

        tape, start = self.record(
            model,
            self.steps(case),
            lambda state: self.write(model, case, [case.inputs], state),
            solver_of,
            control,
            pipeline,
            self.dt(case),
            lambda state: self.read(case, state, out),
        )
        tape.backward(out)
        found = self.collect(model, case, start)
        tape.zero()
        return found

    def collect(self, model, case: Case, state) -> dict[str, float]:
        q, qd = state.joint_q.grad.numpy(), state.joint_qd.grad.numpy()
        if case.model == "slide":
            a, m = case.inputs.get("a", 0.0), case.inputs.get("m", MASS)
            pull = model.gravity.grad.numpy().sum(0) @ (case.gravity * np.array([np.cos(a), 0.0, np.sin(a)]))
            by_mass = model.body_mass.grad.numpy()[0] - model.body_inv_mass.grad.numpy()[0] / m**2
            found = {
                "v0": qd[0],
                "mu": 2 * SMOOTHING * model.shape_material_mu.grad.numpy()[0],
                "m": by_mass,
                "a": pull,
            }
        elif case.model == "bounce":
            found = {"y0": q[self.up(case)], "v0": qd[self.up(case)]}
        elif case.model == "swing":
            found = {
                "angle": q[0], "damping": model.joint_damping.grad.numpy()[0],
                "inertia": model.body_inertia.grad.numpy()[0, 1, 1], "length": -model.body_com.grad.numpy()[0, 2],
            }  # fmt: skip
        elif case.model == "double":
            found = {"q1": q[0], "q2": q[1], "w1": qd[0], "w2": qd[1]}
        else:
            found = spin_chain(q[3:7].astype(float), qd[3:6].astype(float))
        return {name: float(found[name]) for name in case.inputs if name in found}
