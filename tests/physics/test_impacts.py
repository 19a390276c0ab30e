"""Steps that impacts interrupt (contact_time="impact"): bounces against closed forms, and everything else as in "step".

Bounces of small bodies first; then limits and drives, stacks and piles, robots; then what options and batches do.
"""

import numpy as np
import pytest
import torch
from contact_room import rest_depth, turn
from small_models import hinge, varied

import warp_articulated as wa
from warp_articulated.geometry.kinematics import lowest_point
from warp_articulated.model import WORLD, Body, Drive, DriveType, JointType, Shape, ShapeType, assemble

G = 9.81
MODES = ("step", "impact")
DTYPES = ("float64", "float32")
FLOOR = ((0.0, 0, 0), (0.0, 0, 0, 1))
HALF = np.sqrt(0.5)


def simulator(model, num_envs=1, mode="impact", dtype="float64", **options):
    return wa.Simulator(model, num_envs, device="cpu", dtype=dtype, contact_time=mode, **options)


def body(kind=ShapeType.SPHERE, size=(0.1, 0, 0), planes=(FLOOR,), gravity=(0, 0, -G), restitution=0.0):
    """A free body of 1 kg, and planes, by position and quaternion."""
    inertia = np.eye(3) * 0.4 * size[0] ** 2
    free = Body("body", WORLD, "body", JointType.FREE, mass=1.0, inertia=inertia)
    shapes = [Shape(kind, 0, np.array(size))]
    shapes += [Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.array(pos), np.array(quat)) for pos, quat in planes]
    pairs = [(0, 1 + k, 0.5, restitution) for k in range(len(planes))]
    return assemble("body", [free], shapes, pairs=pairs, gravity=gravity)


def run(sim, steps, q=None, qd=None, **params):
    """States of a rollout with the default control; q and qd of one environment, or of all."""
    start = sim.initial_state()
    q, qd = (
        x if given is None else torch.as_tensor(given, dtype=sim.dtype).expand(x.shape).contiguous()
        for given, x in zip((q, qd), start, strict=True)
    )
    u = sim.initial_control().expand(steps, -1, -1).contiguous()
    params = {name: torch.as_tensor(value, dtype=sim.dtype) for name, value in params.items()}
    states = sim.rollout(q, qd, u, params=params)
    assert not len(sim.diverged) and not sim.dropped_contacts.any()
    return states


def deepest(model, qs, qds, every):
    """Largest penetration of states (T + 1, num_envs, n) of a trajectory."""
    look = simulator(model, qs.shape[1], "step", str(qs.dtype), max_contacts=32)
    return max(look.contacts(qs[k], qds[k]).depths.max().item() for k in range(0, len(qs), every))


# -- bounces


def jumps(mode, starts=4000, steps=192):
    """Largest departure from a straight line of neighbouring positions and velocities after 0.8 s, and the slope."""
    sim = simulator(body(), starts, mode, dt=0.8 / steps)
    q, qd = sim.initial_state()
    q[:, 2] = 0.1 + torch.linspace(0.9, 1.1, starts, dtype=q.dtype)
    u = torch.zeros(steps, starts, 0).double()
    ends = sim.rollout(q, qd, u, params={"restitution": 0.5}, checkpoint_every=steps)
    ends = [x[-1, :, 2] for x in ends]
    steps = [x[1:] - x[:-1] for x in ends]
    slope = steps[0].median().item() * (starts - 1) / 0.2
    return [(x - x.median()).abs().max().item() for x in steps], slope, (ends[0][-1] - ends[0][0]).item() / 0.2


def test_state_is_continuous_as_an_impact_moves_through_steps():
    """Starts from 0.9 to 1.1 m: the impact moves through six steps of 4.2 ms, and later ones through more."""
    (position, velocity), slope, whole = jumps("impact")
    # slopes differ by O(h) from end to end: measured 7e-6 m and 9e-6 m/s, of the curvature of y_T(y_0) and rounding
    assert position < 2e-5 and velocity < 2e-5
    assert slope == pytest.approx(whole, rel=0.01)
    (position, _), slope, whole = jumps("step")
    assert position > 5e-3 and slope == pytest.approx(1.0, abs=1e-3) and whole < 0.7  # why there is a second mode


