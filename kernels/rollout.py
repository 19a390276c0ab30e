"""The kernels that are launched: one environment per thread, all steps of a rollout in one launch."""

from functools import cache
from types import SimpleNamespace

import warp as wp

from .actuation import make_actuation
from .collision import make_collision
from .contact import make_contact
from .detection import make_detection
from .dynamics import make_dynamics
from .frames import make_frames
from .integrate import make_integrate
from .joint_rows import make_joint_rows
from .kinematics import make_kinematics
from .pgs import make_pgs
from .spatial import make_spatial
from .step import make_step
from .types import Sizes, make_types


def module_options():
    """Warp must not generate adjoints, nor unroll; fused multiply-add on the CPU, as on CUDA."""
    flags = f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast"
    return {"enable_backward": False, "max_unroll": 1, "cpu_compiler_flags": flags}


@cache
def make_stages(real, sizes: Sizes):
    """The device functions of all stages, for one precision and size."""
    t = make_types(real, sizes)
    spatial = make_spatial(t)
    kinematics = make_kinematics(t, spatial)
    actuation = make_actuation(t, spatial)
    dynamics = make_dynamics(t, spatial)
    joint_rows = make_joint_rows(t, actuation)
    contact = make_contact(t)
    pgs = make_pgs(t, spatial)
    detection = make_detection(t, kinematics, make_frames(t), make_collision(t))
    integrate = make_integrate(t, kinematics)
    step = make_step(t, kinematics, actuation, dynamics, detection, joint_rows, contact, pgs, integrate)
    return SimpleNamespace(**locals())


@cache
def make_rollout(real, sizes: Sizes):
    """The forward rollout kernel for one precision and size."""
    stages = make_stages(real, sizes)
    t, step = stages.t, stages.step
    Model, Params, Memory = t.Model, t.Params, step.Memory

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def rollout(
        model: Model,
        params: Params,
        first: int,
        substeps: int,
        every: int,
        u: wp.array3d(dtype=real),
        q0: wp.array2d(dtype=real),
        qd0: wp.array2d(dtype=real),
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        diverged: wp.array(dtype=int),
        dropped: wp.array(dtype=int),
    ):
        """Row n of q and qd becomes the state after (n + 1) * every steps of the control (the last row: after all).

        u[step, env] is held for `substeps` steps of dt. diverged[env] becomes the step of the control at which the
        environment ran away (it then stays where it was), or -1; dropped[env] the contacts that had no room.
        """
        env = first + wp.tid()
        memory = Memory()
        work = step.view(memory)
        at = int(-1)
        lost = int(0)
        for n in range(u.shape[0]):
            row = n / every
            if n % every == 0:
                for j in range(q.shape[2]):
                    q[row, env, j] = wp.where(n == 0, q0[env, j], q[wp.max(row - 1, 0), env, j])
                for j in range(qd.shape[2]):
                    qd[row, env, j] = wp.where(n == 0, qd0[env, j], qd[wp.max(row - 1, 0), env, j])
            for _s in range(substeps):
                if at < 0:
                    counts, fine = step.step(
                        model, params, env, q[row, env], qd[row, env], u[n, env], work, q[row, env], qd[row, env]
                    )
                    lost += counts.dropped
                    if not fine:
                        at = n
        diverged[env] = at
        dropped[env] = lost

    return rollout
