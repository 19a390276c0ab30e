"""Poses, motion axes, velocities and bias accelerations, root to tips."""

from types import SimpleNamespace

import warp as wp

from ..types import FREE, REVOLUTE, SPHERICAL


def make_kinematics(t, s):
    real, vec3, vec6, mat33, quat = t.real, t.vec3, t.vec6, t.mat33, t.quat
    Model, Params, Link, Dof = t.Model, t.Params, t.Link, t.Dof
    spatial, angular, linear, cross_motion = s.spatial, s.angular, s.linear, s.cross_motion

    @wp.func
    def read_quat(q: wp.array(dtype=real), start: int):
        """A quaternion as it is stored, not normalised."""
        return quat(q[start], q[start + 1], q[start + 2], q[start + 3])

    @wp.func
    def read_vec3(q: wp.array(dtype=real), start: int):
        return vec3(q[start], q[start + 1], q[start + 2])

    @wp.func
    def tree_origin(model: Model, params: Params, env: int, q: wp.array(dtype=real), link: int):
        """World position of O of the tree that the link belongs to; zero for the world."""
        O = vec3()
        root = model.root[link]
        if root > 0:
            if model.joint_type[root] == FREE:
                O = read_vec3(q, model.q_start[root])
            else:
                O = params.joint_pos[env, root - 1]
        return O

    @wp.func
    def rotate_rows(R: mat33, axis: vec3, n: vec3, sn: real, cs: real):
        """R times the rotation about axis (Rodrigues' formula, row by row); n = R axis."""
        tilt = axis * (real(1.0) - cs)
        return wp.matrix_from_rows(
            R[0] * cs + wp.cross(R[0], axis) * sn + tilt * n[0],
            R[1] * cs + wp.cross(R[1], axis) * sn + tilt * n[1],
            R[2] * cs + wp.cross(R[2], axis) * sn + tilt * n[2],
        )

    @wp.func
    def free_kinematics(
        model: Model, i: int, q: wp.array(dtype=real), qd: wp.array(dtype=real), world: wp.ref[Link],
        link: wp.ref[Link],
    ):  # fmt: skip
        """A free joint's axes are unit vectors, linear ones first: its dofs need no S."""
        j = model.v_start[i]
        v = read_vec3(qd, j)
        w = read_vec3(qd, j + 3)
        link.R = wp.quat_to_matrix(wp.normalize(read_quat(q, model.q_start[i] + 3)))
        link.r = vec3()
        link.v = spatial(w, v)
        # qd is the velocity of a moving point, the spatial acceleration that of the body at a fixed one
        link.a = world.a - spatial(vec3(), wp.cross(w, v))

    @wp.func
    def joint_kinematics(
        model: Model, params: Params, env: int, i: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        parent: wp.ref[Link], link: wp.ref[Link], dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        j = model.v_start[i]
        k = model.q_start[i]
        R = parent.R
        if params.turned[i] != 0:
            R = R @ params.joint_rot[env, i - 1]
        r = vec3()
        if model.parent[i] > 0:
            r = parent.r + parent.R @ params.joint_pos[env, i - 1]
        rate = vec6()
        if model.joint_type[i] == SPHERICAL:
            # S in the parent's joint frame: it does not move when this joint does
            for d in range(3):
                n = vec3(R[0, d], R[1, d], R[2, d])
                S = spatial(n, wp.cross(r, n))
                dofs[j + d].S = S
                rate += S * qd[j + d]
            R = R @ wp.quat_to_matrix(wp.normalize(read_quat(q, k)))
        else:
            axis = model.axis[i]
            n = R @ axis
            S = vec6()
            if model.joint_type[i] == REVOLUTE:
                S = spatial(n, wp.cross(r, n))
                R = rotate_rows(R, axis, n, wp.sin(q[k]), wp.cos(q[k]))
            else:
                S = spatial(vec3(), n)
                r = r + n * q[k]
            dofs[j].S = S
            rate = S * qd[j]
        link.R = R
        link.r = r
        link.v = parent.v + rate
        link.a = parent.a + cross_motion(parent.v, rate)

    @wp.func
    def kinematics(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), qd: wp.array(dtype=real),
        links: wp.array(dtype=Link), dofs: wp.array(dtype=Dof),
    ):  # fmt: skip
        links[0].R = wp.identity(n=3, dtype=real)
        links[0].r = vec3()
        links[0].v = vec6()
        links[0].a = spatial(vec3(), -params.gravity[env])
        links[0].dv = vec6()
        for i in range(1, model.num_links):
            if model.joint_type[i] == FREE:
                free_kinematics(model, i, q, qd, links[0], links[i])
            else:
                joint_kinematics(model, params, env, i, q, qd, links[model.parent[i]], links[i], dofs)

    return SimpleNamespace(**locals())
