"""retract and difference of positions, against MuJoCo and against finite differences."""

import mujoco
import numpy as np
import pytest
import torch

import warp_articulated as wa
from warp_articulated.geometry.rotations import quat_to_matrix

XML = """
<mujoco>
  <worldbody>
    <body>
      <freejoint/>
      <geom size="0.1"/>
      <body pos="0.2 0 0">
        <joint type="ball"/><geom size="0.1"/>
        <body pos="0.2 0 0"><joint type="hinge"/><geom size="0.1"/></body>
      </body>
    </body>
    <body pos="0 1 0"><joint type="slide"/><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""
TURNS = ((3, 3), (7, 6))  # start of a quaternion in q, and of an angular velocity in qd


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("tangent") / "mixed.xml"
    path.write_text(XML)
    return wa.load(path)


def positions(model, n, seed):
    q = np.random.default_rng(seed).normal(size=(n, model.nq))
    for k, _ in TURNS:
        q[:, k : k + 4] /= np.linalg.norm(q[:, k : k + 4], axis=1, keepdims=True)
    return q


def moved_by_mujoco(model, q, d):
    """mj_integratePos, which uses wxyz and rotations in body axes; ours are in the parent's axes."""
    m = mujoco.MjModel.from_xml_string(XML)
    qpos, local = q.copy(), d.copy()
    for k, j in TURNS:
        qpos[k : k + 4] = np.roll(q[k : k + 4], 1)
        local[j : j + 3] = quat_to_matrix(q[k : k + 4]).T @ d[j : j + 3]
    mujoco.mj_integratePos(m, qpos, local, 1.0)
    for k, _ in TURNS:
        qpos[k : k + 4] = np.roll(qpos[k : k + 4], -1)
    return qpos


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 1.0])
def test_retract_matches_mujoco(mixed, size):
    q, d = positions(mixed, 5, 0), size * np.random.default_rng(1).normal(size=(5, mixed.nv))
    ours = wa.retract(mixed, torch.tensor(q), torch.tensor(d)).numpy()
    theirs = np.array([moved_by_mujoco(mixed, *row) for row in zip(q, d)])
    assert np.abs(ours - theirs).max() < 1e-14  # rounding of a dozen operations on numbers near one


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 3e-6)])
@pytest.mark.parametrize("size", [0.0, 1e-6, 1e-2, 0.8])
def test_difference_is_the_inverse_of_retract(mixed, dtype, tolerance, size):
    q = torch.tensor(positions(mixed, 20, 2), dtype=dtype)
    d = size * torch.rand(20, mixed.nv, generator=torch.Generator().manual_seed(0)).to(dtype)
    again = wa.difference(mixed, q, wa.retract(mixed, q, d))
    assert (again - d).abs().max() < tolerance  # rounding of q


def test_difference_of_opposite_quaternions_is_zero(mixed):
    q = torch.tensor(positions(mixed, 3, 3))
    other = q.clone()
    for k, _ in TURNS:
        other[:, k : k + 4] *= -1
    assert wa.difference(mixed, q, other).abs().max() < 1e-15


def test_both_are_differentiable_also_at_zero(mixed):
    q = torch.tensor(positions(mixed, 2, 4))
    for size in (0.0, 0.5):
        d = (size * torch.ones(2, mixed.nv, dtype=q.dtype)).requires_grad_()
        end = wa.retract(mixed, q, 0.3 * torch.ones_like(d)).detach().requires_grad_()
        if size:
            assert torch.autograd.gradcheck(lambda d: wa.retract(mixed, q, d), d)
            assert torch.autograd.gradcheck(lambda e: wa.difference(mixed, q, e), end)
        there_and_back = wa.difference(mixed, q, wa.retract(mixed, q, d))
        (slope,) = torch.autograd.grad(there_and_back.sum(), d)
        assert torch.allclose(slope, torch.ones_like(slope), atol=1e-9)  # they are inverse to each other


def test_leading_dimensions_broadcast(mixed):
    q = torch.tensor(positions(mixed, 4, 5))
    d = torch.zeros(3, 1, mixed.nv, dtype=q.dtype)
    assert wa.retract(mixed, q, d).shape == (3, 4, mixed.nq)
    assert wa.difference(mixed, q[:1], q).shape == (4, mixed.nv)
