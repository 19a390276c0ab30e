"""The viewer without a browser: effects of the panel's controls, drawings, recordings."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
import viser
from display_model import display_model, moving_positions
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import warp_articulated as wa
from warp_articulated.geometry.kinematics import batch_link_poses, shape_poses
from warp_articulated.model import WORLD, Shape, ShapeType
from warp_articulated.show.viewer import Viewer, record_html
from warp_articulated.show.viewer import geometry as geo
from warp_articulated.show.viewer.joints import joint_controls

ENVS = 4


@pytest.fixture(scope="module")
def sim() -> wa.Simulator:
    return wa.Simulator(wa.load("laikago_feet"), num_envs=ENVS)


@pytest.fixture
def viewer(sim):
    with Viewer(sim, port=0) as viewer:
        yield viewer


def joint(viewer: Viewer, name: str):
    return next(j for j, _ in viewer.panel.joints if j.name == name)


def slider(viewer: Viewer, name: str):
    return next(s for j, s in viewer.panel.joints if j.name == name)


# -- simulation


def test_a_frame_simulates_its_own_duration(viewer):
    viewer.advance(30)
    assert viewer.time == pytest.approx(1.0, abs=2e-3)  # 33.3 steps per frame: a fraction is carried over
    viewer.panel.speed.value = 0.1
    viewer.advance(30)
    assert viewer.time == pytest.approx(1.1, abs=3e-3)


def test_frames_have_the_simulators_states(viewer, sim):
    viewer.advance(3)
    steps = round(viewer.time / sim.dt)
    qs, qds = sim.rollout(*sim.initial_state(), sim.initial_control().expand(steps, -1, -1))
    torch.testing.assert_close(viewer.q, qs[-1], rtol=0, atol=0)  # results do not depend on how steps are grouped
    torch.testing.assert_close(viewer.qd, qds[-1], rtol=0, atol=0)


def test_pause_step_and_reset(viewer, sim):
    viewer.advance(2)
    viewer.panel.play.value = True  # a click
    assert not viewer.playing and viewer.panel.play.label == "Play"
    at = viewer.time
    viewer.advance(3)
    assert viewer.time == at
    viewer.panel.step.value = "10"
    assert viewer.time == pytest.approx(at + 10 * sim.dt)
    viewer.panel.play.value = True
    viewer.advance()
    assert viewer.playing and viewer.panel.play.label == "Pause" and viewer.time > at + 20 * sim.dt
    viewer.panel.reset.value = True
    assert viewer.time == 0.0
    torch.testing.assert_close(viewer.q, sim.initial_state()[0], rtol=0, atol=0)


def test_a_controller_is_called_before_every_step(sim):
    times = []

    def control(seconds, q, qd):
        times.append(seconds)
        return sim.initial_control() + 0.1

    with Viewer(sim, port=0, control=control) as viewer:
        times.clear()
        viewer.step(5)
        np.testing.assert_allclose(times[:5], sim.dt * np.arange(5), atol=1e-12)
        q, qd = sim.initial_state()
        for _ in range(5):
            q, qd = sim.step(q, qd, sim.initial_control() + 0.1)
        torch.testing.assert_close(viewer.q, q, rtol=0, atol=0)


def test_run_paces_itself_by_the_clock_and_stops(sim):
    with Viewer(sim, port=0) as viewer:
        viewer.run(0.2)
        assert viewer.time == 0.0  # no browser is connected
        viewer.run(1.0, unwatched=True)
        assert 0.0 < viewer.time < 1.1
        threading.Timer(0.1, viewer.stop).start()
        began = time.perf_counter()
        viewer.run(30.0)
        assert time.perf_counter() - began < 10.0


def test_ctrl_c_ends_run(sim):
    def control(seconds, q, qd):
        if seconds > 0.0:
            raise KeyboardInterrupt
        return sim.initial_control()

    with Viewer(sim, port=0, control=control) as viewer:
        viewer.run(30.0, unwatched=True)


# -- the panel


def test_sliders_pose_the_picked_robot_when_paused(viewer):
    viewer.advance(2)
    viewer.pause()
    viewer.panel.pick.value = 2
    before = viewer.q.clone()
    knee = joint(viewer, "FR_lower")
    viewer.move_joint(knee, -2.0)
    assert float(viewer.q[2, knee.q_index]) == -2.0 and not viewer.qd[2].any() and viewer.qd[1].any()
    changed = viewer.q != before
    assert int(changed.sum()) == 1 and bool(changed[2, knee.q_index])
    viewer.panel.refresh()
    assert slider(viewer, "FR_lower").value == -2.0
    assert "pose" in viewer.panel.mode.content


def test_sliders_hold_the_drives_of_the_picked_robot_when_playing(viewer):
    viewer.panel.pick.value = 1
    knee = joint(viewer, "FR_lower")
    viewer.move_joint(knee, -1.6)
    viewer.advance(30)
    assert float(viewer.q[1, knee.q_index]) == pytest.approx(-1.6, abs=0.1)  # the drive is a spring under load
    assert float(viewer.q[0, knee.q_index]) == pytest.approx(-1.25, abs=0.1)
    viewer.panel.refresh()
    assert slider(viewer, "FR_lower").value == pytest.approx(-1.6)
    viewer.panel.release.value = True
    assert slider(viewer, "FR_lower").value == pytest.approx(-1.213, abs=1e-3)
    viewer.advance(30)
    assert float(viewer.q[1, knee.q_index]) == pytest.approx(-1.25, abs=0.1)


def test_slider_values_from_the_viewer_have_no_effect(viewer):
    viewer.pause()
    before = viewer.q.clone()
    slider(viewer, "FR_lower").value = -2.0  # by the program, not by a user
    torch.testing.assert_close(viewer.q, before, rtol=0, atol=0)


def test_a_push_kicks_the_picked_base_by_the_chosen_speed(viewer):
    viewer.panel.pick.value = 3
    viewer.panel.push_speed.value = 0.7
    viewer.panel.push.value = True
    speeds = torch.linalg.vector_norm(viewer.qd[:, :3], dim=-1)
    np.testing.assert_allclose(speeds.numpy(), [0, 0, 0, 0.7], atol=1e-6)


def test_at_most_max_envs_robots_are_shown_and_the_panel_says_so():
    sim = wa.Simulator(wa.load("cartpole"), num_envs=10)
    with Viewer(sim, port=0, max_envs=3) as viewer:
        assert "3 of 10 robots" in viewer.panel.status.content
        assert viewer.panel.pick.max == 2 and not viewer.panel.push.visible  # its base is fixed
        viewer.advance()
        assert viewer.q.shape[0] == 10
        with pytest.raises(ValueError, match="env is 3"):
            viewer.pick(3)


def test_sliders_have_the_ranges_of_joints_and_drives():
    slide, pole = joint_controls(wa.load("cartpole"))
    assert slide.pose_range == (-2.4, 2.4) and slide.drive_range == (-100.0, 100.0) and slide.drive_unit == "N"
    assert pole.pose_range == (-np.pi, np.pi) and pole.drive is None
    hip = joint_controls(wa.load("laikago"))[0]
    assert hip.name == "FR_hip" and hip.unit == hip.drive_unit == "rad" and hip.drive_range == hip.pose_range


# -- drawing


def test_every_shape_is_drawn_where_it_is():
    model = display_model()
    q = moving_positions(model, 1, 3)[0]
    with Viewer(wa.Simulator(model, num_envs=3), port=0, spacing=2.0) as viewer:
        stage = viewer.stage
        stage.show(q)
        origins, quats = batch_link_poses(model, q)
        drawn = 0
        for instances, group in zip(stage._groups, geo.group_shapes(model, stage._shapes()), strict=True):
            places = instances._handle.batched_positions.reshape(3, -1, 3)
            turns = instances._handle.batched_wxyzs.reshape(3, -1, 4)
            for k, shape in enumerate(group.shapes):
                pos, quat = shape_poses(shape, origins, quats)
                np.testing.assert_allclose(places[:, k], pos + stage.offsets, atol=1e-6)
                assert np.abs(np.sum(turns[:, k] * quat[:, [3, 0, 1, 2]], -1)) == pytest.approx(1.0, abs=1e-6)
                drawn += 1
        assert drawn == len(model.shapes) - 1  # all but the ground
        assert len(stage._groups) < drawn / 2


@pytest.mark.parametrize(
    ("kind", "size", "volume"),
    [
        (ShapeType.SPHERE, (0.2,), 4 / 3 * np.pi * 0.2**3),
        (ShapeType.CAPSULE, (0.2, 0.3), 4 / 3 * np.pi * 0.2**3 + 0.6 * np.pi * 0.2**2),
        (ShapeType.BOX, (0.1, 0.2, 0.3), 8 * 0.1 * 0.2 * 0.3),
        (ShapeType.CYLINDER, (0.2, 0.3), 0.6 * np.pi * 0.2**2),
    ],
)
def test_meshes_are_closed_and_as_large_as_the_shape(kind, size, volume):
    shape = Shape(kind, WORLD, np.array(size))
    (group,) = geo.group_shapes(display_model(), [shape])
    a, b, c = (group.mesh.vertices * group.scales[0])[group.mesh.faces].transpose(1, 0, 2)
    found = np.sum(a * np.cross(b, c)) / 6  # of the tetrahedra over all triangles: negative if inside out
    assert 0.95 * volume < found <= volume * (1 + 1e-9)  # inscribed: a circle has 20 corners


def test_contact_arrows_show_the_simulators_forces(viewer, sim):
    viewer.advance(10)
    viewer.pause()
    viewer.panel.contacts.value = True
    viewer.advance()
    found = sim.contacts(viewer.q, viewer.qd, sim.initial_control())
    balls, arrows = viewer.stage._contacts._nodes
    assert len(arrows.points) == int(found.active.sum()) == 4 * ENVS
    env = torch.nonzero(found.active)[:, 0].numpy()
    starts = found.points[found.active].numpy() + viewer.stage.offsets[env]
    np.testing.assert_allclose(arrows.points[:, 0], starts, atol=1e-6)
    np.testing.assert_allclose(balls.batched_positions, starts, atol=1e-6)
    drawn = (arrows.points[:, 1] - arrows.points[:, 0]) * viewer.weight / viewer.arrow
    np.testing.assert_allclose(drawn, found.impulses[found.active].numpy() / sim.dt, atol=1e-3)
    # standing still, the ground carries the weight
    assert drawn[env == 0][:, 2].sum() == pytest.approx(viewer.weight, rel=0.1)
    viewer.panel.contacts.value = False
    viewer.advance()
    assert not arrows.visible and not balls.visible


def test_following_keeps_the_picked_robot_in_place(viewer):
    viewer.panel.pick.value = 2
    viewer.panel.follow.value = True
    viewer.push(1.0)
    viewer.advance(10)
    base = viewer.q[2, :3].numpy() + viewer.stage.offsets[2]
    seen = base + viewer.stage._root.position
    np.testing.assert_allclose(seen[:2], viewer.stage.camera.target[:2], atol=1e-5)
    viewer.panel.follow.value = False
    viewer.advance()
    np.testing.assert_array_equal(viewer.stage._root.position, np.zeros(3))


# -- recordings


def is_self_contained(page: str) -> bool:
    """No tag loads anything from elsewhere."""
    sources = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)\s*=\s*[\"']([^\"']*)", page)
    return all(source.startswith("data:") for source in sources)


def test_a_recording_is_one_file_with_everything_in_it(tmp_path):
    model = display_model()
    path = tmp_path / "film.html"
    calls = []
    record_html(path, model, moving_positions(model, 11, 3), dt=0.1, fps=10.0, env_ids=[0, 2],
                progress=lambda done, total: calls.append((done, total)))  # fmt: skip
    page = path.read_text("utf-8")
    assert is_self_contained(page) and "__VISER_EMBED_DATA__" in page and "<title>display</title>" in page
    assert calls == [(k + 1, 11) for k in range(11)]
    assert list(tmp_path.iterdir()) == [path]


def test_the_viewer_records_its_frames(viewer, tmp_path):
    viewer.advance(5)
    viewer.panel.contacts.value = True
    viewer.advance(5)
    frames = list(viewer._frames)
    assert sum(frame.duration for frame in frames) == pytest.approx(viewer.time)
    assert frames[0].forces is None and len(frames[-1].forces.points) == 4 * ENVS
    np.testing.assert_array_equal(frames[-1].q, viewer.q.numpy())
    viewer.save_recording(tmp_path / "film.html")
    assert is_self_contained((tmp_path / "film.html").read_text("utf-8"))


def test_recordings_refuse_bad_input(tmp_path):
    model = display_model()
    qs = moving_positions(model, 3, 2)
    with pytest.raises(ValueError, match=r"must end in \.html"):
        record_html(tmp_path / "film.mp4", model, qs, dt=0.1)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        record_html(tmp_path / "no" / "film.html", model, qs, dt=0.1)
    with pytest.raises(ValueError, match="qs has shape"):
        record_html(tmp_path / "film.html", model, qs[..., :3], dt=0.1)
    with pytest.raises(ValueError, match="dt is 0"):
        record_html(tmp_path / "film.html", model, qs, dt=0.0)
    with pytest.raises(ValueError, match="env_ids"):
        record_html(tmp_path / "film.html", model, qs, dt=0.1, env_ids=[5])
    qs[1, 0, 0] = np.nan
    with pytest.raises(ValueError, match="environment 0"):
        record_html(tmp_path / "film.html", model, qs, dt=0.1)
    record_html(tmp_path / "film.html", model, qs, dt=0.1, env_ids=[1])


# -- errors


def test_a_taken_port_is_named(sim):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of '127.0.0.1'"):
            Viewer(sim, port=port)


def test_bad_arguments_are_named(sim):
    for arguments, message in (
        ({"port": 70000}, "port is 70000"),
        ({"max_envs": 0}, "max_envs is 0"),
        ({"fps": 0.0}, "fps is 0"),
        ({"spacing": -1.0}, "spacing is -1"),
        ({"host": "no.such.host.invalid"}, "no.such.host.invalid"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            Viewer(sim, **{"port": 0, **arguments})
    with pytest.raises(TypeError, match="sim is a Model"):
        Viewer(sim.model, port=0)


def test_nothing_is_printed(sim, capfd):
    with Viewer(sim, port=0) as viewer:
        viewer.advance()
        viewer.recording()
    assert capfd.readouterr().out == ""


def test_the_package_does_not_load_viser_and_says_how_to_install_it():
    program = (
        "import sys, warp_articulated\n"
        "assert 'viser' not in sys.modules\n"
        "sys.modules['viser'] = None\n"  # as if it were not installed
        "try:\n    import warp_articulated.viewer\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the viewer needs viser: pip install viser." in done.stdout


# -- who may connect


def connection(viewer: Viewer, **options):
    """A WebSocket as the viewer's page opens it."""
    address = viewer.url.replace("http", "ws")
    return connect(address, subprotocols=[f"viser-v{viser.__version__}"], max_size=None, **options)


