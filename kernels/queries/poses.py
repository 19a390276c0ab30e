"""World poses of the links, and the adjoint."""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import Sizes


@cache
def make_link_poses(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3 = t.vec3

    @wp.kernel(**KERNEL, module_options=module_options())
    def link_poses(
        model: t.Model, params: t.Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), poses: wp.array3d(dtype=real),
    ):  # fmt: skip
        """Position and quaternion of every link's frame of the file, in the world."""
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        for i in range(1, model.num_links):
            p = s.kinematics.tree_origin(e, i) + (e.links[i].r + e.links[i].R @ frame_pos[i - 1])
            r = wp.normalize(wp.quat_from_matrix(e.links[i].R))
            for j in range(3):
                poses[env, i - 1, j] = p[j]
            for j in range(4):
                poses[env, i - 1, 3 + j] = r[j]

    return link_poses


@cache
def make_link_poses_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3, quat, vec6 = t.vec3, t.quat, t.vec6

    @wp.kernel(**KERNEL, module_options=module_options())
    def link_poses_adjoint(
        model: t.Model, params: t.Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), poses_bar: wp.array3d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """A pose's adjoint is a wrench on its link; without motion the rest of motion_adjoint is zero."""
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
            e_bar.links[i].W = vec6()
            p_bar = vec3(poses_bar[env, i - 1, 0], poses_bar[env, i - 1, 1], poses_bar[env, i - 1, 2])
            r_bar = quat(
                poses_bar[env, i - 1, 3], poses_bar[env, i - 1, 4], poses_bar[env, i - 1, 5], poses_bar[env, i - 1, 6]
            )
            x = r_bar * wp.quat_inverse(wp.normalize(wp.quat_from_matrix(e.links[i].R)))
            phi = vec3(x[0], x[1], x[2]) * real(0.5)
            at = e.links[i].r + e.links[i].R @ frame_pos[i - 1]
            root = model.root[i]
            e_bar.links[i].direct = s.spatial.spatial(phi + wp.cross(at, p_bar), p_bar)
            e_bar.links[root].origin = e_bar.links[root].origin + p_bar
        s.motion.motion_adjoint(e, e_bar)

    return link_poses_adjoint
