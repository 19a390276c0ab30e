"""Trajectory files: numpy alone reads them, names and units are right, long runs are written in little memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from display_model import display_model

import warp_articulated as wa
from warp_articulated.model.naming import q_entries, qd_entries, u_entries
from warp_articulated.trajectory import is_trajectory


@pytest.fixture(scope="module")
def film():
    model = wa.load("laikago_feet")
    rng = np.random.default_rng(0)
    q, qd, u = (rng.normal(size=(rows, 3, n)) for rows, n in ((5, model.nq), (5, model.nv), (4, model.nu)))
    return wa.Trajectory(model, q, 2e-3, qd, u, env_ids=[4, 0, 7])


def test_saved_and_loaded(film, tmp_path):
    path = tmp_path / "run.npz"
    film.save(path)
    again = wa.Trajectory.load(path)
    for name in ("q", "qd", "u", "time", "env_ids"):
        np.testing.assert_array_equal(getattr(film, name), getattr(again, name))
    assert again.dt == 2e-3 and again.num_envs == 3
    assert str(again.model) == str(film.model) == str(wa.load(path))
    assert is_trajectory(path) and not is_trajectory("laikago")


def test_numpy_alone_reads_names_units_and_times(film, tmp_path):
    film.save(tmp_path / "run.npz")
    file = np.load(tmp_path / "run.npz")
    assert file["q_names"][:8].tolist() == [f"root.{c}" for c in ("x", "y", "z", "qx", "qy", "qz", "qw")] + ["FR_hip"]
    assert file["q_units"][:8].tolist() == ["m"] * 3 + ["1"] * 4 + ["rad"]
    assert file["qd_names"][3] == "root.wx" and file["qd_units"][[0, 3, 6]].tolist() == ["m/s", "rad/s", "rad/s"]
    assert file["u_names"].tolist() == list(film.model.drive_names) and set(file["u_units"].tolist()) == {"rad"}
    np.testing.assert_allclose(file["time"], np.arange(5) * 2e-3)


def test_names_of_every_joint_and_drive_type():
    model = display_model()
    q, qd = q_entries(model), qd_entries(model)
    assert (len(q), len(qd)) == (model.nq, model.nv)
    assert q[model.joint_q("neck_joint").start] == ("neck_joint", "m")
    tail = model.joint_q("tail_joint")
    assert q[tail] == [(f"tail_joint.q{c}", "1") for c in "xyzw"]
    assert qd[model.joint_v("tail_joint")] == [(f"tail_joint.w{c}", "rad/s") for c in "xyz"]
    assert u_entries(wa.load("cartpole")) == [("slider", "N")]
    assert u_entries(wa.load("ant"))[0] == ("hip_1", "N m / gear")


def test_one_environment_and_tensors_are_accepted(tmp_path):
    model = wa.load("cartpole")
    film = wa.Trajectory(model, torch.zeros(3, model.nq, requires_grad=True), 0.01)
    film.save(tmp_path / "run.npz")
    assert wa.Trajectory.load(tmp_path / "run.npz").q.shape == (3, 1, model.nq)
    assert "qd" not in np.load(tmp_path / "run.npz").files


def test_the_writer_makes_the_same_file_in_pieces(film, tmp_path):
    film.save(tmp_path / "whole.npz")
    with wa.TrajectoryWriter(
        tmp_path / "pieces.npz", film.model, 3, dt=2e-3, dtype="float64", env_ids=[4, 0, 7]
    ) as writer:
        writer.write(q=film.q[:2], qd=film.qd[:2], u=film.u[:2])
        writer.write(q=film.q[2:], qd=film.qd[2:], u=film.u[2:])
        assert not (tmp_path / "pieces.npz").exists()
    whole, pieces = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "pieces.npz")
    assert set(whole.files) == set(pieces.files)
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], pieces[name])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pieces.npz", "whole.npz"]


def test_the_writer_accepts_single_rows_and_positions_alone(film, tmp_path):
    with wa.TrajectoryWriter(tmp_path / "run.npz", film.model, 3, dt=2e-3, dtype="float64") as writer:
        for q in torch.tensor(film.q):
            writer.write(q=q)
    again = wa.Trajectory.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(again.q, film.q)
    assert again.qd is None and again.u is None


def test_the_writer_refuses_rows_that_make_no_trajectory(film, tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        wa.TrajectoryWriter(path, film.model, 3, dt=1e-3, dtype="int8")
    for calls, says in (
        ([], "no row was given"),
        ([{"q": film.q, "qd": film.qd[:3]}], "5 rows of q, but 3 of qd"),
        ([{"q": film.q, "u": film.u[:2]}], "5 rows of q, but 2 of u"),
        ([{"q": film.q}, {"q": film.q, "qd": film.qd}], "its first call got q"),
        ([{"q": film.q[:, :2]}], r"q has shape \(5, 2, 19\)"),
    ):
        with pytest.raises(ValueError, match=says), wa.TrajectoryWriter(path, film.model, 3, dt=1e-3) as writer:
            for call in calls:
                writer.write(**call)
    assert list(tmp_path.iterdir()) == []


def test_the_writer_writes_only_inside_its_block(film, tmp_path):
    writer = wa.TrajectoryWriter(tmp_path / "run.npz", film.model, 3, dt=1e-3)
    with pytest.raises(RuntimeError, match="only inside its `with` block"):
        writer.write(q=film.q, qd=film.qd, u=film.u)


def test_an_interrupted_writer_leaves_the_old_file(film, tmp_path):
    film.save(tmp_path / "run.npz")
    old = (tmp_path / "run.npz").read_bytes()
    with pytest.raises(KeyboardInterrupt), wa.TrajectoryWriter(tmp_path / "run.npz", film.model, 3, dt=1e-3) as writer:
        writer.write(q=film.q, qd=film.qd, u=film.u)
        raise KeyboardInterrupt
    assert (tmp_path / "run.npz").read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


FULL_DISK = """
import resource, signal, sys
import numpy as np
import warp_articulated as wa
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = wa.load("cartpole")
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))  # like a full disk, for this process only
rows = np.zeros((1000, 16, 2))
try:
    if sys.argv[2] == "writer":
        with wa.TrajectoryWriter(sys.argv[1], model, 16, dt=1e-3) as writer:
            writer.write(q=rows, qd=rows, u=rows[..., :1])
    else:
        wa.Trajectory(model, rows, 1e-3).save(sys.argv[1])
