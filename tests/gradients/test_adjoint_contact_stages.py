"""Adjoints of the stages of contacts against central differences of their own forward: impulses, Delassus matrix, rows.

The Delassus matrix is first tested with rows that ride on their links, which no stage but its own knows of, and then,
with the rest of the rows, for contacts that are found between moving shapes.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
import warp as wp
from gradient_zoo import zoo_model, zoo_states
from test_adjoint_stages import OPTIONS, SIZES, Stage, array2, array3, normal, real, simulator, zoo
from warp_articulated.kernels.step import make_step
from warp_articulated.kernels.types import DRY_FRICTION

from warp_articulated.device.topology import tables
from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.model import ShapeType
from warp_articulated.model.pairs import PairTable, order_pairs

# -- rows that ride on their links: impulses and the Delassus matrix


@cache
def riding_kernel():
    s = make_step(real, SIZES)
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar
    vec3, vec6, Link = t.vec3, t.vec6, t.Link

    @wp.func
    def riding(link: wp.ref[Link], local: wp.array2d(dtype=real), k: int):
        """Point and frame (n, t, s) of a side that is fixed to its link."""
        p = link.r + link.R @ vec3(local[k, 0], local[k, 1], local[k, 2])
        n = link.R @ vec3(local[k, 3], local[k, 4], local[k, 5])
        t1 = link.R @ vec3(local[k, 6], local[k, 7], local[k, 8])
        t2 = link.R @ vec3(local[k, 9], local[k, 10], local[k, 11])
        return p, n, t1, t2

    @wp.kernel(**OPTIONS)
    def riding_rows(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, tau: array2, x: array2, local: array3,
        links: wp.array2d(dtype=int), joint_rows: wp.array2d(dtype=int), A: array3, b: array2, dqd: array2,
        q_bar: array2, qd_bar: array2, armature_bar: array2, tau_bar: array2, x_bar: array2, E: array3, b_bar: array2,
        dqd_bar: array2, params_bar: ParamsBar,
    ):  # fmt: skip
        """Of contacts between links[2k] and links[2k + 1], and of rows on single dofs.

        A, what the forces tau bring to b, and what they and the impulses x bring to the rates.
        """
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = qd[env]
        nc = links.shape[1] / 2
        nj = joint_rows.shape[1]
        e.num_contacts = nc
        s.kinematics.kinematics(e)
        for j in range(model.num_dofs):
            e.dofs[j].u = tau[env, j]
            e.dofs[j].diagonal = params.armature[env, j]
        s.dynamics.factorise(e)
        for k in range(nc):
            e.contacts[k].link_a = links[env, 2 * k]
            e.contacts[k].link_b = links[env, 2 * k + 1]
            e.contacts[k].cfm = real(0.0)
            e.contacts[k].x = vec3(x[env, 3 * k], x[env, 3 * k + 1], x[env, 3 * k + 2])
            acceleration = vec3()
            pb = vec3()
            for side in range(2):
                i = links[env, 2 * k + 1 - side]
                if i > 0:
                    place = 2 * k + 1 - side
                    p, n, t1, t2 = riding(e.links[i], local[env], place)
                    F = s.rows.contact.wrench_rows(p, n, t1, t2) * real(2 * side - 1)
                    acceleration += s.rows.side_path.propagate(e, e.paths, place, i, F, real(0.0))
                    # the second side comes first: p is the first one's, if it is not the world
                    if side == 0:
                        pb = p
                    e.contacts[k].p = p
                    e.contacts[k].shift = pb - p
                    e.contacts[k].n = n
                    e.contacts[k].t = t1
                    e.contacts[k].s = t2
            for r in range(3):
                b[env, 3 * k + r] = model.dt * acceleration[r]
        for k in range(nj):
            s.actuation.add_row(e, DRY_FRICTION, joint_rows[env, k], real(1.0), real(0.0), real(0.0))
            e.joint_rows[k].x = x[env, 3 * nc + k]
            row_b, _stays = s.rows.joint.joint_row(e, k, e.joint_rows[k])
            b[env, 3 * nc + k] = row_b
        s.delassus.delassus(e)
        for i in range(3 * nc + nj):
            for j in range(3 * nc + nj):
                A[env, i, j] = e.A[i, j]
                if i < 3 * nc and i / 3 == j / 3:
                    A[env, i, j] = e.contacts[i / 3].G[i % 3, j % 3]
        s.rows.apply_impulses(e)
        s.dynamics.solve_down(e)
        for j in range(model.num_dofs):
            dqd[env, j] = e.dofs[j].dqd
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = dqd_bar[env]
            for i in range(3 * nc + nj):
                e.scale[i] = real(1.0)
            for k in range(nc):
                e_bar.contacts[k].x = vec3()
            s.dynamics.solve_up_adjoint(e, e_bar)
            s.rows.impulses_adjoint(e, e_bar)
            for i in range(3 * nc + nj):
                x_bar[env, i] = e_bar.x[i]
            for k in range(nc):
                e_bar.contacts[k].b = vec3(b_bar[env, 3 * k], b_bar[env, 3 * k + 1], b_bar[env, 3 * k + 2])
            for k in range(nj):
                e_bar.joint_rows[k].b = b_bar[env, 3 * nc + k]
            s.rows.apply_b_bar(e, e_bar)
            s.dynamics.solve_down_adjoint(e, e_bar)
            for j in range(model.num_dofs):
                tau_bar[env, j] = e_bar.dofs[j].s
            # from here on E alone: nothing from the solve
            e_bar.qd = qd_bar[env]
            e_bar.with_E = True
            s.motion.clear(e, e_bar)
            for i in range(model.num_links):
                e_bar.links[i].W = vec6()
                e.links[i].dv = vec6()
            for j in range(model.num_dofs):
                e_bar.dofs[j].s = real(0.0)
                e.dofs[j].dqd = real(0.0)
            for i in range(3 * nc + nj):
                for j in range(3 * nc + nj):
                    e_bar.E[i, j] = E[env, i, j]
            s.delassus.delassus_adjoint(e, e_bar)
            s.motion.motion_adjoint(e, e_bar)
            for j in range(model.num_dofs):
                armature_bar[env, j] = s.actuation.diagonal_bar(e, e_bar, j)

    return riding_rows


def attach(model, q, contacts, seed):
    """Random contacts between pairs of links (-1: the world), each as seen from both: point and frame."""
    rng = np.random.default_rng(seed)
    rotation, origin = link_transforms(model, q)
    local = []
    for pair in contacts:
        point, frame = rng.normal(size=3), np.linalg.qr(rng.normal(size=(3, 3)))[0]
        for link in pair:
            R, o = (np.eye(3), np.zeros(3)) if link < 0 else (rotation[link], origin[link])
            local.append(np.concatenate([R.T @ (point - o), (frame @ R).ravel()]))
    return local


TOUCHING = [  # deep links and the world, within a tree: across a branch, an ancestor, a neighbour; between trees
    ("foot", None), ("tip", None), (None, "trunk"), ("foot", "hand"), ("tip", "base"), ("leg", "hip"),
    ("hand", "wrist"), ("lamp", "pebble"),
]  # fmt: skip


def riding_stage():
    """The stage, its input, and random weights of what it writes."""
    sim = zoo()
    model, n = sim.model, sim.num_envs
    q, qd, _ = zoo_states(sim)
    links = [[-1 if name is None else model.link_names.index(name) for name in pair] for pair in TOUCHING]
    dofs = [j for j in range(model.nv) if np.isfinite(model.lower[j])]  # of hinges and sliders
    rows = 3 * len(TOUCHING) + len(dofs)
    values = {
        "q": q,
        "qd": qd,
        "tau": normal(1, n, model.nv),
        "x": normal(2, n, rows),
        "local": torch.as_tensor(np.array([attach(model, q[env].numpy(), links, env) for env in range(n)])),
        "links": (torch.as_tensor(links).flatten() + 1).int().repeat(n, 1),
        "joint_rows": torch.as_tensor(dofs).int().repeat(n, 1),
    }
    writes = {"A": (rows, rows), "b": (rows,), "dqd": (model.nv,)}
    weights = {name: normal(k, n, *shape) for k, (name, shape) in enumerate(writes.items())}
    bars = {"q": normal(3, *q.shape), "qd": normal(4, *qd.shape)}
    bars |= {
        name: torch.full((n, size), torch.nan).double()
        for name, size in (("armature", model.nv), ("tau", model.nv), ("x", rows))
    }
    return Stage(sim, riding_kernel(), list(values), writes, bars | weights), values, weights


def test_adjoint_of_impulses_and_of_b_matches_differences():
    stage, values, weights = riding_stage()
    out, _ = stage.reverse(values)
    stage.check(values, {name: weights[name] for name in ("b", "dqd")}, {name: out[name] for name in ("tau", "x")})


def test_delassus_adjoint_matches_differences_for_every_joint_and_body():
    stage, values, weights = riding_stage()
    out, gradients = stage.reverse(values, ["mass", "com", "inertia", "joint_pos", "joint_quat"])
    gradients |= {name: out[name] - stage.bars[name] for name in ("q", "qd")} | {"armature": out["armature"]}
    stage.check(values, {"A": weights["A"]}, gradients)


# -- rows of contacts that are found


QUICK = {  # to compile; test_collision_adjoint.py has all kinds of pairs
    (ShapeType.CAPSULE, ShapeType.PLANE),
    *((ShapeType.SPHERE, kind) for kind in (ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.BOX, ShapeType.PLANE)),
}
GEOMETRY = ["joint_pos", "joint_quat", "shape_pos", "shape_size"]
TOUCH = ["friction", "restitution", "erp", "cfm"]


@cache
def touching_zoo():
    """The zoo, less some kinds of pairs, with a sphere for the world's box: pairs whose first link is the world."""
    model = zoo_model()
    shapes = [*model.shapes[:-1], replace(model.shapes[-1], type=ShapeType.SPHERE, size=np.array([0.3, 0.0, 0.0]))]
    table = order_pairs(shapes, PairTable(model.pairs, model.pair_friction, model.pair_restitution))
    quick = [(shapes[a].type, shapes[b].type) in QUICK for a, b in table.shapes]
    model = replace(
        model, shapes=tuple(shapes), pairs=table.shapes[quick], pair_friction=table.friction[quick],
        pair_restitution=table.restitution[quick],
    )  # fmt: skip
    return simulator(model, 8, max_push_speed=2.0, restitution_threshold=0.1)


