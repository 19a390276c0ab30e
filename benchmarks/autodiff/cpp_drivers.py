"""Builds the C++ programs of cpp/ with the libraries of Debian's packages.

apt-get install g++ libadolc-dev libceres-dev libeigen3-dev
apt-get download r-cran-tmb && dpkg -x r-cran-tmb_*.deb cppad     CppAD's headers; then CPPAD_INCLUDE=cppad/usr/...
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "cpp"
EIGEN = "/usr/include/eigen3"
FILES = {"C++ doubles": "plain", "CppAD": "cppad", "ADOL-C": "adolc", "Ceres jets": "ceres"}
LIBRARIES = {"ADOL-C": ["-ladolc"], "Ceres jets": ["-lglog"]}
CPPAD = "usr/lib/R/site-library/TMB/include"  # within Debian's package r-cran-tmb


class Missing(RuntimeError):
    """A compiler or a library is not installed; the message says which package has it."""


@cache
def program(method: str) -> Path:
    """The compiled driver of a method; built once for all benchmarks, and again when a file of cpp/ has changed."""
    name = FILES[method]
    texts = [path.read_bytes() for path in (*sorted(SOURCES.glob("*.hpp")), SOURCES / f"{name}.cpp")]
    key = hashlib.sha256(b"".join(texts) + platform.processor().encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / "warp_articulated_cpp" / f"{name}_{key}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        build(method, part)
        part.replace(path)
    return path


def build(method: str, path: Path) -> None:
    if shutil.which("g++") is None:
        raise Missing("there is no g++; apt-get install g++")
    include = ["-I", EIGEN] if method != "C++ doubles" else []
    if method == "CppAD":
        include += ["-I", str(cppad_headers())]
    source = SOURCES / f"{FILES[method]}.cpp"
    command = ["g++", "-O3", "-DNDEBUG", "-march=native", "-std=c++17", *include, str(source), "-o", str(path)]
    done = subprocess.run([*command, *LIBRARIES.get(method, [])], capture_output=True, text=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
        raise Missing(f"{method} does not compile here: {reason.strip()}")


@cache
def cppad_headers() -> Path:
    """From CPPAD_INCLUDE, or out of Debian's package, unpacked into a folder for temporary files."""
    if os.environ.get("CPPAD_INCLUDE"):
        return Path(os.environ["CPPAD_INCLUDE"])
    folder = Path(tempfile.gettempdir()) / "warp_articulated_cppad"
    if not (folder / CPPAD / "cppad" / "cppad.hpp").exists():
        if shutil.which("apt-get") is None:
            raise Missing("CppAD's headers are not here; set CPPAD_INCLUDE to their folder")
        folder.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "download", "r-cran-tmb"], cwd=folder, capture_output=True)
        packages = sorted(folder.glob("r-cran-tmb_*.deb"))
        if not packages:
            raise Missing("CppAD's headers are not here, and apt-get cannot download r-cran-tmb, which has them")
        subprocess.run(["dpkg", "-x", str(packages[-1]), str(folder)], check=True, capture_output=True)
    return folder / CPPAD