except OSError as error:
    print("told:", error)
"""


@pytest.mark.parametrize("way", ["writer", "save"])
def test_a_full_disk_gives_an_error_and_loses_nothing(tmp_path, way):
    path = tmp_path / "run.npz"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path, way], capture_output=True, text=True)
    assert "told: cannot write" in done.stdout and "run.npz" in done.stdout, done.stderr
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q": np.zeros((5, 3, 4))}, "q has shape"),
        ({"q": np.zeros((0, 3, 19))}, "no rows"),
        ({"qd": np.zeros((4, 3, 18))}, "qd has shape"),
        ({"u": np.zeros((5, 2, 12))}, "u has shape"),
        ({"q": np.full((5, 3, 19), np.nan)}, r"q\[0, 0, 0\] is nan; every entry must be finite"),
        ({"dt": 0.0}, "dt is 0.0"),
        ({"env_ids": np.full(3, np.nan)}, "env_ids"),
        ({"env_ids": [1]}, "env_ids"),
    ],
)
def test_arrays_that_do_not_fit_give_an_error(film, change, says):
    given = {name: getattr(film, name) for name in ("model", "q", "dt", "qd", "u", "env_ids")} | change
    with pytest.raises(ValueError, match=says):
        wa.Trajectory(**given)


def test_a_file_without_a_trajectory_gives_an_error(tmp_path):
    wa.load("cartpole").save(tmp_path / "model.npz")
    assert not is_trajectory(tmp_path / "model.npz")
    with pytest.raises(wa.ModelError, match="no trajectory in this file"):
        wa.Trajectory.load(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"q": np.full((5, 3, 19), np.inf)}, r"q\[0, 0, 0\] is inf"),
        ({"q": np.zeros((5, 3, 19), complex)}, "q has shape"),
        ({"q": np.array("text")}, "q has shape"),
        ({"qd": np.full((5, 3, 18), np.nan)}, r"qd\[0, 0, 0\] is nan"),
        ({"dt": np.array("text")}, "text"),
        ({"dt": np.array([1.0, 2.0])}, "run.npz"),
        ({"env_ids": np.array(["a", "b", "c"])}, "env_ids"),
        ({"model.drive_dof": np.full(12, 10**6)}, r"drive_dof\[0\] is 1000000"),
    ],
)
def test_a_crafted_file_gives_an_error(film, tmp_path, change, says):
    film.save(tmp_path / "good.npz")
    with np.load(tmp_path / "good.npz") as file:
        np.savez(tmp_path / "run.npz", **({**file} | change))
    with pytest.raises(wa.ModelError, match=says) as caught:
        wa.Trajectory.load(tmp_path / "run.npz")
    assert "run.npz" in str(caught.value)


def test_a_damaged_file_is_no_trajectory(film, tmp_path):
    path = tmp_path / "run.npz"
    film.save(path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-30] + bytes(30), b"PK\x05\x06" + bytes(18), b""):
        path.write_bytes(content)
        assert not is_trajectory(path)
        with pytest.raises(wa.ModelError, match=r"run\.npz"):
            wa.Trajectory.load(path)
