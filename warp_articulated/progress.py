"""Progress of long work: library functions call `progress(done, total)`; `Bar` and `Busy` show it on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

Progress = Callable[[int, int], None]
"""Called repeatedly as progress(done, total); done rises to total."""

WIDTH = 30
PATIENCE = 0.5  # s; shorter work shows nothing


class _Line:
    """One line of a terminal that is redrawn in place."""

    def __init__(self, label: str, *, enabled: bool | None = None, stream: TextIO | None = None):
        self.label, self.stream = label, stream or sys.stderr
        self.enabled = self.stream.isatty() if enabled is None else enabled
        self.began = time.perf_counter()
        self.drawn = False

    def draw(self, text: str) -> None:
        self.drawn = True
        self.stream.write(f"\r\x1b[2K{self.label} {text}")
        self.stream.flush()

    def close(self) -> None:
        """Erase the line: the work is done, and its result is printed next."""
        if self.drawn:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
            self.drawn = False

    def __exit__(self, *_) -> None:
        self.close()


class Bar(_Line):
    """A bar with the remaining time. enabled: None: if the stream (stderr by default) is a terminal."""

    last = 0.0

    def __enter__(self) -> Bar:
        return self

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.perf_counter()
        if not self.enabled or now - self.began < PATIENCE or now - self.last < 0.1:
            return
        self.last = now
        share = done / max(total, 1)
        filled = int(share * WIDTH)
        left = f"{(now - self.began) * (1.0 - share) / share:.0f} s left" if share > 0 else ""
        self.draw(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} %  {left}  {note}".rstrip())


class Busy(_Line):
    """Counts the seconds of work whose progress is unknown, such as compiling."""

    def __enter__(self) -> Busy:
        self._over = threading.Event()
        if self.enabled:
            self._thread = threading.Thread(target=self._count, daemon=True)
            self._thread.start()
        return self

    def _count(self) -> None:
        while not self._over.wait(PATIENCE):
            self.draw(f"{time.perf_counter() - self.began:.0f} s")

    def __exit__(self, *_) -> None:
        self._over.set()
        if self.enabled:
            self._thread.join()
        self.close()
