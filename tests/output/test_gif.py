"""Films of the ray caster: they last as long as the motion, equal single pictures, and are never written in part."""

import numpy as np
import pytest
import torch
import warp as wp
from display_model import display_model
from PIL import Image, ImageSequence

from warp_articulated.show.layout import Camera
from warp_articulated.show.pictures.gif import frame_delays, render_gif
from warp_articulated.show.pictures.palette import DITHER
from warp_articulated.show.pictures.render import render

SIZE = (96, 54)
VIEW = Camera(eye=(1.6, -1.9, 1.2), target=(0.0, 0.0, 0.3))


@pytest.fixture(scope="module")
def model():
    return display_model()


def running(model, frames, envs=1, speed=0.1):
    """(frames, envs, nq): every robot goes `speed` m per frame along x and swings its legs."""
    qs = np.tile(model.q0, (frames, envs, 1))
    qs[:, :, 0] += speed * np.arange(frames)[:, None]
    qs[:, :, 7:11] += 0.3 * np.sin(0.4 * np.arange(frames))[:, None, None]
    return qs


def played(path):
    """Frames (T, height, width, 3) as a viewer shows them, and their durations in s."""
    film = Image.open(path)
    frames, durations = [], []
    for frame in ImageSequence.Iterator(film):
        frames.append(np.array(frame.convert("RGB")))
        durations.append(frame.info["duration"] / 1000.0)
    return np.stack(frames).astype(float), durations


def orange_place(picture):
    """Mean column of the robot's orange body, as a share of the width; None if it is not in the picture."""
    r, b = picture[..., 0], picture[..., 2]
    columns = np.flatnonzero((r > b + 40.0).any(axis=0))
    return columns.mean() / picture.shape[1] if len(columns) else None


@pytest.mark.parametrize("fps", [10.0, 25.0, 30.0, 50.0, 24000 / 1001])
def test_delays_keep_real_time(fps):
    delays = frame_delays(1000, fps)
    ends = np.cumsum(delays) / 100.0
    assert np.abs(ends - np.arange(1, 1001) / fps).max() <= 0.005 + 1e-9  # half a hundredth of a second
    assert min(delays) >= 2  # viewers slow down shorter ones
    assert max(delays) - min(delays) <= 1


@pytest.mark.parametrize(("fps", "frames"), [(25.0, 13), (30.0, 16)])
def test_film_lasts_as_long_as_the_motion(model, tmp_path, fps, frames):
    qs = running(model, 101, speed=0.001)  # 0.5 s
    render_gif(tmp_path / "film.gif", model, qs, fps=fps, dt=0.005, size=SIZE)
    pictures, durations = played(tmp_path / "film.gif")
    assert len(pictures) == frames == len(durations)
    assert sum(durations) == pytest.approx(frames / fps, abs=0.005)
    assert Image.open(tmp_path / "film.gif").info["loop"] == 0  # forever


def test_robots_at_rest_still_give_one_frame_per_row(model, tmp_path):
    render_gif(tmp_path / "film.gif", model, np.tile(model.q0, (5, 1)), size=SIZE)
    pictures, durations = played(tmp_path / "film.gif")
    assert durations == [0.04] * 5
    assert np.ptp(pictures, axis=0).max() == 0.0


def test_frames_equal_single_pictures(model, tmp_path):
    qs = running(model, 6, envs=3)
    render_gif(tmp_path / "film.gif", model, qs, camera=VIEW, size=SIZE, spacing=0.9)
    pictures, _ = played(tmp_path / "film.gif")
    for k in (0, 3, 5):
        wanted = render(model, qs[k], camera=VIEW, size=SIZE, spacing=0.9).astype(float)
        difference = np.abs(pictures[k] - wanted)
        # 255 colours, the dither, and fewer rays into shadows and corners; a robot at another place differs by 100
        assert difference.mean() < DITHER + 2.0
        assert np.quantile(difference, 0.99) < 40.0