@cache
def contacts_kernel(sizes):
    s = make_step(real, replace(sizes, again=True))  # W is put in before A is made
    t = s.t
    Model, Params, ParamsBar, Env, EnvBar, MemoryBar = t.Model, t.Params, t.ParamsBar, t.Env, t.EnvBar, t.MemoryBar
    vec3, vec6, Contact = t.vec3, t.vec6, t.Contact

    @wp.func
    def row_velocities(contact: wp.ref[Contact], a: vec6, b: vec6):
        """Under the motions a and b of the two links."""
        v = s.rows.contact.wrench_rows(contact.p, contact.n, contact.t, contact.s) @ a
        return v - s.rows.contact.wrench_rows(contact.p + contact.shift, contact.n, contact.t, contact.s) @ b

    @wp.kernel(**OPTIONS)
    def contacts(
        model: Model, params: Params, reverse: int, q: array2, qd: array2, dqd: array2, w: array2, under_w: array3,
        b: array3, A: array3, place: array3, branch: array3, q_bar: array2, qd_bar: array2, armature_bar: array2,
        x: array3, b_bar: array3, E: array3, place_bar: array3, params_bar: ParamsBar,
    ):  # fmt: skip
        """Of the contacts that are found: J w, J (qd + dqd) + bias, A; place is world point, normal, gap, friction."""
        env = wp.tid()
        e = Env()
        memory = MemoryBar(real(wp.nan))
        t.enter(e, wp.address_of(memory), model, params, env)
        e_bar = EnvBar()
        t.enter_bar(e, e_bar, wp.address_of(memory), params_bar)
        e.q = q[env]
        e.qd = w[env]
        s.kinematics.kinematics(e)
        for i in range(model.num_links):
            e_bar.links[i].W = e.links[i].v
        e.qd = dqd[env]
        s.kinematics.kinematics(e)
        for i in range(model.num_links):
            e.links[i].dv = e.links[i].v
        e.qd = qd[env]
        s.kinematics.kinematics(e)
        for j in range(model.num_dofs):
            e.dofs[j].u = real(0.0)
            e.dofs[j].diagonal = params.armature[env, j]
        s.dynamics.factorise(e)
        s.detection.detect(e)
        for k in range(e.num_contacts):
            la = e.contacts[k].link_a
            lb = e.contacts[k].link_b
            s.rows.contact.contact_rows(e, k, e.contacts[k])
            vw = row_velocities(e.contacts[k], e_bar.links[la].W, e_bar.links[lb].W)
            vb = row_velocities(e.contacts[k], e.links[la].v + e.links[la].dv, e.links[lb].v + e.links[lb].dv)
            vb[0] = vb[0] + s.rows.contact.contact_bias(e, e.contacts[k], e.contacts[k].approach)
            origin = s.kinematics.tree_origin(e, wp.where(la > 0, la, lb))
            for r in range(3):
                under_w[env, k, r] = vw[r]
                b[env, k, r] = vb[r]
                place[env, k, r] = origin[r] + e.contacts[k].p[r]
                place[env, k, 3 + r] = e.contacts[k].n[r]
            place[env, k, 6] = e.contacts[k].z
            place[env, k, 7] = e.contacts[k].mu
            branch[env, k, 0] = real(e.contacts[k].pair)
            branch[env, k, 1] = real(e.contacts[k].feature)
            if e.contacts[k].cfm == real(0.0):
                branch[env, k, 2] = real(2.0)
            else:
                branch[env, k, 2] = real(
                    wp.where(params.erp[env] * e.contacts[k].z / model.dt < -model.max_push_speed, 1, 0)
                )
        s.delassus.delassus(e)
        for i in range(3 * e.num_contacts):
            for j in range(3 * e.num_contacts):
                A[env, i, j] = e.A[i, j]
                if i / 3 == j / 3:
                    A[env, i, j] = e.contacts[i / 3].G[i % 3, j % 3]
        if reverse != 0:
            e_bar.q = q_bar[env]
            e_bar.qd = qd_bar[env]
            e_bar.with_E = True
            s.motion.clear(e, e_bar)
            for j in range(model.num_dofs):
                e_bar.dofs[j].s = real(0.0)
                e.dofs[j].dqd = real(0.0)
            for k in range(e.num_contacts):
                e.contacts[k].x = vec3(x[env, k, 0], x[env, k, 1], x[env, k, 2])
                e_bar.contacts[k].b = vec3(b_bar[env, k, 0], b_bar[env, k, 1], b_bar[env, k, 2])
                e_bar.contacts[k].p = vec3(place_bar[env, k, 0], place_bar[env, k, 1], place_bar[env, k, 2])
                e_bar.contacts[k].n = vec3(place_bar[env, k, 3], place_bar[env, k, 4], place_bar[env, k, 5])
                e_bar.contacts[k].z = place_bar[env, k, 6]
                e_bar.contacts[k].mu = place_bar[env, k, 7]
                # the adjoint of cfm, E_nn here, is b_bar x + what the bar has
                e_bar.contacts[k].E = E[env, 3 * k, 3 * k] - b_bar[env, k, 0] * x[env, k, 0]
            for i in range(3 * e.num_contacts):
                for j in range(3 * e.num_contacts):
                    e_bar.E[i, j] = E[env, i, j]
            s.delassus.delassus_adjoint(e, e_bar)
            s.rows.rows_adjoint(e, e_bar)
            s.motion.motion_adjoint(e, e_bar)
            for j in range(model.num_dofs):
                armature_bar[env, j] = s.actuation.diagonal_bar(e, e_bar, j)

    return contacts


