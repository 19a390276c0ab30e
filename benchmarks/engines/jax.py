"""What MJX and Brax share: a step that JAX compiles, repeats and differentiates."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import jax
import numpy as np
from jax import numpy as jnp

from engines import scoreboard, standing
from engines.common import from_wxyz, to_wxyz
from engines.mjcf import DTS, output, start
from gradients.cases import CASES, MASS, Case
from lib import machine

BATCH = 12  # differences are computed in batches of one size, so that one compilation is enough
OTHERS = {"a": 0.0, "m": MASS}  # inputs that some cases of a model lack


def turned_gravity(case: Case, x: dict):
    """A slope is made by turning gravity."""
    return case.gravity * jnp.stack([jnp.sin(x["a"]), 0.0 * x["a"], -jnp.cos(x["a"])])


class Physics:
    """What an engine provides for both of the classes below, which its own classes inherit from, too."""

    def begin(self, model, qpos, qvel, control):
        """Its state."""
        raise NotImplementedError

    def step(self, model, state, control):
        raise NotImplementedError

    def parts(self, state):
        """qpos and qvel as in MuJoCo."""
        raise NotImplementedError


class JaxStanding(standing.Standing):
    """Subclasses set `model`; `reverse` says which mode differentiates."""

    built_on = "jax"
    reverse = True

    def __init__(self, scene, options):
        super().__init__(scene, options)
        # a gradient is compared with differences, which need float64; steps are timed in float32, JAX's own default
        if options.gradient:
            jax.config.update("jax_enable_x64", True)
            self.dtype = "float64"
        self.threads = machine.cores()

    def build(self, batch):
        step = jax.vmap(partial(self.step, self.model))

        def run(state, targets, steps):
            return jax.lax.fori_loop(0, steps, lambda _, x: step(x, targets), state)

        # the number of steps is an argument, not a constant: one compilation for all
        self._run = jax.jit(run)
        self._begin = jax.jit(jax.vmap(partial(self.begin, self.model)))
        self._gradient = jax.jit(self._differentiate, static_argnums=3)

    def reset(self, q, qd, targets):
        kind = jnp.float64 if self.dtype == "float64" else jnp.float32
        self.start = tuple(jnp.asarray(x, kind) for x in (to_wxyz(q), qd, targets))
        self.x = jax.block_until_ready(self._begin(*self.start))

    def run(self, steps):
        self.x = jax.block_until_ready(self._run(self.x, self.start[2], steps))

    def state(self):
        q, qd = (np.array(x) for x in self.parts(self.x))
        return from_wxyz(q), qd

    def _differentiate(self, qpos, qvel, targets, steps):
        def loss(velocity, targets, qpos, qvel):
            state = self.begin(self.model, qpos, qvel.at[:3].set(velocity), targets)
            state, _ = jax.lax.scan(lambda x, _: (self.step(self.model, x, targets), None), state, length=steps)
            q = self.parts(state)[0]
            return q[0] + q[2]

        differential = (jax.grad if self.reverse else jax.jacfwd)(loss, argnums=(0, 1))
        by_velocity, by_targets = jax.vmap(differential)(qvel[:, :3], targets, qpos, qvel)
        return jnp.concatenate([by_velocity, by_targets], axis=1)

    def gradient(self, steps):
        return np.array(self._gradient(*self.start, steps))


class JaxScoreboard(scoreboard.Scoreboard):
    """Subclasses give `build` and `changed`; `reverse` says which mode differentiates.

    Compiling takes most of the time, so cases of one model share a program: steps, gravity and depth are its arguments.
    """

    reverse = True
    dts = DTS
    missing: ClassVar = {"e": "It has no coefficient of restitution."}

    def __init__(self, variant=""):
        super().__init__(variant)
        jax.config.update("jax_enable_x64", True)
        self.programs: dict = {}

    def build(self, case: Case):
        """Its model of this case, a tree of arrays, and the depth at which the puck rests."""
        raise NotImplementedError

    def changed(self, model, case: Case, x: dict):
        """The model with these inputs in it."""
        raise NotImplementedError

    def program(self, case: Case):
        """Names of the model's inputs, (values of a batch) and (derivatives); both compiled."""
        if case.model in self.programs:
            return self.programs[case.model]
        alike = [other for other in CASES.values() if other.model == case.model]
        names = list(dict.fromkeys(name for other in alike for name in other.inputs))
        longest = max(self.steps(other) for other in alike)
        none = jnp.zeros(0)  # no case has drives

        def run(values, model, steps, depth, reverse):
            x = dict(zip(names, values))
            theirs = self.changed(model, case, x)
            state = self.begin(theirs, *start(case, x, depth, jnp), none)

            def advance(state):
                return self.step(theirs, state, none)

            if reverse:  # JAX reverses loops of a fixed length only

                def body(state, k):
                    # intermediate values of a step are computed again in the reverse pass: some engines keep megabytes
                    return jax.lax.cond(k < steps, jax.checkpoint(advance), lambda s: s, state), None

                state, _ = jax.lax.scan(body, state, jnp.arange(longest))
            else:
                state = jax.lax.fori_loop(0, steps, lambda _, s: advance(s), state)
            return output(case, self.parts(state)[0])

        differential = jax.grad if self.reverse else jax.jacfwd
        values = jax.jit(jax.vmap(partial(run, reverse=False), in_axes=(0, None, None, None)))
        self.programs[case.model] = names, values, jax.jit(differential(partial(run, reverse=self.reverse)))
        return self.programs[case.model]

    def row(self, names: list[str], x: dict[str, float]) -> list[float]:
        return [float(x.get(name, OTHERS.get(name, 0.0))) for name in names]

    def values(self, case, xs):
        names, values, _ = self.program(case)
        model, depth = self.build(case)
        rows = np.array([self.row(names, x) for x in xs])
        rows = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % BATCH, axis=0)])
        parts = rows.reshape(-1, BATCH, len(names))
        found = [np.array(values(jnp.asarray(part), model, self.steps(case), depth)) for part in parts]
        return np.concatenate(found)[: len(xs)]

    def gradient(self, case):
        names, _, differential = self.program(case)
        model, depth = self.build(case)
        found = np.array(differential(jnp.asarray(self.row(names, case.inputs)), model, self.steps(case), depth))
        known = dict(zip(names, map(float, found)))
        return {name: known[name] for name in case.inputs if name not in self.missing}
