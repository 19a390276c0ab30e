"""Which shapes touch: the pairs of the model, tested one by one, and the list of contacts they make."""

import warp as wp

from ...model.pairs import CONVEX
from ..types import ASIDE, ROW, SURE, exports, stage
from .convex import make_convex
from .frames import make_frames
from .pairs import BOX, CYLINDER, MESH, MESH_PLANE, PLANE, make_choice
from .pose import make_pose
from .terrain import FIELD_TYPE, field_kinds, make_terrain

BOX_TYPE = wp.constant(int(BOX))
CYLINDER_TYPE = wp.constant(int(CYLINDER))
PLANE_TYPE = wp.constant(int(PLANE))


MAX_REACH = 0.5  # m; an absent candidate has a gap of 1


def make_detection(t, spatial, gaps, kinematics):
    real, vec3, Env, EnvBar, Contact, ContactBar = t.real, t.vec3, t.Env, t.EnvBar, t.Contact, t.ContactBar
    fields, general = field_kinds(t.sizes), any(kind in CONVEX for kind in t.sizes.kinds)
    g, frames, convex = make_pose(real), make_frames(t), make_convex(real)
    choice = make_choice(real, tuple(kind for kind in t.sizes.kinds if kind not in fields and kind not in CONVEX))
    Pose, PoseBar, PointBar = g.Pose, g.PoseBar, g.PointBar
    meshes = (MESH, PLANE) in t.sizes.kinds
    interrupts = t.sizes.impacts > 0

    @wp.func
    def place(e: wp.ref[Env], shape: int, x: vec3):
        """The pose of a shape whose centre is known."""
        pose = Pose()
        pose.x = x
        pose.R = e.links[e.model.shape_link[shape]].R @ e.model.shape_rot[shape]
        pose.size = e.params.shape_size[e.index, shape]
        return pose

    @wp.func
    def centre(e: wp.ref[Env], shape: int):
        """Relative to the origin of the shape's own tree."""
        i = e.model.shape_link[shape]
        x = e.links[i].r + e.links[i].R @ e.params.shape_pos[e.index, shape]
        if wp.static(len(fields) > 0):
            if e.model.shape_type[shape] >= FIELD_TYPE:
                x -= e.params.terrain_origin[e.index]
        return x

    @wp.func
    def tree_shift(e: wp.ref[Env], la: int, lb: int):
        """From the origin of la's tree to that of lb's; exactly zero within a tree, however far from the world's."""
        shift = vec3()
        if e.model.root[la] != e.model.root[lb]:
            shift = kinematics.tree_origin(e, lb) - kinematics.tree_origin(e, la)
        return shift

    @wp.func
    def centres(e: wp.ref[Env], a: int, b: int):
        """Of both shapes, relative to the origin of a's tree (of b's, if a is the world's); from there to b's tree."""
        la = e.model.shape_link[a]
        shift = tree_shift(e, la, e.model.shape_link[b])
        xa = centre(e, a)
        xb = centre(e, b)
        if la == 0:
            xa -= shift
            shift = vec3()
        else:
            xb += shift
        return xa, xb, shift

    @wp.func
    def shape_radius(e: wp.ref[Env], shape: int):
        """Of a sphere around the shape's centre that holds all of it."""
        s = e.params.shape_size[e.index, shape]
        r = s[0] + s[1] + e.model.shape_bound[shape]
        if e.model.shape_type[shape] == BOX_TYPE:
            r = wp.length(s)
        return r

    @wp.func
    def shape_speed(e: wp.ref[Env], shape: int, x: vec3):
        """Not less than the speed of any of the shape's points; x: its centre, relative to the origin of its tree."""
        v = e.links[e.model.shape_link[shape]].v
        w = spatial.angular(v)
        u = spatial.velocity_at(v, x)
        turning = wp.abs(w[0]) + wp.abs(w[1]) + wp.abs(w[2])
        return wp.abs(u[0]) + wp.abs(u[1]) + wp.abs(u[2]) + turning * shape_radius(e, shape)

    @wp.func
    def reach(e: wp.ref[Env], a: int, b: int):
        """Gaps of a pair that may close in a step; zero if only contacts that touch count."""
        gap = real(0.0)
        if wp.static(interrupts):
            speed = shape_speed(e, a, centre(e, a)) + shape_speed(e, b, centre(e, b))
            gap = wp.min(e.h * (speed + e.model.restitution_threshold), real(MAX_REACH))
        return gap

    terrain = make_terrain(t, shape_radius, reach) if fields else None

    @wp.func
    def apart(e: wp.ref[Env], a: int, b: int, xa: vec3, xb: vec3, nb: vec3):
        """True if the bounding spheres, or a bounding sphere and a plane, do not meet."""
        d = xa - xb
        r = shape_radius(e, a) + reach(e, a, b)
        if wp.static(len(fields) > 0):
            if e.model.shape_type[b] >= FIELD_TYPE:
                return bool(False)  # only cells near the shape are looked at
        if e.model.shape_type[b] == PLANE_TYPE:
            return wp.dot(d, nb) > r
        r += shape_radius(e, b)
        return wp.dot(d, d) > r * r

    @wp.func
    def curvature(e: wp.ref[Env], shape: int, p: vec3):
        """Acceleration of a point p of a shape as its link turns about its joint."""
        i = e.model.shape_link[shape]
        w = spatial.angular(e.links[i].v)
        return wp.cross(w, wp.cross(w, p - e.links[i].r))

    @wp.func
    def role_of(e: wp.ref[Env], pair: int, p: vec3, shift: vec3, n: vec3, z: real):
        """What a point of a pair is to the solver: ROW, SURE, ASIDE, or nothing (-1), since it is too far."""
        role = int(-1)
        if wp.static(not interrupts):
            if z < real(0.0):
                role = ROW
        elif t.at_impact(e):
            # points that arrive together do so up to the curvature of their paths
            bend = curvature(e, e.model.pair_a[pair], p) - curvature(e, e.model.pair_b[pair], p - shift)
            if gaps.touches(z - real(0.5) * e.h * e.h * wp.abs(wp.dot(n, bend))):
                role = SURE
        elif z < real(MAX_REACH):
            contact = Contact()
            contact.link_a = e.model.shape_link[e.model.pair_a[pair]]
            contact.link_b = e.model.shape_link[e.model.pair_b[pair]]
            contact.p = p
            contact.shift = -shift
            contact.n = n
            va = spatial.velocity_at(e.links[contact.link_a].v, p)
            vb = spatial.velocity_at(e.links[contact.link_b].v, p - shift)
            rate = wp.dot(n, va - vb)
            drift = gaps.drift(e, contact)
            slowest = wp.max(e.model.restitution_threshold, real(3.0) * drift)
            if z < e.h * slowest and rate > -slowest:
                role = wp.where(gaps.touches(z - e.h * drift), SURE, ROW)
            elif z < e.h * (e.model.restitution_threshold - rate):
                role = ASIDE
        return role

    @wp.func
    def free_slot(e: wp.ref[Env], first: int, count: int, z: real):
        """Which of contacts[first:count] one with gap z replaces: the shallowest, or none (-1) if that is deeper."""
        slot = int(first)
        for k in range(first + 1, count):
            if e.contacts[k].z > e.contacts[slot].z:
                slot = k
        if e.contacts[slot].z <= z:
            slot = -1
        return slot

    @wp.func
    def fill(e: wp.ref[Env], contact: wp.ref[Contact], pair: int, feature: int):
        """Complete a contact whose point, normal and gap are known."""
        contact.pair = pair
        contact.feature = feature
        contact.link_a = e.model.shape_link[e.model.pair_a[pair]]
        contact.link_b = e.model.shape_link[e.model.pair_b[pair]]
        contact.mu = e.params.friction[e.index, pair]
        t1, t2 = frames.tangents(contact.n)
        contact.t = t1
        contact.s = t2

    @wp.func
    def candidates(e: wp.ref[Env], pair: int):
        """How many points a pair can make."""
        count = choice.candidates(e.model.pair_kind[pair])
        if wp.static(meshes):
            if e.model.pair_kind[pair] == MESH_PLANE:
                count = e.model.vertex_count[e.model.pair_a[pair]]
        return count

    @wp.func
    def corner(e: wp.ref[Env], pair: int, feature: int, size: vec3):
        """The size of shape a of a pair; of a mesh, the corner that the feature names."""
        if wp.static(meshes):
            if e.model.pair_kind[pair] == MESH_PLANE:
                size = e.model.vertices[e.model.vertex_start[e.model.pair_a[pair]] + feature]
        return size

    @wp.func
    def is_general(e: wp.ref[Env], pair: int):
        """True for the pairs of convex.py: those with a cylinder or a mesh, planes apart."""
        kind = e.model.pair_kind[pair]
        return kind % 8 >= CYLINDER_TYPE and kind % 8 < PLANE_TYPE

    @wp.func
    def solid(e: wp.ref[Env], shape: int, pose: Pose):
        return convex.solid(e.model.hulls, shape, e.model.shape_type[shape], pose)

    @wp.func
    def search(e: wp.ref[Env], pair: int, pose_a: Pose, pose_b: Pose, reach: real):
        """The mode of a pair and how many points it may have; those of a general pair are in search_memory."""
        if wp.static(general):
            if is_general(e, pair):
                a = solid(e, e.model.pair_a[pair], pose_a)
                b = solid(e, e.model.pair_b[pair], pose_b)
                points, _n, _gap = convex.search_pair(e.model.hulls, t.search_memory(e), a, b, reach)
                return 0, points
        if wp.static(len(fields) > 0):
            if terrain.is_field(e, pair):
                return 0, terrain.candidates(e, pair, pose_a, pose_b)
        mode = choice.mode(e.model.pair_kind[pair], pose_a, pose_b)
        return mode, wp.where(mode < 0, 0, candidates(e, pair))

    @wp.func
    def feature_of(e: wp.ref[Env], pair: int, feature: int, following: int, pose_a: Pose, pose_b: Pose):
        """Names a point of those that `search` has counted; following: what this returned for the point before.

        feature: 16 mode + the point's number. General pairs and fields have mode 0 and names of their own.
        """
        if wp.static(general):
            if is_general(e, pair):
                feature = t.search_memory(e).features[feature]
        if wp.static(len(fields) > 0):
            if terrain.is_field(e, pair):
                feature, following = terrain.feature(e, pair, feature, following, pose_a, pose_b)
        return feature, following

    @wp.func
    def point(e: wp.ref[Env], pair: int, feature: int, pose_a: Pose, pose_b: Pose):
        """p, n and z that a feature names."""
        if wp.static(general):
            if is_general(e, pair):
                a = solid(e, e.model.pair_a[pair], pose_a)
                b = solid(e, e.model.pair_b[pair], pose_b)
                p, n, z = convex.point(e.model.hulls, feature, a, b)
                return p, n, z
        if wp.static(len(fields) > 0):
            if terrain.is_field(e, pair):
                p, n, z = terrain.point(e, pair, feature, pose_a, pose_b)
                return p, n, z
        pose_a.size = corner(e, pair, feature, pose_a.size)
        p, n, z = choice.point(e.model.pair_kind[pair], feature, pose_a, pose_b)
        return p, n, z

    @wp.func
    def point_adjoint(
        e: wp.ref[Env], e_bar: wp.ref[EnvBar], contact: wp.ref[Contact], pose_a: Pose, pose_b: Pose, bar: PointBar
    ):
        """The adjoints of both poses."""
        pair = contact.pair
        feature = contact.feature
        if wp.static(general):
            if is_general(e, pair):
                a = solid(e, e.model.pair_a[pair], pose_a)
                b = solid(e, e.model.pair_b[pair], pose_b)
                bar_a, bar_b = convex.adjoint(e.model.hulls, feature, a, b, bar)
                size_a = convex.size_bar(e.model.shape_type[e.model.pair_a[pair]], bar_a)
                size_b = convex.size_bar(e.model.shape_type[e.model.pair_b[pair]], bar_b)
                return g.pose_bar(bar_a.x, bar_a.phi, size_a), g.pose_bar(bar_b.x, bar_b.phi, size_b)
        if wp.static(len(fields) > 0):
            if terrain.is_field(e, pair):
                A, B = terrain.adjoint(e, e_bar, contact, pose_a, pose_b, bar)
                return A, B
        pose_a.size = corner(e, pair, feature, pose_a.size)
        A, B = choice.adjoint(e.model.pair_kind[pair], feature, pose_a, pose_b, bar)
        if wp.static(meshes):
            if e.model.pair_kind[pair] == MESH_PLANE:
                A.size = vec3()  # corners are not parameters
        return A, B

    @wp.func
    def list_marks(e: wp.ref[Env]):
        """Contacts of the impact, or of the one before: rows wherever their features are now. Returns their number."""
        count = int(0)
        for k in range(e.num_marks):
            pair = e.marks[(e.stage - 1) // 2, k].pair
            feature = e.marks[(e.stage - 1) // 2, k].feature
            if pair >= 0:
                b = e.model.pair_b[pair]
                xa, xb, shift = centres(e, e.model.pair_a[pair], b)
                p, n, z = point(e, pair, feature, place(e, e.model.pair_a[pair], xa), place(e, b, xb))
                e.contacts[count].p = p
                e.contacts[count].shift = -shift
                e.contacts[count].n = n
                e.contacts[count].z = z
                fill(e, e.contacts[count], pair, feature)
                e.roles[count] = SURE
                count += 1
        return count

    @stage
    def detect(e: wp.ref[Env]):
        """List the contacts with a negative gap, and count those beyond the list's capacity.

        When the list is full the deepest are kept; of a pair, at most the deepest 8. In steps that impacts may
        interrupt, the list also has gaps that may close, and e.roles says what is a row (see role_of).
        """
        count = int(0)
        if wp.static(interrupts):
            count = list_marks(e)
        dropped = int(0)
        capacity = e.contacts.shape[0]
        for k in range(e.model.num_pairs):
            a = e.model.pair_a[k]
            b = e.model.pair_b[k]
            lb = e.model.shape_link[b]
            xa, xb, shift = centres(e, a, b)
            if not apart(e, a, b, xa, xb, e.links[lb].R @ e.model.shape_normal[b]):
                pose_a = place(e, a, xa)
                pose_b = place(e, b, xb)
                mode, points = search(e, k, pose_a, pose_b, reach(e, a, b))
                first = count
                following = int(-1)
                for c in range(points):
                    feature, following = feature_of(e, k, 16 * mode + c, following, pose_a, pose_b)
                    p, n, z = point(e, k, feature, pose_a, pose_b)
                    role = role_of(e, k, p, shift, n, z)
                    if wp.static(interrupts):
                        if role >= 0 and gaps.marked(e, k, feature):
                            role = -1
                    if role >= 0:
                        slot = count
                        if count == capacity:
                            slot = free_slot(e, 0, count, z)
                            lost = z
                            if slot >= 0:
                                lost = e.contacts[slot].z
                            if lost < real(0.0):  # what only comes near is found later if it is left out
                                dropped += 1
                        elif count - first == 8:
                            slot = free_slot(e, first, count, z)
                        if slot >= 0:
                            e.contacts[slot].p = p
                            e.contacts[slot].shift = -shift
                            e.contacts[slot].n = n
                            e.contacts[slot].z = z
                            fill(e, e.contacts[slot], k, feature)
                            if wp.static(interrupts):
                                e.roles[slot] = role
                            if slot == count:
                                count += 1
        e.num_contacts = count
        e.num_near = count
        e.dropped = dropped

    @wp.func
    def smallest_gap(e: wp.ref[Env]):
        """Smallest distance of any candidate point from touching or parting."""
        gap = real(wp.inf)
        for k in range(e.model.num_pairs):
            a = e.model.pair_a[k]
            b = e.model.pair_b[k]
            xa, xb, _shift = centres(e, a, b)
            pose_a = place(e, a, xa)
            pose_b = place(e, b, xb)
            mode, points = search(e, k, pose_a, pose_b, real(MAX_REACH))
            following = int(-1)
            for c in range(points):
                feature, following = feature_of(e, k, 16 * mode + c, following, pose_a, pose_b)
                _p, _n, z = point(e, k, feature, pose_a, pose_b)
                gap = wp.where(wp.abs(z) < gap, wp.abs(z), gap)
        return gap

    @wp.func
    def pose_adjoint(e: wp.ref[Env], e_bar: wp.ref[EnvBar], shape: int, bar: PoseBar):
        """Force and couple on a shape, to its link, its tree's origin and its parameters."""
        i = e.model.shape_link[shape]
        if i > 0:
            x = centre(e, shape)
            e_bar.links[i].direct = e_bar.links[i].direct + spatial.spatial(wp.cross(x, bar.x) + bar.phi, bar.x)
            root = e.model.root[i]
            e_bar.links[root].origin = e_bar.links[root].origin + bar.x
        if e_bar.params.touch != 0:
            e_bar.params.shape_pos[e.index, shape] = e_bar.params.shape_pos[e.index, shape] + bar.x @ e.links[i].R
            e_bar.params.shape_size[e.index, shape] = e_bar.params.shape_size[e.index, shape] + bar.size

    @stage
    def contact_adjoint(
        e: wp.ref[Env], e_bar: wp.ref[EnvBar], contact: wp.ref[Contact], contact_bar: wp.ref[ContactBar]
    ):
        """Point, normal and gap of a contact, to the two shapes that make it."""
        a = e.model.pair_a[contact.pair]
        b = e.model.pair_b[contact.pair]
        xa, xb, _shift = centres(e, a, b)
        bar = PointBar()
        bar.p = contact_bar.p
        bar.n = contact_bar.n
        bar.z = contact_bar.z
        A, B = point_adjoint(e, e_bar, contact, place(e, a, xa), place(e, b, xb), bar)
        pose_adjoint(e, e_bar, a, A)
        pose_adjoint(e, e_bar, b, B)

    return exports(detect, smallest_gap, contact_adjoint, tree_shift, tangents_adjoint=frames.tangents_adjoint)
