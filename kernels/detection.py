"""Which shapes touch: the pairs of the model, tested one by one, and the list of contacts they make."""

from types import SimpleNamespace

import warp as wp


def make_detection(t, kinematics, frames, collision):
    real, vec3, mat33 = t.real, t.vec3, t.mat33
    Model, Params, Link, Contact = t.Model, t.Params, t.Link, t.Contact
    kinds = t.sizes.kinds

    @wp.func
    def insert(
        contacts: wp.array(dtype=Contact), count: int, dropped: int, pair: int, feature: int, p: vec3, n: vec3, z: real
    ):
        """Add a contact to the list; if it is full, in place of the shallowest one that is not deeper."""
        slot = int(count)
        if count == contacts.shape[0]:
            dropped += 1
            slot = int(0)
            for k in range(1, count):
                if contacts[k].z > contacts[slot].z:
                    slot = k
            if contacts[slot].z <= z:
                slot = -1
        if slot >= 0:
            contacts[slot].pair = pair
            contacts[slot].feature = feature
            contacts[slot].p = p
            contacts[slot].n = n
            contacts[slot].z = z
            if slot == count:
                count += 1
        return count, dropped

    @wp.func
    def detect(
        model: Model, params: Params, env: int, q: wp.array(dtype=real), links: wp.array(dtype=Link),
        contacts: wp.array(dtype=Contact),
    ):  # fmt: skip
        """List the contacts with a negative gap; returns how many, and how many had no room."""
        count = int(0)
        dropped = int(0)
        for k in range(model.num_pairs):
            a = model.pair_a[k]
            b = model.pair_b[k]
            la = model.shape_link[a]
            lb = model.shape_link[b]
            ref = wp.where(la > 0, la, lb)
            O = kinematics.tree_origin(model, params, env, q, ref)
            xa = links[la].r + links[la].R @ params.shape_pos[env, a]
            xb = links[lb].r + links[lb].R @ params.shape_pos[env, b] - O
            n = vec3(real(0.0), real(0.0), real(1.0))
            p, nn, z = collision.sphere_plane_point(xa, params.shape_size[env, a][0], xb, n)
            if z < real(0.0):
                count, dropped = insert(contacts, count, dropped, k, 0, p, nn, z)
        for k in range(count):
            pair = contacts[k].pair
            contacts[k].link_a = model.shape_link[model.pair_a[pair]]
            contacts[k].link_b = model.shape_link[model.pair_b[pair]]
            contacts[k].mu = params.friction[env, pair]
            t1, t2 = frames.tangents(contacts[k].n)
            contacts[k].t = t1
            contacts[k].s = t2
        return count, dropped

    return SimpleNamespace(**locals())
