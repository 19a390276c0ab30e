"""UsdWriter: chunks give the same file as one piece, and any failure leaves the old file unchanged."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from display_model import display_model, moving_positions
from stages import complaints, instances, open_stage, pose_in_stage

from warp_articulated.geometry.kinematics import batch_body_poses
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.show.layout import automatic_spacing
from warp_articulated.show.usd import UsdWriter, export_usd, hierarchy, spool, writer

LAYOUTS = ("hierarchy", "instancer")


@pytest.fixture(scope="module")
def model():
    return display_model()


def turning_positions(model, frames):
    """A base that keeps turning, so that its quaternion passes both signs; (frames, 2, nq)."""
    q = np.tile(model.q0, (frames, 2, 1))
    angle = np.linspace(0.0, 12.0, frames)
    q[..., 3:7] = np.stack([0 * angle, 0 * angle, np.sin(angle / 2), np.cos(angle / 2)], -1)[:, None]
    q[::2, :, 3:7] *= -1.0  # and the input jumps between them
    return q


def stored(stage, layout, frame):
    """World positions and quaternions xyzw of all links, (envs * nl, 3) and (envs * nl, 4)."""
    if layout == "instancer":
        return instances(stage, frame)
    positions, quats = [], []
    for env in [p for p in stage.GetDefaultPrim().GetChildren() if p.GetName().startswith("env_")]:
        offset = np.array(env.GetAttribute("xformOp:translate").Get())
        for link in [p for p in env.GetChildren() if p.GetName() not in ("joints", "world")]:
            positions.append(np.array(link.GetAttribute("xformOp:translate").Get(frame)) + offset)
            quat = link.GetAttribute("xformOp:orient").Get(frame)
            quats.append([*quat.GetImaginary(), quat.GetReal()])
    return np.array(positions), np.array(quats)


@pytest.mark.parametrize("suffix", ["usda", "usdc"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_make_the_same_stage_as_one_piece(model, tmp_path, monkeypatch, layout, suffix):
    q = moving_positions(model, 23, 2)
    export_usd(tmp_path / f"whole.{suffix}", model, q, layout=layout)
    # poses in pieces of 3 frames, spooled to disk at once, saved after every link
    monkeypatch.setattr(writer, "CHUNK_BYTES", 3 * 2 * model.num_links * 7 * 8)
    monkeypatch.setattr(spool, "IN_MEMORY", 1)
    monkeypatch.setattr(hierarchy, "SAMPLES_PER_SAVE", 1)
    with UsdWriter(tmp_path / f"parts.{suffix}", model, 2, layout=layout) as parts:
        for piece in (q[:1], q[1:8], q[8:10], q[10:]):
            parts.write(piece)
    whole, parts = open_stage(tmp_path / f"whole.{suffix}"), open_stage(tmp_path / f"parts.{suffix}")
    assert parts.GetEndTimeCode() == 22
    assert complaints(parts) == []
    for frame in np.arange(0.0, 22.25, 0.5):  # also between the frames, across borders of chunks
        for one, two in zip(stored(whole, layout, frame), stored(parts, layout, frame)):
            np.testing.assert_array_equal(one, two)
    for frame in range(23):
        expected, _ = batch_body_poses(model, q[frame])
        got = stored(parts, layout, frame)[0].reshape(2, -1, 3)
        np.testing.assert_allclose(got[0] - got[0, 0], expected[0] - expected[0, 0], atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quaternions_do_not_jump_between_frames_or_chunks(model, tmp_path, layout):
    q = turning_positions(model, 60)
    with UsdWriter(tmp_path / "run.usdc", model, 2, layout=layout) as out:
        for start in range(0, 60, 7):
            out.write(q[start : start + 7])
    stage = open_stage(tmp_path / "run.usdc")
    quats = np.array([stored(stage, layout, frame)[1] for frame in range(60)])
    assert np.sum(quats[1:] * quats[:-1], -1).min() > 0.9
    _, expected = batch_body_poses(model, q)
    np.testing.assert_allclose(quat_to_matrix(quats), quat_to_matrix(expected).reshape(60, -1, 3, 3), atol=1e-5)


def test_default_spacing_depends_on_the_first_frame(model, tmp_path):
    q = moving_positions(model, 4, 2)
    q[2:, 0, :3] += 50.0
    export_usd(tmp_path / "run.usdc", model, q)
    stage = open_stage(tmp_path / "run.usdc")
    places = [pose_in_stage(stage.GetPrimAtPath(f"/World/env_{e}"), 0, stage.GetDefaultPrim())[1] for e in (0, 1)]
    assert np.linalg.norm(places[1] - places[0]) == pytest.approx(automatic_spacing(model, q[0]))
    ground = np.array(stage.GetPrimAtPath("/World/ground/surface").GetAttribute("points").Get())
    assert ground.max() > 50.0  # it reaches as far as the robot ran


def test_a_second_export_replaces_the_first_even_if_it_is_open(model, tmp_path):
    path = tmp_path / "run.usdc"
    export_usd(path, model, moving_positions(model, 2, 1))
    stage = open_stage(path)
    export_usd(path, model, moving_positions(model, 7, 1))
    assert open_stage(path).GetEndTimeCode() == 6
    assert stage.GetEndTimeCode() == 6
    assert [p.name for p in tmp_path.iterdir()] == ["run.usdc"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_exception_in_the_block_leaves_the_old_file(model, tmp_path, layout, interruption):
    path = tmp_path / "run.usda"
    path.write_text("old")
    with pytest.raises(interruption):
        with UsdWriter(path, model, 2, layout=layout) as out:
            out.write(moving_positions(model, 3, 2))
            raise interruption
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.usda"]


def test_an_error_of_the_caller_is_not_reported_as_one_of_the_file(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        with UsdWriter(tmp_path / "run.usda", model, 1):
            open(tmp_path / "elsewhere")


def test_a_failed_move_keeps_the_old_file(model, tmp_path, monkeypatch):
    path = tmp_path / "run.usda"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=rf"cannot write {path}: No space left on device\.$"):
        export_usd(path, model, model.q0[None])
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


FULL_DISK = """
import resource, signal, sys
from display_model import display_model, moving_positions
from warp_articulated.usd import export_usd
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes then fail, as they do on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
model = display_model()
for path in sys.argv[1:]:
    for layout in ("hierarchy", "instancer"):
        try:
            export_usd(path, model, moving_positions(model, 400, 8), layout=layout)
        except OSError as error:
            print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_gives_an_error_and_loses_nothing(tmp_path):
    paths = [tmp_path / "run.usda", tmp_path / "run.usdc"]
    for path in paths:
        path.write_text("old")
    command = [sys.executable, "-c", FULL_DISK, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1] / "helpers")
    said = [f"cannot write {path}: File too large." for path in paths for _ in LAYOUTS]
    assert done.stdout.splitlines() == said, done.stderr
    assert [path.read_text() for path in paths] == ["old", "old"]
    assert sorted(tmp_path.iterdir()) == paths


