"""Simulations on height fields and block fields: against planes, MuJoCo's height fields and themselves."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from field_pairs import FieldScene
from PIL import Image
from small_models import one_body

import warp_articulated as wa
from warp_articulated import terrain
from warp_articulated.geometry.rotations import IDENTITY
from warp_articulated.model import WORLD, Body, JointType, ModelError, Shape, ShapeType, assemble

ANGLE = 10.0
TILT = np.array([0.0, -np.sin(np.radians(ANGLE) / 2), 0.0, np.cos(np.radians(ANGLE) / 2)])
SHAPES = {
    "ball": (ShapeType.SPHERE, [0.1]),
    "capsule": (ShapeType.CAPSULE, [0.1, 0.2]),
    "box": (ShapeType.BOX, [0.2, 0.15, 0.1]),
    "cylinder": (ShapeType.CYLINDER, [0.15, 0.1]),
    "mesh": (ShapeType.MESH, [0.0, 0.0, 0.0]),
}
CORNERS = np.array(np.meshgrid([-0.2, 0.2], [-0.15, 0.15], [-0.1, 0.1])).reshape(3, -1).T
TERRAINS = {
    "rough": terrain.rough((6, 6), seed=1),
    "slope": terrain.slope(8.0, (6, 6)),
    "pyramids": terrain.pyramids((6, 6), angle=4.0),
    "waves": terrain.waves((6, 6), amplitude=0.03),
    "stairs": terrain.stairs((6, 6), rise=0.04),
    "stepping stones": terrain.stepping_stones((6, 6), seed=2),
}


def bodies(names):
    """Free bodies a metre apart that touch the ground, but not each other."""
    parts = [Body(name, WORLD, f"root of {name}", JointType.FREE, mass=1.0, inertia=0.01 * np.eye(3)) for name in names]
    shapes = [Shape(SHAPES[name][0], k, np.array(SHAPES[name][1])) for k, name in enumerate(names)]
    shapes = [replace(s, vertices=CORNERS) if s.type == ShapeType.MESH else s for s in shapes]
    shapes.append(Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="ground", body="ground"))
    return assemble("bodies", parts, shapes, pairs=[(k, len(names), 1.0, 0.0) for k in range(len(names))])


def with_plane(model, quat):
    """The ground of the model, tilted."""
    shapes = tuple(replace(s, quat=quat) if s.link == WORLD else s for s in model.shapes)
    return replace(model, shapes=shapes)


def slide(model, steps=400, **options):
    """Positions and velocities of bodies that start just above a slope."""
    sim = wa.Simulator(model, dtype="float64", **options)
    q, qd = sim.initial_state()
    for k in range(model.num_links):
        height = 0.1 / np.cos(np.radians(ANGLE)) + 0.3 * np.tan(np.radians(ANGLE)) + 1e-4
        q[:, 7 * k : 7 * k + 3] = torch.tensor([0.3, k - 1.47, height])
        q[:, 7 * k + 3 : 7 * k + 7] = torch.as_tensor(TILT)
    return sim.rollout(q, qd, torch.zeros(steps, 1, 0, dtype=torch.float64))


@pytest.mark.parametrize("names, contact_time", [(tuple(SHAPES), "step"), (("ball", "box"), "impact")])
def test_bodies_on_a_sloped_field_move_as_on_a_tilted_plane(names, contact_time):
    model = bodies(names)
    on_field = slide(terrain.slope(ANGLE, (8, 8), spacing=0.5).under(model), contact_time=contact_time)
    on_plane = slide(with_plane(model, TILT), contact_time=contact_time)
    for ours, theirs in zip(on_field, on_plane):
        assert torch.isfinite(ours).all()
        # the rim of a cylinder is looked at where it is lowest, on a slope not where it is nearest
        torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-3 if "cylinder" in names else 1e-7)
    x = on_field[0][:, 0, 0]  # of the ball: 1 / (1 + I / m r^2) of g sin(angle), downhill
    expected = -0.5 * 9.81 * np.sin(np.radians(ANGLE)) * np.cos(np.radians(ANGLE)) / (1.0 + 0.01 / 0.1**2) * 0.4**2
    assert abs((x[-1] - x[0]) / expected - 1.0) < 0.02
    for name in {"box", "mesh"} & set(names):  # stay where they are
        own = slice(7 * names.index(name), 7 * names.index(name) + 7)
        assert (on_field[0][-1] - on_field[0][0])[0, own].abs().max() < 1e-3


@pytest.mark.parametrize("name", TERRAINS)
def test_a_laikago_stands_on_every_terrain(name):
    field = TERRAINS[name]
    sim = wa.Simulator(field.under(wa.load("laikago_feet")), 4, dt=2e-3)
    q, qd = sim.initial_state()
    q[:, 0] = torch.tensor([0.1, -0.7, 1.1, 0.43])  # left and right feet on one step: they are only 0.2 m apart
    toes = sim.link_poses(q)[:, [sim.model.link(f"{leg}_lower_leg") for leg in ("FR", "FL", "RR", "RL")], :2]
    q[:, 2] += field.height(toes[..., 0], toes[..., 1]).amax(1)
    u = sim.initial_control()
    params = {"friction": torch.tensor(1.0).expand(4, len(sim.model.pairs))}
    qs, qds = sim.rollout(q, qd, u[None].repeat(1000, 1, 1), params=params)
    end = qs[-1]
    up = 1.0 - 2.0 * (end[:, 3] ** 2 + end[:, 4] ** 2)
    assert (up > 0.9).all() and (qds[-1, :, :6].abs() < 0.1).all()
    contacts = sim.contacts(end, qds[-1], u, params=params)
    assert (contacts.active.sum(1) >= 2).all()
    weight = float(sim.model.mass.sum()) * 9.81
    lift = (contacts.impulses * contacts.active[..., None]).sum(1)[:, 2] / sim.dt
    assert ((lift / weight - 1.0).abs() < 0.1).all()


def test_a_foot_on_the_edge_of_a_stair_does_not_fall_through():
    model = one_body(Shape(ShapeType.BOX, 0, np.array([0.1, 0.06, 0.02])), ground=True)
    heights = np.zeros((40, 40))
    heights[20:] = 0.15
    for blocks, edge in ((True, 0.0), (False, 0.025)):
        field = terrain.Field(heights, (0.05, 0.05), blocks)
        sim = wa.Simulator(field.under(model), 1, dtype="float64")
        q, qd = sim.initial_state()
        q[:, :3] = torch.tensor([edge + 0.03, 0.004, 0.1702], dtype=q.dtype)  # most of it on the upper step
        qs, _ = sim.rollout(q, qd, torch.zeros(600, 1, 0, dtype=torch.float64))
        assert (qs[:, 0, 2] > 0.1695).all() and (qs[:, 0, 3:6].abs() < 1e-2).all()


def test_an_origin_moves_the_field_and_nothing_else():
    field = terrain.rough((8, 8), seed=5)
    sim = wa.Simulator(field.under(wa.load("laikago_feet")), 3, dtype="float64")
    origin = torch.tensor([[0.0, 0.0, 0.0], [1.13, -0.77, 0.02], [-2.0, 1.5, -0.01]], dtype=torch.float64)
    q, qd = sim.initial_state()
    q[:, 2] += 0.03
    u = sim.initial_control()[None].repeat(200, 1, 1)
    moved, rates = sim.rollout(q, qd, u, params={"terrain_origin": origin})
    start = q.clone()
    start[:, :3] += origin
    expected, expected_rates = sim.rollout(start, qd, u)
    torch.testing.assert_close(moved[:, :, :3] + origin, expected[:, :, :3], rtol=0, atol=1e-9)
    torch.testing.assert_close(rates, expected_rates, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name, contact_time", [("rough", "step"), ("stairs", "impact")])
def test_bits_do_not_depend_on_the_batch(name, contact_time):
    model = TERRAINS[name].under(wa.load("laikago_feet"))
    options = {"dt": 2e-3, "contact_time": contact_time}
    many, one = wa.Simulator(model, 7, threads=2, **options), wa.Simulator(model, 1, **options)
    q, qd = many.initial_state()
    origin = torch.rand(7, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([2.0, 2.0, 0.0])
    q[:, 2] += 0.1
    u = many.initial_control()[None].repeat(100, 1, 1)
    heights = terrain.Field.of(model).tensor(q).requires_grad_()

    def run(sim, rows):
        start = q[rows].clone().requires_grad_()
        params = {"terrain_origin": origin[rows], "heights": heights.expand(len(rows), *heights.shape)}
        qs, _ = sim.rollout(start, qd[rows], u[:, rows], params=params)
        return qs[-1].detach(), torch.autograd.grad(qs[-1, :, :3].sum(), [start, heights], retain_graph=False)

    end, (slope, _) = run(many, list(range(7)))
    for k in (0, 3, 6):
        alone, (own, by_heights) = run(one, [k])
        assert torch.equal(end[k], alone[0]) and torch.equal(slope[k], own[0])
        assert torch.isfinite(by_heights).all()


MJCF = """<mujoco><asset><hfield name="hills" nrow="3" ncol="4" size="1.5 1 0.4 0.1"
elevation="0 0 0 0  0 1 0.5 0  0 0 0 0"/></asset><worldbody><geom type="hfield" hfield="hills" pos="0.1 0 -0.1"/>
<body pos="0 0 1"><freejoint/><geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""