@pytest.mark.parametrize("dtype", DTYPES)
def test_inelastic_ball_lands_without_hop_or_penetration(dtype):
    h, rest = 2.5e-3, rest_depth(G, dt=2.5e-3)
    z = {}
    for mode in MODES:
        qs, qds = run(simulator(body(), 1, mode, dtype, dt=h), 800, q=[0, 0, 1.1, 0, 0, 0, 1])
        z[mode] = qs[:, 0, 2] - 0.1
        assert z[mode][-1].item() == pytest.approx(-rest, rel=0.02)  # float32: rounding of 0.1
        assert qds[-1].abs().max() < 1e-5
    landing = int((z["impact"] < 1e-5).nonzero()[0])
    assert z["impact"][landing:].max() < 1e-7 and z["impact"].min() > -1.01 * rest
    landing = int((z["step"] < 1e-5).nonzero()[0])
    assert z["step"][landing:].max() > 1e-2 and z["step"].min() < -5e-3


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("h", [4e-3, 1e-3])
def test_elastic_ball_keeps_its_energy_over_a_hundred_bounces(dtype, bound, h):
    """Constant gravity is integrated exactly, and so is the time of an impact: what is left is rounding."""
    starts = 8
    sim = simulator(body(), starts, "impact", dtype, dt=h)
    q, _ = sim.initial_state()
    q[:, 2] = 0.1 + torch.linspace(0.1, 0.12, starts, dtype=q.dtype)
    qs, qds = run(sim, round(31.5 / h), q=q, restitution=1.0)
    z, v = qs[..., 2] - 0.1, qds[..., 2] - h / 2 * G  # rates lag half a step behind
    assert ((qds[1:, :, 2] > 0) & (qds[:-1, :, 2] < 0)).sum(0).min() >= 100
    energy = G * z + v * v / 2
    assert ((energy / energy[0]) - 1).abs().max() < bound
    assert z.min() > (-1e-12 if dtype == "float64" else -1e-7)


def test_energy_of_an_elastic_pendulum_is_of_second_order():
    """Against a limit, where the force is not constant; one start depends on where in a step its impacts are."""
    model = hinge(gravity=(0, 0, -G), com=(0, 0, -0.3), lower=-2.0, upper=0.3)
    inertia, errors = 0.5 + 0.3**2, []
    for h in (8e-3, 4e-3, 2e-3, 1e-3):
        sim = simulator(model, 64, dt=h)
        qs, qds = run(sim, round(16 / h), q=torch.linspace(-1.0, -0.8, 64)[:, None], limit_restitution=1.0)
        assert qs.max() < 0.3 + 1e-12
        v = qds[..., 0] - h / 2 * G * 0.3 * torch.sin(qs[..., 0]) / inertia
        energy = inertia / 2 * v * v + G * 0.3 * (1 - torch.cos(qs[..., 0]))
        errors.append((energy[-1] / energy[0] - 1).square().mean().sqrt().item())
    order = np.polyfit(np.log([8, 4, 2, 1]), np.log(errors), 1)[0]
    assert errors[-1] < 1e-4 and 1.7 < order < 2.3  # measured 1.9; 64 starts average the places in a step


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-5)])
def test_ball_between_walls_bounces_off_both_in_one_step(dtype, bound):
    """40 m/s and 2 cm of way: in steps of 1 ms it hits each wall in every step."""
    walls = (((-0.02, 0, 0), (0, HALF, 0, HALF)), ((0.02, 0, 0), (0, -HALF, 0, HALF)))
    model = body(size=(0.01, 0, 0), planes=walls, gravity=(0, 0, 0))
    for e in (1.0, 0.9):
        qs, qds = run(simulator(model, dtype=dtype, dt=1e-3), 100, qd=[40.0, 0, 0, 0, 0, 0], restitution=e)
        x, v, steps = 0.0, 40.0, []
        for _ in range(100):  # exactly
            rest = 1e-3
            while (way := (0.01 - x * np.sign(v)) / abs(v)) < rest:
                x, v, rest = 0.01 * np.sign(v), -e * v, rest - way
            x += rest * v
            steps.append((x, v))
        states = torch.stack([qs[1:, 0, 0], qds[1:, 0, 0]], 1).double().numpy()
        np.testing.assert_allclose(states, steps, rtol=bound, atol=bound)


