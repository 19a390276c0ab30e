"""USD exports: poses read back equal the simulator's, every shape is there, USD's validators find nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from display_model import display_model, moving_positions
from pxr import UsdGeom
from stages import complaints, instances, open_stage, pose_in_stage

from warp_articulated import Simulator, load
from warp_articulated.geometry.kinematics import batch_body_poses, batch_link_poses
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.model import WORLD, Body, JointType, Shape, ShapeType, assemble
from warp_articulated.show.film import frame_rows
from warp_articulated.show.layout import grid_offsets
from warp_articulated.show.usd import export_usd

SLOPE = np.array([0.0, 0.2, 0.0, 0.98])


@pytest.fixture(scope="module")
def model():
    return display_model()


@pytest.fixture(scope="module")
def moved_frames():
    """A robot whose body frames are not at its joints, as in MJCF; its positions and the simulator's poses."""
    laikago = load("laikago_feet")
    frames = np.random.default_rng(1).normal(size=(laikago.num_links, 3))
    laikago = replace(laikago, frame_pos=0.1 * frames)
    q = moving_positions(laikago, 4, 3).astype(np.float32)
    sim = Simulator(laikago, 3, device="cpu")
    return laikago, q, np.stack([sim.link_poses(torch.tensor(row)).numpy() for row in q])


def odd_model(**more):
    """Two links with the hardest names, a transparent and an invisible shape, an obstacle and a slope."""
    body = {"mass": 1.0, "inertia": 0.01 * np.eye(3)}
    bodies = [
        Body("größe 1/2", WORLD, "a b", JointType.FREE, **body),
        Body("größe 1 2", 0, "a/b", JointType.REVOLUTE, **body),
        Body("world", 0, "joints", JointType.REVOLUTE, **body),
    ]
    shapes = [
        Shape(ShapeType.SPHERE, 0, np.array([0.1]), color=(1.0, 0.5, 0.0, 0.5)),
        Shape(ShapeType.SPHERE, 1, np.array([0.2]), color=(1.0, 0.0, 0.0, 0.0)),
        Shape(ShapeType.BOX, WORLD, np.array([0.3, 0.2, 0.1]), np.array([1.0, 0.0, 0.0])),
        Shape(ShapeType.PLANE, WORLD, np.zeros(0), quat=SLOPE),
    ]
    return assemble("odd", bodies, shapes, **more)


def test_poses_in_numpy_equal_those_of_the_kernel(model):
    q = moving_positions(model, 3, 4)
    sim = Simulator(model, 12, device="cpu", dtype="float64")
    expected = sim.link_poses(torch.tensor(q.reshape(12, -1), dtype=torch.float64)).reshape(3, 4, -1, 7).numpy()
    origins, quats = batch_body_poses(model, q)
    np.testing.assert_allclose(origins, expected[..., :3], atol=1e-12)
    np.testing.assert_allclose(quat_to_matrix(quats), quat_to_matrix(expected[..., 3:]), atol=1e-12)


@pytest.mark.parametrize("suffix", ["usda", "usdc"])
def test_hierarchy_has_the_simulators_link_poses(moved_frames, tmp_path, suffix):
    laikago, q, poses = moved_frames
    export_usd(tmp_path / f"run.{suffix}", laikago, torch.tensor(q), spacing=2.0)
    stage = open_stage(tmp_path / f"run.{suffix}")
    for env in range(3):
        root = stage.GetPrimAtPath(f"/World/env_{env}")
        for i, name in enumerate(laikago.link_names):
            for frame in range(4):
                rotation, origin = pose_in_stage(root.GetChild(name), frame, root)
                # the simulator computes in single precision
                np.testing.assert_allclose(origin, poses[frame, env, i, :3], atol=1e-5)
                np.testing.assert_allclose(rotation, quat_to_matrix(poses[frame, env, i, 3:]), atol=1e-5)


