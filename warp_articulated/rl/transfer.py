"""Runs policies unchanged in MuJoCo, to check that they do not exploit details of our simulator.

`play_ant_v5` plays Gymnasium's Ant-v5. `in_mujoco` makes environments of the Laikago tasks in which MuJoCo simulates
the robot, from the same URDF file. Everything else is the task's code, so anything that takes an Env works there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

try:
    import gymnasium
    import mujoco
    import mujoco.rollout
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"warp_articulated.rl.transfer needs {error.name}: pip install 'warp-articulated[rl,mjcf]'."
    ) from None

from ..device import checks
from ..geometry.rotations import quat_to_matrix
from ..importers.scene_files import _folder
from ..model import Model
from ..simulator import Simulator
from .env import Env
from .laikago import LaikagoStand, LaikagoWalk
from .learning.evaluation import Evaluation
from .tasks import TASKS, check_options

Policy = Callable[[torch.Tensor], torch.Tensor]


# -- Gymnasium's Ant-v5


@torch.no_grad()
def play_ant_v5(policy: Policy, episodes: int = 20, seed: int = 0) -> Evaluation:
    """Play whole episodes of Gymnasium's Ant-v5, with its rewards and termination.

    The measures are "speed" along x, m/s, and "forward", the distance along x over the episode, m. Standing still earns
    1 per step minus a cost of contact forces, so check the distance as well as the return.

    Args:
        policy: from observations (n, 27), the first 27 numbers of Ant-v5's, to actions (n, 8) in [-1, 1].
        episodes: number of episodes.
        seed: seed of the first episode; the following episodes use seed + 1, seed + 2, ...
    """
    checks.whole("episodes", episodes, 1)
    checks.seed(seed)
    # Any: Gymnasium's type does not have MuJoCo's data, and mypy must pass with and without Gymnasium
    worlds: list[Any] = [gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False) for _ in range(episodes)]
    seen = np.stack([world.reset(seed=seed + k)[0] for k, world in enumerate(worlds)])
    x = np.array([world.unwrapped.data.qpos[0] for world in worlds])
    start = x.copy()
    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    running = list(range(episodes))
    while running:
        actions = _asked(policy, seen[running])
        still = []
        for k, action in zip(running, actions):
            seen[k], reward, terminated, truncated, info = worlds[k].step(action)
            returns[k] += float(reward)
            lengths[k] += 1
            x[k] = info["x_position"]
            if not (terminated or truncated):
                still.append(k)
        running = still
    seconds = lengths * worlds[0].unwrapped.dt
    for world in worlds:
        world.close()
    forward = x - start
    measures = {"speed": torch.from_numpy(forward / seconds), "forward": torch.from_numpy(forward)}
    return Evaluation(torch.from_numpy(returns), torch.from_numpy(lengths), measures)


def _asked(policy: Policy, seen: np.ndarray) -> np.ndarray:
    """The policy's actions (n, 8), clipped to +-1 as in our environments."""
    weights = policy.parameters() if isinstance(policy, torch.nn.Module) else iter(())
    like = next(weights, torch.empty(0))
    actions = policy(torch.from_numpy(seen).to(like))
    if actions.shape != (len(seen), 8):
        raise ValueError(
            f"policy returns actions of shape {tuple(actions.shape)} for {len(seen)} ants; it must be ({len(seen)}, 8)."
        )
    return actions.clamp(-1, 1).double().cpu().numpy()


# -- the Laikago


def in_mujoco(task: str, num_envs: int = 1, **options) -> Env:
    """Environments of "LaikagoStand" or "LaikagoWalk" in which MuJoCo simulates the robot, for example for `evaluate`.

    With the same seed, initial poses, commands and pushes are the same as with `rl.make`. There are no gradients, and
    the robot always has the parameters of the file: LaikagoWalk is made with randomise=False.

    Args:
        task: "LaikagoStand" or "LaikagoWalk".
        num_envs: number of environments.
        options: options of the task's class. dt, s, and substeps are those of MuJoCo, by default 1 ms and 20.
            stiff=True: the contact time constant is 4 dt; MuJoCo's default of 20 ms is softer than in our tasks.
    """
    if task not in MUJOCO_TASKS:
        raise ValueError(f"task is {task!r}; in MuJoCo it must be one of {', '.join(MUJOCO_TASKS)}.")
    check_options(TASKS[task], {name: value for name, value in options.items() if name != "stiff"})
    if options.get("randomise"):
        raise ValueError("randomise is True; it must be False in MuJoCo, where the robot has the file's parameters.")
    if options.get("terrain") is not None:
        raise ValueError("terrain is given; it must be None in MuJoCo, where the ground is flat.")
    if task == "LaikagoWalk":
        options["randomise"] = False
    return MUJOCO_TASKS[task](num_envs, **options)


