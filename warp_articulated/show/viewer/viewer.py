"""`Viewer`: a batch of robots, live in a browser, with a panel to play, pose and push them."""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
import viser

from ...device import checks
from ...files import check_output_path
from ...simulator import Simulator
from .joints import JointControl
from .origin import own_pages_only
from .panel import SPEEDS, Panel
from .recording import Frame, page_of, quiet, write_page
from .session import Controller, Session
from .stage import Forces, Stage

STATUS_EVERY = 0.25  # s
SLOWEST = 2.0  # frames may take this many times longer than they should before the simulation is slowed down


class Viewer:
    """Shows a Simulator's robots in a browser, at `url`.

    Args:
        sim: what to show.
        control: control(time_s, q, qd) -> u (num_envs, nu), called before every step; None: hold the default control.
        state: (q, qd) to start from, (num_envs, nq) and (num_envs, nv); None: the default pose at rest.
        host: address to listen at; "0.0.0.0" lets other computers connect.
        port: TCP port; 0: any that is free.
        spacing: distance in m between neighbouring robots; None: as close as they fit.
        max_envs: largest number of environments that are shown; all of them are simulated.
        fps: pictures per second.
        speed: simulated seconds per second, 0.1 to 4.
        playing: whether simulated time runs from the start.
        contacts: whether contact points and forces are shown from the start.
        shadows: light with shadows and reflections; plain light is drawn five times as fast where there is no GPU.
        history: longest recording, s.
    """

    def __init__(
        self,
        sim: Simulator,
        *,
        control: Controller | None = None,
        state: tuple[torch.Tensor, torch.Tensor] | None = None,
        host: str = "127.0.0.1",
        port: int = 8080,
        spacing: float | None = None,
        max_envs: int = 64,
        fps: float = 30.0,
        speed: float = 1.0,
        playing: bool = True,
        contacts: bool = False,
        shadows: bool = True,
        history: float = 30.0,
    ):
        if not isinstance(sim, Simulator):
            raise TypeError(f"sim is a {type(sim).__name__}; it must be a Simulator.")
        for name, value in (("fps", fps), ("speed", speed), ("history", history)):
            checks.positive(name, value)
        if spacing is not None:
            checks.positive("spacing", spacing)
        self.sim, self.history = sim, history
        self.shown = min(sim.num_envs, checks.whole("max_envs", max_envs, 1))
        self.frame_time = 1.0 / fps
        self.session = Session(sim, control, state)
        self.speed, self.playing = min(max(float(speed), SPEEDS[0]), SPEEDS[1]), playing
        self.picked, self.following, self.contacts_shown, self.shadows = 0, False, contacts, shadows
        model = sim.model
        self.weight = float(model.mass.sum() * np.linalg.norm(model.gravity)) or 1.0
        self._lock = threading.RLock()  # the loop and viser's threads, which run the panel's callbacks, take turns
        self._stop = threading.Event()
        self._frames: deque[Frame] = deque(maxlen=max(int(history * fps), 1))
        self._due = 0.0  # control steps carried over to the next frame, a fraction
        self._most = np.inf  # steps that this computer can do in a frame
        self._dirty = True
        self._forces: Forces | None = None
        self._wall, self._simulated, self._drawn = time.perf_counter(), 0.0, 0  # since the status was last shown
        self._closed = False
        self.server = _serve(host, port, model.name)
        q = self.session.positions(self.shown)
        self.stage = Stage(self.server, model, q, spacing=spacing, shadows=shadows)
        self.arrow = float(f"{self.stage.spacing:.2g}")
        self.panel = Panel(self.server, self)
        self._report(force=True)

    # -- state

    @property
    def url(self) -> str:
        """Address for a browser on this computer."""
        host = self.server.get_host()
        return f"http://{'localhost' if host in ('0.0.0.0', '::') else host}:{self.server.get_port()}"

    @property
    def q(self) -> torch.Tensor:
        """(num_envs, nq) positions."""
        return self.session.q

    @property
    def qd(self) -> torch.Tensor:
        """(num_envs, nv) velocities."""
        return self.session.qd

    @property
    def time(self) -> float:
        """Simulated seconds since the start or the last reset."""
        return self.session.time

    # -- running

    def run(self, seconds: float | None = None, *, unwatched: bool = False) -> None:
        """Play until `stop`, Ctrl-C or for some seconds of the clock. Without a browser the simulation waits.

        unwatched: simulate even then.
        """
        self._stop.clear()
        began = last = time.perf_counter()
        try:
            self._warm_up()
            while not self._stop.is_set() and (seconds is None or time.perf_counter() - began < seconds):
                now = time.perf_counter()
                if unwatched or self.server.get_clients():
                    steps = self._frame(min(now - last, SLOWEST * self.frame_time), self._most)
                    self._learn(steps, time.perf_counter() - now)
                last = now
                # at least a moment, in which the threads of the panel get their turn
                self._stop.wait(max(now + self.frame_time - time.perf_counter(), 1e-3))
        except KeyboardInterrupt:
            pass

    def stop(self) -> None:
        """Make `run` return; callable from other threads and from the controller."""
        self._stop.set()

    def advance(self, frames: int = 1) -> None:
        """Do as `run` does for so many frames, without waiting: simulate speed / fps seconds each, if playing; draw."""
        for _ in range(checks.whole("frames", frames, 0)):
            self._frame(self.frame_time, np.inf)

    def reset(self) -> None:
        """Return to the first state and give all drives back."""
        with self._lock:
            self.session.reset()
            self._changed()

    def close(self) -> None:
        """Stop the server; browsers that are still open show that the connection is lost."""
        self.stop()
        if not self._closed:
            self._closed = True
            with quiet():
                self.server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # -- actions of the panel's controls; programs may call them, too

    def play(self) -> None:
        """Resume simulated time."""
        with self._lock:
            self.playing = True
            self._changed()

    def pause(self) -> None:
        """Stop simulated time; the page stays responsive."""
        with self._lock:
            self.playing = False
            self._changed()

    def step(self, steps: int = 1) -> None:
        """Pause, and advance by some control steps."""
        with self._lock:
            self.playing = False
            self.session.simulate(checks.whole("steps", steps, 1))
            self._changed()
            self._draw(steps * self.session.step_time)

    def set_speed(self, speed: float) -> None:
        """Simulated seconds per second, if the computer is fast enough."""
        with self._lock:
            self.speed = float(speed)
            self.panel.refresh()

    def pick(self, env: int) -> None:
        """Choose the environment for sliders, pushes and the camera."""
        env = checks.whole("env", env, 0)
        if env >= self.shown:
            raise ValueError(f"env is {env}; it must be one of the {self.shown} environments that are shown.")
        with self._lock:
            if env != self.picked:
                self.picked = env
                self._changed()

    def set_follow(self, follow: bool) -> None:
        """Keep the picked robot in the middle of the view, or stop following it."""
        with self._lock:
            self.following, self._dirty = follow, True
            self.panel.refresh()

    def set_shadows(self, shadows: bool) -> None:
        """Light with shadows and reflections, or plain light, which computers without a GPU draw faster."""
        with self._lock:
            if shadows != self.shadows:
                self.shadows = shadows
                self.stage.light(shadows)
                self.panel.refresh()

    def push(self, speed: float) -> None:
        """Kick the base of the picked robot by `speed` m/s."""
        with self._lock:
            self.session.push(self.picked, speed)

    def show_contacts(self, show: bool) -> None:
        """Show contact points and forces. The first time, a kernel is compiled for some seconds."""
        with self._lock:
            self.contacts_shown, self._dirty = show, True
            self.panel.refresh()

    def set_arrow(self, length: float) -> None:
        """Length in m of an arrow that is as strong as a robot's weight."""
        with self._lock:
            self.arrow, self._dirty = length, True

    def move_joint(self, joint: JointControl, value: float) -> None:
        """Pose a joint of the picked robot (rad or m), if it is paused, or hold its drive at a target, if it plays."""
        with self._lock:
            if self.playing:
                self.session.drive(self.picked, joint, value)
            else:
                self.session.pose(self.picked, joint, value)
                self._dirty = True

    def release(self) -> None:
        """Give the drives of the picked robot back to the controller or the default control."""
        with self._lock:
            self.session.release(self.picked)
            self._changed()

    def joint_values(self, joints: Sequence[JointControl]) -> list[float]:
        """Slider values of the picked robot: targets of drives (in joint units) while it plays, otherwise positions."""
        with self._lock, torch.no_grad():
            q = self.session.q[self.picked].tolist()
            u = self.session.current_control()[self.picked].tolist() if self.playing else []
        return [j.gear * u[j.drive] if u and j.drive is not None else q[j.q_index] for j in joints]

    def recording(self) -> str:
        """The last pictures, at most `history` seconds, as an HTML page that plays them in simulated time."""
        with self._lock:
            frames = list(self._frames) or [Frame(self.session.positions(self.shown), self.frame_time)]
        return page_of(self.sim.model, frames, spacing=self.stage.spacing, shadows=self.shadows)

    def save_recording(self, path: str | os.PathLike) -> None:
        """Write `recording()` to a file; it appears under its name only when it is complete."""
        write_page(check_output_path(path, (".html", ".htm")), self.recording())

    # -- internals

    def _frame(self, seconds: float, most: float) -> int:
        """Simulate as many seconds, in at most `most` steps, and draw; returns the number of steps."""
        with self._lock:
            steps = 0
            if self.playing:
                self._due += self.speed * seconds / self.session.step_time
                steps = int(self._due + 1e-9)
                self._due -= steps
                steps = int(min(steps, most))
            if steps:
                self.session.simulate(steps)
                self._simulated += steps * self.session.step_time
            if steps or self._dirty:
                self._draw(steps * self.session.step_time)
            self._report()
        return steps

    def _learn(self, steps: int, spent: float) -> None:
        """Adapt the number of steps per frame: a slow computer shows slow motion instead of stuttering."""
        if steps and spent > SLOWEST * self.frame_time:  # fewer, but at least half: it may have been a short delay
            self._most = max(steps * max(SLOWEST * self.frame_time / spent, 0.5), 1.0)
        else:
            self._most *= 1.1

    def _draw(self, duration: float) -> None:
        """Show the state, and store it for a recording; duration: s since the last picture, 0: not played."""
        self._dirty = False
        q = self.session.positions(self.shown)
        if not np.isfinite(q).all():
            raise FloatingPointError("a robot's position is not finite; see Simulator.diverged.")
        forces = self._contact_forces()
        scale = self.arrow / self.weight
        with self.server.atomic():
            self.stage.show(q)
            self.stage.mark(self.picked if self.shown > 1 else None)
            self.stage.follow(self.picked if self.following else None)
            self.stage.show_forces(forces, scale)
        self._drawn += 1
        self._frames.append(Frame(q, duration or self.frame_time, forces, scale))

    def _contact_forces(self) -> Forces | None:
        if not self.contacts_shown:
            self._forces = None
            return None
        if self._forces is None:
            self.panel.say("Compiling the contact query, some seconds the first time ...")
        self._forces = self.session.forces(self.shown)
        return self._forces

    def _changed(self) -> None:
        """Called after an action of the panel: the picture may be out of date."""
        self._dirty = True
        self.panel.refresh()
        self._report(force=True)

    def _warm_up(self) -> None:
        with self._lock:
            self.panel.say("Compiling the simulation, some seconds the first time ...")
            self.session.warm_up()
            self._report(force=True)

    def _report(self, *, force: bool = False) -> None:
        """Update the line at the top of the panel and the sliders, a few times per second."""
        now = time.perf_counter()
        passed = now - self._wall
        if passed < STATUS_EVERY and not force:
            return
        parts = [f"**{self.time:.2f} s**"]
        if not self.playing:
            parts.append("paused")
        elif passed >= STATUS_EVERY:
            parts.append(f"{self._simulated / passed:.2f}x real time")
            parts.append(f"{self._drawn / passed:.0f} fps")
        count = f"{self.shown} of {self.sim.num_envs}" if self.sim.num_envs > self.shown else f"{self.shown}"
        parts.append(f"{count} robot{'s' if self.sim.num_envs > 1 else ''}")
        if self._forces is not None:
            parts.append(f"{len(self._forces.points)} contacts")
        if self.sim.device.is_cpu and len(self.sim.diverged):
            parts.append(f"**{len(self.sim.diverged)} diverged**")
        self.panel.say(" · ".join(parts))
        if self.playing and passed >= STATUS_EVERY:
            self.panel.refresh()
        if passed >= STATUS_EVERY:
            self._wall, self._simulated, self._drawn = now, 0.0, 0


def _serve(host: str, port: int, label: str) -> viser.ViserServer:
    """A viser server at exactly this port: viser would take the next free one, and never return for a bad host."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536:
        raise ValueError(f"port is {port!r}; it must be a whole number between 0 and 65535.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise OSError(
            f"cannot listen at port {port} of {host!r}: {error.strerror or error}. "
            "Choose another port (0: any that is free), or an address of this computer."
        ) from None
    with quiet(), own_pages_only(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return viser.ViserServer(host, port, label=label, verbose=False)
