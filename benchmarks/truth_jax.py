"""What MJX and Brax share on the truth cases: a program of the inputs that JAX repeats and differentiates.

Compiling takes most of the time, so cases of one model share a program: steps, gravity and depth are its arguments.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import jax
import numpy as np
from jax import numpy as jnp
from truth_common import CASES, MASS, Case, Engine
from truth_mjcf import DTS, output, start

jax.config.update("jax_enable_x64", True)
BATCH = 12  # differences are asked for in batches of one size: one compilation does
OTHERS = {"a": 0.0, "m": MASS}  # inputs that some cases of a model lack


class JaxEngine(Engine):
    """Subclasses give `build`, `changed`, `begin`, `step` and `place`; `reverse` says which mode differentiates."""

    reverse = True
    dts = DTS
    missing: ClassVar = {"e": "It has no coefficient of restitution."}

    def __init__(self, variant=""):
        super().__init__(variant)
        self.programs: dict = {}

    def build(self, case: Case):
        """Its model of this case, a tree of arrays, and the depth at which the puck rests."""
        raise NotImplementedError

    def changed(self, model, case: Case, x: dict):
        """The model with these inputs in it."""
        raise NotImplementedError

    def begin(self, model, qpos, qvel):
        """Its state."""
        raise NotImplementedError

    def step(self, model, state):
        raise NotImplementedError

    def place(self, state):
        """qpos as in MuJoCo."""
        raise NotImplementedError

    def program(self, case: Case):
        """Names of the model's inputs, (values of a batch) and (derivatives); both compiled."""
        if case.model in self.programs:
            return self.programs[case.model]
        alike = [other for other in CASES.values() if other.model == case.model]
        names = list(dict.fromkeys(name for other in alike for name in other.inputs))
        longest = max(self.steps(other) for other in alike)

        def run(values, model, steps, depth, reverse):
            x = dict(zip(names, values))
            theirs = self.changed(model, case, x)
            state = self.begin(theirs, *start(case, x, depth, jnp))
            if reverse:  # JAX reverses loops of a fixed length only

                def body(state, k):
                    # the insides of a step are made again on the way back: some engines keep megabytes of them
                    step = jax.checkpoint(partial(self.step, theirs))
                    return jax.lax.cond(k < steps, step, lambda s: s, state), None

                state, _ = jax.lax.scan(body, state, jnp.arange(longest))
            else:
                state = jax.lax.fori_loop(0, steps, lambda _, s: self.step(theirs, s), state)
            return output(case, self.place(state))

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