# -- limits and drives


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("e", [0.0, 0.4])
def test_joint_thrown_against_its_limit(e, dtype):
    h, speed = 2e-3, 3.0
    sim = simulator(hinge(lower=-1.0, upper=0.3), dtype=dtype, dt=h)
    qs, qds = run(sim, 200, qd=[speed], limit_restitution=e)
    way = speed * h * np.arange(201)
    expected = np.where(way < 0.3, way, 0.3 - e * (way - 0.3))
    # rounding; one that does not bounce stays at the limit
    np.testing.assert_allclose(qs[:, 0, 0], expected, rtol=0, atol=1e-12 if dtype == "float64" else 1e-5)
    assert qds[-1].item() == pytest.approx(-e * speed, rel=1e-6)


def pressed():
    """1 kg on a vertical slider with a torque drive, 5 cm above the floor."""
    slider = Body("foot", WORLD, "foot", JointType.PRISMATIC, pos=np.array([0, 0, 0.15]), mass=1.0)
    slider.inertia = np.eye(3) * 0.01
    shapes = [Shape(ShapeType.SPHERE, 0, np.array([0.1, 0, 0])), Shape(ShapeType.PLANE, WORLD, np.zeros(0))]
    return assemble("pressed", [slider], shapes, [Drive("foot", DriveType.TORQUE)], pairs=[(0, 1, 0.5, 0.0)])


