"""What a user sees of Warp: nothing, but a line while a kernel compiles.

Warp's own messages (banner, modules) come back with WA_VERBOSE=1. Imports neither torch nor kernels.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import warp as wp

VERBOSE = "WA_VERBOSE"  # environment variable
PATIENCE = 2.0  # s; shorter waits need no explanation
NO_DRIVER = b"Could not find or load the NVIDIA CUDA driver"
announced = True
"""Whether compiling is announced; the command line has its own progress."""


def start_warp() -> None:
    """Initialise Warp without its messages, unless the user has initialised it or has chosen its log level."""
    if wp._src.context.runtime is not None or os.environ.get(VERBOSE, "0") not in ("", "0"):
        wp.init()
        return
    if wp.config.log_level == wp.LOG_INFO:
        wp.config.log_level = wp.LOG_WARNING
    try:
        with _without_driver_warning():
            wp.init()
    except OSError as error:
        raise OSError(
            f"Warp cannot use its kernel cache folder ({error}); set WARP_CACHE_PATH to a writable folder."
        ) from None


@contextmanager
def _without_driver_warning() -> Iterator[None]:
    """Drop the lines that C code writes about a missing driver: a machine without a GPU is no reason to warn."""
    try:
        saved = os.dup(2)
    except OSError:  # a program without stderr
        yield
        return
    with tempfile.TemporaryFile() as written:
        try:
            os.dup2(written.fileno(), 2)
            yield
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            written.seek(0)
            rest = b"".join(line for line in written if NO_DRIVER not in line)
            if rest:
                os.write(2, rest)


@contextmanager
def compiling(what: str, about: str = "") -> Iterator[None]:
    """Around loading kernels: says on stderr that they are compiled, if they are and it takes longer than PATIENCE.

    what: what is compiled, in words for users. about: a note such as "; about 15 s".
    """
    over = threading.Event()

    def watch() -> None:
        wait = PATIENCE
        while not over.wait(wait):
            wait = 0.5
            if _builds():
                print(f"compiling {what}, once{about}", file=sys.stderr, flush=True)
                return

    if announced:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _builds() -> bool:
    """Whether this process compiles now, and does not just read the cache: Warp builds in a folder with its id."""
    return next(Path(str(wp.config.kernel_cache_dir)).glob(f"*_p{os.getpid()}_t*"), None) is not None
