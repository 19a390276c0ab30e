"""A default pose outside joint limits is moved to them, and the model says so; a pose that was asked for is kept."""

import numpy as np
import pytest
from mjcf_oracle import ASSETS, load

import warp_articulated as wa
from warp_articulated.model import Body, Drive, DriveType, JointType, assemble

INERT = {"mass": 1.0, "inertia": np.eye(3)}


def chain(**first) -> wa.Model:
    """Three joints; the first one is given, the second one is inside its limits, the third one has none."""
    bodies = [
        Body("a", -1, "one", JointType.REVOLUTE, order=2, **first, **INERT),
        Body("b", 0, "two", JointType.PRISMATIC, order=1, lower=-1.0, upper=0.0, **INERT),
        Body("c", 1, "three", JointType.SPHERICAL, order=0, **INERT),
    ]
    return assemble("chain", bodies, drives=[Drive("one", DriveType.POSITION, gear=2.0, kp=1.0)])


@pytest.mark.parametrize(
    ("first", "at"),
    [
        ({"lower": 0.5, "upper": 2.0}, 0.5),
        ({"lower": -2.0, "upper": -0.5}, -0.5),
        ({"lower": -1.0, "upper": 1.0, "q0": np.array([3.0])}, 1.0),
    ],
)
def test_a_default_position_outside_its_limits_is_moved_to_the_nearer_one(first, at):
    model = chain(**first)
    assert model.q0[model.joint_q("one")] == at
    assert model.u0.tolist() == [at / 2]  # a position drive holds the pose
    start = first.get("q0", [0.0])[0]
    note = f"The default position of joint 'one' was moved from {start:.4g} to {at:.4g}, the nearer of its limits."
    assert model.notes == (note,)


def test_a_default_position_inside_or_at_its_limits_stays():
    for first in ({}, {"lower": 0.0, "upper": 0.0}, {"lower": -1.0, "upper": 3.0, "q0": np.array([3.0])}):
        model = chain(**first)
        assert model.q0[model.joint_q("one")] == first.get("q0", [0.0])[0] and model.notes == ()


def test_with_pose_keeps_what_it_is_given_and_combine_too():
    model = chain(lower=0.5, upper=2.0)
    posed = model.with_pose({"one": 7.0})
    assert posed.q0[posed.joint_q("one")] == 7.0 and posed.notes == ()  # the note would be wrong now
    assert model.with_pose({"two": 3.0}).notes == model.notes
    both = wa.combine([posed, wa.load("cartpole")])
    assert both.q0[both.joint_q("one")] == 7.0 and both.notes == ()
    moved = wa.combine([model, wa.load("cartpole")])
    assert moved.notes == (f"chain: {model.notes[0]}",)
    assert moved.with_pose({"one": 1.0}).notes == ()


def test_a_floating_robot_is_lifted_in_the_pose_that_it_starts_with(tmp_path):
    """A leg that hangs down by its limit: the foot, not where it would be at zero, is on the ground."""
    (tmp_path / "leg.urdf").write_text(
        '<robot name="leg"><link name="base"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
        '</link><link name="foot"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial><collision>'
        '<origin xyz="1 0 0"/><geometry><sphere radius="0.1"/></geometry></collision></link><joint name="hip" '
        'type="revolute"><parent link="base"/><child link="foot"/><axis xyz="0 1 0"/><limit lower="1.5707963" '
        'upper="2"/></joint></robot>'
    )
    model = wa.load(tmp_path / "leg.urdf", floating=True)
    assert model.q0[model.joint_q("root")][2] == pytest.approx(1.1)


def test_every_robot_of_gymnasium_and_every_scene_starts_inside_its_limits():
    robots = [load(path)[0] for path in sorted(ASSETS.glob("*.xml"))]
    assert len(robots) > 10
    for model in [*robots, *map(wa.load, wa.scene_names())]:
        for name in model.joint_names:
            at, v = model.joint_q(name), model.joint_v(name)
            if v.stop - v.start == 1:
                assert model.lower[v] <= model.q0[at] <= model.upper[v], (model.name, name)
