"""Brax's generalized pipeline, with robot and cases as MJCF."""

from __future__ import annotations

import jax
import numpy as np
from brax.generalized import pipeline
from brax.io import mjcf as reader
from jax import numpy as jnp

from engines.jax import JaxScoreboard, JaxStanding, Physics, turned_gravity
from engines.mjcf import mjcf


class Brax(Physics):
    name, package = "Brax generalized", "brax"
    method = "jax.grad"

    def begin(self, model, qpos, qvel, control):
        return pipeline.init(model, qpos, qvel)

    def step(self, model, state, control):
        return pipeline.step(model, state, control)

    def parts(self, state):
        return state.q, state.qd


class Standing(Brax, JaxStanding):
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"
    contact = "Brax's projected gradient with MuJoCo's softness"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.model = reader.load(str(scene.mjcf))

    def mass(self):
        return float(np.sum(self.model.link.inertia.mass))


class Scoreboard(Brax, JaxScoreboard):
    contact = "MuJoCo's softness, pyramid, projected gradient of 100 iterations (20 for a bounce)"

    def __init__(self, variant=""):
        super().__init__(variant)
        self.depths: dict[str, float] = {}

    def build(self, case):
        system = reader.loads(mjcf(case, self.dt(case), "pyramidal").replace('condim="1"', ""))
        # by default the inverse of its mass matrix is iterated from step to step; 0 makes it exact in every step
        system = system.replace(matrix_inv_iterations=0)
        if case.model == "bounce":
            system = system.replace(solver_iterations=20)  # with the default of 100 the ball of case W ends in NaN
        if case.model == "slide" and case.name not in self.depths:
            level = system.replace(gravity=system.gravity.at[0].set(0.0))
            none = jnp.zeros(0)
            state = self.begin(level, jnp.zeros(2), jnp.zeros(2), none)
            rest = jax.jit(lambda s: jax.lax.fori_loop(0, 500, lambda _, s: self.step(level, s, none), s))(state)
            self.depths[case.name] = -float(rest.q[1])
        return system.replace(mj_model=None), self.depths.get(case.name, 0.0)

    def changed(self, model, case, x):
        inertia = model.link.inertia
        if "mu" in x:
            model = model.replace(
                gravity=turned_gravity(case, x),
                geom_friction=model.geom_friction.at[:, 0].set(x["mu"]),
                link=model.link.replace(inertia=inertia.replace(mass=inertia.mass.at[0].set(x["m"]))),
            )
        if "inertia" in x:
            moved = inertia.transform.replace(pos=inertia.transform.pos.at[0, 2].set(-x["length"]))
            inertia = inertia.replace(i=inertia.i.at[0, 1, 1].set(x["inertia"]), transform=moved)
            damped = model.dof.replace(damping=model.dof.damping.at[0].set(x["damping"]))
            model = model.replace(link=model.link.replace(inertia=inertia), dof=damped)
        return model
