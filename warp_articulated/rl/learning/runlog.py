"""The log of a training run: CSV, JSON lines, TensorBoard if installed, and a plot of the returns."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from ...files import replace_when_done


class RunLog:
    """Rows of numbers in log.jsonl and log.csv of a folder.

    log.jsonl is only appended to, so a killed process leaves at most one broken line. log.csv, for spreadsheets, is
    rewritten by `flush`, because later rows may have additional columns. JSON cannot represent non-finite numbers: they
    are null in log.jsonl and omitted when it is read.

    Args:
        folder: the run folder.
        keep: number of existing rows to keep when resuming; later rows are dropped.
    """

    def __init__(self, folder: Path, keep: int = 0):
        self.folder = folder
        self.rows = read_log(folder)[:keep]
        self._write_all()
        # a killed run may have logged steps after its last checkpoint
        self._board = _tensorboard(folder, int(self.rows[-1]["steps"]) + 1 if self.rows else None)

    def add(self, row: dict[str, float]) -> None:
        self.rows.append(row)
        with open(self.folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(_line(row))
        if self._board:
            for name, value in row.items():
                self._board.add_scalar(name, value, int(row["steps"]))

    def flush(self) -> None:
        """Write the CSV."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        with replace_when_done(self.folder / "log.csv") as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)
        if self._board:
            self._board.flush()

    def close(self) -> None:
        """Write the CSV, and the plot if matplotlib is installed."""
        self.flush()
        draw_curve(self.folder / "curve.png", self.rows)

    def _write_all(self) -> None:
        with replace_when_done(self.folder / "log.jsonl") as temporary:
            temporary.write_text("".join(map(_line, self.rows)), encoding="utf-8")


def _line(row: dict[str, float]) -> str:
    return json.dumps({name: x if math.isfinite(x) else None for name, x in row.items()}) + "\n"


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All rows of a run; [] if there are none."""
    path = folder / "log.jsonl"
    rows = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            rows.append({name: x for name, x in json.loads(line).items() if x is not None})
        except ValueError:  # incomplete last line of a killed run
            break
    return rows


def draw_curve(path: Path, rows: list[dict[str, float]]) -> bool:
    """Plot returns over steps and over time as PNG; returns False, without a file, without matplotlib or rows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    drawn = False
    for name, label, style in (("return", "while learning", "0.6"), ("evaluated return", "without noise", "C0")):
        points = [row for row in rows if name in row]
        if points:
            drawn = True
            values = [row[name] for row in points]
            left.plot([row["steps"] for row in points], values, color=style, label=label)
            right.plot([row["seconds"] / 60 for row in points], values, color=style, label=label)
    if drawn:
        left.set(xlabel="control steps", ylabel="return of an episode")
        right.set(xlabel="minutes")
        for axes in (left, right):
            axes.grid(alpha=0.3)
        left.legend()
        with replace_when_done(path) as temporary:
            figure.savefig(temporary, dpi=110)
    return drawn


def _tensorboard(folder: Path, purge_step: int | None):
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=purge_step)
