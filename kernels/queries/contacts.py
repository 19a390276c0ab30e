"""The contacts that a step would resolve, with their impulses; and the adjoint."""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import Sizes


@cache
def make_contacts(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t

    @wp.kernel(**KERNEL, module_options=module_options())
    def contacts(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), points: wp.array3d(dtype=real), normals: wp.array3d(dtype=real),
        depths: wp.array2d(dtype=real), impulses: wp.array3d(dtype=real), pairs: wp.array2d(dtype=int),
        counts: wp.array2d(dtype=int), change: wp.array(dtype=real),
    ):  # fmt: skip
        """All in world axes."""
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see types.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        s.evaluate(e)
        for k in range(e.num_contacts):
            link = wp.where(e.contacts[k].link_a > 0, e.contacts[k].link_a, e.contacts[k].link_b)
            p = e.contacts[k].p + s.kinematics.tree_origin(e, link)
            n = e.contacts[k].n
            x = e.contacts[k].x
            f = n * x[0] + e.contacts[k].t * x[1] + e.contacts[k].s * x[2]
            for j in range(3):
                points[env, k, j] = p[j]
                normals[env, k, j] = n[j]
                impulses[env, k, j] = f[j]
            depths[env, k] = -e.contacts[k].z
            pairs[env, k] = e.contacts[k].pair
        counts[env, 0] = e.num_contacts
        counts[env, 1] = e.num_joint_rows
        counts[env, 2] = e.sweeps
        counts[env, 3] = e.dropped
        change[env] = e.change

    return contacts


@cache
def make_contacts_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3 = t.vec3

    @wp.func
    def read(a: wp.array3d(dtype=real), env: int, k: int):
        return vec3(a[env, k, 0], a[env, k, 1], a[env, k, 2])

    @wp.kernel(**KERNEL, module_options=module_options())
    def contacts_adjoint(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), points_bar: wp.array3d(dtype=real), normals_bar: wp.array3d(dtype=real),
        depths_bar: wp.array2d(dtype=real), impulses_bar: wp.array3d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), u_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """q_bar, qd_bar and u_bar come in as zeros."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see types.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        e_bar.u = u_bar[env]
        s.evaluate(e)
        for k in range(e.num_contacts):
            n = e.contacts[k].n
            x = e.contacts[k].x
            f_bar = read(impulses_bar, env, k)
            e_bar.contacts[k].x = vec3(wp.dot(n, f_bar), wp.dot(e.contacts[k].t, f_bar), wp.dot(e.contacts[k].s, f_bar))
            e_bar.contacts[k].n = (
                read(normals_bar, env, k) + f_bar * x[0] + s.detection.tangents_adjoint(n, f_bar * x[1], f_bar * x[2])
            )
            e_bar.contacts[k].p = read(points_bar, env, k)
            e_bar.contacts[k].z = -depths_bar[env, k]
        s.evaluate_adjoint(e, e_bar)

    return contacts_adjoint
