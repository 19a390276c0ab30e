"""The ray caster: every shape covers the pixels of its closed-form outline, and pictures are reproducible."""

import numpy as np
import pytest
from display_model import display_model, moving_positions
from PIL import Image

from warp_articulated.model import Body, JointType, Shape, ShapeType, assemble
from warp_articulated.show.layout import Camera, frame_camera, grid_offsets
from warp_articulated.show.pictures.rayscene import REBUILD_EVERY, Quality, RayScene
from warp_articulated.show.pictures.render import render, render_png

SIZE = (96, 54)
RED = (1.0, 0.0, 0.0, 1.0)
OCTAHEDRON = 0.5 * np.vstack([np.eye(3), -np.eye(3)])


@pytest.fixture(scope="module")
def model():
    return display_model()


def floating(shape):
    """One shape on a free body, high above the ground."""
    body = Body("body", -1, "root", JointType.FREE, pos=np.array([0.0, 0.0, 50.0]), mass=1.0, inertia=np.eye(3))
    return assemble("one", [body], [shape])


def covered_share(picture):
    """Share of the picture's area that is not sky: the shape is red, so it has little blue."""
    blue = picture[..., 2].astype(float)
    return float((blue < blue.max() - 40.0).mean())


@pytest.mark.parametrize(
    ("kind", "size", "area"),
    [
        (ShapeType.SPHERE, [0.5], np.pi * 0.25),
        (ShapeType.CAPSULE, [0.2, 0.4], np.pi * 0.04 + 0.4 * 0.8),
        (ShapeType.BOX, [0.3, 0.4, 0.5], 0.6 * 1.0),
        (ShapeType.CYLINDER, [0.3, 0.5], 0.6 * 1.0),
        (ShapeType.MESH, [], 0.5),
    ],
)
def test_outline_of_every_shape_has_the_right_area(kind, size, area):
    vertices = OCTAHEDRON if kind == ShapeType.MESH else None
    model = floating(Shape(kind, 0, np.array(size), color=RED, vertices=vertices))
    # from so far away the rays are nearly parallel: perspective adds less than 1 %
    camera = Camera(eye=(0.0, -200.0, 50.0), target=(0.0, 0.0, 50.0), fov=float(np.degrees(2 * np.arctan(0.8 / 200))))
    picture = render(model, model.q0, size=(240, 240), camera=camera)
    # pixels on the edge count fully or not at all: about one in a hundred at 240 pixels
    assert covered_share(picture) == pytest.approx(area / 1.6**2, rel=0.03)


def test_shadow_falls_on_the_ground():
    # the render adds a ground at the lowest point or z = 0, so a ball at 2 m shades it
    body = Body("ball", -1, "root", JointType.FREE, pos=np.array([0.0, 0.0, 2.0]), mass=1.0, inertia=np.eye(3))
    model = assemble("ball", [body], [Shape(ShapeType.SPHERE, 0, np.array([0.3]))])
    below = Camera(eye=(0.0, 0.0, 1.0), target=(0.7, 1.1, 0.0), fov=40.0)
    shaded = render(model, model.q0, size=SIZE, camera=below).astype(float)
    moved = model.q0.copy()
    moved[0] += 100.0
    lit = render(model, moved, size=SIZE, camera=below).astype(float)
    assert (lit - shaded).max() > 40.0


def test_camera_sees_all_points():
    points = np.random.default_rng(0).normal(size=(100, 3)) * [3.0, 1.0, 0.5]
    camera = frame_camera(points, 16 / 9, margin=1.0)
    right, up, forward = camera.axes()
    seen = points - camera.eye
    tan = np.tan(np.radians(camera.fov) / 2) + 1e-9
    depth = seen @ forward
    assert (np.abs(seen @ up) <= depth * tan).all()
    assert (np.abs(seen @ right) <= depth * tan * 16 / 9).all()


def test_grid_places_keep_their_distance():
    places = grid_offsets(10, 2.0)
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1) + 1e9 * np.eye(10)
    assert distances.min() == pytest.approx(2.0)