def test_a_height_field_of_mjcf_has_the_heights_that_mujoco_sees(tmp_path):
    path = tmp_path / "hills.xml"
    path.write_text(MJCF)
    model = wa.load(path)
    field = terrain.Field.of(model)
    assert field.heights.shape == (4, 3) and not field.blocks
    np.testing.assert_allclose(field.spacing, (1.0, 1.0))
    compiled = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(compiled)
    mujoco.mj_forward(compiled, data)
    for i, x in enumerate((-1.4, -0.4, 0.6, 1.5999)):  # nodes and edges, where no diagonal matters
        for y in (-0.999, -0.5, 0.0, 0.4, 0.999):
            hit = np.zeros(1, np.int32)
            down = mujoco.mj_ray(compiled, data, [x, y, 3.0], [0.0, 0, -1.0], None, 1, 1, hit)
            ours = field.height(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
            assert abs(3.0 - down - float(ours)) < 1e-3, (i, x, y)
    sim = wa.Simulator(model)
    q, qd = sim.initial_state()
    qs, _ = sim.rollout(q, qd, torch.zeros(1500, 1, 0))
    assert float(qs[-1, 0, 2]) > -0.1 + 0.09  # it rolled down a hill, not through it


@pytest.mark.parametrize("blocks", [False, True])
def test_heights_in_torch_are_those_of_the_kernels(blocks):
    rng = np.random.default_rng(7)
    field = terrain.Field(rng.uniform(0, 0.2, (7, 9)), (0.1, 0.2), blocks, pos=(0.4, -0.2, 0.5))
    x, y = rng.uniform(-0.29, 0.29, 500), rng.uniform(-0.79, 0.79, 500)
    place = np.stack([x, y, np.full(500, 5.0)], 1)
    scene = FieldScene("mesh", blocks, field.heights, field.spacing, place, np.eye(3), [0, 0, 0])
    _, _, _, n, z = scene.contacts(reach=10.0)
    expected = 5.0 - z / n[:, 2] + 0.5
    tx, ty = (torch.tensor(c, requires_grad=True) for c in (x + 0.4, y - 0.2))
    heights = field.tensor(tx).requires_grad_()
    found = field.height(tx, ty, heights)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)
    slopes = torch.autograd.grad(found.sum(), [tx, ty, heights])
    np.testing.assert_allclose(slopes[0].numpy(), -n[:, 0] / n[:, 2], atol=1e-9)
    np.testing.assert_allclose(slopes[1].numpy(), -n[:, 1] / n[:, 2], atol=1e-9)
    assert abs(float(slopes[2].sum()) - 500.0) < 1e-9


