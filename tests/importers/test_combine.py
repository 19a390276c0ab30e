"""Several models in one environment: each part moves and touches as it would alone, and the parts touch each other."""

from itertools import permutations

import numpy as np
import pytest

from warp_articulated.geometry.kinematics import link_transforms
from warp_articulated.geometry.rotations import quat_multiply, quat_to_matrix
from warp_articulated.importers.combine import combine, disassemble
from warp_articulated.model import (
    WORLD,
    Body,
    Drive,
    DriveType,
    JointType,
    Model,
    ModelError,
    Shape,
    ShapeType,
    assemble,
)

TURN = np.array([0.1, -0.3, 0.5, 0.8]) / np.linalg.norm([0.1, -0.3, 0.5, 0.8])
SHIFT = np.array([1.0, -2.0, 0.5])


def ball(name: str = "ball", friction: float = 0.5, ground: bool = True, **options) -> Model:
    body = Body("ball", WORLD, "root", JointType.FREE, pos=np.array([0, 0, 1.0]), mass=1.0, inertia=np.eye(3))
    shapes = [Shape(ShapeType.SPHERE, 0, np.array([0.1, 0, 0]), name="skin", body="ball", friction=friction)]
    if ground:
        shapes.append(Shape(ShapeType.PLANE, WORLD, np.zeros(3), name="ground", body="ground"))
    return assemble(name, [body], shapes, **options)


def arm(name: str = "arm") -> Model:
    """A fixed-base chain whose joint order is not the order of its links, with a drive of each type."""

    def link(k: int, kind: JointType, order: int) -> Body:
        return Body(
            f"link{k}", k - 1, f"joint{k}", kind, pos=np.array([0.1, 0.2, 0.3]) * (k + 1), quat=TURN,
            axis=np.array([0, 0.6, 0.8]), mass=1.0 + k, com=np.array([0, 0.1, 0]), inertia=np.diag([0.1, 0.2, 0.25]),
            armature=0.1 * k, damping=0.2, stiffness=0.3, spring_ref=0.4, frictionloss=0.5, lower=-1.0, upper=2.0 + k,
            order=order, q0=np.array([0.1 * k]) if kind != JointType.SPHERICAL else TURN,
            frame_pos=np.array([0, 0, 0.1 * k]),
        )  # fmt: skip

    bodies = [
        link(0, JointType.REVOLUTE, 2),
        link(1, JointType.PRISMATIC, 0),
        link(2, JointType.SPHERICAL, 3),
        link(3, JointType.REVOLUTE, 1),
    ]
    shapes = [
        Shape(ShapeType.BOX, WORLD, np.full(3, 0.1), pos=np.array([0, 0, 0.1]), name="base", body="base", friction=0.9),
        Shape(ShapeType.CAPSULE, 1, np.array([0.1, 0.2, 0]), name="skin", body="link1", friction=0.8, restitution=0.3),
        Shape(ShapeType.SPHERE, 3, np.array([0.1, 0, 0]), name="tip", body="link3", friction=0.2),
        Shape(ShapeType.SPHERE, 3, np.array([0.2, 0, 0]), name="halo", body="link3", collide=False),
    ]
    drives = [
        Drive("joint0", DriveType.POSITION, gear=2.0, kp=10.0, kd=1.0, effort=5.0, name="servo"),
        Drive("joint1", DriveType.VELOCITY, kd=3.0),
        Drive("joint3", u0=0.7),
    ]
    return assemble(name, bodies, shapes, drives, merged=[("base", "world")], notes=["It is an arm."])


def pair_names(model: Model) -> set[frozenset[str]]:
    return {frozenset(model.shapes[k].name for k in pair) for pair in model.pairs}


def assert_same(one: Model, two: Model) -> None:
    for key, value in vars(one).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(two, key), err_msg=key)
        elif key not in ("name", "shapes", "notes"):
            assert value == getattr(two, key), key
    assert [s.name for s in one.shapes] == [s.name for s in two.shapes]


@pytest.mark.parametrize("model", [arm(), ball()])
def test_disassembled_parts_assemble_to_the_same_model(model):
    parts = disassemble(model)
    again = assemble(
        model.name, parts.bodies, parts.shapes, parts.drives, pairs=parts.pairs, gravity=model.gravity,
        merged=model.merged,
    )  # fmt: skip
    assert_same(model, again)