@pytest.mark.parametrize("suffix", ["usda", "usdc"])
def test_instancer_has_the_simulators_link_poses(moved_frames, tmp_path, suffix):
    laikago, q, poses = moved_frames
    export_usd(tmp_path / f"run.{suffix}", laikago, q, spacing=2.0, layout="instancer")
    stage = open_stage(tmp_path / f"run.{suffix}")
    for frame in range(4):
        positions, quats = instances(stage, frame)
        expected = poses[frame, ..., :3] + grid_offsets(3, 2.0)[:, None]
        np.testing.assert_allclose(positions.reshape(3, -1, 3), expected, atol=1e-5)
        np.testing.assert_allclose(
            quat_to_matrix(quats), quat_to_matrix(poses[frame, ..., 3:]).reshape(-1, 3, 3), atol=1e-5
        )


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
def test_both_layouts_draw_every_shape_at_the_same_place(moved_frames, tmp_path, layout):
    """Bounds of the drawn robots, as USD computes them, against spheres and boxes placed by numpy."""
    laikago, q, _ = moved_frames
    ball = Shape(ShapeType.SPHERE, 5, np.array([0.4]), np.array([0.1, 0.2, 0.3]))
    laikago = replace(laikago, shapes=(ball,), pairs=np.zeros((0, 2), int))
    export_usd(tmp_path / "run.usdc", laikago, q[:, :1], layout=layout)
    origins, quats = batch_link_poses(laikago, q[:, 0])
    stage = open_stage(tmp_path / "run.usdc")
    prim = stage.GetPrimAtPath("/World/env_0" if layout == "hierarchy" else "/World/robots")
    for frame in range(4):
        box = UsdGeom.BBoxCache(frame, [UsdGeom.Tokens.default_]).ComputeWorldBound(prim).ComputeAlignedRange()
        centre = origins[frame, 5] + quat_to_matrix(quats[frame, 5]) @ ball.pos
        low, high = np.array(box.GetMin()), np.array(box.GetMax())
        # an instancer's bounds may be wider than needed, but must contain the ball
        assert (low <= centre - 0.4 + 1e-5).all() and (high >= centre + 0.4 - 1e-5).all()
        if layout == "hierarchy":
            np.testing.assert_allclose((low + high) / 2, centre, atol=1e-5)


def test_auto_layout_is_an_instancer_beyond_64_environments(model, tmp_path):
    for envs, kind in ((64, "/World/env_63"), (65, "/World/robots")):
        export_usd(tmp_path / "run.usdc", model, moving_positions(model, 1, envs))
        assert open_stage(tmp_path / "run.usdc").GetPrimAtPath(kind)


def test_instancer_names_its_instances(model, tmp_path):
    export_usd(tmp_path / "run.usdc", odd_model(), np.tile(odd_model().q0, (2, 3, 1)), layout="instancer")
    stage = open_stage(tmp_path / "run.usdc")
    instancer = UsdGeom.PointInstancer(stage.GetPrimAtPath("/World/robots"))
    # three links of three environments, then the obstacles of each
    assert list(instancer.GetProtoIndicesAttr().Get()) == [0, 1, 2] * 3 + [3] * 3
    assert list(instancer.GetIdsAttr().Get()) == list(range(12))
    targets = instancer.GetPrototypesRel().GetTargets()
    assert len(targets) == 4 and targets[3].name == "world"
    positions, _ = instances(stage, 1)
    np.testing.assert_allclose(positions[9:], positions[0:9:3] - odd_model().q0[:3], atol=1e-6)


def test_environments_keep_their_distance(model, tmp_path):
    export_usd(tmp_path / "run.usda", model, moving_positions(model, 2, 4), env_ids=[1, 3], spacing=2.0)
    stage = open_stage(tmp_path / "run.usda")
    world = stage.GetDefaultPrim()
    places = [pose_in_stage(stage.GetPrimAtPath(f"/World/env_{e}"), 0, world)[1] for e in (1, 3)]
    assert np.linalg.norm(places[1] - places[0]) == pytest.approx(2.0)
    assert not stage.GetPrimAtPath("/World/env_0")


