"""Finds policies: by the name of an included policy, in a run folder, or as a file."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

POLICY, BEST = "policy.pt", "best.pt"  # in a run folder


def policy_names() -> list[str]:
    """Names of the policies included in the package, in alphabetical order."""
    return sorted(path.stem for path in _folder().glob("*.pt"))


def policy_path(name_or_path: str | os.PathLike) -> Path:
    """The file of a policy, given a name in policy_names(), a run folder, or a path."""
    path = Path(name_or_path)
    if path.is_dir():
        found = next((path / name for name in (POLICY, BEST) if (path / name).is_file()), None)
        if found is None:
            raise FileNotFoundError(f"the folder {path} has no {POLICY}; it must be the folder of a training run.")
        return found
    if path.is_file():
        return path
    if str(name_or_path) in policy_names():
        return _folder() / f"{name_or_path}.pt"
    names = f"; the included policies are {', '.join(policy_names())}" if policy_names() else ""
    raise FileNotFoundError(f"there is no file, run or policy {name_or_path}{names}.")


def _folder() -> Path:
    try:
        return Path(str(resources.files("warp_articulated.policies")))
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[3] / "examples" / "policies"
