"""Which shapes touch: the pairs of the model, tested one by one, and the list of contacts they make."""

from types import SimpleNamespace

import warp as wp

from .pair_points import BOX, PLANE

PLANE_TYPE = wp.constant(PLANE)
BOX_TYPE = wp.constant(BOX)


def make_detection(t, spatial, kinematics, frames, points):
    real, vec3, mat33 = t.real, t.vec3, t.mat33
    Model, Params, ParamsBar, Link, LinkBar, Contact = t.Model, t.Params, t.ParamsBar, t.Link, t.LinkBar, t.Contact
    Pose, PoseBar = points.Pose, points.PoseBar
    pair_mode, pair_candidates, pair_point = points.pair_mode, points.pair_candidates, points.pair_point

    @wp.func
    def place(model: Model, params: Params, env: int, shape: int, x: vec3, links: wp.array(dtype=Link)):
        """The pose of a shape whose centre is known."""
        pose = Pose()
        pose.x = x
        pose.R = links[model.shape_link[shape]].R @ model.shape_rot[shape]
        pose.size = params.shape_size[env, shape]
        return pose

    @wp.func
    def centre(model: Model, params: Params, env: int, shape: int, links: wp.array(dtype=Link)):
        """Relative to the origin of the shape's own tree."""
        i = model.shape_link[shape]
        return links[i].r + links[i].R @ params.shape_pos[env, shape]

    @wp.func
    def tree_shift(model: Model, params: Params, env: int, q: wp.array(dtype=real), la: int, lb: int):
        """From the origin of la's tree to that of lb's; exactly zero within a tree, however far out it stands."""
        shift = vec3()
        if model.root[la] != model.root[lb]:
            shift = kinematics.tree_origin(model, params, env, q, lb) - kinematics.tree_origin(
                model, params, env, q, la
            )
        return shift

    @wp.func
    def centres(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), a: int, b: int, links: wp.array(dtype=Link)
    ):
        """Of both shapes, relative to the origin of a's tree (of b's, if a is the world's); from there to b's tree."""
        la = model.shape_link[a]
        shift = tree_shift(model, params, env, q, la, model.shape_link[b])
        xa = centre(model, params, env, a, links)
        xb = centre(model, params, env, b, links)
        if la == 0:
            xa -= shift
            shift = vec3()
        else:
            xb += shift
        return xa, xb, shift

    @wp.func
    def shape_radius(model: Model, params: Params, env: int, shape: int):
        """Of a sphere around the shape's centre that holds all of it."""
        s = params.shape_size[env, shape]
        r = s[0] + s[1] + model.shape_bound[shape]
        if model.shape_type[shape] == BOX_TYPE:
            r = wp.length(s)
        return r

    @wp.func
    def apart(model: Model, params: Params, env: int, a: int, b: int, xa: vec3, xb: vec3, nb: vec3):
        """True if the bounding spheres, or a bounding sphere and a plane, do not meet."""
        d = xa - xb
        if model.shape_type[b] == PLANE_TYPE:
            return wp.dot(d, nb) > shape_radius(model, params, env, a)
        r = shape_radius(model, params, env, a) + shape_radius(model, params, env, b)
        return wp.dot(d, d) > r * r

    @wp.func
    def free_slot(contacts: wp.array(dtype=Contact), first: int, count: int, z: real):
        """Where in contacts[first:count], all taken, one with gap z may stand: for the shallowest, or nowhere (-1)."""
        slot = int(first)
        for k in range(first + 1, count):
            if contacts[k].z > contacts[slot].z:
                slot = k
        if contacts[slot].z <= z:
            slot = -1
        return slot

    @wp.func
    def fill(
        model: Model, params: Params, env: int, pair: int, feature: int, p: vec3, n: vec3, z: real, shift: vec3,
        contact: wp.ref[Contact],
    ):  # fmt: skip
        contact.pair = pair
        contact.feature = feature
        contact.link_a = model.shape_link[model.pair_a[pair]]
        contact.link_b = model.shape_link[model.pair_b[pair]]
        contact.p = p
        contact.shift = shift
        contact.n = n
        contact.z = z
        contact.mu = params.friction[env, pair]
        t1, t2 = frames.tangents(n)
        contact.t = t1
        contact.s = t2

    @wp.func
    def detect(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), links: wp.array(dtype=Link),
        contacts: wp.array(dtype=Contact),
    ):  # fmt: skip
        """List the contacts with a negative gap; returns how many, and how many had no room.

        When the list is full the deepest are kept; of a mesh, the deepest 8 in any case.
        """
        count = int(0)
        dropped = int(0)
        capacity = contacts.shape[0]
        for k in range(model.num_pairs):
            a = model.pair_a[k]
            b = model.pair_b[k]
            lb = model.shape_link[b]
            xa, xb, shift = centres(model, params, env, q, a, b, links)
            if not apart(model, params, env, a, b, xa, xb, links[lb].R @ model.shape_normal[b]):
                kind = model.pair_kind[k]
                pose_a = place(model, params, env, a, xa, links)
                pose_b = place(model, params, env, b, xb, links)
                mode = pair_mode(kind, pose_a, pose_b)
                first = count
                candidates = pair_candidates(model, kind, a)
                if mode < 0:
                    candidates = 0
                for c in range(candidates):
                    feature = 16 * mode + c
                    p, n, z = pair_point(model, kind, feature, a, pose_a, pose_b)
                    if z < real(0.0):
                        slot = count
                        if count == capacity:
                            dropped += 1
                            slot = free_slot(contacts, 0, count, z)
                        elif count - first == 8:
                            slot = free_slot(contacts, first, count, z)
                        if slot >= 0:
                            fill(model, params, env, k, feature, p, n, z, -shift, contacts[slot])
                            if slot == count:
                                count += 1
        return count, dropped

    @wp.func
    def smallest_gap(model: Model, params: Params, env: int, q: wp.array(dtype=real), links: wp.array(dtype=Link)):
        """Of all points that shapes can make, how far the one closest to touching or parting is from it."""
        gap = real(wp.inf)
        for k in range(model.num_pairs):
            a = model.pair_a[k]
            b = model.pair_b[k]
            kind = model.pair_kind[k]
            xa, xb, _shift = centres(model, params, env, q, a, b, links)
            pose_a = place(model, params, env, a, xa, links)
            pose_b = place(model, params, env, b, xb, links)
            mode = pair_mode(kind, pose_a, pose_b)
            if mode >= 0:
                for c in range(pair_candidates(model, kind, a)):
                    _p, _n, z = pair_point(model, kind, 16 * mode + c, a, pose_a, pose_b)
                    gap = wp.where(wp.abs(z) < gap, wp.abs(z), gap)
        return gap

    @wp.func
    def pose_adjoint(
        model: Model, params: Params, env: int, shape: int, bar: PoseBar, links: wp.array(dtype=Link),
        bars: wp.array(dtype=LinkBar), params_bar: ParamsBar,
    ):  # fmt: skip
        """Force and couple on a shape, to its link, its tree's origin and its parameters."""
        i = model.shape_link[shape]
        if i > 0:
            x = centre(model, params, env, shape, links)
            bars[i].direct = bars[i].direct + spatial.spatial(wp.cross(x, bar.x) + bar.phi, bar.x)
            root = model.root[i]
            bars[root].origin = bars[root].origin + bar.x
        if params_bar.touch != 0:
            params_bar.shape_pos[env, shape] = params_bar.shape_pos[env, shape] + bar.x @ links[i].R
            params_bar.shape_size[env, shape] = params_bar.shape_size[env, shape] + bar.size

    @wp.func
    def contact_adjoint(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), contact: wp.ref[Contact], p_bar: vec3,
        n_bar: vec3, z_bar: real, links: wp.array(dtype=Link), bars: wp.array(dtype=LinkBar), params_bar: ParamsBar,
    ):  # fmt: skip
        """Point, normal and gap of a contact, to the two shapes that make it."""
        a = model.pair_a[contact.pair]
        b = model.pair_b[contact.pair]
        xa, xb, _shift = centres(model, params, env, q, a, b, links)
        A, B = points.pair_point_adjoint(
            model, model.pair_kind[contact.pair], contact.feature, a, place(model, params, env, a, xa, links),
            place(model, params, env, b, xb, links), p_bar, n_bar, z_bar,
        )  # fmt: skip
        pose_adjoint(model, params, env, a, A, links, bars, params_bar)
        pose_adjoint(model, params, env, b, B, links, bars, params_bar)

    return SimpleNamespace(**locals())
