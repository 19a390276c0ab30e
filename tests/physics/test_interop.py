"""Arrays of other libraries are exchanged without copies."""

import warnings

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


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


def misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    inside = memory[1:].view(array.dtype).reshape(array.shape)
    inside[:] = array
    return inside


LAYOUTS = {  # the same numbers at other places in memory
    "read-only": read_only,
    "reversed": lambda array: array[::-1].copy()[::-1],
    "reversed along the last axis": lambda array: array[..., ::-1].copy()[..., ::-1],
    "every second one": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "by columns": np.asfortranarray,
    "field of a record": lambda array: np.rec.fromarrays([np.zeros(array.shape, np.uint8), array], names="a, b")["b"],
    "misaligned": misaligned,
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "shared by stride zero": lambda array: np.broadcast_to(array[:1], array.shape),  # all environments are equal here
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_arrays_of_any_layout_are_taken_as_what_they_say(sim, layout):
    q, qd, u = (x.numpy() for x in (*sim.initial_state(), sim.initial_control()))
    qd += np.linspace(-1, 1, qd.shape[1], dtype=qd.dtype)
    put = LAYOUTS[layout]
    np.testing.assert_array_equal(put(qd), qd)
    meant, found = sim.step(q, qd, u), sim.step(put(q), put(qd), put(u))
    assert torch.equal(meant[0], found[0]) and torch.equal(meant[1], found[1])
    us = np.repeat(u[None], 3, axis=0)
    assert torch.equal(sim.rollout(q, qd, us)[0], sim.rollout(q, qd, put(us))[0])
    assert torch.equal(sim.link_poses(q), sim.link_poses(put(q)))
    for name in ("mass", "com", "inertia", "kp"):
        value = sim.params[name].numpy() * np.float32(1.1)
        meant = sim.step(q, qd, u, params={name: torch.tensor(value)})
        found = sim.step(q, qd, u, params={name: put(value)})
        assert torch.equal(meant[1], found[1]), name


def test_reversed_environments_are_reversed(sim):
    q, qd = (x.numpy() for x in sim.initial_state())
    q[1, 2] += 0.5
    assert torch.equal(sim.step(q[::-1], qd)[0], sim.step(q[::-1].copy(), qd)[0])
    assert not torch.equal(sim.step(q[::-1], qd)[0], sim.step(q, qd)[0])


def test_a_reversed_array_of_another_library_is_copied(sim):
    class Reversed(Foreign):
        strides = (-4,)

        def copy(self):
            return Foreign(self.array.copy())

    q, qd = (x.numpy() for x in sim.initial_state())
    q[1, 2] += 0.5
    assert torch.equal(sim.step(Reversed(q[::-1]), qd)[0], sim.step(q[::-1].copy(), qd)[0])


@pytest.mark.parametrize("kind", [float, int, np.float32, np.float64, np.int64, np.array, torch.tensor, lambda x: [x]])
def test_a_parameter_may_be_any_kind_of_number(sim, kind):
    q, qd = sim.initial_state()
    meant = sim.step(q, qd, params={"friction": torch.tensor(2.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of memory that it cannot write to
        assert torch.equal(sim.step(q, qd, params={"friction": kind(2)})[1], meant[1])


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
