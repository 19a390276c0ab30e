"""Stacks and rolling bodies whose shapes touch in general convex pairs."""

import numpy as np
import pytest
import torch
from convex_models import BOX, CYLINDER, GROUND, MESH, free_body, shape, stack

import warp_articulated as wa
from warp_articulated.model import WORLD, Shape, ShapeType, assemble


def settle(model, seconds=2.0, **options):
    sim = wa.Simulator(model, 1, device="cpu", dt=0.005, **options)
    q, qd = sim.initial_state()
    qs, qds = sim.rollout(q, qd, sim.initial_control().repeat(int(seconds / 0.005), 1, 1))
    return qs[:, 0].numpy(), qds[:, 0].numpy()


@pytest.mark.parametrize(
    "kinds",
    [[MESH] * 3, [CYLINDER] * 3, [CYLINDER, BOX, CYLINDER], [MESH, CYLINDER, BOX]],
    ids=["hulls", "cylinders", "boxes on cylinders", "all"],
)
def test_a_stack_stays_up_for_two_seconds(kinds):
    qs, qds = settle(stack(kinds))
    places = qs[-1].reshape(-1, 7)
    np.testing.assert_allclose(places[:, :2], qs[0].reshape(-1, 7)[:, :2], atol=1e-3)
    np.testing.assert_allclose(places[:, 2], 0.1 + 0.2 * np.arange(3), atol=1e-3)
    assert abs(qds[-1]).max() < 0.02


def test_a_hull_box_on_a_hull_behaves_like_a_box_on_a_box():
    """A tilted box falls onto a slab, tips over its edge and comes to rest on a face."""
    found = []
    for kind in (BOX, MESH):
        body = free_body(0, [0.0, 0.0, 0.35])
        body.quat = np.array([0.0, np.sin(0.15), 0.0, np.cos(0.15)])
        slab = Shape(
            kind, WORLD, np.array([0.5, 0.5, 0.1]), name="slab", body="slab",
            vertices=None if kind == BOX else shape(MESH, WORLD, half=[0.5, 0.5, 0.1]).vertices,
        )  # fmt: skip
        found.append(settle(assemble("box", [body], [shape(kind, 0), slab]), 1.5, dtype="float64")[0])
    boxes, hulls = found
    np.testing.assert_allclose(hulls[:40, :3], boxes[:40, :3], atol=2e-4)  # until it has tipped
    np.testing.assert_allclose(hulls[-1, 2], boxes[-1, 2], atol=1e-4)
    np.testing.assert_allclose(hulls[-1, :3], boxes[-1, :3], atol=5e-3)


def test_a_cylinder_rolls_down_a_slope_as_the_closed_form_says():
    """On a plane: a = 2/3 g sin(slope) for a full cylinder."""
    slope, radius = 0.2, 0.1
    body = free_body(0, [0.0, 0.0, radius])
    body.quat = np.array([np.sin(np.pi / 4), 0.0, 0.0, np.cos(np.pi / 4)])  # its axis along y
    body.inertia = np.diag([0.25 * radius**2 + 0.1**2 / 3, 0.25 * radius**2 + 0.1**2 / 3, 0.5 * radius**2])
    gravity = 9.81 * np.array([np.sin(slope), 0.0, -np.cos(slope)])
    model = assemble("roll", [body], [shape(CYLINDER, 0), GROUND], gravity=gravity)
    _, qds = settle(model, 1.0, dtype="float64")
    np.testing.assert_allclose(qds[-1, 0], 2 / 3 * gravity[0], rtol=5e-3)
    np.testing.assert_allclose(qds[-1, 4] * radius, qds[-1, 0], rtol=5e-3)


def test_links_of_one_robot_collide():
    """A hull hangs on a hinge above a cylinder of another branch of the same tree."""
    from warp_articulated.model import Body, JointType

    def slider(k, height):
        return Body(
            f"body{k}", WORLD, f"joint{k}", JointType.PRISMATIC, pos=np.array([0.0, 0.0, height]), mass=1.0,
            inertia=0.01 * np.eye(3), lower=0.0 if k == 0 else -np.inf, upper=np.inf,
        )  # fmt: skip

    model = assemble("sliders", [slider(0, 0.0), slider(1, 0.3)], [shape(CYLINDER, 0), shape(MESH, 1)])
    assert len(model.pairs) == 1 and not model.notes
    qs, _ = settle(model)
    np.testing.assert_allclose(qs[-1], [0.0, -0.1], atol=2e-3)


def test_impacts_of_hulls_are_found():
    """contact_time="impact": a hull falls on a hull and stays there."""
    body = free_body(0, [0.0, 0.0, 0.4])
    slab = shape(MESH, WORLD, half=[0.5, 0.5, 0.1])
    sim = wa.Simulator(
        assemble("fall", [body], [shape(MESH, 0), slab]), 1, device="cpu", dt=0.005, contact_time="impact"
    )
    q, qd = sim.initial_state()
    qs, qds = sim.rollout(q, qd, sim.initial_control().repeat(200, 1, 1))
    np.testing.assert_allclose(qs[-1, 0, :3].numpy(), [0.0, 0.0, 0.2], atol=1e-3)
    assert torch.isfinite(qds).all() and qds[-1].abs().max() < 0.02


def test_a_flat_mesh_that_collides_is_refused_by_name():
    flat = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    bodies = [free_body(0, [0.0, 0.0, 1.0]), free_body(1, [0.0, 0.0, 2.0])]
    for vertices in (flat, flat[:1], flat[:2], np.repeat(flat[:3], 3, 0)):
        bad = Shape(ShapeType.MESH, 0, np.zeros(3), name="sheet", body="body0", vertices=vertices)
        with pytest.raises(wa.ModelError, match="sheet"):
            assemble("bad", bodies, [bad, shape(BOX, 1)])
