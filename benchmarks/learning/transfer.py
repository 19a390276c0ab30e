"""Policies that were trained here, unchanged in MuJoCo: Gymnasium's Ant-v5, and the Laikago's tasks.

    python benchmarks/learning/transfer.py                              # all of examples/policies; some minutes
    python benchmarks/learning/transfer.py examples/policies/ant_shac.pt
    python benchmarks/learning/transfer.py --quick                      # 2 episodes

Each policy plays 20 episodes in our simulator and 20 in MuJoCo, and so do those that it must beat: one that does
nothing, and untrained networks. A Laikago gets the same poses, commands and pushes in both simulators.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, which a script does not see

import numpy as np
import torch

from learning import transfer_ant
from lib import machine, reporting
from lib.machine import progress, table
from warp_articulated import rl
from warp_articulated.rl.learning.evaluation import Evaluation, evaluate
from warp_articulated.rl.learning.networks import Normaliser
from warp_articulated.rl.learning.policy_file import PolicyFile, load_policy
from warp_articulated.rl.learning.shac import Actor, Settings
from warp_articulated.rl.transfer import MUJOCO_TASKS, in_mujoco, play_ant_v5

POLICIES = machine.ROOT / "examples" / "policies"
EPISODES, QUICK_EPISODES = 20, 2
NOTHING, UNTRAINED = "zero actions", "untrained networks"
PAPER = (("paper, without pretraining", "868 ± 77"), ("paper, with pretraining", "1735 ± 1066"))
TASKS = ("Ant", *MUJOCO_TASKS)


def still(env: rl.Env):
    """The policy that does nothing."""
    return lambda seen: seen.new_zeros(len(seen), env.action_size)


def untrained(env: rl.Env, seed: int) -> torch.nn.Module:
    """A network as SHAC begins with it."""
    observed, acted = env.observation_size, env.action_size
    torch.manual_seed(seed)
    return Actor(Normaliser(observed), [observed, *Settings.actor_hidden, acted], Settings.log_std).eval()


# -- the ant


def ant_rows(files: dict[str, PolicyFile], episodes: int) -> list[dict]:
    env = rl.make("Ant", episodes, device="cpu")

    def here(policy) -> Evaluation:
        found = evaluate(env, policy)
        found.measures["forward"] = found.measures["speed"] * found.lengths * env.control_dt
        return found

    rows = []
    for name, file in files.items():
        progress(f"{name} in our simulator and in Ant-v5")
        rows += [_ant_row(name, "ours", [here(file.policy)])]
        rows += [_ant_row(name, "Ant-v5", [play_ant_v5(file.policy, episodes)])]
    progress("ants that do nothing, or anything")
    rows += [_ant_row(NOTHING, "ours", [here(still(env))])]
    rows += [_ant_row(NOTHING, "Ant-v5", [play_ant_v5(still(env), episodes)])]
    # another network in every episode
    anything = [play_ant_v5(untrained(env, seed), 1, seed) for seed in range(episodes)]
    return [*rows, _ant_row(UNTRAINED, "Ant-v5", anything)]


def _ant_row(policy: str, simulator: str, found: list[Evaluation]) -> dict:
    return {
        "policy": policy, "simulator": simulator,
        "returns": [float(x) for it in found for x in it.returns],
        "lengths": [int(x) for it in found for x in it.lengths],
        "forward": [float(x) for it in found for x in it.measures["forward"]],
        "speed": [float(x) for it in found for x in it.measures["speed"]],
    }  # fmt: skip


# -- the Laikago


def laikago_rows(files: dict[str, PolicyFile], episodes: int) -> list[dict]:
    rows = []
    for task in MUJOCO_TASKS:
        own = {name: file for name, file in files.items() if file.task == task}
        fixed = {"randomise": False} if task == "LaikagoWalk" else {}
        for simulator, env in (
            ("ours", rl.make(task, episodes, device="cpu", **fixed)),
            ("MuJoCo", in_mujoco(task, episodes, device="cpu")),
            ("MuJoCo, stiff ground", in_mujoco(task, episodes, device="cpu", stiff=True)),
        ):
            progress(f"{task}, {simulator}")
            players = {name: file.policy for name, file in own.items()}
            players |= {NOTHING: still(env), UNTRAINED: _each_its_own(env)}
            rows += [_laikago_row(task, name, simulator, env, policy) for name, policy in players.items()]
    return rows


def _each_its_own(env: rl.Env):
    """A policy of untrained networks, one for each environment."""
    networks = [untrained(env, seed) for seed in range(env.num_envs)]
    return lambda seen: torch.cat([network(row[None]) for network, row in zip(networks, seen, strict=True)])


def _laikago_row(task: str, policy: str, simulator: str, env: rl.Env, player) -> dict:
    positions: list[torch.Tensor] = []
    found = evaluate(env, player, watch=lambda q: positions.append(q[:, :2].clone()))
    ways = (positions[-1] - positions[0]).norm(dim=1)
    return {
        "task": task, "policy": policy, "simulator": simulator,
        "returns": found.returns.tolist(), "lengths": found.lengths.tolist(),
        "falls": int((found.lengths < env.episode_length).sum()), "distance": ways.tolist(),
        "measures": {name: value.tolist() for name, value in found.measures.items()},
    }  # fmt: skip


# -- report


def spread(values: list[float], digits: int = 0) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def report(results: dict) -> dict[str, str]:
    ants = [
        [row["policy"], row["simulator"], spread(row["returns"]), float(np.mean(row["lengths"])),
         spread(row["forward"], 1), float(np.mean(row["speed"]))]
        for row in results["ant"]
    ]  # fmt: skip
    ants += [[name, "MuJoCo's ant", figure, "-", "-", "-"] for name, figure in PAPER]
    robots = [
        [row["task"], row["policy"], row["simulator"], f"{row['falls']} of {len(row['returns'])}",
         spread(row["returns"]), *(_mean(row, name) for name in ("velocity error", "turning error")),
         spread(row["distance"], 2)]
        for row in results["laikago"]
    ]  # fmt: skip
    return {
        "headline": _headline(results),
        "ant": table(["policy", "simulator", "return", "steps", "forward m", "speed m/s"], ants),
        "laikago": table(
            ["task", "policy", "simulator", "falls", "return", "velocity error m/s", "turning error rad/s",
             "distance m"], robots,
        ),
        "same_actions": transfer_ant.same_actions_table(results["same"]),
        "differences": transfer_ant.difference_sentences(results["same"]),
    }  # fmt: skip


def _headline(results: dict) -> str:
    ants = {row["policy"]: row for row in results["ant"] if row["simulator"] == "Ant-v5"}
    walks = {row["simulator"]: row for row in results["laikago"] if row["policy"] == "laikago_walk_shac"}
    sentences = []
    if "ant_shac" in ants:
        ours, rest = ants["ant_shac"], ants[NOTHING]
        sentences.append(
            f"In Gymnasium's Ant-v5 on MuJoCo, {len(ours['returns'])} episodes, a careful ant that learned to run by "
            f"SHAC has a return of {spread(ours['returns'])} and gets {np.mean(ours['forward']):.0f} m forward; "
            f"doing nothing has a return of {np.mean(rest['returns']):.0f}."
        )
    if walks:
        here, there = walks["ours"], walks["MuJoCo"]
        sentences.append(
            f"A Laikago that learned to walk by SHAC falls in {there['falls']} of {len(there['returns'])} episodes in "
            f"MuJoCo, and has a return of {spread(there['returns'])}; here it has {spread(here['returns'])}."
        )
    return " ".join(sentences) or "Neither ant_shac nor laikago_walk_shac was played."


def _mean(row: dict, measure: str) -> float | str:
    return float(np.mean(row["measures"][measure])) if measure in row["measures"] else "-"


def plot(results: dict, figure) -> None:
    left, middle, right = figure.subplots(1, 3)
    rows = [row for row in results["ant"] if row["simulator"] == "Ant-v5"]
    for at, row in enumerate(rows):
        for axes, key in ((left, "returns"), (middle, "forward")):
            axes.plot([at] * len(row[key]), row[key], ".", alpha=0.5)
            axes.plot(at, np.mean(row[key]), "_", markersize=20, color="black")
    for axes, label in ((left, "return in Ant-v5"), (middle, "way along x in Ant-v5, m")):
        axes.set_xticks(range(len(rows)), [row["policy"] for row in rows], rotation=20, fontsize=7)
        axes.set(ylabel=label)
    times = [k * transfer_ant.CONTROL_DT for k in transfer_ant.MOMENTS]
    for row in results["same"]["rows"]:
        if row["place"] == "on the ground" and row["size"] == max(transfer_ant.SIZES):
            right.loglog(times, row["torso_m"], "o-", label=" and ".join(row["between"]))
    right.set(xlabel="s of the same random actions", ylabel="median distance of the torsos, m")


def main(arguments: list[str] | None = None) -> dict:
    parser = reporting.parser(__doc__)
    parser.add_argument("policies", nargs="*", type=Path, help="policy files (default: all of examples/policies)")
    options = parser.parse_args(arguments)
    files = {path.stem: load_policy(path) for path in options.policies or sorted(POLICIES.glob("*.pt"))}
    strangers = [name for name, file in files.items() if file.task not in TASKS]
    if options.policies and strangers:
        raise SystemExit(f"{strangers[0]} is of the task {files[strangers[0]].task}; MuJoCo has {', '.join(TASKS)}.")
    episodes = QUICK_EPISODES if options.quick else EPISODES
    results = reporting.begin(options)
    with reporting.quiet():
        results["ant"] = ant_rows({name: file for name, file in files.items() if file.task == "Ant"}, episodes)
        results["laikago"] = laikago_rows(files, episodes)
        results["same"] = transfer_ant.measure()
    return reporting.finish("transfer", options, results, report, plot)


if __name__ == "__main__":
    main()
