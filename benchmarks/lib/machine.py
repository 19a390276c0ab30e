"""What a benchmark's figures were measured on, and how its tables and files are written."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1]
ROOT, RESULTS = BENCHMARKS.parent, BENCHMARKS / "results"
# of the benchmarks that can be run
FOLDERS = ("speed", "gradients", "autodiff", "gpu", "learning", "output", "survey")
STARTED = time.perf_counter()
PACKAGES = ("warp-lang", "torch", "mujoco", "numpy", "usd-core")


def describe() -> dict:
    """CPU, memory, versions and commit, without names of the host or its folders."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def script(name: str) -> Path:
    """The file of the benchmark `name`, whichever folder it is in; its results are results/`name`.json."""
    for folder in FOLDERS:
        if (path := BENCHMARKS / folder / f"{name}.py").exists():
            return path
    raise SystemExit(f"There is no benchmark {name}.py in {', '.join(FOLDERS)} below benchmarks/.")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load(seconds: float = 0.5) -> float:
    """Cores that other programs keep busy while this one sleeps; 0 where the system does not say."""
    before = _busy_ticks()
    time.sleep(seconds)
    return (_busy_ticks() - before) / (seconds * os.sysconf("SC_CLK_TCK")) if before else 0.0


def _busy_ticks() -> int:
    try:
        user, nice, system, _idle, _wait, *interrupts = Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    except (OSError, ValueError):
        return 0
    return sum(map(int, (user, nice, system, *interrupts)))


def memory_mb(kind: str) -> float:
    """Memory of this process, MB: now (VmRSS) or its peak (VmHWM). 0 where the system does not say.

    Unlike VmHWM, ru_maxrss includes the peak of the parent process.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(kind):
                return int(line.split()[1]) / 1024
    return 0.0


def peak_mb() -> float:
    """Largest memory of this process since the last `reset_peak`, MB."""
    if not (peak := memory_mb("VmHWM")):
        raise RuntimeError("this system does not report a process's peak memory in /proc.")
    return peak


def reset_peak() -> None:
    """The peak starts again from what is in use now; not on systems other than Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Watch:
    """Seconds and memory of what follows; what came before, such as compiling, does not count."""

    def __init__(self):
        reset_peak()
        self.before, self.began = peak_mb(), time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        seconds, self.began = now - self.began, now
        return seconds

    def figures(self, forward: float, backward: float, compile_s: float = 0.0) -> dict:
        return {"forward_s": forward, "backward_s": backward, "before_mb": self.before,
                "peak_mb": peak_mb(), "compile_s": compile_s}  # fmt: skip


def progress(text: str) -> None:
    """A line on stderr, with the seconds since the start."""
    print(f"[{time.perf_counter() - STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Markdown, floats with three digits."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def write_json(path: str | os.PathLike, results: dict) -> None:
    """Written to a second file that then replaces the old one: an interrupted run never destroys a result."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    part.replace(path)


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Commit of the checkout, with '+' if files that it tracks were changed since."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