@pytest.mark.parametrize("model", [arm(), ball()])
def test_a_combination_of_one_model_is_that_model(model):
    assert_same(model, combine([model]))


def test_states_and_controls_are_concatenated():
    parts = [arm("a"), ball("b"), arm("c")]
    whole = combine(parts)
    for key in ("q0", "u0", "armature", "damping", "lower", "upper", "mass", "kp", "effort", "gear"):
        np.testing.assert_array_equal(getattr(whole, key), np.concatenate([getattr(p, key) for p in parts]))
    first = np.cumsum([0, *(p.nv for p in parts)])
    np.testing.assert_array_equal(whole.drive_dof, np.concatenate([p.drive_dof + v for p, v in zip(parts, first)]))
    q = np.random.default_rng(0).normal(size=whole.nq)
    rotation, origin = link_transforms(whole, q)
    first_q = first_link = 0
    for part in parts:
        R, p = link_transforms(part, q[first_q : first_q + part.nq])
        np.testing.assert_array_equal(rotation[first_link : first_link + part.num_links], R)
        np.testing.assert_array_equal(origin[first_link : first_link + part.num_links], p)
        first_q, first_link = first_q + part.nq, first_link + part.num_links


def transform() -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = quat_to_matrix(TURN), SHIFT
    return T


@pytest.mark.parametrize("pose", [np.concatenate([SHIFT, 2 * TURN]), transform()])
def test_poses_move_everything_that_is_fixed_to_the_world(pose):
    one = arm()
    whole = combine([one, ball()], poses=[pose, pose])
    q = np.random.default_rng(1).normal(size=one.nq)
    R, p = link_transforms(one, q)
    rotation, origin = link_transforms(whole, np.concatenate([q, whole.q0[one.nq :]]))
    np.testing.assert_allclose(rotation[:4], quat_to_matrix(TURN) @ R, atol=1e-14)
    np.testing.assert_allclose(origin[:4], SHIFT + p @ quat_to_matrix(TURN).T, atol=1e-14)
    np.testing.assert_allclose(origin[4], SHIFT + quat_to_matrix(TURN) @ [0, 0, 1], atol=1e-14)
    np.testing.assert_allclose(rotation[4], quat_to_matrix(TURN), atol=1e-14)
    base = next(s for s in whole.shapes if s.name == "base")
    np.testing.assert_allclose(base.pos, SHIFT + quat_to_matrix(TURN) @ [0, 0, 0.1], atol=1e-14)
    np.testing.assert_allclose(base.quat, quat_multiply(TURN, [0, 0, 0, 1]), atol=1e-14)
    ground = next(s for s in whole.shapes if s.name == "ground")
    assert not ground.pos.any() and tuple(ground.quat) == (0, 0, 0, 1)


def test_a_position_alone_shifts():
    whole = combine([ball("a"), ball("b")], poses=[None, [1, 2, 3]])
    np.testing.assert_array_equal(whole.q0, [0, 0, 1, 0, 0, 0, 1, 1, 2, 4, 0, 0, 0, 1])


def test_only_clashing_names_get_a_prefix():
    whole = combine([arm(), ball()])
    assert whole.link_names == ("link0", "link1", "link2", "link3", "ball")
    assert [s.name for s in whole.shapes] == ["base", "arm/skin", "tip", "halo", "ball/skin", "ground"]
    twins = combine([ball(), ball(), arm()])
    assert twins.link_names[:2] == ("ball1/ball", "ball2/ball") and twins.joint_names[:2] == (
        "ball1/root",
        "ball2/root",
    )
    assert twins.shapes[0].body == "ball1/ball"
    assert combine([ball(), ball()], names=["red", "blue"]).link_names == ("red/ball", "blue/ball")
    arms = combine([arm("left"), arm("right")])
    assert ("left/base", "world") in arms.merged and "left/servo" in arms.drive_names


def test_combinations_combine_again():
    whole = combine([combine([ball(), ball()]), ball(), ball()])
    assert len(set(whole.link_names)) == 4 and len(set(whole.joint_names)) == 4


