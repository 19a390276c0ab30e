"""Numbers that arrive frame by frame and are read link by link: in memory while they are few, then on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

IN_MEMORY = 32 * 2**20  # bytes


class Spool:
    """Rows of (columns, width) numbers, appended in blocks of frames and read back by columns.

    The file has no name, so it disappears however the process ends. It is in `folder`, next to the export, because a
    folder for temporary files is often too small, or held in memory.
    """

    def __init__(self, folder: str | Path, columns: int, width: int, dtype: type):
        self.columns, self.width, self.dtype = columns, width, np.dtype(dtype)
        self.frames: list[int] = []  # of each block
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder))

    def append(self, rows: np.ndarray) -> None:
        """Add frames, (n, columns, width)."""
        block = np.ascontiguousarray(rows.transpose(1, 0, 2), self.dtype)
        self._file.write(block.tobytes())
        self.frames.append(len(rows))

    def read(self, first: int, last: int) -> np.ndarray:
        """Columns first to last - 1 of all frames, (last - first, frames, width)."""
        row = self.width * self.dtype.itemsize
        parts, start = [], 0
        for frames in self.frames:
            self._file.seek(start + first * frames * row)
            data = self._file.read((last - first) * frames * row)
            parts.append(np.frombuffer(data, self.dtype).reshape(last - first, frames, self.width))
            start += self.columns * frames * row
        return np.concatenate(parts, axis=1)

    def close(self) -> None:
        self._file.close()
