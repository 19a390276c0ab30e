"""Writing output files so that a reader never sees an incomplete one, and an old file survives a failed write."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USD_SUFFIXES = (".usd", ".usda", ".usdc")


def check_output_path(path: str | os.PathLike, suffixes: tuple[str, ...]) -> Path:
    """The path as a Path, or an error that says why no file of these types can be written there."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"cannot write {path}: the file's name must end in {' or '.join(suffixes)}.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder.")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {path}: the file is there already and is read-only.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {path.parent} is not writable.")
    return path


def temporary_beside(path: Path, suffix: str) -> Path:
    """A hidden name in the folder of `path` that no other file has, ending in `suffix`."""
    return path.with_name(f".{path.stem}-{os.getpid()}-{secrets.token_hex(4)}{suffix}")


@contextmanager
def replace_when_done(path: Path) -> Iterator[Path]:
    """Yields a temporary name in the folder of `path`; moves it into place if the block succeeds, else removes it.

    The temporary file is in the same folder because a move is atomic only within one file system, and keeps the
    suffix because writers choose their format by it.
    """
    target = Path(os.path.realpath(path))  # a link is followed, not replaced
    temporary = temporary_beside(target, path.suffix)
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
