"""Newton: SolverFeatherstone (reduced coordinates) and SolverSemiImplicit (bodies held together by springs)."""

import itertools

import newton
import numpy as np
import warp as wp
from peer_common import Engine, main

# Chosen by hand so that it stands. Contacts are springs: the heavier feet (95 N) sink by 2 mm, as MuJoCo's do
CONTACT = {"ke": 5e4, "kd": 200.0, "kf": 200.0}
ATTACH = {"joint_attach_ke": 1e5, "joint_attach_kd": 1e2}  # at the default of 1e4 N/m, 95 N are 10 mm
SMOOTHING = 1e-2  # m/s; friction is proportional to speed below it
# Featherstone takes the scene's step; semi-implicit ends in NaN at 2e-4
STEP = {"featherstone": 1e-3, "semi-implicit": 1e-4}


@wp.kernel
def add_position(body_q: wp.array(dtype=wp.transform), first: wp.array(dtype=int), loss: wp.array(dtype=float)):
    at = wp.transform_get_translation(body_q[first[wp.tid()]])
    wp.atomic_add(loss, 0, at[0] + at[2])


class Newton(Engine):
    package = "newton"
    contact = "springs and dampers, regularised friction"
    gradient_method = "wp.Tape"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        wp.set_device("cpu")
        self.variant = options.variant or "featherstone"
        self.dt = STEP[self.variant]
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
            robot.shape_material_ke[k], robot.shape_material_kd[k] = CONTACT["ke"], CONTACT["kd"]
            robot.shape_material_kf[k], robot.shape_material_mu[k] = CONTACT["kf"], self.scene.friction
        world = newton.ModelBuilder()
        world.replicate(robot, batch)
        world.add_ground_plane(cfg=newton.ModelBuilder.ShapeConfig(mu=self.scene.friction, **CONTACT))
        self.model = world.finalize(requires_grad=self.options.gradient)
        self.bodies = self.model.body_count // batch
        self.first = wp.array(np.arange(batch) * self.bodies, dtype=int)
        options = {"angular_damping": 0.0, "friction_smoothing": SMOOTHING}
        kind = newton.solvers.SolverFeatherstone if self.reduced else newton.solvers.SolverSemiImplicit
        self.solver = kind(self.model, **options, **({} if self.reduced else ATTACH))
        self.control = self.model.control()
        self.pipeline = newton.CollisionPipeline(
            self.model, broad_phase="explicit", requires_grad=self.options.gradient
        )
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
        a, b = self.states
        for _ in range(steps):
            a.clear_forces()
            self.pipeline.collide(a, self.contacts)
            self.solver.step(a, b, self.control, self.contacts, self.dt)
            a, b = b, a
        self.states = [a, b]

    def state(self):
        state = self.states[0]
        if not self.reduced:
            newton.eval_ik(self.model, state, state.joint_q, state.joint_qd)
        q = state.joint_q.numpy().reshape(self.batch, -1)
        return q.copy(), state.joint_qd.numpy().reshape(self.batch, -1).copy()

    def gradient(self, steps):
        """Each step has its own state and contacts: a tape reads them again on its way back."""
        states = [self.model.state() for _ in range(steps + 1)]
        contacts = [self.pipeline.contacts() for _ in range(steps)]
        loss = wp.zeros(1, dtype=float, requires_grad=True)
        self._write(states[0])
        tape = wp.Tape()
        with tape:
            newton.eval_fk(self.model, states[0].joint_q, states[0].joint_qd, states[0])
            for (a, b), touching in zip(itertools.pairwise(states), contacts):
                self.pipeline.collide(a, touching)
                self.solver.step(a, b, self.control, touching, self.dt)
            wp.launch(add_position, dim=self.batch, inputs=[states[-1].body_q, self.first, loss])
        tape.backward(loss)
        by_velocity = states[0].joint_qd.grad.numpy().reshape(self.batch, -1)[:, :3]
        by_targets = self.control.joint_target_q.grad.numpy().reshape(self.batch, -1)[:, -self.scene.nu :]
        found = np.concatenate([by_velocity, by_targets], axis=1)
        tape.zero()
        return found


if __name__ == "__main__":
    main(Newton)