@pytest.mark.parametrize("h", [1e-3, 4e-3])
def test_drives_that_press_do_not_interrupt_for_ever(h):
    """Accelerations up to 300 g, inelastic and elastic: it comes to rest, and then moves with the bits of "step".

    Compliance lets it sink at first, with cfm force h; beyond restitution_threshold (5000 N at 1 ms, 2900 N in long
    steps) that would count as an impact again and again.
    """
    force, e = np.meshgrid([10.0, 100, 300, 1000, 2900], [0.0, 0.2, 0.5, 0.8])
    force, e = (np.where(h * force > 8, 1000, force)).reshape(-1, 1), e.reshape(-1, 1)
    ends = []
    for mode in MODES:
        sim = simulator(pressed(), len(force), mode, dt=h)
        u = torch.tensor(-force).expand(round(2 / h), -1, -1).contiguous()
        qs, qds = sim.rollout(*sim.initial_state(), u, params={"restitution": torch.tensor(e)})
        assert qds[-20:].abs().max() < 1e-10
        ends.append(qs[-1, :, 0] + 0.05)
    np.testing.assert_allclose(ends[1], ends[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(-ends[1], rest_depth(force[:, 0] + G, dt=h), rtol=1e-6)
    same_bits(pressed(), qs[-1], qds[-1], u[:50], dt=h)


# -- stacks, boxes, piles


def test_box_that_falls_flat_or_tilted_comes_to_rest():
    """Flat: all corners at once. On a corner: one after the other, without the penetration that steps have."""
    model = body(ShapeType.BOX, (0.1, 0.1, 0.05))
    start = np.array([[0, 0, 0.25, 0, 0, 0, 1], [0, 0, 0.35, *turn([1, 0.7, 0], 0.9)]])
    ends, speed = {}, 0.0
    for mode, dtype in (("step", "float64"), ("impact", "float64"), ("impact", "float32")):
        qs, qds = run(simulator(model, 2, mode, dtype), 2500, q=start)
        below = -np.array([[lowest_point(model, q) for q in qs[:, k].double().numpy()] for k in range(2)])
        if mode == "step":
            assert below.max() > 1e-3
        else:
            # When the tilted box slams on its side, three corners hit in one step, of which two interrupt it: for one
            # step 0.3 mm. Otherwise at most the depth at rest.
            assert below.max() < 5e-4 and (below > 2 * rest_depth(G / 4)).sum(1).tolist() in ([0, 0], [0, 1])
        assert qds[-100:].abs().max() < 1e-5
        np.testing.assert_allclose(qs[-1, :, 2], 0.05 - rest_depth(G / 4), rtol=0, atol=1e-7)
        ends[mode, dtype], speed = qs[-1], max(speed, qds.abs().max().item())
    assert speed < 10  # rad/s, when it falls over
    # It slides after corners that slam together have hit in an order that rounding decides: measured 6 mm and 0.03 rad
    # between the modes and between the precisions. The flat one stays where it is.
    for key in (("step", "float64"), ("impact", "float32")):
        difference = (ends[key].double() - ends["impact", "float64"]).abs().amax(1)
        assert difference[0] < 1e-7 and difference[1] < 5e-2


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_stack_of_boxes_settles(dtype):
    """As placed, and dropped with gaps of 5 cm; box against box is found in penetration in both modes."""
    model = wa.load("boxes3")
    start = np.tile(model.q0, (2, 1))
    start[1, 2::7] += [0.05, 0.15, 0.25]
    for mode in MODES:
        qs, qds = run(simulator(model, 2, mode, dtype), 2500, q=start)
        end = qs[-1].view(2, 3, 7)
        # 12 contacts are too many for 50 sweeps to converge: in both modes it trembles by some micrometres
        assert qds[-200:].abs().max() < 1e-2 and (qs[-200:] - qs[-1]).abs().max() < 1e-4
        sunk = np.cumsum([rest_depth(weights * G / 4) for weights in (3, 2, 1)])
        np.testing.assert_allclose(end[..., 2], np.tile(model.q0[2::7] - sunk, (2, 1)), rtol=0, atol=5e-6)
        # upright; dropped boxes meet corner by corner, and rounding decides in which order: in "impact" the top one has
        # ended 2 to 12 mm aside and turned by up to a degree
        assert end[..., 3:5].abs().max() < 1e-3 and end[..., 5].abs().max() < 3e-2 and end[..., :2].abs().max() < 4e-2
        assert deepest(model, qs[:, :1], qds[:, :1], 10) < 3e-5  # as placed: boxes3 begins without gaps
        assert deepest(model, qs, qds, 10) < 2e-3  # 1.4 m/s in a step


def pile(kind, size, count=6):
    """Bodies above a pit of four walls."""
    walls = [
        FLOOR, ((-0.35, 0, 0), (0, HALF, 0, HALF)), ((0.35, 0, 0), (0, -HALF, 0, HALF)),
        ((0, -0.35, 0), (-HALF, 0, 0, HALF)), ((0, 0.35, 0), (HALF, 0, 0, HALF)),
    ]  # fmt: skip
    names = [f"body{k}" for k in range(count)]
    bodies = [Body(name, WORLD, name, JointType.FREE, mass=1.0, inertia=np.eye(3) * 0.005) for name in names]
    shapes = [Shape(kind, k, np.array(size)) for k in range(count)]
    shapes += [Shape(ShapeType.PLANE, WORLD, np.zeros(0), np.array(pos), np.array(quat)) for pos, quat in walls]
    pairs = [(a, b, 0.5, 0.0) for a in range(count) for b in range(a + 1, count + 5)]
    return assemble("pile", bodies, shapes, pairs=pairs)


PILES = {"spheres": (ShapeType.SPHERE, (0.1, 0, 0)), "boxes": (ShapeType.BOX, (0.1, 0.1, 0.1)),
         "capsules": (ShapeType.CAPSULE, (0.06, 0.08, 0))}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PILES)
def test_pile_does_not_explode(kind, dtype, envs=4, count=6):
    """Six bodies fall on each other, so there are more impacts at once than interrupt a step."""
    model, rng = pile(*PILES[kind]), np.random.default_rng(0)
    q = np.zeros((envs, count, 7))
    q[..., :2], q[..., 2] = rng.uniform(-0.15, 0.15, (envs, count, 2)), 0.25 + 0.3 * np.arange(count)
    q[..., 3:] = rng.normal(size=(envs, count, 4))
    q[..., 3:] /= np.linalg.norm(q[..., 3:], axis=-1, keepdims=True)
    deep = {}
    for mode in MODES:
        for e in (0.0, 0.5):
            qs, qds = run(
                simulator(model, envs, mode, dtype, max_contacts=32), 2500, q=q.reshape(envs, -1), restitution=e
            )
            energy = (qds.view(-1, envs, count, 6)[..., :3].square().sum(-1) / 2 + G * qs[..., 2::7]).sum(-1)
            assert energy.max() < energy[0].max() * 1.001  # nothing but gravity gives them energy
            centres = qs.view(-1, envs, count, 7)[..., :3]
            assert centres[..., :2].abs().max() < 0.35 and centres[..., 2].min() > 0.05
            deep[mode] = deepest(model, qs, qds, 10)
    # 5.5 m/s in a step; in one step there are at most two impacts, so boxes go up to twice as deep
    assert deep["step"] < 6e-3 and deep["impact"] < 1.2e-2


# -- robots


def same_bits(model, q, qd, u, **options):
    """Assert that no step of a rollout is interrupted: it is bitwise the one of contact_time="step"."""
    ours, theirs = (simulator(model, len(q), mode, str(q.dtype), **options).rollout(q, qd, u) for mode in MODES)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    return ours


@pytest.mark.parametrize("dtype", DTYPES)
def test_standing_and_flying_laikago_moves_as_in_step(dtype):
    model = wa.load("laikago_feet")
    ends = []
    for mode in MODES:
        sim = simulator(model, 1, mode, dtype)
        qs, qds = run(sim, 2000)
        assert (qs[-1] - qs[0]).abs().max() < 1e-4 and qds[-100:].abs().max() < 1e-4
        ends.append(qs[-1, 0, 2].item())
    assert ends[1] == pytest.approx(ends[0], abs=1e-6)
    u = sim.initial_control().expand(300, -1, -1).contiguous()
    if dtype == "float64":  # in float32 feet leave the ground by rounding, so some gaps close
        same_bits(model, qs[-1], qds[-1], u)
    q, _ = sim.initial_state()
    q[:, 2] += 1.0  # lands after 0.4 s
    same_bits(model, q, torch.linspace(-1, 1, model.nv, dtype=sim.dtype)[None], u)


@pytest.mark.parametrize("stiff", [1, 20])
@pytest.mark.parametrize("e", [0.0, 0.5])
def test_dropped_laikago_lands_as_in_step(e, stiff):
    """From 10 cm, also with drives 20 times as strong as it has."""
    model, ends = wa.load("laikago_feet"), []
    drop = np.r_[model.q0[:2], model.q0[2] + 0.1, model.q0[3:]]
    for mode, dtype in (("step", "float64"), ("impact", "float64"), ("impact", "float32")):
        sim = simulator(model, 1, mode, dtype)
        drives = {name: sim.params[name][0] * gain for name, gain in
                  (("kp", stiff), ("kd", stiff**0.5), ("effort_limit", stiff))}  # fmt: skip
        qs, qds = run(sim, 2000, q=drop, restitution=e, friction=1.0, **drives)
        assert qds[-100:].abs().max() < 1e-2 and qds.abs().max() < 15  # rad/s
        ends.append(qs[-1, 0])
    # measured 13 um of height; friction holds the legs where they landed
    assert abs(ends[1][2] - ends[0][2]) < 1e-4 and (ends[1] - ends[0]).abs().max() < 2e-2
    assert (ends[2] - ends[1]).abs().max() < (1e-3 if e == 0 else 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_trotting_laikago_goes_as_far_as_in_step(dtype, envs=4):
    """Diagonal legs lift in turn, 2 to 3 times a second: 20 touch-downs in 2 s."""
    model, h = wa.load("laikago_feet"), 1e-3
    time, rate = torch.arange(2000, dtype=torch.float64)[:, None, None] * h, torch.linspace(2.2, 3, envs)[None, :, None]
    lift = torch.sin(2 * np.pi * rate * time + torch.tensor([0, np.pi, np.pi, 0])).clamp(min=0)
    ways = []
    for mode in MODES:
        sim = simulator(model, envs, mode, dtype, dt=h)
        swing = torch.stack([torch.zeros_like(lift), 0.4 * lift, -0.8 * lift], -1).flatten(2)
        u = (sim.initial_control() + swing).to(sim.dtype)
        qs, qds = sim.rollout(*sim.initial_state(), u, params={"friction": 1.0})
        ways.append(torch.cat([qs[-1, :, :1], qs[500:, :, 2].mean(0)[:, None]], 1).double())
        # 1.8 mm and 0.08 mm: feet come down at 2 m/s, and turn about ground contacts within a step
        assert deepest(model, qs, qds, 5) < (3e-3 if mode == "step" else 2e-4)
    far, height = (ways[1] - ways[0]).abs().amax(0)
    # 20 cm of way, measured 5 mm and 0.1 mm
    assert far < 2e-2 and height < 1e-3


# -- options and batches


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"contact_time": "foo"}, "contact_time is 'foo'; it must be 'step' or 'impact'"),
        ({"max_impacts": 0}, "max_impacts"),
        ({"max_impacts": 1.5}, "max_impacts"),
        ({"restitution_threshold": 0.0}, "restitution_threshold"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        wa.Simulator(body(), device="cpu", **{"contact_time": "impact", **options})


def test_results_do_not_depend_on_batch_threads_or_how_steps_are_taken():
    """Laikagos that land, differently in each environment: 64 at once, seven, step by step, every eighth state."""
    model, envs = wa.load("laikago_feet"), 64
    q, qd, u, params = varied(model, envs)
    qd[:, 2] -= 1.0
    sim = simulator(model, envs, dtype="float32", threads=1)
    qs, qds = sim.rollout(q, qd, u, params=params)
    other, _ = simulator(model, envs, "step", "float32").rollout(q, qd, u, params=params)
    assert (qs[-1] != other[-1]).any(1).double().mean() > 0.8  # there are impacts in most

    def same(found, rows=slice(None), some=slice(None)):
        assert all(torch.equal(a, b[rows, some]) for a, b in zip(found, (qs, qds), strict=True))

    same(simulator(model, envs, dtype="float32", threads=2).rollout(q, qd, u, params=params))
    some = [60, 3, 5, 7, 11, 13, 17]
    few = {name: value[some] for name, value in params.items()}
    same(
        simulator(model, 7, dtype="float32").rollout(q[some], qd[some], u[:, some].contiguous(), params=few), some=some
    )
    same(sim.rollout(q, qd, u, params=params, checkpoint_every=8), rows=[0, 8, 16, 20])
    states = [(q, qd)]
    for control in u:
        states.append(sim.step(*states[-1], control, params=params))
    same(map(torch.stack, zip(*states, strict=True)))
    held = u[::4].repeat_interleave(4, 0).contiguous()
    apart = sim.rollout(q, qd, held, params=params)
    together = sim.rollout(q, qd, u[::4].contiguous(), substeps=4, params=params)
    assert all(torch.equal(a, b[::4]) for a, b in zip(together, apart, strict=True))
