"""World velocities of the links and the adjoint; Jacobians of frames on them."""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import Sizes


@cache
def make_link_velocities(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3 = t.vec3

    @wp.kernel(**KERNEL, module_options=module_options())
    def link_velocities(
        model: t.Model, params: t.Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), velocities: wp.array3d(dtype=real),
    ):  # fmt: skip
        """Of every link's frame of the file: linear velocity of its origin, then angular velocity."""
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        for i in range(1, model.num_links):
            v = s.spatial.velocity_at(e.links[i].v, e.links[i].r + e.links[i].R @ frame_pos[i - 1])
            w = s.spatial.angular(e.links[i].v)
            for j in range(3):
                velocities[env, i - 1, j] = v[j]
                velocities[env, i - 1, 3 + j] = w[j]

    return link_velocities


@cache
def make_link_velocities_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3, vec6 = t.vec3, t.vec6

    @wp.kernel(**KERNEL, module_options=module_options())
    def link_velocities_adjoint(
        model: t.Model, params: t.Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), velocities_bar: wp.array3d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """A velocity's adjoint is a wrench that does not turn with its link, as in core/wrenches.py."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see env.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        s.kinematics.kinematics(e)
        s.motion.clear(e, e_bar)
        for i in range(1, model.num_links):
            e.links[i].dv = vec6()
            e_bar.links[i].W = vec6()
            f = vec3(velocities_bar[env, i - 1, 0], velocities_bar[env, i - 1, 1], velocities_bar[env, i - 1, 2])
            n = vec3(velocities_bar[env, i - 1, 3], velocities_bar[env, i - 1, 4], velocities_bar[env, i - 1, 5])
            at = e.links[i].r + e.links[i].R @ frame_pos[i - 1]
            v = e.links[i].v
            e_bar.links[i].dvbar = s.spatial.spatial(n + wp.cross(at, f), f)
            turned = wp.cross(s.spatial.angular(v), n) + wp.cross(s.spatial.velocity_at(v, at), f)
            e_bar.links[i].direct = s.spatial.spatial(turned, vec3())
        s.motion.motion_adjoint(e, e_bar)

    return link_velocities_adjoint


@cache
def make_frame_jacobians(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3, vec6 = t.vec3, t.vec6

    @wp.kernel(**KERNEL, module_options=module_options())
    def frame_jacobians(
        model: t.Model, params: t.Params, first: int, links: wp.array(dtype=int), offsets: wp.array(dtype=vec3),
        q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real), J: wp.array4d(dtype=real),
    ):  # fmt: skip
        """Of points at `offsets` in the frames of `links` (0: the world): rows are linear, then angular velocity.

        J comes in as zeros.
        """
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        for k in range(links.shape[0]):
            i = links[k]
            p = e.links[i].r + e.links[i].R @ offsets[k]
            if i > 0:
                for d in range(model.depth[i]):
                    j = model.chain[i, d]
                    v = s.spatial.velocity_at(e.dofs[j].S, p)
                    w = s.spatial.angular(e.dofs[j].S)
                    for c in range(3):
                        J[env, k, c, j] = v[c]
                        J[env, k, 3 + c, j] = w[c]
                free = model.free_dof[i]
                if free >= 0:
                    for d in range(6):
                        S = vec6()
                        S[(d + 3) % 6] = real(1.0)
                        v = s.spatial.velocity_at(S, p)
                        w = s.spatial.angular(S)
                        for c in range(3):
                            J[env, k, c, free + d] = v[c]
                            J[env, k, 3 + c, free + d] = w[c]

    return frame_jacobians
