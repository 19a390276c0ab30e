"""The simulator's step written for Warp's own automatic differentiation (`wp.Tape`): what a user of Warp would write.

The kernels are in taped_kernels.py; here are the arrays, which keep every step, and the tape.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import warp as wp

from autodiff.taped_kernels import CFM, FEET, HINGES, LAYOUT, STAGES, Foot, Link, Mat, Vec, real
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import Model


@cache
def argument_names(kernel: wp.Kernel) -> tuple[str, ...]:
    return tuple(inspect.signature(kernel.func).parameters)


class TapedRollout:
    """`steps` steps of `num_envs` robots like laikago_feet: a free root, driven hinges, four spheres that touch z = 0.

    All arrays are allocated here; forward() and backward() may be called again and again.
    """

    def __init__(self, model: Model, num_envs: int, steps: int, *, dt: float = 1e-3, iterations: int = 50):
        self.model, self.num_envs, self.steps = model, num_envs, steps
        sizes = {"links": model.num_links, "feet": len(model.pairs), "slots": HINGES + 1, "sweeps": iterations + 1}
        self.q, self.qd = self._zeros(steps + 1, (model.nq,), real), self._zeros(steps + 1, (model.nv,), real)
        self.u = self._zeros(steps, (model.nu,), real)
        self.work = {name: self._zeros(steps, [sizes[s] for s in of], dtype) for name, (of, dtype) in LAYOUT.items()}
        self._arguments: dict[str, Any] = {
            "links": wp.array(_links(model, dt), dtype=Link, device="cpu"),
            "feet": wp.array(_feet(model), dtype=Foot, device="cpu"),
            "gravity": Vec(*model.gravity), "dt": real(dt), "num_envs": num_envs,
            "q": self.q, "qd": self.qd, "u": self.u, **self.work,
        }  # fmt: skip
        self.tape = wp.Tape()

    def _zeros(self, steps: int, shape: Sequence[int], dtype: type) -> wp.array:
        return wp.zeros((steps * self.num_envs, *shape), dtype=dtype, requires_grad=True, device="cpu")

    def forward(self, q: np.ndarray, qd: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From q (num_envs, nq), qd and u (steps, num_envs, nu) to all states, each (steps + 1, num_envs, nq or nv)."""
        self.q[: self.num_envs].assign(q)
        self.qd[: self.num_envs].assign(qd)
        self.u.assign(np.reshape(u, (-1, self.model.nu)))
        self.work["I_below"].zero_()
        self.work["f_below"].zero_()
        self.tape.reset()  # gradients too, of which a new tape would not know
        with self.tape:
            for t in range(self.steps):
                self._arguments["first"] = t * self.num_envs
                for kernel in STAGES:
                    inputs = [self._arguments[name] for name in argument_names(kernel)]
                    wp.launch(kernel, self.num_envs, inputs=inputs, device="cpu")
        return self._by_step(self.q), self._by_step(self.qd)

    def backward(self, q_bar: np.ndarray, qd_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradients for q, qd and u of forward(), of a loss with these gradients for the last state."""
        self.tape.zero()
        self.q.grad[-self.num_envs :].assign(q_bar)
        self.qd.grad[-self.num_envs :].assign(qd_bar)
        self.tape.backward()
        return self._by_step(self.q.grad)[0], self._by_step(self.qd.grad)[0], self._by_step(self.u.grad)

    def _by_step(self, array: wp.array) -> np.ndarray:
        return array.numpy().reshape(-1, self.num_envs, array.shape[1])

    def check(self) -> None:
        """Refuse what is left out here: drives at their limits, and contacts that jam and then take shorter steps."""
        model = self.model
        links = [int(np.flatnonzero(model.v_start == d)[0]) for d in model.drive_dof]
        angle = self._by_step(self.q)[:-1][..., model.q_start[links]]
        rate = self._by_step(self.qd)[1:][..., model.drive_dof]
        resist = float(self._arguments["dt"]) * model.kp + model.kd
        if (np.abs(model.kp * (self._by_step(self.u) - angle) - resist * rate) > model.effort).any():
            raise ValueError("A drive is at its limit, which is not part of this benchmark.")
        own = np.einsum("ekkij->ekij", self.work["A"].numpy())
        slope = np.asarray(model.pair_friction) * np.hypot(own[..., 0, 1], own[..., 0, 2])
        if (slope > 0.75 * (own[..., 0, 0] + float(CFM))).any():
            raise ValueError("A contact jams; its shorter steps are not part of this benchmark.")

    def bytes(self) -> int:
        """Of all arrays and their gradients."""
        return sum(a.capacity + a.grad.capacity for a in (self.q, self.qd, self.u, *self.work.values()))


def _links(model: Model, dt: float) -> list[Link]:
    hinges = np.arange(1, model.num_links)
    drive_of = {int(dof): k for k, dof in enumerate(model.drive_dof)}
    if set(drive_of) != {int(d) for d in model.v_start[hinges]} or model.nv != model.num_links + 5:
        raise ValueError("The taped step is for a free root and hinges that all have a drive.")
    if np.any(model.armature[:6]) or np.any(model.damping[:6]):
        raise ValueError("The taped step is for a root without armature and damping.")
    links = []
    for i in range(model.num_links):
        link = Link()
        link.parent, link.mass = int(model.parent[i]), real(model.mass[i])
        link.pos, link.axis, link.com = Vec(*model.joint_pos[i]), Vec(*model.axis[i]), Vec(*model.com[i])
        link.rot, link.inertia = Mat(*np.ravel(quat_to_matrix(model.joint_quat[i]))), Mat(*np.ravel(model.inertia[i]))
        if i:
            dof = int(model.v_start[i])
            k = drive_of[dof]
            resist = dt * model.kp[k] + model.kd[k]
            link.q, link.dof, link.drive = int(model.q_start[i]), dof, k
            link.damping, link.kp, link.resist = real(model.damping[dof]), real(model.kp[k]), real(resist)
            link.diagonal = real(model.armature[dof] + dt * model.damping[dof] + dt * resist)
        links.append(link)
    return links


def _feet(model: Model) -> list[Foot]:
    feet = []
    for (a, _), mu in zip(model.pairs, model.pair_friction):
        sphere, way = model.shapes[a], []
        i = int(sphere.link)
        while i > 0:
            way.append(i)
            i = int(model.parent[i])
        if len(way) != HINGES:
            raise ValueError(f"The taped step is for feet {HINGES} hinges below the root; sphere {a} has {len(way)}.")
        foot = Foot()
        foot.way, foot.pos = wp.vec3i(*way), Vec(*sphere.pos)
        foot.radius, foot.mu = real(sphere.size[0]), real(mu)
        feet.append(foot)
    if len(feet) != FEET:
        raise ValueError(f"The taped step is for {FEET} feet, not {len(feet)}.")
    return feet