def test_the_viewers_own_page_and_programs_may_connect(viewer):
    for options in ({"origin": viewer.url}, {"origin": viewer.url.upper()}, {}):
        with connection(viewer, **options) as page:
            assert page.recv(timeout=10)
    # by another name of this computer, as its page is then loaded from
    port = viewer.server.get_port()
    headers = {"Host": f"robots.example:{port}", "Origin": f"http://robots.example:{port}"}
    response = handshake(viewer, headers)
    assert "101" in response


def test_other_pages_may_not_connect(viewer):
    port = viewer.server.get_port()
    for origin in (
        "http://example.org",
        "null",
        "",
        f"http://localhost:{port + 1}",
        f"http://127.0.0.1.example.org:{port}",
        f"http://127.0.0.1:{port}@example.org",
        "http://127.0.0.1",
    ):
        response = handshake(viewer, {"Host": f"127.0.0.1:{port}", "Origin": origin})
        assert "403" in response, (origin, response)
    with pytest.raises(InvalidStatus, match="403"), connection(viewer, origin="http://example.org"):
        pass
    assert not viewer.server.get_clients()
    assert "101" in handshake(viewer, {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}"})


def handshake(viewer: Viewer, headers: dict[str, str]) -> str:
    """First line of the answer to a WebSocket's request with these headers."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", f"Sec-WebSocket-Protocol: viser-v{viser.__version__}"]
    with socket.create_connection(("127.0.0.1", viewer.server.get_port()), timeout=10) as plain:
        plain.sendall("\r\n".join(["GET / HTTP/1.1", *lines, "", ""]).encode())
        return plain.recv(4096).decode("latin-1").splitlines()[0]
