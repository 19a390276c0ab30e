"""The time loop: one environment per thread, all steps of a rollout in one launch; and the loop backwards."""

from functools import cache

import warp as wp

from .step import make_step
from .types import Sizes


def module_options():
    """Warp must not generate adjoints, nor unroll; fused multiply-add on the CPU, as on CUDA."""
    flags = f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast -mllvm=-inline-threshold=60000"
    return {"enable_backward": False, "max_unroll": 1, "cpu_compiler_flags": flags}


KERNEL = {"module": "unique", "enable_backward": False}  # with module_options(), which reads Warp's configuration


def rollout_options(real, sizes: Sizes):
    """KERNEL, and a cap of registers that only CUDA knows: with 168, six blocks fit on a multiprocessor instead of four
    or five, for less than 100 bytes of spills on robots whose feet collide with the ground (docs/benchmarks.md).
    """
    capped = real is wp.float32 and sizes.impacts == 0
    return {"cuda_max_registers": 168 if capped else None} | KERNEL


@cache
def make_rollout(real, sizes: Sizes):
    """The forward rollout kernel for one precision and size."""
    s = make_step(real, sizes)
    t = s.t

    @wp.func
    def hold(q: wp.array(dtype=real), q_next: wp.array(dtype=real)):
        for j in range(q.shape[0]):
            q_next[j] = q[j]

    @wp.kernel(**rollout_options(real, sizes), module_options=module_options())
    def rollout(
        model: t.Model,
        params: t.Params,
        first: int,
        substeps: int,
        stride: int,
        u: wp.array3d(dtype=real),
        wrench: wp.array4d(dtype=real),
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        diverged: wp.array(dtype=int),
        dropped: wp.array(dtype=int),
    ):
        """Fills q[1:] and qd[1:] from row 0: row n becomes the state after n * stride steps, the last after all.

        u[step, env] is held for `substeps` steps of dt, and so is wrench[step, env], which is read if Sizes.wrenches.
        diverged[env] becomes the control at which the environment diverged (it then keeps its state), or -1;
        dropped[env] the number of contacts beyond the capacity.
        """
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        at = int(-1)
        lost = int(0)
        n = int(0)
        # a turn is one evaluation, not one step: no thread of a warp waits for another one's impacts
        while n < u.shape[0] * substeps:
            after = n / stride + 1
            before = wp.where(n % stride == 0, after - 1, after)
            if at < 0:
                if e.stage == 0:
                    e.q = q[before, env]
                    e.qd = qd[before, env]
                    e.u = u[n / substeps, env]
                    if wp.static(sizes.wrenches):
                        e.wrench = wrench[n / substeps, env]
                    s.begin(e)
                s.evaluate(e)
                if e.stage == 0:
                    lost += e.dropped
                if s.integrate.diverges(e):
                    at = n / substeps
                elif s.last(e):
                    s.finish(e, q[after, env], qd[after, env])
                    n += 1
            if at >= 0:
                hold(q[before, env], q[after, env])
                hold(qd[before, env], qd[after, env])
                n += 1
        diverged[env] = at
        dropped[env] = lost

    return rollout


@cache
def make_rollout_adjoint(real, sizes: Sizes):
    """The kernel that reverses a rollout."""
    s = make_step(real, sizes)
    t = s.t

    @wp.func
    def add(x: wp.array(dtype=real), dx: wp.array(dtype=real)):
        for j in range(x.shape[0]):
            x[j] = x[j] + dx[j]

    @wp.kernel(**KERNEL, module_options=module_options())
    def rollout_adjoint(
        model: t.Model,
        params: t.Params,
        first: int,
        substeps: int,
        stride: int,
        u: wp.array3d(dtype=real),
        wrench: wp.array4d(dtype=real),
        q: wp.array3d(dtype=real),
        qd: wp.array3d(dtype=real),
        stopped: wp.array(dtype=int),
        q_bars: wp.array3d(dtype=real),
        qd_bars: wp.array3d(dtype=real),
        q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real),
        u_bar: wp.array3d(dtype=real),
        wrench_bar: wp.array4d(dtype=real),
        params_bar: t.ParamsBar,
    ):
        """Walks back from the last of the states q[n], qd[n] after n steps to the first, one recomputed step each.

        q_bars[m], qd_bars[m], m > 0: adjoint of the state after m * stride steps. q_bar, qd_bar: adjoint of the last
        state beyond that, becomes the adjoint of the first. stopped[env]: control at which the environment diverged.
        u_bar, wrench_bar and params_bar are added to.
        """
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see env.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        n = int(u.shape[0] * substeps - 1)
        fresh = bool(True)
        while n >= 0:  # a turn is one evaluation, as in the rollout
            c = n / substeps
            if fresh:
                if (n + 1) % stride == 0:
                    row = (n + 1) / stride
                    add(e_bar.q, q_bars[row, env])
                    add(e_bar.qd, qd_bars[row, env])
                e.q = q[n, env]
                e.qd = qd[n, env]
                e.u = u[c, env]
                e_bar.u = u_bar[c, env]
                if wp.static(sizes.wrenches):
                    e.wrench = wrench[c, env]
                    e_bar.wrench = wrench_bar[c, env]
                s.begin(e)
            fresh = True
            if c <= stopped[env]:
                s.evaluate(e)
                fresh = s.reverse(e, e_bar)
            if fresh:
                n -= 1

    return rollout_adjoint