def test_every_shape_has_its_size_and_place(model, tmp_path):
    export_usd(tmp_path / "run.usda", model, model.q0[None])
    stage = open_stage(tmp_path / "run.usda")
    cache = UsdGeom.BBoxCache(0, [UsdGeom.Tokens.default_])
    count = {name: 0 for name in model.link_names}
    for shape in (s for s in model.shapes if s.link >= 0):
        name = model.link_names[shape.link]
        prim = stage.GetPrimAtPath(f"/World/env_0/{name.replace(' ', '_')}/shape_{count[name]}")
        count[name] += 1
        r, h = (*shape.size, 0.0, 0.0)[:2]
        half = {
            ShapeType.SPHERE: [r, r, r],
            ShapeType.CAPSULE: [r, r, r + h],
            ShapeType.CYLINDER: [r, r, h],
            ShapeType.BOX: shape.size,
        }.get(shape.type)
        box = cache.ComputeLocalBound(prim)
        local = UsdGeom.Xformable(prim).GetLocalTransformation().RemoveScaleShear()
        np.testing.assert_allclose(np.array(local).T[:3, 3], shape.pos, atol=1e-6)
        np.testing.assert_allclose(np.array(local).T[:3, :3], quat_to_matrix(shape.quat), atol=1e-6)
        if half is not None:
            size = np.array(box.GetRange().GetSize()) * np.array(
                UsdGeom.Xformable(prim).GetLocalTransformation()
            ).diagonal()[:3].clip(0 if shape.type == ShapeType.BOX else 1, None)
            np.testing.assert_allclose(size, 2 * np.array(half), atol=1e-6)
        else:
            points = np.array(UsdGeom.Mesh(prim).GetPointsAttr().Get())
            np.testing.assert_allclose(points.min(0), shape.vertices.min(0), atol=1e-6)
            np.testing.assert_allclose(points.max(0), shape.vertices.max(0), atol=1e-6)


def test_geometry_is_written_once_whatever_the_number_of_environments(model, tmp_path):
    export_usd(tmp_path / "run.usdc", model, moving_positions(model, 1, 5))
    stage = open_stage(tmp_path / "run.usdc")
    drawn = [p.GetPath() for p in stage.Traverse() if p.GetName().startswith("shape_")]
    assert len(drawn) == 5 * sum(s.link != WORLD for s in model.shapes)
    assert not any(stage.GetRootLayer().GetPrimAtPath(path) for path in drawn)  # all come from the prototype


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
@pytest.mark.parametrize("frames", [1, 5])
def test_stage_passes_validation_and_has_its_metadata(model, tmp_path, layout, frames):
    path = tmp_path / "run.usda"
    export_usd(path, model, moving_positions(model, frames, 2), fps=30.0, layout=layout)
    stage = open_stage(path)
    assert complaints(stage) == []
    assert UsdGeom.GetStageUpAxis(stage) == "Z"
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    assert stage.GetMetadata("kilogramsPerUnit") == 1.0
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0, frames - 1)
    assert stage.GetTimeCodesPerSecond() == stage.GetFramesPerSecond() == 30.0
    assert stage.GetDefaultPrim().GetPath() == "/World"
    for name in ("ground", "camera", "sun", "sky"):
        assert stage.GetPrimAtPath(f"/World/{name}")


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
def test_odd_names_slopes_and_transparency_are_written(tmp_path, layout):
    odd = odd_model()
    export_usd(tmp_path / "run.usda", odd, odd.q0[None], layout=layout)
    stage = open_stage(tmp_path / "run.usda")
    assert complaints(stage) == []
    assert not stage.GetPrimAtPath("/World/ground")
    top = "/World/env_0" if layout == "hierarchy" else "/World/robots/prototypes"
    names = [child.GetName() for child in stage.GetPrimAtPath(top).GetChildren()]
    links = [name for name in names if name not in ("world", "joints")]
    assert len(links) == 3 and "world" in names
    ball = UsdGeom.Sphere(stage.GetPrimAtPath(f"{top}/{links[0]}/shape_0"))
    assert list(ball.GetDisplayOpacityAttr().Get()) == [0.5]
    # USD's default colour space is linear; a half in sRGB is 21 % of the light
    np.testing.assert_allclose(np.array(ball.GetDisplayColorAttr().Get()), [[1.0, 0.21404, 0.0]], atol=1e-4)
    surface = stage.GetPrimAtPath(f"{top}/world/shape_1/surface")
    rotation, _ = pose_in_stage(surface, 0, stage.GetPrimAtPath(f"{top}/world"))
    np.testing.assert_allclose(rotation, quat_to_matrix(SLOPE), atol=1e-6)
    visible = [p for p in stage.Traverse() if p.IsA(UsdGeom.Gprim)
               and UsdGeom.Imageable(p).ComputePurpose() == UsdGeom.Tokens.default_]  # fmt: skip
    assert len(visible) == 3  # the ball, the obstacle and the slope; not the invisible shape


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
def test_links_without_shapes_become_small_spheres(tmp_path, layout):
    bare = replace(odd_model(), shapes=(), pairs=np.zeros((0, 2), int))
    export_usd(tmp_path / "run.usda", bare, bare.q0[None], layout=layout)
    stage = open_stage(tmp_path / "run.usda")
    assert complaints(stage) == []
    spheres = [p for p in stage.Traverse() if p.IsA(UsdGeom.Sphere)]
    assert len(spheres) == 3