class MujocoSimulator(Simulator):
    """A Simulator of the Laikago that steps with MuJoCo; queries such as link_poses are ours."""

    def __init__(self, model: Model, num_envs: int, stiff: bool = False, **options):
        super().__init__(model, num_envs, **options)
        self.mujoco = mujoco_laikago(model, self.dt, checks.flag("stiff", stiff))
        self._scratch = mujoco.MjData(self.mujoco)

    def step(self, q, qd, u=None, *, substeps: int | None = None, params: Mapping | None = None):
        """See `Simulator.step`. No gradients; params must be None."""
        if params:
            raise ValueError(f"params has {', '.join(params)}; it must be None, MuJoCo uses the model's parameters.")
        q, qd = self._state(q, qd)
        u, steps = self._control(u), self._substeps(substeps)
        start = np.concatenate([np.zeros((self.num_envs, 1)), *to_mujoco(q, qd)], 1)
        control = u.detach().double().cpu().numpy()[:, None].repeat(steps, 1)
        with _no_log():
            states, _ = mujoco.rollout.rollout(self.mujoco, self._scratch, start, control)
        time, qpos, qvel = np.split(states[:, -1], [1, 1 + self.model.nq], axis=1)
        # MuJoCo stops when it warns, so the final time is too short
        lost = ~np.isfinite(states[:, -1]).all(1) | (np.abs(time[:, 0] - steps * self.dt) > 0.5 * self.dt)
        qpos, qvel = (np.where(lost[:, None], old, new) for old, new in zip(to_mujoco(q, qd), (qpos, qvel)))
        self._diverged = torch.from_numpy(np.where(lost, 0, -1)).to(self._diverged)
        return tuple(x.to(q) for x in from_mujoco(qpos, qvel))


def mujoco_laikago(model: Model, dt: float, stiff: bool = False) -> mujoco.MjModel:
    """The Laikago's URDF file loaded by MuJoCo, on a free joint, with the drives and the friction of our model.

    Only toes touch the ground. Contacts are as soft as MuJoCo's defaults, or with `stiff` have a time constant of 4 dt.
    Drives are MuJoCo position actuators with our effort limits: kp acts explicitly, kd implicitly. In our simulator
    both act implicitly; at 1 ms the difference does not matter.
    """
    spec = mujoco.MjSpec.from_file(str(_folder() / "laikago.urdf"))
    spec.option.timestep, spec.option.gravity = dt, model.gravity
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC  # like ours; a pyramid has more friction along its edges
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # a divergence must not be reset silently
    spec.worldbody.first_body().add_freejoint()
    ground = {"friction": [float(model.pair_friction[0]), 0.0, 0.0], "condim": 3}
    for geom in spec.geoms:
        toe = geom.type == mujoco.mjtGeom.mjGEOM_SPHERE
        geom.contype, geom.conaffinity = 0, int(toe)
        geom.friction, geom.condim = ground["friction"], 3
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[5, 5, 1], contype=1, conaffinity=0, **ground)
    for name, kp, kd, effort in zip(model.drive_names, model.kp, model.kd, model.effort):
        spec.add_actuator(
            name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED, gainprm=[kp] + [0.0] * 9,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE, biasprm=[0.0, -kp, -kd] + [0.0] * 7,
            forcelimited=True, forcerange=[-effort, effort],
        )  # fmt: skip
    m = spec.compile()
    m.dof_damping[:], m.dof_armature[:] = model.damping, model.armature
    if stiff:
        m.geom_solref[:], m.geom_solimp[:, :2] = (4.0 * dt, 1.0), (0.99, 0.999)
    hinges = tuple(m.joint(j).name for j in range(1, m.njnt))
    if hinges != tuple(model.drive_names):
        raise RuntimeError(f"MuJoCo's joint order is {', '.join(hinges)}; it must be that of the model's drives.")
    return m


@contextmanager
def _no_log() -> Iterator[None]:
    """Silence MuJoCo's warnings, which would write a log to the working directory; `_diverged` reports them."""
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(handler)


def to_mujoco(q: torch.Tensor, qd: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """MuJoCo's qpos (n, nq) and qvel (n, nv) of robots on a free joint: wxyz, angular velocity in body axes."""
    qpos, qvel = (x.detach().double().cpu().numpy().copy() for x in (q, qd))
    turn = quat_to_matrix(qpos[:, 3:7])
    qpos[:, 3:7] = np.roll(qpos[:, 3:7], 1, axis=1)
    qvel[:, 3:6] = np.einsum("nji,nj->ni", turn, qvel[:, 3:6])
    return qpos, qvel


def from_mujoco(qpos: np.ndarray, qvel: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Our q (n, nq) and qd (n, nv) in float64: xyzw, angular velocity in world axes."""
    q, qd = np.array(qpos), np.array(qvel)
    q[:, 3:7] = np.roll(q[:, 3:7], -1, axis=1)
    qd[:, 3:6] = np.einsum("nij,nj->ni", quat_to_matrix(q[:, 3:7]), qd[:, 3:6])
    return torch.from_numpy(q), torch.from_numpy(qd)


class _InMujoco(Env):
    """Mixin that simulates a task's environments with MuJoCo."""

    dt, substeps = 1e-3, 20

    def simulator(self, num: int) -> Simulator:
        if num not in self._sims:
            with torch.inference_mode(False):
                self._sims[num] = MujocoSimulator(self.model, num, **self._options)
        return self._sims[num]


class MujocoStand(_InMujoco, LaikagoStand):
    """LaikagoStand in MuJoCo."""


class MujocoWalk(_InMujoco, LaikagoWalk):
    """LaikagoWalk in MuJoCo."""


MUJOCO_TASKS: dict[str, Callable[..., Env]] = {"LaikagoStand": MujocoStand, "LaikagoWalk": MujocoWalk}
