"""Poses, motion axes, velocities and bias accelerations, root to tips."""

import warp as wp

from ..types import FREE, REVOLUTE, SPHERICAL, exports, stage


def make_kinematics(t, s):
    real, vec3, vec6, mat33, quat = t.real, t.vec3, t.vec6, t.mat33, t.quat
    Env, Link, spatial, cross_motion = t.Env, t.Link, s.spatial, s.cross_motion

    @wp.func
    def read_quat(q: wp.array(dtype=real), start: int):
        """A quaternion as it is stored, not normalised."""
        return quat(q[start], q[start + 1], q[start + 2], q[start + 3])

    @wp.func
    def read_vec3(q: wp.array(dtype=real), start: int):
        return vec3(q[start], q[start + 1], q[start + 2])

    @wp.func
    def tree_origin(e: wp.ref[Env], link: int):
        """World position of O of the tree that the link belongs to; zero for the world."""
        O = vec3()
        root = e.model.root[link]
        if root > 0:
            if e.model.joint_type[root] == FREE:
                O = read_vec3(e.q, e.model.q_start[root])
            else:
                O = e.params.joint_pos[e.index, root - 1]
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
    def free_kinematics(e: wp.ref[Env], i: int, link: wp.ref[Link]):
        """A free joint's axes are unit vectors, linear ones first: its dofs need no S."""
        j = e.model.v_start[i]
        v = read_vec3(e.qd, j)
        w = read_vec3(e.qd, j + 3)
        link.R = wp.quat_to_matrix(wp.normalize(read_quat(e.q, e.model.q_start[i] + 3)))
        link.r = vec3()
        link.v = spatial(w, v)
        # qd is the velocity of a moving point, the spatial acceleration that of the body at a fixed one
        link.a = e.links[0].a - spatial(vec3(), wp.cross(w, v))

    @wp.func
    def joint_kinematics(e: wp.ref[Env], i: int, parent: wp.ref[Link], link: wp.ref[Link]):
        j = e.model.v_start[i]
        k = e.model.q_start[i]
        R = parent.R
        if e.params.turned[i] != 0:
            R = R @ e.params.joint_rot[e.index, i - 1]
        r = vec3()
        if e.model.parent[i] > 0:
            r = parent.r + parent.R @ e.params.joint_pos[e.index, i - 1]
        rate = vec6()
        if e.model.joint_type[i] == SPHERICAL:
            # S in the parent's joint frame: it does not move when this joint does
            for d in range(3):
                n = vec3(R[0, d], R[1, d], R[2, d])
                S = spatial(n, wp.cross(r, n))
                e.dofs[j + d].S = S
                rate += S * e.qd[j + d]
            R = R @ wp.quat_to_matrix(wp.normalize(read_quat(e.q, k)))
        else:
            axis = e.model.axis[i]
            n = R @ axis
            S = vec6()
            if e.model.joint_type[i] == REVOLUTE:
                S = spatial(n, wp.cross(r, n))
                R = rotate_rows(R, axis, n, wp.sin(e.q[k]), wp.cos(e.q[k]))
            else:
                S = spatial(vec3(), n)
                r = r + n * e.q[k]
            e.dofs[j].S = S
            rate = S * e.qd[j]
        link.R = R
        link.r = r
        link.v = parent.v + rate
        link.a = parent.a + cross_motion(parent.v, rate)

    @stage
    def kinematics(e: wp.ref[Env]):
        e.links[0].R = wp.identity(n=3, dtype=real)
        e.links[0].r = vec3()
        e.links[0].v = vec6()
        e.links[0].a = spatial(vec3(), -e.params.gravity[e.index])
        if t.at_impact(e):
            e.links[0].a = vec6()
        e.links[0].dv = vec6()
        for i in range(1, e.model.num_links):
            if e.model.joint_type[i] == FREE:
                free_kinematics(e, i, e.links[i])
            else:
                joint_kinematics(e, i, e.links[e.model.parent[i]], e.links[i])
            if t.at_impact(e):
                e.links[i].a = vec6()

    return exports(kinematics, tree_origin, read_quat, read_vec3)
