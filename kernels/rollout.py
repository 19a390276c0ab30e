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
    flags = f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast -mllvm=-inline-threshold=60000"
    return {"enable_backward": False, "max_unroll": 1, "cpu_compiler_flags": flags}


@cache
def make_stages(real, sizes: Sizes):
    """The device functions of all stages, for one precision and size."""
    t = make_types(real, sizes)
    spatial = make_spatial(t)
    kinematics = make_kinematics(t, spatial)
    actuation = make_actuation(t, spatial)
    dynamics = make_dynamics(t, spatial)
    joint_rows = make_joint_rows(t, actuation, dynamics)
    contact = make_contact(t, dynamics)
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
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        diverged: wp.array(dtype=int),
        dropped: wp.array(dtype=int),
    ):
        """Fills q[1:] and qd[1:] from row 0: row n becomes the state after n * every controls, the last after all.

        u[step, env] is held for `substeps` steps of dt. diverged[env] becomes the control at which the environment
        ran away (it then stays where it was), or -1; dropped[env] the contacts that had no room.
        """
        env = first + wp.tid()
        memory = Memory()
        work = step.view(memory)
        stride = every * substeps
        at = int(-1)
        lost = int(0)
        for n in range(u.shape[0] * substeps):
            after = n / stride + 1
            before = wp.where(n % stride == 0, after - 1, after)
            fine = bool(False)
            if at < 0:
                counts, well = step.step(
                    model, params, env, q[before, env], qd[before, env], u[n / substeps, env], work, q[after, env],
                    qd[after, env],
                )  # fmt: skip
                lost += counts.dropped
                fine = well
            if not fine:
                if at < 0:
                    at = n / substeps
                step.hold(q[before, env], qd[before, env], q[after, env], qd[after, env])
        diverged[env] = at
        dropped[env] = lost

    return rollout
