"""Log-Cholesky coordinates: round trip, and any coordinates give a physically valid body."""

import numpy as np
import pytest
import torch

import warp_articulated as wa


def test_round_trip_of_a_robot():
    model = wa.load("laikago_feet")
    body = [torch.tensor(x) for x in (model.mass, model.com, model.inertia)]
    for before, after in zip(body, wa.from_log_cholesky(wa.log_cholesky(*body))):
        assert torch.allclose(before, after, rtol=1e-12, atol=1e-14)


def test_any_coordinates_give_a_valid_body():
    x = 2.0 * torch.randn(100, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mass, _, inertia = wa.from_log_cholesky(x)
    moments = torch.linalg.eigvalsh(inertia)
    assert (mass > 0).all() and (moments[:, 0] > 0).all()
    assert (moments[:, 0] + moments[:, 1] >= moments[:, 2] * (1 - 1e-9)).all()


def test_coordinates_are_the_cholesky_factor_of_the_pseudo_inertia():
    """Against the definition: U U^T = [[S, h], [h^T, m]] with the moments of a point cloud."""
    chance = np.random.default_rng(1)
    points, masses = chance.normal(size=(20, 3)), chance.uniform(0.1, 1.0, 20)
    whole = np.c_[points, np.ones(20)]
    pseudo_inertia = (masses[:, None] * whole).T @ whole
    com = masses @ points / masses.sum()
    about = points - com
    inertia = sum(m * (r @ r * np.eye(3) - np.outer(r, r)) for m, r in zip(masses, about))
    x = wa.log_cholesky(*(torch.tensor(v) for v in (masses.sum(), com, inertia))).numpy()
    U = np.exp(x[0]) * np.array([
        [np.exp(x[1]), x[4], x[6], x[7]], [0, np.exp(x[2]), x[5], x[8]], [0, 0, np.exp(x[3]), x[9]], [0, 0, 0, 1.0],
    ])  # fmt: skip
    np.testing.assert_allclose(U @ U.T, pseudo_inertia, rtol=1e-12, atol=1e-12)


def test_invalid_body_is_named():
    inertia = torch.eye(3, dtype=torch.float64).repeat(3, 1, 1)
    mass, com = torch.ones(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    inertia[1, 0, 0] = 2.5
    with pytest.raises(ValueError, match=r"body 1 has no log-Cholesky coordinates: its mass must be positive"):
        wa.log_cholesky(mass, com, inertia)
    with pytest.raises(ValueError, match=r"body 2 has no"):
        wa.log_cholesky(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64), com, torch.eye(3).double().expand(3, 3, 3))
