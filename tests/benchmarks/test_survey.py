"""The survey of PyPI robots: what counts as a robot, as complete, and as the same note; and its tables."""

import pytest

from survey import robot, survey
from survey.motion import WORST

ARM = (
    '<mujoco>{option}<worldbody><body name="{name}"><joint name="{name}" damping="0.1"/>'
    '<geom size="0.1" pos="0.2 0 0"/></body></worldbody><actuator><position joint="{name}" kp="3"/></actuator></mujoco>'
)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "arm-1.2.dist-info").mkdir()
    files = {
        "arm.xml": ARM.format(option="", name="a"),
        "wet.xml": ARM.format(option='<option density="1"/>', name="b"),
        "scene.xml": '<mujoco><include file="part.xml"/></mujoco>',
        "part.xml": ARM.format(option="", name="c"),
        "box.xml": '<mujoco><worldbody><body><freejoint/><geom size="1"/></body></worldbody></mujoco>',
        "broken.xml": "<mujoco><nonsense/></mujoco>",
        "notes.xml": "<notes/>",
        "still.urdf": '<robot name="r"><link name="l"/></robot>',
        "bad.urdf": '<robot name="r"><joint name="j" type="revolute"><parent link="a"/></joint></robot>',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_files_are_told_apart(package):
    found = [path.name for path in survey.candidates(package)]
    assert sorted(found) == ["arm.xml", "bad.urdf", "box.xml", "broken.xml", "scene.xml", "still.urdf", "wet.xml"]
    assert survey.version(package) == "1.2"
    status = {name: robot.examine(package / name, motion=False) for name in found}
    assert {name for name, result in status.items() if result is None} == {"box.xml", "broken.xml", "still.urdf"}
    assert status["arm.xml"]["status"] == status["scene.xml"]["status"] == "complete"
    assert status["wet.xml"]["status"] == "incomplete" and status["bad.urdf"]["status"] == "refused"


def test_a_robot_moves_as_in_mujoco(package):
    found = robot.examine(package / "arm.xml", motion=True)
    assert found["motion"]["error"] < WORST
    assert "motion" not in robot.examine(package / "wet.xml", motion=True)


def test_the_same_note_of_two_robots_is_one(tmp_path):
    path = tmp_path / "robot.urdf"
    for one, two in (
        (f'{path}:12: <link name="a"> is bad: 1.5e-3 m', f'{path}:7: <link name="b"> is bad: -2 m'),
        ("The inertia of a_1, b breaks the rule.", "The inertia of c breaks the rule."),
        ("3 pair(s) never collide: a with b.", "41 pair(s) never collide: c with d, e with f."),
        ("Joint 'knee' is stiff.", "Joint 'hip' is stiff."),
    ):
        assert robot.plain(one, path) == robot.plain(two, path) != ""


def test_tables_count_robots_by_package():
    complete = {"status": "complete", "notes": ["x"], "motion": {"error": 1e-3, "dt": 1e-4}}
    results = {
        "versions": {"a": "1", "b": "2"},
        "robots": {
            "a: one.xml": complete, "a: two.xml": {"status": "incomplete", "notes": ["x", "y"]},
            "b: one.urdf": {"status": "refused", "error": "it is bad"},
        },
    }  # fmt: skip
    table = survey.report(results)["table"]
    assert "| a 1 | 2 | 1 (50 %) | 1 | 0 | 1 | 1 |" in table and "| all | 3 | 1 (33 %) | 1 | 1 | 1 | 1 |" in table
    assert "| 2 | x |" in survey.report(results)["notes"] and "| 1 | it is bad |" in survey.report(results)["refusals"]
    assert survey.figures(results)["worst"] == "0.1 %" and survey.figures(results)["robots"] == "3"