def test_parts_touch_each_other_and_keep_their_own_pairs():
    whole = combine([arm(), ball()])
    for part, prefix in ((arm(), "arm/"), (ball(), "ball/")):
        own = {frozenset(prefix + name if name == "skin" else name for name in pair) for pair in pair_names(part)}
        assert own and own <= pair_names(whole)
    for name in ("base", "arm/skin", "tip"):
        assert frozenset((name, "ball/skin")) in pair_names(whole)
    assert frozenset(("tip", "ground")) in pair_names(whole)  # all parts touch the ball's ground
    assert frozenset(("base", "ground")) not in pair_names(whole)  # both are fixed
    assert not any("halo" in pair for pair in pair_names(whole))
    for pair, mu, e in zip(whole.pairs, whole.pair_friction, whole.pair_restitution):
        if {whole.shapes[k].name for k in pair} == {"arm/skin", "ball/skin"}:
            assert mu == pytest.approx(np.sqrt(0.8 * 0.5)) and e == 0.3


def test_friction_and_restitution_of_a_parts_pairs_are_kept():
    slippery = ball(pairs=[(0, 1, 0.123, 0.456)])
    whole = combine([slippery, ball("other")])
    at = [
        k for k, p in enumerate(whole.pairs) if whole.shapes[p[0]].name == "ball/skin" and whole.shapes[p[1]].link < 0
    ]
    assert len(at) == 1 and whole.pair_friction[at[0]] == 0.123 and whole.pair_restitution[at[0]] == 0.456


def test_there_is_only_one_ground():
    whole = combine([ball(), ball(), ball()], poses=[None, [1, 0, 0], [0, 1, 0]])
    planes = [k for k, s in enumerate(whole.shapes) if s.type == ShapeType.PLANE]
    assert len(planes) == 1 and whole.shapes[planes[0]].name == "ground"
    assert len(whole.pairs) == 3 + 3 and len({tuple(p) for p in whole.pairs}) == 6
    assert not [s for s in combine([ball(), arm()], ground=False).shapes if s.type == ShapeType.PLANE]
    added = combine([arm(), ball(ground=False)], ground=True)
    assert frozenset(("tip", "ground")) in pair_names(added) and frozenset(("ball/skin", "ground")) in pair_names(added)
    assert len(combine([ball(), ball()], ground=True).shapes) == 3


def test_a_floor_of_another_name_is_shared_if_it_coincides_after_moving():
    def floored(height: float) -> Model:
        parts = disassemble(ball(ground=False))
        floor = Shape(ShapeType.PLANE, WORLD, np.zeros(3), pos=np.array([0, 0, height]), name="floor", body="world")
        return assemble("ball", parts.bodies, [*parts.shapes, floor])

    level = combine([floored(0.0), floored(0.0)], poses=[None, [1, 0, 0, 0, 0, 0.6, 0.8]])
    assert sum(s.type == ShapeType.PLANE for s in level.shapes) == 1 and len(level.pairs) == 3
    steps = combine([floored(0.0), floored(0.5)])
    assert sum(s.type == ShapeType.PLANE for s in steps.shapes) == 2 and len(steps.pairs) == 5


def test_collision_pairs_do_not_depend_on_the_order_of_the_models():
    parts = [arm(), ball("one"), ball("two", ground=False)]
    found = {
        frozenset(pair_names(combine(list(order), names=[m.name for m in order]))) for order in permutations(parts)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: combine([]), "empty"),
        (lambda: combine([ball()], poses=[]), "poses has 0"),
        (lambda: combine([ball(), ball()], names=["a", "a"]), "'a' twice"),
        (lambda: combine([ball()], poses=[[1, 2]]), r"poses\[0\].*\(2,\).*accepted"),
        (lambda: combine([ball()], poses=[[0, 0, 0, 0, 0, 0, 0]]), "length zero"),
        (lambda: combine([ball()], poses=[np.diag([2.0, 1, 1, 1])]), "not a rigid transform"),
        (lambda: combine([ball()], poses=[[np.nan, 0, 0]]), "finite"),
        (lambda: combine([ball(), ball("moon", gravity=(0, 0, -1.6))]), "gravity.*'moon'"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, said):
    with pytest.raises(ModelError, match=said):
        call()
