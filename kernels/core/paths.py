"""Rows of the contact problem on their way to the world: the same code for a contact's three rows and a joint's one.

A row is a wrench on a link (one per side of a contact) or a unit force on a dof. Its up pass leaves one number
u = S.f on every dof between the link and the world. With w the up pass of any right-hand side t
    J Mhat^-1 t      = sum over the path   u Dinv w
    A_kl             = sum over the common part of two paths   u_k Dinv u_l
    up pass of J^T x = u x on the dofs
so nothing here needs a down pass. The six dofs of a free root are in Root or JointRoot, the others in Paths or
JointPaths (env.py). Contacts also keep u times Dinv, which the Delassus matrix needs most.
"""

import warp as wp

from ..types import exports


def make_paths(t, dynamics, width: int):
    """For sides of contacts (width 3) or joint rows (width 1)."""
    real, Env = t.real, t.Env
    Paths, Root = (t.Paths, t.Root) if width == 3 else (t.JointPaths, t.JointRoot)
    vec = wp.types.vector(length=width, dtype=real)
    mat = wp.types.matrix(shape=(width, 6), dtype=real)

    @wp.func
    def substitute(e: wp.ref[Env], free: int, F: mat, root: wp.ref[Root]):
        """Up pass through a free root: a triangular substitution, since its axes are unit vectors."""
        w0 = F[:, 0]
        w1 = F[:, 1]
        w2 = F[:, 2]
        v0 = F[:, 3]
        v1 = F[:, 4]
        v2 = F[:, 5]
        U = e.dofs[free + 5].U
        d5 = w2 * e.dofs[free + 5].Dinv
        w1 -= d5 * U[1]
        w0 -= d5 * U[0]
        v2 -= d5 * U[5]
        v1 -= d5 * U[4]
        v0 -= d5 * U[3]
        U = e.dofs[free + 4].U
        d4 = w1 * e.dofs[free + 4].Dinv
        w0 -= d4 * U[0]
        v2 -= d4 * U[5]
        v1 -= d4 * U[4]
        v0 -= d4 * U[3]
        U = e.dofs[free + 3].U
        d3 = w0 * e.dofs[free + 3].Dinv
        v2 -= d3 * U[5]
        v1 -= d3 * U[4]
        v0 -= d3 * U[3]
        U = e.dofs[free + 2].U
        d2 = v2 * e.dofs[free + 2].Dinv
        v1 -= d2 * U[4]
        v0 -= d2 * U[3]
        d1 = v1 * e.dofs[free + 1].Dinv
        v0 -= d1 * e.dofs[free + 1].U[3]
        d0 = v0 * e.dofs[free].Dinv
        root.u = wp.matrix_from_cols(v0, v1, v2, w0, w1, w2)
        if wp.static(width == 3):
            o = real(0.0)  # whole registers: one row of four numbers per dof
            root.uD = t.mat64(
                d0[0], d0[1], d0[2], o,
                d1[0], d1[1], d1[2], o,
                d2[0], d2[1], d2[2], o,
                d3[0], d3[1], d3[2], o,
                d4[0], d4[1], d4[2], o,
                d5[0], d5[1], d5[2], o,
            )  # fmt: skip
        else:
            root.uD = wp.matrix_from_rows(d0, d1, d2, d3, d4, d5)

    @wp.func
    def root_product(e: wp.ref[Env], free: int, root: wp.ref[Root]):
        """J Mhat^-1 times dofs.u, as far as the dofs of a free root contribute."""
        g = dynamics.root_forces(e, free) @ root.uD
        if wp.static(width == 3):
            return vec(g[0], g[1], g[2])
        else:
            return vec(g[0])

    @wp.func
    def propagate(e: wp.ref[Env], paths: wp.ref[Paths], k: int, link: int, F: mat, own: real):
        """Up pass of a side or row k from a link to the world; returns J Mhat^-1 times the forces left in dofs.u.

        F: wrenches on the link. own: force of a joint's row on its own dof, the last one before the link; of three
        rows the first one's, if it is not zero.
        """
        acceleration = vec()
        depth = e.model.depth[link]
        for n in range(depth):
            d = depth - 1 - n
            j = e.model.chain[link, d]
            u = F @ e.dofs[j].S
            if wp.static(width == 1):
                if n == 0:
                    u = vec(own)
            elif wp.static(t.sizes.ties > 0):
                if n == 0 and own != real(0.0):
                    u = vec(own, real(0.0), real(0.0))
            uD = u * e.dofs[j].Dinv
            paths.u[k, d] = u
            if wp.static(width == 3):
                paths.uD[k, d] = uD
            acceleration += uD * e.dofs[j].u
            F = F - wp.outer(uD, e.dofs[j].U)
        free = e.model.free_dof[link]
        if free >= 0:
            substitute(e, free, F, paths.root[k])
            acceleration += root_product(e, free, paths.root[k])
        return acceleration

    @wp.func
    def apply(e: wp.ref[Env], paths: wp.ref[Paths], k: int, link: int, x: vec):
        """Add the up pass of J^T x to dofs.u."""
        for d in range(e.model.depth[link]):
            j = e.model.chain[link, d]
            e.dofs[j].u = e.dofs[j].u + wp.dot(paths.u[k, d], x)
        free = e.model.free_dof[link]
        if free >= 0:
            f = x @ paths.root[k].u
            for d in range(6):
                e.dofs[free + d].u = e.dofs[free + d].u + f[d]

    @wp.func
    def product(e: wp.ref[Env], paths: wp.ref[Paths], k: int, link: int):
        """J Mhat^-1 times what an up pass has left in dofs.u."""
        x = vec()
        for d in range(e.model.depth[link]):
            j = e.model.chain[link, d]
            x += paths.u[k, d] * (e.dofs[j].Dinv * e.dofs[j].u)
        free = e.model.free_dof[link]
        if free >= 0:
            x += root_product(e, free, paths.root[k])
        return x

    return exports(propagate, apply, product, substitute)
