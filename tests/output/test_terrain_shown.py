"""Height fields and block fields in USD, pictures and the viewer."""

import numpy as np
import pytest
import torch
from pxr import UsdGeom, UsdPhysics
from small_models import one_body
from stages import complaints, open_stage

import warp_articulated as wa
from warp_articulated import terrain
from warp_articulated.model import Shape, ShapeType
from warp_articulated.show.layout import field_mesh
from warp_articulated.show.viewer import geometry, record_html

RED = (1.0, 0.0, 0.0, 1.0)
FIELDS = {"heights": terrain.rough((2, 3), seed=1), "blocks": terrain.stairs((3, 3), rise=0.1, run=0.25, width=2.0)}


def ball_on(field):
    ball = Shape(ShapeType.SPHERE, 0, np.array([0.1]), color=RED)
    return field.under(one_body(ball, ground=True))


@pytest.mark.parametrize("name", FIELDS)
def test_the_mesh_of_a_field_has_its_heights_and_walls(name):
    field = FIELDS[name]
    corners, faces = field_mesh(field.shape())
    p, q, r = (corners[faces[:, k]] for k in range(3))
    normal = np.cross(q - p, r - p) / 2
    area = np.linalg.norm(normal, axis=1)
    assert (area > 0).all() and (normal[:, 2] >= -1e-12).all()
    rows, columns = field.heights.shape
    cells = rows * columns if field.blocks else (rows - 1) * (columns - 1)
    assert abs(normal[:, 2].sum() - cells * field.spacing[0] * field.spacing[1]) < 1e-9
    if field.blocks:
        steps = abs(np.diff(field.heights, axis=0)).sum() * field.spacing[1]
        steps += abs(np.diff(field.heights, axis=1)).sum() * field.spacing[0]
        assert abs(area[abs(normal[:, 2]) < 1e-12].sum() - steps) < 1e-9
    middle = torch.as_tensor((p + q + r)[normal[:, 2] > 1e-12] / 3)
    torch.testing.assert_close(field.height(middle[:, 0], middle[:, 1]), middle[:, 2], rtol=0, atol=1e-9)


@pytest.mark.parametrize("layout", ["hierarchy", "instancer"])
@pytest.mark.parametrize("name", FIELDS)
def test_a_usd_file_has_the_field_as_a_mesh_that_all_environments_share(name, layout, tmp_path):
    model = ball_on(FIELDS[name])
    q = np.tile(model.q0, (2, 3, 1))
    q[..., 0] += [0.0, 0.5, 1.0]
    path = tmp_path / "field.usda"
    wa.export_usd(path, model, q, layout=layout, physics=layout == "hierarchy")
    stage = open_stage(path)
    meshes = [UsdGeom.Mesh(prim) for prim in stage.Traverse() if prim.IsA(UsdGeom.Mesh)]
    corners, faces = field_mesh(model.field)
    mesh = meshes[0]
    np.testing.assert_allclose(np.array(mesh.GetPointsAttr().Get()), corners, atol=1e-6)
    assert len(mesh.GetFaceVertexCountsAttr().Get()) == len(faces)
    if layout == "hierarchy":
        assert UsdPhysics.MeshCollisionAPI(mesh).GetApproximationAttr().Get() == "none"
        places = [UsdGeom.XformCache().GetLocalToWorldTransform(m.GetPrim()).ExtractTranslation() for m in meshes]
        assert len(meshes) == 3 and all(place == places[0] for place in places)
        assert [m.ComputeVisibility() for m in meshes] == ["inherited", "invisible", "invisible"]
    else:
        instancer = next(UsdGeom.PointInstancer(p) for p in stage.Traverse() if p.IsA(UsdGeom.PointInstancer))
        assert len(instancer.GetPositionsAttr().Get(0)) == 3 + 1
    assert complaints(stage) == []


def red(model, q, camera):
    picture = wa.render(model, q, size=(120, 90), camera=camera).astype(int)
    return int((picture[..., 0] > 2 * picture[..., 1:].max(-1)).sum())


@pytest.mark.parametrize("blocks", [False, True])
def test_a_picture_shows_a_field_in_front_of_what_it_hides(blocks):
    heights = np.zeros((21, 21))
    camera = wa.Camera((3.0, 0.0, 0.3), (0.0, 0.0, 0.1))
    counts = []
    for wall in (0.0, 0.15, 0.4):
        heights[14] = wall  # at x = 0.4, between the camera and the ball
        model = ball_on(terrain.Field(heights, (0.1, 0.1), blocks))
        q = model.q0.copy()
        q[2] = 0.1
        counts.append(red(model, q, camera))
    assert counts[0] > counts[1] > counts[2] == 0


def test_environments_of_a_picture_share_the_field():
    model = ball_on(terrain.slope(10.0, (6, 6)))
    q = np.tile(model.q0, (3, 1))
    q[:, 1], q[:, 2] = [-0.5, 0.0, 0.5], 0.15
    camera = wa.Camera((4.0, 0.0, 1.5), (0.0, 0.0, 0.2))
    assert red(model, q, camera) > 2.5 * red(model, q[:1], camera) > 0


@pytest.mark.parametrize("name", FIELDS)
def test_the_viewer_draws_the_field_once(name, tmp_path):
    model = ball_on(FIELDS[name])
    groups = geometry.group_shapes(model, model.shapes)
    mesh = next(g.mesh for g in groups if g.shapes[0] is model.field)
    corners, faces = field_mesh(model.field)
    assert np.array_equal(mesh.vertices, corners) and np.array_equal(mesh.faces, faces)
    path = tmp_path / "field.html"
    record_html(path, model, np.tile(model.q0, (3, 2, 1)), dt=0.1)
    assert path.stat().st_size > 10_000