@pytest.mark.parametrize("envs", [1, 5, 50])
def test_picture_of_many_robots_is_reproducible(model, envs):
    q = np.tile(model.q0, (envs, 1)) if envs > 1 else model.q0
    first = render(model, q, size=SIZE)
    assert first.shape == (54, 96, 3) and first.dtype == np.uint8
    assert first.std() > 5.0
    np.testing.assert_array_equal(first, render(model, q, size=SIZE))


def test_a_scene_that_moved_for_long_looks_like_a_new_one(model):
    """The tree over all shapes is fitted and rebuilt as they move; the picture must not show it."""
    motion = moving_positions(model, REBUILD_EVERY + 2, 6)
    camera = Camera((3.0, -3.5, 2.0), (0.0, 0.0, 0.4))

    def picture(poses):
        scene = RayScene(model, 6, 1.0)
        scene.surround(ground=0.0, haze=20.0)
        for q in poses:
            scene.pose(q)
        return scene.picture(camera, SIZE, Quality()).copy()

    for last in (REBUILD_EVERY - 1, REBUILD_EVERY, REBUILD_EVERY + 1):
        np.testing.assert_array_equal(picture(motion[: last + 1]), picture(motion[last : last + 1]))


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_picture_does_not_depend_on_the_scale(scale):
    """A toy and a crane look alike: same framing, grid, shadows and haze. Powers of ten keep the grid's squares."""

    def picture(size):
        shapes = [
            Shape(ShapeType.BOX, 0, size * np.array([0.3, 0.2, 0.1])),
            Shape(ShapeType.CAPSULE, 0, size * np.array([0.1, 0.2]), size * np.array([0.0, 0.0, 0.3])),
        ]
        root = Body("body", -1, "root", JointType.FREE, pos=size * np.array([0, 0, 0.2]), mass=1.0, inertia=np.eye(3))
        model = assemble("any", [root], shapes)
        return render(model, np.tile(model.q0, (4, 1)), size=SIZE).astype(float)

    # pixels on edges may fall to either side; shadow rays start a fixed 0.01 mm off the surface
    assert np.abs(picture(scale) - picture(1.0)).mean() < 1.0


def test_one_robot_far_away_does_not_make_the_others_tiny(model):
    q = np.tile(model.q0, (16, 1))
    calm = render(model, q, size=SIZE)
    q[5, :2] += 1e4
    away = render(model, q, size=SIZE)
    orange = [float((p[..., 0] > p[..., 2] + 40.0).sum()) for p in (calm.astype(float), away.astype(float))]
    assert orange[1] > 0.7 * orange[0]  # one of sixteen is gone; the others are as large as before


def test_png_is_written_completely_or_not_at_all(model, tmp_path):
    path = tmp_path / "robot.png"
    render_png(path, model, model.q0, size=SIZE)
    assert Image.open(path).size == SIZE
    assert [p.name for p in tmp_path.iterdir()] == ["robot.png"]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"path": "x.bmp"}, ValueError, ".png"),
        ({"path": "nowhere/x.png"}, FileNotFoundError, "nowhere"),
        ({"q": np.zeros(3)}, ValueError, "nq"),
        ({"q": np.full(24, np.nan)}, ValueError, r"q\[0\] is nan"),
        ({"size": (0, 10)}, ValueError, "size"),
        ({"spacing": 0.0}, ValueError, "spacing is 0.0"),
        ({"camera": Camera((0.0, 0.0, 1.0), (0.0, 0.0, 1.0))}, ValueError, "differ"),
    ],
)
def test_bad_input_gives_an_error(model, tmp_path, change, error, says):
    arguments = {"path": "x.png", "q": model.q0, "size": SIZE} | change
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(error, match=says):
        render_png(model=model, **arguments)
    assert not list(tmp_path.iterdir())


def test_a_model_without_shapes_shows_its_links():
    body = Body("body", -1, "root", JointType.FREE, mass=1.0, inertia=np.eye(3))
    assert render(assemble("bare", [body]), np.array([0, 0, 1.0, 0, 0, 0, 1]), size=SIZE).std() > 5.0
