"""Loading does work in proportion to the size of a robot or scene: lines that run, which do not depend on the machine.

The number of collision pairs of n bodies is quadratic, but numpy makes them a row at a time.
"""

import json
import sys

import pytest

import warp_articulated as wa
from warp_articulated.importers.combine import combine
from warp_articulated.importers.mjcf import load_mjcf
from warp_articulated.importers.urdf import load_urdf
from warp_articulated.model import naming

SMALL, FACTOR = 40, 4
INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
SPHERE = '<collision><geometry><sphere radius="0.01"/></geometry></collision>'


def lines_run(function) -> int:
    """Lines of Python that run, with each turn of a loop or comprehension."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def urdf(folder, n, *, parent, shapes=True, kind="revolute") -> str:
    links = [f'<link name="l{i}">{INERTIAL}{SPHERE if shapes else ""}</link>' for i in range(n)]
    joints = [
        f'<joint name="j{i}" type="{kind if i > 1 else "continuous"}"><parent link="l{parent(i)}"/><child link="l{i}"/>'
        '<origin xyz="0.1 0 0"/><limit lower="1" upper="2"/></joint>'
        for i in range(1, n)
    ]
    path = folder / "robot.urdf"
    path.write_text(f'<robot name="big">{"".join(links)}{"".join(joints)}</robot>')
    return str(path)


def chain(folder, n):
    path = urdf(folder, n, parent=lambda i: i - 1)
    return lambda: load_urdf(path, floating=True)


def shapeless_chain(folder, n):
    path = urdf(folder, n, parent=lambda i: i - 1, shapes=False)
    return lambda: load_urdf(path)


def glued_chain(folder, n):
    path = urdf(folder, n, parent=lambda i: i - 1, kind="fixed")
    return lambda: load_urdf(path, floating=True)


def star_without_self_collision(folder, n):
    path = urdf(folder, n, parent=lambda i: 0)
    return lambda: load_urdf(path, floating=True, self_collision=False, drive="position", kp=1)


def spheres(folder, n):
    path = folder / "ball.urdf"
    path.write_text(f'<robot name="ball"><link name="ball">{INERTIAL}{SPHERE}</link></robot>')
    ball = load_urdf(path, floating=True)
    return lambda: combine([ball] * n, poses=[(k, 0.0, 1.0) for k in range(n)])


def robots(folder, n):
    robot = wa.load("laikago_feet")
    return lambda: combine([robot] * n)


def scene_file(folder, n):
    spheres(folder, 1)
    entries = [{"file": "ball.urdf", "floating": True, "pose": [k, 0, 1], "armature": 0.1} for k in range(n)]
    (folder / "balls.json").write_text(json.dumps({"robots": entries, "ground": True}))
    return lambda: wa.load(folder / "balls.json")


def mjcf(folder, n):
    leg = '<body><joint name="j{k}"/><geom size="0.1"/></body>'
    body = f'<body><freejoint/><geom size="0.1"/><site name="s{{k}}"/>{leg}</body>'
    bodies = "".join(body.format(k=k) for k in range(n))
    drives = "".join(f'<motor joint="j{k}" ctrlrange="-1 1"/>' for k in range(n))
    path = folder / "robot.xml"
    path.write_text(f"<mujoco><worldbody>{bodies}</worldbody><actuator>{drives}</actuator></mujoco>")
    return lambda: load_mjcf(path, ground=True)


def everything_else(folder, n):
    model = robots(folder, n)()

    def use():
        str(model), naming.q_entries(model), naming.qd_entries(model), naming.u_entries(model)
        model.with_pose({name: model.q0[model.joint_q(name)] for name in model.joint_names})
        model.save(folder / "model.npz")
        wa.load(folder / "model.npz")

    return use


CASES = [
    chain, shapeless_chain, glued_chain, star_without_self_collision, spheres, robots, scene_file, mjcf,
    everything_else,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_loading_grows_in_proportion(case, tmp_path):
    small, large = (lines_run(case(tmp_path, n)) for n in (SMALL, SMALL * FACTOR))
    # 2 %: quadratic parts of up to one line in 150 at the small size pass, and there are constant parts
    assert large < 1.02 * FACTOR * small