def check_contacts(parts, wanted, **params):
    """With random weights on some parts of what the stage writes, and none on the others."""
    sim = touching_zoo()
    n, nc = sim.num_envs, SIZES.contacts
    q, qd, _ = zoo_states(sim)
    values = {"q": q, "qd": qd, "dqd": normal(1, *qd.shape), "w": normal(2, *qd.shape), **params}
    if "under_w" not in parts:
        values["w"].zero_()  # bodies with mass resist it
    writes = {"under_w": (nc, 3), "b": (nc, 3), "A": (3 * nc, 3 * nc), "place": (nc, 8), "branch": (nc, 3)}
    weights = {name: normal(k, n, *writes[name]) * (name in parts) for k, name in enumerate(list(writes)[:4])}
    bars = {"q": normal(3, *q.shape), "qd": normal(4, *qd.shape), "armature": torch.full_like(qd, torch.nan)}
    adjoints = {"x": sim.dt * weights["under_w"], "b": weights["b"], "E": weights["A"], "place": weights["place"]}
    kernel = contacts_kernel(replace(SIZES, kinds=sim._engine.sizes.kinds))
    stage = Stage(sim, kernel, ["q", "qd", "dqd", "w"], writes, bars | adjoints, step=1e-5, switches=("branch",))
    written = stage.forward(values)
    for name, weight in weights.items():
        weight[written[name].isnan()] = 0.0  # beyond the last contact
    assert_all_kinds_occur(sim.model, written["branch"])
    out, gradients = stage.reverse(values, wanted)
    gradients |= {"q": out["q"] - bars["q"], "qd": out["qd"] - bars["qd"], "armature": out["armature"]}
    stage.check(values, weights, gradients)


def assert_all_kinds_occur(model, branch):
    """Penetration, capped push and bounce; the world first and second, links of one tree and of two."""
    pair, _, bias = branch[~branch.isnan().any(-1)].int().T.numpy()
    assert set(bias) == {0, 1, 2}
    table = tables(model)
    a, b = table["root"][table["shape_link"]][model.pairs[pair]].T
    for some in (a == 0, b == 0, (a == b) & (a > 0), (a != b) & (a > 0) & (b > 0)):
        assert some.any()


def test_contact_row_adjoint_matches_differences_for_state_and_geometry():
    massless = {name: torch.zeros_like(touching_zoo().params[name]).clone() for name in ("mass", "inertia")}
    check_contacts(["under_w", "b", "place"], [*GEOMETRY, *TOUCH], **massless)


def test_delassus_adjoint_matches_differences_for_contacts_that_move_with_the_shapes():
    check_contacts(["A"], ["mass", "com", "inertia", "cfm", *GEOMETRY])
