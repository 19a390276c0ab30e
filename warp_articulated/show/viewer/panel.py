"""The panel at the side of the viewer: its buttons and sliders, and the state of the session that they show.

It calls the methods of a `Viewer`, which are safe to call from the threads that viser runs callbacks in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import viser

from .joints import JointControl, joint_controls

if TYPE_CHECKING:
    from .viewer import Viewer

SPEEDS = (0.1, 4.0)
MANY_JOINTS = 14  # beyond that their folder starts closed
POSING = "Paused: sliders **pose** the picked robot and bring it to rest."
DRIVING = "Playing: sliders hold the **drives** of the picked robot, until released."


class Panel:
    """Controls of a viewer; each attribute is the viser handle of one."""

    def __init__(self, server: viser.ViserServer, viewer: Viewer):
        self._viewer = viewer
        gui = server.gui
        gui.configure_theme(control_width="medium", show_logo=False, show_share_button=False)
        gui.main_panel.dock_right()  # next to the robots, not in front of them
        self.status = gui.add_markdown("")
        self._add_time(gui)
        self.shadows = gui.add_checkbox("Shadows", viewer.shadows, hint="Without them drawing needs less of a GPU.")
        self.shadows.on_update(lambda event: viewer.set_shadows(event.target.value))
        self._add_environment(gui)
        self._add_contacts(gui)
        self._add_joints(gui)
        self.save = gui.add_button(
            "Save recording", icon=viser.Icon.DOWNLOAD,
            hint=f"The last {viewer.history:g} s that were shown, as an HTML file that plays in any browser.",
        )  # fmt: skip
        self.save.on_click(self._save)
        self.refresh()

    def _add_time(self, gui: viser.GuiApi) -> None:
        viewer = self._viewer
        self.play = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
        self.play.on_click(lambda _: viewer.pause() if viewer.playing else viewer.play())
        ms = 1e3 * viewer.session.step_time
        self.step = gui.add_button_group(
            "Step", ("1", "10", "100"), hint=f"Pause, and advance by that many steps of {ms:g} ms."
        )
        self.step.on_click(lambda event: viewer.step(int(event.target.value)))
        self.reset = gui.add_button("Reset", icon=viser.Icon.REFRESH, hint="All robots return to where they started.")
        self.reset.on_click(lambda _: viewer.reset())
        self.speed = gui.add_slider(
            "Speed", min=SPEEDS[0], max=SPEEDS[1], step=0.1, initial_value=viewer.speed,
            hint="1: real time. A slower computer reaches less; the line above says how much.",
        )  # fmt: skip
        self.speed.on_update(lambda event: viewer.set_speed(event.target.value))

    def _add_environment(self, gui: viser.GuiApi) -> None:
        viewer, last = self._viewer, self._viewer.shown - 1
        with gui.add_folder("Environment"):
            self.pick = gui.add_number(
                "Picked", 0, min=0, max=last, step=1, hint=f"0 to {last}: the robot in the ring.",
                visible=last > 0,
            )  # fmt: skip
            self.pick.on_update(lambda event: viewer.pick(event.target.value))
            self.follow = gui.add_checkbox("Follow", False, hint="Keep the picked robot in the middle.")
            self.follow.on_update(lambda event: viewer.set_follow(event.target.value))
            movable = viewer.session.free_base is not None
            self.push_speed = gui.add_slider(
                "Push (m/s)", min=0.1, max=3.0, step=0.1, initial_value=0.5, visible=movable,
                hint="How much a push changes the velocity of the base.",
            )  # fmt: skip
            self.push = gui.add_button("Push", icon=viser.Icon.HAND_MOVE, visible=movable)
            self.push.on_click(lambda _: viewer.push(self.push_speed.value))

    def _add_contacts(self, gui: viser.GuiApi) -> None:
        viewer = self._viewer
        with gui.add_folder("Contacts"):
            self.contacts = gui.add_checkbox(
                "Show", viewer.contacts_shown, hint="Contact points and forces. The first time takes some seconds: "
                "the contact query is compiled.",
            )  # fmt: skip
            self.contacts.on_update(lambda event: viewer.show_contacts(event.target.value))
            longest = float(f"{4.0 * viewer.arrow:.1g}")
            self.arrow = gui.add_slider(
                "Arrow (m)", min=longest / 100, max=longest, step=longest / 100, initial_value=viewer.arrow,
                hint=f"Length of an arrow that is as strong as a robot's weight, {viewer.weight:.3g} N.",
            )  # fmt: skip
            self.arrow.on_update(lambda event: viewer.set_arrow(event.target.value))

    def _add_joints(self, gui: viser.GuiApi) -> None:
        joints = joint_controls(self._viewer.sim.model)
        with gui.add_folder("Joints", expand_by_default=len(joints) <= MANY_JOINTS, visible=bool(joints)):
            self.mode = gui.add_markdown("")
            self.release = gui.add_button("Release drives", visible=any(j.drive is not None for j in joints))
            self.release.on_click(lambda _: self._viewer.release())
            self.joints = [(joint, self._add_slider(gui, joint)) for joint in joints]

    def _add_slider(self, gui: viser.GuiApi, joint: JointControl) -> viser.GuiSliderHandle[float]:
        low, high = _rounded(joint.pose_range)
        slider = gui.add_slider(joint.name, min=low, max=high, step=1e-3, initial_value=low)

        @slider.on_update
        def _(event: viser.GuiEvent) -> None:
            if event.client is not None:  # a user moved it; otherwise `refresh` did
                self._viewer.move_joint(joint, event.target.value)

        return slider

    def _save(self, event: viser.GuiEvent) -> None:
        client = event.client
        if client is None:
            return
        self.save.disabled = True
        try:
            note = client.add_notification("Recording", "is being written ...", loading=True, with_close_button=False)
            page = self._viewer.recording()
            note.remove()
            client.send_file_download(f"{self._viewer.sim.model.name}.html", page.encode(), save_immediately=True)
        finally:
            self.save.disabled = False

    # -- display

    def refresh(self) -> None:
        """Show values that a program or another browser set, and the picked robot's joints or drives."""
        viewer = self._viewer
        for control, value in (
            (self.speed, viewer.speed),
            (self.shadows, viewer.shadows),
            (self.pick, viewer.picked),
            (self.follow, viewer.following),
            (self.contacts, viewer.contacts_shown),
        ):
            _set(control, value)
        self.play.label = "Pause" if viewer.playing else "Play"
        self.play.icon = viser.Icon.PLAYER_PAUSE if viewer.playing else viser.Icon.PLAYER_PLAY
        self.mode.content = DRIVING if viewer.playing else POSING
        values = viewer.joint_values([joint for joint, _ in self.joints])
        for (joint, slider), value in zip(self.joints, values, strict=True):
            driving = viewer.playing and joint.drive is not None
            low, high = _rounded(joint.drive_range if driving else joint.pose_range)
            if (slider.min, slider.max) != (low, high):
                slider.min, slider.max = low, high
            slider.label = f"{joint.name} ({joint.drive_unit if driving else joint.unit})"
            slider.disabled = viewer.playing and joint.drive is None
            _set(slider, round(min(max(value, low), high), 3))

    def say(self, text: str) -> None:
        """Show a line of markdown at the top."""
        self.status.content = text


def _set(control: Any, value: object) -> None:
    """Set a control's value; its callback is called, but does nothing. Any: for mypy `value` is read-only."""
    control.value = value


def _rounded(bounds: tuple[float, float]) -> tuple[float, float]:
    """Rounded outwards to the slider's steps: a browser shows as many digits as the bounds have."""
    return math.floor(bounds[0] * 1e3) / 1e3, math.ceil(bounds[1] * 1e3) / 1e3
