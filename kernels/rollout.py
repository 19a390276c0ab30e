"""The kernels that are launched: one environment per thread, all steps of a rollout in one launch."""

from functools import cache
from types import SimpleNamespace

import warp as wp

from .collision.detection import make_detection
from .collision.frames import make_frames
from .collision.pair_points import make_pair_points
from .collision.pairs import make_collision
from .core.actuation import make_actuation
from .core.contact import make_contact
from .core.delassus import make_delassus
from .core.dynamics import make_dynamics
from .core.integrate import make_integrate
from .core.joint_rows import make_joint_rows
from .core.kinematics import make_kinematics
from .core.motion import make_motion
from .core.pgs import make_pgs
from .core.spatial import make_spatial
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
    frames = make_frames(t)
    points = make_pair_points(t, make_collision(t))
    detection = make_detection(t, spatial, kinematics, frames, points)
    contact = make_contact(t, spatial, dynamics, detection, frames)
    delassus = make_delassus(t, spatial, dynamics)
    pgs = make_pgs(t, spatial)
    integrate = make_integrate(t, kinematics)
    motion = make_motion(t, spatial, integrate)
    step = make_step(
        t, kinematics, actuation, dynamics, detection, joint_rows, contact, delassus, pgs, integrate, motion
    )
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
        stride: int,
        u: wp.array3d(dtype=real),
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        diverged: wp.array(dtype=int),
        dropped: wp.array(dtype=int),
    ):
        """Fills q[1:] and qd[1:] from row 0: row n becomes the state after n * stride steps, the last after all.

        u[step, env] is held for `substeps` steps of dt. diverged[env] becomes the control at which the environment
        ran away (it then stays where it was), or -1; dropped[env] the contacts that had no room.
        """
        env = first + wp.tid()
        memory = Memory()
        work = step.view(memory)
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


@cache
def make_rollout_adjoint(real, sizes: Sizes):
    """The kernel that reverses a rollout."""
    stages = make_stages(real, sizes)
    t, step, adjoint, integrate = stages.t, stages.step, stages.step.adjoint, stages.integrate
    Model, Params, ParamsBar, Memory, MemoryBar = t.Model, t.Params, t.ParamsBar, step.Memory, adjoint.MemoryBar

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def rollout_adjoint(
        model: Model,
        params: Params,
        first: int,
        substeps: int,
        stride: int,
        u: wp.array3d(dtype=real),
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        stopped: wp.array(dtype=int),
        q_bars: wp.array3d(dtype=real),
        qd_bars: wp.array3d(dtype=real),
        q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real),
        u_bar: wp.array3d(dtype=real),
        params_bar: ParamsBar,
    ):
        """Walks back from the last of the states q[n], qd[n] after n steps to the first, one recomputed step each.

        q_bars[m], qd_bars[m], m > 0: adjoint of the state after m * stride steps. q_bar, qd_bar: adjoint of the last
        state beyond that, becomes the adjoint of the first. stopped[env]: control at which the environment ran away.
        u_bar and params_bar are added to.
        """
        env = first + wp.tid()
        memory = Memory()
        memory_bar = MemoryBar()
        work = step.view(memory)
        bar = adjoint.view_bar(memory_bar)
        work.history = bar.history
        steps = u.shape[0] * substeps
        for m in range(steps):
            n = steps - 1 - m
            if (n + 1) % stride == 0:
                row = (n + 1) / stride
                for j in range(q.shape[2]):
                    q_bar[env, j] = q_bar[env, j] + q_bars[row, env, j]
                for j in range(qd.shape[2]):
                    qd_bar[env, j] = qd_bar[env, j] + qd_bars[row, env, j]
            c = n / substeps
            if c <= stopped[env]:
                counts = step.evaluate(model, params, env, q[n, env], qd[n, env], u[c, env], work)
                if not integrate.runaway(model, qd[n, env], work.dofs):
                    adjoint.step_adjoint(
                        model, params, env, q[n, env], qd[n, env], u[c, env], work, counts, bar, q_bar[env],
                        qd_bar[env], u_bar[c, env], params_bar,
                    )  # fmt: skip

    return rollout_adjoint
