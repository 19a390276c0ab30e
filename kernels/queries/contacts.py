"""The contacts that a step would resolve, with their impulses; and the adjoint.

If impacts interrupt the step, a contact's impulses in its evaluations are summed: those of motion as far as the
interval lasts, over dt. Point, normal and depth are those of the evaluation in which the contact first occurs.
"""

from functools import cache

import warp as wp

from ..rollout import KERNEL, module_options
from ..step import make_step
from ..types import Sizes


def make_slots(s, sizes: Sizes):
    real, t = s.t.real, s.t

    @wp.func
    def slot_of(e: wp.ref[t.Env], k: int, found: wp.array2d(dtype=int), count: int):
        """Where contact k of an evaluation is reported: its place among the `count` ones so far, or behind them."""
        slot = k
        if wp.static(sizes.impacts > 0):
            slot = count
            for n in range(count):
                if found[n, 0] == e.contacts[k].pair and found[n, 1] == e.contacts[k].feature:
                    slot = n
        return slot

    @wp.func
    def list_contacts(e: wp.ref[t.Env], found: wp.array2d(dtype=int), count: int):
        """Add the contacts of an evaluation to the list found[slot] = pair, feature, stage; returns its new length."""
        for k in range(e.num_contacts):
            slot = slot_of(e, k, found, count)
            if slot == count and slot < found.shape[0]:
                found[slot, 0] = e.contacts[k].pair
                found[slot, 1] = e.contacts[k].feature
                found[slot, 2] = e.stage
                count += 1
        return count

    @wp.func
    def share(e: wp.ref[t.Env]):
        """What an evaluation's impulses count."""
        if wp.static(sizes.impacts > 0):
            return s.impacts.duration(e)
        return real(1.0)

    return slot_of, list_contacts, share


@cache
def make_contacts(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    slot_of, list_contacts, share = make_slots(s, sizes)

    @wp.kernel(**KERNEL, module_options=module_options())
    def contacts(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), wrench: wp.array3d(dtype=real), points: wp.array3d(dtype=real),
        normals: wp.array3d(dtype=real), depths: wp.array2d(dtype=real), impulses: wp.array3d(dtype=real),
        found: wp.array3d(dtype=int),
        counts: wp.array2d(dtype=int), change: wp.array(dtype=real),
    ):  # fmt: skip
        """All in world axes; impulses come in as zeros."""
        env = first + wp.tid()
        e = t.Env()
        while False:  # only declares, see env.py
            memory = t.Memory()
        t.enter(e, wp.address_of(memory), model, params, env)
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        if wp.static(sizes.wrenches):
            e.wrench = wrench[env]
        s.begin(e)
        count = int(0)
        more = bool(True)
        while more:
            s.evaluate(e)
            if e.stage == 0:
                counts[env, 1] = e.num_joint_rows
                counts[env, 2] = e.sweeps
                counts[env, 3] = e.dropped
                change[env] = e.change
            if wp.static(sizes.impacts > 0):
                if not t.at_impact(e):
                    s.impacts.arrival(e)
            before = count
            count = list_contacts(e, found[env], count)
            for k in range(e.num_contacts):
                slot = slot_of(e, k, found[env], count)
                if slot < count:
                    n = e.contacts[k].n
                    x = e.contacts[k].x
                    f = (n * x[0] + e.contacts[k].t * x[1] + e.contacts[k].s * x[2]) * share(e)
                    for j in range(3):
                        impulses[env, slot, j] = impulses[env, slot, j] + f[j]
                    if slot >= before:
                        link = wp.where(e.contacts[k].link_a > 0, e.contacts[k].link_a, e.contacts[k].link_b)
                        p = e.contacts[k].p + s.kinematics.tree_origin(e, link)
                        for j in range(3):
                            points[env, slot, j] = p[j]
                            normals[env, slot, j] = n[j]
                        depths[env, slot] = -e.contacts[k].z
            more = not s.last(e)
        counts[env, 0] = count

    return contacts


