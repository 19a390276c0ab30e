"""Which shapes touch: the pairs of the model, tested one by one, and the list of contacts they make."""

from types import SimpleNamespace

import warp as wp

# ShapeType numbers, see warp_articulated/model.py
SPHERE, CAPSULE, BOX, CYLINDER, MESH, PLANE = range(6)


def kind_of(a: int, b: int) -> int:
    """The number of a pair of shape types in the kernels."""
    return 8 * a + b


SPHERE_PLANE = wp.constant(kind_of(SPHERE, PLANE))
CAPSULE_PLANE = wp.constant(kind_of(CAPSULE, PLANE))
BOX_PLANE = wp.constant(kind_of(BOX, PLANE))
CYLINDER_PLANE = wp.constant(kind_of(CYLINDER, PLANE))
MESH_PLANE = wp.constant(kind_of(MESH, PLANE))
SPHERE_SPHERE = wp.constant(kind_of(SPHERE, SPHERE))
SPHERE_CAPSULE = wp.constant(kind_of(SPHERE, CAPSULE))
SPHERE_BOX = wp.constant(kind_of(SPHERE, BOX))
CAPSULE_CAPSULE = wp.constant(kind_of(CAPSULE, CAPSULE))
CAPSULE_BOX = wp.constant(kind_of(CAPSULE, BOX))
BOX_BOX = wp.constant(kind_of(BOX, BOX))
PLANE_TYPE = wp.constant(PLANE)
BOX_TYPE = wp.constant(BOX)


