"""All rows of the contact problem: right-hand side b, impulses, and what b and J depend on.

Rows 3k, 3k + 1, 3k + 2 belong to contact k (contact_rows.py), the joints' rows follow (joint_rows.py). Rows of equality
constraints (ties.py) are numbered by themselves; in E they come last.
"""

import warp as wp

from ..types import ASIDE, TENDON_LIMIT, exports, stage
from .contact_rows import make_contact_rows
from .joint_rows import make_joint_rows
from .paths import make_paths
from .ties import make_ties


def make_rows(t, spatial, gaps, couplings, actuation, dynamics, detection):
    real, vec3, Env, EnvBar = t.real, t.vec3, t.Env, t.EnvBar
    interrupts = t.sizes.impacts > 0
    vec1 = wp.types.vector(length=1, dtype=real)
    SIDES = wp.constant(t.sizes.sides)
    side_path, row_path = make_paths(t, dynamics, 3), make_paths(t, dynamics, 1)
    contact = make_contact_rows(t, spatial, gaps, detection, side_path)
    ties = make_ties(t, spatial, couplings, contact, side_path, actuation, detection)
    joint = make_joint_rows(t, gaps, actuation, row_path, ties)
    tied = t.sizes.ties > 0

    @wp.func
    def swap(e: wp.ref[Env], k: int, l: int):
        other = e.contacts[k]
        e.contacts[k] = e.contacts[l]
        e.contacts[l] = other
        role = e.roles[k]
        e.roles[k] = e.roles[l]
        e.roles[l] = role

    @wp.func
    def sort_contacts(e: wp.ref[Env]):
        """The same as below if there can be impacts: rows come first, then contacts that are near."""
        count = int(0)
        for k in range(e.num_near):
            if e.roles[k] != ASIDE:
                if k != count:
                    swap(e, k, count)
                b, stays = contact.contact_rows(e, count, e.contacts[count])
                for r in range(3):
                    e.y[3 * count + r] = b[r]
                if stays:
                    count += 1
                else:
                    e.roles[count] = ASIDE
        e.num_contacts = count
        first = 3 * count
        count = int(0)
        for k in range(e.num_joint_rows):
            if k != count:
                e.joint_rows[count] = e.joint_rows[k]
            bias, stays = joint.joint_row(e, count, e.joint_rows[count])
            e.y[first + count] = bias
            if stays:
                count += 1
        e.num_joint_rows = count

    @stage
    def find_rows(e: wp.ref[Env]):
        """Complete the list of joint rows; up passes of all rows, and b in e.y."""
        joint.list_rows(e)
        if wp.static(tied):
            ties.list_bounded(e)
            ties.find_ties(e)
        if wp.static(interrupts):
            sort_contacts(e)
        else:
            for k in range(e.num_contacts):
                b, _stays = contact.contact_rows(e, k, e.contacts[k])
                for r in range(3):
                    e.y[3 * k + r] = b[r]
            for k in range(e.num_joint_rows):
                bias, _stays = joint.joint_row(e, k, e.joint_rows[k])
                e.y[3 * e.num_contacts + k] = bias

    @wp.func
    def apply_contact(e: wp.ref[Env], k: int, x: vec3):
        side = SIDES * k
        side_path.apply(e, e.paths, side, e.contacts[k].link_a, x)
        if wp.static(t.sizes.sides == 2):
            side_path.apply(e, e.paths, side + 1, e.contacts[k].link_b, x)

    @wp.func
    def apply_tie(e: wp.ref[Env], row: int, x: real):
        """Add the up pass of J^T x of a tie's row to dofs.u."""
        for j in range(e.model.num_dofs):
            e.dofs[j].u = e.dofs[j].u + e.tie_u[row, j] * x

    @stage
    def apply_impulses(e: wp.ref[Env]):
        """Turn the forces dofs.u into impulses and add those of the rows."""
        for j in range(e.model.num_dofs):
            e.dofs[j].u = e.dofs[j].u * e.model.dt
        for k in range(e.num_contacts):
            apply_contact(e, k, e.contacts[k].x)
        for k in range(e.num_joint_rows):
            row_path.apply(e, e.joint_paths, k, e.joint_rows[k].link, vec1(e.joint_rows[k].x))
            if wp.static(tied):
                if e.joint_rows[k].kind >= TENDON_LIMIT:
                    apply_tie(e, e.joint_rows[k].dof, e.joint_rows[k].x)
        if wp.static(tied):
            for r in range(e.num_tie_rows):
                apply_tie(e, r, e.tie_x[r])

    @stage
    def impulses_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Adjoint of the impulses, scaled for the solver, from the up pass of the adjoint of the new rates."""
        for k in range(e.num_contacts):
            side = SIDES * k
            x = e_bar.contacts[k].x + side_path.product(e, e.paths, side, e.contacts[k].link_a)
            if wp.static(t.sizes.sides == 2):
                x += side_path.product(e, e.paths, side + 1, e.contacts[k].link_b)
            for r in range(3):
                e_bar.x[3 * k + r] = x[r] * e.scale[3 * k + r]
            e_bar.contacts[k].b = vec3()
            e_bar.contacts[k].mu = real(0.0)
        for k in range(e.num_joint_rows):
            r = 3 * e.num_contacts + k
            x_bar = row_path.product(e, e.joint_paths, k, e.joint_rows[k].link)[0]
            if wp.static(tied):
                if e.joint_rows[k].kind >= TENDON_LIMIT:
                    x_bar = ties.product(e, e.joint_rows[k].dof)
            e_bar.x[r] = x_bar * e.scale[r]
            e_bar.joint_rows[k].b = real(0.0)
            e_bar.joint_rows[k].bound = real(0.0)
        if wp.static(tied):
            for r in range(e.num_tie_rows):
                e_bar.tie_x[r] = ties.product(e, r)

    @stage
    def apply_b_bar(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Add the up pass of J^T b_bar to dofs.u."""
        for k in range(e.num_contacts):
            apply_contact(e, k, e_bar.contacts[k].b)
        for k in range(e.num_joint_rows):
            row_path.apply(e, e.joint_paths, k, e.joint_rows[k].link, vec1(e_bar.joint_rows[k].b))
            if wp.static(tied):
                if e.joint_rows[k].kind >= TENDON_LIMIT:
                    apply_tie(e, e.joint_rows[k].dof, e_bar.joint_rows[k].b)
        if wp.static(tied):
            for r in range(e.num_tie_rows):
                apply_tie(e, r, e_bar.tie_b[r])

    @wp.func
    def clear_contacts(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """For a loss that does not depend on the contacts themselves."""
        for k in range(e.num_contacts):
            e_bar.contacts[k].x = vec3()
            e_bar.contacts[k].p = vec3()
            e_bar.contacts[k].n = vec3()
            e_bar.contacts[k].z = real(0.0)

    @stage
    def rows_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar]):
        """Everything that b, J and the bounds depend on: wrenches on links, state, control and parameters."""
        contact.contacts_adjoint(e, e_bar)
        for k in range(e.num_joint_rows):
            joint.joint_row_adjoint(e, e_bar, e.joint_rows[k], e_bar.joint_rows[k])
        if wp.static(tied):
            ties.ties_adjoint(e, e_bar)

    return exports(
        find_rows, apply_impulses, impulses_adjoint, apply_b_bar, clear_contacts, rows_adjoint, contact=contact,
        joint=joint, side_path=side_path, ties=ties, couplings=couplings,
    )  # fmt: skip