@cache
def make_contacts_adjoint(real, sizes: Sizes):
    s = make_step(real, sizes)
    t = s.t
    vec3 = t.vec3
    slot_of, list_contacts, share = make_slots(s, sizes)

    @wp.struct
    class Bars:
        """Gradients by the contacts."""

        points: wp.array3d(dtype=real)
        normals: wp.array3d(dtype=real)
        depths: wp.array2d(dtype=real)
        impulses: wp.array3d(dtype=real)

    @wp.func
    def read(a: wp.array3d(dtype=real), env: int, k: int):
        return vec3(a[env, k, 0], a[env, k, 1], a[env, k, 2])

    @wp.func
    def fill(e: wp.ref[t.Env], e_bar: wp.ref[t.EnvBar], bars: wp.ref[Bars], found: wp.array2d(dtype=int), count: int):
        """The loss's own gradient by the contacts of an evaluation, and by how long it lasts."""
        env = e.index
        length_bar = real(0.0)
        s.rows.clear_contacts(e, e_bar)
        for k in range(e.num_contacts):
            slot = slot_of(e, k, found, count)
            if slot < count:
                n = e.contacts[k].n
                x = e.contacts[k].x
                f_bar = read(bars.impulses, env, slot)
                length_bar += wp.dot(f_bar, n * x[0] + e.contacts[k].t * x[1] + e.contacts[k].s * x[2])
                f_bar = f_bar * share(e)
                e_bar.contacts[k].x = vec3(
                    wp.dot(n, f_bar), wp.dot(e.contacts[k].t, f_bar), wp.dot(e.contacts[k].s, f_bar)
                )
                n_bar = f_bar * x[0] + s.detection.tangents_adjoint(n, f_bar * x[1], f_bar * x[2])
                if found[slot, 2] == e.stage:
                    n_bar += read(bars.normals, env, slot)
                    e_bar.contacts[k].p = read(bars.points, env, slot)
                    e_bar.contacts[k].z = -bars.depths[env, slot]
                e_bar.contacts[k].n = n_bar
        e_bar.duration = length_bar / e.h

    @wp.kernel(**KERNEL, module_options=module_options())
    def contacts_adjoint(
        model: t.Model, params: t.Params, first: int, q: wp.array2d(dtype=real), qd: wp.array2d(dtype=real),
        u: wp.array2d(dtype=real), wrench: wp.array3d(dtype=real), points_bar: wp.array3d(dtype=real),
        normals_bar: wp.array3d(dtype=real), depths_bar: wp.array2d(dtype=real),
        impulses_bar: wp.array3d(dtype=real), found: wp.array3d(dtype=int),
        q_bar: wp.array2d(dtype=real), qd_bar: wp.array2d(dtype=real), u_bar: wp.array2d(dtype=real),
        wrench_bar: wp.array3d(dtype=real), params_bar: t.ParamsBar,
    ):  # fmt: skip
        """q_bar, qd_bar, u_bar and wrench_bar come in as zeros; found is scratch."""
        env = first + wp.tid()
        e = t.Env()
        e_bar = t.EnvBar()
        while False:  # only declares, see env.py
            memory = t.MemoryBar()
        t.enter(e, wp.address_of(memory), model, params, env)
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        bars = Bars()
        bars.points = points_bar
        bars.normals = normals_bar
        bars.depths = depths_bar
        bars.impulses = impulses_bar
        e.q = q[env]
        e.qd = qd[env]
        e.u = u[env]
        e_bar.q = q_bar[env]
        e_bar.qd = qd_bar[env]
        e_bar.u = u_bar[env]
        if wp.static(sizes.wrenches):
            e.wrench = wrench[env]
            e_bar.wrench = wrench_bar[env]
        s.begin(e)
        count = int(0)
        done = bool(False)
        while not done:
            s.evaluate(e)
            if e_bar.backwards == 0:
                count = list_contacts(e, found[env], count)
            if s.turns(e, e_bar):
                fill(e, e_bar, bars, found[env], count)
                s.step_adjoint(e, e_bar)
                done = s.reversed(e, e_bar)

    return contacts_adjoint