@pytest.mark.parametrize("form", ["numpy", "torch", "warp", "one robot"])
def test_the_same_motion_gives_the_same_bytes(model, tmp_path, form):
    qs = running(model, 3).astype(np.float32)
    given = {"numpy": qs, "torch": torch.tensor(qs, requires_grad=True), "warp": wp.array(qs), "one robot": qs[:, 0]}
    render_gif(tmp_path / "one.gif", model, qs, size=SIZE)
    render_gif(tmp_path / "two.gif", model, given[form], size=SIZE)
    assert (tmp_path / "one.gif").read_bytes() == (tmp_path / "two.gif").read_bytes()


def test_camera_sees_the_whole_run(model, tmp_path):
    render_gif(tmp_path / "film.gif", model, running(model, 12, speed=0.5), size=SIZE)
    pictures, _ = played(tmp_path / "film.gif")
    places = [orange_place(p) for p in pictures]
    assert all(place is not None for place in places)
    assert abs(places[-1] - places[0]) > 0.3


def test_following_camera_keeps_the_robot_in_the_middle(model, tmp_path):
    qs = running(model, 25, speed=0.5)
    render_gif(tmp_path / "film.gif", model, qs, size=SIZE, follow=True)
    pictures, _ = played(tmp_path / "film.gif")
    places = [orange_place(p) for p in pictures]
    assert np.ptp(places) < 0.05
    assert 0.25 < np.mean(places) < 0.75


def test_one_robot_far_away_does_not_make_the_others_tiny(model, tmp_path):
    qs = running(model, 4, envs=9, speed=0.0)
    render_gif(tmp_path / "calm.gif", model, qs, size=SIZE)
    qs[1:, 4, :2] += 1e4
    render_gif(tmp_path / "away.gif", model, qs, size=SIZE)
    calm, away = (played(tmp_path / f"{name}.gif")[0][-1] for name in ("calm", "away"))
    orange = [float((p[..., 0] > p[..., 2] + 40.0).sum()) for p in (calm, away)]
    assert orange[1] > 0.6 * orange[0]  # one of nine is gone; the others are as large as before


def test_only_the_chosen_environments_must_be_finite(model, tmp_path):
    qs = running(model, 2, envs=3)
    qs[1, 1, 0] = np.nan
    render_gif(tmp_path / "film.gif", model, qs, env_ids=[2, 0], size=SIZE)
    with pytest.raises(ValueError, match=r"qs of environment 1, \[1, 0\] is nan"):
        render_gif(tmp_path / "all.gif", model, qs, size=SIZE)
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]


def test_progress_is_reported_and_a_stopped_film_leaves_the_old_file(model, tmp_path):
    path, calls = tmp_path / "film.gif", []
    render_gif(path, model, running(model, 3), size=SIZE, progress=lambda *now: calls.append(now))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    before = path.read_bytes()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render_gif(path, model, running(model, 3, speed=0.3), size=SIZE, progress=stop)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"path": "x.png"}, ValueError, ".gif"),
        ({"path": "nowhere/x.gif"}, FileNotFoundError, "nowhere"),
        ({"qs": np.zeros((2, 3))}, ValueError, "qs has shape"),
        ({"fps": 60.0}, ValueError, "fps is 60.0.*50"),
        ({"fps": 0.0}, ValueError, "fps is 0.0"),
        ({"fps": float("nan")}, ValueError, "fps is nan"),
        ({"dt": 0.0}, ValueError, "dt is 0.0"),
        ({"dt": float("inf")}, ValueError, "dt is inf"),
        ({"env_ids": [1]}, ValueError, "env_ids"),
        ({"env_ids": []}, ValueError, "env_ids"),
        ({"size": (0, 10)}, ValueError, "size"),
        ({"spacing": -1.0}, ValueError, "spacing is -1.0"),
    ],
)
def test_bad_input_gives_an_error(model, tmp_path, change, error, says):
    arguments = {"path": "x.gif", "qs": model.q0[None], "size": SIZE} | change
    arguments["path"] = tmp_path / arguments["path"]
    with pytest.raises(error, match=says):
        render_gif(model=model, **arguments)
    assert not list(tmp_path.iterdir())
