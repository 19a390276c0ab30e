"""Arrays of other libraries are exchanged without copies."""

import numpy as np
import pytest
import torch
import warp as wp

import warp_articulated as wa


@pytest.fixture(scope="module")
def sim():
    return wa.Simulator(wa.load("laikago_feet"), num_envs=2)


class Foreign:
    """An array that only supports DLPack, like those of JAX or CuPy."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [np.asarray, wp.from_torch, Foreign])
def test_states_and_controls_of_other_libraries(sim, kind):
    q, qd = sim.initial_state()
    u = sim.initial_control()
    meant = sim.step(q, qd, u)
    found = sim.step(kind(q), kind(qd), kind(u))
    assert torch.equal(meant[0], found[0]) and torch.equal(meant[1], found[1])
    us = u.repeat(3, 1, 1)
    assert torch.equal(sim.rollout(q, qd, us)[0], sim.rollout(kind(q), kind(qd), kind(us))[0])
    assert torch.equal(sim.link_poses(q), sim.link_poses(kind(q)))


def test_read_only_arrays_are_accepted(sim):
    q, qd = (x.numpy() for x in sim.initial_state())
    q.setflags(write=False)
    assert sim.step(q, qd)[0].isfinite().all()


def test_results_are_shared_without_a_copy(sim):
    q, _ = sim.step(*sim.initial_state())
    assert np.from_dlpack(q).ctypes.data == q.data_ptr()
    assert q.numpy().ctypes.data == q.data_ptr()
    assert wp.from_dlpack(q).ptr == q.data_ptr()


def test_parameters_as_numpy(sim):
    q, qd = sim.initial_state()
    mass = 1.5 * sim.params["mass"].numpy()
    found = sim.step(q, qd, params={"mass": mass})
    assert torch.equal(found[1], sim.step(q, qd, params={"mass": torch.tensor(mass)})[1])


def test_wrong_precision_is_an_error(sim):
    q, qd = sim.initial_state()
    with pytest.raises(TypeError, match=r"q is float64; this simulator computes in float32: convert it\."):
        sim.step(q.numpy().astype(float), qd)
    with pytest.raises(TypeError, match="q is a list; it must be a torch tensor"):
        sim.step(q.tolist(), qd)
