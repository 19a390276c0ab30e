"""What MJX and Brax share: a step that is compiled, repeated and differentiated by JAX."""

import os

import jax
import numpy as np
from jax import numpy as jnp
from peer_common import Engine


class JaxEngine(Engine):
    """Subclasses give `init(q, qd, targets)` and `step(state, targets)` of one robot, and `parts(state)`."""

    def __init__(self, scene, options):
        super().__init__(scene, options)
        # a gradient is compared with differences, which need float64; steps are timed in float32, JAX's own default
        if options.gradient:
            jax.config.update("jax_enable_x64", True)
            self.dtype = "float64"
        self.threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

    def build(self, batch):
        step = jax.vmap(self.step)

        def run(state, targets, steps):
            return jax.lax.fori_loop(0, steps, lambda _, x: step(x, targets), state)

        # the count is no constant: one compilation does for all
        self._run = jax.jit(run)
        self._init = jax.jit(jax.vmap(self.init))
        self._gradient = jax.jit(self._differentiate, static_argnums=3)

    def reset(self, q, qd, targets):
        kind = jnp.float64 if self.dtype == "float64" else jnp.float32
        qpos = np.concatenate([q[:, :3], np.roll(q[:, 3:7], 1, axis=1), q[:, 7:]], axis=1)
        self.start = tuple(jnp.asarray(x, kind) for x in (qpos, qd, targets))
        self.x = jax.block_until_ready(self._init(*self.start))

    def run(self, steps):
        self.x = jax.block_until_ready(self._run(self.x, self.start[2], steps))

    def state(self):
        q, qd = (np.array(x) for x in self.parts(self.x))
        q[:, 3:7] = np.roll(q[:, 3:7], -1, axis=1)
        return q, qd

    def _differentiate(self, qpos, qvel, targets, steps):
        def loss(velocity, targets, qpos, qvel):
            state = self.init(qpos, qvel.at[:3].set(velocity), targets)
            state, _ = jax.lax.scan(lambda x, _: (self.step(x, targets), None), state, length=steps)
            q = self.parts(state)[0]
            return q[0] + q[2]

        by_velocity, by_targets = jax.vmap(self.differential(loss))(qvel[:, :3], targets, qpos, qvel)
        return jnp.concatenate([by_velocity, by_targets], axis=1)

    def differential(self, loss):
        return jax.grad(loss, argnums=(0, 1))

    def gradient(self, steps):
        return np.array(self._gradient(*self.start, steps))