def test_a_writer_refuses_frames_that_do_not_fit(model, tmp_path):
    path = tmp_path / "run.usdc"
    with pytest.raises(ValueError, match="no frame was given"):
        with UsdWriter(path, model, 2):
            pass
    with pytest.raises(ValueError, match="3 environments; this file was opened for 2"):
        with UsdWriter(path, model, 2) as out:
            out.write(moving_positions(model, 3, 3))
    with pytest.raises(ValueError, match="2 different numbers"):
        UsdWriter(path, model, 2, env_ids=[1, 1])
    with pytest.raises(ValueError, match="num_envs is 0"):
        UsdWriter(path, model, 0)
    bad = moving_positions(model, 3, 2)
    bad[2, 1, 0] = np.inf
    with pytest.raises(ValueError, match=r"qs of environment 7, \[2, 0\] is inf"):
        with UsdWriter(path, model, 2, env_ids=[3, 7]) as out:
            out.write(bad)
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        UsdWriter(path, model, 2).write(moving_positions(model, 3, 2))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_chunk_prevents_the_file(model, tmp_path, monkeypatch):
    """A caller that catches Ctrl-C to keep the frames so far must not get a file with an incomplete one."""
    monkeypatch.setattr(hierarchy.Spool, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(OSError, match="frames are incomplete"):
        with UsdWriter(tmp_path / "run.usdc", model, 2) as out:
            with pytest.raises(KeyboardInterrupt):
                out.write(moving_positions(model, 3, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_gives_an_error(model, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # tests may run as root, which may write anywhere
    with pytest.raises(PermissionError, match=r"cannot write .*run\.usdc: the folder .* is not writable\.$"):
        export_usd(tmp_path / "run.usdc", model, model.q0[None])


def test_relative_names_with_odd_letters_work(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with UsdWriter("größe [1].usdc", model, 1) as out:
        out.write(moving_positions(model, 2, 1))
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")  # a relative name refers to the folder in which the writer was made
        out.write(moving_positions(model, 3, 1))
    assert open_stage(tmp_path / "größe [1].usdc").GetEndTimeCode() == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["größe [1].usdc", "other"]
