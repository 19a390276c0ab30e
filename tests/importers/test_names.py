"""Indices of links, joints, drives and frames by name, and what a wrong name says."""

import pytest
from mjcf_oracle import load, write

import warp_articulated as wa


@pytest.fixture(scope="module")
def laikago():
    return wa.load("laikago")


def test_names_give_the_indices_of_the_lists(laikago):
    lists = {"link": "link_names", "joint": "joint_names", "drive": "drive_names", "frame": "frames"}
    for kind, names in lists.items():
        indices = [getattr(laikago, kind)(name) for name in getattr(laikago, names)]
        assert indices == list(range(len(indices))) and all(type(k) is int for k in indices)
    assert laikago.frame_link[laikago.frame("FR_toe")] == laikago.link("FR_lower_leg")


@pytest.mark.parametrize("kind", ["link", "joint", "drive", "frame"])
def test_a_wrong_name_lists_the_nearest_ones(laikago, kind):
    near = {"link": "FR_lower_leg", "joint": "FR_lower", "drive": "FR_lower", "frame": "FR_lower_leg"}[kind]
    with pytest.raises(
        wa.ModelError, match=f"laikago: no {kind} is called 'FRlower'; the nearest .*'{near}'"
    ) as caught:
        getattr(laikago, kind)("FRlower")
    assert str(caught.value).count(", ") == 4  # five names, not all


def test_joint_slices_name_the_nearest_joints(laikago):
    for place in (laikago.joint_q, laikago.joint_v):
        with pytest.raises(wa.ModelError, match="no joint is called 'rot'; the nearest names are 'root'"):
            place("rot")
    with pytest.raises(wa.ModelError, match="no drive is called 'motor'; it has no drives"):
        wa.load("sphere").drive("motor")
    with pytest.raises(wa.ModelError, match="no link is called 3; the nearest"):
        laikago.link(3)


def test_joints_in_another_order_than_links_are_found():
    """In a URDF q follows the file's order of joints, links follow the tree."""
    for name in wa.scene_names():
        model = wa.load(name)
        for i, j in enumerate(model.joint_of_link):
            assert model.joint_q(model.joint_names[j]).start == model.q_start[i]
            assert model.joint_v(model.joint_names[j]).start == model.v_start[i]


def test_actuators_without_a_name_on_one_joint_get_different_names(tmp_path):
    body = '<body><joint name="j"/><geom size="0.1"/></body>'
    drives = '<motor joint="j"/><motor joint="j" gear="2"/><motor name="boost" joint="j"/>'
    model, _ = load(write(tmp_path, f"<worldbody>{body}</worldbody><actuator>{drives}</actuator>"))
    assert model.drive_names == ("j", "j2", "boost") and model.drive("j2") == 1
