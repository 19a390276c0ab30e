"""One robot at a time in another process: a file can crash MuJoCo, which is C++, or take for ever."""

from __future__ import annotations

import multiprocessing
import traceback
from pathlib import Path

PATIENCE = 300.0  # s for one robot


class Worker:
    """Calls survey.robot.examine(path, motion) in a process that is started again when it ends or hangs."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.process.BaseProcess | None = None

    def examine(self, path: Path, motion: bool) -> dict | None:
        """What became of the file; None: it is no robot."""
        if self._process is None:
            self._pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send((path, motion))
        try:
            if self._pipe.poll(PATIENCE):
                return self._pipe.recv()
            error = f"It takes more than {PATIENCE:g} s."
        except EOFError:
            error = "It crashes the process."
        self._process.kill()
        self._process = None
        return {"status": "refused", "error": error}


def _serve(pipe) -> None:
    from survey.robot import examine

    while True:
        try:
            path, motion = pipe.recv()
        except EOFError:  # the survey has ended
            return
        try:
            pipe.send(examine(path, motion))
        except Exception as error:  # a mistake of ours, to be shown in the table
            traceback.print_exc()
            pipe.send({"status": "refused", "error": f"{type(error).__name__}: {error}"})
