"""Where a run's numbers come from: versions, the state of the repository, the overrides. Plain data for a
JSON file.
"""

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("tl_integrations", "torch", "lightning", "hydra-core", "omegaconf", "numpy")
GIT_SECONDS = 10.0


def provenance(config_text: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """What must be known besides the config to run the same again.

    Args:
        config_text: The pinned YAML; its sum identifies it.
        overrides: What was written on the command line.
        folder: Where the application runs; its repository, if any, is asked for its commit.
    """
    return {
        "overrides": overrides,
        "config_sha256": hashlib.sha256(config_text.encode()).hexdigest(),
        "versions": {"python": platform.python_version(), **package_versions()},
        "git": repository_state(folder),
    }


def package_versions() -> dict[str, str]:
    """Versions of what decides the numbers, from the installed metadata: nothing is imported."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def repository_state(folder: Path) -> dict[str, Any] | None:
    """Commit and whether files differ from it, or None where there is no repository or no git."""
    commit = git(folder, "rev-parse", "HEAD")
    changes = git(folder, "status", "--porcelain")
    return None if commit is None or changes is None else {"commit": commit, "dirty": bool(changes)}


def git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