def test_frames_are_the_nearest_rows():
    rows = frame_rows(501, 1e-3, 60.0)
    assert len(rows) == 31 and rows[-1] == 500
    assert np.abs(rows * 1e-3 - np.arange(31) / 60).max() <= 0.5e-3 + 1e-12
    np.testing.assert_array_equal(frame_rows(3, 1 / 30, 60.0), [0, 1, 1, 2, 2])


def test_progress_rises_to_its_total(model, tmp_path):
    calls = []
    export_usd(tmp_path / "run.usdc", model, moving_positions(model, 7, 2), progress=lambda *pair: calls.append(pair))
    assert calls == sorted(calls) and calls[-1][0] == calls[-1][1]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"qs": np.zeros((2, 3))}, ValueError, "nq"),
        ({"qs": np.zeros((0, 30))}, ValueError, "nq"),
        ({"path": "run.obj"}, ValueError, ".usdc"),
        ({"path": "nowhere/run.usd"}, FileNotFoundError, "nowhere"),
        ({"path": "folder.usd"}, IsADirectoryError, "folder"),
        ({"fps": 0.0}, ValueError, "fps"),
        ({"fps": 0.0, "dt": 0.1}, ValueError, "fps"),
        ({"dt": -1.0}, ValueError, "dt"),
        ({"env_ids": [2]}, ValueError, "env_ids"),
        ({"layout": "tree"}, ValueError, "layout is 'tree'; it must be one of auto, hierarchy, instancer"),
        ({"spacing": -1.0}, ValueError, "spacing"),
    ],
)
def test_bad_input_gives_an_error_and_leaves_no_file(model, tmp_path, change, error, says):
    (tmp_path / "folder.usd").mkdir()
    arguments = {"path": "run.usda", "qs": moving_positions(model, 2, 2)} | change
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(error, match=says):
        export_usd(model=model, **arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.usd"]


def test_positions_that_are_not_finite_are_named(model, tmp_path):
    q = moving_positions(model, 3, 2)
    q[1, 1, 4] = np.nan
    with pytest.raises(ValueError, match=r"environment 1, \[1, 4\] is nan"):
        export_usd(tmp_path / "run.usda", model, q)
    export_usd(tmp_path / "run.usda", model, q, env_ids=[0])
    assert open_stage(tmp_path / "run.usda").GetPrimAtPath("/World/env_0")


def test_small_rotations_are_not_lost(tmp_path):
    """In single precision w of an angle below 3e-4 rad is 1, and USD's readers compute the angle from w."""
    model = load("pendulum1")
    export_usd(tmp_path / "run.usda", model, np.array([[1e-5]]))
    stage = open_stage(tmp_path / "run.usda")
    prim = stage.GetPrimAtPath(f"/World/env_0/{model.link_names[0]}")
    matrix = np.array(UsdGeom.XformCache(0).GetLocalToWorldTransform(prim))
    assert np.arcsin(matrix[1, 2]) == pytest.approx(1e-5, rel=1e-6)
