"""Brax, generalized pipeline, with the robot as MJCF."""

import numpy as np
from brax.generalized import pipeline
from brax.io import mjcf
from peer_common import main
from peer_jax import JaxEngine


class Brax(JaxEngine):
    name, package = "Brax generalized", "brax"
    simulated = "reduced coordinates, semi-implicit Euler, explicit drives"
    contact = "Brax's projected gradient with MuJoCo's softness"
    gradient_method = "jax.grad"

    def __init__(self, scene, options):
        super().__init__(scene, options)
        self.sys = mjcf.load(str(scene.mjcf))

    def mass(self):
        return float(np.sum(self.sys.link.inertia.mass))

    def init(self, q, qd, targets):
        return pipeline.init(self.sys, q, qd)

    def step(self, state, targets):
        return pipeline.step(self.sys, state, targets)

    def parts(self, state):
        return state.q, state.qd


if __name__ == "__main__":
    main(Brax)
