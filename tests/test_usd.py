"""USD exports: poses read back equal numpy's, the stage passes USD's own validators, bad input is told."""

import numpy as np
import pytest
import torch
from display_model import display_model, moving_positions
from pxr import Usd, UsdGeom, UsdValidation

from warp_articulated.model import ShapeType, link_transforms
from warp_articulated.poses import batch_link_poses
from warp_articulated.rotations import quat_to_matrix
from warp_articulated.usd import export_usd, frame_rows


@pytest.fixture(scope="module")
def model():
    return display_model()


def pose_in_stage(prim, frame, space):
    """Rotation and translation of a prim in the frame of `space`, as column-vector matrices."""
    cache = UsdGeom.XformCache(frame)
    matrix = np.array(cache.ComputeRelativeTransform(prim, space)[0]).T
    return matrix[:3, :3], matrix[:3, 3]


def test_batch_link_poses_equal_the_one_by_one_ones(model):
    q = moving_positions(model, 3, 4)
    origins, quats = batch_link_poses(model, q)
    for t in range(3):
        for e in range(4):
            rotation, origin = link_transforms(model, q[t, e])
            np.testing.assert_allclose(origins[t, e], origin, atol=1e-12)
            np.testing.assert_allclose(quat_to_matrix(quats[t, e]), rotation, atol=1e-12)


@pytest.mark.parametrize("suffix", ["usda", "usdc"])
def test_stage_holds_the_link_poses(model, tmp_path, suffix):
    q = moving_positions(model, 4, 3)
    path = tmp_path / f"run.{suffix}"
    export_usd(path, model, torch.tensor(q), spacing=2.0)
    stage = Usd.Stage.Open(str(path))
    origins, quats = batch_link_poses(model, q)
    for env in range(3):
        root = stage.GetPrimAtPath(f"/World/env_{env}")
        for i, name in enumerate(model.link_names):
            prim = root.GetChild(name.replace(" ", "_"))
            for frame in range(4):
                rotation, origin = pose_in_stage(prim, frame, root)
                # orientations are stored in single precision
                np.testing.assert_allclose(origin, origins[frame, env, i], atol=1e-5)
                np.testing.assert_allclose(rotation, quat_to_matrix(quats[frame, env, i]), atol=1e-5)


def test_environments_stand_apart(model, tmp_path):
    export_usd(tmp_path / "run.usda", model, moving_positions(model, 2, 4), env_ids=[1, 3], spacing=2.0)
    stage = Usd.Stage.Open(str(tmp_path / "run.usda"))
    world = stage.GetDefaultPrim()
    places = [pose_in_stage(stage.GetPrimAtPath(f"/World/env_{e}"), 0, world)[1] for e in (1, 3)]
    assert np.linalg.norm(places[1] - places[0]) == pytest.approx(2.0)
    assert not stage.GetPrimAtPath("/World/env_0")


def test_every_shape_has_its_size_and_place(model, tmp_path):
    export_usd(tmp_path / "run.usda", model, model.q0[None])
    stage = Usd.Stage.Open(str(tmp_path / "run.usda"))
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


def test_stage_passes_validation_and_has_its_metadata(model, tmp_path):
    path = tmp_path / "run.usda"
    export_usd(path, model, moving_positions(model, 5, 2), fps=30.0)
    stage = Usd.Stage.Open(str(path))
    context = UsdValidation.ValidationContext(UsdValidation.ValidationRegistry().GetOrLoadAllValidators())
    assert [f"{e.GetName()}: {e.GetMessage()}" for e in context.Validate(stage)] == []
    assert UsdGeom.GetStageUpAxis(stage) == "Z"
    assert UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    assert stage.GetMetadata("kilogramsPerUnit") == 1.0
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0, 4)
    assert stage.GetTimeCodesPerSecond() == stage.GetFramesPerSecond() == 30.0
    assert stage.GetDefaultPrim().GetPath() == "/World"
    for name in ("ground", "camera", "sun", "sky"):
        assert stage.GetPrimAtPath(f"/World/{name}")


def test_frames_are_the_nearest_rows():
    rows = frame_rows(501, 1e-3, 60.0)
    assert len(rows) == 31 and rows[-1] == 500
    assert np.abs(rows * 1e-3 - np.arange(31) / 60).max() <= 0.5e-3 + 1e-12
    np.testing.assert_array_equal(frame_rows(3, 1 / 30, 60.0), [0, 1, 1, 2, 2])


def test_a_second_export_replaces_the_first_even_if_it_is_open(model, tmp_path):
    path = tmp_path / "run.usdc"
    export_usd(path, model, moving_positions(model, 2, 1))
    open_stage = Usd.Stage.Open(str(path))
    export_usd(path, model, moving_positions(model, 7, 1))
    assert Usd.Stage.Open(str(path)).GetEndTimeCode() == 6
    assert open_stage.GetEndTimeCode() == 6
    assert [p.name for p in tmp_path.iterdir()] == ["run.usdc"]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"qs": np.zeros((2, 3))}, ValueError, "nq"),
        ({"qs": np.zeros((0, 30))}, ValueError, "nq"),
        ({"path": "run.obj"}, ValueError, ".usdc"),
        ({"path": "nowhere/run.usd"}, FileNotFoundError, "nowhere"),
        ({"path": "folder.usd"}, IsADirectoryError, "folder"),
        ({"fps": 0.0}, ValueError, "fps"),
        ({"dt": -1.0}, ValueError, "dt"),
        ({"env_ids": [2]}, ValueError, "env_ids"),
    ],
)
def test_bad_input_is_told_and_leaves_no_file(model, tmp_path, change, error, says):
    (tmp_path / "folder.usd").mkdir()
    arguments = {"path": "run.usda", "qs": moving_positions(model, 2, 2)} | change
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(error, match=says):
        export_usd(model=model, **arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.usd"]


def test_a_failed_write_keeps_the_old_file(model, tmp_path, monkeypatch):
    path = tmp_path / "run.usda"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        export_usd(path, model, model.q0[None])
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_positions_that_are_not_finite_are_named(model, tmp_path):
    q = moving_positions(model, 3, 2)
    q[1, 1, 4] = np.nan
    with pytest.raises(ValueError, match=r"environment 1, \[1, 4\] is nan"):
        export_usd(tmp_path / "run.usda", model, q)
