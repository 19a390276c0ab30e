"""Kernels that answer questions about a state without stepping it: accelerations, mass matrix, link poses, contacts."""

from functools import cache
from types import SimpleNamespace

import warp as wp

from .rollout import make_stages, module_options
from .types import FREE, Sizes, memory_layout


@cache
def make_tree(real, sizes: Sizes):
    """Stages, and working memory for links and dofs alone: for kernels that need no contacts."""
    stages = make_stages(real, sizes)
    Link, Dof = stages.t.Link, stages.t.Dof
    NL, NV = sizes.links + 1, sizes.dofs
    Memory, at = memory_layout(stages.t, links=(Link, NL), dofs=(Dof, NV))
    DOFS = wp.constant(wp.uint64(at["dofs"]))

    @wp.struct
    class Tree:
        links: wp.array(dtype=Link)
        dofs: wp.array(dtype=Dof)

    @wp.func
    def view(memory: wp.ref[Memory]):
        tree = Tree()
        tree.links = wp.array(ptr=wp.address_of(memory), shape=(NL,), dtype=Link)
        tree.dofs = wp.array(ptr=wp.address_of(memory) + DOFS, shape=(NV,), dtype=Dof)
        return tree

    return SimpleNamespace(**vars(stages), Memory=Memory, view=view)


@cache
def make_forward_dynamics(real, sizes: Sizes):
    stages = make_tree(real, sizes)
    t, kinematics, dynamics = stages.t, stages.kinematics, stages.dynamics
    Model, Params = t.Model, t.Params
    Memory = stages.Memory

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def forward_dynamics(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        tau: wp.array2d(dtype=real), qdd: wp.array2d(dtype=real),
    ):  # fmt: skip
        """qdd = M^-1 (tau - C), by the articulated-body algorithm."""
        env = first + wp.tid()
        memory = Memory()
        tree = stages.view(memory)
        links = tree.links
        dofs = tree.dofs
        kinematics.kinematics(model, params, env, q[env], qd[env], links, dofs)
        for j in range(model.num_dofs):
            dofs[j].u = tau[env, j]
            dofs[j].diagonal = params.armature[env, j]
        dynamics.factorise(model, params, env, links, dofs)
        dynamics.solve_down(model, links, dofs)
        for j in range(model.num_dofs):
            qdd[env, j] = dofs[j].dqd

    return forward_dynamics


@cache
def make_mass_matrix(real, sizes: Sizes):
    stages = make_tree(real, sizes)
    t, kinematics, dynamics, spatial = stages.t, stages.kinematics, stages.dynamics, stages.spatial
    angular, linear = spatial.angular, spatial.linear
    vec6, Model, Params = t.vec6, t.Model, t.Params
    Memory = stages.Memory

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def mass_matrix(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        M: wp.array3d(dtype=real),
    ):  # fmt: skip
        """Composite-rigid-body algorithm (Featherstone, chapter 6); M comes in as zeros, armature is added."""
        env = first + wp.tid()
        memory = Memory()
        tree = stages.view(memory)
        links = tree.links
        dofs = tree.dofs
        kinematics.kinematics(model, params, env, q[env], qd[env], links, dofs)
        dynamics.composite_inertia(model, params, env, links)
        for j in range(model.num_dofs):
            i = model.dof_link[j]
            free = model.free_dof[i]
            S = dofs[j].S
            if model.joint_type[i] == FREE:
                S = vec6()
                S[(j - free + 3) % 6] = real(1.0)
            # the axis about the link's origin, where IA is known, and the wrench about the tree's
            v = linear(S) + wp.cross(angular(S), links[i].r)
            f = spatial.shift_force(
                spatial.sym6_angular(links[i].IA, angular(S)) + spatial.sym6_linear(links[i].IA, v), links[i].r
            )
            for d in range(model.depth[i]):
                k = model.chain[i, d]
                m = wp.dot(dofs[k].S, f)
                M[env, j, k] = m
                M[env, k, j] = m
            if free >= 0:
                for d in range(6):
                    M[env, j, free + d] = f[(d + 3) % 6]
                    M[env, free + d, j] = f[(d + 3) % 6]
            M[env, j, j] = M[env, j, j] + params.armature[env, j]

    return mass_matrix


@cache
def make_link_poses(real, sizes: Sizes):
    stages = make_tree(real, sizes)
    t, kinematics = stages.t, stages.kinematics
    vec3, Model, Params = t.vec3, t.Model, t.Params
    Memory = stages.Memory

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def link_poses(
        model: Model, params: Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), poses: wp.array3d(dtype=real),
    ):  # fmt: skip
        """Position and quaternion of every link's frame of the file, in the world."""
        env = first + wp.tid()
        memory = Memory()
        tree = stages.view(memory)
        links = tree.links
        dofs = tree.dofs
        kinematics.kinematics(model, params, env, q[env], qd[env], links, dofs)
        for i in range(1, model.num_links):
            O = kinematics.tree_origin(model, params, env, q[env], i)
            p = O + (links[i].r + links[i].R @ frame_pos[i - 1])
            e = wp.normalize(wp.quat_from_matrix(links[i].R))
            for j in range(3):
                poses[env, i - 1, j] = p[j]
            for j in range(4):
                poses[env, i - 1, 3 + j] = e[j]

    return link_poses


@cache
def make_contacts(real, sizes: Sizes):
    stages = make_stages(real, sizes)
    t, step, kinematics = stages.t, stages.step, stages.kinematics
    Model, Params, Memory = t.Model, t.Params, step.Memory

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def contacts(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), points: wp.array3d(dtype=real), normals: wp.array3d(dtype=real),
        depths: wp.array2d(dtype=real), impulses: wp.array3d(dtype=real), pairs: wp.array2d(dtype=int),
        counts: wp.array2d(dtype=int), change: wp.array(dtype=real),
    ):  # fmt: skip
        """The contacts that a step from (q, qd, u) would resolve, and the impulses it would find, in world axes."""
        env = first + wp.tid()
        memory = Memory()
        work = step.view(memory)
        found = step.evaluate(model, params, env, q[env], qd[env], u[env], work)
        for k in range(found.contacts):
            link = wp.where(work.contacts[k].link_a > 0, work.contacts[k].link_a, work.contacts[k].link_b)
            p = work.contacts[k].p + kinematics.tree_origin(model, params, env, q[env], link)
            n = work.contacts[k].n
            x = work.contacts[k].x
            f = n * x[0] + work.contacts[k].t * x[1] + work.contacts[k].s * x[2]
            for j in range(3):
                points[env, k, j] = p[j]
                normals[env, k, j] = n[j]
                impulses[env, k, j] = f[j]
            depths[env, k] = -work.contacts[k].z
            pairs[env, k] = work.contacts[k].pair
        counts[env, 0] = found.contacts
        counts[env, 1] = found.joint_rows
        counts[env, 2] = found.sweeps
        counts[env, 3] = found.dropped
        change[env] = found.change

    return contacts
