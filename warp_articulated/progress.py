"""Progress of long work: library functions call `progress(done, total)`; `Bar` shows it on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

Progress = Callable[[int, int], None]
"""Called as progress(done, total) while work goes on; done rises to total."""

WIDTH = 30


class Bar:
    """A bar with the time that is left, drawn only once the work has lasted longer than `patience` seconds.

    enabled: None: if the stream is a terminal.
    """

    def __init__(self, label: str, *, enabled: bool | None = None, patience: float = 0.5, stream: TextIO | None = None):
        self.label, self.patience = label, patience
        self.stream = stream or sys.stderr
        self.enabled = self.stream.isatty() if enabled is None else enabled
        self.began = self.drawn = time.perf_counter()
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if not self.enabled or now - self.began < self.patience:
            return
        last = done >= total
        if now - self.drawn < 0.1 and not last:
            return
        self.drawn = now
        share = done / max(total, 1)
        filled = int(share * WIDTH)
        left = (now - self.began) * (1.0 - share) / share if share > 0 else 0.0
        text = f"{now - self.began:.1f} s" if last else f"{left:.0f} s left"
        self._line(f"{self.label} [{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:3.0f} %  {text}")

    def _line(self, text: str) -> None:
        self.shown = True
        self.stream.write(f"\r\x1b[2K{text}")
        self.stream.flush()

    def close(self) -> None:
        """End the line, so that what is printed next stands below the bar."""
        if self.shown:
            self.stream.write("\n")
            self.stream.flush()
            self.shown = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_) -> None:
        self.close()
