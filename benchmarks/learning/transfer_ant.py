"""How alike our ant and Ant-v5's are: the same actions from the same states, and what differs. Part of transfer.py."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import mujoco
import numpy as np
import torch

import warp_articulated as wa
from lib.machine import progress, table
from warp_articulated import rl
from warp_articulated.geometry.rotations import quat_to_matrix
from warp_articulated.rl.transfer import from_mujoco, to_mujoco

ANTS, CONTROLS, CONTROL_DT = 32, 20, 0.05  # one second
MOMENTS = (1, 5, 10, 20)  # control steps
SIZES = (0.3, 1.0)  # of the random actions
OURS, THEIRS, FINE = 5e-3, 1e-2, 1e-3  # s per step: of our task, of Ant-v5, and of both for comparison
PLACES = ("on the ground", "in the air")


def measure() -> dict:
    progress("the same actions in both simulators")
    world = gymnasium.make("Ant-v5").unwrapped
    env = _env(OURS)
    state = env.fresh(ANTS, 0)
    with torch.no_grad():
        for _ in range(CONTROLS):  # until they stand
            state, _, _ = env.transition(state, state.q.new_zeros(ANTS, 8))
    rows = []
    for place in PLACES:
        start = replace(state, q=state.q + (torch.eye(15)[2] * 6.0 if place == "in the air" else 0.0))
        for size in SIZES:
            actions = np.random.default_rng(0).uniform(-size, size, (CONTROLS, ANTS, 8))
            runs = {
                "ours": _run_ours(start, actions, OURS), "ours, 1 ms": _run_ours(start, actions, FINE),
                "Ant-v5": _run_theirs(world.model, start, actions, THEIRS),
                "Ant-v5, 1 ms": _run_theirs(world.model, start, actions, FINE),
            }  # fmt: skip
            for a, b in (("ours", "Ant-v5"), ("ours", "ours, 1 ms"), ("Ant-v5", "Ant-v5, 1 ms")):
                apart = {"place": place, "size": size, "between": [a, b]}
                rows.append({**apart, **_apart(runs[a], runs[b])})
    return {"rows": rows, "differences": _differences(world, state)}


def _env(dt: float) -> rl.Env:
    return rl.make("Ant", ANTS, device="cpu", dtype="float64", dt=dt, substeps=round(CONTROL_DT / dt))


def _run_ours(state: rl.State, actions: np.ndarray, dt: float) -> np.ndarray:
    """(CONTROLS, ANTS, nq) after each control."""
    env, found = _env(dt), []
    with torch.no_grad():
        for action in torch.from_numpy(actions):
            state, _, _ = env.transition(state, action)
            found.append(state.q.numpy())
    return np.stack(found)


def _run_theirs(m: mujoco.MjModel, state: rl.State, actions: np.ndarray, dt: float) -> np.ndarray:
    usual, m.opt.timestep = m.opt.timestep, dt
    data = mujoco.MjData(m)
    found = np.empty((CONTROLS, ANTS, m.nq))
    for k, (qpos, qvel) in enumerate(zip(*to_mujoco(state.q, state.qd))):
        mujoco.mj_resetData(m, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        for t in range(CONTROLS):
            data.ctrl[:] = actions[t, k]
            mujoco.mj_step(m, data, round(CONTROL_DT / dt))
            found[t, k] = from_mujoco(data.qpos[None], data.qvel[None])[0][0]
    m.opt.timestep = usual
    return found


def _apart(a: np.ndarray, b: np.ndarray) -> dict:
    """Medians over the ants at MOMENTS: of the torsos' distance, m, and of the joint that is furthest off, rad."""
    at = np.array(MOMENTS) - 1
    torso = np.linalg.norm((a - b)[at, :, :3], axis=-1)
    joints = np.abs((a - b)[at, :, 7:]).max(-1)
    return {"torso_m": np.median(torso, 1).tolist(), "joints_rad": np.median(joints, 1).tolist()}


def _differences(world, state: rl.State) -> dict:
    """Mass matrices, how far above the ground feet rest, the angles at which ankles begin and may be."""
    m, data = world.model, mujoco.MjData(world.model)
    model = wa.load("ant")
    sim = wa.Simulator(model, ANTS, device="cpu", dtype="float64")
    ours, worst, gaps = sim.mass_matrix(state.q).numpy(), 0.0, []
    for k, qpos in enumerate(to_mujoco(state.q, state.qd)[0]):
        mujoco.mj_resetData(m, data)
        data.qpos[:] = qpos
        mujoco.mj_forward(m, data)
        turn = np.eye(m.nv)
        turn[3:6, 3:6] = quat_to_matrix(state.q[k, 3:7].numpy()).T
        product = np.zeros((m.nv, m.nv))
        for column in range(m.nv):
            mujoco.mj_mulM(m, data, product[column], np.ascontiguousarray(turn[:, column]))
        worst = max(worst, float(np.abs(product @ turn - ours[k]).max()))
        mujoco.mj_step(m, data, 500)  # until it rests
        gaps += [float(contact.dist) for contact in data.contact]
    world.reset(seed=0)
    rates = []
    for _ in range(5):
        world.step(np.zeros(8))
        rates.append(np.abs(world.data.qvel[6:]).max())
    ankle = m.joint("ankle_1")
    return {
        "mass_matrix": worst,
        "gap_m": float(np.mean(gaps)),
        "ankle_range_rad": m.jnt_range[ankle.id].tolist(),
        "ankle_begins_rad": float(world.init_qpos[ankle.qposadr[0]]),
        "ours_ankle_begins_rad": float(model.q0[8]),
        "first_rate_rad_s": float(max(rates)),
    }


def same_actions_table(results: dict) -> str:
    header = ["random actions", "between", *(f"after {k * CONTROL_DT:g} s: torso m, joint rad" for k in MOMENTS)]
    rows = []
    for row in results["rows"]:
        apart = [f"{torso:.2g}, {joint:.2g}" for torso, joint in zip(row["torso_m"], row["joints_rad"])]
        rows.append([f"±{row['size']:g}, {row['place']}", " and ".join(row["between"]), *apart])
    return table(header, rows)


def difference_sentences(results: dict) -> str:
    found = results["differences"]
    low, high = found["ankle_range_rad"]
    lines = [
        f"The mass matrices agree to {found['mass_matrix']:.0e} kg m^2; gears, armature, damping, ranges of joints and "
        "control periods are the same.",
        f"Ant-v5's feet rest {1e3 * found['gap_m']:.0f} mm above the ground, in the margin of its soft contacts; ours "
        "touch it.",
        f"Ant-v5 begins with its ankles at {found['ankle_begins_rad']:g} rad, outside of their range of {low:.2f} to "
        f"{high:.2f} rad: soft limits throw the legs into it at up to {found['first_rate_rad_s']:.0f} rad/s. Ours "
        f"begin at {found['ours_ankle_begins_rad']:g} rad.",
        "Limits and contacts of Ant-v5 are damped springs (time constant 20 ms), ours are hard; friction is 1 in both, "
        "in a pyramid there and in a cone here.",
    ]
    return "\n".join(f"- {line}" for line in lines)
