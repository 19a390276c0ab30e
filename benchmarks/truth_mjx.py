"""MJX on the truth cases, in forward mode, or in reverse mode (--variant reverse), which allows one iteration only.

With --variant pyramid: forward mode, and a pyramid in place of the elliptic cone, for the cases that have friction.
"""

from __future__ import annotations

from jax import numpy as jnp
from mujoco import mjx
from truth_common import main
from truth_jax import JaxEngine
from truth_mujoco import MuJoCo


class MJX(JaxEngine):
    package = "mujoco-mjx"

    def __init__(self, variant=""):
        super().__init__(variant)
        self.reverse = variant == "reverse"
        # its solver is a while loop, which JAX cannot reverse, unless it is told to do one iteration
        self.name = "MJX, reverse, 1 iteration" if self.reverse else "MJX, forward mode"
        self.method = "jax.grad" if self.reverse else "jax.jacfwd"
        self.contact = "as MuJoCo C" + ", with one iteration" * self.reverse
        self.theirs = MuJoCo()
        if variant == "pyramid":
            self.theirs.cone, self.models = "pyramidal", ("slide",)
            self.no_model, self.contact = "Not measured: no friction, no other cone.", "as MuJoCo C, with a pyramid"

    def build(self, case):
        mj, data = self.theirs.begin(case, case.inputs)
        if self.reverse:
            mj.opt.iterations = 1
        return mjx.put_model(mj), -float(data.qpos[1]) if case.model == "slide" else 0.0

    def changed(self, model, case, x):
        new = {}
        if "mu" in x:
            pull = jnp.stack([jnp.sin(x["a"]), 0.0 * x["a"], -jnp.cos(x["a"])])
            new["geom_friction"] = model.geom_friction.at[:, 0].set(x["mu"])
            new["body_mass"] = model.body_mass.at[1].set(x["m"])
            new["opt.gravity"] = case.gravity * pull
        if "inertia" in x:
            new["body_inertia"] = model.body_inertia.at[1, 1].set(x["inertia"])
            new["dof_damping"] = model.dof_damping.at[0].set(x["damping"])
            new["body_ipos"] = model.body_ipos.at[1, 2].set(-x["length"])
        return model.tree_replace(new) if new else model

    def begin(self, model, qpos, qvel):
        return mjx.make_data(model).replace(qpos=qpos, qvel=qvel)

    def step(self, model, state):
        return mjx.step(model, state)

    def place(self, state):
        return state.qpos


if __name__ == "__main__":
    main(MJX)