def test_a_scan_turns_with_the_robot():
    field = terrain.slope(45.0, (10, 10))
    points = torch.tensor(terrain.scan_points([0.0, 0.5], [0.0, 0.2]), dtype=torch.float64)
    place = torch.tensor([[1.0, 2.0]], dtype=torch.float64).repeat(3, 1)
    heading = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]], dtype=torch.float64)
    scan = field.scan(place, heading, points)
    expected = [[1.0, 1.0, 1.5, 1.5], [1.0, 0.8, 1.0, 0.8], [1.0, 1.0, 0.5, 0.5]]
    np.testing.assert_allclose(scan.numpy(), expected, atol=1e-12)


def test_a_picture_becomes_a_field(tmp_path):
    pixels = np.zeros((3, 5), np.uint8)
    pixels[0, 4], pixels[2, 1] = 255, 51  # upper right, bottom row
    Image.fromarray(pixels).save(tmp_path / "hills.png")
    field = terrain.Field.from_png(tmp_path / "hills.png", size=(4.0, 2.0), height=0.5)
    assert field.heights.shape == (5, 3) and field.spacing == (1.0, 1.0)
    assert field.heights[4, 2] == 0.5 and abs(field.heights[1, 0] - 0.1) < 1e-12
    deep = np.zeros((3, 3), np.uint16)
    deep[1, 1] = 65535
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert terrain.Field.from_png(tmp_path / "deep.png", size=(1, 1), height=2.0).heights.max() == 2.0
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ModelError, match=r"text\.png.*cannot be read"):
        terrain.Field.from_png(tmp_path / "text.png", size=(1, 1), height=1.0)


