"""MJX: MuJoCo in JAX.

Standing robot: reverse mode with one solver iteration, or forward mode (--variant forward). Scoreboard: forward mode,
or reverse mode with one iteration (--variant reverse), or forward mode and a pyramid in place of the elliptic cone for
the cases with friction (--variant pyramid). The solver is a while loop, which JAX can reverse for one iteration only.
"""

from __future__ import annotations

import mujoco
from mujoco import mjx

from engines.jax import JaxScoreboard, JaxStanding, Physics, turned_gravity
from engines.mujoco import Scoreboard as MuJoCo


class MJX(Physics):
    package = "mujoco-mjx"

    def begin(self, model, qpos, qvel, control):
        return mjx.make_data(model).replace(qpos=qpos, qvel=qvel, ctrl=control)

    def step(self, model, state, control):
        return mjx.step(model, state)

    def parts(self, state):
        return state.qpos, state.qvel


class Standing(MJX, JaxStanding):
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.reverse = options.variant != "forward"
        once = options.gradient and self.reverse
        self.name = "MJX, 1 iteration" if once else "MJX" if self.reverse else "MJX, forward mode"
        self.method = "jax.grad" if self.reverse else "jax.jacfwd, 15 tangents"
        count = "one iteration" if once else "warm-started"
        self.contact = f"soft, MuJoCo's defaults, Newton, {count}"
        self.mj = mujoco.MjModel.from_xml_path(str(scene.mjcf))
        if once:
            self.mj.opt.iterations, self.mj.opt.ls_iterations = 1, 8
        self.model = mjx.put_model(self.mj)

    def mass(self):
        return self.mj.body_mass.sum()


class Scoreboard(MJX, JaxScoreboard):
    def __init__(self, variant=""):
        super().__init__(variant)
        self.reverse = variant == "reverse"
        self.name = "MJX, reverse, 1 iteration" if self.reverse else "MJX, forward mode"
        self.method = "jax.grad" if self.reverse else "jax.jacfwd"
        self.contact = "as MuJoCo C" + ", with one iteration" * self.reverse
        self.theirs = MuJoCo()
        if variant == "pyramid":
            self.theirs.cone, self.models = "pyramidal", ("slide",)
            self.no_model, self.contact = "Not measured: no friction, no other cone.", "as MuJoCo C, with a pyramid"

    def build(self, case):
        m, data = self.theirs.begin(case, case.inputs)
        if self.reverse:
            m.opt.iterations = 1
        return mjx.put_model(m), -float(data.qpos[1]) if case.model == "slide" else 0.0

    def changed(self, model, case, x):
        new = {}
        if "mu" in x:
            new["geom_friction"] = model.geom_friction.at[:, 0].set(x["mu"])
            new["body_mass"] = model.body_mass.at[1].set(x["m"])
            new["opt.gravity"] = turned_gravity(case, x)
        if "inertia" in x:
            new["body_inertia"] = model.body_inertia.at[1, 1].set(x["inertia"])
            new["dof_damping"] = model.dof_damping.at[0].set(x["damping"])
            new["body_ipos"] = model.body_ipos.at[1, 2].set(-x["length"])
        return model.tree_replace(new) if new else model
