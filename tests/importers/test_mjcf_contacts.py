"""Shapes and contact pairs of MJCF files against the contacts that MuJoCo finds."""

import mujoco
import numpy as np
import pytest
from mjcf_oracle import ASSETS, load, random_qpos, write

from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.importers.mjcf import load_mjcf
from warp_articulated.model import ModelError, ShapeType
from warp_articulated.model.pairs import SLOTS


def contacts_found(m, rng, states) -> dict[tuple[int, int], tuple[int, float]]:
    """Geom pairs that MuJoCo finds in contact at crowded random states: {(a, b): (condim, friction)}."""
    data = mujoco.MjData(m)
    found = {}
    for _ in range(states):
        data.qpos[:] = random_qpos(m, rng)
        for j in np.flatnonzero(m.jnt_type == 0):  # down to the floor
            data.qpos[m.jnt_qposadr[j] + 2] = rng.uniform(-1, 1)
        mujoco.mj_kinematics(m, data)
        mujoco.mj_comPos(m, data)
        mujoco.mj_collision(m, data)
        for c in data.contact:
            found[tuple(sorted(int(g) for g in c.geom))] = int(c.dim), float(c.friction[0])
    return found


def check_pairs(model, m, states=60) -> int:
    """Every contact of MuJoCo whose kind we support is in our list with its friction; returns the number of pairs."""
    ours = {tuple(sorted(map(int, p))): mu for p, mu in zip(model.pairs, model.pair_friction)}
    seen = contacts_found(m, np.random.default_rng(5), states)
    count = 0
    for pair, (dim, friction) in seen.items():
        kinds = tuple(sorted(int(model.shapes[g].type) for g in pair))
        if kinds in SLOTS:
            assert ours[pair] == pytest.approx(0.0 if dim == 1 else friction), (pair, kinds)
            count += 1
    return count


@pytest.mark.parametrize("name", ["ant", "half_cheetah", "hopper", "walker2d", "humanoid", "pusher"])
def test_pairs_include_every_contact_that_mujoco_finds(name):
    model, m = load(ASSETS / f"{name}.xml")
    assert check_pairs(model, m) > 0


CROWD = """
<option gravity="0 0 -5"/>
<worldbody>
  <geom name="floor" type="plane" size="1 1 1" pos="0 0 -0.1" friction="0.3" priority="1" condim="4"/>
  <body name="base"><geom name="base" size="0.3"/>
    <body name="a"><joint name="ja"/><geom name="a" size="0.25" friction="0.7"/>
      <body name="a2"><geom name="a2" size="0.25" condim="1" friction="0.9"/>
        <body name="b"><joint name="jb"/><geom name="b" size="0.25" condim="1" friction="0.5"/>
          <body name="c"><joint name="jc"/><geom name="c" type="box" size="0.25 0.2 0.2" friction="0.6"/>
            <geom name="ghost" size="0.3" contype="0" conaffinity="0"/>
            <geom name="one_way" size="0.3" contype="2" conaffinity="0"/>
            <body name="d"><joint name="jd"/><geom name="d" type="capsule" size="0.2 0.1" conaffinity="3"/></body>
          </body>
        </body>
      </body>
    </body>
  </body>
  <body name="e"><freejoint/><geom name="e" size="0.3" conaffinity="2"/></body>
</worldbody>
<contact>
  <exclude body1="a" body2="c"/>
  <pair geom1="b" geom2="c" condim="3" friction="0.11 0.11 0 0 0"/>
  <pair geom1="ghost" geom2="a" condim="1"/>
</contact>
"""


def test_collision_filters_equal_mujocos_where_everything_overlaps(tmp_path):
    """All shapes overlap, so that MuJoCo's contacts are exactly the pairs that pass its filters."""
    model, m = load(write(tmp_path, CROWD))
    data = mujoco.MjData(m)
    mujoco.mj_forward(m, data)
    theirs = {tuple(sorted(int(g) for g in c.geom)): (c.dim, c.friction[0]) for c in data.contact}
    ours = {tuple(sorted(map(int, p))): mu for p, mu in zip(model.pairs, model.pair_friction)}
    assert set(ours) == set(theirs)
    for pair, (dim, friction) in theirs.items():
        assert ours[pair] == pytest.approx(0.0 if dim == 1 else friction)


def test_geoms_that_nothing_can_touch_are_only_visible_and_keep_their_colour():
    target = next(s for s in load_mjcf(ASSETS / "reacher.xml").shapes if s.name == "target")
    assert not target.collide and target.color == (0.9, 0.2, 0.2, 1.0)


def names_of_pairs(model) -> set[frozenset[str]]:
    return {frozenset(model.shapes[k].name for k in pair) for pair in model.pairs}


def test_options_for_contacts(tmp_path):
    path = write(tmp_path, CROWD)
    full = names_of_pairs(load_mjcf(path))
    alone = names_of_pairs(load_mjcf(path, self_collision=False))
    assert frozenset(("base", "b")) in alone  # the base is welded to the world
    assert frozenset(("d", "e")) in full & alone and frozenset(("b", "d")) in full - alone
    assert frozenset(("b", "d")) in full - names_of_pairs(load_mjcf(path, exclude=[("b", "d")]))
    grounded = load_mjcf(path, ground=True)
    assert grounded.shapes[-1].type == ShapeType.PLANE and frozenset(("e", "ground")) in names_of_pairs(grounded)
    with pytest.raises(ModelError, match=r"robot.xml.*nobody"):
        load_mjcf(path, exclude=[("a", "nobody")])
    with pytest.raises(ModelError, match="self_collision='no' must be True or False"):
        load_mjcf(path, self_collision="no")


def test_meshes_become_hulls_with_the_same_corners(tmp_path):
    corners = " ".join(f"{x} {y} {z}" for x in (0, 0.2) for y in (0, 0.3) for z in (0, 0.4))
    path = write(
        tmp_path,
        f'<asset><mesh name="brick" vertex="{corners} 0.1 0.1 0.1"/></asset>'
        '<worldbody><geom type="plane" size="1 1 1"/><body name="b" pos="0 0 1"><freejoint/>'
        '<geom name="brick" type="mesh" mesh="brick"/><geom type="ellipsoid" size="0.1 0.2 0.3" pos="1 0 0"/>'
        "</body></worldbody>",
    )
    model, _ = load(path)
    brick, egg = model.shapes[1], model.shapes[2]
    world = brick.vertices @ quat_to_matrix(brick.quat).T + brick.pos
    expected = np.array([[x, y, z] for x in (0, 0.2) for y in (0, 0.3) for z in (0, 0.4)])
    assert len(world) == 8
    assert np.abs(world[:, None] - expected).max(-1).min(0).max() < 1e-6  # MuJoCo keeps meshes in float32
    assert len(egg.vertices) == 42
    np.testing.assert_allclose(((egg.vertices / [0.1, 0.2, 0.3]) ** 2).sum(1), 1.0)
    assert len(model.pairs) == 2  # both with the floor
    assert len(load_mjcf(path, meshes=False).shapes) == 2