def test_a_model_with_a_field_is_saved_and_printed(tmp_path):
    model = TERRAINS["stairs"].under(wa.load("laikago_feet"))
    model.save(tmp_path / "model.npz")
    again = wa.load(tmp_path / "model.npz")
    assert np.array_equal(again.field.heights, model.field.heights) and again.field.spacing == model.field.spacing
    assert again.field.type == ShapeType.BLOCKFIELD and again.shapes[0].heights is None
    assert "blockfield of 20 x 20 heights, 0.3 x 0.3 m apart" in str(again)


@pytest.mark.parametrize(
    "heights, spacing, message",
    [
        ([[0.0, np.nan], [0.0, 0.0]], (0.1, 0.1), "heights"),
        ([], (0.1, 0.1), "heights"),
        ([[0.0, 1.0]], (0.1, 0.1), "at least 2 rows"),
        (None, (0.1, 0.1), "heights"),
        (np.zeros((3, 3)), (0.0, 0.1), "spacing"),
        (np.zeros((3, 3)), (-1.0, 0.1), "spacing"),
        (np.zeros((3, 3)), None, "spacing"),
        (np.zeros((3, 3)), (0.1, np.inf), "spacing"),
        (np.zeros((1025, 1025)), (0.1, 0.1), "at most"),
    ],
)
def test_bad_fields_are_refused_by_name(heights, spacing, message):
    heights = None if heights is None else np.asarray(heights)
    shape = Shape(ShapeType.HEIGHTFIELD, WORLD, np.zeros(3), name="hills", heights=heights, spacing=spacing)
    with pytest.raises(ModelError, match=rf"'hills'.*{message}"):
        one_body(shape)


def test_features_of_a_mesh_on_a_large_field_have_room():
    corners = np.random.default_rng(0).normal(size=(40, 3))
    mesh = Shape(
        ShapeType.MESH, 0, np.zeros(3), name="rock", vertices=corners / np.linalg.norm(corners, axis=1)[:, None]
    )
    model = one_body(mesh, ground=True)
    terrain.Field(np.zeros((900, 900)), (0.1, 0.1)).under(model)
    with pytest.raises(ModelError, match=r"'rock' has 40 corners and its ground 1000000 heights"):
        terrain.Field(np.zeros((1000, 1000)), (0.1, 0.1)).under(model)


def test_a_field_must_be_fixed_and_alone():
    good = terrain.slope(5.0).shape(name="hills")
    with pytest.raises(ModelError, match=r"'hills'.*fixed to the world"):
        one_body(replace(good, link=0))
    with pytest.raises(ModelError, match="2 shapes are fields"):
        one_body(good, replace(good, name="more"))
    with pytest.raises(ModelError, match="no height field"):
        terrain.Field.of(wa.load("laikago_feet"))
    with pytest.raises(ModelError, match="turned"):
        terrain.Field.of(one_body(replace(good, quat=TILT)))
    with pytest.raises(ModelError, match="no ground"):
        terrain.slope(5.0).under(wa.load("pendulum1"))
    assert np.array_equal(good.quat, IDENTITY)
    sim = wa.Simulator(terrain.slope(5.0).under(wa.load("laikago_feet")))
    q, qd = sim.initial_state()
    with pytest.raises(ValueError, match="heights"):
        sim.step(q, qd, params={"heights": torch.full((21, 21), torch.nan)})
    with pytest.raises(ValueError, match="heights"):
        sim.step(q, qd, params={"heights": torch.zeros(3, 3)})