def make_detection(t, spatial, kinematics, frames, collision):
    real, vec3, mat33 = t.real, t.vec3, t.mat33
    Model, Params, ParamsBar, Link, LinkBar, Contact = t.Model, t.Params, t.ParamsBar, t.Link, t.LinkBar, t.Contact
    # only the kinds that the model has are compiled: box against box alone would double the compile time
    kinds = {kind_of(a, b) for a, b in t.sizes.kinds}

    @wp.struct
    class Pose:
        """A shape in world axes, relative to the origin that both shapes of a pair share."""

        x: vec3
        R: mat33
        size: vec3

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
        """Of both shapes, relative to the origin of a's tree (of b's, if a belongs to the world); from it to b's tree's."""
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
    def pair_mode(kind: int, a: Pose, b: Pose):
        """What the pair's points have in common, see collision.py; -1 if it does not touch."""
        mode = int(0)
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                mode = collision.capsule_capsule_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                mode = collision.capsule_box_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                mode = collision.box_box_mode(a.x, a.R, a.size, b.x, b.R, b.size)
        return mode

    @wp.func
    def pair_candidates(model: Model, kind: int, a: int):
        """How many points the pair may make."""
        count = int(1)
        if kind == CAPSULE_PLANE or kind == CAPSULE_CAPSULE or kind == CAPSULE_BOX:
            count = 2
        elif kind == CYLINDER_PLANE:
            count = 5
        elif kind == BOX_PLANE or kind == BOX_BOX:
            count = 8
        elif kind == MESH_PLANE:
            count = model.vertex_count[a]
        return count

    @wp.func
    def pair_point(model: Model, kind: int, feature: int, shape_a: int, a: Pose, b: Pose):
        """One point of a pair: where, normal, gap."""
        p = vec3()
        n = vec3()
        z = real(1.0)
        nb = vec3(b.R[0, 2], b.R[1, 2], b.R[2, 2])
        if wp.static(SPHERE_PLANE in kinds):
            if kind == SPHERE_PLANE:
                p, n, z = collision.sphere_plane_point(a.x, a.size[0], b.x, nb)
        if wp.static(CAPSULE_PLANE in kinds):
            if kind == CAPSULE_PLANE:
                p, n, z = collision.capsule_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(BOX_PLANE in kinds):
            if kind == BOX_PLANE:
                p, n, z = collision.box_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(CYLINDER_PLANE in kinds):
            if kind == CYLINDER_PLANE:
                p, n, z = collision.cylinder_plane_point(feature, a.x, a.R, a.size, b.x, nb)
        if wp.static(MESH_PLANE in kinds):
            if kind == MESH_PLANE:
                vertex = model.vertices[model.vertex_start[shape_a] + feature]
                p, n, z = collision.mesh_plane_point(a.x, a.R, vertex, b.x, nb)
        if wp.static(SPHERE_SPHERE in kinds):
            if kind == SPHERE_SPHERE:
                p, n, z = collision.sphere_sphere_point(a.x, a.size[0], b.x, b.size[0])
        if wp.static(SPHERE_CAPSULE in kinds):
            if kind == SPHERE_CAPSULE:
                p, n, z = collision.sphere_capsule_point(a.x, a.size[0], b.x, b.R, b.size)
        if wp.static(SPHERE_BOX in kinds):
            if kind == SPHERE_BOX:
                p, n, z = collision.sphere_box_point(a.x, a.size[0], b.x, b.R, b.size)
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                p, n, z = collision.capsule_capsule_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                p, n, z = collision.capsule_box_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                p, n, z = collision.box_box_point(feature, a.x, a.R, a.size, b.x, b.R, b.size)
        return p, n, z

    @wp.struct
    class PoseBar:
        """Adjoint of a Pose: force at its centre, couple, size."""

        x: vec3
        phi: vec3
        size: vec3

    @wp.func
    def pair_point_adjoint(
        model: Model, kind: int, feature: int, shape_a: int, a: Pose, b: Pose, p_bar: vec3, n_bar: vec3, z_bar: real
    ):
        A = PoseBar()
        B = PoseBar()
        nb = vec3(b.R[0, 2], b.R[1, 2], b.R[2, 2])
        if wp.static(SPHERE_PLANE in kinds):
            if kind == SPHERE_PLANE:
                x, r, y, phib = collision.sphere_plane_point_adjoint(a.x, a.size[0], b.x, nb, p_bar, n_bar, z_bar)
                A.x = x
                A.size[0] = r
                B.x = y
                B.phi = phib
        if wp.static(CAPSULE_PLANE in kinds):
            if kind == CAPSULE_PLANE:
                x, phia, size, y, phib = collision.capsule_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
        if wp.static(BOX_PLANE in kinds):
            if kind == BOX_PLANE:
                x, phia, size, y, phib = collision.box_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
        if wp.static(CYLINDER_PLANE in kinds):
            if kind == CYLINDER_PLANE:
                x, phia, size, y, phib = collision.cylinder_plane_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, nb, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
        if wp.static(MESH_PLANE in kinds):
            if kind == MESH_PLANE:
                vertex = model.vertices[model.vertex_start[shape_a] + feature]
                x, phia, _vertex_bar, y, phib = collision.mesh_plane_point_adjoint(
                    a.x, a.R, vertex, b.x, nb, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                B.x = y
                B.phi = phib
        if wp.static(SPHERE_SPHERE in kinds):
            if kind == SPHERE_SPHERE:
                x, r, y, rb = collision.sphere_sphere_point_adjoint(
                    a.x, a.size[0], b.x, b.size[0], p_bar, n_bar, z_bar
                )
                A.x = x
                A.size[0] = r
                B.x = y
                B.size[0] = rb
        if wp.static(SPHERE_CAPSULE in kinds):
            if kind == SPHERE_CAPSULE:
                x, r, y, phib, sb = collision.sphere_capsule_point_adjoint(
                    a.x, a.size[0], b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                A.x = x
                A.size[0] = r
                B.x = y
                B.phi = phib
                B.size = sb
        if wp.static(SPHERE_BOX in kinds):
            if kind == SPHERE_BOX:
                x, r, y, phib, sb = collision.sphere_box_point_adjoint(
                    a.x, a.size[0], b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                A.x = x
                A.size[0] = r
                B.x = y
                B.phi = phib
                B.size = sb
        if wp.static(CAPSULE_CAPSULE in kinds):
            if kind == CAPSULE_CAPSULE:
                x, phia, size, y, phib, sb = collision.capsule_capsule_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
                B.size = sb
        if wp.static(CAPSULE_BOX in kinds):
            if kind == CAPSULE_BOX:
                x, phia, size, y, phib, sb = collision.capsule_box_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
                B.size = sb
        if wp.static(BOX_BOX in kinds):
            if kind == BOX_BOX:
                x, phia, size, y, phib, sb = collision.box_box_point_adjoint(
                    feature, a.x, a.R, a.size, b.x, b.R, b.size, p_bar, n_bar, z_bar
                )
                A.x = x
                A.phi = phia
                A.size = size
                B.x = y
                B.phi = phib
                B.size = sb
        return A, B

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
            la = model.shape_link[a]
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
        xa, xb, shift = centres(model, params, env, q, a, b, links)
        A, B = pair_point_adjoint(
            model, model.pair_kind[contact.pair], contact.feature, a, place(model, params, env, a, xa, links),
            place(model, params, env, b, xb, links), p_bar, n_bar, z_bar,
        )  # fmt: skip
        pose_adjoint(model, params, env, a, A, links, bars, params_bar)
        pose_adjoint(model, params, env, b, B, links, bars, params_bar)

    return SimpleNamespace(**locals())
