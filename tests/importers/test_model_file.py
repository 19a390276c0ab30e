"""A model saved and loaded is the same to the last bit; a damaged file gives an error."""

import struct
import zipfile
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
        ({"model.shape.link": np.ones(99, int)}, "shape.link has shape"),
    ],
)
def test_a_damaged_file_gives_an_error(arrays, tmp_path, change, says):
    path = tmp_path / "model.npz"
    np.savez(path, **{k: v for k, v in (arrays | change).items() if v is not None})
    with pytest.raises(wa.ModelError, match=says) as caught:
        wa.load(path)
    assert str(path) in str(caught.value)


def entry(place, value):
    """Changes one number of an array."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


CRAFTED = [  # array, what is done to it, what the error says; most of them ended the process or were simulated
    ("drive_dof", entry(0, 10**6), r"drive_dof\[0\] is 1000000"),
    ("drive_dof", entry(0, -1), r"drive_dof\[0\] is -1"),
    ("drive_dof", entry(0, 0), r"drive_dof\[0\] is 0, which is not a revolute"),  # a free joint's
    ("q_start", entry(1, 10**6), "q_start does not fit"),
    ("v_start", entry(1, -5), "v_start does not fit"),
    ("q0", lambda a: a[:-1], "which does not fit the rest"),
    ("parent", entry(1, 7), "has parent 7"),
    ("parent", entry(1, -2), "has parent -2"),
    ("parent", lambda a: a.astype(float), "parent is of type float64; it must be int"),
    ("joint_of_link", entry(1, 0), "joint_of_link must name each"),
    ("joint_of_link", entry(1, 10**6), "joint_of_link must name each"),
    ("joint_names", lambda a: np.append(a, "more"), "joint_of_link must name each"),
    ("joint_names", lambda a: np.full_like(a, "same"), "two joints are called 'same'"),
    ("link_names", entry(1, ""), "has no name"),
    ("link_names", entry(1, "\ud800"), "link_names has characters"),
    ("joint_type", entry(1, 9), r"joint_type\[1\] is 9"),
    ("drive_type", entry(0, -1), r"drive_type\[0\] is -1"),
    ("mass", entry(2, -1.0), "link '.*': the mass is -1"),
    ("mass", entry(2, np.nan), "the mass is nan"),
    ("mass", lambda a: a.astype(complex), "mass is of type complex128"),
    ("mass", lambda a: np.zeros_like(a), "nothing resists joint|has no mass"),
    ("inertia", lambda a: -a, "negative principal moment"),
    ("com", entry((1, 0), np.inf), "com is"),
    ("joint_pos", entry((1, 0), 1e200), "pos is"),
    ("axis", entry(1, 0.0), "axis has length 0"),
    ("axis", entry(1, [3.0, 0.0, 0.0]), "axis has length 3"),
    ("joint_quat", entry(1, 0.0), "joint_quat has length 0"),
    ("joint_quat", entry(1, np.nan), "joint_quat has length nan"),
    ("frame_pos", entry((0, 0), np.nan), "frame_pos is"),
    ("armature", entry(4, -1.0), "the armature is -1"),  # in the middle of the free joint's dofs
    ("damping", entry(3, np.nan), "the damping is nan"),
    ("spring_ref", entry(7, np.inf), "reference is inf"),
    ("lower", entry(7, 99.0), "lower limit 99 is above"),
    ("lower", entry(7, np.inf), "lower limit inf"),
    ("upper", entry(7, np.nan), "upper limit nan"),
    ("q0", entry(0, np.nan), "q0 is"),
    ("q0", entry(slice(3, 7), 0.0), "quaternion must not be zero"),
    ("u0", entry(0, np.inf), "u0 is inf"),
    ("gear", entry(0, np.nan), "gear is nan"),
    ("gear", entry(0, 0.0), "gear is 0"),
    ("kp", entry(0, -1.0), "kp is -1"),
    ("kd", entry(0, np.inf), "kd is inf"),
    ("effort", entry(0, np.nan), "effort limit is nan"),
    ("gravity", entry(2, np.nan), "gravity is"),
    ("control_range", entry(0, [1.0, -1.0]), "control range is 1 to -1"),
    ("control_range", entry(0, np.nan), "control range is nan"),
    ("frame_link", entry(-1, 10**6), "first frames must be those of the links"),
    ("frame_link", entry(0, 1), "first frames must be those of the links"),
    ("frame_quat", entry(0, 0.0), "needs a finite place and a quaternion"),
    ("frame_offset", entry((0, 0), np.inf), "needs a finite place and a quaternion"),
    ("pairs", entry((0, 0), 10**6), "a pair is of the shapes"),
    ("pairs", entry((0, 0), -1), "a pair is of the shapes"),
    ("pairs", lambda a: a[:, ::-1], "which cannot collide"),
    ("pairs", entry(0, [0, 0]), "cannot collide|same link"),
    ("pair_friction", entry(0, np.nan), "pair_friction must"),
    ("pair_restitution", entry(0, -1.0), "pair_restitution must"),
    ("name", lambda a: np.array(5), "name is of type int64"),
    ("version", lambda a: np.array("x"), "version is of type"),
    ("version", lambda a: np.array([1, 1]), "format"),
    ("shape.link", entry(0, 10**6), "is on link 1000000"),
    ("shape.link", entry(0, -2), "is on link -2"),
    ("shape.link", entry(-1, 0), "a plane must be fixed to the world"),
    ("shape.type", entry(0, 77), "shape 0 is of type 77"),
    ("shape.pos", entry((0, 0), np.nan), "pos is"),
    ("shape.quat", entry(0, 0.0), "its quaternion is zero"),
    ("shape.size", entry(0, -1.0), "the size of this"),
    ("shape.size", entry(0, np.inf), "the size of this"),
    ("shape.size_count", entry(0, 2**62), "size have the wrong length"),
    ("shape.friction", entry(0, np.nan), "the friction is nan"),
    ("shape.restitution", entry(0, -1.0), "the restitution is -1"),
    ("shape.color", lambda a: a * np.nan, "color is"),
    ("shape.collide", lambda a: a.astype(int), "shape.collide is of type"),
    ("shape.vertices", entry((0, 0), np.nan), "the vertices of a mesh"),
    ("shape.faces", entry((0, 0), 10**6), "the faces of a mesh"),
    ("shape.faces", entry((0, 0), -1), "the faces of a mesh"),
    ("shape.faces", lambda a: a.astype(float), "shape.faces is of type"),
]


@pytest.fixture(scope="module")
def robot_arrays(tmp_path_factory):
    """A free robot with position drives, and a mesh, on the ground."""
    from warp_articulated.model.file import model_arrays

    folder = tmp_path_factory.mktemp("mesh")
    (folder / "a.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n")
    mass = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    shapes = ['<sphere radius="1"/>', *['<mesh filename="a.obj"/>'] * 2]
    touch = "<collision><geometry>{}</geometry></collision>"
    paint = '<visual><geometry/><material name="m"><color rgba="1 0 0 1"/></material></visual>'
    links = [f'<link name="{name}">{mass}{touch.format(x)}{paint}</link>' for name, x in zip("abc", shapes)]
    ends = '<parent link="{0}"/><child link="{1}"/><limit lower="-1" upper="1"/>'
    joint = f'<joint name="{{0}}{{1}}" type="revolute">{ends}<axis xyz="0 1 0"/></joint>'
    (folder / "r.urdf").write_text(
        "\n".join(["<robot name='r'>", *links, joint.format("a", "b"), joint.format("b", "c"), "</robot>"])
    )
    return model_arrays(wa.load(folder / "r.urdf", floating=True, drive="position", kp=10.0))


@pytest.mark.parametrize(("name", "change", "says"), CRAFTED, ids=range(len(CRAFTED)))
def test_a_crafted_file_gives_an_error_before_anything_reaches_a_kernel(robot_arrays, tmp_path, name, change, says):
    path = tmp_path / "model.npz"
    changed = robot_arrays | {f"model.{name}": change(robot_arrays[f"model.{name}"])}
    np.savez(path, **changed)
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


def test_damaged_archives_give_an_error(arrays, tmp_path):
    path = tmp_path / "model.npz"
    np.savez_compressed(path, **arrays)
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):  # headers, compressed data, directory: zlib.error, BadZipFile, struct.error
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            wa.load(path)
        except wa.ModelError as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("shape", [(10**12,), (1 << 62, 4), (-1,), (3, -2, -2), ("x",)])
def test_a_header_that_asks_for_terabytes_gives_an_error(arrays, tmp_path, shape):
    path = tmp_path / "model.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if name != "model.mass"})
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model.mass.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(16))
    with pytest.raises(wa.ModelError, match=r"model\.npz: .*damaged"):
        wa.load(path)


def test_a_small_file_that_unpacks_to_gigabytes_is_not_read(arrays, tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, **arrays)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("model.x.npy", "w") as entry:
        for _ in range(1100):
            entry.write(bytes(1 << 20))
    assert path.stat().st_size < 2_000_000
    with pytest.raises(wa.ModelError, match=r"would take \d+ bytes"):
        wa.load(path)
