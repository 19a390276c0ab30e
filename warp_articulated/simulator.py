"""`Simulator`: a model on a device, ready to run batches of it from PyTorch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping

import numpy as np
import torch
import warp as wp

from . import parameters
from .kernels.rollout import make_rollout
from .launch import Launcher
from .model import Model
from .rotations import quat_to_matrix
from .topology import sizes_of, tables

PRECISIONS = {"float32": (wp.float32, torch.float32), "float64": (wp.float64, torch.float64)}


class Simulator:
    """Thousands of copies of a model, stepped together, one per thread.

    Args:
        model: what to simulate, from `load` or `combine`.
        num_envs: copies of it.
        device: "cpu" or "cuda:0"; by default the first CUDA device if there is one.
        dtype: "float32" or "float64".
        dt: seconds per step.
        substeps: steps of dt per control; the control is held in between.
        iterations: sweeps of the contact solver at most.
        tolerance: N s; the solver stops early once no impulse changes by more.
        threads: CPU threads to spread the environments over; by default all cores. Results do not depend on it.
        friction: "cone" (Coulomb) or "pyramid" (each tangent limited by itself, as in the paper).
        erp: share of a penetration or limit violation that is removed per step.
        cfm: 1/kg, compliance of contact normals and joint limits.
        restitution_threshold: m/s; slower impacts do not bounce. By default 0.05, or three steps of free fall.
        max_contacts: contacts at once per environment; beyond it the deepest are kept and `dropped_contacts` counts.
        validate: check inputs for numbers that are not finite; by default on the CPU only, where it costs no sync.
    """

    def __init__(
        self,
        model: Model,
        num_envs: int = 1,
        *,
        device: str | None = None,
        dtype: str = "float32",
        dt: float = 1e-3,
        substeps: int = 1,
        iterations: int = 50,
        tolerance: float = 0.0,
        threads: int | None = None,
        friction: str = "cone",
        erp: float = 0.2,
        cfm: float = 1e-2,
        restitution_threshold: float | None = None,
        max_contacts: int = 32,
        validate: bool | None = None,
    ):
        self.model = model
        self.num_envs = num_envs
        self.dt, self.substeps = dt, substeps
        self.device = _device(device)
        self.torch_device = torch.device(str(self.device))
        self._real, self.dtype = PRECISIONS[dtype]
        self._sizes = sizes_of(model, max_contacts)
        self._kernels = make_rollout(self._real, self._sizes)
        self._launcher = Launcher(self.device, num_envs, threads)
        t = self._kernels.t

        self._model = t.Model()
        for name, value in tables(model).items():
            setattr(self._model, name, value if isinstance(value, int) else self._array(value, int))
        self._model.axis = self._array(np.vstack([np.zeros(3), model.axis]), t.vec3)
        self._model.spring_ref = self._array(model.spring_ref, self._real)
        self._model.gear = self._array(model.gear, self._real)
        rot = [quat_to_matrix(shape.quat) for shape in model.shapes]
        self._model.shape_rot = self._array(np.array(rot).reshape(-1, 3, 3), t.mat33)
        self._model.dt = dt
        self._model.iterations = iterations
        self._model.tolerance = tolerance
        self._model.pyramid = int(friction == "pyramid")
        self._model.restitution_threshold = 0.05

        values = parameters.defaults(model, erp, cfm)
        self.params = {
            k: torch.as_tensor(v, dtype=self.dtype, device=self.torch_device).expand(num_envs, *v.shape) for k, v in values.items()
        }
        self._params = t.Params()
        for k, v in self.params.items():
            if k == "joint_quat":
                m = torch.as_tensor(quat_to_matrix(values[k]), dtype=self.dtype).expand(num_envs, -1, 3, 3)
                self._keep = m
                self._params.joint_rot = wp.from_torch(m, dtype=t.mat33, requires_grad=False)
            elif k in ("erp", "cfm"):
                setattr(self._params, k, wp.from_torch(v[:, 0], requires_grad=False))
            else:
                dt_ = {"gravity": t.vec3, "com": t.vec3, "joint_pos": t.vec3, "shape_pos": t.vec3, "shape_size": t.vec3, "inertia": t.mat33}.get(k, self._real)
                setattr(self._params, k, wp.from_torch(v, dtype=dt_, requires_grad=False))
        self._diverged = torch.full((num_envs,), -1, dtype=torch.int32, device=self.torch_device)
        self._dropped = torch.zeros(num_envs, dtype=torch.int32, device=self.torch_device)

    def _array(self, values, dtype) -> wp.array:
        return wp.array(np.ascontiguousarray(values), dtype=dtype, device=self.device)

    def initial_state(self):
        q = torch.as_tensor(self.model.q0.copy(), dtype=self.dtype, device=self.torch_device).repeat(self.num_envs, 1)
        return q, torch.zeros(self.num_envs, self.model.nv, dtype=self.dtype, device=self.torch_device)

    def rollout(self, q, qd, u):
        T = u.shape[0]
        qs = torch.empty(T + 1, *q.shape, dtype=self.dtype)
        qds = torch.empty(T + 1, *qd.shape, dtype=self.dtype)
        qs[0] = q
        qds[0] = qd
        f = lambda x: wp.from_torch(x, requires_grad=False)
        self._launcher.run(
            self._kernels.rollout, self.num_envs,
            [self._model, self._params], [self.substeps, 1, f(u), f(q), f(qd), f(qs[1:]), f(qds[1:]), f(self._diverged), f(self._dropped)],
        )
        return qs, qds


def _device(device):
    return wp.get_device(device or ("cuda:0" if wp.is_cuda_available() else "cpu"))
