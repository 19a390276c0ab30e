"""`warp-articulated play`: evaluates a trained policy and films it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from .console import (
    DEVICE_HELP,
    NAME_VALUE,
    OK,
    THREADS_HELP,
    Console,
    add_command,
    as_dict,
    check_outputs,
    count,
    id_list,
    picture_size,
    port,
    positive,
    refuse,
    seed,
)

if TYPE_CHECKING:
    import numpy as np

    from ..rl.env import Env
    from ..rl.learning.evaluation import Evaluation
    from ..rl.learning.policy_file import PolicyFile

SHOWN = 4  # environments in films by default
FILM = 10.0  # s
USD_FPS, GIF_FPS = 60.0, 25.0

EXAMPLES = """
warp-articulated play runs/Ant-shac-0
warp-articulated play runs/Ant-shac-0 --gif ant.gif --seconds 5
warp-articulated play policy.pt --episodes 64 --json result.json
warp-articulated play policy.pt --usd run.usdc --env-ids 0-15
warp-articulated play policy.pt --view
warp-articulated play runs/MyEnv-shac-0 --task task.py:MyEnv
"""


def add(commands) -> None:
    command = add_command(commands, "play", "play, evaluate and film a trained policy", EXAMPLES, run)
    option = command.add_argument
    option("policy", help="a .pt file, a run folder, or the name of a policy included in the package")
    option("--task", help="the task, if it is in a file of yours: task.py:MyEnv; the file is run")
    option("--episodes", type=count, default=16, help="episodes to play in parallel (%(default)s)")
    option("--seed", type=seed, default=0, help="seed of the episodes (%(default)s)")
    option(
        "--option",
        **NAME_VALUE,
        help="task option that replaces the value used in training, with a JSON value: push=0, n=3",
    )
    option("--threads", type=count, help=THREADS_HELP)
    option("--device", help=DEVICE_HELP)
    group = command.add_argument_group("output")
    option = group.add_argument
    option("--gif", type=Path, help="write a small film for a web page; the camera follows the robots")
    option("--usd", type=Path, help="write a film (.usd, .usda, .usdc)")
    option("--png", type=Path, help="write a picture of the last frame of the film")
    option("--json", type=Path, help="write the results of every episode")
    option("--seconds", type=positive, help=f"maximum length of films ({FILM:g}), or duration of --view")
    option("--env-ids", type=id_list, help=f"episodes shown in films, such as 0,5,8-11; default: the first {SHOWN}")
    option("--size", type=picture_size, help="picture size, such as 960x540 (PNG 960x540, GIF 480x270)")
    group = command.add_argument_group("live")
    group.add_argument("--view", action="store_true", help="show the policy in a browser instead, until Ctrl-C")
    group.add_argument("--port", type=port, help="port to serve on; 0: any free port (8080)")


def run(options: argparse.Namespace) -> int:
    from ..rl.learning.policies import policy_path
    from ..rl.learning.policy_file import load_policy
    from ..rl.learning.recipes import ALGORITHMS

    console = Console(options)
    _check(options)
    given = as_dict(options.option, "of the task")
    given |= {name: getattr(options, name) for name in ("threads", "device") if getattr(options, name) is not None}
    found = load_policy(policy_path(options.policy))
    for name in given.keys() & {"task", "num_envs", "seed"}:
        raise ValueError(f"{name} is not a task option here; it is an argument of play, or play chooses it.")
    env = found.make(options.episodes, task=options.task, **given)
    found.policy.to(env.device, env.dtype)
    _check_fit(options, found, env)
    algorithm = found.info.get("algorithm")  # a stranger's file may have any text here
    origin = f", trained with {algorithm}" if algorithm in tuple(ALGORITHMS) else ""
    console.say(f"policy for {found.task}{origin}")
    if options.view:
        return _view(options, found, env)
    film = _Film(options, env)
    result = _play(options, console, found, env, film)
    _print(result)
    film.write(console)
    if options.json is not None:
        _write_json(options, console, found, result)
    return OK


def _check(options: argparse.Namespace) -> None:
    """Check options and output paths before the work starts."""
    from ..files import USD_SUFFIXES

    suffixes = {"usd": USD_SUFFIXES, "gif": (".gif",), "png": (".png",), "json": (".json",)}
    check_outputs(options, suffixes)
    if options.view:
        refuse(options, "--view writes no files", *suffixes)
    else:
        refuse(options, "--view is not given", "port")
    if not (options.usd or options.gif or options.png):
        refuse(options, "no film is written", *(("env_ids",) if options.view else ("seconds", "env_ids")))
    if not (options.png or options.gif):
        refuse(options, "no picture is drawn", "size")
    outside = [e for e in options.env_ids or () if e >= options.episodes]
    if outside:
        raise ValueError(f"--env-ids names episode {outside[0]}, but --episodes is {options.episodes}.")


def _check_fit(options: argparse.Namespace, found: PolicyFile, env: Env) -> None:
    """Task options can change the robot, so that the policy no longer fits."""
    for name in ("observation_size", "action_size"):
        if getattr(env, name) != found.info[name]:
            raise ValueError(
                f"{options.policy} was trained with {name} {found.info[name]}, but here {type(env).__name__} "
                f"has {getattr(env, name)}."
            )


def _play(options: argparse.Namespace, console: Console, found: PolicyFile, env: Env, film: _Film) -> Evaluation:
    from ..rl.learning.evaluation import evaluate

    with console.bar("playing") as bar:

        def watch(q) -> None:
            film.take(q)
            bar(film.seen, env.episode_length)

        return evaluate(env, found.policy, options.seed, watch)


def _print(result: Evaluation) -> None:
    numbers = result.summary()
    spread = numbers.pop("return sd")
    print(f"{len(result.returns)} episodes: return {numbers.pop('return'):.4g} +- {spread:.2g}, ", end="")
    print(", ".join(f"{name} {value:.4g}" for name, value in numbers.items()), flush=True)


def _write_json(options: argparse.Namespace, console: Console, found: PolicyFile, result: Evaluation) -> None:
    from ..files import replace_when_done

    episodes = {"return": result.returns, "length": result.lengths, **result.measures}
    report = {
        "policy": options.policy,
        "task": options.task or found.task,
        "options": {**found.options, **dict(options.option)},
        "seed": options.seed,
        "mean": result.summary(),
        "episodes": {name: values.tolist() for name, values in episodes.items()},
    }
    with replace_when_done(options.json) as temporary:
        temporary.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    console.say(f"wrote {options.json}")


class _Film:
    """Positions of the filmed episodes, up to the length of the film."""

    def __init__(self, options: argparse.Namespace, env: Env):
        self.options, self.env = options, env
        self.envs = options.env_ids or list(range(min(SHOWN, env.num_envs)))
        wanted = any((options.usd, options.gif, options.png))
        self.most = int((options.seconds or FILM) / env.control_dt + 1e-9) + 1 if wanted else 0
        self.rows: list[np.ndarray] = []
        self.seen = 0

    def take(self, q) -> None:
        self.seen += 1
        if len(self.rows) < self.most:
            self.rows.append(q[self.envs].cpu().numpy())

    def write(self, console: Console) -> None:
        if not self.most:
            return
        import numpy as np

        options, model, dt = self.options, self.env.model, self.env.control_dt
        frames = np.stack(self.rows)
        drawn: dict = {"device": str(self.env.device)} | ({"size": options.size} if options.size else {})
        if options.usd is not None:
            from ..show.film import frame_rows
            from ..show.usd import UsdWriter

            fps = min(USD_FPS, 1.0 / dt)
            with UsdWriter(options.usd, model, len(self.envs), fps=fps, env_ids=self.envs) as writer:
                writer.write(frames[frame_rows(len(frames), dt, fps)])
            console.say(f"wrote {options.usd}")
        if options.gif is not None:
            from ..show.pictures.gif import render_gif

            with console.bar(f"drawing {options.gif}") as bar:
                fps = min(GIF_FPS, 1.0 / dt)
                render_gif(options.gif, model, frames, dt=dt, fps=fps, follow=True, progress=bar, **drawn)
            console.say(f"wrote {options.gif}")
        if options.png is not None:
            from ..show.pictures.render import render_png

            with console.busy(f"drawing {options.png}"):
                render_png(options.png, model, frames[-1], **drawn)
            console.say(f"wrote {options.png}")


def _view(options: argparse.Namespace, found: PolicyFile, env: Env) -> int:
    from ..show.viewer import Viewer
    from .policy_control import PolicyControl

    state = env.fresh(env.num_envs, options.seed)
    control = PolicyControl(env, found.policy, state)
    port = 8080 if options.port is None else options.port
    with Viewer(env.sim, control=control, state=(state.q, state.qd), port=port) as viewer:
        print(f"open {viewer.url} in a browser; stop with Ctrl-C", flush=True)
        viewer.run(options.seconds)
    return OK
