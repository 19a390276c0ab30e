"""A model saved and loaded is the same to the last bit; a damaged file gives an error."""

from dataclasses import fields

import numpy as np
import pytest
from contact_room import room_model
from display_model import display_model
from robots import example_robot

import warp_articulated as wa
from warp_articulated.model import Shape


def assert_same(a, b):
    assert str(a) == str(b)
    for field in fields(wa.Model):
        if field.name != "shapes":
            x, y = getattr(a, field.name), getattr(b, field.name)
            np.testing.assert_array_equal(x, y, err_msg=field.name)
            if isinstance(x, np.ndarray):
                assert x.dtype == y.dtype and not y.flags.writeable, field.name
    assert len(a.shapes) == len(b.shapes)
    for s, t in zip(a.shapes, b.shapes):
        for field in fields(Shape):
            x, y = getattr(s, field.name), getattr(t, field.name)
            assert (x is None) == (y is None), field.name
            if x is not None:
                np.testing.assert_array_equal(x, y, err_msg=field.name)


@pytest.mark.parametrize("name", ["laikago", "panda_throw", "ant", "room", "display", "talos"])
def test_a_loaded_model_is_the_saved_one(name, tmp_path):
    if name == "talos":  # meshes, mimic joints, many notes
        model = wa.load(example_robot("talos_reduced"), floating=True)
    else:
        model = {"room": room_model, "display": display_model}.get(name, lambda: wa.load(name))()
    path = tmp_path / "model.npz"
    model.save(path)
    assert_same(model, wa.load(path))
    assert_same(model, wa.Model.load(str(path)))
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_a_simulator_of_the_loaded_model_gives_the_same_bits(tmp_path):
    model = wa.load("laikago_feet")
    model.save(tmp_path / "model.npz")
    ends = []
    for m in (model, wa.load(tmp_path / "model.npz")):
        sim = wa.Simulator(m, num_envs=2)
        ends.append(sim.rollout(*sim.initial_state(), sim.initial_control().repeat(20, 1, 1))[0][-1].numpy())
    np.testing.assert_array_equal(*ends)


@pytest.fixture(scope="module")
def arrays():
    from warp_articulated.model.file import model_arrays

    return model_arrays(wa.load("cartpole"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model.mass": None}, "lacks mass"),
        ({"model.shape.size": None}, "lacks shape.size"),
        ({"model.mass": np.ones(7)}, r"mass has shape \(7,\)"),
        ({"model.com": np.ones((2, 2))}, "com has shape"),
        ({"model.mass": np.array(["a", "b"])}, "mass"),
        ({"model.version": np.array(99)}, "format 99"),
        ({"model.version": None}, "no model in this file"),
        ({"model.shape.size": np.ones(99)}, "size"),
        ({"model.shape.link": np.ones(99, int)}, "length"),
    ],
)
def test_a_damaged_file_gives_an_error(arrays, tmp_path, change, says):
    path = tmp_path / "model.npz"
    np.savez(path, **{k: v for k, v in (arrays | change).items() if v is not None})
    with pytest.raises(wa.ModelError, match=says) as caught:
        wa.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_npz_gives_an_error(tmp_path):
    for content in (b"", b"nonsense", b"PK\x03\x04 broken"):
        (tmp_path / "model.npz").write_bytes(content)
        with pytest.raises(wa.ModelError, match=r"not an \.npz file|cannot be read"):
            wa.load(tmp_path / "model.npz")
    np.savez(tmp_path / "pickled.npz", **{"model.version": np.array({"a": 1}, object)})
    with pytest.raises(wa.ModelError, match=r"not an \.npz file|cannot be read"):
        wa.load(tmp_path / "pickled.npz")
    with pytest.raises(wa.ModelError, match="no such file"):
        wa.Model.load(tmp_path / "nothing.npz")


def test_options_of_importers_do_not_apply(tmp_path):
    wa.load("cartpole").save(tmp_path / "model.npz")
    with pytest.raises(wa.ModelError, match="'floating' does not apply"):
        wa.load(tmp_path / "model.npz", floating=True)
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        wa.load("cartpole").save(tmp_path / "model.json")
