"""Kernels that answer questions about a state without stepping it: accelerations, mass matrix, link poses, contacts."""

from functools import cache
from types import SimpleNamespace

import warp as wp

from ..rollout import make_stages, module_options
from ..types import FREE, Sizes, memory_layout


@cache
def make_tree(real, sizes: Sizes):
    """Stages, and working memory for links and dofs alone: for kernels that need no contacts."""
    stages = make_stages(real, sizes)
    t = stages.t
    Link, Dof, LinkBar, DofBar = t.Link, t.Dof, t.LinkBar, t.DofBar
    NL, NV = sizes.links + 1, sizes.dofs
    Memory, at = memory_layout(t, links=(Link, NL), dofs=(Dof, NV))
    MemoryBar, at_bar = memory_layout(t, links=(LinkBar, NL), dofs=(DofBar, NV))
    DOFS, DOF_BARS = wp.constant(wp.uint64(at["dofs"])), wp.constant(wp.uint64(at_bar["dofs"]))

    @wp.struct
    class Tree:
        links: wp.array(dtype=Link)
        dofs: wp.array(dtype=Dof)

    @wp.struct
    class TreeBar:
        links: wp.array(dtype=LinkBar)
        dofs: wp.array(dtype=DofBar)

    @wp.func
    def view(memory: wp.ref[Memory]):
        tree = Tree()
        tree.links = wp.array(ptr=wp.address_of(memory), shape=(NL,), dtype=Link)
        tree.dofs = wp.array(ptr=wp.address_of(memory) + DOFS, shape=(NV,), dtype=Dof)
        return tree

    @wp.func
    def view_bar(memory: wp.ref[MemoryBar]):
        bar = TreeBar()
        bar.links = wp.array(ptr=wp.address_of(memory), shape=(NL,), dtype=LinkBar)
        bar.dofs = wp.array(ptr=wp.address_of(memory) + DOF_BARS, shape=(NV,), dtype=DofBar)
        return bar

    return SimpleNamespace(**{**vars(stages), **locals()})


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
def make_forward_dynamics_adjoint(real, sizes: Sizes):
    stages = make_tree(real, sizes)
    t, kinematics, dynamics, motion = stages.t, stages.kinematics, stages.dynamics, stages.motion
    Model, Params, ParamsBar = t.Model, t.Params, t.ParamsBar
    Memory, MemoryBar = stages.Memory, stages.MemoryBar

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def forward_dynamics_adjoint(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        tau: wp.array2d(dtype=real), qdd_bar: wp.array2d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), tau_bar: wp.array2d(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """A step of one second without contacts, but for the old rates: q_bar and qd_bar come in as zeros."""
        env = first + wp.tid()
        memory = Memory()
        memory_bar = MemoryBar()
        tree = stages.view(memory)
        bar = stages.view_bar(memory_bar)
        links = tree.links
        dofs = tree.dofs
        model.dt = real(1.0)
        kinematics.kinematics(model, params, env, q[env], qd[env], links, dofs)
        for j in range(model.num_dofs):
            dofs[j].u = tau[env, j]
            dofs[j].diagonal = params.armature[env, j]
        dynamics.factorise(model, params, env, links, dofs)
        dynamics.solve_down(model, links, dofs)
        dynamics.solve_up_adjoint(model, links, dofs, bar.links, qdd_bar[env])
        dynamics.solve_down_adjoint(model, dofs, bar.links, bar.dofs)
        motion.clear(model, bar.links, bar.dofs)
        motion.motion_adjoint(
            model, params, env, q[env], False, links, dofs, bar.links, bar.dofs, q_bar[env], qd_bar[env], params_bar
        )
        for j in range(model.num_dofs):
            tau_bar[env, j] = bar.dofs[j].s
            if params_bar.joints != 0:
                params_bar.armature[env, j] = params_bar.armature[env, j] - bar.dofs[j].s * dofs[j].dqd

    return forward_dynamics_adjoint


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
def make_link_poses_adjoint(real, sizes: Sizes):
    stages = make_tree(real, sizes)
    t, kinematics, motion, spatial = stages.t, stages.kinematics, stages.motion, stages.spatial
    vec3, quat, vec6, Model, Params, ParamsBar = t.vec3, t.quat, t.vec6, t.Model, t.Params, t.ParamsBar
    Memory, MemoryBar = stages.Memory, stages.MemoryBar

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def link_poses_adjoint(
        model: Model, params: Params, first: int, frame_pos: wp.array(dtype=vec3), q: wp.array2d(dtype=real),
        qd: wp.array2d(dtype=real), poses_bar: wp.array3d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """A pose's adjoint is a wrench on its link; with no motion nothing else is left of motion_adjoint."""
        env = first + wp.tid()
        memory = Memory()
        memory_bar = MemoryBar()
        tree = stages.view(memory)
        bar = stages.view_bar(memory_bar)
        links = tree.links
        kinematics.kinematics(model, params, env, q[env], qd[env], links, tree.dofs)
        motion.clear(model, bar.links, bar.dofs)
        for i in range(1, model.num_links):
            bar.links[i].W = vec6()
            p_bar = vec3(poses_bar[env, i - 1, 0], poses_bar[env, i - 1, 1], poses_bar[env, i - 1, 2])
            e = wp.normalize(wp.quat_from_matrix(links[i].R))
            x = quat(
                poses_bar[env, i - 1, 3], poses_bar[env, i - 1, 4], poses_bar[env, i - 1, 5], poses_bar[env, i - 1, 6]
            ) * wp.quat_inverse(e)
            phi = vec3(x[0], x[1], x[2]) * real(0.5)
            at = links[i].r + links[i].R @ frame_pos[i - 1]
            root = model.root[i]
            bar.links[i].direct = spatial.spatial(phi + wp.cross(at, p_bar), p_bar)
            bar.links[root].origin = bar.links[root].origin + p_bar
        motion.motion_adjoint(
            model, params, env, q[env], False, links, tree.dofs, bar.links, bar.dofs, q_bar[env], qd_bar[env],
            params_bar,
        )  # fmt: skip

    return link_poses_adjoint


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


@cache
def make_contacts_adjoint(real, sizes: Sizes):
    stages = make_stages(real, sizes)
    t, step, adjoint, frames = stages.t, stages.step, stages.step.adjoint, stages.frames
    vec3, Model, Params, ParamsBar = t.vec3, t.Model, t.Params, t.ParamsBar
    Memory, MemoryBar = step.Memory, adjoint.MemoryBar

    @wp.func
    def read(a: wp.array3d(dtype=real), env: int, k: int):
        return vec3(a[env, k, 0], a[env, k, 1], a[env, k, 2])

    @wp.kernel(module="unique", enable_backward=False, module_options=module_options())
    def contacts_adjoint(
        model: Model, params: Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), points_bar: wp.array3d(dtype=real), normals_bar: wp.array3d(dtype=real),
        depths_bar: wp.array2d(dtype=real), impulses_bar: wp.array3d(dtype=real), q_bar: wp.array2d(dtype=real),
        qd_bar: wp.array2d(dtype=real), u_bar: wp.array2d(dtype=real), params_bar: ParamsBar,
    ):  # fmt: skip
        """q_bar, qd_bar and u_bar come in as zeros."""
        env = first + wp.tid()
        memory = Memory()
        memory_bar = MemoryBar()
        work = step.view(memory)
        bar = adjoint.view_bar(memory_bar)
        work.history = bar.history
        found = step.evaluate(model, params, env, q[env], qd[env], u[env], work)
        for k in range(found.contacts):
            n = work.contacts[k].n
            x = work.contacts[k].x
            f_bar = read(impulses_bar, env, k)
            bar.contacts[k].x = vec3(
                wp.dot(n, f_bar), wp.dot(work.contacts[k].t, f_bar), wp.dot(work.contacts[k].s, f_bar)
            )
            bar.contacts[k].n = (
                read(normals_bar, env, k) + f_bar * x[0] + frames.tangents_adjoint(n, f_bar * x[1], f_bar * x[2])
            )
            bar.contacts[k].p = read(points_bar, env, k)
            bar.contacts[k].z = -depths_bar[env, k]
        adjoint.evaluate_adjoint(
            model, params, env, q[env], qd[env], u[env], work, found, bar, q_bar[env], qd_bar[env], u_bar[env],
            params_bar,
        )  # fmt: skip

    return contacts_adjoint
